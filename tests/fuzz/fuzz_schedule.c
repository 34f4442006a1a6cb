/* Reader: schedule/csv.c, and the rules and the simulator behind it. The part is a schedule's file. What passes all rules is
 * written, and reads as the same operations with the same times. */
#include <string.h>

#include "core/base/text.h"
#include "schedule/timed.h"
#include "tests/fuzz/fuzz.h"

static void again(const bppsa_timed *timed) {
  bppsa_text text = {0};
  bppsa_schedule *list = NULL;
  bppsa_timed copy = {0};
  FUZZ_CHECK(bppsa_schedule_csv_write(timed, &text) == BPPSA_OK);
  FUZZ_CHECK(bppsa_schedule_csv_load(fuzz_file("again.csv", text.text, text.size), &list) == BPPSA_OK);
  FUZZ_CHECK(list->count == timed->list->count && list->workers == timed->list->workers);
  FUZZ_CHECK(bppsa_timed_create(list, &copy) == BPPSA_OK);
  FUZZ_CHECK(copy.times.makespan == timed->times.makespan);
  bppsa_timed_free(&copy);
  bppsa_text_free(&text);
}

bppsa_status fuzz_run(const fuzz_input *input) {
  bppsa_schedule *list = NULL;
  bppsa_timed timed = {0};
  const bppsa_status status = bppsa_schedule_csv_load(fuzz_file("a.csv", input->part[0].data, input->part[0].size), &list);
  if (status != BPPSA_OK) {
    return status;
  }
  if (bppsa_timed_create(list, &timed) == BPPSA_OK) { /* takes the list over in every case */
    if (input->options % 2 != 0) {
      bppsa_text drawn = {0};
      json_decref(bppsa_timed_json(&timed, true));
      (void)bppsa_schedule_draw(&timed, &drawn);
      (void)bppsa_schedule_trace(&timed, &drawn);
      bppsa_text_free(&drawn);
    }
    again(&timed);
    bppsa_timed_free(&timed);
  }
  return BPPSA_OK;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  int64_t schemes = 0;
  const bppsa_schedule_scheme *all = bppsa_schedule_schemes(&schemes);
  if (index >= schemes) {
    return false;
  }
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_schedule *list = NULL;
  bppsa_timed timed = {0};
  bppsa_text text = {0};
  config.stages = config.micro_batches = 2;
  config.elements = 4;
  if (bppsa_schedule_create(all[index].id, &config, &list) == BPPSA_OK && bppsa_timed_create(list, &timed) == BPPSA_OK) {
    FUZZ_CHECK(bppsa_schedule_csv_write(&timed, &text) == BPPSA_OK);
  }
  fuzz_add_number(seed, 1, 1);
  fuzz_add_part(seed, text.text, text.size);
  bppsa_timed_free(&timed);
  bppsa_text_free(&text);
  return true;
}

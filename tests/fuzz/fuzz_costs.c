/* Reader: schedule/costs.c, and what is made with the costs: a schedule, its times. The part is a file of costs; the options choose
 * the scheme. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "schedule/timed.h"
#include "tests/fuzz/fuzz.h"

static void make(const char *scheme, const bppsa_schedule_config *config) {
  bppsa_schedule *list = NULL;
  bppsa_timed timed = {0};
  if (bppsa_schedule_check_rows(scheme, config) != BPPSA_OK || bppsa_schedule_create(scheme, config, &list) != BPPSA_OK) {
    return;
  }
  if (bppsa_timed_create(list, &timed) == BPPSA_OK) {
    for (int64_t i = 0; i < timed.list->count; ++i) {
      FUZZ_CHECK(!(timed.times.end[i] < timed.times.start[i]));
    }
    json_decref(bppsa_timed_json(&timed, true));
    bppsa_timed_free(&timed);
  }
}

bppsa_status fuzz_run(const fuzz_input *input) {
  int64_t schemes = 0;
  const bppsa_schedule_scheme *all = bppsa_schedule_schemes(&schemes), *scheme = &all[input->options % schemes];
  bppsa_schedule_config config = bppsa_schedule_config_default();
  double *arrays[BPPSA_SCHEDULE_COST_ARRAYS] = {NULL};
  const bppsa_status status =
      bppsa_schedule_costs_load(fuzz_file("costs.json", input->part[0].data, input->part[0].size), &config, arrays);
  if (status == BPPSA_OK) {
    config.elements = 5;
    config.reverse = 1;
    config.layers = config.profile.layers < 64 ? config.profile.layers : 0;
    make(scheme->id, &config);
  }
  for (int i = 0; i < BPPSA_SCHEDULE_COST_ARRAYS; ++i) {
    bppsa_free(arrays[i]);
  }
  return status;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const char *const texts[] = {
      ("{\"forward\":1,\"input_grad\":[1,2,3,4],\"weight_grad\":[0.5,1,1,2],\"sync\":0.25,\"step\":0,\"activation\":[1,1,1,1],"
       "\"message\":2,\"gradient\":[1e3,1,1,1],\"product\":1,\"apply\":0.5}"),
      ("{\"forward\":[1,2,2,1],\"input_grad\":[0,1,1,1],\"weight_grad\":[1,1,1,1],\"backward\":[1,1.5,1.5,1.5],"
       "\"sync\":[0.5,0,0.25,2],\"step\":[0.1,0,0,0.1],\"alpha\":0.125,\"beta\":0.01,\"message\":[3,2,1,1]}"),
      "{\"backward\":[2,4],\"alpha\":1e308,\"beta\":1e308}",
      "{\"forward\":1,\"profile\":{\"main\":[3,2],\"sub\":[[1,2],[2,1]],\"speedup\":[[1.5,1],[1,2]]}}",
      "{\"forwrad\":1}",
      "{\"forward\":[1,-1]}",
      "{\"alpha\":-1}",
      "{\"beta\":[1]}",
      "{\"forward\":1e308,\"weight_grad\":1e308}"};
  const int count = (int)(sizeof texts / sizeof texts[0]);
  int64_t schemes = 0;
  (void)bppsa_schedule_schemes(&schemes);
  enum { WITH_ALL = 2 /* texts that come with every scheme */ };
  if (index < WITH_ALL * schemes) {
    return fuzz_seed_text(index % WITH_ALL, (uint8_t)(index / WITH_ALL), texts, WITH_ALL, seed);
  }
  index -= WITH_ALL * (int)schemes;
  return fuzz_seed_text(index, (uint8_t)index, texts, count, seed);
}

/* Creates and frees schedules with their times, and writes their files. */
#include "schedule/timed.h"

#include "core/files/file.h"

bppsa_status bppsa_timed_create(bppsa_schedule *list, bppsa_timed *timed) {
  *timed = (bppsa_timed){.list = list};
  bppsa_status status = bppsa_schedule_validate(list);
  status = status == BPPSA_OK ? bppsa_schedule_simulate(list, &timed->times) : status;
  if (status != BPPSA_OK) {
    bppsa_timed_free(timed);
  }
  return status;
}

void bppsa_timed_free(bppsa_timed *timed) {
  if (timed->list != NULL) {
    bppsa_schedule_times_free(&timed->times);
    bppsa_schedule_destroy(timed->list);
  }
  *timed = (bppsa_timed){0};
}

/* ---- files ---- */

bppsa_status bppsa_timed_write(const bppsa_timed *timed, const bppsa_timed_files *files) {
  const struct {
    const char *option, *path;
    bppsa_status (*write)(const bppsa_timed *timed, bppsa_text *text);
  } all[] = {{"--svg", files->svg, bppsa_schedule_draw},
             {"--trace", files->trace, bppsa_schedule_trace},
             {"--csv", files->csv, bppsa_schedule_csv_write}};
  enum { FILES = sizeof all / sizeof *all };
  bppsa_text texts[FILES] = {{0}};
  bppsa_status status = BPPSA_OK;
  for (int i = 0; i < FILES && status == BPPSA_OK; ++i) {
    status = all[i].path != NULL ? all[i].write(timed, &texts[i]) : BPPSA_OK;
    status = status == BPPSA_ERR_ARGUMENT ? bppsa_fail_prefix(status, "%s", all[i].option) : status;
  }
  for (int i = 0; i < FILES && status == BPPSA_OK; ++i) {
    status = all[i].path != NULL ? bppsa_file_write(all[i].path, texts[i].text, texts[i].size) : BPPSA_OK;
  }
  for (int i = 0; i < FILES; ++i) {
    bppsa_text_free(&texts[i]);
  }
  return status;
}

#include "figures/figure_data_set.h"

#include <inttypes.h>

static void show_reading(void *context, int64_t done, int64_t total) {
  bppsa_progress_line *line = context;
  if (bppsa_progress_due(line)) {
    bppsa_progress_show(line, "%" PRId64 " of %" PRId64 " files read", done, total);
  }
}

static bppsa_status split_data(const bppsa_figures_dataset *asked, const bppsa_dataset *dataset, bppsa_split *split) {
  BPPSA_TRY(bppsa_dataset_split(dataset, asked->validation, split));
  return asked->batch <= split->train
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--batch: %" PRId64 ", more than the %" PRId64 " training samples, expected at most that many",
                          asked->batch, split->train);
}

bppsa_status bppsa_figures_open_data(const bppsa_figures *f, const bppsa_figures_dataset *asked, bppsa_dataset **dataset,
                                     bppsa_split *split) {
  const bppsa_figures_data *data = &f->request->data;
  bppsa_progress_line line = bppsa_progress_start(f->request->to.err);
  const bppsa_dataset_audio audio = {.set = &bppsa_mfcc_sets[data->set],
                                     .padding = data->padding,
                                     .device = f->request->device,
                                     .progress = show_reading,
                                     .context = &line};
  bppsa_dataset_options options = bppsa_dataset_options_default();
  bppsa_dataset *opened = NULL;
  options.seq_len = asked->seq_len;
  options.samples = asked->samples;
  options.seed = f->request->seed;
  options.audio = &audio;
  bppsa_status status = bppsa_input_status(bppsa_dataset_create(asked->spec, &options, &opened));
  bppsa_progress_clear(&line);
  status = status == BPPSA_OK ? split_data(asked, opened, split) : status;
  if (status != BPPSA_OK) {
    bppsa_dataset_destroy(opened);
    return status;
  }
  *dataset = opened;
  return BPPSA_OK;
}

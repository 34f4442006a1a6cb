#include "runs/pack_run.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "train/batch.h"
#include "train/data/pack.h"

enum { PASSES = 3 };

/* Takes the k-th batch of the order and makes its pass; *seconds a step that belongs to a sample. */
static bppsa_status time_pass(bppsa_batch *b, int64_t count, const int64_t *order, int64_t k, double *seconds) {
  const bppsa_dataset *d = b->dataset;
  int64_t steps = 0;
  for (int64_t i = 0; i < b->capacity; ++i) {
    b->indices[i] = order[(k * b->capacity + i) % count];
    steps += d->lengths != NULL ? d->lengths[b->indices[i]] : d->packing == NULL ? d->seq_len : 0;
  }
  const double useful =
      d->packing != NULL ? (double)d->packing->used / (double)d->packing->rows * (double)b->capacity : (double)steps;
  bppsa_loss_result loss;
  BPPSA_TRY(bppsa_batch_stage(b, b->capacity));
  BPPSA_TRY(bppsa_batch_queue_fill(b));
  BPPSA_TRY(b->model->device != NULL ? bppsa_device_wait(b->model->device) : BPPSA_OK);
  const double start = bppsa_now();
  BPPSA_TRY(bppsa_batch_forward(b));
  BPPSA_TRY(bppsa_batch_loss(b, &loss));
  BPPSA_TRY(b->seed.view.data != NULL ? b->model->ops->backward(b->model, &b->dlogits) : BPPSA_OK);
  BPPSA_TRY(b->model->device != NULL ? bppsa_device_wait(b->model->device) : BPPSA_OK);
  *seconds = (bppsa_now() - start) / useful;
  return BPPSA_OK;
}

/* The first pass warms up, and is not counted. */
static bppsa_status time_passes(bppsa_batch *b, int64_t count, double *least) {
  int64_t *order = bppsa_calloc(count, sizeof *order);
  bppsa_status status = order != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
  if (status == BPPSA_OK) {
    bppsa_shuffle(0, 1, count, order);
  }
  for (int64_t k = 0; status == BPPSA_OK && k <= PASSES; ++k) {
    double seconds = 0;
    status = time_pass(b, count, order, k, &seconds);
    *least = k == 1 || (k > 1 && seconds < *least) ? seconds : *least;
  }
  bppsa_free(order);
  return status;
}

/* Times passes of a network of default weights on the data's samples to train on. */
static bppsa_status measure(const bppsa_pack_request *request, const bppsa_network *network, const bppsa_device *device,
                            const bppsa_network_config *config, const bppsa_dataset *dataset, int64_t count, double *seconds) {
  bppsa_network_config c = *config;
  bppsa_model *model = NULL;
  bppsa_batch batch = {0};
  BPPSA_TRY(bppsa_network_fit(network, request->weights, dataset, &c));
  c.batch = request->batch < count ? request->batch : count;
  if (bppsa_gradient_method_open(&c.method) || !request->backward) {
    c.method.backward = BPPSA_BACKWARD_BP;
  }
  if (c.steps.forward.kind == BPPSA_FORWARD_AUTO) {
    c.steps.forward = bppsa_forward_method_default();
  }
  bppsa_status status = bppsa_network_create(network, &c, device, &model);
  status = status == BPPSA_OK ? bppsa_network_init(network, model, BPPSA_INIT_DEFAULT, 0) : status;
  status = status == BPPSA_OK ? bppsa_batch_create(model, dataset, device, c.batch, c.batch, request->backward, &batch) : status;
  if (status == BPPSA_OK) {
    status = time_passes(&batch, count, seconds);
    bppsa_batch_free(&batch);
  }
  bppsa_model_destroy(model);
  return status;
}

/* The configuration for rows. */
static bppsa_network_config of_rows(const bppsa_network_config *config) {
  bppsa_network_config made = *config;
  made.loss_all = true;
  made.steps.resets = true;
  made.steps.lengths = false;
  return made;
}

/* Leaves the samples as they are; samples of their own lengths take a sequential pass. */
static void keep_samples(bppsa_network_config *config) {
  if (config->steps.lengths && config->steps.forward.kind == BPPSA_FORWARD_AUTO) {
    config->steps.forward = bppsa_forward_method_default();
  }
}

bppsa_status bppsa_pack_run(const bppsa_pack_request *request, const bppsa_network *network, const bppsa_device *device,
                            double *validation, bppsa_network_config *config, bppsa_dataset **dataset, bppsa_pack_times *times) {
  BPPSA_REQUIRE(request != NULL && network != NULL && validation != NULL && config != NULL && dataset != NULL && times != NULL);
  const int64_t steps = request->steps > 0 ? request->steps : (*dataset)->seq_len;
  const bool measured = request->automatic && request->kept == NULL;
  bppsa_split split;
  bppsa_pack_times found = {0, 0};
  if (request->automatic && request->kept != NULL && request->kept[0] == '\0') {
    keep_samples(config);
    return BPPSA_OK;
  }
  if (config->steps.bidirectional && !config->loss_all) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--pack: given beside --bidirectional and a loss of the last step, where the reverse "
                                          "direction has seen a sample's first step, expected --loss all");
  }
  BPPSA_TRY(bppsa_dataset_split(*dataset, *validation, &split));
  BPPSA_TRY(measured ? measure(request, network, device, config, *dataset, split.train, &found.samples_s) : BPPSA_OK);
  BPPSA_TRY(bppsa_dataset_pack(*dataset, &split, steps, dataset));
  const bppsa_network_config rows = of_rows(config);
  const int64_t count = (*dataset)->samples - (*dataset)->held_out;
  if (measured) {
    BPPSA_TRY(measure(request, network, device, &rows, *dataset, count, &found.rows_s));
    *times = found;
  }
  if (measured && (found.rows_s >= found.samples_s || count < request->batch)) {
    bppsa_dataset_unpack(dataset);
    keep_samples(config);
    return BPPSA_OK;
  }
  *config = rows;
  *validation = 0;
  return BPPSA_OK;
}

void bppsa_packing_lines(const bppsa_dataset *dataset, const bppsa_pack_times *times, const char *label, bppsa_text *text) {
  const bool measured = times->samples_s > 0;
  char words[BPPSA_PACKING_TEXT];
  if (dataset->packing == NULL && !measured) {
    return;
  }
  bppsa_text_add(text, "%s%s", label,
                 dataset->packing == NULL ? "none" : bppsa_packing_text(dataset->packing, words, sizeof words));
  if (measured) {
    bppsa_text_add(text, ", by measurement: %.3g us a step in rows, %.3g us by samples", 1e6 * times->rows_s,
                   1e6 * times->samples_s);
  }
  bppsa_text_add(text, "\n");
}

/* Counts of networks whose patterns are too large to make: row by row (cnn/row_counts.h). */
#include "core/base/alloc.h"
#include "runs/flops.h"

/* What the table says about layer i, whose pattern is not made. */
static bppsa_status describe_operator(const bppsa_flops *f, int64_t i, bppsa_flops_operator *made) {
  const bppsa_cnn_network *network = &f->network.layers;
  const bppsa_cnn_layer *layer = &network->layers[i];
  bppsa_cnn_layer_work work;
  *made = (bppsa_flops_operator){.cols = bppsa_cnn_size(network, i + 1)};
  for (int64_t k = 0; k < bppsa_cnn_input_count(network, i); ++k) {
    made->rows += bppsa_cnn_size(network, bppsa_cnn_input_of(network, i, k) + 1);
  }
  BPPSA_TRY(bppsa_cnn_count_layer(network, i, bppsa_flops_mask(f, i), true, &work));
  made->nnz = work.flops[BPPSA_CNN_TO_INPUT][BPPSA_CNN_PRUNED] / 2;
  if (layer->node == BPPSA_CNN_OPERATOR && bppsa_op_is_identity(&layer->op)) {
    made->nnz = (double)made->rows;
  } else if (layer->node != BPPSA_CNN_OPERATOR && made->nnz == 0) { /* layers that join or split tensors */
    for (int64_t k = 0; k < bppsa_cnn_input_count(network, i); ++k) {
      made->nnz += (double)bppsa_cnn_part_of(network, i, k).count;
    }
  }
  return BPPSA_OK;
}

/* The FLOPs of the gradients of all weights but the head's. */
static double besides_of(const bppsa_flops *f, bppsa_cnn_count_kind kind) {
  double flops = 0;
  for (int64_t i = 0; i < f->count; ++i) {
    flops += f->layers[i].flops[BPPSA_CNN_TO_WEIGHTS][kind];
  }
  return flops;
}

/* Counts BP with all weights. */
static bppsa_status count_unpruned(const bppsa_cnn_counter_config *config, bppsa_flops *f) {
  bppsa_cnn_counter *all = NULL;
  bppsa_cnn_counter_config unpruned = *config;
  unpruned.masks = NULL;
  BPPSA_TRY(bppsa_cnn_counter_create(&unpruned, &all));
  const bppsa_status status = bppsa_cnn_count_elements(&f->network.layers, bppsa_cnn_counter_patterns(all), f->request.input_grad,
                                                       f->device, besides_of(f, BPPSA_CNN_UNPRUNED), &f->unpruned);
  bppsa_cnn_counter_destroy(all);
  return status;
}

bppsa_status bppsa_flops_count_rows(bppsa_flops *f, double *besides) {
  const bppsa_flops_request *request = &f->request;
  const uint8_t **masks = bppsa_calloc(f->count + 1, sizeof *masks);
  if (masks == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < f->count; ++i) {
    masks[i] = bppsa_flops_mask(f, i);
    status = describe_operator(f, i, &f->operators[i]);
  }
  const bppsa_cnn_counter_config config = {.network = &f->network.layers,
                                           .masks = masks,
                                           .input = request->input_grad,
                                           .seed = request->seed,
                                           .work = request->count_work,
                                           .memory_limit =
                                               request->memory_limit > 0 ? request->memory_limit : request->assumed_limit};
  status = status == BPPSA_OK ? count_unpruned(&config, f) : status;
  status = status == BPPSA_OK ? bppsa_cnn_counter_create(&config, &f->counter) : status;
  bppsa_free((void *)masks);
  if (status == BPPSA_ERR_ARGUMENT) { /* memory, which the counter's message does not say of what */
    return bppsa_fail_prefix(status, "%s", f->network.name);
  }
  BPPSA_TRY(status);
  *besides = besides_of(f, BPPSA_CNN_PRUNED);
  return BPPSA_OK;
}

/* The gradients of one batch on ranks. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/device_buffer.h"
#include "core/compute/memory.h"
#include "runs/gradients.h"
#include "runs/gradients_internal.h"
#include "train/loss.h"

/* An array [outer][samples][inner], inner in bytes; the outer axis, if any, is steps or layers. A rank uses the outer rows from
 * .. from + rows - 1. */
typedef struct {
  const bppsa_view *view;
  int64_t outer, samples, inner, from, rows;
  int32_t axis; /* the axis of the samples in the view */
} sampled;

static sampled sampled_of(const bppsa_view *view, int32_t axis) {
  sampled s = {.view = view, .outer = axis == 1 ? view->shape[0] : 1, .samples = view->shape[axis], .axis = axis};
  s.inner = (int64_t)bppsa_view_bytes(view) / (s.outer * s.samples);
  s.rows = s.outer;
  return s;
}

/* Copies samples first .. first + count - 1 of the rows from the array to `part`, which holds only them, or back. */
static void copy_samples(const sampled *s, int64_t first, int64_t count, void *part, bool to_part) {
  for (int64_t i = 0; i < s->rows; ++i) {
    char *whole = (char *)s->view->data + ((s->from + i) * s->samples + first) * s->inner;
    char *own = (char *)part + i * count * s->inner;
    memcpy(to_part ? own : whole, to_part ? whole : own, (size_t)(count * s->inner));
  }
}

static bppsa_view part_view(const sampled *s, int64_t count, void *part) {
  int64_t shape[BPPSA_MAX_DIMS];
  memcpy(shape, s->view->shape, sizeof *shape * (size_t)s->view->ndim);
  shape[s->axis] = count;
  shape[0] = s->axis == 1 ? s->rows : shape[0];
  return bppsa_view_make(part, s->view->dtype, s->view->ndim, shape);
}

/* What a rank computes with: the batch's arrays, and memory for the samples of a block. */
typedef struct {
  bppsa_gradients *g;
  sampled x, labels, h0, dx, dh0, resets; /* every rank has the resets of all steps */
  sampled weights;                        /* of the rows' losses, where there are any */
  bppsa_view resets_view, weights_view;
  void *x_part, *labels_part, *h0_part, *resets_part;
  double *weights_part;
  void *seed, *x_gpu, *h0_gpu; /* on the model's device; the last two, copies of the parts, only on a GPU */
  int64_t first, count;        /* samples computed so far on this rank */
} share;

/* Computes the block's share of the loss, and its seed; both are empty if the rank has no rows of the logits. */
static bppsa_status block_loss(const share *s, int64_t first, int64_t count, const bppsa_view *logits, const bppsa_view *seed,
                               bppsa_loss_result *loss) {
  const bppsa_gradients *g = s->g;
  const bppsa_view labels = part_view(&s->labels, count, s->labels_part);
  const int64_t *lengths = g->lengths != NULL ? g->lengths + first : NULL;
  const bool targets = bppsa_objective_real(&g->objective);
  const bppsa_loss_rows rows = {.labels = targets ? NULL : labels.data,
                                .targets = targets ? &labels : NULL,
                                .objective = g->objective,
                                .lengths = lengths,
                                .weights = s->weights_part,
                                .mean_rows = s->labels.outer * s->labels.samples};
  *loss = (bppsa_loss_result){0};
  if (g->objective.kind == BPPSA_LOSS_NONE) {
    loss->rows = bppsa_view_count(&labels) / labels.shape[labels.ndim - 1];
    loss->weight = (double)loss->rows;
    return bppsa_memory_put(g->model->device, seed->data, labels.data, (int64_t)bppsa_view_bytes(&labels));
  }
  return bppsa_view_count(logits) > 0 ? bppsa_loss_part(g->device, logits, &rows, seed, loss) : BPPSA_OK;
}

/* Returns the part where the model reads it: copied to `gpu`, unless that is NULL. */
static bppsa_status hand_over(const share *s, const sampled *array, int64_t count, void *part, void *gpu, bppsa_view *view) {
  *view = part_view(array, count, part);
  if (gpu == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_memory_put(s->g->device, gpu, part, (int64_t)bppsa_view_bytes(view)));
  view->data = gpu;
  view->device = BPPSA_CUDA;
  return BPPSA_OK;
}

/* Copies a gradient into the array of the whole batch; from a GPU it goes through `part`. */
static bppsa_status collect(const share *s, const sampled *array, int64_t first, int64_t count, const bppsa_view *gradient,
                            void *part) {
  const bool gpu = gradient->device == BPPSA_CUDA;
  BPPSA_TRY(gpu ? bppsa_memory_get(s->g->device, part, gradient->data, (int64_t)bppsa_view_bytes(gradient)) : BPPSA_OK);
  copy_samples(array, first, count, gpu ? part : gradient->data, false);
  return BPPSA_OK;
}

static bppsa_status compute_block(void *context, int64_t first, int64_t count, bppsa_data_parallel_sums *sums) {
  share *s = context;
  bppsa_gradients *g = s->g;
  const bool state = g->h0.view.data != NULL;
  bppsa_view x, h0, logits, dx, dh0;
  bppsa_loss_result loss;
  copy_samples(&s->x, first, count, s->x_part, true);
  copy_samples(&s->labels, first, count, s->labels_part, true);
  if (s->weights_part != NULL) {
    copy_samples(&s->weights, first, count, s->weights_part, true);
  }
  BPPSA_TRY(hand_over(s, &s->x, count, s->x_part, s->x_gpu, &x));
  if (state) {
    copy_samples(&s->h0, first, count, s->h0_part, true);
    BPPSA_TRY(hand_over(s, &s->h0, count, s->h0_part, s->h0_gpu, &h0));
  }
  bppsa_view resets;
  if (g->resets != NULL) {
    copy_samples(&s->resets, first, count, s->resets_part, true);
    resets = part_view(&s->resets, count, s->resets_part);
  }
  const bppsa_spans spans = {.lengths = g->lengths != NULL ? g->lengths + first : NULL,
                             .resets = g->resets != NULL ? &resets : NULL};
  BPPSA_TRY(bppsa_model_forward(g->model, &x, state ? &h0 : NULL, &spans, &logits));
  BPPSA_TRY(bppsa_model_add_pass(g->model, BPPSA_PASS_FORWARD, g->account[BPPSA_PASS_FORWARD]));
  bppsa_view seed = bppsa_view_make(s->seed, logits.dtype, logits.ndim, logits.shape);
  seed.device = logits.device;
  BPPSA_TRY(block_loss(s, first, count, &logits, &seed, &loss));
  if (!isfinite(loss.loss)) {
    return bppsa_model_fail_nonfinite(g->model, "loss");
  }
  BPPSA_TRY(g->model->ops->backward(g->model, &seed));
  BPPSA_TRY(g->model->ops->input_gradients(g->model, &dx, &dh0));
  BPPSA_TRY(collect(s, &s->dx, first, count, &dx, s->x_part));
  BPPSA_TRY(state ? collect(s, &s->dh0, first, count, &dh0, s->h0_part) : BPPSA_OK);
  s->first = s->count == 0 ? first : s->first;
  s->count += count;
  *sums = (bppsa_data_parallel_sums){loss.loss, (double)loss.correct, (double)loss.rows, 0, loss.weight};
  return BPPSA_OK;
}

/* ---- the gradients of inputs ---- */

/* The region of an array that a rank has computed. */
typedef struct {
  int64_t first, count, from, rows;
} region;
enum { REGION = sizeof(region) / sizeof(int64_t) };

static bppsa_status exchange(bppsa_comm *comm, const share *s, const sampled *array, region *all) {
  const region mine = {s->first, s->count, array->from, array->rows};
  const int64_t count = REGION, counts = REGION * bppsa_comm_size(comm);
  const bppsa_view one = bppsa_view_make((void *)(uintptr_t)&mine, BPPSA_I64, 1, &count);
  const bppsa_view whole = bppsa_view_make(all, BPPSA_I64, 1, &counts);
  return bppsa_comm_allgather(comm, &one, NULL, &whole);
}

/* Brings what every rank has computed to rank 0. all, bytes: scratch with room for every rank; own, whole: for the array. */
static bppsa_status gather(bppsa_comm *comm, const share *s, const sampled *array, region *all, int64_t *bytes, void *own,
                           void *whole) {
  const int32_t size = bppsa_comm_size(comm), rank = bppsa_comm_rank(comm);
  int64_t total = 0;
  BPPSA_TRY(exchange(comm, s, array, all));
  for (int32_t r = 0; r < size; ++r) {
    bytes[r] = all[r].count * all[r].rows * array->inner;
    total += bytes[r];
  }
  copy_samples(array, s->first, s->count, own, true);
  const bppsa_view mine = bppsa_view_make(own, BPPSA_U8, 1, &bytes[rank]),
                   everything = bppsa_view_make(whole, BPPSA_U8, 1, &total);
  BPPSA_TRY(bppsa_comm_gather(comm, 0, &mine, bytes, &everything));
  char *from = whole;
  for (int32_t r = 0; rank == 0 && r < size; from += bytes[r], ++r) {
    sampled theirs = *array;
    theirs.from = all[r].from;
    theirs.rows = all[r].rows;
    copy_samples(&theirs, all[r].first, all[r].count, from, false);
  }
  return BPPSA_OK;
}

static bppsa_status gather_inputs(bppsa_comm *comm, const share *s) {
  const int32_t size = bppsa_comm_size(comm);
  const bool state = s->g->h0.view.data != NULL;
  const size_t dx = bppsa_view_bytes(s->dx.view), dh0 = state ? bppsa_view_bytes(s->dh0.view) : 0, most = dx > dh0 ? dx : dh0;
  region *all = bppsa_calloc(size, sizeof *all);
  int64_t *bytes = bppsa_calloc(size, sizeof *bytes);
  void *own = bppsa_alloc(most), *whole = bppsa_alloc(most);
  bppsa_status status = all == NULL || bytes == NULL || own == NULL || whole == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  status = status == BPPSA_OK ? gather(comm, s, &s->dx, all, bytes, own, whole) : status;
  status = status == BPPSA_OK && state ? gather(comm, s, &s->dh0, all, bytes, own, whole) : status;
  bppsa_free(all);
  bppsa_free(bytes);
  bppsa_free(own);
  bppsa_free(whole);
  return status;
}

/* ---- this rank's part ---- */

/* Along time a rank has the rows of its own steps; only the rank with the first step has the gradient of h0. */
static void cut(share *s, const bppsa_rank_network *ranks) {
  const bppsa_data_parallel_config *p = &ranks->parallel;
  sampled *const steps[] = {&s->x, &s->dx, &s->labels, &s->weights};
  for (int i = 0; bppsa_rank_network_cut(ranks) && i < (s->g->config.loss_all ? 4 : 2); ++i) {
    steps[i]->from = p->first_step;
    steps[i]->rows = p->steps;
  }
  s->dh0.rows = bppsa_rank_network_cut(ranks) && !(p->first_step == 0 && p->steps > 0) ? 0 : s->dh0.rows;
}

static bppsa_status allocate(share *s, int64_t block) {
  bppsa_gradients *g = s->g;
  const bool state = g->h0.view.data != NULL, steps = g->network.kind->family->steps;
  const bppsa_view *x = &g->x.view, *labels = &g->labels.view, *h0 = &g->h0.view;
  BPPSA_TRY(bppsa_buffer_create(NULL, x->dtype, x->ndim, x->shape, &g->dx));
  s->x = sampled_of(x, steps ? 1 : 0);
  s->dx = sampled_of(&g->dx.view, s->x.axis);
  s->labels = sampled_of(labels, g->config.loss_all ? 1 : 0);
  if (g->loss_weights != NULL) {
    s->weights_view = bppsa_view_make(g->loss_weights, BPPSA_F64, g->config.loss_all ? 2 : 1, labels->shape);
    s->weights = sampled_of(&s->weights_view, g->config.loss_all ? 1 : 0);
    s->weights_part = bppsa_calloc(s->weights.outer * block, sizeof *s->weights_part);
    BPPSA_TRY(s->weights_part != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY);
  }
  if (state) {
    BPPSA_TRY(bppsa_buffer_create(NULL, h0->dtype, h0->ndim, h0->shape, &g->dh0));
    s->h0 = sampled_of(h0, 1);
    s->dh0 = sampled_of(&g->dh0.view, 1);
    s->h0_part = bppsa_calloc(s->h0.outer * block, (size_t)s->h0.inner);
  }
  s->x_part = bppsa_calloc(s->x.outer * block, (size_t)s->x.inner);
  s->labels_part = bppsa_calloc(s->labels.outer * block, (size_t)s->labels.inner);
  if (g->resets != NULL) {
    s->resets_view = bppsa_view_make(g->resets, BPPSA_U8, 2, (int64_t[]){x->shape[0], x->shape[1]});
    s->resets = sampled_of(&s->resets_view, 1);
    s->resets_part = bppsa_calloc(s->resets.outer, (size_t)block);
  }
  if (s->x_part == NULL || s->labels_part == NULL || (state && s->h0_part == NULL) ||
      (g->resets != NULL && s->resets_part == NULL)) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_device *device = g->model->device;
  if (device != NULL) {
    BPPSA_TRY(bppsa_memory_alloc(device, s->x.outer * block * s->x.inner, &s->x_gpu));
    BPPSA_TRY(state ? bppsa_memory_alloc(device, s->h0.outer * block * s->h0.inner, &s->h0_gpu) : BPPSA_OK);
  }
  const int64_t logits = s->labels.outer * block * g->model->classes;
  return bppsa_memory_alloc(device, logits * (int64_t)bppsa_dtype_size(g->config.dtype), &s->seed);
}

/* Corrects the mean: the blocks were divided by the number of all rows, whatever these weigh. */
static void divide_by_weight(const share *s, const bppsa_data_parallel_sums *sums) {
  bppsa_gradients *g = s->g;
  const double all = (double)(s->labels.outer * s->labels.samples), factor = all / sums->weight;
  if (sums->weight == all || sums->weight == 0) {
    return;
  }
  g->loss *= factor;
  bppsa_model_scale_gradients(g->model, factor);
  bppsa_view_scale(&g->dx.view, factor);
  if (g->dh0.view.data != NULL) {
    bppsa_view_scale(&g->dh0.view, factor);
  }
}

static bppsa_status compute(bppsa_comm *comm, bppsa_data_parallel *dp, share *s) {
  bppsa_data_parallel_sums sums;
  BPPSA_TRY(bppsa_data_parallel_compute(dp, s->x.samples, compute_block, s, &sums));
  BPPSA_TRY(bppsa_model_add_pass(s->g->model, BPPSA_PASS_BACKWARD, s->g->account[BPPSA_PASS_BACKWARD])); /* that of all ranks */
  BPPSA_TRY(bppsa_data_parallel_add_along_time(dp, &sums));
  s->g->loss = s->g->objective.kind == BPPSA_LOSS_NONE ? (double)NAN : sums.loss;
  BPPSA_TRY(gather_inputs(comm, s));
  BPPSA_TRY(bppsa_model_pull(s->g->model, true));
  divide_by_weight(s, &sums);
  BPPSA_TRY(bppsa_gradients_list(s->g));
  return bppsa_comm_rank(comm) == 0 ? bppsa_gradients_check(s->g) : BPPSA_OK;
}

bppsa_status bppsa_gradients_compute_on_ranks(const bppsa_rank_network *ranks, bppsa_gradients *g) {
  BPPSA_REQUIRE(ranks != NULL && ranks->comm != NULL && g != NULL);
  if (g->objective.kind == BPPSA_LOSS_NONE && bppsa_rank_network_cut(ranks)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "--grad-output: given beside ranks that share time, expected --split batch");
  }
  share s = {.g = g};
  bppsa_data_parallel *dp = NULL;
  bppsa_status status = bppsa_data_parallel_create(bppsa_rank_network_among(ranks), g->model, &ranks->parallel, &dp);
  status = status == BPPSA_OK ? allocate(&s, bppsa_rank_network_samples(ranks)) : status;
  if (status == BPPSA_OK) {
    cut(&s, ranks);
    status = compute(ranks->comm, dp, &s);
  }
  bppsa_data_parallel_destroy(dp);
  bppsa_free(s.x_part);
  bppsa_free(s.labels_part);
  bppsa_free(s.weights_part);
  bppsa_free(s.h0_part);
  bppsa_free(s.resets_part);
  bppsa_memory_free(g->model->device, s.x_gpu);
  bppsa_memory_free(g->model->device, s.h0_gpu);
  bppsa_memory_free(g->model->device, s.seed);
  return status;
}

/* The gradients of one batch on ranks. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "models/gradients.h"
#include "models/gradients_internal.h"
#include "train/loss.h"

/* An array with an axis of samples: [outer][samples][inner], inner in bytes. */
typedef struct {
  const bppsa_view *view;
  int64_t outer, samples, inner;
  int32_t axis; /* of the samples in the view */
} sampled;

static sampled sampled_of(const bppsa_view *view, int32_t axis) {
  sampled s = {.view = view, .outer = axis == 1 ? view->shape[0] : 1, .samples = view->shape[axis], .axis = axis};
  s.inner = (int64_t)bppsa_view_bytes(view) / (s.outer * s.samples);
  return s;
}

/* Copies samples first .. first + count - 1 between the array and `part`, which holds them alone. */
static void copy_samples(const sampled *s, int64_t first, int64_t count, void *part, bool to_part) {
  for (int64_t i = 0; i < s->outer; ++i) {
    char *whole = (char *)s->view->data + (i * s->samples + first) * s->inner, *own = (char *)part + i * count * s->inner;
    memcpy(to_part ? own : whole, to_part ? whole : own, (size_t)(count * s->inner));
  }
}

static bppsa_view part_view(const sampled *s, int64_t count, void *part) {
  int64_t shape[BPPSA_MAX_DIMS];
  memcpy(shape, s->view->shape, sizeof *shape * (size_t)s->view->ndim);
  shape[s->axis] = count;
  return bppsa_view_make(part, s->view->dtype, s->view->ndim, shape);
}

/* What a rank computes with: the batch's arrays, and memory for the samples of a block. */
typedef struct {
  bppsa_gradients *g;
  sampled x, labels, h0, dx, dh0;
  void *x_part, *labels_part, *h0_part, *seed;
  int64_t first, count; /* samples computed so far on this rank */
} share;

static bppsa_status compute_block(void *context, int64_t first, int64_t count, bppsa_data_parallel_sums *sums) {
  share *s = context;
  const bppsa_gradients *g = s->g;
  const bool state = g->h0.view.data != NULL;
  bppsa_view logits, dx, dh0;
  bppsa_loss_result loss;
  copy_samples(&s->x, first, count, s->x_part, true);
  copy_samples(&s->labels, first, count, s->labels_part, true);
  if (state) {
    copy_samples(&s->h0, first, count, s->h0_part, true);
  }
  const bppsa_view x = part_view(&s->x, count, s->x_part), labels = part_view(&s->labels, count, s->labels_part);
  const bppsa_view h0 = state ? part_view(&s->h0, count, s->h0_part) : (bppsa_view){0};
  BPPSA_TRY(g->model->ops->forward(g->model, &x, state ? &h0 : NULL, &logits));
  const bppsa_view seed = bppsa_view_make(s->seed, logits.dtype, logits.ndim, logits.shape);
  const bppsa_loss_rows rows = {.labels = g->objective.mse ? NULL : labels.data,
                                .targets = g->objective.mse ? &labels : NULL,
                                .ignores = g->objective.ignores,
                                .ignored = g->objective.ignored,
                                .mean_rows = s->labels.outer * s->labels.samples};
  BPPSA_TRY(bppsa_loss_part(g->device, &logits, &rows, &seed, &loss));
  if (!isfinite(loss.loss)) {
    return bppsa_model_fail_nonfinite(g->model, "loss");
  }
  BPPSA_TRY(g->model->ops->backward(g->model, &seed));
  BPPSA_TRY(g->model->ops->input_gradients(g->model, &dx, &dh0));
  copy_samples(&s->dx, first, count, dx.data, false);
  if (state) {
    copy_samples(&s->dh0, first, count, dh0.data, false);
  }
  s->first = s->count == 0 ? first : s->first;
  s->count += count;
  *sums = (bppsa_data_parallel_sums){loss.loss, (double)loss.correct, (double)loss.rows, 0};
  return BPPSA_OK;
}

/* Brings the samples that every rank has computed to rank 0; ranges: of every rank, first sample and number. */
static bppsa_status gather(bppsa_comm *comm, const sampled *s, const int64_t *ranges, int64_t *bytes, void *own, void *all) {
  const int32_t size = bppsa_comm_size(comm), rank = bppsa_comm_rank(comm);
  int64_t total = 0;
  for (int32_t r = 0; r < size; ++r) {
    bytes[r] = ranges[2 * r + 1] * s->outer * s->inner;
    total += bytes[r];
  }
  copy_samples(s, ranges[2 * rank], ranges[2 * rank + 1], own, true);
  const bppsa_view mine = bppsa_view_make(own, BPPSA_U8, 1, &bytes[rank]), whole = bppsa_view_make(all, BPPSA_U8, 1, &total);
  BPPSA_TRY(bppsa_comm_gather(comm, 0, &mine, bytes, &whole));
  char *from = all;
  for (int32_t r = 0; rank == 0 && r < size; from += bytes[r], ++r) {
    copy_samples(s, ranges[2 * r], ranges[2 * r + 1], from, false);
  }
  return BPPSA_OK;
}

static bppsa_status gather_inputs(bppsa_comm *comm, const share *s) {
  const int32_t size = bppsa_comm_size(comm);
  const int64_t mine[2] = {s->first, s->count}, two = 2, pairs = 2 * size;
  const bool state = s->g->h0.view.data != NULL;
  const size_t dx = bppsa_view_bytes(s->dx.view), dh0 = state ? bppsa_view_bytes(s->dh0.view) : 0, most = dx > dh0 ? dx : dh0;
  int64_t *ranges = bppsa_calloc(pairs, sizeof *ranges), *bytes = bppsa_calloc(size, sizeof *bytes);
  void *own = bppsa_alloc(most), *all = bppsa_alloc(most);
  bppsa_status status = ranges == NULL || bytes == NULL || own == NULL || all == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  if (status == BPPSA_OK) {
    const bppsa_view one = bppsa_view_make((void *)(uintptr_t)mine, BPPSA_I64, 1, &two);
    const bppsa_view pair_view = bppsa_view_make(ranges, BPPSA_I64, 1, &pairs);
    status = bppsa_comm_allgather(comm, &one, NULL, &pair_view);
  }
  status = status == BPPSA_OK ? gather(comm, &s->dx, ranges, bytes, own, all) : status;
  status = status == BPPSA_OK && state ? gather(comm, &s->dh0, ranges, bytes, own, all) : status;
  bppsa_free(ranges);
  bppsa_free(bytes);
  bppsa_free(own);
  bppsa_free(all);
  return status;
}

static bppsa_status allocate(share *s, int64_t block) {
  bppsa_gradients *g = s->g;
  const bool state = g->h0.view.data != NULL, steps = g->network.kind->family->steps;
  const bppsa_view *x = &g->x.view, *labels = &g->labels.view, *h0 = &g->h0.view;
  BPPSA_TRY(bppsa_buffer_create(NULL, x->dtype, x->ndim, x->shape, &g->dx));
  s->x = sampled_of(x, steps ? 1 : 0);
  s->dx = sampled_of(&g->dx.view, s->x.axis);
  s->labels = sampled_of(labels, g->config.loss_all ? 1 : 0);
  if (state) {
    BPPSA_TRY(bppsa_buffer_create(NULL, h0->dtype, h0->ndim, h0->shape, &g->dh0));
    s->h0 = sampled_of(h0, 1);
    s->dh0 = sampled_of(&g->dh0.view, 1);
    s->h0_part = bppsa_calloc(s->h0.outer * block, (size_t)s->h0.inner);
  }
  s->x_part = bppsa_calloc(s->x.outer * block, (size_t)s->x.inner);
  s->labels_part = bppsa_calloc(s->labels.outer * block, (size_t)s->labels.inner);
  s->seed = bppsa_calloc(s->labels.outer * block * g->config.classes, bppsa_dtype_size(g->config.dtype));
  return s->x_part == NULL || s->labels_part == NULL || s->seed == NULL || (state && s->h0_part == NULL) ? BPPSA_ERR_MEMORY
                                                                                                         : BPPSA_OK;
}

static void scale(const bppsa_view *view, double factor) {
  const int64_t count = bppsa_view_count(view);
  for (int64_t i = 0; i < count; ++i) {
    bppsa_view_set(view, i, bppsa_view_get(view, i) * factor);
  }
}

/* Rows whose label is ignored counted when the blocks took their means. */
static void leave_out_ignored(const share *s, const bppsa_data_parallel_sums *sums) {
  bppsa_gradients *g = s->g;
  const double all = (double)(s->labels.outer * s->labels.samples), factor = all / sums->rows;
  if (sums->rows == all || sums->rows == 0) {
    return;
  }
  g->loss *= factor;
  for (int64_t p = 0; p < g->model->parameter_count; ++p) {
    scale(&g->model->parameters[p].gradient, factor);
  }
  scale(&g->dx.view, factor);
  if (g->dh0.view.data != NULL) {
    scale(&g->dh0.view, factor);
  }
}

static bppsa_status compute(bppsa_comm *comm, bppsa_data_parallel *dp, share *s) {
  bppsa_data_parallel_sums sums;
  BPPSA_TRY(bppsa_data_parallel_compute(dp, s->x.samples, compute_block, s, &sums));
  s->g->loss = sums.loss;
  BPPSA_TRY(gather_inputs(comm, s));
  leave_out_ignored(s, &sums);
  BPPSA_TRY(bppsa_gradients_list(s->g));
  return bppsa_comm_rank(comm) == 0 ? bppsa_gradients_check(s->g) : BPPSA_OK;
}

bppsa_status bppsa_gradients_compute_on_ranks(bppsa_comm *comm, const bppsa_data_parallel_config *parallel, bppsa_gradients *g) {
  BPPSA_REQUIRE(comm != NULL && parallel != NULL && g != NULL);
  share s = {.g = g};
  bppsa_data_parallel *dp = NULL;
  bppsa_status status = bppsa_data_parallel_create(comm, g->model, parallel, &dp);
  status = status == BPPSA_OK ? allocate(&s, bppsa_data_parallel_block(parallel, bppsa_comm_size(comm))) : status;
  status = status == BPPSA_OK ? compute(comm, dp, &s) : status;
  bppsa_data_parallel_destroy(dp);
  bppsa_free(s.x_part);
  bppsa_free(s.labels_part);
  bppsa_free(s.h0_part);
  bppsa_free(s.seed);
  return status;
}

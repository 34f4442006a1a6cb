#include "distributed/layers/layer_split.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/clock.h"
#include "distributed/layers/layer_split_internal.h"
#include "train/optimizer.h"

static const char *const phases[BPPSA_LAYER_PHASES] = {"compute", "halo", "gather", "reduce", "exchange"};

const char *bppsa_layer_phase_name(bppsa_layer_phase phase) {
  return phases[phase];
}

const double *bppsa_layer_split_seconds(const bppsa_model *model) {
  return ((const layer_split *)model)->seconds;
}

const bppsa_layer_traffic *bppsa_layer_split_traffic(const bppsa_model *model) {
  return &((const layer_split *)model)->traffic;
}

const double *bppsa_layer_split_meetings(const bppsa_model *model, int64_t *count) {
  const layer_split *s = (const layer_split *)model;
  *count = s->met_count;
  return s->met;
}

/* ---- passes ---- */

static bppsa_cnn_pass pass_of(const layer_split *s, const split_layer *l, int64_t batch) {
  return (bppsa_cnn_pass){.about = &l->local,
                          .conv = &l->conv,
                          .dtype = s->config.dtype,
                          .threads = s->threads,
                          .batch = batch,
                          .in = l->in,
                          .out = l->out,
                          .scratch = s->scratch,
                          .sums = s->sums,
                          .transposed = s->transposed};
}

/* The layer's weight or its bias, or their gradients; NULL: it has none. */
static void *parameter_of(const layer_split *s, const split_layer *l, bool bias, bool gradient) {
  if (l->weight < 0 || (bias && !l->local.bias)) {
    return NULL;
  }
  const bppsa_parameter *p = &s->base.parameters[l->weight + (bias ? 1 : 0)];
  return gradient ? p->gradient.data : p->value.data;
}

static bppsa_status forward_layer(layer_split *s, int64_t layer) {
  const split_layer *l = &s->layers[layer];
  BPPSA_TRY(bppsa_layer_move_forward(s, layer));
  if (l->any) {
    const bppsa_cnn_pass pass = pass_of(s, l, s->b);
    const bool adds = !s->plan->layers[layer].sums_output || s->rank == 0; /* a bias enters a sum once */
    bppsa_cnn_pass_forward(&pass, l->read, parameter_of(s, l, false, false), adds ? parameter_of(s, l, true, false) : NULL,
                           l->places, s->held[layer + 1]);
  }
  bppsa_layer_lap(s, BPPSA_LAYER_COMPUTE);
  if (s->plan->layers[layer].sums_output) {
    BPPSA_TRY(bppsa_layer_add_up(s, &l->outputs, s->held[layer + 1]));
    bppsa_layer_lap(s, BPPSA_LAYER_REDUCE);
  }
  return BPPSA_OK;
}

/* words: the shape in letters. */
static bppsa_status check_view(const layer_split *s, const char *what, const bppsa_view *view, const char *words, int32_t ndim,
                               const int64_t *shape) {
  const bppsa_view expected = bppsa_view_make(NULL, s->config.dtype, ndim, shape);
  if (view->dtype == expected.dtype && bppsa_view_same_shape(view, &expected) && bppsa_view_contiguous(view) &&
      view->device == BPPSA_CPU) {
    return bppsa_view_check_data(what, view);
  }
  char found[BPPSA_SHAPE_TEXT], wanted[BPPSA_SHAPE_TEXT], guess[BPPSA_SHAPE_TEXT];
  return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %s %s, expected contiguous %s %s in host memory%s", what, bppsa_dtype_name(view->dtype),
                    bppsa_shape_text(view->ndim, view->shape, found, sizeof found), bppsa_dtype_name(expected.dtype),
                    bppsa_shape_text(ndim, shape, wanted, sizeof wanted), bppsa_view_guess(words, view, ndim, shape, guess));
}

static bppsa_status forward(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, bppsa_view *logits) {
  BPPSA_REQUIRE(x != NULL);
  layer_split *s = (layer_split *)model;
  const bppsa_cnn_network *network = &s->plan->network;
  const int64_t *in = network->in, shape[] = {x->ndim > 0 ? x->shape[0] : 0, in[0], in[1], in[2]};
  if (h0 != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: an initial state, expected none", network->name);
  }
  BPPSA_TRY(check_view(s, "input", x, "[B, C, H, W]", 4, shape));
  if (shape[0] < 1 || shape[0] > s->config.batch) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "input: %" PRId64 " samples, expected 1 .. %" PRId64, shape[0], s->config.batch);
  }
  const int64_t size = (int64_t)bppsa_dtype_size(s->config.dtype);
  s->mark = bppsa_now();
  s->b = shape[0];
  s->backward_done = false;
  s->met_count = 0;
  s->traffic = (bppsa_layer_traffic){.tile_bytes = s->tiled_reals * size, .weight_bytes = s->reals * size};
  if (s->held_x > 0) {
    const bppsa_layer_box whole = {.to = {in[0], in[1], in[2]}};
    bppsa_layer_copy(s, &whole, x->data, bppsa_layer_plan_held(s->plan, 0, s->rank), s->held[0]);
  } else {
    s->held[0] = x->data;
    s->layers[0].read = s->layers[0].own ? s->layers[0].read : x->data;
  }
  for (int64_t l = 0; l < network->count; ++l) {
    BPPSA_TRY(forward_layer(s, l));
  }
  BPPSA_TRY(bppsa_layer_move_forward(s, network->count));
  bppsa_layer_lap(s, BPPSA_LAYER_COMPUTE);
  *logits = bppsa_view_make(s->layers[network->count].read, s->config.dtype, 2, (int64_t[]){s->b, s->base.classes});
  return BPPSA_OK;
}

static bppsa_status backward_layer(layer_split *s, int64_t layer) {
  const split_layer *l = &s->layers[layer];
  const bppsa_cnn_pass pass = pass_of(s, l, s->b);
  const void *dy = s->g[layer + 1];
  if (l->any && l->weight >= 0) {
    bppsa_cnn_pass_weight_gradient(&pass, dy, l->read, parameter_of(s, l, false, true), parameter_of(s, l, true, true));
  }
  if (layer == 0 && !s->config.input_gradients) {
    return BPPSA_OK;
  }
  if (l->any) {
    bppsa_cnn_pass_input_gradient(&pass, dy, parameter_of(s, l, false, false), l->read, s->held[layer + 1], l->places,
                                  l->gradient);
  }
  bppsa_layer_lap(s, BPPSA_LAYER_COMPUTE);
  BPPSA_TRY(bppsa_layer_move_backward(s, layer));
  bppsa_layer_lap(s, BPPSA_LAYER_COMPUTE);
  return BPPSA_OK;
}

/* Adds up weight gradients: of tiled layers over the group (`tiles`), then of all layers over the groups. */
static bppsa_status add_up(layer_split *s, bool tiles) {
  bppsa_layer_lap(s, BPPSA_LAYER_COMPUTE);
  if (tiles) {
    BPPSA_TRY(bppsa_layer_sum_run(&s->tiles, s->gradients));
  }
  BPPSA_TRY(bppsa_layer_sum_run(&s->groups, s->gradients));
  bppsa_layer_lap(s, BPPSA_LAYER_EXCHANGE);
  return BPPSA_OK;
}

static bppsa_status backward(bppsa_model *model, const bppsa_view *seed) {
  BPPSA_REQUIRE(seed != NULL);
  layer_split *s = (layer_split *)model;
  const int64_t count = s->plan->network.count, shape[] = {s->b, s->base.classes};
  if (s->b == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "backward: no forward pass precedes it");
  }
  BPPSA_TRY(check_view(s, "seed", seed, "[B, C]", 2, shape));
  s->mark = bppsa_now();
  s->met_count = 0;
  memcpy(s->layers[count].gradient, seed->data, bppsa_view_bytes(seed));
  memset(s->gradients, 0, (size_t)s->reals * bppsa_dtype_size(s->config.dtype));
  BPPSA_TRY(bppsa_layer_move_backward(s, count));
  for (int64_t l = count - 1; l >= 0; --l) {
    BPPSA_TRY(backward_layer(s, l));
  }
  BPPSA_TRY(add_up(s, true));
  s->backward_done = true;
  return BPPSA_OK;
}

bppsa_status bppsa_layer_split_skip(bppsa_model *model) {
  BPPSA_REQUIRE(model != NULL);
  layer_split *s = (layer_split *)model;
  s->mark = bppsa_now();
  s->b = 0;
  s->backward_done = false;
  memset(s->gradients, 0, (size_t)s->reals * bppsa_dtype_size(s->config.dtype));
  return add_up(s, false);
}

/* ---- what callers look at ---- */

/* Writes a tensor whole of which the ranks hold boxes. */
static bppsa_status whole_tensor(layer_split *s, int64_t i, const void *held, void *whole) {
  const int64_t *shape = i == 0 ? s->plan->network.in : s->plan->network.layers[i - 1].out;
  const bppsa_layer_box *boxes = bppsa_layer_plan_held(s->plan, i, 0);
  const int64_t mine = bppsa_layer_box_count(&boxes[s->rank]), all = bppsa_cnn_size(&s->plan->network, i);
  bool every = true; /* every rank holds all of it */
  for (int64_t q = 0; q < s->plan->ranks; ++q) {
    every = every && bppsa_layer_box_count(&boxes[q]) == all;
  }
  if (!every) {
    return bppsa_layer_gather(s, boxes, held, shape, whole);
  }
  memcpy(whole, held, (size_t)(s->b * mine) * bppsa_dtype_size(s->config.dtype));
  return BPPSA_OK;
}

bppsa_status bppsa_layer_split_tensor(bppsa_model *model, int64_t i, bool gradient, void *whole) {
  BPPSA_REQUIRE(model != NULL && whole != NULL);
  layer_split *s = (layer_split *)model;
  if (i < 0 || i > s->plan->network.count || s->b == 0 || (gradient && !s->backward_done)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "tensor %" PRId64 ", expected 0 .. %" PRId64 " after a pass", i,
                      s->plan->network.count);
  }
  if (gradient && i == 0 && !s->config.input_gradients) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "input gradients: the model was created without them");
  }
  return whole_tensor(s, i, gradient ? s->g[i] : s->held[i], whole);
}

static bppsa_status input_gradients(bppsa_model *model, bppsa_view *x, bppsa_view *h0) {
  layer_split *s = (layer_split *)model;
  const int64_t *in = s->plan->network.in;
  if (!s->config.input_gradients) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "input gradients: the model was created without them");
  }
  if (!s->backward_done) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "input gradients: no backward pass precedes them");
  }
  if (x != NULL) {
    BPPSA_TRY(whole_tensor(s, 0, s->g[0], s->dx));
    *x = bppsa_view_make(s->dx, s->config.dtype, 4, (int64_t[]){s->b, in[0], in[1], in[2]});
  }
  if (h0 != NULL) { /* the model has no state */
    *h0 = bppsa_view_make(NULL, s->config.dtype, 1, (int64_t[]){0});
  }
  return BPPSA_OK;
}

static bool find_in(const layer_split *s, const char *what, const char *name, void *values, int64_t size,
                    bppsa_nonfinite *where) {
  const int64_t count = s->b * size;
  const bppsa_view view = bppsa_view_make(values, s->config.dtype, 1, &count);
  for (int64_t i = 0; i < count; ++i) {
    if (!isfinite(bppsa_view_get(&view, i))) {
      *where = (bppsa_nonfinite){.what = what, .name = name, .layer = -1, .step = -1, .sample = i / size};
      return true;
    }
  }
  return false;
}

/* Searches what this rank holds. */
static bool find_nonfinite(bppsa_model *model, bppsa_nonfinite *where) {
  const layer_split *s = (const layer_split *)model;
  const bppsa_layer_plan *p = s->plan;
  for (int64_t i = 0; s->b > 0 && i <= p->network.count; ++i) {
    const char *name = i == 0 ? NULL : p->network.layers[i - 1].name;
    const int64_t size = bppsa_layer_box_count(bppsa_layer_plan_held(p, i, s->rank));
    if (find_in(s, i == 0 ? "input" : i < p->network.count ? "output of" : "logits of", name, s->held[i], size, where)) {
      return true;
    }
  }
  for (int64_t i = p->network.count; s->backward_done && i >= 1; --i) {
    const int64_t size = bppsa_layer_box_count(bppsa_layer_plan_held(p, i, s->rank));
    if (find_in(s, "gradient of the output of", p->network.layers[i - 1].name, s->g[i], size, where)) {
      return true;
    }
  }
  return false;
}

/* Forgets the caller's input. Where ranks hold parts of the input, they have copied them. */
static void forget(bppsa_model *model) {
  layer_split *s = (layer_split *)model;
  s->b = 0;
  s->backward_done = false;
  if (s->held_x == 0) {
    s->held[0] = NULL;
    s->layers[0].read = s->layers[0].own ? s->layers[0].read : NULL;
  }
}

/* ---- the parameters' parts ---- */

static bppsa_layer_part part_of(const layer_split *s, int64_t i, int64_t rank) {
  return bppsa_layer_plan_part(s->plan, s->which[i].layer, rank, s->which[i].bias);
}

static int64_t part_count(const bppsa_layer_part *part) {
  return (part->end_row - part->first_row) * (part->end_column - part->first_column);
}

static bool is_whole(const bppsa_layer_part *part) {
  return part_count(part) == part->rows * part->columns;
}

/* Copies between a whole parameter and a part. */
static void copy_part(const layer_split *s, const bppsa_layer_part *part, char *whole, char *own, bool take) {
  const int64_t size = (int64_t)bppsa_dtype_size(s->config.dtype), width = (part->end_column - part->first_column) * size;
  for (int64_t row = part->first_row; row < part->end_row; ++row) {
    char *there = whole + (row * part->columns + part->first_column) * size, *here = own + (row - part->first_row) * width;
    memcpy(take ? here : there, take ? there : here, (size_t)width);
  }
}

void bppsa_layer_split_take(const bppsa_model *model, int64_t i, const void *whole, void *part) {
  const layer_split *s = (const layer_split *)model;
  const bppsa_layer_part own = part_of(s, i, s->rank);
  copy_part(s, &own, (char *)(uintptr_t)whole, part, true);
}

bppsa_status bppsa_layer_split_collect(bppsa_model *model, int64_t i, const void *part, void *whole) {
  BPPSA_REQUIRE(model != NULL && part != NULL && whole != NULL);
  layer_split *s = (layer_split *)model;
  const bppsa_layer_part own = part_of(s, i, s->rank);
  BPPSA_REQUIRE(s->config.group != NULL);
  if (is_whole(&own)) {
    memcpy(whole, part, (size_t)part_count(&own) * bppsa_dtype_size(s->config.dtype));
    return BPPSA_OK;
  }
  int64_t total = 0;
  for (int64_t q = 0; q < s->plan->ranks; ++q) {
    const bppsa_layer_part other = part_of(s, i, q);
    s->counts[q] = part_count(&other);
    total += s->counts[q];
  }
  const bppsa_view mine = bppsa_view_make((void *)(uintptr_t)part, s->config.dtype, 1, &s->counts[s->rank]);
  const bppsa_view all = bppsa_view_make(s->in, s->config.dtype, 1, &total);
  BPPSA_TRY(bppsa_comm_allgather(s->config.group, &mine, s->counts, &all));
  char *from = s->in;
  for (int64_t q = 0; q < s->plan->ranks; ++q) {
    const bppsa_layer_part other = part_of(s, i, q);
    copy_part(s, &other, whole, from, false);
    from += s->counts[q] * (int64_t)bppsa_dtype_size(s->config.dtype);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_layer_split_norm(bppsa_model *model, double *norm) {
  BPPSA_REQUIRE(model != NULL && norm != NULL);
  layer_split *s = (layer_split *)model;
  BPPSA_REQUIRE(s->config.group != NULL);
  double everywhere = 0, here = 0;
  const int64_t one = 1;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_layer_part own = part_of(s, i, s->rank);
    const bppsa_model single = {.dtype = model->dtype, .parameter_count = 1, .parameters = &model->parameters[i]};
    double *sum = is_whole(&own) ? &everywhere : &here;
    *sum = hypot(*sum, bppsa_gradient_norm(&single, s->device));
  }
  const bppsa_view mine = bppsa_view_make(&here, BPPSA_F64, 1, &one),
                   all = bppsa_view_make(s->norms, BPPSA_F64, 1, &s->plan->ranks);
  BPPSA_TRY(bppsa_comm_allgather(s->config.group, &mine, NULL, &all));
  for (int64_t q = 0; q < s->plan->ranks; ++q) {
    everywhere = hypot(everywhere, s->norms[q]);
  }
  *norm = everywhere;
  return BPPSA_OK;
}

const bppsa_model_ops bppsa_layer_split_ops = {.name = "layer split",
                                               .forward = forward,
                                               .backward = backward,
                                               .input_gradients = input_gradients,
                                               .find_nonfinite = find_nonfinite,
                                               .destroy = bppsa_layer_split_destroy,
                                               .forget = forget};

/* Networks whose layers are shared by ranks: what this rank holds. */
#include <inttypes.h>
#include <math.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "distributed/layers/layer_split_internal.h"

enum { NOISE = 244 /* a stream of core/base/philox.h */ };

/* ---- layers ---- */

static bppsa_status plan_layer(layer_split *s, int64_t i, int64_t *scratch, int64_t *sums, int64_t *transposed) {
  split_layer *l = &s->layers[i];
  l->in = bppsa_layer_box_count(bppsa_layer_plan_read(s->plan, i, s->rank));
  l->weight = -1;
  if (i == s->plan->network.count) {
    return BPPSA_OK;
  }
  l->out = bppsa_layer_box_count(bppsa_layer_plan_held(s->plan, i + 1, s->rank));
  BPPSA_TRY(bppsa_layer_plan_local(s->plan, i, s->rank, &l->local, &l->any));
  if (!l->any) {
    return BPPSA_OK;
  }
  if (l->local.op.kind == BPPSA_OPERATOR_CONV2D) {
    BPPSA_TRY(bppsa_conv_plan(&l->local.op, s->config.dtype, s->threads, s->config.batch, &l->conv));
  }
  const bppsa_cnn_pass pass = {.about = &l->local,
                               .conv = &l->conv,
                               .dtype = s->config.dtype,
                               .threads = s->threads,
                               .batch = s->config.batch,
                               .in = l->in,
                               .out = l->out};
  return bppsa_cnn_pass_room(&pass, scratch, sums, transposed);
}

static bppsa_status plan_layers(layer_split *s) {
  int64_t scratch = 0, sums = 0, transposed = 0;
  for (int64_t i = 0; i <= s->plan->network.count; ++i) {
    BPPSA_TRY(plan_layer(s, i, &scratch, &sums, &transposed));
  }
  s->scratch = bppsa_calloc(scratch + 1, 1);
  s->sums = bppsa_calloc(sums + 1, 1);
  s->transposed = bppsa_calloc(transposed + 1, 1);
  return s->scratch == NULL || s->sums == NULL || s->transposed == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

/* ---- parameters ---- */

/* Values of a parameter, padded to whole cache lines. */
static int64_t padded(const layer_split *s, const bppsa_parameter *p) {
  return bppsa_dtype_padded(s->config.dtype, bppsa_view_count(&p->value));
}

static void describe_parameters(layer_split *s) {
  for (int64_t i = 0; i < s->plan->network.count; ++i) {
    split_layer *l = &s->layers[i];
    if (!bppsa_cnn_has_weights(&l->local)) {
      continue;
    }
    l->weight = s->base.parameter_count;
    for (int bias = 0; bias < 1 + l->local.bias; ++bias) {
      const int64_t at = s->base.parameter_count++;
      s->base.parameters[at] = bppsa_cnn_parameter(&l->local, bias == 1, s->config.dtype, s->names[at]);
      s->which[at] = (split_parameter){i, bias == 1};
      s->reals += padded(s, &s->base.parameters[at]);
    }
    s->tiled_reals = s->plan->layers[i].tiled ? s->reals : s->tiled_reals;
  }
}

static bppsa_status make_parameters(layer_split *s) {
  const int64_t count = s->plan->network.count;
  const size_t size = bppsa_dtype_size(s->config.dtype);
  s->base.parameters = bppsa_calloc(2 * count, sizeof *s->base.parameters);
  s->names = bppsa_calloc(2 * count, sizeof *s->names);
  s->which = bppsa_calloc(2 * count, sizeof *s->which);
  if (s->base.parameters == NULL || s->names == NULL || s->which == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  describe_parameters(s);
  s->values = bppsa_calloc(s->reals, size);
  s->gradients = bppsa_calloc(s->reals, size);
  if (s->values == NULL || s->gradients == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  int64_t at = 0;
  for (int64_t i = 0; i < s->base.parameter_count; ++i) {
    bppsa_parameter *p = &s->base.parameters[i];
    p->value.data = (char *)s->values + at * (int64_t)size;
    p->gradient.data = (char *)s->gradients + at * (int64_t)size;
    at += padded(s, p);
  }
  return BPPSA_OK;
}

/* ---- arrays ---- */

/* An array for the batch, with the cache line behind it that kernels may read. */
static bppsa_status make_array(const layer_split *s, int64_t values, size_t size, void **array) {
  int64_t reals, bytes;
  if (!bppsa_mul(values, s->config.batch, &reals) || !bppsa_mul(reals, (int64_t)size, &bytes) || bytes > INT64_MAX / 2) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "layers: %" PRId64 " values of %" PRId64 " samples do not fit in 64 bits", values,
                      s->config.batch);
  }
  *array = bppsa_calloc(bytes + BPPSA_ALIGNMENT, 1);
  return *array == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

/* What the rank holds of a layer's input and reads of it, with the gradients of both. */
static bppsa_status make_tensor(layer_split *s, int64_t i) {
  const bppsa_layer_plan *p = s->plan;
  const size_t size = bppsa_dtype_size(s->config.dtype);
  const int64_t held = bppsa_layer_box_count(bppsa_layer_plan_held(p, i, s->rank));
  const bool gradient = i > 0 || s->config.input_gradients;
  split_layer *l = &s->layers[i];
  l->own = p->layers[i].move != BPPSA_MOVE_NONE;
  if (i > 0 || held < bppsa_cnn_size(&p->network, 0)) {
    s->held_x = i == 0 ? held : s->held_x;
    BPPSA_TRY(make_array(s, held, size, &s->held[i]));
  }
  if (gradient) {
    BPPSA_TRY(make_array(s, held, size, &s->g[i]));
  }
  l->read = s->held[i];
  l->gradient = s->g[i];
  if (l->own) {
    l->read = l->gradient = NULL;
    BPPSA_TRY(make_array(s, l->in, size, &l->read));
    BPPSA_TRY(gradient ? make_array(s, l->in, size, &l->gradient) : BPPSA_OK);
  }
  if (i < p->network.count && l->local.op.kind == BPPSA_OPERATOR_MAXPOOL2D) {
    void *places = NULL;
    BPPSA_TRY(make_array(s, l->out, sizeof *l->places, &places));
    l->places = places;
  }
  return BPPSA_OK;
}

/* A rank that computes alone receives noise: numbers of variance 1. */
static void fill_noise(const layer_split *s, int64_t count) {
  const bppsa_view view = bppsa_view_make(s->in, s->config.dtype, 1, &count);
  for (int64_t i = 0; s->config.alone > 0 && i < count; ++i) {
    bppsa_view_set(&view, i, sqrt(12) * (bppsa_random_double(0, NOISE, (uint64_t)i) - 0.5));
  }
}

static bppsa_status make_buffers(layer_split *s) {
  int64_t out = 0, in = 0, most;
  bppsa_layer_move_room(s, &out, &in);
  for (int64_t i = 0; i < s->base.parameter_count; ++i) { /* `in` also takes the parts of a parameter that is collected */
    const bppsa_layer_part part = bppsa_layer_plan_part(s->plan, s->which[i].layer, s->rank, s->which[i].bias);
    most = (part.rows * part.columns - 1) / s->config.batch + 1;
    in = most > in ? most : in;
  }
  BPPSA_TRY(make_array(s, out, bppsa_dtype_size(s->config.dtype), &s->out));
  BPPSA_TRY(make_array(s, in, bppsa_dtype_size(s->config.dtype), &s->in));
  fill_noise(s, in * s->config.batch);
  s->requests = (bppsa_comm_request **)bppsa_calloc(2 * s->plan->ranks, sizeof(bppsa_comm_request *));
  s->counts = bppsa_calloc(s->plan->ranks, sizeof *s->counts);
  s->norms = bppsa_calloc(s->plan->ranks, sizeof *s->norms);
  if (s->config.input_gradients) {
    BPPSA_TRY(make_array(s, bppsa_cnn_size(&s->plan->network, 0), bppsa_dtype_size(s->config.dtype), &s->dx));
  }
  return s->requests == NULL || s->counts == NULL || s->norms == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

/* ---- sums ---- */

static bppsa_status make_sums(layer_split *s) {
  const bppsa_layer_split_config *c = &s->config;
  int32_t tag = c->tag;
  for (int64_t i = 0; i < s->plan->network.count; ++i) {
    const bppsa_planned_layer *planned = &s->plan->layers[i];
    split_layer *l = &s->layers[i];
    const int32_t outputs = ++tag, inputs = ++tag;
    if (planned->sums_output) {
      BPPSA_TRY(bppsa_layer_sum_create(c->group, c->reduction, c->dtype, l->out * c->batch, outputs, &l->outputs));
    }
    if (planned->sums_gradient && (i > 0 || c->input_gradients)) {
      BPPSA_TRY(bppsa_layer_sum_create(c->group, c->reduction, c->dtype, l->in * c->batch, inputs, &l->inputs));
    }
  }
  if (s->tiled_reals > 0) {
    BPPSA_TRY(bppsa_layer_sum_create(c->group, c->reduction, c->dtype, s->tiled_reals, tag + 1, &s->tiles));
  }
  return bppsa_layer_sum_create(c->among, c->reduction, c->dtype, s->reals, tag + 2, &s->groups);
}

/* ---- creation ---- */

static bppsa_status check(const bppsa_cnn_network *network, const bppsa_layer_split_config *c, const bppsa_device *device) {
  if (network->count < 1 || network->layers[network->count - 1].op.kind != BPPSA_OPERATOR_LINEAR) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "network: no linear operator at its end, expected one");
  }
  if ((unsigned)c->strategy >= BPPSA_LAYERS_COUNT || (unsigned)c->reduction > BPPSA_REDUCTION_LIBRARY || c->batch < 1 ||
      c->batch > INT32_MAX || c->tag < 0 || c->tag > BPPSA_COMM_MAX_TAG - 2 * network->count - 4) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "layers: strategy %d, reduction %d, a batch of %" PRId64 ", tag %d: expected a strategy and a reduction, "
                      "1 .. 2147483647, and a tag with room for 2 L + 4",
                      (int)c->strategy, (int)c->reduction, c->batch, c->tag);
  }
  if ((c->dtype != BPPSA_F32 && c->dtype != BPPSA_F64) || bppsa_device_get_kind(device) == BPPSA_CUDA) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "layers: %s on %s, expected f32 or f64 on a CPU", bppsa_dtype_name(c->dtype),
                      bppsa_device_get_name(device));
  }
  return BPPSA_OK;
}

static bppsa_status build(layer_split *s, const bppsa_cnn_network *network) {
  const int64_t count = network->count, ranks = s->config.group != NULL ? bppsa_comm_size(s->config.group) : s->config.alone;
  BPPSA_TRY(bppsa_layer_plan_create(network, s->config.strategy, ranks, &s->plan));
  s->layers = bppsa_calloc(count + 1, sizeof *s->layers);
  s->held = (void **)bppsa_calloc(count + 1, sizeof(void *));
  s->g = (void **)bppsa_calloc(count + 1, sizeof(void *));
  if (s->layers == NULL || s->held == NULL || s->g == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(plan_layers(s));
  BPPSA_TRY(make_parameters(s));
  for (int64_t i = 0; i <= count; ++i) {
    BPPSA_TRY(make_tensor(s, i));
  }
  BPPSA_TRY(make_buffers(s));
  s->met = s->config.alone > 0 ? bppsa_calloc(2 * count + 4, sizeof *s->met) : NULL;
  return s->config.alone > 0 && s->met == NULL ? BPPSA_ERR_MEMORY : make_sums(s);
}

bppsa_status bppsa_layer_split_create(const bppsa_cnn_network *network, const bppsa_layer_split_config *config,
                                      const bppsa_device *device, bppsa_model **model) {
  BPPSA_REQUIRE(network != NULL && config != NULL && (config->group != NULL) == (config->alone == 0) && device != NULL &&
                model != NULL);
  BPPSA_REQUIRE(config->alone >= 0 && (config->alone == 0 || (config->place >= 0 && config->place < config->alone)));
  BPPSA_TRY(check(network, config, device));
  layer_split *s = bppsa_calloc(1, sizeof *s);
  if (s == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  s->base.ops = &bppsa_layer_split_ops;
  s->base.dtype = config->dtype;
  s->base.classes = network->layers[network->count - 1].op.out_channels;
  s->config = *config;
  s->device = device;
  s->rank = config->group != NULL ? bppsa_comm_rank(config->group) : config->place;
  s->threads = bppsa_device_get_threads(device);
  const bppsa_status status = build(s, network);
  if (status != BPPSA_OK) {
    bppsa_layer_split_destroy(&s->base);
    return status;
  }
  *model = &s->base;
  return BPPSA_OK;
}

void bppsa_layer_split_destroy(bppsa_model *model) {
  layer_split *s = (layer_split *)model;
  for (int64_t i = 0; s->layers != NULL && i <= s->plan->network.count; ++i) {
    split_layer *l = &s->layers[i];
    bppsa_free(l->own ? l->read : NULL);
    bppsa_free(l->own ? l->gradient : NULL);
    bppsa_free(l->places);
    bppsa_layer_sum_free(&l->outputs);
    bppsa_layer_sum_free(&l->inputs);
    bppsa_free(s->held != NULL && (i > 0 || s->held_x > 0) ? s->held[i] : NULL);
    bppsa_free(s->g != NULL ? s->g[i] : NULL);
  }
  bppsa_layer_sum_free(&s->tiles);
  bppsa_layer_sum_free(&s->groups);
  void *const blocks[] = {s->layers,     (void *)s->held, (void *)s->g, s->dx,    s->scratch,          s->sums,
                          s->transposed, s->norms,        s->out,       s->in,    (void *)s->requests, s->counts,
                          s->values,     s->gradients,    s->names,     s->which, s->base.parameters,  s->met};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
  bppsa_layer_plan_destroy(s->plan);
  bppsa_free(s);
}

/* Recurrent networks: configuration, parameters, memory. */
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "recurrent/recurrent_internal.h"

bppsa_recurrent_config bppsa_recurrent_config_default(void) {
  return (bppsa_recurrent_config){.seq_len = 1000,
                                  .batch = 16,
                                  .input = 1,
                                  .hidden = 20,
                                  .layers = 1,
                                  .classes = 10,
                                  .dtype = BPPSA_F32,
                                  .method.scan = bppsa_scan_method_of(BPPSA_SCAN_AUTO),
                                  .forward = bppsa_forward_method_default(),
                                  .speculation = bppsa_backward_method_default()};
}

bppsa_scan_config bppsa_recurrent_scan_config(const bppsa_recurrent_config *config, const bppsa_cell *cell, int64_t layer) {
  const recurrent_network one = {.config = *config, .cell = cell};
  const bool segments =
      config->method.backward == BPPSA_BACKWARD_SCAN; /* with recompute a scan goes through one after the other */
  return (bppsa_scan_config){.method = config->method.scan,
                             .element = cell->pair ? BPPSA_ELEMENT_PAIR : BPPSA_ELEMENT_RECURRENT,
                             .dtype = config->dtype,
                             .jacobians = segments ? bppsa_recompute_steps(&one) : config->seq_len,
                             .batch = config->batch,
                             .dim = (cell->pair ? 2 : 1) * config->hidden,
                             .matrices = cell->matrices,
                             .diagonal = cell->diagonal,
                             .affine = config->loss_all || config->lengths || layer + 1 < config->layers,
                             .input = config->input_gradients || config->ends.after != NULL};
}

const bppsa_scan_plan *bppsa_recurrent_plan(const bppsa_model *model, int64_t layer) {
  const recurrent_network *n = (const recurrent_network *)model;
  const bool scans = layer >= 0 && layer < n->config.layers && n->config.method.backward == BPPSA_BACKWARD_SCAN;
  return scans ? n->layers[layer * bppsa_recurrent_directions(&n->config)].plan : NULL; /* both directions have the same */
}

/* ---- checks ---- */

/* Checks what speculative backward passes of a part of a sequence need. */
static bppsa_status check_blocks(const bppsa_forward_part *part) {
  const bool passes = part->send != NULL && part->receive != NULL && part->join != NULL && part->send_back != NULL &&
                      part->receive_back != NULL && part->take != NULL;
  return part->seq_len == 0 || (passes && part->blocks >= 1 && part->blocks <= part->seq_len)
             ? BPPSA_OK
             : bppsa_fail(
                   BPPSA_ERR_ARGUMENT,
                   "a speculative backward pass in a part of a sequence, with %lld blocks of %lld steps, expected 1 .. steps, "
                   "and all functions of bppsa_forward_part",
                   (long long)part->blocks, (long long)part->seq_len);
}

/* Checks what states that are computed again need. */
static bppsa_status check_recompute(const bppsa_recurrent_config *c) {
  const struct {
    bool set;
    const char *what;
  } refused[] = {{c->method.backward == BPPSA_BACKWARD_SPECULATIVE, "a speculative backward pass"},
                 {c->forward.kind == BPPSA_FORWARD_SPECULATIVE, "a speculative forward pass"},
                 {c->factory.create != NULL, "a scan of the caller's"},
                 {c->part.seq_len != 0 || c->ends.before != NULL || c->ends.after != NULL, "a part of a sequence"},
                 {c->lengths, "samples that have lengths"},
                 {c->bidirectional, "two directions"},
                 {c->tape, "a tape"}};
  if (c->recompute < 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "recompute is %lld, expected 0, or every how many steps states are kept",
                      (long long)c->recompute);
  }
  for (size_t i = 0; c->recompute > 0 && i < sizeof refused / sizeof *refused; ++i) {
    if (refused[i].set) {
      return bppsa_fail(
          BPPSA_ERR_UNSUPPORTED,
          "recompute beside %s, expected BP or a scan, of whole samples in one direction, with a sequential forward pass",
          refused[i].what);
    }
  }
  return BPPSA_OK;
}

static bppsa_status check_config(const bppsa_recurrent_config *c) {
  const struct {
    const char *name;
    int64_t value;
  } sizes[] = {{"seq_len", c->seq_len}, {"batch", c->batch},   {"input", c->input},
               {"hidden", c->hidden},   {"layers", c->layers}, {"classes", c->classes}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    if (sizes[i].value < 1 || sizes[i].value > INT32_MAX) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s is %lld, expected 1 .. 2147483647", sizes[i].name, (long long)sizes[i].value);
    }
  }
  if (c->dtype != BPPSA_F32 && c->dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "dtype is %s, expected f32 or f64", bppsa_dtype_name(c->dtype));
  }
  if ((unsigned)c->nonlinearity > BPPSA_NONLINEARITY_RELU || (unsigned)c->method.backward > BPPSA_BACKWARD_SPECULATIVE) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "unknown nonlinearity %d or backward %d", (int)c->nonlinearity,
                      (int)c->method.backward);
  }
  if (!(c->dropout >= 0 && c->dropout < 1)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "dropout is %g, expected 0 or more and below 1", c->dropout);
  }
  if (c->dropout > 0 && (c->part.seq_len != 0 || c->ends.before != NULL || c->ends.after != NULL)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "dropout in a part of a sequence, expected a network with all steps");
  }
  if (c->lengths && (c->part.seq_len != 0 || c->ends.before != NULL || c->ends.after != NULL)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "lengths of samples in a part of a sequence, expected a network with all steps");
  }
  if (c->lengths && c->forward.kind == BPPSA_FORWARD_SPECULATIVE) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "lengths of samples in a speculative forward pass, expected a sequential one");
  }
  if (c->bidirectional && (c->part.seq_len != 0 || c->ends.before != NULL || c->ends.after != NULL)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "two directions in a part of a sequence, expected a network with all steps");
  }
  if (c->method.backward == BPPSA_BACKWARD_SPECULATIVE &&
      (c->ends.after != NULL || (c->part.seq_len != 0 && c->ends.before != NULL))) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "a speculative backward pass with `ends`, expected none: parts of a sequence send gradients by themselves");
  }
  if (c->tape && (c->layers > 1 || c->bidirectional)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "tapes of %lld layers%s, expected one layer in one direction", (long long)c->layers,
                      c->bidirectional ? " in two directions" : "");
  }
  if (c->memory_limit < 0 || c->optimizer_slots < 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "memory limit %lld, optimizer slots %lld, expected 0 or more",
                      (long long)c->memory_limit, (long long)c->optimizer_slots);
  }
  BPPSA_TRY(check_recompute(c));
  const bppsa_forward_part *part = &c->part;
  if (part->seq_len != 0 && (part->seq_len < c->seq_len || part->first < 0 || part->first > part->seq_len - c->seq_len)) {
    const int64_t most = INT64_MAX - c->seq_len,
                  first = part->first < most ? part->first : most; /* the largest number that does not overflow */
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "steps %lld .. %lld of a sequence of %lld, expected a part of it", (long long)first + 1,
                      (long long)(first + c->seq_len), (long long)part->seq_len);
  }
  return c->method.backward == BPPSA_BACKWARD_SPECULATIVE ? check_blocks(part) : BPPSA_OK;
}

/* Checks once that every array's extents fit in 64 bits; later index arithmetic then cannot overflow. */
static bppsa_status check_sizes(const recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t gates = n->cell->gates * c->hidden, widths[] = {gates, c->input, c->classes, bppsa_recurrent_outputs(c)};
  int64_t widest = 0;
  for (size_t i = 0; i < sizeof widths / sizeof *widths; ++i) {
    widest = widths[i] > widest ? widths[i] : widest;
  }
  int64_t count;
  size_t bytes;
  if (bppsa_shape_bytes(c->dtype, 4, (int64_t[]){c->seq_len + 1, c->batch, widest, 4}, &count, &bytes) != BPPSA_OK ||
      bppsa_shape_bytes(c->dtype, 4, (int64_t[]){bppsa_recurrent_layers(c), gates, widest, 4}, &count, &bytes) != BPPSA_OK) {
    return bppsa_fail(
        BPPSA_ERR_ARGUMENT, "seq_len %lld, batch %lld, input %lld, hidden %lld, layers %lld: the network does not fit in 64 bits",
        (long long)c->seq_len, (long long)c->batch, (long long)c->input, (long long)c->hidden, (long long)c->layers);
  }
  return BPPSA_OK;
}

/* ---- parameters ---- */

static void describe(recurrent_network *n, bppsa_parameter *p, int32_t ndim, int64_t rows, int64_t columns) {
  p->value = p->gradient = bppsa_view_make(NULL, n->config.dtype, ndim, (int64_t[]){rows, columns});
}

static void describe_parameters(recurrent_network *n) {
  static const char *const kinds[MOST_PARAMETERS] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
  const int64_t hidden = n->config.hidden, out = n->cell->gates * hidden, of_layer = bppsa_recurrent_layer_parameters(&n->config),
                own = bppsa_recurrent_first_parameter(&n->config), head = bppsa_recurrent_parameters(&n->config, false),
                directions = bppsa_recurrent_directions(&n->config);
  bppsa_parameter *p = n->base.parameters;
  for (int64_t i = 0; i < n->base.parameter_count; ++i) {
    p[i].name = n->names[i];
  }
  if (n->config.reset_state) {
    snprintf(n->names[0], NAME_SIZE, "%s.reset_state", n->cell->name);
    describe(n, &p[0], 2, bppsa_recurrent_layers(&n->config), bppsa_recurrent_state_size(n));
  }
  for (int64_t i = own; i < head; ++i) {
    const int64_t l = (i - own) / of_layer, which = (i - own) % of_layer;
    snprintf(n->names[i], NAME_SIZE, "%s.%s_l%lld%s", n->cell->name, kinds[which], (long long)(l / directions),
             l % directions == 1 ? "_reverse" : "");
    describe(n, &p[i], which <= W_HH ? 2 : 1, out, which == W_IH ? n->layers[l].input : hidden);
  }
  for (int64_t i = 0; n->zeros != NULL && i < 2 * bppsa_recurrent_layers(&n->config); ++i) {
    describe(n, &n->zeros[i], 1, out, 0);
  }
  if (!n->config.no_head) {
    snprintf(n->names[head], NAME_SIZE, "linear.weight");
    describe(n, &p[head], 2, n->config.classes, bppsa_recurrent_outputs(&n->config));
    snprintf(n->names[head + 1], NAME_SIZE, "linear.bias");
    describe(n, &p[head + 1], 1, n->config.classes, 0);
  }
}

/* Places all parameters in one array for values and one for gradients, each tensor at a multiple of 64 bytes; behind them the zeros
 * that stand for biases. Returns the bytes of one of the arrays; while these do not exist, it places nothing. */
static int64_t place_parameters(recurrent_network *n) {
  const int64_t own = n->base.parameter_count, all = own + (n->zeros != NULL ? 2 * bppsa_recurrent_layers(&n->config) : 0);
  int64_t at = 0;
  for (int64_t i = 0; i < all; ++i) {
    bppsa_parameter *p = i < own ? &n->base.parameters[i] : &n->zeros[i - own];
    if (n->values != NULL && n->gradients != NULL) {
      p->value.data = (char *)n->values + at;
      p->gradient.data = (char *)n->gradients + at;
    }
    at += (int64_t)((bppsa_view_bytes(&p->value) + BPPSA_ALIGNMENT - 1) / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT);
  }
  return at;
}

static bppsa_status allocate_parameters(recurrent_network *n) {
  const int64_t bytes = place_parameters(n);
  n->values = bppsa_calloc(bytes, 1);
  n->gradients = bppsa_calloc(bytes, 1);
  if (n->values == NULL || n->gradients == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  place_parameters(n);
  return BPPSA_OK;
}

/* ---- memory ---- */

/* Makes the plans of all layers. *held: bytes of the products that their scans hold. */
static bppsa_status make_plans(recurrent_network *n, const bppsa_device *device, int64_t *held) {
  bppsa_recurrent_config chosen;
  *held = 0;
  const bool bp = n->config.method.backward == BPPSA_BACKWARD_BP || n->config.method.backward == BPPSA_BACKWARD_SPECULATIVE;
  if (bp && !n->backend->runs_scan(n, NULL)) {
    return BPPSA_OK;
  }
  const bppsa_device_kind kind = bppsa_device_get_kind(device);
  BPPSA_TRY(bppsa_recurrent_choose(&n->config, n->cell, kind, &chosen));
  for (int64_t l = 0; l < bppsa_recurrent_layers(&n->config); ++l) {
    bppsa_scan_config scan = bppsa_recurrent_scan_config(&chosen, n->cell, bppsa_recurrent_level(n, l));
    scan.method.algorithm = n->config.method.backward == BPPSA_BACKWARD_BP ? BPPSA_SCAN_LINEAR : scan.method.algorithm;
    scan.device = kind;
    BPPSA_TRY(bppsa_scan_plan_create(&scan, &n->layers[l].plan));
    if (__builtin_add_overflow(*held, bppsa_scan_plan_totals(n->layers[l].plan)->workspace_bytes, held)) {
      return bppsa_fail(BPPSA_ERR_MEMORY, "network: the held products of its scans do not fit in 64 bits");
    }
  }
  return BPPSA_OK;
}

bool bppsa_recurrent_scans(const recurrent_network *n) {
  bool scans = false;
  for (int64_t l = 0; l < bppsa_recurrent_layers(&n->config); ++l) {
    scans = scans || n->backend->runs_scan(n, n->layers[l].plan);
  }
  return scans;
}

static bppsa_status make_scan(recurrent_network *n, int64_t l, const bppsa_device *device) {
  const bppsa_scan_plan *plan = n->layers[l].plan;
  if (plan == NULL || !n->backend->runs_scan(n, plan)) {
    return BPPSA_OK;
  }
  if (n->config.method.backward == BPPSA_BACKWARD_SCAN && n->config.factory.create != NULL) {
    return n->config.factory.create(n->config.factory.context, plan, device, &n->layers[l].scan);
  }
  return bppsa_scan_executor_create(plan, device, &n->layers[l].scan);
}

bppsa_status bppsa_recurrent_count_array(void **array, int64_t size, int64_t *bytes) {
  (void)array;
  return __builtin_add_overflow(*bytes, size, bytes) ? bppsa_fail(BPPSA_ERR_MEMORY, "network: its arrays do not fit in 64 bits")
                                                     : BPPSA_OK;
}

bppsa_status bppsa_recurrent_measure_array(void **array, int64_t size, int64_t *bytes) {
  return bppsa_recurrent_count_array(array, (size + BPPSA_ALIGNMENT - 1) / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT, bytes);
}

bppsa_status bppsa_recurrent_place_array(void **array, int64_t size, int64_t *address) {
  *array = (void *)(intptr_t)*address;
  return bppsa_recurrent_measure_array(array, size, address);
}

bppsa_status bppsa_recurrent_visit_array(const recurrent_network *n, bppsa_recurrent_visit visit, int64_t steps, int64_t rows,
                                         int64_t width, void **array, int64_t *bytes) {
  int64_t count;
  size_t size;
  BPPSA_TRY(bppsa_shape_bytes(n->config.dtype, 3, (int64_t[]){steps, rows, width}, &count, &size));
  return visit(array, (int64_t)size, bytes);
}

bppsa_status bppsa_recurrent_visit_tape(recurrent_network *n, int64_t l, bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  recurrent_layer *layer = &n->layers[l];
  const int64_t steps = bppsa_recompute_steps(n);
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, steps + 1, c->batch, c->hidden, &layer->h, bytes));
  if (n->cell->pair) {
    BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, steps + 1, c->batch, c->hidden, &layer->c, bytes));
  }
  return n->cell->saved > 0
             ? bppsa_recurrent_visit_array(n, visit, steps, c->batch, n->cell->saved * c->hidden, &layer->saved, bytes)
             : BPPSA_OK;
}

/* Counts parameters, gradients and an optimiser's state. On a GPU the backend's arrays have parameters and gradients. */
static bppsa_status count_parameters(recurrent_network *n, int64_t *bytes) {
  const int64_t arrays = n->config.optimizer_slots + (n->base.device == NULL ? 2 : 0);
  int64_t all;
  return bppsa_mul(place_parameters(n), arrays, &all)
             ? bppsa_recurrent_count_array(NULL, all, bytes)
             : bppsa_fail(BPPSA_ERR_MEMORY, "network: its parameters do not fit in 64 bits");
}

/* Counts the network's bytes, and refuses those above its limit before anything large is allocated. */
static bppsa_status check_memory(recurrent_network *n, bool scans, int64_t held) {
  const int64_t limit = n->config.memory_limit;
  int64_t parameters = 0;
  BPPSA_TRY(count_parameters(n, &parameters));
  n->bytes = parameters;
  BPPSA_TRY(n->backend->visit(n, scans, bppsa_recurrent_count_array, &n->bytes));
  BPPSA_TRY(bppsa_recurrent_count_array(NULL, held, &n->bytes));
  if (limit == 0 || n->bytes <= limit) {
    return BPPSA_OK;
  }
  const bppsa_scan_plan *plan = n->layers[bppsa_recurrent_layers(&n->config) - 1].plan;
  return bppsa_fail(BPPSA_ERR_ARGUMENT,
                    "%s: %s needs at least %lld bytes, %lld of them for parameters, gradients and the optimizer's state, %lld of "
                    "them for products held, expected at most %lld",
                    n->cell->name,
                    plan == NULL ? "BP" : bppsa_scan_algorithm_name(bppsa_scan_plan_config(plan)->method.algorithm),
                    (long long)n->bytes, (long long)parameters, (long long)held, (long long)limit);
}

bppsa_forward_shape bppsa_recurrent_forward_shape(const bppsa_recurrent_config *c, const bppsa_cell *cell,
                                                  bppsa_device_kind device, int multiprocessors) {
  const int64_t outputs = bppsa_recurrent_outputs(c);
  return (bppsa_forward_shape){.seq_len = c->part.seq_len > 0 ? c->part.seq_len : c->seq_len,
                               .batch = c->batch,
                               .input = c->layers > 1 && outputs > c->input ? outputs : c->input,
                               .hidden = c->hidden,
                               .gates = cell->gates,
                               .dtype = c->dtype,
                               .device = device,
                               .multiprocessors = multiprocessors,
                               .most_hidden = device == BPPSA_CPU ? 0 : BPPSA_FORWARD_GPU_HIDDEN};
}

/* The shape, with the sizes that the backend asks its device for. */
static bppsa_forward_shape shape_on(const recurrent_network *n, const bppsa_device *device) {
  bppsa_forward_shape shape =
      bppsa_recurrent_forward_shape(&n->config, n->cell, bppsa_device_get_kind(device), n->forward.multiprocessors);
  shape.most_hidden = shape.device == BPPSA_CPU ? 0 : n->forward.most_hidden;
  return shape;
}

/* Makes the plans and counts; allocates what was counted unless only the number is wanted. */
static bppsa_status reserve_all(recurrent_network *n, const bppsa_device *device, bool allocates) {
  int64_t held;
  BPPSA_TRY(make_plans(n, device, &held));
  const bool scans = bppsa_recurrent_scans(n);
  const bppsa_forward_shape shape = shape_on(n, device);
  BPPSA_TRY(bppsa_forward_plan_make(&n->config.forward, &shape, &n->forward.plan));
  if (n->config.method.backward == BPPSA_BACKWARD_SPECULATIVE) {
    bppsa_backward_method method = n->config.speculation;
    method.scan_chunks = n->back.scans ? method.scan_chunks : 1;
    BPPSA_TRY(bppsa_recurrent_find_fallback(&n->config, n->cell, shape.device, &method));
    BPPSA_TRY(bppsa_backward_plan_make(&method, &shape, &n->back.plan));
    if (n->config.part.seq_len > 0 && shape.device != BPPSA_CPU) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                        "a speculative backward pass of a part of a sequence on a GPU, expected bp, scan or auto, or a CPU");
    }
    if (n->config.part.seq_len > 0 && !n->back.plan.speculative) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT,
                        "a part of a sequence whose speculative backward pass has one chunk or tolerance 0, expected BP");
    }
  }
  n->forward.seq_len = shape.seq_len;
  n->backend->choose(n);
  BPPSA_TRY(check_memory(n, scans, scans ? held : 0)); /* products of the backend's own kernels are among its arrays */
  if (!allocates) {
    return BPPSA_OK;
  }
  BPPSA_TRY(allocate_parameters(n));
  BPPSA_TRY(n->backend->allocate(n, scans));
  for (int64_t l = 0; l < bppsa_recurrent_layers(&n->config); ++l) {
    BPPSA_TRY(make_scan(n, l, device));
  }
  return n->backend->check_cell(n);
}

static bppsa_status build(recurrent_network *n, const bppsa_device *device, bool allocates) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t layers = bppsa_recurrent_layers(c);
  n->base.parameter_count = bppsa_recurrent_parameters(c, true);
  n->layers = bppsa_calloc(layers, sizeof *n->layers);
  n->base.parameters = bppsa_calloc(n->base.parameter_count, sizeof *n->base.parameters);
  n->names = bppsa_calloc(n->base.parameter_count, sizeof *n->names);
  n->columns = bppsa_calloc(n->cell->matrices + n->cell->pair, sizeof *n->columns);
  n->zeros = c->no_bias ? bppsa_calloc(2 * layers, sizeof *n->zeros) : NULL;
  if (n->layers == NULL || n->base.parameters == NULL || n->names == NULL || n->columns == NULL ||
      (c->no_bias && n->zeros == NULL)) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t l = 0; l < layers; ++l) {
    n->layers[l].input = bppsa_recurrent_level(n, l) == 0 ? c->input : bppsa_recurrent_outputs(c);
  }
  describe_parameters(n);
  BPPSA_TRY(n->backend->create(n, device));
  return reserve_all(n, device, allocates);
}

static const recurrent_backend *const backends[] = {[BPPSA_CPU] = &bppsa_recurrent_cpu, [BPPSA_CUDA] = &bppsa_recurrent_cuda};

bppsa_status bppsa_recurrent_plan_forward(const bppsa_recurrent_config *config, const bppsa_cell *cell,
                                          const bppsa_device *device, bppsa_forward_plan *plan) {
  BPPSA_REQUIRE(config != NULL && cell != NULL && device != NULL && plan != NULL);
  recurrent_network n = {.config = *config, .cell = cell, .backend = backends[bppsa_device_get_kind(device)]};
  n.config.seq_len = 1; /* this asks the device what it can do, not whether it has room for all steps */
  bppsa_status status = n.backend->create(&n, device);
  if (status == BPPSA_OK) {
    bppsa_forward_shape shape = shape_on(&n, device);
    shape.seq_len = config->seq_len;
    status = bppsa_forward_plan_make(&config->forward, &shape, plan);
  }
  n.backend->destroy(&n);
  return status;
}

/* Resolves AUTO: from here on the configuration says BP, SCAN or SPECULATIVE. The arrays of chunks may exceed the memory limit
 * where those of BP do not. */
static bppsa_status choose_method(recurrent_network *n, const bppsa_device *device) {
  bppsa_recurrent_config chosen;
  int64_t bytes;
  if (n->config.method.backward != BPPSA_BACKWARD_AUTO) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_recurrent_choose(&n->config, n->cell, bppsa_device_get_kind(device), &chosen));
  if (chosen.method.backward == BPPSA_BACKWARD_SPECULATIVE && chosen.memory_limit > 0) {
    const bppsa_status status = bppsa_recurrent_count(&chosen, n->cell, device, &bytes);
    if (status == BPPSA_ERR_ARGUMENT) {
      chosen.method.backward = BPPSA_BACKWARD_BP;
    } else {
      BPPSA_TRY(status);
    }
  }
  n->config.method = chosen.method;
  n->config.speculation = chosen.speculation;
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_make(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                                  bool allocates, recurrent_network **made) {
  BPPSA_TRY(check_config(config));
  if (config->recompute > 0 && bppsa_device_get_kind(device) != BPPSA_CPU) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "recompute on a GPU, expected a CPU");
  }
  if (allocates && config->tape && config->lengths && bppsa_device_get_kind(device) != BPPSA_CPU) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "tapes of samples that have lengths on a GPU, expected a CPU");
  }
  BPPSA_TRY(bppsa_recurrent_check_cell(config, cell));
  recurrent_network *n = bppsa_calloc(1, sizeof *n);
  if (n == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  n->ops = bppsa_recurrent_ops;
  n->ops.name = cell->name;
  n->base.ops = &n->ops;
  n->base.dtype = config->dtype;
  n->base.classes = config->no_head ? bppsa_recurrent_outputs(config) : config->classes;
  n->config = *config;
  n->config.forward =
      config->lengths || config->recompute > 0 ? bppsa_forward_method_default() : config->forward; /* sequential */
  n->config.resets = config->resets || config->reset_state;
  n->serves = RECURRENT_MODEL;
  n->cell = cell;
  n->backend = backends[bppsa_device_get_kind(device)];
  n->threads = bppsa_device_get_threads(device);
  bppsa_status status = check_sizes(n);
  status = status == BPPSA_OK ? choose_method(n, device) : status;
  status = status == BPPSA_OK ? build(n, device, allocates) : status;
  if (status != BPPSA_OK) {
    bppsa_recurrent_destroy(&n->base);
    return status;
  }
  *made = n;
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_create(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                                    bppsa_model **model) {
  BPPSA_REQUIRE(config != NULL && cell != NULL && device != NULL && model != NULL);
  recurrent_network *made = NULL;
  BPPSA_TRY(bppsa_recurrent_make(config, cell, device, true, &made));
  *model = &made->base;
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_count(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                                   int64_t *bytes) {
  BPPSA_REQUIRE(config != NULL && cell != NULL && device != NULL && bytes != NULL);
  recurrent_network *made = NULL;
  BPPSA_TRY(bppsa_recurrent_make(config, cell, device, false, &made));
  *bytes = made->bytes;
  bppsa_recurrent_destroy(&made->base);
  return BPPSA_OK;
}

void bppsa_recurrent_destroy(bppsa_model *model) {
  recurrent_network *n = (recurrent_network *)model;
  for (int64_t l = 0; n->layers != NULL && l < bppsa_recurrent_layers(&n->config); ++l) {
    bppsa_scan_executor_destroy(n->layers[l].scan);
    bppsa_scan_plan_destroy(n->layers[l].plan);
  }
  n->backend->destroy(n);
  void *const blocks[] = {n->layers, n->base.parameters, n->names, n->columns, n->zeros, n->values, n->gradients, n};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

/* Stateless passes of one layer. A pass makes a network of its own on the calling thread's stack: a copy of the layer's, whose
 * arrays lie in the caller's scratch and whose states and parameters are the caller's. The backend then computes it like any
 * other. Nothing that a pass writes is seen by another one: pauses and warm-ups begin anew each time. */
#include "recurrent/layer.h"

#include <stddef.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/pages.h"
#include "core/compute/memory.h"
#include "recurrent/layer_internal.h"
#include "recurrent/layers_cpu.h"

static int64_t size_of(const recurrent_network *n) {
  return (int64_t)bppsa_dtype_size(n->config.dtype);
}

/* The bytes of b rows [H], or of one of them. */
static int64_t half_bytes(const recurrent_network *n) {
  return n->config.batch * n->config.hidden * size_of(n);
}

static int64_t row_bytes(const recurrent_network *n) {
  return n->config.hidden * size_of(n);
}

/* ---- a pass's network ---- */

/* Makes the network of a pass on the device, without arrays; NULL: of one that is only measured. serves: RECURRENT_FORWARD and so
 * on. */
static void copy_network(const recurrent_network *from, const bppsa_device *device, unsigned serves, layer_pass *pass) {
  pass->n = *from;
  pass->layer = from->layers[0];
  memcpy(pass->parameters, from->base.parameters, (size_t)from->base.parameter_count * sizeof *pass->parameters);
  pass->n.layers = &pass->layer;
  pass->n.base.parameters = pass->parameters;
  pass->n.columns = pass->columns;
  if (from->zeros != NULL) {
    memcpy(pass->zeros, from->zeros, sizeof pass->zeros);
    pass->n.zeros = pass->zeros;
  }
  pass->n.serves = serves;
  pass->n.batch = from->config.batch;
  pass->first = pass->zero = pass->unwanted = pass->unwanted_bias = pass->no_seed = pass->scan = NULL;
  if (from->backend->copy != NULL) {
    from->backend->copy(&pass->n, device, pass->room);
  }
}

/* Does a GPU look at the gradients of all outputs, whether one of them is 0? */
static bool looks_at_seed(const recurrent_network *n) {
  return n->gpu != NULL && n->back.plan.speculative && n->config.speculation.exact_inputs && n->config.input_gradients;
}

/* Bytes of the rows [T][B][H]. */
static int64_t states_bytes(const recurrent_network *n) {
  return n->config.seq_len * half_bytes(n);
}

static int64_t largest_parameter(const layer_pass *pass) {
  size_t most = 0;
  for (int64_t i = 0; i < pass->n.base.parameter_count; ++i) {
    const size_t bytes = bppsa_view_bytes(&pass->parameters[i].gradient);
    most = bytes > most ? bytes : most;
  }
  return (int64_t)most;
}

/* Visits the pass's arrays in scratch. A pass along a direction that walks by scans serves forward and backward passes. It does so
 * too where the layer's method is speculative. */
static bppsa_status visit_arrays(const bppsa_layer *layer, layer_pass *pass, bppsa_recurrent_visit visit, int64_t *bytes) {
  recurrent_network *n = &pass->n;
  const bool forward = bppsa_recurrent_serves(n, RECURRENT_FORWARD);
  const bool along = forward && bppsa_recurrent_serves(n, RECURRENT_BACKWARD) && layer->tangent_plan != NULL;
  BPPSA_TRY(n->backend->visit(n, layer->scans || along, visit, bytes));
  if (n->config.lengths) { /* packed states; the tape has all steps of all samples, in the caller's order */
    BPPSA_TRY(bppsa_recurrent_visit_tape(n, 0, visit, bytes));
  }
  if (forward && n->cell->pair) {
    BPPSA_TRY(visit(&pass->first, 2 * half_bytes(n), bytes));
  }
  BPPSA_TRY(visit(&pass->zero, n->cell->gates * row_bytes(n), bytes));
  if (bppsa_recurrent_serves(n, RECURRENT_BACKWARD)) {
    BPPSA_TRY(visit(&pass->unwanted, largest_parameter(pass), bytes));
    BPPSA_TRY(visit(&pass->unwanted_bias, n->cell->gates * row_bytes(n), bytes));
    BPPSA_TRY(looks_at_seed(n) ? visit(&pass->no_seed, states_bytes(n), bytes) : BPPSA_OK);
    BPPSA_TRY(layer->scan_bytes > 0 ? visit(&pass->scan, layer->scan_bytes, bytes) : BPPSA_OK);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_layer_measure(const bppsa_layer *layer, unsigned serves, int64_t *bytes) {
  layer_pass pass;
  copy_network(layer->network, NULL, serves, &pass);
  *bytes = BPPSA_ALIGNMENT; /* behind the last array, because kernels may read a cache line beyond the end */
  return visit_arrays(layer, &pass, bppsa_recurrent_measure_array, bytes);
}

/* ---- creation ---- */

static bppsa_status check_config(const bppsa_recurrent_config *c) {
  const struct {
    const char *name;
    bool set;
  } unexpected[] = {{"bidirectional", c->bidirectional},
                    {"dropout", c->dropout != 0},
                    {"part", c->part.seq_len != 0},
                    {"memory_limit", c->memory_limit != 0},
                    {"optimizer_slots", c->optimizer_slots != 0},
                    {"recompute", c->recompute != 0},
                    {"factory", c->factory.create != NULL},
                    {"ends", c->ends.before != NULL || c->ends.after != NULL}};
  for (size_t i = 0; i < sizeof unexpected / sizeof *unexpected; ++i) {
    if (unexpected[i].set) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "layer: %s is set, expected 0, because stateless passes have none",
                        unexpected[i].name);
    }
  }
  return BPPSA_OK;
}

/* Plans walks along a direction by the layer's scan, where it has one and its cell has tangents. Those of a speculative layer are
 * linear scans of its chunks. */
static bppsa_status plan_tangents(bppsa_layer *layer) {
  const recurrent_network *n = layer->network;
  const bool speculates = n->back.plan.speculative;
  if (!(layer->scans || speculates) || layer->kind != BPPSA_CPU || n->cell->tangent[n->config.dtype == BPPSA_F64] == NULL) {
    return BPPSA_OK;
  }
  bppsa_scan_config c =
      layer->scans ? *bppsa_scan_plan_config(n->layers[0].plan) : bppsa_recurrent_scan_config(&n->config, n->cell, 0);
  c.method = layer->scans ? c.method : bppsa_scan_method_of(BPPSA_SCAN_LINEAR);
  c.affine = c.input = true;
  return bppsa_scan_plan_create(&c, &layer->tangent_plan);
}

static bppsa_status make(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                         bppsa_layer *layer) {
  bppsa_recurrent_config c = *config;
  c.layers = c.classes = 1;
  c.no_head = c.loss_all = c.tape = true;
  BPPSA_TRY(bppsa_recurrent_make(&c, cell, device, false, &layer->network));
  recurrent_network *n = layer->network;
  BPPSA_TRY(n->backend->check_cell(n));
  BPPSA_TRY(n->backend->keep != NULL ? n->backend->keep(n) : BPPSA_OK);
  layer->kind = bppsa_device_get_kind(device);
  layer->index = bppsa_device_get_index(device);
  layer->scans = bppsa_recurrent_scans(n);
  BPPSA_TRY(layer->scans ? bppsa_scan_executor_bytes(n->layers[0].plan, device, &layer->scan_bytes) : BPPSA_OK);
  BPPSA_TRY(plan_tangents(layer));
  layer->sizes.states = (n->config.seq_len + 1) * half_bytes(n);
  layer->sizes.saved = n->cell->saved * states_bytes(n);
  BPPSA_TRY(bppsa_layer_measure(layer, RECURRENT_FORWARD, &layer->sizes.forward));
  return bppsa_layer_measure(layer, RECURRENT_BACKWARD, &layer->sizes.backward);
}

bppsa_status bppsa_layer_create(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                                bppsa_layer **layer) {
  BPPSA_REQUIRE(config != NULL && cell != NULL && device != NULL && layer != NULL);
  BPPSA_TRY(check_config(config));
  bppsa_layer *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = make(config, cell, device, made);
  if (status != BPPSA_OK) {
    bppsa_layer_destroy(made);
    return status;
  }
  *layer = made;
  return BPPSA_OK;
}

void bppsa_layer_destroy(bppsa_layer *layer) {
  if (layer != NULL && layer->network != NULL) {
    bppsa_scan_plan_destroy(layer->tangent_plan);
    bppsa_recurrent_destroy(&layer->network->base);
  }
  bppsa_free(layer);
}

void bppsa_layer_bytes(const bppsa_layer *layer, bppsa_layer_sizes *sizes) {
  *sizes = layer->sizes;
}

const bppsa_forward_plan *bppsa_layer_forward_plan(const bppsa_layer *layer) {
  const bppsa_forward_plan *plan = bppsa_forward_plan_of(&layer->network->base);
  return plan->speculative ? plan : NULL;
}

const bppsa_backward_plan *bppsa_layer_backward_plan(const bppsa_layer *layer) {
  return bppsa_backward_plan_of(&layer->network->base);
}

/* ---- a pass begins and ends ---- */

/* Checks what a pass is given. Arrays that the configuration needs must not be NULL, and those that it does not know must be. */
bppsa_status bppsa_layer_check_pass(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *in,
                                    const bppsa_layer_tape *tape, const void *scratch) {
  const recurrent_network *n = layer->network;
  const bppsa_recurrent_config *c = &n->config;
  const bool pair = n->cell->pair;
  const struct {
    const char *name;
    bool needed, known;
    const void *data;
  } arrays[] = {{"x", true, true, in->x},
                {"c0", false, pair, in->c0},
                {"w_ih", true, true, in->w_ih},
                {"w_hh", true, true, in->w_hh},
                {"b_ih", false, !c->no_bias, in->b_ih},
                {"b_hh", false, !c->no_bias, in->b_hh},
                {"reset_state", c->reset_state, c->reset_state, in->reset_state},
                {"tape h", true, true, tape->h},
                {"tape c", pair, pair, tape->c},
                {"tape saved", layer->sizes.saved > 0, true, tape->saved},
                {"scratch", true, true, scratch}};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    if (arrays[i].data == NULL ? arrays[i].needed : !arrays[i].known) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s layer: %s %s", n->cell->name, arrays[i].name,
                        arrays[i].needed ? "is NULL, expected an array" : "is an array, expected NULL: the layer has none");
    }
  }
  if (layer->kind == BPPSA_CPU && (in->far_lengths || in->far_resets)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s layer: %s in a GPU's memory, expected host memory: the pass is on a CPU",
                      n->cell->name, in->far_lengths ? "lengths" : "resets");
  }
  if (tape->record != NULL && layer->kind != BPPSA_CPU) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s layer: a record of a pass on a GPU, expected NULL", n->cell->name);
  }
  if ((uintptr_t)scratch % BPPSA_ALIGNMENT != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s layer: scratch at %p, expected a multiple of %d", n->cell->name, scratch,
                      BPPSA_ALIGNMENT);
  }
  return bppsa_device_get_kind(device) == layer->kind && bppsa_device_get_index(device) == layer->index
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s layer: a pass on device %s, expected %s %d, for which the layer was made",
                          n->cell->name, bppsa_device_get_name(device), layer->kind == BPPSA_CUDA ? "GPU" : "CPU",
                          (int)layer->index);
}

static bppsa_status take_spans(recurrent_network *n, const bppsa_layer_inputs *in) {
  bppsa_view resets = bppsa_view_make((void *)(uintptr_t)in->resets, in->far_resets ? BPPSA_BOOL : BPPSA_U8, 2,
                                      (int64_t[]){n->config.seq_len, n->config.batch});
  resets.device = in->far_resets ? BPPSA_CUDA : BPPSA_CPU;
  const bppsa_view *given = in->resets != NULL ? &resets : NULL;
  BPPSA_TRY(bppsa_resets_check(n, n->batch, given));
  BPPSA_TRY(in->far_lengths ? bppsa_ragged_take_far(n, in->lengths, in->short_lengths)
                            : bppsa_ragged_take(n, n->batch, in->lengths));
  bppsa_resets_take(n, n->batch, given);
  return BPPSA_OK;
}

/* Gives the parameters their values, and in a backward pass the places of their gradients. */
static bppsa_status take_parameters(layer_pass *pass, const bppsa_layer_inputs *in, const bppsa_layer_gradients *to) {
  recurrent_network *n = &pass->n;
  const void *const values[] = {in->w_ih, in->w_hh, in->b_ih, in->b_hh};
  void *const gradients[] = {to != NULL ? to->w_ih : NULL, to != NULL ? to->w_hh : NULL, to != NULL ? to->b_ih : NULL,
                             to != NULL ? to->b_hh : NULL};
  for (int i = 0; i < MOST_PARAMETERS; ++i) {
    bppsa_parameter *p = (bppsa_parameter *)bppsa_recurrent_parameter(n, 0, i);
    p->value.data = values[i] != NULL ? (void *)(uintptr_t)values[i] : pass->zero;
    p->gradient.data = gradients[i] != NULL ? gradients[i] : i == B_IH ? pass->unwanted_bias : pass->unwanted;
  }
  if (n->config.reset_state) {
    pass->parameters[0].value.data = (void *)(uintptr_t)in->reset_state;
    pass->parameters[0].gradient.data = to != NULL && to->reset_state != NULL ? to->reset_state : pass->unwanted;
  }
  return in->b_ih != NULL && in->b_hh != NULL
             ? BPPSA_OK
             : bppsa_memory_queue_clear(n->base.device, pass->zero, n->cell->gates * row_bytes(n));
}

/* Makes the pass's network, with its arrays in scratch. to: of a backward pass, otherwise NULL. */
bppsa_status bppsa_layer_begin(const bppsa_layer *layer, const bppsa_device *device, unsigned serves,
                               const bppsa_layer_inputs *in, const bppsa_layer_tape *tape, const bppsa_layer_gradients *to,
                               void *scratch, layer_pass *pass, int64_t *end) {
  recurrent_network *n = &pass->n;
  int64_t address = (int64_t)(intptr_t)scratch;
  copy_network(layer->network, device, serves, pass);
  BPPSA_TRY(visit_arrays(layer, pass, bppsa_recurrent_place_array, &address));
  *end = address;
  BPPSA_TRY(take_parameters(pass, in, to));
  BPPSA_TRY(take_spans(n, in));
  n->x = in->x;
  if (!bppsa_ragged_packed(n)) {
    pass->layer.h = tape->h;
    pass->layer.c = tape->c;
    pass->layer.saved = tape->saved;
  }
  return n->backend->begin != NULL ? n->backend->begin(n) : BPPSA_OK;
}

/* Copies packed states to the tape, or back. */
void bppsa_layer_move_tape(const layer_pass *pass, const bppsa_layer_tape *tape, bool back) {
  const recurrent_network *n = &pass->n;
  const int64_t hidden = n->config.hidden, saved = n->cell->saved * hidden;
  if (!bppsa_ragged_packed(n)) {
    return;
  }
  bppsa_ragged_move_states(n, tape->h, hidden, pass->layer.h, back);
  if (n->cell->pair) {
    bppsa_ragged_move_states(n, tape->c, hidden, pass->layer.c, back);
  }
  if (saved > 0 && back) {
    bppsa_ragged_unpack(n, pass->layer.saved, saved, tape->saved);
  } else if (saved > 0) {
    bppsa_ragged_pack(n, tape->saved, saved, pass->layer.saved);
  }
}

/* Copies a half [B][H] of states [B][2H], h or c, or of other rows that begin `apart` bytes apart. */
static bppsa_status copy_half(const recurrent_network *n, void *to, int64_t to_apart, const void *from, int64_t from_apart) {
  return bppsa_memory_queue_copy(n->base.device, to, to_apart, from, from_apart, row_bytes(n), n->batch);
}

/* An array that a pass writes as a whole. A caller's memory is often fresh, so that the system clears every page of it. */
typedef struct {
  const void *data;
  int64_t bytes;
} written;

static void advise(const bppsa_layer *layer, const written *arrays, size_t count) {
  for (size_t i = 0; layer->kind == BPPSA_CPU && i < count; ++i) {
    bppsa_pages_advise(arrays[i].data, arrays[i].bytes);
  }
}

/* ---- forward ---- */

/* *h0: the initial states [B][S], or NULL. */
static bppsa_status join_first(const layer_pass *pass, const bppsa_layer_inputs *in, const void **h0) {
  const recurrent_network *n = &pass->n;
  const int64_t row = row_bytes(n);
  const void *const halves[] = {in->h0, in->c0};
  *h0 = in->h0;
  if (!n->cell->pair || (in->h0 == NULL && in->c0 == NULL)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(in->h0 == NULL || in->c0 == NULL ? bppsa_memory_queue_clear(n->base.device, pass->first, 2 * half_bytes(n))
                                             : BPPSA_OK);
  for (int i = 0; i < 2; ++i) {
    BPPSA_TRY(halves[i] != NULL ? copy_half(n, (char *)pass->first + i * row, 2 * row, halves[i], row) : BPPSA_OK);
  }
  *h0 = pass->first;
  return BPPSA_OK;
}

bppsa_status bppsa_layer_forward(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *inputs,
                                 const bppsa_layer_tape *tape, void *scratch) {
  BPPSA_REQUIRE(layer != NULL && device != NULL && inputs != NULL && tape != NULL);
  layer_pass pass;
  int64_t end;
  const void *h0;
  BPPSA_TRY(bppsa_layer_check_pass(layer, device, inputs, tape, scratch));
  const written arrays[] = {{tape->h, layer->sizes.states},
                            {tape->c, layer->sizes.states},
                            {tape->saved, layer->sizes.saved},
                            {tape->output, states_bytes(layer->network)},
                            {scratch, layer->sizes.forward}};
  advise(layer, arrays, sizeof arrays / sizeof *arrays);
  BPPSA_TRY(bppsa_layer_begin(layer, device, RECURRENT_FORWARD, inputs, tape, NULL, scratch, &pass, &end));
  BPPSA_TRY(join_first(&pass, inputs, &h0));
  pass.n.output = tape->output;
  if (tape->record != NULL) {
    pass.n.forward.pause = tape->record->pause;
  }
  BPPSA_TRY(pass.n.backend->forward(&pass.n, h0));
  if (tape->record != NULL) {
    *tape->record = (bppsa_layer_forward_record){pass.n.forward.pause, pass.n.forward.stats};
  }
  bppsa_layer_move_tape(&pass, tape, true);
  return BPPSA_OK;
}

/* ---- backward ---- */

bppsa_status bppsa_layer_check_gradients(const bppsa_layer *layer, const bppsa_layer_seed *seed,
                                         const bppsa_layer_gradients *to) {
  const recurrent_network *n = layer->network;
  const bppsa_recurrent_config *c = &n->config;
  const bool pair = n->cell->pair, inputs = c->input_gradients;
  const struct {
    const char *name, *why;
    bool known;
    const void *data;
  } arrays[] = {{"seed c", "the state is no pair", pair, seed->c},
                {"seed c_last", "the state is no pair", pair, seed->c_last},
                {"gradient of x", "the layer has no input_gradients", inputs, to->x},
                {"gradient of h0", "the layer has no input_gradients", inputs, to->h0},
                {"gradient of c0", pair ? "the layer has no input_gradients" : "the state is no pair", pair && inputs, to->c0},
                {"gradient of b_ih", "the layer has no biases", !c->no_bias, to->b_ih},
                {"gradient of b_hh", "the layer has no biases", !c->no_bias, to->b_hh},
                {"gradient of reset_state", "the layer has none", c->reset_state, to->reset_state},
                {"record", "the pass is on a GPU", layer->kind == BPPSA_CPU, to->record}};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    if (arrays[i].data != NULL && !arrays[i].known) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s layer: %s is an array, expected NULL: %s", n->cell->name, arrays[i].name,
                        arrays[i].why);
    }
  }
  return BPPSA_OK;
}

/* Adds rows [B][H] to a half of the gradients of the samples' last states. */
static bppsa_status add_ends(const recurrent_network *n, int half, const void *rows) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n), first = n->batch * size + half * hidden;
  if (rows == NULL) {
    return BPPSA_OK;
  }
  if (n->gpu == NULL) {
    bppsa_ragged_add_ends(n, rows, hidden, size, hidden, bppsa_recurrent_offset(n, n->g, first));
    return BPPSA_OK;
  }
  const recurrent_rows all = {.from = rows,
                              .to = bppsa_recurrent_offset(n, n->g, first),
                              .rows = n->batch,
                              .from_row = hidden,
                              .to_row = size,
                              .width = hidden,
                              .added = true,
                              .last = true};
  return n->backend->move(n, &all);
}

/* Writes the gradients of the states to n->g. */
bppsa_status bppsa_layer_seed_pass(layer_pass *pass, const bppsa_layer_seed *seed) {
  recurrent_network *n = &pass->n;
  n->seed = seed->h != NULL ? seed->h : pass->no_seed;
  n->seeds_states = true;
  if (seed->h != NULL) {
    BPPSA_TRY(n->backend->seed_layers(n, seed->h));
  } else {
    BPPSA_TRY(bppsa_memory_queue_clear(n->base.device, n->g,
                                       (n->config.seq_len + 1) * n->batch * bppsa_recurrent_state_size(n) * size_of(n)));
    BPPSA_TRY(pass->no_seed != NULL ? bppsa_memory_queue_clear(n->base.device, pass->no_seed, states_bytes(n)) : BPPSA_OK);
  }
  n->of_cells = seed->c;
  n->of_all_cells = true;
  BPPSA_TRY(seed->c != NULL ? bppsa_recurrent_put_cells(n) : BPPSA_OK);
  BPPSA_TRY(add_ends(n, 0, seed->h_last));
  return add_ends(n, 1, seed->c_last);
}

bppsa_status bppsa_layer_make_scan(const bppsa_layer *layer, const bppsa_device *device, layer_pass *pass) {
  return layer->scans ? bppsa_scan_executor_create_in(pass->layer.plan, device, pass->scan, &pass->layer.scan) : BPPSA_OK;
}

/* Does BP need no g of all steps? Samples without lengths have rows of g in the order of the seed's; gradients of c are added to
 * all of g, and scans and speculative passes read it. */
static bool takes_seed_by_windows(const layer_pass *pass, const bppsa_layer_seed *seed) {
  const recurrent_network *n = &pass->n;
  return n->gpu == NULL && pass->layer.scan == NULL && !n->back.plan.speculative && !n->ragged.active && seed->c == NULL;
}

/* Writes the gradient of the last states alone to n->g. */
static bppsa_status seed_last(layer_pass *pass, const bppsa_layer_seed *seed) {
  recurrent_network *n = &pass->n;
  const int64_t last = (n->config.seq_len - 1) * n->batch * n->config.hidden;
  n->seed = seed->h;
  n->seeds_states = n->seeds_windows = true;
  bppsa_layers_seed_last(n, bppsa_recurrent_offset(n, seed->h, last));
  BPPSA_TRY(add_ends(n, 0, seed->h_last));
  return add_ends(n, 1, seed->c_last);
}

static bppsa_status compute_gradients(layer_pass *pass, const bppsa_layer_seed *seed, const bppsa_layer_gradients *to) {
  recurrent_network *n = &pass->n;
  const int64_t row = row_bytes(n), state = bppsa_recurrent_state_size(n) * size_of(n);
  n->dx = to->x;
  BPPSA_TRY((takes_seed_by_windows(pass, seed) ? seed_last : bppsa_layer_seed_pass)(pass, seed));
  if (to->record != NULL) {
    n->back.state = to->record->state;
  }
  BPPSA_TRY(bppsa_recurrent_go_back(n));
  if (to->record != NULL) {
    *to->record = (bppsa_layer_backward_record){n->back.state, n->back.stats};
  }
  BPPSA_TRY(to->h0 != NULL ? copy_half(n, to->h0, row, n->dh0, state) : BPPSA_OK);
  return to->c0 != NULL ? copy_half(n, to->c0, row, (char *)n->dh0 + row, state) : BPPSA_OK;
}

bppsa_status bppsa_layer_backward(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *inputs,
                                  const bppsa_layer_tape *tape, const bppsa_layer_seed *seed,
                                  const bppsa_layer_gradients *gradients, void *scratch) {
  BPPSA_REQUIRE(layer != NULL && device != NULL && inputs != NULL && tape != NULL && seed != NULL && gradients != NULL);
  layer_pass pass;
  int64_t end;
  BPPSA_TRY(bppsa_layer_check_pass(layer, device, inputs, tape, scratch));
  BPPSA_TRY(bppsa_layer_check_gradients(layer, seed, gradients));
  const bppsa_recurrent_config *c = &layer->network->config;
  const int64_t gates = layer->network->cell->gates * row_bytes(layer->network);
  const written arrays[] = {{gradients->x, c->seq_len * c->batch * c->input * size_of(layer->network)},
                            {gradients->w_ih, gates * c->input},
                            {gradients->w_hh, gates * c->hidden},
                            {scratch, layer->sizes.backward}};
  advise(layer, arrays, sizeof arrays / sizeof *arrays);
  BPPSA_TRY(bppsa_layer_begin(layer, device, RECURRENT_BACKWARD, inputs, tape, gradients, scratch, &pass, &end));
  bppsa_layer_move_tape(&pass, tape, false);
  bppsa_status status = bppsa_layer_make_scan(layer, device, &pass);
  status = status == BPPSA_OK ? compute_gradients(&pass, seed, gradients) : status;
  bppsa_scan_executor_destroy(pass.layer.scan);
  return status;
}

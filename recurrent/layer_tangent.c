/* Derivatives of stateless passes along a direction: checks, and what comes and goes. recurrent/tangent_cpu.c and
 * recurrent/gpu/tangent_cuda.cu compute them. */
#include <string.h>

#include "recurrent/layer_internal.h"
#include "recurrent/speculate_scan.h"
#include "recurrent/tangent_internal.h"

static bool is_known(const void *array, bool known) {
  return array == NULL || known;
}

/* A layer's cell may lack the functions, and a GPU those of second tangents. */
static bppsa_status check_support(const bppsa_layer *layer, tangent_kind kind) {
  const recurrent_network *n = layer->network;
  const int wide = n->config.dtype == BPPSA_F64;
  if (kind == TANGENT_TWICE && n->backend->tangents->twice == NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s layer: tangents of tangents on a GPU, expected a CPU", n->cell->name);
  }
  if (n->gpu == NULL &&
      (n->cell->tangent[wide] == NULL || n->cell->tangent_backward[wide] == NULL || n->cell->backward[wide] == NULL)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "%s layer: the cell has no derivatives along a direction in %s, expected entries 'tangent' and "
                      "'tangent_backward' in its table",
                      n->cell->name, bppsa_dtype_name(n->config.dtype));
  }
  return BPPSA_OK;
}

static bppsa_status check_tangents(const bppsa_layer *layer, const bppsa_layer_tangents *t, const void *h, const void *c) {
  const recurrent_network *n = layer->network;
  const bool pair = n->cell->pair, bias = !n->config.no_bias;
  const struct {
    const char *name, *why;
    bool right;
  } arrays[] = {{"tangent of c0", "the state is no pair", is_known(t->c0, pair)},
                {"tangent of b_ih", "the layer has no biases", is_known(t->b_ih, bias)},
                {"tangent of b_hh", "the layer has no biases", is_known(t->b_hh, bias)},
                {"tangent of reset_state", "the layer has none", is_known(t->reset_state, n->config.reset_state)},
                {"c", "the state is no pair", is_known(c, pair)}};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    if (!arrays[i].right) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s layer: %s is an array, expected NULL: %s", n->cell->name, arrays[i].name,
                        arrays[i].why);
    }
  }
  return h != NULL && (!pair || c != NULL)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s layer: %s is NULL, expected an array of tangents [T+1][B][H]", n->cell->name,
                          h == NULL ? "h" : "c");
}

/* The passes whose arrays a pass along a direction needs besides its own. */
static unsigned serves_of(const bppsa_layer *layer, tangent_kind kind) {
  if (layer->kind != BPPSA_CPU) {
    return kind == TANGENT_STATES ? 0 : RECURRENT_BACKWARD;
  }
  return RECURRENT_FORWARD | (kind != TANGENT_STATES || layer->tangent_plan != NULL ? RECURRENT_BACKWARD : 0);
}

static bppsa_status measure(const bppsa_layer *layer, tangent_kind kind, int64_t *bytes) {
  tangent_arrays arrays = {.scan = NULL};
  recurrent_network n = *layer->network;
  n.batch = n.config.batch;
  BPPSA_TRY(bppsa_layer_measure(layer, serves_of(layer, kind), bytes));
  return n.backend->tangents->visit(&n, kind, layer->tangent_plan != NULL, &arrays, bppsa_recurrent_measure_array, bytes);
}

bppsa_status bppsa_layer_tangent_bytes(const bppsa_layer *layer, int64_t *tangent, int64_t *backward) {
  BPPSA_REQUIRE(layer != NULL && tangent != NULL && backward != NULL);
  int64_t bytes[2];
  BPPSA_TRY(measure(layer, TANGENT_STATES, &bytes[0]));
  BPPSA_TRY(measure(layer, TANGENT_GRADIENTS, &bytes[1]));
  *tangent = bytes[0];
  *backward = bytes[1];
  return BPPSA_OK;
}

bppsa_status bppsa_layer_second_tangent_bytes(const bppsa_layer *layer, int64_t *bytes) {
  BPPSA_REQUIRE(layer != NULL && bytes != NULL);
  int64_t measured;
  BPPSA_TRY(measure(layer, TANGENT_TWICE, &measured));
  *bytes = measured;
  return BPPSA_OK;
}

/* Makes the pass's network and arrays in scratch; the tape, and the directions where they are packed, are in their places. */
static bppsa_status begin(const bppsa_layer *layer, const bppsa_device *device, tangent_kind kind, const bppsa_layer_inputs *in,
                          const bppsa_layer_tape *tape, const bppsa_layer_gradients *to, void *scratch, layer_pass *pass,
                          tangent_arrays *a) {
  recurrent_network *n = &pass->n;
  int64_t end;
  BPPSA_TRY(bppsa_layer_begin(layer, device, serves_of(layer, kind), in, tape, to, scratch, pass, &end));
  BPPSA_TRY(n->backend->tangents->visit(n, kind, layer->tangent_plan != NULL, a, bppsa_recurrent_place_array, &end));
  bppsa_layer_move_tape(pass, tape, false);
  return n->backend->tangents->begin(n, a);
}

/* Makes the executor of walks in chunks of time at once, if the layer is speculative. forward: they go with time. */
static bppsa_status make_speculative(const bppsa_layer *layer, const bppsa_device *device, bool forward,
                                     bppsa_scan_executor **executor) {
  return layer->tangent_plan != NULL
             ? bppsa_speculative_scan_create(layer->tangent_plan, &layer->network->back.plan, forward, device, executor)
             : BPPSA_OK;
}

/* Makes the executor of a walk with time, if the layer's is a scan. */
static bppsa_status make_scan(const bppsa_layer *layer, const bppsa_device *device, tangent_arrays *a) {
  if (!layer->scans) {
    return make_speculative(layer, device, true, &a->scan);
  }
  return layer->tangent_plan != NULL ? bppsa_scan_executor_create(layer->tangent_plan, device, &a->scan) : BPPSA_OK;
}

/* That of the two walks of the backward pass. */
static bppsa_status make_back_scan(const bppsa_layer *layer, const bppsa_device *device, layer_pass *pass) {
  return layer->scans ? bppsa_layer_make_scan(layer, device, pass) : make_speculative(layer, device, false, &pass->layer.scan);
}

static void move_states(const recurrent_network *n, const void *h, const void *c, const void *packed_h, const void *packed_c,
                        bool back) {
  const int64_t hidden = n->config.hidden;
  if (bppsa_ragged_packed(n)) {
    bppsa_ragged_move_states(n, h, hidden, packed_h, back);
  }
  if (bppsa_ragged_packed(n) && n->cell->pair) {
    bppsa_ragged_move_states(n, c, hidden, packed_c, back);
  }
}

/* Where the tangents of the states are computed: the caller's arrays, or packed ones. */
static void use_states(const recurrent_network *n, tangent_direction *d, void *h, void *c) {
  d->h = bppsa_ragged_packed(n) ? d->packed_h : h;
  d->c = bppsa_ragged_packed(n) ? d->packed_c : c;
}

/* Where they are read. */
static void take_states(const recurrent_network *n, tangent_direction *d, const void *h, const void *c) {
  use_states(n, d, (void *)(uintptr_t)h, (void *)(uintptr_t)c);
  move_states(n, h, c, d->h, d->c, false);
}

bppsa_status bppsa_layer_tangent(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *inputs,
                                 const bppsa_layer_tape *tape, const bppsa_layer_tangents *tangents, void *h, void *c,
                                 void *scratch) {
  BPPSA_REQUIRE(layer != NULL && device != NULL && inputs != NULL && tape != NULL && tangents != NULL);
  layer_pass pass;
  tangent_arrays arrays = {.d = {.along = *tangents}};
  BPPSA_TRY(check_support(layer, TANGENT_STATES));
  BPPSA_TRY(bppsa_layer_check_pass(layer, device, inputs, tape, scratch));
  BPPSA_TRY(check_tangents(layer, tangents, h, c));
  BPPSA_TRY(begin(layer, device, TANGENT_STATES, inputs, tape, NULL, scratch, &pass, &arrays));
  use_states(&pass.n, &arrays.d, h, c);
  bppsa_status status = make_scan(layer, device, &arrays);
  status = status == BPPSA_OK ? pass.n.backend->tangents->forward(&pass.n, &arrays) : status;
  bppsa_scan_executor_destroy(arrays.scan);
  if (status == BPPSA_OK) {
    move_states(&pass.n, h, c, arrays.d.h, arrays.d.c, true);
  }
  return status;
}

bppsa_status bppsa_layer_second_tangent(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *inputs,
                                        const bppsa_layer_tape *tape, const bppsa_layer_direction *one,
                                        const bppsa_layer_direction *other, void *h, void *c, void *scratch) {
  BPPSA_REQUIRE(layer != NULL && device != NULL && inputs != NULL && tape != NULL && one != NULL && other != NULL);
  layer_pass pass;
  tangent_arrays a = {.d = {.along = one->tangents}, .e = {.along = other->tangents}};
  BPPSA_TRY(check_support(layer, TANGENT_TWICE));
  BPPSA_TRY(bppsa_layer_check_pass(layer, device, inputs, tape, scratch));
  BPPSA_TRY(check_tangents(layer, &one->tangents, one->h, one->c));
  BPPSA_TRY(check_tangents(layer, &other->tangents, other->h, other->c));
  BPPSA_TRY(check_tangents(layer, &other->tangents, h, c));
  BPPSA_TRY(begin(layer, device, TANGENT_TWICE, inputs, tape, NULL, scratch, &pass, &a));
  take_states(&pass.n, &a.d, one->h, one->c);
  take_states(&pass.n, &a.e, other->h, other->c);
  a.h = bppsa_ragged_packed(&pass.n) ? a.packed_h : h;
  a.c = bppsa_ragged_packed(&pass.n) ? a.packed_c : c;
  bppsa_status status = make_scan(layer, device, &a);
  status = status == BPPSA_OK ? pass.n.backend->tangents->twice(&pass.n, &a) : status;
  bppsa_scan_executor_destroy(a.scan);
  if (status == BPPSA_OK) {
    move_states(&pass.n, h, c, a.h, a.c, true);
  }
  return status;
}

static bppsa_status compute_derivatives(layer_pass *pass, tangent_arrays *a, const bppsa_layer_seed *seed,
                                        const bppsa_layer_seed *seed_tangents, const bppsa_layer_gradients *to) {
  recurrent_network *n = &pass->n;
  BPPSA_TRY(bppsa_layer_seed_pass(pass, seed));
  BPPSA_TRY(n->backend->tangents->first_walk(n, a, to));
  BPPSA_TRY(bppsa_layer_seed_pass(pass, seed_tangents));
  return n->backend->tangents->second_walk(n, a, to);
}

bppsa_status bppsa_layer_tangent_backward(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *inputs,
                                          const bppsa_layer_tape *tape, const bppsa_layer_tangents *tangents, const void *h,
                                          const void *c, const bppsa_layer_seed *seed, const bppsa_layer_seed *seed_tangents,
                                          const bppsa_layer_gradients *derivatives, void *scratch) {
  BPPSA_REQUIRE(layer != NULL && device != NULL && inputs != NULL && tape != NULL && tangents != NULL && seed != NULL &&
                seed_tangents != NULL && derivatives != NULL);
  layer_pass pass;
  tangent_arrays arrays = {.d = {.along = *tangents}};
  BPPSA_TRY(check_support(layer, TANGENT_GRADIENTS));
  BPPSA_TRY(bppsa_layer_check_pass(layer, device, inputs, tape, scratch));
  BPPSA_TRY(check_tangents(layer, tangents, h, c));
  BPPSA_TRY(bppsa_layer_check_gradients(layer, seed, derivatives));
  BPPSA_TRY(bppsa_layer_check_gradients(layer, seed_tangents, derivatives));
  BPPSA_TRY(begin(layer, device, TANGENT_GRADIENTS, inputs, tape, derivatives, scratch, &pass, &arrays));
  take_states(&pass.n, &arrays.d, h, c);
  bppsa_status status = make_back_scan(layer, device, &pass);
  status = status == BPPSA_OK ? compute_derivatives(&pass, &arrays, seed, seed_tangents, derivatives) : status;
  bppsa_scan_executor_destroy(pass.layer.scan);
  return status;
}

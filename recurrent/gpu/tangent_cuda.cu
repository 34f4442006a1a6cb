/* Derivatives of a layer's passes along a direction on a GPU (recurrent/tangent_internal.h): the tangents of the states, and the
 * derivative of the backward pass. recurrent/tangent_cpu.c says what is computed; its names are used here.
 *
 * The states' tangents go step by step, a block of threads for each sample. Both walks of the backward pass are the layer's own,
 * by BP or by its scan. All steps of all samples are computed; behind a sample's end inputs and gradients are 0, and so are the
 * tangents of the states at last. Nothing is allocated, and nothing is waited for. */
#include "core/compute/memory.h"
#include "recurrent/gpu/layers.cuh"
#include "recurrent/tangent_internal.h"

enum { TRANSPOSE_THREADS = 256 };

namespace {

int64_t gates_of(const recurrent_network *n) {
  return n->cell->gates * n->config.hidden;
}

int64_t rows_of(const recurrent_network *n) {
  return n->config.seq_len * n->batch;
}

/* Where the tangents of h_{t-1} W_hhᵀ are. */
void *product_h_of(const recurrent_network *n, const tangent_arrays *a) {
  return n->cell->split ? a->d.product_h : a->d.product_x;
}

/* to += from, so many reals */
bppsa_status add(const recurrent_network *n, int64_t count, const void *from, void *to) {
  recurrent_rows all = {};
  all.from = from;
  all.to = to;
  all.rows = 1;
  all.width = count;
  all.added = true;
  return bppsa_sides_move_cuda(n, &all);
}

/* ---- memory ---- */

bppsa_status visit_pass(const recurrent_network *n, tangent_kind kind, bool, tangent_arrays *a, bppsa_recurrent_visit visit,
                        int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t steps = c->seq_len, batch = c->batch, hidden = c->hidden, gates = gates_of(n);
  const bool gradients = kind == TANGENT_GRADIENTS, split = n->cell->split;
  const struct {
    bool wanted;
    int64_t steps, rows, width;
    void **array;
  } arrays[] = {{true, steps, batch, gates, &a->d.product_x},
                {split, steps, batch, gates, &a->d.product_h},
                {c->lengths, steps, batch, c->input, &a->d.packed_x},
                {c->resets, steps, batch, hidden, &a->before},
                {!gradients, 1, hidden, gates, &a->own_hh},
                {gradients && c->resets, steps, batch, hidden, &a->d.before},
                {gradients, steps, batch, gates, &a->delta_x},
                {gradients && split, steps, batch, gates, &a->delta_h},
                {gradients, steps, batch, bppsa_recurrent_state_size(n), &a->g},
                {gradients, 1, gates, c->input, &a->of_w_ih},
                {gradients, 1, gates, hidden, &a->of_w_hh},
                {gradients, 1, gates, 1, &a->of_bias},
                {gradients && c->reset_state, 1, 1, bppsa_recurrent_state_size(n), &a->of_begin}};
  for (size_t i = 0; kind != TANGENT_TWICE && i < sizeof arrays / sizeof *arrays; ++i) {
    if (arrays[i].wanted) {
      BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, arrays[i].steps, arrays[i].rows, arrays[i].width, arrays[i].array, bytes));
    }
  }
  return BPPSA_OK;
}

/* Lengths and resets are in the GPU's memory by now. */
bppsa_status begin_pass(recurrent_network *n, tangent_arrays *a) {
  const int64_t input = n->config.input;
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(n->gpu->index), "tangents"));
  if (n->ragged.active && a->d.along.x != NULL) {
    BPPSA_TRY(bppsa_gpu_cut(n, a->d.along.x, input, input, a->d.packed_x, input));
    a->d.along.x = a->d.packed_x;
  }
  return BPPSA_OK;
}

/* ---- the tangents of the products ---- */

/* The states h in front of all steps, or their tangents; begin: what takes their place where samples begin anew. */
bppsa_status states_before(const recurrent_network *n, const void *states, const void *begin, void *room, const void **before) {
  *before = n->resets.active ? room : states;
  return n->resets.active ? bppsa_gpu_hide(n, 0, n->config.seq_len, n->config.hidden, begin, states, room) : BPPSA_OK;
}

/* The products of all steps, without what comes from the tangents of the states in front of them. */
bppsa_status make_products(const recurrent_network *n, tangent_arrays *a) {
  const bppsa_layer_tangents &along = a->d.along;
  const int64_t rows = rows_of(n), gates = gates_of(n), input = n->config.input, hidden = n->config.hidden;
  BPPSA_TRY(states_before(n, n->layers[0].h, begin_place(n, 0, false), a->before, &a->fronts));
  BPPSA_TRY(bppsa_gpu_add_linear(n, rows, input, gates, along.x, place_of(n, 0, W_IH, false), along.b_ih, false, a->d.product_x));
  BPPSA_TRY(bppsa_gpu_add_linear(n, rows, input, gates, input_of(n, 0), along.w_ih, NULL, true, a->d.product_x));
  return bppsa_gpu_add_linear(n, rows, hidden, gates, a->fronts, along.w_hh, along.b_hh, !n->cell->split, product_h_of(n, a));
}

template <typename real> tangent_steps<real> steps_of(const recurrent_network *n, const tangent_arrays *a, const void *before) {
  tangent_steps<real> s = {};
  s.product_x = (real *)a->d.product_x;
  s.product_h = (real *)product_h_of(n, a);
  s.h = (real *)a->d.h;
  s.c = (real *)a->d.c;
  s.before = (const real *)before;
  s.begin = (const real *)a->d.along.reset_state;
  s.own = (real *)a->g;
  return s;
}

/* ---- the states' tangents ---- */

/* The tangents of the states in front of the first step. */
bppsa_status begin_states(const recurrent_network *n, const tangent_direction *d) {
  const void *const given[] = {d->along.h0, d->along.c0};
  void *const to[] = {d->h, d->c};
  const int64_t hidden = n->config.hidden, bytes = n->batch * hidden * size_of(n);
  for (int half = 0; half < (n->cell->pair ? 2 : 1); ++half) {
    BPPSA_TRY(given[half] != NULL ? bppsa_memory_queue_copy(n->gpu->device, to[half], bytes, given[half], bytes, bytes, 1)
                                  : bppsa_memory_queue_clear(n->gpu->device, to[half], bytes));
    BPPSA_TRY(n->resets.active ? bppsa_gpu_hide(n, 0, 1, hidden, offset(n, d->along.reset_state, half * hidden), NULL, to[half])
                               : BPPSA_OK);
  }
  return BPPSA_OK;
}

template <typename real> bppsa_status walk_steps(const recurrent_network *n, const tangent_arrays *a) {
  const layer_arrays<real> c = arrays_of<real>(n, 0);
  const int64_t gates = gates_of(n);
  BPPSA_LAUNCH(bppsa_linear_transposed<real>, (unsigned)divide_up(gates * c.hidden, TRANSPOSE_THREADS), TRANSPOSE_THREADS, 0,
               n->gpu->stream, c.w_hh, gates, c.hidden, (real *)a->own_hh);
  BPPSA_TRY(bppsa_cuda_check(cudaGetLastError(), "transpose: launch"));
  return launchers<real>(n).tangent(n->gpu->stream, c, steps_of<real>(n, a, NULL), (const real *)a->own_hh, n->gpu->shared_most);
}

bppsa_status walk_forward(recurrent_network *n, tangent_arrays *a) {
  const int64_t hidden = n->config.hidden, first = n->batch * hidden;
  BPPSA_TRY(begin_states(n, &a->d));
  BPPSA_TRY(make_products(n, a));
  BPPSA_TRY(OF_TYPE(n, walk_steps, n, a));
  if (!n->ragged.active) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_gpu_cut(n, NULL, hidden, 0, offset(n, a->d.h, first), hidden));
  return n->cell->pair ? bppsa_gpu_cut(n, NULL, hidden, 0, offset(n, a->d.c, first), hidden) : BPPSA_OK;
}

/* ---- the derivative of the backward pass ---- */

/* One walk of BP or of the layer's scan: the gradients of all states in n->g, the deltas in a->delta_x and delta_h, and in
 * n->gpu->begun, where a reset state is learned, the gradients of the states from which samples begin anew. */
template <typename real> bppsa_status walk_back(recurrent_network *n, const tangent_arrays *a) {
  BPPSA_TRY(bppsa_gpu_layer_backward(n, 0));
  layer_arrays<real> c = arrays_of<real>(n, 0);
  c.begun = n->resets.active ? (real *)n->gpu->begun : NULL;
  c.delta_x = (real *)a->delta_x;
  c.delta_h = (real *)a->delta_h;
  return launchers<real>(n).deltas(n->gpu->stream, c);
}

template <typename real> bppsa_status find_curves(const recurrent_network *n, const tangent_arrays *a, const void *before) {
  return launchers<real>(n).curve(n->gpu->stream, arrays_of<real>(n, 0), steps_of<real>(n, a, before));
}

const void *delta_h_of(const recurrent_network *n, const tangent_arrays *a) {
  return n->cell->split ? a->delta_h : a->delta_x;
}

/* Completes q of all steps, in a->g: what goes through W_hh, and what goes nowhere. */
bppsa_status complete_carried(const recurrent_network *n, const tangent_arrays *a) {
  const int64_t rows = rows_of(n), gates = gates_of(n), hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  BPPSA_TRY(bppsa_gpu_add_input_gradient(n, rows, hidden, gates, product_h_of(n, a), place_of(n, 0, W_HH, false), a->g, size));
  if (a->d.along.w_hh != NULL) {
    BPPSA_TRY(bppsa_gpu_add_input_gradient(n, rows, hidden, gates, delta_h_of(n, a), a->d.along.w_hh, a->g, size));
  }
  BPPSA_TRY(n->config.reset_state ? bppsa_gpu_sum_begun_rows(n, 0, a->g, a->of_begin) : BPPSA_OK);
  return n->resets.active ? bppsa_gpu_hide(n, 0, n->config.seq_len, size, NULL, NULL, a->g) : BPPSA_OK;
}

bppsa_status first_walk(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to) {
  const bppsa_layer_tangents &along = a->d.along;
  const int64_t rows = rows_of(n), gates = gates_of(n), input = n->config.input, hidden = n->config.hidden;
  const void *before_tangent;
  BPPSA_TRY(OF_TYPE(n, walk_back, n, a));
  BPPSA_TRY(make_products(n, a));
  BPPSA_TRY(states_before(n, a->d.h, along.reset_state, a->d.before, &before_tangent));
  BPPSA_TRY(
      bppsa_gpu_add_linear(n, rows, hidden, gates, before_tangent, place_of(n, 0, W_HH, false), NULL, true, product_h_of(n, a)));
  BPPSA_TRY(OF_TYPE(n, find_curves, n, a, before_tangent));
  BPPSA_TRY(complete_carried(n, a));
  if (to->w_ih != NULL && along.x != NULL) {
    BPPSA_TRY(bppsa_gpu_weight_gradient(n, rows, input, gates, a->delta_x, along.x, a->of_w_ih, a->of_bias));
  }
  if (to->w_hh != NULL) {
    BPPSA_TRY(bppsa_gpu_weight_gradient(n, rows, hidden, gates, delta_h_of(n, a), before_tangent, a->of_w_hh, a->of_bias));
  }
  return to->x != NULL && along.w_ih != NULL
             ? bppsa_gpu_input_gradient(n, rows, input, gates, a->delta_x, along.w_ih, to->x, input)
             : BPPSA_OK;
}

/* The derivatives of the weight gradients from the complete δ̇, in the place of the products. */
bppsa_status finish_weights(const recurrent_network *n, const tangent_arrays *a, const bppsa_layer_gradients *to) {
  const int64_t rows = rows_of(n), gates = gates_of(n), input = n->config.input, hidden = n->config.hidden;
  if (to->w_ih != NULL || to->b_ih != NULL) {
    BPPSA_TRY(bppsa_gpu_weight_gradient(n, rows, input, gates, a->d.product_x, input_of(n, 0), place_of(n, 0, W_IH, true),
                                        place_of(n, 0, B_IH, true)));
    BPPSA_TRY(to->w_ih != NULL && a->d.along.x != NULL ? add(n, gates * input, a->of_w_ih, to->w_ih) : BPPSA_OK);
  }
  if (to->w_hh != NULL || to->b_hh != NULL) {
    BPPSA_TRY(bppsa_gpu_weight_gradient(n, rows, hidden, gates, product_h_of(n, a), a->fronts, place_of(n, 0, W_HH, true),
                                        place_of(n, 0, B_HH, true)));
    BPPSA_TRY(to->w_hh != NULL ? add(n, gates * hidden, a->of_w_hh, to->w_hh) : BPPSA_OK);
  }
  if (to->reset_state != NULL) {
    BPPSA_TRY(bppsa_gpu_sum_begun(n, 0));
    BPPSA_TRY(add(n, bppsa_recurrent_state_size(n), a->of_begin, to->reset_state));
  }
  return BPPSA_OK;
}

/* The derivatives of the gradients of h0 and c0: the first rows of n->g. */
bppsa_status copy_first(const recurrent_network *n, const bppsa_layer_gradients *to) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  void *const halves[] = {to->h0, to->c0};
  for (int half = 0; half < 2; ++half) {
    BPPSA_TRY(halves[half] != NULL
                  ? copy_part(n, n->batch, offset(n, n->g, half * hidden), size, halves[half], hidden, "derivatives of h0 and c0")
                  : BPPSA_OK);
  }
  return BPPSA_OK;
}

bppsa_status second_walk(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to) {
  const int64_t rows = rows_of(n), gates = gates_of(n), input = n->config.input;
  const void *w_ih = place_of(n, 0, W_IH, false);
  BPPSA_TRY(add(n, rows * bppsa_recurrent_state_size(n), a->g, n->g));
  BPPSA_TRY(OF_TYPE(n, walk_back, n, a));
  BPPSA_TRY(add(n, rows * gates, a->delta_x, a->d.product_x));
  BPPSA_TRY(n->cell->split ? add(n, rows * gates, a->delta_h, a->d.product_h) : BPPSA_OK);
  BPPSA_TRY(finish_weights(n, a, to));
  if (to->x != NULL) {
    BPPSA_TRY(a->d.along.w_ih != NULL ? bppsa_gpu_add_input_gradient(n, rows, input, gates, a->d.product_x, w_ih, to->x, input)
                                      : bppsa_gpu_input_gradient(n, rows, input, gates, a->d.product_x, w_ih, to->x, input));
  }
  return copy_first(n, to);
}

} // namespace

extern "C" const recurrent_tangents bppsa_tangents_cuda = {visit_pass, begin_pass, walk_forward, first_walk, second_walk, NULL};

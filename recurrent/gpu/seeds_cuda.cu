/* The head of a recurrent network on a GPU, and the gradients of a layer's outputs, with which its backward pass begins: they come
 * from the head, the caller or the layer above. */
#include "recurrent/gpu/layers.cuh"

namespace {

/* The states that the head reads. */
const void *head_input(const recurrent_network *n, int64_t *rows) {
  int64_t first;
  *rows = bppsa_recurrent_head_rows(n, &first);
  if (!n->config.bidirectional && n->ragged.active && !n->config.loss_all) {
    return n->ragged.ends;
  }
  return n->config.bidirectional ? n->sides.top : offset(n, n->layers[n->config.layers - 1].h, first);
}

/* Returns the gradient of the logits; for samples that have lengths with 0 behind their ends (see bppsa_gpu_seed). */
const void *head_seed(const recurrent_network *n) {
  return n->ragged.active && n->config.loss_all ? n->ragged.packed : n->seed;
}

/* Sets to 0 what layer l reads of u and nothing else writes: u_0; all gradients of a pair, because later only h's numbers are
 * written, between c's; and all gradients where later only last states are written. The layer's own kernels read u_0 only where
 * gradients are injected. */
bppsa_status clear_gradients(recurrent_network *n, int64_t l) {
  const bool injected = bppsa_recurrent_injected(n, l), pair = n->cell->pair;
  const int64_t rows = injected && (pair || bppsa_sides_ends(n, l)) ? n->config.seq_len + 1 : 1;
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(n->gpu->index), "backward pass"));
  if (pair && !injected) {
    BPPSA_TRY(bppsa_cuda_check(
        cudaMemsetAsync((char *)n->g + n->config.seq_len * state_bytes(n), 0, (size_t)state_bytes(n), n->gpu->stream),
        "gradients"));
  }
  if (n->layers[l].scan == NULL && !injected) {
    return BPPSA_OK;
  }
  return bppsa_cuda_check(cudaMemsetAsync(n->g, 0, (size_t)(rows * state_bytes(n)), n->gpu->stream), "gradients");
}

/* The gradients of h in the last `rows` rows of g. */
void *end_of_g(const recurrent_network *n, int64_t rows) {
  return offset(n, n->g, ((n->config.seq_len + 1) * n->batch - rows) * bppsa_recurrent_state_size(n));
}

/* Writes the gradient of the last states of samples that have lengths, [b][H], to g. */
bppsa_status scatter_seed(recurrent_network *n, const void *ends) {
  const int64_t hidden = n->config.hidden, state = bppsa_recurrent_state_size(n);
  return bppsa_gpu_scatter_ends(n, ends, hidden, state, hidden, end_of_g(n, n->config.seq_len * n->batch));
}

/* Copies gradients of states [T][b][D·H] of samples that have lengths, with 0 behind their ends. */
bppsa_status cut_seed(const recurrent_network *n, const void *seed, void *to, int64_t to_row) {
  const int64_t outputs = bppsa_recurrent_outputs(&n->config);
  return bppsa_gpu_cut(n, seed, outputs, outputs, to, to_row);
}

} // namespace

bppsa_status bppsa_gpu_logits(recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  int64_t rows;
  const void *h = head_input(n, &rows);
  BPPSA_TRY(bppsa_gpu_apply_linear(n, rows, bppsa_recurrent_outputs(c), c->classes, h, head_place(n, 0, false),
                                   head_place(n, 1, false), false, n->logits));
  return n->ragged.active && c->loss_all ? bppsa_gpu_cut(n, NULL, c->classes, 0, n->logits, c->classes) : BPPSA_OK;
}

bppsa_status bppsa_gpu_head_gradients(recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  int64_t rows;
  const void *h = head_input(n, &rows);
  return bppsa_gpu_weight_gradient(n, rows, bppsa_recurrent_outputs(c), c->classes, head_seed(n), h, head_place(n, 0, true),
                                   head_place(n, 1, true));
}

/* With two directions: copies n->sides.above to the ends of g, or to all of it. */
bppsa_status bppsa_gpu_enter_side(recurrent_network *n, int64_t l) {
  const int64_t rows = bppsa_sides_ends(n, l) ? n->batch : n->config.seq_len * n->batch;
  BPPSA_TRY(clear_gradients(n, l));
  if (n->ragged.active && bppsa_sides_ends(n, l)) {
    BPPSA_TRY(bppsa_sides_split(n, l, n->sides.part, n->config.hidden));
    return scatter_seed(n, n->sides.part);
  }
  return bppsa_sides_split(n, l, end_of_g(n, rows), bppsa_recurrent_state_size(n));
}

bppsa_status bppsa_gpu_seed(recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  int64_t first;
  const int64_t rows = bppsa_recurrent_head_rows(n, &first);
  n->gpu->last = NULL;
  if (n->ragged.active && c->loss_all) {
    BPPSA_TRY(bppsa_gpu_cut(n, n->seed, c->classes, c->classes, n->ragged.packed, c->classes));
  }
  if (c->bidirectional) {
    const int64_t outputs = bppsa_recurrent_outputs(c);
    BPPSA_TRY(
        bppsa_gpu_input_gradient(n, rows, outputs, c->classes, head_seed(n), head_place(n, 0, false), n->sides.above, outputs));
    return bppsa_gpu_enter_side(n, top_of(n));
  }
  BPPSA_TRY(clear_gradients(n, top_of(n)));
  if (n->ragged.active && !c->loss_all) {
    BPPSA_TRY(
        bppsa_gpu_input_gradient(n, rows, c->hidden, c->classes, n->seed, head_place(n, 0, false), n->ragged.packed, c->hidden));
    return scatter_seed(n, n->ragged.packed);
  }
  return bppsa_gpu_input_gradient(n, rows, c->hidden, c->classes, head_seed(n), head_place(n, 0, false), end_of_g(n, rows),
                                  bppsa_recurrent_state_size(n));
}

bppsa_status bppsa_gpu_put_seed(recurrent_network *n, const void *from) {
  int64_t first;
  const int64_t rows = bppsa_recurrent_head_rows(n, &first);
  n->gpu->last = NULL;
  return copy_part(n, rows, from, n->config.hidden, end_of_g(n, rows), bppsa_recurrent_state_size(n), "seed");
}

/* Sets the gradients of the top layer's states. g_T alone is read where it stands, unless something is added to it, or it is half
 * of a pair. */
bppsa_status bppsa_gpu_seed_layers(recurrent_network *n, const void *seed) {
  BPPSA_TRY(n->config.tape && n->resets.active ? bppsa_gpu_put_resets(n) : BPPSA_OK);
  if (n->config.bidirectional) {
    int64_t first;
    const int64_t bytes = bppsa_recurrent_head_rows(n, &first) * bppsa_recurrent_outputs(&n->config) * size_of(n);
    n->gpu->last = NULL;
    BPPSA_TRY(n->ragged.active && n->config.loss_all
                  ? cut_seed(n, seed, n->sides.above, bppsa_recurrent_outputs(&n->config))
                  : bppsa_cuda_check(
                        cudaMemcpyAsync(n->sides.above, seed, (size_t)bytes, cudaMemcpyDeviceToDevice, n->gpu->stream), "seed"));
    return bppsa_gpu_enter_side(n, top_of(n));
  }
  BPPSA_TRY(clear_gradients(n, top_of(n)));
  if (n->ragged.active) {
    n->gpu->last = NULL;
    return n->config.loss_all ? cut_seed(n, seed, end_of_g(n, n->config.seq_len * n->batch), bppsa_recurrent_state_size(n))
                              : scatter_seed(n, seed);
  }
  if (n->cell->pair || n->layers[top_of(n)].scan != NULL || n->config.loss_all || n->config.ends.before != NULL) {
    return bppsa_gpu_put_seed(n, seed);
  }
  n->gpu->last = seed;
  return BPPSA_OK;
}

/* With two directions: writes the gradient of the layer's input to rows without gaps. */
bppsa_status bppsa_gpu_layer_input_gradient(recurrent_network *n, int64_t l, void *rows) {
  const int64_t input = n->layers[l].input, out = n->cell->gates * n->config.hidden;
  return bppsa_gpu_input_gradient(n, n->config.seq_len * n->batch, input, out, n->pre, place_of(n, l, W_IH, false), rows, input);
}

bppsa_status bppsa_gpu_pass_down(recurrent_network *n, int64_t l) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t rows = c->seq_len * n->batch;
  if (c->bidirectional) {
    return bppsa_sides_pass_down(n, l);
  }
  const int64_t state = bppsa_recurrent_state_size(n);
  void *gradients = end_of_g(n, rows);
  BPPSA_TRY(clear_gradients(n, l - 1));
  BPPSA_TRY(bppsa_gpu_input_gradient(n, rows, n->layers[l].input, n->cell->gates * c->hidden, n->pre, place_of(n, l, W_IH, false),
                                     gradients, state));
  return bppsa_recurrent_drops(n, l) ? bppsa_gpu_drop_rows(n, l, gradients, state, gradients, state) : BPPSA_OK;
}

/* Backward passes of a layer on a GPU: BP, scans, and what follows a parallel pass.
 *
 * Up to H = 32 (CHUNK_HIDDEN) the kernels of chunk_kernels.cuh run them: sequential BP is one chunk, the chunked scan many, and
 * weight gradients are summed within them if they fit into registers. Larger layers run through BP in the kernels of
 * wide_kernels.cuh, where the GPU has room for them. Otherwise, and for other scans, kernels write the factors of the Jacobians, a
 * scan executor computes the gradients, and products of matrices compute the rest. */
#include "recurrent/gpu/layers.cuh"
#include "recurrent/gpu/misses_kernels.cuh"

namespace {

template <typename real> chunk_arrays<real> chunks_of(const recurrent_network *n) {
  const recurrent_gpu *gpu = n->gpu;
  chunk_arrays<real> s = {};
  s.chunks = gpu->chunks;
  s.links = gpu->links;
  s.multiprocessors = gpu->multiprocessors;
  s.shared_most = gpu->shared_most;
  s.products = (real *)gpu->products;
  s.exponents = (int32_t *)gpu->exponents;
  s.norms = (real *)gpu->norms;
  s.offsets = (real *)gpu->offsets;
  s.carried = (real *)gpu->between;
  s.redone = (unsigned long long *)gpu->redone;
  return s;
}

/* Numbers of a part of a layer's weight gradients. */
template <typename real> int64_t part_reals(const recurrent_network *n, const layer_arrays<real> &c) {
  const int64_t all = n->cell->gates * c.hidden;
  return all * c.hidden + (c.input == 1 ? 3 : 2) * all;
}

/* The gradients to which the block of a walk that ends last writes the sums of `parts` parts; none where that does not pay. */
template <typename real>
walk_targets<real> targets_of(const recurrent_network *n, int64_t l, const layer_arrays<real> &c, int64_t parts,
                              int64_t threads) {
  const int64_t all = n->cell->gates * c.hidden;
  walk_targets<real> t = {};
  if (walk_sums_pay(parts, part_reals(n, c), threads)) {
    t.counted = (unsigned long long *)n->gpu->counted;
  }
  t.w_hh = all * c.hidden;
  t.all = all;
  t.to[0] = (real *)place_of(n, l, W_HH, true);
  t.to[1] = (real *)place_of(n, l, B_HH, true);
  t.to[2] = (real *)place_of(n, l, B_IH, true);
  t.to[3] = (real *)place_of(n, l, W_IH, true);
  return t;
}

/* Writes the sums of a walk to the gradients; or the sums of the samples that have fallen back, which are added to the others' sums
 * unless all samples have fallen back. */
template <typename real>
bppsa_status finish_walk(const recurrent_network *n, int64_t l, const layer_arrays<real> &c, int64_t parts, const real *partials,
                         const int *fallen) {
  const int64_t all = n->cell->gates * c.hidden, w_hh = all * c.hidden, count = part_reals(n, c);
  sum_targets<real> to = {};
  to.targets = c.input == 1 ? 4 : 3;
  to.target[0] = {0, w_hh, w_hh, 0, w_hh, (real *)place_of(n, l, W_HH, true)};
  to.target[1] = {w_hh, all, all, 0, all, (real *)place_of(n, l, B_HH, true)};
  to.target[2] = {w_hh + all, all, all, 0, all, (real *)place_of(n, l, B_IH, true)};
  to.target[3] = {w_hh + 2 * all, all, all, 0, all, (real *)place_of(n, l, W_IH, true)};
  to.fallen = fallen;
  to.all = (int)c.batch;
  return bppsa_gpu_sum_up(n, parts, count, to, partials, fallen != NULL && n->gpu->most_back > 1);
}

/* ---- the parallel backward pass ---- */

template <typename real> back_arrays<real> back_of(const recurrent_network *n, int64_t l, real *partials) {
  const back_memory &m = n->gpu->back;
  const bppsa_backward_plan &plan = n->back.plan;
  back_arrays<real> s = {};
  s.chunks = plan.chunks;
  s.usual = n->config.seq_len / plan.chunks;
  s.warm_up = plan.warm_up;
  s.rounds = plan.rounds;
  s.possible = n->config.seq_len * bppsa_recurrent_layers(&n->config);
  s.accept = plan.accept;
  s.stop = plan.stop;
  s.cost = plan.cost;
  s.most_warm_up = plan.adapts ? n->config.seq_len / plan.chunks : 0;
  s.passes_on = bppsa_recurrent_level(n, l) > 0;
  s.lengths = n->ragged.active ? n->gpu->lengths : NULL;
  s.probes = (const real *)m.probes;
  s.zeros = s.probes + plan.chunks * bppsa_recurrent_state_size(n);
  s.starts = (real *)m.starts;
  s.ends[0] = (real *)m.ends[0];
  s.ends[1] = (real *)m.ends[1];
  s.found = (back_chunk *)m.found;
  s.paths = (int64_t *)m.paths;
  s.kept = (back_kept *)m.kept;
  s.report = (back_report *)m.report;
  s.fallen = (int *)m.fallen;
  s.scan = bppsa_gpu_back_scan(n);
  s.partials = partials;
  return s;
}

/* Where gradients of inputs must be exact: does the loss reach every step? The pass's first launch decides. */
template <typename real> bppsa_status look_at_loss(const recurrent_network *n, int64_t l) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t rows = c->seq_len * n->batch, width = n->seeds_states || c->no_head ? bppsa_recurrent_outputs(c) : c->classes;
  back_report *report = (back_report *)n->gpu->back.report;
  if (l != top_of(n) || !c->speculation.exact_inputs || !c->input_gradients) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_cuda_check(cudaMemsetAsync(&report->misses, 0, sizeof report->misses, n->gpu->stream), "backward pass"));
  BPPSA_LAUNCH(bppsa_recurrent_back_misses<real>, (unsigned)divide_up(rows, CHUNK_THREADS), CHUNK_THREADS, 0, n->gpu->stream,
               (const real *)n->seed, rows, n->batch, width, (const int64_t *)(n->ragged.active ? n->gpu->lengths : NULL),
               report);
  return bppsa_cuda_check(cudaGetLastError(), "backward pass: launch");
}

/* ---- the fused passes ---- */

/* The products of chunks, which do not depend on g_T. */
template <typename real> bppsa_status make_products(recurrent_network *n, int64_t l) {
  const layer_arrays<real> c = arrays_of<real>(n, l);
  chunk_arrays<real> s = chunks_of<real>(n);
  s.offsets = c.injected ? s.offsets : NULL; /* otherwise they are another layer's */
  return launchers<real>(n).products(n->gpu->stream, c, s);
}

/* The gradients between chunks. */
template <typename real> bppsa_status carry_through(recurrent_network *n, int64_t l) {
  const layer_arrays<real> c = arrays_of<real>(n, l);
  chunk_arrays<real> s = chunks_of<real>(n);
  s.offsets = c.injected ? s.offsets : NULL;
  return launchers<real>(n).carry(n->gpu->stream, c, s);
}

/* The scan of the samples that the parallel pass in front has paused for or given up, behind its `parts` parts of weight gradients.
 * The launches end at once where there are none. */
template <typename real>
bppsa_status fall_back(const recurrent_network *n, int64_t l, const layer_arrays<real> &c, chunk_arrays<real> s, int64_t parts) {
  const cudaStream_t stream = n->gpu->stream;
  s.fallen = (const int *)n->gpu->back.fallen;
  s.early = n->gpu->most_back > 1; /* then the GPU and the code are of sm_90 or later */
  s.offsets = c.injected ? s.offsets : NULL;
  s.partials = s.partials != NULL ? s.partials + parts * part_reals(n, c) : NULL;
  BPPSA_TRY(launchers<real>(n).products(stream, c, s));
  BPPSA_TRY(launchers<real>(n).carry(stream, c, s));
  BPPSA_TRY(launchers<real>(n).walk(stream, c, s));
  return s.partials != NULL ? finish_walk(n, l, c, LAUNCH(n, blocks, s.chunks, c.batch), s.partials, s.fallen) : BPPSA_OK;
}

/* Computes the gradients of the states. With `deltas` it also writes delta_x and delta_h if they are read later, and sums those
 * weight gradients that the kernels sum; otherwise it writes g_1 .. g_T, and delta_x of all layers but the first. */
template <typename real> bppsa_status run_chunks(recurrent_network *n, int64_t l, bool deltas) {
  layer_arrays<real> c = arrays_of<real>(n, l);
  chunk_arrays<real> s = chunks_of<real>(n);
  const cudaStream_t stream = n->gpu->stream;
  const bool sums = deltas && n->gpu->sums, prepared = n->gpu->prepared, carried = n->gpu->carried;
  const bool speculates = bppsa_gpu_back_runs(n);
  n->gpu->prepared = n->gpu->carried = false;
  c.begun = deltas && n->resets.active ? (real *)n->gpu->begun : NULL;
  c.store_g = !deltas;
  c.delta_x = (deltas ? wants_delta_x(n, l) : !is_first(n, l)) ? c.delta_x : NULL;
  c.delta_h = deltas && !sums ? c.delta_h : NULL;
  if (speculates && !deltas) { /* BP */
    s.chunks = 1;
    s.links = 0;
  }
  if (s.chunks > 1 && !speculates) {
    BPPSA_TRY(prepared ? BPPSA_OK : make_products<real>(n, l));
    BPPSA_TRY(carried ? BPPSA_OK : carry_through<real>(n, l));
  }
  if (carried && c.injected) { /* g_0 has been read from row 0, which is u_0 again */
    BPPSA_TRY(bppsa_cuda_check(cudaMemsetAsync(n->g, 0, (size_t)state_bytes(n), stream), "gradients"));
  }
  s.partials = sums ? (real *)n->gpu->partials : NULL;
  int64_t parts = LAUNCH(n, blocks, s.chunks, c.batch);
  walk_targets<real> to = {};
  if (deltas && speculates) {
    const back_shape shape = bppsa_gpu_back_shape(n, c.batch);
    back_arrays<real> back = back_of<real>(n, l, s.partials);
    parts = back_parts(shape, c.batch);
    if (sums && shape.guess_blocks == 0) {
      to = targets_of(n, l, c, c.batch, shape.teams * BACK_TEAM);
    }
    back.to = to;
    BPPSA_TRY(c.begun != NULL ? bppsa_gpu_hide(n, l, c.steps, bppsa_recurrent_state_size(n), NULL, NULL, n->gpu->begun)
                              : BPPSA_OK);
    BPPSA_TRY(look_at_loss<real>(n, l));
    BPPSA_TRY(launchers<real>(n).back(stream, c, back, shape, l == top_of(n), l == 0));
  } else {
    if (sums) { /* items of a block are its warps */
      to = targets_of(n, l, c, parts, divide_up(s.chunks * c.batch, parts) * WARP_LANES);
    }
    s.to = to;
    BPPSA_TRY(launchers<real>(n).walk(stream, c, s));
  }
  BPPSA_TRY(sums && to.counted == NULL ? finish_walk(n, l, c, parts, (const real *)n->gpu->partials, (const int *)NULL)
                                       : BPPSA_OK);
  return deltas && speculates && s.chunks > 1 ? fall_back(n, l, c, s, parts) : BPPSA_OK;
}

/* Sets the Jacobians behind a sample's end to 0, so that no product grows there. */
bppsa_status cut_coefficients(const recurrent_network *n) {
  const int64_t hidden = n->config.hidden;
  for (int64_t k = 0; k < n->cell->matrices + n->cell->pair; ++k) {
    BPPSA_TRY(bppsa_gpu_cut(n, NULL, hidden, 0, n->columns[k], hidden));
  }
  return n->cell->diagonal ? bppsa_gpu_cut(n, NULL, hidden, 0, n->diagonal, hidden) : BPPSA_OK;
}

template <typename real> bppsa_status run_scan(recurrent_network *n, int64_t l) {
  const void *weights[BPPSA_CELL_MATRICES];
  layer_arrays<real> c = arrays_of<real>(n, l);
  c.begun = n->resets.active ? (real *)n->gpu->begun : NULL;
  for (int64_t k = 0; k < n->cell->matrices; ++k) {
    weights[k] = c.w_hh + k * c.hidden * c.hidden;
  }
  BPPSA_TRY(launchers<real>(n).coefficients(n->gpu->stream, c));
  BPPSA_TRY(n->ragged.active ? cut_coefficients(n) : BPPSA_OK);
  bppsa_scan_operands operands = {};
  operands.batch = n->batch;
  operands.weights = weights;
  operands.columns = (const void *const *)n->columns;
  operands.diagonal = n->diagonal;
  operands.cuts = c.resets.mask;
  operands.injected = c.injected ? n->g : NULL;
  operands.gradients = n->g;
  BPPSA_TRY(n->layers[l].scan->execute(n->layers[l].scan, &operands));
  return launchers<real>(n).deltas(n->gpu->stream, c);
}

template <typename real> bppsa_status backward_layer(recurrent_network *n, int64_t l) {
  const bool fused = n->layers[l].scan == NULL, sums = fused && n->gpu->sums;
  const layer_arrays<real> c = arrays_of<real>(n, l);
  const int64_t rows = c.steps * c.batch, out = n->cell->gates * c.hidden;
  BPPSA_TRY((fused ? run_chunks<real>(n, l, true) : run_scan<real>(n, l)));
  BPPSA_TRY(bppsa_gpu_sum_begun(n, l));
  if (!sums) {
    const void *delta_h = n->cell->split ? n->delta_h : n->pre, *before = n->resets.active ? n->before : c.h;
    BPPSA_TRY(n->resets.active ? bppsa_gpu_hide(n, l, c.steps, c.hidden, c.begin, c.h, n->before) : BPPSA_OK);
    BPPSA_TRY(bppsa_gpu_weight_gradient(n, rows, c.hidden, out, delta_h, before, place_of(n, l, W_HH, true),
                                        place_of(n, l, B_HH, true)));
  }
  if (!sums || c.input > 1) {
    BPPSA_TRY(
        bppsa_gpu_weight_gradient(n, rows, c.input, out, n->pre, c.x, place_of(n, l, W_IH, true), place_of(n, l, B_IH, true)));
  }
  if (n->config.input_gradients) {
    const int64_t bytes = state_bytes(n);
    BPPSA_TRY(bppsa_cuda_check(
        cudaMemcpyAsync((char *)n->dh0 + l * bytes, n->g, (size_t)bytes, cudaMemcpyDeviceToDevice, n->gpu->stream),
        "gradient of h0"));
  }
  if (n->dx == NULL || !is_first(n, l)) {
    return BPPSA_OK;
  }
  return n->config.bidirectional ? bppsa_sides_add(n, l, n->dx)
                                 : bppsa_gpu_input_gradient(n, rows, c.input, out, n->pre, c.w_ih, n->dx, c.input);
}

} // namespace

bppsa_status bppsa_gpu_layer_backward(recurrent_network *n, int64_t l) {
  if (n->gpu->last != NULL) {
    BPPSA_TRY(bppsa_gpu_put_seed(n, n->gpu->last));
  }
  return n->layers[l].scan != NULL ? OF_TYPE(n, run_scan, n, l) : OF_TYPE(n, run_chunks, n, l, false);
}

bppsa_status bppsa_gpu_prepare(recurrent_network *n, int64_t l) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(n->gpu->index), "backward pass"));
  n->gpu->prepared = n->layers[l].scan == NULL && n->gpu->chunks > 1 && !bppsa_gpu_back_runs(n);
  return n->gpu->prepared ? OF_TYPE(n, make_products, n, l) : BPPSA_OK;
}

bppsa_status bppsa_gpu_carry(recurrent_network *n, int64_t l, bool *done) {
  const int64_t bytes = state_bytes(n);
  *done = n->gpu->carried = n->gpu->prepared;
  if (!*done) {
    return BPPSA_OK;
  }
  BPPSA_TRY(OF_TYPE(n, carry_through, n, l));
  return bppsa_cuda_check(cudaMemcpyAsync(n->g, (char *)n->gpu->between + n->gpu->chunks * bytes, (size_t)bytes,
                                          cudaMemcpyDeviceToDevice, n->gpu->stream),
                          "gradient of the first state");
}

bppsa_status bppsa_gpu_backward(recurrent_network *n, int64_t l) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(n->gpu->index), "backward pass"));
  return OF_TYPE(n, backward_layer, n, l);
}

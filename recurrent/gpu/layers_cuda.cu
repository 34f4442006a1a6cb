/* Recurrent networks on a GPU: memory, and the order of launches.
 *
 * Up to H = 32 (CHUNK_HIDDEN) the kernels of chunk_kernels.cuh run the layers: sequential BP is one chunk, the chunked scan many,
 * and weight gradients are summed within them if they fit into registers. Larger layers run forward and through BP in the kernels
 * of wide_kernels.cuh, where the GPU has room for them. Otherwise, and for other scans, kernels write the factors of the Jacobians,
 * a scan executor computes the gradients, and products of matrices compute the rest.
 * passes_cuda.cu has the forward passes.
 *
 * (The file is long because which arrays a layer needs, and where each lies, follows from which kernels launch.)
 */
#include "recurrent/gpu/layers.cuh"
#include "recurrent/gpu/misses_kernels.cuh"

enum { PART_ROWS = 128, MOST_PARTS = 512 };

namespace {

/* ---- products of matrices ---- */

/* dx [rows][in] = dy [rows][out] w, rows of dx dx_row reals apart */
template <typename real>
bppsa_status input_gradient(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *dy, const void *w,
                            void *dx, int64_t dx_row) {
  product_operands<real> p = {};
  p.m = rows;
  p.n = p.b_row = in;
  p.k = p.a_row = out;
  p.a = (const real *)dy;
  p.b = (const real *)w;
  p.a_column = p.b_column = 1;
  p.c = (real *)dx;
  p.c_row = dx_row;
  return product(n, p, 1);
}

/* The number of parts in which the rows of a weight gradient [out][in + 1] are summed: as many blocks as fill a GPU. */
int64_t parts_of(int64_t rows, int64_t out, int64_t in) {
  const int64_t tiles = divide_up(out, PRODUCT_TILE) * divide_up(in + 1, PRODUCT_TILE);
  const int64_t parts = divide_up(rows, PART_ROWS), most = tiles < MOST_PARTS ? MOST_PARTS / tiles : 1;
  return parts < most ? parts : most;
}

/* early: the launch begins early (core/compute/cluster.cuh) */
template <typename real>
bppsa_status sum_up(const recurrent_network *n, int64_t parts, int64_t count, const sum_targets<real> &targets,
                    const real *partials, bool early) {
  const unsigned blocks = (unsigned)divide_up(count, sum_lanes(parts));
  const size_t shared = SUM_THREADS * sizeof(real);
  if (early) {
    BPPSA_LAUNCH_EARLY(bppsa_linear_sum<real>, 1u, blocks, (unsigned)SUM_THREADS, shared, n->gpu->stream, partials, parts, count,
                       targets);
  } else {
    BPPSA_LAUNCH(bppsa_linear_sum<real>, blocks, SUM_THREADS, shared, n->gpu->stream, partials, parts, count, targets);
  }
  return bppsa_cuda_check(cudaGetLastError(), "sums: launch");
}

/* dw [out][in] = dyᵀ x and db [out] = Σ rows dy */
template <typename real>
bppsa_status weight_gradient(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *dy, const void *x,
                             void *dw, void *db) {
  const int64_t parts = parts_of(rows, out, in), row = in + 1;
  product_operands<real> p = {};
  p.m = p.a_column = out;
  p.n = p.b_row = in;
  p.k = rows;
  p.a = (const real *)dy;
  p.b = (const real *)x;
  p.a_row = p.b_column = 1;
  p.ones = true;
  p.c = (real *)n->gpu->partials;
  BPPSA_TRY(product(n, p, parts));
  sum_targets<real> to = {};
  to.targets = 2;
  to.target[0] = {0, out * row, row, 0, in, (real *)dw};
  to.target[1] = {0, out * row, row, in, 1, (real *)db};
  return sum_up(n, parts, out * row, to, (const real *)n->gpu->partials, false);
}

/* ---- a layer ---- */

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
  return sum_up(n, parts, count, to, partials, fallen != NULL && n->gpu->most_back > 1);
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

int64_t parts_of_back(const back_shape &shape, int64_t batch) {
  return batch * (shape.blocks + shape.guess_blocks);
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
    parts = parts_of_back(shape, c.batch);
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
    BPPSA_TRY(
        weight_gradient<real>(n, rows, c.hidden, out, delta_h, before, place_of(n, l, W_HH, true), place_of(n, l, B_HH, true)));
  }
  if (!sums || c.input > 1) {
    BPPSA_TRY(weight_gradient<real>(n, rows, c.input, out, n->pre, c.x, place_of(n, l, W_IH, true), place_of(n, l, B_IH, true)));
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
                                 : input_gradient<real>(n, rows, c.input, out, n->pre, c.w_ih, n->dx, c.input);
}

/* ---- memory ---- */

/* Reals of parameters, with gaps. */
int64_t parameter_reals(const recurrent_network *n, const bppsa_parameter *parameters, int64_t count) {
  int64_t reals = 0;
  for (int64_t i = 0; i < count; ++i) {
    reals += divide_up((int64_t)bppsa_view_bytes(&parameters[i].value), BPPSA_ALIGNMENT) * BPPSA_ALIGNMENT / size_of(n);
  }
  return reals;
}

/* Reals of the parameters, and of the zeros behind them that stand for biases. */
int64_t placed_reals(const recurrent_network *n) {
  return n->base.reals + (n->zeros != NULL ? parameter_reals(n, n->zeros, 2 * bppsa_recurrent_layers(&n->config)) : 0);
}

int64_t largest(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Reals of the parts of the largest weight gradient. */
int64_t partial_reals(const recurrent_network *n, bool fused) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t out = n->cell->gates * c->hidden, rows = c->seq_len * c->batch;
  const int64_t head_rows = c->loss_all ? rows : c->batch, outputs = bppsa_recurrent_outputs(c);
  const int64_t by_input = parts_of(rows, out, c->input) * out * (c->input + 1),
                by_state = largest(parts_of(rows, out, c->hidden) * out * (c->hidden + 1),
                                   parts_of(rows, out, outputs) * out * (outputs + 1)),
                head = parts_of(head_rows, c->classes, outputs) * c->classes * (outputs + 1);
  const bool speculates = bppsa_gpu_back_runs(n);
  const int64_t parts = (speculates ? parts_of_back(bppsa_gpu_back_shape(n, c->batch), c->batch) : 0) +
                        (!speculates || n->gpu->chunks > 1 ? LAUNCH(n, blocks, n->gpu->chunks, c->batch) : 0),
                walk = fused && n->gpu->sums ? parts * (out * c->hidden + 3 * out) : 0;
  return largest(largest(by_input, by_state), largest(head, walk));
}

/* Finds the cell's kernels and checks that they agree with its table. */
bppsa_status find_kernels(recurrent_network *n) {
  const bppsa_cell *cell = n->cell;
  n->gpu->cell = cell->cuda != NULL ? cell->cuda() : NULL;
  if (n->gpu->cell == NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s on a GPU: the cell has no kernels, expected device cpu", cell->name);
  }
  const cell_unit &unit = n->gpu->cell->unit;
  if (unit.matrices != cell->gates || unit.matrices != cell->matrices || unit.saved != cell->saved ||
      unit.diagonal != cell->diagonal || unit.split != cell->split || unit.pair != cell->pair ||
      unit.far_biases != cell->far_biases || (cell->split && !cell->separate_bias)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "%s on a GPU: a unit of %d matrices, %d vectors saved, diagonal %d, split %d, pair %d, far biases %d, "
                      "expected the table's, as many gates as matrices, and a separate bias where deltas are split",
                      cell->name, unit.matrices, unit.saved, unit.diagonal, unit.split, unit.pair, unit.far_biases);
  }
  return BPPSA_OK;
}

/* Checks once that launches can have these sizes. */
bppsa_status check_sizes(const recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  int64_t units;
  if (!bppsa_mul(c->seq_len, c->batch, &units) || !bppsa_mul(units, c->hidden, &units) || units > (int64_t)MOST_BLOCKS * 32) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "%s on a GPU: %lld steps of batch %lld and size %lld, expected a product of at most 2^36", n->cell->name,
                      (long long)c->seq_len, (long long)c->batch, (long long)c->hidden);
  }
  return BPPSA_OK;
}

/* How the layer's own kernels run the backward pass. Without a plan it is BP: one walk. */
bppsa_scan_fusion fusion_of(const recurrent_network *n) {
  const bppsa_scan_plan *plan = n->layers[0].plan;
  return plan == NULL ? BPPSA_FUSION_WALK : bppsa_scan_fusion_of(bppsa_scan_plan_config(plan));
}

/* Do the layer's own kernels compute the products of steps, without a scan executor? Depends on the configuration and the plans
 * alone. */
bool is_fused(const recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  /* the caller provides the executor */
  const bool others = c->method.backward == BPPSA_BACKWARD_SCAN && c->factory.create != NULL;
  return (c->hidden <= CHUNK_HIDDEN || n->gpu->wide) && !others && fusion_of(n) != BPPSA_FUSION_NONE;
}

bppsa_status create(recurrent_network *n, const bppsa_device *device) {
  recurrent_gpu *gpu = (recurrent_gpu *)bppsa_calloc(1, sizeof *gpu);
  if (gpu == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  n->gpu = gpu;
  n->base.device = device;
  gpu->device = device;
  gpu->index = bppsa_device_get_index(device);
  gpu->stream = (cudaStream_t)bppsa_device_get_stream(device);
  BPPSA_TRY(find_kernels(n));
  BPPSA_TRY(check_sizes(n));
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(gpu->index), "network"));
  BPPSA_TRY(bppsa_cuda_check(cudaDeviceGetAttribute(&gpu->multiprocessors, cudaDevAttrMultiProcessorCount, gpu->index),
                             "network: multiprocessors"));
  n->forward.multiprocessors = gpu->multiprocessors;
  BPPSA_TRY(bppsa_cuda_check(cudaDeviceGetAttribute(&gpu->shared_most, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu->index),
                             "network: shared memory"));
  BPPSA_TRY(LAUNCH(n, prepare, n->config.hidden, gpu->index, gpu->shared_most, &gpu->wide, &gpu->most_cluster));
  if (n->config.method.backward == BPPSA_BACKWARD_SPECULATIVE && (n->config.hidden <= CHUNK_HIDDEN || gpu->wide)) {
    BPPSA_TRY(LAUNCH(n, back_prepare, n->config.hidden, gpu->index, &gpu->most_back, &gpu->back_teams));
    if (gpu->most_back == 0) {
      return bppsa_fail(
          BPPSA_ERR_UNSUPPORTED,
          "a speculative backward pass of %lld units: this GPU has no room for a cluster of its blocks, expected bp, "
          "scan or auto, or a CPU",
          (long long)n->config.hidden);
    }
  }
  n->back.scans = n->config.hidden <= CHUNK_HIDDEN && LAUNCH(n, scans, n->config.hidden, gpu->shared_most);
  n->forward.most_hidden = gpu->wide ? (int64_t)BPPSA_FORWARD_GPU_HIDDEN : (int64_t)CHUNK_HIDDEN;
  return BPPSA_OK;
}

bool runs_scan(const recurrent_network *n, const bppsa_scan_plan *) {
  return !is_fused(n);
}

void choose(recurrent_network *n) {
  recurrent_gpu *gpu = n->gpu;
  gpu->chunks = bppsa_gpu_back_runs(n)                ? n->back.plan.scan_chunks
                : fusion_of(n) == BPPSA_FUSION_CHUNKS ? bppsa_scan_plan_config(n->layers[0].plan)->method.chunks
                                                      : 1;
  gpu->links = gpu->chunks > 1 ? gpu->chunks - 1 + (n->config.ends.after != NULL ? 1 : 0) : 0;
  gpu->sums = is_fused(n) && LAUNCH(n, sums, n->config.hidden);
  bppsa_forward_choose(n);
  n->base.reals = parameter_reals(n, n->base.parameters, n->base.parameter_count);
}

bppsa_status visit_arrays(recurrent_network *n, bool, bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  recurrent_gpu *gpu = n->gpu;
  const bppsa_cell *cell = n->cell;
  const int64_t steps = c->seq_len, batch = c->batch, hidden = c->hidden, gates = cell->gates * hidden;
  const int64_t state = bppsa_recurrent_state_size(n);
  const bool fused = is_fused(n);
  const int64_t held = fused && bppsa_recurrent_serves(n, RECURRENT_BACKWARD) ? gpu->links : 0,
                padded = fused ? (1 + cell->pair) * LAUNCH(n, padded_hidden, hidden) : 0;
  const bool wants_pre = c->layers > 1 || !is_one(n) || wants_delta_x(n, 0);
  for (int64_t l = 0; l < bppsa_recurrent_layers(c); ++l) {
    BPPSA_TRY(c->tape ? BPPSA_OK : bppsa_recurrent_visit_tape(n, l, visit, bytes));
    if (l > 0 && (c->dropout > 0 || c->bidirectional)) {
      BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, steps, batch, n->layers[l].input, &n->layers[l].below, bytes));
    }
  }
  const bool back = bppsa_recurrent_serves(n, RECURRENT_BACKWARD), head = bppsa_recurrent_serves(n, RECURRENT_HEAD);
  for (int64_t k = 0; back && !fused && k < cell->matrices + cell->pair; ++k) {
    BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, steps, batch, hidden, &n->columns[k], bytes));
  }
  const struct {
    bool wanted;
    int64_t steps, rows, width;
    void **array;
  } arrays[] = {
      {head, 1, 1, placed_reals(n), &n->base.device_values},
      {head, 1, 1, placed_reals(n), &n->base.device_gradients},
      {wants_pre, steps, batch, gates, &n->pre},
      {back, steps + 1, batch, state, &n->g},
      {head, c->loss_all ? steps : 1, batch, c->classes, &n->logits},
      {back && cell->split && !gpu->sums, steps, batch, gates, &n->delta_h},
      {back && !fused && cell->diagonal, steps, batch, hidden, &n->diagonal},
      {head && c->input_gradients, steps, batch, c->input, &n->dx},
      {back && c->input_gradients, bppsa_recurrent_layers(c), batch, state, &n->dh0},
      {held > 0, held, batch, padded * padded, &gpu->products},
      {held > 0, held, batch, state, &gpu->norms},
      {held > 0, held, batch, state, &gpu->exponents},
      {held > 0 && (c->loss_all || c->layers > 1 || c->lengths), held, batch, state, &gpu->offsets},
      {held > 0, held + 1, batch, state, &gpu->between},
      {bppsa_recurrent_serves(n, RECURRENT_FORWARD) && hidden > CHUNK_HIDDEN && !gpu->wide, 1, gates, hidden, &gpu->w_t},
      {back, 1, 1, partial_reals(n, fused), &gpu->partials}};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    if (arrays[i].wanted) {
      BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, arrays[i].steps, arrays[i].rows, arrays[i].width, arrays[i].array, bytes));
    }
  }
  BPPSA_TRY(bppsa_recurrent_serves(n, RECURRENT_FORWARD) ? bppsa_gpu_forward_visit(n, visit, bytes) : BPPSA_OK);
  BPPSA_TRY(back ? bppsa_gpu_back_visit(n, visit, bytes) : BPPSA_OK);
  BPPSA_TRY(bppsa_gpu_sequences_visit(n, visit, bytes));
  BPPSA_TRY(bppsa_sides_visit(n, visit, bytes));
  BPPSA_TRY(visit(&gpu->counted, sizeof(unsigned long long), bytes));
  return visit(&gpu->redone, sizeof(unsigned long long), bytes);
}

/* Arrays lie one behind the other, each at a multiple of 256 bytes. */
bppsa_status measure_array(void **array, int64_t size, int64_t *bytes) {
  return bppsa_recurrent_count_array(array, size > INT64_MAX - 255 ? INT64_MAX : (size + 255) / 256 * 256, bytes);
}

bppsa_status place_array(void **array, int64_t size, int64_t *bytes) {
  *array = (void *)(intptr_t)*bytes;
  return measure_array(array, size, bytes);
}

/* Clears what must begin as 0: parameters, gradients and the gaps between them, counts, and logits, which are looked at
 * (find_nonfinite) where only the layers have run. Everything else is written before it is read. */
bppsa_status clear_arrays(recurrent_network *n) {
  const recurrent_gpu *gpu = n->gpu;
  const bppsa_recurrent_config *c = &n->config;
  const int64_t bytes = placed_reals(n) * size_of(n), rows = (c->loss_all ? c->seq_len : 1) * c->batch;
  BPPSA_TRY(bppsa_cuda_clear(gpu->index, gpu->stream, n->logits, rows * c->classes * size_of(n)));
  BPPSA_TRY(bppsa_cuda_clear(gpu->index, gpu->stream, n->base.device_values, bytes));
  BPPSA_TRY(bppsa_cuda_clear(gpu->index, gpu->stream, n->base.device_gradients, bytes));
  if (gpu->speculate.report != NULL) {
    BPPSA_TRY(bppsa_cuda_clear(gpu->index, gpu->stream, gpu->speculate.report, sizeof(speculate_report)));
  }
  BPPSA_TRY(bppsa_gpu_back_clear(n));
  BPPSA_TRY(bppsa_cuda_clear(gpu->index, gpu->stream, gpu->counted, sizeof(unsigned long long)));
  return bppsa_cuda_clear(gpu->index, gpu->stream, gpu->redone, sizeof(unsigned long long));
}

bppsa_status allocate(recurrent_network *n, bool scans) {
  int64_t bytes = 0;
  BPPSA_TRY(visit_arrays(n, scans, measure_array, &bytes));
  BPPSA_TRY(bppsa_cuda_alloc(n->gpu->index, bytes, &n->gpu->memory));
  int64_t address = (int64_t)(intptr_t)n->gpu->memory;
  BPPSA_TRY(visit_arrays(n, scans, place_array, &address));
  BPPSA_TRY(bppsa_forward_visit_host(n, bppsa_recurrent_allocate_array, &bytes));
  BPPSA_TRY(bppsa_gpu_sequences_allocate(n));
  return clear_arrays(n);
}

/* Nothing to do: find_kernels has checked it. */
bppsa_status check_cell(const recurrent_network *) {
  return BPPSA_OK;
}

void destroy(recurrent_network *n) {
  if (n->gpu != NULL) {
    bppsa_forward_free(n);
    bppsa_gpu_sequences_free(n);
    bppsa_cuda_free(n->gpu->index, n->gpu->memory);
    bppsa_cuda_free_staging(n->gpu->index, n->gpu->vectors);
    bppsa_free(n->gpu);
  }
}

/* ---- passes ---- */

/* The states that the head reads. */
const void *head_input(const recurrent_network *n, int64_t *rows) {
  int64_t first;
  *rows = bppsa_recurrent_head_rows(n, &first);
  if (!n->config.bidirectional && n->ragged.active && !n->config.loss_all) {
    return n->ragged.ends;
  }
  return n->config.bidirectional ? n->sides.top : offset(n, n->layers[n->config.layers - 1].h, first);
}

bppsa_status logits(recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  int64_t rows;
  const void *h = head_input(n, &rows);
  BPPSA_TRY(OF_TYPE(n, apply_linear, n, rows, bppsa_recurrent_outputs(c), c->classes, h, head_place(n, 0, false),
                    head_place(n, 1, false), false, n->logits));
  return n->ragged.active && c->loss_all ? bppsa_gpu_cut(n, NULL, c->classes, 0, n->logits, c->classes) : BPPSA_OK;
}

/* Returns the gradient of the logits; for samples that have lengths with 0 behind their ends (see `seed`). */
const void *head_seed(const recurrent_network *n) {
  return n->ragged.active && n->config.loss_all ? n->ragged.packed : n->seed;
}

bppsa_status head_gradients(recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  int64_t rows;
  const void *h = head_input(n, &rows);
  return OF_TYPE(n, weight_gradient, n, rows, bppsa_recurrent_outputs(c), c->classes, head_seed(n), h, head_place(n, 0, true),
                 head_place(n, 1, true));
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

/* With two directions: copies n->sides.above to the ends of g, or to all of it. */
bppsa_status enter_side(recurrent_network *n, int64_t l) {
  const int64_t rows = bppsa_sides_ends(n, l) ? n->batch : n->config.seq_len * n->batch;
  BPPSA_TRY(clear_gradients(n, l));
  if (n->ragged.active && bppsa_sides_ends(n, l)) {
    BPPSA_TRY(bppsa_sides_split(n, l, n->sides.part, n->config.hidden));
    return scatter_seed(n, n->sides.part);
  }
  return bppsa_sides_split(n, l, end_of_g(n, rows), bppsa_recurrent_state_size(n));
}

bppsa_status seed(recurrent_network *n) {
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
        OF_TYPE(n, input_gradient, n, rows, outputs, c->classes, head_seed(n), head_place(n, 0, false), n->sides.above, outputs));
    return enter_side(n, top_of(n));
  }
  BPPSA_TRY(clear_gradients(n, top_of(n)));
  if (n->ragged.active && !c->loss_all) {
    BPPSA_TRY(OF_TYPE(n, input_gradient, n, rows, c->hidden, c->classes, n->seed, head_place(n, 0, false), n->ragged.packed,
                      c->hidden));
    return scatter_seed(n, n->ragged.packed);
  }
  return OF_TYPE(n, input_gradient, n, rows, c->hidden, c->classes, head_seed(n), head_place(n, 0, false), end_of_g(n, rows),
                 bppsa_recurrent_state_size(n));
}

/* Copies gradients of states [T][b][D·H] of samples that have lengths, with 0 behind their ends. */
bppsa_status cut_seed(const recurrent_network *n, const void *seed, void *to, int64_t to_row) {
  const int64_t outputs = bppsa_recurrent_outputs(&n->config);
  return bppsa_gpu_cut(n, seed, outputs, outputs, to, to_row);
}

bppsa_status put_seed(recurrent_network *n, const void *from) {
  int64_t first;
  const int64_t rows = bppsa_recurrent_head_rows(n, &first);
  n->gpu->last = NULL;
  return copy_part(n, rows, from, n->config.hidden, end_of_g(n, rows), bppsa_recurrent_state_size(n), "seed");
}

/* Sets the gradients of the top layer's states. g_T alone is read where it stands, unless something is added to it, or it is half
 * of a pair. */
bppsa_status seed_layers(recurrent_network *n, const void *seed) {
  BPPSA_TRY(n->config.tape && n->resets.active ? bppsa_gpu_put_resets(n) : BPPSA_OK);
  if (n->config.bidirectional) {
    int64_t first;
    const int64_t bytes = bppsa_recurrent_head_rows(n, &first) * bppsa_recurrent_outputs(&n->config) * size_of(n);
    n->gpu->last = NULL;
    BPPSA_TRY(n->ragged.active && n->config.loss_all
                  ? cut_seed(n, seed, n->sides.above, bppsa_recurrent_outputs(&n->config))
                  : bppsa_cuda_check(
                        cudaMemcpyAsync(n->sides.above, seed, (size_t)bytes, cudaMemcpyDeviceToDevice, n->gpu->stream), "seed"));
    return enter_side(n, top_of(n));
  }
  BPPSA_TRY(clear_gradients(n, top_of(n)));
  if (n->ragged.active) {
    n->gpu->last = NULL;
    return n->config.loss_all ? cut_seed(n, seed, end_of_g(n, n->config.seq_len * n->batch), bppsa_recurrent_state_size(n))
                              : scatter_seed(n, seed);
  }
  if (n->cell->pair || n->layers[top_of(n)].scan != NULL || n->config.loss_all || n->config.ends.before != NULL) {
    return put_seed(n, seed);
  }
  n->gpu->last = seed;
  return BPPSA_OK;
}

/* Writes all gradients of the states of layer l to g, g_T included. */
bppsa_status layer_backward(recurrent_network *n, int64_t l) {
  if (n->gpu->last != NULL) {
    BPPSA_TRY(put_seed(n, n->gpu->last));
  }
  return n->layers[l].scan != NULL ? OF_TYPE(n, run_scan, n, l) : OF_TYPE(n, run_chunks, n, l, false);
}

/* With two directions: writes the gradient of the layer's input to rows without gaps. */
bppsa_status layer_input_gradient(recurrent_network *n, int64_t l, void *rows) {
  const int64_t input = n->layers[l].input, out = n->cell->gates * n->config.hidden;
  return OF_TYPE(n, input_gradient, n, n->config.seq_len * n->batch, input, out, n->pre, place_of(n, l, W_IH, false), rows,
                 input);
}

bppsa_status pass_down(recurrent_network *n, int64_t l) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t rows = c->seq_len * n->batch;
  if (c->bidirectional) {
    return bppsa_sides_pass_down(n, l);
  }
  const int64_t state = bppsa_recurrent_state_size(n);
  void *gradients = end_of_g(n, rows);
  BPPSA_TRY(clear_gradients(n, l - 1));
  BPPSA_TRY(OF_TYPE(n, input_gradient, n, rows, n->layers[l].input, n->cell->gates * c->hidden, n->pre,
                    place_of(n, l, W_IH, false), gradients, state));
  return bppsa_recurrent_drops(n, l) ? bppsa_gpu_drop_rows(n, l, gradients, state, gradients, state) : BPPSA_OK;
}

bppsa_status prepare(recurrent_network *n, int64_t l) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(n->gpu->index), "backward pass"));
  n->gpu->prepared = n->layers[l].scan == NULL && n->gpu->chunks > 1 && !bppsa_gpu_back_runs(n);
  return n->gpu->prepared ? OF_TYPE(n, make_products, n, l) : BPPSA_OK;
}

bppsa_status carry(recurrent_network *n, int64_t l, bool *done) {
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

bppsa_status backward(recurrent_network *n, int64_t l) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(n->gpu->index), "backward pass"));
  return OF_TYPE(n, backward_layer, n, l);
}

bppsa_status count(recurrent_network *n, int64_t *redone) {
  unsigned long long count = 0;
  BPPSA_TRY(bppsa_cuda_get(n->gpu->index, n->gpu->stream, &count, n->gpu->redone, sizeof count));
  *redone = (int64_t)count;
  return BPPSA_OK;
}

} // namespace

extern "C" const recurrent_backend bppsa_recurrent_cuda = {create,
                                                           runs_scan,
                                                           choose,
                                                           visit_arrays,
                                                           allocate,
                                                           check_cell,
                                                           destroy,
                                                           bppsa_gpu_forward,
                                                           logits,
                                                           seed,
                                                           seed_layers,
                                                           head_gradients,
                                                           layer_backward,
                                                           backward,
                                                           pass_down,
                                                           layer_input_gradient,
                                                           enter_side,
                                                           bppsa_sides_move_cuda,
                                                           bppsa_gpu_gather_ends,
                                                           bppsa_gpu_drop,
                                                           bppsa_gpu_tell_step,
                                                           count,
                                                           bppsa_gpu_forward_look,
                                                           bppsa_gpu_forward_tell,
                                                           bppsa_gpu_back_look,
                                                           bppsa_gpu_back_tell,
                                                           bppsa_gpu_forward_window,
                                                           prepare,
                                                           carry,
                                                           bppsa_gpu_pass_keep,
                                                           bppsa_gpu_pass_copy,
                                                           bppsa_gpu_pass_begin};

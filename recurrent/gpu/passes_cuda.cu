/* Forward passes of recurrent networks on a GPU: sequential ones, parallel ones that the GPU goes through by itself
 * (recurrent/gpu/speculate_arrays.cuh), and windows of those whose phases run on the host (recurrent/walk.h). */
#include "recurrent/gpu/layers.cuh"
#include "recurrent/gpu/walk_kernels.cuh"

enum { TRANSPOSE_THREADS = 256 };

namespace {

template <typename real> speculate_arrays<real> speculate_of(const recurrent_network *n) {
  const speculate_memory &m = n->gpu->speculate;
  const bppsa_forward_plan &plan = n->forward.plan;
  speculate_arrays<real> s = {};
  s.chunks = plan.chunks;
  s.warm_up = plan.warm_up;
  s.multiprocessors = n->gpu->multiprocessors;
  s.most_cluster = n->gpu->most_cluster;
  s.possible = n->config.seq_len * bppsa_recurrent_layers(&n->config);
  s.most_path = plan.most_path;
  s.accept = plan.accept;
  s.stop = plan.stop;
  s.settled = plan.settled;
  s.far = plan.far;
  s.near = BPPSA_SETTLE_GROWTH * plan.stop;
  for (int i = 0; i < 2; ++i) {
    s.ends[i] = (real *)m.ends[i];
    s.doubtful[i] = (int *)m.doubtful[i];
  }
  s.aside = (real *)m.aside;
  s.steps = (int *)m.steps;
  s.found = (int *)m.found;
  s.gaps = (double *)m.gaps;
  s.paths = (int64_t *)m.paths;
  s.report = (speculate_report *)m.report;
  return s;
}

/* Returns W_hhᵀ where the layer's own kernels read it from memory; otherwise NULL. */
template <typename real> real *transposed_of(const recurrent_network *n) {
  return n->config.hidden <= CHUNK_HIDDEN || n->gpu->wide ? NULL : (real *)n->gpu->w_t;
}

template <typename real> bppsa_status run_steps(const recurrent_network *n, const layer_arrays<real> &c) {
  const real *w_t = transposed_of<real>(n);
  return w_t == NULL ? launchers<real>(n).forward(n->gpu->stream, c)
                     : launchers<real>(n).forward_wide(n->gpu->stream, c, w_t, n->gpu->shared_most);
}

template <typename real> bppsa_status forward_layer(recurrent_network *n, int64_t l) {
  const layer_arrays<real> c = arrays_of<real>(n, l);
  if (c.pre != NULL) {
    BPPSA_TRY(bppsa_gpu_apply_linear(n, c.steps * c.batch, c.input, n->cell->gates * c.hidden, c.x, c.w_ih, c.b_ih,
                                     n->cell->far_biases, c.pre));
  }
  const int64_t rows = n->cell->gates * c.hidden;
  real *w_t = transposed_of<real>(n);
  if (w_t != NULL) {
    BPPSA_LAUNCH(bppsa_linear_transposed<real>, (unsigned)divide_up(rows * c.hidden, TRANSPOSE_THREADS), TRANSPOSE_THREADS, 0,
                 n->gpu->stream, c.w_hh, rows, c.hidden, w_t);
    BPPSA_TRY(bppsa_cuda_check(cudaGetLastError(), "transpose: launch"));
  }
  if (bppsa_forward_hosted(n)) {
    return n->forward.stats.speculated ? bppsa_forward_layer(n, l, c.x) : run_steps(n, c);
  }
  return n->forward.plan.speculative
             ? launchers<real>(n).speculate(n->gpu->stream, c, speculate_of<real>(n), w_t, n->gpu->shared_most,
                                            n->forward.plan.rounds, l == 0, l == top_of(n))
             : run_steps(n, c);
}

/* The masks of a window of lanes (layer_resets), which stand behind what the lanes are told. */
struct walk_masks {
  int64_t row;
  char *words, *bytes;
};

walk_masks masks_of(const recurrent_network *n) {
  const int64_t lanes = n->forward.most_lanes, window = n->forward.window;
  walk_masks m = {};
  m.row = divide_up(window, 32) + 1;
  m.words = (char *)n->gpu->walk.items + lanes * (int64_t)sizeof(bppsa_walk_item);
  m.bytes = m.words + lanes * m.row * (int64_t)sizeof(uint32_t);
  return m;
}

/* Computes a window, which is a batch of lanes for the sequential pass: gathers what it reads, and settles what it writes. */
template <typename real>
bppsa_status run_window(const recurrent_network *n, int64_t l, bool guesses, int64_t count, int64_t steps) {
  const recurrent_gpu *gpu = n->gpu;
  layer_arrays<real> c = arrays_of<real>(n, l);
  walk_arrays<real> w = {};
  w.items = (const bppsa_walk_item *)gpu->walk.items;
  w.found = (bppsa_walk_found *)gpu->walk.found;
  w.count = count;
  w.steps = steps;
  w.all = c.steps;
  w.batch = c.batch;
  w.hidden = c.hidden;
  w.width = c.pre != NULL ? n->cell->gates * c.hidden : c.input;
  w.saved_width = n->cell->saved * c.hidden;
  w.guesses = guesses;
  w.relu = c.relu;
  w.accept = n->forward.plan.accept;
  w.stop = n->forward.plan.stop;
  w.settled = n->forward.plan.settled;
  if (c.resets.mask != NULL) {
    const walk_masks masks = masks_of(n);
    w.resets = c.resets.mask;
    w.mask = (uint8_t *)masks.bytes;
    w.words = (uint32_t *)masks.words;
    w.row = masks.row;
    c.resets = {w.mask, w.words, w.row};
  }
  w.layer = {(real *)(c.pre != NULL ? c.pre : c.x), c.h, c.cells, c.saved};
  w.window = {(real *)gpu->walk.inputs, (real *)n->forward.scratch, (real *)bppsa_walk_window_cells(n), (real *)gpu->walk.saved};
  BPPSA_LAUNCH(bppsa_recurrent_walk_gather<real>, (unsigned)count, WALK_THREADS, 0, gpu->stream, w);
  BPPSA_TRY(bppsa_cuda_check(cudaGetLastError(), "window of lanes: launch"));
  c.steps = steps;
  c.batch = count;
  c.x = w.window.inputs;
  c.pre = c.pre != NULL ? w.window.inputs : NULL;
  c.h = w.window.h;
  c.cells = w.window.cells;
  c.saved = w.window.saved;
  BPPSA_TRY(run_steps(n, c));
  BPPSA_LAUNCH(bppsa_recurrent_walk_settle<real>, (unsigned)count, WALK_THREADS, sizeof(walk_look) * (size_t)steps, gpu->stream,
               w);
  return bppsa_cuda_check(cudaGetLastError(), "window of lanes: launch");
}

bppsa_status visit_speculate(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  speculate_memory &m = n->gpu->speculate;
  const int64_t chunks = n->forward.plan.chunks, batch = n->config.batch, hidden = n->config.hidden;
  const int64_t state = bppsa_recurrent_state_size(n);
  int64_t items, numbers;
  if (!bppsa_mul(chunks, batch, &items) || items > MOST_BLOCKS ||
      !bppsa_mul(items, SPECULATE_PHASES * (int64_t)sizeof(int), &numbers)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "forward pass on a GPU: %lld chunks of %lld samples, expected at most %d in all",
                      (long long)chunks, (long long)batch, (int)MOST_BLOCKS);
  }
  for (int i = 0; i < 2; ++i) {
    BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, chunks, batch, state, &m.ends[i], bytes));
    BPPSA_TRY(visit(&m.doubtful[i], items * (int64_t)sizeof(int), bytes));
  }
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, chunks, batch, state + n->cell->saved * hidden, &m.aside, bytes));
  BPPSA_TRY(visit(&m.steps, numbers, bytes));
  BPPSA_TRY(visit(&m.found, numbers, bytes));
  BPPSA_TRY(visit(&m.gaps, items * (int64_t)sizeof(double), bytes));
  BPPSA_TRY(visit(&m.paths, batch * (int64_t)sizeof(int64_t), bytes));
  return visit(&m.report, sizeof(speculate_report), bytes);
}

bppsa_status visit_walk(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  walk_memory &m = n->gpu->walk;
  const int64_t lanes = n->forward.most_lanes, window = n->forward.window, hidden = n->config.hidden;
  const int64_t width = is_one(n) && n->config.layers == 1 ? 1 : n->cell->gates * hidden;
  if (lanes > MOST_BLOCKS) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "forward pass on a GPU: chunks of samples, %lld in a part, expected at most %d",
                      (long long)lanes, (int)MOST_BLOCKS);
  }
  BPPSA_TRY(bppsa_forward_visit_states(n, visit, bytes));
  const int64_t masks = n->config.resets ? lanes * ((divide_up(window, 32) + 1) * (int64_t)sizeof(uint32_t) + window) : 0;
  BPPSA_TRY(visit(&m.items, lanes * (int64_t)sizeof(bppsa_walk_item) + masks, bytes));
  BPPSA_TRY(visit(&m.found, lanes * (int64_t)sizeof(bppsa_walk_found), bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, window, lanes, width, &m.inputs, bytes));
  return n->cell->saved > 0 ? bppsa_recurrent_visit_array(n, visit, window, lanes, n->cell->saved * hidden, &m.saved, bytes)
                            : BPPSA_OK;
}

/* Sets the state of layer l in front of the first step, from h0 [L][b][S] or zeros; of samples that begin anew there to zeros or to
 * the learned state. */
bppsa_status begin_layer(const recurrent_network *n, int64_t l, const void *h0) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  void *const parts[] = {n->layers[l].h, n->layers[l].c}, *const begin = begin_place(n, l, false);
  for (int64_t part = 0; part * hidden < size; ++part) {
    BPPSA_TRY(h0 != NULL ? copy_part(n, n->batch, offset(n, (const char *)h0 + l * state_bytes(n), part * hidden), size,
                                     parts[part], hidden, "h0")
                         : bppsa_cuda_check(
                               cudaMemsetAsync(parts[part], 0, (size_t)(n->batch * hidden * size_of(n)), n->gpu->stream), "h0"));
    BPPSA_TRY(n->resets.active && (h0 != NULL || begin != NULL)
                  ? bppsa_gpu_hide(n, l, 1, hidden, offset(n, begin, part * hidden), NULL, parts[part])
                  : BPPSA_OK);
  }
  return BPPSA_OK;
}

/* Makes the input of layer l where no array has it. */
bppsa_status enter_layer(const recurrent_network *n, int64_t l) {
  if (n->config.bidirectional) {
    return bppsa_sides_enter(n, l);
  }
  return bppsa_recurrent_drops(n, l)
             ? bppsa_gpu_drop(n, l, offset(n, n->layers[l - 1].h, n->batch * n->config.hidden), n->layers[l].below)
             : BPPSA_OK;
}

/* Makes what the head reads. */
bppsa_status leave_layers(const recurrent_network *n) {
  const int64_t hidden = n->config.hidden;
  if (n->config.bidirectional) {
    return bppsa_sides_leave(n);
  }
  return n->ragged.active ? bppsa_gpu_gather_ends(n, offset(n, n->layers[top_of(n)].h, n->batch * hidden), hidden, hidden,
                                                  n->ragged.ends, hidden)
                          : BPPSA_OK;
}

} // namespace

bppsa_status bppsa_gpu_forward_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  return bppsa_forward_hosted(n)       ? visit_walk(n, visit, bytes)
         : n->forward.plan.speculative ? visit_speculate(n, visit, bytes)
                                       : BPPSA_OK;
}

bppsa_status bppsa_gpu_forward(recurrent_network *n, const void *h0) {
  const bool hosted = bppsa_forward_hosted(n);
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(n->gpu->index), "forward pass"));
  if (hosted) {
    (void)bppsa_forward_begin(n);
  }
  BPPSA_TRY(bppsa_gpu_sequences_begin(n));
  for (int64_t l = 0; l <= top_of(n); ++l) {
    BPPSA_TRY(begin_layer(n, l, h0));
    BPPSA_TRY(enter_layer(n, l));
    BPPSA_TRY(OF_TYPE(n, forward_layer, n, l));
    BPPSA_TRY(n->ragged.active ? bppsa_gpu_cut_states(n, l) : BPPSA_OK);
  }
  BPPSA_TRY(leave_layers(n));
  if (n->output != NULL) {
    const int64_t hidden = n->config.hidden, rows = n->config.seq_len * n->batch;
    BPPSA_TRY(copy_part(n, rows, offset(n, n->layers[0].h, n->batch * hidden), hidden, n->output, hidden, "output"));
  }
  if (hosted) {
    bppsa_forward_end(n);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_gpu_forward_window(recurrent_network *n, int64_t l, bool guesses, int64_t count, int64_t steps) {
  const recurrent_gpu *gpu = n->gpu;
  BPPSA_TRY(bppsa_cuda_put(gpu->index, gpu->stream, gpu->walk.items, n->forward.items, count * (int64_t)sizeof(bppsa_walk_item)));
  BPPSA_TRY(OF_TYPE(n, run_window, n, l, guesses, count, steps));
  return guesses ? BPPSA_OK
                 : bppsa_cuda_get(gpu->index, gpu->stream, n->forward.found, gpu->walk.found,
                                  count * (int64_t)sizeof(bppsa_walk_found));
}

/* Reads the report of the latest pass. */
bppsa_status bppsa_gpu_forward_look(recurrent_network *n) {
  recurrent_forward *f = &n->forward;
  const int64_t possible = f->seq_len * bppsa_recurrent_layers(&n->config);
  speculate_report r = {};
  if (bppsa_forward_hosted(n)) {
    return BPPSA_OK;
  }
  if (f->plan.speculative) {
    BPPSA_TRY(bppsa_cuda_get(n->gpu->index, n->gpu->stream, &r, n->gpu->speculate.report, sizeof r));
  }
  f->pause = r.pause;
  f->stats = {};
  if (n->batch == 0) { /* before the first pass */
    return BPPSA_OK;
  }
  f->stats.passes = 1;
  f->stats.path = f->stats.possible = possible;
  f->stats.work = 1;
  if (r.speculated != 0) {
    f->stats.speculated = true;
    f->stats.path = r.path;
    f->stats.work = (double)r.steps / ((double)possible * (double)n->batch);
    f->stats.rounds = r.rounds;
    f->stats.mended = r.mended;
    f->stats.reseeded = r.reseeded;
    f->stats.tails = r.tails;
    f->stats.gap = r.gap;
  }
  return BPPSA_OK;
}

/* Writes the state of the pauses, which begins the report. */
bppsa_status bppsa_gpu_forward_tell(recurrent_network *n) {
  const bppsa_forward_pause *pause = &n->forward.pause;
  return n->forward.plan.speculative && !bppsa_forward_hosted(n)
             ? bppsa_cuda_put(n->gpu->index, n->gpu->stream, n->gpu->speculate.report, pause, sizeof *pause)
             : BPPSA_OK;
}

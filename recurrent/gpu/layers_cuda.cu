/* Recurrent networks on a GPU: what a network is made of, its memory, and the table of its passes. Other files have these:
 * passes_cuda.cu the forward passes, backward_cuda.cu and back_cuda.cu the backward passes, seeds_cuda.cu the head, linear_cuda.cu
 * products of matrices, sequences_cuda.cu lengths, resets and dropout. */
#include "recurrent/gpu/layers.cuh"

namespace {

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
  const int64_t by_input = bppsa_gpu_parts(rows, out, c->input) * out * (c->input + 1),
                by_state = largest(bppsa_gpu_parts(rows, out, c->hidden) * out * (c->hidden + 1),
                                   bppsa_gpu_parts(rows, out, outputs) * out * (outputs + 1)),
                head = bppsa_gpu_parts(head_rows, c->classes, outputs) * c->classes * (outputs + 1);
  const bool speculates = bppsa_gpu_back_runs(n);
  const int64_t parts = (speculates ? back_parts(bppsa_gpu_back_shape(n, c->batch), c->batch) : 0) +
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
                                                           bppsa_gpu_logits,
                                                           bppsa_gpu_seed,
                                                           bppsa_gpu_seed_layers,
                                                           bppsa_gpu_head_gradients,
                                                           bppsa_gpu_layer_backward,
                                                           bppsa_gpu_backward,
                                                           bppsa_gpu_pass_down,
                                                           bppsa_gpu_layer_input_gradient,
                                                           bppsa_gpu_enter_side,
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
                                                           bppsa_gpu_prepare,
                                                           bppsa_gpu_carry,
                                                           bppsa_gpu_pass_keep,
                                                           bppsa_gpu_pass_copy,
                                                           bppsa_gpu_pass_begin,
                                                           &bppsa_tangents_cuda};

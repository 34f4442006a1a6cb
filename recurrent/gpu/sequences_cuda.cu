/* Samples of their own lengths, samples that begin anew, and dropout, on a GPU.
 *
 * All samples of a batch run at the same time, so that the longest one determines how long a pass takes. Every sample goes through
 * all T steps, with inputs and gradients that are 0 behind its end. What it computes there is replaced by zeros, layer by layer,
 * before anything reads it.
 *
 * The lengths, the resets, and the samples and the step of training that dropout draws by, are read from the caller's memory when
 * the queued work runs, so that a recorded pass finds the present ones. */
#include "core/compute/memory.h"
#include "recurrent/gpu/layers.cuh"
#include "recurrent/gpu/reset_state_kernels.cuh"
#include "recurrent/gpu/sequence_kernels.cuh"

enum { THREADS = 256 };

namespace {

unsigned blocks_of(int64_t count) {
  return (unsigned)divide_up(count, THREADS);
}

cudaStream_t stream_of(const recurrent_network *n) {
  return n->gpu->stream;
}

template <typename real>
bppsa_status cut(const recurrent_network *n, const void *from, int64_t width, int64_t from_row, void *to, int64_t to_row) {
  sequence_rows<real> r = {};
  r.lengths = n->gpu->lengths;
  r.from = (const real *)from;
  r.to = (real *)to;
  r.count = n->config.seq_len * n->batch * width;
  r.width = width;
  r.from_row = from_row;
  r.to_row = to_row;
  r.batch = n->batch;
  BPPSA_LAUNCH(bppsa_sequence_cut<real>, blocks_of(r.count), THREADS, 0, stream_of(n), r);
  return bppsa_cuda_check(cudaGetLastError(), "samples of their own lengths: launch");
}

template <typename real>
bppsa_status hide(const recurrent_network *n, int64_t l, int64_t steps, int64_t width, const void *begin, const void *from,
                  void *to) {
  sequence_rows<real> r = {};
  r.resets = resets_of(n, l).mask;
  r.begin = (const real *)begin;
  r.from = (const real *)from;
  r.to = (real *)to;
  r.count = steps * n->batch * width;
  r.width = r.from_row = r.to_row = width;
  r.batch = n->batch;
  BPPSA_LAUNCH(bppsa_sequence_cut<real>, blocks_of(r.count), THREADS, 0, stream_of(n), r);
  return bppsa_cuda_check(cudaGetLastError(), "samples that begin anew: launch");
}

template <typename real> bppsa_status sum_begun(const recurrent_network *n, int64_t l, const void *rows, void *sum) {
  begun_rows<real> r = {};
  r.resets = resets_of(n, l);
  r.rows = (const real *)rows;
  r.sum = (real *)sum;
  r.batch = n->batch;
  r.size = bppsa_recurrent_state_size(n);
  BPPSA_LAUNCH(bppsa_recurrent_begun_sum<real>, (unsigned)divide_up(r.size, WARP_LANES), BEGUN_THREADS,
               BEGUN_THREADS * sizeof(double), stream_of(n), r);
  return bppsa_cuda_check(cudaGetLastError(), "gradient of the reset state: launch");
}

template <typename real>
bppsa_status move_ends(const recurrent_network *n, void *rows, int64_t row, int64_t width, void *ends, int64_t end_row,
                       bool back) {
  sequence_ends<real> e = {};
  e.lengths = n->gpu->lengths;
  e.rows = (real *)rows;
  e.ends = (real *)ends;
  e.count = n->batch * width;
  e.width = width;
  e.row = row;
  e.end_row = end_row;
  e.batch = n->batch;
  e.back = back;
  BPPSA_LAUNCH(bppsa_sequence_ends<real>, blocks_of(e.count), THREADS, 0, stream_of(n), e);
  return bppsa_cuda_check(cudaGetLastError(), "samples of their own lengths: launch");
}

template <typename real>
bppsa_status drop(const recurrent_network *n, int64_t l, const void *from, int64_t from_row, void *to, int64_t to_row) {
  enum { NUMBERS = 4 };
  drop_rows<real> r = {};
  r.drawn = n->gpu->drawn;
  r.from = (const real *)from;
  r.to = (real *)to;
  r.width = bppsa_recurrent_outputs(&n->config);
  r.blocks = divide_up(r.width, NUMBERS);
  r.count = n->config.seq_len * n->batch * r.blocks;
  r.from_row = from_row;
  r.to_row = to_row;
  r.batch = n->batch;
  r.steps = n->config.seq_len;
  r.seed = n->config.dropout_seed;
  r.stream = bppsa_recurrent_drop_stream(n, l);
  r.dropout = n->config.dropout;
  BPPSA_LAUNCH(bppsa_recurrent_drop<real>, blocks_of(r.count), THREADS, 0, stream_of(n), r);
  return bppsa_cuda_check(cudaGetLastError(), "dropout: launch");
}

} // namespace

/* ---- memory ---- */

bppsa_status bppsa_gpu_sequences_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t outputs = bppsa_recurrent_outputs(c), widest = n->base.classes > outputs ? n->base.classes : outputs;
  const int64_t size = (int64_t)sizeof(int64_t);
  if (c->lengths) {
    BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, c->seq_len, c->batch, c->input, &n->ragged.x, bytes));
    BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, c->seq_len, c->batch, widest, &n->ragged.packed, bytes));
    BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, 1, c->batch, c->hidden, &n->ragged.ends, bytes));
    BPPSA_TRY(visit((void **)&n->gpu->lengths, c->batch * size, bytes));
  }
  if (c->resets) {
    const int64_t sides = bppsa_recurrent_directions(c), row = reset_row_of(n);
    BPPSA_TRY(visit((void **)&n->gpu->resets, sides * c->seq_len * c->batch, bytes));
    BPPSA_TRY(visit(&n->gpu->reset_words, sides * c->batch * row * (int64_t)sizeof(uint32_t), bytes));
    BPPSA_TRY(n->gpu->sums || !bppsa_recurrent_serves(n, RECURRENT_BACKWARD)
                  ? BPPSA_OK
                  : bppsa_recurrent_visit_array(n, visit, c->seq_len, c->batch, c->hidden, &n->before, bytes));
  }
  if (c->reset_state && bppsa_recurrent_serves(n, RECURRENT_BACKWARD)) {
    BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, c->seq_len, c->batch, bppsa_recurrent_state_size(n), &n->gpu->begun, bytes));
  }
  return c->dropout > 0 ? visit((void **)&n->gpu->drawn, (1 + c->batch) * size, bytes) : BPPSA_OK;
}

bppsa_status bppsa_gpu_sequences_allocate(recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  if (c->lengths) {
    n->ragged.place = (recurrent_place *)bppsa_calloc(c->batch, sizeof *n->ragged.place);
    BPPSA_TRY(n->ragged.place != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY);
  }
  if (c->resets && c->part.seq_len > 0) { /* what phases on the host read */
    n->resets.mask = (uint8_t *)bppsa_calloc(c->part.seq_len, (size_t)c->batch);
    n->resets.any = (uint8_t *)bppsa_calloc(c->part.seq_len, 1);
    BPPSA_TRY(n->resets.mask != NULL && n->resets.any != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY);
  }
  return c->dropout > 0 ? bppsa_memory_alloc_staging(n->gpu->device, sizeof *n->gpu->drop_step, (void **)&n->gpu->drop_step)
                        : BPPSA_OK;
}

void bppsa_gpu_sequences_free(recurrent_network *n) {
  bppsa_free(n->ragged.place);
  bppsa_free(n->resets.mask);
  bppsa_free(n->resets.any);
  if (n->gpu->drop_step != NULL) {
    bppsa_memory_free_staging(n->gpu->device, n->gpu->drop_step);
  }
}

/* ---- passes ---- */

void bppsa_gpu_tell_step(recurrent_network *n, int64_t step) {
  if (n->gpu->drop_step != NULL) {
    *n->gpu->drop_step = step;
  }
}

/* Gives the GPU the masks of the batch; a network that holds a part of a sequence takes the rows of its own steps. */
bppsa_status bppsa_gpu_put_resets(const recurrent_network *n) {
  const bppsa_device *device = n->gpu->device;
  const uint8_t *given = n->resets.given + n->config.part.first * n->batch;
  sequence_resets r = {};
  r.lengths = n->ragged.active ? n->gpu->lengths : NULL;
  r.mask = n->gpu->resets;
  r.words = (uint32_t *)n->gpu->reset_words;
  r.steps = n->config.seq_len;
  r.batch = n->batch;
  r.row = reset_row_of(n);
  r.sides = bppsa_recurrent_directions(&n->config);
  const int64_t bytes = r.steps * r.batch;
  BPPSA_TRY(n->resets.on_gpu ? bppsa_memory_queue_copy(device, r.mask, bytes, given, bytes, bytes, 1)
                             : bppsa_memory_queue_put(device, r.mask, given, bytes));
  BPPSA_LAUNCH(bppsa_sequence_resets, blocks_of(r.sides * r.batch * r.row * 32), THREADS, 0, stream_of(n), r);
  return bppsa_cuda_check(cudaGetLastError(), "samples that begin anew: launch");
}

bppsa_status bppsa_gpu_sequences_begin(recurrent_network *n) {
  const bppsa_device *device = n->gpu->device;
  const int64_t size = (int64_t)sizeof(int64_t), input = n->config.input;
  if (n->config.dropout > 0 && n->drop_samples != NULL) {
    BPPSA_TRY(bppsa_memory_queue_put(device, n->gpu->drawn, n->gpu->drop_step, size));
    BPPSA_TRY(bppsa_memory_queue_put(device, n->gpu->drawn + 1, n->drop_samples, n->batch * size));
  }
  if (n->ragged.active && n->ragged.far) {
    BPPSA_LAUNCH(bppsa_sequence_lengths, blocks_of(n->batch), THREADS, 0, stream_of(n), (const void *)n->ragged.lengths,
                 n->ragged.small, n->batch, n->config.seq_len, n->gpu->lengths);
    BPPSA_TRY(bppsa_cuda_check(cudaGetLastError(), "samples of their own lengths: launch"));
  } else if (n->ragged.active) {
    BPPSA_TRY(bppsa_memory_queue_put(device, n->gpu->lengths, n->ragged.lengths, n->batch * size));
  }
  BPPSA_TRY(n->resets.active ? bppsa_gpu_put_resets(n) : BPPSA_OK); /* by the lengths */
  return n->ragged.active ? bppsa_gpu_cut(n, n->x, input, input, n->ragged.x, input) : BPPSA_OK;
}

bppsa_status bppsa_gpu_cut(const recurrent_network *n, const void *from, int64_t width, int64_t from_row, void *to,
                           int64_t to_row) {
  return OF_TYPE(n, cut, n, from, width, from_row, to, to_row);
}

bppsa_status bppsa_gpu_hide(const recurrent_network *n, int64_t l, int64_t steps, int64_t width, const void *begin,
                            const void *from, void *to) {
  return OF_TYPE(n, hide, n, l, steps, width, begin, from, to);
}

bppsa_status bppsa_gpu_sum_begun_rows(const recurrent_network *n, int64_t l, const void *rows, void *sum) {
  if (!n->resets.active) {
    const size_t bytes = (size_t)(bppsa_recurrent_state_size(n) * size_of(n));
    return bppsa_cuda_check(cudaMemsetAsync(sum, 0, bytes, stream_of(n)), "gradient of the reset state");
  }
  return OF_TYPE(n, sum_begun, n, l, rows, sum);
}

bppsa_status bppsa_gpu_sum_begun(const recurrent_network *n, int64_t l) {
  return n->config.reset_state ? bppsa_gpu_sum_begun_rows(n, l, n->gpu->begun, begin_place(n, l, true)) : BPPSA_OK;
}

bppsa_status bppsa_gpu_cut_states(const recurrent_network *n, int64_t l) {
  const recurrent_layer *layer = &n->layers[l];
  const int64_t hidden = n->config.hidden, saved = n->cell->saved * hidden, first = n->batch * hidden;
  BPPSA_TRY(bppsa_gpu_cut(n, NULL, hidden, 0, offset(n, layer->h, first), hidden));
  BPPSA_TRY(layer->c != NULL ? bppsa_gpu_cut(n, NULL, hidden, 0, offset(n, layer->c, first), hidden) : BPPSA_OK);
  return layer->saved != NULL ? bppsa_gpu_cut(n, NULL, saved, 0, layer->saved, saved) : BPPSA_OK;
}

bppsa_status bppsa_gpu_gather_ends(const recurrent_network *n, const void *rows, int64_t row, int64_t width, void *ends,
                                   int64_t end_row) {
  return OF_TYPE(n, move_ends, n, (void *)rows, row, width, ends, end_row, false);
}

bppsa_status bppsa_gpu_scatter_ends(const recurrent_network *n, const void *ends, int64_t end_row, int64_t row, int64_t width,
                                    void *rows) {
  return OF_TYPE(n, move_ends, n, rows, row, width, (void *)ends, end_row, true);
}

bppsa_status bppsa_gpu_drop_rows(const recurrent_network *n, int64_t l, const void *from, int64_t from_row, void *to,
                                 int64_t to_row) {
  return OF_TYPE(n, drop, n, l, from, from_row, to, to_row);
}

bppsa_status bppsa_gpu_drop(const recurrent_network *n, int64_t l, const void *rows, void *left) {
  const int64_t width = bppsa_recurrent_outputs(&n->config);
  return bppsa_gpu_drop_rows(n, l, rows, width, left, width);
}

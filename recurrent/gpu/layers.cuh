/* The inside of recurrent networks on a GPU: what layers_cuda.cu and the files beside it share. */
#ifndef BPPSA_RECURRENT_GPU_LAYERS_CUH
#define BPPSA_RECURRENT_GPU_LAYERS_CUH

#include "core/base/alloc.h"
#include "core/compute/check.cuh"
#include "core/compute/linear_kernels.cuh"
#include "core/compute/memory_internal.h"
#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/speculate_arrays.cuh"
#include "recurrent/gpu/speculate_back.cuh"
#include "recurrent/recurrent_internal.h"

enum { MOST_BLOCKS = INT32_MAX };

/* Arrays of the parallel forward pass (speculate_arrays), which a GPU goes through by itself. */
struct speculate_memory {
  void *ends[2], *doubtful[2], *aside, *steps, *found, *gaps, *paths, *report;
};

/* Arrays of the parallel backward pass (back_arrays). */
struct back_memory {
  void *probes, *starts, *ends[2], *found, *paths, *kept, *fallen, *report;
};

/* The arrays of a pass whose phases run on the host (recurrent/walk.h): what lanes are told and have found; a window of their
 * inputs and of what their steps save. Its states are n->forward.scratch. */
struct walk_memory {
  void *items, *found, *inputs, *saved;
};

struct recurrent_gpu {
  speculate_memory speculate;
  back_memory back;
  walk_memory walk;
  const bppsa_cell_cuda *cell;
  const bppsa_device *device;
  int32_t index;
  int multiprocessors, shared_most; /* of the GPU; bytes of shared memory that a block can have */
  int most_cluster;                 /* as of speculate_arrays */
  int most_back, back_teams;        /* of a parallel backward pass, as back_prepare finds them */
  bool wide;                        /* H > CHUNK_HIDDEN, and the layer's own kernels run sequential passes (wide_kernels.cuh) */
  cudaStream_t stream;
  void *memory;
  int64_t chunks;     /* fused: P; 1 for BP */
  int64_t links;      /* their products, all of them where g_0 leaves the network (config.ends) */
  bool prepared;      /* the present layer's products have been queued */
  bool carried;       /* the gradients between its chunks have been queued too */
  bool sums;          /* the walk sums weight gradients */
  const void *last;   /* g_T of the top layer if it is not in g, otherwise NULL */
  int64_t *lengths;   /* [B], of the present samples */
  int64_t *drawn;     /* [1 + B]: the step of training, and the samples' numbers in the data set */
  void *begun;        /* [T][B][S], of the present layer: as of layer_arrays, where a reset state is learned */
  uint8_t *resets;    /* [D][T][B], where the present samples begin anew: bytes of layer_resets, of each direction */
  void *reset_words;  /* [D][B][row], its words */
  int64_t *drop_step; /* page-locked host memory: the step, which is copied to `drawn` when the work runs */
  void *products, *norms, *offsets, *between, *partials, *w_t, *exponents, *redone, *counted;
  void *
      vectors; /* of a network of stateless passes that speculate backward, in page-locked host memory: what goes to back.probes */
};

namespace {

inline int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

inline int64_t size_of(const recurrent_network *n) {
  return (int64_t)bppsa_dtype_size(n->config.dtype);
}

inline void *offset(const recurrent_network *n, const void *base, int64_t reals) {
  return base == NULL ? NULL : (char *)base + reals * size_of(n);
}

/* Bytes of all samples' states. */
inline int64_t state_bytes(const recurrent_network *n) {
  return n->batch * bppsa_recurrent_state_size(n) * size_of(n);
}

/* The cell's launchers for a real type. */
template <typename real> const cell_launchers<real> &launchers(const recurrent_network *n);
template <> inline const cell_launchers<float> &launchers(const recurrent_network *n) {
  return n->gpu->cell->f32;
}
template <> inline const cell_launchers<double> &launchers(const recurrent_network *n) {
  return n->gpu->cell->f64;
}

/* Calls a launcher without arrays, for the network's dtype. */
#define LAUNCH(n, name, ...)                                                                                                     \
  ((n)->config.dtype == BPPSA_F32 ? launchers<float>(n).name(__VA_ARGS__) : launchers<double>(n).name(__VA_ARGS__))

/* Calls f<real>(..) for the network's dtype. */
#define OF_TYPE(n, f, ...) ((n)->config.dtype == BPPSA_F32 ? f<float>(__VA_ARGS__) : f<double>(__VA_ARGS__))

/* A parameter's value or gradient in GPU memory. Those of a stateless pass are where the caller has them. */
inline void *place_of(const recurrent_network *n, int64_t layer, int64_t which, bool gradient) {
  const bppsa_parameter *first = n->base.parameters, *p = bppsa_recurrent_parameter(n, layer, which);
  if (!bppsa_recurrent_serves(n, RECURRENT_HEAD)) {
    return gradient ? p->gradient.data : p->value.data;
  }
  const int64_t distance = (char *)p->value.data - (char *)first->value.data;
  return (char *)(gradient ? n->base.device_gradients : n->base.device_values) + distance;
}

inline int64_t top_of(const recurrent_network *n) {
  return bppsa_recurrent_layers(&n->config) - 1;
}

/* A parameter of the head, or its gradient. */
inline void *head_place(const recurrent_network *n, int64_t which, bool gradient) {
  return place_of(n, top_of(n) + 1, which, gradient);
}

/* Is layer l, in either direction, the first one? */
inline bool is_first(const recurrent_network *n, int64_t l) {
  return bppsa_recurrent_level(n, l) == 0;
}

/* Is the first layer's input of size 1, so that its products are computed within the sweeps? */
inline bool is_one(const recurrent_network *n) {
  return n->config.input == 1 && n->config.hidden <= CHUNK_HIDDEN;
}

/* Does other work read delta_x of layer l? */
inline bool wants_delta_x(const recurrent_network *n, int64_t l) {
  return !n->gpu->sums || !is_first(n, l) || n->config.input > 1 || n->config.input_gradients;
}

/* The input of layer l in the present batch. */
inline const void *input_of(const recurrent_network *n, int64_t l) {
  if (l == 0) {
    return n->ragged.active ? n->ragged.x : n->x;
  }
  return n->config.bidirectional || bppsa_recurrent_drops(n, l) ? n->layers[l].below
                                                                : offset(n, n->layers[l - 1].h, n->batch * n->config.hidden);
}

/* Words of 32 steps for each sample in layer_resets, with the one behind the last step. */
inline int64_t reset_row_of(const recurrent_network *n) {
  return divide_up(n->config.seq_len, 32) + 1;
}

/* Where the samples of the present batch begin anew, for layer l. */
inline layer_resets resets_of(const recurrent_network *n, int64_t l) {
  layer_resets r = {};
  if (n->resets.active) {
    const int64_t side = l % bppsa_recurrent_directions(&n->config);
    r.row = reset_row_of(n);
    r.mask = n->gpu->resets + side * n->config.seq_len * n->batch;
    r.words = (const uint32_t *)n->gpu->reset_words + side * n->batch * r.row;
  }
  return r;
}

/* The learned state from which samples of layer l begin anew, or its gradient, in GPU memory; NULL: nothing is learned. */
inline void *begin_place(const recurrent_network *n, int64_t l, bool gradient) {
  void *first = gradient ? n->base.device_gradients : n->base.device_values;
  if (!bppsa_recurrent_serves(n, RECURRENT_HEAD)) {
    first = gradient ? n->base.parameters[0].gradient.data : n->base.parameters[0].value.data;
  }
  return n->config.reset_state ? offset(n, first, l * bppsa_recurrent_state_size(n)) : NULL;
}

template <typename real> layer_arrays<real> arrays_of(const recurrent_network *n, int64_t l) {
  layer_arrays<real> c = {};
  const bppsa_recurrent_config *config = &n->config;
  c.steps = config->seq_len;
  c.batch = n->batch;
  c.hidden = config->hidden;
  c.input = n->layers[l].input;
  c.relu = config->nonlinearity == BPPSA_NONLINEARITY_RELU;
  c.resets = resets_of(n, l);
  c.begin = (const real *)begin_place(n, l, false);
  c.w_ih = (const real *)place_of(n, l, W_IH, false);
  c.w_hh = (const real *)place_of(n, l, W_HH, false);
  c.b_ih = (const real *)place_of(n, l, B_IH, false);
  c.b_hh = (const real *)place_of(n, l, B_HH, false);
  c.x = (const real *)input_of(n, l);
  c.pre = is_first(n, l) && is_one(n) ? NULL : (real *)n->pre;
  c.h = (real *)n->layers[l].h;
  c.cells = (real *)n->layers[l].c;
  c.saved = (real *)n->layers[l].saved;
  c.g = (real *)n->g;
  c.last = l == top_of(n) && n->gpu->last != NULL ? (const real *)n->gpu->last
                                                  : c.g + c.steps * c.batch * bppsa_recurrent_state_size(n);
  c.injected = bppsa_recurrent_injected(n, l);
  c.want_input = config->input_gradients || config->ends.after != NULL;
  c.store_g = true;
  c.delta_x = (real *)n->pre;
  c.delta_h = (real *)n->delta_h;
  for (int64_t k = 0; k < n->cell->matrices + n->cell->pair; ++k) {
    c.columns[k] = (real *)n->columns[k];
  }
  c.diagonal = (real *)n->diagonal;
  return c;
}

/* Copies a part of states, H numbers of each row, between arrays whose rows are `to_row` and `from_row` numbers apart. */
inline bppsa_status copy_part(const recurrent_network *n, int64_t rows, const void *from, int64_t from_row, void *to,
                              int64_t to_row, const char *what) {
  const int64_t hidden = n->config.hidden, width = hidden * size_of(n);
  if (from_row == hidden && to_row == hidden) {
    return bppsa_cuda_check(cudaMemcpyAsync(to, from, (size_t)(rows * width), cudaMemcpyDeviceToDevice, n->gpu->stream), what);
  }
  return bppsa_cuda_check(cudaMemcpy2DAsync(to, (size_t)(to_row * size_of(n)), from, (size_t)(from_row * size_of(n)),
                                            (size_t)width, (size_t)rows, cudaMemcpyDeviceToDevice, n->gpu->stream),
                          what);
}

/* Blocks of a parallel backward pass. */
inline int64_t back_parts(const back_shape &shape, int64_t batch) {
  return batch * (shape.blocks + shape.guess_blocks);
}

} // namespace

/* ---- products of matrices (linear_cuda.cu) ---- */

/* y [rows][out] = x [rows][in] wᵀ + bias, w [out][in]; near: of the bias its near part alone */
bppsa_status bppsa_gpu_apply_linear(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *x,
                                    const void *w, const void *bias, bool near, void *y);
/* The same of a bias or NULL for zeros, where x or w may be NULL for zeros too; added: y += */
bppsa_status bppsa_gpu_add_linear(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *x, const void *w,
                                  const void *bias, bool added, void *y);
/* dx [rows][in] = dy [rows][out] w, rows of dx dx_row reals apart */
bppsa_status bppsa_gpu_input_gradient(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *dy,
                                      const void *w, void *dx, int64_t dx_row);
/* The same, dx += */
bppsa_status bppsa_gpu_add_input_gradient(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *dy,
                                          const void *w, void *dx, int64_t dx_row);
/* dw [out][in] = dyᵀ x and db [out] = Σ rows dy */
bppsa_status bppsa_gpu_weight_gradient(const recurrent_network *n, int64_t rows, int64_t in, int64_t out, const void *dy,
                                       const void *x, void *dw, void *db);
/* The number of parts in which the rows of a weight gradient [out][in + 1] are summed. */
int64_t bppsa_gpu_parts(int64_t rows, int64_t out, int64_t in);
/* Adds up `parts` parts of `count` numbers. early: the launch begins early (core/compute/cluster.cuh) */
bppsa_status bppsa_gpu_sum_up(const recurrent_network *n, int64_t parts, int64_t count, const sum_targets<float> &targets,
                              const float *partials, bool early);
bppsa_status bppsa_gpu_sum_up(const recurrent_network *n, int64_t parts, int64_t count, const sum_targets<double> &targets,
                              const double *partials, bool early);

/* ---- forward passes (passes_cuda.cu), as in recurrent_backend ---- */

bppsa_status bppsa_gpu_forward_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes);
bppsa_status bppsa_gpu_forward(recurrent_network *n, const void *h0);
bppsa_status bppsa_gpu_forward_look(recurrent_network *n);
bppsa_status bppsa_gpu_forward_tell(recurrent_network *n);
bppsa_status bppsa_gpu_forward_window(recurrent_network *n, int64_t layer, bool guesses, int64_t count, int64_t steps);

/* ---- the parallel backward pass (back_cuda.cu) ---- */

/* Is the pass that is planned one that speculates? Otherwise it is BP, because the loss does not reach every step, and gradients of
 * inputs must be exact. */
bool bppsa_gpu_back_runs(const recurrent_network *n);
back_shape bppsa_gpu_back_shape(const recurrent_network *n, int64_t batch);
bppsa_backward_scanned
bppsa_gpu_back_scan(const recurrent_network *n); /* what computes a sample that is left to it: the scan, or BP */
bppsa_status bppsa_gpu_back_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes);
bppsa_status bppsa_gpu_back_clear(const recurrent_network *n); /* what must have a value before the first pass */
int64_t bppsa_gpu_back_vectors(const recurrent_network *n); /* bytes of the vectors that walk through silent chunks, and zeros */
void bppsa_gpu_back_draw(const recurrent_network *n, void *vectors); /* in host memory */
bppsa_status bppsa_gpu_back_look(recurrent_network *n);
bppsa_status bppsa_gpu_back_tell(recurrent_network *n);

/* ---- backward passes of a layer (backward_cuda.cu), and what they begin with (seeds_cuda.cu), as in recurrent_backend ---- */

bppsa_status bppsa_gpu_logits(recurrent_network *n);
bppsa_status bppsa_gpu_head_gradients(recurrent_network *n);
bppsa_status bppsa_gpu_seed(recurrent_network *n);
bppsa_status bppsa_gpu_seed_layers(recurrent_network *n, const void *seed);
bppsa_status bppsa_gpu_put_seed(recurrent_network *n, const void *from); /* copies the seed to the last rows of g */
bppsa_status bppsa_gpu_enter_side(recurrent_network *n, int64_t l);
bppsa_status bppsa_gpu_layer_backward(recurrent_network *n,
                                      int64_t l); /* writes all gradients of the states to g, g_T included */
bppsa_status bppsa_gpu_backward(recurrent_network *n, int64_t l);
bppsa_status bppsa_gpu_pass_down(recurrent_network *n, int64_t l);
bppsa_status bppsa_gpu_layer_input_gradient(recurrent_network *n, int64_t l, void *rows);
bppsa_status bppsa_gpu_prepare(recurrent_network *n, int64_t l);
bppsa_status bppsa_gpu_carry(recurrent_network *n, int64_t l, bool *done);

/* ---- stateless passes (layer_cuda.cu), as in recurrent_backend ---- */

bppsa_status bppsa_gpu_pass_keep(recurrent_network *n);
void bppsa_gpu_pass_copy(recurrent_network *n, const bppsa_device *device, void *room);
bppsa_status bppsa_gpu_pass_begin(recurrent_network *n);

/* ---- samples of their own lengths, resets, and dropout (sequences_cuda.cu) ---- */

bppsa_status bppsa_gpu_sequences_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes);
bppsa_status bppsa_gpu_sequences_allocate(recurrent_network *n); /* what is in host memory */
void bppsa_gpu_sequences_free(recurrent_network *n);
/* Queues what a forward pass begins with: lengths, resets, samples and step go to the GPU, and the input's rows are cut. */
bppsa_status bppsa_gpu_sequences_begin(recurrent_network *n);
/* Queues the resets alone: a backward pass with a tape may be another network's than the forward pass. There are some. */
bppsa_status bppsa_gpu_put_resets(const recurrent_network *n);
/* Copies rows [T][b] of so many numbers, with 0 behind the samples' ends; from NULL: writes the zeros alone. */
bppsa_status bppsa_gpu_cut(const recurrent_network *n, const void *from, int64_t width, int64_t from_row, void *to,
                           int64_t to_row);
bppsa_status bppsa_gpu_cut_states(const recurrent_network *n, int64_t l); /* of layer l, and what it saves */
/* Copies rows of `width` reals of the first `steps` steps of layer l, with `begin` [width] (NULL: 0) where a sample begins anew in
 * front of the step; from NULL: writes these alone. The batch has resets. */
bppsa_status bppsa_gpu_hide(const recurrent_network *n, int64_t l, int64_t steps, int64_t width, const void *begin,
                            const void *from, void *to);
/* Where a reset state is learned: adds up layer l's n->gpu->begun to its gradient; or other rows [T][b][S], which belong to
 * steps which reset their sample. */
bppsa_status bppsa_gpu_sum_begun(const recurrent_network *n, int64_t l);
bppsa_status bppsa_gpu_sum_begun_rows(const recurrent_network *n, int64_t l, const void *rows, void *sum);
/* As bppsa_ragged_gather_ends and bppsa_ragged_scatter_ends, of rows [T][b]. */
bppsa_status bppsa_gpu_gather_ends(const recurrent_network *n, const void *rows, int64_t row, int64_t width, void *ends,
                                   int64_t end_row);
bppsa_status bppsa_gpu_scatter_ends(const recurrent_network *n, const void *ends, int64_t end_row, int64_t row, int64_t width,
                                    void *rows);
/* As bppsa_recurrent_drop; rows begin so many numbers apart. */
bppsa_status bppsa_gpu_drop_rows(const recurrent_network *n, int64_t l, const void *from, int64_t from_row, void *to,
                                 int64_t to_row);
bppsa_status bppsa_gpu_drop(const recurrent_network *n, int64_t l, const void *rows, void *left);
void bppsa_gpu_tell_step(recurrent_network *n, int64_t step);

#endif

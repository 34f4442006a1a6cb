/* Launches of the kernels of graphs, batch norms and dropouts. */
#include "cnn/graph_gpu.h"

#include "cnn/graph_kernels.cuh"
#include "cnn/norm.h"
#include "core/compute/check.cuh"

namespace {

/* Calls f<real>(..) for a dtype. */
#define OF_DTYPE(dtype, f, ...) ((dtype) == BPPSA_F32 ? f<float>(__VA_ARGS__) : f<double>(__VA_ARGS__))

bppsa_status launched(const char *what) {
  return bppsa_cuda_check(cudaGetLastError(), what);
}

unsigned blocks_of(int64_t count) {
  return (unsigned)((count + CNN_VALUE_THREADS - 1) / CNN_VALUE_THREADS);
}

/* Blocks of as many sums; if there are more, a block computes several. */
unsigned sums_of(int64_t tasks) {
  const int64_t most = 1 << 20;
  return (unsigned)(tasks < most ? tasks : most);
}

enum { SUM_BYTES = CNN_SUM_THREADS * sizeof(double) };

template <typename real> cnn_part<real> part_of(bppsa_cnn_part_view view) {
  return {(real *)view.data, view.stride};
}

/* ---- moves ---- */

template <typename real>
bppsa_status move(cudaStream_t stream, bppsa_move_how how, int64_t batch, int64_t count, bppsa_cnn_part_view from,
                  bppsa_cnn_part_view to) {
  if (batch * count > 0) {
    BPPSA_LAUNCH(bppsa_cnn_move_values<real>, blocks_of(batch * count), CNN_VALUE_THREADS, 0, stream, how, batch * count, count,
                 part_of<real>(from), part_of<real>(to));
  }
  return launched("moved values: launch");
}

template <typename real>
bppsa_status move_strided(cudaStream_t stream, bppsa_move_how how, int64_t batch, const int64_t *shape, bppsa_cnn_part_view from,
                          const int64_t *from_strides, bppsa_cnn_part_view to, const int64_t *to_strides) {
  cnn_strides s = {};
  int64_t all = batch;
  for (int axis = 0; axis < 3; ++axis) {
    const bool shared = to_strides[axis] == 0;
    s.own[axis] = shared ? 1 : shape[axis];
    s.shared[axis] = shared ? shape[axis] : 1;
    s.from[axis] = from_strides[axis];
    s.to[axis] = to_strides[axis];
    s.sums = s.sums || shared;
    all *= s.own[axis];
  }
  BPPSA_LAUNCH(bppsa_cnn_move_strided_values<real>, blocks_of(all), CNN_VALUE_THREADS, 0, stream, how, all, s,
               part_of<real>(from), part_of<real>(to));
  return launched("moved values: launch");
}

template <typename real>
bppsa_status scatter(cudaStream_t stream, int64_t batch, int64_t count, const int64_t *places, bppsa_cnn_part_view from,
                     bppsa_cnn_part_view to) {
  if (batch * count > 0) {
    BPPSA_LAUNCH(bppsa_cnn_scatter<real>, blocks_of(batch * count), CNN_VALUE_THREADS, 0, stream, batch * count, count, places,
                 part_of<real>(from), part_of<real>(to));
  }
  return launched("entries beside ones: launch");
}

template <typename real> bppsa_status set_ones(cudaStream_t stream, int64_t count, void *to) {
  BPPSA_LAUNCH(bppsa_cnn_ones<real>, blocks_of(count), CNN_VALUE_THREADS, 0, stream, count, (real *)to);
  return launched("ones: launch");
}

/* ---- normalisations ---- */

template <typename real> cnn_groups_job<real> groups_job(const bppsa_normalise_call *call) {
  cnn_groups_job<real> j = {};
  j.at = bppsa_normalise_geometry_of(call->layer);
  j.batch = call->batch;
  j.x = (const real *)call->x;
  j.sums = (const real *)call->sums;
  j.weight = (const real *)call->weight;
  j.bias = (const real *)call->bias;
  return j;
}

template <typename real> bppsa_status normalise(cudaStream_t stream, const bppsa_normalise_call *call, void *y) {
  cnn_groups_job<real> j = groups_job<real>(call);
  j.y = (real *)y;
  if (j.at.halves) {
    BPPSA_LAUNCH(bppsa_cnn_group_sums<real>, sums_of(j.batch * j.at.g.count), CNN_SUM_THREADS, SUM_BYTES, stream, j);
  } else {
    BPPSA_LAUNCH(bppsa_cnn_group_apply<real>, blocks_of(j.batch * j.at.values), CNN_VALUE_THREADS, 0, stream, j);
  }
  return launched("normalisation: launch");
}

template <typename real>
bppsa_status normalise_back(cudaStream_t stream, const bppsa_normalise_call *call, const void *dy, void *dx, void *dsums) {
  cnn_groups_job<real> j = groups_job<real>(call);
  j.dy = (const real *)dy;
  j.dx = (real *)dx;
  j.dsums = (real *)dsums;
  if (j.at.halves) {
    BPPSA_LAUNCH(bppsa_cnn_group_spread<real>, blocks_of(j.batch * j.at.values), CNN_VALUE_THREADS, 0, stream, j);
  } else {
    BPPSA_LAUNCH(bppsa_cnn_group_return<real>, sums_of(j.batch * j.at.g.count), CNN_SUM_THREADS, SUM_BYTES, stream, j);
  }
  return launched("normalisation's gradient: launch");
}

template <typename real>
bppsa_status normalise_weights(cudaStream_t stream, const bppsa_normalise_call *call, const void *dy, void *dw, void *db) {
  cnn_groups_job<real> j = groups_job<real>(call);
  const int64_t weights = j.at.by_channel ? call->layer->op.in[0] : j.at.g.size;
  j.dy = (const real *)dy;
  j.dw = (real *)dw;
  j.db = (real *)db;
  BPPSA_LAUNCH(bppsa_cnn_group_weights<real>, sums_of(weights), CNN_SUM_THREADS, SUM_BYTES, stream, j, weights);
  return launched("normalisation's weights: launch");
}

template <typename real>
bppsa_status normalise_block(cudaStream_t stream, const bppsa_normalise_call *call, int64_t k, int64_t stride, void *values) {
  cnn_groups_job<real> j = groups_job<real>(call);
  j.k = k;
  j.stride = stride;
  j.y = (real *)values;
  BPPSA_LAUNCH(bppsa_cnn_group_block<real>, blocks_of(j.batch * j.at.values), CNN_VALUE_THREADS, 0, stream, j);
  return launched("normalisation's entries: launch");
}

/* ---- batch norm ---- */

template <typename real> cnn_norm_job<real> norm_job(const bppsa_cnn_pass *pass) {
  const bppsa_op *op = &pass->about->op;
  const int statistics = pass->about->bias ? 2 : 0;
  cnn_norm_job<real> j = {};
  j.batch = pass->batch;
  j.channels = op->in[0];
  j.plane = op->in[1] * op->in[2];
  j.epsilon = op->epsilon;
  j.momentum = op->momentum;
  j.by_batch = pass->training.samples != nullptr && pass->training.batch_statistics;
  j.weight = (const real *)(pass->about->bias ? pass->parameters[0] : nullptr);
  j.bias = (const real *)(pass->about->bias ? pass->parameters[1] : nullptr);
  j.mean = (real *)pass->parameters[statistics];
  j.variance = (real *)pass->parameters[statistics + 1];
  j.kept = (real *)pass->kept;
  return j;
}

template <typename real> bppsa_status norm_forward(cudaStream_t stream, const bppsa_cnn_pass *pass, const void *x, void *y) {
  cnn_norm_job<real> j = norm_job<real>(pass);
  j.x = (const real *)x;
  j.to = (real *)y;
  if (j.by_batch) {
    BPPSA_LAUNCH(bppsa_cnn_norm_statistics<real>, sums_of(j.channels), CNN_SUM_THREADS, SUM_BYTES, stream, j);
  }
  BPPSA_LAUNCH(bppsa_cnn_norm_apply<real>, blocks_of(pass->batch * pass->in), CNN_VALUE_THREADS, 0, stream, j);
  return launched("batch norm: launch");
}

template <typename real>
bppsa_status norm_input(cudaStream_t stream, const bppsa_cnn_pass *pass, const void *dy, const void *x, void *dx) {
  cnn_norm_job<real> j = norm_job<real>(pass);
  j.dy = (const real *)dy;
  j.x = (const real *)x;
  j.to = (real *)dx;
  BPPSA_LAUNCH(bppsa_cnn_norm_input<real>, sums_of(j.channels), CNN_SUM_THREADS, SUM_BYTES, stream, j);
  return launched("batch norm's gradient: launch");
}

template <typename real>
bppsa_status norm_weights(cudaStream_t stream, const bppsa_cnn_pass *pass, const void *dy, const void *x) {
  const int statistics = pass->about->bias ? 2 : 0;
  cnn_norm_job<real> j = norm_job<real>(pass);
  j.dy = (const real *)dy;
  j.x = (const real *)x;
  j.dw = (real *)(pass->about->bias ? pass->gradients[0] : nullptr);
  j.db = (real *)(pass->about->bias ? pass->gradients[1] : nullptr);
  BPPSA_LAUNCH(bppsa_cnn_norm_weights<real>, sums_of(j.channels), CNN_SUM_THREADS, SUM_BYTES, stream, j,
               (real *)pass->gradients[statistics], (real *)pass->gradients[statistics + 1]);
  return launched("batch norm's weights: launch");
}

template <typename real> bppsa_status norm_scale(cudaStream_t stream, const bppsa_cnn_pass *pass, void *scale) {
  cnn_norm_job<real> j = norm_job<real>(pass);
  j.to = (real *)scale;
  BPPSA_LAUNCH(bppsa_cnn_norm_scale<real>, blocks_of(j.channels), CNN_VALUE_THREADS, 0, stream, j);
  return launched("batch norm's entries: launch");
}

/* ---- dropout ---- */

template <typename real>
bppsa_status drop(cudaStream_t stream, const bppsa_cnn_pass *pass, const int64_t *drawn, const void *from, void *to) {
  enum { NUMBERS = 4 };
  const double out = pass->about->op.p;
  cnn_drop d = {};
  d.size = pass->in;
  d.blocks = (d.size + NUMBERS - 1) / NUMBERS;
  d.seed = pass->training.seed;
  d.stream = (uint64_t)BPPSA_STREAM_DROPOUT + ((uint64_t)pass->training.layer << 8);
  d.most = out * 0x1p32;
  d.scale = (double)(real)(1 / (1 - out));
  d.drawn = drawn;
  BPPSA_LAUNCH(bppsa_cnn_dropout<real>, blocks_of(pass->batch * d.blocks), CNN_VALUE_THREADS, 0, stream, pass->batch * d.blocks,
               d, (const real *)from, (real *)to);
  return launched("dropout: launch");
}

} // namespace

extern "C" bppsa_status bppsa_move_queue(void *stream, bppsa_move_how how, bppsa_dtype dtype, int64_t batch, int64_t count,
                                         bppsa_cnn_part_view from, bppsa_cnn_part_view to) {
  return OF_DTYPE(dtype, move, (cudaStream_t)stream, how, batch, count, from, to);
}

extern "C" bppsa_status bppsa_move_queue_strided(void *stream, bppsa_move_how how, bppsa_dtype dtype, int64_t batch,
                                                 const int64_t shape[3], bppsa_cnn_part_view from, const int64_t from_strides[3],
                                                 bppsa_cnn_part_view to, const int64_t to_strides[3]) {
  return OF_DTYPE(dtype, move_strided, (cudaStream_t)stream, how, batch, shape, from, from_strides, to, to_strides);
}

extern "C" bppsa_status bppsa_move_queue_scattered(void *stream, bppsa_dtype dtype, int64_t batch, int64_t count,
                                                   const int64_t *places, bppsa_cnn_part_view from, bppsa_cnn_part_view to) {
  return OF_DTYPE(dtype, scatter, (cudaStream_t)stream, batch, count, places, from, to);
}

extern "C" bppsa_status bppsa_move_queue_ones(void *stream, bppsa_dtype dtype, int64_t count, void *to) {
  return OF_DTYPE(dtype, set_ones, (cudaStream_t)stream, count, to);
}

extern "C" bppsa_status bppsa_normalise_queue_forward(void *stream, const bppsa_normalise_call *call, void *y) {
  return OF_DTYPE(call->dtype, normalise, (cudaStream_t)stream, call, y);
}

extern "C" bppsa_status bppsa_normalise_queue_backward(void *stream, const bppsa_normalise_call *call, const void *dy, void *dx,
                                                       void *dsums) {
  return OF_DTYPE(call->dtype, normalise_back, (cudaStream_t)stream, call, dy, dx, dsums);
}

extern "C" bppsa_status bppsa_normalise_queue_weights(void *stream, const bppsa_normalise_call *call, const void *dy, void *dw,
                                                      void *db) {
  return OF_DTYPE(call->dtype, normalise_weights, (cudaStream_t)stream, call, dy, dw, db);
}

extern "C" bppsa_status bppsa_normalise_queue_block(void *stream, const bppsa_normalise_call *call, int64_t k, int64_t stride,
                                                    void *values) {
  return OF_DTYPE(call->dtype, normalise_block, (cudaStream_t)stream, call, k, stride, values);
}

extern "C" bppsa_status bppsa_norm_queue_forward(void *stream, const bppsa_cnn_pass *pass, const void *x, void *y) {
  return OF_DTYPE(pass->dtype, norm_forward, (cudaStream_t)stream, pass, x, y);
}

extern "C" bppsa_status bppsa_norm_queue_input(void *stream, const bppsa_cnn_pass *pass, const void *dy, const void *x,
                                               void *dx) {
  return OF_DTYPE(pass->dtype, norm_input, (cudaStream_t)stream, pass, dy, x, dx);
}

extern "C" bppsa_status bppsa_norm_queue_weights(void *stream, const bppsa_cnn_pass *pass, const void *dy, const void *x) {
  return OF_DTYPE(pass->dtype, norm_weights, (cudaStream_t)stream, pass, dy, x);
}

extern "C" bppsa_status bppsa_norm_queue_scale(void *stream, const bppsa_cnn_pass *pass, void *scale) {
  return OF_DTYPE(pass->dtype, norm_scale, (cudaStream_t)stream, pass, scale);
}

extern "C" bppsa_status bppsa_dropout_queue(void *stream, const bppsa_cnn_pass *pass, const int64_t *drawn, const void *from,
                                            void *to) {
  return OF_DTYPE(pass->dtype, drop, (cudaStream_t)stream, pass, drawn, from, to);
}

#include "cnn/conv.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/flush.h"
#include "core/compute/pool.h"

enum {
  COLUMN_REALS = 1 << 14, /* a block's column matrix stays in the second-level cache */
  LEAST_POSITIONS = 64,   /* of a block: enough to fill the kernels' vectors */
  MOST_PARTS = 64,        /* partial sums of a weight gradient */
  PART_REALS = 1 << 22,   /* of all partial sums together, at most, if there is more than one */
  CHANNEL_TILE = 64       /* output channels in a task of the weight gradient */
};

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

bppsa_status bppsa_conv_plan(const bppsa_op *op, bppsa_dtype dtype, int32_t threads, int64_t batch, bppsa_conv *conv) {
  bppsa_conv c = {.op = *op, .dtype = dtype, .threads = threads};
  BPPSA_TRY(bppsa_op_shape(op, c.out));
  c.taps = op->in[0] / op->groups * op->kernel[0] * op->kernel[1];
  c.height = op->out_channels / op->groups;
  c.width = c.out[1] * c.out[2];
  const int64_t positions = most(LEAST_POSITIONS, COLUMN_REALS / c.taps);
  c.samples = c.width >= positions ? 1 : least(most(1, positions / c.width), batch);
  c.rows = c.width <= positions ? c.out[1] : most(1, positions / c.out[2]);
  c.chunks = (c.out[1] + c.rows - 1) / c.rows;
  c.row_reals = bppsa_dtype_padded(dtype, c.taps + 1);
  const int64_t block = c.samples * c.rows * c.out[2];
  int64_t columns, rows, gathered, weights, blocks;
  if (!bppsa_mul(c.taps, block, &columns) || !bppsa_mul(c.row_reals, block, &rows) || !bppsa_mul(c.height, block, &gathered) ||
      columns > INT64_MAX / 64 || rows > INT64_MAX / 64 || gathered > INT64_MAX / 64 ||
      !bppsa_mul(op->out_channels, c.taps + 1, &weights) || weights > INT64_MAX / 64 / MOST_PARTS ||
      !bppsa_mul((batch + c.samples - 1) / c.samples, c.chunks, &blocks)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "conv2d: columns of %lld taps at %lld positions do not fit in 64 bits", (long long)c.taps,
                      (long long)block);
  }
  c.scratch_reals = bppsa_dtype_padded(dtype, columns) + bppsa_dtype_padded(dtype, rows) + bppsa_dtype_padded(dtype, gathered);
  c.most_parts = least(least(MOST_PARTS, blocks), most(1, PART_REALS / weights));
  *conv = c;
  return BPPSA_OK;
}

int64_t bppsa_conv_scratch(const bppsa_conv *conv) {
  return conv->scratch_reals * conv->threads;
}

int64_t bppsa_conv_sums(const bppsa_conv *conv) {
  return conv->most_parts * conv->op.out_channels * (conv->taps + 1);
}

/* A block: output rows y0 .. y1-1 of samples s0 .. s1-1. */
typedef struct {
  int64_t s0, s1, y0, y1;
} conv_block;

static conv_block block_at(const bppsa_conv *c, int64_t batch, int64_t index) {
  const int64_t s = index / c->chunks * c->samples, y = index % c->chunks * c->rows;
  return (conv_block){s, least(s + c->samples, batch), y, least(y + c->rows, c->out[1])};
}

static int64_t block_count(const bppsa_conv *c, int64_t batch) {
  return (batch + c->samples - 1) / c->samples * c->chunks;
}

/* Number of tiles of a group's output channels, for the gradient of weights. */
static int64_t tiles_of(const bppsa_conv *c) {
  return (c->height + CHANNEL_TILE - 1) / CHANNEL_TILE;
}

/* The work of a pass, for bppsa_parallel_for. */
static double work_of(const bppsa_conv *c, int64_t batch) {
  return bppsa_loop_work(2 * (double)batch * (double)c->op.out_channels * (double)c->taps * (double)c->width, 0);
}

/* Are the columns the input itself? They are for a 1 x 1 convolution of whole planes. */
static bool is_pointwise(const bppsa_op *op) {
  return op->kernel[0] == 1 && op->kernel[1] == 1 && op->stride[0] == 1 && op->stride[1] == 1 && op->padding[0] == 0 &&
         op->padding[1] == 0 && op->padding[2] == 0 && op->padding[3] == 0;
}

/* For tap t of an axis: the first output that reads inside the input, and one past the last, among outputs 0 .. count - 1. */
static void span(const bppsa_op *op, int axis, int64_t t, int64_t count, int64_t *from, int64_t *to) {
  const int64_t start = t * op->dilation[axis] - op->padding[2 * axis], s = op->stride[axis];
  if (s == 1) { /* divisions would take longer than the copying */
    *from = least(count, start < 0 ? -start : 0);
    *to = most(*from, least(count, op->in[axis + 1] - start));
    return;
  }
  *from = least(count, start < 0 ? (-start + s - 1) / s : 0);
  *to = most(*from, least(count, op->in[axis + 1] - 1 < start ? 0 : (op->in[axis + 1] - 1 - start) / s + 1));
}

#define EACH_REAL "cnn/conv.inc"
#include "core/base/each_real.inc"

void bppsa_conv_forward(const bppsa_conv *conv, int64_t batch, const void *x, const void *weights, const void *bias,
                        void *scratch, void *y) {
  (conv->dtype == BPPSA_F32 ? forward_f32 : forward_f64)(conv, batch, x, weights, bias, scratch, y);
}

void bppsa_conv_input_gradient(const bppsa_conv *conv, int64_t batch, const void *dy, const void *weights, void *scratch,
                               void *dx) {
  (conv->dtype == BPPSA_F32 ? input_gradient_f32 : input_gradient_f64)(conv, batch, dy, weights, scratch, dx);
}

void bppsa_conv_weight_gradient(const bppsa_conv *conv, int64_t batch, const void *dy, const void *x, void *scratch, void *sums,
                                void *dw, void *db) {
  (conv->dtype == BPPSA_F32 ? weight_gradient_f32 : weight_gradient_f64)(conv, batch, dy, x, scratch, sums, dw, db);
}

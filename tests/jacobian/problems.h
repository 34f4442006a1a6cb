/* Random operators with their operands, for the tests of generators. */
#ifndef BPPSA_TESTS_JACOBIAN_PROBLEMS_H
#define BPPSA_TESTS_JACOBIAN_PROBLEMS_H

#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "gru/gru.h"
#include "jacobian/jacobian.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/core/helpers.h"
#include "tests/jacobian/forward.h"
#include "tests/support/support.h"

typedef struct {
  uint64_t seed, next;
} stream;

static inline int64_t below(stream *s, int64_t bound) {
  return (int64_t)bppsa_random_below(s->seed, 77, s->next++, (uint64_t)bound);
}

static inline int64_t between(stream *s, int64_t least, int64_t most) {
  return least + below(s, most - least + 1);
}

/* Operators by number: kinds, the steps of the cells last. */
enum { RNN = BPPSA_OPERATOR_STEP, GRU, LSTM, OPERATORS };

static inline bppsa_op op_numbered(int64_t number) {
  bppsa_op op = bppsa_op_default(number < RNN ? (bppsa_operator)number : BPPSA_OPERATOR_STEP);
  const bppsa_step *const steps[] = {&bppsa_rnn_step, &bppsa_gru_step, &bppsa_lstm_step};
  op.step = number >= RNN ? steps[number - RNN] : NULL;
  op.in[0] = number == LSTM ? 2 : 1;
  return op;
}

static inline int number_of(const bppsa_op *op) {
  return op->step == &bppsa_lstm_step ? LSTM : op->step == &bppsa_gru_step ? GRU : (int)op->kind;
}

static inline bppsa_op random_op(stream *s) {
  bppsa_op op = op_numbered(below(s, OPERATORS));
  const bool pool = op.kind == BPPSA_OPERATOR_MAXPOOL2D || op.kind == BPPSA_OPERATOR_AVGPOOL2D;
  const bool cell = op.kind == BPPSA_OPERATOR_STEP;
  op.groups = op.kind == BPPSA_OPERATOR_CONV2D ? between(s, 1, 3) : 1;
  op.in[0] = op.groups * between(s, 1, 3);
  op.out_channels = op.groups * between(s, 1, 3);
  if (op.kind == BPPSA_OPERATOR_CONV2D && below(s, 5) == 0) { /* depthwise */
    op.groups = op.in[0];
    op.out_channels = op.in[0] * between(s, 1, 2);
  }
  for (int i = 0; i < 2; ++i) {
    op.in[i + 1] = cell ? 1 : between(s, 1, 8);
    op.kernel[i] = below(s, 6) == 0 ? 1 : below(s, 6) == 0 ? between(s, 5, 8) : between(s, 1, 4);
    op.stride[i] = between(s, 1, 4); /* beyond the kernel: rows stay empty */
    op.dilation[i] = op.kind == BPPSA_OPERATOR_AVGPOOL2D ? 1 : between(s, 1, 3);
    for (int end = 0; end < 2; ++end) {
      op.padding[2 * i + end] = below(s, pool ? op.kernel[i] / 2 + 1 : 5); /* a convolution's may exceed its kernel */
    }
  }
  op.in[0] = cell ? (op.step->pair ? 2 : 1) * between(s, 1, 6) : op.in[0];
  op.ceil_mode = below(s, 2) == 1;
  op.exclude_pad = below(s, 2) == 1;
  op.relu = below(s, 2) == 1;
  op.slope = 0.25;
  op.approximate = below(s, 2) == 1;
  for (int i = 0; i < 2; ++i) {
    op.size[i] = op.kind == BPPSA_OPERATOR_GLOBAL_AVGPOOL ? 1 : between(s, 1, 9); /* windows may overlap or repeat */
  }
  return op;
}

/* A random operator with at least one output, its operands and values. */
typedef struct {
  forward_op f;
  int64_t batch, ins, outs, weights;
  bppsa_dtype dtype;
  uint8_t *mask;
  double *x, *masked;
  double *arrays[5], *scale; /* scale: of batchnorm2d's channels */
  void *typed[7];
} problem;

static inline bool is_cell(const bppsa_op *op) {
  return op->kind == BPPSA_OPERATOR_STEP;
}

static inline bool is_activation(bppsa_operator kind) {
  return kind >= BPPSA_OPERATOR_RELU6 && kind <= BPPSA_OPERATOR_GELU;
}

/* Integers, all different within a sample, none 0, so that differences of 1/4 cross no kink; reals for smooth functions, and wide
 * ones for activations, whose kinks are between 0 and 6. */
static inline double *make_input(stream *s, const bppsa_op *op, int64_t batch, int64_t count) {
  double *x = uniform(s->seed + s->next++, batch * count, is_activation(op->kind) ? 8 : 2);
  const bool kinks =
      op->kind == BPPSA_OPERATOR_RELU || op->kind == BPPSA_OPERATOR_LEAKY_RELU || op->kind == BPPSA_OPERATOR_MAXPOOL2D;
  for (int64_t b = 0; kinks && b < batch; ++b) {
    for (int64_t i = 0; i < count; ++i) {
      x[b * count + i] = (double)(2 * i - count) + 1.5 * (double)((2 * i - count) >= 0);
    }
    for (int64_t i = count - 1; i > 0; --i) {
      const int64_t k = below(s, i + 1);
      const double swap = x[b * count + i];
      x[b * count + i] = x[b * count + k];
      x[b * count + k] = swap;
    }
  }
  return x;
}

/* Weights of both signs, none near 0; some masked. */
static inline void make_weights(stream *s, problem *p) {
  p->weights = bppsa_op_weights(&p->f.op);
  const int64_t gates = is_cell(&p->f.op) ? p->f.op.step->gates : 1, h = bppsa_op_units(&p->f.op);
  p->f.inputs = below(s, 3);
  const int64_t sizes[5] = {p->weights, gates * h * p->f.inputs, gates * h, gates * h, p->batch * p->f.inputs};
  const int64_t density = below(s, 4); /* of kept weights: 0: none; 3: no mask */
  p->mask = density < 3 ? bppsa_calloc(p->weights, 1) : NULL;
  for (int i = 0; i < 5; ++i) {
    p->arrays[i] = uniform(s->seed + s->next++, sizes[i], 1);
    for (int64_t k = 0; i == 0 && k < sizes[0]; ++k) {
      p->arrays[0][k] += p->arrays[0][k] < 0 ? -0.5 : 0.5;
    }
    p->typed[i] = rounded(p->dtype, p->arrays[i], sizes[i]);
  }
  p->masked = bppsa_calloc(p->weights, sizeof *p->masked);
  for (int64_t k = 0; k < p->weights; ++k) {
    if (p->mask != NULL) {
      p->mask[k] = (uint8_t)(density > 0 && below(s, 2) == 0);
    }
    p->masked[k] = p->mask == NULL || p->mask[k] ? p->arrays[0][k] : 0;
  }
}

static inline problem make_problem(stream *s) {
  problem p = {.batch = below(s, 4), .dtype = below(s, 2) == 0 ? BPPSA_F32 : BPPSA_F64};
  do {
    p.f.op = random_op(s);
  } while (bppsa_op_shape(&p.f.op, p.f.out) != BPPSA_OK);
  p.ins = p.f.op.in[0] * p.f.op.in[1] * p.f.op.in[2];
  p.outs = p.f.out[0] * p.f.out[1] * p.f.out[2];
  p.x = make_input(s, &p.f.op, p.batch, p.ins);
  p.typed[5] = rounded(p.dtype, p.x, p.batch * p.ins);
  make_weights(s, &p);
  p.scale = uniform(s->seed + s->next++, p.f.op.in[0], 1);
  for (int64_t c = 0; c < p.f.op.in[0]; ++c) {
    p.scale[c] += p.scale[c] < 0 ? -0.5 : 0.5;
  }
  p.typed[6] = rounded(p.dtype, p.scale, p.f.op.in[0]);
  p.f.scale = p.scale;
  p.f.weights = p.masked;
  p.f.weights_ih = p.arrays[1];
  p.f.bias_ih = p.arrays[2];
  p.f.bias_hh = p.arrays[3];
  return p;
}

static inline void free_problem(problem *p) {
  for (int i = 0; i < 7; ++i) {
    bppsa_free(p->typed[i]);
    bppsa_free(i < 5 ? p->arrays[i] : NULL);
  }
  bppsa_free(p->mask);
  bppsa_free(p->scale);
  bppsa_free(p->masked);
  bppsa_free(p->x);
}

static inline bppsa_jacobian_operands operands_of(const problem *p, bool from_output) {
  return (bppsa_jacobian_operands){.batch = p->batch,
                                   .weights = p->typed[0],
                                   .input = is_cell(&p->f.op) ? p->typed[4]
                                            : from_output     ? NULL
                                                              : p->typed[5],
                                   .output = from_output ? p->typed[5] : NULL,
                                   .scale = p->typed[6],
                                   .inputs = p->f.inputs,
                                   .state = p->typed[5],
                                   .weights_ih = p->typed[1],
                                   .bias_ih = p->typed[2],
                                   .bias_hh = p->typed[3]};
}

/* A generator that is made again and again while its allocations fail. */
typedef struct {
  bppsa_op op;
  const uint8_t *mask;
  const bppsa_device *device;
} creation;

/* Walks the allocations of every operator's generator, with a mask and without: `once` is given a creation. */
static inline void walk_creations(const bppsa_device *device, bppsa_status (*once)(void *)) {
  const uint8_t mask[27] = {1, 0, 1};
  const bool gpu = device != NULL && bppsa_device_get_kind(device) == BPPSA_CUDA; /* which has no kernels of pairs */
  for (int k = 0; k < (gpu ? LSTM : OPERATORS); ++k) {
    for (int masked = 0; masked < 2; ++masked) {
      creation c = {.op = op_numbered(k), .device = device};
      c.op.in[1] = c.op.in[2] = k >= RNN ? 1 : 3;
      c.mask = masked && bppsa_op_weights(&c.op) > 0 ? mask : NULL;
      assert_true(walk_allocations(once, &c) > 3);
    }
  }
}

#endif

/* Textbook forward operators in float64, the reference for Jacobians. They know nothing of sparsity and share no code with the
 * library. */
#ifndef BPPSA_TESTS_JACOBIAN_FORWARD_H
#define BPPSA_TESTS_JACOBIAN_FORWARD_H

#include <math.h>

#include "jacobian/op.h"

/* The operands of a forward pass besides x. */
typedef struct {
  bppsa_op op;
  int64_t out[3];
  const double *weights, *weights_ih, *bias_ih, *bias_hh, *x; /* x [inputs]: the cell's other input */
  int64_t inputs;
  const double *scale; /* batchnorm2d: a factor of each channel */
} forward_op;

static inline void forward_window(const forward_op *f, const double *in, double *out) {
  const bppsa_op *o = &f->op;
  const int64_t H = o->in[1], W = o->in[2], group_in = o->in[0] / o->groups, group_out = f->out[0] / o->groups;
  const bool conv = o->kind == BPPSA_OPERATOR_CONV2D, most = o->kind == BPPSA_OPERATOR_MAXPOOL2D;
  for (int64_t c = 0; c < f->out[0]; ++c) {
    for (int64_t Y = 0; Y < f->out[1]; ++Y) {
      for (int64_t X = 0; X < f->out[2]; ++X) {
        double sum = 0, largest = -INFINITY;
        int64_t inside = 0, all = 0;
        for (int64_t a = 0; a < o->kernel[0]; ++a) {
          for (int64_t b = 0; b < o->kernel[1]; ++b) {
            const int64_t y = Y * o->stride[0] + a * o->dilation[0] - o->padding[0];
            const int64_t x = X * o->stride[1] + b * o->dilation[1] - o->padding[2];
            all += y < H + o->padding[1] && x < W + o->padding[3];
            if (y < 0 || y >= H || x < 0 || x >= W) {
              continue;
            }
            ++inside;
            for (int64_t i = 0; conv && i < group_in; ++i) {
              const double w = f->weights[((c * group_in + i) * o->kernel[0] + a) * o->kernel[1] + b];
              sum += w * in[((c / group_out * group_in + i) * H + y) * W + x];
            }
            if (!conv) {
              const double v = in[(c * H + y) * W + x];
              sum += v;
              largest = v > largest || v != v ? v : largest;
            }
          }
        }
        const double mean = sum / (double)(o->exclude_pad ? inside : all);
        out[(c * f->out[1] + Y) * f->out[2] + X] = conv ? sum : most ? largest : mean;
      }
    }
  }
}

static inline double forward_dot(const double *w, const double *v, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += w[i] * v[i];
  }
  return sum;
}

static inline double forward_sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

static inline double forward_relu6(double x) {
  return fmin(fmax(x, 0), 6);
}

/* An elementwise operator. */
static inline double forward_function(const bppsa_op *op, double v) {
  switch (op->kind) {
  case BPPSA_OPERATOR_RELU:
    return fmax(0, v);
  case BPPSA_OPERATOR_LEAKY_RELU:
    return v > 0 ? v : op->slope * v;
  case BPPSA_OPERATOR_TANH:
    return tanh(v);
  case BPPSA_OPERATOR_SIGMOID:
    return forward_sigmoid(v);
  case BPPSA_OPERATOR_RELU6:
    return forward_relu6(v);
  case BPPSA_OPERATOR_HARDSIGMOID:
    return forward_relu6(v + 3) / 6;
  case BPPSA_OPERATOR_HARDSWISH:
    return v * forward_relu6(v + 3) / 6;
  case BPPSA_OPERATOR_SILU:
    return v * forward_sigmoid(v);
  case BPPSA_OPERATOR_GELU:
    return op->approximate ? v * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v))) / 2 : v * erfc(-v / sqrt(2)) / 2;
  default: /* flatten */
    return v;
  }
}

/* The mean over the inputs floor(X in / out) .. ceil((X + 1) in / out) - 1 along each axis. */
static inline void forward_adaptive(const forward_op *f, const double *in, double *out) {
  const int64_t H = f->op.in[1], W = f->op.in[2], h = f->out[1], w = f->out[2];
  for (int64_t i = 0; i < f->out[0] * h * w; ++i) {
    const int64_t Y = i / w % h, X = i % w, c = i / (h * w);
    double sum = 0;
    int64_t count = 0;
    for (int64_t y = 0; y < H; ++y) {
      for (int64_t x = 0; x < W; ++x) {
        const bool down =
            y >= (int64_t)floor((double)(Y * H) / (double)h) && y < (int64_t)ceil((double)((Y + 1) * H) / (double)h);
        const bool across =
            x >= (int64_t)floor((double)(X * W) / (double)w) && x < (int64_t)ceil((double)((X + 1) * W) / (double)w);
        sum += down && across ? in[(c * H + y) * W + x] : 0;
        count += down && across;
      }
    }
    out[i] = sum / (double)count;
  }
}

static inline void forward_cell(const forward_op *f, const double *h, double *out) {
  const int64_t n = bppsa_op_units(&f->op);
  for (int64_t i = 0; i < n; ++i) {
    double px[4] = {0}, ph[4] = {0};
    for (int64_t k = 0; k < f->op.step->gates; ++k) {
      const int64_t row = k * n + i;
      px[k] = f->bias_ih[row] + forward_dot(f->weights_ih + row * f->inputs, f->x, f->inputs);
      ph[k] = f->bias_hh[row] + forward_dot(f->weights + row * n, h, n);
    }
    if (f->op.step->gates == 1) { /* the RNN */
      out[i] = f->op.relu ? fmax(0, px[0] + ph[0]) : tanh(px[0] + ph[0]);
      continue;
    }
    if (f->op.step->pair) { /* the LSTM, otherwise the GRU */
      out[n + i] = forward_sigmoid(px[1] + ph[1]) * h[n + i] + forward_sigmoid(px[0] + ph[0]) * tanh(px[2] + ph[2]);
      out[i] = forward_sigmoid(px[3] + ph[3]) * tanh(out[n + i]);
      continue;
    }
    const double r = forward_sigmoid(px[0] + ph[0]), z = forward_sigmoid(px[1] + ph[1]), m = tanh(px[2] + r * ph[2]);
    out[i] = (1 - z) * m + z * h[i];
  }
}

static inline void forward_run(const forward_op *f, const double *in, double *out) {
  const int64_t n = f->op.in[0] * f->op.in[1] * f->op.in[2];
  switch (f->op.kind) {
  case BPPSA_OPERATOR_CONV2D:
  case BPPSA_OPERATOR_MAXPOOL2D:
  case BPPSA_OPERATOR_AVGPOOL2D:
    forward_window(f, in, out);
    return;
  case BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D:
  case BPPSA_OPERATOR_GLOBAL_AVGPOOL:
    forward_adaptive(f, in, out);
    return;
  case BPPSA_OPERATOR_BATCHNORM2D:
    for (int64_t i = 0; i < n; ++i) {
      out[i] = in[i] * f->scale[i / (f->op.in[1] * f->op.in[2])];
    }
    return;
  case BPPSA_OPERATOR_LINEAR:
    for (int64_t i = 0; i < f->out[0]; ++i) {
      out[i] = forward_dot(f->weights + i * n, in, n);
    }
    return;
  case BPPSA_OPERATOR_STEP:
    forward_cell(f, in, out);
    return;
  default:
    break;
  }
  for (int64_t i = 0; i < n; ++i) {
    out[i] = forward_function(&f->op, in[i]);
  }
}

#endif

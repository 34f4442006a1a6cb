/* Chains of sparse Jacobians with their values and gradients, for the tests of sparse scans. */
#ifndef BPPSA_TESTS_SCAN_CSR_CHAIN_H
#define BPPSA_TESTS_SCAN_CSR_CHAIN_H

#include <math.h>
#include <string.h>

#include "core/base/philox.h"
#include "core/compute/memory.h"
#include "jacobian/jacobian.h"
#include "scan/scan.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

enum { LONGEST = 34 };

static uint64_t counter;

static inline int64_t below(int64_t bound) {
  return (int64_t)bppsa_random_below(8, 99, counter++, (uint64_t)bound);
}

/* A chain of operators, J_1ᵀ first, with its values and the recurrence's gradients. */
typedef struct {
  int64_t n, batch;
  bppsa_dtype dtype;
  bppsa_jacobian *j[LONGEST];
  bppsa_csr plain[LONGEST]; /* the pattern, with its structure or without */
  const bppsa_csr *patterns[LONGEST];
  double *wide[LONGEST];
  void *typed[LONGEST];
  bppsa_csr_values values[LONGEST];
  int64_t offsets[LONGEST + 2]; /* of g_t, one sample */
  double *g;                    /* reference [g_0 .. g_n][batch][.] */
  void *seed;                   /* typed, the seed in g_n, 0 elsewhere */
} chain;

static inline bool random_op(const int64_t in[3], bool last, bppsa_op *op, int64_t out[3]) {
  static const bppsa_operator kinds[] = {BPPSA_OPERATOR_CONV2D,    BPPSA_OPERATOR_CONV2D,   BPPSA_OPERATOR_RELU,
                                         BPPSA_OPERATOR_MAXPOOL2D, BPPSA_OPERATOR_RELU,     BPPSA_OPERATOR_FLATTEN,
                                         BPPSA_OPERATOR_LINEAR,    BPPSA_OPERATOR_AVGPOOL2D};
  *op = bppsa_op_default(kinds[below(last ? 8 : 6)]);
  memcpy(op->in, in, sizeof op->in);
  op->groups = op->kind == BPPSA_OPERATOR_CONV2D && below(3) == 0 ? in[0] : 1;
  op->out_channels = op->groups * (1 + below(op->groups > 1 ? 2 : 5));
  for (int i = 0; i < 2; ++i) {
    op->kernel[i] = 1 + below(3);
    op->stride[i] = 1 + below(2);
    op->padding[2 * i] = op->kind == BPPSA_OPERATOR_CONV2D ? below(2) : 0;
  }
  return bppsa_op_shape(op, out) == BPPSA_OK;
}

/* g_{t-1} = J_tᵀ g_t, in float64. */
static inline void recur(chain *c) {
  for (int64_t t = c->n; t >= 1; --t) {
    const bppsa_csr *jt = c->patterns[t - 1];
    for (int64_t b = 0; b < c->batch; ++b) {
      const double *in = c->g + c->offsets[t] * c->batch + b * jt->cols, *v = c->wide[t - 1] + b * c->values[t - 1].stride;
      double *out = c->g + c->offsets[t - 1] * c->batch + b * jt->rows;
      for (int64_t r = 0; r < jt->rows; ++r) {
        out[r] = 0;
        for (int64_t p = jt->row_ptr[r]; p < jt->row_ptr[r + 1]; ++p) {
          out[r] += (jt->identity ? 1 : v[p]) * in[jt->col[p]];
        }
      }
    }
  }
}

static inline void set_values(chain *c, int64_t t, bool shared) {
  const bppsa_csr *jt = c->patterns[t];
  const int64_t count = jt->nnz * (shared ? 1 : c->batch);
  c->wide[t] = uniform(100 + counter++, count, 1.5 / sqrt((double)(jt->nnz + 1) / (double)jt->rows));
  c->typed[t] = rounded(c->dtype, c->wide[t], count);
  c->values[t] = (bppsa_csr_values){jt->identity ? NULL : c->typed[t], shared ? 0 : jt->nnz};
}

static inline void make_seed(chain *c) {
  c->offsets[0] = 0;
  for (int64_t t = 0; t <= c->n; ++t) {
    c->offsets[t + 1] = c->offsets[t] + (t == 0 ? c->patterns[0]->rows : c->patterns[t - 1]->cols);
  }
  const int64_t all = c->offsets[c->n + 1] * c->batch, last = c->offsets[c->n] * c->batch;
  c->g = uniform(100 + counter++, all, 1);
  memset(c->g, 0, (size_t)last * sizeof *c->g);
  c->seed = rounded(c->dtype, c->g, all);
  recur(c);
}

static inline void make_chain(chain *c, int64_t n, bppsa_dtype dtype, const bppsa_device *device) {
  *c = (chain){.n = n, .batch = 1 + below(3), .dtype = dtype};
  int64_t shape[3] = {1 + below(4), 2 + below(6), 2 + below(6)}, out[3];
  for (int64_t t = 0; t < n; ++t) {
    bppsa_op op;
    while (!random_op(shape, n - t < 3, &op, out)) {
    }
    assert_int_equal(bppsa_jacobian_create(&op, NULL, false, device, &c->j[t]), BPPSA_OK);
    c->plain[t] = *bppsa_jacobian_pattern(c->j[t]);
    c->plain[t].blocks = below(4) == 0 ? NULL : c->plain[t].blocks;
    c->patterns[t] = &c->plain[t];
    set_values(c, t, bppsa_jacobian_shared(c->j[t]));
    memcpy(shape, out, sizeof shape);
  }
  make_seed(c);
}

static inline void free_chain(chain *c) {
  for (int64_t t = 0; t < c->n; ++t) {
    bppsa_jacobian_destroy(c->j[t]);
    bppsa_free(c->wide[t]);
    bppsa_free(c->typed[t]);
  }
  bppsa_free(c->g);
  bppsa_free(c->seed);
}

static inline bppsa_scan_config config_of(const chain *c, bppsa_scan_algorithm algorithm, int64_t levels,
                                          const bppsa_device *device) {
  bppsa_scan_config config = bppsa_scan_config_default();
  config.element = BPPSA_ELEMENT_CSR;
  config.method.algorithm = algorithm;
  config.method.up_levels = levels;
  config.dtype = c->dtype;
  config.jacobians = c->n;
  config.batch = c->batch;
  config.input = true;
  config.patterns = c->patterns;
  config.planner = device;
  return config;
}

/* Values in the device's memory, instead of those in host memory. */
static inline void move_values(const chain *c, const bppsa_device *device, bppsa_csr_values *moved) {
  for (int64_t t = 0; t < c->n; ++t) {
    const int64_t count = c->patterns[t]->nnz * (c->values[t].stride == 0 ? 1 : c->batch);
    moved[t].stride = c->values[t].stride;
    moved[t].data = on_device(device, c->values[t].data, count * (int64_t)bppsa_dtype_size(c->dtype));
  }
}

static inline void free_values(const chain *c, const bppsa_device *device, bppsa_csr_values *moved) {
  for (int64_t t = 0; t < c->n; ++t) {
    bppsa_memory_free(device, (void *)moved[t].data);
  }
}

#endif

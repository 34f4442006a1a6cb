/* What the benchmarks of the sparse engine share: bench product, bench jacobian, bench scan.
 *
 *   floor     what a pass takes at least: the larger of its FLOPs over the measured peak and its bytes over the measured
 *   bandwidth, all threads
 *   bytes     values and indices a pass reads, and values it writes, once each
 *   plan      seconds of planning, and how many numeric passes they are; of rivals without taking over the factors
 *   residual  max |c - ref| / (ε Σ |a b|) over the entries, against float64
 */
#ifndef BPPSA_CLI_BENCH_SPARSE_H
#define BPPSA_CLI_BENCH_SPARSE_H

#include "cli/bench.h"
#include "jacobian/file.h"
#include "jacobian/jacobian.h"
#include "jacobian/product.h"

/* ---- the machine's limits ---- */

typedef struct {
  double peak;                    /* FLOP/s */
  double write_bytes, copy_bytes; /* bytes/s: written past the caches; read and written */
} bppsa_machine_limits;

/* Measures them on all threads, or of a GPU (core/peak.h), best of several runs. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_bench_limits_measure(const bppsa_device *device, bppsa_machine_limits *limits);

/* ---- what has no row ---- */

/* The document's left_out: a list, empty. ERR_MEMORY. */
bppsa_status bppsa_bench_list_left_out(const bppsa_bench_output *output, json_t **left_out);
/* One more: names (a key, its text, ..., NULL) and the reason. ERR_MEMORY. */
bppsa_status bppsa_bench_leave_out(json_t *left_out, const char *const *names, const char *reason);

/* ---- cases of products ---- */

/* Two factors with values f32. */
typedef struct {
  const char *name, *text;
  bppsa_jacobian *jacobians[3]; /* of two operators with weights and a ReLU between them; [1] NULL without it */
  bppsa_product *left;          /* of the first and the ReLU, whose pattern is the left factor; NULL without a ReLU */
  const bppsa_csr *a, *b;
  float *a_values, *b_values;
  bppsa_csr_matrix files[2];  /* of factors that were read */
  const bppsa_device *device; /* where it is measured, for rivals; the case itself lies in host memory */
} bppsa_product_case;

/* Case `index`: A (conv3·conv4 of VGG-11 with 3 % of the weights), B (16 -> 16 -> 16 channels at 16 x 16, conv·relu·conv), B
 * with 64 channels at 8 x 8, D (fc1·relu·fc2 of LeNet-5, two full factors), D with 1024 x 1024 each. *more is false past the
 * last. Free with _free in every case. */
bppsa_status bppsa_product_case_make(int64_t index, uint64_t seed, const bppsa_device *device, bppsa_product_case *made,
                                     bool *more);
/* The case "files": factors from NPZ or Matrix Market files, as f32. ERR_* of bppsa_csr_load; ERR_ARGUMENT: a file cannot be
 * read. Free likewise. */
bppsa_status bppsa_product_case_load(const char *left, const char *right, bppsa_product_case *made);
void bppsa_product_case_free(bppsa_product_case *c);
/* An operator's Jacobian with values: weights uniform in ±1, of which a fraction `kept`, chosen at random, is in the pattern;
 * where there are none, 1 for a quarter (pools) or half (functions) of the entries, 0 for the others. Both are the caller's, also
 * after a failure. */
bppsa_status bppsa_bench_factor(const bppsa_op *op, double kept, uint64_t seed, const bppsa_device *device, bppsa_jacobian **j,
                                float **values);

/* The products of the scan of VGG-11's operators with so many up-levels, a fraction `kept` of its weights left, in the order in
 * which they run (bench_chain.c).
 * _next computes the product too, as an operand of later ones; *more is false past the last. Cases are freed before the chain. */
typedef struct bppsa_product_chain bppsa_product_chain;
bppsa_status bppsa_product_chain_create(int64_t up_levels, double kept, uint64_t seed, const bppsa_device *device,
                                        bppsa_product_chain **chain);
bppsa_status bppsa_product_chain_next(bppsa_product_chain *chain, bppsa_product_case *made, bool *more);
void bppsa_product_chain_destroy(bppsa_product_chain *chain); /* NULL is legal */

/* Σ a b and Σ |a b| for every entry of C's pattern in float64, [nnz] each (owned). */
bppsa_status bppsa_product_case_reference(const bppsa_product_case *c, const bppsa_csr *pattern, double **sums,
                                          double **magnitudes);

/* ---- rivals: other libraries ----
 *
 * Of processors in a program of their own (cli/rivals/); of GPUs cuSPARSE and cuBLAS (product_cusparse.c, product_cublas.c),
 * which are loaded where they are. */

typedef struct {
  const char *name;   /* "graphblas" */
  const char *method; /* "full": pattern and values; "numeric": values on a planned pattern */
  /* Takes over the case's matrices as the library wants them. ERR_UNSUPPORTED: not this case; the row is left out. */
  bppsa_status (*create)(const bppsa_product_case *c, int32_t threads, void **state);
  bppsa_status (*plan)(
      void *state);                 /* behind create; it has happened on return. NULL: every run does all of it. ERR_* as there */
  bppsa_status (*run)(void *state); /* the product that is timed */
  /* After a run: C's values as [nnz], in the order of `pattern` (zeros where the library keeps no entry), to be verified. */
  bppsa_status (*read)(void *state, const bppsa_csr *pattern, float *values);
  void (*destroy)(void *state);
} bppsa_product_rival;

/* A GPU's rival has all that and more: lists for GPUs point to these, by their first member. */
typedef struct {
  bppsa_product_rival rival;
  bppsa_status (*clear)(void *state); /* C's values that an earlier run left are 0 again */
} bppsa_product_gpu_rival;

typedef const bppsa_product_rival *const *bppsa_product_rival_list; /* NULL-terminated */
extern bppsa_product_rival_list bppsa_product_rivals;               /* empty in the program bppsa */
/* Of GPUs, a library each; empty in a build without its header. */
extern const bppsa_product_rival *const bppsa_product_cusparse_rivals[];
extern const bppsa_product_rival *const bppsa_product_cublas_rivals[];
extern bppsa_product_rival_list bppsa_product_rivals_on_gpu[]; /* those lists, unless a test has others; NULL-terminated */

#endif

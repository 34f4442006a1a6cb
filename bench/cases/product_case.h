/* The cases of `bench product`: pairs of sparse factors, and the libraries that multiply them beside the project.
 *
 *   floor     the least time of a pass: the larger of its FLOPs over the measured peak and its bytes over the measured
 *             bandwidth, on all threads
 *   bytes     values and indices that a pass reads, and values that it writes, once each
 *   plan      seconds of planning, and how many numeric passes would take as long; a rival's plan does not include taking
 *             over the factors
 *   residual  max |c - ref| / (ε Σ |a b|) over the entries, against float64
 */
#ifndef BPPSA_BENCH_CASES_PRODUCT_CASE_H
#define BPPSA_BENCH_CASES_PRODUCT_CASE_H

#include "jacobian/file.h"
#include "jacobian/jacobian.h"
#include "jacobian/product.h"
#include "scan/algorithm.h"

/* ---- cases of products ---- */

/* Two factors with values f32. */
typedef struct {
  const char *name, *text;
  bppsa_jacobian *jacobians[3]; /* of the first operator, the ReLU and the second operator; [1] is NULL without a ReLU */
  bppsa_product *left; /* the product of the first operator and the ReLU, which is the left factor; NULL without a ReLU */
  const bppsa_csr *a, *b;
  float *a_values, *b_values;
  bppsa_csr_matrix files[2];  /* the factors, if they were read */
  const bppsa_device *device; /* the device on which rivals run; the case itself is in host memory */
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

/* The products of a scan of VGG-11's operators by a method, a fraction `kept` of its weights left, in the order in which they run
 * (product_chain.c).
 * _next computes the product too, as an operand of later ones; *more is false past the last. Cases are freed before the chain. */
typedef struct bppsa_product_chain bppsa_product_chain;
bppsa_status bppsa_product_chain_create(const bppsa_scan_method *method, double kept, uint64_t seed, const bppsa_device *device,
                                        bppsa_product_chain **chain);
bppsa_status bppsa_product_chain_next(bppsa_product_chain *chain, bppsa_product_case *made, bool *more);
void bppsa_product_chain_destroy(bppsa_product_chain *chain); /* NULL is legal */

/* Σ a b and Σ |a b| for every entry of C's pattern in float64, [nnz] each (owned). */
bppsa_status bppsa_product_case_reference(const bppsa_product_case *c, const bppsa_csr *pattern, double **sums,
                                          double **magnitudes);

/* ---- rivals: other libraries ----
 *
 * Libraries for processors are linked into a program of their own, bppsa-rivals (bench/rivals/). cuSPARSE and cuBLAS
 * (product_cusparse.c, product_cublas.c) are loaded on machines that have them. */

typedef struct {
  const char *name;   /* "graphblas" */
  const char *method; /* "full": pattern and values; "numeric": values on a planned pattern */
  /* Converts the case's matrices for the library. ERR_UNSUPPORTED: the library does not take this case, and the row is left out. */
  bppsa_status (*create)(const bppsa_product_case *c, int32_t threads, void **state);
  bppsa_status (*plan)(void *state); /* called after create, complete on return; NULL: every run plans. ERR_* as create */
  bppsa_status (*run)(void *state);  /* the product that is timed */
  /* After a run: C's values as [nnz], in the order of `pattern` (zeros where the library keeps no entry), to be verified. */
  bppsa_status (*read)(void *state, const bppsa_csr *pattern, float *values);
  void (*destroy)(void *state);
} bppsa_product_rival;

/* A rival on a GPU: its first member makes it an element of a list of rivals. */
typedef struct {
  bppsa_product_rival rival;
  bppsa_status (*clear)(void *state); /* sets C's values to 0, which an earlier run may have left */
} bppsa_product_gpu_rival;

typedef const bppsa_product_rival *const *bppsa_product_rival_list; /* NULL-terminated */
extern bppsa_product_rival_list bppsa_product_rivals;               /* empty in the program bppsa */
/* cuSPARSE's and cuBLAS's rivals, NULL-terminated; empty in a build without the library's header. Both lists have the same size,
 * because an emulated test links those of both builds and the linker keeps one. */
enum { BPPSA_PRODUCT_LIBRARY_RIVALS = 3 };
extern const bppsa_product_rival *const bppsa_product_cusparse_rivals[BPPSA_PRODUCT_LIBRARY_RIVALS];
extern const bppsa_product_rival *const bppsa_product_cublas_rivals[BPPSA_PRODUCT_LIBRARY_RIVALS];
extern bppsa_product_rival_list bppsa_product_rivals_on_gpu[]; /* these lists, unless a test sets others; NULL-terminated */

#endif

/* Products C = A B of sparse matrices, planned once and computed any number of times. (BPPSA §3.3: the patterns are known before
 * training.)
 *
 * A plan holds C's pattern and what a numeric pass needs besides the values. A pass allocates nothing. One thread computes a whole
 * row of C, so the bits do not depend on the number of threads. Entries of C whose value is zero stay in the pattern, and zeros of
 * A and B are multiplied like other values, so NaN and infinities propagate as in a dense product.
 *
 * On a GPU a plan's indices and all values are in GPU memory, and a pass is queued on the device's stream. Patterns stay in host
 * memory.
 *
 *   kind       when                                               a pass
 *   identity   a factor is the identity                           copies; a scan does not even copy
 *   diagonal   A has at most one entry in each row, or B is       scales rows of B, or columns of A
 *              diagonal
 *   dense      both factors are full, or A has bands of rows      one GEMM for each band
 *              with equal columns and no known structure
 *   conv       both have channel structure K ⊗ S                  one GEMM over channels for each pair of positions; stores no
 *                                                                 index for a multiply-add
 *   slots      any patterns (Gustavson)                           c[slot[t++]] += a b: stores an index of 2 or 4 bytes for each
 *                                                                 multiply-add
 *   ones       a factor has ones beside its entries (csr.h); on   the same; where one of the two is a one, c[slot[t++]] += the
 *              a CPU                                              other
 */
#ifndef BPPSA_JACOBIAN_PRODUCT_H
#define BPPSA_JACOBIAN_PRODUCT_H

#include "core/compute/device.h"
#include "jacobian/csr.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  BPPSA_PRODUCT_AUTO = 0, /* the cheapest kind that applies, by a cost model */
  BPPSA_PRODUCT_IDENTITY,
  BPPSA_PRODUCT_DIAGONAL,
  BPPSA_PRODUCT_SLOTS,
  BPPSA_PRODUCT_DENSE,
  BPPSA_PRODUCT_CONV,
  BPPSA_PRODUCT_ONES,
  BPPSA_PRODUCT_KINDS
} bppsa_product_kind;

typedef struct {
  bppsa_product_kind kind; /* AUTO, or the kind to use: ERR_UNSUPPORTED where it does not apply */
  bppsa_dtype dtype;       /* f32, f64 */
  /* bytes that the plan and its scratch may take, 0: any number. Checked before anything of that size is allocated */
  int64_t memory_limit;
  bool symbolic;    /* count only: patterns known by their structure alone are not expanded, and no numeric pass can follow */
  int64_t together; /* number of products queued together, this one among them: on a GPU they share launches and their cost */
} bppsa_product_config;

typedef struct {
  bppsa_product_kind kind;
  int64_t nnz;             /* of C */
  int64_t pair_flops;      /* 2 x matching pairs a_ik b_kj of entries that are no ones; 0 with an identity */
  int64_t executed_flops;  /* of a pass over one sample: 2 for each multiplication; tiles on a GPU count their padding */
  int64_t plan_bytes;      /* patterns and indices, in host memory and on a GPU */
  int64_t workspace_bytes; /* scratch; it serves any batch */
  double seconds;          /* predicted by the cost model for a pass over one sample on one thread, or on a GPU */
} bppsa_product_info;

typedef struct bppsa_product bppsa_product; /* a planned product */

/* auto, f32, no limit */
bppsa_product_config bppsa_product_config_default(void);

/* Plans C = A B, A m x k, B k x n. The patterns are borrowed and must outlive the plan. ERR_SHAPE: the inner extents differ;
 * ERR_ARGUMENT: an unknown kind, or more memory than the limit (the message says how much); ERR_UNSUPPORTED: the kind does not
 * apply, ones beside entries on a GPU, or a dtype other than f32 and f64; ERR_MEMORY; ERR_CUDA. */
bppsa_status bppsa_product_create(const bppsa_csr *a, const bppsa_csr *b, const bppsa_product_config *config,
                                  const bppsa_device *device, bppsa_product **product);
void bppsa_product_destroy(bppsa_product *product); /* NULL is legal */

const bppsa_csr *bppsa_product_pattern(const bppsa_product *product);           /* of the result; borrowed */
const bppsa_product_info *bppsa_product_get_info(const bppsa_product *product); /* what it costs; borrowed */
/* Seconds that the cost model expects of a pass over `batch` samples, each with values of its own: on one thread, or on a GPU. */
double bppsa_product_seconds(const bppsa_product *product, int64_t batch);
const char *bppsa_product_kind_name(bppsa_product_kind kind); /* "slots" */

/* Computes one pass for `batch` samples: c [batch][nnz], or [nnz] where the samples share the values of both operands. Passes of
 * one plan must not overlap. ERR_ARGUMENT: a symbolic plan or a negative batch. */
bppsa_status bppsa_product_execute(bppsa_product *product, int64_t batch, bppsa_csr_values a, bppsa_csr_values b, void *c);

typedef struct {
  bppsa_product *product;
  bppsa_csr_values a, b;
  void *c;
} bppsa_product_pass;

/* Computes several passes that do not depend on each other, with different plans of one dtype for one device. On a GPU passes of
 * a kind share launches and are queued on `stream`; on a CPU `stream` is ignored. ERR_ARGUMENT, also: plans of differing dtypes
 * or devices; ERR_CUDA. */
bppsa_status bppsa_product_queue(const bppsa_product_pass *passes, int64_t count, int64_t batch, void *stream);

#ifdef __cplusplus
}
#endif
#endif

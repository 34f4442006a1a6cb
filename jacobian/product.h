/* Products C = A B of sparse matrices, planned once and computed any number of times (BPPSA §3.3: the pattern is known ahead of
 * training).
 *
 * A plan holds C's pattern and what a numeric pass needs besides the values. A pass allocates nothing; every row of C is computed
 * by one thread, so that the bits do not depend on the number of threads. Entries of C that come out as zero stay, and zeros of A
 * and B are multiplied like other values: NaN and infinities arrive where they should.
 *
 * On a CUDA device a plan's indices lie in its memory, values are its memory's, and a pass is queued on its stream. Patterns stay
 * in host memory.
 *
 *   kind       when                                             a pass
 *   identity   a factor is the identity                         copies; a scan does not even do that
 *   diagonal   A has at most one entry a row, or B is diagonal  scales rows of B, or columns of A
 *   dense      full factors, or bands of rows of A with the
 *              same columns where no structure is known         a GEMM a band
 *   conv       both have channel structure K ⊗ S (csr.h)        a GEMM over channels for each pair of positions; no index is
 *   stored a multiply-add
 *   slots      everything else (Gustavson)                      c[slot[t++]] += a b: one index a multiply-add, 2 or 4 bytes
 */
#ifndef BPPSA_JACOBIAN_PRODUCT_H
#define BPPSA_JACOBIAN_PRODUCT_H

#include "core/device.h"
#include "jacobian/csr.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  BPPSA_PRODUCT_AUTO = 0, /* the cheapest of those that apply, by a cost model */
  BPPSA_PRODUCT_IDENTITY,
  BPPSA_PRODUCT_DIAGONAL,
  BPPSA_PRODUCT_SLOTS,
  BPPSA_PRODUCT_DENSE,
  BPPSA_PRODUCT_CONV,
  BPPSA_PRODUCT_KINDS
} bppsa_product_kind;

typedef struct {
  bppsa_product_kind kind; /* AUTO, or the one to use: ERR_UNSUPPORTED where it does not apply */
  bppsa_dtype dtype;       /* f32, f64 */
  int64_t
      memory_limit; /* bytes the plan and its scratch may take, 0: any number. Checked before anything of that size is allocated */
  bool symbolic;    /* count only: patterns known by their structure alone stay so, and no numeric pass can follow */
} bppsa_product_config;

typedef struct {
  bppsa_product_kind kind;
  int64_t nnz;             /* of C */
  int64_t pair_flops;      /* 2 x matching pairs a_ik b_kj; 0 with an identity */
  int64_t executed_flops;  /* of a pass over one sample, 2 a multiplication, padding included, which only a GPU's tiles have */
  int64_t plan_bytes;      /* patterns and indices held; of a GPU also those in its memory */
  int64_t workspace_bytes; /* scratch held, for any batch */
  double seconds;          /* of a pass on one thread, or on a GPU, by the cost model */
} bppsa_product_info;

typedef struct bppsa_product bppsa_product;

/* auto, f32, no limit */
bppsa_product_config bppsa_product_config_default(void);

/* Plans C = A B, A m x k, B k x n. The patterns are borrowed and must outlive the plan. ERR_SHAPE: the inner extents differ;
 * ERR_ARGUMENT: an unknown kind; ERR_UNSUPPORTED: the kind does not apply, or a dtype other than f32 and f64; ERR_ARGUMENT, also:
 * beyond the limit (the message says what is needed); ERR_MEMORY; ERR_CUDA. */
bppsa_status bppsa_product_create(const bppsa_csr *a, const bppsa_csr *b, const bppsa_product_config *config,
                                  const bppsa_device *device, bppsa_product **product);
void bppsa_product_destroy(bppsa_product *product); /* NULL is legal */

const bppsa_csr *bppsa_product_pattern(const bppsa_product *product);
const bppsa_product_info *bppsa_product_get_info(const bppsa_product *product);
const char *bppsa_product_kind_name(bppsa_product_kind kind); /* "slots" */

/* One pass for `batch` samples: c [batch][nnz], or [nnz] where both operands' values are shared. One pass of a plan at a time.
 * ERR_ARGUMENT: a symbolic plan or a negative batch. */
bppsa_status bppsa_product_execute(bppsa_product *product, int64_t batch, bppsa_csr_values a, bppsa_csr_values b, void *c);

typedef struct {
  bppsa_product *product;
  bppsa_csr_values a, b;
  void *c;
} bppsa_product_pass;

/* Several passes, of different plans of one dtype for one device, none of which needs another's result: on a GPU those of a kind
 * share launches. They are queued on `stream` of the GPU; a processor has none. ERR_ARGUMENT, also: plans of differing dtypes or
 * devices; ERR_CUDA. */
bppsa_status bppsa_product_queue(const bppsa_product_pass *passes, int64_t count, int64_t batch, void *stream);

#ifdef __cplusplus
}
#endif
#endif

/* What a pass of a planned product costs on a GPU: predicted, not measured.
 *
 *     seconds = Σ kernels ( launch · launches / products + samples · max(instructions / issue rate, bytes / bandwidth) )
 *
 * Products that are queued together share launches (product_cuda.cu): `together` of them take ⌈together / most⌉.
 */
#include "jacobian/gpu_cost.h"
#include "jacobian/product_internal.h"

/* work: values of C */
static const bppsa_gpu_cost scale_columns = {PRODUCT_COLUMNS_TOGETHER, 69, 32}; /* bppsa_product_scale_columns */
static const bppsa_gpu_cost scale_rows = {PRODUCT_ROWS_TOGETHER, 37, 4 * 32}; /* bppsa_product_scale_rows: four values a thread */
/* work: pairs */
static const bppsa_gpu_cost slots = {PRODUCT_SLOTS_TOGETHER, 185, 8 * 32}; /* bppsa_product_slots_rows: eight pairs a thread */
/* work: values that are packed */
static const bppsa_gpu_cost pack_left = {PRODUCT_PACKING_TOGETHER, 354, 4 * 32}; /* bppsa_product_pack_left: the whole kernel */
static const bppsa_gpu_cost pack_right = {PRODUCT_PACKING_TOGETHER, 98, 4 * 32}; /* bppsa_product_pack_right */
/* work: multiply-adds, a stage of 16: SIDE² sums a thread; tiles of 16 (SIDE 2), 32 and 64 (SIDE 4) */
static const bppsa_gpu_cost bands[] = {{PRODUCT_BANDS_TOGETHER, 167, 4 * 16 * 32}, /* bppsa_product_bands */
                                       {PRODUCT_BANDS_TOGETHER, 420, 16 * 16 * 32},
                                       {PRODUCT_BANDS_TOGETHER, 361, 16 * 16 * 32}};
static const bppsa_gpu_cost meetings[] = {{PRODUCT_CONV_TOGETHER, 199, 4 * 16 * 32}, /* bppsa_product_meetings */
                                          {PRODUCT_CONV_TOGETHER, 446, 16 * 16 * 32},
                                          {PRODUCT_CONV_TOGETHER, 391, 16 * 16 * 32}};

static double seconds_of(const bppsa_product *p, int64_t batch, const bppsa_gpu_cost *kernel, double work, double bytes) {
  return bppsa_gpu_cost_seconds(kernel, p->config.together, (double)batch, work, bytes);
}

double bppsa_product_gpu_predict(const bppsa_product *p, bppsa_product_kind kind, int64_t batch) {
  const double size = (double)bppsa_dtype_size(p->config.dtype), entries = (double)p->pattern.nnz, written = size * entries;
  const double left = (double)p->a->nnz, right = (double)p->b->nnz, read = size * (left + right);
  const double multiply_adds =
      (p->config.dtype == BPPSA_F64 ? 1 : 0.5) * bppsa_product_gpu_flops(p, kind); /* f64: half the rate */
  const int32_t tile = bppsa_product_gpu_tile(p, kind), which = tile == 64 ? 2 : tile == 32 ? 1 : 0;
  switch (kind) {
  case BPPSA_PRODUCT_SLOTS: /* a slot takes two bytes, four in rows of more than 65536 */
    return seconds_of(p, batch, &slots, (double)p->pairs,
                      written + read + (p->widest <= UINT16_MAX + 1 ? 2 : 4) * (double)p->pairs);
  case BPPSA_PRODUCT_CONV: /* neighbours in C are written by different blocks, which often fill half a sector each */
    return seconds_of(p, batch, &pack_left, left, 2 * size * left) + seconds_of(p, batch, &pack_right, right, 2 * size * right) +
           seconds_of(p, batch, &meetings[which], multiply_adds, read + 2 * written);
  case BPPSA_PRODUCT_DENSE:
    return seconds_of(p, batch, &bands[which], multiply_adds, read + written);
  default: /* BPPSA_PRODUCT_DIAGONAL: no caller asks for the identity's, which is only copied */
    return p->right ? seconds_of(p, batch, &scale_columns, entries, read + written + 4 * entries)
                    : seconds_of(p, batch, &scale_rows, entries, read + written);
  }
}

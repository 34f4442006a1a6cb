/* What a pass of a planned product costs on a GPU: predicted, not measured.
 *
 *     seconds = Σ kernels ( launch · launches / products + max(instructions / issue rate, bytes / bandwidth) )
 *
 * Products that are queued together share launches (product_cuda.cu): `together` of them take ⌈together / most⌉.
 */
#include "jacobian/product_internal.h"

/* A round of a warp's inner loop, counted from the code that nvcc 13.0 makes for sm_90 in f32 along the path of a full round
 * (docs/gpu.md, "Sparse kernels"); a kernel without a loop is one round. */
typedef struct {
  double most;         /* products that a launch holds */
  double instructions; /* issue slots of a warp in a round */
  double work;         /* what the 32 threads do in it */
} kernel_cost;

/* work: values of C */
static const kernel_cost copy = {PRODUCT_COPIES_TOGETHER, 54, 32};           /* bppsa_product_copy */
static const kernel_cost scale_columns = {PRODUCT_COLUMNS_TOGETHER, 69, 32}; /* bppsa_product_scale_columns */
static const kernel_cost scale_rows = {PRODUCT_ROWS_TOGETHER, 37, 4 * 32};   /* bppsa_product_scale_rows: four values a thread */
/* work: pairs */
static const kernel_cost slots = {PRODUCT_SLOTS_TOGETHER, 185, 8 * 32}; /* bppsa_product_slots_rows: eight pairs a thread */
/* work: values that are packed */
static const kernel_cost pack_left = {PRODUCT_PACKING_TOGETHER, 354, 4 * 32}; /* bppsa_product_pack_left: the whole kernel */
static const kernel_cost pack_right = {PRODUCT_PACKING_TOGETHER, 98, 4 * 32}; /* bppsa_product_pack_right */
/* work: multiply-adds, a stage of 16: SIDE² sums a thread; tiles of 16 (SIDE 2), 32 and 64 (SIDE 4) */
static const kernel_cost bands[] = {{PRODUCT_BANDS_TOGETHER, 167, 4 * 16 * 32}, /* bppsa_product_bands */
                                    {PRODUCT_BANDS_TOGETHER, 420, 16 * 16 * 32},
                                    {PRODUCT_BANDS_TOGETHER, 361, 16 * 16 * 32}};
static const kernel_cost meetings[] = {{PRODUCT_CONV_TOGETHER, 199, 4 * 16 * 32}, /* bppsa_product_meetings */
                                       {PRODUCT_CONV_TOGETHER, 446, 16 * 16 * 32},
                                       {PRODUCT_CONV_TOGETHER, 391, 16 * 16 * 32}};

/* H200: four schedulers on each of 132 multiprocessors at 1.98 GHz issue an instruction a cycle; 4e12 bytes/s of its 4.8e12; a
 * launch, assumed to take 1.2 µs, with the beginning and end of a kernel, 3500 cycles. */
static const double issue_rate = 132 * 4 * 1.98e9, bandwidth = 4e12, launch = 3e-6;

static double seconds_of(const bppsa_product *p, const kernel_cost *k, double work, double bytes) {
  const double together = p->config.together < 1 ? 1 : (double)p->config.together;
  const double launches = (double)(int64_t)((together + k->most - 1) / k->most);
  const double issued = work / k->work * k->instructions / issue_rate, moved = bytes / bandwidth;
  return launch * launches / together + (issued > moved ? issued : moved);
}

double bppsa_product_gpu_predict(const bppsa_product *p, bppsa_product_kind kind) {
  const double size = (double)bppsa_dtype_size(p->config.dtype), entries = (double)p->pattern.nnz, written = size * entries;
  const double left = (double)p->a->nnz, right = (double)p->b->nnz, read = size * (left + right);
  const double multiply_adds =
      (p->config.dtype == BPPSA_F64 ? 1 : 0.5) * bppsa_product_gpu_flops(p, kind); /* f64: half the rate */
  const int32_t tile = bppsa_product_gpu_tile(p, kind), which = tile == 64 ? 2 : tile == 32 ? 1 : 0;
  switch (kind) {
  case BPPSA_PRODUCT_SLOTS: /* a slot takes two bytes, four in rows of more than 65536 */
    return seconds_of(p, &slots, (double)p->pairs, written + read + (p->widest <= UINT16_MAX + 1 ? 2 : 4) * (double)p->pairs);
  case BPPSA_PRODUCT_CONV: /* neighbours in C are written by different blocks, which often fill half a sector each */
    return seconds_of(p, &pack_left, left, 2 * size * left) + seconds_of(p, &pack_right, right, 2 * size * right) +
           seconds_of(p, &meetings[which], multiply_adds, read + 2 * written);
  case BPPSA_PRODUCT_DENSE:
    return seconds_of(p, &bands[which], multiply_adds, read + written);
  case BPPSA_PRODUCT_DIAGONAL:
    return p->right ? seconds_of(p, &scale_columns, entries, read + written + 4 * entries)
                    : seconds_of(p, &scale_rows, entries, read + written);
  default:
    return seconds_of(p, &copy, entries, 2 * written);
  }
}

/* The local executor's contract with its backends. */
#ifndef BPPSA_SCAN_SCAN_INTERNAL_H
#define BPPSA_SCAN_SCAN_INTERNAL_H

#include "scan/plan_internal.h"
#include "scan/scan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { REDONE_STRIDE = 8 }; /* a cache line for each thread */

/* CPU backend: everything that passes over a plan need, sized when it is made.
 *
 *   slots    [slot][block][sample][rows + affine][cols]   held products, as their transposes: row j is the image of basis vector
 *                                                         j, and the affine row the image of 0
 *   scratch  for each thread: three areas of `area` reals (two for growing products, one for scaled rows) and one of `factors` for
 *            the planes of a segment of a chain
 */
typedef struct {
  bppsa_scan_executor base;
  int32_t threads;
  int64_t mv_block, mm_block; /* samples in a task; the choice does not change a bit */
  int64_t chain_block;        /* samples in a task of a recurrent chunk product, a power of two: its lanes */
  /* lanes that go through a segment together, because they fit into the first-level cache; 0: all lanes, as W leaves no room */
  int64_t strip;
  int64_t segment; /* links of a chain whose factors are laid out together */
  int64_t area, factors;
  int64_t *gradient_offsets; /* first real of each g_t for one sample, size n + 2; NULL if uniform */
  int64_t *jacobian_offsets; /* first real of each J_{t+1}ᵀ for one sample, size n + 1; NULL if uniform */
  void *slots, *scratch;
  /* recurrent: K x [H][weight_row] with rows padded to whole cache lines: copies of weights that are given without padding. */
  void *weights;
  int64_t weight_row;
  /* [slot][b][rows + affine], with room for the largest product: row r of a product is 2^e times what its slot holds */
  int32_t *exponents;
  void *norms;           /* in the same layout: the largest entry of each held row */
  int32_t *growing;      /* for each thread: exponents of the product that is being made, `growing_size` */
  void *growing_norms;   /* for each thread: the largest entries of its rows */
  int64_t exponent_rows; /* rows + affine of the largest product */
  int64_t growing_size;
  int64_t *redone; /* for each thread, REDONE_STRIDE apart: products redone */
} bppsa_scan_cpu;

void bppsa_scan_cpu_run_f32(const bppsa_scan_cpu *cpu, const bppsa_scan_operands *operands);
void bppsa_scan_cpu_run_f64(const bppsa_scan_cpu *cpu, const bppsa_scan_operands *operands);

/* Samples of a product in memory of their own, one behind the other. */
typedef struct {
  void *values;       /* [b][rows + affine][columns], diagonal: [b][1 + affine][columns] */
  int32_t *exponents; /* [b][rows + affine], diagonal: [b][(1 + affine) columns] */
  void *norms;        /* of the same shape: the largest entries of the rows */
} bppsa_scan_product;

/* The product of all elements, for an executor whose plan is a transition's (transition.c). */
void bppsa_scan_cpu_transition_f32(const bppsa_scan_cpu *cpu, const bppsa_scan_operands *operands, const bppsa_scan_product *to);
void bppsa_scan_cpu_transition_f64(const bppsa_scan_cpu *cpu, const bppsa_scan_operands *operands, const bppsa_scan_product *to);

bppsa_status bppsa_scan_cpu_create(const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor);

/* GPU backend (scan_cuda.cu; scan_nocuda.c in a build without CUDA). */
bppsa_status bppsa_scan_cuda_create(const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor);
/* The same with memory of the caller's (NULL: the executor's own), and its bytes. */
bppsa_status bppsa_scan_cuda_create_in(const bppsa_scan_plan *plan, const bppsa_device *device, void *memory,
                                       bppsa_scan_executor **executor);
bppsa_status bppsa_scan_cuda_bytes(const bppsa_scan_plan *plan, int64_t *bytes);

/* Multiplies `parts` neighbouring parts of all elements, cut by bppsa_cut, with such an executor; its elements must have one size
 * unless parts is 1. The products lie one behind the other in GPU memory, each with o->batch samples. It is queued. ERR_CUDA. */
bppsa_status bppsa_scan_cuda_products(bppsa_scan_executor *executor, const bppsa_scan_operands *o, int64_t parts,
                                      const bppsa_scan_product *to);

/* Sparse elements (scan_csr.c; scan_csr_cuda.cu, or scan_csr_nocuda.c in a build without CUDA). */
bppsa_status bppsa_scan_csr_create(const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor);
bppsa_status bppsa_scan_csr_cuda_create(const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor);
/* What runs a kind of elements (scan.c). */
typedef bppsa_status (*bppsa_scan_create)(const bppsa_scan_plan *plan, const bppsa_device *device,
                                          bppsa_scan_executor **executor);
typedef struct {
  const char *name;            /* "dense" */
  bppsa_scan_create create[2]; /* by kind of device; NULL: no such device runs it */
  /* The executor with which a transition multiplies all elements, by kind of device; NULL: none can. */
  bppsa_scan_create product[2];
} bppsa_scan_element_row;
/* NULL: no such kind. */
const bppsa_scan_element_row *bppsa_scan_element_find(bppsa_element element);

/* Returns the values of the product of all elements after an execution, on the CPU or on a GPU; the plan must make this product. */
bppsa_csr_values bppsa_scan_csr_product(const bppsa_scan_executor *executor, const bppsa_scan_operands *operands);
bppsa_csr_values bppsa_scan_csr_cuda_product(const bppsa_scan_executor *executor, const bppsa_scan_operands *operands);
/* ERR_ARGUMENT: a plan that only counts, or whose products were planned for another device. */
bppsa_status bppsa_scan_csr_check(const bppsa_scan_plan *plan, const bppsa_device *device);

/* ERR_ARGUMENT: an operand that the plan needs is missing. ERR_UNSUPPORTED: a chain that runs forward, or transposed operands. */
bppsa_status bppsa_scan_check_operands(const bppsa_scan_plan *plan, const bppsa_scan_operands *operands);
/* The same for the local executor on a CPU, which runs these too if all elements have one size. */
bppsa_status bppsa_scan_check_cpu_operands(const bppsa_scan_plan *plan, const bppsa_scan_operands *operands);

#ifdef __cplusplus
}
#endif

#endif

/* Kernels for small matrices and elementwise functions, vectorised for the present processor and chosen at run time.
 *
 * Every kernel computes each element of its result in one fixed order, so its bits depend on the instruction set alone: not on the
 * number of threads, and not on how rows are cut into blocks.
 */
#ifndef BPPSA_CORE_COMPUTE_SIMD_H
#define BPPSA_CORE_COMPUTE_SIMD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C[m,n] = init + A[m,k] B[k,n]: element (i, j) is summed over p = 0 .. k-1 in that order, starting from init[i * init_row + j],
 * or from 0 where init is NULL. init = c with init_row = ldc accumulates; init_row = 0 repeats one row, a bias.
 *   A(i, p) = a[i * a_row + p * a_step]   any strides: transposed operands need no copy
 *   B(p, j) = b[p * ldb + j],  C(i, j) = c[i * ldc + j]
 * The columns of C are the vector lanes. Nothing outside the given extents is read or written, with one exception that saves masked
 * loads: if b's rows are padded to a multiple of 64 bytes (ldb > n is that multiple, and n needs it whole), the padding is read and
 * not used. */
#define BPPSA_SIMD_TYPE(real, suffix)                                                                                            \
  typedef struct {                                                                                                               \
    void (*gemm)(int64_t m, int64_t n, int64_t k, const real *a, int64_t a_row, int64_t a_step, const real *b, int64_t ldb,      \
                 const real *init, int64_t init_row, real *c, int64_t ldc);                                                      \
    /* y = tanh(x): at most 4 ulp, slope exactly 1 at 0, NaN stays NaN */                                                        \
    void (*tanh)(int64_t count, const real *x, real *y);                                                                         \
    void (*mul)(int64_t count, const real *a, const real *b, bool add, real *y); /* y = a b, or y += a b */                      \
    /* y[r][i] = a[r][i] d[r][i mod LINE], or +=, i < count; LINE is 64 bytes of reals, d [rows][LINE] */                        \
    void (*mul_lines)(int64_t rows, int64_t count, const real *a, int64_t a_row, const real *d, bool add, real *y,               \
                      int64_t y_row);                                                                                            \
    /* C = init + A (D ∘ B) with D(p, j) = d[p][j mod LINE] as above, A(i, p) = a[i + p * a_step] */                           \
    void (*gemm_scaled)(int64_t m, int64_t n, int64_t k, const real *a, int64_t a_step, const real *b, int64_t ldb,              \
                        const real *d, const real *init, int64_t init_row, real *c, int64_t ldc);                                \
    void (*transpose)(int64_t rows, int64_t columns, const real *in, int64_t in_row, real *out, int64_t out_row);                \
    /* y[r] = max |x[r][j]| of rows [rows][n], 0 for none; NaN where a row holds one */                                          \
    void (*row_largest)(int64_t rows, int64_t n, const real *x, real *y);                                                        \
    /* y[i] = max over r of |x[r][i]|, 0 for none; NaN in x is passed over */                                                    \
    void (*column_largest)(int64_t rows, int64_t count, const real *x, int64_t x_row, real *y);                                  \
    void (*tanh_slope)(int64_t count, const real *h, real *y);                /* y = 1 - h² */                                  \
    void (*tanh_delta)(int64_t count, const real *h, const real *g, real *y); /* y = (1 - h²) g */                              \
    void (*sigmoid)(int64_t count, const real *x, real *y); /* y = 1 / (1 + e^-x): at most 4 ulp, NaN stays NaN */               \
    void (*decay)(int64_t count, const real *x,                                                                                  \
                  real *y); /* y = e^-x, x >= 0: at most 2 ulp, 0 where x is large, NaN stays NaN */                             \
    /* `rounds` of independent multiply-adds on y[0], as many as hide their latency; returns their FLOPs. */                     \
    int64_t (*multiply_adds)(int64_t rounds, real *y);                                                                           \
    /* C as gemm's, B one panel: rows of two vectors, padded with numbers. It prefetches as many bytes as a panel has from */    \
    /* `next` on, an address that need not exist. */                                                                             \
    void (*panel)(int64_t m, int64_t n, int64_t k, const real *a, int64_t a_row, const real *b, const real *next,                \
                  const real *init, int64_t init_row, real *c, int64_t ldc);                                                     \
    /* The same of 1 to 3 rows and all n columns, B's panels being `apart` reals apart: several panels are read at once, */      \
    /* because the sums of so few rows in one panel would wait for each other. */                                                \
    void (*few_rows)(int64_t m, int64_t n, int64_t k, const real *a, int64_t a_row, const real *b, int64_t apart,                \
                     const real *init, int64_t init_row, real *c, int64_t ldc);                                                  \
  } bppsa_simd_##suffix;

BPPSA_SIMD_TYPE(float, f32)
BPPSA_SIMD_TYPE(double, f64)

typedef enum { BPPSA_SIMD_PORTABLE = 0, BPPSA_SIMD_AVX2, BPPSA_SIMD_AVX512 } bppsa_simd_isa;

typedef struct {
  const char *name;   /* "portable", "avx2", "avx512" */
  bppsa_simd_isa isa; /* for the kernel tables of other folders; the wide ones exist on x86-64 only */
  bppsa_simd_f32 f32;
  bppsa_simd_f64 f64;
} bppsa_simd;

/* The kernels in use: the widest that this processor and its operating system support, unless bppsa_simd_select chose others. */
const bppsa_simd *bppsa_simd_get(void);

/* Uses the kernels of that name from now on; "auto": the widest. No other thread may be computing. ERR_ARGUMENT: an unknown name;
 * ERR_UNSUPPORTED: not on this processor. */
bppsa_status bppsa_simd_select(const char *name);

/* A folder's own kernels NAME_f32 and NAME_f64, with a table of both for every instruction set: declares the tables, and
 * NAME_kernels_get, which returns that of the kernels in use. */
#define BPPSA_SIMD_DECLARE_TABLES(name)                                                                                          \
  typedef struct {                                                                                                               \
    name##_f32 f32;                                                                                                              \
    name##_f64 f64;                                                                                                              \
  } name##_kernels;                                                                                                              \
  extern const name##_kernels name##_portable, name##_avx2, name##_avx512;                                                       \
  const name##_kernels *name##_kernels_get(void);

#if defined(__x86_64__)
#define BPPSA_SIMD_TABLES(name) &name##_portable, &name##_avx2, &name##_avx512 /* as in bppsa_simd_isa */
#else
#define BPPSA_SIMD_TABLES(name) &name##_portable
#endif
#define BPPSA_SIMD_DEFINE_TABLES(name)                                                                                           \
  const name##_kernels *name##_kernels_get(void) {                                                                               \
    static const name##_kernels *const tables[] = {BPPSA_SIMD_TABLES(name)};                                                     \
    return tables[bppsa_simd_get()->isa];                                                                                        \
  }

#ifdef __cplusplus
}
#endif
#endif

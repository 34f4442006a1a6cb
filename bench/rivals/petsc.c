/* PETSc in `bench product`: MatProductNumeric on a planned product, and symbolic and numeric product together. Its matrices are
 * f64, and one process computes on one thread. */
#include <petscmat.h>
#include <string.h>

#include "bench/rivals/rivals.h"
#include "core/base/alloc.h"

typedef struct {
  Mat a, b, c;
  PetscInt *rows[2], *cols[2];
  PetscScalar *values[2];
} petsc;

static bppsa_status check(PetscErrorCode code, const char *what) {
  return code == 0 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "PETSc: %s failed with %d", what, (int)code);
}

static bppsa_status import(petsc *p, int which, const bppsa_csr *csr, const float *values, Mat *matrix) {
  p->rows[which] = bppsa_calloc(csr->rows + 1, sizeof(PetscInt));
  p->cols[which] = bppsa_calloc(csr->nnz, sizeof(PetscInt));
  p->values[which] = bppsa_calloc(csr->nnz, sizeof(PetscScalar));
  if (p->rows[which] == NULL || p->cols[which] == NULL || p->values[which] == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t r = 0; r <= csr->rows; ++r) {
    p->rows[which][r] = (PetscInt)csr->row_ptr[r];
  }
  for (int64_t i = 0; i < csr->nnz; ++i) {
    p->cols[which][i] = csr->col[i];
    p->values[which][i] = (double)values[i];
  }
  return check(MatCreateSeqAIJWithArrays(PETSC_COMM_SELF, (PetscInt)csr->rows, (PetscInt)csr->cols, p->rows[which],
                                         p->cols[which], p->values[which], matrix),
               "MatCreateSeqAIJWithArrays");
}

static void destroy(void *state) {
  petsc *p = state;
  (void)MatDestroy(&p->c);
  (void)MatDestroy(&p->a);
  (void)MatDestroy(&p->b);
  for (int i = 0; i < 2; ++i) {
    bppsa_free(p->rows[i]);
    bppsa_free(p->cols[i]);
    bppsa_free(p->values[i]);
  }
  bppsa_free(p);
}

static bppsa_status plan(void *state) {
  petsc *p = state;
  BPPSA_TRY(check(MatProductCreate(p->a, p->b, NULL, &p->c), "MatProductCreate"));
  BPPSA_TRY(check(MatProductSetType(p->c, MATPRODUCT_AB), "MatProductSetType"));
  BPPSA_TRY(check(MatProductSetFromOptions(p->c), "MatProductSetFromOptions"));
  return check(MatProductSymbolic(p->c), "MatProductSymbolic");
}

static bppsa_status fill(const bppsa_product_case *c, petsc *p) {
  PetscBool started = PETSC_FALSE;
  BPPSA_TRY(check(PetscInitialized(&started), "PetscInitialized"));
  if (!started) {
    BPPSA_TRY(check(PetscInitializeNoArguments(), "PetscInitialize"));
  }
  BPPSA_TRY(import(p, 0, c->a, c->a_values, &p->a));
  return import(p, 1, c->b, c->b_values, &p->b);
}

static bppsa_status create(const bppsa_product_case *c, int32_t threads, void **state) {
  (void)threads;
  petsc *p = bppsa_calloc(1, sizeof *p);
  if (p == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = fill(c, p);
  if (status != BPPSA_OK) {
    destroy(p);
    return status;
  }
  *state = p;
  return BPPSA_OK;
}

static bppsa_status run_numeric(void *state) {
  petsc *p = state;
  return check(MatProductNumeric(p->c), "MatProductNumeric");
}

static bppsa_status run_full(void *state) {
  petsc *p = state;
  BPPSA_TRY(check(MatDestroy(&p->c), "MatDestroy"));
  BPPSA_TRY(plan(p));
  return run_numeric(p);
}

static bppsa_status read_result(void *state, const bppsa_csr *pattern, float *values) {
  const petsc *p = state;
  memset(values, 0, (size_t)pattern->nnz * sizeof *values);
  for (int64_t r = 0; r < pattern->rows; ++r) {
    PetscInt count;
    const PetscInt *cols;
    const PetscScalar *found;
    BPPSA_TRY(check(MatGetRow(p->c, (PetscInt)r, &count, &cols, &found), "MatGetRow"));
    int64_t at = pattern->row_ptr[r];
    for (PetscInt i = 0; i < count; ++i) { /* the columns of both rows are sorted */
      while (at < pattern->row_ptr[r + 1] && pattern->col[at] < cols[i]) {
        ++at;
      }
      if (at < pattern->row_ptr[r + 1]) {
        values[at] = (float)found[i];
      }
    }
    BPPSA_TRY(check(MatRestoreRow(p->c, (PetscInt)r, &count, &cols, &found), "MatRestoreRow"));
  }
  return BPPSA_OK;
}

const bppsa_product_rival rival_petsc = {"petsc-f64-1thread", "numeric", create, plan, run_numeric, read_result, destroy};
const bppsa_product_rival rival_petsc_full = {"petsc-f64-1thread", "full", create, NULL, run_full, read_result, destroy};

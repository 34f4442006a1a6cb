#include "jacobian/file.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/files/file.h"

void bppsa_csr_matrix_free(bppsa_csr_matrix *matrix) {
  if (matrix == NULL) {
    return;
  }
  bppsa_csr_free(&matrix->csr);
  bppsa_free(matrix->values);
  *matrix = (bppsa_csr_matrix){0};
}

static bool ends_with(const char *path, const char *ending) {
  const size_t length = strlen(path), size = strlen(ending);
  return length > size && strcmp(path + length - size, ending) == 0;
}

bppsa_status bppsa_csr_check_path(const char *path) {
  BPPSA_REQUIRE(path != NULL);
  return ends_with(path, ".npz") || ends_with(path, ".mtx")
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: the ending of the name gives the format, expected .npz or .mtx", path);
}

bppsa_status bppsa_csr_save(const char *path, const bppsa_csr *csr, bppsa_dtype dtype, const void *values) {
  BPPSA_REQUIRE(path != NULL && csr != NULL);
  BPPSA_REQUIRE(values != NULL || csr->nnz == 0);
  BPPSA_TRY(bppsa_csr_check_path(path));
  return (ends_with(path, ".npz") ? bppsa_csr_save_npz : bppsa_csr_save_mtx)(path, csr, dtype, values);
}

bppsa_status bppsa_csr_load(const char *path, bppsa_csr_matrix *matrix) {
  BPPSA_REQUIRE(path != NULL && matrix != NULL);
  const bool npz = bppsa_file_begins(path, "PK") || (ends_with(path, ".npz") && !bppsa_file_begins(path, "%%"));
  return (npz ? bppsa_csr_load_npz : bppsa_csr_load_mtx)(path, matrix);
}

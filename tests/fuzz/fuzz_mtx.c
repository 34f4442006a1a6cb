/* Reader: jacobian/mtx.c. The part is a file in Matrix Market format. What was read is written, and reads as the same matrix. */
#include <string.h>

#include "jacobian/file.h"
#include "tests/fuzz/fuzz.h"

bppsa_status fuzz_run(const fuzz_input *input) {
  bppsa_csr_matrix matrix = {0}, again = {0};
  const bppsa_status status = bppsa_csr_load_mtx(fuzz_file("a.mtx", input->part[0].data, input->part[0].size), &matrix);
  if (status != BPPSA_OK) {
    return status;
  }
  FUZZ_CHECK(bppsa_csr_check(&matrix.csr) == BPPSA_OK);
  char path[256];
  snprintf(path, sizeof path, "%s", fuzz_path("again.mtx"));
  FUZZ_CHECK(bppsa_csr_save_mtx(path, &matrix.csr, matrix.dtype, matrix.values) == BPPSA_OK);
  FUZZ_CHECK(bppsa_csr_load(path, &again) == BPPSA_OK);
  FUZZ_CHECK(again.csr.rows == matrix.csr.rows && again.csr.cols == matrix.csr.cols && again.csr.nnz == matrix.csr.nnz);
  const size_t count = (size_t)matrix.csr.nnz;
  for (size_t i = 0; i < count; ++i) {
    const double a = ((const double *)matrix.values)[i], b = ((const double *)again.values)[i];
    FUZZ_CHECK(matrix.csr.col[i] == again.csr.col[i] && (a == b || (a != a && b != b)));
  }
  bppsa_csr_matrix_free(&matrix);
  bppsa_csr_matrix_free(&again);
  return BPPSA_OK;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const char *const texts[] = {
      "%%MatrixMarket matrix coordinate real general\n% comment\n\n3 4 3\n1 1 0.5\n3 4 -2e-3\n2 2 1\n",
      "%%MatrixMarket matrix coordinate integer general\n2 2 2\n2 1 7\n1 2 -8\n",
      "%%MatrixMarket matrix coordinate pattern general\r\n2 2 1\r\n1 2\r\n",
      "%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 1 1\n2 1 3\n",
      "%%MatrixMarket MATRIX coordinate integer skew-symmetric\n2 2 1\n2 1 4\n",
      "%%MatrixMarket matrix coordinate real general\n2147483647 2147483647 0\n",
      "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 nan\n",
      "%%MatrixMarket matrix coordinate real general\n0 0 0\n"};
  return fuzz_seed_text(index, 0, texts, (int)(sizeof texts / sizeof texts[0]), seed);
}

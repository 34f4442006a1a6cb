/* Readers: core/files/archive.c, core/files/npy_archive.c, jacobian/sparse_npz.c, jacobian/file.c. Options: 0 the part is a file.
 * Otherwise five parts are the members, in SciPy's order, of an archive that is made of them with right checksums; bit 1: deflated;
 * bit 2: the lengths in the directory are those that the sixth part gives. */
#include <string.h>
#include <zlib.h>

#include "core/files/npy.h"
#include "jacobian/file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/make.h"

enum { MEMBERS = 5 };

static const char *const names[MEMBERS] = {"indices.npy", "indptr.npy", "format.npy", "shape.npy", "data.npy"};

static void deflate_part(const fuzz_part *part, fuzz_bytes *packed) {
  z_stream stream = {0};
  FUZZ_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  const size_t room = deflateBound(&stream, part->size);
  uint8_t *to = malloc(room + 1);
  FUZZ_CHECK(to != NULL);
  stream.next_in = (Bytef *)(uintptr_t)part->data;
  stream.avail_in = (uInt)part->size;
  stream.next_out = to;
  stream.avail_out = (uInt)room;
  FUZZ_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  fuzz_add(packed, to, room - stream.avail_out);
  free(to);
  deflateEnd(&stream);
}

/* The fields that a local and a central header share, from "version needed" to the length of the name. */
static void add_fields(fuzz_bytes *to, bool deflated, const fuzz_part *part, size_t packed, const char *name) {
  fuzz_add_number(to, 20, 2);
  fuzz_add_number(to, 0, 2);
  fuzz_add_number(to, deflated ? 8 : 0, 2);
  fuzz_add_number(to, 0, 4);
  fuzz_add_number(to, crc32_z(0, part->data, part->size), 4);
  fuzz_add_number(to, packed, 4);
  fuzz_add_number(to, part->size, 4);
  fuzz_add_number(to, strlen(name), 2);
}

static void make_archive(const fuzz_input *input, fuzz_bytes *file) {
  const bool deflated = (input->options & 2) != 0;
  fuzz_bytes directory = {0};
  for (int i = 0; i < MEMBERS; ++i) {
    const fuzz_part *part = &input->part[i], *lies = &input->part[MEMBERS];
    fuzz_bytes packed = {0};
    const size_t at = file->size;
    if (deflated) {
      deflate_part(part, &packed);
    } else {
      fuzz_add(&packed, part->data, part->size);
    }
    fuzz_add(file, "PK\3\4", 4);
    add_fields(file, deflated, part, packed.size, names[i]);
    fuzz_add_number(file, 0, 2);
    fuzz_add(file, names[i], strlen(names[i]));
    fuzz_add(file, packed.data, packed.size);
    fuzz_add(&directory, "PK\1\2", 4);
    fuzz_add_number(&directory, 20, 2);
    const size_t fields = directory.size;
    add_fields(&directory, deflated, part, packed.size, names[i]);
    fuzz_add_number(&directory, 0, 2 + 2 + 2 + 2);
    fuzz_add_number(&directory, 0, 4);
    fuzz_add_number(&directory, at, 4);
    fuzz_add(&directory, names[i], strlen(names[i]));
    if ((input->options & 4) != 0 && lies->size >= (size_t)(4 * i + 4)) {
      memcpy(directory.data + fields + 14 + 4 * (i & 1), lies->data + 4 * i, 4);
    }
    free(packed.data);
  }
  const size_t begin = file->size;
  fuzz_add(file, directory.data, directory.size);
  fuzz_add(file, "PK\5\6\0\0\0\0", 8);
  fuzz_add_number(file, MEMBERS, 2);
  fuzz_add_number(file, MEMBERS, 2);
  fuzz_add_number(file, directory.size, 4);
  fuzz_add_number(file, begin, 4);
  fuzz_add_number(file, 0, 2);
  free(directory.data);
}

/* The archive where one array is expected: unnamed, and each by its name. */
static void load_arrays(const char *path) {
  static const char *const members[] = {"", ":data", ":shape", ":none"};
  for (size_t i = 0; i < sizeof members / sizeof members[0]; ++i) {
    char name[300];
    bppsa_buffer array = {0};
    snprintf(name, sizeof name, "%s%s", path, members[i]);
    if (bppsa_npy_load(name, &array) == BPPSA_OK) {
      FUZZ_CHECK(bppsa_view_contiguous(&array.view));
      bppsa_buffer_free(&array);
    }
  }
}

bppsa_status fuzz_run(const fuzz_input *input) {
  fuzz_bytes file = {0};
  if (input->options == 0) {
    fuzz_add(&file, input->part[0].data, input->part[0].size);
  } else {
    make_archive(input, &file);
  }
  bppsa_csr_matrix matrix = {0}, again = {0};
  char made[256];
  snprintf(made, sizeof made, "%s", fuzz_file("a.npz", file.data, file.size));
  load_arrays(made);
  const bppsa_status status = bppsa_csr_load(made, &matrix);
  free(file.data);
  if (status != BPPSA_OK) {
    return status;
  }
  FUZZ_CHECK(bppsa_csr_check(&matrix.csr) == BPPSA_OK);
  char path[256];
  snprintf(path, sizeof path, "%s", fuzz_path("again.npz"));
  FUZZ_CHECK(bppsa_csr_save(path, &matrix.csr, matrix.dtype, matrix.values) == BPPSA_OK);
  FUZZ_CHECK(bppsa_csr_load(path, &again) == BPPSA_OK);
  const size_t count = (size_t)matrix.csr.nnz, rows = (size_t)matrix.csr.rows + 1;
  FUZZ_CHECK(again.csr.rows == matrix.csr.rows && again.csr.cols == matrix.csr.cols && again.csr.nnz == matrix.csr.nnz);
  FUZZ_CHECK(memcmp(again.csr.row_ptr, matrix.csr.row_ptr, rows * sizeof(int64_t)) == 0);
  FUZZ_CHECK(count == 0 || memcmp(again.csr.col, matrix.csr.col, count * sizeof(int32_t)) == 0);
  FUZZ_CHECK(count == 0 || memcmp(again.values, matrix.values, count * bppsa_dtype_size(matrix.dtype)) == 0);
  bppsa_csr_matrix_free(&matrix);
  bppsa_csr_matrix_free(&again);
  return BPPSA_OK;
}

static void add_members(fuzz_bytes *seed, bool wide) {
  const int32_t indices[3] = {0, 2, 1}, indptr[3] = {0, 2, 3};
  const int64_t wide_indices[3] = {0, 2, 1}, wide_indptr[3] = {0, 2, 3}, shape[2] = {2, 3};
  const double values[3] = {0.5, -1, 2};
  const float narrow[3] = {0.5f, -1, 2};
  fuzz_bytes members[MEMBERS] = {{0}};
  fuzz_add_array(&members[0], wide ? "<i8" : "<i4", "(3,)", wide ? (const void *)wide_indices : indices, wide ? 24 : 12);
  fuzz_add_array(&members[1], wide ? "<i8" : "<i4", "(3,)", wide ? (const void *)wide_indptr : indptr, wide ? 24 : 12);
  fuzz_add_array(&members[2], wide ? "<U3" : "|S3", "()", wide ? "c\0\0\0s\0\0\0r\0\0\0" : "csr", wide ? 12 : 3);
  fuzz_add_array(&members[3], "<i8", "(2,)", shape, 16);
  fuzz_add_array(&members[4], wide ? "<f8" : "<f4", "(3,)", wide ? (const void *)values : narrow, wide ? 24 : 12);
  for (int i = 0; i < MEMBERS; ++i) {
    fuzz_add_part(seed, members[i].data, members[i].size);
    free(members[i].data);
  }
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  if (index < 4) {
    static const uint8_t options[] = {1, 3, 7, 5};
    const int32_t lies[5] = {100, 4096, -1, 131, 1 << 20};
    fuzz_add_number(seed, options[index], 1);
    add_members(seed, index % 2 != 0);
    if (index > 1) {
      fuzz_add_part(seed, lies, sizeof lies);
    }
    return true;
  }
  const int64_t rows[3] = {0, 1, 2};
  const int32_t cols[2] = {1, 0};
  const float values[2] = {1, 2};
  const bppsa_csr csr = {
      .rows = 2, .cols = 2, .nnz = 2, .row_ptr = (int64_t *)(uintptr_t)rows, .col = (int32_t *)(uintptr_t)cols};
  char path[256];
  snprintf(path, sizeof path, "%s", fuzz_path("seed.npz"));
  FUZZ_CHECK(bppsa_csr_save(path, &csr, BPPSA_F32, values) == BPPSA_OK);
  fuzz_add_number(seed, 0, 1);
  fuzz_add_part_file(seed, path);
  return index == 4;
}

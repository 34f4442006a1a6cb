#include "draw/spy.h"

#include <string.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "core/files/file.h"

enum { MOST = 1024, NONE = 0, ZERO = 1, VALUE = 2 };

static const unsigned char palette[] = {68, 1, 84, 33, 180, 200, 253, 231, 37}; /* purple, cyan, yellow */

static void put32(unsigned char *to, uint32_t value) {
  for (int i = 0; i < 4; ++i) {
    to[i] = (unsigned char)(value >> (24 - 8 * i) & 0xFF);
  }
}

/* Writes a PNG chunk: length, kind, data, checksum of kind and data. */
static bppsa_status write_chunk(bppsa_file_writer *file, const char *kind, const unsigned char *data, size_t size) {
  unsigned char head[8], tail[4];
  put32(head, (uint32_t)size);
  memcpy(head + 4, kind, 4);
  put32(tail, (uint32_t)crc32_z(crc32_z(0, head + 4, 4), data, size));
  BPPSA_TRY(bppsa_file_writer_write(file, head, sizeof head));
  BPPSA_TRY(bppsa_file_writer_write(file, data, size));
  return bppsa_file_writer_write(file, tail, sizeof tail);
}

static bppsa_status write_png(bppsa_file_writer *file, int64_t width, int64_t height, const unsigned char *packed, size_t size) {
  unsigned char head[13] = {0};
  put32(head, (uint32_t)width);
  put32(head + 4, (uint32_t)height);
  head[8] = 8; /* bits of an index into the palette */
  head[9] = 3;
  BPPSA_TRY(bppsa_file_writer_write(file, "\x89PNG\r\n\x1a\n", 8));
  BPPSA_TRY(write_chunk(file, "IHDR", head, sizeof head));
  BPPSA_TRY(write_chunk(file, "PLTE", palette, sizeof palette));
  BPPSA_TRY(write_chunk(file, "IDAT", packed, size));
  return write_chunk(file, "IEND", head, 0);
}

typedef struct {
  int64_t rows, cols;
  const int64_t *row_ptr;
  const int32_t *col;
  bppsa_dtype dtype;
  const void *values;
} matrix;

static bool is_zero(const matrix *m, int64_t entry) {
  return m->dtype == BPPSA_F32 ? ((const float *)m->values)[entry] == 0 : ((const double *)m->values)[entry] == 0;
}

/* Fills pixels [height][1 + width]; every line begins with the filter byte 0. */
static void draw(const matrix *m, int64_t width, int64_t height, unsigned char *pixels) {
  for (int64_t r = 0; r < m->rows; ++r) {
    unsigned char *line = pixels + (int64_t)((double)r * (double)height / (double)m->rows) * (width + 1) + 1;
    for (int64_t p = m->row_ptr[r]; p < m->row_ptr[r + 1]; ++p) {
      unsigned char *pixel = line + (int64_t)((double)m->col[p] * (double)width / (double)m->cols);
      const unsigned char kind = is_zero(m, p) ? ZERO : VALUE;
      *pixel = *pixel > kind ? *pixel : kind;
    }
  }
}

bppsa_status bppsa_spy_save(const char *path, int64_t rows, int64_t cols, const int64_t *row_ptr, const int32_t *col,
                            bppsa_dtype dtype, const void *values) {
  const matrix m = {rows, cols, row_ptr, col, dtype, values};
  const int64_t width = cols < 1 ? 1 : cols < MOST ? cols : MOST;
  const int64_t height = rows < 1 ? 1 : rows < MOST ? rows : MOST;
  const size_t bytes = (size_t)((width + 1) * height);
  uLongf size = compressBound((uLong)bytes);
  unsigned char *pixels = bppsa_calloc((int64_t)bytes, 1), *packed = bppsa_alloc(size);
  bppsa_file_writer *file = NULL;
  bppsa_status status = pixels == NULL || packed == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  if (status == BPPSA_OK) {
    draw(&m, width, height, pixels);
    status = compress2(packed, &size, pixels, (uLong)bytes, 9) == Z_OK ? bppsa_file_writer_create(path, &file)
                                                                       : bppsa_fail(BPPSA_ERR_MEMORY, "%s: out of memory", path);
  }
  if (status == BPPSA_OK) {
    status = write_png(file, width, height, packed, size);
    if (status == BPPSA_OK) {
      status = bppsa_file_writer_commit(file);
    } else {
      bppsa_file_writer_abort(file);
    }
  }
  bppsa_free(pixels);
  bppsa_free(packed);
  return status;
}

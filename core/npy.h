/* NumPy's NPY files, versions 1.0, 2.0 and 3.0, little-endian, C order (NEP 1).
 *
 * The reader does not trust a file: header length, keys, dtype, order, extents and their product are checked against the file's
 * size before memory is allocated for the data, and messages name the byte.
 */
#ifndef BPPSA_CORE_NPY_H
#define BPPSA_CORE_NPY_H

#include "core/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The longest header that is read. The dictionary of an array without fields has fewer than 500 bytes. */
#define BPPSA_NPY_HEADER_LIMIT ((int64_t)1 << 20)

/* Loads a whole array into host memory. The caller frees it with bppsa_buffer_free.
 * ERR_IO, ERR_FORMAT (message: path, byte, what was found and expected), ERR_UNSUPPORTED (dtype, byte order, Fortran order). */
bppsa_status bppsa_npy_load(const char *path, bppsa_buffer *array);

/* The same for reals, converted to `dtype`; its values must be finite in it. ERR_FORMAT: other dtypes than f32 and f64, a value
 * that is not finite. */
bppsa_status bppsa_npy_load_reals(const char *path, bppsa_dtype dtype, bppsa_buffer *array);

/* Saves a contiguous host view, atomically. */
bppsa_status bppsa_npy_save(const char *path, const bppsa_view *view);

/* Parses an array in memory, header and elements, as archives hold it. The view's elements begin where the header ends and are
 * not aligned. `where` names the source in messages. ERR_FORMAT, ERR_UNSUPPORTED. */
bppsa_status bppsa_npy_parse(const char *where, const void *data, int64_t size, bppsa_view *view);

/* Makes the bytes in front of an array's elements; `path` names it in messages. ERR_UNSUPPORTED: NPY files have no such dtype. */
#define BPPSA_NPY_HEADER 512
bppsa_status bppsa_npy_header(const char *path, bppsa_dtype dtype, int32_t ndim, const int64_t *shape,
                              char text[BPPSA_NPY_HEADER], size_t *size);

/* Writes arrays larger than memory: create writes the header, then come the elements in order, in any number of pieces, then
 * commit. ERR_SHAPE: the number of bytes written is not the announced one. */
typedef struct bppsa_npy_writer bppsa_npy_writer;
bppsa_status bppsa_npy_writer_create(const char *path, bppsa_dtype dtype, int32_t ndim, const int64_t *shape,
                                     bppsa_npy_writer **writer);
bppsa_status bppsa_npy_writer_write(bppsa_npy_writer *writer, const void *elements, size_t bytes);
bppsa_status bppsa_npy_writer_commit(bppsa_npy_writer *writer); /* destroys the writer in every case */
void bppsa_npy_writer_abort(bppsa_npy_writer *writer);          /* NULL is legal */

#ifdef __cplusplus
}
#endif
#endif

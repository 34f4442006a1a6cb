/* NumPy's NPY files, versions 1.0, 2.0 and 3.0 (NEP 1). Arrays in Fortran order and big-endian ones are brought into C order and
 * the machine's order of bytes. Where an NPY file is read, an NPZ file may be given instead: FILE.npz that holds one array, or
 * FILE.npz:NAME for one of several. An archive with another ending is recognised by its content.
 *
 * The reader does not trust a file: header length, keys, dtype, order, extents and their product are checked against the file's
 * size before memory is allocated for the data, and messages name the byte. */
#ifndef BPPSA_CORE_FILES_NPY_H
#define BPPSA_CORE_FILES_NPY_H

#include "core/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The longest header that is read. The dictionary of an array without fields has fewer than 500 bytes. */
#define BPPSA_NPY_HEADER_LIMIT ((int64_t)1 << 20)

/* Loads a whole array into host memory. The caller frees it with bppsa_buffer_free.
 * ERR_IO, ERR_FORMAT (message: path, byte, what was found and expected), ERR_UNSUPPORTED (dtype); an archive of several arrays:
 * ERR_FORMAT, the message names them. */
bppsa_status bppsa_npy_load(const char *path, bppsa_buffer *array);

/* The same for reals, converted to `dtype`; its values must be finite in it. Halves, integers and bools are converted where that is
 * exact. ERR_FORMAT: a number that `dtype` does not hold, a value that is not finite. */
bppsa_status bppsa_npy_load_reals(const char *path, bppsa_dtype dtype, bppsa_buffer *array);

/* The same for integers and bools of any size, as int64. ERR_FORMAT: another dtype, a number beyond int64. */
bppsa_status bppsa_npy_load_whole(const char *path, bppsa_buffer *array);
/* Convert an array that was loaded from `path`, which stays as it is on failure. To reals: halves, integers and bools become f32,
 * or f64 where f32 does not hold them all; ERR_FORMAT: a number that f64 does not hold. To int64: ERR_FORMAT as above. */
bppsa_status bppsa_npy_to_reals(const char *path, bppsa_buffer *array);
bppsa_status bppsa_npy_to_whole(const char *path, bppsa_buffer *array);
/* Is the path FILE.npz:NAME, or FILE:NAME of an archive with another ending? bppsa_npy_file_length returns the length of FILE
 * there, and the whole length of any other path. */
bool bppsa_npy_is_member(const char *path);
size_t bppsa_npy_file_length(const char *path);

/* Saves a contiguous host view, atomically. */
bppsa_status bppsa_npy_save(const char *path, const bppsa_view *view);

/* Parses an array in memory, header and elements, as archives hold it. The view's elements begin where the header ends and are
 * not aligned. `where` names the source in messages. ERR_FORMAT, ERR_UNSUPPORTED: Fortran order and big-endian too. */
bppsa_status bppsa_npy_parse(const char *where, const void *data, int64_t size, bppsa_view *view);
/* The same as a copy (bppsa_buffer_free) in any order. ERR_MEMORY. */
bppsa_status bppsa_npy_copy(const char *where, const void *data, int64_t size, bppsa_buffer *array);

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

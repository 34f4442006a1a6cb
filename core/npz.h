/* NPZ files: ZIP archives of NPY arrays, as numpy.load reads them.
 *
 * All arrays are announced, so that every byte has its place before the first is written: elements may then come array by array or
 * by turns, in any number of pieces, each array's in order. Members are stored, not compressed; what is 4 GiB or more is a Zip64
 * member (APPNOTE 6.3.3, §4.3 to 4.5). */
#ifndef BPPSA_CORE_NPZ_H
#define BPPSA_CORE_NPZ_H

#include "core/view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An array of the archive. */
typedef struct {
  const char *name; /* "logits": the member is logits.npy; at most 200 bytes */
  const char *text; /* a scalar of these bytes, as NumPy's b"csr"; NULL: an array of the following */
  bppsa_dtype dtype;
  int32_t ndim;
  const int64_t *shape; /* size ndim */
  const void *data;     /* all elements; NULL: they come by bppsa_npz_writer_write */
} bppsa_npz_array;

typedef struct bppsa_npz_writer bppsa_npz_writer;

/* Begins an archive of these arrays in this order, writes those whose data are there, and borrows nothing. Nothing is visible at
 * `path` before the commit (core/file.h). Equal arrays give equal files. ERR_ARGUMENT: a name too long; ERR_UNSUPPORTED: a dtype;
 * ERR_MEMORY: more bytes than 64 bits count; ERR_IO. */
bppsa_status bppsa_npz_writer_create(const char *path, int64_t count, const bppsa_npz_array *arrays, bppsa_npz_writer **writer);
/* The next elements of array `array`. ERR_SHAPE: more than were announced. ERR_IO: also where `path` is a pipe, which takes bytes
 * in one order only. */
bppsa_status bppsa_npz_writer_write(bppsa_npz_writer *writer, int64_t array, const void *elements, size_t bytes);
/* Destroys the writer in every case. ERR_SHAPE: an array lacks elements; ERR_IO. */
bppsa_status bppsa_npz_writer_commit(bppsa_npz_writer *writer);
void bppsa_npz_writer_abort(bppsa_npz_writer *writer); /* NULL is legal */

/* The same archive with Zip64 records for whatever has `limit` bytes or more, or stands that far behind the beginning;
 * bppsa_npz_writer_create has 4 GiB - 1. For tests. */
bppsa_status bppsa_npz_writer_create_zip64(const char *path, int64_t count, const bppsa_npz_array *arrays, int64_t limit,
                                           bppsa_npz_writer **writer);

#ifdef __cplusplus
}
#endif
#endif

/* NPZ files: ZIP archives of NPY arrays, as numpy.load reads them.
 *
 * All arrays are announced first, so every byte has its offset before the first one is written. Elements may then come array by
 * array or by turns, in any number of pieces; within an array they come in order. Members are stored, not compressed; a member of
 * 4 GiB or more is a Zip64 member (APPNOTE 6.3.3, §4.3 to 4.5). */
#ifndef BPPSA_CORE_FILES_NPZ_H
#define BPPSA_CORE_FILES_NPZ_H

#include "core/base/view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An array of the archive. */
typedef struct {
  const char *name; /* "logits": the member is logits.npy; at most 200 bytes */
  const char *text; /* a scalar with these bytes, like NumPy's b"csr"; NULL: an array, described by the following fields */
  bppsa_dtype dtype;
  int32_t ndim;
  const int64_t *shape; /* size ndim */
  const void *data;     /* all elements; NULL: they are written by bppsa_npz_writer_write */
} bppsa_npz_array;

typedef struct bppsa_npz_writer bppsa_npz_writer;

/* Begins an archive of these arrays in this order, writes those whose data are given, and borrows nothing. Nothing is visible at
 * `path` before the commit (core/files/file.h). Equal arrays give equal files. ERR_ARGUMENT: a name too long; ERR_UNSUPPORTED: a
 * dtype; ERR_MEMORY: sizes exceed 64 bits; ERR_IO. */
bppsa_status bppsa_npz_writer_create(const char *path, int64_t count, const bppsa_npz_array *arrays, bppsa_npz_writer **writer);
/* Writes the next elements of array `array`. ERR_SHAPE: more than were announced. ERR_IO, also if `path` is a pipe, which can
 * only be written in order. */
bppsa_status bppsa_npz_writer_write(bppsa_npz_writer *writer, int64_t array, const void *elements, size_t bytes);
/* Completes the file and destroys the writer in every case. ERR_SHAPE: an array lacks elements; ERR_IO. */
bppsa_status bppsa_npz_writer_commit(bppsa_npz_writer *writer);
void bppsa_npz_writer_abort(bppsa_npz_writer *writer); /* NULL is legal */

/* For tests: the same archive, but sizes and offsets of `limit` bytes or more are in Zip64 records. bppsa_npz_writer_create uses 4
 * GiB - 1. */
bppsa_status bppsa_npz_writer_create_zip64(const char *path, int64_t count, const bppsa_npz_array *arrays, int64_t limit,
                                           bppsa_npz_writer **writer);

#ifdef __cplusplus
}
#endif
#endif

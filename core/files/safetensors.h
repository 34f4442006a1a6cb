/* safetensors files: 8 bytes little-endian header length, a JSON header, the tensors' bytes.
 *
 * The reader checks everything before it reads the data: the header's length (at most 8 MiB and the file's size), JSON (no
 * duplicate keys), names (no control characters), dtypes, shapes and their products, and offsets (inside the file, no overlap, no
 * holes, end - begin = bytes of the shape). Its message names the path, the tensor and the byte. A tensor of a type that it does
 * not know is no error: its view is of BPPSA_DTYPE_OTHER, and its bytes are not read.
 */
#ifndef BPPSA_CORE_FILES_SAFETENSORS_H
#define BPPSA_CORE_FILES_SAFETENSORS_H

#include "core/base/view.h"

#define BPPSA_SAFETENSORS_HEADER_LIMIT ((int64_t)8 << 20) /* bytes of the header, which is JSON (core/files/json.h) */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_safetensors bppsa_safetensors; /* a file that was loaded */

/* Loads a whole file. Views borrow the object's memory, so destroy the object after their last use. ERR_IO, ERR_FORMAT,
 * ERR_MEMORY. */
bppsa_status bppsa_safetensors_load(const char *path, bppsa_safetensors **file);
/* Makes the object of tensors that no such file has: copies contiguous host views, whose names must differ. ERR_ARGUMENT: they do
 * not; ERR_MEMORY. */
bppsa_status bppsa_safetensors_make(int64_t count, const bppsa_named_view *tensors, bppsa_safetensors **file);
void bppsa_safetensors_destroy(bppsa_safetensors *file);

int64_t bppsa_safetensors_count(const bppsa_safetensors *file); /* of tensors */
/* Tensors in the order of their data. */
const bppsa_named_view *bppsa_safetensors_get(const bppsa_safetensors *file, int64_t index);
/* All tensors as a list (owned, bppsa_free); its views borrow the file's memory. ERR_MEMORY. */
bppsa_status bppsa_safetensors_list(const bppsa_safetensors *file, bppsa_named_view **tensors, int64_t *count);
/* Returns NULL if the file has no tensor of that name. */
const bppsa_view *bppsa_safetensors_find(const bppsa_safetensors *file, const char *name);
/* The string stored under `key` in __metadata__, or NULL. */
const char *bppsa_safetensors_metadata(const bppsa_safetensors *file, const char *key);

typedef struct {
  const char *key, *value;
} bppsa_metadata; /* an entry of __metadata__ */

/* Replaces `pair` by the next entry of __metadata__, in the file's order; a zeroed pair by the first entry. Returns false after
 * the last entry. */
bool bppsa_safetensors_metadata_next(const bppsa_safetensors *file, bppsa_metadata *pair);

/* Saves contiguous host views atomically, in the given order. Names must differ, have no control characters, and not be
 * "__metadata__". The header is padded with spaces so that data start at a multiple of 8. metadata may be NULL when metadata_count
 * is 0. */
bppsa_status bppsa_safetensors_save(const char *path, int64_t count, const bppsa_named_view *tensors, int64_t metadata_count,
                                    const bppsa_metadata *metadata);

#ifdef __cplusplus
}
#endif
#endif

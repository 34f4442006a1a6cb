/* Checkpoints that are changed so that their checksums stay right. */
#ifndef BPPSA_TESTS_TRAIN_FORGE_H
#define BPPSA_TESTS_TRAIN_FORGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "core/files/safetensors.h"

enum { FORGE_ENTRIES = 128 };

/* Changes a checkpoint, writes its checksums anew, and removes the previous checkpoint: of a tensor, `value`, of eight bytes,
 * stands at element `index`; of a field, `text`. NULL: no tensor, no field. */
static inline void forge_entry(const char *directory, const char *tensor, int64_t index, const void *value, const char *field,
                               const char *text) {
  static char texts[FORGE_ENTRIES][16];
  bppsa_metadata entries[FORGE_ENTRIES];
  bppsa_named_view tensors[FORGE_ENTRIES];
  char latest[256], previous[256];
  bppsa_safetensors *file = NULL;
  bppsa_metadata pair = {NULL, NULL};
  int64_t count = 0, tensor_count = 0;
  snprintf(latest, sizeof latest, "%s/checkpoint.safetensors", directory);
  snprintf(previous, sizeof previous, "%s/checkpoint.previous.safetensors", directory);
  assert_int_equal(bppsa_safetensors_load(latest, &file), BPPSA_OK);
  for (; tensor_count < bppsa_safetensors_count(file); ++tensor_count) {
    tensors[tensor_count] = *bppsa_safetensors_get(file, tensor_count);
    if (tensor != NULL && strcmp(tensors[tensor_count].name, tensor) == 0) {
      memcpy((char *)tensors[tensor_count].view.data + 8 * index, value, 8);
    }
  }
  uLong all = crc32(0, NULL, 0);
  while (bppsa_safetensors_metadata_next(file, &pair)) {
    entries[count] = pair;
    entries[count].value = field != NULL && strcmp(pair.key, field) == 0 ? text : pair.value;
    for (int64_t i = 0; strncmp(pair.key, "crc32.", 6) == 0 && i < tensor_count; ++i) {
      if (strcmp(pair.key + 6, tensors[i].name) == 0) {
        const bppsa_view *view = &tensors[i].view;
        snprintf(texts[count], sizeof texts[count], "%08lx",
                 (unsigned long)crc32(crc32(0, NULL, 0), view->data, (uInt)bppsa_view_bytes(view)));
        entries[count].value = texts[count];
      }
    }
    if (strcmp(pair.key, "crc32") == 0) { /* the last of all */
      snprintf(texts[count], sizeof texts[count], "%08lx", (unsigned long)all);
      entries[count].value = texts[count];
    }
    all = crc32(all, (const Bytef *)entries[count].key, (uInt)strlen(entries[count].key) + 1);
    all = crc32(all, (const Bytef *)entries[count].value, (uInt)strlen(entries[count].value) + 1);
    assert_true(++count < FORGE_ENTRIES);
  }
  assert_int_equal(bppsa_safetensors_save(latest, tensor_count, tensors, count, entries), BPPSA_OK);
  bppsa_safetensors_destroy(file);
  (void)remove(previous);
}

static inline void forge(const char *directory, const char *tensor, int64_t index, const void *value) {
  forge_entry(directory, tensor, index, value, NULL, NULL);
}

static inline void forge_text(const char *directory, const char *field, const char *text) {
  forge_entry(directory, NULL, 0, NULL, field, text);
}

#endif

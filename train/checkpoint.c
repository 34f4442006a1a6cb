#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_DIRECTORY, flock */
#endif
#include "train/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <zlib.h>

#include "bppsa_version.h"
#include "core/base/alloc.h"
#include "core/base/io.h"
#include "core/files/file.h"
#include "core/files/rescue.h"

#define FORMAT "1" /* version of the file format, under "bppsa_checkpoint" */

enum { LATEST = 0, PREVIOUS, NEW, FILES };

static const char *const file_names[FILES] = {"checkpoint.safetensors", "checkpoint.previous.safetensors",
                                              "checkpoint.new.safetensors"};

enum { CRC_TEXT = 9, FIXED = 3, NAME_LIMIT = 240 }; /* FIXED: the entries format, version and crc32 of all metadata */

struct bppsa_checkpoint {
  bppsa_checkpoint_contents contents;
  char *directory;
  char *paths[FILES];
  int lock;                 /* descriptor of the locked directory */
  bool latest_damaged;      /* the latest file is damaged, and must not become the previous checkpoint */
  bppsa_metadata *metadata; /* fields, crc32.NAME of the tensors, format, version, crc32 */
  int64_t metadata_count;
  char *keys;            /* the texts "crc32.NAME" */
  char (*crc)[CRC_TEXT]; /* of the tensors, then of the metadata */
};

/* ---- checksums ---- */

static void crc_text(uLong crc, char text[CRC_TEXT]) {
  (void)snprintf(text, CRC_TEXT, "%08lx", (unsigned long)crc & 0xFFFFFFFFu);
}

static void tensor_crc(const bppsa_view *view, char text[CRC_TEXT]) {
  crc_text(crc32_z(crc32_z(0, NULL, 0), view->data, bppsa_view_bytes(view)), text);
}

/* Adds "KEY\0VALUE\0" to a checksum. */
static uLong add_entry(uLong crc, const bppsa_metadata *entry) {
  crc = crc32_z(crc, (const unsigned char *)entry->key, strlen(entry->key) + 1);
  return crc32_z(crc, (const unsigned char *)entry->value, strlen(entry->value) + 1);
}

/* ---- opening ---- */

static char *join(const char *directory, const char *name) {
  const size_t size = strlen(directory) + strlen(name) + 2;
  char *path = bppsa_alloc(size);
  if (path != NULL) {
    (void)snprintf(path, size, "%s/%s", directory, name);
  }
  return path;
}

/* Makes the metadata that every save writes; only the texts of checksums change. */
static bppsa_status make_metadata(bppsa_checkpoint *c) {
  const bppsa_checkpoint_contents *contents = &c->contents;
  size_t bytes = 1;
  for (int64_t i = 0; i < contents->tensor_count; ++i) {
    const size_t length = strlen(contents->tensors[i].name);
    if (length > NAME_LIMIT) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "checkpoint: a tensor's name of %zu bytes, expected at most %d", length,
                        NAME_LIMIT);
    }
    bytes += length + sizeof "crc32.";
  }
  c->metadata_count = contents->field_count + contents->tensor_count + FIXED;
  c->metadata = bppsa_calloc(c->metadata_count, sizeof *c->metadata);
  c->crc = bppsa_calloc(contents->tensor_count + 1, sizeof *c->crc);
  c->keys = bppsa_alloc(bytes);
  if (c->metadata == NULL || c->crc == NULL || c->keys == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_metadata *at = c->metadata;
  for (int64_t i = 0; i < contents->field_count; ++i) {
    *at++ = contents->fields[i];
  }
  char *key = c->keys;
  for (int64_t i = 0; i < contents->tensor_count; ++i) {
    *at++ = (bppsa_metadata){key, c->crc[i]};
    key += sprintf(key, "crc32.%s", contents->tensors[i].name) + 1;
  }
  *at++ = (bppsa_metadata){"bppsa_checkpoint", FORMAT};
  *at++ = (bppsa_metadata){"version", BPPSA_VERSION};
  *at++ = (bppsa_metadata){"crc32", c->crc[contents->tensor_count]};
  return BPPSA_OK;
}

static bppsa_status lock_directory(bppsa_checkpoint *c) {
  if (bppsa_io_mkdir(c->directory) != 0 && errno != EEXIST) {
    return bppsa_fail(BPPSA_ERR_IO, "checkpoint directory %s: cannot be made: %s", c->directory, strerror(errno));
  }
  c->lock = bppsa_io_open(c->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (c->lock < 0) {
    return bppsa_fail(BPPSA_ERR_IO, "checkpoint directory %s: cannot be opened: %s", c->directory, strerror(errno));
  }
  if (flock(c->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "checkpoint directory %s: in use by another run, expected one of its own",
                      c->directory);
  }
  return BPPSA_OK;
}

static bppsa_status open_checkpoint(const char *directory, bppsa_checkpoint *c) {
  c->directory = bppsa_strdup(directory);
  if (c->directory == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int i = 0; i < FILES; ++i) {
    c->paths[i] = join(directory, file_names[i]);
    if (c->paths[i] == NULL) {
      return BPPSA_ERR_MEMORY;
    }
  }
  BPPSA_TRY(make_metadata(c));
  BPPSA_TRY(lock_directory(c));
  BPPSA_TRY(bppsa_file_clean(directory));
  if (bppsa_io_unlink(c->paths[NEW]) != 0 && errno != ENOENT) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: cannot be removed: %s", c->paths[NEW], strerror(errno));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_checkpoint_open(const char *directory, const bppsa_checkpoint_contents *contents,
                                   bppsa_checkpoint **checkpoint) {
  BPPSA_REQUIRE(directory != NULL && contents != NULL && checkpoint != NULL);
  bppsa_checkpoint *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->contents = *contents;
  made->lock = -1;
  const bppsa_status status = open_checkpoint(directory, made);
  if (status != BPPSA_OK) {
    bppsa_checkpoint_close(made);
    return status;
  }
  *checkpoint = made;
  return BPPSA_OK;
}

void bppsa_checkpoint_close(bppsa_checkpoint *checkpoint) {
  if (checkpoint == NULL) {
    return;
  }
  if (checkpoint->lock >= 0) {
    (void)bppsa_io_close(checkpoint->lock);
  }
  for (int i = 0; i < FILES; ++i) {
    bppsa_free(checkpoint->paths[i]);
  }
  bppsa_free(checkpoint->directory);
  bppsa_free(checkpoint->metadata);
  bppsa_free(checkpoint->keys);
  bppsa_free(checkpoint->crc);
  bppsa_free(checkpoint);
}

bool bppsa_checkpoint_exists(const bppsa_checkpoint *checkpoint) {
  return access(checkpoint->paths[LATEST], F_OK) == 0 || access(checkpoint->paths[PREVIOUS], F_OK) == 0;
}

/* ---- saving ---- */

static bppsa_status write_contents(const char *path, const void *context) {
  const bppsa_checkpoint *c = context;
  const bppsa_checkpoint_contents *contents = &c->contents;
  return bppsa_safetensors_save(path, contents->tensor_count, contents->tensors, c->metadata_count, c->metadata);
}

bppsa_status bppsa_checkpoint_rescue(bppsa_checkpoint *checkpoint, bppsa_status status) {
  BPPSA_REQUIRE(checkpoint != NULL);
  const bppsa_result_file file = {file_names[LATEST], write_contents, checkpoint};
  return bppsa_rescue(status, &file, "it is in", " instead; --checkpoint with that directory goes on from it");
}

bppsa_status bppsa_checkpoint_save(bppsa_checkpoint *checkpoint) {
  BPPSA_REQUIRE(checkpoint != NULL);
  bppsa_checkpoint *c = checkpoint;
  const bppsa_checkpoint_contents *contents = &c->contents;
  for (int64_t i = 0; i < contents->tensor_count; ++i) {
    tensor_crc(&contents->tensors[i].view, c->crc[i]);
  }
  uLong crc = crc32_z(0, NULL, 0);
  for (int64_t i = 0; i + 1 < c->metadata_count; ++i) {
    crc = add_entry(crc, &c->metadata[i]);
  }
  crc_text(crc, c->crc[contents->tensor_count]);
  BPPSA_TRY(write_contents(c->paths[NEW], c));
  const bool keep = !c->latest_damaged;
  if (keep && bppsa_io_rename(c->paths[LATEST], c->paths[PREVIOUS]) != 0 && errno != ENOENT) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: cannot be kept as the previous one: %s", c->paths[LATEST], strerror(errno));
  }
  if (bppsa_io_rename(c->paths[NEW], c->paths[LATEST]) != 0) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: the new checkpoint cannot be put in place: %s", c->paths[LATEST], strerror(errno));
  }
  c->latest_damaged = false;
  return bppsa_file_sync_directory(c->directory);
}

/* ---- loading ---- */

/* Checks every checksum. ERR_FORMAT. */
static bppsa_status verify(const char *path, const bppsa_safetensors *file) {
  char text[CRC_TEXT], key[NAME_LIMIT + sizeof "crc32."];
  uLong crc = crc32_z(0, NULL, 0);
  for (bppsa_metadata entry = {NULL, NULL}; bppsa_safetensors_metadata_next(file, &entry);) {
    crc = strcmp(entry.key, "crc32") == 0 ? crc : add_entry(crc, &entry);
  }
  crc_text(crc, text);
  const char *stored = bppsa_safetensors_metadata(file, "crc32");
  if (stored == NULL || strcmp(stored, text) != 0) {
    return stored == NULL ? bppsa_fail(BPPSA_ERR_FORMAT, "%s: metadata without crc32, expected a checkpoint, which has it", path)
                          : bppsa_fail(BPPSA_ERR_FORMAT, "%s: metadata: checksum %s, expected %s", path, text, stored);
  }
  for (int64_t i = 0; i < bppsa_safetensors_count(file); ++i) {
    const bppsa_named_view *tensor = bppsa_safetensors_get(file, i);
    (void)snprintf(key, sizeof key, "crc32.%s", tensor->name);
    stored = bppsa_safetensors_metadata(file, key);
    tensor_crc(&tensor->view, text);
    if (stored == NULL || strcmp(stored, text) != 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: tensor \"%s\": checksum %s, expected %s", path, tensor->name, text,
                        stored == NULL ? "one" : stored);
    }
  }
  return BPPSA_OK;
}

static bppsa_status load_verified(const char *path, bppsa_safetensors **file) {
  bppsa_safetensors *loaded = NULL;
  BPPSA_TRY(bppsa_safetensors_load(path, &loaded));
  const bppsa_status status = verify(path, loaded);
  if (status != BPPSA_OK) {
    bppsa_safetensors_destroy(loaded);
    return status;
  }
  *file = loaded;
  return BPPSA_OK;
}

/* Loads the latest checkpoint, or the previous one if the latest is damaged: then *damaged is true and the notice says why. */
static bppsa_status load_any(const char *directory, const char *latest, const char *previous, bppsa_safetensors **file,
                             bool *damaged, char *notice) {
  notice[0] = '\0';
  *damaged = false;
  if (access(latest, F_OK) != 0 && access(previous, F_OK) != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "checkpoint directory %s: there is no checkpoint to resume, expected %s in it",
                      directory, file_names[LATEST]);
  }
  bppsa_status status = load_verified(latest, file);
  if (status == BPPSA_OK || status == BPPSA_ERR_MEMORY) {
    return status;
  }
  (void)snprintf(notice, BPPSA_CHECKPOINT_NOTICE, "%s", bppsa_last_error());
  status = load_verified(previous, file);
  if (status == BPPSA_ERR_MEMORY) {
    return status;
  }
  if (status != BPPSA_OK) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "checkpoint directory %s: no valid checkpoint, expected one: %.180s; %.180s", directory,
                      notice, bppsa_last_error());
  }
  const size_t length = strlen(notice);
  (void)snprintf(notice + length, BPPSA_CHECKPOINT_NOTICE - length, "; the previous checkpoint is used");
  *damaged = true;
  return BPPSA_OK;
}

/* Did the checkpoint itself write the entry, and not the run? */
static bool is_own(const char *key) {
  return strncmp(key, "crc32", 5) == 0 || strcmp(key, "bppsa_checkpoint") == 0 || strcmp(key, "version") == 0;
}

/* The value of this run's field, or NULL. */
static const char *field_of(const bppsa_checkpoint *c, const char *key) {
  for (int64_t i = 0; i < c->contents.field_count; ++i) {
    if (strcmp(c->contents.fields[i].key, key) == 0) {
      return c->contents.fields[i].value;
    }
  }
  return NULL;
}

/* Compares a field that this run, or the file, may lack: then its value is NULL. */
static bppsa_status compare_field(const bppsa_checkpoint *c, const char *key, const char *stored, const char *mine) {
  const bool open = c->contents.open_key != NULL && strcmp(c->contents.open_key, key) == 0;
  return open || (stored != NULL && mine != NULL && strcmp(stored, mine) == 0)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "checkpoint in %s: %s %s contradicts this run, which has %s, expected the same",
                          c->directory, key, stored == NULL ? "missing" : stored, mine == NULL ? "none" : mine);
}

/* Checks that the file belongs to this run: both have the same fields, with the same values. */
static bppsa_status check_fields(const bppsa_checkpoint *c, const bppsa_safetensors *file) {
  const char *format = bppsa_safetensors_metadata(file, "bppsa_checkpoint");
  if (format == NULL || strcmp(format, FORMAT) != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "checkpoint in %s: format %s, expected %s", c->directory,
                      format == NULL ? "unknown" : format, FORMAT);
  }
  for (int64_t i = 0; i < c->contents.field_count; ++i) {
    const bppsa_metadata *field = &c->contents.fields[i];
    BPPSA_TRY(compare_field(c, field->key, bppsa_safetensors_metadata(file, field->key), field->value));
  }
  for (bppsa_metadata entry = {NULL, NULL}; bppsa_safetensors_metadata_next(file, &entry);) {
    BPPSA_TRY(is_own(entry.key) ? BPPSA_OK : compare_field(c, entry.key, entry.value, field_of(c, entry.key)));
  }
  return BPPSA_OK;
}

static bppsa_status check_tensors(const bppsa_checkpoint *c, const bppsa_safetensors *file) {
  for (int64_t i = 0; i < c->contents.tensor_count; ++i) {
    const bppsa_named_view *wanted = &c->contents.tensors[i];
    const bppsa_view *stored = bppsa_safetensors_find(file, wanted->name);
    if (stored == NULL) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "checkpoint in %s: tensor \"%s\" is missing, expected this run's", c->directory,
                        wanted->name);
    }
    if (stored->dtype != wanted->view.dtype || !bppsa_view_same_shape(stored, &wanted->view)) {
      char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT];
      return bppsa_fail(BPPSA_ERR_SHAPE,
                        "checkpoint in %s: tensor \"%s\": %s %s contradicts this run, which has %s %s, expected the same",
                        c->directory, wanted->name, bppsa_view_dtype_name(stored),
                        bppsa_shape_text(stored->ndim, stored->shape, found, sizeof found), bppsa_dtype_name(wanted->view.dtype),
                        bppsa_shape_text(wanted->view.ndim, wanted->view.shape, expected, sizeof expected));
    }
  }
  return BPPSA_OK;
}

static void restore(const bppsa_checkpoint *c, const bppsa_safetensors *file) {
  for (int64_t i = 0; i < c->contents.tensor_count; ++i) {
    const bppsa_view *to = &c->contents.tensors[i].view;
    memcpy(to->data, bppsa_safetensors_find(file, c->contents.tensors[i].name)->data, bppsa_view_bytes(to));
  }
}

bppsa_status bppsa_checkpoint_load(bppsa_checkpoint *checkpoint, char *notice) {
  BPPSA_REQUIRE(checkpoint != NULL && notice != NULL);
  bppsa_checkpoint *c = checkpoint;
  bppsa_safetensors *file = NULL;
  char text[BPPSA_CHECKPOINT_NOTICE];
  bool damaged = false;
  BPPSA_TRY(load_any(c->directory, c->paths[LATEST], c->paths[PREVIOUS], &file, &damaged, text));
  bppsa_status status = check_fields(c, file);
  if (status == BPPSA_OK) {
    status = check_tensors(c, file);
  }
  if (status == BPPSA_OK) {
    const char *version = bppsa_safetensors_metadata(file, "version");
    if (version != NULL && strcmp(version, BPPSA_VERSION) != 0) {
      const size_t length = strlen(text);
      (void)snprintf(text + length, sizeof text - length, "%sthe checkpoint was written by version %.40s, this is %s",
                     length > 0 ? "; " : "", version, BPPSA_VERSION);
      bppsa_make_printable(text);
    }
    restore(c, file);
    c->latest_damaged = damaged;
    memcpy(notice, text, sizeof text);
  }
  bppsa_safetensors_destroy(file);
  return status;
}

bppsa_status bppsa_checkpoint_peek(const char *directory, int64_t count, const char *const *keys,
                                   char (*values)[BPPSA_CHECKPOINT_VALUE]) {
  BPPSA_REQUIRE(directory != NULL && keys != NULL && values != NULL);
  char *latest = join(directory, file_names[LATEST]), *previous = join(directory, file_names[PREVIOUS]);
  char notice[BPPSA_CHECKPOINT_NOTICE];
  bppsa_safetensors *file = NULL;
  bool damaged = false;
  bppsa_status status = BPPSA_ERR_MEMORY;
  if (latest != NULL && previous != NULL) {
    status = load_any(directory, latest, previous, &file, &damaged, notice);
  }
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    const char *stored = bppsa_safetensors_metadata(file, keys[i]);
    (void)snprintf(values[i], sizeof values[i], "%s", stored == NULL ? "" : stored);
  }
  bppsa_safetensors_destroy(file);
  bppsa_free(latest);
  bppsa_free(previous);
  return status;
}

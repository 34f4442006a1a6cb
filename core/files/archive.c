#include "core/files/archive.h"

#include <string.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "core/base/text.h"
#include "core/files/file.h"

#define FILE_LIMIT ((int64_t)1 << 36)
#define NPY ".npy"

enum { LOCAL = 30, CENTRAL = 46, END = 22, STORED = 0, DEFLATED = 8 };

/* An entry of the archive's directory. */
typedef struct {
  int64_t header; /* its offset */
  int64_t length; /* of its name, which stands behind its header */
} entry;

struct bppsa_archive {
  const char *path;
  const unsigned char *data;
  int64_t size;
  int64_t taken; /* bytes of the members that have been read */
  int64_t count;
  entry *entries; /* size count */
};

/* ---- members ---- */

static uint32_t get16(const unsigned char *from) {
  return (uint32_t)from[0] | (uint32_t)from[1] << 8;
}

static uint32_t get32(const unsigned char *from) {
  return get16(from) | get16(from + 2) << 16;
}

static uint32_t checksum(uint32_t crc, const void *data, size_t bytes) {
  return (uint32_t)crc32_z(crc, data, bytes);
}

static bppsa_status broken(const bppsa_archive *a, int64_t byte, const char *what) {
  return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: %s", a->path, (long long)byte, what);
}

/* Refuses an archive that was cut, or a file of another kind. */
static bppsa_status no_directory(const bppsa_archive *a) {
  char found[BPPSA_BEGINNING_TEXT];
  return a->size == 0 || memcmp(a->data, "PK", a->size < 2 ? 1 : 2) == 0
             ? broken(a, a->size, "the archive ends without its directory, expected an NPZ file")
             : bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 0: '%s', expected PK, with which an NPZ file begins", a->path,
                          bppsa_text_beginning(a->data, a->size, found));
}

/* Offset of the end record, which a comment of up to 65535 bytes may follow; -1: the file has none. */
static int64_t find_end(const bppsa_archive *a) {
  for (int64_t at = a->size - END; at >= 0 && at >= a->size - END - UINT16_MAX; --at) {
    if (memcmp(a->data + at, "PK\x05\x06", 4) == 0 && at + END + (int64_t)get16(a->data + at + 20) == a->size) {
      return at;
    }
  }
  return -1;
}

static const char *name_of(const bppsa_archive *a, const entry *e) {
  return (const char *)a->data + e->header + CENTRAL;
}

/* Reads the entry at *at, and moves *at to the next one. end: of the directory. */
static bppsa_status read_entry(const bppsa_archive *a, int64_t end, int64_t *at, entry *e) {
  if (*at > end - CENTRAL || memcmp(a->data + *at, "PK\x01\x02", 4) != 0) {
    return broken(a, *at, "no entry of the archive's directory, expected one");
  }
  *e = (entry){.header = *at, .length = get16(a->data + *at + 28)};
  if (*at + CENTRAL + e->length > end) {
    return broken(a, *at, "a name that leaves the archive's directory");
  }
  *at += CENTRAL + e->length + (int64_t)get16(a->data + *at + 30) + (int64_t)get16(a->data + *at + 32);
  return BPPSA_OK;
}

/* Reads the whole directory, once. */
static bppsa_status read_directory(bppsa_archive *a) {
  const int64_t end = find_end(a);
  if (end < 0) {
    return no_directory(a);
  }
  int64_t at = get32(a->data + end + 16);
  a->count = get16(a->data + end + 10);
  a->entries = bppsa_calloc(a->count + 1, sizeof *a->entries);
  bppsa_status status = a->entries == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t i = 0; i < a->count && status == BPPSA_OK; ++i) {
    status = read_entry(a, end, &at, &a->entries[i]);
  }
  return status;
}

/* Finds the offset of the member's central header. */
static bppsa_status find_member(const bppsa_archive *a, const char *wanted, const char *expected, int64_t *header) {
  const size_t length = strlen(wanted);
  *header = -1;
  for (int64_t i = 0; i < a->count; ++i) {
    const entry *e = &a->entries[i];
    if ((size_t)e->length != length || memcmp(name_of(a, e), wanted, length) != 0) {
      continue;
    }
    if (*header >= 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the member %s occurs twice, expected once", a->path,
                        (long long)e->header, wanted);
    }
    *header = e->header;
  }
  return *header >= 0 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_FORMAT, "%s: member %s missing, expected %s", a->path, wanted, expected);
}

static bppsa_status inflate_member(const bppsa_archive *a, int64_t from, int64_t packed, unsigned char *to, int64_t size) {
  z_stream stream = {
      .next_in = (unsigned char *)(uintptr_t)(a->data + from), .avail_in = (uInt)packed, .next_out = to, .avail_out = (uInt)size};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "%s: out of memory for decompression", a->path);
  }
  const int result = inflate(&stream, Z_FINISH);
  const bool good = result == Z_STREAM_END && stream.avail_out == 0;
  (void)inflateEnd(&stream);
  return good ? BPPSA_OK : broken(a, from, "compressed data that does not give what its header says");
}

bppsa_status bppsa_archive_read(bppsa_archive *a, const char *name, const char *expected, unsigned char **bytes, int64_t *size) {
  int64_t header = 0;
  BPPSA_TRY(find_member(a, name, expected, &header));
  const unsigned char *central = a->data + header;
  const int64_t method = get16(central + 10), packed = get32(central + 20), local = get32(central + 42);
  *size = get32(central + 24);
  if ((get16(central + 8) & 1) != 0) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte %lld: %s is encrypted, expected a plain member", a->path,
                      (long long)header, name);
  }
  if (method != STORED && method != DEFLATED) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte %lld: %s with method %lld, expected stored or deflated", a->path,
                      (long long)header, name, (long long)method);
  }
  if (local > a->size - LOCAL || memcmp(a->data + local, "PK\x03\x04", 4) != 0) {
    return broken(a, local, "no member of the archive, expected one");
  }
  const int64_t from = local + LOCAL + (int64_t)get16(a->data + local + 26) + (int64_t)get16(a->data + local + 28);
  if (packed > a->size - from || (method == STORED && packed != *size) ||
      *size / 1040 > packed) { /* deflate expands a byte to at most 1032 */
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: %s with %lld bytes in %lld, which the file does not hold", a->path,
                      (long long)header, name, (long long)*size, (long long)packed);
  }
  if (method == DEFLATED && *size > BPPSA_ARCHIVE_INFLATED_LIMIT) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: %s has %lld bytes, expected at most %lld compressed, more as they are",
                      a->path, (long long)header, name, (long long)*size, (long long)BPPSA_ARCHIVE_INFLATED_LIMIT);
  }
  if (packed > a->size - a->taken) { /* all members together have more bytes than the file */
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: byte %lld: %s shares bytes with another member, expected members one after the other", a->path,
                      (long long)header, name);
  }
  a->taken += packed;
  unsigned char *made = bppsa_alloc((size_t)*size);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = BPPSA_OK;
  if (method == STORED) {
    memcpy(made, a->data + from, (size_t)packed);
  } else {
    status = inflate_member(a, from, packed, made, *size);
  }
  if (status == BPPSA_OK && checksum(0, made, (size_t)*size) != get32(central + 16)) {
    status = broken(a, from, "a member whose checksum is wrong");
  }
  if (status != BPPSA_OK) {
    bppsa_free(made);
    return status;
  }
  *bytes = made;
  return BPPSA_OK;
}

bppsa_status bppsa_archive_open(const char *path, bppsa_archive **file) {
  BPPSA_REQUIRE(path != NULL && file != NULL);
  char *data = NULL;
  bppsa_archive *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->path = path;
  bppsa_status status = bppsa_file_read(path, FILE_LIMIT, &data, &made->size);
  if (status == BPPSA_OK) {
    made->data = (const unsigned char *)data;
    status = read_directory(made);
  }
  if (status != BPPSA_OK) {
    bppsa_archive_close(made);
    return status;
  }
  *file = made;
  return BPPSA_OK;
}

void bppsa_archive_close(bppsa_archive *file) {
  if (file != NULL) {
    bppsa_free((void *)(uintptr_t)file->data);
    bppsa_free(file->entries);
    bppsa_free(file);
  }
}

const char *bppsa_archive_path(const bppsa_archive *file) {
  return file->path;
}

bppsa_status bppsa_archive_list(const bppsa_archive *a, bppsa_text *names, int64_t *count) {
  enum { SHOWN = 12 };
  const int64_t suffix = sizeof NPY - 1;
  *count = 0;
  for (int64_t i = 0; i < a->count; ++i) {
    const char *name = name_of(a, &a->entries[i]);
    const int64_t length = a->entries[i].length - suffix;
    if (length <= 0 || memcmp(name + length, NPY, (size_t)suffix) != 0) {
      continue;
    }
    if (*count < SHOWN) {
      bppsa_text_add(names, "%s%.*s", *count > 0 ? ", " : "", (int)length, name);
    }
    ++*count;
  }
  if (*count > SHOWN) {
    bppsa_text_add(names, " and %lld more", (long long)(*count - SHOWN));
  }
  return bppsa_text_check(names);
}

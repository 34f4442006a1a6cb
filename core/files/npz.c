#include "core/files/npz.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "core/files/file.h"
#include "core/files/npy.h"

enum { LOCAL = 30, CENTRAL = 46, END = 22, END64 = 56, LOCATOR = 20, EXTRA = 28, NAME = 208, COUNT_LIMIT = 0xFFFF };

/* One member: the bytes of its NPY header, then its elements. */
typedef struct {
  char name[NAME];
  char header[BPPSA_NPY_HEADER];
  size_t header_size;
  int64_t bytes;   /* of its elements */
  int64_t written; /* written so far */
  int64_t offset;  /* of its local header in the file */
  uint32_t crc;    /* of the bytes written so far */
  bool streamed;   /* its elements come in pieces */
} member;

struct bppsa_npz_writer {
  bppsa_file_writer *file;
  int64_t at;    /* position in the file */
  int64_t end;   /* end of the last member */
  int64_t limit; /* sizes and offsets from here on are stored in Zip64 records */
  int64_t count;
  member members[];
};

/* ---- records ---- */

static unsigned char *put(unsigned char *to, int bytes, uint64_t value) {
  for (int i = 0; i < bytes; ++i) {
    *to++ = (unsigned char)(value >> (8 * i) & 0xFF);
  }
  return to;
}

static int64_t size_of(const member *m) {
  return (int64_t)m->header_size + m->bytes;
}

/* A number in a 32-bit field. */
static uint64_t narrow(const bppsa_npz_writer *w, int64_t value) {
  return value >= w->limit ? UINT32_MAX : (uint64_t)value;
}

/* Writes the Zip64 field (§4.5.3) for numbers that do not fit: both sizes in a local header, only those that do not fit in the
 * directory. Returns its length, or 0. */
static size_t put_extra(const bppsa_npz_writer *w, const member *m, bool local, unsigned char *to) {
  const bool size = size_of(m) >= w->limit, offset = !local && m->offset >= w->limit;
  unsigned char *at = to + 4;
  if (!size && !offset) {
    return 0;
  }
  if (size) {
    at = put(put(at, 8, (uint64_t)size_of(m)), 8, (uint64_t)size_of(m));
  }
  at = offset ? put(at, 8, (uint64_t)m->offset) : at;
  (void)put(put(to, 2, 1), 2, (uint64_t)(at - to - 4));
  return (size_t)(at - to);
}

/* The fields that local and central headers share, from "version needed" on: 26 bytes. */
static unsigned char *put_common(const bppsa_npz_writer *w, const member *m, size_t extra, unsigned char *to) {
  to = put(to, 2, extra > 0 ? 45 : 20);
  to = put(put(to, 4, 0), 2, 0); /* flags, method: stored; time */
  to = put(to, 2, 0x21);         /* 1980-01-01, so that files with equal content are equal */
  to = put(to, 4, m->crc);
  to = put(put(to, 4, narrow(w, size_of(m))), 4, narrow(w, size_of(m)));
  return put(put(to, 2, strlen(m->name)), 2, extra);
}

/* Writes at an offset of the file. Bytes that are written in order need no seek and may go to a pipe. */
static bppsa_status write_at(bppsa_npz_writer *w, int64_t offset, const void *data, size_t bytes) {
  if (w->at != offset) {
    BPPSA_TRY(bppsa_file_writer_seek(w->file, offset));
    w->at = offset;
  }
  BPPSA_TRY(bppsa_file_writer_write(w->file, data, bytes));
  w->at += (int64_t)bytes;
  return BPPSA_OK;
}

/* Writes the bytes in front of the elements: local header, name, extra field and NPY header. */
static bppsa_status write_front(bppsa_npz_writer *w, const member *m) {
  unsigned char record[LOCAL + EXTRA] = "PK\x03\x04", extra[EXTRA];
  const size_t length = put_extra(w, m, true, extra), name = strlen(m->name);
  (void)put_common(w, m, length, record + 4);
  BPPSA_TRY(write_at(w, m->offset, record, LOCAL));
  BPPSA_TRY(write_at(w, m->offset + LOCAL, m->name, name));
  BPPSA_TRY(write_at(w, m->offset + LOCAL + (int64_t)name, extra, length));
  return write_at(w, m->offset + LOCAL + (int64_t)(name + length), m->header, m->header_size);
}

static int64_t front_size(const bppsa_npz_writer *w, const member *m) {
  unsigned char extra[EXTRA];
  return LOCAL + (int64_t)(strlen(m->name) + put_extra(w, m, true, extra) + m->header_size);
}

static bppsa_status write_directory(bppsa_npz_writer *w) {
  int64_t size = 0;
  for (int64_t i = 0; i < w->count; ++i) {
    const member *m = &w->members[i];
    unsigned char record[CENTRAL] = "PK\x01\x02", extra[EXTRA];
    const size_t length = put_extra(w, m, false, extra), name = strlen(m->name);
    (void)put_common(w, m, length, put(record + 4, 2, length > 0 ? 45 : 20));
    (void)put(record + 42, 4, narrow(w, m->offset));
    BPPSA_TRY(write_at(w, w->end + size, record, CENTRAL));
    BPPSA_TRY(write_at(w, w->end + size + CENTRAL, m->name, name));
    BPPSA_TRY(write_at(w, w->end + size + CENTRAL + (int64_t)name, extra, length));
    size += CENTRAL + (int64_t)(name + length);
  }
  unsigned char end[END64 + LOCATOR + END] = {0}, *at = end;
  if (w->end >= w->limit || size >= w->limit) {
    memcpy(at, "PK\x06\x06", 4);
    at = put(put(put(at + 4, 8, END64 - 12), 2, 45), 2, 45);
    at = put(put(put(at, 8, 0), 8, (uint64_t)w->count), 8, (uint64_t)w->count); /* disks 0, members */
    at = put(put(at, 8, (uint64_t)size), 8, (uint64_t)w->end);
    memcpy(at, "PK\x06\x07", 4);
    at = put(put(put(at + 4, 4, 0), 8, (uint64_t)(w->end + size)), 4, 1);
  }
  memcpy(at, "PK\x05\x06", 4);
  at = put(put(put(at + 4, 4, 0), 2, (uint64_t)w->count), 2, (uint64_t)w->count);
  at = put(put(put(at, 4, narrow(w, size)), 4, narrow(w, w->end)), 2, 0);
  return write_at(w, w->end + size, end, (size_t)(at - end));
}

/* ---- members ---- */

/* Makes the NPY header of a scalar byte string, a dtype that views do not have. */
static void text_header(const char *text, member *m) {
  m->header_size = 128;
  memset(m->header, ' ', m->header_size);
  memcpy(m->header, "\x93NUMPY\x01\x00\x76\x00", 10); /* 118 bytes follow */
  const int length =
      snprintf(m->header + 10, m->header_size - 10, "{'descr': '|S%zu', 'fortran_order': False, 'shape': (), }", strlen(text));
  m->header[10 + length] = ' ';
  m->header[m->header_size - 1] = '\n';
  m->bytes = (int64_t)strlen(text);
}

static bppsa_status announce(const char *path, const bppsa_npz_array *array, member *m) {
  int64_t count = 0;
  size_t bytes = 0;
  if (strlen(array->name) + sizeof ".npy" > NAME) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: an array's name of %zu bytes, expected at most 200", path, strlen(array->name));
  }
  (void)snprintf(m->name, sizeof m->name, "%s.npy", array->name);
  if (array->text != NULL) {
    text_header(array->text, m);
  } else {
    BPPSA_TRY(bppsa_shape_bytes(array->dtype, array->ndim, array->shape, &count, &bytes));
    BPPSA_TRY(bppsa_npy_header(path, array->dtype, array->ndim, array->shape, m->header, &m->header_size));
    m->bytes = (int64_t)bytes;
  }
  m->crc = (uint32_t)crc32_z(0, (const Bytef *)m->header, m->header_size);
  return BPPSA_OK;
}

static const void *data_of(const bppsa_npz_array *array) {
  return array->text != NULL ? array->text : array->data;
}

/* Gives all members their offsets, and writes those whose data are given. */
static bppsa_status begin(const char *path, const bppsa_npz_array *arrays, bppsa_npz_writer *w) {
  for (int64_t i = 0; i < w->count; ++i) {
    member *m = &w->members[i];
    BPPSA_TRY(announce(path, &arrays[i], m));
    m->offset = w->end;
    if (m->bytes > INT64_MAX / 2 - w->end) {
      return bppsa_fail(BPPSA_ERR_MEMORY, "%s: %s has %lld bytes, expected fewer than 2^62 in an archive", path, m->name,
                        (long long)m->bytes);
    }
    w->end += front_size(w, m) + m->bytes;
  }
  BPPSA_TRY(bppsa_file_writer_create(path, &w->file));
  for (int64_t i = 0; i < w->count; ++i) {
    member *m = &w->members[i];
    const void *data = data_of(&arrays[i]);
    m->streamed = data == NULL && m->bytes > 0;
    if (!m->streamed) {
      m->crc = m->bytes == 0 ? m->crc : (uint32_t)crc32_z(m->crc, data, (size_t)m->bytes);
      m->written = m->bytes;
      BPPSA_TRY(write_front(w, m));
      BPPSA_TRY(write_at(w, m->offset + front_size(w, m), data, (size_t)m->bytes));
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_npz_writer_create_zip64(const char *path, int64_t count, const bppsa_npz_array *arrays, int64_t limit,
                                           bppsa_npz_writer **writer) {
  if (count < 1 || count >= COUNT_LIMIT) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %lld arrays, expected 1 .. %d", path, (long long)count, COUNT_LIMIT - 1);
  }
  bppsa_npz_writer *made = bppsa_calloc(1, sizeof *made + (size_t)count * sizeof *made->members);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->limit = limit;
  made->count = count;
  const bppsa_status status = begin(path, arrays, made);
  if (status != BPPSA_OK) {
    bppsa_npz_writer_abort(made);
    return status;
  }
  *writer = made;
  return BPPSA_OK;
}

bppsa_status bppsa_npz_writer_create(const char *path, int64_t count, const bppsa_npz_array *arrays, bppsa_npz_writer **writer) {
  return bppsa_npz_writer_create_zip64(path, count, arrays, UINT32_MAX, writer);
}

bppsa_status bppsa_npz_writer_write(bppsa_npz_writer *w, int64_t array, const void *elements, size_t bytes) {
  member *m = array >= 0 && array < w->count ? &w->members[array] : NULL;
  if (m == NULL || bytes > (uint64_t)(m->bytes - m->written)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "NPZ file: array %lld takes no further %zu bytes, expected what its shape says",
                      (long long)array, bytes);
  }
  BPPSA_TRY(write_at(w, m->offset + front_size(w, m) + m->written, elements, bytes));
  /* zlib restarts the checksum if the address is NULL */
  m->crc = bytes == 0 ? m->crc : (uint32_t)crc32_z(m->crc, elements, bytes);
  m->written += (int64_t)bytes;
  return BPPSA_OK;
}

/* Writes the fronts of members that came in pieces, whose checksums are known now, and the directory. */
static bppsa_status finish(bppsa_npz_writer *w) {
  for (int64_t i = 0; i < w->count; ++i) {
    const member *m = &w->members[i];
    if (m->written != m->bytes) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "NPZ file: %s has %lld bytes, expected %lld as its shape says", m->name,
                        (long long)m->written, (long long)m->bytes);
    }
    if (m->streamed) {
      BPPSA_TRY(write_front(w, m));
    }
  }
  return write_directory(w);
}

bppsa_status bppsa_npz_writer_commit(bppsa_npz_writer *w) {
  bppsa_status status = finish(w);
  if (status == BPPSA_OK) {
    status = bppsa_file_writer_commit(w->file);
    w->file = NULL;
  }
  bppsa_npz_writer_abort(w);
  return status;
}

void bppsa_npz_writer_abort(bppsa_npz_writer *w) {
  if (w != NULL) {
    bppsa_file_writer_abort(w->file);
    bppsa_free(w);
  }
}

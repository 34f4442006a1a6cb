/* Builds inputs for the fuzzers, which check what the readers make of them. */
#include "tests/fuzz/make.h"

#include <string.h>

void fuzz_add_npy(fuzz_bytes *bytes, int version, const uint8_t *header, size_t header_size, const uint8_t *elements,
                  size_t size) {
  fuzz_add(bytes, "\x93NUMPY", 6);
  fuzz_add_number(bytes, (uint64_t)version, 2);
  fuzz_add_number(bytes, header_size, version == 1 ? 2 : 4);
  fuzz_add(bytes, header, header_size);
  fuzz_add(bytes, elements, size);
}

enum { HEADER = 160 };

static size_t write_header(char header[HEADER], const char *descr, const char *shape) {
  const int length = snprintf(header, HEADER, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape);
  FUZZ_CHECK(length > 0 && length < HEADER);
  return (size_t)length;
}

void fuzz_add_array_parts(fuzz_bytes *bytes, const char *descr, const char *shape, const void *elements, size_t size) {
  char header[HEADER];
  const size_t length = write_header(header, descr, shape);
  fuzz_add_part(bytes, header, length);
  fuzz_add_part(bytes, elements, size);
}

void fuzz_add_array(fuzz_bytes *bytes, const char *descr, const char *shape, const void *elements, size_t size) {
  char header[HEADER];
  const size_t length = write_header(header, descr, shape);
  fuzz_add_npy(bytes, 1, (const uint8_t *)header, length, elements, size);
}

void fuzz_write_array(char path[256], const char *name, const fuzz_part *parts) {
  fuzz_bytes file = {0};
  fuzz_add_npy(&file, 1, parts[0].data, parts[0].size, parts[1].data, parts[1].size);
  snprintf(path, 256, "%s", fuzz_file(name, file.data, file.size));
  free(file.data);
}

void fuzz_add_safetensors(fuzz_bytes *bytes, const fuzz_part *header, const fuzz_part *data) {
  fuzz_add_number(bytes, header->size, 8);
  fuzz_add(bytes, header->data, header->size);
  fuzz_add(bytes, data->data, data->size);
}

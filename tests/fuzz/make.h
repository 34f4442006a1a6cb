/* Files in the formats of the readers, made from their pieces. */
#ifndef BPPSA_TESTS_FUZZ_MAKE_H
#define BPPSA_TESTS_FUZZ_MAKE_H

#include "tests/fuzz/fuzz.h"

/* Magic, version and the header's length in front of a header and the elements. */
void fuzz_add_npy(fuzz_bytes *bytes, int version, const uint8_t *header, size_t header_size, const uint8_t *elements,
                  size_t size);
/* Appends two parts: an array's header as NumPy writes it, and its elements. descr: "<f4"; shape: "(2, 3)". */
void fuzz_add_array_parts(fuzz_bytes *bytes, const char *descr, const char *shape, const void *elements, size_t size);
/* A whole array with such a header. */
void fuzz_add_array(fuzz_bytes *bytes, const char *descr, const char *shape, const void *elements, size_t size);
/* Writes the array whose header and elements two parts hold to the file NAME; path receives where that is. */
void fuzz_write_array(char path[256], const char *name, const fuzz_part *parts);
/* The header's length in front of it and of the tensors' bytes. */
void fuzz_add_safetensors(fuzz_bytes *bytes, const fuzz_part *header, const fuzz_part *data);

#endif

/* What the fuzzers share. Each target is one reader: fuzz_NAME.c defines fuzz_run and fuzz_seed; common.c calls them from
 * libFuzzer, replay.c from an ordinary program.
 *
 * An input is a byte of options, then parts: three bytes with a part's length, low byte first, and its bytes. A mutation
 * changes one part and keeps the others. Targets put checksums and lengths in front of the parts themselves where plain bytes
 * would be refused at the first check; one option of such a target hands over the first part as it is. */
#ifndef BPPSA_TESTS_FUZZ_FUZZ_H
#define BPPSA_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/status.h"

#define FUZZ_PARTS 8

typedef struct {
  const uint8_t *data;
  size_t size;
} fuzz_part;

typedef struct {
  uint8_t options;
  int count;                  /* parts that the input has */
  fuzz_part part[FUZZ_PARTS]; /* a part that the input lacks has size 0, and its data are not NULL either */
} fuzz_input;

/* ---- what a target defines ---- */

/* Hands the input to the reader and checks what comes out. Returns the reader's status. */
bppsa_status fuzz_run(const fuzz_input *input);

/* Bytes that grow. */
typedef struct {
  uint8_t *data;
  size_t size, room;
} fuzz_bytes;

/* Appends seed number `index`, from 0, to `seed`; false behind the last one. A seed is an input that the reader accepts, or
 * nearly. */
bool fuzz_seed(int index, fuzz_bytes *seed);

/* ---- for targets ---- */

/* Ends the program where the condition is false: the fuzzer keeps the input. */
#define FUZZ_CHECK(condition)                                                                                                    \
  do {                                                                                                                           \
    if (!(condition)) {                                                                                                          \
      fprintf(stderr, "%s:%d: not true: %s; last error: %s\n", __FILE__, __LINE__, #condition, bppsa_last_error());              \
      abort();                                                                                                                   \
    }                                                                                                                            \
  } while (0)

/* The path of NAME in a directory of this process (valid until the fourth call from now). fuzz_file writes the file too; a part
 * that the input lacks leaves no file. */
const char *fuzz_path(const char *name);
const char *fuzz_file(const char *name, const void *data, size_t size);

/* The same as a file that the library alone can open, by its calls of core/base/io.h, and only to read: no call to the operating
 * system is made. The bytes are borrowed until the next call or fuzz_memory_close. */
const char *fuzz_memory(const void *data, size_t size);
void fuzz_memory_close(void);

/* The part as a text with a final 0; bytes 0 end it. Owned (free). */
char *fuzz_text(const fuzz_part *part);

void fuzz_add(fuzz_bytes *bytes, const void *data, size_t size);
void fuzz_add_number(fuzz_bytes *bytes, uint64_t value, int size); /* low byte first */
/* Appends a part of `size` bytes. */
void fuzz_add_part(fuzz_bytes *bytes, const void *data, size_t size);
void fuzz_add_part_text(fuzz_bytes *bytes, const char *text);
void fuzz_add_part_file(fuzz_bytes *bytes, const char *path);
/* A seed of options and one text, number `index` of a list; false behind its end. */
bool fuzz_seed_text(int index, uint8_t options, const char *const *texts, int count, fuzz_bytes *seed);

/* ---- common.c ---- */

extern int64_t fuzz_accepted; /* inputs that the reader has accepted in this process */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
/* libFuzzer's; replay.c has one of its own. Changes data in place and returns its new size, at most `most`. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

#endif

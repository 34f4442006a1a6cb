/* Runs a target on one input and checks what holds for every reader: a status with a message of one line, nothing left allocated,
 * no descriptor left open, and no more memory than the input's size can justify. */
#include "tests/fuzz/fuzz.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/io.h"

enum { LENGTH = 3, PATHS = 4 };

/* A reader may take this much whatever it reads, and so many bytes for each byte that it reads. */
#define MOST_MEMORY ((int64_t)64 << 20)
#define MEMORY_FACTOR 4096

/* ---- inputs ---- */

static size_t part_length(const uint8_t *at) {
  return (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16;
}

static void parse(const uint8_t *data, size_t size, fuzz_input *input) {
  static const uint8_t nothing = 0;
  *input = (fuzz_input){.options = size > 0 ? data[0] : 0};
  for (int i = 0; i < FUZZ_PARTS; ++i) {
    input->part[i].data = &nothing;
  }
  for (size_t at = 1; input->count < FUZZ_PARTS && at + LENGTH <= size; ++input->count) {
    const size_t left = size - at - LENGTH, length = part_length(data + at) < left ? part_length(data + at) : left;
    input->part[input->count] = (fuzz_part){data + at + LENGTH, length};
    at += LENGTH + length;
  }
}

static void put_length(uint8_t *at, size_t length) {
  for (int i = 0; i < LENGTH; ++i) {
    at[i] = (uint8_t)(length >> 8 * i);
  }
}

/* At least `size` bytes, kept from call to call. */
static uint8_t *scratch(size_t size) {
  static uint8_t *bytes;
  static size_t room;
  if (size > room) {
    free(bytes);
    bytes = malloc(size);
    FUZZ_CHECK(bytes != NULL);
    room = size;
  }
  return bytes;
}

/* Changes one part, or in one of eight cases the bytes as a whole. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  fuzz_input input;
  parse(data, size, &input);
  if (input.count == 0 || seed % 8 == 0) {
    return LLVMFuzzerMutate(data, size, most);
  }
  const fuzz_part *chosen = &input.part[seed / 8 % (unsigned)input.count];
  const size_t from = (size_t)(chosen->data - data), tail = size - from - chosen->size, room = most - from - tail;
  if (most < size || room < 1) {
    return LLVMFuzzerMutate(data, size, most);
  }
  uint8_t *part = scratch(most), *rest = part + room; /* their sizes add up to less than most */
  memcpy(part, chosen->data, chosen->size);
  memcpy(rest, chosen->data + chosen->size, tail);
  const size_t length = LLVMFuzzerMutate(part, chosen->size, room);
  put_length(data + from - LENGTH, length);
  memcpy(data + from, part, length);
  memcpy(data + from + length, rest, tail);
  return from + length + tail;
}

/* ---- one run ---- */

static bool one_line(const char *message) {
  for (const char *c = message; *c != '\0'; ++c) {
    if ((unsigned char)*c < 0x20 || *c == 0x7f) {
      return false;
    }
  }
  return message[0] != '\0' && strlen(message) < 512;
}

int64_t fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static bool warm;                    /* the first run fills caches that stay */
  static bppsa_alloc_account *account; /* of all runs since one took more than MOST_MEMORY */
  fuzz_input input;
  parse(data, size, &input);
  if (account == NULL) {
    account = bppsa_alloc_account_create();
    FUZZ_CHECK(account != NULL);
  }
  const int64_t live = bppsa_alloc_live(), open = bppsa_io_open_count();
  bppsa_alloc_account_use(account);
  const bppsa_status status = fuzz_run(&input);
  bppsa_alloc_account_use(NULL);
  FUZZ_CHECK(status >= BPPSA_OK && status <= BPPSA_ERR_COMM);
  FUZZ_CHECK(status != BPPSA_ERR_MEMORY);
  FUZZ_CHECK(status == BPPSA_OK || one_line(bppsa_last_error()));
  FUZZ_CHECK(!warm || bppsa_alloc_live() == live);
  FUZZ_CHECK(bppsa_io_open_count() == open);
  const int64_t peak = bppsa_alloc_account_peak(account);
  FUZZ_CHECK(peak <= MOST_MEMORY + MEMORY_FACTOR * (int64_t)size);
  if (peak > MOST_MEMORY) {
    bppsa_alloc_account_destroy(account);
    account = NULL;
  }
  fuzz_accepted += status == BPPSA_OK;
  warm = true;
  return 0;
}

/* ---- files ---- */

static char directory[64];

static void remove_directory(void) {
  char command[96];
  snprintf(command, sizeof command, "rm -rf '%s'", directory);
  if (system(command) != 0) {
    fprintf(stderr, "%s cannot be removed\n", directory);
  }
}

const char *fuzz_path(const char *name) {
  static char paths[PATHS][256];
  static int next;
  if (directory[0] == '\0') {
    const char *const home = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(directory, sizeof directory, "%s/bppsa-fuzz-XXXXXX", home);
    FUZZ_CHECK(mkdtemp(directory) != NULL);
    (void)atexit(remove_directory);
  }
  next = (next + 1) % PATHS;
  const int length = snprintf(paths[next], sizeof paths[next], "%s%s%s", directory, name[0] != '\0' ? "/" : "", name);
  FUZZ_CHECK(length > 0 && (size_t)length < sizeof paths[next]);
  return paths[next];
}

const char *fuzz_file(const char *name, const void *data, size_t size) {
  const char *path = fuzz_path(name);
  FILE *file = fopen(path, "wb");
  FUZZ_CHECK(file != NULL);
  FUZZ_CHECK(fwrite(data, 1, size, file) == size);
  FUZZ_CHECK(fclose(file) == 0);
  return path;
}

/* ---- bytes ---- */

char *fuzz_text(const fuzz_part *part) {
  char *text = malloc(part->size + 1);
  FUZZ_CHECK(text != NULL);
  memcpy(text, part->data, part->size);
  text[part->size] = '\0';
  return text;
}

void fuzz_add(fuzz_bytes *bytes, const void *data, size_t size) {
  if (bytes->data == NULL || size > bytes->room - bytes->size) {
    bytes->room = 2 * (bytes->size + size) + 64;
    bytes->data = realloc(bytes->data, bytes->room);
    FUZZ_CHECK(bytes->data != NULL);
  }
  if (size > 0) {
    memcpy(bytes->data + bytes->size, data, size);
  }
  bytes->size += size;
}

void fuzz_add_number(fuzz_bytes *bytes, uint64_t value, int size) {
  uint8_t number[8];
  for (int i = 0; i < size; ++i) {
    number[i] = (uint8_t)(value >> 8 * i);
  }
  fuzz_add(bytes, number, (size_t)size);
}

void fuzz_add_part(fuzz_bytes *bytes, const void *data, size_t size) {
  fuzz_add_number(bytes, size, LENGTH);
  fuzz_add(bytes, data, size);
}

void fuzz_add_part_text(fuzz_bytes *bytes, const char *text) {
  fuzz_add_part(bytes, text, strlen(text));
}

void fuzz_add_part_file(fuzz_bytes *bytes, const char *path) {
  static uint8_t content[1 << 20];
  FILE *file = fopen(path, "rb");
  FUZZ_CHECK(file != NULL);
  const size_t size = fread(content, 1, sizeof content, file);
  FUZZ_CHECK(fclose(file) == 0 && size < sizeof content);
  fuzz_add_part(bytes, content, size);
}

bool fuzz_seed_text(int index, uint8_t options, const char *const *texts, int count, fuzz_bytes *seed) {
  if (index >= count) {
    return false;
  }
  fuzz_add_number(seed, options, 1);
  fuzz_add_part_text(seed, texts[index]);
  return true;
}

/* Runs a target without libFuzzer, in any build: its seeds, those cut at up to CUTS places, the files and directories named on
 * the command line (inputs once found to break a reader), and MUTATIONS changed copies of each, drawn from a fixed seed.
 *
 *     fuzz_replay_NAME [--cuts N] [--mutations N] [--seeds DIRECTORY] [FILE | DIRECTORY ...]
 *
 * --cuts: at most about so many cuts of each input; 0: none. --seeds writes the seeds into a directory, which libFuzzer starts
 * from, and runs nothing. Exit 1: an input could not be read, or the reader accepted none: then nothing behind its checks ran. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/philox.h"
#include "tests/fuzz/fuzz.h"

enum { MUTATIONS = 300, CUTS = 2000, MOST = 1 << 16, PATH = 1024 };

static uint64_t drawn; /* how many random numbers were drawn */

static uint32_t draw(uint32_t below) {
  const uint64_t seed = 24;
  const uint32_t value = bppsa_random_u32(seed, BPPSA_STREAM_TEST, drawn++);
  return below > 0 ? value % below : value;
}

/* Stands in for libFuzzer's: bytes changed, removed, repeated, numbers at the ends of their ranges. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) {
  static const uint8_t edges[] = {0x00, 0x01, 0x7f, 0x80, 0xff, '0', '9', '-', '"', '[', ']', '{', '}', ',', '\n', ' '};
  for (uint32_t round = draw(4) + 1; round > 0; --round) {
    const size_t at = size > 0 ? draw((uint32_t)size) : 0, left = size - at;
    switch (size > 0 ? draw(6) : 4) {
    case 0:
      data[at] = (uint8_t)(data[at] ^ 1u << draw(8));
      break;
    case 1:
      data[at] = edges[draw(sizeof edges)];
      break;
    case 2: { /* cuts bytes out */
      const size_t cut = draw((uint32_t)left) + 1;
      memmove(data + at, data + at + cut, left - cut);
      size -= cut;
      break;
    }
    case 3: /* repeats what follows */
      if (size + left <= most) {
        memmove(data + at + left, data + at, left);
        size += left;
      }
      break;
    case 4:
      if (size < most) {
        memmove(data + at + 1, data + at, left);
        data[at] = (uint8_t)draw(256);
        size += 1;
      }
      break;
    default: /* a number of up to 8 bytes at an end of its range */
      memset(data + at, draw(2) != 0 ? 0xff : 0, left < 8 ? left : draw(8) + 1);
      break;
    }
  }
  return size;
}

static int64_t runs, mutations = MUTATIONS, cuts = CUTS;

static void run(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size + 1); /* of exactly this size, so that the sanitizers see reads behind its end */
  FUZZ_CHECK(copy != NULL);
  memcpy(copy, data, size);
  (void)LLVMFuzzerTestOneInput(copy, size);
  free(copy);
  ++runs;
}

static void run_all(const uint8_t *data, size_t size) {
  uint8_t *changed = malloc(size + MOST);
  FUZZ_CHECK(changed != NULL);
  run(data, size);
  for (size_t cut = 0; cuts > 0 && cut < size; cut += size / (size_t)cuts + 1) {
    run(data, cut);
  }
  for (int64_t i = 0; i < mutations; ++i) {
    size_t length = size;
    memcpy(changed, data, size);
    for (uint32_t round = draw(3) + 1; round > 0; --round) {
      length = LLVMFuzzerCustomMutator(changed, length, size + MOST, draw(0));
    }
    run(changed, length);
  }
  free(changed);
}

/* Runs a file, or what is in a directory. Returns whether it could be read. */
static bool run_path(const char *path) {
  DIR *entries = opendir(path);
  if (entries != NULL) {
    bool good = true;
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
      char inner[PATH];
      snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
      good = entry->d_name[0] == '.' || (run_path(inner) && good);
    }
    closedir(entries);
    return good;
  }
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return false;
  }
  uint8_t *data = malloc((size_t)1 << 24);
  FUZZ_CHECK(data != NULL);
  const size_t size = fread(data, 1, (size_t)1 << 24, file);
  fclose(file);
  run_all(data, size);
  free(data);
  return true;
}

/* Runs the seeds, or writes them into the directory. */
static void run_seeds(const char *directory) {
  bool more = true;
  for (int i = 0; more; ++i) {
    fuzz_bytes seed = {0};
    more = fuzz_seed(i, &seed);
    if (more && directory == NULL) {
      run_all(seed.data, seed.size);
    } else if (more) {
      char path[PATH];
      snprintf(path, sizeof path, "%s/seed_%d", directory, i);
      FILE *file = fopen(path, "wb");
      more = file != NULL && fwrite(seed.data, 1, seed.size, file) == seed.size && fclose(file) == 0;
      FUZZ_CHECK(more);
    }
    free(seed.data);
  }
}

int main(int argc, char **argv) {
  const char *directory = NULL;
  bool good = true;
  int first = 1;
  for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
    if (strcmp(argv[first], "--mutations") == 0) {
      mutations = strtoll(argv[first + 1], NULL, 10);
    } else if (strcmp(argv[first], "--cuts") == 0) {
      cuts = strtoll(argv[first + 1], NULL, 10);
    } else if (strcmp(argv[first], "--seeds") == 0) {
      directory = argv[first + 1];
    } else {
      fprintf(stderr, "%s: unknown option, expected --mutations, --cuts or --seeds\n", argv[first]);
      return 2;
    }
  }
  run_seeds(directory);
  for (int i = first; directory == NULL && i < argc; ++i) {
    good = run_path(argv[i]) && good;
  }
  printf("%lld runs, %lld accepted\n", (long long)runs, (long long)fuzz_accepted);
  if (directory == NULL && fuzz_accepted == 0) {
    fprintf(stderr, "%s: no input was accepted, expected one of the seeds at least\n", argv[0]);
    return 1;
  }
  return good ? 0 : 1;
}

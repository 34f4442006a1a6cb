/* Readers: train/checkpoint.c, train/resume.c, train/log.c. The parts are the header and the tensors' bytes of the latest
 * checkpoint, the same of the previous one, and the log. Options: bit 0: checksums are made right; bit 1: there is a previous
 * checkpoint; bit 2: there is a log. The run then trains on. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/make.h"
#include "tests/train/tiny_model.h"
#include "train/trainer.h"

enum { SEQ_LEN = 6, CLASSES = 10, SAMPLES = 21, BATCH = 4, STEPS = 10, MOST_ENTRIES = 128 };

#define LATEST "run/checkpoint.safetensors"
#define PREVIOUS "run/checkpoint.previous.safetensors"

static bppsa_status train(int64_t iterations, bool resume, bool log) {
  const bppsa_dataset_options options = {.samples = SAMPLES, .seq_len = SEQ_LEN, .seed = 2};
  bppsa_train_config config = bppsa_train_config_default();
  bppsa_dataset *dataset = NULL;
  bppsa_train_result result;
  char folder[256], log_path[256];
  snprintf(folder, sizeof folder, "%s", fuzz_path("run"));
  snprintf(log_path, sizeof log_path, "%s", fuzz_path("log.jsonl"));
  config.batch = BATCH;
  config.iterations = iterations;
  config.checkpoint = folder;
  config.resume = resume;
  config.log_path = log ? log_path : NULL;
  BPPSA_TRY(bppsa_dataset_create("bitstream", &options, &dataset));
  tiny_model *model = tiny_create(BPPSA_F32, SEQ_LEN, 1, CLASSES, BATCH, false);
  FUZZ_CHECK(model != NULL);
  const bppsa_status status = bppsa_train(&config, &model->base, dataset, NULL, NULL, &result);
  FUZZ_CHECK(status != BPPSA_OK || result.steps == iterations);
  bppsa_model_destroy(&model->base);
  bppsa_dataset_destroy(dataset);
  return status;
}

static void checksum_text(char text[16], const void *data, size_t size) {
  snprintf(text, 16, "%08lx", (unsigned long)crc32_z(crc32_z(0, NULL, 0), data, size));
}

/* Writes the checksums of a file anew where it is one. */
static void sign(const char *path) {
  static char texts[MOST_ENTRIES][16];
  static bppsa_metadata entries[MOST_ENTRIES];
  static bppsa_named_view tensors[MOST_ENTRIES];
  bppsa_safetensors *file = NULL;
  bppsa_metadata pair = {NULL, NULL};
  int64_t count = 0;
  if (bppsa_safetensors_load(path, &file) != BPPSA_OK) {
    return;
  }
  const int64_t tensor_count = bppsa_safetensors_count(file) < MOST_ENTRIES ? bppsa_safetensors_count(file) : MOST_ENTRIES;
  for (int64_t i = 0; i < tensor_count; ++i) {
    tensors[i] = *bppsa_safetensors_get(file, i);
  }
  uLong all = crc32_z(0, NULL, 0);
  while (count < MOST_ENTRIES && bppsa_safetensors_metadata_next(file, &pair)) {
    entries[count] = pair;
    const bppsa_view *view = strncmp(pair.key, "crc32.", 6) == 0 ? bppsa_safetensors_find(file, pair.key + 6) : NULL;
    if (view != NULL) {
      checksum_text(texts[count], view->data, bppsa_view_bytes(view));
      entries[count].value = texts[count];
    } else if (strcmp(pair.key, "crc32") == 0) { /* of all entries but itself */
      snprintf(texts[count], sizeof texts[count], "%08lx", (unsigned long)all);
      entries[count].value = texts[count];
      ++count;
      continue;
    }
    all = crc32_z(all, (const Bytef *)entries[count].key, strlen(entries[count].key) + 1);
    all = crc32_z(all, (const Bytef *)entries[count].value, strlen(entries[count].value) + 1);
    ++count;
  }
  (void)bppsa_safetensors_save(path, tensor_count, tensors, count, entries);
  bppsa_safetensors_destroy(file);
}

static void write_checkpoint(const char *name, const fuzz_part *header, const fuzz_part *data, bool right) {
  fuzz_bytes bytes = {0};
  fuzz_add_safetensors(&bytes, header, data);
  const char *path = fuzz_file(name, bytes.data, bytes.size);
  free(bytes.data);
  if (right) {
    sign(path);
  }
}

bppsa_status fuzz_run(const fuzz_input *input) {
  const bool right = (input->options & 1) != 0, previous = (input->options & 2) != 0, log = (input->options & 4) != 0;
  (void)mkdir(fuzz_path("run"), 0777);
  (void)unlink(fuzz_path(PREVIOUS));
  (void)unlink(fuzz_path("log.jsonl"));
  write_checkpoint(LATEST, &input->part[0], &input->part[1], right);
  if (previous) {
    write_checkpoint(PREVIOUS, &input->part[2], &input->part[3], right);
  }
  if (log) {
    (void)fuzz_file("log.jsonl", input->part[4].data, input->part[4].size);
  }
  return train(STEPS, true, log);
}

static void add_checkpoint(fuzz_bytes *seed, const char *name) {
  static uint8_t content[1 << 16];
  FILE *file = fopen(fuzz_path(name), "rb");
  if (file == NULL) {
    fuzz_add_part(seed, "", 0);
    fuzz_add_part(seed, "", 0);
    return;
  }
  const size_t size = fread(content, 1, sizeof content, file), header = (size_t)content[0] | (size_t)content[1] << 8;
  FUZZ_CHECK(fclose(file) == 0 && size < sizeof content && 8 + header <= size);
  fuzz_add_part(seed, content + 8, header);
  fuzz_add_part(seed, content + 8 + header, size - 8 - header);
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const int steps[] = {1, 6, 8, 10};
  if (index >= 8) {
    return false;
  }
  const bool log = index % 2 != 0;
  (void)mkdir(fuzz_path("run"), 0777);
  (void)unlink(fuzz_path(LATEST));
  (void)unlink(fuzz_path(PREVIOUS));
  FUZZ_CHECK(train(steps[index / 2], false, log) == BPPSA_OK);
  fuzz_add_number(seed, log ? 7 : 3, 1);
  add_checkpoint(seed, LATEST);
  add_checkpoint(seed, PREVIOUS);
  if (log) {
    fuzz_add_part_file(seed, fuzz_path("log.jsonl"));
  }
  return true;
}

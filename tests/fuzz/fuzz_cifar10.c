/* Reader: train/data/dataset_cifar10.c. Each part is a file of the directory: a part of n bytes stands for a file of as many
 * records as fit in 16 n bytes, whose labels are the part's bytes; options: which files exist, bit 6: the last byte is missing,
 * bit 7: the first part is a file as it is. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "tests/fuzz/fuzz.h"
#include "train/data/cifar10.h"
#include "train/data/dataset.h"

enum { MOST_RECORDS = 4 };

static void write_file(const fuzz_input *input, int file) {
  static uint8_t bytes[MOST_RECORDS * BPPSA_CIFAR10_RECORD];
  char name[64];
  const fuzz_part *part = &input->part[file];
  snprintf(name, sizeof name, "cifar/%s", bppsa_cifar10_file(file));
  (void)unlink(fuzz_path(name));
  if ((input->options & 1 << file) == 0) {
    return;
  }
  if ((input->options & 0x80) != 0 && file == 0) {
    (void)fuzz_file(name, part->data, part->size);
    return;
  }
  const size_t records = part->size < MOST_RECORDS ? part->size : MOST_RECORDS, size = records * BPPSA_CIFAR10_RECORD;
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = i % BPPSA_CIFAR10_RECORD == 0 ? part->data[i / BPPSA_CIFAR10_RECORD] : part->data[i % part->size];
  }
  (void)fuzz_file(name, bytes, size > 0 && (input->options & 0x40) != 0 ? size - 1 : size);
}

static void check(const bppsa_dataset *dataset) {
  const int64_t indices[2] = {0, dataset->samples - 1}, shape[4] = {2, 3, 32, 32};
  static double x[2 * BPPSA_CIFAR10_PIXELS];
  int64_t labels[2] = {-1, -1};
  for (int wide = 0; wide < 2; ++wide) {
    const bppsa_view view = bppsa_view_make(x, wide != 0 ? BPPSA_F64 : BPPSA_F32, 4, shape);
    FUZZ_CHECK(bppsa_dataset_fill(dataset, NULL, 2, indices, &view, labels) == BPPSA_OK);
    FUZZ_CHECK(labels[0] >= 0 && labels[0] < 10 && labels[1] >= 0 && labels[1] < 10);
  }
}

bppsa_status fuzz_run(const fuzz_input *input) {
  char spec[300], command[300];
  bppsa_dataset *dataset = NULL;
  if (access(fuzz_path("cifar"), F_OK) != 0) {
    snprintf(command, sizeof command, "mkdir '%s'", fuzz_path("cifar"));
    FUZZ_CHECK(system(command) == 0);
  }
  for (int file = 0; file < BPPSA_CIFAR10_FILES; ++file) {
    write_file(input, file);
  }
  bppsa_dataset_options options = bppsa_dataset_options_default();
  options.samples = input->part[6].size > 0 ? input->part[6].data[0] % 16 : 0;
  snprintf(spec, sizeof spec, "cifar10:%s", fuzz_path("cifar"));
  const bppsa_status status = bppsa_dataset_create(spec, &options, &dataset);
  if (status == BPPSA_OK) {
    check(dataset);
  }
  bppsa_dataset_destroy(dataset);
  return status;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const uint8_t options[] = {0x21, 0x3f, 0x41, 0x02, 0x20, 0x81};
  if (index >= (int)sizeof options) {
    return false;
  }
  fuzz_add_number(seed, options[index], 1);
  for (int i = 0; i < 6; ++i) {
    fuzz_add_part(seed, i % 2 == 0 ? "\0\1\2\3" : "\11\5", i % 2 == 0 ? 4 : 2);
  }
  fuzz_add_part(seed, "\5", index % 2 == 0);
  return true;
}

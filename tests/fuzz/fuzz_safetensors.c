/* Reader: core/files/safetensors.c. Options: 0 the part is a file; 1 the first part is the header, whose length is put in front,
 * the second the tensors' bytes. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/files/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/make.h"

static void check_file(const bppsa_safetensors *file) {
  const int64_t count = bppsa_safetensors_count(file);
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_named_view *tensor = bppsa_safetensors_get(file, i);
    const size_t bytes = bppsa_view_bytes(&tensor->view);
    FUZZ_CHECK(bppsa_safetensors_find(file, tensor->name) == &tensor->view);
    for (size_t at = 0; at < bytes; ++at) { /* every byte is the object's */
      sum += ((const uint8_t *)tensor->view.data)[at];
    }
  }
  bppsa_metadata pair = {NULL, NULL};
  while (bppsa_safetensors_metadata_next(file, &pair)) {
    const char *value = bppsa_safetensors_metadata(file, pair.key);
    FUZZ_CHECK(value != NULL && strcmp(value, pair.value) == 0);
    sum += strlen(pair.key);
  }
  bppsa_named_view *list = NULL;
  int64_t listed = -1;
  FUZZ_CHECK(bppsa_safetensors_list(file, &list, &listed) == BPPSA_OK && listed == count);
  bppsa_free(list);
  FUZZ_CHECK(sum <= UINT64_MAX);
}

bppsa_status fuzz_run(const fuzz_input *input) {
  fuzz_bytes bytes = {0};
  bppsa_safetensors *file = NULL;
  if (input->options % 2 == 0) {
    fuzz_add(&bytes, input->part[0].data, input->part[0].size);
  } else {
    fuzz_add_safetensors(&bytes, &input->part[0], &input->part[1]);
  }
  const bppsa_status status = bppsa_safetensors_load(fuzz_memory(bytes.data, bytes.size), &file);
  fuzz_memory_close();
  FUZZ_CHECK((status == BPPSA_OK) == (file != NULL));
  if (file != NULL) {
    check_file(file);
    bppsa_safetensors_destroy(file);
  }
  free(bytes.data);
  return status;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const struct {
    const char *header;
    size_t size;
  } seeds[] = {
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8},
      {"{\"__metadata__\":{\"k\":\"v\",\"loss\":\"all\"},\"b\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[8,16]},"
       "\"a\":{\"dtype\":\"I64\",\"shape\":[1,1],\"data_offsets\":[0,8]},\"e\":{\"dtype\":\"BOOL\",\"shape\":[3],"
       "\"data_offsets\":[16,19]},\"f\":{\"dtype\":\"F16\",\"shape\":[0,2],\"data_offsets\":[19,19]}}   ",
       19},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[4],"
       "\"data_offsets\":[2,6]}}",
       6},
      {"{\"a\":{\"dtype\":\"BF16\",\"shape\":[9223372036854775807,2],\"data_offsets\":[0,4]}}", 4},
      {"{}", 0},
      {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],"
       "\"data_offsets\":[3,4]}}",
       4},
  };
  static const uint8_t data[32] = {1, 0, 0, 0x80, 0x3f, 6, 7, 8, 9};
  const int count = (int)(sizeof seeds / sizeof seeds[0]);
  const char *header = seeds[index < count ? index : 1].header;
  const fuzz_part parts[2] = {{(const uint8_t *)header, strlen(header)}, {data, seeds[index < count ? index : 1].size}};
  fuzz_add_number(seed, index < count, 1);
  if (index < count) {
    fuzz_add_part(seed, parts[0].data, parts[0].size);
    fuzz_add_part(seed, parts[1].data, parts[1].size);
    return true;
  }
  fuzz_bytes file = {0};
  fuzz_add_safetensors(&file, &parts[0], &parts[1]);
  fuzz_add_part(seed, file.data, file.size);
  free(file.data);
  return index == count;
}

/* Reader: core/files/npy.c. Options: 0 the part is a file; 1, 2, 3 the first part is the header's text behind magic, version 1, 2
 * or 3 and its length, the second the elements. 4 more: parsed where it lies only, and not read as a file too. */
#include <string.h>

#include "core/files/npy.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/make.h"

/* The header that would be written, in front of the elements, reads as the same array. */
static void check_round_trip(const bppsa_view *array) {
  char header[BPPSA_NPY_HEADER];
  size_t length = 0;
  FUZZ_CHECK(bppsa_npy_header("again", array->dtype, array->ndim, array->shape, header, &length) == BPPSA_OK);
  fuzz_bytes file = {0};
  bppsa_buffer copy = {0};
  fuzz_add(&file, header, length);
  fuzz_add(&file, array->data, bppsa_view_bytes(array));
  FUZZ_CHECK(bppsa_npy_load(fuzz_memory(file.data, file.size), &copy) == BPPSA_OK);
  FUZZ_CHECK(copy.view.dtype == array->dtype && bppsa_view_same_shape(&copy.view, array));
  FUZZ_CHECK(bppsa_view_bytes(array) == 0 || memcmp(copy.view.data, array->data, bppsa_view_bytes(array)) == 0);
  bppsa_buffer_free(&copy);
  free(file.data);
}

/* The file, read in every way. Returns the reader's status. */
static bppsa_status load(const fuzz_bytes *file) {
  bppsa_buffer array = {0};
  const char *const path = fuzz_memory(file->data, file->size);
  const bppsa_status status = bppsa_npy_load(path, &array);
  if (status != BPPSA_OK) {
    return status;
  }
  for (int wide = 0; wide < 2; ++wide) {
    bppsa_buffer reals = {0};
    if (bppsa_npy_load_reals(path, wide != 0 ? BPPSA_F64 : BPPSA_F32, &reals) == BPPSA_OK) {
      FUZZ_CHECK(bppsa_view_same_shape(&reals.view, &array.view));
      bppsa_buffer_free(&reals);
    }
  }
  check_round_trip(&array.view);
  bppsa_buffer_free(&array);
  return BPPSA_OK;
}

bppsa_status fuzz_run(const fuzz_input *input) {
  fuzz_bytes file = {0};
  const int version = input->options & 3;
  if (version == 0) {
    fuzz_add(&file, input->part[0].data, input->part[0].size);
  } else {
    fuzz_add_npy(&file, version, input->part[0].data, input->part[0].size, input->part[1].data, input->part[1].size);
  }
  file.data =
      realloc(file.data, file.size + (file.size == 0)); /* of exactly this size: the sanitizers see reads behind its end */
  FUZZ_CHECK(file.data != NULL);
  bppsa_view view;
  const bppsa_status parsed = bppsa_npy_parse("memory", file.data, (int64_t)file.size, &view);
  if (parsed == BPPSA_OK) {
    FUZZ_CHECK((const uint8_t *)view.data + bppsa_view_bytes(&view) == file.data + file.size || bppsa_view_bytes(&view) == 0);
  }
  if ((input->options & 4) == 0) {
    const bppsa_status loaded = load(&file);
    FUZZ_CHECK(loaded == BPPSA_OK || parsed != BPPSA_OK); /* a copy may also be rearranged */
    fuzz_memory_close();
  }
  free(file.data);
  return parsed;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const struct {
    uint8_t options;
    const char *header, *elements;
    size_t size;
  } seeds[] = {
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", "\0\0\x80\x3f\0\0\0\x40", 8},
      {1, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n", "\0\0\0\0\0\0\xf0\x3f", 8},
      {2, "{'descr': '<i8', 'fortran_order': False, 'shape': (1, 2), }  \n", "\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16},
      {3, "{'shape': (4,), 'descr': '|b1', 'fortran_order': True}\n", "\0\1\1\0", 4},
      {1, "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 3)}\n", "", 0},
      {1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n", "\x9c\x75\0\x88\x3c\xe4\x37\x7e", 8},
      {1, "{\"descr\": \">f4\", 'fortran_order': False, 'shape': (2, 2, 2, 2, 2, 2, 2, 2, 2)}\n", "", 0},
      {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}\n", "\0\0\0\0", 4},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }\n", "\0\0\0\0", 4},
      {1, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n", "\0\1\0\2\0\3\0\4\0\5\0\6", 12},
      {1, "{'descr': '>f8', 'fortran_order': False, 'shape': (1,), }\n", "\x3f\xf0\0\0\0\0\0\0", 8},
  };
  const int count = (int)(sizeof seeds / sizeof seeds[0]), at = index % count;
  if (index < 2 * count) { /* in both ways, then where it lies only */
    fuzz_add_number(seed, (uint64_t)(seeds[at].options | (index < count ? 0 : 4)), 1);
    fuzz_add_part_text(seed, seeds[at].header);
    fuzz_add_part(seed, seeds[at].elements, seeds[at].size);
    return true;
  }
  fuzz_bytes file = {0};
  fuzz_add_npy(&file, 1, (const uint8_t *)seeds[0].header, strlen(seeds[0].header), (const uint8_t *)"\0\0\0\0\0\0\0\0", 8);
  fuzz_add_number(seed, 0, 1);
  fuzz_add_part(seed, file.data, file.size);
  free(file.data);
  return index == 2 * count;
}

/* safetensors: round trips, layouts of other programs, and files with wrong contents. */
#include "core/base/philox.h"
#include "core/files/safetensors.h"
#include "tests/core/helpers.h"
#include "tests/support/json_memory.h"

#define PATH "safetensors_test.safetensors"

static unsigned char made[4096];

/* A file of this header and `data` bytes 0, 1, 2 ...; returns its size. */
static size_t make(const char *header, size_t data) {
  const uint64_t length = strlen(header);
  memcpy(made, &length, 8);
  memcpy(made + 8, header, length);
  for (size_t i = 0; i < data; ++i) {
    made[8 + length + i] = (unsigned char)i;
  }
  return 8 + (size_t)length + data;
}

static bppsa_status load_made(size_t size, bppsa_safetensors **file) {
  put_file(PATH, made, size);
  return bppsa_safetensors_load(PATH, file);
}

static void round_trip(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  static unsigned char data[8 * 24];
  for (size_t i = 0; i < sizeof data; ++i) {
    data[i] = (unsigned char)(i * 29 + 3);
  }
  bppsa_named_view tensors[BPPSA_DTYPE_COUNT + 4];
  char names[BPPSA_DTYPE_COUNT][32];
  int64_t count = 0;
  for (int d = 0; d < BPPSA_DTYPE_COUNT; ++d, ++count) { /* 3 elements each: wide types begin at odd offsets */
    snprintf(names[d], sizeof names[d], "t.%d \"\\/\xc3\xa9", 12 - d);
    tensors[count] = (bppsa_named_view){names[d], bppsa_view_make(data + 8 * d, (bppsa_dtype)d, 1, (const int64_t[]){3})};
  }
  tensors[count++] = (bppsa_named_view){"loss", bppsa_view_make(data, BPPSA_F64, 0, NULL)};
  tensors[count++] = (bppsa_named_view){"", bppsa_view_make(data, BPPSA_F32, 2, (const int64_t[]){0, 5})};
  tensors[count++] = (bppsa_named_view){"empty too", bppsa_view_make(NULL, BPPSA_F32, 1, (const int64_t[]){0})};
  tensors[count++] = (bppsa_named_view){"m", bppsa_view_make(data, BPPSA_F32, 3, (const int64_t[]){2, 3, 4})};
  const bppsa_metadata metadata[] = {{"format", "pt"}, {"note", "line\nbreak \xe2\x82\xac"}};
  assert_int_equal(bppsa_safetensors_save(PATH, count, tensors, 2, metadata), BPPSA_OK);
  uint64_t length = 0;
  assert_int_equal(get_file(PATH, &length, 8), 8);
  assert_int_equal(length % 8, 0);

  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_load(PATH, &file), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_count(file), count);
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_view *view = bppsa_safetensors_find(file, tensors[i].name);
    assert_non_null(view);
    assert_int_equal(view->dtype, tensors[i].view.dtype);
    assert_true(bppsa_view_same_shape(view, &tensors[i].view));
    assert_int_equal((uintptr_t)view->data % BPPSA_ALIGNMENT, 0);
    assert_int_equal(bppsa_view_bytes(view) > 0 ? memcmp(view->data, tensors[i].view.data, bppsa_view_bytes(view)) : 0, 0);
  }
  assert_string_equal(bppsa_safetensors_get(file, 0)->name, tensors[0].name);
  assert_string_equal(bppsa_safetensors_get(file, count - 1)->name, "m");
  assert_null(bppsa_safetensors_get(file, count));
  assert_null(bppsa_safetensors_get(file, -1));
  assert_null(bppsa_safetensors_find(file, "none"));
  assert_null(bppsa_safetensors_find(file, "__metadata__"));
  assert_string_equal(bppsa_safetensors_metadata(file, "format"), "pt");
  assert_string_equal(bppsa_safetensors_metadata(file, "note"), "line\nbreak \xe2\x82\xac");
  assert_null(bppsa_safetensors_metadata(file, "loss"));
  bppsa_safetensors_destroy(file);
  bppsa_safetensors_destroy(NULL);
  assert_int_equal(bppsa_alloc_live(), before);
}

static void no_tensors(void **state) {
  (void)state;
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_save(PATH, 0, NULL, 0, NULL), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_load(PATH, &file), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_count(file), 0);
  assert_null(bppsa_safetensors_metadata(file, "x"));
  bppsa_safetensors_destroy(file);
}

/* Tensors in another order than their data, a header without padding, unknown keys, empty tensors between others. */
static void other_writers(void **state) {
  (void)state;
  static const char header[] =
      "{\"b\":{\"shape\":[2],\"x\":[{},\"}\"],\"data_offsets\":[3,11],\"dtype\":\"F32\"},\"__metadata__\":{},"
      "\"e\":{\"dtype\":\"I64\",\"shape\":[0,3],\"data_offsets\":[3,3]},\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":["
      "0,3]}}";
  bppsa_safetensors *file = NULL;
  assert_int_equal(load_made(make(header, 11), &file), BPPSA_OK);
  static const char *const order[] = {"a", "e", "b"};
  for (int64_t i = 0; i < 3; ++i) {
    assert_string_equal(bppsa_safetensors_get(file, i)->name, order[i]);
  }
  const bppsa_view *b = bppsa_safetensors_find(file, "b");
  assert_int_equal((uintptr_t)b->data % BPPSA_ALIGNMENT, 0); /* byte 3 of the data, and still aligned */
  assert_memory_equal(b->data, "\x03\x04\x05\x06\x07\x08\x09\x0a", 8);
  bppsa_safetensors_destroy(file);
}

#define ONE "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}"

static void bad_lengths(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  bppsa_safetensors *file = NULL;
  assert_int_equal(load_made(0, &file), BPPSA_ERR_FORMAT);
  assert_message(PATH ": byte 0: the file ends there");
  const size_t size = make(ONE, 24);
  assert_int_equal(load_made(7, &file), BPPSA_ERR_FORMAT);
  assert_message(PATH ": byte 7: the file ends there");
  static const uint64_t lengths[] = {(uint64_t)1 << 60, UINT64_MAX, (uint64_t)INT64_MAX, (uint64_t)1 << 63, 100000001, 82};
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; ++i) {
    memcpy(made, &lengths[i], 8);
    assert_int_equal(load_made(size, &file), BPPSA_ERR_FORMAT);
    char expected[100];
    snprintf(expected, sizeof expected, "byte 0: a header of %llu bytes, but the file has %zu", (unsigned long long)lengths[i],
             size - 8);
    assert_message(expected);
  }
  assert_int_equal(load_made(make("", 0), &file), BPPSA_ERR_FORMAT);
  assert_message("byte 8: the header does not begin with '{'");
  assert_int_equal(bppsa_safetensors_load("no_such.safetensors", &file), BPPSA_ERR_IO);
  assert_int_equal(bppsa_safetensors_load(".", &file), BPPSA_ERR_IO);
  assert_null(file);
  assert_int_equal(bppsa_alloc_live(), before);
}

#define TENSOR(name, dtype, shape, offsets)                                                                                      \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void bad_headers(void **state) {
  (void)state;
  static const struct {
    const char *header;
    size_t data;
    const char *message;
  } bad[] = {
      {" {}", 0, "byte 8: the header does not begin with '{'"},
      {"[]", 0, "byte 8: the header does not begin with '{'"},
      {"{\"w\":", 0, "byte 13"},
      {"{} x", 0, "byte 12"},
      {"{\"w\xff\":{}}", 0, "unable to decode byte"},
      {"{" TENSOR("w", "U8", "[1]", "[0,1]") "," TENSOR("w", "U8", "[1]", "[1,2]") "}", 2, "duplicate"},
      {"{\"w\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "duplicate"},
      {"{" TENSOR("w\\u001b[2J", "U8", "[1]", "[0,1]") "}", 1,
       "byte 9: tensor \"w?[2J\": expected a name without control characters"},
      {"{" TENSOR("w\\n", "U8", "[1]", "[0,1]") "}", 1, "tensor \"w?\": expected a name without control characters"},
      {"{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("w\xc2\x9b", "U8", "[1]", "[1,2]") "}", 2, "tensor \"w??\": expected a"},
      {"{\"w\":3}", 0, "byte 9: tensor \"w\": expected an object"},
      {"{\"__metadata__\":3}", 0, "byte 9: __metadata__: expected an object"},
      {"{\"__metadata__\":{\"a\":1}}", 0, "byte 9: __metadata__: \"a\" is not a string"},
      {"{\"w\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype missing"},
      {"{\"w\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype missing or no string"},
      {"{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape missing"},
      {"{" TENSOR("w", "F32", "1", "[0,4]") "}", 4, "shape missing or no array"},
      {"{" TENSOR("w", "F32", "[-1]", "[0,4]") "}", 4, "extent 0 of the shape"},
      {"{" TENSOR("w", "F32", "[1,1.0]", "[0,4]") "}", 4, "extent 1 of the shape"},
      {"{" TENSOR("w", "F32", "[\"1\"]", "[0,4]") "}", 4, "extent 0 of the shape"},
      {"{" TENSOR("w", "F32", "[18446744073709551616]", "[0,4]") "}", 4, "too big integer"},
      {"{" TENSOR("w", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "64 bits"},
      {"{" TENSOR("w", "F32", "[0,4294967296,4294967296]", "[0,0]") "}", 0, "64 bits"},
      {"{" TENSOR("w", "F32", "[4611686018427387904]", "[0,4]") "}", 4, "64 bits"},
      {"{" TENSOR("w", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "9 dimensions"},
      {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets missing"},
      {"{" TENSOR("w", "F32", "[1]", "[0]") "}", 4, "data_offsets missing or not two integers"},
      {"{" TENSOR("w", "F32", "[1]", "[0,4,8]") "}", 4, "not two integers"},
      {"{" TENSOR("w", "F32", "[1]", "{}") "}", 4, "not two integers"},
      {"{" TENSOR("w", "F32", "[1]", "[0,4.0]") "}", 4, "not two integers"},
      {"{" TENSOR("w", "F32", "[1]", "[-4,0]") "}", 4, "data_offsets [-4, 0], expected a range inside the 4 bytes"},
      {"{" TENSOR("w", "F32", "[1]", "[4,0]") "}", 4, "data_offsets [4, 0]"},
      {"{" TENSOR("w", "F32", "[2]", "[0,8]") "}", 4, "data_offsets [0, 8], expected a range inside the 4 bytes"},
      {"{" TENSOR("w", "F32", "[1]", "[9223372036854775803,9223372036854775807]") "}", 4, "expected a range inside"},
      {"{" TENSOR("w", "F32", "[1]", "[-9223372036854775808,9223372036854775807]") "}", 4, "expected a range inside"},
      {"{" TENSOR("w", "F32", "[2]", "[0,4]") "}", 4, "are 4 bytes, but shape [2] of F32 needs 8"},
      {"{" TENSOR("w", "F32", "[]", "[0,8]") "}", 8, "are 8 bytes, but shape [] of F32 needs 4"},
      {"{" TENSOR("a", "F32", "[2]", "[0,8]") "," TENSOR("b", "F32", "[2]", "[4,12]") "}", 12,
       "tensor \"b\": its data begin at byte 120 and overlap another tensor's, which end at byte 124"},
      {"{" TENSOR("a", "F32", "[2]", "[0,8]") "," TENSOR("b", "F32", "[2]", "[0,8]") "}", 8, "overlap"},
      {"{" TENSOR("a", "F32", "[1]", "[4,8]") "}", 8,
       "byte 9: tensor \"a\": its data begin at byte 66 and leave a hole from byte 62"},
      {"{" TENSOR("a", "F32", "[1]", "[0,4]") "," TENSOR("b", "F32", "[1]", "[8,12]") "}", 12, "byte 62: tensor \"b\""},
      {"{" TENSOR("a", "F32", "[1]", "[0,4]") "}", 5, "byte 66: 1 bytes that belong to no tensor"},
      {"{}", 5, "byte 10: 5 bytes that belong to no tensor"},
      {"{" TENSOR("a\\\"{[,", "U8", "[1]", "[0,1]") "," TENSOR("b", "U8", "[-1]", "[1,2]") "}", 2,
       "byte 66: tensor \"b\": extent 0 of the shape"}};
  const int64_t before = bppsa_alloc_live();
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    bppsa_safetensors *file = NULL;
    const size_t size = make(bad[i].header, bad[i].data);
    assert_int_equal(load_made(size, &file), BPPSA_ERR_FORMAT);
    assert_int_equal(strncmp(bppsa_last_error(), PATH ": ", strlen(PATH) + 2), 0);
    assert_message(bad[i].message);
    assert_null(file);
  }
  assert_int_equal(bppsa_alloc_live(), before);
}

static void a_long_name_leaves_room_for_the_reason(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  bppsa_safetensors *file = NULL;
  char header[3100], name[3001];
  memset(name, 'n', 3000);
  name[3000] = '\0';
  snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", name);
  assert_int_equal(load_made(make(header, 1), &file), BPPSA_ERR_FORMAT);
  name[100] = '\0';
  snprintf(header, sizeof header, "tensor \"%s\": extent 0 of the shape", name);
  assert_message(header);
  assert_int_equal(bppsa_alloc_live(), before);
}

/* Types that the reader does not know: the format grows by them. Offsets are checked, sizes cannot be. */
static void other_types(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  bppsa_safetensors *file = NULL;
  const char *header = "{" TENSOR("a", "F8_E4M3", "[3]", "[0,3]") "," TENSOR("b", "U8", "[2]", "[3,5]") "," TENSOR(
      "c", "C64", "[2,2]", "[5,37]") "," TENSOR("d", "U8", "[1]", "[37,38]") "}";
  assert_int_equal(load_made(make(header, 38), &file), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_count(file), 4);
  const bppsa_view *a = bppsa_safetensors_find(file, "a"), *c = bppsa_safetensors_find(file, "c");
  assert_int_equal(a->dtype, BPPSA_DTYPE_OTHER);
  assert_string_equal(bppsa_view_dtype_name(a), "F8_E4M3");
  assert_string_equal(bppsa_view_dtype_name(c), "C64");
  assert_true(c->ndim == 2 && bppsa_view_bytes(c) == 0);
  assert_memory_equal(bppsa_safetensors_find(file, "b")->data, "\3\4", 2);
  assert_memory_equal(bppsa_safetensors_find(file, "d")->data, "\45", 1);
  assert_string_equal(bppsa_view_dtype_name(bppsa_safetensors_find(file, "b")), "u8");
  bppsa_safetensors_destroy(file);
  file = NULL;
  assert_int_equal(load_made(make("{" TENSOR("a", "F8_E4M3", "[3]", "[0,9]") "}", 8), &file), BPPSA_ERR_FORMAT);
  assert_message("tensor \"a\": data_offsets [0, 9], expected a range inside the 8 bytes");
  assert_int_equal(bppsa_alloc_live(), before);
}

#define TWO "{\"__metadata__\":{\"k\":\"v\"}," TENSOR("a", "F32", "[2,3]", "[0,24]") "," TENSOR("b", "I16", "[3]", "[24,30]") "}"

/* Has the file a tensor of a type that is not read? Its bytes are left out of the sum. */
static bool has_other(const bppsa_safetensors *file) {
  bool found = false;
  for (int64_t i = 0; i < bppsa_safetensors_count(file); ++i) {
    found = found || bppsa_safetensors_get(file, i)->view.dtype == BPPSA_DTYPE_OTHER;
  }
  return found;
}

/* Touches every byte the views give access to. */
static int64_t sum_of(const bppsa_safetensors *file) {
  int64_t sum = 0;
  for (int64_t i = 0; i < bppsa_safetensors_count(file); ++i) {
    const bppsa_view *view = &bppsa_safetensors_get(file, i)->view;
    for (size_t b = 0; b < bppsa_view_bytes(view); ++b) {
      sum += ((const unsigned char *)view->data)[b];
    }
  }
  return sum;
}

/* Every shorter file fails; every file with one byte of length or header changed loads or is refused. */
static void truncated_and_flipped(void **state) {
  (void)state;
  const size_t size = make(TWO, 30);
  const int64_t before = bppsa_alloc_live();
  for (size_t cut = 0; cut < size; ++cut) {
    bppsa_safetensors *file = NULL;
    assert_int_equal(load_made(cut, &file), BPPSA_ERR_FORMAT);
    assert_null(file);
  }
  int loaded = 0;
  for (size_t at = 0; at < size - 30; ++at) {
    const unsigned char kept = made[at];
    for (int change = 1; change < 256; change += at < 8 ? 1 : 5) {
      bppsa_safetensors *file = NULL;
      made[at] = (unsigned char)(kept ^ change);
      const bppsa_status status = load_made(size, &file);
      if (status == BPPSA_OK) {
        assert_true(has_other(file) ? sum_of(file) < 30 * 29 / 2 : sum_of(file) == 30 * 29 / 2);
        ++loaded;
      } else {
        assert_int_equal(status, BPPSA_ERR_FORMAT);
        assert_null(file);
      }
      bppsa_safetensors_destroy(file);
    }
    made[at] = kept;
  }
  assert_true(loaded > 0); /* a changed letter of a name, for instance */
  assert_int_equal(bppsa_alloc_live(), before);
}

/* Random headers from the pieces of real ones: load exactly the data or are refused. */
static void random_headers(void **state) {
  (void)state;
  static const char *const names[] = {"a", "b", "c", "__metadata__"};
  static const char *const types[] = {"F32", "U8", "I64", "F64", "X"};
  static const char *const shapes[] = {"[2]", "[1]", "[]", "[0]", "[2,2]", "[-1]", "[1e0]", "[4294967296,4294967296,4]"};
  static const char *const bounds[] = {"0", "4", "8", "12", "16", "24", "-4", "9223372036854775807"};
  const int64_t before = bppsa_alloc_live();
  int loaded = 0;
  for (uint64_t round = 0; round < 4000; ++round) {
    char header[600] = "{";
    const uint64_t count = bppsa_random_below(round, BPPSA_STREAM_TEST, 0, 4);
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t pick[5];
      static const uint64_t bound[5] = {4, 5, 8, 8, 8};
      for (uint64_t p = 0; p < 5; ++p) {
        const uint64_t limit = bppsa_random_below(round, BPPSA_STREAM_TEST, 100 * i + 10 + p, 8) > 1 && p > 0 ? 3 : bound[p];
        pick[p] = bppsa_random_below(round, BPPSA_STREAM_TEST, 100 * i + 20 + p, limit);
      }
      snprintf(header + strlen(header), sizeof header - strlen(header),
               "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%s,%s]}", i > 0 ? "," : "", names[pick[0]],
               types[pick[1]], shapes[pick[2]], bounds[pick[3]], bounds[pick[4]]);
    }
    strcat(header, "}");
    bppsa_safetensors *file = NULL;
    const size_t data = (size_t)bppsa_random_below(round, BPPSA_STREAM_TEST, 9999, 4) * 4;
    const bppsa_status status = load_made(make(header, data), &file);
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_FORMAT);
    if (status == BPPSA_OK) {
      assert_true(has_other(file) || sum_of(file) == (int64_t)(data * (data - 1) / 2));
      loaded += !has_other(file);
    }
    bppsa_safetensors_destroy(file);
  }
  assert_true(loaded > 10);
  assert_int_equal(bppsa_alloc_live(), before);
}

static void save_refused(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  float data[6] = {0};
  remove(PATH);
  const bppsa_view view = bppsa_view_make(data, BPPSA_F32, 2, (const int64_t[]){2, 3});
  bppsa_view strided = view, elsewhere = view, negative = view;
  strided.strides[1] = 2;
  elsewhere.device = BPPSA_CUDA;
  negative.shape[0] = -2;
  const struct {
    bppsa_named_view tensors[2];
    bppsa_status status;
    const char *message;
  } bad[] = {{{{"a", view}, {"a", view}}, BPPSA_ERR_ARGUMENT, PATH ": tensor name \"a\" is used twice"},
             {{{"a", view}, {"__metadata__", view}}, BPPSA_ERR_ARGUMENT, "\"__metadata__\" is reserved"},
             {{{"a", view}, {"\xff", view}}, BPPSA_ERR_ARGUMENT, "not valid UTF-8"},
             {{{"a", view}, {"b\x1b", view}}, BPPSA_ERR_ARGUMENT, "\"b?\", expected one without control characters"},
             {{{"a", view}, {"b", strided}}, BPPSA_ERR_UNSUPPORTED, "tensor \"b\": only contiguous"},
             {{{"a", view}, {"b", elsewhere}}, BPPSA_ERR_UNSUPPORTED, "tensor \"b\": only contiguous"},
             {{{"a", view}, {"b", negative}}, BPPSA_ERR_SHAPE, PATH ": tensor \"b\""}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    assert_int_equal(bppsa_safetensors_save(PATH, 2, bad[i].tensors, 0, NULL), bad[i].status);
    assert_message(bad[i].message);
  }
  const bppsa_metadata twice[] = {{"k", "1"}, {"k", "2"}}, binary[] = {{"k", "\xfe"}}, names[] = {{"__metadata__", "1"}};
  const bppsa_named_view good = {"a", view};
  assert_int_equal(bppsa_safetensors_save(PATH, 1, &good, 2, twice), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_safetensors_save(PATH, 1, &good, 1, binary), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_safetensors_save("no_such_folder/x", 1, &good, 0, NULL), BPPSA_ERR_IO);
  assert_int_equal(get_file(PATH, made, 1), -1);
  assert_int_equal(bppsa_safetensors_save(PATH, 1, &good, 1, names), BPPSA_OK);
  assert_int_equal(bppsa_alloc_live(), before);
}

static bppsa_status save_and_load(void *argument) {
  const bppsa_named_view *tensors = argument;
  const bppsa_metadata metadata[] = {{"format", "pt"}};
  bppsa_safetensors *file = NULL;
  BPPSA_TRY(bppsa_safetensors_save(PATH, 2, tensors, 1, metadata));
  BPPSA_TRY(bppsa_safetensors_load(PATH, &file));
  bppsa_safetensors_destroy(file);
  return BPPSA_OK;
}

static void allocation_failures(void **state) {
  (void)state;
  float data[6] = {0};
  const bppsa_view view = bppsa_view_make(data, BPPSA_F32, 2, (const int64_t[]){2, 3});
  bppsa_named_view tensors[] = {{"a name of some length, to make buffers grow", view}, {"b", view}};
  assert_true(walk_allocations(save_and_load, tensors) > 30);
  remove(PATH);
}

static void listed(void **state) {
  (void)state;
  float data[6] = {0};
  const bppsa_view view = bppsa_view_make(data, BPPSA_F32, 2, (const int64_t[]){2, 3});
  const bppsa_named_view tensors[] = {{"a", view}, {"b", view}};
  bppsa_named_view *list = NULL;
  bppsa_safetensors *file = NULL;
  int64_t count = 0;
  assert_int_equal(bppsa_safetensors_save(PATH, 2, tensors, 0, NULL), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_load(PATH, &file), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_list(file, &list, &count), BPPSA_OK);
  assert_int_equal(count, 2);
  assert_string_equal(list[1].name, "b");
  assert_ptr_equal(list[1].view.data, bppsa_safetensors_find(file, "b")->data);
  bppsa_free(list);
  bppsa_safetensors_destroy(file);
  remove(PATH);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trip),          cmocka_unit_test(no_tensors),
      cmocka_unit_test(other_writers),       cmocka_unit_test(bad_lengths),
      cmocka_unit_test(bad_headers),         cmocka_unit_test(a_long_name_leaves_room_for_the_reason),
      cmocka_unit_test(other_types),         cmocka_unit_test(truncated_and_flipped),
      cmocka_unit_test(random_headers),      cmocka_unit_test(save_refused),
      cmocka_unit_test(allocation_failures), cmocka_unit_test(listed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

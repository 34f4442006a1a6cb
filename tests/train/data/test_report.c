/* What is said of data sets that were written. */
#include "tests/core/helpers.h"
#include "tests/support/json_memory.h"
#include "train/data/report.h"

static int64_t integer(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  assert_true(json_is_integer(value));
  return json_integer_value(value);
}

static bppsa_dataset *make_set(bool every) {
  const bppsa_dataset_options options = {.samples = 4, .seq_len = 6, .labels_per_step = every};
  bppsa_dataset *dataset = NULL;
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &dataset), BPPSA_OK);
  return dataset;
}

static void test_sequences(void **state) {
  (void)state;
  for (int every = 0; every < 2; ++every) {
    bppsa_dataset *dataset = make_set(every == 1);
    bppsa_text text = {0};
    assert_int_equal(bppsa_dataset_text(dataset, BPPSA_F32, "X.npy", "Y.npy", &text), BPPSA_OK);
    assert_string_equal(text.text, every == 1 ? "X.npy: f32 [4, 6, 1]\nY.npy: i64 [4, 6], classes 0 .. 9\n"
                                              : "X.npy: f32 [4, 6, 1]\nY.npy: i64 [4], classes 0 .. 9\n");
    bppsa_text_free(&text);
    json_t *document = bppsa_dataset_json(dataset, BPPSA_F64);
    assert_string_equal(json_string_value(json_object_get(document, "loss_on")), every == 1 ? "all" : "last");
    assert_string_equal(json_string_value(json_object_get(document, "dtype")), "f64");
    assert_true(integer(document, "samples") == 4 && integer(document, "seq_len") == 6 && integer(document, "classes") == 10);
    json_decref(document);
    bppsa_dataset_destroy(dataset);
  }
}

static void test_files(void **state) {
  (void)state;
  bppsa_text text = {0};
  assert_int_equal(bppsa_instruments_text("D", 3, &text), BPPSA_OK); /* of fewer files than classes */
  assert_int_equal(bppsa_instruments_text("D", 1100, &text), BPPSA_OK);
  assert_int_equal(bppsa_cifar10_text("C", 100, &text), BPPSA_OK);
  assert_string_equal(text.text, "D: 3 files of 3 classes, 3 s each\nD: 1100 files of 11 classes, 3 s each\n"
                                 "C: 100 images to train on, 20 held out, of 10 classes\n");
  bppsa_text_free(&text);
  json_t *sounds = bppsa_instruments_json("D", 1100, 5), *images = bppsa_cifar10_json("C", 100, 6);
  assert_true(integer(sounds, "files") == 1100 && integer(sounds, "length_s") == 3 && integer(sounds, "seed") == 5);
  assert_true(integer(images, "samples") == 100 && integer(images, "held_out") == 20 && integer(images, "seed") == 6);
  json_decref(sounds);
  json_decref(images);
}

static bppsa_status render(void *dataset) {
  json_t *const documents[] = {bppsa_dataset_json(dataset, BPPSA_F32), bppsa_instruments_json("D", 3, 1),
                               bppsa_cifar10_json("C", 100, 1)};
  bppsa_status status = BPPSA_OK;
  for (int i = 0; i < 3; ++i) {
    char *text = NULL;
    const bppsa_status rendered = bppsa_json_render(documents[i], &text);
    status = status == BPPSA_OK ? rendered : status;
    bppsa_free(text);
  }
  return status;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_dataset *dataset = make_set(false);
  assert_true(walk_allocations(render, dataset) > 20);
  bppsa_dataset_destroy(dataset);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sequences), cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

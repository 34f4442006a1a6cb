/* References that one run saves and another one reads: the same residuals, bit for bit; what does not belong to the point is
 * computed, and said; damaged files are refused. */
#include "tests/bench/rows.h"
#include "tests/cli/batch_files.h"
#include "tests/cli/memory_walk.h"

#include <errno.h>
#include <zlib.h>

#include "core/files/file.h"
#include "tests/support/io_fault.h"

#define SHAPE "--seq-len 9 --batch 3 --hidden 4 --threads 1"
#define POINT "bench rnn --init default " SHAPE

static void save(const char *path, const char *words) {
  run_result result = run("bench %s --save-references %s", words, path);
  assert_int_equal(result.code, 0);
  assert_string_equal(result.err, "");
  assert_non_null(strstr(result.out, path));
  release(&result);
}

/* All rows that were measured have references from there. */
static void check_source(const json_t *document, const char *source) {
  const json_t *rows = json_object_get(document, "rows");
  assert_true(json_array_size(rows) >= 6);
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (json_object_get(row, "skipped") == NULL) {
      assert_string_equal(get_text(row, "reference"), source);
    }
  }
}

static void same_residuals(void **state) {
  (void)state;
  static const char *const lines[] = {"rnn " SHAPE, "rnn --nonlinearity relu --init orthogonal --dtype f64 " SHAPE,
                                      "gru --loss all --layers 2 " SHAPE, "lstm --input 2 --input-gradient " SHAPE,
                                      "lstm --weights weights.safetensors --seq-len 20 --threads 1"};
  static const char *const numbers[] = {"residual", "hidden_zeros", "hidden_subnormals", "zeros"};
  assert_runs("train lstm --seq-len 5 --samples 2 --batch 2 --iterations 1 --hidden 4 --threads 1 --save-weights "
              "weights.safetensors");
  for (size_t l = 0; l < sizeof lines / sizeof lines[0]; ++l) {
    save("saved.safetensors", lines[l]);
    json_t *computed = run_json("bench %s --repeats 1 --json", lines[l]);
    json_t *read = run_json("bench %s --repeats 1 --json --references saved.safetensors", lines[l]);
    check_source(computed, "computed");
    check_source(read, "file");
    const json_t *a = json_object_get(computed, "rows"), *b = json_object_get(read, "rows");
    assert_int_equal(json_array_size(a), json_array_size(b));
    for (size_t i = 0; i < json_array_size(a); ++i) {
      for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; ++n) {
        const json_t *of_a = json_object_get(json_array_get(a, i), numbers[n]),
                     *of_b = json_object_get(json_array_get(b, i), numbers[n]);
        assert_true(json_equal(of_a, of_b) || (of_a == NULL && of_b == NULL));
      }
    }
    json_decref(computed);
    json_decref(read);
  }
}

/* Copies a file of references with every number 1 larger, and its checksums right. */
static void change_numbers(const char *from, const char *to) {
  bppsa_safetensors *file = NULL;
  bppsa_named_view *tensors = NULL;
  bppsa_metadata metadata[3], pair = {0};
  int64_t count = 0, pairs = 0;
  uLong crc = crc32_z(0, NULL, 0);
  char value[120];
  assert_int_equal(bppsa_safetensors_load(from, &file), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_list(file, &tensors, &count), BPPSA_OK);
  assert_int_equal(count, 3);
  for (int64_t i = 0; i < count; ++i) {
    double *numbers = tensors[i].view.data;
    for (int64_t j = 0; j < bppsa_view_count(&tensors[i].view); ++j) {
      numbers[j] += 1;
    }
    crc = crc32_z(crc, tensors[i].view.data, bppsa_view_bytes(&tensors[i].view));
  }
  while (bppsa_safetensors_metadata_next(file, &pair)) {
    assert_true(pairs < 2);
    metadata[pairs] = pair;
    const char *end = strstr(pair.value, ", numbers ");
    if (end != NULL) {
      snprintf(value, sizeof value, "%.*s, numbers %08lx", (int)(end - pair.value), pair.value, crc);
      metadata[pairs].value = value;
    }
    ++pairs;
  }
  assert_int_equal(bppsa_safetensors_save(to, count, tensors, pairs, metadata), BPPSA_OK);
  bppsa_free(tensors);
  bppsa_safetensors_destroy(file);
}

/* Rows are held against the numbers of the file, and not against computed ones beside it. */
static void numbers_of_the_file(void **state) {
  (void)state;
  save("saved.safetensors", "rnn --init default " SHAPE);
  change_numbers("saved.safetensors", "changed.safetensors");
  json_t *document = run_json_wrong(POINT " --repeats 1 --json --references changed.safetensors");
  check_source(document, "file");
  assert_true(get_real(find_row(document, "forward"), "residual") > 1e3);
  assert_true(get_real(find_row(document, "chunked"), "residual") > 1e3);
  assert_true(get_real(find_row(document, "bp"), "hidden_zeros") >= 1);
  json_decref(document);
}

/* What does not belong to the point is not taken; a note and the table say why, and the residuals are as without the file. */
static void other_points(void **state) {
  (void)state;
  static const struct {
    const char *words, *expected;
  } others[] = {{"rnn --init default --seed 1 " SHAPE, "that was made of weights "},
                {"rnn --init orthogonal " SHAPE, "init orthogonal\""},
                {"rnn --init default --seq-len 8 --batch 3 --hidden 4 --threads 1", "\"rnn, T 8, B 3, "},
                {"rnn --init default --loss all " SHAPE, "loss all"},
                {"rnn --init default --dtype f64 " SHAPE, ", f64, "},
                {"rnn --init default --nonlinearity relu " SHAPE, ", relu, "},
                {"rnn --init default --input-gradient " SHAPE, "input_gradient\" of 27 numbers"},
                {"gru --init default " SHAPE, "has no reference of \"gru, "}};
  save("saved.safetensors", "rnn --init default " SHAPE);
  for (size_t i = 0; i < sizeof others / sizeof others[0]; ++i) {
    json_t *expected = run_json("bench %s --repeats 1 --json", others[i].words);
    json_t *found = run_noted_json("bench %s --repeats 1 --json --references saved.safetensors", others[i].words);
    check_source(found, "computed");
    assert_true(get_real(find_row(expected, "bp"), "residual") == get_real(find_row(found, "bp"), "residual"));
    json_decref(expected);
    json_decref(found);
    run_result result = run("bench %s --repeats 1 --references saved.safetensors", others[i].words);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "\nreference: computed: saved.safetensors has "));
    assert_non_null(strstr(result.out, others[i].expected));
    assert_non_null(strstr(result.err, "bppsa: note: --references: saved.safetensors has "));
    assert_non_null(strstr(result.err, "; the reference is computed\n"));
    release(&result);
  }
  run_result result = run(POINT " --repeats 1 --references saved.safetensors");
  assert_non_null(strstr(result.out, "\nreference: from saved.safetensors\n"));
  release(&result);
}

/* The same name and shape, and other weights in the file. */
static void other_weights(void **state) {
  (void)state;
  static const char line[] = "rnn --weights weights.safetensors --seq-len 9 --batch 3 --threads 1";
  for (int seed = 0; seed < 2; ++seed) {
    assert_runs("train rnn --seq-len 5 --samples 2 --batch 2 --iterations 1 --hidden 4 --threads 1 --seed %d --save-weights "
                "weights.safetensors",
                seed);
    if (seed == 0) {
      save("saved.safetensors", line);
    }
    json_t *document = run_noted_json("bench %s --repeats 1 --json --references saved.safetensors", line);
    check_source(document, seed == 0 ? "file" : "computed");
    json_decref(document);
  }
}

static void document_of_saving(void **state) {
  (void)state;
  json_t *document = run_json("bench gru --json " SHAPE " --save-references saved.safetensors");
  const json_t *rows = json_object_get(document, "rows");
  assert_string_equal(get_text(document, "bench"), "references");
  assert_int_equal(json_array_size(rows), 2);
  for (size_t i = 0; i < 2; ++i) {
    const json_t *row = json_array_get(rows, i);
    assert_string_equal(get_text(row, "model"), "gru");
    assert_string_equal(get_text(row, "init"), i == 0 ? "default" : "orthogonal");
    assert_int_equal(get_integer(row, "seq_len"), 9);
    assert_true(get_real(row, "took_s") > 0);
    assert_null(json_object_get(row, "median_s")); /* nothing is timed */
  }
  json_decref(document);
}

static void refuse_file(const char *expected) {
  run_result result = run(POINT " --repeats 1 --references broken.safetensors");
  assert_int_equal(result.code, 2);
  assert_one_error(&result, expected);
  assert_string_equal(result.out, ""); /* before any work */
  release(&result);
}

static void damaged_files(void **state) {
  (void)state;
  char *data;
  int64_t size;
  save("saved.safetensors", "rnn --init default " SHAPE);
  assert_int_equal(bppsa_file_read("saved.safetensors", 1 << 20, &data, &size), BPPSA_OK);
  const int64_t lengths[] = {0, 7, 100, size - 8, size - 1};
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; ++i) {
    assert_int_equal(bppsa_file_write("broken.safetensors", data, (size_t)lengths[i]), BPPSA_OK);
    refuse_file("--references: broken.safetensors: ");
  }
  for (int64_t back = 1; back <= 480; back += 53) { /* of 28 + 30 + 2 numbers */
    char *byte = &data[size - back];
    *byte ^= 1;
    assert_int_equal(bppsa_file_write("broken.safetensors", data, (size_t)size), BPPSA_OK);
    refuse_file("its tensors have numbers ");
    *byte ^= 1;
  }
  bppsa_free(data);
  write_reals("broken.safetensors", BPPSA_F64, 1, (int64_t[]){3});
  refuse_file("--references: broken.safetensors: ");
  assert_runs(
      "train rnn --seq-len 5 --samples 2 --batch 2 --iterations 1 --hidden 4 --threads 1 --save-weights broken.safetensors");
  refuse_file("metadata: bppsa_references is missing, expected 1, as --save-references writes it");
}

static void wrong_requests(void **state) {
  (void)state;
  assert_fails(2, "--references: none.safetensors: ", POINT " --repeats 1 --references none.safetensors");
  static const char *const of_timing[] = {"--references a.safetensors",
                                          "--rivals none",
                                          "--earlier none",
                                          "--cold",
                                          "--time-limit 9",
                                          "--forward auto",
                                          "--chunks 2"};
  for (size_t i = 0; i < sizeof of_timing / sizeof of_timing[0]; ++i) {
    char expected[100];
    snprintf(expected, sizeof expected, "%.*s: given beside --save-references, which times nothing, expected one of them",
             (int)strcspn(of_timing[i], " "), of_timing[i]);
    assert_fails(2, expected, "bench rnn --seq-len 9 %s --save-references new.safetensors", of_timing[i]);
  }
  assert_fails(2, "--save-references: none/saved.safetensors: cannot write into directory 'none'",
               POINT " --save-references none/saved.safetensors");
  assert_fails(2, "--memory-limit: 1000 bytes, expected at least ",
               POINT " --save-references new.safetensors --memory-limit 1000");
  assert_int_not_equal(access("new.safetensors", F_OK), 0);
  assert_fails(2, "--references", "bench crossover --quick --references saved.safetensors");
}

/* The file is complete, or a run that failed has made none. */
static void check_walked(int code) {
  struct stat saved, walked;
  assert_int_equal(stat("saved.safetensors", &saved), 0);
  assert_true(stat("walked.safetensors", &walked) == 0 ? walked.st_size == saved.st_size : code == 1);
}

static void out_of_memory(void **state) {
  (void)state;
  save("saved.safetensors", "rnn --init default " SHAPE);
  walk_document(POINT " --json --save-references walked.safetensors", check_walked);
  walk_document(POINT " --repeats 1 --json --references saved.safetensors", check_walked);
  check_walked(0); /* the second line has left the file alone */
}

/* Where the file cannot be written, the one from before stays as it was. */
static void failing_calls(void **state) {
  (void)state;
  int code = 1;
  int64_t call = 1;
  for (; code != 0; ++call) {
    io_fault fault;
    assert_int_equal(bppsa_file_write("walked.safetensors", "before", 6), BPPSA_OK);
    io_fault_set(&fault, call, true, EIO);
    run_result result = run(POINT " --json --save-references walked.safetensors");
    io_fault_clear();
    code = result.code;
    char *data;
    int64_t size;
    assert_int_equal(bppsa_file_read("walked.safetensors", 1 << 20, &data, &size), BPPSA_OK);
    assert_true((size == 6 && memcmp(data, "before", 6) == 0) || size > 1000);
    assert_true(code != 0 || size > 1000);
    assert_true(code == 0 || strncmp(result.err, "bppsa: error: ", 14) == 0);
    bppsa_free(data);
    release(&result);
  }
  assert_true(call > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(same_residuals), cmocka_unit_test(numbers_of_the_file), cmocka_unit_test(other_points),
      cmocka_unit_test(other_weights),  cmocka_unit_test(document_of_saving),  cmocka_unit_test(damaged_files),
      cmocka_unit_test(wrong_requests), cmocka_unit_test(out_of_memory),       cmocka_unit_test(failing_calls)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

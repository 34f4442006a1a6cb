/* The JSON documents together: a key has one type in all of them, times are in seconds, and a run says all it takes to run it
 * again. */
#include "tests/cli/batch_files.h"

/* ---- one type a key ---- */

static const char *type_of(const json_t *value) {
  return json_is_boolean(value)  ? "boolean"
         : json_is_number(value) ? "number"
         : json_is_string(value) ? "string"
         : json_is_array(value)  ? "array"
                                 : "object";
}

/* A benchmark's rows are a list, a matrix's rows a number. */
static bool has_two_meanings(const char *key) {
  return strcmp(key, "rows") == 0;
}

/* Notes the type of every key below `value`; null fits any type. Prints the keys whose type differs from an earlier document. */
static int64_t take_types(const char *where, json_t *value, json_t *types) {
  const char *key;
  json_t *inner;
  size_t index;
  int64_t conflicts = 0;
  if (json_is_array(value)) {
    json_array_foreach(value, index, inner) {
      conflicts += take_types(where, inner, types);
    }
    return conflicts;
  }
  json_object_foreach(value, key, inner) {
    const char *type = type_of(inner), *known = json_string_value(json_array_get(json_object_get(types, key), 0));
    const size_t length = strlen(key);
    conflicts += take_types(where, inner, types);
    if (json_is_null(inner) || has_two_meanings(key)) {
      continue;
    }
    if (known == NULL) {
      json_object_set_new(types, key, json_pack("[s,s]", type, where));
    } else if (strcmp(type, known) != 0) {
      print_error("%s: \"%s\" is a %s, in %s a %s\n", where, key, type,
                  json_string_value(json_array_get(json_object_get(types, key), 1)), known);
      ++conflicts;
    }
    if ((length > 3 && strcmp(key + length - 3, "_ms") == 0) || strstr(key, "seconds") != NULL) {
      print_error("%s: \"%s\", expected a time in seconds, \"..._s\"\n", where, key);
      ++conflicts;
    }
  }
  return conflicts;
}

/* The lines of a log, as one list. */
static json_t *lines_of(const char *path) {
  char line[8192];
  json_t *list = json_array();
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file) != NULL) {
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(object);
    json_array_append_new(list, object);
  }
  fclose(file);
  return list;
}

static void test_types(void **state) {
  (void)state;
  const char *const lines[] = {"train rnn --seq-len 12 --samples 48 --iterations 2 --log L.jsonl --json",
                               "train gru --seq-len 12 --samples 48 --epochs 1 --validation 0.25 --lr-schedule cosine --json",
                               "eval rnn --weights W.safetensors --seq-len 12 --samples 48 --json",
                               "grad rnn --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors --json",
                               "plan rnn --seq-len 50 --json",
                               "plan lenet5 --json",
                               "flops lenet5 --json",
                               "schedule 1f1b --stages 3 --micro-batches 4 --json",
                               "data bitstream --seq-len 5 --samples 3 --out-x BX.npy --out-y BY.npy --json",
                               "jacobian relu --in-shape 2,3,3 --out J.npz --json",
                               "bench rnn --seq-len 20 --batch 2 --hidden 4 --repeats 3 --json",
                               "doctor --json"};
  json_t *types = json_object();
  int64_t conflicts = 0;
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    json_t *document = run_json("%s", lines[i]);
    conflicts += take_types(lines[i], document, types);
    json_decref(document);
  }
  json_t *log = lines_of("L.jsonl");
  conflicts += take_types("the log", log, types);
  assert_string_equal(json_string_value(json_array_get(json_object_get(types, "auto"), 0)), "boolean");
  assert_string_equal(json_string_value(json_array_get(json_object_get(types, "loss"), 0)), "number");
  assert_int_equal(conflicts, 0);
  json_decref(log);
  json_decref(types);
}

/* ---- to run again ---- */

/* The log's first line and the document say the same of a run, and their command line runs it again, with the same losses. */
static void test_run_again(void **state) {
  (void)state;
  char command[1024] = "";
  size_t used = 0;
  assert_runs("data bitstream --seq-len 5 --samples 40 --out-x DX.npy --out-y DY.npy");
  json_t *document =
      run_json("train rnn --data npy:DX.npy,DY.npy --weights W.safetensors --iterations 3 --seed 4 --log A.jsonl --json");
  json_t *log = lines_of("A.jsonl");
  const json_t *header = json_array_get(log, 0), *inputs = json_object_get(header, "inputs");
  static const char *const same[] = {"model", "version", "commit", "command", "inputs", "parameters", "config"};
  assert_int_equal(json_object_size(header), sizeof same / sizeof same[0]);
  for (size_t i = 0; i < sizeof same / sizeof same[0]; ++i) {
    assert_non_null(json_object_get(header, same[i]));
    assert_true(json_equal(json_object_get(header, same[i]), json_object_get(document, same[i])));
  }
  static const char *const options[] = {"--data", "--data", "--weights"}, *const paths[] = {"DX.npy", "DY.npy", "W.safetensors"};
  assert_int_equal(json_array_size(inputs), 3);
  for (size_t i = 0; i < 3; ++i) {
    const json_t *input = json_array_get(inputs, i);
    struct stat found;
    assert_int_equal(stat(paths[i], &found), 0);
    assert_string_equal(get_text(input, "option"), options[i]);
    assert_string_equal(get_text(input, "path"), paths[i]);
    assert_int_equal(get_integer(input, "size_bytes"), found.st_size);
    assert_int_equal(get_integer(input, "file_count"), 1);
  }
  static const char *const needed[] = {"seed", "dtype",     "threads", "device_name",   "hardware",   "backward", "batch",
                                       "lr",   "optimizer", "data",    "data_identity", "iterations", "loss_on",  "objective"};
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; ++i) {
    assert_non_null(json_object_get(json_object_get(header, "config"), needed[i]));
  }
  const json_t *words = json_object_get(header, "command");
  for (size_t i = 1; i < json_array_size(words); ++i) { /* the program's name comes first */
    const char *word = json_string_value(json_array_get(words, i));
    used += (size_t)snprintf(command + used, sizeof command - used, " %s", strcmp(word, "A.jsonl") == 0 ? "B.jsonl" : word);
  }
  json_t *again = run_json("%s", command);
  const json_t *rows = json_object_get(document, "rows"), *others = json_object_get(again, "rows");
  for (size_t i = 0; i < 3; ++i) {
    assert_true(get_real(json_array_get(rows, i), "loss") == get_real(json_array_get(others, i), "loss"));
  }
  json_decref(again);
  json_decref(log);
  json_decref(document);
}

/* An older checkpoint lacks the log's first line: the log still begins with one. A log that has its first line keeps it. */
static void test_resumed_header(void **state) {
  (void)state;
  const char *line = "train rnn --seq-len 12 --samples 48 --hidden 4 --checkpoint d";
  assert_runs("%s --iterations 2 --log C.jsonl", line);
  json_t *before = lines_of("C.jsonl");
  assert_runs("%s --iterations 4 --log C.jsonl --resume --threads 1", line);
  json_t *after = lines_of("C.jsonl");
  assert_int_equal(json_array_size(before), 3);
  assert_int_equal(json_array_size(after), 5);
  for (size_t i = 0; i < 3; ++i) {
    assert_true(json_equal(json_array_get(before, i), json_array_get(after, i)));
  }
  json_decref(before);
  json_decref(after);
  const char *other = "train rnn --seq-len 12 --samples 48 --hidden 4 --checkpoint e";
  assert_runs("%s --iterations 2", other); /* no log until now */
  assert_runs("%s --iterations 3 --log D.jsonl --resume", other);
  after = lines_of("D.jsonl");
  assert_int_equal(json_array_size(after), 2);
  assert_non_null(json_object_get(json_array_get(after, 0), "command"));
  assert_int_equal(get_integer(json_array_get(after, 1), "step"), 3);
  json_decref(after);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_run_again),
                                     cmocka_unit_test(test_resumed_header)};
  return cmocka_run_group_tests_name("cli_json", tests, enter_with_batch, leave_directory);
}

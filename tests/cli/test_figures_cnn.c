/* `figures --cnn`: the files are there, and hold what the commands they come from say. */
#include <math.h>

#include "tests/cli/run_cli.h"

/* Line `number` of a file, without its end. */
static void read_line(const char *path, int number, char *line, int size) {
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  for (int i = 0; i <= number; ++i) {
    assert_non_null(fgets(line, size, file));
  }
  line[strcspn(line, "\n")] = '\0';
  fclose(file);
}

static void test_files(void **state) {
  (void)state;
  json_t *document = run_json("figures --cnn --quick --threads 2 --out pages --json");
  const json_t *files = json_object_get(document, "files");
  static const char *const expected[] = {"table1.csv", "figure5_conv1.png", "figure6.csv", "figure10.csv", "networks.html"};
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; ++i) {
    char path[64];
    bool listed = false;
    for (size_t k = 0; k < json_array_size(files); ++k) {
      listed = listed || strcmp(json_string_value(json_array_get(files, k)), expected[i]) == 0;
    }
    snprintf(path, sizeof path, "pages/%s", expected[i]);
    assert_true(listed && file_exists(path));
  }
  char line[400], rest[300];
  double columns, generated, speedup, paper;
  for (int i = 1; i <= 3; ++i) {
    read_line("pages/table1.csv", i, line, sizeof line);
    assert_int_equal(sscanf(line, "%*[^,],%lf,%lf,%lf,%lf", &columns, &generated, &speedup, &paper), 4);
    assert_true(columns > 0 && generated > 0 && fabs(speedup * generated / columns - 1) < 1e-3);
  }
  double loss[2][2];
  for (int i = 0; i < 2; ++i) { /* two epochs by BP, then by the scan, at 0.001 */
    for (int epoch = 0; epoch < 2; ++epoch) {
      read_line("pages/figure6.csv", 1 + 2 * i + epoch, line, sizeof line);
      assert_int_equal(sscanf(line, i == 0 ? "0.001,bp,%*d,%lf,%s" : "0.001,scan,%*d,%lf,%s", &loss[i][epoch], rest), 2);
    }
  }
  assert_true(fabs(loss[0][1] - loss[1][1]) < 1e-5 && loss[0][1] < loss[0][0]);
  json_t *flops = run_json("flops vgg11 --prune 0.97 --up-levels 2 --pattern value --json");
  const json_t *first = json_array_get(json_object_get(flops, "steps"), 0);
  read_line("pages/figure10.csv", 1, line, sizeof line);
  assert_int_equal(strncmp(line, "value,up,mv,", 12), 0);
  snprintf(rest, sizeof rest, ",%lld,", (long long)get_integer(first, "flops"));
  assert_non_null(strstr(line, rest));
  json_decref(flops);
  json_decref(document);
}

/* What was measured is kept: without its last two parts --resume makes those again, and no other; another seed is refused. */
static void test_resume(void **state) {
  (void)state;
  size_t size;
  char *before = read_bytes("pages/figure6.csv", &size);
  json_t *kept = json_load_file("pages/networks.json", 0, NULL), *parts = json_object_get(kept, "parts");
  assert_int_equal(json_array_size(parts), 5); /* table 1, and figure 6's four curves */
  assert_true(json_is_true(json_object_get(kept, "finished")));
  json_t *first = json_deep_copy(json_array_get(parts, 0));
  json_array_remove(parts, 4);
  json_array_remove(parts, 3);
  assert_int_equal(json_dump_file(kept, "pages/networks.json", 0), 0);
  json_decref(kept);
  json_decref(run_json("figures --cnn --quick --threads 2 --out pages --resume --json"));
  kept = json_load_file("pages/networks.json", 0, NULL);
  parts = json_object_get(kept, "parts");
  assert_int_equal(json_array_size(parts), 5);
  assert_true(json_equal(json_array_get(parts, 0), first)); /* times: not measured again */
  char *after = read_bytes("pages/figure6.csv", &size);
  before[size] = after[size] = '\0';
  assert_string_equal(after, before);
  assert_fails(2, "--resume: --seed: 5, but the measurements in pages/networks.json were made with 0",
               "figures --cnn --quick --threads 2 --seed 5 --out pages --resume");
  free(before);
  free(after);
  json_decref(first);
  json_decref(kept);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_files), cmocka_unit_test(test_resume)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

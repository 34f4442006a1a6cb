/* `plan --svg` and `figures`: drawings that are XML with one node a product, files, and the page. */
#include "tests/cli/batch_files.h"

#include "core/files/json.h"

/* ---- XML ---- */

enum { MOST_OPEN = 32, NAME = 32 };

static const char *skip_name(const char *text, char name[NAME]) {
  const size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-:_");
  assert_true(length > 0 && length < NAME);
  memcpy(name, text, length);
  name[length] = '\0';
  return text + length;
}

/* name="value" ...; values without < and with entities only */
static const char *skip_attributes(const char *text) {
  char name[NAME];
  while (text[strspn(text, " \n")] != '>' && text[strspn(text, " \n")] != '/') {
    assert_true(strspn(text, " \n") > 0);
    text = skip_name(text + strspn(text, " \n"), name);
    assert_memory_equal(text, "=\"", 2);
    const size_t length = strcspn(text + 2, "\"<");
    assert_int_equal(text[2 + length], '"');
    text += length + 3;
  }
  return text + strspn(text, " \n");
}

static const char *skip_text(const char *text) {
  static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
  for (; *text != '<' && *text != '\0'; ++text) {
    assert_int_not_equal(*text, '>');
    bool known = *text != '&';
    for (size_t i = 0; i < sizeof entities / sizeof entities[0]; ++i) {
      known = known || strncmp(text, entities[i], strlen(entities[i])) == 0;
    }
    assert_true(known);
  }
  return text;
}

/* Elements nest, attributes are quoted, one root; as much of XML as the drawings use. */
static void assert_well_formed(const char *text) {
  char open[MOST_OPEN][NAME], name[NAME];
  int depth = 0, roots = 0;
  while (*(text = skip_text(text)) != '\0') {
    const bool closing = text[1] == '/';
    text = skip_name(text + 1 + closing, name);
    if (closing) {
      assert_true(depth > 0);
      assert_string_equal(name, open[--depth]);
      assert_int_equal(*text, '>');
      ++text;
      continue;
    }
    text = skip_attributes(text);
    roots += depth == 0;
    if (*text == '/') {
      ++text;
    } else {
      assert_true(depth < MOST_OPEN);
      strcpy(open[depth++], name);
    }
    assert_int_equal(*text, '>');
    ++text;
  }
  assert_int_equal(depth, 0);
  assert_int_equal(roots, 1);
}

static int count(const char *text, const char *word) {
  int found = 0;
  for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
    ++found;
  }
  return found;
}

/* The file's text, terminated (free it). */
static char *read_text(const char *path) {
  size_t size;
  char *text = read_bytes(path, &size);
  text[size] = '\0'; /* read_bytes leaves room */
  assert_int_equal(strlen(text), size);
  return text;
}

/* Timelines are drawn, and their titles hold the papers' numbers. */
static void check_schedules(const char *directory) {
  char path[128];
  snprintf(path, sizeof path, "%s/schedules.html", directory);
  char *page = read_text(path);
  const char *const parts[] = {
      "model-parallel, D = 2, N = 1: makespan 23", "fast-forward, D = 2, N = 1: makespan 19", "modulo, D = 2, N = 1: makespan 16",
      "gpipe, D = 4, N = 4: makespan 83",          "fast-forward, D = 4, N = 4: makespan 68", "modulo, D = 4, N = 4: makespan 51",
      "reverse-first-k, D = 1: makespan 15",       "chimera, D = 4, N = 8: makespan 28",      "id=\"chimera_table2\""};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; ++i) {
    if (strstr(page, parts[i]) == NULL) {
      fail_msg("the page lacks '%s'", parts[i]);
    }
  }
  free(page);
  snprintf(path, sizeof path, "%s/schedule_memory.csv", directory);
  page = read_text(path);
  assert_non_null(strstr(page, "\n64,128,simulation,65\n"));
  assert_non_null(strstr(page, "\n2048,2050,closed form,3\n"));
  free(page);
}

static void test_svg(void **state) {
  (void)state;
  const char *const methods[] = {
      "--algorithm blelloch",          "--algorithm linear", "--chunks 3", "--up-levels 2", "--algorithm blelloch --input-grad",
      "--algorithm chunked --loss all"};
  const int lengths[] = {1, 2, 7, 21, 50, 300};
  for (size_t m = 0; m < sizeof methods / sizeof methods[0]; ++m) {
    for (size_t t = 0; t < sizeof lengths / sizeof lengths[0]; ++t) {
      json_t *plan = run_noted_json("plan rnn --seq-len %d --hidden 4 %s --svg P.svg --json", lengths[t], methods[m]);
      const json_t *totals = json_object_get(plan, "totals"), *steps = json_object_get(plan, "steps");
      int critical = 0;
      for (size_t i = 0; i < json_array_size(steps); ++i) {
        critical += json_is_true(json_object_get(json_array_get(steps, i), "critical"));
      }
      char *svg = read_text("P.svg");
      assert_well_formed(svg);
      assert_int_equal(count(svg, "<g class=\"product"), get_integer(totals, "mm") + get_integer(totals, "mv"));
      assert_int_equal(count(svg, "<g class=\"product mm"), get_integer(totals, "mm"));
      assert_int_equal(count(svg, " dead\">"), get_integer(totals, "dead_steps"));
      assert_int_equal(count(svg, " critical\">"), critical);
      free(svg);
      json_decref(plan);
      assert_int_equal(remove("P.svg"), 0);
    }
  }
  assert_fails(2, "--svg: drawing: 29999 products, expected at most 10000",
               "plan rnn --seq-len 30000 --algorithm linear --svg P.svg");
  assert_false(file_exists("P.svg"));
  assert_fails(2, "--svg: no/such/P.svg", "plan rnn --seq-len 5 --svg no/such/P.svg");
}

/* ---- figures ---- */

static bool has_gnuplot(void) {
  return system("gnuplot --version >/dev/null 2>&1") == 0;
}

static void check_page(const char *path, bool drawn) {
  char *page = read_text(path);
  const char *const parts[] = {"id=\"table4\"",
                               "id=\"table5\"",
                               "id=\"figure1\"",
                               "id=\"figure3\"",
                               "id=\"figure7\"",
                               "id=\"figure8\"",
                               "What wins here",
                               "1557.94",
                               "409.33",
                               "threads 1",
                               "2.73 overall",
                               "Blelloch scan of 8 elements",
                               "Blelloch scan of 22 elements",
                               "</html>"};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; ++i) {
    if (strstr(page, parts[i]) == NULL) {
      fail_msg("the page lacks '%s'", parts[i]);
    }
  }
  assert_int_equal(count(page, "<svg"), drawn ? 4 : 2);
  assert_int_equal(count(page, "</svg>"), drawn ? 4 : 2);
  assert_int_equal(count(page, "Not drawn: gnuplot is not installed"), drawn ? 0 : 2);
  const char *const outside[] = {"<script", "<link", "src=", "@import", "url(http"}; /* self-contained */
  for (size_t i = 0; i < sizeof outside / sizeof outside[0]; ++i) {
    assert_null(strstr(page, outside[i]));
  }
  free(page);
}

static void check_files(const json_t *document, const char *directory, bool drawn) {
  const char *const always[] = {
      "results.json",   "table4.csv",         "table5.csv",       "figure1.csv",         "figure1.svg", "figure3.csv",
      "figure3.svg",    "figure7.csv",        "figure7.gp",       "figure8.csv",         "figure8.gp",  "index.html",
      "schedules.html", "chimera_table2.csv", "bubble_ratio.csv", "schedule_memory.csv", "ooo_4c.svg",  "ooo_5c.svg",
      "ooo_13c.svg",    "chimera_3.svg",      "chimera_8.svg",    "spectrain_7d.svg"};
  const char *const plotted[] = {"figure1.png", "figure3.png", "figure7.svg", "figure7.png", "figure8.svg", "figure8.png"};
  char path[128];
  for (size_t i = 0; i < sizeof always / sizeof always[0]; ++i) {
    snprintf(path, sizeof path, "%s/%s", directory, always[i]);
    assert_true(file_exists(path));
  }
  for (size_t i = 0; i < sizeof plotted / sizeof plotted[0]; ++i) {
    snprintf(path, sizeof path, "%s/%s", directory, plotted[i]);
    assert_int_equal(file_exists(path), drawn);
  }
  const json_t *files = json_object_get(document, "files");
  for (size_t i = 0; i < json_array_size(files); ++i) {
    snprintf(path, sizeof path, "%s/%s", directory, json_string_value(json_array_get(files, i)));
    assert_true(file_exists(path));
  }
  assert_int_equal(json_is_true(json_object_get(document, "gnuplot")), drawn);
  snprintf(path, sizeof path, "%s/index.html", directory);
  check_page(path, drawn);
}

static void test_measured(void **state) {
  (void)state;
  const bool drawn = has_gnuplot();
  json_t *document = run_json("figures --seq-len 12 --hidden 3 --repeats 1 --iterations 25 --threads 1 --out D --json");
  check_files(document, "D", drawn);
  check_schedules("D");
  json_decref(document);
  char *table = read_text("D/table4.csv");
  assert_int_equal(count(table, "\n"), 1 + 8 + 1); /* the paper's points and this one */
  assert_non_null(strstr(table, "\n30000,16,748.99,1557.94,764.31,,"));
  assert_non_null(strstr(table, "\n12,16,,,,0.")); /* no numbers of the paper, times of an epoch here */
  free(table);
  char *curves = read_text("D/figure7.csv");
  assert_int_equal(count(curves, "\n"), 1 + 3 * 2); /* windows of 20 and of 5 */
  assert_non_null(strstr(curves, "\nbp,20,"));
  assert_non_null(strstr(curves, "\nblelloch,25,"));
  free(curves);
  char *steps = read_text("D/figure3.csv");
  assert_int_equal(count(steps, "\n"), 1 + 16 + 20); /* 14 mat-mat that run and 2 that are dead; 20 mat-vec */
  free(steps);
}

static void test_results(void **state) {
  (void)state;
  assert_runs("bench rnn --seq-len 10 --repeats 1 --threads 1 --out R.json");
  json_t *document = run_json("figures --results R.json --seq-len 8 --batch 2 --iterations 2 --threads 1 --out E --json");
  check_files(document, "E", has_gnuplot());
  json_decref(document);
  char *given = read_text("R.json"), *kept = read_text("E/results.json"), *points = read_text("E/figure8.csv");
  assert_string_equal(given, kept);
  assert_non_null(strstr(points, "\nT,10,chunked,"));
  assert_non_null(strstr(points, "\nB,256,paper,"));
  /* (1557.94 - 748.99) / (764.31 - 748.99) */
  assert_non_null(strstr(points, "\nT,30000,paper,7.659999999999968,52.80352480417777,2.0383613978621242,382.155,0\n"));
  free(given);
  free(kept);
  free(points);
}

static void test_without_gnuplot(void **state) {
  (void)state;
  char path[4096];
  snprintf(path, sizeof path, "%s", getenv("PATH"));
  assert_int_equal(setenv("PATH", "/nonexistent", 1), 0);
  json_t *document = run_json("figures --seq-len 6 --batch 2 --hidden 2 --repeats 1 --iterations 1 --threads 1 --out G --json");
  run_result result = run("figures --seq-len 6 --batch 2 --hidden 2 --repeats 1 --iterations 1 --threads 1 --out G");
  assert_int_equal(setenv("PATH", path, 1), 0);
  check_files(document, "G", false);
  json_decref(document);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "gnuplot is not installed"));
  release(&result);
}

static void test_wrong_requests(void **state) {
  (void)state;
  write_bytes("file", "x", 1);
  write_bytes("list.json", "{\"rows\": 3}", 11);
  write_bytes("bad.json", "{\"rows\": [{\"seq_len\": 3}]}", 26);
  write_bytes("cut.json", "{\"rows\": [", 10);
  write_bytes("other.json", "{\"bench\": \"schedule\", \"rows\": [{}]}", 35);
  assert_fails(2, "--out: option missing", "figures");
  assert_fails(2, "--out: file: not a directory", "figures --out file");
  assert_fails(2, "--out: no/such/place", "figures --out no/such/place");
  assert_fails(2, "none.json", "figures --out D --results none.json");
  assert_fails(2, "cut.json", "figures --out D --results cut.json");
  assert_fails(2, "no array \"rows\"", "figures --out D --results list.json");
  assert_fails(2, "row 0 lacks", "figures --out D --results bad.json");
  assert_fails(2,
               "--results: other.json: of bench schedule, which has no figures, expected what bench rnn, bench gru, bench lstm, "
               "bench ranks, bench forward, bench step, bench/scripts/spectrain.py or bench/scripts/out_of_order.py wrote",
               "figures --out D --results other.json");
  assert_fails(2, "--data: given for the rnn", "figures --results R.json --data npy:a,b --out D");
  assert_fails(2, "--model: 'mgu', expected rnn, gru or lstm", "figures --model mgu --out D");
  assert_fails(2, "--iterations: '0'", "figures --out D --iterations 0");
  assert_fails(2, "--memory-limit: 10 bytes", "figures --out D --seq-len 5 --memory-limit 10");
}

/* Out of memory at every allocation: a clear error each time. Gnuplot is kept out of it. */
static void test_memory(void **state) {
  (void)state;
  char path[4096];
  snprintf(path, sizeof path, "%s", getenv("PATH"));
  assert_int_equal(setenv("PATH", "/nonexistent", 1), 0);
  const char *const lines[] = {
      "figures --results R.json --seq-len 3 --batch 2 --iterations 1 --threads 1 --out M --json",
      "bench rnn --seq-len 3 --batch 2 --hidden 2 --repeats 1 --threads 1 --json",
      "bench rnn --seq-len 3 --batch 2 --hidden 2 --repeats 1 --threads 1 --out N.json --layers 2 --loss all",
      "plan rnn --seq-len 9 --algorithm blelloch --svg N.svg --json"};
  assert_runs("bench rnn --seq-len 3 --batch 2 --hidden 2 --repeats 1 --threads 1 --out R.json");
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    bool done = false;
    for (int64_t call = 1; !done; call += i == 0 ? 211 : 1) { /* tests/figures walks through each figure's data */
      (void)unlink("M/figure7.json");                         /* what the run before kept, which is never overwritten */
      bppsa_alloc_fail_once(call);
      run_result result = run("%s", lines[i]);
      const bool reached = bppsa_alloc_calls() >= call;
      bppsa_alloc_fail_at(0);
      done = !reached;
      if (done) {
        assert_int_equal(result.code, 0);
      } else {
        assert_int_equal(result.code, 1);
        assert_one_error(&result, "out of memory");
      }
      release(&result);
    }
  }
  assert_int_equal(setenv("PATH", path, 1), 0);
}

/* Rows of bench gru: table 3, table 6 and figure 9 beside the paper's numbers. 2 ms forward and 3 ms by BP against 9 ms by the
 * faster scan. */
static void test_gru(void **state) {
  (void)state;
  const char *const phases[] = {"forward", "backward", "backward", "backward"};
  const char *const methods[] = {"forward", "bp", "blelloch", "chunked"};
  const double seconds[] = {0.002, 0.003, 0.02, 0.009};
  json_t *rows = json_array();
  for (int i = 0; i < 4; ++i) {
    json_array_append_new(rows, json_pack("{s:i,s:i,s:s,s:s,s:s,s:f}", "seq_len", 517, "batch", 32, "init", "default", "phase",
                                          phases[i], "method", methods[i], "median_s", seconds[i]));
  }
  json_t *given = json_pack("{s:s,s:o}", "bench", "gru", "rows", rows);
  char *text = NULL;
  assert_int_equal(bppsa_json_text(given, 0, 0, &text), BPPSA_OK);
  write_bytes("G.json", text, strlen(text));
  bppsa_free(text);
  json_decref(given);
  write_reals("FX.npy", BPPSA_F32, 3, (int64_t[]){20, 9, 2}); /* [N,T,I] */
  write_labels("FY.npy", 1, (int64_t[]){20}, -1, 0);
  assert_fails(2, "--model: rnn, but --results are of bench gru", "figures --results G.json --model rnn --out GRU");
  assert_fails(2, "--batch: 16, more than the 10 training samples",
               "figures --results G.json --data npy:FX.npy,FY.npy --validation 0.5 --out GRU");
  json_t *document = run_json("figures --results G.json --data npy:FX.npy,FY.npy --validation 0.25 --batch 5 --iterations 30 "
                              "--threads 1 --out GRU --json");
  const json_t *files = json_object_get(document, "files");
  for (size_t i = 0; i < json_array_size(files); ++i) {
    char path[128];
    snprintf(path, sizeof path, "GRU/%s", json_string_value(json_array_get(files, i)));
    assert_true(file_exists(path));
  }
  assert_int_equal(json_array_size(files), has_gnuplot() ? 12 : 8);
  json_decref(document);
  char *table = read_text("GRU/table6.csv"), *bars = read_text("GRU/figure9.csv"), *page = read_text("GRU/index.html");
  char *features = read_text("GRU/table3.csv"), *curves = read_text("GRU/figure13.csv");
  assert_non_null(strstr(features, "\nM,13,2048,256,517,24,517,24\n"));
  assert_int_equal(count(curves, "\n"), 1 + 3 * 2); /* methods x windows of 20 */
  assert_non_null(strstr(page, "GRU, T = 9, B = 5, H = 20"));
  assert_non_null(strstr(page, " % of 5."));
  free(features);
  free(curves);
  assert_int_equal(count(table, "\n"), 1 + 9);
  assert_non_null(
      strstr(table, "\nM,32,1.73,1.83,3.3,2.22,1.4864864864864862,2,3,,20,9,,,0.4545454545454546,0\n")); /* (2 + 3) / (2 + 9) */
  assert_non_null(strstr(table, "\nL,64,1.64,2.13,3.19,2.33,1.3690987124463518,,,,,,,,,0\n"));
  assert_int_equal(count(bars, ",here,"), 1);
  assert_non_null(strstr(bars, "\n4,M 32,here,0.4,0,1.8,0\n"));
  assert_non_null(strstr(page, "id=\"table3\""));
  assert_non_null(strstr(page, "id=\"table6\""));
  free(table);
  free(bars);
  free(page);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gru),
                                     cmocka_unit_test(test_svg),
                                     cmocka_unit_test(test_measured),
                                     cmocka_unit_test(test_results),
                                     cmocka_unit_test(test_without_gnuplot),
                                     cmocka_unit_test(test_wrong_requests),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

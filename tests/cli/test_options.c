/* The table of options and its parser. */
#include "tests/cli/run_cli.h"

#include "cli/command.h"
#include "cli/options.h"
#include "core/base/status.h"
#include "networks/network_kinds.h"
#include "scan/method.h"

static bppsa_status parse(bppsa_option option, const char *text, bppsa_option_value *value) {
  return bppsa_option_parse(option, text, value);
}

static void check_info(const bppsa_option_info *info) {
  assert_non_null(info->name);
  assert_int_equal(strncmp(info->name, "--", 2), 0);
  assert_non_null(info->help);
  assert_true(info->kind == BPPSA_FLAG || info->kind == BPPSA_CHOICE || info->expected != NULL);
  assert_true((info->kind == BPPSA_CHOICE) == (bppsa_option_choice(info, 0) != NULL));
  int32_t choices = 0;
  while (bppsa_option_choice(info, choices) != NULL) {
    ++choices;
  }
  assert_true(choices < BPPSA_OPTION_CHOICES);
}

static void test_table(void **state) {
  (void)state;
  for (int i = 0; i < BPPSA_OPTION_COUNT; ++i) {
    const bppsa_option_info *info = bppsa_option_get((bppsa_option)i);
    check_info(info);
    bppsa_option_value value;
    if (info->fallback != NULL) {
      assert_int_equal(parse((bppsa_option)i, info->fallback, &value), BPPSA_OK);
    }
    for (int other = 0; other < i; ++other) {
      assert_string_not_equal(info->name, bppsa_option_get((bppsa_option)other)->name);
    }
  }
}

/* A command may mean something else by an option than the table: it has the same name, and its own default can be parsed. */
static void test_meanings(void **state) {
  (void)state;
  int meanings = 0;
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    for (const bppsa_option_use *use = (*command)->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
      const bppsa_option_use alone[] = {{.option = use->option, .meaning = use->meaning}, BPPSA_USE(HELP), BPPSA_USE(COUNT)};
      bppsa_option_value values[BPPSA_OPTION_COUNT];
      check_info(bppsa_option_of(use));
      assert_string_equal(bppsa_option_of(use)->name, bppsa_option_get(use->option)->name);
      assert_int_equal(bppsa_options_parse("test", alone, 0, NULL, values), BPPSA_OK);
      assert_true(values[use->option].meaning == (values[use->option].present ? bppsa_option_of(use) : NULL));
      meanings += use->meaning != NULL;
    }
  }
  assert_true(meanings > 12);
}

/* The choices of --algorithm are the algorithms of the table of scan/algorithm.c, in its order; those of --backward and --model
 * likewise. */
static void test_methods(void **state) {
  (void)state;
  const bppsa_option_info *algorithms = bppsa_option_get(BPPSA_OPTION_ALGORITHM), *models = bppsa_option_get(BPPSA_OPTION_MODEL);
  const bppsa_option_info *backwards = bppsa_option_get(BPPSA_OPTION_BACKWARD);
  for (int a = 0; a < BPPSA_SCAN_ALGORITHMS; ++a) {
    assert_non_null(bppsa_option_choice(algorithms, a));
    assert_string_equal(bppsa_option_choice(algorithms, a), bppsa_scan_algorithm_name((bppsa_scan_algorithm)a));
  }
  assert_null(bppsa_option_choice(algorithms, BPPSA_SCAN_ALGORITHMS));
  for (int b = BPPSA_BACKWARD_AUTO; b <= BPPSA_BACKWARD_SCAN; ++b) {
    assert_string_equal(bppsa_option_choice(backwards, b), bppsa_backward_name((bppsa_backward)b));
  }
  assert_null(bppsa_option_choice(backwards, BPPSA_BACKWARD_SCAN + 1));
  int32_t recurrent = 0;
  for (int64_t i = 0; bppsa_network_kind_at(i) != NULL; ++i) {
    const bppsa_network_kind *kind = bppsa_network_kind_at(i);
    if (kind->cell != NULL) {
      assert_string_equal(bppsa_option_choice(models, recurrent++), kind->name);
    }
  }
  assert_null(bppsa_option_choice(models, recurrent));
}

static const bppsa_command *find_command(const char *verb, const char *object) {
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    if (strcmp((*command)->verb, verb) == 0 && (*command)->object != NULL && strcmp((*command)->object, object) == 0) {
      return *command;
    }
  }
  return NULL;
}

/* Every recurrent kind has all commands of recurrent networks, with --nonlinearity where its cell has a second function. */
static void test_kinds(void **state) {
  (void)state;
  static const char *const verbs[] = {"train", "eval", "grad", "plan", "bench", "jacobian"};
  const bppsa_network_kind *kind;
  int recurrent = 0;
  for (int64_t i = 0; (kind = bppsa_network_kind_at(i)) != NULL; ++i) {
    for (size_t v = 0; kind->cell != NULL && v < sizeof verbs / sizeof verbs[0]; ++v) {
      const bppsa_command *command = find_command(verbs[v], kind->name);
      if (command == NULL) {
        fail_msg("no command '%s %s'", verbs[v], kind->name);
        return;
      }
      bool takes = false;
      for (const bppsa_option_use *use = command->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
        takes = takes || use->option == BPPSA_OPTION_NONLINEARITY;
      }
      assert_int_equal(takes, kind->cell->relu);
    }
    recurrent += kind->cell != NULL;
  }
  assert_true(recurrent >= 2);
}

/* A name means one thing to a command; two commands may mean different things by it. */
static void test_names(void **state) {
  (void)state;
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    for (const bppsa_option_use *use = (*command)->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
      for (const bppsa_option_use *other = (*command)->uses; other != use; ++other) {
        assert_string_not_equal(bppsa_option_get(use->option)->name, bppsa_option_get(other->option)->name);
      }
    }
  }
}

static void test_integers(void **state) {
  (void)state;
  bppsa_option_value value;
  assert_int_equal(parse(BPPSA_OPTION_SEQ_LEN, "16", &value), BPPSA_OK);
  assert_int_equal(value.integer, 16);
  assert_int_equal(parse(BPPSA_OPTION_SEQ_LEN, "9223372036854775807", &value), BPPSA_OK);
  assert_true(value.integer == INT64_MAX);
  const char *const bad[] = {
      "", "16x", "x16", " 16", "16 ", "+16", "1e3", "0x10", "1.0", "-", "0", "-5", "9223372036854775808", "nan", "1_000"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    value.integer = 7;
    assert_int_equal(parse(BPPSA_OPTION_SEQ_LEN, bad[i], &value), BPPSA_ERR_ARGUMENT);
    assert_int_equal(value.integer, 7);
    assert_non_null(strstr(bppsa_last_error(), "--seq-len"));
    assert_non_null(strstr(bppsa_last_error(), "expected a whole number"));
  }
  assert_int_equal(parse(BPPSA_OPTION_THREADS, "4096", &value), BPPSA_OK);
  assert_int_equal(parse(BPPSA_OPTION_THREADS, "4097", &value), BPPSA_ERR_ARGUMENT);
  assert_int_equal(parse(BPPSA_OPTION_UP_LEVELS, "0", &value), BPPSA_OK);
}

static void test_sizes(void **state) {
  (void)state;
  const struct {
    const char *text;
    int64_t bytes;
  } good[] = {{"1", 1},          {"1000000", 1000000},     {"500K", 500 << 10},
              {"64M", 64 << 20}, {"2G", (int64_t)2 << 30}, {"8589934591G", INT64_MAX - ((1 << 30) - 1)}};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; ++i) {
    bppsa_option_value value;
    assert_int_equal(parse(BPPSA_OPTION_MEMORY_LIMIT, good[i].text, &value), BPPSA_OK);
    assert_true(value.integer == good[i].bytes);
  }
  const char *const bad[] = {
      "", "0", "0K", "-1", "-1K", "K", "1k", "1KB", "1.5G", "1 K", "K1", "8589934592G", "99999999999999999999", "1KK"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    bppsa_option_value value = {.integer = 7};
    assert_int_equal(parse(BPPSA_OPTION_MEMORY_LIMIT, bad[i], &value), BPPSA_ERR_ARGUMENT);
    assert_int_equal(value.integer, 7);
    assert_non_null(strstr(bppsa_last_error(), "expected a number of bytes"));
  }
}

static void test_reals(void **state) {
  (void)state;
  bppsa_option_value value;
  assert_int_equal(parse(BPPSA_OPTION_LR, "3e-4", &value), BPPSA_OK);
  assert_true(value.real == 3e-4);
  const char *const bad[] = {"",   "nan", "inf", "-inf", "0x1p3", "1e999", "1e-999", " 1",
                             "1 ", "1,5", "0",   "-1",   "1e",    "--1",   "."};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    assert_int_equal(parse(BPPSA_OPTION_LR, bad[i], &value), BPPSA_ERR_ARGUMENT);
  }
  assert_int_equal(parse(BPPSA_OPTION_VALIDATION, "0", &value), BPPSA_OK);
  assert_int_equal(parse(BPPSA_OPTION_VALIDATION, "0.999", &value), BPPSA_OK);
  assert_int_equal(parse(BPPSA_OPTION_VALIDATION, "1", &value), BPPSA_ERR_ARGUMENT);
}

static void test_choices(void **state) {
  (void)state;
  bppsa_option_value value;
  assert_int_equal(parse(BPPSA_OPTION_ALGORITHM, "blelloch", &value), BPPSA_OK);
  assert_string_equal(value.text, "blelloch");
  assert_int_equal(parse(BPPSA_OPTION_ALGORITHM, "blelock", &value), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "expected auto, linear, blelloch or chunked; did you mean blelloch?"));
  assert_int_equal(parse(BPPSA_OPTION_ALGORITHM, "", &value), BPPSA_ERR_ARGUMENT);
  assert_int_equal(parse(BPPSA_OPTION_LOSS, "Last", &value), BPPSA_ERR_ARGUMENT);
}

static const bppsa_option_use uses[] = {{.option = BPPSA_OPTION_SEQ_LEN, .fallback = "5"},
                                        {.option = BPPSA_OPTION_LR},
                                        {.option = BPPSA_OPTION_HIDDEN, .fallback = ""},
                                        {.option = BPPSA_OPTION_OUT, .required = true},
                                        {.option = BPPSA_OPTION_JSON},
                                        {.option = BPPSA_OPTION_HELP},
                                        {.option = BPPSA_OPTION_COUNT}};

static bppsa_status parse_line(const char *text, bppsa_option_value *values) {
  char line[LINE_BYTES], *argv[MAX_ARGUMENTS];
  snprintf(line, sizeof line, "%s", text);
  const int argc = split_line(line, argv);
  return bppsa_options_parse("test", uses, argc, argv, values);
}

static void test_lines(void **state) {
  (void)state;
  bppsa_option_value values[BPPSA_OPTION_COUNT];
  assert_int_equal(parse_line("--out=a=b --lr 0.5 --seq-len=7 --seq-len 8", values), BPPSA_OK);
  assert_string_equal(values[BPPSA_OPTION_OUT].text, "a=b");
  assert_int_equal(values[BPPSA_OPTION_SEQ_LEN].integer, 8); /* the last counts */
  assert_true(values[BPPSA_OPTION_LR].real == 0.5);
  assert_false(values[BPPSA_OPTION_JSON].given);
  assert_int_equal(parse_line("--out x --json", values), BPPSA_OK);
  assert_int_equal(values[BPPSA_OPTION_SEQ_LEN].integer, 5);
  assert_false(values[BPPSA_OPTION_SEQ_LEN].given);
  assert_true(values[BPPSA_OPTION_LR].present); /* the table's own default */
  assert_false(values[BPPSA_OPTION_HIDDEN].present);
  assert_true(values[BPPSA_OPTION_JSON].given);
  assert_int_equal(parse_line("--help --nonsense", values), BPPSA_OK);
  assert_true(values[BPPSA_OPTION_HELP].given);
}

static void test_bad_lines(void **state) {
  (void)state;
  const struct {
    const char *line, *message;
  } bad[] = {{"", "--out: option missing"},
             {"--out", "--out: value missing"},
             {"--out --json", "--out: value missing"},
             {"--out=", "--out: ''"},
             {"--out x --json=yes", "--json: 'yes', expected the flag without a value"},
             {"--out x y", "'y': unexpected argument"},
             {"--out x --seq-len -5", "--seq-len: '-5', expected a whole number, 1 or more"},
             {"--out x --seqlen=5", "--seqlen: unknown option"},
             {"--out x --seqlen=5", "did you mean --seq-len?"},
             {"--out x --batch 3", "--batch: unknown option"}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    bppsa_option_value values[BPPSA_OPTION_COUNT];
    assert_int_equal(parse_line(bad[i].line, values), BPPSA_ERR_ARGUMENT);
    if (strstr(bppsa_last_error(), bad[i].message) == NULL) {
      fail_msg("'%s': expected '%s', found '%s'", bad[i].line, bad[i].message, bppsa_last_error());
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table),     cmocka_unit_test(test_names),   cmocka_unit_test(test_meanings),
      cmocka_unit_test(test_integers),  cmocka_unit_test(test_kinds),   cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_reals),     cmocka_unit_test(test_choices), cmocka_unit_test(test_lines),
      cmocka_unit_test(test_bad_lines), cmocka_unit_test(test_methods)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

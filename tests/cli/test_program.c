/* The program as a whole: commands, help, exit codes, standard output; and as a function of other programs. */
#include <signal.h>

#include "cli/command.h"
#include "tests/cli/run_cli.h"

/* The name of command `index` of the program's table; false behind the last. */
static bool command_at(int index, char name[BPPSA_COMMAND_NAME]) {
  const bppsa_command *command = bppsa_commands()[index];
  if (command == NULL) {
    return false;
  }
  bppsa_command_name(command, name, BPPSA_COMMAND_NAME);
  return true;
}

static void test_commands(void **state) {
  (void)state;
  char *none[] = {(char *)"bppsa", NULL};
  char *err_text = NULL;
  size_t size = 0;
  FILE *err = open_memstream(&err_text, &size);
  assert_int_equal(bppsa_cli_main(1, none, stdout, err), 2);
  fclose(err);
  assert_non_null(strstr(err_text, "command missing, expected train, eval, grad, plan, data, bench, jacobian, flops, prune, "
                                   "figures, schedule, oracle, calibrate or doctor"));
  free(err_text);
  assert_fails(
      2,
      "'trian': unknown command, expected train, eval, grad, plan, data, bench, jacobian, flops, prune, figures, schedule, "
      "oracle, calibrate or doctor; did you mean train?",
      "trian rnn");
  assert_fails(2, "'calibrat': unknown command", "calibrat vgg11");
  assert_fails(2, "'--json': unknown option before a command", "--json train rnn");
  assert_fails(2, "train: model missing, expected rnn", "train");
  assert_fails(2, "train: model missing, expected rnn", "train --seq-len 5");
  assert_fails(2,
               "train: unknown model 'lstn', expected rnn, gru, lstm, lenet5, vgg11, resnet18, resnet50, mobilenetv2, vgg16, "
               "resnet20 or FILE.json; did you mean lstm?",
               "train lstn");
  assert_fails(2,
               "train: unknown model 'rn', expected rnn, gru, lstm, lenet5, vgg11, resnet18, resnet50, mobilenetv2, vgg16, "
               "resnet20 or FILE.json; did you mean rnn?",
               "train rn");
  assert_fails(2, "data: unknown data set 'irmass', expected bitstream, irmas, instruments or cifar10; did you mean irmas?",
               "data irmass");
  assert_fails(2, "'rnn': unexpected argument of 'doctor'", "doctor rnn");
  assert_fails(2, "--hiden: unknown option, expected one that bppsa train rnn --help lists; did you mean --hidden?",
               "train rnn --hiden 5");
  assert_fails(2, "--out: unknown option", "train rnn --out x");
}

static void test_version(void **state) {
  (void)state;
  run_result result = run("--version");
  assert_int_equal(result.code, 0);
  assert_int_equal(strncmp(result.out, "bppsa ", 6), 0);
  assert_true(result.out[6] >= '0' && result.out[6] <= '9');
  release(&result);
}

static void test_help(void **state) {
  (void)state;
  run_result top = run("--help");
  assert_int_equal(top.code, 0);
  assert_string_equal(top.err, "");
  char name[BPPSA_COMMAND_NAME];
  for (int i = 0; command_at(i, name); ++i) {
    assert_non_null(strstr(top.out, name));
    run_result help = run("%s --help", name);
    assert_int_equal(help.code, 0);
    assert_string_equal(help.err, "");
    assert_non_null(strstr(help.out, "Usage: bppsa "));
    assert_non_null(strstr(help.out, "--json"));
    assert_non_null(strstr(help.out, "Example:\n  bppsa "));
    release(&help);
  }
  const char *const absent[] = {"mgu", "perceptron"};
  for (size_t i = 0; i < sizeof absent / sizeof absent[0]; ++i) { /* the help names no command that does not exist */
    assert_null(strstr(top.out, absent[i]));
  }
  release(&top);
  run_result verb = run("train --help");
  assert_int_equal(verb.code, 0);
  assert_non_null(strstr(verb.out, "bppsa train rnn"));
  release(&verb);
  run_result train = run("train rnn --help");
  const char *const titles[] = {"\nModel:\n", "\nData:\n", "\nGradients:\n", "\nTraining:\n", "\nMachine:\n", "\nFiles:\n"};
  const char *last = train.out;
  for (size_t i = 0; i < sizeof titles / sizeof titles[0]; ++i) { /* in the design's order */
    last = strstr(last, titles[i]);
    assert_non_null(last);
  }
  assert_non_null(strstr(train.out, "size of the hidden state [20]"));
  assert_non_null(strstr(train.out, "time steps of a sample [bitstream 1000, others the files']\n"));
  assert_non_null(strstr(train.out, "of weights, data and shuffling [0]\n"));
  release(&train);
}

/* Every command gives its own defaults, one a line at most. */
/* Does a default stand there twice, "[cpu] [cpu]"? */
static bool says_twice(const char *help) {
  for (const char *end = strstr(help, "] ["); end != NULL; end = strstr(end + 1, "] [")) {
    const char *begin = end;
    while (begin > help && *begin != '[' && *begin != '\n') {
      --begin;
    }
    if (*begin == '[' && strncmp(begin, end + 2, (size_t)(end + 1 - begin)) == 0) {
      return true;
    }
  }
  return false;
}

static void test_help_defaults(void **state) {
  (void)state;
  char name[BPPSA_COMMAND_NAME];
  for (int i = 0; command_at(i, name); ++i) {
    run_result help = run("%s --help", name);
    assert_null(strstr(help.out, "files'] ["));
    assert_false(says_twice(help.out));
    release(&help);
  }
  run_result plan = run("plan rnn --help");
  assert_non_null(strstr(plan.out, "time steps of a sample [1000]\n"));
  assert_non_null(strstr(plan.out, "with the predicted seconds of all [scan]\n"));
  release(&plan);
  run_result data = run("data bitstream --help");
  assert_non_null(strstr(data.out, "samples of the data set [32000]\n"));
  assert_non_null(strstr(data.out, "time steps of a sample [1000]\n"));
  assert_non_null(strstr(data.out, "of the data [0]\n"));
  assert_null(strstr(data.out, "shuffling"));
  release(&data);
}

/* The examples of the help must be lines the program takes: parse them up to the files they name. */
static void test_examples(void **state) {
  (void)state;
  char name[BPPSA_COMMAND_NAME];
  for (int i = 0; command_at(i, name); ++i) {
    run_result help = run("%s --help", name);
    const char *example = strstr(help.out, "Example:\n  bppsa ");
    assert_non_null(example);
    example += strlen("Example:\n  bppsa ");
    run_result result = run("%.*s --nonsense", (int)strcspn(example, "\n"), example);
    assert_int_equal(result.code, 2);
    assert_one_error(&result, "--nonsense: unknown option"); /* everything before it was taken */
    release(&result);
    release(&help);
  }
}

static void assert_full(const char *text) {
  char line[LINE_BYTES], *argv[MAX_ARGUMENTS], *err_text = NULL;
  size_t size = 0;
  snprintf(line, sizeof line, "bppsa %s", text);
  FILE *full = fopen("/dev/full", "w"), *err = open_memstream(&err_text, &size);
  if (full == NULL) {
    skip();
  }
  const int64_t live = bppsa_alloc_live();
  assert_int_equal(bppsa_cli_main(split_line(line, argv), argv, full, err), 1);
  assert_int_equal(bppsa_alloc_live(), live);
  fclose(full);
  fclose(err);
  run_result result = {.err = err_text};
  assert_one_error(&result, "standard output: write failed (No space left on device)");
  free(err_text);
}

static void test_full_disk(void **state) {
  (void)state;
  assert_full("--help");
  assert_full("--version");
  assert_full("train rnn --help");
  assert_full("doctor");
  assert_full("doctor --json");
  assert_full("plan rnn --seq-len 5000 --algorithm blelloch --json");
  assert_full("train rnn --seq-len 5 --samples 32 --iterations 2");
}

/* A standard stream that is closed stays so: none of the files that the program opens takes its place. */
static void test_closed_streams(void **state) {
  (void)state;
  static const char *const closed[] = {">&- 2>/dev/null", "<&- >&- 2>/dev/null", "<&- >&- 2>&-"};
  for (size_t i = 0; i < sizeof closed / sizeof closed[0]; ++i) {
    char command[LINE_BYTES];
    snprintf(command, sizeof command,
             "%s train rnn --seq-len 5 --samples 64 --epochs 2 --threads 1 --log L.jsonl --save-weights W.st %s",
             BPPSA_TEST_PROGRAM, closed[i]);
    assert_int_equal(WEXITSTATUS(system(command)), 1); /* the table could not be written */
    FILE *log = fopen("L.jsonl", "r");
    assert_non_null(log);
    int lines = 0;
    for (char line[LINE_BYTES]; fgets(line, sizeof line, log) != NULL; ++lines) {
      json_t *row = json_loads(line, 0, NULL);
      assert_non_null(row);
      json_decref(row);
    }
    fclose(log);
    assert_true(lines > 0);
    assert_int_equal(remove("L.jsonl"), 0);
    (void)remove("W.st"); /* the run ends at the first line that it cannot print */
  }
}

static void test_doctor(void **state) {
  (void)state;
  json_t *report = run_json("doctor --json");
  const char *const keys[] = {"version", "commit", "compiler", "processor", "vector", "blas"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
    get_text(report, keys[i]);
  }
  assert_true(get_integer(report, "threads") >= 1);
  assert_true(json_is_boolean(json_object_get(json_object_get(report, "cuda"), "built")));
  const json_t *backends = json_object_get(report, "backends");
  assert_true(json_array_size(backends) >= 10);
  const json_t *transports = json_object_get(report, "transports");
  assert_int_equal(json_array_size(transports), 3);
  assert_string_equal(get_text(json_array_get(transports, 0), "name"), "threads");
  assert_true(json_is_true(json_object_get(json_array_get(transports, 0), "found"))); /* in every build */
  run_result text = run("doctor");
  assert_int_equal(text.code, 0);
  for (size_t i = 0; i < json_array_size(transports); ++i) {
    const json_t *transport = json_array_get(transports, i);
    const bool found = json_is_true(json_object_get(transport, "found"));
    const bool built = json_is_true(json_object_get(transport, "built"));
    const char *name = get_text(transport, "name");
    assert_non_null(name);
    char line[80];
    snprintf(line, sizeof line, "%.20s: %s", name, found ? "found" : built ? "not found" : "not built");
    assert_non_null(strstr(text.out, line));
    assert_true(found || get_text(transport, "detail")[0] != '\0'); /* what is missing is said */
  }
  assert_non_null(strstr(text.out, "\nOptional\n"));
  for (size_t i = 0; i < json_array_size(backends); ++i) {
    const json_t *backend = json_array_get(backends, i);
    const bool found = json_is_true(json_object_get(backend, "found"));
    const char *line = strstr(strstr(text.out, "\nOptional\n"), get_text(backend, "name"));
    assert_non_null(line);
    const char *wanted = found ? get_text(backend, "where") : get_text(backend, "package");
    const char *place = strstr(line, wanted);
    assert_non_null(place);
    assert_true(place < strchr(line, '\n')); /* where it is, or what brings it, on its line */
    assert_true(wanted[0] != '\0');
  }
  release(&text);
  json_decref(report);
}

static void test_device(void **state) {
  (void)state;
  json_t *report = run_json("doctor --json");
  const json_t *cuda = json_object_get(report, "cuda");
  const int64_t devices = get_integer(cuda, "devices");
  json_decref(report);
  const char *line = "train rnn --seq-len 5 --samples 32 --iterations 1 --device";
  if (devices == 0) {
    assert_fails(2, "--device: device cuda: ", "%s cuda", line);
  }
  assert_fails(2, "--device: ", "%s cuda:9999", line);
  assert_fails(2, "--device: device \"cudx\": expected cpu, cuda or cuda:K", "%s cudx", line);
  assert_fails(2, "--device: device \"cuda:x\"", "%s cuda:x", line);
}

/* bppsa_run takes words and two streams, and ends training where the caller tells it to. */
static void test_as_a_function(void **state) {
  (void)state;
  char line[] = "bppsa train rnn --seq-len 5 --samples 32 --iterations 9", *words[MAX_ARGUMENTS];
  char *texts[2] = {NULL, NULL};
  size_t sizes[2];
  FILE *out = open_memstream(&texts[0], &sizes[0]), *err = open_memstream(&texts[1], &sizes[1]);
  const int count = split_line(line, words);
  for (int wrong = 0; wrong < 4; ++wrong) {
    assert_int_equal(
        bppsa_run(wrong == 3 ? -1 : count, wrong == 0 ? NULL : words, wrong == 1 ? NULL : out, wrong == 2 ? NULL : err, NULL), 2);
    assert_string_equal(bppsa_last_error(), "bppsa_run: expected words and two streams, none of them NULL");
  }
  int told = SIGTERM;
  assert_int_equal(bppsa_run(count, words, out, err, &told), 1);
  fflush(err);
  assert_non_null(strstr(texts[1], "bppsa: error: stopped by SIGTERM"));
  told = 0;
  assert_int_equal(bppsa_run(count, words, out, err, &told), 0);
  fclose(out);
  fclose(err);
  assert_non_null(strstr(texts[0], "loss"));
  free(texts[0]);
  free(texts[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_a_function), cmocka_unit_test(test_commands),
                                     cmocka_unit_test(test_version),       cmocka_unit_test(test_help),
                                     cmocka_unit_test(test_help_defaults), cmocka_unit_test(test_examples),
                                     cmocka_unit_test(test_full_disk),     cmocka_unit_test(test_closed_streams),
                                     cmocka_unit_test(test_doctor),        cmocka_unit_test(test_device)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

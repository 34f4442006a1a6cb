/* --plan and --memory-limit: where the choice comes from, what is kept, what is refused. */
#include "tests/cli/run_cli.h"

#define SMALL "train rnn --seq-len 30 --samples 48 --hidden 5 --iterations 2"
#define CACHE "cache/bppsa/plans.json"

static int start(void **state) {
  (void)state;
  (void)unlink(CACHE);
  char directory[2048];
  assert_non_null(getcwd(directory, sizeof directory - 16));
  strcat(directory, "/cache");
  return setenv("XDG_CACHE_HOME", directory, 1);
}

/* Returns config.chosen of a run, and its algorithm in `algorithm` unless NULL. */
static void assert_chosen(const char *options, const char *chosen) {
  json_t *document = run_json(SMALL " --json %s", options);
  const json_t *config = json_object_get(document, "config");
  assert_string_equal(get_text(config, "chosen"), chosen);
  assert_int_equal(json_is_true(json_object_get(config, "auto")), strcmp(chosen, "option") != 0);
  json_decref(document);
}

static void test_choosers(void **state) {
  (void)state;
  assert_chosen("", "estimate");
  assert_chosen("--backward scan", "estimate");
  assert_chosen("--algorithm linear", "option");
  assert_chosen("--backward bp", "option");
  assert_chosen("--plan estimate", "estimate");
  assert_int_equal(access(CACHE, F_OK), -1);
  assert_chosen("--plan measure", "measurement");
  assert_chosen("--plan measure", "cache");
  assert_chosen("--plan measure --threads 1", "measurement"); /* as on another machine: another number of threads */
  assert_chosen("--plan measure --batch 4", "measurement");
  assert_chosen("--plan measure --backward scan", "measurement"); /* without BP */
  assert_chosen("--plan measure --algorithm auto", "cache");
  assert_chosen("--plan measure", "cache");
}

static void write_cache(const char *text) {
  FILE *file = fopen(CACHE, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

/* A valid entry of the file is used, and an invalid one is measured anew; other entries stay. */
static void test_cache(void **state) {
  (void)state;
  assert_chosen("--plan measure", "measurement");
  assert_chosen("--plan measure --loss all", "measurement");
  json_error_t error;
  json_t *document = json_load_file(CACHE, 0, &error);
  assert_non_null(document);
  json_t *plans = json_object_get(document, "plans"), *first = json_array_get(plans, 0);
  assert_int_equal(json_array_size(plans), 2);
  assert_true(get_real(first, "median_s") > 0);
  json_object_set_new(first, "backward", json_string("bp"));
  assert_int_equal(json_dump_file(document, CACHE, 0), 0);
  json_t *bp = run_json(SMALL " --plan measure --json");
  assert_string_equal(get_text(json_object_get(bp, "config"), "backward"), "bp");
  json_decref(bp);
  json_object_set_new(first, "backward", json_string("scan"));
  json_object_set_new(first, "algorithm", json_string("chunked"));
  json_object_set_new(first, "chunks", json_integer(4));
  assert_int_equal(json_dump_file(document, CACHE, 0), 0);
  json_t *run_document = run_json(SMALL " --plan measure --json");
  const json_t *config = json_object_get(run_document, "config");
  assert_string_equal(get_text(config, "algorithm"), "chunked");
  assert_int_equal(get_integer(config, "chunks"), 4);
  json_decref(run_document);
  json_object_set_new(first, "chunks", json_integer(0)); /* no plan this program writes */
  assert_int_equal(json_dump_file(document, CACHE, 0), 0);
  json_decref(document);
  assert_chosen("--plan measure", "measurement");
  assert_chosen("--plan measure --loss all", "cache");
  static const char *const damaged[] = {"",
                                        "{",
                                        "[]",
                                        "{\"format\":2,\"plans\":[]}",
                                        "{\"format\":1,\"plans\":7}",
                                        "{\"format\":1,\"plans\":[1,null,{\"key\":2}]}"};
  for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; ++i) {
    write_cache(damaged[i]);
    assert_chosen("--plan measure", "measurement");
    assert_chosen("--plan measure", "cache");
  }
}

/* A cache that cannot be written gives a note, and the run succeeds. */
static void test_no_cache(void **state) {
  (void)state;
  assert_int_equal(setenv("XDG_CACHE_HOME", "/dev/null/nowhere", 1), 0);
  run_result result = run(SMALL " --plan measure");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.err, "bppsa: note: the measured plan is not kept: "));
  assert_non_null(strstr(result.out, "chosen by measurement"));
  release(&result);
}

static void test_resume(void **state) {
  (void)state;
  (void)unlink("p/checkpoint.safetensors");
  (void)unlink("p/checkpoint.previous.safetensors");
  json_t *document = run_json(SMALL " --layers 2 --checkpoint p --chunks 5 --json");
  json_decref(document);
  document = run_json("train rnn --seq-len 30 --samples 48 --hidden 5 --iterations 4 --layers 2 --checkpoint p --resume "
                      "--plan measure --json");
  const json_t *config = json_object_get(document, "config");
  assert_string_equal(get_text(config, "chosen"), "checkpoint");
  assert_int_equal(get_integer(config, "chunks"), 5);
  json_decref(document);
}

/* A resumed network of operators computes its gradients by the scan that auto chose when it began; its plan is made again, and
 * no file keeps it. */
static void test_resume_network(void **state) {
  (void)state;
  const char *train = "train lenet5 --data cifar10:set --samples 16 --batch 8 --algorithm auto --json --checkpoint q";
  assert_runs("data cifar10 --synthetic --samples 40 --out set");
  json_t *document = run_json("%s --iterations 1", train);
  const json_t *config = json_object_get(document, "config");
  char algorithm[16];
  assert_string_equal(get_text(config, "chosen"), "estimate");
  snprintf(algorithm, sizeof algorithm, "%s", get_text(config, "algorithm"));
  json_decref(document);
  document = run_json("%s --iterations 2 --resume", train);
  config = json_object_get(document, "config");
  assert_string_equal(get_text(config, "chosen"), "checkpoint");
  assert_string_equal(get_text(config, "algorithm"), algorithm);
  assert_true(get_real(json_object_get(document, "timing"), "plan_s") > 0);
  json_decref(document);
  assert_int_equal(access("q/plan.safetensors", F_OK), -1);
  assert_fails(2, "--cache-plan", SMALL " --checkpoint q --cache-plan");
}

/* Networks of operators: BP by estimate, and among what is measured; what was measured is kept. */
static void test_networks(void **state) {
  (void)state;
  static const char *const train = "train lenet5 --data cifar10:set --samples 16 --batch 8 --iterations 1 --threads 1 --json";
  static const struct {
    const char *options, *chosen;
  } cases[] = {{"", "estimate"}, {"--plan measure", "measurement"}, {"--plan measure", "cache"}};
  for (int i = 0; i < 3; ++i) {
    json_t *document = run_json("%s %s", train, cases[i].options);
    const json_t *config = json_object_get(document, "config");
    assert_string_equal(get_text(config, "chosen"), cases[i].chosen);
    assert_string_equal(get_text(config, "backward"),
                        "bp"); /* 3 times as fast as any scan, so that a busy machine does not change the order */
    json_decref(document);
  }
}

static void test_refusals(void **state) {
  (void)state;
  assert_fails(2, "--plan: measure beside a given algorithm, expected --backward auto, or scan with --algorithm auto",
               SMALL " --plan measure --algorithm linear");
  assert_fails(2, "--plan: measure beside a given --backward bp", SMALL " --plan measure --backward bp");
  assert_fails(2, "--plan: 'guess', expected estimate or measure", SMALL " --plan guess");
  /* 15 products of 5 x 5 floats for 16 samples */
  assert_fails(2, "24000 of them for products held, expected at most 29616", SMALL " --algorithm blelloch --memory-limit 30000");
  assert_fails(2, "rnn: linear needs at least ", SMALL " --backward scan --memory-limit 20K");
  assert_fails(2, "rnn: BP needs at least ", SMALL " --backward bp --memory-limit 20K");
  run_result result = run(SMALL " --algorithm blelloch --memory-limit 1M");
  assert_int_equal(result.code, 0);
  release(&result);
}

/* The limit also bounds what a measurement tries. */
static void test_limited_measurement(void **state) {
  (void)state;
  assert_chosen("--plan measure --memory-limit 64K", "measurement");
  assert_fails(2, "rnn: BP needs at least ", SMALL " --plan measure --memory-limit 20K");
  assert_fails(2, "rnn: linear needs at least ", SMALL " --plan measure --backward scan --memory-limit 20K");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_choosers, start),       cmocka_unit_test_setup(test_cache, start),
      cmocka_unit_test_setup(test_no_cache, start),       cmocka_unit_test_setup(test_resume, start),
      cmocka_unit_test_setup(test_resume_network, start), cmocka_unit_test_setup(test_networks, start),
      cmocka_unit_test_setup(test_refusals, start),       cmocka_unit_test_setup(test_limited_measurement, start)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}

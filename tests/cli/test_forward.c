/* --forward, --forward-chunks, --warm-up and --tolerance of train, grad, eval and plan: what they compute, say and refuse. */
#include <math.h>

#include "comm/comm.h"
#include "tests/cli/batch_files.h"
#include "tests/train/forge.h"

#define GRAD "grad %s --weights W.safetensors --input X.npy --labels Y.npy --out "
/* Chunks of two steps without a warm-up, and a tolerance that only equal bits meet: every pass ends in the tail. */
#define HOPELESS "--seq-len 24 --samples 48 --hidden 4 --forward-chunks 12 --warm-up 0 --tolerance 1e-30"

static json_t *at(const json_t *object, const char *key) {
  json_t *found = json_object_get(object, key);
  assert_non_null(found);
  return found;
}

static void assert_prints(const run_result *result, const char *words) {
  if (strstr(result->out, words) == NULL) {
    fail_msg("expected '%s' in:\n%s", words, result->out);
  }
}

static void test_plan(void **state) {
  (void)state;
  json_t *plan = run_json("plan rnn --forward speculative --batch 1 --json"), *forward = at(plan, "forward");
  assert_string_equal(json_string_value(at(forward, "kind")), "speculative");
  assert_int_equal(get_integer(forward, "chunks"), 13);
  assert_int_equal(get_integer(forward, "warm_up"), 40);
  assert_int_equal(get_integer(forward, "rounds"), 8);
  json_decref(plan);
  plan = run_json("plan rnn --json");
  assert_null(json_object_get(plan, "forward")); /* nothing is said about the default */
  json_decref(plan);
  run_result result = run("plan gru --forward-chunks 10 --warm-up 20 --tolerance 0.001");
  assert_int_equal(result.code, 0);
  assert_prints(&result, "Forward: speculative, 10 chunks, warm-up 20, 8 rounds, tolerance 0.001, work up to 1.48\n");
  assert_prints(&result, "10 of up to 100 steps\n");
  assert_prints(&result, "121 steps where nothing is mended, of 1000\n");
  assert_prints(&result, "residual           at most 0.001\n");
  release(&result);
  plan = run_json("plan lstm --batch 1 --forward speculative --json");
  assert_int_equal(get_integer(at(plan, "forward"), "chunks"), 13);
  json_decref(plan);
  result = run("plan rnn --forward auto");
  assert_prints(&result, "Forward: sequential\n");
  release(&result);
}

static void test_grad(void **state) {
  (void)state;
  assert_runs(GRAD "S.safetensors", "rnn");
  assert_runs(GRAD "P.safetensors --forward speculative --forward-chunks 3 --tolerance 0", "rnn");
  assert_equal_files("S.safetensors", "P.safetensors");
  json_t *document = run_json(GRAD "P.safetensors --forward-chunks 3 --json", "rnn");
  assert_int_equal(get_integer(at(document, "forward"), "passes"), 1);
  assert_int_equal(get_integer(at(document, "forward"), "possible"), T);
  json_decref(document);
  run_result result = run(GRAD "P.safetensors --forward-chunks 3", "rnn");
  assert_prints(&result, "forward pass in parallel: 7 dependent steps of 7 a pass, ");
  release(&result);
}

static void test_eval(void **state) {
  (void)state;
  const char *eval = "eval rnn --weights W.safetensors --seq-len 1000 --samples 6 --batch 2";
  json_t *sequential = run_json("%s --json", eval);
  assert_null(json_object_get(sequential, "forward"));
  json_t *document = run_json("%s --forward speculative --json", eval), *forward = at(document, "forward");
  assert_int_equal(get_integer(forward, "passes"), 3);
  assert_int_equal(get_integer(forward, "possible"), 3000);
  assert_true(get_integer(forward, "path") < 1500 && get_real(forward, "gap") <= 2.4e-7);
  const double difference = get_real(document, "loss") - get_real(sequential, "loss");
  assert_true(difference < 1e-5 && difference > -1e-5);
  json_decref(document);
  json_decref(sequential);
  run_result result = run("%s --forward speculative", eval);
  assert_prints(&result, "forward   in parallel: ");
  release(&result);
}

static void test_train(void **state) {
  (void)state;
  const char *train = "train gru --seq-len 300 --samples 8 --batch 2 --hidden 8 --iterations 3 --forward speculative";
  run_result result = run("%s", train);
  assert_prints(&result, "forward    speculative, 4 chunks, warm-up 40, 8 rounds, tolerance 2.4e-07, work up to 1.75\n");
  assert_prints(&result, "forward passes in parallel: 1");
  release(&result);
  json_t *document = run_json("%s --log F.jsonl --json", train);
  assert_int_equal(get_integer(at(at(document, "config"), "forward"), "chunks"), 4);
  assert_int_equal(get_integer(at(document, "forward"), "passes"), 3);
  assert_int_equal(json_array_size(at(document, "rows")), 3);
  const json_t *row = json_array_get(at(document, "rows"), 1);
  assert_int_equal(get_integer(at(row, "forward"), "passes"), 1);
  assert_true(json_is_true(at(at(row, "forward"), "speculated")));
  json_decref(document);
  document = run_json("train gru --seq-len 30 --samples 8 --batch 2 --iterations 1 --json");
  assert_null(json_object_get(document, "forward"));
  assert_null(json_object_get(at(document, "config"), "forward"));
  json_decref(document);
}

/* The losses of 300 steps at T = 1000, as the document's rows have them. speculates: all passes do. */
static void train_losses(const char *more, bool speculates, double losses[300]) {
  json_t *document = run_json("train %s --batch 2 --samples 64 --hidden 12 --lr 0.0001 --iterations 300 --json", more);
  for (size_t i = 0; i < 300; ++i) {
    const json_t *row = json_array_get(at(document, "rows"), i);
    losses[i] = get_real(row, "loss");
    assert_true(!speculates || get_integer(at(row, "forward"), "path") < 500);
  }
  json_decref(document);
}

static void test_losses(void **state) {
  (void)state;
  static const struct {
    const char *network;
    double most;
  } cases[] = {{"rnn --dtype f32", 1e-4}, {"rnn --dtype f64", 1e-9}, {"gru --dtype f32", 1e-4}, {"gru --dtype f64", 1e-9}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    double sequential[300], speculative[300];
    char more[80];
    train_losses(cases[i].network, false, sequential);
    snprintf(more, sizeof more, "%s --forward speculative", cases[i].network);
    train_losses(more, true, speculative);
    for (int k = 0; k < 300; ++k) {
      const double difference = speculative[k] - sequential[k];
      assert_true(difference < cases[i].most && difference > -cases[i].most);
    }
  }
}

/* The objects "forward" of a log, one after the other. */
static json_t *logged(const char *path) {
  json_t *list = json_array();
  char text[8192];
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (fgets(text, sizeof text, file) != NULL) {
    json_t *line = json_loads(text, 0, NULL);
    assert_non_null(line);
    if (json_object_get(line, "step") != NULL) {
      assert_int_equal(json_array_append(list, at(line, "forward")), 0);
    }
    json_decref(line);
  }
  fclose(file);
  return list;
}

/* Passes that fail lead to a pause, and a resumed run is where the first one was: in the pause, in the epoch's sums. */
static void test_resume(void **state) {
  (void)state;
  static const char *const lengths[][3] = {{"rnn", "--iterations 8", "--iterations 4"},
                                           {"rnn", "--epochs 4", "--epochs 2"},
                                           {"lstm", "--iterations 8", "--iterations 4"}};
  for (int i = 0; i < 3; ++i) {
    assert_int_equal(system("rm -rf d"), 0);
    assert_runs("train %s " HOPELESS " %s --log F.jsonl --save-weights A.safetensors", lengths[i][0], lengths[i][1]);
    json_t *whole = logged("F.jsonl");
    assert_runs("train %s " HOPELESS " %s --log F.jsonl --checkpoint d", lengths[i][0], lengths[i][2]);
    assert_runs("train %s " HOPELESS " %s --log F.jsonl --checkpoint d --resume --threads 1 --save-weights R.safetensors",
                lengths[i][0], lengths[i][1]);
    json_t *resumed = logged("F.jsonl");
    assert_true(json_equal(whole, resumed));
    assert_equal_files("A.safetensors", "R.safetensors");
    const json_t *first = json_array_get(whole, 0), *last = json_array_get(whole, json_array_size(whole) - 1);
    assert_true(get_integer(first, "tails") > 0);
    assert_int_equal(get_integer(last, "tails"), 0); /* the pause */
    json_decref(whole);
    json_decref(resumed);
  }
}

/* A resumed run takes the forward pass of its checkpoint where it is left open, whatever auto or a measurement would choose now. */
static void test_resume_open(void **state) {
  (void)state;
  assert_int_equal(system("rm -rf d"), 0);
  assert_runs("train rnn " HOPELESS " --iterations 6 --log F.jsonl");
  json_t *whole = logged("F.jsonl");
  assert_runs("train rnn " HOPELESS " --iterations 3 --log F.jsonl --checkpoint d");
  assert_runs("train rnn " HOPELESS " --iterations 6 --log F.jsonl --checkpoint d --resume --forward auto --plan measure");
  json_t *resumed = logged("F.jsonl");
  assert_true(json_equal(whole, resumed));
  json_decref(whole);
  json_decref(resumed);
  assert_int_equal(system("rm -rf d"), 0);
  assert_runs("train rnn --seq-len 24 --samples 48 --hidden 4 --iterations 3 --checkpoint d");
  json_t *document = run_json("train rnn --seq-len 24 --samples 48 --hidden 4 --iterations 4 --checkpoint d --resume --forward "
                              "auto --plan measure --json");
  assert_null(json_object_get(document, "forward"));
  json_decref(document);
}

/* A checkpoint of a version whose plans had no bound of work: a resumed run that asks for the speculative pass is told so, and one
 * that leaves it open goes on without a bound. */
static void test_resume_unbound(void **state) {
  (void)state;
  const char *train = "train rnn --seq-len 24 --samples 48 --hidden 4 --forward-chunks 12 --warm-up 0 --checkpoint d";
  assert_int_equal(system("rm -rf d"), 0);
  assert_runs("%s --iterations 2", train);
  forge_text("d", "forward", "speculative, 12 chunks, warm-up 0, 8 rounds, tolerance 2.4e-07");
  run_result result = run("%s --iterations 3 --resume", train);
  assert_int_equal(result.code, 2);
  assert_one_error(&result, "forward passes speculative, 12 chunks, warm-up 0, 8 rounds, tolerance 2.4e-07, in this run "
                            "speculative, 12 chunks, warm-up 0, 8 rounds, tolerance 2.4e-07, work up to 1.25, expected the same "
                            "(--forward auto goes on as the checkpoint does)");
  release(&result);
  json_t *document = run_json("%s --iterations 3 --resume --forward auto --json", train), *forward;
  forward = at(at(document, "config"), "forward");
  assert_string_equal(get_text(forward, "kind"), "speculative");
  assert_null(json_object_get(forward, "most_work"));
  json_decref(document);
}

/* Counts that no run has made, with checksums that are right. */
static void test_forged_counts(void **state) {
  (void)state;
  static const struct {
    int64_t index;
    double number;
    const char *says;
  } forged[] = {{0, -1, "train.forward: number 0 is -1, expected a whole number of 0 or more"},
                {6, (double)NAN, "train.forward: number 6 is nan, expected a finite number of 0 or more"}};
  const char *train = "train rnn --seq-len 24 --samples 48 --hidden 4 --forward-chunks 12 --warm-up 0 --checkpoint d";
  for (size_t i = 0; i < sizeof forged / sizeof forged[0]; ++i) {
    assert_int_equal(system("rm -rf d"), 0);
    assert_runs("%s --iterations 2", train);
    forge("d", "train.forward", forged[i].index, &forged[i].number);
    run_result result = run("%s --iterations 3 --resume", train);
    assert_int_equal(result.code, 2);
    assert_one_error(&result, forged[i].says);
    release(&result);
  }
}

/* Ranks along time: their passes are those of one device, and do the same on any number of ranks. */
static void test_ranks(void **state) {
  (void)state;
  static const char *const commands[] = {
      "eval rnn --weights W.safetensors --seq-len 1000 --samples 6 --batch 2 --threads 1 --forward speculative --json",
      "grad rnn --weights W.safetensors --input X.npy --labels Y.npy --out P.safetensors --threads 1 --forward-chunks 3 --json",
      "train gru --seq-len 300 --samples 8 --batch 4 --hidden 8 --iterations 1 --threads 1 --warm-up 9 --json",
      "train lstm --seq-len 300 --samples 8 --batch 4 --hidden 8 --iterations 1 --threads 1 --warm-up 9 --json"};
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; ++i) {
    json_t *alone = run_json("%s", commands[i]);
    for (int ranks = 1; ranks <= 3; ++ranks) {
      json_t *cut = run_json("%s --ranks %d --split time", commands[i], ranks);
      assert_true(json_equal(at(cut, "forward"), at(alone, "forward")));
      json_decref(cut);
    }
    json_decref(alone);
  }
}

/* The same for a run on ranks along time that is resumed in a pause. */
static void test_resume_ranks(void **state) {
  (void)state;
  const char *train = "train lstm " HOPELESS " --ranks 3 --split time --micro-batches 2 --threads 1";
  assert_int_equal(system("rm -rf d"), 0);
  assert_runs("%s --iterations 8 --log F.jsonl --save-weights A.safetensors", train);
  json_t *whole = logged("F.jsonl");
  assert_runs("%s --iterations 4 --log F.jsonl --checkpoint d", train);
  assert_runs("%s --iterations 8 --log F.jsonl --checkpoint d --resume --save-weights R.safetensors", train);
  json_t *resumed = logged("F.jsonl");
  assert_true(json_equal(whole, resumed));
  assert_equal_files("A.safetensors", "R.safetensors");
  assert_true(get_integer(json_array_get(whole, 0), "tails") > 0);
  assert_true(json_is_false(at(json_array_get(whole, json_array_size(whole) - 1), "speculated")));
  json_decref(whole);
  json_decref(resumed);
}

/* A rank that dies in a pass, or between passes, ends the run with one line; the resumed run ends with the bits of one that was
 * never interrupted. */
static void test_dead_rank(void **state) {
  (void)state;
  const char *train = "train rnn " HOPELESS " --ranks 3 --split time --micro-batches 2 --threads 1 --iterations 6";
  assert_runs("%s --save-weights A.safetensors", train);
  int64_t resumed = 0;
  for (int64_t operation = 1; operation < 1000; operation = 3 * operation + 4) {
    const bppsa_comm_fault fault = {.die_at = operation};
    assert_int_equal(system("rm -rf d"), 0);
    bppsa_comm_set_run_fault(1, &fault);
    run_result died = run("%s --checkpoint d --checkpoint-every 1", train);
    bppsa_comm_set_run_fault(1, NULL);
    if (died.code != 0) {
      assert_int_equal(died.code, 1);
      assert_one_error(&died, "rank 1 died at operation");
      resumed += file_exists("d/checkpoint.safetensors");
      assert_runs("%s --checkpoint d --save-weights R.safetensors %s", train,
                  file_exists("d/checkpoint.safetensors") ? "--resume" : "");
      assert_equal_files("A.safetensors", "R.safetensors");
    }
    release(&died);
  }
  assert_true(resumed >= 2);
}

/* auto by the cost model, whose plan says up to which work it pays, and by measurement. */
static void test_auto(void **state) {
  (void)state;
  json_t *plan = run_json("plan rnn --batch 1 --forward auto --json");
  assert_true(get_real(at(plan, "forward"), "most_work") == 1.72);
  json_decref(plan);
  plan = run_json("plan rnn --batch 1 --forward speculative --json");
  assert_true(get_real(at(plan, "forward"), "most_work") == 1.85);
  json_decref(plan);
  json_t *document =
      run_json("train rnn --seq-len 1000 --batch 1 --samples 4 --hidden 8 --iterations 1 --backward bp --forward auto "
               "--plan measure --json");
  const json_t *forward = json_object_get(at(document, "config"), "forward"); /* none: the sequential pass was faster */
  assert_true(forward == NULL || get_real(forward, "most_work") > 0);
  assert_string_equal(get_text(at(document, "config"), "chosen"), "option");
  json_decref(document);
}

static void assert_refused(const char *words, const char *line) {
  run_result result = run("%s", line);
  assert_int_equal(result.code, 2);
  if (strstr(result.err, words) == NULL) {
    fail_msg("expected '%s' in: %s", words, result.err);
  }
  release(&result);
}

static void test_refused(void **state) {
  (void)state;
  assert_refused("--tolerance: given beside --forward sequential, expected --forward speculative or auto",
                 "plan rnn --forward sequential --tolerance 0");
  assert_refused("--warm-up: '-1', expected a whole number, 0 or more", "plan rnn --warm-up -1");
  assert_refused("--forward-chunks: '0', expected", "plan rnn --forward-chunks 0");
  assert_refused("--tolerance: 'nan', expected a number, 0 or more", "plan rnn --tolerance nan");
  assert_refused("--forward: 'speculativ', expected sequential, speculative or auto; did you mean speculative?",
                 "train rnn --forward speculativ");
  assert_refused("unknown option", "train lenet5 --data cifar10:x --forward auto");
  assert_int_equal(system("rm -rf d"), 0);
  assert_runs("train rnn " HOPELESS " --iterations 2 --checkpoint d");
  assert_refused(
      "forward passes speculative, 12 chunks, warm-up 0, 8 rounds, tolerance 1e-30, work up to 1.25, in this run sequential, "
      "expected the same",
      "train rnn --seq-len 24 --samples 48 --hidden 4 --iterations 3 --checkpoint d --resume");
  assert_refused("forward", "train rnn --seq-len 24 --samples 48 --hidden 4 --iterations 3 --forward-chunks 3 --checkpoint d "
                            "--resume");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plan),        cmocka_unit_test(test_grad),           cmocka_unit_test(test_eval),
      cmocka_unit_test(test_train),       cmocka_unit_test(test_losses),         cmocka_unit_test(test_resume),
      cmocka_unit_test(test_resume_open), cmocka_unit_test(test_resume_unbound), cmocka_unit_test(test_forged_counts),
      cmocka_unit_test(test_ranks),       cmocka_unit_test(test_resume_ranks),   cmocka_unit_test(test_dead_rank),
      cmocka_unit_test(test_auto),        cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, enter_with_batch, NULL);
}

/* --cache-plan: the sparse scan's plan beside the checkpoints. */
#include <errno.h>

#include "tests/cli/cnn_files.h"
#include "tests/support/io_fault.h"

#define TRAIN "train lenet5 --data cifar10:set --batch 8 --iterations 2 --weights w.safetensors --mask m.safetensors --threads 2 "
#define PLAN "run/plan.safetensors"

/* A run that starts anew finds no checkpoints, but its plan. */
static void remove_checkpoints(void) {
  (void)remove("run/checkpoint.safetensors");
  (void)remove("run/checkpoint.previous.safetensors");
}

/* The document's timing.plan_kept, and whether the weights are those of a run without a cache. */
static bool was_kept(const char *options) {
  remove_checkpoints();
  json_t *document = run_json(TRAIN "--checkpoint run --cache-plan --json --save-weights t.safetensors %s", options);
  const bool kept = json_is_true(json_object_get(json_object_get(document, "timing"), "plan_kept"));
  assert_true(get_real(json_object_get(document, "timing"), "plan_s") > 0);
  json_decref(document);
  assert_true(file_difference("t.safetensors", "expected.safetensors") == 0);
  return kept;
}

static void make_files(const char *options) {
  put_weights("w.safetensors", "lenet5", BPPSA_F32, 2);
  assert_runs("prune --weights w.safetensors --fraction 0.9 --out m.safetensors");
  assert_runs(TRAIN "--save-weights expected.safetensors %s", options);
  (void)remove(PLAN);
}

static void test_kept(void **state) {
  (void)state;
  make_files("--up-levels 2");
  assert_false(was_kept("--up-levels 2"));
  assert_true(was_kept("--up-levels 2"));
  assert_true(was_kept("--up-levels 2 --threads 1"));
  bppsa_safetensors *file = NULL;
  assert_int_equal(bppsa_safetensors_load(PLAN, &file), BPPSA_OK);
  assert_true(bppsa_safetensors_count(file) >= 3); /* a product of kind slots at least */
  assert_string_equal(bppsa_safetensors_metadata(file, "gradients"), "blelloch 2");
  bppsa_safetensors_destroy(file);
  assert_runs(TRAIN "--save-weights expected.safetensors --up-levels 1");
  assert_false(was_kept("--up-levels 1")); /* another algorithm: it takes its place */
  assert_true(was_kept("--up-levels 1"));
  assert_runs("prune --weights w.safetensors --fraction 0.8 --out m.safetensors");
  assert_runs(TRAIN "--save-weights expected.safetensors --up-levels 1");
  assert_false(was_kept("--up-levels 1")); /* another mask */
}

/* What auto chose is not chosen again; a resumed run finds its plan too. */
static void test_auto(void **state) {
  (void)state;
  make_files("--algorithm auto");
  assert_false(was_kept("--algorithm auto"));
  assert_true(was_kept("--algorithm auto"));
  remove_checkpoints();
  json_t *document = run_json(TRAIN "--checkpoint run --cache-plan --json");
  assert_string_equal(get_text(json_object_get(document, "config"), "chosen"), "checkpoint");
  json_decref(document);
  document = run_json("train lenet5 --data cifar10:set --batch 8 --iterations 4 --weights w.safetensors --mask m.safetensors "
                      "--threads 2 --checkpoint run --cache-plan --resume --json");
  assert_true(json_is_true(json_object_get(json_object_get(document, "timing"), "plan_kept")));
  json_decref(document);
}

/* Every 97th byte of the file's data is changed in turn: what is no plan is made anew, with a note, and the weights never differ. */
static void test_damaged(void **state) {
  (void)state;
  make_files("--up-levels 2");
  assert_false(was_kept("--up-levels 2"));
  struct stat info;
  assert_int_equal(stat(PLAN, &info), 0);
  int noted = 0;
  for (int64_t i = 0; i < 12; ++i) {
    FILE *file = fopen(PLAN, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(info.st_size - 1 - i * (info.st_size - 4096) / 12), SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(byte ^ 0x40, file), byte ^ 0x40);
    assert_int_equal(fclose(file), 0);
    remove_checkpoints();
    run_result result = run(TRAIN "--up-levels 2 --checkpoint run --cache-plan --save-weights t.safetensors");
    assert_int_equal(result.code, 0);
    noted += strncmp(result.err, "bppsa: note: the kept plan cannot be used and is made anew: ", 60) == 0;
    release(&result);
    assert_true(file_difference("t.safetensors", "expected.safetensors") == 0);
  }
  assert_true(noted >= 10); /* every entry is checked; alignment may be hit */
  put_text(PLAN, "no plan at all");
  remove_checkpoints();
  run_result result = run(TRAIN "--up-levels 2 --checkpoint run --cache-plan");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.err, "made anew: run/plan.safetensors: "));
  release(&result);
  assert_true(was_kept("--up-levels 2"));
}

static void test_requests(void **state) {
  (void)state;
  make_files("");
  assert_fails(2, "--cache-plan: given without --checkpoint", TRAIN "--cache-plan");
  assert_fails(2, "--cache-plan: given beside --backward bp", TRAIN "--cache-plan --checkpoint run --backward bp");
  assert_fails(2, "--cache-plan", "train rnn --cache-plan --checkpoint run");
  assert_fails(2, "--checkpoint", TRAIN "--cache-plan --checkpoint run --save-weights " PLAN);
}

/* Every call to the operating system fails in turn, from the plan's first to the last of the run: no plan is half-written. */
static void test_io(void **state) {
  (void)state;
  make_files("--up-levels 2");
  io_fault fault;
  int failed = 0;
  int64_t call = 1;
  for (bool reached = true; reached; ++call) {
    (void)remove(PLAN);
    remove_checkpoints();
    io_fault_set(&fault, call, false, EIO);
    bppsa_io_set_hook(io_fault_hook, &fault);
    run_result result = run(TRAIN "--up-levels 2 --checkpoint run --cache-plan");
    bppsa_io_set_hook(NULL, NULL);
    reached = fault.failed > 0;
    failed += result.code != 0;
    assert_true(result.code == 0 || result.code == 1 || result.code == 2);
    release(&result);
    bppsa_safetensors *file = NULL;
    if (access(PLAN, F_OK) == 0) {
      assert_int_equal(bppsa_safetensors_load(PLAN, &file), BPPSA_OK);
      bppsa_safetensors_destroy(file);
    }
  }
  assert_true(failed > 10);
}

static int enter(void **state) {
  const int status = enter_directory(state);
  assert_runs("data cifar10 --synthetic --samples 40 --out set");
  return status;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept), cmocka_unit_test(test_auto), cmocka_unit_test(test_damaged),
                                     cmocka_unit_test(test_requests), cmocka_unit_test(test_io)};
  return cmocka_run_group_tests(tests, enter, leave_directory);
}

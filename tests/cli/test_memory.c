/* Out of memory at every single allocation of a command: one clear line, exit 1, nothing leaked, no file half-written. */
#include "tests/cli/batch_files.h"

enum { CALL_LIMIT = 100000 };

typedef void (*inject)(int64_t call);

/* Fails allocation 1, 2, 3, .. of the line until it succeeds. `product` is the file it writes, or NULL. */
static void walk(inject fail_call, const char *line, const char *product, int least) {
  int64_t call = 1;
  const int files = count_files();
  for (bool done = false; !done; ++call) {
    assert_true(call < CALL_LIMIT);
    fail_call(call);
    run_result result = run("%s", line); /* checks that nothing is left alive */
    const bool reached = bppsa_alloc_calls() >= call;
    bppsa_alloc_fail_at(0);
    done = result.code == 0 && !reached;
    if (done) {
      assert_string_equal(result.err, "");
    } else {
      assert_int_equal(result.code, 1); /* no failure may go unnoticed */
      assert_one_error(&result, "out of memory");
      assert_int_equal(count_files(), files);
    }
    release(&result);
  }
  assert_true(call > least); /* the walk was a real one */
  if (product != NULL) {
    assert_true(file_exists(product));
    assert_int_equal(remove(product), 0);
  }
}

static void walk_both(const char *line, const char *product, int least) {
  walk(bppsa_alloc_fail_at, line, product, least);
  walk(bppsa_alloc_fail_once, line, product, least);
}

static void test_grad(void **state) {
  (void)state;
  const char *grad = "grad rnn --threads 2 --weights W2.safetensors --input X.npy --out G.safetensors";
  char line[LINE_BYTES];
  snprintf(line, sizeof line, "%s --labels Y.npy --algorithm blelloch", grad);
  walk_both(line, "G.safetensors", 20);
  snprintf(line, sizeof line, "%s --labels YT.npy --loss all --chunks 3 --json", grad);
  walk_both(line, "G.safetensors", 50);
  snprintf(line, sizeof line, "%s --labels Y.npy --backward bp", grad);
  walk_both(line, "G.safetensors", 20);
  walk_both("grad rnn --threads 2 --weights W.safetensors --input X.npy --labels Y.npy --h0 H0.npy --out G.safetensors",
            "G.safetensors", 20);
}

static void test_train(void **state) {
  (void)state;
  const char *train = "train rnn --threads 2 --seq-len 6 --samples 32 --hidden 4 --validation 0.5 --iterations 2";
  char line[LINE_BYTES];
  snprintf(line, sizeof line, "%s --up-levels 1 --save-weights F.safetensors", train);
  walk_both(line, "F.safetensors", 20);
  snprintf(line, sizeof line, "%s --chunks 2 --layers 2 --init orthogonal --save-weights F.safetensors --json", train);
  walk_both(line, "F.safetensors", 50);
  snprintf(line, sizeof line, "%s --backward bp --optimizer sgd --momentum 0.5", train);
  walk_both(line, NULL, 20);
  walk_both("train rnn --threads 2 --data npy:NX.npy,NY.npy --epochs 1 --batch 3 --weights W.safetensors --json", NULL, 50);
}

static void test_others(void **state) {
  (void)state;
  walk_both("plan rnn --seq-len 9 --algorithm blelloch --json", NULL, 50);
  walk_both("plan rnn --seq-len 9 --layers 2", NULL, 2);
  walk_both("data bitstream --seq-len 5 --samples 7 --threads 2 --out-x MX.npy --out-y MY.npy", "MX.npy", 8);
  walk_both("eval rnn --weights W.safetensors --seq-len 6 --samples 8 --threads 2 --json", NULL, 20);
}

static int enter(void **state) {
  const int status = enter_with_batch(state);
  write_reals("NX.npy", BPPSA_F32, 3, (int64_t[]){6, 5, 1});
  write_labels("NY.npy", 1, (int64_t[]){6}, -1, 0);
  return status;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_grad), cmocka_unit_test(test_train), cmocka_unit_test(test_others)};
  return cmocka_run_group_tests(tests, enter, leave_directory);
}

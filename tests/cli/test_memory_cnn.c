/* Out of memory at every single allocation of the commands of convolutional networks. memory_walk.h asserts it. */
#include "tests/cli/cnn_files.h"
#include "tests/cli/memory_walk.h"
#include "tests/support/json_memory.h"

static void test_grad(void **state) {
  (void)state;
  const char *grad = "grad net.json --threads 2 --weights w.safetensors --input x.npy --labels y.npy --out g.safetensors";
  static const char *const methods[] = {"--backward bp --json", "--algorithm auto", "--algorithm linear", "--up-levels 2 --json"};
  char line[LINE_BYTES];
  for (size_t i = 0; i < sizeof methods / sizeof methods[0]; ++i) {
    snprintf(line, sizeof line, "%s %s", grad, methods[i]);
    walk_both(line, "g.safetensors", 50);
  }
}

static void test_train(void **state) {
  (void)state;
  const char *train = "train net.json --threads 2 --data npy:x.npy,y.npy --batch 2 --iterations 2 --weights w.safetensors";
  char line[LINE_BYTES];
  snprintf(line, sizeof line, "%s --mask m.safetensors --up-levels 2 --save-weights f.safetensors --json", train);
  walk_both(line, "f.safetensors", 100);
  snprintf(line, sizeof line, "%s --backward bp", train);
  walk_both(line, NULL, 50);
  snprintf(line, sizeof line, "%s --ranks 1 --split pipedream --stages 3 --cut 1,4 --micro-batches 2 --momentum 0.9 --json",
           train);
  walk(bppsa_alloc_fail_once, line, NULL, 200);
  walk_both("eval net.json --threads 2 --weights w.safetensors --data npy:x.npy,y.npy --json", NULL, 30);
}

static void test_analysis(void **state) {
  (void)state;
  walk_both("flops net.json --prune 0.5 --json", NULL, 100);
  walk_both("flops net.json --pattern value --input x.npy --labels y.npy --weights w.safetensors", NULL, 100);
  walk_both("plan net.json --prune 0.5 --up-levels 2 --svg p.svg --json", "p.svg", 100);
  walk_both("plan net.json", NULL, 20);
  assert_runs("prune --weights w.safetensors --fraction 0.5 --out k.safetensors");
  walk_both("flops net.json --mask k.safetensors --up-levels 2 --svg p.svg --json", "p.svg", 100);
  walk_both("flops net.json --in-shape 2,7,5 --up-levels none --svg p.svg --json", "p.svg", 100);
  walk_both("flops net.json --mask k.safetensors --up-levels none --csv l.csv", "l.csv", 50);
  walk_both("prune --weights w.safetensors --fraction 0.5 --method class-distribution --out n.safetensors --json",
            "n.safetensors", 10);
}

static void test_data(void **state) {
  (void)state;
  int64_t call = 1;
  for (bool done = false; !done; ++call) { /* a failed run may leave files, so each run has a directory of its own */
    bppsa_alloc_fail_at(call);
    run_result result = run("data cifar10 --synthetic --samples 10 --threads 2 --out set%d", (int)call);
    done = bppsa_alloc_calls() < call;
    bppsa_alloc_fail_at(0);
    assert_int_equal(result.code, done ? 0 : 1);
    if (!done) {
      assert_one_error(&result, "out of memory");
    }
    release(&result);
  }
  assert_true(call > 5);
  char line[LINE_BYTES];
  snprintf(line, sizeof line, "train lenet5 --threads 2 --data cifar10:set%d --batch 5 --iterations 1 --backward bp",
           (int)call - 1);
  walk(bppsa_alloc_fail_once, line, NULL, 50);
}

static int enter(void **state) {
  const int status = enter_directory(state);
  put_text("net.json", SMALL_NETWORK);
  put_weights("w.safetensors", "net.json", BPPSA_F32, 2);
  put_images("x.npy", "y.npy", (int64_t[]){4, 2, 6, 5}, 3);
  assert_runs("prune --weights w.safetensors --fraction 0.5 --out m.safetensors");
  return status;
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_grad), cmocka_unit_test(test_train), cmocka_unit_test(test_analysis),
                                     cmocka_unit_test(test_data)};
  return cmocka_run_group_tests(tests, enter, leave_directory);
}

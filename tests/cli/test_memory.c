/* Out of memory at every single allocation of a command: one clear line, exit 1, nothing leaked, no file half-written.
 * memory_walk.h asserts it. */
#include "tests/cli/batch_files.h"
#include "tests/cli/memory_walk.h"
#include "tests/support/json_memory.h"

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
  walk_both("train rnn --threads 2 --data npy:NX.npy,NY.npy --epochs 1 --batch 3 --order NY.npy --save-weights F.safetensors",
            "F.safetensors", 20);
  walk_both("train rnn --threads 2 --seq-len 6 --samples 32 --hidden 4 --iterations 0 --save-weights F.safetensors",
            "F.safetensors", 20);
}

static void test_others(void **state) {
  (void)state;
  walk_both("plan rnn --seq-len 9 --algorithm blelloch --json", NULL, 50);
  walk_both("plan rnn --seq-len 9 --layers 2", NULL, 2);
  walk_both("data bitstream --seq-len 5 --samples 7 --threads 2 --out-x MX.npy --out-y MY.npy", "MX.npy", 8);
  walk_both("eval rnn --weights W.safetensors --seq-len 6 --samples 8 --threads 2 --json", NULL, 20);
  walk_both("eval rnn --weights W2.safetensors --prefix rnn --dtype f64 --seq-len 6 --samples 8 --batch 3 --threads 2 --out "
            "P.npz --states",
            "P.npz", 40);
}

static int enter(void **state) {
  const int status = enter_with_batch(state);
  write_reals("NX.npy", BPPSA_F32, 3, (int64_t[]){6, 5, 1});
  write_labels("NY.npy", 1, (int64_t[]){6}, -1, 0);
  return status;
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_grad), cmocka_unit_test(test_train), cmocka_unit_test(test_others)};
  return cmocka_run_group_tests(tests, enter, leave_directory);
}

/* --memory-limit: a request that exceeds it is refused, exit 2, before anything large is allocated, whatever runs it. */
#include <sys/resource.h>

#include "tests/cli/batch_files.h"

enum { MOST = 64 << 10 /* KiB that a refusal may touch */ };

/* The most memory the process has had so far, in KiB. */
static long peak(void) {
  struct rusage usage;
  assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_maxrss;
}

/* Networks with at least a gigabyte of weights. */
static void test_refused_before(void **state) {
  (void)state;
  static const char *const lines[] = {"train rnn --hidden 12000 --memory-limit 100M",
                                      "train rnn --input 20000000 --seq-len 2 --memory-limit 100M",
                                      "train lstm --hidden 6000 --dtype f64 --memory-limit 100M",
                                      "train rnn --hidden 12000 --ranks 2 --split time --memory-limit 100M",
                                      "train rnn --hidden 12000 --ranks 2 --split time --micro-batches 2 --memory-limit 100M",
                                      "train rnn --hidden 12000 --ranks 2 --split batch --memory-limit 100M",
                                      "train rnn --hidden 12000 --layers 2 --ranks 2 --split 1f1b --memory-limit 100M",
                                      "train rnn --hidden 12000 --layers 2 --ranks 1 --micro-batches 2 --memory-limit 100M"};
  const long before = peak();
  for (size_t i = 0; i < sizeof lines / sizeof *lines; ++i) {
    assert_fails(2, " needs at least ", "%s --iterations 1 --threads 1", lines[i]);
    assert_true(peak() - before < MOST);
  }
  assert_fails(2, "expected at least", "bench rnn --hidden 8000 --memory-limit 100M --quick --threads 1 --json");
  assert_fails(2, "of an epoch, whose order takes 8 bytes each",
               "train rnn --seq-len 2 --samples 1000000000 --memory-limit 1G --iterations 1 --threads 1");
  assert_fails(2, "conv2d: the matrix needs ",
               "jacobian conv2d --in-shape 3,3000,3000 --out-channels 64 --kernel 101 --out J.npz");
  assert_true(peak() - before < MOST);
}

/* Without the option three quarters of the memory are the limit. */
static void test_default(void **state) {
  (void)state;
  const long before = peak();
  assert_fails(2, " needs at least ", "train rnn --hidden 300000 --backward bp --iterations 1 --threads 1");
  assert_fails(2, " needs at least ",
               "train rnn --hidden 300000 --backward bp --ranks 2 --split time --iterations 1 --threads 1");
  assert_true(peak() - before < MOST);
}

/* The bytes after "needs at least" in the refusal of a line. */
static long long needed(const char *line) {
  run_result refused = run("%s --memory-limit 1K", line);
  assert_int_equal(refused.code, 2);
  const char *needs = strstr(refused.err, "needs at least ");
  assert_non_null(needs);
  const long long bytes = strtoll(needs + strlen("needs at least "), NULL, 10);
  release(&refused);
  return bytes;
}

/* Weights, gradients and the optimiser's state are counted: H = 200 has 40000 + 600 weights and a head of 2010, of 4 bytes. */
static void test_optimizer(void **state) {
  (void)state;
  const char *line = "train rnn --hidden 200 --seq-len 2 --batch 2 --samples 4 --iterations 1 --threads 1 --backward bp";
  char with[3][200];
  static const char *const optimizers[] = {"sgd", "sgd --momentum 0.9", "adam"};
  long long bytes[3];
  for (int i = 0; i < 3; ++i) {
    snprintf(with[i], sizeof with[i], "%s --optimizer %s", line, optimizers[i]);
    bytes[i] = needed(with[i]);
  }
  const long long parameters = bytes[1] - bytes[0];
  assert_true(bytes[2] - bytes[1] == parameters);
  assert_in_range(parameters, 4 * (40000 + 600 + 2010), 4 * (40000 + 600 + 2010) + 8 * 64); /* at multiples of 64 bytes */
  assert_true(bytes[0] > 2 * parameters);
  for (int i = 0; i < 3; ++i) { /* the order of 4 samples takes 32 bytes */
    assert_runs("%s --memory-limit %lld", with[i], bytes[i] + 32);
    assert_fails(2, "needs at least", "%s --memory-limit %lld", with[i], bytes[i] + 31);
  }
}

/* grad on ranks that share time keeps the limit too. */
static void test_grad(void **state) {
  (void)state;
  const char *line = "grad rnn --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors --ranks 2 --split time";
  assert_fails(2, "needs at least ", "%s --memory-limit 200", line);
  assert_runs("%s --memory-limit 1M", line);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused_before), cmocka_unit_test(test_default),
                                     cmocka_unit_test(test_optimizer), cmocka_unit_test(test_grad)};
  return cmocka_run_group_tests(tests, enter_with_batch, leave_directory);
}

/* Fails every allocation of a line in turn: it must print one clear line, exit with 1, leak nothing, and leave no half-written
 * file. */
#ifndef BPPSA_TESTS_CLI_MEMORY_WALK_H
#define BPPSA_TESTS_CLI_MEMORY_WALK_H

#include "tests/cli/run_cli.h"
#include "tests/support/length.h"

enum { CALL_LIMIT = 100000 };

typedef void (*inject)(int64_t call);

/* Fails allocation 1, 2, 3, .. of the line until the line succeeds. `product` is the file that it writes, or NULL. */
static inline void walk(inject fail_call, const char *line, const char *product, int least) {
  int64_t call = 1;
  const int files = count_files();
  for (bool done = false; !done; ++call) {
    assert_true(call < CALL_LIMIT);
    fail_call(call);
    run_result result = run("%s", line); /* run checks that nothing is left allocated */
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
  assert_true(call > least); /* the line made enough allocations */
  if (product != NULL) {
    assert_true(file_exists(product));
    assert_int_equal(remove(product), 0);
  }
}

static inline void walk_both(const char *line, const char *product, int least) {
  walk(bppsa_alloc_fail_at, line, product, least);
  walk(bppsa_alloc_fail_once, line, product, least);
}

/* Does the same for a benchmark that prints one document. After the first 250 allocations the steps from one to the next grow,
 * because later allocations are much alike. A run that fails must print nothing of the document. `check` (NULL: none) is called
 * after every run with its exit code. Returns how many runs failed. */
static inline int64_t walk_document(const char *line, void (*check)(int code)) {
  int64_t failures = 0;
  int code = 1;
  for (int64_t call = 1; code != 0; call += call < 250 ? 1 : 1 + call / 8) {
    bppsa_alloc_fail_at(call);
    run_result result = run("%s", line); /* run checks that nothing is left allocated */
    bppsa_alloc_fail_at(0);
    code = result.code;
    assert_true(code == 0 || (code == 1 && result.out[0] == '\0' && strchr(result.err, '\n') != NULL));
    failures += code == 1;
    release(&result);
    if (check != NULL) {
      check(code);
    }
  }
  return failures;
}

/* Does the same for a benchmark that writes many rows alike: of its allocations up to `dense` every `often`-th fails with all
 * that follow, of later ones every `seldom`-th, on every push an eighth of these. The line must have fewer than `most`. */
static inline void walk_benchmark(const char *line, int64_t often, int64_t dense, int64_t seldom, int64_t most) {
  const int64_t further = at_full_length() ? 1 : 8;
  int code = 1;
  for (int64_t call = 1; code != 0; call += further * (call < dense ? often : seldom)) {
    bppsa_alloc_fail_at(call);
    run_result result = run("%s", line);
    bppsa_alloc_fail_at(0);
    code = result.code;
    assert_true(code == 0 || code == 1);
    if (code != 0) {
      assert_one_error(&result, "");
    }
    release(&result);
    assert_true(call < most);
  }
}

#endif

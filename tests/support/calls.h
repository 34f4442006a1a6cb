/* Random sequences of calls on one object: whatever was called before, and failed in between, a result has the bits that a fresh
 * object gives for the same inputs.
 *
 *     test_FOLDER_calls [SEED COUNT]
 *
 * runs the sequences SEED .. SEED + COUNT - 1; each depends on its seed alone. If one fails, its seed and its calls are printed,
 * and `test_FOLDER_calls SEED 1` repeats it. At the end a line of JSON counts the calls. */
#ifndef BPPSA_TESTS_SUPPORT_CALLS_H
#define BPPSA_TESTS_SUPPORT_CALLS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/status.h"
#include "core/base/view.h"
#include "core/compute/device.h"
#include "tests/support/dice.h"

typedef struct {
  dice d;
  int64_t left; /* calls that are still to come */
  bool silent;  /* for ranks after the first: calls are neither listed nor counted */
} call_sequence;

typedef struct {
  const char *name;
  int64_t weight; /* how often it is drawn, relative to the other weights */
  void (*make)(call_sequence *s, void *object);
} call_kind;

typedef struct {
  const char *object;
  int64_t often, longer;         /* sequences on every push, and at full length */
  int64_t fewest, most;          /* calls in a sequence */
  void (*run)(call_sequence *s); /* makes an object, draws calls until there are no more, and ends it */
} call_subject;

/* Does the work of a test program's main(). */
int run_sequences(const call_subject *subject, int argc, char **argv);

/* Draws the next call from a list whose last element is empty; NULL: the sequence is over. */
const call_kind *next_call(call_sequence *s, const call_kind *kinds);
/* Makes calls until the sequence is over. */
void make_calls(call_sequence *s, const call_kind *kinds, void *object);

/* Return a number from least to most; and true in this many of a hundred cases. */
int64_t draw(call_sequence *s, int64_t least, int64_t most);
bool chance(call_sequence *s, int64_t percent);
/* Adds words to the latest call in the list of calls. */
void note(call_sequence *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns an array of random numbers in ±scale, in the dtype; free it with bppsa_free. */
void *random_reals(call_sequence *s, bppsa_dtype dtype, int64_t count, double scale);
/* Puts a number at a random place that is not finite, or that makes later ones overflow. */
void spoil(call_sequence *s, bppsa_dtype dtype, void *array, int64_t count);
/* Copies an array, to see later if it changed; NULL gives NULL. Free it with bppsa_free. */
void *copy_bytes(const void *from, size_t bytes);

/* Makes a CPU device of 1 .. 4 threads. */
bppsa_device *random_device(call_sequence *s);
/* Makes one of the next few allocations fail, alone or with all later ones; `allocations_work` ends that and returns whether one
 * has failed. */
void fail_an_allocation(call_sequence *s, int64_t most);
bool allocations_work(void);

/* Both must have the same bits, or NaN in the same places. */
void assert_same_reals(const char *what, bppsa_dtype dtype, const void *found, const void *expected, int64_t count);
/* The two views must have the same shapes and the same numbers in this sense. */
void assert_same_views(const char *what, const bppsa_view *found, const bppsa_view *expected);
/* The call must succeed. */
#define assert_ok(call)                                                                                                          \
  do {                                                                                                                           \
    if ((call) != BPPSA_OK) {                                                                                                    \
      fail_msg("%s: %s", #call, bppsa_last_error());                                                                             \
    }                                                                                                                            \
  } while (0)
/* The call must fail with this status and a message. */
#define assert_refused(call, expected)                                                                                           \
  do {                                                                                                                           \
    const bppsa_status status_ = (call);                                                                                         \
    if (status_ != (expected) || bppsa_last_error()[0] == '\0') {                                                                \
      fail_msg("%s: %s (%s), expected %s", #call, bppsa_status_name(status_), bppsa_last_error(), bppsa_status_name(expected));  \
    }                                                                                                                            \
  } while (0)

#endif

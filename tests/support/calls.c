#include "tests/support/calls.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "tests/support/length.h"
#include "tests/support/sanitized.h"
#include "tests/support/support.h"

#if ADDRESS_SANITIZED || THREAD_SANITIZED
#include <sanitizer/common_interface_defs.h>
#endif

enum { LIST = 1 << 15, NAMES = 64 };

/* The sequence that runs, and how often all sequences have made each call. */
static struct {
  const call_subject *subject;
  const char *program;
  uint64_t first, seed;
  int64_t count, done, names; /* done: sequences that passed */
  const char *name[NAMES];
  int64_t made[NAMES];
  char list[LIST];
  size_t listed;
} now;

/* ---- what is printed ---- */

static void add(const char *format, va_list arguments) {
  const int written = vsnprintf(now.list + now.listed, LIST - now.listed, format, arguments);
  now.listed += written > 0 ? (size_t)written : 0;
  now.listed = now.listed < LIST ? now.listed : LIST - 1;
}

void note(call_sequence *s, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (!s->silent) {
    add(format, arguments);
  }
  va_end(arguments);
}

static void print_list(void) {
  fprintf(stderr, "%s: sequence %" PRIu64 ", again: %s %" PRIu64 " 1%s\n", now.subject->object, now.seed, now.program, now.seed,
          now.list);
}

static void print_counts(void) {
  printf("{\"object\":\"%s\",\"first_seed\":%" PRIu64 ",\"sequences\":%" PRId64 ",\"calls\":{", now.subject->object, now.first,
         now.done);
  for (int64_t i = 0; i < now.names; ++i) {
    printf("%s\"%s\":%" PRId64, i > 0 ? "," : "", now.name[i], now.made[i]);
  }
  printf("},\"pool_threads\":%d}\n", (int)bppsa_pool_size()); /* 0: no loop was long enough to be shared */
}

/* ---- running ---- */

static void run_all(void **state) {
  (void)state;
  for (int64_t k = 0; k < now.count; ++k) {
    now.seed = now.first + (uint64_t)k;
    now.listed = 0;
    now.list[0] = '\0';
    call_sequence s = {.d = {.seed = now.seed}};
    s.left = draw(&s, now.subject->fewest, now.subject->most);
    const int64_t blocks = bppsa_alloc_live();
    now.subject->run(&s);
    assert_int_equal(bppsa_alloc_live(), blocks);
    now.done += 1;
  }
}

static int after(void **state) {
  (void)state;
  if (now.done < now.count) {
    print_list();
  }
  return 0;
}

int run_sequences(const call_subject *subject, int argc, char **argv) {
  if (argc != 1 && argc != 3) {
    fprintf(stderr, "%s: expected nothing, or SEED COUNT\n", argv[0]);
    return 2;
  }
  now.subject = subject;
  now.program = argv[0];
  now.first = argc == 3 ? strtoull(argv[1], NULL, 10) : 1;
  now.count = argc == 3 ? strtoll(argv[2], NULL, 10) : at_full_length() ? subject->longer : subject->often;
#if ADDRESS_SANITIZED || THREAD_SANITIZED
  __sanitizer_set_death_callback(print_list);
#endif
  const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(run_all, after)};
  const int failed = cmocka_run_group_tests_name(subject->object, tests, NULL, NULL);
  print_counts();
  return failed;
}

static void count(const char *name) {
  int64_t i = 0;
  while (i < now.names && strcmp(now.name[i], name) != 0) {
    ++i;
  }
  assert_true(i < NAMES);
  now.name[i] = name;
  now.names = i < now.names ? now.names : i + 1;
  now.made[i] += 1;
}

const call_kind *next_call(call_sequence *s, const call_kind *kinds) {
  int64_t all = 0;
  for (const call_kind *k = kinds; k->name != NULL; ++k) {
    all += k->weight;
  }
  if (s->left-- <= 0) {
    return NULL;
  }
  int64_t at = draw(s, 0, all - 1);
  const call_kind *k = kinds;
  for (; at >= k->weight; ++k) {
    at -= k->weight;
  }
  if (!s->silent) {
    count(k->name);
    note(s, "\n  %s", k->name);
  }
  return k;
}

void make_calls(call_sequence *s, const call_kind *kinds, void *object) {
  for (const call_kind *k; (k = next_call(s, kinds)) != NULL;) {
    k->make(s, object);
  }
}

/* ---- what sequences draw from ---- */

int64_t draw(call_sequence *s, int64_t least, int64_t most) {
  return roll(&s->d, least, most);
}

bool chance(call_sequence *s, int64_t percent) {
  return draw(s, 1, 100) <= percent;
}

void *random_reals(call_sequence *s, bppsa_dtype dtype, int64_t count, double scale) {
  double *values = uniform((uint64_t)draw(s, 1, INT32_MAX), count, scale);
  void *reals = rounded(dtype, values, count);
  bppsa_free(values);
  return reals;
}

void spoil(call_sequence *s, bppsa_dtype dtype, void *array, int64_t count) {
  const double odd[] = {NAN, INFINITY, -INFINITY, dtype == BPPSA_F32 ? 3e38 : 1e308};
  const bppsa_view view = bppsa_view_make(array, dtype, 1, &count);
  if (count > 0) {
    bppsa_view_set(&view, draw(s, 0, count - 1), odd[draw(s, 0, 3)]);
  }
}

void *copy_bytes(const void *from, size_t bytes) {
  void *to = from != NULL ? bppsa_alloc(bytes) : NULL;
  assert_true(from == NULL || to != NULL);
  return from != NULL ? memcpy(to, from, bytes) : NULL;
}

bppsa_device *random_device(call_sequence *s) {
  return cpu_device(draw(s, 1, 4));
}

static int64_t failing; /* the first allocation that fails */

void fail_an_allocation(call_sequence *s, int64_t most) {
  failing = draw(s, 1, most);
  (chance(s, 50) ? bppsa_alloc_fail_at : bppsa_alloc_fail_once)(failing);
}

bool allocations_work(void) {
  const bool failed = bppsa_alloc_calls() >= failing;
  bppsa_alloc_fail_at(0);
  return failed;
}

/* ---- comparing ---- */

void assert_same_reals(const char *what, bppsa_dtype dtype, const void *found, const void *expected, int64_t count) {
  const bppsa_view a = bppsa_view_make((void *)found, dtype, 1, &count), b = bppsa_view_make((void *)expected, dtype, 1, &count);
  const size_t size = bppsa_dtype_size(dtype);
  for (int64_t i = 0; i < count && memcmp(found, expected, (size_t)count * size) != 0; ++i) {
    const double x = bppsa_view_get(&a, i), y = bppsa_view_get(&b, i);
    if (memcmp((const char *)found + (size_t)i * size, (const char *)expected + (size_t)i * size, size) != 0 &&
        !(isnan(x) && isnan(y))) {
      fail_msg("%s: element %" PRId64 " of %" PRId64 " is %.17g, a fresh object has %.17g", what, i, count, x, y);
    }
  }
}

void assert_same_views(const char *what, const bppsa_view *found, const bppsa_view *expected) {
  if (found->dtype != expected->dtype || !bppsa_view_same_shape(found, expected)) {
    fail_msg("%s: another shape than a fresh object's", what);
  }
  assert_same_reals(what, found->dtype, found->data, expected->data, bppsa_view_count(found));
}

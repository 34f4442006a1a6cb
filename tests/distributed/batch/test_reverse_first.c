/* The search for k of reverse first-k, with times that the tests choose, and the words for it. */
#include "distributed/batch/reverse_first.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* ---- a model that could put off so many layers ---- */

static _Thread_local int64_t most, possible; /* of this rank, which is a thread */

static bppsa_status put_off(bppsa_model *model, int64_t k, bppsa_delayed *delayed) {
  (void)model;
  *delayed = (bppsa_delayed){.layers = k < most ? k : most, .possible = possible};
  return BPPSA_OK;
}

/* ---- searches ---- */

/* Ranks whose steps take `seconds` with a k; what the search must find, try and say. */
typedef struct {
  int64_t ranks, most, possible, wanted; /* most: of rank 0; others have memory for one more */
  double (*seconds)(int rank, int64_t k);
  int64_t steps, k; /* steps of the search, and what it finds */
  const char *text;
} search_case;

static bppsa_status search_on(bppsa_comm *comm, void *context) {
  const search_case *c = context;
  const bppsa_model_ops ops = {.name = "model", .delay = put_off};
  bppsa_model model = {.ops = &ops};
  bppsa_reverse_first search;
  bool changed, tried[BPPSA_REVERSE_FIRST_MOST + 1] = {false};
  char text[BPPSA_REVERSE_FIRST_TEXT];
  const int rank = (int)bppsa_comm_rank(comm);
  possible = c->possible;
  most = rank == 0 || c->most == possible ? c->most : c->most + 1;
  BPPSA_TRY(bppsa_reverse_first_begin(comm, &model, c->wanted, &search));
  int64_t steps = 0, tries = 0;
  for (; search.running; ++steps) {
    const int64_t before = search.k;
    tries += before <= BPPSA_REVERSE_FIRST_MOST && !tried[before] ? 1 : 0;
    tried[before <= BPPSA_REVERSE_FIRST_MOST ? before : BPPSA_REVERSE_FIRST_MOST] = true;
    BPPSA_TRY(bppsa_reverse_first_measured(&search, comm, c->seconds(rank, before), &changed));
    if (changed != (search.k != before)) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "step %d: %d, then %d", (int)steps, (int)before, (int)search.k);
    }
  }
  BPPSA_TRY(bppsa_reverse_first_measured(&search, comm, 1e-9, &changed)); /* nothing comes after the end of a search */
  (void)bppsa_reverse_first_text(&search, text);
  if (changed || steps != c->steps || search.k != c->k || (c->wanted < 0 && c->most < 8 && tries != c->most + 1) ||
      strcmp(text, c->text) != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "rank %d: %d steps, %d tried, k %d: '%s'", rank, (int)steps, (int)tries, (int)search.k,
                      text);
  }
  return BPPSA_OK;
}

static void assert_finds(search_case c) {
  bppsa_comm_config config = bppsa_comm_config_default();
  config.ranks = c.ranks;
  if (bppsa_comm_run(&config, search_on, &c, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
}

static double falls(int rank, int64_t k) {
  (void)rank;
  return 1.0 / (double)(k + 1);
}

static double rises(int rank, int64_t k) {
  (void)rank;
  return (double)(k + 1);
}

/* What is fastest on each rank is slow on the other. */
static double meets_at_two(int rank, int64_t k) {
  return rank == 0 ? 1 + (double)k : 5 - (double)k;
}

/* The first round is slow: the shortest step of each k counts. */
static double warms_up(int rank, int64_t k) {
  static _Thread_local int64_t steps;
  (void)rank;
  return ++steps <= 3 ? 9 - (double)k : 1.0 / (double)(k + 1);
}

static void test_search(void **state) {
  (void)state;
  assert_finds((search_case){1, 0, 0, -1, falls, 3, 0, "0 of 0 layers, the fastest of 0 to 0: 1 s a step, 1 s with 0"});
  assert_finds((search_case){1, 1, 1, -1, falls, 6, 1, "1 of 1 layers, the fastest of 0 to 1: 0.5 s a step, 1 s with 0"});
  assert_finds((search_case){1, 1, 1, -1, rises, 6, 0, "0 of 1 layers, the fastest of 0 to 1: 1 s a step, 1 s with 0"});
  assert_finds((search_case){1, 2, 2, -1, warms_up, 9, 2, "2 of 2 layers, the fastest of 0 to 2: 0.3333 s a step, 1 s with 0"});
  assert_finds((search_case){2, 4, 4, -1, meets_at_two, 15, 2, "2 of 4 layers, the fastest of 0 to 4: 3 s a step, 5 s with 0"});
  assert_finds((search_case){3, 1, 3, -1, falls, 6, 1,
                             "1 of 3 layers, the fastest of 0 to 1: 0.5 s a step, 1 s with 0: there is memory for 1 of 3"});
  /* Of more than 64 the candidates are spread evenly, both ends among them. */
  assert_finds((search_case){1, 126, 126, -1, falls, 3 * 64, 126,
                             "126 of 126 layers, the fastest of 0 to 126: 0.007874 s a step, 1 s with 0"});
}

static void test_wanted(void **state) {
  (void)state;
  assert_finds((search_case){2, 3, 3, 2, falls, 0, 2, "2 of 3 layers"});
  assert_finds((search_case){2, 1, 3, 2, falls, 0, 1, "1 of 3 layers, 2 asked for: there is memory for 1 of 3"});
  assert_finds((search_case){2, 3, 3, 7, falls, 0, 3, "3 of 3 layers, 7 asked for"});
  assert_finds((search_case){2, 0, 0, 0, falls, 0, 0, "0 of 0 layers"});
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_search), cmocka_unit_test(test_wanted)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

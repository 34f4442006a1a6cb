/* How layers are cut into stages: by cost, as given, in files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "core/base/text.h"
#include "schedule/schedule_internal.h"
#include "schedule/timed.h"

enum { MOST = 9 };
#define FILE_NAME BPPSA_TEST_TMP_DIR "/schedule_cut.csv"

static double most_of(int64_t layers, const double *costs, int64_t parts, const int64_t *first) {
  double most = 0;
  for (int64_t p = 0; p < parts; ++p) {
    double cost = 0;
    for (int64_t l = p == 0 ? 0 : first[p - 1]; l < (p + 1 < parts ? first[p] : layers); ++l) {
      cost += costs[l];
    }
    most = fmax(most, cost);
  }
  return most;
}

/* The best of all cuts, of layers from `from` on into `parts` parts. */
static double best_of(int64_t layers, const double *costs, int64_t from, int64_t parts) {
  double best = INFINITY, cost = 0;
  if (parts == 1) {
    for (int64_t l = from; l < layers; ++l) {
      cost += costs[l];
    }
    return cost + (from == layers ? INFINITY : 0);
  }
  for (int64_t end = from + 1; end < layers; ++end) {
    cost += costs[end - 1];
    best = fmin(best, fmax(cost, best_of(layers, costs, end, parts - 1)));
  }
  return best;
}

static void cuts_by_cost_are_the_best(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (int64_t layers = 1; layers <= MOST; ++layers) {
      double costs[MOST];
      int64_t first[MOST] = {0};
      for (int64_t l = 0; l < layers; ++l) {
        const double u = bppsa_random_double(seed, 1, (uint64_t)l);
        costs[l] = seed % 3 == 0 ? floor(4 * u) : u; /* with zeros and ties */
      }
      for (int64_t parts = 1; parts <= layers; ++parts) {
        assert_int_equal(bppsa_schedule_cut_evenly(layers, costs, parts, first), BPPSA_OK);
        for (int64_t p = 0; p + 1 < parts; ++p) {
          assert_true(first[p] > (p == 0 ? 0 : first[p - 1]) && first[p] < layers);
        }
        assert_true(fabs(most_of(layers, costs, parts, first) - best_of(layers, costs, 0, parts)) < 1e-12);
      }
    }
  }
  int64_t first[4];
  const double equal[] = {1, 1, 1, 1, 1};
  assert_int_equal(bppsa_schedule_cut_evenly(5, equal, 2, first), BPPSA_OK);
  assert_int_equal(first[0], 3); /* larger stages come first, as in cuts without costs */
  const double one_large[] = {1, 9, 1, 1, 1, 1};
  assert_int_equal(bppsa_schedule_cut_evenly(6, one_large, 4, first), BPPSA_OK);
  assert_true(first[0] == 1 && first[1] == 2 && first[2] == 4); /* the other stages are even */
  assert_int_equal(bppsa_schedule_cut_evenly(5, equal, 6, first), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "5 layers into 6 stages"));
}

static void texts_are_read(void **state) {
  (void)state;
  static const char *const bad[] = {"", ",", "3,", ",3", "3 5", "3;5", "-1", "3,,5", "x", "1234567890", "3,5x"};
  int64_t *cut = NULL, cuts = -1;
  assert_int_equal(bppsa_schedule_cut_parse("3,5:17", &cut, &cuts), BPPSA_OK);
  assert_int_equal(cuts, 3);
  assert_true(cut[0] == 3 && cut[1] == 5 && cut[2] == 17);
  bppsa_free(cut);
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    cut = NULL;
    cuts = -1;
    assert_int_equal(bppsa_schedule_cut_parse(bad[i], &cut, &cuts), BPPSA_ERR_ARGUMENT);
    assert_true(cut == NULL && cuts == -1);
  }
}

static bppsa_schedule_config config_of(int64_t stages, int64_t layers, const int64_t *cut, int64_t cuts) {
  bppsa_schedule_config c = bppsa_schedule_config_default();
  c.stages = stages;
  c.layers = layers;
  c.cut = cut;
  c.cuts = cuts;
  return c;
}

/* Every scheme whose stages are neighbouring layers has them where the cut says, keeps its rules, and comes back from a file. */
static void schemes_follow_a_cut(void **state) {
  (void)state;
  int64_t count, followed = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  for (int64_t i = 0; i < count; ++i) {
    int64_t cut[] = {1, 2, 6, 9, 10, 11, 14};
    bppsa_schedule_config c = config_of(4, 16, cut, strcmp(schemes[i].id, "interleaved") == 0 ? 7 : 3);
    bppsa_schedule *list = NULL, *again = NULL;
    const bppsa_status status = bppsa_schedule_create(schemes[i].id, &c, &list);
    if (schemes[i].scan || schemes[i].data_parallel || strcmp(schemes[i].id, "modulo") == 0) {
      assert_int_equal(status, BPPSA_ERR_ARGUMENT);
      assert_non_null(strstr(bppsa_last_error(), "expected a scheme whose stages are neighbouring layers"));
      continue;
    }
    assert_int_equal(status, BPPSA_OK);
    cut[0] = 5; /* the list has a copy */
    assert_int_equal(bppsa_schedule_layer_of(list, 1), 1);
    assert_int_equal(bppsa_schedule_layer_of(list, 3), 6);
    assert_int_equal(bppsa_schedule_layer_of(list, list->stages), 16);
    assert_int_equal(bppsa_schedule_validate(list), BPPSA_OK);
    bppsa_timed timed;
    bppsa_text text = {0};
    assert_int_equal(bppsa_timed_create(list, &timed), BPPSA_OK);
    assert_int_equal(bppsa_schedule_csv_write(&timed, &text), BPPSA_OK);
    FILE *file = fopen(FILE_NAME, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text.text, 1, text.size, file), text.size);
    fclose(file);
    assert_int_equal(bppsa_schedule_csv_load(FILE_NAME, &again), BPPSA_OK);
    assert_int_equal(again->count, list->count);
    for (int64_t stage = 0; stage <= list->stages; ++stage) {
      assert_int_equal(bppsa_schedule_layer_of(again, stage), bppsa_schedule_layer_of(list, stage));
    }
    assert_int_equal(bppsa_schedule_validate(again), BPPSA_OK);
    bppsa_schedule_destroy(again);
    bppsa_text_free(&text);
    bppsa_timed_free(&timed);
    ++followed;
  }
  assert_true(followed >= 11);
}

static void wrong_cuts_are_refused(void **state) {
  (void)state;
  static const struct {
    int64_t cut[3], cuts;
    const char *words;
  } cases[] = {{{1, 2}, 2, "cut: 2 layers, expected 3"},
               {{0, 2, 3}, 3, "cut: stage 1 begins with layer 0, expected 1 to 7"},
               {{1, 1, 3}, 3, "cut: stage 2 begins with layer 1, expected 2 to 7"},
               {{1, 2, 8}, 3, "cut: stage 3 begins with layer 8, expected 3 to 7"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const bppsa_schedule_config c = config_of(4, 8, cases[i].cut, cases[i].cuts);
    bppsa_schedule *list = NULL;
    assert_int_equal(bppsa_schedule_create("1f1b", &c, &list), BPPSA_ERR_ARGUMENT);
    assert_non_null(strstr(bppsa_last_error(), cases[i].words));
    assert_null(list);
  }
}

/* Every allocation in its turn, of a list with a cut and of a cut by cost. */
static void memory_runs_out(void **state) {
  (void)state;
  const int64_t cut[] = {1, 4}, live = bppsa_alloc_live();
  const double costs[] = {3, 1, 2, 5, 1, 1};
  bppsa_schedule_config c = config_of(3, 6, cut, 2);
  c.cost[BPPSA_COST_FORWARD] = costs;
  c.rows[BPPSA_COST_FORWARD] = 6;
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t call = 0;
  while (status == BPPSA_ERR_MEMORY) {
    bppsa_schedule *list = NULL;
    int64_t first[2], *parsed = NULL, cuts;
    bppsa_alloc_fail_at(++call);
    status = bppsa_schedule_create("gpipe", &c, &list);
    status = status == BPPSA_OK ? bppsa_schedule_cut_evenly(6, costs, 3, first) : status;
    status = status == BPPSA_OK ? bppsa_schedule_cut_parse("1,2", &parsed, &cuts) : status;
    bppsa_alloc_fail_at(0);
    bppsa_schedule_destroy(list);
    bppsa_free(parsed);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  assert_int_equal(status, BPPSA_OK);
  assert_true(call > 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cuts_by_cost_are_the_best), cmocka_unit_test(texts_are_read),
                                     cmocka_unit_test(schemes_follow_a_cut), cmocka_unit_test(wrong_cuts_are_refused),
                                     cmocka_unit_test(memory_runs_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

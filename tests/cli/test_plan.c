/* `plan rnn`: the bounds on the critical path, what the document holds, limits. */
#include <math.h>

#include "tests/cli/run_cli.h"

static int64_t ceil_log2(int64_t n) {
  int64_t k = 0;
  while (((int64_t)1 << k) < n) {
    ++k;
  }
  return k;
}

static int64_t critical_steps(const json_t *plan) {
  return get_integer(json_object_get(plan, "totals"), "critical_steps");
}

static void test_blelloch(void **state) {
  (void)state;
  for (int64_t n = 1; n <= 1025; n += n < 34 ? 1 : 99) {
    json_t *plan = run_json("plan rnn --seq-len %d --hidden 3 --algorithm blelloch --json", (int)n);
    const int64_t bound = 2 * ceil_log2(n + 1) - 2;
    assert_int_equal(get_integer(plan, "elements"), n + 1);
    assert_true(critical_steps(plan) <= bound);
    json_decref(plan);
  }
  for (int k = 1; k <= 20; ++k) {
    json_t *plan = run_json("plan rnn --seq-len %d --algorithm blelloch --json", (1 << k) - 1);
    assert_int_equal(critical_steps(plan), 2 * k - 2);
    json_decref(plan);
  }
}

static void test_up_levels(void **state) {
  (void)state;
  for (int64_t n = 1; n <= 600; n += n < 18 ? 1 : 83) {
    for (int64_t levels = 0; levels <= 11; levels += levels < 5 ? 1 : 2) {
      json_t *plan = run_noted_json("plan rnn --seq-len %d --hidden 3 --up-levels %d --json", (int)n, (int)levels);
      const int64_t left = (n + 1 + ((int64_t)1 << levels) - 1) >> levels;
      assert_string_equal(get_text(plan, "algorithm"), "blelloch"); /* implied */
      assert_true(get_integer(plan, "up_levels") <= levels);        /* clamped with a note, never refused */
      assert_true(critical_steps(plan) <= 2 * levels + (left > 2 ? left - 2 : 0));
      json_decref(plan);
    }
  }
}

static void check_steps(const json_t *plan) {
  const json_t *steps = json_object_get(plan, "steps"), *totals = json_object_get(plan, "totals"),
               *levels = json_object_get(plan, "levels");
  const int64_t layers = (int64_t)json_array_size(levels);
  int64_t counts[64] = {0}, mm = 0, mv = 0, mm_flops = 0, mv_flops = 0;
  assert_true(layers <= 64);
  for (size_t i = 0; i < json_array_size(steps); ++i) {
    const json_t *step = json_array_get(steps, i);
    assert_int_equal(get_integer(step, "id"), i);
    const bool is_mm = strcmp(get_text(step, "op"), "mm") == 0, dead = json_is_true(json_object_get(step, "dead"));
    assert_true(is_mm || strcmp(get_text(step, "op"), "mv") == 0);
    mm += is_mm;
    mv += !is_mm;
    mm_flops += is_mm && !dead ? get_integer(step, "flops") : 0;
    mv_flops += is_mm ? 0 : get_integer(step, "flops");
    if (strcmp(get_text(step, "phase"), "input") != 0) {
      assert_true(get_integer(step, "level") < layers);
      ++counts[get_integer(step, "level")];
    }
    const char *const keys[] = {"m", "k", "n", "nnz", "bytes"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; ++k) {
      assert_true(get_integer(step, keys[k]) > 0);
    }
    assert_true(json_is_boolean(json_object_get(step, "critical")) && json_is_boolean(json_object_get(step, "affine")));
    assert_true(get_text(step, "left")[0] != '\0' && get_text(step, "right")[0] != '\0' && get_text(step, "out")[0] != '\0');
  }
  for (int64_t i = 0; i < layers; ++i) {
    assert_int_equal(json_integer_value(json_array_get(levels, (size_t)i)), counts[i]);
  }
  assert_int_equal(mm, get_integer(totals, "mm")); /* dead products are counted */
  assert_int_equal(mv, get_integer(totals, "mv"));
  assert_int_equal(mm_flops, get_integer(totals, "mm_flops")); /* their FLOPs are not */
  assert_int_equal(mv_flops, get_integer(totals, "mv_flops"));
}

static void test_documents(void **state) {
  (void)state;
  const char *const methods[] = {
      "--algorithm linear",  "--algorithm blelloch", "--up-levels 2", "--chunks 5",
      "--algorithm chunked", "--algorithm auto",     "--input-grad",  "--loss all --algorithm blelloch"};
  const int lengths[] = {1, 2, 3, 7, 50, 100};
  for (size_t m = 0; m < sizeof methods / sizeof methods[0]; ++m) {
    for (size_t t = 0; t < sizeof lengths / sizeof lengths[0]; ++t) {
      json_t *plan = run_noted_json("plan rnn --seq-len %d --hidden 4 %s --json", lengths[t], methods[m]);
      assert_int_equal(get_integer(plan, "elements"), lengths[t] + 1);
      check_steps(plan);
      json_decref(plan);
    }
  }
}

static bool has_input_phase(const json_t *plan) {
  const json_t *steps = json_object_get(plan, "steps");
  for (size_t i = 0; i < json_array_size(steps); ++i) {
    if (strcmp(get_text(json_array_get(steps, i), "phase"), "input") == 0) {
      return true;
    }
  }
  return false;
}

static void test_input_phase(void **state) {
  (void)state;
  json_t *without = run_json("plan rnn --seq-len 9 --algorithm blelloch --json");
  json_t *with = run_json("plan rnn --seq-len 9 --algorithm blelloch --input-grad --json");
  assert_false(has_input_phase(without));
  assert_true(has_input_phase(with));
  assert_int_equal(critical_steps(with), critical_steps(without)); /* not counted */
  json_decref(without);
  json_decref(with);
}

static void test_layers(void **state) {
  (void)state;
  json_t *plan = run_json("plan rnn --seq-len 9 --layers 3 --chunks 3 --json");
  const json_t *layers = json_object_get(plan, "layer_plans");
  assert_int_equal(json_array_size(layers), 3);
  for (size_t i = 0; i < 3; ++i) { /* a gradient enters every step of a layer below the top */
    const json_t *layer = json_array_get(layers, i);
    assert_int_equal(json_is_true(json_object_get(layer, "affine")), i < 2);
    assert_true(get_integer(json_object_get(layer, "totals"), "mv") > 0);
  }
  json_decref(plan);
  plan = run_json("plan rnn --seq-len 9 --loss all --json");
  assert_true(json_is_true(json_object_get(json_array_get(json_object_get(plan, "layer_plans"), 0), "affine")));
  json_decref(plan);
}

static void test_large(void **state) {
  (void)state;
  json_t *plan = run_json("plan rnn --seq-len 10000 --algorithm linear --json"); /* 9 999 products */
  assert_int_equal(json_array_size(json_object_get(plan, "steps")), 9999);
  json_decref(plan);
  plan = run_json("plan rnn --seq-len 10002 --algorithm linear --json");
  assert_null(json_object_get(plan, "steps"));
  assert_non_null(json_object_get(plan, "levels"));
  assert_int_equal(critical_steps(plan), 10001);
  json_decref(plan);
  plan = run_json("plan rnn --seq-len 1000000000000 --up-levels 30 --json");
  assert_true(json_is_integer(json_object_get(plan, "elements")));
  json_decref(plan);
  assert_runs("plan rnn --seq-len 1000000");
  assert_runs("plan rnn --layers 3 --loss all --chunks 7 --input-grad");
}

static void test_contradictions(void **state) {
  (void)state;
  assert_fails(2, "--seq-len: '0'", "plan rnn --seq-len 0");
  assert_fails(2, "--seq-len: '16x'", "plan rnn --seq-len 16x");
  assert_fails(2, "--up-levels: given beside --algorithm linear, expected --algorithm blelloch",
               "plan rnn --algorithm linear --up-levels 2");
  assert_fails(2, "--chunks: given beside --algorithm blelloch, expected --algorithm chunked",
               "plan rnn --algorithm blelloch --chunks 2");
  assert_fails(2, "--up-levels: given beside --algorithm auto", "plan rnn --algorithm auto --up-levels 2");
  assert_fails(2, "--chunks: given beside --up-levels", "plan rnn --chunks 2 --up-levels 2");
  assert_fails(2, "--backward: unknown option, expected one that bppsa plan lenet5 --help lists", "plan lenet5 --backward bp");
  assert_fails(2, "--backward: 'fast', expected", "plan rnn --backward fast");
  assert_runs("plan rnn --algorithm chunked --chunks 2");
  assert_noted("--up-levels: 99 asked for, 9 used, as there are no more\n", "plan rnn --algorithm blelloch --up-levels 99");
  assert_noted("--chunks: 5000 asked for, 1000 used, as there are no more\n", "plan rnn --chunks 5000");
  assert_noted("--warm-up: 200 asked for, 100 used", "plan rnn --seq-len 100 --forward-chunks 4 --warm-up 200");
  assert_noted("--forward: speculative asked for, the pass is sequential", "plan rnn --seq-len 1 --forward speculative");
}

/* auto chooses for the device that is asked for, which this machine need not have. */
static void test_device(void **state) {
  (void)state;
  json_t *cpu = run_json("plan rnn --json --device cpu"), *gpu = run_json("plan rnn --json --device cuda:3");
  assert_string_equal(get_text(cpu, "algorithm"), "linear");
  assert_string_equal(get_text(gpu, "algorithm"), "chunked");
  assert_true(critical_steps(gpu) < critical_steps(cpu) / 2);
  json_decref(cpu);
  json_decref(gpu);
  assert_fails(2, "device \"gpu\": expected cpu, cuda or cuda:K", "plan rnn --device gpu");
}

/* BP, speculative BP, and what auto chooses, with the predicted seconds of all. */
static void test_backward(void **state) {
  (void)state;
  static const struct {
    const char *options, *backward, *chosen;
  } cases[] = {{"--backward auto --seq-len 10000 --batch 1 --hidden 128 --loss all", "speculative", "estimate"},
               {"--backward auto --batch 16 --loss all", "bp", "estimate"},
               {"--backward-chunks 5 --batch 16", "speculative", "option"},
               {"--backward speculative --batch 2 --input-grad --layers 2 --bidirectional", "speculative", "option"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    json_t *plan = run_json("plan gru %s --json", cases[i].options);
    assert_string_equal(get_text(plan, "backward"), cases[i].backward);
    assert_string_equal(get_text(plan, "chosen"), cases[i].chosen);
    const json_t *list = json_object_get(plan, "candidates");
    int chosen = 0;
    for (size_t k = 0; k < json_array_size(list); ++k) {
      const json_t *candidate = json_array_get(list, k);
      const double seconds = json_real_value(json_object_get(candidate, "predicted_s"));
      assert_true(seconds > 0);
      if (json_is_true(json_object_get(candidate, "chosen"))) {
        ++chosen;
        assert_string_equal(get_text(candidate, "backward"), cases[i].backward);
        assert_true(seconds == json_real_value(json_object_get(plan, "predicted_s")));
      }
    }
    assert_int_equal(chosen, 1);
    json_decref(plan);
  }
  json_t *plan = run_json("plan rnn --backward-chunks 5 --backward-warm-up 10 --seq-len 102 --batch 3 --layers 2 --json");
  const json_t *pass = json_object_get(plan, "speculation");
  assert_int_equal(get_integer(pass, "chunks"), 5);
  assert_int_equal(get_integer(pass, "longest"), 21);
  assert_int_equal(get_integer(pass, "lanes"), 15);
  assert_int_equal(get_integer(pass, "path"), 2 * (21 + 10));
  assert_int_equal(get_integer(pass, "possible"), 2 * 102);
  assert_true(fabs(json_real_value(json_object_get(pass, "work")) - (1 + 40. / 102)) < 1e-12);
  assert_true(get_integer(pass, "bytes") > 5 * 3 * 3 * 20 * 4);
  json_decref(plan);
  plan = run_json("plan rnn --backward bp --seq-len 9 --json");
  assert_string_equal(get_text(plan, "backward"), "bp");
  assert_null(json_object_get(plan, "candidates"));
  json_decref(plan);
  assert_noted("--backward-warm-up: 300 asked for, 200 used",
               "plan rnn --seq-len 200 --backward-chunks 2 --backward-warm-up 300");
  assert_noted("--backward: speculative asked for, the pass is BP", "plan rnn --seq-len 30 --backward speculative");
  assert_fails(2, "an option of speculative BP beside --backward scan", "plan rnn --backward-chunks 5 --algorithm linear");
  assert_fails(2, "an option of speculative BP beside --backward auto", "plan rnn --backward-chunks 5 --backward auto");
  assert_fails(2, "--backward: speculative beside --ranks", "plan rnn --backward speculative --batch 1 --ranks 2");
  assert_runs("plan rnn --backward speculative --batch 1 --svg plan.svg");
  assert_runs("plan rnn --backward auto --batch 1 --ranks 2 --split time");
}

/* What does not fit in 64 bits is a wrong request. */
static void test_too_large(void **state) {
  (void)state;
  assert_fails(2, "do not fit in 64 bits", "plan rnn --hidden 100000000");
  assert_fails(2, "do not fit in 64 bits", "plan rnn --seq-len 1000000000000000 --up-levels 3");
  assert_fails(2, "expected 0 .. 2^61", "plan rnn --seq-len 9223372036854775807");
  assert_fails(2, "--hidden: '2147483648', expected a whole number from 1 to 2147483647", "plan rnn --hidden 2147483648");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_blelloch),       cmocka_unit_test(test_up_levels),
                                     cmocka_unit_test(test_documents),      cmocka_unit_test(test_input_phase),
                                     cmocka_unit_test(test_layers),         cmocka_unit_test(test_large),
                                     cmocka_unit_test(test_contradictions), cmocka_unit_test(test_device),
                                     cmocka_unit_test(test_too_large),      cmocka_unit_test(test_backward)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

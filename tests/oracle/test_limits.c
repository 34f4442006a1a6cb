/* What limits a strategy: the data set, groups, memory; and questions about nothing. */
#include <ctype.h>

#include "schedule/schedule.h"
#include "tests/core/helpers.h"
#include "tests/oracle/ask.h"
#include "tests/support/json_memory.h"

/* Weak scaling: b = 20 for each of 4 processors is a mini-batch of 80. */
static void test_scaling(void **state) {
  (void)state;
  asked a = parse(two_layers, plain, 20);
  a.query.strong = false;
  bppsa_oracle_row row = row_of(&a, "data", 4);
  assert_int_equal(row.mini_batch, 80);
  near(row.phase_s[BPPSA_PHASE_UPDATE], 100.0 / 80 * 9e-3);
  near(row.memory_bytes, 166184);
  row = row_of(&a, "filter", 4); /* strong always */
  assert_int_equal(row.mini_batch, 20);
  row = row_of(&a, "data", 6); /* 120 samples of 100 */
  assert_false(row.feasible);
  assert_int_equal(row.limit, 5);
  assert_non_null(strstr(row.reason, "larger than the 100 samples"));
  bppsa_oracle_model_free(&a.model);
}

/* Eight even layers of 16 filters, and a recurrent one of 16 steps. */
#define WIDE "{\"name\": \"c\", \"kind\": \"conv\", \"in\": [16, 8, 8], \"out\": [16, 8, 8], \"w\": 256}"
static const char eight[] =
    "{\"name\": \"eight\", \"layers\": [" WIDE "," WIDE "," WIDE "," WIDE "," WIDE "," WIDE "," WIDE "," WIDE "]}";
static const char steps[] = "{\"name\": \"steps\", \"layers\": [{\"name\": \"r\", \"kind\": \"recurrent\", \"in\": [2, 16], "
                            "\"out\": [3, 16], \"w\": 15}]}";

/* One rule for all strategies: the mini-batch of p processors has at most the samples of the data set. */
static void test_no_batch_beyond_the_samples(void **state) {
  (void)state;
  int64_t weak = 0;
  for (int64_t i = 0; bppsa_oracle_strategy_at(i) != NULL; ++i) {
    const bppsa_oracle_strategy *s = bppsa_oracle_strategy_at(i);
    asked a = parse(strncmp(s->name, "time", 4) == 0 ? steps : eight, plain, 20);
    a.query.strong = false;
    const int64_t p = strcmp(s->name, "serial") == 0 ? 1 : 4, mini_batch = s->strong ? 20 : 20 * p;
    a.query.samples = mini_batch;
    bppsa_oracle_row row = row_of(&a, s->name, p);
    assert_true(row.feasible);
    assert_int_equal(row.mini_batch, mini_batch);
    assert_true(row.limit >= p && (s->strong || row.limit == p));
    a.query.samples = mini_batch - 1;
    row = row_of(&a, s->name, p);
    assert_false(row.feasible);
    assert_true(isnan(row.time_s));
    assert_int_equal(row.limit, s->strong ? 0 : p - 1);
    if (strstr(row.reason, "is larger than the") == NULL) {
      fail_msg("%s: %s", s->name, row.reason);
    }
    weak += !s->strong;
    bppsa_oracle_model_free(&a.model);
  }
  assert_int_equal(weak, 18);
}

/* A strategy of every pipeline of schedule/, which asks for what the scheme takes. */
static void test_every_pipeline_is_a_strategy(void **state) {
  (void)state;
  int64_t count = 0, pipelines = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  for (int64_t i = 0; i < count; ++i) {
    bool listed = false;
    for (int64_t k = 0; bppsa_oracle_strategy_at(k) != NULL; ++k) {
      listed = listed || strcmp(bppsa_oracle_strategy_at(k)->name, schemes[i].id) == 0;
    }
    assert_true(listed == bppsa_schedule_takes(&schemes[i], "micro-batches"));
    pipelines += listed;
    if (listed) {
      const bool chunks = bppsa_oracle_check_option(schemes[i].id, "--chunks") == BPPSA_OK;
      assert_int_equal(bppsa_oracle_check_option(schemes[i].id, "--micro-batches"), BPPSA_OK);
      assert_true(chunks == (strcmp(schemes[i].id, "interleaved") == 0));
    }
  }
  assert_int_equal(pipelines, 13);
}

static void expect_groups(asked *a, const char *strategy, int64_t p, int64_t groups, int64_t limit) {
  const bppsa_oracle_row row = row_of(a, strategy, p);
  assert_true(row.feasible && row.reason[0] == '\0');
  assert_int_equal(row.groups, groups);
  assert_int_equal(row.limit, limit);
}

static void expect_no_groups(asked *a, const char *strategy, int64_t p, int64_t limit, const char *reason) {
  const bppsa_oracle_row row = row_of(a, strategy, p);
  assert_false(row.feasible);
  assert_int_equal(row.limit, limit);
  if (strcmp(row.reason, reason) != 0) {
    fail_msg("%s, expected %s", row.reason, reason);
  }
}

/* Groups of hybrids; the narrowest layer has 6 filters, a node 8 processors. p <= B min F (table 3): 32 times 6. */
static void test_groups(void **state) {
  (void)state;
  asked a = named("lenet5", "dgx-h100", 32);
  a.query.strong = true;
  expect_groups(&a, "data+filter", 8, 2, 192); /* 4 is the largest divisor of 8 up to 6 */
  expect_groups(&a, "data+filter", 6, 1, 192);
  expect_groups(&a, "data+filter", 7, 7, 192);
  expect_groups(&a, "data+filter", 192, 32, 192);
  expect_no_groups(&a, "data+filter", 193, 192, "the mini-batch of 32 has fewer samples than there are groups of 6");
  expect_no_groups(&a, "data+filter", 191, 192, "191 processors are not cut into 32 groups of up to 6");
  a.query.group = 6;
  expect_groups(&a, "data+filter", 12, 2, 192);
  expect_no_groups(&a, "data+filter", 8, 192, "8 processors are not cut into groups of 6");
  expect_no_groups(&a, "data+filter", 1, 192, "1 processor is not cut into groups of 6");
  a.query.group = 8;
  expect_no_groups(&a, "data+filter", 8, 0, "groups of 8, but the narrowest layer has 6 filters");
  /* Few samples need groups beyond a node: 32 processors in 2 groups. The smallest image that is split has 10 x 10. */
  a.query.group = 0;
  a.query.batch = 2;
  expect_groups(&a, "data+spatial", 32, 2, 200);
  expect_groups(&a, "data+spatial", 8, 1, 200);
  expect_no_groups(&a, "data+spatial", 46, 200, "46 processors are not cut into 2 groups of up to 100"); /* no grid of 23 parts */
  a.query.group = 23;
  expect_no_groups(&a, "data+spatial", 46, 46, "no grid of 23 parts fits into every image");
  a.query.group = 0;
  expect_no_groups(&a, "spatial", 23, 100, "no grid of 23 parts fits into every image");
  /* Weak scaling has a sample for each processor: the data set is the limit. */
  a.query.strong = false;
  expect_groups(&a, "data+filter", 8, 2, 25000);
  bppsa_oracle_model_free(&a.model);
}

static void expect_elements(asked *a, const char *strategy, double elements) {
  const bppsa_oracle_row row = row_of(a, strategy, 2);
  if (!(fabs(row.memory_bytes - 4 * elements) < 1e-3)) {
    fail_msg("%s: %.17g, expected %.17g", strategy, row.memory_bytes, 4 * elements);
  }
}

/* Two uneven stages, 5 samples in each of 4 micro-batches: activations 2 * 5 (384 and 640) a micro-batch, |w| 72 and 216, |bi| 4
 * and 6. The memory is that of the fullest processor, whose stage has its own weights. */
static void test_stage_memory(void **state) {
  (void)state;
  asked a = parse(two_layers, plain, 20);
  a.query.micro_batches = 4;
  expect_elements(&a, "pipeline", 25600 + 2 * 216 + 6);
  expect_elements(&a, "gpipe", 25600 + 2 * 216 + 6);         /* the same cut, all four micro-batches at once */
  expect_elements(&a, "1f1b", 2 * 3840 + 2 * 72 + 4);        /* two on the first stage, one on the second */
  expect_elements(&a, "zb-h1", 2 * 6400 + 2 * 216 + 6);      /* its second stage keeps a micro-batch until W */
  expect_elements(&a, "model-parallel", 6400 + 2 * 216 + 6); /* one micro-batch at a time */
  expect_elements(&a, "fast-forward", 25600 + 2 * 216 + 6);  /* all four micro-batches until W */
  expect_elements(&a, "modulo", 25600 + 2 * 216 + 6);        /* F goes before W there too */
  expect_elements(&a, "vanilla", 2 * 3840 + 2 * 72 + 4);     /* two on the first stage, one version of its weights */
  expect_elements(&a, "pipedream", 2 * 3840 + 3 * 72 + 4);   /* two versions on the first stage */
  expect_elements(&a, "2bw", 2 * 3840 + 3 * 72 + 4);
  expect_elements(&a, "spectrain", 2 * 3840 + 3 * 72 + 4); /* the velocity by which it predicts */
  expect_elements(&a, "gems", 6400 + 2 * 288 + 10);        /* both stages, one micro-batch of the larger one */
  expect_elements(&a, "chimera", 3840 + 6400 + 2 * 288 + 10);
  /* Heavy weights behind: the second stage is the fullest in all of them. */
  a.model.layers[1].w = 1e6;
  expect_elements(&a, "pipeline", 25600 + 2e6 + 6);
  expect_elements(&a, "gpipe", 25600 + 2e6 + 6);
  expect_elements(&a, "1f1b", 6400 + 2e6 + 6);
  expect_elements(&a, "pipedream", 6400 + 2e6 + 6); /* one version there */
  expect_elements(&a, "2bw", 6400 + 3e6 + 6);
  expect_elements(&a, "spectrain", 6400 + 3e6 + 6);
  expect_elements(&a, "gems", 6400 + 2 * (1e6 + 72) + 10);
  /* One micro-batch: chimera's second pipeline has nothing to do, and holds its weights all the same. */
  a.query.micro_batches = 1;
  expect_elements(&a, "chimera", 25600 + 2 * (1e6 + 72) + 10);
  bppsa_oracle_model_free(&a.model);
}

/* I = 5 iterations, WU = 9 ms of both stages. A worker updates its stage once an iteration; with replicas both stages, without a
 * flush after each of 4 micro-batches. One processor waits for nobody, whatever sums round to. */
static void test_stage_updates(void **state) {
  (void)state;
  static const struct {
    const char *scheme;
    double updates;
  } schemes[] = {{"fast-forward", 1}, {"model-parallel", 1}, {"vanilla", 4}, {"gpipe", 1}, {"1f1b", 1},
                 {"zb-h1", 1},        {"gems", 2},           {"chimera", 2}, {"2bw", 1},   {"pipedream", 4},
                 {"spectrain", 4},    {"interleaved", 1},    {"modulo", 1}};
  asked a = parse(two_layers, plain, 20);
  a.query.chunks = 1;
  a.query.micro_batches = 4;
  for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; ++i) {
    near(row_of(&a, schemes[i].scheme, 2).phase_s[BPPSA_PHASE_UPDATE], schemes[i].updates * 5 * 9e-3 / 2);
    bppsa_oracle_row row = row_of(&a, schemes[i].scheme, 1);
    if (strcmp(schemes[i].scheme, "gems") == 0 || strcmp(schemes[i].scheme, "chimera") == 0) {
      assert_false(row.feasible);
      assert_string_equal(row.reason, "its two pipelines need an even number of stages");
      assert_int_equal(row.limit, 2);
    } else {
      assert_true(row.communication_s == 0);
    }
  }
  bppsa_oracle_model_free(&a.model);
}

/* ---- questions about nothing ---- */

/* Has the text a number that is none? */
static bool has_no_number(const char *text) {
  static const char *const words[] = {"nan", "inf"};
  for (int i = 0; i < 2; ++i) {
    for (const char *at = strstr(text, words[i]); at != NULL; at = strstr(at + 1, words[i])) {
      if (!(at > text && isalpha((unsigned char)at[-1])) && !isalpha((unsigned char)at[3])) {
        return true;
      }
    }
  }
  return false;
}

static void expect_numbers(asked *a, const char *what) {
  bppsa_oracle_rows rows;
  bppsa_text text = {0}, drawing = {0};
  char *json = NULL;
  a->query.model = &a->model;
  a->query.system = &a->system;
  assert_int_equal(bppsa_oracle_ask(&a->query, NULL, 1, 8, &rows), BPPSA_OK);
  assert_int_equal(bppsa_oracle_text_table(&a->query, &rows, &text), BPPSA_OK);
  assert_int_equal(bppsa_oracle_draw(&a->query, &rows, &drawing), BPPSA_OK);
  assert_int_equal(bppsa_json_render(bppsa_oracle_rows_json(&a->query, &rows), &json), BPPSA_OK);
  for (int64_t i = 0; i < rows.count; ++i) {
    const bppsa_oracle_row *row = &rows.rows[i];
    assert_true(!row->feasible || (isfinite(row->time_s) && isfinite(row->memory_bytes) && row->time_s >= 0));
  }
  if (has_no_number(text.text) || has_no_number(json) || has_no_number(drawing.text)) {
    fail_msg("%s: %s\n%s", what, text.text, json);
  }
  bppsa_free(json);
  bppsa_text_free(&text);
  bppsa_text_free(&drawing);
  bppsa_oracle_rows_free(&rows);
}

static bppsa_status write_documents(void *argument) {
  asked *a = argument;
  bppsa_oracle_rows rows;
  BPPSA_TRY(bppsa_oracle_ask(&a->query, NULL, 1, 8, &rows));
  char *text = NULL;
  bppsa_status status = bppsa_json_render(bppsa_oracle_rows_json(&a->query, &rows), &text);
  bppsa_oracle_rows_free(&rows);
  bppsa_free(text);
  text = NULL;
  status = status == BPPSA_OK ? bppsa_json_render(bppsa_oracle_model_json(&a->model), &text) : status;
  bppsa_free(text);
  text = NULL;
  status = status == BPPSA_OK ? bppsa_json_render(bppsa_oracle_system_json(&a->system), &text) : status;
  bppsa_free(text);
  return status;
}

/* Every allocation of a document fails once, jansson's too. */
static void test_documents_without_memory(void **state) {
  (void)state;
  asked a = parse(two_layers, plain, 20);
  a.query.model = &a.model;
  a.query.system = &a.system;
  assert_true(walk_allocations(write_documents, &a) > 50);
  bppsa_oracle_model_free(&a.model);
}

/* Models without FLOPs, weights or measured seconds, of one layer and one sample, on systems whose messages cost nothing: whatever
 * is printed is a number. */
static void test_nothing(void **state) {
  (void)state;
#define ONE(kind, more) "{\"name\": \"z\", \"samples\": 64, \"layers\": [{\"name\": \"a\", \"kind\": \"" kind "\", " more "}]}"
#define NOTHING(layer) "{\"name\": \"" layer "\", \"kind\": \"conv\", \"in\": [8, 8, 8], \"out\": [8, 8, 8], \"flops\": 0}"
  static const char *const models[] = {
      ONE("elementwise", "\"in\": [1], \"out\": [1], \"flops\": 0"),
      ONE("elementwise", "\"in\": [8, 8, 8], \"out\": [8, 8, 8]"),
      ONE("conv", "\"in\": [8, 8, 8], \"out\": [8, 8, 8], \"w\": 64, \"flops\": 0"),
      ONE("conv", "\"in\": [8, 8, 8], \"out\": [8, 8, 8], \"w\": 64, \"forward_s\": 0, \"backward_s\": 0, \"update_s\": 0"),
      ONE("linear", "\"in\": [8], \"out\": [8], \"w\": 64"),
      ONE("recurrent", "\"in\": [1, 8], \"out\": [1, 8], \"flops\": 0"),
      ONE("recurrent", "\"in\": [1, 8], \"out\": [8, 8], \"w\": 72, \"forward_s\": 0, \"backward_s\": 0, \"product_s\": 0"),
      "{\"name\": \"two\", \"samples\": 64, \"layers\": [" NOTHING("a") "," NOTHING("b") "," NOTHING("c") "," NOTHING("d") "]}"};
#define PLACE(alpha, bandwidth, more)                                                                                            \
  "{\"name\": \"p\", \"peak_flops\": 1e24, \"memory_bytes\": 1e9, " more "\"levels\": [{\"name\": \"n\", \"processors\": 2, "    \
  "\"alpha_s\": " alpha ", \"bandwidth\": " bandwidth "}, {\"name\": \"m\", \"processors\": 8, \"alpha_s\": " alpha              \
  ", \"bandwidth\": " bandwidth ", \"contention\": 2}]}"
  static const char *const systems[] = {PLACE("0", "1e18", ""), PLACE("1e-4", "1e-3", ""),
                                        PLACE("0", "1e18", "\"memory_bandwidth\": 1e18, ")};
  static const bppsa_collective ways[] = {BPPSA_COLLECTIVE_AUTO, BPPSA_COLLECTIVE_RING, BPPSA_COLLECTIVE_TREE,
                                          BPPSA_COLLECTIVE_ORDERED};
  for (size_t m = 0; m < sizeof models / sizeof models[0]; ++m) {
    for (size_t s = 0; s < 3; ++s) {
      for (int way = 0; way < 4; ++way) {
        asked a = parse(models[m], systems[s], 4);
        a.query.collective = ways[way];
        expect_numbers(&a, models[m]);
        for (int l = 0; l < 2; ++l) { /* a link that costs nothing at all */
          a.system.levels[l].alpha_s = a.system.levels[l].beta_s = 0;
        }
        expect_numbers(&a, models[m]);
        a.query.strong = false;
        expect_numbers(&a, models[m]);
        bppsa_oracle_model_free(&a.model);
      }
    }
  }
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_scaling),
                                     cmocka_unit_test(test_no_batch_beyond_the_samples),
                                     cmocka_unit_test(test_every_pipeline_is_a_strategy),
                                     cmocka_unit_test(test_groups),
                                     cmocka_unit_test(test_stage_memory),
                                     cmocka_unit_test(test_stage_updates),
                                     cmocka_unit_test(test_nothing),
                                     cmocka_unit_test(test_documents_without_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

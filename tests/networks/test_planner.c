/* The planner without a command line: where the choice comes from, its words, what is kept. */
#include <errno.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "networks/plan_cache.h"
#include "networks/planner.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

typedef struct {
  int count, speculative; /* speculative: how often speculative BP was tried */
  char first[80];
} seen;

static void show(void *context, const char *what) {
  seen *s = context;
  s->speculative += strcmp(what, "speculative BP") == 0;
  if (s->count++ == 0) {
    snprintf(s->first, sizeof s->first, "%s", what);
  }
}

typedef struct {
  bppsa_network network;
  bppsa_device *device;
  bppsa_network_config config;
  bppsa_chosen chosen;
  char note[BPPSA_PLANNER_NOTE];
} contest;

/* device: NULL for the processor; the contest destroys it. */
static void begin_on(bppsa_device *device, const char *cache, contest *c) {
  char directory[2048];
  assert_non_null(getcwd(directory, sizeof directory - 64));
  strcat(directory, "/");
  strcat(directory, cache);
  assert_int_equal(setenv("XDG_CACHE_HOME", directory, 1), 0);
  *c = (contest){.chosen = BPPSA_CHOSEN_BY_ESTIMATE, .note = "?"};
  assert_int_equal(bppsa_network_open("rnn", NULL, &c->network), BPPSA_OK);
  c->device = device != NULL ? device : cpu_device(1);
  c->config = bppsa_network_config_default(&c->network);
  c->config.steps.seq_len = 12;
  c->config.batch = 2;
  c->config.steps.hidden = 3;
}

static void begin(const char *cache, contest *c) {
  begin_on(NULL, cache, c);
}

static bppsa_status choose(const bppsa_planner_request *request, contest *c) {
  return bppsa_planner_choose(request, &c->network, c->device, &c->config, &c->chosen, c->note);
}

static void end(contest *c) {
  bppsa_device_destroy(c->device);
  bppsa_network_close(&c->network);
}

static void test_limits(void **state) {
  (void)state;
  contest c;
  begin("plans", &c);
  c.config.memory_limit = 1000;
  assert_int_equal(choose(&(bppsa_planner_request){.memory_limit = 77}, &c), BPPSA_OK);
  assert_int_equal(c.config.memory_limit, 1000);        /* the caller's; the request's is for the key */
  assert_int_equal(c.chosen, BPPSA_CHOSEN_BY_ESTIMATE); /* the cost model's turn comes when the model is made */
  assert_string_equal(c.note, "");
  end(&c);
}

/* Where speculative BP is the fastest, the two times say what it costs, and both are found again. */
static void check_speculation(const contest *c) {
  const bppsa_backward_method *s = &c->config.steps.speculation;
  const bool speculates = c->config.method.backward == BPPSA_BACKWARD_SPECULATIVE;
  assert_int_equal(s->exact_inputs, speculates);
  assert_int_equal(s->cost.work > 0, speculates);
}

static void test_measured(void **state) {
  (void)state;
  contest c;
  seen s = {0};
  const bppsa_planner_request request = {.measure = true, .show = show, .context = &s};
  begin("plans", &c);
  c.config.steps.speculation.chunks = 2;
  remove("plans/bppsa/plans.json");
  assert_int_equal(choose(&request, &c), BPPSA_OK);
  assert_int_equal(c.chosen, BPPSA_CHOSEN_BY_MEASUREMENT);
  assert_false(bppsa_gradient_method_open(&c.config.method));
  assert_true(s.count > 2);
  assert_string_equal(s.first, "sequential BP");
  assert_string_equal(c.note, "");
  assert_int_equal(s.speculative, 1);
  check_speculation(&c);
  const bppsa_gradient_method measured = c.config.method;
  const bppsa_backward_cost cost = c.config.steps.speculation.cost;
  end(&c);
  begin("plans", &c);
  c.config.steps.speculation.chunks = 2;
  s.count = 0;
  assert_int_equal(choose(&request, &c), BPPSA_OK);
  assert_int_equal(c.chosen, BPPSA_CHOSEN_BY_CACHE);
  assert_int_equal(s.count, 0);
  assert_int_equal(c.config.method.backward, measured.backward);
  check_speculation(&c);
  assert_memory_equal(&c.config.steps.speculation.cost, &cost, sizeof cost);
  end(&c);
}

/* A forward pass that is left open is measured too, also beside a given backward pass, and found again. */
static void test_forward(void **state) {
  (void)state;
  for (int brief = 0; brief < 2; ++brief) { /* 300 steps: 4 chunks; 12 steps: there is nothing to choose */
    bppsa_forward_method measured = {.kind = BPPSA_FORWARD_AUTO};
    for (int again = 0; again < 2; ++again) {
      contest c;
      seen s = {0};
      const bppsa_planner_request request = {.measure = true, .show = show, .context = &s};
      begin("plans_forward", &c);
      if (again == 0) {
        remove("plans_forward/bppsa/plans.json");
      }
      c.config.method.backward = BPPSA_BACKWARD_BP;
      c.chosen = BPPSA_CHOSEN_BY_OPTION;
      c.config.batch = 1;
      c.config.steps.seq_len = brief ? 12 : 300;
      c.config.steps.forward.kind = BPPSA_FORWARD_AUTO;
      assert_int_equal(choose(&request, &c), BPPSA_OK);
      const bppsa_forward_method *f = &c.config.steps.forward;
      assert_true(f->kind == BPPSA_FORWARD_SEQUENTIAL || (!brief && f->kind == BPPSA_FORWARD_SPECULATIVE && f->most_work > 0));
      assert_int_equal(c.chosen, BPPSA_CHOSEN_BY_OPTION);
      assert_int_equal(c.config.method.backward, BPPSA_BACKWARD_BP);
      assert_int_equal(s.count, again == 0 ? 2 : 0);
      assert_true(again > 0 || strcmp(s.first, "forward pass, sequential") == 0);
      assert_true(again == 0 || (measured.kind == f->kind && measured.most_work == f->most_work));
      measured = *f;
      end(&c);
    }
  }
  contest c;
  begin("plans_forward", &c);
  c.chosen = BPPSA_CHOSEN_BY_OPTION;
  assert_int_equal(choose(&(bppsa_planner_request){.measure = true}, &c), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "expected --backward auto, or scan with --algorithm auto, or --forward auto"));
  end(&c);
}

/* A choice that cannot be kept is still used, and the caller gets the reason. */
static void test_not_kept(void **state) {
  (void)state;
  contest c;
  begin("plans_file", &c);
  put_file("plans_file", "x", 1); /* a file where the directory should be */
  assert_int_equal(choose(&(bppsa_planner_request){.measure = true}, &c), BPPSA_OK);
  assert_int_equal(c.chosen, BPPSA_CHOSEN_BY_MEASUREMENT);
  assert_non_null(strstr(c.note, "the measured plan is not kept: "));
  end(&c);
  remove("plans_file");
}

/* A pipe where the file should be is neither read nor written to. */
static void test_pipe(void **state) {
  (void)state;
  contest c;
  begin("plans_pipe", &c);
  assert_true(mkdir("plans_pipe", 0777) == 0 || errno == EEXIST);
  assert_true(mkdir("plans_pipe/bppsa", 0777) == 0 || errno == EEXIST);
  remove("plans_pipe/bppsa/plans.json");
  assert_int_equal(mkfifo("plans_pipe/bppsa/plans.json", 0666), 0);
  (void)alarm(60); /* it waited for ever */
  assert_int_equal(choose(&(bppsa_planner_request){.measure = true}, &c), BPPSA_OK);
  (void)alarm(0);
  assert_int_equal(c.chosen, BPPSA_CHOSEN_BY_MEASUREMENT);
  assert_non_null(strstr(c.note, "the measured plan is not kept: "));
  assert_non_null(strstr(c.note, "a pipe or device that nobody reads"));
  end(&c);
  remove("plans_pipe/bppsa/plans.json");
}

/* A key that stands there twice: the later plan counts, and storing another one leaves a single one. */
static void test_key_twice(void **state) {
  (void)state;
  static const char text[] = "{\"format\": 1, \"plans\": ["
                             "{\"key\": \"k\", \"backward\": \"bp\"}, {\"key\": \"other\", \"backward\": \"bp\"}, "
                             "{\"key\": \"k\", \"backward\": \"scan\", \"algorithm\": \"chunked\", \"chunks\": 7}]}";
  const bppsa_gradient_method stored = {BPPSA_BACKWARD_SCAN, {.algorithm = BPPSA_SCAN_CHUNKED, .chunks = 9}};
  bppsa_gradient_method found = {.backward = BPPSA_BACKWARD_AUTO};
  contest c;
  begin("plans_twice", &c);
  assert_true(mkdir("plans_twice", 0777) == 0 || errno == EEXIST);
  assert_true(mkdir("plans_twice/bppsa", 0777) == 0 || errno == EEXIST);
  put_file("plans_twice/bppsa/plans.json", text, sizeof text - 1);
  assert_true(bppsa_plan_cache_find("k", &found));
  assert_int_equal(found.backward, BPPSA_BACKWARD_SCAN);
  assert_int_equal(found.scan.chunks, 7);
  assert_int_equal(bppsa_plan_cache_store("k", &stored, 1), BPPSA_OK);
  assert_true(bppsa_plan_cache_find("k", &found));
  assert_int_equal(found.scan.chunks, 9);
  json_t *document = json_load_file("plans_twice/bppsa/plans.json", 0, NULL);
  assert_int_equal(json_array_size(json_object_get(document, "plans")), 2);
  json_decref(document);
  end(&c);
}

/* A GPU that refuses to record passes has its methods measured without. Its emulation refuses every recording then. */
static void test_unrecorded(void **state) {
  (void)state;
  contest c;
  seen s = {0};
  begin_on(emulated_device(1), "plans_gpu", &c);
  remove("plans_gpu/bppsa/plans.json");
  assert_int_equal(setenv("SIMT_NO_CAPTURE", "1", 1), 0);
  const bppsa_status status = choose(&(bppsa_planner_request){.measure = true, .show = show, .context = &s}, &c);
  assert_int_equal(unsetenv("SIMT_NO_CAPTURE"), 0);
  if (status != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  assert_int_equal(c.chosen, BPPSA_CHOSEN_BY_MEASUREMENT);
  assert_true(s.count > 2);
  end(&c);
}

static void test_refused(void **state) {
  (void)state;
  contest c;
  begin("plans", &c);
  c.config.method = (bppsa_gradient_method){.backward = BPPSA_BACKWARD_BP};
  c.chosen = bppsa_chosen_of(&c.config.method);
  assert_int_equal(c.chosen, BPPSA_CHOSEN_BY_OPTION);
  assert_int_equal(choose(&(bppsa_planner_request){.measure = true}, &c), BPPSA_ERR_ARGUMENT);
  assert_message("--plan: measure beside a given --backward bp");
  c.chosen = BPPSA_CHOSEN_BY_CHECKPOINT; /* a checkpoint's choice stays */
  assert_int_equal(choose(&(bppsa_planner_request){.measure = true}, &c), BPPSA_OK);
  assert_int_equal(c.chosen, BPPSA_CHOSEN_BY_CHECKPOINT);
  end(&c);
}

static void test_words(void **state) {
  (void)state;
  const bppsa_gradient_method method = {BPPSA_BACKWARD_SCAN, {.algorithm = BPPSA_SCAN_CHUNKED, .chunks = 45}};
  char text[BPPSA_CHOSEN_TEXT];
  assert_string_equal(bppsa_chosen_method_text(BPPSA_CHOSEN_BY_ESTIMATE, &method, text, sizeof text),
                      "scan, chunked (45 chunks), chosen by estimate");
  assert_string_equal(bppsa_chosen_method_text(BPPSA_CHOSEN_BY_OPTION, &method, text, sizeof text), "scan, chunked (45 chunks)");
}

/* Another network in the place of the scans, so that their gradients are wrong. */
static bppsa_status create_wrong(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                                 bppsa_model **model) {
  bppsa_recurrent_config other = *config;
  if (config->method.backward == BPPSA_BACKWARD_SCAN && config->method.scan.algorithm == BPPSA_SCAN_CHUNKED) {
    other.nonlinearity = BPPSA_NONLINEARITY_RELU;
  }
  return bppsa_recurrent_create(&other, cell, device, model);
}

/* A candidate whose gradients are wrong is named and not chosen, even where nothing else is fast. */
static void test_wrong_gradients(void **state) {
  (void)state;
  contest c;
  begin("plans_wrong", &c);
  remove("plans_wrong/bppsa/plans.json");
  bppsa_network_kind kind = *c.network.kind;
  kind.create = create_wrong;
  c.network.kind = &kind;
  assert_int_equal(choose(&(bppsa_planner_request){.measure = true}, &c), BPPSA_OK);
  assert_int_equal(c.chosen, BPPSA_CHOSEN_BY_MEASUREMENT);
  assert_true(c.config.method.backward == BPPSA_BACKWARD_BP || c.config.method.scan.algorithm != BPPSA_SCAN_CHUNKED);
  assert_non_null(strstr(c.note, "not a candidate: chunked"));
  assert_non_null(strstr(c.note, ": wrong, a residual of "));
  end(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits),     cmocka_unit_test(test_measured),
                                     cmocka_unit_test(test_forward),    cmocka_unit_test(test_not_kept),
                                     cmocka_unit_test(test_unrecorded), cmocka_unit_test(test_pipe),
                                     cmocka_unit_test(test_key_twice),  cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_words),      cmocka_unit_test(test_wrong_gradients)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

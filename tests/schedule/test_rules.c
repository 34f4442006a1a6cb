/* The validator: every scheme's schedules are valid; broken ones are rejected by the rule that is named, and accepted if that
 * rule is off. */
#include <stdio.h>

#include "tests/schedule/mutations.h"

/* ---- valid ones ---- */

static void assert_valid(const char *scheme, const bppsa_schedule_config *config) {
  bppsa_schedule *list = NULL;
  if (bppsa_schedule_create(scheme, config, &list) != BPPSA_OK || bppsa_schedule_validate(list) != BPPSA_OK) {
    fail_msg("%s D %d N %d: %s", scheme, (int)config->stages, (int)config->micro_batches, bppsa_last_error());
  }
  bppsa_schedule_destroy(list);
}

static void test_valid(void **state) {
  (void)state;
  int64_t count = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  assert_true(count >= 20);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t d = 2; d <= 8; d += 2) {
      for (int64_t width = 1; width <= 2; ++width) {
        for (int sync = BPPSA_SYNC_POST; sync <= BPPSA_SYNC_EAGER_OPT; ++sync) {
          bppsa_schedule_config config = bppsa_schedule_config_default();
          config.stages = d;
          config.micro_batches = 2 * d;
          config.layers = 2 * d + 1;
          config.width = width;
          config.sync = (bppsa_schedule_sync)sync;
          config.alpha = 0.25;
          config.beta = 0.1;
          assert_valid(schemes[i].id, &config);
          config.iterations = 2;
          assert_valid(schemes[i].id, &config);
          config.iterations = 1;
          config.window = schemes[i].scan || schemes[i].weights != BPPSA_WEIGHTS_SYNCHRONOUS ? BPPSA_WINDOW_ITERATION
                                                                                             : BPPSA_WINDOW_BACKWARD_FORWARD;
          assert_valid(schemes[i].id, &config);
        }
      }
    }
  }
}

static void test_variants(void **state) {
  (void)state;
  const char *const schemes[] = {"gpipe", "1f1b", "gems", "pipedream", "spectrain", "chimera", "interleaved"};
  for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; ++i) {
    bppsa_schedule_config config = bppsa_schedule_config_default();
    config.micro_batches = 8;
    config.layers = 8;
    for (int split = BPPSA_SPLIT_NONE; split <= BPPSA_SPLIT_IW; ++split) {
      config.split = (bppsa_schedule_split)split;
      config.skip_first_input_grad = true;
      assert_valid(schemes[i], &config);
      config.skip_first_input_grad = false;
      assert_valid(schemes[i], &config);
    }
    config.split = BPPSA_SPLIT_NONE;
    config.recompute = true;
    assert_valid(schemes[i], &config);
  }
  bppsa_schedule_config config = bppsa_schedule_config_default();
  for (int64_t n = 1; n <= 24; ++n) {
    config.micro_batches = n;
    config.scale = BPPSA_SCALE_DIRECT;
    assert_valid("chimera", &config);
    config.scale = BPPSA_SCALE_HALVING;
    assert_valid("chimera", &config);
    config.recompute = true; /* each half again */
    assert_valid("chimera", &config);
    config.recompute = false;
    if (n >= 8) {
      config.scale = BPPSA_SCALE_DOUBLING;
      assert_valid("chimera", &config);
    }
  }
}

/* ---- broken ones ---- */

static int64_t rule_index(const char *name) {
  const bppsa_schedule_rule *rule = NULL;
  for (int64_t i = 0; (rule = bppsa_schedule_rule_at(i)) != NULL; ++i) {
    if (strcmp(rule->name, name) == 0) {
      return i;
    }
  }
  fail_msg("no rule %s", name);
  return -1;
}

/* "recompute": 1f1b with recomputation; "layered X": two layers on each stage, a W and an I for each. */
static bppsa_schedule *make(const char *scheme) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_schedule *list = NULL;
  const bool layered = strncmp(scheme, "layered ", 8) == 0;
  config.recompute = strcmp(scheme, "recompute") == 0;
  config.micro_batches = 8;
  config.layers = layered ? 8 : 0;
  config.split = layered ? BPPSA_SPLIT_WI : BPPSA_SPLIT_NONE;
  assert_int_equal(bppsa_schedule_create(config.recompute ? "1f1b" : layered ? scheme + 8 : scheme, &config, &list), BPPSA_OK);
  return list;
}

/* Only the named rule may notice the damage: with the others off it is found, and with that rule off it is not found under its
 * name. */
static void test_mutations(void **state) {
  (void)state;
  for (int m = 0; m < MUTATIONS; ++m) {
    bppsa_schedule *list = make(mutations[m].scheme);
    const uint64_t only = (uint64_t)1 << rule_index(mutations[m].rule);
    bppsa_schedule_finding finding;
    assert_int_equal(bppsa_schedule_check(list, BPPSA_SCHEDULE_ALL_RULES, &finding), BPPSA_OK);
    assert_null(finding.rule);
    mutations[m].damage(list);
    assert_int_equal(bppsa_schedule_check(list, BPPSA_SCHEDULE_ALL_RULES, &finding), BPPSA_OK);
    if (finding.rule == NULL || strcmp(finding.rule, mutations[m].rule) != 0) {
      fail_msg("mutation %d of %s: rule %s (%s), expected %s", m, mutations[m].scheme,
               finding.rule != NULL ? finding.rule : "none", finding.text, mutations[m].rule);
    }
    assert_true(finding.text[0] != '\0' && strstr(finding.text, "expected") != NULL);
    assert_int_equal(bppsa_schedule_check(list, only, &finding), BPPSA_OK);
    assert_string_equal(finding.rule, mutations[m].rule);
    assert_int_equal(bppsa_schedule_check(list, ~only, &finding), BPPSA_OK);
    assert_true(finding.rule == NULL || strcmp(finding.rule, mutations[m].rule) != 0);
    assert_int_equal(bppsa_schedule_check(list, 0, &finding), BPPSA_OK);
    assert_null(finding.rule);
    assert_int_equal(bppsa_schedule_validate(list), BPPSA_ERR_ARGUMENT);
    assert_non_null(strstr(bppsa_last_error(), mutations[m].rule));
    bppsa_schedule_destroy(list);
  }
}

/* An update that is split by layer is counted layer by layer. */
static void test_split_steps(void **state) {
  const char *const schemes[] = {"layered pipedream", "layered 2bw", "layered vanilla", "layered spectrain", "layered 1f1b"};
  (void)state;
  for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; ++i) {
    bppsa_schedule *list = make(schemes[i]);
    split_steps(list, false);
    if (bppsa_schedule_validate(list) != BPPSA_OK) {
      fail_msg("%s: %s", schemes[i], bppsa_last_error());
    }
    bppsa_schedule_destroy(list);
  }
}

/* A list may end with a transfer: a second one of the first tensor that is sent, to the same worker. */
static void test_last_transfer(void **state) {
  (void)state;
  bppsa_schedule *list = make("gpipe");
  bppsa_schedule_op send = *find(list, BPPSA_KIND_SEND, 0), receive = send;
  for (int64_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    receive = op->kind == BPPSA_KIND_RECV && op->group == send.group ? *op : receive;
  }
  assert_int_equal(receive.kind, BPPSA_KIND_RECV);
  send.group = receive.group = (int32_t)list->groups++;
  assert_int_equal(bppsa_schedule_append(list, &send), BPPSA_OK);
  assert_int_equal(bppsa_schedule_append(list, &receive), BPPSA_OK);
  bppsa_schedule_finding finding;
  const uint64_t rule = (uint64_t)1 << rule_index("send-receive");
  assert_int_equal(bppsa_schedule_check(list, rule, &finding), BPPSA_OK);
  assert_null(finding.rule);
  drop(list, &list->ops[list->count - 1]);
  assert_int_equal(bppsa_schedule_check(list, rule, &finding), BPPSA_OK);
  assert_string_equal(finding.rule, "send-receive");
  bppsa_schedule_destroy(list);
}

/* The first RECV that is behind a later SEND, found by comparing all pairs; -1: none. */
static int64_t first_overtaken(const bppsa_schedule *list) {
  for (int64_t id = 0; id < list->count; ++id) {
    for (int64_t before = 0; before < id && list->ops[id].kind == BPPSA_KIND_RECV; ++before) {
      const bppsa_schedule_op *a = &list->ops[before], *b = &list->ops[id];
      const bppsa_schedule_op *sent_a = NULL, *sent_b = NULL;
      for (int64_t k = 0; k < list->count; ++k) {
        const bppsa_schedule_op *op = &list->ops[k];
        sent_a = op->kind == BPPSA_KIND_SEND && op->group == a->group ? op : sent_a;
        sent_b = op->kind == BPPSA_KIND_SEND && op->group == b->group ? op : sent_b;
      }
      if (a->kind == BPPSA_KIND_RECV && a->worker == b->worker && sent_a->worker == sent_b->worker && sent_a > sent_b) {
        return id;
      }
    }
  }
  return -1;
}

/* Where several workers receive in a wrong order, the first such RECV of the list is named. */
static void test_first_overtaken(void **state) {
  (void)state;
  const uint64_t rule = (uint64_t)1 << rule_index("receive-order");
  int64_t found = 0;
  for (int64_t first = 0; first < 24; ++first) {
    bppsa_schedule *list = make("gpipe");
    for (int64_t i = 0; i < 3; ++i) { /* RECVs change places in the list; their SENDs stay */
      exchange(find(list, BPPSA_KIND_RECV, first + 3 * i), find(list, BPPSA_KIND_RECV, first + 5 * i + 7));
    }
    bppsa_schedule_finding finding;
    assert_int_equal(bppsa_schedule_check(list, rule, &finding), BPPSA_OK);
    assert_int_equal(finding.op, first_overtaken(list));
    assert_true((finding.op >= 0) == (finding.rule != NULL));
    found += finding.op >= 0;
    bppsa_schedule_destroy(list);
  }
  assert_true(found > 8);
}

/* A finding of a product names the Jacobians whose products it must wait for. */
static void test_words(void **state) {
  (void)state;
  bppsa_schedule *list = make("scan-blelloch");
  bppsa_schedule_op *op = find(list, BPPSA_KIND_PRODUCT, 0);
  while (op < list->ops + list->count && op->part < 0) {
    ++op;
  }
  assert_true(op < list->ops + list->count);
  bppsa_schedule_finding finding;
  char expected[80];
  op->dep_count = 0;
  snprintf(expected, sizeof expected, "products of Jacobians %d .. %d and %d .. %d", (int)op->layer, (int)op->part - 1,
           (int)op->part, (int)(op->layer + op->layers - 1));
  assert_int_equal(bppsa_schedule_check(list, (uint64_t)1 << rule_index("scan-product"), &finding), BPPSA_OK);
  assert_string_equal(finding.rule, "scan-product");
  assert_non_null(strstr(finding.text, expected));
  bppsa_schedule_destroy(list);
}

/* Weight gradients that wait for the end of the pass keep their activations: memory is balanced, and no gradient frees what a later
 * one reads. */
static void test_reversed(void **state) {
  (void)state;
  for (int split = BPPSA_SPLIT_WI; split <= BPPSA_SPLIT_IW; ++split) {
    for (int64_t k = 0; k <= 5; ++k) {
      bppsa_schedule_config config = bppsa_schedule_config_default();
      bppsa_schedule *list = NULL;
      config.stages = 2;
      config.layers = 5;
      config.micro_batches = 1;
      config.split = (bppsa_schedule_split)split;
      config.reverse = k;
      assert_valid("reverse-first-k", &config);
      assert_int_equal(bppsa_schedule_create("reverse-first-k", &config, &list), BPPSA_OK);
      int waiting = 0;
      double freed = 0;
      for (int64_t id = 0; id < list->count; ++id) {
        const bppsa_schedule_op *op = &list->ops[id];
        if (op->worker == 0 && op->kind == BPPSA_KIND_W && op->layer < k) {
          assert_true(op->memory_delta < 0);
          ++waiting;
        }
        freed -= op->worker == 0 ? fmin(op->memory_delta, 0) : 0;
      }
      assert_int_equal(waiting, k);
      assert_true(fabs(freed - 1) < 1e-12);
      bppsa_schedule_destroy(list);
    }
  }
}

/* Every rule has a name that no other has, a line that says what it asks for, and a mutation. */
static void test_rules(void **state) {
  (void)state;
  const bppsa_schedule_rule *rule = NULL;
  int64_t count = 0;
  assert_null(bppsa_schedule_rule_at(-1));
  assert_true(MUTATIONS >= 30);
  for (; (rule = bppsa_schedule_rule_at(count)) != NULL; ++count) {
    bool broken = false;
    for (int m = 0; m < MUTATIONS; ++m) {
      broken = broken || strcmp(mutations[m].rule, rule->name) == 0;
    }
    if (!broken) {
      fail_msg("no mutation breaks rule %s", rule->name);
    }
    assert_int_equal(rule_index(rule->name), count);
    assert_true(strlen(rule->what) > 10);
  }
  assert_in_range(count, 1, 64);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_valid),       cmocka_unit_test(test_variants),      cmocka_unit_test(test_mutations),
      cmocka_unit_test(test_split_steps), cmocka_unit_test(test_last_transfer), cmocka_unit_test(test_first_overtaken),
      cmocka_unit_test(test_words),       cmocka_unit_test(test_reversed),      cmocka_unit_test(test_rules)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The oracle on measured machines: links with measured levels, how numbers spread, and what ranks share of a processor. */
#include "oracle/strategies.h"
#include "tests/oracle/ask.h"

/* Two levels; the inner one has operations with an alpha and a beta of their own, and processors that slow each other down. */
static const char measured_levels[] =
    "{\"name\": \"measured\", \"peak_flops\": 1e6, \"memory_bytes\": 1e9, \"memory_reuse\": 1, \"levels\": ["
    "{\"name\": \"two\", \"processors\": 2, \"alpha_s\": 1e-4, \"bandwidth\": 1e6, \"slowdown\": 1.5,"
    " \"allreduce\": {\"alpha_s\": 2e-4, \"bandwidth\": 5e5}, \"ordered_sum\": {\"alpha_s\": 3e-4, \"bandwidth\": 2.5e5},"
    " \"allgather\": {\"alpha_s\": 4e-4, \"bandwidth\": 2e6}, \"point_to_point\": {\"alpha_s\": 5e-4, \"bandwidth\": 4e6},"
    " \"reduce_scatter\": {\"alpha_s\": 6e-4, \"bandwidth\": 3e6}, \"stage_message\": {\"alpha_s\": 7e-4, \"bandwidth\": 2e6}},"
    "{\"name\": \"four\", \"processors\": 4, \"alpha_s\": 1e-4, \"bandwidth\": 1e6, \"slowdown\": 3}]}";

/* B = 20, so I = 5 iterations; sums of 288 * 4 bytes. */
static void test_measured_levels(void **state) {
  (void)state;
  asked a = parse(two_layers, measured_levels, 20);
  /* Computing: 1.5 (100/2 * 12e-3 + 5 * 9e-3). A ring over the allreduce's link: 2 * 5 (2e-4 + 1152/2 * 2e-6). */
  bppsa_oracle_row row = row_of(&a, "data", 2);
  check(&row, 1.5 * 0.645, 10 * (2e-4 + 576 * 2e-6), 4 * (20 * 1024 + 586), 20);
  a.query.collective = BPPSA_COLLECTIVE_AUTO; /* a tree over this link would be slower or faster; it was measured as a ring */
  near(row_of(&a, "data", 2).communication_s, 10 * (2e-4 + 576 * 2e-6));
  /* One round up and one down: 2 * 5 (3e-4 + 1152 * 4e-6). */
  a.query.collective = BPPSA_COLLECTIVE_ORDERED;
  near(row_of(&a, "data", 2).communication_s, 10 * (3e-4 + 1152 * 4e-6));
  /* An allgather of 20 * 256/2 * 4 bytes, and an ordered sum of 20 * 256 * 4. */
  near(row_of(&a, "filter", 2).communication_s, 5 * (4e-4 + 10240 * 5e-7) + 5 * 2 * (3e-4 + 20480 * 4e-6));
  /* S = 4 micro-batches of 5 samples: 2 * 100 (2 + 4 - 2)/20 (5e-4 + 5 * 256 * 4 * 2.5e-7). */
  a.query.micro_batches = 4;
  near(row_of(&a, "pipeline", 2).communication_s, 40 * (5e-4 + 5120 * 2.5e-7));
  /* Four processors: another level, without operations of its own; two rounds up and two down over its link. */
  row = row_of(&a, "data", 4);
  near(row.compute_s, 3 * 0.345);
  near(row.communication_s, 5 * 4 * (1e-4 + 1152e-6));
  /* One processor is never slowed down. */
  near(row_of(&a, "serial", 1).compute_s, 1.245);
  json_t *document = bppsa_oracle_system_json(&a.system);
  bppsa_oracle_system copy;
  assert_int_equal(bppsa_oracle_system_parse("copy", document, &copy), BPPSA_OK);
  json_decref(document);
  near(copy.levels[0].slowdown, 1.5);
  for (int i = 0; i < BPPSA_OPERATIONS; ++i) {
    near(copy.levels[0].own[i].alpha_s, a.system.levels[0].own[i].alpha_s);
    assert_true(fabs(copy.levels[0].own[i].beta_s / a.system.levels[0].own[i].beta_s - 1) < 1e-12);
    assert_true(copy.levels[1].own[i].beta_s == 0);
  }
  assert_string_equal(bppsa_oracle_operation_name(BPPSA_OPERATION_ALLGATHER), "allgather");
  assert_null(bppsa_oracle_operation_name(BPPSA_OPERATIONS));
  bppsa_oracle_model_free(&a.model);
}

/* A system whose slowdown of two lies between 1 and 2, and whose messages take 0.5 to 3 times as long. */
static const char spread_out[] =
    "{\"name\": \"busy\", \"peak_flops\": 1e6, \"memory_bytes\": 1e9, \"spread\": {\"layers\": [0.75, 1.25]}, \"levels\": ["
    "{\"name\": \"two\", \"processors\": 2, \"alpha_s\": 1e-4, \"bandwidth\": 1e6, \"slowdown\": 1.5,"
    " \"spread\": {\"slowdown\": [1, 2], \"messages\": [0.5, 3]}}]}";

/* Computing spreads by the slowdown's ends over the slowdown, times those of the layers; messages by theirs. */
static void test_spread(void **state) {
  (void)state;
  asked a = parse(two_layers, spread_out, 20);
  bppsa_oracle_row row = row_of(&a, "data", 2);
  near(row.spread_s.low, 0.75 / 1.5 * row.compute_s + 0.5 * row.communication_s);
  near(row.spread_s.high, 1.25 * 2 / 1.5 * row.compute_s + 3 * row.communication_s);
  row = row_of(&a, "serial", 1); /* nobody slows it down */
  near(row.spread_s.low, 0.75 * row.time_s);
  near(row.spread_s.high, 1.25 * row.time_s);
  /* Bubbles are computing of others. One processor computes at a time or, while a message travels, none: nobody is slowed down. */
  row = row_of(&a, "model-parallel", 2);
  assert_true(row.waiting_s > 0 && row.busy > 0.5 && row.busy <= 1);
  near(row.spread_s.high, 1.25 * bppsa_oracle_slowdown_at(&a.system, row.busy, BPPSA_END_HIGH) /
                                  bppsa_oracle_system_slowdown(&a.system, row.busy) * (row.compute_s + row.waiting_s) +
                              3 * row.communication_s);
  /* Without a spread nothing is known about it. */
  a.system.layer_spread = a.system.levels[0].slowdown_spread = a.system.levels[0].message_spread = (bppsa_oracle_spread){0};
  assert_false(bppsa_oracle_has_spread(&a.system));
  assert_true(row_of(&a, "data", 2).spread_s.high == 0);
  bppsa_oracle_model_free(&a.model);
}

/* Over one processor with mini-batches of b: with strong scaling of the same size, with weak scaling p times larger ones. */
static void test_speedup(void **state) {
  (void)state;
  asked a = parse(two_layers, plain, 20);
  const double serial = row_of(&a, "serial", 1).time_s;
  near(row_of(&a, "serial", 1).speedup, 1);
  near(row_of(&a, "data", 4).speedup, serial / row_of(&a, "data", 4).time_s);
  a.query.strong = false;
  near(row_of(&a, "data", 4).speedup, serial / row_of(&a, "data", 4).time_s);
  assert_true(isnan(row_of(&a, "serial", 2).speedup)); /* beyond the limit */
  a.query.batch = 1000;                                /* larger than the data set */
  assert_true(isnan(row_of(&a, "serial", 1).speedup));
  bppsa_oracle_model_free(&a.model);
}

static bppsa_oracle_share share_of(const char *text) {
  bppsa_oracle_share share;
  json_t *document = NULL;
  assert_int_equal(bppsa_json_parse("share", text, (int64_t)strlen(text), &document), BPPSA_OK);
  assert_int_equal(bppsa_oracle_share_parse("share", document, &share), BPPSA_OK);
  json_decref(document);
  return share;
}

/* What was measured of a rank's share takes the place of 1/p of the layers, and what it sends that of the formulas. Rings; the
 * level's slowdown is not applied again. D = 100, B = 20, I = 5. */
static void test_shares(void **state) {
  (void)state;
  asked a = parse(two_layers, plain, 20);
  a.system.levels[0].slowdown = 3;
  a.query.group = 2;
  static const char *const texts[] = {SHARE("filter", "2", "4"), SHARE("spatial", "2", "2"), SHARE("data", "1", "4")};
  bppsa_oracle_share shares[3];
  for (int i = 0; i < 3; ++i) {
    shares[i] = share_of(texts[i]);
  }
  a.model.shares = shares;
  a.model.share_count = 3;
  /* Two groups of two have 50 samples each: 50 * 3e-3 + 5 * 3e-3. In an iteration of 10 samples 2 allgathers of 1000 bytes
   * together, 2e-4 + 1e-3; 3 sums of 3000, 2 (3e-4 + 3000/2 * 1e-6); 4 messages of 4000, 4e-4 + 4e-3. Gradients: 2 (1e-4 + 500/2
   * * 1e-6) in a group, 2 (1e-4 + 600/2 * 1e-6) between two. Memory as ever. */
  bppsa_oracle_row row = row_of(&a, "data+filter", 4);
  near(row.compute_s, 0.165);
  near(row.phase_s[BPPSA_PHASE_UPDATE], 0.015);
  near(row.phase_s[BPPSA_PHASE_COLLECTIVES], 5 * (1.2e-3 + 3.6e-3));
  near(row.phase_s[BPPSA_PHASE_HALO], 5 * 4.4e-3);
  near(row.phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE], 5 * (7e-4 + 8e-4));
  near(row.memory_bytes, 83112);
  /* All processors share the layers: 100 samples, and no other group. */
  row = row_of(&a, "spatial", 2);
  near(row.compute_s, 0.3 + 0.015);
  near(row.phase_s[BPPSA_PHASE_HALO], 5 * (4e-4 + 8e-3));
  near(row.phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE], 5 * 7e-4);
  row = row_of(&a, "data", 4); /* the gradients' own time, with the copies to buckets and back */
  near(row.compute_s, 0.075 + 0.015);
  near(row.phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE], 5 * 7e-3);
  /* One part of any strategy is the whole model. */
  a.query.group = 1;
  row = row_of(&a, "data+spatial", 4); /* a ring among four: 2 * 3 (1e-4 + 600/4 * 1e-6); without buckets */
  near(row.compute_s, 0.075 + 0.015);
  near(row.phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE], 5 * (2 * 3 * 2.5e-4));
  /* Other numbers were not measured: the formulas, with the slowdown. */
  near(row_of(&a, "filter", 4).compute_s, (300.0 / 4 * 4e-3 + 5.0 / 4 * 9e-3) * bppsa_oracle_system_slowdown(&a.system, 4));
  json_t *document = bppsa_oracle_share_json(&shares[0]);
  bppsa_oracle_share copy;
  assert_int_equal(bppsa_oracle_share_parse("copy", document, &copy), BPPSA_OK);
  json_decref(document);
  assert_memory_equal(&copy, &shares[0], sizeof copy);
  a.model.shares = NULL;
  bppsa_oracle_model_free(&a.model);
}

/* The layers' own spreads, in seconds: FW 0.5 + 4 to 2 + 6 ms, BW 2 + 4 to 2 + 10 ms; WU has none. One operation's spread counts
 * before that of all. */
static void test_measured_spread(void **state) {
  (void)state;
  asked a = parse(two_layers, plain, 20);
  assert_true(row_of(&a, "data", 2).spread_s.high == 0);
  a.model.layers[0].forward_spread = (bppsa_oracle_spread){0.5e-3, 2e-3};
  a.model.layers[1].forward_spread = (bppsa_oracle_spread){4e-3, 6e-3};
  a.model.layers[1].backward_spread = (bppsa_oracle_spread){4e-3, 10e-3};
  bppsa_oracle_row row = row_of(&a, "serial", 1);
  near(row.spread_s.low, 100 * 10.5e-3 + 5 * 9e-3);
  near(row.spread_s.high, 100 * 20e-3 + 5 * 9e-3);
  row = row_of(&a, "data", 2); /* nothing is known of messages */
  near(row.spread_s.high, 50 * 20e-3 + 5 * 9e-3 + row.communication_s);
  row = row_of(&a, "pipeline", 2); /* who waits, waits for passes: FW takes 0.9 to 1.6 times, BW 6/7 to 12/7 */
  near(row.spread_s.high, 8 / 5.0 * row.phase_s[BPPSA_PHASE_FORWARD] + 12 / 7.0 * row.phase_s[BPPSA_PHASE_BACKWARD] +
                              row.phase_s[BPPSA_PHASE_UPDATE] + 12 / 7.0 * row.waiting_s + row.communication_s);
  bppsa_oracle_level *level = &a.system.levels[0];
  level->message_spread = (bppsa_oracle_spread){0.75, 1.5};
  level->own_spread[BPPSA_OPERATION_ALLREDUCE] = (bppsa_oracle_spread){0.5, 4};
  row = row_of(&a, "data", 2);
  near(bppsa_oracle_time_at(&a.query, &row, BPPSA_END_MIDDLE, BPPSA_END_HIGH), row.compute_s + 4 * row.communication_s);
  a.query.collective = BPPSA_COLLECTIVE_ORDERED;
  row = row_of(&a, "data", 2);
  near(bppsa_oracle_time_at(&a.query, &row, BPPSA_END_MIDDLE, BPPSA_END_HIGH), row.compute_s + 1.5 * row.communication_s);
  bppsa_oracle_model_free(&a.model);
}

/* A scan over time: BW takes 1 to 4 ms, the scan 0 to 3 ms longer; two processors multiply nothing. */
static void test_spread_of_scans(void **state) {
  (void)state;
  asked a = named("gru", "h200x4", 16);
  a.model.layers[0].backward_s = 2e-3;
  a.model.layers[0].backward_spread = (bppsa_oracle_spread){1e-3, 4e-3};
  a.model.layers[0].scan_s = 1e-3;
  a.model.layers[0].scan_spread = (bppsa_oracle_spread){0, 3e-3};
  a.model.layers[1].backward_s = 0;
  bppsa_oracle_row row = row_of(&a, "time-chunked", 2);
  near(row.phase_spread_s[BPPSA_PHASE_BACKWARD].low / row.phase_s[BPPSA_PHASE_BACKWARD], 1 / 3.0);
  near(row.phase_spread_s[BPPSA_PHASE_BACKWARD].high / row.phase_s[BPPSA_PHASE_BACKWARD], 7 / 3.0);
  row = row_of(&a, "time-bp", 2);
  near(row.phase_spread_s[BPPSA_PHASE_BACKWARD].high / row.phase_s[BPPSA_PHASE_BACKWARD], 2);
  /* Four of them multiply: products that take far longer than a walk, and twice as long at their end. */
  a.model.layers[0].product_s = 1;
  a.model.layers[0].product_spread = (bppsa_oracle_spread){1, 2};
  row = row_of(&a, "time-chunked", 4);
  assert_true(row.phase_spread_s[BPPSA_PHASE_BACKWARD].high > 1.99 * row.phase_s[BPPSA_PHASE_BACKWARD]);
  a.system.levels[0].processors = 8;
  a.system.product_spread[BPPSA_PRODUCT_MATRICES] = (bppsa_oracle_spread){1, 1e6};
  a.system.products[BPPSA_PRODUCT_MATRICES].sample_s = 1;
  assert_true(row_of(&a, "time-chunked", 8).spread_s.high < row_of(&a, "time-blelloch", 8).spread_s.high);
  bppsa_oracle_model_free(&a.model);
}

/* Shares were measured side by side, so the slowdown's spread is in theirs; and each by itself, so that one may be slow while
 * another one is fast: 2 % more of a forward pass are overturned by spreads of 2 %, and not by those of a quarter per cent. */
static void test_spread_of_shares(void **state) {
  (void)state;
  static const double spreads[] = {0.0025, 0.02};
  bppsa_oracle_rows rows = {0};
  for (int i = 0; i < 2; ++i) {
    asked a = parse(two_layers, spread_out, 20);
    bppsa_oracle_share shares[] = {share_of(SHARE("filter", "2", "2")), share_of(SHARE("channel", "2", "2"))};
    shares[1].forward_s *= 1.02;
    for (int k = 0; k < 2; ++k) {
      bppsa_oracle_share *s = &shares[k];
      s->forward_spread = (bppsa_oracle_spread){(1 - spreads[i]) * s->forward_s, (1 + spreads[i]) * s->forward_s};
      s->backward_spread = (bppsa_oracle_spread){(1 - spreads[i]) * s->backward_s, (1 + spreads[i]) * s->backward_s};
      s->update_spread = (bppsa_oracle_spread){s->update_s, s->update_s};
    }
    a.model.shares = shares;
    a.model.share_count = 2;
    const bppsa_oracle_row row = row_of(&a, "filter", 2);
    near(row.spread_s.high, (1 + spreads[i]) * (row.phase_s[BPPSA_PHASE_FORWARD] + row.phase_s[BPPSA_PHASE_BACKWARD]) +
                                row.phase_s[BPPSA_PHASE_UPDATE] + 3 * row.communication_s);
    assert_int_equal(bppsa_oracle_ask(&a.query, "filter,channel", 2, 2, &rows), BPPSA_OK);
    assert_int_equal(rows.best, 0);
    assert_true(bppsa_oracle_may_be_fastest(&a.query, &rows, 0));
    assert_int_equal(bppsa_oracle_may_be_fastest(&a.query, &rows, 1), i == 1);
    /* Also where messages spread so far that the same strategy leads at both ends, and they are close in between only. */
    bppsa_oracle_row *first = &rows.rows[0], *second = &rows.rows[1];
    first->phase_spread_s[BPPSA_PHASE_COLLECTIVES].low = 0;
    second->phase_spread_s[BPPSA_PHASE_COLLECTIVES].high *= 10;
    assert_int_equal(bppsa_oracle_may_be_fastest(&a.query, &rows, 1), i == 1);
    bppsa_oracle_rows_free(&rows);
    a.model.shares = NULL;
    bppsa_oracle_model_free(&a.model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_measured_levels), cmocka_unit_test(test_spread),
                                     cmocka_unit_test(test_speedup),         cmocka_unit_test(test_measured_spread),
                                     cmocka_unit_test(test_spread_of_scans), cmocka_unit_test(test_spread_of_shares),
                                     cmocka_unit_test(test_shares)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

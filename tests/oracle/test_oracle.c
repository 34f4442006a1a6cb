/* The oracle's formulas against numbers computed by hand, and the statements of the ParaDL paper. */
#include "oracle/strategies.h"
#include "tests/oracle/ask.h"

/* B = 20, so I = 5 iterations. Table 3, row by row. */
static void test_basic_strategies(void **state) {
  (void)state;
  asked a = parse(two_layers, plain, 20);
  /* 100 * 12e-3 + 5 * 9e-3; 4 (2 * 20 * 1024 + 2 * 288 + 10). Equation 4 of the paper drops the 10 biases. */
  bppsa_oracle_row row = row_of(&a, "serial", 1);
  check(&row, 1.245, 0, 166184, 1);
  /* 100/4 * 12e-3 + 5 * 9e-3; 2 * 5 * 3 (1e-4 + 288/4 * 4e-6); B/p = 5 samples. */
  row = row_of(&a, "data", 4);
  check(&row, 0.345, 0.01164, 43304, 20);
  near(row.phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE], 0.01164);
  /* A 1 x 4 grid has borders of 8 C elements on a side: 16 + 32 and 32 + 48 = 128. 2 * 5 (2 * 2 * 1e-4 + 20 * 4e-6 * 128). */
  row = row_of(&a, "spatial", 4);
  check(&row, 0.345, 0.01164 + 0.1064, 43304, 64);
  near(row.phase_s[BPPSA_PHASE_HALO], 0.1064);
  /* 100/2 * 12e-3 + 5/2 * 9e-3; 3 * 5 * 1 * (1e-4 + 20 * 256/2 * 4e-6); the narrowest layer has 4 filters. */
  row = row_of(&a, "filter", 2);
  check(&row, 0.6225, 0.1551, 165032, 4);
  near(row.phase_s[BPPSA_PHASE_COLLECTIVES], 0.1551);
  /* The first layer stays whole: 100/2 * 3e-3 + 5/2 * 3e-3 more compute, 4 * 2 * 72/2 more bytes. The second has 4 channels. */
  row = row_of(&a, "channel", 2);
  check(&row, 0.78, 0.1551, 165320, 4);
  bppsa_oracle_model_free(&a.model);
}

static void test_hybrid_strategies(void **state) {
  (void)state;
  asked a = parse(two_layers, plain, 20);
  a.query.group = 2;
  /* p1 = p2 = 2: 100/4 * 12e-3 + 5/2 * 9e-3; 3 * 5 * 1 * (1e-4 + 20 * 256/4 * 4e-6) + 2 * 5 * 1 * (1e-4 + 288/4 * 4e-6), where
   * equation 22 of the paper lacks the 4 bytes. */
  bppsa_oracle_row row = row_of(&a, "data+filter", 4);
  check(&row, 0.3225, 0.0783 + 0.00388, 83112, 40);
  near(row.phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE], 0.00388);
  /* phi = 2: the two segmented allreduces share a link: 10 (1e-4 + 2 * 2.88e-4). Nothing else changes. */
  a.system.levels[0].contention = 2;
  row = row_of(&a, "data+filter", 4);
  near(row.phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE], 0.00676);
  near(row.phase_s[BPPSA_PHASE_COLLECTIVES], 0.0783);
  a.system.levels[0].contention = 1;
  /* Groups of 2 with 10 samples: halo 2 * 5 (2 * 2 * 1e-4 + 10 * 4e-6 * 128); 5 allreduces inside and 5 between, each
   * 2 (1e-4 + 288/2 * 4e-6). */
  row = row_of(&a, "data+spatial", 4);
  check(&row, 0.345, 0.0552 + 0.01352, 43304, 40);
  near(row.phase_s[BPPSA_PHASE_HALO], 0.0552);
  assert_int_equal(row.groups, 2);
  bppsa_oracle_model_free(&a.model);
}

/* p = 2, S = 4: 100 (4e-3 + 5e-3) + 5 * 6e-3, where equation 12 of the paper multiplies WU too and lacks D/B, and a wait of
 * 100 (2 - 1)/4 (4e-3 + 5e-3); 2 * 100 (2 + 4 - 2)/20 (1e-4 + 20/4 * 256 * 4e-6); the second layer's 4 (2 * 20 * 640 + 2 * 216 + 6)
 * bytes. */
static void test_pipeline(void **state) {
  (void)state;
  asked a = parse(two_layers, plain, 20);
  a.query.micro_batches = 4;
  const bppsa_oracle_row row = row_of(&a, "pipeline", 2);
  check_waiting(&row, 0.93, 0.2088, 0.225, 104152, 2);
  bppsa_oracle_model_free(&a.model);
}

/* Eleven layers of 1 ms, cut behind the first: the second stage has ten of them, where an even cut has six. 4 micro-batches on two
 * stages take 5/4 of the longest. */
static void test_given_cut(void **state) {
  (void)state;
  static const int64_t behind_first[] = {1}, four[] = {1, 2, 3};
  asked a = named("lenet5", "paradl-v100", 8);
  for (int64_t l = 0; l < a.model.count; ++l) {
    a.model.layers[l].forward_s = 1e-3;
    a.model.layers[l].backward_s = 0;
  }
  a.query.strong = true;
  a.query.samples = 8;
  a.query.micro_batches = 4;
  bppsa_oracle_row row = row_of(&a, "pipeline", 2);
  near(row.phase_s[BPPSA_PHASE_FORWARD], 8 * 6e-3);
  near(row.waiting_s, 8 * 0.25 * 6e-3);
  a.query.cuts = 1;
  a.query.cut = behind_first;
  row = row_of(&a, "pipeline", 2);
  near(row.phase_s[BPPSA_PHASE_FORWARD], 8 * 10e-3);
  near(row.waiting_s, 8 * 0.25 * 10e-3);
  assert_int_equal(row.cuts, 1);
  assert_int_equal(row.cut[0], 1);
  /* Four stages on two processors, which one number does not cut: three layers in each but the last. */
  row = row_of(&a, "interleaved", 2);
  assert_true(row.cuts == 3 && row.cut[0] == 3 && row.cut[1] == 6 && row.cut[2] == 9);
  a.query.cuts = 3;
  a.query.cut = four;
  row = row_of(&a, "interleaved", 2);
  assert_true(row.cuts == 3 && row.cut[0] == 1 && row.cut[1] == 2 && row.cut[2] == 3);
  bppsa_oracle_model_free(&a.model);
}

static const char even[] = "{\"name\": \"even\", \"samples\": 80, \"layers\": ["
                           "{\"name\": \"a\", \"kind\": \"conv\", \"in\": [1, 4, 4], \"out\": [1, 4, 4], \"w\": 1, "
                           "\"forward_s\": 1e-3, \"backward_s\": 2e-3,"
                           " \"update_s\": 0},"
                           "{\"name\": \"b\", \"kind\": \"conv\", \"in\": [1, 4, 4], \"out\": [1, 4, 4], \"w\": 1, "
                           "\"forward_s\": 1e-3, \"backward_s\": 2e-3,"
                           " \"update_s\": 0},"
                           "{\"name\": \"c\", \"kind\": \"conv\", \"in\": [1, 4, 4], \"out\": [1, 4, 4], \"w\": 1, "
                           "\"forward_s\": 1e-3, \"backward_s\": 2e-3,"
                           " \"update_s\": 0},"
                           "{\"name\": \"d\", \"kind\": \"conv\", \"in\": [1, 4, 4], \"out\": [1, 4, 4], \"w\": 1, "
                           "\"forward_s\": 1e-3, \"backward_s\": 2e-3,"
                           " \"update_s\": 0}]}";
static const char links_are_free[] = "{\"name\": \"free\", \"peak_flops\": 1e6, \"memory_bytes\": 1e9, \"levels\": ["
                                     "{\"name\": \"all\", \"processors\": 64, \"alpha_s\": 0, \"bandwidth\": 1e18}]}";

/* Four even stages without links, B = 40 in S = 4 micro-batches of 10, so a micro-batch takes 10 ms forward and 20 ms back. */
static void test_simulated(void **state) {
  (void)state;
  asked a = parse(even, links_are_free, 40);
  a.query.micro_batches = 4;
  a.query.memory_reuse = 1;
  bppsa_oracle_row row = row_of(&a, "gpipe", 4); /* two iterations of (4 + 4 - 1) 30 ms */
  assert_true(fabs(row.time_s - 0.42) < 1e-9);
  near(row.compute_s, 80 * 12e-3 / 4);
  near(row.memory_bytes, 4 * (2 * 40 * 32 + 2)); /* the activations of four micro-batches */
  assert_true(isnan(row.model_s));
  assert_int_equal(row.cuts, 3);
  assert_true(row.cut[0] == 1 && row.cut[1] == 2 && row.cut[2] == 3);
  /* A stage computes in 4 of 7 slots, and waits in 3; nothing travels. */
  assert_true(fabs(row.waiting_s - 0.42 * 3 / 7) < 1e-9 && row.communication_s < 1e-9);
  /* Messages as the executor waits for them, 1 ms each: three on the way down and three back. The bubbles stay what they were. */
  a.system.levels[0].own[BPPSA_OPERATION_STAGE_MESSAGE] = (bppsa_link){1e-3, 1e-18};
  row = row_of(&a, "gpipe", 4);
  assert_true(fabs(row.time_s - (0.42 + 2 * 6e-3)) < 1e-9);
  assert_true(fabs(row.waiting_s - 0.42 * 3 / 7) < 1e-9 && fabs(row.communication_s - 2 * 6e-3) < 1e-9);
  near(row.phase_s[BPPSA_PHASE_POINT_TO_POINT], row.communication_s);
  a.system.levels[0].own[BPPSA_OPERATION_STAGE_MESSAGE] = (bppsa_link){0};
  row = row_of(&a, "chimera", 4); /* 5 D - 4 slots of F = 1 and B = 2: 16 (facts of Chimera's table 2) */
  assert_true(fabs(row.time_s - 0.32) < 1e-9);
  near(row.model_s, 0.32);
  row = row_of(&a, "model-parallel", 4); /* one stage at a time: 4 micro-batches of 4 stages */
  assert_true(fabs(row.time_s - 2 * 4 * 4 * 0.03) < 1e-9);
  /* The first stage has the last input gradient at 140 ms; its four weight gradients follow. */
  row = row_of(&a, "fast-forward", 4);
  assert_true(fabs(row.time_s - 2 * 0.18) < 1e-9);
  row = row_of(&a, "pipedream", 4); /* once full, a micro-batch takes 30 ms */
  assert_true(fabs(row.time_s - 0.24) < 1e-9);
  row = row_of(&a, "vanilla", 4);
  assert_true(fabs(row.time_s - 0.24) < 1e-9);
  near(row.memory_bytes, 4 * (2 * 4 * 10 * 32 + 2)); /* four micro-batches, one version of the weights, a gradient */
  /* A mini-batch of one micro-batch, of 40 samples: 120 ms on a stage. Four of them are in the pipeline at once. */
  a.query.micro_batches = 1;
  row = row_of(&a, "pipedream", 4);
  assert_true(fabs(row.time_s - 2 * 0.12) < 1e-9);
  near(row.memory_bytes, 4 * (2 * 4 * 40 * 32 + 5)); /* with four versions of the weights */
  a.query.micro_batches = 4;
  /* Processors compute in 4 of 7 slots, so 16/7 of them at once on average. Four slow each other down 3 times, one not at all, so
   * these do 1 + 2 (16/7 - 1)/3 times. */
  a.system.levels[0].processors = 4;
  a.system.levels[0].slowdown = 3;
  row = row_of(&a, "gpipe", 4);
  assert_true(fabs(row.time_s - 0.42 * (1 + 2 * (16.0 / 7 - 1) / 3)) < 1e-9);
  near(row.compute_s / row.time_s, 4.0 / 7);
  row = row_of(&a, "chimera", 4); /* equation 1 too: 12 of 16 slots, so 3 at once, do 1 + 2 (3 - 1)/3 times */
  assert_true(fabs(row.time_s - 0.32 * (1 + 4.0 / 3)) < 1e-9);
  near(row.model_s, 0.32 * (1 + 4.0 / 3));
  a.system.levels[0] = (bppsa_oracle_level){.name = "all", .processors = 64, .beta_s = 1e-18, .contention = 1, .slowdown = 1};
  row = row_of(&a, "chimera", 3);
  assert_false(row.feasible);
  assert_non_null(strstr(row.reason, "even"));
  a.query.batch = a.query.micro_batches = 16384 / 4 + 1; /* more passes than are simulated */
  a.query.samples = 1 << 20;
  row = row_of(&a, "gpipe", 4);
  assert_false(row.feasible);
  assert_non_null(strstr(row.reason, "simulated for up to 16384 micro-batches times stages"));
  row = row_of(&a, "gpipe", 5);
  assert_false(row.feasible);
  assert_int_equal(row.limit, 4);
  assert_true(isnan(row.time_s));
  bppsa_oracle_model_free(&a.model);
}

/* Two processors with two of the four even layers each, 0 and 2, 1 and 3. 10 ms a forward pass of 10 samples, 20 ms a backward
 * pass. */
static void test_several_stages(void **state) {
  (void)state;
  asked a = parse(even, links_are_free, 40);
  a.query.micro_batches = 4;
  a.query.memory_reuse = 1;
  for (int l = 0; l < 4; ++l) {
    a.model.layers[l].update_s = 1e-3;
  }
  /* Two iterations of 4 (2 * 30 ms) and a bubble of (p - 1) 60/2 ms, then an update of both stages. The first processor has made
   * 2 (p - 1) + p forward passes before its first backward pass, which another one precedes: five, and two stages' weights. */
  bppsa_oracle_row row = row_of(&a, "interleaved", 2);
  assert_true(fabs(row.time_s - 2 * (0.27 + 2e-3)) < 1e-9);
  near(row.compute_s, 80 * 12e-3 / 2 + 2 * 4e-3 / 2);
  near(row.phase_s[BPPSA_PHASE_UPDATE], 2 * 4e-3 / 2);
  near(row.memory_bytes, 4 * (2 * 5 * 10 * 32 + 2 * 2));
  assert_int_equal(row.chunks, 2);
  assert_int_equal(row.limit, 2);
  assert_int_equal(row.cuts, 3);
  assert_true(row.cut[0] == 1 && row.cut[1] == 2 && row.cut[2] == 3);
  /* One stage a processor is 1F1B: 5 slots of 60 ms. */
  a.query.chunks = 1;
  row = row_of(&a, "interleaved", 2);
  assert_true(fabs(row.time_s - 2 * (0.3 + 2e-3)) < 1e-9);
  near(row.time_s, row_of(&a, "1f1b", 2).time_s);
  near(row.memory_bytes, row_of(&a, "1f1b", 2).memory_bytes);
  a.query.chunks = 2;
  /* Processors and micro-batches that there are no such schedules for. */
  row = row_of(&a, "interleaved", 3);
  assert_false(row.feasible);
  assert_string_equal(row.reason, "the model has 4 layers for 2 stages a processor");
  a.query.micro_batches = 3;
  row = row_of(&a, "interleaved", 2);
  assert_false(row.feasible);
  assert_non_null(strstr(row.reason, "micro-batches: 3 for interleaved, expected a multiple of the 2 stages"));
  a.query.micro_batches = 0; /* 4 p, at most the mini-batch, and a multiple of p */
  a.query.batch = 7;
  assert_int_equal(row_of(&a, "interleaved", 2).micro_batches, 6);
  assert_int_equal(row_of(&a, "1f1b", 2).micro_batches, 7);
  a.query.batch = 40;
  /* One micro-batch of 40 samples, 40 ms each for F, I and W. Layer 3's I ends after 5 * 40 ms, those of 2, 1 and 0 follow one by
   * one on processors in turn, which compute the W of the layer behind meanwhile; the last W takes 40 ms more. Both layers'
   * activations wait for their W. */
  a.query.micro_batches = 1;
  row = row_of(&a, "modulo", 2);
  assert_true(fabs(row.time_s - 2 * (9 * 0.04 + 2e-3)) < 1e-9);
  near(row.phase_s[BPPSA_PHASE_UPDATE], 2 * 4e-3 / 2);
  near(row.memory_bytes, 4 * (2 * 2 * 40 * 32 + 2 * 2));
  assert_true(row.cuts == 0 && row.chunks == 0);
  assert_int_equal(row.limit, 4);
  /* A message of 1 ms between all layers: three on the way down and three back, none behind the last W. */
  a.system.levels[0].own[BPPSA_OPERATION_STAGE_MESSAGE] = (bppsa_link){1e-3, 1e-18};
  assert_true(fabs(row_of(&a, "modulo", 2).time_s - 2 * (9 * 0.04 + 2e-3 + 6e-3)) < 1e-9);
  row = row_of(&a, "modulo", 5);
  assert_false(row.feasible);
  assert_string_equal(row.reason, "the model has 4 layers");
  bppsa_oracle_model_free(&a.model);
}

/* T = 8 steps over p = 2, D = 8, B = 4, S = 2; H = 3: states of 4/2 * 3 * 4 = 24 bytes. */
static void test_time(void **state) {
  (void)state;
  asked a = parse(
      "{\"name\": \"steps\", \"samples\": 8, \"layers\": [{\"name\": \"l\", \"kind\": \"recurrent\", \"in\": [2, 8],"
      " \"out\": [3, 8], \"w\": 15, \"product_flops\": 54, \"forward_s\": 1e-3, \"backward_s\": 2e-3, \"update_s\": 3e-3}]}",
      plain, 4);
  a.query.micro_batches = 2;
  /* 8 * 1e-3 / 2 + 8 * 2e-3 / 2 + 2 * 3e-3, and half of both passes for which a rank waits; two passes of two iterations of
   * (2 + 2 - 2)(1e-4 + 24e-6), and two allreduces of 2 (1e-4 + 15/2 * 4e-6). */
  bppsa_oracle_row row = row_of(&a, "time-bp", 2);
  check_waiting(&row, 0.004 + 0.008 + 0.006, 9.92e-4 + 5.2e-4, 0.002 + 0.004, 4 * (2 * 4 * 40 / 2.0 + 30), 8);
  /* Two ranks multiply nothing: in each of two iterations one walks through its steps, 4 * 2e-3 / 2, sends 48 bytes, and the other
   * walks, whatever the method. A 3 x 3 product is kept for each sample. */
  row = row_of(&a, "time-chunked", 2);
  check_waiting(&row, 0.004 + 2 * 0.008 + 0.006, 4.96e-4 + 2 * 1.48e-4 + 5.2e-4, 0.002, 4 * (160 + 30 + 36), 8);
  row = row_of(&a, "time-blelloch", 2);
  check_waiting(&row, 0.004 + 2 * 0.008 + 0.006, 4.96e-4 + 2 * 1.48e-4 + 5.2e-4, 0.002, 4 * (160 + 30 + 36), 8);
  /* Four ranks, two steps each: 8 * 1e-3 / 4 forward, and a wait of 3/2 of that. The first one walks for 4 * 2e-3 / 4, longer than
   * the others multiply 4 pairs of steps, 2 * 4 * 54 FLOP; then two products with vectors of 4 * 18 FLOP and three messages.
   * Other messages: two iterations of (4 + 2 - 2)(1e-4 + 24e-6), and two allreduces of 6 (1e-4 + 15/4 * 4e-6). */
  row = row_of(&a, "time-chunked", 4);
  near(row.compute_s, 0.002 + 2 * (0.002 + 0.002 + 2 * 72e-6) + 0.006);
  near(row.waiting_s, 0.003);
  near(row.communication_s, 2 * 4 * 1.24e-4 + 2 * 3 * 1.48e-4 + 2 * 6 * 1.15e-4);
  /* Two rounds: a matrix of 144 bytes, 2.44e-4, is sent while a gradient is applied and sent, 72e-6 + 1.48e-4, which is less: the
   * gradient waits. Then it is applied and sent once more. */
  row = row_of(&a, "time-blelloch", 4);
  near(row.compute_s, 0.002 + 2 * (0.004 + 72e-6) + 0.006);
  near(row.communication_s, 2 * 4 * 1.24e-4 + 2 * (2.44e-4 + 1.48e-4) + 2 * 6 * 1.15e-4);
  /* A measured product instead of 54 FLOP, 2 * 4 * 1e-3, is longer than the walk. */
  a.model.layers[0].product_s = 1e-3;
  near(row_of(&a, "time-chunked", 4).compute_s, 0.002 + 2 * (0.008 + 0.002 + 2 * 72e-6) + 0.006);
  /* A scan that takes 2e-3 longer than BP, a sample, walks twice as long, 0.004 and 0.004; one processor needs no scan. */
  a.model.layers[0].product_s = -1;
  a.model.layers[0].scan_s = 2e-3;
  near(row_of(&a, "time-chunked", 4).compute_s, 0.002 + 2 * (0.004 + 0.004 + 2 * 72e-6) + 0.006);
  near(row_of(&a, "time-chunked", 1).compute_s, 0.008 + 0.016 + 0.006);
  near(row_of(&a, "time-bp", 4).compute_s, 0.002 + 0.004 + 0.006);
  near(row_of(&a, "time-bp", 4).waiting_s, 0.003 + 0.006);
  a.model.layers[0].scan_s = -1;
  /* Measured products of full matrices and of vectors, of 4 samples with H = 3: 4 (1e-3 + 9 * 2e-5 + 27 * 1e-6) and 4 (1e-4 +
   * 3 * 4e-5 + 9 * 1e-5). The gradient now comes after the matrix. */
  a.model.layers[0].product_s = -1;
  a.system.products[BPPSA_PRODUCT_MATRICES] = (bppsa_oracle_product_cost){1e-3, 2e-5, 1e-6};
  a.system.products[BPPSA_PRODUCT_VECTOR] = (bppsa_oracle_product_cost){1e-4, 4e-5, 1e-5};
  const double full = 4.828e-3, apply = 1.24e-3;
  near(row_of(&a, "time-chunked", 4).compute_s, 0.002 + 2 * (0.004 + 2 * apply) + 0.006);
  row = row_of(&a, "time-blelloch", 4);
  near(row.compute_s, 0.002 + 2 * (0.004 + 2 * apply) + 0.006);
  near(row.communication_s, 2 * 4 * 1.24e-4 + 2 * 2 * 1.48e-4 + 2 * 6 * 1.15e-4);
  /* Eight ranks join two products once, after one matrix has been sent; three gradients are applied and sent. They slow each other
   * down like all that is computed, 3 times. 8 * 1e-3 / 8 forward, 4 * 2e-3 / 8 for a walk. */
  a.system.levels[0].processors = 8;
  a.system.levels[0].slowdown = 3;
  row = row_of(&a, "time-blelloch", 8);
  near(row.compute_s, 3 * (0.001 + 2 * (0.001 + 0.001 + full + 3 * apply) + 0.006));
  near(row.phase_s[BPPSA_PHASE_POINT_TO_POINT], 2 * 8 * 1.24e-4 + 2 * (2.44e-4 + 3 * 1.48e-4));
  row = row_of(&a, "filter", 2);
  assert_false(row.feasible);
  row = row_of(&a, "spatial", 2);
  assert_false(row.feasible);
  bppsa_oracle_model_free(&a.model);
}

static void test_collectives(void **state) {
  (void)state;
  const bppsa_link link = {2, 0.5};
  near(bppsa_point_to_point_s(link, 8), 6);
  near(bppsa_allgather_s(link, 4, 8), 3 * 6);
  near(bppsa_allreduce_s(BPPSA_COLLECTIVE_RING, link, 4, 8), 2 * 3 * (2 + 2 * 0.5));
  /* 64 bytes, p = 16: depth 4; (4 + k)(2 + 32/k) is least at k = sqrt(4 * 32/2) = 8. */
  near(bppsa_allreduce_s(BPPSA_COLLECTIVE_TREE, link, 16, 64), 2 * 12 * (2 + 32.0 / 8));
  /* Whole buffers, up four rounds and down four. */
  near(bppsa_allreduce_s(BPPSA_COLLECTIVE_ORDERED, link, 16, 64), 2 * 4 * (2 + 64 * 0.5));
  near(bppsa_allreduce_s(BPPSA_COLLECTIVE_ORDERED, link, 1, 64), 0);
  /* Rings win for large buffers, trees for small ones; one processor talks to nobody. */
  near(bppsa_allreduce_s(BPPSA_COLLECTIVE_AUTO, link, 16, 1e9), bppsa_allreduce_s(BPPSA_COLLECTIVE_RING, link, 16, 1e9));
  near(bppsa_allreduce_s(BPPSA_COLLECTIVE_AUTO, link, 16, 8), bppsa_allreduce_s(BPPSA_COLLECTIVE_TREE, link, 16, 8));
  near(bppsa_allreduce_s(BPPSA_COLLECTIVE_AUTO, link, 1, 8), 0);
  near(bppsa_allgather_s(link, 1, 8), 0);
  near(bppsa_reduce_scatter_s(link, 4, 8), 3 * (2 + 2 * 0.5));
  near(bppsa_reduce_scatter_s(link, 1, 8), 0);
}

/* All divisors, in order; those of 2^24 cost about 2 * 2^12 divisions, which two loops over all numbers would not. */
static void test_divisors(void **state) {
  (void)state;
  for (int64_t n = 1; n <= 400; ++n) {
    int64_t d = 0;
    for (int64_t k = 1; k <= n; ++k) {
      if (n % k == 0) {
        d = bppsa_oracle_next_divisor(n, d);
        assert_int_equal(d, k);
      }
    }
    assert_int_equal(bppsa_oracle_next_divisor(n, n), n + 1);
  }
  int64_t count = 0;
  for (int64_t d = 1; d <= (int64_t)1 << 24; d = bppsa_oracle_next_divisor((int64_t)1 << 24, d)) {
    ++count;
  }
  assert_int_equal(count, 25);
}

/* A link is as slow as the innermost level that joins all processors. */
static void test_levels(void **state) {
  (void)state;
  bppsa_oracle_system system;
  assert_int_equal(bppsa_oracle_system_open("paradl-v100", &system), BPPSA_OK);
  near(bppsa_oracle_system_level(&system, 4)->beta_s * 20e9, 1);
  near(bppsa_oracle_system_level(&system, 5)->beta_s * 25e9, 1);
  near(bppsa_oracle_system_level(&system, 68)->beta_s * 25e9, 1);
  near(bppsa_oracle_system_level(&system, 69)->beta_s * 25e9, 3); /* 1:3 oversubscription */
}

/* Section 5 of the paper. */
static void test_statements(void **state) {
  (void)state;
  /* CosmoFlow at 512^3 does not fit with one sample on a processor; it does where 4 share one, alone or beside other groups. */
  asked cosmoflow = named("cosmoflow512", "paradl-v100", 1);
  assert_false(row_of(&cosmoflow, "data", 4).feasible);
  cosmoflow.query.strong = true;
  assert_true(row_of(&cosmoflow, "spatial", 4).feasible);
  cosmoflow.query.batch = 16;
  assert_true(row_of(&cosmoflow, "data+spatial", 64).feasible);
  assert_false(row_of(&cosmoflow, "data+filter", 64).feasible);
  bppsa_oracle_model_free(&cosmoflow.model);
  /* Filter and channel parallelism stop at 64. */
  static const char *const models[] = {"vgg16", "resnet50"}, *const ways[] = {"filter", "channel"};
  for (size_t i = 0; i < 4; ++i) {
    asked a = named(models[i / 2], "paradl-v100", 32);
    assert_int_equal(row_of(&a, ways[i % 2], 64).limit, 64);
    assert_true(!isnan(row_of(&a, ways[i % 2], 64).time_s));
    assert_true(isnan(row_of(&a, ways[i % 2], 128).time_s));
    bppsa_oracle_model_free(&a.model);
  }
  /* Data + filter can beat data at scale: VGG-16, whose weights are many, with one sample a processor. */
  asked vgg16 = named("vgg16", "paradl-v100", 1024);
  vgg16.query.strong = true;
  assert_true(row_of(&vgg16, "data+filter", 64).time_s > row_of(&vgg16, "data", 64).time_s);
  assert_true(row_of(&vgg16, "data+filter", 1024).time_s < row_of(&vgg16, "data", 1024).time_s);
  bppsa_oracle_model_free(&vgg16.model);
}

/* Parameters as the papers of the models count them; ParaDL's rounded ones stand behind. */
static void test_parameters(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double parameters;
    int64_t layers;
  } models[] = {{"resnet50", 25557032, 174},   /* 25 M */
                {"resnet152", 60192808, 514},  /* 58 M */
                {"vgg16", 169814824, 38},      /* 169 M */
                {"vgg16-224", 138357544, 38},  /* */
                {"resnet18", 11689512, 68},
                {"mobilenetv2", 3504872, 152},
                {"resnet20", 272474, 72},
                {"cosmoflow256", 2226484, 20}, /* 2 M */
                {"cosmoflow512", 2226484, 20},
                {"lenet5", 62006, 11},
                {"vgg11", 9225610, 22},
                {"rnn", 20 * 21 + 40 + 210, 2},
                {"gru", 3 * (20 * 21 + 40) + 210, 2}};
  for (size_t i = 0; i < sizeof models / sizeof models[0]; ++i) {
    bppsa_oracle_model model;
    assert_int_equal(bppsa_oracle_model_open(models[i].name, &model), BPPSA_OK);
    near(bppsa_oracle_parameters(&model), models[i].parameters);
    assert_int_equal(model.count, models[i].layers);
    for (int64_t l = 1; l < model.count; ++l) { /* a chain, but for the projections of shortcuts */
      const bppsa_oracle_layer *before = &model.layers[l - 1], *layer = &model.layers[l];
      if (strstr(layer->name, "downsample.0") == NULL && before->kind != BPPSA_LAYER_RECURRENT) {
        near(layer->x, before->y);
      }
    }
    bppsa_oracle_model_free(&model);
  }
}

/* Every allocation fails in turn: nothing leaks, and the status is ERR_MEMORY. */
static void test_memory_runs_out(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    asked a = {.query = {.batch = 0}};
    bppsa_oracle_rows rows = {0};
    bppsa_text text = {0};
    bppsa_alloc_fail_at(call);
    status = bppsa_oracle_model_open("lenet5", &a.model);
    status = status == BPPSA_OK ? bppsa_oracle_system_open("h200x4", &a.system) : status;
    a.query = bppsa_oracle_query_default(&a.model, &a.system);
    status = status == BPPSA_OK ? bppsa_oracle_ask(&a.query, NULL, 1, 4, &rows) : status;
    status = status == BPPSA_OK ? bppsa_oracle_text_table(&a.query, &rows, &text) : status;
    status = status == BPPSA_OK ? bppsa_oracle_draw(&a.query, &rows, &text) : status;
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_MEMORY);
    bppsa_text_free(&text);
    bppsa_oracle_rows_free(&rows);
    bppsa_oracle_model_free(&a.model);
    assert_int_equal(bppsa_alloc_live(), before);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_basic_strategies),
                                     cmocka_unit_test(test_hybrid_strategies),
                                     cmocka_unit_test(test_pipeline),
                                     cmocka_unit_test(test_given_cut),
                                     cmocka_unit_test(test_simulated),
                                     cmocka_unit_test(test_several_stages),
                                     cmocka_unit_test(test_time),
                                     cmocka_unit_test(test_collectives),
                                     cmocka_unit_test(test_levels),
                                     cmocka_unit_test(test_divisors),
                                     cmocka_unit_test(test_statements),
                                     cmocka_unit_test(test_parameters),
                                     cmocka_unit_test(test_memory_runs_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

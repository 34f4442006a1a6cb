/* Data parallelism on ranks that are threads: the bits of every number of ranks, gradients against one rank, reverse first-k,
 * messages against the formulas of docs/ranks.md, values that are not finite, refusals. */
#include <math.h>
#include <stdlib.h>

#include "core/base/cut.h"
#include "tests/core/helpers.h"
#include "tests/distributed/ranked_run.h"
#include "train/ranks.h"

enum { STEPS = 50 };

/* ---- the same bits ---- */

static void same_bits(const char *name, bool convolutional, bool every_step) {
  static const int64_t ranks[] = {1, 2, 4, 8}, batches[] = {128, 256};
  bppsa_network network;
  assert_int_equal(bppsa_network_open(name, NULL, &network), BPPSA_OK);
  for (size_t b = 0; b < 2; ++b) {
    /* the last batch of an epoch has 37 samples: three blocks, of which the last is small */
    const int64_t samples = 2 * batches[b] + 37;
    bppsa_dataset *dataset = convolutional ? images(samples, network.layers.in, 5) : bits(samples, 7, every_step, every_step);
    ranked_run one = ranked(&network, dataset, BPPSA_F32, batches[b], STEPS);
    one.train.validation = 0.1;
    assert_trains(1, &one);
    assert_true(isfinite(one.losses[STEPS - 1]) && one.losses[0] != one.losses[STEPS - 1]);
    assert_true(one.result.last.has_validation);
    for (size_t r = 1; r < sizeof ranks / sizeof ranks[0]; ++r) {
      ranked_run many = ranked(&network, dataset, BPPSA_F32, batches[b], STEPS);
      many.train.validation = 0.1;
      assert_true(bppsa_data_parallel_same_bits(&many.parallel, (int32_t)ranks[r]) == (ranks[r] == 1));
      many.parallel.batch = batches[b];
      assert_true(bppsa_data_parallel_same_bits(&many.parallel, (int32_t)ranks[r]));
      assert_trains(ranks[r], &many);
      assert_same_run(&one, &many);
      assert_memory_equal(&one.result.last.validation_loss, &many.result.last.validation_loss, sizeof(double));
      assert_int_equal(one.result.redone, many.result.redone);
    }
    bppsa_dataset_destroy(dataset);
  }
  bppsa_network_close(&network);
}

static void rnn_has_the_same_bits(void **state) {
  (void)state;
  same_bits("rnn", false, true);
}

static void gru_has_the_same_bits(void **state) {
  (void)state;
  same_bits("gru", false, false);
}

static void network_has_the_same_bits(void **state) {
  (void)state;
  put_file("ranked.json", small_network, strlen(small_network));
  same_bits("ranked.json", true, false);
}

/* bench/scripts/rank_bits.py does 50 steps, and VGG-11. */
static void lenet5_has_the_same_bits(void **state) {
  (void)state;
  bppsa_network network;
  assert_int_equal(bppsa_network_open("lenet5", NULL, &network), BPPSA_OK);
  bppsa_dataset *dataset = images(165, network.layers.in, 10); /* the second batch has 37 */
  ranked_run one = ranked(&network, dataset, BPPSA_F32, 128, 2);
  const ranked_run request = one;
  assert_trains(1, &one);
  for (int64_t ranks = 2; ranks <= 8; ranks *= 2) {
    ranked_run many = request;
    assert_trains(ranks, &many);
    assert_same_run(&one, &many);
  }
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
}

/* Blocks of fewer than 16 samples, the library's sums, and a scan: the same bits twice. */
static void twice_the_same_bits(void **state) {
  (void)state;
  static const struct {
    int64_t ranks, batch;
    bppsa_reduction reduction;
    bool scan;
  } cases[] = {{5, 9, BPPSA_REDUCTION_ORDERED, false},
               {3, 40, BPPSA_REDUCTION_LIBRARY, false},
               {8, 9, BPPSA_REDUCTION_LIBRARY, false},
               {2, 48, BPPSA_REDUCTION_ORDERED, true}};
  bppsa_network network;
  assert_int_equal(bppsa_network_open("gru", NULL, &network), BPPSA_OK);
  bppsa_dataset *dataset = bits(101, 9, true, true);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    ranked_run first = ranked(&network, dataset, BPPSA_F32, cases[i].batch, 20);
    first.parallel.reduction = cases[i].reduction;
    if (cases[i].scan) {
      first.config.method = (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, bppsa_scan_method_of(BPPSA_SCAN_BLELLOCH)};
    }
    ranked_run second = first;
    assert_trains(cases[i].ranks, &first);
    assert_trains(cases[i].ranks, &second);
    assert_same_run(&first, &second);
    assert_true(isfinite(first.losses[19]));
  }
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
}

/* ---- against one rank ---- */

/* The sums of a step, and its gradients before the update: plain training's, and those of ranks. */
static void matches_one_rank(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int64_t batch;
    bool every_step, ignores;
  } cases[] = {{"rnn", 37, false, false}, {"gru", 9, true, false}, {"rnn", 50, true, true}, {"ranked.json", 37, false, false}};
  static const int64_t ranks[] = {1, 2, 3, 8};
  put_file("ranked.json", small_network, strlen(small_network));
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_network network;
    assert_int_equal(bppsa_network_open(cases[i].name, NULL, &network), BPPSA_OK);
    bppsa_dataset *dataset =
        network.kind->family->steps ? bits(80, 11, cases[i].every_step, cases[i].ignores) : images(80, network.layers.in, 5);
    ranked_run plain = ranked(&network, dataset, BPPSA_F64, cases[i].batch, 5);
    plain.alone = true;
    /* SGD: the weights are sums of gradients, so a residual of theirs is one of the gradients */
    plain.train.optimizer = (bppsa_optimizer_config){.kind = BPPSA_SGD, .lr = 0.5};
    plain.train.clip_norm = 0;
    assert_trains(1, &plain);
    for (size_t r = 0; r < 2 * sizeof ranks / sizeof ranks[0]; ++r) {
      ranked_run many = ranked(&network, dataset, BPPSA_F64, cases[i].batch, 5);
      many.train = plain.train;
      many.parallel.reduction = r % 2 == 0 ? BPPSA_REDUCTION_ORDERED : BPPSA_REDUCTION_LIBRARY;
      assert_trains(ranks[r / 2], &many);
      const double k = sqrt((double)cases[i].batch * (double)dataset->seq_len);
      const int64_t count = plain.bytes / (int64_t)sizeof(double);
      assert_true(residual(BPPSA_F64, many.values, (const double *)(const void *)plain.values, count, k) < 30);
      assert_true(residual(BPPSA_F64, many.losses, plain.losses, 5, k) < 30);
      assert_true(many.result.last.accuracy == plain.result.last.accuracy);
    }
    bppsa_dataset_destroy(dataset);
    bppsa_network_close(&network);
  }
}

/* ---- reverse first-k ---- */

/* A listener that writes down the order of the parameters. */
typedef struct {
  int64_t order[16], count;
} heard;

static void hear(void *context, int64_t first, int64_t count) {
  heard *h = context;
  for (int64_t p = first; p < first + count; ++p) {
    h->order[h->count++] = p;
  }
}

static void delays_the_first_layers(void **state) {
  (void)state;
  /* parameters: conv1's 0 and 1, conv2's 2, fc's 3 and 4 */
  static const struct {
    int64_t k, delayed, order[5];
  } cases[] = {{-1, 0, {3, 4, 2, 0, 1}},
               {0, 0, {3, 4, 2, 0, 1}},
               {1, 2, {3, 4, 2, 0, 1}},
               {2, 3, {3, 4, 0, 1, 2}},
               {9, 3, {3, 4, 0, 1, 2}}};
  put_file("ranked.json", small_network, strlen(small_network));
  bppsa_network network;
  assert_int_equal(bppsa_network_open("ranked.json", NULL, &network), BPPSA_OK);
  bppsa_device *device = cpu_device(1);
  bppsa_network_config config = bppsa_network_config_default(&network);
  config.batch = 3;
  config.delayed = INT64_MAX;
  bppsa_model *model = NULL;
  assert_int_equal(bppsa_network_create(&network, &config, device, &model), BPPSA_OK);
  assert_int_equal(bppsa_network_init(&network, model, BPPSA_INIT_DEFAULT, 1), BPPSA_OK);
  float x[3 * 72], seed[15];
  for (int i = 0; i < 3 * 72; ++i) {
    x[i] = (float)(i % 7) - 3;
  }
  for (int i = 0; i < 15; ++i) {
    seed[i] = (float)(i % 3) - 1;
  }
  const bppsa_view x_view = bppsa_view_make(x, BPPSA_F32, 4, (int64_t[]){3, 2, 6, 6});
  const bppsa_view seed_view = bppsa_view_make(seed, BPPSA_F32, 2, (int64_t[]){3, 5});
  bppsa_view logits;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    heard h = {.count = 0};
    bppsa_delayed delayed;
    assert_int_equal(bppsa_model_delay(model, cases[i].k, &delayed), BPPSA_OK);
    assert_int_equal(delayed.parameters, cases[i].delayed);
    assert_int_equal(delayed.layers, cases[i].k < 0 ? 0 : cases[i].k > 2 ? 2 : cases[i].k);
    assert_int_equal(delayed.possible, 2);
    model->listener = (bppsa_gradient_listener){hear, &h};
    assert_int_equal(model->ops->forward(model, &x_view, NULL, &logits), BPPSA_OK);
    assert_int_equal(model->ops->backward(model, &seed_view), BPPSA_OK);
    assert_int_equal(h.count, 5);
    assert_memory_equal(h.order, cases[i].order, sizeof cases[i].order);
  }
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  bppsa_network_close(&network);
}

static void note_k(bppsa_comm *comm, bppsa_data_parallel *dp, void *context) {
  int64_t *k = context;
  k[bppsa_comm_rank(comm)] = bppsa_data_parallel_reverse_first(dp);
}

static void reverse_first_changes_no_bit(void **state) {
  (void)state;
  put_file("ranked.json", small_network, strlen(small_network));
  bppsa_network network;
  assert_int_equal(bppsa_network_open("ranked.json", NULL, &network), BPPSA_OK);
  bppsa_dataset *dataset = images(128, network.layers.in, 5);
  for (int reduction = 0; reduction < 2; ++reduction) {
    ranked_run in_order = ranked(&network, dataset, BPPSA_F32, 64, 20);
    in_order.parallel.reduction = (bppsa_reduction)reduction;
    assert_trains(3, &in_order);
    for (int64_t k = -1; k <= 3; ++k) { /* -1: measured within the first 9 steps */
      int64_t found[3] = {-2, -2, -2};
      ranked_run reversed = ranked(&network, dataset, BPPSA_F32, 64, 20);
      reversed.parallel.reduction = (bppsa_reduction)reduction;
      reversed.parallel.reverse_first = k;
      reversed.done = note_k;
      reversed.context = found;
      assert_trains(3, &reversed);
      assert_same_run(&in_order, &reversed);
      assert_true(found[0] >= 0 && found[0] <= 2 && found[1] == found[0] && found[2] == found[0]);
      assert_true(k < 0 || found[0] == (k < 2 ? k : 2)); /* so many layers have weights, besides the head */
    }
  }
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
}

/* A limit of one rank's memory is one for all of them, for a given k and for a measured one. */
static void reverse_first_fits_every_rank(void **state) {
  (void)state;
  put_file("ranked.json", small_network, strlen(small_network));
  bppsa_network network;
  assert_int_equal(bppsa_network_open("ranked.json", NULL, &network), BPPSA_OK);
  bppsa_dataset *dataset = images(128, network.layers.in, 5);
  ranked_run in_order = ranked(&network, dataset, BPPSA_F32, 64, 12);
  in_order.config.method.backward = BPPSA_BACKWARD_BP;
  bppsa_device *device = cpu_device(1);
  bppsa_network_config config = in_order.config;
  bppsa_model *model = NULL;
  config.batch = 16;
  config.memory_limit = 1;
  assert_int_equal(bppsa_network_create(&network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  const char *needs = strstr(bppsa_last_error(), "needs at least ");
  assert_non_null(needs);
  const int64_t least = strtoll(needs + strlen("needs at least "), NULL, 10);
  bppsa_device_destroy(device);
  assert_trains(3, &in_order);
  for (int64_t k = -1; k <= 2; k += 3) {
    int64_t found[3] = {-2, -2, -2};
    ranked_run reversed = ranked(&network, dataset, BPPSA_F32, 64, 12);
    reversed.config = in_order.config;
    reversed.parallel.reverse_first = k;
    reversed.rank1_limit = least + 1; /* conv1's gradient is needed last in any order, conv2's is not */
    reversed.done = note_k;
    reversed.context = found;
    assert_trains(3, &reversed);
    assert_same_run(&in_order, &reversed);
    assert_true(found[0] >= 0 && found[0] <= 1 && found[1] == found[0] && found[2] == found[0]);
    assert_true(k < 0 || found[0] == 1);
  }
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
}

/* Only full batches are compared: with 100 samples every second batch is smaller, and 9 steps with k = 0 .. 2 need 17. */
static void measures_full_batches(void **state) {
  (void)state;
  put_file("ranked.json", small_network, strlen(small_network));
  bppsa_network network;
  assert_int_equal(bppsa_network_open("ranked.json", NULL, &network), BPPSA_OK);
  bppsa_dataset *dataset = images(100, network.layers.in, 5);
  for (int64_t steps = 16; steps <= 17; ++steps) {
    int64_t found = -2;
    ranked_run run = ranked(&network, dataset, BPPSA_F32, 64, steps);
    run.parallel.reverse_first = -1;
    run.done = note_k;
    run.context = &found;
    assert_trains(1, &run);
    assert_true(steps < 17 ? found == -1 : found >= 0);
  }
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
}

/* ---- messages ---- */

/* Of each rank. */
typedef struct {
  int64_t messages, bytes, collectives, buckets;
} sent;

static void count_messages(bppsa_comm *comm, bppsa_data_parallel *dp, void *context) {
  bppsa_comm_counters counters;
  bppsa_comm_get_counters(comm, &counters);
  ((sent *)context)[bppsa_comm_rank(comm)] =
      (sent){counters.messages_sent, counters.bytes_sent, counters.collectives, bppsa_data_parallel_buckets(dp)};
}

/* Nodes of the tree over so many blocks whose halves begin on different ranks; ranks hold neighbouring blocks, the first ranks
 * one more than the others (docs/ranks.md). */
static int64_t nodes_between(int64_t blocks, int64_t ranks) {
  int64_t nodes = 0;
  for (int64_t half = 1; half < blocks; half *= 2) {
    for (int64_t left = 0; left + half < blocks; left += 2 * half) {
      nodes += bppsa_cut_part(blocks, ranks, left) != bppsa_cut_part(blocks, ranks, left + half) ? 1 : 0;
    }
  }
  return nodes;
}

/* A run of so many blocks of 16 samples on p ranks: the messages, bytes and collective operations of all steps. */
static void check_messages(const bppsa_network *network, int64_t ranks, int64_t blocks, bool ordered) {
  enum { RUN_STEPS = 3, TENSORS = 10, MOST = 33 };
  sent found[MOST] = {0};
  bppsa_dataset *dataset = bits(16 * blocks, 3, false, false);
  ranked_run run = ranked(network, dataset, BPPSA_F32, 16 * blocks, RUN_STEPS);
  run.parallel.reduction = ordered ? BPPSA_REDUCTION_ORDERED : BPPSA_REDUCTION_LIBRARY;
  run.done = count_messages;
  run.context = found;
  assert_trains(ranks, &run);
  const int64_t buckets = found[0].buckets, nodes = ordered ? nodes_between(blocks, ranks) : 0;
  assert_true(buckets > 2);
  assert_true(!ordered || blocks != ranks || nodes == ranks - 1);
  int64_t messages = 0, bytes = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    messages += found[r].messages;
    bytes += found[r].bytes;
    assert_int_equal(found[r].buckets, buckets);
    /* a broadcast, or the library's sum, for each bucket and the numbers; the agreement, in each step but the last; the weights at
     * the start; the barrier of the test */
    assert_int_equal(found[r].collectives, RUN_STEPS * (buckets + 1) + RUN_STEPS - 1 + TENSORS + 1);
  }
  assert_int_equal(messages, RUN_STEPS * (buckets + 1) * nodes);
  assert_int_equal(bytes, RUN_STEPS * nodes * (run.bytes + (int64_t)sizeof(bppsa_data_parallel_sums)));
  bppsa_dataset_destroy(dataset);
}

/* Every number of ranks up to 33: a block each, two each, and ranks with more blocks than others. */
static void sends_what_the_formulas_say(void **state) {
  (void)state;
  bppsa_network network;
  assert_int_equal(bppsa_network_open("gru", NULL, &network), BPPSA_OK);
  for (int64_t ranks = 1; ranks <= 33; ++ranks) {
    check_messages(&network, ranks, ranks, true);
    check_messages(&network, ranks, ranks % 2 == 0 ? 2 * ranks : ranks + ranks / 2, true);
  }
  assert_int_equal(nodes_between(8, 4), 3);
  assert_int_equal(nodes_between(3, 2), 1);
  check_messages(&network, 5, 5, false);
  bppsa_network_close(&network);
}

/* ---- what goes wrong ---- */

#define assert_says(words)                                                                                                       \
  do {                                                                                                                           \
    if (strstr(bppsa_last_error(), words) == NULL) {                                                                             \
      fail_msg("the last error is \"%s\", expected \"%s\" in it", bppsa_last_error(), words);                                    \
    }                                                                                                                            \
  } while (0)

/* Trains with ReLU units at a learning rate that explodes, plain or on ranks, which fails; *words: the error from `from` on. */
static void explode(ranked_run *run, bool alone, int64_t ranks, double lr, const char *from, char words[600]) {
  run->alone = alone;
  run->config.steps.nonlinearity = BPPSA_NONLINEARITY_RELU;
  run->train.optimizer = (bppsa_optimizer_config){.kind = BPPSA_SGD, .lr = lr};
  run->train.clip_norm = 0;
  assert_int_equal(train_on(ranks, 60, run, NULL), BPPSA_ERR_NUMERIC);
  const char *found = strstr(bppsa_last_error(), from);
  assert_non_null(found);
  snprintf(words, 600, "%s", found);
}

/* Both ways of training say the same about the value that is not finite: the sample of the whole batch, and its index. */
static void finds_what_is_not_finite(void **state) {
  (void)state;
  bppsa_network network;
  assert_int_equal(bppsa_network_open("rnn", NULL, &network), BPPSA_OK);
  bppsa_dataset *dataset = bits(64, 30, false, false);
  char words[2][600];
  for (int alone = 0; alone < 2; ++alone) {
    ranked_run run = ranked(&network, dataset, BPPSA_F32, 64, 40);
    explode(&run, alone == 1, alone ? 1 : 4, 1e6, "training step", words[alone]);
  }
  assert_string_equal(words[0], words[1]);
  assert_says("(data set index");
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
}

/* An evaluation says the same about its samples, whatever part of a batch its buffers held before. */
static void finds_what_is_not_finite_in_an_evaluation(void **state) {
  (void)state;
  bppsa_network network;
  assert_int_equal(bppsa_network_open("rnn", NULL, &network), BPPSA_OK);
  bppsa_dataset *dataset = bits(64, 30, false, false);
  char words[2][600];
  for (int alone = 0; alone < 2; ++alone) {
    ranked_run run = ranked(&network, dataset, BPPSA_F32, 32, 0);
    run.train.epochs = 1;
    run.train.validation = 0.5;
    explode(&run, alone == 1, 1, 1e30, "non-finite", words[alone]);
    assert_says("evaluation of samples 32 .. ");
  }
  assert_string_equal(words[0], words[1]);
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
}

static bool stop_on_one(void *context) {
  int64_t *asked = context;
  return ++*asked == 3; /* the ranks count together: only one of them gets true */
}

static bppsa_status stop_body(bppsa_comm *comm, void *context) {
  ranked_run *run = context;
  static int64_t asked[4];
  bppsa_network_config config = run->config;
  config.batch = bppsa_data_parallel_block(&run->parallel, bppsa_comm_size(comm));
  bppsa_model *model = NULL;
  bppsa_data_parallel *dp = NULL;
  const int32_t rank = bppsa_comm_rank(comm);
  asked[rank] = rank == 1 ? 0 : -1000; /* only rank 1 is asked to stop */
  const bppsa_train_callbacks callbacks = {.context = &asked[rank], .stop = stop_on_one};
  bppsa_train_config train = run->train;
  train.reduction = "test";
  bppsa_train_result result = {0};
  bppsa_device *device = NULL;
  bppsa_status status = bppsa_device_create("cpu", 1, &device);
  status = status == BPPSA_OK ? bppsa_network_create(run->network, &config, device, &model) : status;
  status = status == BPPSA_OK ? bppsa_network_init(run->network, model, BPPSA_INIT_DEFAULT, 0) : status;
  status = status == BPPSA_OK ? bppsa_data_parallel_create(comm, model, &run->parallel, &dp) : status;
  if (status == BPPSA_OK) {
    train.ranks = bppsa_data_parallel_ranks(dp);
    status = bppsa_train(&train, model, run->dataset, device, &callbacks, &result);
  }
  bppsa_data_parallel_destroy(dp);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  BPPSA_TRY(status);
  CHECK(result.stopped && result.steps == 3);
  return BPPSA_OK;
}

static void all_ranks_stop_where_one_is_asked_to(void **state) {
  (void)state;
  bppsa_network network;
  assert_int_equal(bppsa_network_open("rnn", NULL, &network), BPPSA_OK);
  bppsa_dataset *dataset = bits(64, 4, false, false);
  ranked_run run = ranked(&network, dataset, BPPSA_F32, 64, 40);
  run.parallel.batch = 64;
  bppsa_comm_config config = bppsa_comm_config_default();
  config.ranks = 4;
  if (bppsa_comm_run(&config, stop_body, &run, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
}

static bppsa_status no_block(void *context, int64_t first, int64_t count, bppsa_data_parallel_sums *sums) {
  (void)context, (void)first, (void)count, (void)sums;
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "a block of no batch");
}

static void compute_nothing(bppsa_comm *comm, bppsa_data_parallel *dp, void *context) {
  bppsa_data_parallel_sums sums;
  const bppsa_status status = bppsa_data_parallel_compute(dp, 0, no_block, NULL, &sums);
  if (bppsa_comm_rank(comm) == 0) {
    snprintf(context, 200, "%s: %s", bppsa_status_name(status), bppsa_last_error());
  }
}

static void refused(void **state) {
  (void)state;
  bppsa_network network;
  assert_int_equal(bppsa_network_open("rnn", NULL, &network), BPPSA_OK);
  bppsa_dataset *dataset = bits(32, 4, false, false);
  ranked_run run = ranked(&network, dataset, BPPSA_F32, 3, 2);
  assert_int_equal(train_on(4, 60, &run, NULL), BPPSA_ERR_ARGUMENT);
  assert_says("ranks: 4, more than the 3 samples of a batch, expected at most that many");
  run = ranked(&network, dataset, BPPSA_F32, 8, 2);
  run.parallel.reverse_first = 1;
  assert_int_equal(train_on(2, 60, &run, NULL), BPPSA_ERR_UNSUPPORTED);
  assert_says("its weight gradients cannot be put off");
  run.parallel.reverse_first = -2;
  assert_int_equal(train_on(2, 60, &run, NULL), BPPSA_ERR_ARGUMENT);
  run.parallel = bppsa_data_parallel_config_default();
  run.parallel.bucket_bytes = 0;
  assert_int_equal(train_on(2, 60, &run, NULL), BPPSA_ERR_ARGUMENT);
  assert_says("buckets of 0 bytes");
  run.parallel = bppsa_data_parallel_config_default();
  run.parallel.bucket_bytes = 1;
  run.parallel.tag = BPPSA_COMM_MAX_TAG - 5;
  assert_int_equal(train_on(2, 60, &run, NULL), BPPSA_ERR_ARGUMENT);
  assert_says("expected tags up to 32767");
  run = ranked(&network, dataset, BPPSA_F32, 8, 2);
  run.config.steps.forward = (bppsa_forward_method){.kind = BPPSA_FORWARD_SPECULATIVE, .chunks = 2, .warm_up = 1, .rounds = 1};
  assert_int_equal(train_on(2, 60, &run, NULL), BPPSA_ERR_UNSUPPORTED);
  assert_says("speculative forward passes of parts of a batch");
  char words[200] = "";
  run = ranked(&network, dataset, BPPSA_F32, 8, 2);
  run.done = compute_nothing;
  run.context = words;
  assert_int_equal(train_on(2, 60, &run, NULL), BPPSA_OK);
  assert_non_null(strstr(words, "data parallelism: a batch of 0 samples, expected 1 .. 8"));
  bppsa_dataset_destroy(dataset);
  bppsa_network_close(&network);
}

static void blocks_and_words(void **state) {
  (void)state;
  static const struct {
    int64_t batch;
    int32_t ranks;
    bppsa_reduction reduction;
    int64_t block;
    const char *text;
  } cases[] = {{256, 8, BPPSA_REDUCTION_ORDERED, 16, "a tree over blocks of 16 samples"},
               {100, 7, BPPSA_REDUCTION_ORDERED, 16, "a tree over blocks of 16 samples"},
               {100, 8, BPPSA_REDUCTION_ORDERED, 13, "a tree over blocks of 13 samples"},
               {3, 1, BPPSA_REDUCTION_ORDERED, 16, "a tree over blocks of 16 samples"},
               {16, 2, BPPSA_REDUCTION_ORDERED, 8, "a tree over blocks of 8 samples"},
               {10, 3, BPPSA_REDUCTION_LIBRARY, 4, "the allreduce of threads over 3 ranks"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    char text[BPPSA_DATA_PARALLEL_TEXT];
    bppsa_data_parallel_config config = bppsa_data_parallel_config_default();
    config.batch = cases[i].batch;
    config.reduction = cases[i].reduction;
    assert_int_equal(bppsa_data_parallel_block(&config, cases[i].ranks), cases[i].block);
    assert_int_equal(bppsa_data_parallel_same_bits(&config, cases[i].ranks), cases[i].block == 16);
    for (int64_t count = 1; count <= cases[i].batch; ++count) { /* shares of whole blocks, or of the library's cut */
      const int32_t ranks = cases[i].ranks;
      int64_t before = 0;
      assert_int_equal(bppsa_data_parallel_first(&config, cases[i].block, ranks, 0, count), 0);
      assert_int_equal(bppsa_data_parallel_first(&config, cases[i].block, ranks, ranks, count), count);
      for (int64_t r = 1; r <= ranks; ++r) {
        const int64_t first = bppsa_data_parallel_first(&config, cases[i].block, ranks, r, count);
        assert_true(first >= before);
        assert_true(config.reduction == BPPSA_REDUCTION_LIBRARY || first % cases[i].block == 0 || first == count);
        before = first;
      }
    }
    assert_string_equal(bppsa_data_parallel_text(&config, BPPSA_COMM_THREADS, cases[i].ranks, text, sizeof text), cases[i].text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rnn_has_the_same_bits),
                                     cmocka_unit_test(gru_has_the_same_bits),
                                     cmocka_unit_test(network_has_the_same_bits),
                                     cmocka_unit_test(lenet5_has_the_same_bits),
                                     cmocka_unit_test(twice_the_same_bits),
                                     cmocka_unit_test(matches_one_rank),
                                     cmocka_unit_test(delays_the_first_layers),
                                     cmocka_unit_test(reverse_first_changes_no_bit),
                                     cmocka_unit_test(reverse_first_fits_every_rank),
                                     cmocka_unit_test(measures_full_batches),
                                     cmocka_unit_test(sends_what_the_formulas_say),
                                     cmocka_unit_test(finds_what_is_not_finite),
                                     cmocka_unit_test(finds_what_is_not_finite_in_an_evaluation),
                                     cmocka_unit_test(all_ranks_stop_where_one_is_asked_to),
                                     cmocka_unit_test(refused),
                                     cmocka_unit_test(blocks_and_words)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

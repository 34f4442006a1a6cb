/* Pipelines of recurrent layers on ranks with GPUs, of which they share some or have one each: synchronous schemes against one rank
 * with the same micro-batches on the same device, bit for bit; asynchronous ones against fewer ranks; all against a processor. The
 * device is BPPSA_TEST_DEVICE; on a processor the same cases run there. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "core/compute/memory.h"
#include "distributed/pipeline/pipeline.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/chain.h"
#include "rnn/rnn.h"
#include "tests/comm/cases.h"
#include "tests/core/helpers.h"
#include "tests/support/gpus.h"
#include "train/loss.h"

enum { T = 5, I = 2, H = 4, C = 3, LAYERS = 3, SAMPLES = 2, MOST = 32, VALUES = 1024 };

static int32_t gpus; /* 0: the ranks compute on processors */
static bool nccl;

typedef struct {
  const char *scheme;
  bppsa_schedule_config list;
  int64_t ranks, runs, fail_at; /* fail_at: the pipeline is made, and cannot have memory from this allocation on */
  const bppsa_cell *cell;
  bool all, cpu, over_nccl, unrecorded, judged;
  /* written by rank 0 */
  int64_t updates, count, recordings, launches;
  double losses[MOST], values[VALUES];
} job;

/* ---- data, made on the host ---- */

typedef struct {
  const job *j;
  const bppsa_device *device;
  int64_t samples;
  int64_t rows; /* that a queued loss has counted */
  double loss;
} problem;

static bppsa_status fill_input(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *x) {
  const problem *p = context;
  const int64_t count = T * p->samples * I, first = (micro->update * micro->blocks + micro->block) * count;
  double values[T * SAMPLES * I];
  CHECK(bppsa_view_count(x) == count && x->device == (p->device != NULL ? BPPSA_CUDA : BPPSA_CPU));
  for (int64_t i = 0; i < count; ++i) {
    values[i] = bppsa_random_double(3, 1, (uint64_t)(first + i)) - 0.5;
  }
  return bppsa_memory_put(p->device, x->data, values, count * (int64_t)sizeof *values);
}

static bppsa_status fill_labels(void *context, const bppsa_pipeline_micro *micro, int64_t *labels) {
  const problem *p = context;
  const int64_t rows = p->samples * (p->j->all ? T : 1);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = (micro->update * micro->blocks + micro->block) * rows + i;
    labels[i] = (int64_t)bppsa_random_below(3, 2, (uint64_t)row, C);
  }
  return BPPSA_OK;
}

static bppsa_status find_loss(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *logits, const bppsa_view *seed,
                              double *loss) {
  const problem *p = context;
  const int64_t rows = p->samples * (p->j->all ? T : 1), shape[] = {T, p->samples, C}, skip = p->j->all ? 0 : 1;
  int64_t labels[T * SAMPLES];
  bppsa_loss_result result;
  BPPSA_TRY(fill_labels(context, micro, labels));
  bppsa_view outputs = bppsa_view_make(logits->data, BPPSA_F64, (int32_t)(3 - skip), shape + skip), gradient = outputs;
  gradient.data = seed->data;
  outputs.device = gradient.device = logits->device;
  const bppsa_loss_rows about = {.labels = labels, .mean_rows = rows * micro->blocks};
  BPPSA_TRY(bppsa_loss_part(p->device, &outputs, &about, &gradient, &result));
  *loss = result.loss;
  return BPPSA_OK;
}

static void count_rows(void *context, const bppsa_pipeline_micro *micro, const bppsa_loss_result *result) {
  problem *p = context;
  (void)micro;
  p->rows += result->rows;
  p->loss += result->loss;
}

/* ---- a rank ---- */

static bppsa_status train(bppsa_comm *comm, job *j, bppsa_chain *chain) {
  problem about = {.j = j, .device = chain->device, .samples = SAMPLES};
  const bppsa_pipeline_data data = {.context = &about,
                                    .input = fill_input,
                                    .loss = find_loss,
                                    .classes = j->judged ? C : 0,
                                    .labels = j->judged ? fill_labels : NULL,
                                    .judged = j->judged ? count_rows : NULL};
  bppsa_pipeline_config config = {.samples = SAMPLES, .optimizer = bppsa_optimizer_config_default(), .unrecorded = j->unrecorded};
  bppsa_schedule *list = NULL;
  bppsa_pipeline *p = NULL;
  double values[VALUES], losses[MOST];
  bppsa_view views[LAYERS * 4 + 2];
  int64_t count = 0;
  j->list.layers = chain->layers;
  for (int64_t i = 0; i < chain->parameter_count; ++i) {
    views[i] = chain->parameters[i].value;
    views[i].data = values + count;
    count += bppsa_view_count(&views[i]);
    CHECK(count <= VALUES);
  }
  for (int64_t i = 0; i < count; ++i) {
    values[i] = bppsa_random_double(7, 4, (uint64_t)i) - 0.5;
  }
  config.optimizer.kind = BPPSA_SGD;
  config.optimizer.lr = 0.1;
  config.optimizer.momentum = 0.5;
  BPPSA_TRY(bppsa_schedule_create(j->scheme, &j->list, &list));
  config.schedule = list;
  about.samples = SAMPLES / bppsa_pipeline_parts(list);
  bppsa_alloc_fail_at(j->fail_at);
  bppsa_status status = bppsa_pipeline_create(comm, chain, &config, views, &p);
  bppsa_alloc_fail_at(0);
  const int64_t updates = status == BPPSA_OK ? bppsa_pipeline_updates(p) : 0;
  for (int64_t run = 0; status == BPPSA_OK && run < j->runs; ++run) {
    status = bppsa_pipeline_run(p, &data, losses + run * updates);
  }
  if (status == BPPSA_OK && j->judged && chain->device != NULL && bppsa_comm_size(comm) == 1) {
    double all = 0;
    for (int64_t i = 0; i < updates * j->runs; ++i) {
      all += losses[i];
    }
    CHECK(about.rows % (about.samples * (j->all ? T : 1)) == 0 && about.rows > 0);
    CHECK(fabs(all - about.loss) <= 1e-12 * all);
  }
  status = status == BPPSA_OK ? bppsa_pipeline_collect(p, views, NULL) : status;
  if (status == BPPSA_OK && bppsa_comm_rank(comm) == 0) {
    j->updates = updates * j->runs;
    bppsa_pipeline_recordings(p, &j->recordings, &j->launches);
    j->count = count;
    memcpy(j->losses, losses, (size_t)j->updates * sizeof *losses);
    memcpy(j->values, values, (size_t)count * sizeof *values);
  }
  bppsa_pipeline_destroy(p);
  bppsa_schedule_destroy(list);
  return status;
}

static bppsa_status run_rank(bppsa_comm *comm, void *context) {
  job *shared = context, mine = *shared; /* every rank fills in its own */
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  bppsa_device *device = NULL;
  bppsa_chain *chain = NULL;
  bppsa_comm *over = NULL;
  char name[32] = "cpu";
  config.seq_len = T;
  config.batch = SAMPLES;
  config.input = I;
  config.hidden = H;
  config.classes = C;
  config.layers = LAYERS;
  config.loss_all = mine.all;
  config.dtype = BPPSA_F64;
  if (gpus > 0 && !mine.cpu) {
    snprintf(name, sizeof name, "cuda:%d", (int)bppsa_comm_rank(comm) % (int)gpus);
  }
  bppsa_status status = bppsa_device_create(name, 1, &device);
  if (status == BPPSA_OK) {
    bppsa_comm_set_device(comm, device);
    status = bppsa_recurrent_chain_create(&config, mine.cell, device, &chain);
  }
  status = status == BPPSA_OK && mine.over_nccl ? bppsa_comm_create_nccl(comm, device, &over) : status;
  status = status == BPPSA_OK ? train(over != NULL ? over : comm, &mine, chain) : status;
  if (status == BPPSA_OK && bppsa_comm_rank(comm) == 0) {
    *shared = mine;
  }
  bppsa_comm_destroy(over);
  bppsa_chain_destroy(chain);
  bppsa_comm_set_device(comm, NULL);
  bppsa_device_destroy(device);
  return status;
}

static void run_job(job *j) {
  const bppsa_comm_config comm = {.ranks = j->ranks, .timeout = 60};
  const int64_t live = bppsa_alloc_live();
  if (bppsa_comm_run(&comm, run_rank, j, NULL) != BPPSA_OK) {
    fail_msg("%s on %d ranks: %s", j->scheme, (int)j->ranks, bppsa_last_error());
  }
  assert_int_equal(bppsa_alloc_live(), live);
}

/* ---- cases ---- */

typedef struct {
  const char *scheme;
  int64_t stages, micro_batches, ranks, iterations;
  bppsa_schedule_scale scale;
  bppsa_schedule_split split;
  bool recompute;
  const bppsa_cell *cell;
  bool all;
} shape;

static job make_job(const shape *s) {
  job j = {
      .scheme = s->scheme, .list = bppsa_schedule_config_default(), .ranks = s->ranks, .runs = 2, .cell = s->cell, .all = s->all};
  j.list.stages = s->stages;
  j.list.micro_batches = s->micro_batches;
  j.list.iterations = s->iterations;
  j.list.scale = s->scale;
  j.list.split = s->split;
  j.list.recompute = s->recompute;
  j.list.skip_first_input_grad = true;
  return j;
}

static void assert_same_bits(const job *a, const job *b) {
  assert_int_equal(a->updates, b->updates);
  assert_memory_equal(a->losses, b->losses, (size_t)a->updates * sizeof *a->losses);
  assert_memory_equal(a->values, b->values, (size_t)a->count * sizeof *a->values);
}

static void assert_close(const job *a, const job *b) {
  for (int64_t i = 0; i < a->updates; ++i) {
    assert_true(fabs(a->losses[i] - b->losses[i]) <= 1e-10);
  }
  for (int64_t i = 0; i < a->count; ++i) {
    assert_true(fabs(a->values[i] - b->values[i]) <= 1e-10);
  }
}

/* The job on its ranks against `one`, bit for bit, and against processors. */
static void compare(const shape *s, job *one) {
  job many = make_job(s);
  run_job(one);
  run_job(&many);
  assert_same_bits(&many, one);
  many.cpu = true;
  run_job(&many);
  assert_close(&many, one);
  assert_true(one->losses[0] != one->losses[one->updates - 1]);
}

static void synchronous_schemes_have_the_bits_of_one_gpu(void **state) {
  static const shape shapes[] = {
      {"gpipe", 2, 2, 2, 1, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, true, &bppsa_gru_cell, false},
      {"1f1b", 4, 3, 4, 1, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false, &bppsa_gru_cell, true},
      {"1f1b", 4, 2, 3, 1, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_WI, false, &bppsa_rnn_cell, false}, /* two stages on a rank */
      {"chimera", 2, 2, 2, 1, BPPSA_SCALE_HALVING, BPPSA_SPLIT_NONE, false, &bppsa_gru_cell, false},
      {"gpipe", 2, 2, 2, 1, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, true, &bppsa_lstm_cell, false},
      {"1f1b", 4, 2, 2, 1, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_WI, false, &bppsa_lstm_cell, true}, /* states are pairs (h, c) */
      {"zb-h1", 3, 3, 3, 1, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false, &bppsa_rnn_cell, true},
  };
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
    shape alone = shapes[i];
    const bool halves = alone.scale == BPPSA_SCALE_HALVING; /* one rank computes them too: in another order */
    alone.scheme = halves ? alone.scheme : "gpipe";
    alone.stages = halves ? alone.stages : 1;
    alone.split = BPPSA_SPLIT_NONE;
    alone.recompute = false;
    alone.ranks = 1;
    job one = make_job(&alone);
    compare(&shapes[i], &one);
  }
}

static void asynchronous_schemes_see_their_weights_on_gpus(void **state) {
  static const char *const schemes[] = {"pipedream", "2bw", "vanilla", "spectrain"};
  (void)state;
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; ++i) {
    const shape s = {schemes[i],         4,     4,
                     i % 2 == 0 ? 4 : 2, 2,     BPPSA_SCALE_DIRECT,
                     BPPSA_SPLIT_NONE,   false, i < 2 ? &bppsa_gru_cell : &bppsa_rnn_cell,
                     i % 2 == 1};
    shape alone = s;
    alone.ranks = 1;
    job one = make_job(&alone);
    compare(&s, &one);
  }
}

/* One GPU does the whole list: what it records and launches again has the bits of passes that are queued one by one. */
static void one_gpu_records_the_list(void **state) {
  static const struct {
    shape s;
    int64_t recordings, judged; /* with the loss of the host, which ends a recording, and with a queued one */
  } cases[] = {
      /* gradients have a stream of their own */
      {{"multi-stream", 1, 1, 1, 1, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false, &bppsa_gru_cell, true}, 2, 1},
      /* four workers on one GPU */
      {{"1f1b", 4, 3, 1, 1, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false, &bppsa_gru_cell, false}, 4, 1},
      {{"chimera", 2, 2, 1, 1, BPPSA_SCALE_HALVING, BPPSA_SPLIT_NONE, true, &bppsa_rnn_cell, false}, 2, 1},
      {{"2bw", 2, 2, 1, 2, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false, &bppsa_rnn_cell, true}, 6, 2},
      {{"spectrain", 2, 2, 1, 2, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false, &bppsa_rnn_cell, false}, 13, 10},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    job single = make_job(&cases[i].s);
    single.runs = 3;
    single.unrecorded = true;
    run_job(&single);
    assert_int_equal(single.recordings, 0);
    assert_int_equal(single.launches, 0);
    for (int judged = 0; judged < 2; ++judged) {
      job recorded = make_job(&cases[i].s);
      recorded.runs = 3;
      recorded.judged = judged;
      run_job(&recorded);
      assert_same_bits(&recorded, &single);
      assert_int_equal(recorded.recordings, gpus == 0 ? 0 : judged ? cases[i].judged : cases[i].recordings);
      assert_int_equal(recorded.launches, 2 * recorded.recordings); /* the second run records, the third only launches */
    }
  }
}

/* A GPU that records nothing queues the passes one by one. */
static void a_refused_recording_changes_nothing(void **state) {
  const shape s = {"1f1b", 2, 2, 1, 1, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false, &bppsa_gru_cell, false};
  job recorded = make_job(&s), refused = recorded;
  (void)state;
  run_job(&recorded);
  (void)setenv("SIMT_NO_CAPTURE", "1", 1);
  run_job(&refused);
  (void)unsetenv("SIMT_NO_CAPTURE");
  assert_same_bits(&refused, &recorded);
}

/* Streams, twins of the chain and fences that cannot be made leave nothing behind. */
static void out_of_memory_leaves_nothing(void **state) {
  const shape s = {"multi-stream", 1, 1, 1, 1, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false, &bppsa_rnn_cell, false};
  const bppsa_comm_config comm = {.ranks = 1, .timeout = 60};
  const int64_t live = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  (void)state;
  for (int64_t at = 1; status == BPPSA_ERR_MEMORY; at += 61) {
    job j = make_job(&s);
    j.fail_at = at;
    j.runs = 0;
    assert_true(at < 3000);
    status = bppsa_comm_run(&comm, run_rank, &j, NULL);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  assert_int_equal(status, BPPSA_OK);
}

/* Fewer ranks than workers, which have streams each; losses that are queued. */
static void lanes_of_several_ranks_have_streams(void **state) {
  static const shape shapes[] = {
      {"zb-h1", 4, 4, 2, 1, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false, &bppsa_gru_cell, true},
      {"spectrain", 4, 4, 3, 1, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false, &bppsa_gru_cell, false},
  };
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
    shape alone = shapes[i];
    alone.ranks = 1;
    job many = make_job(&shapes[i]), one = make_job(&alone);
    one.unrecorded = many.judged = true;
    run_job(&one);
    run_job(&many);
    assert_same_bits(&many, &one);
    assert_int_equal(many.launches, 0);
  }
}

/* Every scheme between GPUs that NCCL connects, with the losses and weights of messages through host memory. */
static void nccl_has_the_bits_of_threads(void **state) {
  static const struct {
    int64_t stages, ranks;
  } shapes[] = {{2, 2}, {4, 4}, {4, 2} /* two workers on a rank: all of their messages have one order */};
  int64_t count = 0, tried = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  (void)state;
  if (!nccl || gpus < 4) {
    skip();
  }
  for (int64_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < (size_t)(i % 3 == 0 ? 3 : 2) && !schemes[i].scan; ++k) {
      const bool flushes = schemes[i].weights == BPPSA_WEIGHTS_SYNCHRONOUS;
      const shape s = {.scheme = schemes[i].id,
                       .stages = shapes[k].stages,
                       .micro_batches = 4,
                       .ranks = shapes[k].ranks,
                       .iterations = flushes ? 1 : 2,
                       .cell = k == 0 ? &bppsa_gru_cell : &bppsa_rnn_cell,
                       .all = k == 1};
      job over_host = make_job(&s);
      if (strcmp(schemes[i].id, "multi-stream") == 0) { /* one GPU's streams */
        continue;
      }
      over_host.runs = 1;
      over_host.list.chunks = 4 / s.stages; /* of interleaved: the chain has four layers */
      job over_nccl = over_host;
      over_nccl.over_nccl = true;
      run_job(&over_host);
      run_job(&over_nccl);
      assert_same_bits(&over_nccl, &over_host);
      ++tried;
    }
  }
  assert_true(tried >= 2 * 15 + 5);
}

/* Pipelines in both directions with halves of micro-batches, which travel together in one operation. */
static void nccl_carries_halves_in_both_directions(void **state) {
  (void)state;
  if (!nccl || gpus < 4) {
    skip();
  }
  for (bppsa_schedule_scale scale = BPPSA_SCALE_DOUBLING; scale <= BPPSA_SCALE_HALVING; ++scale) {
    const shape s = {"chimera", 4, 8, 4, 1, scale, BPPSA_SPLIT_NONE, true, &bppsa_gru_cell, false};
    job over_host = make_job(&s), over_nccl = over_host;
    over_nccl.over_nccl = true;
    run_job(&over_host);
    run_job(&over_nccl);
    assert_same_bits(&over_nccl, &over_host);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(synchronous_schemes_have_the_bits_of_one_gpu),
                                     cmocka_unit_test(asynchronous_schemes_see_their_weights_on_gpus),
                                     cmocka_unit_test(one_gpu_records_the_list),
                                     cmocka_unit_test(a_refused_recording_changes_nothing),
                                     cmocka_unit_test(out_of_memory_leaves_nothing),
                                     cmocka_unit_test(lanes_of_several_ranks_have_streams),
                                     cmocka_unit_test(nccl_has_the_bits_of_threads),
                                     cmocka_unit_test(nccl_carries_halves_in_both_directions)};
  gpus = gpus_of_ranks(&nccl);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Makes the contestants of a point, verifies them against the reference, and adds them to the contest. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "bench/cases/rnn_session.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/cudnn.h"
#include "core/memory.h"
#include "core/residual.h"

/* ---- verification ---- */

/* The residual of a model's gradients, and their fractions of zeros and subnormals. Views in host memory. */
static void judge(const bppsa_bench_session *s, const bppsa_model *model, bppsa_bench_row *row) {
  bppsa_bench_count count = {0};
  const double *reference = s->gradients;
  row->residual = 0;
  for (int64_t p = 0; p < model->parameter_count - s->point->kind->family->head_parameters; ++p) {
    const bppsa_view *gradient = &model->parameters[p].gradient;
    row->residual = bppsa_residual_worse(row->residual, bppsa_residual(gradient, reference, s->point->config.seq_len));
    reference += bppsa_view_count(gradient);
    bppsa_bench_count_view(gradient, &count);
  }
  row->zeros = count.zeros / count.all;
  row->subnormals = count.subnormals / count.all;
}

/* Verifies the gradients of a contestant's latest pass, for a row. */
static bppsa_status judge_pass(bppsa_bench_session *s, const bppsa_contestant *who, bppsa_bench_row *row) {
  if (who->rival != NULL) {
    BPPSA_TRY(bppsa_cudnn_pull(who->rival, s->point->kind->name, s->holder));
    judge(s, s->holder, row);
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_model_pull(who->model, true));
  BPPSA_TRY(bppsa_model_update_redone(who->model));
  judge(s, who->model, row);
  row->redone = who->plain < 0 ? who->model->redone : row->redone; /* a graph has those of its plain contestant's first pass */
  return BPPSA_OK;
}

/* Holds a forward pass with the head against the reference's logits. */
static bppsa_status verify_logits(bppsa_bench_session *s, bppsa_model *model, bppsa_bench_row *row) {
  bppsa_view logits;
  BPPSA_TRY(model->ops->forward(model, &s->contest.x, NULL, &logits));
  void *copy = bppsa_alloc(bppsa_view_bytes(&logits));
  if (copy == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = bppsa_memory_get(s->device, copy, logits.data, (int64_t)bppsa_view_bytes(&logits));
  if (status == BPPSA_OK) {
    const bppsa_view found = bppsa_view_make(copy, logits.dtype, logits.ndim, logits.shape);
    row->residual = bppsa_residual(&found, s->logits, s->point->config.seq_len);
  }
  bppsa_free(copy);
  return status;
}

/* Copies what a row shares with another row that does the same work by other means. */
static void take_costs(bppsa_bench_session *s, int row, int from) {
  bppsa_bench_row *to = &s->result->rows[row];
  const bppsa_bench_row *other = &s->result->rows[from];
  to->measured = true;
  to->flops = other->flops;
  to->bytes = other->bytes;
  to->work = other->work;
  to->bp = other->bp;
}

static void skip_row(bppsa_bench_session *s, int row) {
  bppsa_contest_skip_row(&s->result->rows[row], bppsa_last_error());
}

/* ---- contestants ---- */

/* The verification of the contestant that is added next. Its residual is the larger one of its rows. */
static bppsa_contender verified_by(bppsa_bench_session *s, bppsa_status (*verify)(void *entry, double *residual), double unit) {
  bppsa_bench_entry *entry = &s->entries[s->contest.count];
  *entry = (bppsa_bench_entry){s, s->contest.count, unit};
  return (bppsa_contender){.verification = {verify, entry, BPPSA_RESIDUAL_BOUND}};
}

/* Names and verifies the contestant that was added last. */
static bppsa_status verify_last(bppsa_bench_session *s) {
  bppsa_contestant *who = &s->contest.list[s->contest.count - 1];
  who->contender.name = bppsa_bench_row_name(who->backward, who->name, sizeof who->name);
  return bppsa_contender_verify(&who->contender);
}

/* In units of the entry; of the rows that the contestant has. */
static double residual_of(const bppsa_bench_entry *entry) {
  const bppsa_contestant *who = &entry->session->contest.list[entry->index];
  bppsa_bench_row *rows = entry->session->result->rows;
  const int indices[] = {who->forward, who->backward};
  double worst = 0;
  for (int i = 0; i < 2; ++i) {
    if (indices[i] >= 0) {
      rows[indices[i]].residual /= entry->unit;
      worst = bppsa_residual_worse(worst, rows[indices[i]].residual);
    }
  }
  return worst;
}

/* Runs a pass without inputs: its states and gradients are wrong, so that a graph that does nothing is found out. */
static bppsa_status clear_results(bppsa_bench_session *s, int plain) {
  const int64_t x_bytes = (int64_t)bppsa_view_bytes(&s->contest.x), seed_bytes = (int64_t)bppsa_view_bytes(&s->contest.seed);
  double seconds[2];
  BPPSA_TRY(bppsa_memory_clear(s->device, s->device_x, x_bytes));
  BPPSA_TRY(bppsa_memory_clear(s->device, s->device_seed, seed_bytes));
  BPPSA_TRY(bppsa_contest_pass(&s->contest, plain, plain, seconds));
  BPPSA_TRY(bppsa_memory_put(s->device, s->device_x, s->x, x_bytes));
  return bppsa_memory_put(s->device, s->device_seed, s->seed, seed_bytes);
}

/* Verifies one pass of a graph by the gradients that it computes together with the other pass, which the plain contestant runs. */
static bppsa_status verify_phase(bppsa_bench_session *s, int graph, bool backward) {
  const bppsa_contestant *who = &s->contest.list[graph];
  const int index = backward ? who->backward : who->forward, from = backward ? who->plain : graph,
            to = backward ? graph : who->plain;
  const bppsa_contestant *same = &s->contest.list[who->plain];
  bppsa_bench_row *row = &s->result->rows[index];
  double seconds[2];
  *row = s->result->rows[backward ? same->backward : same->forward];
  row->nodes = who->recordings[backward].nodes;
  BPPSA_TRY(clear_results(s, who->plain));
  BPPSA_TRY(bppsa_contest_pass(&s->contest, from, to, seconds));
  return judge_pass(s, who, row);
}

static bppsa_status verify_graph(void *context, double *residual) {
  const bppsa_bench_entry *entry = context;
  bppsa_bench_session *s = entry->session;
  BPPSA_TRY(s->contest.list[entry->index].forward >= 0 ? verify_phase(s, entry->index, false) : BPPSA_OK);
  BPPSA_TRY(verify_phase(s, entry->index, true));
  *residual = residual_of(entry);
  return BPPSA_OK;
}

/* Records the passes of a contestant as graphs, for the rows `backward` and (unless -1) `forward`. The rows of a pass that cannot
 * be recorded say so. */
static bppsa_status add_graph(bppsa_bench_session *s, int plain, int forward, int backward) {
  const bppsa_contender contender = verified_by(s, verify_graph, s->entries[plain].unit);
  const bppsa_status status = bppsa_contest_add_graph(&s->contest, plain, forward, backward);
  if (status == BPPSA_ERR_UNSUPPORTED) {
    skip_row(s, backward);
    if (forward >= 0) {
      skip_row(s, forward);
    }
    return BPPSA_OK;
  }
  BPPSA_TRY(status);
  s->contest.list[s->contest.count - 1].contender = contender;
  return verify_last(s);
}

/* ---- the project's methods ---- */

static bppsa_status verify_method(void *context, double *residual) {
  const bppsa_bench_entry *entry = context;
  bppsa_bench_session *s = entry->session;
  const bppsa_contestant *who = &s->contest.list[entry->index];
  double seconds[2];
  BPPSA_TRY(bppsa_contest_pass(&s->contest, entry->index, entry->index, seconds));
  BPPSA_TRY(judge_pass(s, who, &s->result->rows[who->backward]));
  BPPSA_TRY(who->forward >= 0 ? verify_logits(s, who->model, &s->result->rows[who->forward]) : BPPSA_OK);
  *residual = residual_of(entry);
  return BPPSA_OK;
}

static bppsa_status add_method(bppsa_bench_session *s, bppsa_bench_method method) {
  const bppsa_recurrent_config config = bppsa_bench_config(&s->point->config, method);
  const int64_t before = bppsa_alloc_live_bytes();
  const bool first = method == BPPSA_BENCH_BP;
  bppsa_model *model = NULL;
  const bppsa_status status = s->point->kind->create(&config, s->point->kind->cell, s->device, &model);
  if (status == BPPSA_ERR_UNSUPPORTED) {
    skip_row(s, (int)method);
    s->result->rows[BPPSA_BENCH_FORWARD].measured = s->result->rows[BPPSA_BENCH_FORWARD].measured && !first;
    return BPPSA_OK;
  }
  BPPSA_TRY(status);
  const bppsa_contender contender = verified_by(s, verify_method, 1);
  s->plain[method] = s->contest.count;
  s->contest.list[s->contest.count++] = (bppsa_contestant){
      .forward = first ? BPPSA_BENCH_FORWARD : -1, .backward = (int)method, .plain = -1, .model = model, .contender = contender};
  s->result->rows[method].memory = bppsa_alloc_live_bytes() - before;
  if (first) {
    s->result->rows[BPPSA_BENCH_FORWARD].memory = s->result->rows[method].memory;
  }
  BPPSA_TRY(bppsa_recurrent_init(model, s->point->init, s->point->seed));
  BPPSA_TRY(bppsa_model_push(model));
  BPPSA_TRY(verify_last(s));
  if (s->contest.list[s->plain[method]].contender.verdict == BPPSA_REFUSED) {
    return BPPSA_OK; /* its rows say so after the rounds */
  }
  const int forward = first ? BPPSA_BENCH_GRAPHS + BPPSA_BENCH_FORWARD : -1;
  return bppsa_bench_on_gpu(s) && s->point->rivals ? add_graph(s, s->plain[method], forward, BPPSA_BENCH_GRAPHS + (int)method)
                                                   : BPPSA_OK;
}

bppsa_status bppsa_bench_add_methods(bppsa_bench_session *s) {
  for (int m = BPPSA_BENCH_BP; m < BPPSA_BENCH_METHODS; ++m) {
    s->plain[m] = -1;
    if (s->result->rows[m].measured) {
      BPPSA_TRY(add_method(s, (bppsa_bench_method)m));
    }
  }
  return BPPSA_OK;
}

/* ---- cuDNN ---- */

/* The residual of the last step's logits, which the holder's head computes from the last states in float64. */
static bppsa_status verify_states(bppsa_bench_session *s, const bppsa_cudnn_network *rival, bppsa_bench_row *row) {
  const bppsa_recurrent_config *c = &s->point->config;
  const bppsa_parameter *head = &s->holder->parameters[s->holder->parameter_count - s->point->kind->family->head_parameters];
  const bppsa_view states = bppsa_view_make(NULL, c->dtype, 2, (int64_t[]){c->batch, c->hidden});
  const int64_t logits = c->batch * c->classes;
  char *block = bppsa_alloc((size_t)logits * sizeof(double) + bppsa_view_bytes(&states));
  if (block == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_view found = bppsa_view_make(block, c->dtype, 1, &logits), h = states;
  h.data = block + (size_t)logits * sizeof(double);
  const bppsa_status status = bppsa_cudnn_last_states(rival, h.data);
  for (int64_t i = 0; status == BPPSA_OK && i < logits; ++i) {
    const int64_t b = i / c->classes, k = i % c->classes;
    double sum = bppsa_view_get(&head[1].value, k);
    for (int64_t j = 0; j < c->hidden; ++j) {
      sum += bppsa_view_get(&h, b * c->hidden + j) * bppsa_view_get(&head[0].value, k * c->hidden + j);
    }
    bppsa_view_set(&found, i, sum);
  }
  const double *last = s->logits + (c->loss_all ? (c->seq_len - 1) * logits : 0);
  row->residual = status == BPPSA_OK ? bppsa_residual(&found, last, c->seq_len) : 0;
  bppsa_free(block);
  return status;
}

/* TF32 keeps 10 bits of a number, and its residuals are in units of 2^-10. */
static double unit_of(bppsa_cudnn_algorithm algorithm) {
  return algorithm == BPPSA_CUDNN_STANDARD_TF32 ? 1 / ((double)FLT_EPSILON * 1024) : 1;
}

static bppsa_status verify_rival(void *context, double *residual) {
  const bppsa_bench_entry *entry = context;
  bppsa_bench_session *s = entry->session;
  const bppsa_contestant *who = &s->contest.list[entry->index];
  double seconds[2];
  BPPSA_TRY(bppsa_cudnn_set(who->rival, s->point->kind->name, s->holder));
  BPPSA_TRY(bppsa_contest_pass(&s->contest, entry->index, entry->index, seconds));
  BPPSA_TRY(verify_states(s, who->rival, &s->result->rows[who->forward]));
  BPPSA_TRY(judge_pass(s, who, &s->result->rows[who->backward]));
  *residual = residual_of(entry);
  return BPPSA_OK;
}

static void skip_rows(bppsa_bench_session *s, int forward, int backward) {
  skip_row(s, forward);
  skip_row(s, backward);
}

static bppsa_status check_time(const bppsa_bench_limits *limits) {
  return limits->deadline == 0 || bppsa_now() < limits->deadline ? BPPSA_OK
                                                                 : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "--time-limit was over");
}

/* A graph of a hundred thousand nodes takes seconds to be made, four times at a point. */
static bppsa_status check_nodes(const bppsa_bench_limits *limits, const bppsa_cudnn_network *rival) {
  const int64_t launches = bppsa_cudnn_launches(rival);
  if (limits->most_nodes == 0 || launches <= limits->most_nodes) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                    "a graph of %lld launches or more, in a sweep at most %lld; --seq-len measures one shape",
                    (long long)launches, (long long)limits->most_nodes);
}

static bppsa_status add_rival_graph(bppsa_bench_session *s, const bppsa_cudnn_network *rival, int first) {
  bppsa_status status = check_time(s->limits);
  status = status == BPPSA_OK ? check_nodes(s->limits, rival) : status;
  if (status != BPPSA_OK) {
    skip_rows(s, first, first + 1);
    return BPPSA_OK;
  }
  return add_graph(s, s->contest.count - 1, first, first + 1);
}

/* An algorithm that refuses the shape, when it is made or at its first pass, has a row with cuDNN's reason. */
static bppsa_status add_rival(bppsa_bench_session *s, bppsa_cudnn_algorithm algorithm) {
  const int first = BPPSA_BENCH_RIVALS + 4 * (int)algorithm;
  bppsa_contestant made = {.forward = first, .backward = first + 1, .plain = -1};
  take_costs(s, first, BPPSA_BENCH_FORWARD);
  take_costs(s, first + 1, BPPSA_BENCH_BP);
  bppsa_status status = check_time(s->limits);
  if (status == BPPSA_OK) {
    status = bppsa_cudnn_create(&s->point->config, s->point->kind->cell, algorithm, s->device, &made.rival);
  }
  if (status == BPPSA_OK) {
    made.contender = verified_by(s, verify_rival, unit_of(algorithm));
    s->contest.list[s->contest.count++] = made;
    status = verify_last(s);
  }
  if (status == BPPSA_OK && s->contest.list[s->contest.count - 1].contender.verdict == BPPSA_REFUSED) {
    status = BPPSA_ERR_UNSUPPORTED;
  }
  if (status != BPPSA_OK) {
    skip_rows(s, first, first + 1);
    s->contest.count -= made.rival != NULL;
    bppsa_cudnn_destroy(made.rival);
    return BPPSA_OK;
  }
  return add_rival_graph(s, made.rival, first + 2);
}

/* A network of one step, for its parameters alone. */
static bppsa_status make_holder(bppsa_bench_session *s) {
  bppsa_recurrent_config config = bppsa_bench_config(&s->point->config, BPPSA_BENCH_BP);
  config.seq_len = config.batch = 1;
  BPPSA_TRY(s->point->kind->create(&config, s->point->kind->cell, s->host, &s->holder));
  return bppsa_recurrent_init(s->holder, s->point->init, s->point->seed);
}

bppsa_status bppsa_bench_add_rivals(bppsa_bench_session *s) {
  bppsa_cudnn_report report;
  bppsa_cudnn_probe(&report);
  BPPSA_TRY(make_holder(s));
  for (int a = 0; a < (report.version > 0 ? BPPSA_CUDNN_ALGORITHMS : 1); ++a) { /* without a library, one row says so */
    BPPSA_TRY(add_rival(s, (bppsa_cudnn_algorithm)a));
  }
  return BPPSA_OK;
}

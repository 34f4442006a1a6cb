/* Makes the contestants of a point and enters them with the functions that verify them against the reference. */
#include <string.h>

#include "bench/cases/case.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/compute/cudnn.h"
#include "core/compute/memory.h"

/* ---- rows ---- */

/* Stores in the row what a model's latest forward pass did, if its states may be computed in parallel. */
static bppsa_status take_forward(const bppsa_bench_session *s, bppsa_model *model, bppsa_bench_row *row) {
  if (s->point.config.forward.kind == BPPSA_FORWARD_SEQUENTIAL) {
    return BPPSA_OK;
  }
  row->planned = true;
  row->forward_plan = *bppsa_forward_plan_of(model);
  return bppsa_forward_stats_of(model, &row->forward_stats);
}

/* Stores in the row what a model's latest backward pass did, if it is one of speculative BP. */
static bppsa_status take_backward(bppsa_model *model, bppsa_bench_row *row) {
  const bppsa_backward_plan *plan = bppsa_backward_plan_of(model);
  if (plan == NULL) {
    return BPPSA_OK;
  }
  row->speculated = true;
  row->backward_plan = *plan;
  return bppsa_backward_stats_of(model, &row->backward_stats);
}

/* Copies to a row the costs of another row that does the same work in another way. */
static void take_costs(bppsa_bench_session *s, int row, int from) {
  bppsa_bench_row *to = &s->result.rows[row];
  const bppsa_bench_row *other = &s->result.rows[from];
  to->measured = true;
  to->flops = other->flops;
  to->bytes = other->bytes;
  to->work = other->work;
  to->bp = other->bp;
}

static void skip_row(bppsa_bench_session *s, int row) {
  bppsa_bench_skip_row(&s->result.rows[row], bppsa_last_error());
}

/* ---- contestants ---- */

/* Adds a contestant to the session's list. */
static bppsa_bench_contestant *add(bppsa_bench_session *s, bppsa_bench_contestant made) {
  made.session = s;
  s->list[s->count] = made;
  return &s->list[s->count++];
}

/* Marks the rows of a refused contestant; the reason is the last error. */
static void skip_rows(const bppsa_bench_contestant *who) {
  skip_row(who->session, who->backward);
  if (who->forward >= 0) {
    skip_row(who->session, who->forward);
  }
}

/* Runs a pass without inputs: its states and gradients are wrong, which reveals a graph that does nothing. */
static bppsa_status clear_results(bppsa_bench_contestant *plain) {
  bppsa_bench_session *s = plain->session;
  const int64_t x_bytes = (int64_t)bppsa_view_bytes(&s->view_x), seed_bytes = (int64_t)bppsa_view_bytes(&s->view_seed);
  double seconds[2];
  BPPSA_TRY(bppsa_memory_clear(s->device, s->device_x, x_bytes));
  BPPSA_TRY(bppsa_memory_clear(s->device, s->device_seed, seed_bytes));
  BPPSA_TRY(plain->rival != NULL ? bppsa_cudnn_take(plain->rival, NULL, NULL) : BPPSA_OK);
  BPPSA_TRY(bppsa_bench_pass(plain, plain, seconds));
  BPPSA_TRY(plain->rival != NULL ? bppsa_cudnn_take(plain->rival, s->x, s->seed) : BPPSA_OK);
  BPPSA_TRY(bppsa_memory_put(s->device, s->device_x, s->x, x_bytes));
  return bppsa_memory_put(s->device, s->device_seed, s->seed, seed_bytes);
}

/* Verifies one pass of a graph by the gradients that it computes together with the other pass, which the plain contestant runs. */
static bppsa_status verify_phase(bppsa_bench_contestant *graph, bool backward) {
  bppsa_bench_contestant *plain = graph->plain;
  bppsa_bench_row *rows = graph->session->result.rows, *row = &rows[backward ? graph->backward : graph->forward];
  double seconds[2];
  *row = rows[backward ? plain->backward : plain->forward];
  row->nodes = graph->recordings[backward].nodes;
  BPPSA_TRY(clear_results(plain));
  BPPSA_TRY(bppsa_bench_pass(backward ? plain : graph, backward ? graph : plain, seconds));
  BPPSA_TRY(backward || plain->rival != NULL ? BPPSA_OK : take_forward(graph->session, graph->model, row));
  BPPSA_TRY(backward && plain->rival == NULL ? take_backward(graph->model, row) : BPPSA_OK);
  return bppsa_bench_judge_pass(graph->session, graph, row);
}

static bppsa_status verify_graph(void *context, double *residual) {
  bppsa_bench_contestant *graph = context;
  BPPSA_TRY(graph->forward >= 0 ? verify_phase(graph, false) : BPPSA_OK);
  BPPSA_TRY(verify_phase(graph, true));
  *residual = bppsa_bench_residual_of(graph);
  return BPPSA_OK;
}

/* Records the passes of a contestant as graphs, for the rows `backward` and (unless -1) `forward`. The rows of a pass that cannot
 * be recorded say so. */
static bppsa_status add_graph(bppsa_bench_contestant *plain, int forward, int backward) {
  bppsa_bench_session *s = plain->session;
  bppsa_bench_contestant made = *plain;
  bool entered = false;
  made.plain = plain;
  made.forward = forward;
  made.backward = backward;
  bppsa_status status = bppsa_bench_record_passes(&made);
  if (status == BPPSA_OK) {
    status = bppsa_bench_enter_contestant(add(s, made), verify_graph, &entered);
  }
  if (status == BPPSA_ERR_UNSUPPORTED || (status == BPPSA_OK && !entered)) {
    skip_rows(&made);
    return BPPSA_OK;
  }
  return status;
}

/* ---- the project's methods ---- */

static bppsa_status verify_method(void *context, double *residual) {
  bppsa_bench_contestant *who = context;
  bppsa_bench_session *s = who->session;
  double seconds[2];
  BPPSA_TRY(bppsa_bench_pass(who, who, seconds));
  BPPSA_TRY(who->forward >= 0 ? take_forward(s, who->model, &s->result.rows[who->forward]) : BPPSA_OK);
  BPPSA_TRY(take_backward(who->model, &s->result.rows[who->backward]));
  BPPSA_TRY(bppsa_bench_judge_pass(s, who, &s->result.rows[who->backward]));
  BPPSA_TRY(who->forward >= 0 ? bppsa_bench_judge_logits(s, who->model, &s->result.rows[who->forward]) : BPPSA_OK);
  *residual = bppsa_bench_residual_of(who);
  return BPPSA_OK;
}

/* Enters a method, and on a GPU its graph. */
static bppsa_status enter_method(bppsa_bench_contestant *who) {
  const bppsa_bench_session *s = who->session;
  bool entered;
  BPPSA_TRY(bppsa_bench_set_weights(s, who->model));
  BPPSA_TRY(bppsa_model_push(who->model));
  BPPSA_TRY(bppsa_bench_enter_contestant(who, verify_method, &entered));
  if (!entered) {
    skip_rows(who);
    return BPPSA_OK;
  }
  const int forward = who->forward >= 0 ? BPPSA_BENCH_GRAPHS + BPPSA_BENCH_FORWARD : -1;
  return s->bench->gpu && !s->scans_only ? add_graph(who, forward, BPPSA_BENCH_GRAPHS + who->backward) : BPPSA_OK;
}

/* ERR_UNSUPPORTED: the plan of speculative BP is one chunk, which is BP, whose row stands above. */
static bppsa_status check_speculates(bppsa_bench_method method, const bppsa_model *model) {
  return method != BPPSA_BENCH_SPECULATIVE || bppsa_backward_plan_of(model) != NULL
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "one chunk of so few steps, or of so many samples, which is BP; "
                                                 "--backward-chunks cuts them into more");
}

static bppsa_status add_method(bppsa_bench_session *s, bppsa_bench_method method) {
  const bppsa_recurrent_config config = bppsa_bench_config(&s->point.config, method);
  const int64_t before = bppsa_alloc_live_bytes();
  const bool first = method == BPPSA_BENCH_BP;
  bppsa_bench_row *rows = s->result.rows;
  bppsa_bench_contestant made = {.forward = first ? BPPSA_BENCH_FORWARD : -1, .backward = (int)method, .unit = 1};
  bppsa_status status = s->point.kind->create(&config, s->point.kind->cell, s->device, &made.model);
  status = status == BPPSA_OK ? check_speculates(method, made.model) : status;
  if (status == BPPSA_ERR_UNSUPPORTED) {
    bppsa_model_destroy(made.model);
    skip_row(s, (int)method);
    rows[BPPSA_BENCH_FORWARD].measured = rows[BPPSA_BENCH_FORWARD].measured && !first;
    return BPPSA_OK;
  }
  BPPSA_TRY(status);
  bppsa_bench_contestant *who = add(s, made);
  rows[method].memory = bppsa_alloc_live_bytes() - before;
  if (first) {
    s->bp = who;
    rows[BPPSA_BENCH_FORWARD].memory = rows[method].memory;
  }
  return enter_method(who);
}

bppsa_status bppsa_bench_add_methods(bppsa_bench_session *s) {
  for (int m = BPPSA_BENCH_BP; m < BPPSA_BENCH_METHODS; ++m) {
    if (s->result.rows[m].measured) {
      BPPSA_TRY(add_method(s, (bppsa_bench_method)m));
    }
  }
  return BPPSA_OK;
}

/* ---- rivals ---- */

/* Room for the last states [B,H] in host memory; free its data. */
static bppsa_status reserve_states(const bppsa_bench_session *s, bppsa_view *states) {
  const bppsa_recurrent_config *c = &s->point.config;
  *states = bppsa_view_make(NULL, c->dtype, 2, (int64_t[]){c->batch, c->hidden});
  states->data = bppsa_alloc(bppsa_view_bytes(states));
  return states->data == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

/* Decides from what is known of a rival whether it is worth a qualifying pass. If not, its rows (from `forward` on) get the
 * predicted time. */
static bppsa_status check_outlook(bppsa_bench_session *s, int forward, const bppsa_rival_outlook *known) {
  const bppsa_status status = s->bench->qualify > 0 ? bppsa_outlook_check(known) : BPPSA_OK;
  for (int i = 0; status != BPPSA_OK && i < 2; ++i) {
    s->result.rows[forward + i].predicted = known->seconds;
  }
  return status;
}

/* What earlier points say of the rival in these rows. graph: the first row of its graph, or -1. */
static bppsa_rival_outlook outlook_of(const bppsa_bench_session *s, int forward, int graph) {
  char method[BPPSA_BENCH_NAME], form[BPPSA_BENCH_NAME];
  bppsa_bench_row_name(s->guest, forward, method, sizeof method);
  return bppsa_outlook_of(s->outlook, method, graph < 0 ? NULL : bppsa_bench_row_name(s->guest, graph, form, sizeof form));
}

/* ---- cuDNN ---- */

static bppsa_status verify_rival(void *context, double *residual) {
  bppsa_bench_contestant *who = context;
  bppsa_bench_session *s = who->session;
  double seconds[2];
  bppsa_view states;
  BPPSA_TRY(bppsa_cudnn_set(who->rival, s->point.kind->name, s->holder));
  BPPSA_TRY(bppsa_cudnn_take(who->rival, s->x, s->seed));
  BPPSA_TRY(bppsa_bench_pass(who, who, seconds));
  BPPSA_TRY(check_outlook(s, who->forward, &(bppsa_rival_outlook){.seconds = seconds[0] + seconds[1]})); /* predicts the next */
  BPPSA_TRY(reserve_states(s, &states));
  bppsa_status status = bppsa_cudnn_last_states(who->rival, states.data);
  status = status == BPPSA_OK ? bppsa_bench_judge_states(s, &states, &s->result.rows[who->forward]) : status;
  bppsa_free(states.data);
  BPPSA_TRY(status);
  BPPSA_TRY(bppsa_bench_judge_pass(s, who, &s->result.rows[who->backward]));
  *residual = bppsa_bench_residual_of(who);
  return BPPSA_OK;
}

static bppsa_status check_time(const bppsa_bench_session *s) {
  return s->bench->deadline == 0 || bppsa_now() < s->bench->deadline ? BPPSA_OK
                                                                     : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "--time-limit was over");
}

/* Refuses rivals where samples begin anew: no rival takes a mask. */
static bppsa_status check_resets(const bppsa_bench_session *s) {
  return s->mask == NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "does not take resets");
}

/* Refuses graphs of too many nodes: one of a hundred thousand takes seconds to make, four times at a point. */
static bppsa_status check_nodes(const bppsa_bench_session *s, const bppsa_cudnn_network *rival) {
  const int64_t launches = bppsa_cudnn_launches(rival);
  if (s->most_nodes == 0 || launches <= s->most_nodes) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                    "a graph of %lld launches or more, expected at most %lld; --seq-len without --time-limit records any",
                    (long long)launches, (long long)s->most_nodes);
}

static bppsa_status add_rival_graph(bppsa_bench_contestant *plain) {
  const bppsa_bench_contestant rows = {.session = plain->session, .forward = plain->forward + 2, .backward = plain->backward + 2};
  bppsa_status status = check_time(plain->session);
  status = status == BPPSA_OK ? check_nodes(plain->session, plain->rival) : status;
  if (status != BPPSA_OK) {
    skip_rows(&rows);
    return BPPSA_OK;
  }
  return add_graph(plain, rows.forward, rows.backward);
}

/* Adds an algorithm and its graph. If it refuses the shape, when it is made or at its first pass, its row has cuDNN's reason. If it
 * is not run, neither is its graph. */
static bppsa_status add_rival(bppsa_bench_session *s, bppsa_cudnn_algorithm algorithm) {
  const int first = BPPSA_BENCH_RIVALS + 4 * (int)algorithm;
  bppsa_bench_contestant made = {
      .session = s, .forward = first, .backward = first + 1, .unit = bppsa_bench_rival_unit(algorithm, &s->point.config)};
  bool entered = false;
  take_costs(s, first, BPPSA_BENCH_FORWARD);
  take_costs(s, first + 1, BPPSA_BENCH_BP);
  const bppsa_rival_outlook known = outlook_of(s, first, first + 2);
  bppsa_status status = check_resets(s);
  status = status == BPPSA_OK ? check_time(s) : status;
  status = status == BPPSA_OK ? check_outlook(s, first, &known) : status;
  if (status == BPPSA_OK) {
    status = bppsa_cudnn_create(&s->point.config, s->point.kind->cell, algorithm, s->device, &made.rival);
  }
  if (status == BPPSA_OK) {
    status = bppsa_bench_enter_contestant(add(s, made), verify_rival, &entered);
  }
  if (status == BPPSA_OK && entered) {
    return add_rival_graph(&s->list[s->count - 1]);
  }
  skip_rows(&made);
  s->count -= made.rival != NULL;
  bppsa_cudnn_destroy(made.rival);
  return BPPSA_OK;
}

/* The position, counted from `from`, of the rows of the last point's fastest rival; -1: it is not before `to`. */
static int winner_among(const bppsa_bench_session *s, int from, int to) {
  char name[BPPSA_BENCH_NAME];
  for (int row = from; row < to; row += 2) {
    if (strcmp(bppsa_bench_row_name(s->guest, row, name, sizeof name), bppsa_outlook_winner(s->outlook)) == 0 &&
        name[0] != '\0') {
      return row - from;
    }
  }
  return -1;
}

static bppsa_status add_cudnn(bppsa_bench_session *s) {
  bppsa_cudnn_report report;
  bppsa_cudnn_probe(&report);
  const int winner = winner_among(s, BPPSA_BENCH_RIVALS, BPPSA_BENCH_GUESTS), first = winner < 0 ? 0 : winner / 4;
  for (int i = 0; i < (report.version > 0 ? BPPSA_CUDNN_ALGORITHMS : 1); ++i) { /* without a library, one row says so */
    const bppsa_cudnn_algorithm algorithm = (bppsa_cudnn_algorithm)bppsa_outlook_order(first, i);
    BPPSA_TRY(s->bench->asked->cudnn_bf16 || !bppsa_cudnn_bf16(algorithm) ? add_rival(s, algorithm) : BPPSA_OK);
  }
  return BPPSA_OK;
}

/* ---- the methods of --rivals ---- */

/* The number of the layers' parameters, without the head's. */
static int64_t layer_parameters(const bppsa_bench_session *s) {
  return s->holder->parameter_count - s->point.kind->family->head_parameters;
}

/* Sends the point to the guest. */
static bppsa_status send_point(bppsa_bench_session *s) {
  bppsa_guest_point point = {.model = s->point.kind->name,
                             .config = &s->point.config,
                             .parameter_count = layer_parameters(s),
                             .parameters = s->holder->parameters,
                             .x = s->view_x,
                             .seed = s->view_seed};
  point.x.data = s->x;
  point.seed.data = s->seed;
  return bppsa_guest_send_point(s->guest, &point);
}

/* Compares the results of a method's first pass with the reference: last states, then gradients. */
static bppsa_status judge_guest(bppsa_bench_contestant *who, const char *received, const bppsa_view *states) {
  bppsa_bench_session *s = who->session;
  bppsa_view last = *states;
  last.data = (char *)(uintptr_t)received;
  BPPSA_TRY(bppsa_bench_judge_states(s, &last, &s->result.rows[who->forward]));
  received += bppsa_view_bytes(states);
  for (int64_t p = 0; p < layer_parameters(s); ++p) {
    const bppsa_view *gradient = &s->holder->parameters[p].gradient;
    memcpy(gradient->data, received, bppsa_view_bytes(gradient));
    received += bppsa_view_bytes(gradient);
  }
  bppsa_bench_judge(s, s->holder, &s->result.rows[who->backward]);
  return BPPSA_OK;
}

static bppsa_status verify_guest(void *context, double *residual) {
  bppsa_bench_contestant *who = context;
  bppsa_bench_session *s = who->session;
  const bppsa_view states =
      bppsa_view_make(NULL, s->point.config.dtype, 2, (int64_t[]){s->point.config.batch, s->point.config.hidden});
  size_t bytes = bppsa_view_bytes(&states);
  for (int64_t p = 0; p < layer_parameters(s); ++p) {
    bytes += bppsa_view_bytes(&s->holder->parameters[p].gradient);
  }
  char *received = bppsa_alloc(bytes);
  bppsa_status status = received != NULL ? bppsa_guest_enter(s->guest, who->guest, (int64_t)bytes, received) : BPPSA_ERR_MEMORY;
  status = status == BPPSA_OK ? judge_guest(who, received, &states) : status;
  bppsa_free(received);
  BPPSA_TRY(status);
  *residual = bppsa_bench_residual_of(who);
  return BPPSA_OK;
}

/* Enters a method of the guest. refused: does not, for the reason of the last error. On a GPU the guest may call cuDNN with any
 * algorithm. */
static bppsa_status add_guest(bppsa_bench_session *s, int method, bool refused) {
  const int first = BPPSA_BENCH_GUESTS + 2 * method;
  const bppsa_bench_contestant made = {
      .session = s,
      .forward = first,
      .backward = first + 1,
      .unit = bppsa_cudnn_rounding(s->bench->gpu ? BPPSA_CUDNN_PERSIST_STATIC : BPPSA_CUDNN_STANDARD, s->point.config.dtype),
      .guest = bppsa_guest_method(s->guest, method)};
  bool entered = false;
  take_costs(s, first, BPPSA_BENCH_FORWARD);
  take_costs(s, first + 1, BPPSA_BENCH_BP);
  const bppsa_rival_outlook known = outlook_of(s, first, -1);
  refused = refused || check_resets(s) != BPPSA_OK || check_time(s) != BPPSA_OK || check_outlook(s, first, &known) != BPPSA_OK;
  BPPSA_TRY(refused ? BPPSA_OK : bppsa_bench_enter_contestant(add(s, made), verify_guest, &entered));
  if (!entered) {
    s->count -= !refused;
    skip_rows(&made);
  }
  return BPPSA_OK;
}

static bppsa_status add_guests(bppsa_bench_session *s) {
  s->result.guest = s->guest;
  const bppsa_status status = send_point(s);
  if (status != BPPSA_OK && status != BPPSA_ERR_UNSUPPORTED) {
    return status;
  }
  const int winner = winner_among(s, BPPSA_BENCH_GUESTS, BPPSA_BENCH_ROWS), first = winner < 0 ? 0 : winner / 2;
  for (int i = 0; i < bppsa_guest_method_count(s->guest); ++i) {
    BPPSA_TRY(add_guest(s, bppsa_outlook_order(first, i), status != BPPSA_OK));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_bench_add_rivals(bppsa_bench_session *s) {
  if (s->scans_only || (!s->bench->gpu && s->guest == NULL)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_bench_hold_weights(s));
  BPPSA_TRY(bppsa_outlook_create(s->bench->earlier, s->bench->report.rows, &s->point.config, &s->outlook));
  const bool guest_first = winner_among(s, BPPSA_BENCH_GUESTS, BPPSA_BENCH_ROWS) >= 0;
  for (int turn = 0; turn < 2; ++turn) {
    const bool of_guest = guest_first == (turn == 0);
    BPPSA_TRY(of_guest && s->guest != NULL ? add_guests(s) : BPPSA_OK);
    BPPSA_TRY(!of_guest && s->bench->gpu ? add_cudnn(s) : BPPSA_OK);
  }
  return BPPSA_OK;
}

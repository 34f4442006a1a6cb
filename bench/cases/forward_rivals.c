/* The rivals of `bench forward`: cuDNN's algorithms on a GPU, and the methods of --rivals. */
#include <math.h>

#include "bench/cases/bench_forward.h"
#include "core/base/alloc.h"
#include "core/compute/cudnn.h"
#include "core/compute/device_buffer.h"
#include "core/measure/residual.h"

typedef bppsa_forward_session session;
typedef bppsa_forward_entry entry;

/* The largest difference of `count` states from the reference's, which begin at `first`. */
static double find_error(const session *s, const double *states, int64_t first, int64_t count) {
  double worst = 0;
  for (int64_t i = 0; i < count; ++i) {
    worst = bppsa_residual_worse(worst, fabs(states[i] - s->reference[first + i]));
  }
  return worst;
}

/* The largest residual, or excess over the sequential pass's error, that a rival may have. It is larger than for the project's
 * passes, because rivals round differently. */
static double rounding_of(const session *s) {
  return s->config.dtype == BPPSA_F64 ? 2e-14 : 2e-6;
}

/* Divides an error by the largest allowed one; roundings: those of the rival, in units of the dtype's (bppsa_cudnn_rounding). */
static double judge_error(const session *s, double error, double roundings) {
  return error / (roundings * (rounding_of(s) + 4 * s->entries[BPPSA_PASS_SEQUENTIAL].error));
}

/* Copies states, as float64. NULL: out of memory. */
static double *copy_states(const bppsa_view *states) {
  double *copy = bppsa_calloc(bppsa_view_count(states), sizeof *copy);
  for (int64_t i = 0; copy != NULL && i < bppsa_view_count(states); ++i) {
    copy[i] = bppsa_view_get(states, i);
  }
  return copy;
}

/* ---- cuDNN ---- */

enum { MOST_NODES = 16384 }; /* the most launches of a pass that is recorded, as in bench rnn */

static bppsa_status run_rival(void *context) {
  const entry *e = context;
  return bppsa_cudnn_forward(e->rival, &e->s->in.view);
}

static bppsa_status clear_rival(void *context) {
  const entry *e = context;
  return bppsa_cudnn_forward(e->rival, &e->s->zero.view);
}

/* Judges by the last states, because cuDNN gives no others. */
static bppsa_status judge_rival(void *context, double *residual) {
  entry *e = context;
  const session *s = e->s;
  const int64_t count = s->config.batch * s->config.hidden;
  bppsa_buffer states = {0};
  BPPSA_TRY(bppsa_buffer_create(NULL, s->config.dtype, 1, &count, &states));
  bppsa_status status = bppsa_cudnn_last_states(e->rival, states.view.data);
  double *last = status == BPPSA_OK ? copy_states(&states.view) : NULL;
  if (last != NULL) {
    e->error = find_error(s, last, (s->config.seq_len - 1) * count, count);
    *residual = judge_error(s, e->error, bppsa_cudnn_rounding((bppsa_cudnn_algorithm)(e - s->rivals), s->config.dtype));
  }
  status = status == BPPSA_OK && last == NULL ? BPPSA_ERR_MEMORY : status;
  bppsa_free(last);
  bppsa_buffer_free(&states);
  return status;
}

static const bppsa_bench_work rival_work = {.action = run_rival, .judge = judge_rival, .qualifies = BPPSA_QUALIFIES},
                              recorded_rival = {
                                  .action = run_rival, .clear = clear_rival, .judge = judge_rival, .qualifies = BPPSA_QUALIFIES};

/* Decides whether a rival is worth a qualifying pass; one that is not is left out. form: the name of its graph, or NULL. */
static bppsa_status check_outlook(session *s, const char *method, const char *form, bool *worth) {
  const bppsa_rival_outlook known = bppsa_outlook_of(s->outlook, method, form);
  *worth = s->bench->qualify == 0 || bppsa_outlook_check(&known) == BPPSA_OK;
  if (*worth || form == NULL) {
    return *worth ? BPPSA_OK : bppsa_bench_leave_out(s->bench, method, "forward");
  }
  BPPSA_TRY(bppsa_bench_leave_out(s->bench, method, "forward"));
  return bppsa_bench_leave_out(s->bench, form, "forward");
}

static bppsa_status enter_rival(session *s, bppsa_cudnn_algorithm algorithm) {
  bppsa_bench *bench = s->bench;
  entry *e = &s->rivals[algorithm];
  char name[BPPSA_BENCH_NAME], graph[BPPSA_BENCH_NAME + 8];
  bool entered = false, worth;
  snprintf(name, sizeof name, "cudnn_%s", bppsa_cudnn_algorithm_name(algorithm));
  snprintf(graph, sizeof graph, "%s_graph", name);
  BPPSA_TRY(check_outlook(s, name, graph, &worth));
  if (!worth) {
    return BPPSA_OK;
  }
  *e = (entry){.s = s, .kind = BPPSA_PASSES, .worst = NAN, .failing_s = NAN, .mean_s = NAN};
  const bppsa_network_kind *kind = bench->asked->point.kind;
  bppsa_status status = bppsa_cudnn_create(&s->config, kind->cell, algorithm, bench->device, &e->rival);
  status = status == BPPSA_OK ? bppsa_cudnn_set(e->rival, kind->name, s->entries[BPPSA_PASS_SEQUENTIAL].model) : status;
  if (status == BPPSA_ERR_UNSUPPORTED) {
    return bppsa_bench_leave_out(bench, name, "forward");
  }
  BPPSA_TRY(status);
  BPPSA_TRY(bppsa_bench_enter(bench, &rival_work, bench->device, e, name, "forward", &entered));
  if (entered && bppsa_cudnn_launches(e->rival) > MOST_NODES) {
    (void)bppsa_fail(BPPSA_ERR_UNSUPPORTED, "a graph of %lld launches or more, expected at most %d",
                     (long long)bppsa_cudnn_launches(e->rival), (int)MOST_NODES);
    return bppsa_bench_leave_out(bench, graph, "forward");
  }
  return entered ? bppsa_bench_enter_recording(bench, &recorded_rival, e, graph, "forward") : BPPSA_OK;
}

/* Skips algorithms in TF32, which compute something else. Without the library one row says so. */
static bppsa_status enter_cudnn(session *s) {
  bppsa_cudnn_report report;
  bppsa_cudnn_probe(&report);
  for (int a = 0; a < (report.version > 0 ? BPPSA_CUDNN_ALGORITHMS : 1); ++a) {
    BPPSA_TRY(bppsa_cudnn_exact((bppsa_cudnn_algorithm)a) ? enter_rival(s, (bppsa_cudnn_algorithm)a) : BPPSA_OK);
  }
  return BPPSA_OK;
}

/* ---- the methods of --rivals ---- */

/* Judges the states of a guest's first pass. On a GPU the guest may call cuDNN with any algorithm. */
static bppsa_status judge_guest(entry *e, const bppsa_view *states, double *residual) {
  const session *s = e->s;
  double *top = copy_states(states);
  if (top == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bool one = s->config.layers == 1 && !s->bench->asked->point.kind->cell->pair; /* the guest says nothing about c */
  e->worst = one ? 0 : (double)NAN;
  const bppsa_status status = one ? bppsa_forward_find_residual(s, top, NULL, &e->worst) : BPPSA_OK;
  e->error = find_error(s, top, 0, bppsa_view_count(states));
  const double roundings =
      bppsa_cudnn_rounding(s->bench->gpu ? BPPSA_CUDNN_PERSIST_STATIC : BPPSA_CUDNN_STANDARD, s->config.dtype);
  *residual = one ? e->worst / (roundings * rounding_of(s)) : judge_error(s, e->error, roundings);
  bppsa_free(top);
  return status;
}

static bppsa_status verify_guest(void *context, double *residual) {
  entry *e = context;
  const bppsa_recurrent_config *c = &e->s->config;
  bppsa_buffer states = {0};
  BPPSA_TRY(bppsa_buffer_create(NULL, c->dtype, 3, (int64_t[]){c->seq_len, c->batch, c->hidden}, &states));
  bppsa_status status = bppsa_guest_enter(e->s->guest, e->guest, (int64_t)bppsa_view_bytes(&states.view), states.view.data);
  status = status == BPPSA_OK ? judge_guest(e, &states.view, residual) : status;
  bppsa_buffer_free(&states);
  return status;
}

static bppsa_status pass_of_guest(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  const entry *e = context;
  return bppsa_guest_pass(e->s->guest, e->guest, 1, seconds);
}

/* Sends the point to the program, then enters all its methods. What the program refuses is left out, by name. */
static bppsa_status enter_guests(session *s) {
  const bppsa_recurrent_config *c = &s->config;
  const bppsa_model *model = s->entries[BPPSA_PASS_SEQUENTIAL].model;
  bppsa_buffer seed = {0};
  BPPSA_TRY(bppsa_buffer_create(NULL, c->dtype, 2, (int64_t[]){c->batch, c->hidden}, &seed));
  const bppsa_guest_point point = {.model = s->bench->asked->point.kind->name,
                                   .config = c,
                                   .parameter_count =
                                       model->parameter_count - s->bench->asked->point.kind->family->head_parameters,
                                   .parameters = model->parameters,
                                   .x = s->x.view,
                                   .seed = seed.view,
                                   .forward_only = true};
  bppsa_status status = bppsa_guest_send_point(s->guest, &point);
  bppsa_buffer_free(&seed);
  const bool refused = status == BPPSA_ERR_UNSUPPORTED;
  status = refused ? BPPSA_OK : status;
  for (int m = 0; status == BPPSA_OK && m < bppsa_guest_method_count(s->guest); ++m) {
    entry *e = &s->guests[m];
    *e = (entry){.s = s, .kind = BPPSA_PASSES, .guest = bppsa_guest_method(s->guest, m), .failing_s = NAN, .mean_s = NAN};
    const bppsa_contender contender = {.verification = {.verify = verify_guest, .context = e},
                                       .pass = pass_of_guest,
                                       .context = e,
                                       .parts = 1,
                                       .qualifies = BPPSA_QUALIFIES};
    bool worth = true;
    status = refused ? bppsa_bench_leave_out(s->bench, e->guest, "forward") : check_outlook(s, e->guest, NULL, &worth);
    if (status == BPPSA_OK && worth && !refused) {
      status = bppsa_bench_enter_contender(s->bench, &contender, e, e->guest, "forward", NULL);
    }
  }
  return status;
}

/* ---- both ---- */

bppsa_status bppsa_forward_enter_rivals(session *s) {
  BPPSA_TRY(bppsa_outlook_create(s->bench->earlier, s->bench->report.rows, &s->config, &s->outlook));
  BPPSA_TRY(s->bench->gpu ? enter_cudnn(s) : BPPSA_OK);
  return s->guest != NULL ? enter_guests(s) : BPPSA_OK;
}

void bppsa_forward_end_rivals(session *s) {
  for (int a = 0; a < BPPSA_CUDNN_ALGORITHMS; ++a) {
    bppsa_cudnn_destroy(s->rivals[a].rival);
    s->rivals[a].rival = NULL;
  }
  bppsa_outlook_destroy(s->outlook);
  s->outlook = NULL;
}

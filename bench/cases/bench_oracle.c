/* `bppsa bench oracle`: what the oracle projects for this machine, beside training steps, in turns of milliseconds. */
#include "bench/cases/bench_oracle.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/compute/pool.h"
#include "core/measure/residual.h"
#include "train/line.h"

const char bppsa_bench_notes_oracle[] =
    "A network trains on noise serially, by data parallelism, gpipe and every split of layers, one after the other. (bench\n"
    "schedule compares the other pipelines.) A turn of a strategy measures, all ranks side by side, what a rank's part of a "
    "step\n"
    "computes, and each operation by which ranks exchange numbers, at the sizes that travel; then it makes eleven training\n"
    "steps, of which the first is not counted. Ten turns make 100 iterations.\n"
    "First a step is verified: its gradients are those of one device in float64, residual below 30.\n"
    "predicted  an iteration by the formula of bppsa oracle, from what the turns measured; never from a step itself\n"
    "measured   forward pass, backward pass with all that travels, update: as train --log has them, of rank 0; means of all "
    "turns\n"
    "accuracy   1 - |predicted - measured| / measured, as ParaDL defines it\n"
    "of best    the same, with the shortest time of all turns for what ranks exchange: ParaDL reports such times, as what other\n"
    "           programs do to a network is no part of a projection. Of ranks that share layers, which know that time\n"
    "computing  the part of both that is no exchange, where ranks know it\n";

typedef struct {
  bppsa_bench *bench;
  bppsa_oracle_crew crew;
  int64_t runnable; /* of the present point */
  int64_t turns;    /* turns that count; the warm-up does not */
  bool warm;
  bppsa_oracle_turn turn[BPPSA_ORACLE_MOST_TURNS]; /* the latest ones */
} session;

/* ---- turns ---- */

static bppsa_status verify(void *context, double *residual) {
  session *s = context;
  return bppsa_oracle_crew_verify(&s->crew, residual);
}

static bppsa_status pass(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  session *s = context;
  BPPSA_TRY(bppsa_oracle_crew_turn(&s->crew));
  const bppsa_oracle_turn *turn = &s->crew.entry.latest;
  if (s->warm && s->turns < BPPSA_ORACLE_MOST_TURNS) {
    s->turn[s->turns++] = *turn;
  }
  s->warm = true;
  seconds[0] = turn->measured_s;
  return BPPSA_OK;
}

/* The strategies that --compare names, or all. */
static bool wanted(const char *list, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = list; at != NULL && *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
    if (strcspn(at, ",") == length && strncmp(at, name, length) == 0) {
      return true;
    }
  }
  return list == NULL;
}

static bppsa_status check_strategies(const char *list) {
  int64_t count, known = 0;
  const bppsa_oracle_runnable *all = bppsa_oracle_runnables(&count);
  bppsa_line names = {.length = 0};
  for (int64_t i = 0; i < count; ++i) {
    bppsa_line_add(&names, "%s%s", i > 0 ? "," : "", all[i].strategy);
    known += wanted(list, all[i].strategy);
  }
  for (const char *at = list; at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL) {
    --known;
  }
  return list == NULL || known == 0 ? BPPSA_OK
                                    : bppsa_fail(BPPSA_ERR_ARGUMENT, "--compare: '%.60s', expected some of %s", list, names.text);
}

bppsa_status bppsa_oracle_settings_complete(bppsa_bench_settings *asked) {
  const int64_t micros = asked->schedule.micro_batches;
  asked->request.repeats = asked->request.repeats > 0 ? asked->request.repeats : asked->request.quick ? 3 : 10;
  if (asked->network->kind->family->steps) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--model: %s takes sequences, expected a network of images", asked->network->name);
  }
  if (asked->batch % micros != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--batch: %" PRId64 " samples for %" PRId64 " micro-batches, expected a multiple",
                      asked->batch, micros);
  }
  return check_strategies(asked->schemes);
}

/* A point for each strategy. */
static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  session *s = bench->session;
  int64_t count;
  const bppsa_oracle_runnable *all = bppsa_oracle_runnables(&count);
  const bppsa_contender contender = {.verification = {verify, s, 0}, .pass = pass, .context = s, .parts = 1};
  *more = point < count;
  bench->idle = !*more || !wanted(bench->asked->schemes, all[point].strategy);
  if (bench->idle) {
    return BPPSA_OK;
  }
  s->runnable = point;
  s->turns = 0;
  s->warm = false;
  snprintf(bench->label, sizeof bench->label, "%s", all[point].strategy);
  const bppsa_status status = bppsa_oracle_crew_make(&s->crew, point);
  if (status == BPPSA_ERR_ARGUMENT || status == BPPSA_ERR_UNSUPPORTED) {
    bench->idle = true;
    return bppsa_bench_leave_out(bench, all[point].strategy, "");
  }
  BPPSA_TRY(status);
  return bppsa_bench_enter_contender(bench, &contender, s, all[point].strategy, "", NULL);
}

/* ---- rows ---- */

static double mean_of(const session *s, size_t at) {
  double sum = 0;
  for (int64_t i = 0; i < s->turns; ++i) {
    sum += *(const double *)(const void *)((const char *)&s->turn[i] + at);
  }
  return s->turns > 0 ? sum / (double)s->turns : (double)NAN;
}

static json_t *turns_json(const session *s, size_t at) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int64_t i = 0; ok && i < s->turns; ++i) {
    ok = json_array_append_new(array, bppsa_json_real(*(const double *)(const void *)((const char *)&s->turn[i] + at))) == 0;
  }
  return bppsa_json_finish(array, ok);
}

static bool layers(const session *s) {
  return s->crew.entry.run.layer_train != NULL;
}

static json_t *parts_json(const session *s) {
  json_t *object = json_object();
  bool ok = object != NULL;
  for (int i = 0; ok && i < (layers(s) ? BPPSA_ORACLE_PARTS : BPPSA_ORACLE_PASSES); ++i) {
    ok = bppsa_json_put_real(object, bppsa_oracle_part_name(i),
                             mean_of(s, offsetof(bppsa_oracle_turn, part_s) + (size_t)i * sizeof(double)));
  }
  return bppsa_json_finish(object, ok);
}

static double phase_s(const session *s, int phase) {
  return mean_of(s, offsetof(bppsa_oracle_turn, phase_s) + (size_t)phase * sizeof(double));
}

static json_t *phases_json(const session *s) {
  json_t *object = json_object();
  bool ok = object != NULL;
  for (int32_t i = 0; ok && i < BPPSA_PHASE_COUNT; ++i) {
    ok = bppsa_json_put_real(object, bppsa_oracle_phase_name(i), phase_s(s, i));
  }
  return bppsa_json_finish(object, ok);
}

enum { UPDATE = 2 }; /* the index of the update among the passes */

/* The time of passes and update without exchanges: known for ranks that share layers, and where nothing is exchanged. */
static double computed_s(const session *s) {
  const bool apart = s->crew.entry.what->split[0] == '\0';
  const size_t update = offsetof(bppsa_oracle_turn, part_s) + UPDATE * sizeof(double),
               compute = offsetof(bppsa_oracle_turn, part_s) + (BPPSA_ORACLE_PASSES + BPPSA_LAYER_COMPUTE) * sizeof(double);
  return layers(s) ? mean_of(s, update) + mean_of(s, compute)
         : apart   ? mean_of(s, offsetof(bppsa_oracle_turn, measured_s))
                   : (double)NAN;
}

/* The mean time of computing plus the shortest exchange of all turns. NaN where ranks do not measure the two apart. */
static double best_s(const session *s) {
  double exchanged = INFINITY;
  for (int64_t i = 0; i < s->turns; ++i) {
    const bppsa_oracle_turn *t = &s->turn[i];
    exchanged = fmin(exchanged, t->measured_s - t->part_s[UPDATE] - t->part_s[BPPSA_ORACLE_PASSES + BPPSA_LAYER_COMPUTE]);
  }
  return layers(s) && s->turns > 0 ? computed_s(s) + exchanged : (double)NAN;
}

static double accuracy(double predicted, double measured) {
  return 1 - fabs(predicted - measured) / measured;
}

static bool put(const bppsa_bench_entrant *entrant, json_t *row) {
  const session *s = entrant->context;
  const bppsa_oracle_entry *e = &s->crew.entry;
  const double measured = mean_of(s, offsetof(bppsa_oracle_turn, measured_s)),
               predicted = mean_of(s, offsetof(bppsa_oracle_turn, predicted_s));
  bool ok = bppsa_json_put_text(row, "method", entrant->method) && bppsa_json_put_integer(row, "samples", e->samples);
  ok = ok && bppsa_json_put_integer(row, "ways", e->ways) && bppsa_json_put_shape(row, "cut", (int32_t)e->cuts, e->cut);
  ok = ok && bppsa_bench_put_timing(row, &entrant->contender.timing[0]);
  ok = ok && bppsa_json_put_integer(row, "iterations", BPPSA_ORACLE_ITERATIONS * s->turns);
  ok = ok && bppsa_json_put_real(row, "measured_s", measured) && bppsa_json_put_real(row, "predicted_s", predicted);
  ok = ok && bppsa_json_put_real(row, "accuracy", accuracy(predicted, measured));
  ok = ok && bppsa_json_put_real(row, "measured_best_s", best_s(s));
  ok = ok && bppsa_json_put_real(row, "accuracy_of_best", accuracy(predicted, best_s(s)));
  ok = ok && bppsa_json_put_real(row, "computed_s", computed_s(s));
  ok = ok &&
       bppsa_json_put_real(row, "predicted_computed_s",
                           phase_s(s, BPPSA_PHASE_FORWARD) + phase_s(s, BPPSA_PHASE_BACKWARD) + phase_s(s, BPPSA_PHASE_UPDATE));
  ok = ok && bppsa_json_put(row, "measured_parts_s", parts_json(s)) && bppsa_json_put(row, "predicted_phases_s", phases_json(s));
  ok = ok && bppsa_json_put(row, "measured_of_turns_s", turns_json(s, offsetof(bppsa_oracle_turn, measured_s)));
  ok = ok && bppsa_json_put(row, "predicted_of_turns_s", turns_json(s, offsetof(bppsa_oracle_turn, predicted_s)));
  return ok && bppsa_json_put_real(row, "residual", entrant->contender.residual);
}

static const bppsa_table_column columns[] = {
    {.heading = "strategy", .width = -13, .key = "method"},
    {.heading = "samples", .width = 8, .kind = BPPSA_COLUMN_INTEGER, .key = "samples"},
    {.heading = "n", .width = 5, .kind = BPPSA_COLUMN_INTEGER, .key = "iterations"},
    {.heading = "measured", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "measured_s", .scale = 1e3, .digits = 3},
    {.heading = "predicted", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "predicted_s", .scale = 1e3, .digits = 3},
    {.heading = "accuracy", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "accuracy", .digits = 3},
    {.heading = "of best", .width = 8, .kind = BPPSA_COLUMN_REAL, .key = "accuracy_of_best", .digits = 3},
    {.heading = "computing", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "computed_s", .scale = 1e3, .digits = 3},
    {.heading = "predicted", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "predicted_computed_s", .scale = 1e3, .digits = 3},
    {.heading = "residual", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "residual", .digits = 2},
    {0}};

/* ---- the document ---- */

static bppsa_status prepare(bppsa_bench *bench) {
  session *s = bench->session;
  s->bench = bench;
  return bppsa_oracle_ground_open(bench->asked, bench->device, &s->crew.ground);
}

static const char *calibrated_by(const bppsa_bench *bench) {
  const session *s = bench->session;
  return s->crew.ground.crowded ? "means" : "medians";
}

static bool put_members(const bppsa_bench *bench, json_t *document) {
  bppsa_comm *world = bench->asked->comm;
  bool ok = bppsa_json_put_text(document, "model", bench->asked->network->name);
  ok = ok && bppsa_json_put_integer(document, "batch", bench->asked->batch);
  ok = ok && bppsa_json_put_integer(document, "micro_batches", bench->asked->schedule.micro_batches);
  ok = ok && bppsa_json_put_text(document, "transport", bppsa_comm_transport_name(bppsa_comm_get_transport(world)));
  ok = ok && bppsa_json_put_integer(document, "ranks", bppsa_comm_size(world));
  ok = ok && bppsa_json_put_integer(document, "threads", bppsa_device_get_threads(bench->device));
  ok = ok && bppsa_json_put_integer(document, "processors_of_node", bppsa_pool_cpus());
  return ok && bppsa_json_put_text(document, "calibrated_by", calibrated_by(bench));
}

static bppsa_status print_head(const bppsa_bench *bench) {
  bppsa_comm *world = bench->asked->comm;
  return bppsa_output_print(&bench->request->to,
                            "%s, batches of %" PRId64 "\n%d ranks over %s on %s, %d processors, %d threads a rank\n"
                            "milliseconds of an iteration, means of n; predicted from %s\n\n",
                            bench->asked->network->name, bench->asked->batch, bppsa_comm_size(world),
                            bppsa_comm_transport_name(bppsa_comm_get_transport(world)), bppsa_device_get_hardware(bench->device),
                            (int)bppsa_pool_cpus(), bppsa_device_get_threads(bench->device), calibrated_by(bench));
}

static bppsa_status finish(bppsa_bench *bench) {
  return bppsa_crew_dismiss(bench->asked->comm);
}

static void release(bppsa_bench *bench) {
  session *s = bench->session;
  if (s->bench != NULL) {
    bppsa_oracle_entry_close(&s->crew.entry);
    bppsa_oracle_ground_close(&s->crew.ground);
  }
}

const bppsa_bench_case bppsa_bench_case_oracle = {.name = "oracle",
                                                  .session = sizeof(session),
                                                  .budget_s = 1,
                                                  .quick_s = 0.2,
                                                  .bound = BPPSA_RESIDUAL_BOUND,
                                                  .names = (const char *const[]){"method", NULL},
                                                  .columns = columns,
                                                  .prepare = prepare,
                                                  .put_members = put_members,
                                                  .head = print_head,
                                                  .enter = enter,
                                                  .put = put,
                                                  .release = release,
                                                  .finish = finish,
                                                  .serve = bppsa_oracle_crew_serve};

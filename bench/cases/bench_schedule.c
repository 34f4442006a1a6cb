/* `bppsa bench schedule`: every scheme that trains a network on ranks, executed beside what the simulator predicts from the costs
 * of the same run. */
#include "bench/cases/bench_schedule.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/compute/pool.h"
#include "core/files/rescue.h"

const char bppsa_bench_notes_schedule[] =
    "A network trains on noise by every scheme of bppsa schedule --list that has micro-batches, one list at a time, all schemes "
    "in "
    "turn.\n"
    "First the ranks measure, side by side, what forward pass, input gradient, weight gradient, both at once and update of each "
    "layer\n"
    "take, what a message takes, and the sum of a layer's gradients over replicas; the lists and their cuts are made from these "
    "costs.\n"
    "What passes and updates take is measured again in front of every timed pass: predictions are made from the medians, so that "
    "both\nmeet the same machine.\n"
    "Then two passes of every list are verified: a synchronous scheme has the losses and norms of one device with the same "
    "micro-batches,\n"
    "bit for bit (residual 0), and every operation of any scheme sees the version of the weights that the list names.\n"
    "predicted  an iteration by the simulator, and no less than the work of a rank, and than all work over the processors\n"
    "median     of the passes, from the first operation of any rank to the end of the last, over the iterations of the list\n"
    "bubble     1 - busy time over workers times makespan: predicted and measured; peak: activations of the fullest worker\n"
    "note       what ranks share that the simulator does not know: with 'ranks share processors' and 'workers share a rank' the "
    "prediction\n"
    "           is a bound and is not judged\n";

/* A row. */
typedef struct {
  struct session *s;
  int64_t index;       /* of the entry */
  bppsa_status status; /* the outcome of making its list */
  char why[256];       /* why it has no list */
} lead;

typedef struct session {
  bppsa_bench *bench;
  bppsa_schedule_crew crew;
  lead leads[BPPSA_SCHEDULE_SCHEMES];
  json_t *ordering; /* the order of the rows by prediction and by measurement */
} session;

static bppsa_schedule_entry *entry_of(const lead *l) {
  return &l->s->crew.entries[l->index];
}

/* ---- verification and passes ---- */

static bppsa_status verify(void *context, double *residual) {
  const lead *l = context;
  double worst = 0;
  for (int64_t run = 0; run < BPPSA_SCHEDULE_VERIFIED; ++run) {
    BPPSA_TRY(bppsa_schedule_crew_pass(&l->s->crew, l->index, false));
    worst = fmax(worst, bppsa_schedule_residual(entry_of(l), run));
  }
  *residual = worst;
  return BPPSA_OK;
}

/* Times an iteration: its makespan, and how long the average worker is idle. */
static bppsa_status pass(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  const lead *l = context;
  const bppsa_schedule_entry *e = entry_of(l);
  BPPSA_TRY(bppsa_schedule_crew_pass(&l->s->crew, l->index, true));
  seconds[0] = e->latest.makespan / (double)e->predicted.list->rounds;
  seconds[1] = fmax(0, e->latest.bubble_ratio) * seconds[0];
  return BPPSA_OK;
}

/* ---- entering ---- */

/* Makes all lists before anything is shown, and leaves out schemes without one. If all are, fails with the last one's error. */
static bppsa_status make_lists(session *s) {
  int64_t made = 0;
  for (int64_t i = 0; i < s->crew.count; ++i) {
    lead *l = &s->leads[i];
    *l = (lead){.s = s, .index = i, .status = bppsa_schedule_crew_make(&s->crew, i)};
    if (l->status != BPPSA_ERR_ARGUMENT && l->status != BPPSA_ERR_UNSUPPORTED) {
      BPPSA_TRY(l->status);
      ++made;
      continue;
    }
    snprintf(l->why, sizeof l->why, "%s", bppsa_last_error());
  }
  const lead *last = &s->leads[s->crew.count - 1];
  return made > 0
             ? BPPSA_OK
             : bppsa_fail(last->status, "schedule: no scheme can run, %s neither: %s", entry_of(last)->scheme->id, last->why);
}

static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  session *s = bench->session;
  *more = point == 0;
  snprintf(bench->label, sizeof bench->label, "%s", s->crew.asked->network->name);
  for (int64_t i = 0; *more && i < s->crew.count; ++i) {
    lead *l = &s->leads[i];
    const char *name = entry_of(l)->scheme->id;
    const bppsa_contender contender = {.verification = {verify, l, 0}, .pass = pass, .context = l, .parts = 2};
    if (l->status != BPPSA_OK) {
      (void)bppsa_fail(l->status, "%s", l->why);
      BPPSA_TRY(bppsa_bench_leave_out(bench, name, ""));
      continue;
    }
    BPPSA_TRY(bppsa_bench_enter_contender(bench, &contender, l, name, "", NULL));
  }
  return BPPSA_OK;
}

/* ---- the order of the schemes ---- */

#define APART 1.1 /* schemes are compared if their predictions differ by more */

/* The measured makespan; NAN: the row allows no conclusion. */
static double conclusive(const bppsa_bench_entrant *e) {
  const bppsa_timing *t = &e->contender.timing[0];
  return entry_of(e->context)->judged && e->contender.verdict == BPPSA_VERIFIED && t->repeats > 0 && !t->noisy ? t->median_s
                                                                                                               : (double)NAN;
}

/* Predicts from the costs that were measured between the passes, and compares the schemes pair by pair. */
static bppsa_status settle(bppsa_bench *bench) {
  session *s = bench->session;
  BPPSA_TRY(bppsa_schedule_crew_settle(&s->crew));
  json_t *inverted = json_array();
  int64_t pairs = 0, right = 0;
  bool ok = inverted != NULL;
  for (int64_t i = 0; ok && i < bench->count; ++i) {
    for (int64_t k = 0; ok && k < bench->count; ++k) {
      const bppsa_bench_entrant *a = bench->entrants[i], *b = bench->entrants[k];
      const double fast = conclusive(a), slow = conclusive(b);
      if (isnan(fast + slow) || !(entry_of(a->context)->predicted_s * APART < entry_of(b->context)->predicted_s)) {
        continue;
      }
      ++pairs;
      right += fast < slow;
      ok = fast < slow || json_array_append_new(inverted, json_pack("[ss]", a->method, b->method)) == 0;
    }
  }
  s->ordering = ok ? json_object() : NULL;
  ok = s->ordering != NULL && bppsa_json_put_integer(s->ordering, "pairs", pairs) &&
       bppsa_json_put_integer(s->ordering, "as_predicted", right) && bppsa_json_put(s->ordering, "inverted", inverted);
  if (!ok && s->ordering == NULL) {
    json_decref(inverted);
  }
  return ok ? BPPSA_OK : bppsa_bench_no_room();
}

static bppsa_status print_ordering(const bppsa_bench *bench, const json_t *ordering) {
  const json_t *inverted = json_object_get(ordering, "inverted"), *pair;
  const int64_t pairs = json_integer_value(json_object_get(ordering, "pairs")),
                right = json_integer_value(json_object_get(ordering, "as_predicted"));
  size_t i;
  if (pairs == 0) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_output_print(&bench->request->to,
                               "\nof %" PRId64 " pairs whose predictions differ by more than 10 %%, %" PRId64
                               " are in the predicted order\n",
                               pairs, right));
  json_array_foreach(inverted, i, pair) {
    BPPSA_TRY(bppsa_output_print(&bench->request->to, "  %s was to be faster than %s\n",
                                 json_string_value(json_array_get(pair, 0)), json_string_value(json_array_get(pair, 1))));
  }
  return BPPSA_OK;
}

/* ---- rows ---- */

static double bytes_of(const bppsa_schedule *list, double m_a) {
  return m_a * list->activations / (list->scheme->data_parallel ? 1 : (double)list->config.stages);
}

/* The predicted bytes of activations on the worker with the most. */
static double predicted_peak(const bppsa_schedule_entry *e) {
  double most = 0;
  for (int64_t w = 0; w < e->predicted.list->workers; ++w) {
    most = fmax(most, e->predicted.times.worker[w].peak_activations);
  }
  return bytes_of(e->predicted.list, most);
}

static bool put_shape(const bppsa_schedule_entry *e, json_t *row) {
  const bppsa_schedule *list = e->predicted.list;
  bool ok = bppsa_json_put_integer(row, "workers", list->workers) && bppsa_json_put_integer(row, "stages", list->stages);
  ok = ok && bppsa_json_put_shape(row, "cut", (int32_t)list->config.cuts, list->config.cut);
  ok = ok && bppsa_json_put_integer(row, "micro_batches", list->micros / list->rounds);
  ok = ok && bppsa_json_put_integer(row, "samples", e->size->samples) && bppsa_json_put_integer(row, "iterations", list->rounds);
  return ok && bppsa_json_put_integer(row, "operations", list->count);
}

static bool put(const bppsa_bench_entrant *entrant, json_t *row) {
  const bppsa_schedule_entry *e = entry_of(entrant->context);
  const bppsa_timing *t = entrant->contender.timing;
  const bool measured = t->repeats > 0;
  const double makespan = measured ? t[0].median_s : (double)NAN;
  bool ok = bppsa_json_put_text(row, "method", entrant->method) && put_shape(e, row) && bppsa_bench_put_timing(row, &t[0]);
  ok = ok && bppsa_json_put_real(row, "makespan_s", makespan) && bppsa_json_put_real(row, "predicted_makespan_s", e->predicted_s);
  ok = ok && bppsa_json_put_real(row, "ratio", makespan / e->predicted_s);
  ok = ok && bppsa_json_put_real(row, "bubble_ratio", measured ? t[1].median_s / makespan : (double)NAN);
  ok = ok && bppsa_json_put_real(row, "predicted_bubble_ratio", e->predicted.times.bubble_ratio);
  ok = ok && bppsa_json_put_real(row, "peak_activations", bppsa_schedule_peak(e));
  ok = ok && bppsa_json_put_real(row, "predicted_peak_activations", predicted_peak(e));
  ok = ok && bppsa_json_put_text(row, "note", e->note) && bppsa_json_put_bool(row, "judged", e->judged);
  return ok && bppsa_json_put_real(row, "residual", entrant->contender.residual);
}

static const bppsa_table_column columns[] = {
    {.heading = "scheme", .width = -17, .key = "method"},
    {.heading = "workers", .width = 8, .kind = BPPSA_COLUMN_INTEGER, .key = "workers"},
    {.heading = "micro", .width = 6, .kind = BPPSA_COLUMN_INTEGER, .key = "micro_batches"},
    {.heading = "predicted", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "predicted_makespan_s", .scale = 1e3, .digits = 3},
    BPPSA_COLUMN_TIMES(10, 9, 4, 3),
    {.heading = "ratio", .width = 6, .kind = BPPSA_COLUMN_REAL, .key = "ratio", .digits = 2},
    {.heading = "bubble", .width = 7, .kind = BPPSA_COLUMN_PERCENT, .key = "predicted_bubble_ratio"},
    {.heading = "is", .width = 4, .kind = BPPSA_COLUMN_PERCENT, .key = "bubble_ratio"},
    {.heading = "peak", .width = 9, .kind = BPPSA_COLUMN_SI, .key = "predicted_peak_activations", .unit = "B"},
    {.heading = "is", .width = 9, .kind = BPPSA_COLUMN_SI, .key = "peak_activations", .unit = "B"},
    {.heading = "residual", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "residual", .digits = 0},
    {.heading = "note", .width = -4, .key = "note"},
    {0}};

/* ---- the document ---- */

static bppsa_status prepare(bppsa_bench *bench) {
  session *s = bench->session;
  s->bench = bench;
  BPPSA_TRY(bppsa_schedule_crew_open(bench->asked, bench->device, &s->crew));
  return make_lists(s);
}

static bool put_members(const bppsa_bench *bench, json_t *document) {
  const session *s = bench->session;
  const bppsa_schedule_crew *crew = &s->crew;
  bppsa_network_config config = crew->config;
  json_t *link = json_object(), *network = json_object();
  config.batch = bench->asked->batch;
  bool ok = link != NULL && network != NULL && bppsa_json_put_real(link, "alpha_s", crew->alpha) &&
            bppsa_json_put_real(link, "beta_s", crew->beta) && bppsa_network_json(bench->asked->network, &config, network) &&
            bppsa_json_put_text(network, "name", bench->asked->network->name);
  link = bppsa_json_finish(link, ok);
  network = bppsa_json_finish(network, ok);
  ok = bppsa_json_put(document, "link", link);
  ok = bppsa_json_put(document, "network", network) && ok;
  ok = ok && bppsa_json_put_integer(document, "batch", bench->asked->batch);
  ok = ok && bppsa_json_put_text(document, "transport", bppsa_comm_transport_name(bppsa_comm_get_transport(crew->world)));
  ok = ok && bppsa_json_put_integer(document, "ranks", bppsa_comm_size(crew->world));
  ok = ok && bppsa_json_put_integer(document, "threads", bppsa_device_get_threads(bench->device));
  ok = ok && bppsa_json_put_integer(document, "ranks_at_once", crew->at_once);
  return ok && bppsa_json_put_integer(document, "processors_of_node", bppsa_pool_cpus());
}

static bppsa_status print_head(const bppsa_bench *bench) {
  const bppsa_schedule_crew *crew = &((const session *)bench->session)->crew;
  bppsa_network_config config = crew->config;
  char text[BPPSA_NETWORK_TEXT];
  config.batch = bench->asked->batch;
  return bppsa_output_print(&bench->request->to,
                            "%s, %s, %" PRId64 " layers\n%d ranks over %s on %s, %d processors, %d threads a rank\n"
                            "a message takes %.3g us and %.3g ns a byte; milliseconds of an iteration; peak: activations\n\n",
                            bppsa_network_describe(bench->asked->network, &config, text, sizeof text),
                            bppsa_dtype_name(config.dtype), crew->sizes[0].chain->layers, bppsa_comm_size(crew->world),
                            bppsa_comm_transport_name(bppsa_comm_get_transport(crew->world)),
                            bppsa_device_get_hardware(bench->device), (int)bppsa_pool_cpus(),
                            bppsa_device_get_threads(bench->device), 1e6 * crew->alpha, 1e9 * crew->beta);
}

/* The costs of every size of micro-batches. Each is a document as in a file of costs, with its samples and the updates of an
 * iteration. */
static json_t *costs_json(const bppsa_schedule_crew *crew) {
  json_t *sizes = json_array();
  bool ok = sizes != NULL;
  for (int64_t i = 0; ok && i < crew->size_count; ++i) {
    const bppsa_schedule_size *z = &crew->sizes[i];
    json_t *size = json_object();
    ok = size != NULL && bppsa_json_put_integer(size, "samples", z->samples) &&
         bppsa_json_put_integer(size, "updates", z->step_count);
    for (int cost = 0; ok && cost < BPPSA_COST_COUNT; ++cost) {
      json_t *array = z->costs.cost[cost] != NULL ? json_array() : NULL;
      for (int64_t l = 0; array != NULL && ok && l < z->costs.layers; ++l) {
        ok = json_array_append_new(array, bppsa_json_real(z->costs.cost[cost][l])) == 0;
      }
      ok = z->costs.cost[cost] == NULL || bppsa_json_put(size, bppsa_schedule_cost_name(cost), bppsa_json_finish(array, ok));
    }
    ok = json_array_append_new(sizes, bppsa_json_finish(size, ok)) == 0 && ok;
  }
  return bppsa_json_finish(sizes, ok);
}

/* The times of sums, for every number of ranks. */
static json_t *sums_json(const bppsa_schedule_crew *crew) {
  json_t *all = json_array();
  bool ok = all != NULL;
  for (int64_t i = 0; ok && i < crew->sum_count; ++i) {
    json_t *sums = json_object(), *array = json_array();
    ok = sums != NULL && array != NULL && bppsa_json_put_integer(sums, "ranks", crew->sums[i].ranks);
    for (int64_t l = 0; ok && l < crew->sizes[0].chain->layers; ++l) {
      ok = json_array_append_new(array, bppsa_json_real(crew->sums[i].seconds[l])) == 0;
    }
    ok = bppsa_json_put(sums, bppsa_schedule_cost_name(BPPSA_COST_SYNC), bppsa_json_finish(array, ok)) && ok;
    ok = json_array_append_new(all, bppsa_json_finish(sums, ok)) == 0 && ok;
  }
  return bppsa_json_finish(all, ok);
}

/* ---- files ---- */

/* The size of micro-batches that all schemes share; if they differ, the one that --micro-batches asks for, with one update. */
static const bppsa_schedule_size *common_size(const bppsa_schedule_crew *crew) {
  const bppsa_schedule_size *size = crew->count > 0 && crew->entries[0].size != NULL ? crew->entries[0].size : &crew->sizes[0];
  for (int64_t i = 1; i < crew->count; ++i) {
    size = crew->entries[i].size == size ? size : &crew->sizes[0];
  }
  return size;
}

/* Writes the file of --save-costs. It contains sums if all of them are over the same number of ranks. */
static bppsa_status write_costs(const session *s, bppsa_text *text) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_chain_costs_set(&common_size(&s->crew)->costs, &config);
  if (s->crew.sum_count == 1) {
    config.cost[BPPSA_COST_SYNC] = s->crew.sums[0].seconds;
    config.rows[BPPSA_COST_SYNC] = config.layers;
  }
  return bppsa_schedule_costs_write(&config, text);
}

/* Writes two timelines of every scheme: the predicted one and that of its fastest pass. */
static bppsa_status write_groups(const session *s, bppsa_status (*write)(const bppsa_timed_groups *groups, bppsa_text *text),
                                 bppsa_text *text) {
  bppsa_timed_group groups[2 * BPPSA_SCHEDULE_SCHEMES];
  int64_t count = 0;
  for (int64_t i = 0; i < s->crew.count; ++i) {
    const bppsa_schedule_entry *e = &s->crew.entries[i];
    if (e->fastest.start != NULL) {
      groups[count++] = (bppsa_timed_group){.name = "predicted", .list = e->predicted.list, .times = &e->predicted.times};
      groups[count++] = (bppsa_timed_group){.name = "measured", .list = e->predicted.list, .times = &e->fastest};
    }
  }
  return write(&(bppsa_timed_groups){.count = count, .groups = groups, .milliseconds = 1e3}, text);
}

static bppsa_status write_trace(const session *s, bppsa_text *text) {
  return write_groups(s, bppsa_schedule_trace_groups, text);
}

static bppsa_status write_svg(const session *s, bppsa_text *text) {
  const bppsa_status status = write_groups(s, bppsa_schedule_draw_groups, text);
  return status == BPPSA_ERR_ARGUMENT ? bppsa_fail_prefix(status, "--svg") : status;
}

/* Makes all requested files, then writes them. */
static bppsa_status write_files(const session *s) {
  const struct {
    const char *path;
    bppsa_status (*write)(const session *s, bppsa_text *text);
  } files[] = {{s->crew.asked->save_costs, write_costs}, {s->crew.asked->trace, write_trace}, {s->crew.asked->svg, write_svg}};
  enum { FILES = sizeof files / sizeof files[0] };
  bppsa_text texts[FILES] = {{0}};
  bppsa_result_text contents[FILES];
  bppsa_result_file results[FILES];
  bppsa_status status = BPPSA_OK;
  for (int i = 0; i < FILES && status == BPPSA_OK; ++i) {
    status = files[i].path != NULL ? files[i].write(s, &texts[i]) : BPPSA_OK;
  }
  for (int i = 0; i < FILES; ++i) {
    contents[i] = (bppsa_result_text){texts[i].text, texts[i].size};
    results[i] = (bppsa_result_file){files[i].path, bppsa_save_text, &contents[i]};
  }
  status = status == BPPSA_OK ? bppsa_save_results(FILES, results) : status;
  for (int i = 0; i < FILES; ++i) {
    bppsa_text_free(&texts[i]);
  }
  return status;
}

static bppsa_status finish(bppsa_bench *bench) {
  session *s = bench->session;
  json_t *document = bench->report.document;
  json_t *ordering = json_incref(s->ordering);
  bool ok = bppsa_json_put(document, "ordering", ordering);
  ok = bppsa_json_put(document, "costs", costs_json(&s->crew)) && ok;
  ok = bppsa_json_put(document, "sums", sums_json(&s->crew)) && ok;
  BPPSA_TRY(ok ? BPPSA_OK : bppsa_bench_no_room());
  BPPSA_TRY(bench->request->to.json ? BPPSA_OK : print_ordering(bench, s->ordering));
  const bppsa_status written = write_files(s);
  if (written != BPPSA_OK) { /* the report is a separate file, so it is written all the same */
    const bppsa_status reported = bppsa_bench_finish(&bench->report);
    return reported != BPPSA_OK ? reported : written;
  }
  return bppsa_crew_dismiss(bench->asked->comm);
}

static void release(bppsa_bench *bench) {
  session *s = bench->session;
  json_decref(s->ordering);
  if (s->bench != NULL) {
    bppsa_schedule_crew_close(&s->crew);
  }
}

const bppsa_bench_case bppsa_bench_case_schedule = {.name = "schedule",
                                                    .session = sizeof(session),
                                                    .budget_s = 1,
                                                    .quick_s = 0.2,
                                                    .bound = 1e-16, /* smaller than any difference between two numbers */
                                                    .names = (const char *const[]){"method", NULL},
                                                    .columns = columns,
                                                    .prepare = prepare,
                                                    .put_members = put_members,
                                                    .head = print_head,
                                                    .enter = enter,
                                                    .put = put,
                                                    .release = release,
                                                    .settle = settle,
                                                    .finish = finish,
                                                    .serve = bppsa_schedule_crew_serve};

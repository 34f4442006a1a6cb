/* `bppsa bench ranks`: one batch's gradients on 1, 2, 4, .. ranks by every method, beside one rank and beside the model. */
#include "bench/cases/bench_ranks.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/ranks_model.h"
#include "core/base/alloc.h"
#include "core/base/decimal.h"
#include "core/compute/device_buffer.h"
#include "core/compute/pool.h"
#include "core/measure/residual.h"

const char bppsa_bench_notes_ranks[] =
    "Two networks: the recurrent one that --model names, and LeNet-5. A pass is one forward and one backward pass of a batch, "
    "with\n"
    "all gradients on every rank; its time is that of the slowest rank. There are rows for 1, 2, 4, .. and all ranks:\n"
    "  alone   one rank without communicators, by BP and by local scans: what the others are compared with\n"
    "  time    the ranks share the steps: BP as a pipeline of --micro-batches groups, and every scan over ranks\n"
    "  With --forward there are rows behind such forward passes too, beside those behind sequential ones; path and work are of\n"
    "  the first pass: its dependent steps, and the steps that it computed over those of a sequential pass.\n"
    "  batch   the ranks share the samples: gradients set out as they become ready (wait-free), the first layer's first "
    "(priority),\n"
    "          or with the first K layers' weight gradients at the end (reverse-first-K); a message for every parameter\n"
    "Gradients are first compared with those of one rank, by BP in float64; then all rows of a network take turns.\n"
    "model      what the rows alone and the times of messages and broadcasts, measured before, predict (docs/time-ranks.md)\n"
    "x alone    the median of row alone, bp, over the row's\n"
    "messages, sent, held: of one pass, on the rank that sends or holds most; collective operations count as messages\n"
    "With --device cuda the ranks compute on GPUs, and the reference on a processor. Gradients then set out when the pass is "
    "over: "
    "data\n"
    "parallelism has the rows wait-free alone, and held counts a GPU's memory, with that of other ranks that share it.\n";

/* A row. */
typedef struct {
  struct session *s;
  int64_t index; /* the entry's index */
  bppsa_ranks_report report;
  bppsa_forward_stats stats; /* of the first pass, if its plan is speculative */
  double model_s;
} lead;

typedef struct session {
  bppsa_bench *bench;
  bppsa_ranks_crew crew;
  bppsa_link link, collective;
  bppsa_device *host;     /* computes the reference, with as many threads as a rank */
  bppsa_model *reference; /* float64, by BP, on one rank */
  bppsa_buffer x, seed;   /* its numbers */
  lead *leads;            /* size BPPSA_RANKS_ENTRIES */
} session;

static const bppsa_ranks_subject *subject_of(const session *s) {
  return &s->crew.subjects[s->crew.subject];
}

static const bppsa_ranks_entry *entry_of(const lead *l) {
  return &subject_of(l->s)->entries[l->index];
}

/* ---- the reference ---- */

static bppsa_status make_reference(session *s, const bppsa_ranks_subject *subject) {
  const struct bppsa_bench_settings *asked = s->bench->asked;
  const bool steps = subject->network.kind->family->steps;
  const int64_t *in = subject->network.layers.in;
  bppsa_network_config config = subject->config;
  bppsa_view logits;
  config.dtype = BPPSA_F64;
  config.method.backward = BPPSA_BACKWARD_BP;
  const int64_t sequence[] = {config.steps.seq_len, config.batch, config.input}, images[] = {config.batch, in[0], in[1], in[2]};
  BPPSA_TRY(bppsa_network_create(&subject->network, &config, s->host, &s->reference));
  BPPSA_TRY(bppsa_network_init(&subject->network, s->reference, asked->point.init, asked->request.seed));
  BPPSA_TRY(bppsa_buffer_create(NULL, BPPSA_F64, steps ? 3 : 4, steps ? sequence : images, &s->x));
  bppsa_ranks_fill(subject, asked->request.seed, true, 0, 0, &s->x.view);
  BPPSA_TRY(s->reference->ops->forward(s->reference, &s->x.view, NULL, &logits));
  BPPSA_TRY(bppsa_buffer_create(NULL, BPPSA_F64, logits.ndim, logits.shape, &s->seed));
  bppsa_ranks_fill(subject, asked->request.seed, false, 0, 0, &s->seed.view);
  return s->reference->ops->backward(s->reference, &s->seed.view);
}

static void free_reference(session *s) {
  bppsa_model_destroy(s->reference);
  s->reference = NULL;
  bppsa_buffer_free(&s->x);
  bppsa_buffer_free(&s->seed);
}

/* Makes and counts a pass of all ranks; the residual is that of rank 0's gradients. */
static bppsa_status verify(void *context, double *residual) {
  lead *l = context;
  session *s = l->s;
  const bppsa_ranks_subject *subject = subject_of(s);
  const int64_t chain = subject->network.kind->family->steps ? subject->config.steps.seq_len : subject->network.layers.count;
  BPPSA_TRY(bppsa_ranks_crew_count(&s->crew, l->index, &l->report));
  bppsa_model *model = s->crew.parts[l->index].model;
  double worst = 0;
  double account[BPPSA_ACCOUNT_NUMBERS] = {0};
  BPPSA_TRY(bppsa_model_add_pass(model, BPPSA_PASS_FORWARD, account));
  l->stats = bppsa_forward_stats_from(account);
  BPPSA_TRY(bppsa_model_pull(model, true));
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    worst = bppsa_residual_worse(
        worst, bppsa_residual(&model->parameters[i].gradient, s->reference->parameters[i].gradient.data, chain));
  }
  *residual = worst;
  return BPPSA_OK;
}

static bppsa_status pass(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  const lead *l = context;
  return bppsa_ranks_crew_pass(&l->s->crew, l->index, &seconds[0]);
}

/* ---- entering ---- */

static const char *name_share(bppsa_ranks_share_of share) {
  static const char *const names[] = {"alone", "time", "batch"};
  return names[share];
}

/* Can the ranks compute this entry? If not, the reason is the last error. */
static bool possible(const bppsa_ranks_subject *subject, const bppsa_ranks_entry *e) {
  if (e->share == BPPSA_RANKS_BATCH && e->ranks > subject->config.batch) {
    (void)bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%d ranks, more than the %" PRId64 " samples of the batch", e->ranks,
                     subject->config.batch);
    return false;
  }
  return true;
}

static bppsa_status enter_entry(bppsa_bench *bench, int64_t subject, int64_t index) {
  session *s = bench->session;
  lead *l = &s->leads[index];
  const bppsa_contender contender = {.verification = {verify, l, 0}, .pass = pass, .context = l, .parts = 1};
  const bppsa_ranks_entry *e = &s->crew.subjects[subject].entries[index];
  *l = (lead){.s = s, .index = index, .model_s = (double)NAN};
  if (!possible(&s->crew.subjects[subject], e)) {
    char name[BPPSA_BENCH_METHOD];
    snprintf(name, sizeof name, "%s, %s, %d ranks", name_share(e->share), e->name, e->ranks);
    return bppsa_bench_leave_out(bench, name, "");
  }
  BPPSA_TRY(bppsa_ranks_crew_make(&s->crew, subject, index));
  return bppsa_bench_enter_contender(bench, &contender, l, e->name, name_share(e->share), NULL);
}

/* Can the device run the network? A GPU may lack a library for it. If not, the reason is the last error. */
static bool runs(const session *s, const bppsa_ranks_subject *subject) {
  bppsa_model *model = NULL;
  bppsa_network_config config = subject->config;
  if (s->crew.gpus == 0) {
    return true;
  }
  config.batch = 1;
  config.method.backward = BPPSA_BACKWARD_BP;
  const bppsa_status status = bppsa_network_create(&subject->network, &config, s->bench->device, &model);
  bppsa_model_destroy(model);
  return status == BPPSA_OK;
}

static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  session *s = bench->session;
  *more = point < BPPSA_RANKS_NETWORKS;
  BPPSA_TRY(bppsa_ranks_crew_drop(&s->crew));                                     /* frees the parts of the previous point */
  if (!*more || (point > 0 && bench->asked->shares == BPPSA_BENCH_SHARES_TIME)) { /* images have no steps to share */
    bench->idle = true;
    return BPPSA_OK;
  }
  const bppsa_ranks_subject *subject = &s->crew.subjects[point];
  snprintf(bench->point, sizeof bench->point, "%s", subject->network.kind->name);
  snprintf(bench->label, sizeof bench->label, "%s", subject->network.kind->name);
  s->crew.subject = point;
  if (!runs(s, subject)) {
    bench->idle = true;
    return bppsa_bench_leave_out(bench, subject->network.kind->name, "");
  }
  BPPSA_TRY(make_reference(s, subject));
  for (int64_t i = 0; i < subject->count; ++i) {
    BPPSA_TRY(enter_entry(bench, point, i));
  }
  return BPPSA_OK;
}

static void leave(bppsa_bench *bench) {
  free_reference(bench->session);
}

/* ---- the model ---- */

/* The row of one rank alone by this method; NULL: it has no time. */
static const bppsa_bench_entrant *alone(const bppsa_bench *bench, const char *name) {
  for (int64_t i = 0; i < bench->count; ++i) {
    const bppsa_bench_entrant *e = bench->entrants[i];
    if (entry_of(e->context)->share == BPPSA_RANKS_ALONE && strcmp(e->method, name) == 0) {
      return e->contender.timing[0].repeats > 0 ? e : NULL;
    }
  }
  return NULL;
}

/* How much longer one row of a single rank takes than another; 0 if one of them has no time. */
static double longer(const bppsa_bench_entrant *one, const bppsa_bench_entrant *other) {
  return one != NULL && other != NULL ? fmax(0, one->contender.timing[0].median_s - other->contender.timing[0].median_s) : 0;
}

/* Counts the products of the local chunked scan; the linear one makes none. */
static int64_t count_products(const bppsa_bench_entrant *chunked) {
  const session *s = chunked->bench->session;
  const bppsa_model *model = s->crew.parts[((const lead *)chunked->context)->index].model;
  int64_t products = 0;
  for (int64_t l = 0; l < subject_of(s)->config.steps.layers; ++l) {
    const bppsa_scan_plan *plan = bppsa_recurrent_plan(model, l);
    products += plan != NULL ? bppsa_scan_plan_totals(plan)->mm : 0;
  }
  return products;
}

/* The row of one rank alone whose forward passes are in parallel; NULL: it has no time, or they were sequential. */
static const bppsa_bench_entrant *alone_in_parallel(const bppsa_bench *bench) {
  for (int64_t i = 0; i < bench->count; ++i) {
    const bppsa_bench_entrant *e = bench->entrants[i];
    const lead *l = e->context;
    if (entry_of(l)->share == BPPSA_RANKS_ALONE && l->stats.passes > 0) {
      return e->contender.timing[0].repeats > 0 ? e : NULL;
    }
  }
  return NULL;
}

/* Fills in what is known of a parallel forward pass. Its phases are one for the guesses, one for each round, a last one that
 * repairs nothing, and some that not every pass has. */
static void put_parallel(const bppsa_bench_entrant *e, bppsa_ranks_costs *costs) {
  const lead *l = e != NULL ? e->context : NULL;
  const bppsa_forward_stats *f = l != NULL ? &l->stats : NULL;
  costs->parallel_s = costs->path = costs->phases = (double)NAN;
  if (f != NULL) {
    const bppsa_ranks_part *part = &l->s->crew.parts[l->index];
    costs->parallel_s = e->contender.timing[0].median_s * part->forward_s / (part->forward_s + part->backward_s);
    costs->path = fmin(1, (double)f->path / (double)f->possible);
    costs->phases = (double)costs->layers * (double)(2 + f->rounds + (f->reseeded > 0) + (f->tails > 0));
  }
}

static bppsa_ranks_costs costs_of(const bppsa_bench_entrant *bp) {
  const session *s = bp->bench->session;
  const bppsa_bench_entrant *linear = alone(bp->bench, "linear"), *chunked = alone(bp->bench, "chunked");
  const int64_t products = chunked != NULL ? count_products(chunked) : 0;
  const bppsa_ranks_subject *subject = subject_of(s);
  const bppsa_network_config *c = &subject->config;
  const bppsa_ranks_part *part = &s->crew.parts[((const lead *)bp->context)->index];
  const double forward = part->forward_s / (part->forward_s + part->backward_s), all = bp->contender.timing[0].median_s;
  const double hidden = (double)c->steps.hidden, real = (double)bppsa_dtype_size(c->dtype), state = (double)c->batch * hidden;
  const double nodes = (double)bppsa_comm_size(s->crew.world) / bppsa_comm_node_size(s->crew.world);
  const double processors = (double)bppsa_pool_cpus() / bppsa_device_get_threads(s->bench->device);
  double weights = 0;
  for (int64_t i = 0; i < part->model->parameter_count; ++i) {
    weights += (double)bppsa_view_bytes(&part->model->parameters[i].value);
  }
  const bool injected = c->loss_all || c->steps.layers > 1;
  return (bppsa_ranks_costs){.forward_s = forward * all,
                             .backward_s = (1 - forward) * all,
                             .scan_s = longer(linear, bp),
                             .product_s = products > 0 ? longer(chunked, linear) / (double)products : 0,
                             .recurrence = subject->network.kind->cell != NULL ? hidden / (2 * hidden + (double)c->input) : 0,
                             .link = s->link,
                             .collective = s->collective,
                             .at_once = fmax(1, nodes * (s->crew.gpus > 0 ? (double)s->crew.gpus : processors)),
                             .steps = c->steps.seq_len,
                             .layers = c->steps.layers,
                             .batch = c->batch,
                             .micro_batches = s->bench->asked->micro_batches,
                             .vector_bytes = state * real,
                             .product_bytes = (state + (injected ? (double)c->batch : 0)) * (hidden * real + 4),
                             .weight_bytes = weights,
                             .parameters = part->model->parameter_count,
                             .injected = injected,
                             .network = subject->network.kind->cell == NULL ? &subject->network.layers : NULL};
}

static bppsa_status predict(const bppsa_bench_entrant *e, const bppsa_ranks_costs *costs) {
  lead *l = e->context;
  const bppsa_ranks_entry *entry = entry_of(l);
  if (entry->share == BPPSA_RANKS_TIME) {
    l->model_s = bppsa_ranks_model_time(costs, &entry->method, l->stats.passes > 0, entry->ranks);
  }
  if (entry->share != BPPSA_RANKS_BATCH) {
    return BPPSA_OK;
  }
  const int64_t blocks = (costs->batch - 1) / bppsa_ranks_block(subject_of(l->s), entry) + 1;
  return bppsa_ranks_model_batch(costs, entry->scheme, entry->reverse_first, entry->ranks, blocks, &l->model_s);
}

static bppsa_status settle(bppsa_bench *bench) {
  const bppsa_bench_entrant *bp = alone(bench, "bp");
  if (bp == NULL) { /* BP itself was wrong, as its row says */
    return BPPSA_OK;
  }
  bppsa_ranks_costs costs = costs_of(bp);
  put_parallel(alone_in_parallel(bench), &costs);
  for (int64_t i = 0; i < bench->count; ++i) {
    BPPSA_TRY(predict(bench->entrants[i], &costs));
  }
  return BPPSA_OK;
}

/* ---- rows ---- */

static const char *const count_names[BPPSA_RANKS_COUNTS] = {"messages", "bytes_sent", "collectives", "collective_bytes",
                                                            "held_bytes"};

static bool put_counts(const bppsa_ranks_report *report, json_t *row) {
  bool ok = true;
  for (int i = 0; ok && i < BPPSA_RANKS_COUNTS; ++i) {
    char all[40];
    snprintf(all, sizeof all, "all_%s", count_names[i]);
    ok = bppsa_json_put_integer(row, count_names[i], report->most[i]) && bppsa_json_put_integer(row, all, report->all[i]);
  }
  return ok &&
         bppsa_json_put_integer(row, "operations", report->most[BPPSA_RANKS_MESSAGES] + report->most[BPPSA_RANKS_COLLECTIVES]);
}

static bool put(const bppsa_bench_entrant *e, json_t *row) {
  const lead *l = e->context;
  const session *s = l->s;
  const bppsa_ranks_subject *subject = subject_of(s);
  const bppsa_ranks_entry *entry = entry_of(l);
  const bppsa_network_config *c = &subject->config;
  const bppsa_bench_entrant *bp = alone(e->bench, "bp");
  const bppsa_timing *t = &e->contender.timing[0];
  bool ok = bppsa_json_put_text(row, "network", subject->network.kind->name) && bppsa_json_put_text(row, "share", e->phase);
  ok = ok && bppsa_json_put_text(row, "method", e->method) && bppsa_json_put_text(row, "phase", "gradients");
  ok = ok && bppsa_json_put_integer(row, "ranks", entry->ranks);
  ok = ok && bppsa_json_put_integer(row, "threads", bppsa_device_get_threads(e->bench->device));
  ok = ok && bppsa_json_put_text(row, "dtype", bppsa_dtype_name(c->dtype)) && bppsa_json_put_integer(row, "batch", c->batch);
  if (subject->network.kind->family->steps) {
    ok = ok && bppsa_json_put_integer(row, "seq_len", c->steps.seq_len) && bppsa_json_put_integer(row, "input", c->input);
    ok = ok && bppsa_json_put_integer(row, "hidden", c->steps.hidden) && bppsa_json_put_integer(row, "layers", c->steps.layers);
    ok = ok && bppsa_json_put_integer(row, "micro_batches", e->bench->asked->micro_batches);
    ok = ok && bppsa_json_put_text(row, "forward", bppsa_forward_name(entry->forward.kind));
  }
  ok = ok && (l->stats.passes == 0 || bppsa_forward_stats_put(row, &l->stats));
  ok = ok && bppsa_bench_put_timing(row, t) && bppsa_json_put_real(row, "model_s", l->model_s);
  ok = ok && bppsa_json_put_real(row, "times_alone",
                                 bp != NULL && t->repeats > 0 ? bp->contender.timing[0].median_s / t->median_s : (double)NAN);
  return ok && put_counts(&l->report, row) && bppsa_json_put_real(row, "residual", e->contender.residual);
}

static const char *write_ratio(const void *context, const json_t *row, char *text, size_t size) {
  const bppsa_bench_entrant *e = context, *bp = alone(e->bench, "bp");
  const json_t *ratio = json_object_get(row, "times_alone");
  if (!json_is_number(ratio)) {
    return "-";
  }
  bppsa_print(text, size, "%s%.2f", bppsa_timing_mark(e->contender.timing[0].noisy || bp->contender.timing[0].noisy),
              json_number_value(ratio));
  return text;
}

static const bppsa_table_column columns[] = {
    {.heading = "share", .width = -7, .key = "share"},
    {.heading = "method", .width = -20, .key = "method"},
    {.heading = "ranks", .width = 6, .kind = BPPSA_COLUMN_INTEGER, .key = "ranks"},
    {.heading = "median", .width = 11, .kind = BPPSA_COLUMN_MARKED, .key = "median_s", .scale = 1e3, .digits = 3},
    {.heading = "min", .width = 11, .kind = BPPSA_COLUMN_REAL, .key = "min_s", .scale = 1e3, .digits = 3},
    {.heading = "model", .width = 11, .kind = BPPSA_COLUMN_REAL, .key = "model_s", .scale = 1e3, .digits = 3},
    {.heading = "n", .width = 6, .kind = BPPSA_COLUMN_INTEGER, .key = "repeats"},
    {.heading = "x alone", .width = 9, .key = "times_alone", .write = write_ratio},
    {.heading = "path", .width = 8, .kind = BPPSA_COLUMN_INTEGER, .key = "path", .missing = ""},
    {.heading = "work", .width = 6, .kind = BPPSA_COLUMN_REAL, .key = "work", .digits = 2, .missing = ""},
    {.heading = "messages", .width = 10, .kind = BPPSA_COLUMN_INTEGER, .key = "operations"},
    {.heading = "sent", .width = 10, .kind = BPPSA_COLUMN_SI, .key = "bytes_sent", .unit = "B"},
    {.heading = "held", .width = 10, .kind = BPPSA_COLUMN_SI, .key = "held_bytes", .unit = "B"},
    {.heading = "residual", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "residual", .digits = 2},
    {0}};

/* ---- the benchmark ---- */

enum { PING_LEAST = 8, PING_MOST = 1 << 20, PING_ROUNDS = 101, PING_FEW = 9 };

/* alpha from short messages, beta from long ones. Few rounds where a message takes milliseconds. */
static bppsa_status measure_link(session *s, bool broadcast, bppsa_link *link) {
  double first, small, large;
  BPPSA_TRY(bppsa_ranks_crew_ping(&s->crew, broadcast, PING_LEAST, PING_FEW, &first));
  BPPSA_TRY(bppsa_ranks_crew_ping(&s->crew, broadcast, PING_LEAST, first < 1e-3 ? PING_ROUNDS : PING_FEW, &small));
  BPPSA_TRY(bppsa_ranks_crew_ping(&s->crew, broadcast, PING_MOST, PING_FEW, &large));
  *link = (bppsa_link){.alpha_s = small, .beta_s = fmax(0, large - small) / (PING_MOST - PING_LEAST)};
  return BPPSA_OK;
}

/* Measures a message, and a broadcast without the message that answers it, per level of a tree over all ranks. */
static bppsa_status measure_links(session *s) {
  double levels = 0;
  if (bppsa_comm_size(s->crew.world) < 2) {
    return BPPSA_OK;
  }
  for (int32_t ranks = 1; ranks < bppsa_comm_size(s->crew.world); ranks *= 2) {
    ++levels;
  }
  BPPSA_TRY(measure_link(s, false, &s->link));
  BPPSA_TRY(measure_link(s, true, &s->collective));
  s->collective.alpha_s = fmax(0, s->collective.alpha_s - s->link.alpha_s) / levels;
  s->collective.beta_s /= levels;
  return BPPSA_OK;
}

static bppsa_status prepare(bppsa_bench *bench) {
  session *s = bench->session;
  s->bench = bench;
  s->leads = bppsa_calloc(BPPSA_RANKS_ENTRIES, sizeof *s->leads);
  if (s->leads == NULL) {
    return bppsa_bench_no_room();
  }
  BPPSA_TRY(bppsa_device_create("cpu", bppsa_device_get_threads(bench->device), &s->host));
  BPPSA_TRY(bppsa_ranks_crew_open(bench->asked, bench->device, &s->crew));
  return measure_links(s);
}

static bool put_link(json_t *document, const char *key, bppsa_link link) {
  json_t *object = json_object();
  const bool ok = object != NULL && bppsa_json_put_real(object, "alpha_s", link.alpha_s) &&
                  bppsa_json_put_real(object, "beta_s", link.beta_s);
  return bppsa_json_put(document, key, bppsa_json_finish(object, ok));
}

static bool put_members(const bppsa_bench *bench, json_t *document) {
  const session *s = bench->session;
  const bppsa_comm *world = s->crew.world;
  bool ok = put_link(document, "link", s->link) && put_link(document, "broadcast", s->collective);
  ok = ok && bppsa_json_put_text(document, "transport", bppsa_comm_transport_name(bppsa_comm_get_transport(world)));
  ok = ok && bppsa_json_put_integer(document, "ranks", bppsa_comm_size(world));
  ok = ok && bppsa_json_put_integer(document, "ranks_of_node", bppsa_comm_node_size(world));
  return ok && bppsa_json_put_integer(document, "processors_of_node", bppsa_pool_cpus());
}

static bppsa_status print_head(const bppsa_bench *bench) {
  const session *s = bench->session;
  return bppsa_output_print(&bench->request->to,
                            "up to %d ranks over %s on %s, %d processors, %d threads a rank\n"
                            "a message takes %.3g us and %.3g ns a byte, a level of a broadcast %.3g us and %.3g ns\n"
                            "milliseconds; messages, sent and held: of the rank with the most\n",
                            bppsa_comm_size(s->crew.world), bppsa_comm_transport_name(bppsa_comm_get_transport(s->crew.world)),
                            bppsa_device_get_hardware(bench->device), (int)bppsa_pool_cpus(),
                            bppsa_device_get_threads(bench->device), 1e6 * s->link.alpha_s, 1e9 * s->link.beta_s,
                            1e6 * s->collective.alpha_s, 1e9 * s->collective.beta_s);
}

static bppsa_status print_above(bppsa_bench *bench) {
  const bppsa_ranks_subject *subject = subject_of(bench->session);
  char text[BPPSA_NETWORK_TEXT];
  return bppsa_output_print(&bench->request->to, "\n%s, %s\n",
                            bppsa_network_describe(&subject->network, &subject->config, text, sizeof text),
                            bppsa_dtype_name(subject->config.dtype));
}

static bppsa_status finish(bppsa_bench *bench) {
  BPPSA_TRY(bench->request->to.json ? BPPSA_OK : bppsa_bench_show_noisy(&bench->request->to, bench->rows.noisy));
  return bppsa_crew_dismiss(bench->asked->comm);
}

static void release(bppsa_bench *bench) {
  session *s = bench->session;
  free_reference(s);
  bppsa_ranks_crew_close(&s->crew);
  bppsa_device_destroy(s->host);
  bppsa_free(s->leads);
}

const bppsa_bench_case bppsa_bench_case_ranks = {.name = "ranks",
                                                 .session = sizeof(session),
                                                 .budget_s = 1,
                                                 .quick_s = 0.3,
                                                 .bound = BPPSA_RESIDUAL_BOUND,
                                                 .names = (const char *const[]){"network", "method", NULL},
                                                 .columns = columns,
                                                 .prepare = prepare,
                                                 .put_members = put_members,
                                                 .head = print_head,
                                                 .enter = enter,
                                                 .put = put,
                                                 .leave = leave,
                                                 .release = release,
                                                 .settle = settle,
                                                 .above = print_above,
                                                 .finish = finish,
                                                 .serve = bppsa_ranks_crew_serve};

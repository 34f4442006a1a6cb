/* list_mutants EVERY [RESULT.json]
 *
 * Damaged schedules on the executor. For each of the schemes below, every operation of its list is in turn
 *
 *   - swapped with the next one of its lane, or dropped;
 *   - given the next or the previous version of the weights, one far away, or the next or the previous micro-batch;
 *   - given to the next worker;
 *
 * every forward pass is
 *
 *   - given another version of the weights together with all that its stage does with the micro-batch: a version that is the same
 *     everywhere, and wrong;
 *
 * and every update is
 *
 *   - split by layer, into two updates of the same version, or of two versions; or its second half comes behind the next pass;
 *   - made twice, with the same version or with two versions; or it has the next one's version, which has its;
 *   - moved behind the next pass or the third one, or in front of the latest or the third latest;
 *   - moved behind the next pass or the third one, and all versions are renamed to those that exist by then (PipeDream, vanilla),
 *
 * once in the list as it is, with dependencies and transfers, and once as if the worker's row of a CSV file had been edited: then
 * dependencies and transfers follow from the operations again. A damaged list must be refused by a rule, or train to the bits of
 * the undamaged one: no list that the rules accept may fail, wait for ever, or end with other weights or losses.
 *
 * Then the ranks get different lists, each of them valid: rank 1 has two micro-batches in the other order. The first message that
 * is another than the list's must end the run.
 *
 * Takes every EVERYth of the lists, prints a line of counts for each scheme, and writes them to RESULT.json if given. Exit 1 where
 * a list does otherwise. (The file is long because it has every kind of damage and the judgement of all.)
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <jansson.h>

#include "bppsa_version.h"
#include "tests/distributed/pipeline_case.h"

enum { RANKS = 2, LAYERS = 8, RULES = 64, WEIGHTS = 8192 /* bytes */ };
#define TIMEOUT 2 /* seconds: nothing waits for as long in a list that can run */

static const struct {
  const char *scheme;
  int64_t stages, micro_batches, iterations, width, replicas;
  bppsa_schedule_scale scale;
  bppsa_schedule_split split;
  bool recompute;
} schemes[] = {
    {"model-parallel", 4, 2, 1, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"gpipe", 2, 3, 2, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, true},
    {"gpipe", 2, 2, 1, 2, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"1f1b", 4, 4, 2, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"1f1b", 2, 3, 1, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_WI, false},
    {"interleaved", 2, 2, 1, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"gems", 2, 3, 1, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"chimera", 4, 4, 1, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"chimera", 2, 4, 1, 1, 0, BPPSA_SCALE_DOUBLING, BPPSA_SPLIT_NONE, false},
    {"chimera", 2, 2, 2, 1, 0, BPPSA_SCALE_HALVING, BPPSA_SPLIT_NONE, true},
    {"chimera", 4, 4, 1, 1, 4, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"zb-h1", 3, 3, 1, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"fast-forward", 2, 2, 1, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"modulo", 2, 2, 1, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"wait-free", 3, 1, 1, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"priority", 2, 1, 1, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"reverse-first-k", 2, 1, 1, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"multi-stream", 1, 1, 1, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"pipedream", 3, 3, 3, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"2bw", 3, 3, 3, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"vanilla", 3, 3, 3, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"spectrain", 3, 3, 3, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_NONE, false},
    {"pipedream", 3, 3, 2, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_WI, false},
    {"2bw", 3, 3, 2, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_IW, false},
    {"vanilla", 3, 3, 2, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_WI, false},
    {"spectrain", 3, 3, 2, 1, 0, BPPSA_SCALE_DIRECT, BPPSA_SPLIT_WI, false},
};

static void give_up(const char *what) {
  fprintf(stderr, "list_mutants: %s: %s\n", what, bppsa_last_error());
  exit(1);
}

/* ---- training by a list ---- */

typedef struct {
  const bppsa_cnn_network *network;
  const bppsa_schedule *list[RANKS];
  /* written by rank 0 */
  int64_t bytes, updates;
  char weights[WEIGHTS];
  double losses[MOST_UPDATES];
} training;

static bppsa_status train(bppsa_comm *comm, training *t, bppsa_chain *chain, bppsa_model *model) {
  const bppsa_schedule *list = t->list[bppsa_comm_rank(comm)];
  problem about = problem_of(t->network, SAMPLES / bppsa_pipeline_parts(list));
  const bppsa_pipeline_data data = {.context = &about, .input = input_of, .loss = loss_of};
  bppsa_pipeline_config config = {.schedule = list, .samples = SAMPLES, .optimizer = bppsa_optimizer_config_default()};
  bppsa_view views[MOST_PARAMETERS];
  double losses[MOST_UPDATES];
  bppsa_pipeline *p;
  config.optimizer.kind = BPPSA_SGD;
  config.optimizer.lr = 0.05;
  config.optimizer.momentum = 0.9;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    views[i] = model->parameters[i].value;
  }
  BPPSA_TRY(bppsa_pipeline_create(comm, chain, &config, views, &p));
  bppsa_status status = bppsa_pipeline_run(p, &data, losses);
  status = status == BPPSA_OK ? bppsa_pipeline_collect(p, views, NULL) : status;
  if (status == BPPSA_OK && bppsa_comm_rank(comm) == 0) {
    t->updates = bppsa_pipeline_updates(p);
    memcpy(t->losses, losses, (size_t)t->updates * sizeof *losses);
    t->bytes = pack(model, t->weights);
  }
  bppsa_pipeline_destroy(p);
  return status;
}

static bppsa_status train_rank(bppsa_comm *comm, void *context) {
  training *t = context;
  const pipeline_case like = {.network = t->network, .dtype = BPPSA_F32};
  bppsa_device *device = NULL;
  bppsa_chain *chain = NULL;
  bppsa_model *model = NULL;
  bppsa_status status = bppsa_device_create("cpu", 1, &device);
  status = status == BPPSA_OK ? bppsa_cnn_chain_create(t->network, SAMPLES, BPPSA_F32, device, &chain) : status;
  status = status == BPPSA_OK ? make_model(&like, 1, device, &model) : status;
  status = status == BPPSA_OK ? train(comm, t, chain, model) : status;
  if (model != NULL) {
    bppsa_model_destroy(model);
  }
  bppsa_chain_destroy(chain);
  bppsa_device_destroy(device);
  return status;
}

static bppsa_status train_by(training *t) {
  bppsa_comm_config config = bppsa_comm_config_default();
  config.ranks = RANKS;
  config.timeout = TIMEOUT;
  t->updates = t->bytes = 0;
  return bppsa_comm_run(&config, train_rank, t, NULL);
}

static bool same_bits(const training *a, const training *b) {
  return a->updates == b->updates && a->bytes == b->bytes && memcmp(a->weights, b->weights, (size_t)a->bytes) == 0 &&
         memcmp(a->losses, b->losses, (size_t)a->updates * sizeof *a->losses) == 0;
}

/* ---- damage ---- */

typedef struct damage damage;

/* number: what is special about this damage. false: the operation has nothing that could be damaged so. */
struct damage {
  const char *name;
  bool (*inflict)(bppsa_schedule *list, int64_t id, int32_t number);
  int32_t number;
};

/* The next operation of the same lane; -1: none. */
static int64_t next_of(const bppsa_schedule *list, int64_t id) {
  for (int64_t next = id + 1; next < list->count; ++next) {
    if (list->ops[next].worker == list->ops[id].worker && list->ops[next].lane == list->ops[id].lane) {
      return next;
    }
  }
  return -1;
}

static bool swap(bppsa_schedule *list, int64_t id, int32_t number) {
  (void)number;
  const int64_t next = next_of(list, id);
  if (next < 0) {
    return false;
  }
  const bppsa_schedule_op kept = list->ops[id];
  list->ops[id] = list->ops[next];
  list->ops[next] = kept;
  for (int64_t i = 0; i < list->dep_count; ++i) { /* an operation has taken its number along */
    list->deps[i] = (int32_t)(list->deps[i] == id ? next : list->deps[i] == next ? id : list->deps[i]);
  }
  return true;
}

/* Removes an operation; nothing depends on it any more. */
static bool drop(bppsa_schedule *list, int64_t id, int32_t number) {
  (void)number;
  for (int64_t i = 0; i < list->count; ++i) {
    bppsa_schedule_op *op = &list->ops[i];
    for (int32_t k = 0; k < op->dep_count; ++k) {
      int32_t *dep = &list->deps[op->deps + k];
      if (*dep == id) {
        *dep = list->deps[op->deps + --op->dep_count];
        --k;
      }
    }
  }
  memmove(&list->ops[id], &list->ops[id + 1], (size_t)(list->count - id - 1) * sizeof *list->ops);
  list->count -= 1;
  for (int64_t i = 0; i < list->dep_count; ++i) {
    list->deps[i] -= list->deps[i] > id;
  }
  return true;
}

static bool change_version(bppsa_schedule *list, int64_t id, int32_t number) {
  bppsa_schedule_op *op = &list->ops[id];
  if (op->weight_version < 0) {
    return false;
  }
  op->weight_version += number;
  return true;
}

/* Of all that the stage does with the micro-batch of a forward pass. */
static bool change_versions(bppsa_schedule *list, int64_t id, int32_t number) {
  const bppsa_schedule_op of = list->ops[id];
  if (of.kind != BPPSA_KIND_F) {
    return false;
  }
  for (int64_t i = 0; i < list->count; ++i) {
    bppsa_schedule_op *op = &list->ops[i];
    op->weight_version += op->micro == of.micro && op->stage == of.stage && op->replica == of.replica ? number : 0;
  }
  return true;
}

static bool change_micro(bppsa_schedule *list, int64_t id, int32_t number) {
  bppsa_schedule_op *op = &list->ops[id];
  if (op->micro < 0 || op->micro + number < 0) {
    return false;
  }
  op->micro += number;
  return true;
}

static bool change_worker(bppsa_schedule *list, int64_t id, int32_t number) {
  list->ops[id].worker = (int32_t)((list->ops[id].worker + number) % list->workers);
  return list->workers > 1;
}

/* An operation goes to another place of the list; dependencies follow it. */
static void move_to(bppsa_schedule *list, int64_t id, int64_t to) {
  const bppsa_schedule_op op = list->ops[id];
  const int64_t step = to < id ? -1 : 1;
  for (int64_t i = 0; i < list->dep_count; ++i) {
    const int64_t dep = list->deps[i];
    const bool between = step > 0 ? dep > id && dep <= to : dep >= to && dep < id;
    list->deps[i] = (int32_t)(dep == id ? to : between ? dep - step : dep);
  }
  for (; id != to; id += step) {
    list->ops[id] = list->ops[id + step];
  }
  list->ops[to] = op;
}

/* The place of the `passes`-th pass of the operation's lane behind it (below 0: in front of it); -1: none. */
static int64_t find_pass(const bppsa_schedule *list, int64_t id, int32_t passes) {
  const int64_t step = passes < 0 ? -1 : 1;
  const bppsa_schedule_op *from = &list->ops[id];
  for (int64_t i = id + step; i >= 0 && i < list->count; i += step) {
    const bppsa_schedule_op *op = &list->ops[i];
    passes -= (int32_t)(op->kind <= BPPSA_KIND_RECOMPUTE && op->worker == from->worker && op->lane == from->lane ? step : 0);
    if (passes == 0) {
      return i;
    }
  }
  return -1;
}

static bool move_step(bppsa_schedule *list, int64_t id, int32_t number) {
  const int64_t to = list->ops[id].kind == BPPSA_KIND_STEP ? find_pass(list, id, number) : -1;
  if (to >= 0) {
    move_to(list, id, to);
  }
  return to >= 0;
}

/* Where passes see the versions that exist (PipeDream, vanilla): every operation gets the version that its place in the list gives
 * it. now: updates of each layer; seen: the versions of the forward passes, of [micro-batch][layer]. */
static void rename_versions(bppsa_schedule *list, int32_t *now, int32_t *seen) {
  const bool stashed = list->scheme->weights == BPPSA_WEIGHTS_STASHED;
  const int64_t layers = list->config.layers;
  for (int64_t id = 0; id < list->count; ++id) {
    bppsa_schedule_op *op = &list->ops[id];
    const int64_t cell = op->micro * layers + op->layer;
    if (op->kind == BPPSA_KIND_STEP) {
      for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
        op->weight_version = ++now[layer];
      }
    } else if (op->kind == BPPSA_KIND_SEND && op->dep_count > 0) {
      op->weight_version = list->ops[list->deps[op->deps]].weight_version;
    } else if (op->kind == BPPSA_KIND_RECV && id > 0) { /* behind its SEND */
      op->weight_version = list->ops[id - 1].weight_version;
    } else if (op->kind == BPPSA_KIND_STASH || op->kind == BPPSA_KIND_F) {
      op->weight_version = seen[cell] = now[op->layer];
    } else if (op->kind <= BPPSA_KIND_RECOMPUTE) {
      op->weight_version = stashed ? seen[cell] : now[op->layer];
    }
  }
}

/* Two damages at once: an update comes later, and the versions follow it. */
static bool move_step_and_rename(bppsa_schedule *list, int64_t id, int32_t number) {
  const bppsa_schedule_weights weights = list->scheme->weights;
  const int64_t layers = list->config.layers;
  if ((weights != BPPSA_WEIGHTS_STASHED && weights != BPPSA_WEIGHTS_LATEST) || !move_step(list, id, number)) {
    return false;
  }
  int32_t *now = calloc((size_t)(layers * (list->micros + 1)), sizeof *now);
  if (now == NULL) {
    give_up("out of memory");
  }
  rename_versions(list, now, now + layers);
  free(now);
  return true;
}

typedef enum { SAME_VERSION = 0, NEXT_VERSION, SECOND_HALF_LATER } split_kind;

static bool split_step(bppsa_schedule *list, int64_t id, int32_t number) {
  bppsa_schedule_op half = list->ops[id];
  if (half.kind != BPPSA_KIND_STEP || half.layers < 2) {
    return false;
  }
  list->ops[id].layers = 1;
  list->ops[id].cost = half.cost / half.layers;
  half.cost -= list->ops[id].cost;
  half.layer += 1;
  half.layers -= 1;
  half.weight_version += number == NEXT_VERSION;
  if (bppsa_schedule_append(list, &half) != BPPSA_OK) {
    return false;
  }
  move_to(list, list->count - 1, id + 1);
  return number != SECOND_HALF_LATER || move_step(list, id + 1, 1);
}

/* The operation comes once more behind itself: an update with the same version, or with the next one. */
static bool repeat_step(bppsa_schedule *list, int64_t id, int32_t number) {
  bppsa_schedule_op again = list->ops[id];
  if (again.kind != BPPSA_KIND_STEP) {
    return false;
  }
  again.weight_version += number;
  if (bppsa_schedule_append(list, &again) != BPPSA_OK) {
    return false;
  }
  move_to(list, list->count - 1, id + 1);
  return true;
}

/* Two updates of the same layers, one behind the other, exchange their versions. */
static bool exchange_versions(bppsa_schedule *list, int64_t id, int32_t number) {
  bppsa_schedule_op *op = &list->ops[id];
  (void)number;
  for (int64_t next = id + 1; op->kind == BPPSA_KIND_STEP && next < list->count; ++next) {
    bppsa_schedule_op *other = &list->ops[next];
    if (other->kind == BPPSA_KIND_STEP && other->layer == op->layer && other->replica == op->replica) {
      const int32_t version = op->weight_version;
      op->weight_version = other->weight_version;
      other->weight_version = version;
      return true;
    }
  }
  return false;
}

static const damage damages[] = {{"swapped", swap, 0},
                                 {"dropped", drop, 0},
                                 {"next version", change_version, 1},
                                 {"previous version", change_version, -1},
                                 {"far version", change_version, 999999},
                                 {"next micro-batch", change_micro, 1},
                                 {"previous micro-batch", change_micro, -1},
                                 {"other worker", change_worker, 1},
                                 {"next version of all passes", change_versions, 1},
                                 {"previous version of all passes", change_versions, -1},
                                 {"far version of all passes", change_versions, 1000},
                                 {"update split", split_step, SAME_VERSION},
                                 {"update split and counted twice", split_step, NEXT_VERSION},
                                 {"half of an update behind the next pass", split_step, SECOND_HALF_LATER},
                                 {"update made twice", repeat_step, 0},
                                 {"update made twice and counted twice", repeat_step, 1},
                                 {"versions exchanged with the next update", exchange_versions, 0},
                                 {"update behind the next pass", move_step, 1},
                                 {"update behind the third pass", move_step, 3},
                                 {"update behind the next pass, versions renamed", move_step_and_rename, 1},
                                 {"update behind the third pass, versions renamed", move_step_and_rename, 3},
                                 {"update in front of the latest pass", move_step, -1},
                                 {"update in front of the third latest pass", move_step, -3}};
enum { DAMAGES = sizeof damages / sizeof *damages };

/* ---- lists ---- */

static bppsa_schedule_config config_of(size_t i) {
  bppsa_schedule_config c = bppsa_schedule_config_default();
  c.layers = LAYERS;
  c.stages = schemes[i].stages;
  c.micro_batches = schemes[i].micro_batches;
  c.iterations = schemes[i].iterations;
  c.width = schemes[i].width;
  c.replicas = schemes[i].replicas;
  c.scale = schemes[i].scale;
  c.split = schemes[i].split;
  c.recompute = schemes[i].recompute;
  c.skip_first_input_grad = true;
  return c;
}

static bppsa_schedule *make_list(size_t i) {
  const bppsa_schedule_config config = config_of(i);
  bppsa_schedule *list = NULL;
  if (bppsa_schedule_create(schemes[i].scheme, &config, &list) != BPPSA_OK) {
    give_up(schemes[i].scheme);
  }
  return list;
}

/* What CSV has of a list: the operations of every worker, without transfers; unconnected. */
static bppsa_schedule *make_rows(size_t i) {
  const bppsa_schedule_config config = config_of(i);
  bppsa_schedule *whole = make_list(i), *rows = NULL;
  if (bppsa_schedule_create_empty(schemes[i].scheme, &config, &rows) != BPPSA_OK) {
    give_up(schemes[i].scheme);
  }
  for (int64_t worker = 0; worker < whole->workers; ++worker) {
    for (int64_t id = 0; id < whole->count; ++id) {
      bppsa_schedule_op op = whole->ops[id];
      const bool transfer = op.kind == BPPSA_KIND_SEND || op.kind == BPPSA_KIND_RECV;
      op.cost = op.memory_delta = NAN;
      op.weight_delta = 0;
      op.group = -1;
      op.deps = op.dep_count = 0;
      if (op.worker == worker && !transfer && bppsa_schedule_append(rows, &op) != BPPSA_OK) {
        give_up(schemes[i].scheme);
      }
    }
  }
  bppsa_schedule_destroy(whole);
  return rows;
}

/* ---- counts ---- */

typedef struct {
  int64_t lists, refused, stopped, same, rule[RULES];
} counts;

static counts by_damage[DAMAGES]; /* of all schemes */

static int64_t wrong;

static void complain(size_t i, int64_t id, const damage *what, bool rows, const char *why) {
  bppsa_schedule *whole = rows ? make_rows(i) : make_list(i);
  const bppsa_schedule_op *op = &whole->ops[id];
  fprintf(stderr, "list_mutants: %s (row %zu)%s: operation %" PRId64 ", %s of micro-batch %d, stage %d, worker %d, %s: %s\n",
          schemes[i].scheme, i, rows ? " as CSV" : "", id, bppsa_schedule_kind_name(op->kind), (int)op->micro, (int)op->stage,
          (int)op->worker, what->name, why);
  bppsa_schedule_destroy(whole);
  ++wrong;
}

static void judge(size_t i, bppsa_schedule *list, int64_t id, const damage *what, bool rows, const training *good, counts *c) {
  static training t; /* large */
  bppsa_schedule_finding finding = {.rule = NULL};
  c->lists++;
  if (bppsa_schedule_check(list, BPPSA_SCHEDULE_ALL_RULES, &finding) != BPPSA_OK) {
    give_up("out of memory");
  }
  for (int64_t r = 0; finding.rule != NULL && bppsa_schedule_rule_at(r) != NULL; ++r) {
    c->rule[r] += strcmp(bppsa_schedule_rule_at(r)->name, finding.rule) == 0;
  }
  t.network = good->network;
  for (int rank = 0; rank < RANKS; ++rank) {
    t.list[rank] = list;
  }
  if (finding.rule != NULL) {
    c->refused++;
    return;
  }
  const bppsa_status status = train_by(&t);
  if (status != BPPSA_OK) {
    c->stopped++;
    complain(i, id, what, rows, bppsa_last_error());
  } else if (same_bits(&t, good)) {
    c->same++;
  } else {
    complain(i, id, what, rows, "other weights or losses");
  }
}

static void add_counts(const counts *one, counts *to) {
  to->lists += one->lists;
  to->refused += one->refused;
  to->stopped += one->stopped;
  to->same += one->same;
  for (int64_t r = 0; r < RULES; ++r) {
    to->rule[r] += one->rule[r];
  }
}

/* Damages every operation in every way. */
static void damage_all(size_t i, bool rows, int64_t every, const training *good, counts *c) {
  bppsa_schedule *first = rows ? make_rows(i) : make_list(i);
  const int64_t operations = first->count;
  bppsa_schedule_destroy(first);
  for (int64_t number = 0; number < operations * DAMAGES; ++number) {
    if (number % every != (int64_t)i % every) {
      continue;
    }
    const damage *what = &damages[number % DAMAGES];
    bppsa_schedule *list = rows ? make_rows(i) : make_list(i);
    if (what->inflict(list, number / DAMAGES, what->number)) {
      counts one = {.lists = 0};
      const bppsa_schedule_op *op = &list->ops[number / DAMAGES];
      const bool read =
          what->inflict != change_micro || op->micro + op->micros <= list->micros; /* the reader of CSV refuses others */
      if (rows && (!read || bppsa_schedule_connect(list) != BPPSA_OK)) {
        one.lists++;
        one.refused++;
      } else {
        judge(i, list, number / DAMAGES, what, rows, good, &one);
      }
      add_counts(&one, c);
      add_counts(&one, &by_damage[number % DAMAGES]);
    }
    bppsa_schedule_destroy(list);
  }
}

/* Two micro-batches change places in all operations of rank 1's list. */
static void differ(size_t i, const training *good, int64_t *tripped) {
  static training t; /* large */
  bppsa_schedule *list[RANKS] = {make_list(i), make_list(i)};
  const bool possible = list[0]->config.micro_batches > 1 && list[0]->config.scale != BPPSA_SCALE_DOUBLING &&
                        list[0]->replicas == 1 && list[0]->workers > 1;
  for (int64_t id = 0; id < list[1]->count; ++id) {
    bppsa_schedule_op *op = &list[1]->ops[id];
    op->micro = op->micro == 0 ? 1 : op->micro == 1 ? 0 : op->micro;
  }
  t.network = good->network;
  t.list[0] = list[0];
  t.list[1] = list[1];
  if (possible && bppsa_schedule_validate(list[1]) == BPPSA_OK) {
    const bool stopped = train_by(&t) == BPPSA_ERR_COMM && strstr(bppsa_last_error(), " received ") != NULL;
    *tripped += stopped;
    if (!stopped) {
      fprintf(stderr, "list_mutants: %s, another list on rank 1: %s\n", schemes[i].scheme, bppsa_last_error());
      ++wrong;
    }
  }
  bppsa_schedule_destroy(list[0]);
  bppsa_schedule_destroy(list[1]);
}

/* ---- the program ---- */

static json_t *row_of(size_t i, const counts *c) {
  json_t *row = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "scheme", schemes[i].scheme, "stages",
                          (json_int_t)schemes[i].stages, "micro_batches", (json_int_t)schemes[i].micro_batches, "iterations",
                          (json_int_t)schemes[i].iterations, "lists", (json_int_t)c->lists, "refused", (json_int_t)c->refused,
                          "stopped", (json_int_t)c->stopped, "same_bits", (json_int_t)c->same);
  json_object_set_new(row, "width", json_integer((json_int_t)schemes[i].width));
  json_object_set_new(row, "pipelines", json_integer((json_int_t)schemes[i].replicas)); /* 0: the scheme's own number */
  json_object_set_new(row, "doubling", json_boolean(schemes[i].scale == BPPSA_SCALE_DOUBLING));
  json_object_set_new(row, "halving", json_boolean(schemes[i].scale == BPPSA_SCALE_HALVING));
  json_object_set_new(row, "split_backward", json_boolean(schemes[i].split != BPPSA_SPLIT_NONE));
  json_object_set_new(row, "recompute", json_boolean(schemes[i].recompute));
  json_t *rules = json_object();
  for (int64_t r = 0; bppsa_schedule_rule_at(r) != NULL; ++r) {
    if (c->rule[r] > 0) {
      json_object_set_new(rules, bppsa_schedule_rule_at(r)->name, json_integer((json_int_t)c->rule[r]));
    }
  }
  json_object_set_new(row, "rules", rules);
  return row;
}

static void run_scheme(size_t i, const bppsa_cnn_network *network, int64_t every, json_t *rows, int64_t *tripped) {
  static training good; /* large */
  counts c = {0};
  bppsa_schedule *list = make_list(i);
  good = (training){.network = network, .list = {list, list}};
  if (train_by(&good) != BPPSA_OK) {
    give_up(schemes[i].scheme);
  }
  bppsa_schedule_destroy(list);
  damage_all(i, false, every, &good, &c);
  damage_all(i, true, every, &good, &c);
  differ(i, &good, tripped);
  printf("%-16s %6" PRId64 " lists: %6" PRId64 " refused, %4" PRId64 " stopped, %5" PRId64 " with the same bits\n",
         schemes[i].scheme, c.lists, c.refused, c.stopped, c.same);
  fflush(stdout);
  json_array_append_new(rows, row_of(i, &c));
}

static json_t *damage_rows(void) {
  json_t *rows = json_array();
  for (int d = 0; d < DAMAGES; ++d) {
    const counts *c = &by_damage[d];
    json_array_append_new(rows, json_pack("{s:s, s:I, s:I, s:I, s:I}", "damage", damages[d].name, "lists", (json_int_t)c->lists,
                                          "refused", (json_int_t)c->refused, "stopped", (json_int_t)c->stopped, "same_bits",
                                          (json_int_t)c->same));
  }
  return rows;
}

static bool write(const char *path, json_t *rows, int64_t every, int64_t tripped) {
  const time_t today = time(NULL);
  char date[32];
  bppsa_device *device = NULL;
  (void)strftime(date, sizeof date, "%Y-%m-%d", gmtime(&today));
  if (bppsa_device_create("cpu", 1, &device) != BPPSA_OK) {
    give_up("device");
  }
  json_t *document =
      json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:O}", "bench", "list_mutants", "commit", BPPSA_COMMIT, "date", date, "every",
                (json_int_t)every, "other_list_on_rank_1", (json_int_t)tripped, "wrong", (json_int_t)wrong, "rows", rows);
  json_object_set_new(document, "hardware", json_string(bppsa_device_get_hardware(device)));
  json_object_set_new(document, "damages", damage_rows());
  const int status = json_dump_file(document, path, JSON_INDENT(1));
  json_decref(document);
  bppsa_device_destroy(device);
  return status == 0;
}

int main(int argc, char **argv) {
  const int64_t every = argc > 1 ? atoll(argv[1]) : 0;
  bppsa_cnn_network network;
  int64_t tripped = 0;
  if (every < 1) {
    fprintf(stderr, "list_mutants EVERY [RESULT.json]\n");
    return 2;
  }
  if (bppsa_cnn_network_parse("small", small_network, (int64_t)strlen(small_network), &network) != BPPSA_OK) {
    give_up("network");
  }
  json_t *rows = json_array();
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; ++i) {
    run_scheme(i, &network, every, rows, &tripped);
  }
  bppsa_cnn_network_free(&network);
  printf("%" PRId64 " runs with another list on rank 1 stopped at its message; %" PRId64 " wrong\n", tripped, wrong);
  const bool written = argc < 3 || write(argv[2], rows, every, tripped);
  json_decref(rows);
  return wrong == 0 && written ? 0 : 1;
}

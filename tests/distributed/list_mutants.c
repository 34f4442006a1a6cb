/* list_mutants EVERY [RESULT.json]
 *
 * Damaged schedules on the executor. For each of the schemes below, every operation of its list is in turn
 *
 *   - swapped with the next one of its lane, or dropped;
 *   - given the next or the previous version of the weights, or micro-batch;
 *   - given to the next worker,
 *
 * once in the list as it is, with dependencies and transfers, and once as if the worker's row of a CSV file had been edited: then
 * dependencies and transfers follow from the operations again. A damaged list must be refused by a rule, or train to the bits of
 * the undamaged one: no list that the rules accept may fail, wait for ever, or end with other weights or losses.
 *
 * Then the ranks get different lists, each of them valid: rank 1 has two micro-batches in the other order. The first message that
 * is another than the list's must end the run.
 *
 * Takes every EVERYth of the lists, prints a line of counts for each scheme, and writes them to RESULT.json if given. Exit 1 where
 * a list does otherwise.
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
};

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

typedef enum { SWAP = 0, DROP, VERSION_UP, VERSION_DOWN, MICRO_UP, MICRO_DOWN, WORKER, DAMAGES } damage;

static const char *const damages[DAMAGES] = {
    "swapped", "dropped", "next version", "previous version", "next micro-batch", "previous micro-batch", "other worker"};

/* The next operation of the same lane; -1: none. */
static int64_t next_of(const bppsa_schedule *list, int64_t id) {
  for (int64_t next = id + 1; next < list->count; ++next) {
    if (list->ops[next].worker == list->ops[id].worker && list->ops[next].lane == list->ops[id].lane) {
      return next;
    }
  }
  return -1;
}

static bool swap(bppsa_schedule *list, int64_t id) {
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
static bool drop(bppsa_schedule *list, int64_t id) {
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

/* false: the operation has nothing that could be damaged so. */
static bool inflict(bppsa_schedule *list, int64_t id, damage what) {
  bppsa_schedule_op *op = &list->ops[id];
  const int32_t step = what == VERSION_UP || what == MICRO_UP ? 1 : -1;
  switch (what) {
  case SWAP:
    return swap(list, id);
  case DROP:
    return drop(list, id);
  case VERSION_UP:
  case VERSION_DOWN:
    if (op->weight_version < 0) {
      return false;
    }
    op->weight_version += step;
    return true;
  case MICRO_UP:
  case MICRO_DOWN:
    if (op->micro < 0 || op->micro + step < 0) {
      return false;
    }
    op->micro += step;
    return true;
  case WORKER:
    op->worker = (int32_t)((op->worker + 1) % list->workers);
    return list->workers > 1;
  default:
    return false;
  }
}

/* ---- lists ---- */

static void give_up(const char *what) {
  fprintf(stderr, "list_mutants: %s: %s\n", what, bppsa_last_error());
  exit(1);
}

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

static int64_t wrong;

static void complain(size_t i, int64_t id, damage what, bool rows, const char *why) {
  bppsa_schedule *whole = rows ? make_rows(i) : make_list(i);
  const bppsa_schedule_op *op = &whole->ops[id];
  fprintf(stderr, "list_mutants: %s (row %zu)%s: operation %" PRId64 ", %s of micro-batch %d, stage %d, worker %d, %s: %s\n",
          schemes[i].scheme, i, rows ? " as CSV" : "", id, bppsa_schedule_kind_name(op->kind), (int)op->micro, (int)op->stage,
          (int)op->worker, damages[what], why);
  bppsa_schedule_destroy(whole);
  ++wrong;
}

static void judge(size_t i, bppsa_schedule *list, int64_t id, damage what, bool rows, const training *good, counts *c) {
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

/* Damages every operation in every way. */
static void damage_all(size_t i, bool rows, int64_t every, const training *good, counts *c) {
  bppsa_schedule *first = rows ? make_rows(i) : make_list(i);
  const int64_t operations = first->count;
  bppsa_schedule_destroy(first);
  for (int64_t number = 0; number < operations * DAMAGES; ++number) {
    if (number % every != (int64_t)i % every) {
      continue;
    }
    const damage what = (damage)(number % DAMAGES);
    bppsa_schedule *list = rows ? make_rows(i) : make_list(i);
    if (inflict(list, number / DAMAGES, what)) {
      const bppsa_schedule_op *op = &list->ops[number / DAMAGES];
      const bool read = what == DROP || op->micro + op->micros <= list->micros; /* the reader of CSV refuses others */
      if (rows && (!read || bppsa_schedule_connect(list) != BPPSA_OK)) {
        c->lists++;
        c->refused++;
      } else {
        judge(i, list, number / DAMAGES, what, rows, good, c);
      }
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

static bool write(const char *path, json_t *rows, int64_t every, int64_t tripped) {
  const time_t today = time(NULL);
  char date[32];
  (void)strftime(date, sizeof date, "%Y-%m-%d", gmtime(&today));
  json_t *document =
      json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:O}", "bench", "list_mutants", "commit", BPPSA_COMMIT, "date", date, "every",
                (json_int_t)every, "other_list_on_rank_1", (json_int_t)tripped, "wrong", (json_int_t)wrong, "rows", rows);
  const int status = json_dump_file(document, path, JSON_INDENT(1));
  json_decref(document);
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

#include "runs/rank_schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "distributed/pipeline/chain_costs.h"
#include "runs/rank_layers.h"
#include "schedule/timed.h"
#include "train/line.h"

enum { MOST_WORDS = 64, MOST_PASSES = 1 << 18 /* forward passes of stages in a list of several iterations */ };

/* ---- names ---- */

bool bppsa_rank_schedule_is_file(const char *split) {
  static const char suffix[] = ".csv";
  const size_t length = strlen(split), end = sizeof suffix - 1;
  return length > end && strcmp(split + length - end, suffix) == 0;
}

/* Is it a word of bppsa_rank_split_parse, which checks the rest itself, or of bppsa_rank_layers_find? */
static bool is_split(const char *split) {
  bppsa_rank_layers layers;
  bppsa_rank_layers_find(split, &layers);
  return layers.split != NULL || strchr(split, ':') != NULL || strcmp(split, "batch") == 0 || strcmp(split, "time") == 0;
}

bppsa_status bppsa_rank_schedule_find(const char *split, bool *schedule) {
  int64_t count = 0, words = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count), *found = bppsa_schedule_find(split);
  const char *known[MOST_WORDS] = {NULL};
  char hint[96];
  const bool file = bppsa_rank_schedule_is_file(split);
  if (file || is_split(split) || (found != NULL && !found->scan)) {
    *schedule = file || found != NULL;
    return BPPSA_OK;
  }
  known[words++] = "batch";
  known[words++] = "time";
  for (int32_t i = 0; bppsa_rank_layers_word(i) != NULL; ++i) {
    known[words++] = bppsa_rank_layers_word(i);
  }
  for (int64_t i = 0; i < count && words + 1 < MOST_WORDS; ++i) {
    if (!schemes[i].scan) {
      known[words++] = schemes[i].id;
    }
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT,
                    "split \"%.60s\": expected batch, time, or time:P,batch:Q with P times Q ranks, spatial, filter, channel, "
                    "data+spatial, data+filter, a scheme of bppsa schedule --list with micro-batches, or a schedule's F.csv%s",
                    split, bppsa_suggestion(split, known, hint, sizeof hint));
}

/* ---- what a schedule cannot do ---- */

/* Writes how the user asked for the schedule. */
static const char *asked(const bppsa_rank_schedule *s, char *text, size_t size) {
  snprintf(text, size, s->one_device ? "--ranks 1 --micro-batches" : "--split %s", s->split);
  return text;
}
enum { ASKED = 300 };

static bppsa_status check(const bppsa_rank_schedule *s, const bppsa_network *network, const bppsa_train_config *train,
                          const bppsa_dataset *dataset, const bppsa_network_config *config) {
  const struct {
    bool given;
    const char *option, *why, *expected;
  } refused[] = {{train->clip_norm > 0, "--clip-norm", "whose stages update before the norm of all gradients is known", "none"},
                 {network->mask_count > 0, network->mask != NULL ? "--mask" : "--weights with masks",
                  "whose stages have whole weights", "none"},
                 {network->weight_gradients != BPPSA_WEIGHT_GRADIENTS_IN_ORDER, "--weight-gradients second-stream",
                  "whose list says when they are computed", "in-order"},
                 {dataset->objective.ignores, "--ignore-label", "whose micro-batches count all rows", "none"},
                 {config->method.backward == BPPSA_BACKWARD_SCAN, "--backward scan", "whose stages propagate back layer by layer",
                  "--backward bp"},
                 {config->method.backward == BPPSA_BACKWARD_SPECULATIVE, "--backward speculative",
                  "whose layers compute step by step", "--backward bp"},
                 {config->steps.bidirectional, "--bidirectional", "whose layers have one direction", "none"},
                 {config->steps.forward.kind == BPPSA_FORWARD_SPECULATIVE, "--forward speculative",
                  "whose layers compute step by step", "sequential or auto"},
                 {config->steps.recompute > 0, "--recompute-every", "whose layers keep all states", "none"},
                 {config->steps.dropout > 0, "--dropout", "whose layers run without it", "0"},
                 {config->steps.lengths, "--lengths", "whose samples have one length", "none"},
                 {dataset->packing != NULL, "--pack", "whose samples do not begin anew", "none"},
                 {config->steps.resets, "--resets", "whose samples do not begin anew", "none"},
                 {dataset->loss_weights != NULL, "--loss-weights", "whose micro-batches count all rows", "none"},
                 {config->steps.reset_state, "--reset-state learned", "whose samples do not begin anew", "zeros"}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i) {
    char text[ASKED];
    if (refused[i].given) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside %s, %s, expected %s", refused[i].option,
                        asked(s, text, sizeof text), refused[i].why, refused[i].expected);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_rank_schedule_check_smooth(const bppsa_optimizer_config *optimizer, const char *option, const char *value) {
  return bppsa_optimizer_slots(optimizer) > 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--momentum: 0 beside %s%s, which predicts from the smoothed gradient, expected a momentum above 0 or "
                          "--optimizer adam",
                          option, value);
}

static bppsa_status check_list(const bppsa_rank_schedule *s, const bppsa_train_config *train) {
  const bool predicted = s->list->scheme->weights == BPPSA_WEIGHTS_PREDICTED;
  return predicted ? bppsa_rank_schedule_check_smooth(&train->optimizer, "--split ", s->split) : BPPSA_OK;
}

/* ---- the list ---- */

static int64_t divisor_of_both(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Does the run end within its first epoch? */
static bool ends_early(const bppsa_train_config *train, int64_t epoch_samples) {
  return train->iterations > 0 && train->iterations <= epoch_samples / train->batch;
}

/* Counts the steps between two readers of the weights: the largest number that divides the steps of an epoch, those of a run by
 * iterations, and those between checkpoints. Every number divides 0. */
static int64_t steps_between(const bppsa_train_config *train, int64_t epoch_samples) {
  const int64_t epoch = ends_early(train, epoch_samples) ? 0 : epoch_samples / train->batch;
  return divisor_of_both(divisor_of_both(epoch, train->iterations), bppsa_train_checkpoint_steps(train));
}

/* Returns the largest divisor of `count` that is at most `most`. */
static int64_t largest_divisor(int64_t count, int64_t most) {
  int64_t divisor = count < most ? count : most;
  while (divisor > 1 && count % divisor != 0) {
    --divisor;
  }
  return divisor > 1 ? divisor : 1;
}

bppsa_status bppsa_rank_schedule_stages(int64_t ranks, bppsa_schedule_config *c) {
  if (c->stages == 0 && ranks % c->width != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--width: %" PRId64 " copies over %" PRId64 " ranks, expected a divisor, or --stages D too", c->width,
                      ranks);
  }
  c->stages = c->stages > 0 ? c->stages : ranks / c->width;
  return BPPSA_OK;
}

/* Fills in the settings that follow from the ranks and the run. */
static bppsa_status complete(const bppsa_rank_schedule *s, const bppsa_schedule_scheme *scheme, const bppsa_train_config *train,
                             int64_t epoch_samples, int64_t ranks, bppsa_schedule_config *c) {
  c->window = BPPSA_WINDOW_ITERATION;
  c->layers = s->chain->layers;
  c->skip_first_input_grad = true;
  BPPSA_TRY(bppsa_rank_schedule_stages(ranks, c));
  c->micro_batches = c->micro_batches > 0 ? c->micro_batches : c->stages;
  c->iterations = 1;
  if (scheme->weights != BPPSA_WEIGHTS_SYNCHRONOUS && c->stages <= MOST_PASSES && c->micro_batches <= MOST_PASSES) {
    const int64_t most = MOST_PASSES / (c->stages * c->micro_batches);
    c->iterations = largest_divisor(steps_between(train, epoch_samples), most > 1 ? most : 1);
  }
  return BPPSA_OK;
}

/* Sets *cut to the stages' first layers (owned by the caller): those that are given, or those for which the most expensive stage
 * is cheapest, by costs of layers if there are any, otherwise by FLOPs. */
static bppsa_status cut_stages(const bppsa_rank_schedule *s, const bppsa_schedule_scheme *scheme,
                               const bppsa_schedule_config *by_flops, bppsa_schedule_config *c, int64_t **cut) {
  if (s->cut != NULL) {
    const bppsa_status status = bppsa_schedule_cut_parse(s->cut, cut, &c->cuts);
    c->cut = *cut;
    return status == BPPSA_OK ? status : bppsa_fail_prefix(status, "--cut");
  }
  BPPSA_TRY(bppsa_schedule_cut_scheme(scheme->id, bppsa_schedule_costs_by_layer(c) ? c : by_flops, cut, &c->cuts));
  c->cut = *cut;
  return BPPSA_OK;
}

/* Refuses costs whose bytes of a layer differ from this run's, because they are those of another network or type. Costs of
 * stages, and files without such bytes, cannot be checked. */
static bppsa_status check_bytes(const bppsa_rank_schedule *s, const bppsa_schedule_config *c) {
  static const int32_t counted[] = {BPPSA_COST_MESSAGE, BPPSA_COST_GRADIENT};
  for (size_t i = 0; i < sizeof counted / sizeof *counted; ++i) {
    const double *given = c->cost[counted[i]];
    const bool message = counted[i] == BPPSA_COST_MESSAGE, has = given != NULL && c->rows[counted[i]] == c->layers;
    for (int64_t l = 0; has && l < c->layers; ++l) {
      const double bytes = message ? bppsa_chain_message(s->chain, c->samples, l) : bppsa_chain_gradient(s->chain, l);
      if (given[l] != bytes) {
        return bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--costs: %s: %s: %.0f bytes of layer %" PRId64
                          ", expected %.0f, as this run's network and --dtype make "
                          "them",
                          s->costs, bppsa_schedule_cost_name(counted[i]), given[l], l, bytes);
      }
    }
  }
  return BPPSA_OK;
}

/* Takes the costs of a file. arrays: as bppsa_schedule_costs_load has them. */
static bppsa_status take_costs(const bppsa_rank_schedule *s, bppsa_schedule_config *c, double *arrays[]) {
  const bppsa_status status = bppsa_schedule_costs_load(s->costs, c, arrays);
  if (status != BPPSA_OK) {
    return bppsa_fail_prefix(bppsa_input_status(status), "--costs");
  }
  const bppsa_status rows = bppsa_schedule_check_rows(s->split, c);
  if (rows != BPPSA_OK) {
    return bppsa_fail_prefix(rows, "--costs: %s", s->costs);
  }
  return c->samples > 0 ? check_bytes(s, c) : BPPSA_OK; /* check_costs refuses files without samples */
}

/* Takes FLOPs as costs: forward pass, input gradient and weight gradient of a layer cost the same. parts: [2][L] */
static void take_flops(const bppsa_rank_schedule *s, bppsa_schedule_config *c, double *parts) {
  const int64_t layers = s->chain->layers;
  for (int64_t l = 0; l < layers; ++l) {
    parts[l] = s->chain->layer[l].flops;
    parts[layers + l] = s->chain->layer[l].parameters > 0 ? parts[l] : 0;
  }
  c->cost[BPPSA_COST_FORWARD] = c->cost[BPPSA_COST_INPUT_GRAD] = parts;
  c->cost[BPPSA_COST_WEIGHT_GRAD] = parts + layers;
  c->rows[BPPSA_COST_FORWARD] = c->rows[BPPSA_COST_INPUT_GRAD] = c->rows[BPPSA_COST_WEIGHT_GRAD] = layers;
}

/* Makes the list of a scheme. flops: [2][L] */
static bppsa_status make_from_scheme(bppsa_rank_schedule *s, const bppsa_train_config *train, int64_t epoch_samples,
                                     int64_t ranks, double *flops) {
  const bppsa_schedule_scheme *scheme = bppsa_schedule_find(s->split);
  bppsa_schedule_config c = s->config;
  double *arrays[BPPSA_SCHEDULE_COST_ARRAYS] = {NULL};
  int64_t *cut = NULL;
  BPPSA_TRY(complete(s, scheme, train, epoch_samples, ranks, &c));
  bppsa_schedule_config by_flops = c;
  take_flops(s, &by_flops, flops);
  if (s->costs == NULL) {
    c = by_flops;
  }
  bppsa_status status = s->costs != NULL ? take_costs(s, &c, arrays) : BPPSA_OK;
  status = status == BPPSA_OK ? cut_stages(s, scheme, &by_flops, &c, &cut) : status;
  status = status == BPPSA_OK ? bppsa_schedule_create(s->split, &c, &s->list) : status;
  bppsa_free(cut);
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    bppsa_free(arrays[i]);
  }
  return status;
}

static bppsa_status load_list(bppsa_rank_schedule *s) {
  const bppsa_status status = bppsa_schedule_csv_load(s->split, &s->list);
  if (status != BPPSA_OK) {
    return bppsa_fail_prefix(bppsa_input_status(status), "--split");
  }
  const bppsa_status valid = bppsa_schedule_validate(s->list);
  if (valid != BPPSA_OK) {
    return bppsa_fail_prefix(valid, "--split: %s", s->split);
  }
  if (!s->list->scheme->scan && s->list->config.layers != s->chain->layers) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--split: %s: %" PRId64 " layers, expected the network's %" PRId64, s->split,
                      s->list->config.layers, s->chain->layers);
  }
  return s->list->rounds == s->list->config.iterations
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--split: %s: its window ends behind forward passes, expected one of bppsa schedule --window iteration",
                          s->split);
}

static bppsa_status make_list(bppsa_rank_schedule *s, const bppsa_train_config *train, int64_t epoch_samples, int64_t ranks) {
  if (bppsa_rank_schedule_is_file(s->split)) {
    return load_list(s);
  }
  double *flops = bppsa_calloc(2 * s->chain->layers, sizeof *flops);
  if (flops == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = make_from_scheme(s, train, epoch_samples, ranks, flops);
  bppsa_free(flops);
  /* messages of the schedule itself begin with "layers: .."; here --split and the options beside it choose the layers */
  char text[ASKED];
  return status == BPPSA_ERR_ARGUMENT && strncmp(bppsa_last_error(), "--", 2) != 0
             ? bppsa_fail_prefix(status, "%s", asked(s, text, sizeof text))
             : status;
}

/* ---- batches ---- */

/* Refuses costs that were measured with micro-batches of another size than this run's. */
static bppsa_status check_costs(const bppsa_rank_schedule *s) {
  const int64_t found = s->list->config.samples;
  if (s->costs == NULL || found == s->samples) {
    return BPPSA_OK;
  }
  return found == 0
             ? bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--costs: %s: no samples, expected \"samples\": %" PRId64 ", of the micro-batches whose seconds it has",
                          s->costs, s->samples)
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--costs: %s: of micro-batches of %" PRId64 " samples, expected %" PRId64
                          ", as this run's --batch and --micro-batches make them",
                          s->costs, found, s->samples);
}

static bppsa_status check_batches(bppsa_rank_schedule *s, const bppsa_train_config *train, int64_t epoch_samples) {
  const int64_t micros = bppsa_pipeline_train_micros(s->list), blocks = micros * bppsa_pipeline_parts(s->list);
  const int64_t batch = train->batch, left = steps_between(train, epoch_samples), steps = s->list->rounds;
  char text[ASKED];
  if (batch % blocks != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--batch: %" PRId64 " samples for the %" PRId64 " %smicro-batches of %s, which are equal, expected "
                      "a multiple",
                      batch, blocks, blocks > micros ? "halves of " : "", asked(s, text, sizeof text));
  }
  if (epoch_samples % batch != 0 && !ends_early(train, epoch_samples)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--batch: %" PRId64 ", no divisor of the %" PRId64 " training samples, expected one beside %s, whose "
                      "batches are equal, or fewer --samples",
                      batch, epoch_samples, asked(s, text, sizeof text));
  }
  if (left % steps != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--split: %s has %" PRId64 " iterations, expected a divisor of %" PRId64
                      ", the steps between two looks at the "
                      "weights",
                      s->split, steps, left);
  }
  s->samples = batch / micros;
  return check_costs(s);
}

/* Makes the chain again for the size that is now known: only the batch it takes differs. The model's memory limit is checked
 * first; the chain is no larger. */
static bppsa_status make_chain(bppsa_rank_schedule *s, const bppsa_network *network, const bppsa_network_config *config,
                               const bppsa_device *device) {
  bppsa_chain *made = NULL;
  int64_t bytes;
  BPPSA_TRY(bppsa_network_count(network, config, device, &bytes));
  BPPSA_TRY(network->kind->family->chain(network, config, device, &made));
  bppsa_chain_destroy(s->chain);
  s->chain = made;
  return BPPSA_OK;
}

bppsa_status bppsa_rank_schedule_make(bppsa_rank_schedule *s, const bppsa_network *network, const bppsa_train_config *train,
                                      const bppsa_dataset *dataset, int64_t epoch_samples, const bppsa_device *device,
                                      int64_t ranks, bppsa_network_config *config) {
  bppsa_network_config one = *config;
  BPPSA_TRY(check(s, network, train, dataset, config));
  one.batch = 1;
  one.method.backward = BPPSA_BACKWARD_BP;
  one.steps.forward = bppsa_forward_method_default();
  BPPSA_TRY(make_chain(s, network, &one, device));
  BPPSA_TRY(make_list(s, train, epoch_samples, ranks));
  BPPSA_TRY(check_list(s, train));
  BPPSA_TRY(check_batches(s, train, epoch_samples));
  one.batch = s->samples / bppsa_pipeline_parts(s->list);
  BPPSA_TRY(make_chain(s, network, &one, device));
  *config = one;
  return BPPSA_OK;
}

void bppsa_rank_schedule_free(bppsa_rank_schedule *s) {
  bppsa_schedule_destroy(s->list);
  bppsa_chain_destroy(s->chain);
  *s = (bppsa_rank_schedule){.split = NULL};
}

/* ---- words and numbers ---- */

bool bppsa_rank_schedule_synchronous(const bppsa_rank_schedule *s) {
  return s->list->scheme->weights == BPPSA_WEIGHTS_SYNCHRONOUS;
}

/* Computes a checksum over what every worker does in which order, and which weights it sees. */
static uLong checksum(const bppsa_schedule *list) {
  uLong sum = crc32_z(0, NULL, 0);
  for (int64_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    const int32_t numbers[] = {op->kind,   op->lane,  op->worker, op->replica, op->stage,         op->layer,
                               op->layers, op->micro, op->micros, op->part,    op->weight_version};
    sum = crc32_z(sum, (const Bytef *)numbers, sizeof numbers);
  }
  return sum;
}

/* Writes what makes an asynchronous scheme's list, as options. The list's checksum comes first, because the rest may be cut off;
 * it then ends with "...". */
static void add_options(const bppsa_rank_schedule *s, bppsa_line *line) {
  static const char *const splits[] = {"", " --split-backward wi", " --split-backward iw"};
  static const char *const syncs[] = {" --sync post", " --sync eager", ""};
  const bppsa_schedule_config *c = &s->list->config;
  bppsa_line_add(line, "the schedule %s (list %08lx, --stages %" PRId64, s->list->scheme->id, checksum(s->list), c->stages);
  for (int64_t i = 0; i < c->cuts; ++i) {
    bppsa_line_add(line, "%s%" PRId64, i == 0 ? " --cut " : ",", c->cut[i]);
  }
  bppsa_line_add(line, " --micro-batches %" PRId64 " of %" PRId64 " samples%s%s%s", c->micro_batches, s->samples,
                 c->recompute ? " --recompute" : "", splits[c->split], syncs[c->sync]);
  if (c->width > 1) {
    bppsa_line_add(line, " --width %" PRId64, c->width);
  }
  bppsa_line_add(line, ", a flush every %" PRId64 " steps)", s->list->rounds);
}

#define CUT_OFF "..."

const char *bppsa_rank_schedule_reduction(const bppsa_rank_schedule *s, char *text, size_t size) {
  const int64_t parts = bppsa_pipeline_parts(s->list), micros = bppsa_pipeline_train_micros(s->list) * parts;
  if (bppsa_rank_schedule_synchronous(s)) { /* half a micro-batch is rounded like a micro-batch of half the size */
    snprintf(text, size, "a tree over %" PRId64 " micro-batches of %" PRId64 " samples", micros, s->samples / parts);
  } else {
    bppsa_line options = {.length = 0};
    add_options(s, &options);
    const int length = snprintf(text, size, "%s", options.text);
    if (length >= (int)size && size > sizeof CUT_OFF) {
      memcpy(text + size - sizeof CUT_OFF, CUT_OFF, sizeof CUT_OFF);
    }
  }
  return text;
}

void bppsa_rank_schedule_text(const bppsa_rank_schedule *s, bppsa_text *text) {
  const bppsa_schedule *list = s->list;
  bppsa_text_add(text, "%s%s%s", s->split, bppsa_rank_schedule_is_file(s->split) ? ", " : "",
                 bppsa_rank_schedule_is_file(s->split) ? list->scheme->id : "");
  if (!list->scheme->data_parallel && list->stages > 1) {
    bppsa_text_add(text, ", %" PRId64 " stages from layers", list->stages);
    for (int64_t stage = 0; stage < list->stages; ++stage) {
      bppsa_text_add(text, "%s%" PRId64, stage > 0 ? ", " : " ", bppsa_schedule_layer_of(list, stage));
    }
  }
  bppsa_text_add(text, ", %" PRId64 " micro-batches of %" PRId64 " samples", bppsa_pipeline_train_micros(list), s->samples);
  if (!bppsa_rank_schedule_synchronous(s)) {
    bppsa_text_add(text, ", a flush every %" PRId64 " steps", list->rounds);
  }
}

bool bppsa_rank_schedule_put(json_t *object, const bppsa_rank_schedule *s) {
  const bppsa_schedule *list = s->list;
  const int64_t stages = list->scheme->data_parallel ? 1 : list->stages;
  int64_t *cut = bppsa_calloc(stages, sizeof *cut);
  for (int64_t stage = 1; cut != NULL && stage < stages; ++stage) {
    cut[stage - 1] = bppsa_schedule_layer_of(list, stage);
  }
  bool ok = cut != NULL && bppsa_json_put_text(object, "split", s->split);
  ok = ok && bppsa_json_put_text(object, "scheme", list->scheme->id);
  ok = ok && bppsa_json_put_integer(object, "workers", list->workers) && bppsa_json_put_integer(object, "stages", stages);
  ok = ok && bppsa_json_put_shape(object, "cut", (int32_t)(stages - 1), cut);
  bppsa_free(cut);
  ok = ok && bppsa_json_put_integer(object, "micro_batches", bppsa_pipeline_train_micros(list));
  ok = ok && bppsa_json_put_integer(object, "samples", s->samples);
  return ok && bppsa_json_put_integer(object, "flush_every", list->rounds);
}

/* The executor of schedules: weights and losses of synchronous schemes against one device with the same micro-batches, bit for bit;
 * the versions of weights of asynchronous ones against a replay of the papers' rules; peak activations against the simulator. (The
 * file is long because replays, peaks and faults follow the same lists.) */
#include "core/base/cut.h"
#include "core/compute/device_buffer.h"
#include "tests/distributed/pipeline_case.h"

/* The most activations that each worker has held, counted by the executor, against the simulator. */
static void assert_peaks(const pipeline_case *c, int64_t workers) {
  for (int64_t w = 0; w < workers; ++w) {
    if (!(c->peaks[w] > 0) || fabs(c->peaks[w] - c->predicted[w]) > 1e-6 * c->predicted[w]) {
      fail_msg("%s on %d ranks, worker %d: %g bytes of activations, expected %g", c->scheme, (int)c->ranks, (int)w, c->peaks[w],
               c->predicted[w]);
    }
  }
}

static void assert_runs(pipeline_case *c) {
  bppsa_comm_config comm = bppsa_comm_config_default();
  comm.ranks = c->ranks;
  const int64_t live = bppsa_alloc_live();
  const bppsa_status status = bppsa_comm_run(&comm, run_rank, c, NULL);
  if (status != BPPSA_OK) {
    fail_msg("%s on %d ranks: %s", c->scheme, (int)c->ranks, bppsa_last_error());
  }
  assert_int_equal(bppsa_alloc_live(), live);
}

/* ---- synchronous schemes: the bits of one device ---- */

static void has_the_bits_of_one_device(const bppsa_cnn_network *network, const synchronous *about, int64_t ranks, int64_t runs,
                                       int64_t iterations) {
  static pipeline_case one, many; /* large */
  many = new_case(network, about->scheme, about->stages, about->micro_batches);
  apply(about, &many.config);
  const bool copies = bppsa_schedule_find(about->scheme)->data_parallel; /* their lists have one iteration */
  many.ranks = ranks;
  many.runs = runs;
  many.config.iterations = copies ? 1 : iterations;
  assert_runs(&many);
  one = new_case(network, about->scheme, 1, 1);
  if (many.updates != runs * many.config.iterations) {
    fail_msg("%s: %d updates, expected %d", about->scheme, (int)many.updates, (int)(runs * many.config.iterations));
  }
  train_on_one_device(&one, many.updates, blocks_of(about), SAMPLES / parts_of(about));
  assert_memory_equal(one.losses, many.losses, (size_t)many.updates * sizeof(double));
  assert_memory_equal(one.values, many.values, MOST_BYTES);
  assert_peaks(&many, about->stages * many.config.width);
}

static void synchronous_schemes_have_the_bits_of_one_device(void **state) {
  bppsa_cnn_network network;
  (void)state;
  assert_int_equal(bppsa_cnn_network_parse("small", small_network, (int64_t)strlen(small_network), &network), BPPSA_OK);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    const int64_t workers = cases[i].stages * (cases[i].width > 0 ? cases[i].width : 1);
    has_the_bits_of_one_device(&network, &cases[i], workers, 3, 1);
    has_the_bits_of_one_device(&network, &cases[i], workers, 1, 2);
    has_the_bits_of_one_device(&network, &cases[i], 1, 2, 1);
    has_the_bits_of_one_device(&network, &cases[i], workers > 2 ? 2 : 1, 2, 2);
  }
  bppsa_cnn_network_free(&network);
}

static void lenet5_has_the_bits_of_one_device(void **state) {
  static const synchronous lenet5[] = {{.scheme = "1f1b", .stages = 4, .micro_batches = 4},
                                       {.scheme = "chimera", .stages = 4, .micro_batches = 4}};
  bppsa_cnn_network network;
  (void)state;
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  for (size_t i = 0; i < 2; ++i) {
    has_the_bits_of_one_device(&network, &lenet5[i], 4, 2, 1);
  }
  bppsa_cnn_network_free(&network);
}

/* ---- asynchronous schemes: a replay, micro-batch after micro-batch, with the papers' versions ---- */

enum { MOST_MICROS = 800, MOST_EVENTS = 32768, LAYERS = 8 };

/* The weights of a layer after every update, and the momentum buffer. */
typedef struct {
  bppsa_buffer weights[MOST_UPDATES + 1], momentum[MOST_UPDATES + 1];
} history;

typedef struct {
  bppsa_chain *chain;
  const bppsa_optimizer_config *optimizer;
  history *of; /* size of the parameters */
  bppsa_buffer values[LAYERS + 1], gradients[LAYERS + 1], predicted[2], gradient[2];
  int32_t kept[1024];
} replay;

/* The arrays of a layer's weights after `version` updates, with `ahead` more predicted. */
static void weights_at(replay *r, int64_t layer, int64_t version, int64_t ahead, void *arrays[2]) {
  const bppsa_chain_layer *about = &r->chain->layer[layer];
  for (int64_t i = 0; i < about->parameters; ++i) {
    history *h = &r->of[about->first_parameter + i];
    bppsa_buffer_free(&r->predicted[i]);
    const bppsa_view *w = &h->weights[version].view, *v = &h->momentum[version].view;
    assert_int_equal(bppsa_buffer_create(NULL, w->dtype, w->ndim, w->shape, &r->predicted[i]), BPPSA_OK);
    for (int64_t k = 0; k < bppsa_view_count(w); ++k) {
      const double now = bppsa_view_get(w, k);
      bppsa_view_set(&r->predicted[i].view, k, now - (double)ahead * r->optimizer->lr * bppsa_view_get(v, k));
    }
    arrays[i] = r->predicted[i].view.data;
  }
}

static void start_replay(const pipeline_case *c, const bppsa_device *device, replay *r) {
  const int64_t updates = c->updates;
  bppsa_model *model;
  *r = (replay){.optimizer = &c->optimizer};
  assert_int_equal(bppsa_cnn_chain_create(c->network, SAMPLES, c->dtype, device, &r->chain), BPPSA_OK);
  assert_int_equal(make_model(c, 1, device, &model), BPPSA_OK);
  r->of = bppsa_calloc(model->parameter_count, sizeof *r->of);
  assert_non_null(r->of);
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    for (int64_t u = 0; u <= updates; ++u) {
      const bppsa_view *v = &model->parameters[i].value;
      assert_int_equal(bppsa_buffer_create(NULL, v->dtype, v->ndim, v->shape, &r->of[i].weights[u]), BPPSA_OK);
      assert_int_equal(bppsa_buffer_create(NULL, v->dtype, v->ndim, v->shape, &r->of[i].momentum[u]), BPPSA_OK);
    }
    memcpy(r->of[i].weights[0].view.data, model->parameters[i].value.data, bppsa_view_bytes(&model->parameters[i].value));
  }
  for (int64_t l = 0; l <= r->chain->layers; ++l) {
    const int64_t shape[] = {SAMPLES + 8, l < r->chain->layers ? r->chain->layer[l].in : r->chain->layer[l - 1].out};
    assert_int_equal(bppsa_buffer_create(NULL, c->dtype, 2, shape, &r->values[l]), BPPSA_OK);
    assert_int_equal(bppsa_buffer_create(NULL, c->dtype, 2, shape, &r->gradients[l]), BPPSA_OK);
  }
  bppsa_model_destroy(model);
}

static void end_replay(replay *r, int64_t updates) {
  for (int64_t i = 0; i < r->chain->parameter_count; ++i) {
    for (int64_t u = 0; u <= updates; ++u) {
      bppsa_buffer_free(&r->of[i].weights[u]);
      bppsa_buffer_free(&r->of[i].momentum[u]);
    }
  }
  for (int64_t l = 0; l <= r->chain->layers; ++l) {
    bppsa_buffer_free(&r->values[l]);
    bppsa_buffer_free(&r->gradients[l]);
  }
  for (int i = 0; i < 2; ++i) {
    bppsa_buffer_free(&r->predicted[i]);
    bppsa_buffer_free(&r->gradient[i]);
  }
  bppsa_free(r->of);
  bppsa_chain_destroy(r->chain);
}

/* What the papers say: the weights that a stage's forward and backward pass of a micro-batch see. */
typedef struct {
  int64_t forward, backward, ahead_forward, ahead_backward;
} versions;

/* Adds a micro-batch's gradient to the momentum of the next version; `last`: and makes that version. */
static void add_gradient(replay *r, int64_t layer, int64_t update, bool first, bool last) {
  const bppsa_chain_layer *about = &r->chain->layer[layer];
  for (int64_t i = 0; i < about->parameters; ++i) {
    history *h = &r->of[about->first_parameter + i];
    const bppsa_view *v = &h->momentum[update + 1].view, *before = &h->momentum[update].view, *g = &r->gradient[i].view;
    for (int64_t k = 0; k < bppsa_view_count(v); ++k) {
      const double start = first ? r->optimizer->momentum * bppsa_view_get(before, k) : bppsa_view_get(v, k);
      bppsa_view_set(v, k, start + bppsa_view_get(g, k));
      if (last) {
        bppsa_view_set(&h->weights[update + 1].view, k,
                       bppsa_view_get(&h->weights[update].view, k) - r->optimizer->lr * bppsa_view_get(v, k));
      }
    }
  }
}

static double replay_micro(replay *r, const problem *about, const bppsa_pipeline_micro *micro, const versions *seen) {
  bppsa_chain *chain = r->chain;
  void *weights[2] = {NULL, NULL};
  double loss = 0;
  const bppsa_view x = bppsa_view_make(r->values[0].view.data, chain->dtype, 2, (int64_t[]){SAMPLES, about->values});
  const int64_t out[] = {SAMPLES, about->classes};
  fill_input(about, micro, &x);
  for (int64_t l = 0; l < chain->layers; ++l) {
    weights_at(r, l, seen[l].forward, seen[l].ahead_forward, weights);
    assert_int_equal(chain->ops->forward(chain, l, SAMPLES, weights, r->values[l].view.data,
                                         chain->layer[l].kept > 0 ? r->kept : NULL, r->values[l + 1].view.data),
                     BPPSA_OK);
  }
  const bppsa_view logits = bppsa_view_make(r->values[chain->layers].view.data, chain->dtype, 2, out);
  const bppsa_view seed = bppsa_view_make(r->gradients[chain->layers].view.data, chain->dtype, 2, out);
  assert_int_equal(fill_seed(about, micro, &logits, &seed, &loss), BPPSA_OK);
  for (int64_t l = chain->layers - 1; l >= 0; --l) {
    const bppsa_chain_layer *layer = &chain->layer[l];
    void *gradients[2] = {NULL, NULL};
    for (int64_t i = 0; i < layer->parameters; ++i) {
      const bppsa_view *like = &chain->parameters[layer->first_parameter + i].value;
      bppsa_buffer_free(&r->gradient[i]);
      assert_int_equal(bppsa_buffer_create(NULL, like->dtype, like->ndim, like->shape, &r->gradient[i]), BPPSA_OK);
      gradients[i] = r->gradient[i].view.data;
    }
    if (layer->parameters > 0) {
      assert_int_equal(chain->ops->weight_gradient(chain, l, SAMPLES, weights, r->gradients[l + 1].view.data,
                                                   r->values[l].view.data, r->values[l + 1].view.data, r->kept, gradients),
                       BPPSA_OK);
      add_gradient(r, l, micro->update, micro->block == 0, micro->block + 1 == micro->blocks);
    }
    weights_at(r, l, seen[l].backward, seen[l].ahead_backward, weights);
    assert_int_equal(chain->ops->input_gradient(chain, l, SAMPLES, weights, r->gradients[l + 1].view.data, r->values[l].view.data,
                                                r->values[l + 1].view.data, layer->kept > 0 ? r->kept : NULL,
                                                r->gradients[l].view.data),
                     BPPSA_OK);
  }
  return loss;
}

static int64_t at_least_0(int64_t value) {
  return value > 0 ? value : 0;
}

/* The weights that a stage's passes of micro-batch m see, from the papers. Before the forward pass the stage has made
 * m - (D - 1 - stage) updates, 0 at first, and before the backward pass m. PipeDream keeps the weights of the forward pass; 2BW
 * sees those in front of the last update; SpecTrain's passes aim at the weights behind s_B = floor(stage / 2) updates from the
 * backward pass on, s_F = floor(stage / 2) + D - stage - 1 from the forward pass on (section 3.2), or behind the last but one. */
static versions papers_versions(const char *scheme, int64_t stages, int64_t stage, int64_t micro, int64_t micro_batches,
                                int64_t micros) {
  const int64_t now = at_least_0(micro - (stages - 1 - stage)), late = at_least_0(micro / micro_batches - 1);
  const int64_t full = micro + stage / 2, aim = full < micros - 1 ? full : micros - 1;
  if (strcmp(scheme, "2bw") == 0) {
    return (versions){late, late, 0, 0};
  }
  if (strcmp(scheme, "pipedream") == 0) {
    return (versions){now, now, 0, 0};
  }
  return strcmp(scheme, "vanilla") == 0 ? (versions){now, micro, 0, 0} : (versions){now, micro, aim - now, aim - micro};
}

/* How many versions a stage holds: D - stage of PipeDream, as soon as there were as many updates, and two of 2BW. */
static int64_t papers_count(const char *scheme, int64_t stages, int64_t stage) {
  return strcmp(scheme, "pipedream") == 0 ? stages - stage : strcmp(scheme, "2bw") == 0 ? 2 : 1;
}

static int64_t stage_of(int64_t layer, int64_t stages) {
  int64_t stage = 0;
  while (bppsa_cut(LAYERS, stages, stage + 1) <= layer) {
    ++stage;
  }
  return stage;
}

/* What the executor used, in every operation. */
static void assert_versions(const pipeline_case *c, const versions (*seen)[LAYERS]) {
  bppsa_schedule_config config = c->config;
  bppsa_schedule *list;
  int64_t passes = 0, updates[LAYERS] = {0};
  config.layers = LAYERS;
  assert_int_equal(bppsa_schedule_create(c->scheme, &config, &list), BPPSA_OK);
  assert_true(list->count <= MOST_EVENTS);
  for (int64_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    for (int64_t l = op->layer; op->kind == BPPSA_KIND_STEP && l < op->layer + op->layers; ++l) {
      assert_int_equal(c->events[id].version, ++updates[l]);
    }
    const bool forward = op->kind == BPPSA_KIND_F, backward = op->kind == BPPSA_KIND_B;
    for (int64_t l = op->layer; (forward || backward) && l < op->layer + op->layers; ++l, ++passes) {
      const versions *v = &seen[op->micro][l];
      const int64_t version = forward ? v->forward : v->backward, ahead = forward ? v->ahead_forward : v->ahead_backward;
      if (c->events[id].version - c->events[id].ahead != version || c->events[id].ahead != ahead) {
        fail_msg("%s: operation %d, %s of micro-batch %d on stage %d: version %d, %d of it predicted, expected %d and %d",
                 c->scheme, (int)id, bppsa_schedule_kind_name(op->kind), (int)op->micro, (int)op->stage,
                 (int)c->events[id].version, (int)c->events[id].ahead, (int)(version + ahead), (int)ahead);
      }
    }
  }
  assert_int_equal(passes, 2 * LAYERS * list->micros);
  for (int64_t l = 0; l < LAYERS; ++l) {
    assert_int_equal(updates[l], c->updates);
  }
  bppsa_schedule_destroy(list);
}

/* The losses and the weights of a replay with these versions. */
static void assert_replay(const pipeline_case *c, const versions (*seen)[LAYERS], int64_t micros, int64_t each,
                          double tolerance) {
  bppsa_device *device;
  replay r;
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  start_replay(c, device, &r);
  const problem about = problem_of(c->network, SAMPLES);
  double losses[MOST_UPDATES] = {0};
  for (int64_t m = 0; m < micros; ++m) {
    const bppsa_pipeline_micro micro = {m / each, m % each, each};
    losses[m / each] += replay_micro(&r, &about, &micro, seen[m]);
  }
  for (int64_t u = 0; u < c->updates; ++u) {
    assert_true(fabs(losses[u] - c->losses[u]) <= tolerance);
  }
  assert_true(losses[0] != losses[c->updates - 1]);
  const double *values = (const double *)(const void *)c->values;
  for (int64_t i = 0; i < r.chain->parameter_count; ++i) {
    const bppsa_view *expected = &r.of[i].weights[c->updates].view;
    for (int64_t k = 0; k < bppsa_view_count(expected); ++k) {
      assert_true(fabs(bppsa_view_get(expected, k) - values[k]) <= tolerance);
    }
    values += bppsa_view_count(expected);
  }
  end_replay(&r, c->updates);
  bppsa_device_destroy(device);
}

static void asynchronous_scheme_sees_its_versions(const char *scheme, int64_t stages, int64_t micro_batches, int64_t iterations,
                                                  int64_t ranks) {
  static pipeline_case c; /* large */
  static bppsa_pipeline_event events[MOST_EVENTS];
  static versions seen[MOST_MICROS][LAYERS];
  const int64_t micros = micro_batches * iterations, each = strcmp(scheme, "2bw") == 0 ? micro_batches : 1;
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_parse("small", small_network, (int64_t)strlen(small_network), &network), BPPSA_OK);
  c = new_case(&network, scheme, stages, micro_batches);
  c.config.iterations = iterations;
  c.ranks = ranks;
  c.dtype = BPPSA_F64;
  c.optimizer.kind = BPPSA_SGD;
  c.optimizer.lr = iterations < 100 ? 0.05 : 0.005;
  c.optimizer.momentum = 0.9;
  c.events = events;
  assert_runs(&c);
  assert_int_equal(c.updates, micros / each);
  assert_true(micros <= MOST_MICROS);
  for (int64_t m = 0; m < micros; ++m) {
    for (int64_t l = 0; l < LAYERS; ++l) {
      seen[m][l] = papers_versions(scheme, stages, stage_of(l, stages), m, micro_batches, micros);
    }
  }
  assert_versions(&c, seen);
  for (int64_t stage = 0; stage < stages; ++stage) {
    assert_int_equal(c.versions[stage], papers_count(scheme, stages, stage));
  }
  assert_replay(&c, seen, micros, each, iterations < 100 ? 1e-12 : 1e-9);
  bppsa_cnn_network_free(&network);
}

static void asynchronous_schemes_see_their_versions(void **state) {
  static const char *const schemes[] = {"pipedream", "vanilla", "spectrain"};
  (void)state;
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; ++i) {
    asynchronous_scheme_sees_its_versions(schemes[i], 4, 5, 4, 4);
    asynchronous_scheme_sees_its_versions(schemes[i], 4, 4, 5, 1);
    asynchronous_scheme_sees_its_versions(schemes[i], 2, 12, 2, 2);
  }
  asynchronous_scheme_sees_its_versions("2bw", 4, 4, 6, 4);
  asynchronous_scheme_sees_its_versions("2bw", 3, 5, 8, 2);
}

static void versions_hold_for_200_iterations(void **state) {
  static const char *const schemes[] = {"pipedream", "2bw", "vanilla", "spectrain"};
  (void)state;
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; ++i) {
    asynchronous_scheme_sees_its_versions(schemes[i], 2, 2, 200, 2);
    asynchronous_scheme_sees_its_versions(schemes[i], 4, 4, 200, 4);
  }
}

/* ---- memory ---- */

/* D = 4, N = 8; the cases of synchronous schemes are compared as well, in other shapes. What is predicted is what the scheme's own
 * list says. */
static void activations_peak_where_the_simulator_says(void **state) {
  static const bppsa_schedule_scale scales[] = {BPPSA_SCALE_DIRECT, BPPSA_SCALE_DOUBLING, BPPSA_SCALE_HALVING};
  static const bppsa_schedule_split splits[] = {BPPSA_SPLIT_NONE, BPPSA_SPLIT_WI, BPPSA_SPLIT_IW};
  static pipeline_case c; /* large */
  int64_t count, compared = 0;
  bppsa_cnn_network network;
  (void)state;
  assert_int_equal(bppsa_cnn_network_parse("small", small_network, (int64_t)strlen(small_network), &network), BPPSA_OK);
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  for (int64_t i = 0; i < count; ++i) {
    const bool chimera = strcmp(schemes[i].id, "chimera") == 0;
    for (int way = 0; way < 3 * 3 * 2 && !schemes[i].scan; ++way) {
      c = new_case(&network, schemes[i].id, 4, 8);
      c.config.recompute = way % 2 == 1;
      c.config.scale = scales[way / 2 % 3];
      c.config.split = splits[way / 6];
      bppsa_schedule *list;
      if (bppsa_schedule_create(schemes[i].id, &c.config, &list) != BPPSA_OK) {
        const bool scaled = c.config.scale != BPPSA_SCALE_DIRECT, split = c.config.split != BPPSA_SPLIT_NONE;
        assert_true(c.config.recompute || (scaled && (!chimera || split)));
        continue;
      }
      const int64_t workers = list->workers; /* multi-stream: one */
      bppsa_schedule_destroy(list);
      assert_runs(&c);
      assert_peaks(&c, workers);
      ++compared;
    }
  }
  assert_true(compared > 60);
  bppsa_cnn_network_free(&network);
}

/* ---- what is refused, and what fails ---- */

typedef struct {
  const bppsa_cnn_network *network;
  const char *scheme;
  bppsa_schedule_config config;
  int64_t samples;
  void (*change)(bppsa_schedule *list); /* NULL: nothing */
  int64_t fail_at;                      /* this input callback fails; 0: none */
  int64_t inputs;
  int64_t die_at, stall_at; /* rank 1's operations; 0: none */
  int64_t classes;          /* of a row of labelled logits; 0: the data have no labels */
  int32_t tag;
  bool other_dtype; /* the first weight comes in float64 */
  bool other_state; /* the optimiser's state is asked for in seven tensors */
} failing;

static bppsa_status failing_input(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *x) {
  failing *f = context;
  const problem about = problem_of(f->network, SAMPLES);
  fill_input(&about, micro, x);
  return ++f->inputs == f->fail_at ? bppsa_fail(BPPSA_ERR_IO, "no more input") : BPPSA_OK;
}

static bppsa_status failing_loss(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *logits,
                                 const bppsa_view *seed, double *loss) {
  const failing *f = context;
  const problem about = problem_of(f->network, SAMPLES);
  return fill_seed(&about, micro, logits, seed, loss);
}

static bppsa_status no_labels(void *context, const bppsa_pipeline_micro *micro, int64_t *labels) {
  (void)context, (void)micro, (void)labels;
  return BPPSA_OK;
}

static bppsa_status train_once(bppsa_comm *comm, failing *f, bppsa_chain *chain, const bppsa_schedule *list,
                               const bppsa_view *views) {
  const bppsa_pipeline_config settings = {
      .schedule = list, .samples = f->samples, .optimizer = bppsa_optimizer_config_default(), .tag = f->tag};
  const bppsa_pipeline_data data = {.context = f,
                                    .input = failing_input,
                                    .loss = failing_loss,
                                    .labels = f->classes > 0 ? no_labels : NULL,
                                    .classes = f->classes};
  double losses[MOST_UPDATES];
  bppsa_pipeline *p;
  BPPSA_TRY(bppsa_pipeline_create(comm, chain, &settings, views, &p));
  if (bppsa_comm_rank(comm) == 1) {
    bppsa_comm_set_fault(comm, &(bppsa_comm_fault){.die_at = f->die_at, .stall_at = f->stall_at});
  }
  bppsa_status status = bppsa_pipeline_run(p, &data, losses);
  bppsa_optimizer_state seven = {.count = 7};
  status = status == BPPSA_OK ? bppsa_pipeline_collect(p, views, f->other_state ? &seven : NULL) : status;
  bppsa_pipeline_destroy(p);
  return status;
}

static bppsa_status try_rank(bppsa_comm *comm, void *context) {
  failing mine = *(failing *)context; /* every rank counts its own inputs */
  const pipeline_case like = {.network = mine.network, .dtype = BPPSA_F32};
  bppsa_device *device = NULL;
  bppsa_chain *chain = NULL;
  bppsa_model *model = NULL;
  bppsa_schedule *list = NULL;
  bppsa_view views[MOST_PARAMETERS];
  bppsa_status status = bppsa_device_create("cpu", 1, &device);
  status = status == BPPSA_OK ? bppsa_cnn_chain_create(mine.network, SAMPLES, BPPSA_F32, device, &chain) : status;
  status = status == BPPSA_OK ? make_model(&like, 1, device, &model) : status;
  status = status == BPPSA_OK ? bppsa_schedule_create(mine.scheme, &mine.config, &list) : status;
  if (status == BPPSA_OK && mine.change != NULL) {
    mine.change(list);
  }
  for (int64_t i = 0; status == BPPSA_OK && i < model->parameter_count; ++i) {
    views[i] = model->parameters[i].value;
  }
  views[0].dtype = mine.other_dtype ? BPPSA_F64 : views[0].dtype;
  status = status == BPPSA_OK ? train_once(comm, &mine, chain, list, views) : status;
  bppsa_schedule_destroy(list);
  if (model != NULL) {
    bppsa_model_destroy(model);
  }
  bppsa_chain_destroy(chain);
  bppsa_device_destroy(device);
  return status;
}

static failing new_failing(const bppsa_cnn_network *network, const char *scheme, int64_t stages) {
  failing f = {.network = network, .scheme = scheme, .config = bppsa_schedule_config_default(), .samples = SAMPLES};
  f.config.stages = stages;
  f.config.layers = LAYERS;
  f.config.window = BPPSA_WINDOW_ITERATION;
  return f;
}

static void assert_fails(failing *f, int64_t ranks, bppsa_status expected, const char *message) {
  bppsa_comm_config comm = bppsa_comm_config_default();
  comm.ranks = ranks;
  comm.timeout = f->stall_at > 0 ? 1 : 5;
  const int64_t live = bppsa_alloc_live();
  const bppsa_status status = bppsa_comm_run(&comm, try_rank, f, NULL);
  if (status != expected || strstr(bppsa_last_error(), message) == NULL) {
    fail_msg("%s: %d \"%s\", expected %d \"%s\"", f->scheme, (int)status, bppsa_last_error(), (int)expected, message);
  }
  assert_int_equal(bppsa_alloc_live(), live);
}

static void forget_an_update(bppsa_schedule *list) {
  for (int64_t id = 0; id < list->count; ++id) {
    if (list->ops[id].kind == BPPSA_KIND_F && list->ops[id].weight_version > 0) {
      list->ops[id].weight_version--;
      return;
    }
  }
}

static void swap_micro_batches(bppsa_schedule *list) {
  for (int64_t id = 0, first = -1; id < list->count; ++id) {
    if (list->ops[id].kind == BPPSA_KIND_SEND && first >= 0 && list->ops[first].worker == list->ops[id].worker) {
      const int32_t micro = list->ops[id].micro;
      list->ops[id].micro = list->ops[first].micro;
      list->ops[first].micro = micro;
      return;
    }
    first = list->ops[id].kind == BPPSA_KIND_SEND ? id : first;
  }
}

static void make_collective(bppsa_schedule *list) {
  list->ops[list->count - 1].kind = BPPSA_KIND_COLLECTIVE;
}

static void what_cannot_run_is_refused(void **state) {
  bppsa_cnn_network network;
  (void)state;
  assert_int_equal(bppsa_cnn_network_parse("small", small_network, (int64_t)strlen(small_network), &network), BPPSA_OK);
  failing f = new_failing(&network, "pipedream", 4);
  f.config.iterations = 4;
  f.change = forget_an_update;
  assert_fails(&f, 4, BPPSA_ERR_ARGUMENT, "rule ");
  f = new_failing(&network, "gpipe", 4);
  f.change = swap_micro_batches;
  assert_fails(&f, 4, BPPSA_ERR_ARGUMENT, "rule ");
  f = new_failing(&network, "gpipe", 2);
  f.config.layers = 7;
  assert_fails(&f, 2, BPPSA_ERR_ARGUMENT, "7 layers, expected the network's 8");
  f = new_failing(&network, "gpipe", 2);
  f.samples = SAMPLES + 1;
  assert_fails(&f, 2, BPPSA_ERR_ARGUMENT, "micro-batches of 3 samples, expected 1 .. 2");
  f = new_failing(&network, "chimera", 4);
  f.config.scale = BPPSA_SCALE_HALVING;
  f.samples = SAMPLES - 1;
  assert_fails(&f, 4, BPPSA_ERR_ARGUMENT, "micro-batches of 1 samples, expected an even number in 1 .. 4");
  f = new_failing(&network, "gpipe", 2);
  f.config.window = BPPSA_WINDOW_BACKWARD_FORWARD;
  assert_fails(&f, 2, BPPSA_ERR_UNSUPPORTED, "whole iterations");
  f = new_failing(&network, "scan-linear", 2);
  f.config.layers = 0;
  f.config.elements = 9;
  assert_fails(&f, 2, BPPSA_ERR_ARGUMENT, "layers, expected the network's 8");
  f.config.layers = LAYERS;
  assert_fails(&f, 2, BPPSA_ERR_UNSUPPORTED, "has no scans, expected a scheme with layers and micro-batches");
  f = new_failing(&network, "gpipe", 2);
  f.change = make_collective;
  assert_fails(&f, 2, BPPSA_ERR_UNSUPPORTED, "has no collectives inside layers and no exchange of borders");
  f = new_failing(&network, "gpipe", 2);
  f.tag = -1;
  assert_fails(&f, 2, BPPSA_ERR_ARGUMENT, "tags from -1, expected at most 32767 of them; more ranks need fewer");
  f.tag = BPPSA_COMM_MAX_TAG;
  assert_fails(&f, 2, BPPSA_ERR_ARGUMENT, "tags from 32767, expected at most");
  f = new_failing(&network, "gpipe", 2);
  f.classes = 2;
  assert_fails(&f, 2, BPPSA_ERR_ARGUMENT, "pipeline: rows of 2 classes, expected a divisor of the logits' 5");
  f = new_failing(&network, "gpipe", 2);
  f.other_dtype = true;
  assert_fails(&f, 2, BPPSA_ERR_SHAPE, "pipeline: another shape or dtype for c.weight, expected the chain's");
  f = new_failing(&network, "gpipe", 2);
  f.other_state = true;
  assert_fails(&f, 2, BPPSA_ERR_SHAPE, "pipeline: an optimiser's state of 7 tensors, expected ");
  bppsa_cnn_network_free(&network);
}

static void failures_end_the_run(void **state) {
  bppsa_cnn_network network;
  (void)state;
  assert_int_equal(bppsa_cnn_network_parse("small", small_network, (int64_t)strlen(small_network), &network), BPPSA_OK);
  failing f = new_failing(&network, "1f1b", 4);
  f.fail_at = 3;
  assert_fails(&f, 4, BPPSA_ERR_IO, "no more input");
  static const char *const schemes[] = {"1f1b", "chimera", "pipedream"};
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; ++i) {
    for (int64_t die = 1; die < 12; die += 3) {
      f = new_failing(&network, schemes[i], 4);
      f.die_at = die;
      assert_fails(&f, 4, BPPSA_ERR_COMM, "rank 1");
    }
  }
  bppsa_cnn_network_free(&network);
}

/* Rank 1 hangs at this operation: the other waits for an activation, a gradient or a part of a sum, and names its operation. */
static void ranks_that_hang_are_named(void **state) {
  static const struct {
    const char *scheme;
    int64_t stall_at;
  } hangs[] = {{"1f1b", 1}, {"1f1b", 6}, {"chimera", 4}, {"chimera", 11}};
  bppsa_cnn_network network;
  (void)state;
  assert_int_equal(bppsa_cnn_network_parse("small", small_network, (int64_t)strlen(small_network), &network), BPPSA_OK);
  for (size_t i = 0; i < sizeof hangs / sizeof *hangs; ++i) {
    failing f = new_failing(&network, hangs[i].scheme, 2);
    f.stall_at = hangs[i].stall_at;
    assert_fails(&f, 2, BPPSA_ERR_COMM, " waited ");
    if (strstr(bppsa_last_error(), hangs[i].scheme) == NULL || strstr(bppsa_last_error(), ": operation ") == NULL) {
      fail_msg("\"%s\", expected an operation of %s", bppsa_last_error(), hangs[i].scheme);
    }
  }
  bppsa_cnn_network_free(&network);
}

/* A message that does not come: what the executor says when its timeout is over. */
static bppsa_status expire(bppsa_comm *comm, void *context) {
  const int64_t count = 3;
  double values[3];
  bppsa_comm_request *request = NULL;
  const bppsa_view view = bppsa_view_make(values, BPPSA_F64, 1, &count);
  (void)context;
  bppsa_comm_at(comm, "training step", 7);
  BPPSA_TRY(bppsa_comm_irecv(comm, 1 - bppsa_comm_rank(comm), 5, &view, &request));
  CHECK(bppsa_comm_expired(request) == BPPSA_ERR_COMM);
  CHECK(strstr(bppsa_last_error(), "tag 5, 24 bytes, at training step 7") != NULL);
  CHECK(strstr(bppsa_last_error(), " waited ") != NULL && request != NULL); /* it is still the caller's */
  bppsa_comm_cancel(1, &request);
  return BPPSA_OK;
}

/* A rank that hangs between its passes, while the others add gradients up: rank 0 has added its own. */
static bppsa_status expire_in_sum(bppsa_comm *comm, void *context) {
  const int64_t count = 3;
  double values[3] = {1, 2, 3};
  const bppsa_view view = bppsa_view_make(values, BPPSA_F64, 1, &count);
  bppsa_ordered_sum *sum;
  bool done = true;
  (void)context;
  bppsa_comm_at(comm, "training step", 7);
  BPPSA_TRY(bppsa_ordered_sum_create(comm, 2, NULL, BPPSA_F64, count, 5, &sum));
  CHECK(bppsa_ordered_sum_pending(sum) == NULL);
  if (bppsa_comm_rank(comm) == 0) {
    BPPSA_TRY(bppsa_ordered_sum_add(sum, 0, &view));
    BPPSA_TRY(bppsa_ordered_sum_reduce(sum, false, &done));
    const bppsa_comm_request *request = bppsa_ordered_sum_pending(sum);
    CHECK(!done && request != NULL && bppsa_comm_expired(request) == BPPSA_ERR_COMM);
    CHECK(strstr(bppsa_last_error(), "for rank 1: recv from rank 1, tag 5, 24 bytes, at training step 7") != NULL);
  }
  bppsa_ordered_sum_destroy(sum);
  return bppsa_comm_barrier(comm); /* rank 1 is there until rank 0 has looked: one that has left is another failure */
}

static void requests_that_expire_are_described(void **state) {
  bppsa_comm_config comm = bppsa_comm_config_default();
  (void)state;
  comm.ranks = 2;
  assert_int_equal(bppsa_comm_run(&comm, expire, NULL, NULL), BPPSA_OK);
  assert_int_equal(bppsa_comm_run(&comm, expire_in_sum, NULL, NULL), BPPSA_OK);
}

/* Every allocation of a run in its turn. */
static void memory_runs_out(void **state) {
  bppsa_cnn_network network;
  (void)state;
  assert_int_equal(bppsa_cnn_network_parse("small", small_network, (int64_t)strlen(small_network), &network), BPPSA_OK);
  failing f = new_failing(&network, "pipedream", 3);
  f.config.iterations = 2;
  f.config.micro_batches = 3;
  bppsa_comm_config comm = bppsa_comm_config_default();
  const int64_t live = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t call = 0;
  while (status == BPPSA_ERR_MEMORY) {
    bppsa_alloc_fail_at(++call);
    status = bppsa_comm_run(&comm, try_rank, &f, NULL);
    bppsa_alloc_fail_at(0);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  assert_int_equal(status, BPPSA_OK);
  assert_true(call > 200);
  bppsa_cnn_network_free(&network);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(synchronous_schemes_have_the_bits_of_one_device),
                                     cmocka_unit_test(lenet5_has_the_bits_of_one_device),
                                     cmocka_unit_test(asynchronous_schemes_see_their_versions),
                                     cmocka_unit_test(versions_hold_for_200_iterations),
                                     cmocka_unit_test(activations_peak_where_the_simulator_says),
                                     cmocka_unit_test(what_cannot_run_is_refused),
                                     cmocka_unit_test(failures_end_the_run),
                                     cmocka_unit_test(ranks_that_hang_are_named),
                                     cmocka_unit_test(requests_that_expire_are_described),
                                     cmocka_unit_test(memory_runs_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

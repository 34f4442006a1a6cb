/* The executor's tags can fail: its bookkeeping of weights, or the version that its list gives to an update, is damaged in the
 * middle of a run, or ranks execute different lists, and the run ends with a line that names the versions. */
#include "distributed/pipeline/pipeline_executor.h"
#include "tests/distributed/pipeline_case.h"

enum { LAYERS = 8, MOST_RANKS = 4 };

typedef struct tagged tagged;
struct tagged {
  const bppsa_cnn_network *network;
  const char *scheme[MOST_RANKS]; /* of each rank */
  int64_t stages;
  void (*damage)(bppsa_pipeline *p, tagged *t); /* before every input is made; NULL: nothing */
  int64_t after;                                /* inputs of rank 0 in front of the first damage */
  bool twice;                                   /* the next update counts twice */

  int64_t inputs;
  bppsa_pipeline *pipeline;
};

/* ---- damage ---- */

/* Two kept copies change their labels. */
static void exchange_copies(bppsa_pipeline *p, tagged *t) {
  (void)t;
  for (int64_t layer = 0; layer < p->plan.layers; ++layer) {
    pipeline_held *h = p->weights.held[layer];
    if (h != NULL && h->kept_used > 1) {
      const int64_t version = h->kept[0].version;
      h->kept[0].version = h->kept[1].version;
      h->kept[1].version = version;
      return;
    }
  }
}

/* A copy that is still read takes the present weights. */
static void overwrite_copy(bppsa_pipeline *p, tagged *t) {
  (void)t;
  for (int64_t layer = 0; layer < p->plan.layers; ++layer) {
    pipeline_held *h = p->weights.held[layer];
    for (int64_t i = 0; h != NULL && i < h->kept_count; ++i) {
      memcpy(h->kept[i].values, h->values, (size_t)h->bytes);
      h->kept[i].updates = h->made;
    }
  }
}

/* A former prediction passes for one from the present weights. */
static void keep_prediction(bppsa_pipeline *p, tagged *t) {
  (void)t;
  for (int64_t layer = 0; layer < p->plan.layers; ++layer) {
    if (p->weights.held[layer] != NULL) {
      p->weights.held[layer]->predicted_from = p->weights.held[layer]->updates;
    }
  }
}

/* An update is counted that was not made. */
static void count_update(bppsa_pipeline *p, tagged *t) {
  for (int64_t layer = 0; layer < p->plan.layers && t->inputs == t->after; ++layer) {
    if (p->weights.held[layer] != NULL) {
      p->weights.held[layer]->made--;
    }
  }
}

/* An update counts twice, as if it had been made twice. */
static void count_twice(bppsa_pipeline *p, tagged *t) {
  (void)p;
  t->twice = t->twice || t->inputs == t->after;
}

/* The updates to come of the list, which is no constant, get the next version (by: 1) or the previous one (-1). */
static void rename_updates(const bppsa_pipeline *p, int32_t by) {
  bppsa_schedule_op *ops = p->plan.list->ops;
  for (int64_t id = 0; id < p->plan.list->count; ++id) {
    ops[id].weight_version += ops[id].kind == BPPSA_KIND_STEP && !p->run.done[id] ? by : 0;
  }
}

static void name_next_version(bppsa_pipeline *p, tagged *t) {
  rename_updates(p, t->inputs == t->after);
}

static void name_previous_version(bppsa_pipeline *p, tagged *t) {
  rename_updates(p, -(t->inputs == t->after));
}

/* The latest two updates of the first layer exchange their versions in the list. */
static void exchange_updates(bppsa_pipeline *p, tagged *t) {
  bppsa_schedule_op *ops = p->plan.list->ops, *found[2] = {NULL, NULL};
  for (int64_t id = p->plan.list->count - 1; id >= 0 && found[1] == NULL && t->inputs == t->after; --id) {
    if (ops[id].kind == BPPSA_KIND_STEP && ops[id].layer == 0) {
      found[found[0] != NULL] = &ops[id];
    }
  }
  if (found[1] != NULL) {
    const int32_t version = found[0]->weight_version;
    found[0]->weight_version = found[1]->weight_version;
    found[1]->weight_version = version;
  }
}

/* ---- a run ---- */

static double tagged_rate(void *context, int64_t update) {
  tagged *t = context;
  (void)update;
  for (int64_t layer = 0; layer < t->pipeline->plan.layers && t->twice; ++layer) {
    if (t->pipeline->weights.held[layer] != NULL) {
      t->pipeline->weights.held[layer]->made++;
    }
  }
  t->twice = false;
  return 0.05;
}

static bppsa_status tagged_input(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *x) {
  tagged *t = context;
  const problem about = problem_of(t->network, SAMPLES);
  if (++t->inputs >= t->after && t->damage != NULL) {
    t->damage(t->pipeline, t);
  }
  fill_input(&about, micro, x);
  return BPPSA_OK;
}

static bppsa_status tagged_loss(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *logits,
                                const bppsa_view *seed, double *loss) {
  const tagged *t = context;
  const problem about = problem_of(t->network, SAMPLES);
  return fill_seed(&about, micro, logits, seed, loss);
}

static bppsa_status train(bppsa_comm *comm, tagged *t, bppsa_chain *chain, const bppsa_schedule *list, const bppsa_view *views) {
  bppsa_pipeline_config settings = {.schedule = list, .samples = SAMPLES, .optimizer = bppsa_optimizer_config_default()};
  const bppsa_pipeline_data data = {.context = t, .input = tagged_input, .loss = tagged_loss, .rate = tagged_rate};
  double losses[MOST_UPDATES];
  settings.optimizer.kind = BPPSA_SGD;
  settings.optimizer.lr = 0.05;
  settings.optimizer.momentum = 0.9;
  BPPSA_TRY(bppsa_pipeline_create(comm, chain, &settings, views, &t->pipeline));
  bppsa_status status = bppsa_pipeline_run(t->pipeline, &data, losses);
  status = status == BPPSA_OK ? bppsa_pipeline_run(t->pipeline, &data, losses) : status;
  bppsa_pipeline_destroy(t->pipeline);
  return status;
}

static bppsa_status tagged_rank(bppsa_comm *comm, void *context) {
  tagged mine = *(tagged *)context;
  const pipeline_case like = {.network = mine.network, .dtype = BPPSA_F32};
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_device *device = NULL;
  bppsa_chain *chain = NULL;
  bppsa_model *model = NULL;
  bppsa_schedule *list = NULL;
  bppsa_view views[MOST_PARAMETERS];
  config.stages = mine.stages;
  config.layers = LAYERS;
  config.micro_batches = 8;
  config.window = BPPSA_WINDOW_ITERATION;
  config.iterations = strcmp(mine.scheme[0], "2bw") == 0 ? 4 : 1;
  bppsa_status status = bppsa_device_create("cpu", 1, &device);
  status = status == BPPSA_OK ? bppsa_cnn_chain_create(mine.network, SAMPLES, BPPSA_F32, device, &chain) : status;
  status = status == BPPSA_OK ? make_model(&like, 1, device, &model) : status;
  status = status == BPPSA_OK ? bppsa_schedule_create(mine.scheme[bppsa_comm_rank(comm)], &config, &list) : status;
  for (int64_t i = 0; status == BPPSA_OK && i < model->parameter_count; ++i) {
    views[i] = model->parameters[i].value;
  }
  status = status == BPPSA_OK ? train(comm, &mine, chain, list, views) : status;
  bppsa_schedule_destroy(list);
  if (model != NULL) {
    bppsa_model_destroy(model);
  }
  bppsa_chain_destroy(chain);
  bppsa_device_destroy(device);
  return status;
}

/* message: NULL where the run goes well. */
static void assert_ends(tagged *t, int64_t ranks, bppsa_status expected, const char *message) {
  bppsa_comm_config comm = bppsa_comm_config_default();
  comm.ranks = ranks;
  comm.timeout = 20;
  const int64_t live = bppsa_alloc_live();
  const bppsa_status status = bppsa_comm_run(&comm, tagged_rank, t, NULL);
  if (status != expected || (message != NULL && strstr(bppsa_last_error(), message) == NULL)) {
    fail_msg("%s on %d ranks: %d \"%s\", expected %d \"%s\"", t->scheme[0], (int)ranks, (int)status, bppsa_last_error(),
             (int)expected, message != NULL ? message : "");
  }
  assert_int_equal(bppsa_alloc_live(), live);
}

/* ---- tests ---- */

#define PASS ": weights of layer "
#define FOUND ": STEP begins with version "
#define MADE ": STEP makes version "

static const struct {
  const char *scheme;
  void (*damage)(bppsa_pipeline *p, tagged *t);
  const char *message;
} damaged[] = {{"pipedream", exchange_copies, PASS},
               {"pipedream", overwrite_copy, PASS},
               {"pipedream", count_update, PASS},
               {"2bw", overwrite_copy, PASS},
               {"2bw", count_update, PASS},
               {"vanilla", count_update, PASS},
               {"spectrain", keep_prediction, PASS},
               {"spectrain", count_update, PASS},
               {"1f1b", count_update, PASS},
               {"pipedream", name_next_version, FOUND},
               {"pipedream", name_previous_version, FOUND},
               {"pipedream", exchange_updates, FOUND},
               {"pipedream", count_twice, MADE},
               {"2bw", name_next_version, FOUND},
               {"2bw", exchange_updates, FOUND},
               {"2bw", count_twice, MADE},
               {"vanilla", name_previous_version, FOUND},
               {"vanilla", exchange_updates, FOUND},
               {"vanilla", count_twice, MADE},
               {"spectrain", name_next_version, FOUND},
               {"spectrain", exchange_updates, FOUND},
               {"1f1b", name_next_version, FOUND},
               {"1f1b", count_twice, MADE},
               {"chimera", name_previous_version, FOUND},
               {"gems", name_next_version, FOUND}};

static void versions_that_are_not_the_lists_end_the_run(void **state) {
  bppsa_cnn_network network;
  (void)state;
  assert_int_equal(bppsa_cnn_network_parse("small", small_network, (int64_t)strlen(small_network), &network), BPPSA_OK);
  for (size_t i = 0; i < sizeof damaged / sizeof *damaged; ++i) {
    for (int64_t ranks = 1; ranks <= 4; ranks *= 4) {
      const char *scheme = damaged[i].scheme;
      tagged t = {.network = &network, .scheme = {scheme, scheme, scheme, scheme}, .stages = 4, .after = 6};
      assert_ends(&t, ranks, BPPSA_OK, NULL);
      t.damage = damaged[i].damage;
      assert_ends(&t, ranks, BPPSA_ERR_ARGUMENT, damaged[i].message);
    }
  }
  bppsa_cnn_network_free(&network);
}

/* Rank 1 of vanilla and of PipeDream: the same order, but the backward passes of stage 1 see other versions. */
static void messages_carry_the_version_that_made_them(void **state) {
  bppsa_cnn_network network;
  (void)state;
  assert_int_equal(bppsa_cnn_network_parse("small", small_network, (int64_t)strlen(small_network), &network), BPPSA_OK);
  tagged t = {.network = &network, .scheme = {"pipedream", "vanilla", "pipedream"}, .stages = 3};
  assert_ends(&t, 3, BPPSA_ERR_COMM, " received gradients of layer 3, micro-batch 1, update 1, version 1, expected gradients of");
  bppsa_cnn_network_free(&network);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(versions_that_are_not_the_lists_end_the_run),
                                     cmocka_unit_test(messages_carry_the_version_that_made_them)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The measured costs of a chain: every pass is taken for what it is, sizes are counted, all ranks have the same numbers; the link;
 * the data that nobody loads. */
#include "distributed/pipeline/chain_costs.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "core/base/alloc.h"
#include "tests/comm/cases.h"
#include "tests/core/helpers.h"

/* ---- a chain whose passes sleep ---- */

enum { LAYERS = 3, WIDE = 4 };
static const struct {
  bppsa_schedule_cost cost;
  double seconds;
} passes[] = {
    {BPPSA_COST_FORWARD, 0.001}, {BPPSA_COST_INPUT_GRAD, 0.002}, {BPPSA_COST_WEIGHT_GRAD, 0.003}, {BPPSA_COST_BACKWARD, 0.004}};
enum { FORWARD, INPUT, WEIGHT, BOTH, PASSES };

static bool sleeps = true;
static _Atomic int64_t taken[PASSES]; /* calls, of all ranks */

static bppsa_status take(int pass) {
  ++taken[pass];
  const struct timespec nap = {.tv_nsec = (long)(passes[pass].seconds * 1e9)};
  if (sleeps) {
    (void)nanosleep(&nap, NULL);
  }
  return BPPSA_OK;
}

static bppsa_status forward(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *x, void *kept,
                            void *y) {
  (void)chain, (void)layer, (void)weights, (void)kept;
  memcpy(y, x, (size_t)samples * WIDE * sizeof(double));
  return take(FORWARD);
}

static bppsa_status input_gradient(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                                   const void *x, const void *y, const void *kept, void *dx) {
  (void)chain, (void)layer, (void)weights, (void)x, (void)y, (void)kept;
  memcpy(dx, dy, (size_t)samples * WIDE * sizeof(double));
  return take(INPUT);
}

static bppsa_status weight_gradient(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                                    const void *x, const void *y, const void *kept, void *const *gradients) {
  (void)chain, (void)layer, (void)samples, (void)weights, (void)dy, (void)x, (void)y, (void)kept;
  ((double *)gradients[0])[0] = 1;
  return take(WEIGHT);
}

static bppsa_status backward(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                             const void *x, const void *y, const void *kept, void *const *gradients, void *dx) {
  if (dx == NULL) { /* the weight gradient alone */
    return weight_gradient(chain, layer, samples, weights, dy, x, y, kept, gradients);
  }
  memcpy(dx, dy, (size_t)samples * WIDE * sizeof(double));
  ((double *)gradients[0])[0] = 1;
  return take(BOTH);
}

static const bppsa_chain_ops ops = {
    .forward = forward, .input_gradient = input_gradient, .weight_gradient = weight_gradient, .backward = backward};

typedef struct {
  bppsa_chain chain;
  bppsa_chain_layer layers[LAYERS];
  bppsa_parameter parameters[LAYERS];
  double weights[LAYERS];
  bppsa_view values[LAYERS];
} sleeper;

static void make_sleeper(sleeper *s) {
  const int64_t one = 1;
  *s = (sleeper){.weights = {0}};
  for (int l = 0; l < LAYERS; ++l) {
    s->layers[l] =
        (bppsa_chain_layer){.name = "sleep", .in = WIDE, .out = WIDE, .kept = 8, .first_parameter = l, .parameters = 1};
    s->parameters[l].name = "w";
    s->parameters[l].value = s->parameters[l].gradient = bppsa_view_make(NULL, BPPSA_F64, 1, &one);
    s->values[l] = bppsa_view_make(&s->weights[l], BPPSA_F64, 1, &one);
  }
  s->chain = (bppsa_chain){.ops = &ops,
                           .dtype = BPPSA_F64,
                           .batch = 2,
                           .layers = LAYERS,
                           .layer = s->layers,
                           .parameter_count = LAYERS,
                           .parameters = s->parameters};
}

/* ---- measuring ---- */

typedef struct {
  int64_t at_once, repeats;
  bppsa_chain_costs costs[4]; /* of each rank */
  double alpha[4], beta[4];
  int64_t replicas;       /* 0: no sums are measured */
  double sums[4][LAYERS]; /* over so many ranks */
} measured;

static bppsa_status measure_rank(bppsa_comm *comm, void *context) {
  measured *m = context;
  const int32_t rank = bppsa_comm_rank(comm);
  sleeper s;
  make_sleeper(&s);
  const bppsa_chain_measuring how = {.samples = 2,
                                     .optimizer = bppsa_optimizer_config_default(),
                                     .values = s.values,
                                     .at_once = m->at_once,
                                     .repeats = m->repeats,
                                     .budget_s = 0};
  BPPSA_TRY(bppsa_chain_measure_link(comm, &m->alpha[rank], &m->beta[rank]));
  if (m->replicas > 0) {
    s.layers[1].parameters = 0;
    BPPSA_TRY(bppsa_chain_measure_sync(comm, &s.chain, m->replicas, m->sums[rank]));
    s.layers[1].parameters = 1;
  }
  return bppsa_chain_measure(comm, &s.chain, &how, &m->costs[rank]);
}

static void measure(int64_t ranks, measured *m) {
  bppsa_comm_config config = bppsa_comm_config_default();
  config.ranks = ranks;
  assert_int_equal(bppsa_comm_run(&config, measure_rank, m, NULL), BPPSA_OK);
}

static void free_measured(measured *m) {
  for (int rank = 0; rank < 4; ++rank) {
    bppsa_chain_costs_free(&m->costs[rank]);
  }
}

/* A pass takes no less than it sleeps. The input's gradient is not computed, so that I of the first layer is 0, and its B a W. */
static void passes_are_told_apart(void **state) {
  (void)state;
  measured m = {.at_once = 1, .repeats = 3};
  measure(1, &m);
  const bppsa_chain_costs *c = &m.costs[0];
  assert_int_equal(c->layers, LAYERS);
  for (int pass = 0; pass < PASSES; ++pass) {
    for (int64_t l = 0; l < LAYERS; ++l) {
      const bool nothing = pass == INPUT && l == 0;
      const double least = nothing ? 0 : pass == BOTH && l == 0 ? passes[WEIGHT].seconds : passes[pass].seconds;
      const double found = c->cost[passes[pass].cost][l];
      if (!(found >= least && found < 1) || (nothing && found != 0)) {
        fail_msg("%s of layer %d: %g s", bppsa_schedule_cost_name((int32_t)passes[pass].cost), (int)l, found);
      }
    }
  }
  for (int64_t l = 0; l < LAYERS; ++l) {
    assert_true(c->cost[BPPSA_COST_STEP][l] > 0 && c->cost[BPPSA_COST_STEP][l] < 1);
    assert_true(c->cost[BPPSA_COST_ACTIVATION][l] == 2 * (WIDE * 8 + 8));
    assert_true(c->cost[BPPSA_COST_MESSAGE][l] == 2 * WIDE * 8 + 64); /* and its header */
    assert_true(c->cost[BPPSA_COST_GRADIENT][l] == 8);
  }
  assert_true(m.alpha[0] == 0 && m.beta[0] == 0); /* there is nobody else */
  free_measured(&m);
}

/* A probe takes several micro-batches between two updates, and makes several updates; its costs are those of one. What it forgets
 * counts no more. */
static bppsa_status probe_rank(bppsa_comm *comm, void *context) {
  bppsa_chain_costs *costs = context;
  bppsa_chain_probe *probe = NULL;
  sleeper s;
  make_sleeper(&s);
  bppsa_chain_measuring how = {.samples = 2,
                               .optimizer = bppsa_optimizer_config_default(),
                               .values = s.values,
                               .micro_batches = 3,
                               .updates = 2,
                               .at_once = 1,
                               .repeats = 1};
  BPPSA_TRY(bppsa_chain_probe_create(comm, &s.chain, &how, &probe));
  BPPSA_TRY(bppsa_chain_probe_measure(comm, probe, &how, costs));
  double *forward = costs->memory;
  CHECK(forward == costs->cost[BPPSA_COST_FORWARD] && forward[1] >= passes[FORWARD].seconds && forward[1] < 1);
  CHECK(costs->cost[BPPSA_COST_STEP][1] > 0 && costs->cost[BPPSA_COST_STEP][1] < 1);
  CHECK(costs->low[BPPSA_COST_FORWARD][1] == forward[1] && costs->high[BPPSA_COST_FORWARD][1] == forward[1]); /* of one run */
  bppsa_chain_probe_forget(probe);
  forward[1] = 7;
  bppsa_chain_probe_times(probe, costs); /* no run */
  CHECK(forward[1] == 7);
  sleeps = false;
  const bppsa_status status = bppsa_chain_probe_run(probe);
  sleeps = true;
  bppsa_chain_probe_times(probe, costs);
  CHECK(forward[1] > 0 && forward[1] < 7 && costs->cost[BPPSA_COST_STEP][1] > 0);
  bppsa_chain_probe_destroy(probe);
  return status;
}

static void probes_run_again(void **state) {
  (void)state;
  const bppsa_comm_config config = bppsa_comm_config_default();
  bppsa_chain_costs costs = {.layers = 0};
  assert_int_equal(bppsa_comm_run(&config, probe_rank, &costs, NULL), BPPSA_OK);
  bppsa_chain_costs_free(&costs);
  bppsa_chain_probe_destroy(NULL);
}

/* As many runs as are asked for, behind one that is not counted. */
static void runs_are_counted(void **state) {
  (void)state;
  int64_t one[PASSES] = {0};
  sleeps = false;
  for (int64_t repeats = 1; repeats <= 5; ++repeats) {
    measured m = {.at_once = 1, .repeats = repeats};
    for (int pass = 0; pass < PASSES; ++pass) {
      taken[pass] = 0;
    }
    measure(1, &m);
    for (int pass = 0; pass < PASSES; ++pass) {
      one[pass] = repeats == 1 ? taken[pass] : one[pass];
      assert_true(taken[pass] > 0 && 2 * taken[pass] == (repeats + 1) * one[pass]);
    }
    free_measured(&m);
  }
  sleeps = true;
}

/* Two of three ranks measure; a budget of nothing still gives three runs. */
static void ranks_have_the_same_numbers(void **state) {
  (void)state;
  measured m = {.at_once = 2, .repeats = 0, .replicas = 2};
  measure(3, &m);
  for (int rank = 0; rank < 3; ++rank) {
    assert_true(m.alpha[rank] > 0 && m.alpha[rank] < 0.25 && m.alpha[rank] == m.alpha[0] && m.beta[rank] >= 0 &&
                m.beta[rank] == m.beta[0]);
    assert_memory_equal(m.sums[rank], m.sums[0], sizeof m.sums[0]);
    for (int cost = 0; cost < BPPSA_COST_COUNT; ++cost) {
      const double *array = m.costs[rank].cost[cost];
      assert_true((array == NULL) == (m.costs[0].cost[cost] == NULL));
      assert_true(array == NULL || memcmp(array, m.costs[0].cost[cost], LAYERS * sizeof *array) == 0);
    }
  }
  /* a list prices its operations by them: the makespan of one worker is the sum of its passes */
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_schedule *list;
  bppsa_schedule_times times;
  double sum = 0;
  config.stages = 1;
  config.micro_batches = 2;
  config.skip_first_input_grad = true;
  bppsa_chain_costs_set(&m.costs[0], &config);
  assert_int_equal(bppsa_schedule_create("gpipe", &config, &list), BPPSA_OK);
  assert_int_equal(bppsa_schedule_simulate(list, &times), BPPSA_OK);
  for (int64_t l = 0; l < LAYERS; ++l) {
    sum += 2 * m.costs[0].cost[BPPSA_COST_FORWARD][l] + m.costs[0].cost[BPPSA_COST_STEP][l];
    sum += 2 * m.costs[0].cost[l == 0 ? BPPSA_COST_WEIGHT_GRAD : BPPSA_COST_BACKWARD][l];
  }
  assert_true(fabs(times.makespan - sum) <= 1e-12 * sum);
  bppsa_schedule_times_free(&times);
  bppsa_schedule_destroy(list);
  free_measured(&m);
}

/* A sum takes messages there and back; a layer without parameters has none, and so has one rank. */
static void sums_cost_messages(void **state) {
  (void)state;
  for (int64_t replicas = 1; replicas <= 3; ++replicas) {
    measured m = {.at_once = 1, .repeats = 1, .replicas = replicas, .sums = {{-1, -1, -1}}};
    sleeps = false;
    measure(3, &m);
    sleeps = true;
    for (int64_t l = 0; l < LAYERS; ++l) {
      const bool none = l == 1 || replicas == 1;
      assert_true(none ? m.sums[0][l] == 0 : m.sums[0][l] > 0 && m.sums[0][l] < 1);
    }
    free_measured(&m);
  }
}

/* The file of costs has what was measured: the passes' times, the sizes, the link, and on two ranks the sums. */
static bppsa_status file_rank(bppsa_comm *comm, void *context) {
  (void)context;
  static const char *const keys[] = {"forward", "input_grad", "weight_grad", "backward",
                                     "step",    "activation", "message",     "gradient"};
  sleeper s;
  make_sleeper(&s);
  const bppsa_chain_measuring how = {
      .samples = 2, .optimizer = bppsa_optimizer_config_default(), .values = s.values, .at_once = 1, .repeats = 1};
  char *text = NULL, key[32];
  BPPSA_TRY(bppsa_chain_measure_file(comm, &s.chain, &how, &text));
  CHECK((text != NULL) == (bppsa_comm_rank(comm) == 0));
  for (size_t i = 0; text != NULL && i < sizeof keys / sizeof keys[0]; ++i) {
    snprintf(key, sizeof key, "\n  \"%s\": [", keys[i]);
    CHECK(strstr(text, key) != NULL);
  }
  CHECK(text == NULL || (strstr(text, "\"sync\": [") != NULL) == (bppsa_comm_size(comm) == 2));
  CHECK(text == NULL || (strstr(text, "\"alpha\": 0,") == NULL) == (bppsa_comm_size(comm) > 1));
  CHECK(text == NULL || strstr(text, "\"gradient\": [8, 8, 8]") != NULL);
  bppsa_free(text);
  return BPPSA_OK;
}

static void files_have_what_was_measured(void **state) {
  (void)state;
  bppsa_comm_config config = bppsa_comm_config_default();
  sleeps = false;
  for (config.ranks = 1; config.ranks <= 3; ++config.ranks) {
    if (bppsa_comm_run(&config, file_rank, NULL, NULL) != BPPSA_OK) {
      fail_msg("%d ranks: %s", (int)config.ranks, bppsa_last_error());
    }
  }
  sleeps = true;
}

static void noise_depends_on_its_place(void **state) {
  (void)state;
  sleeper s;
  make_sleeper(&s);
  bppsa_chain_noise *noise, *again;
  const int64_t shape[] = {2, WIDE};
  double numbers[3][2 * WIDE], loss[2], seeds[2][2 * WIDE];
  assert_int_equal(bppsa_chain_noise_create(&s.chain, 2, 7, &noise), BPPSA_OK);
  assert_int_equal(bppsa_chain_noise_create(&s.chain, 2, 7, &again), BPPSA_OK);
  const bppsa_pipeline_data *data = bppsa_chain_noise_data(noise), *other = bppsa_chain_noise_data(again);
  const bppsa_pipeline_micro first = {0, 1, 4}, second = {1, 1, 4};
  const bppsa_view a = bppsa_view_make(numbers[0], BPPSA_F64, 2, shape), b = bppsa_view_make(numbers[1], BPPSA_F64, 2, shape),
                   c = bppsa_view_make(numbers[2], BPPSA_F64, 2, shape);
  const bppsa_view seed = bppsa_view_make(seeds[0], BPPSA_F64, 2, shape), moved = bppsa_view_make(seeds[1], BPPSA_F64, 2, shape);
  assert_int_equal(data->input(data->context, &first, &a), BPPSA_OK);
  assert_int_equal(other->input(other->context, &first, &b), BPPSA_OK);
  assert_int_equal(data->input(data->context, &second, &c), BPPSA_OK);
  assert_memory_equal(numbers[0], numbers[1], sizeof numbers[0]);
  assert_memory_not_equal(numbers[0], numbers[2], sizeof numbers[0]);
  /* the seed is the loss's gradient */
  assert_int_equal(data->loss(data->context, &first, &a, &seed, &loss[0]), BPPSA_OK);
  numbers[0][3] += 1e-6;
  assert_int_equal(data->loss(data->context, &first, &a, &moved, &loss[1]), BPPSA_OK);
  assert_true(fabs((loss[1] - loss[0]) / 1e-6 - seeds[0][3]) < 1e-6);
  const int64_t half[] = {1, WIDE};
  const bppsa_view other_size = bppsa_view_make(numbers[0], BPPSA_F64, 2, half);
  assert_error(data->input(data->context, &first, &other_size), BPPSA_ERR_SHAPE, "noise: a micro-batch of 4 numbers, expected 8");
  bppsa_chain_noise_destroy(noise);
  bppsa_chain_noise_destroy(again);
  bppsa_chain_noise_destroy(NULL);
  assert_int_equal(bppsa_chain_noise_create(&s.chain, 0, 7, &noise), BPPSA_ERR_ARGUMENT);
}

/* ---- failures ---- */

static bppsa_status measure_wrongly(bppsa_comm *comm, void *context) {
  (void)context;
  sleeper s;
  bppsa_chain_costs costs = {.layers = 17};
  make_sleeper(&s);
  const bppsa_chain_measuring how = {
      .samples = 3, .optimizer = bppsa_optimizer_config_default(), .values = s.values, .at_once = 1, .repeats = 1};
  const bppsa_status status = bppsa_chain_measure(comm, &s.chain, &how, &costs);
  CHECK(status == BPPSA_OK || costs.layers == 17);
  return status;
}

static void wrong_requests_are_refused(void **state) {
  (void)state;
  const bppsa_comm_config config = bppsa_comm_config_default();
  assert_error(bppsa_comm_run(&config, measure_wrongly, NULL, NULL), BPPSA_ERR_ARGUMENT,
               "pipeline: micro-batches of 3 samples, expected 1 .. 2");
}

/* Rank 1 hangs at an operation: of a message between two ranks, or of a sum of gradients. */
typedef struct {
  bool sums;
  int64_t stall_at;
} hanging;

static bppsa_status hang(bppsa_comm *comm, void *context) {
  const hanging *h = context;
  double numbers[LAYERS] = {0};
  const int64_t count = LAYERS;
  const bppsa_view view = bppsa_view_make(numbers, BPPSA_F64, 1, &count);
  sleeper s;
  make_sleeper(&s);
  if (bppsa_comm_rank(comm) == 1) {
    bppsa_comm_set_fault(comm, &(bppsa_comm_fault){.stall_at = h->stall_at});
  }
  return h->sums ? bppsa_chain_measure_sync(comm, &s.chain, 2, numbers)
                 : bppsa_chain_pass_on(comm, bppsa_comm_rank(comm) == 1, &view);
}

static void ranks_that_hang_are_named(void **state) {
  (void)state;
  bppsa_comm_config config = bppsa_comm_config_default();
  config.ranks = 2;
  config.timeout = 1;
  hanging h = {.sums = false, .stall_at = 1};
  assert_error(bppsa_comm_run(&config, hang, &h, NULL), BPPSA_ERR_COMM, "recv from rank 1, tag 0, 24 bytes");
  for (h = (hanging){.sums = true, .stall_at = 1}; h.stall_at < 12; ++h.stall_at) {
    assert_error(bppsa_comm_run(&config, hang, &h, NULL), BPPSA_ERR_COMM, " waited ");
  }
}

static void memory_runs_out(void **state) {
  (void)state;
  const bppsa_comm_config config = bppsa_comm_config_default();
  const int64_t live = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  measured m = {.at_once = 1, .repeats = 1, .replicas = 1};
  int64_t call = 0;
  sleeps = false;
  while (status == BPPSA_ERR_MEMORY) {
    bppsa_alloc_fail_at(++call);
    status = bppsa_comm_run(&config, measure_rank, &m, NULL);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || (m.costs[0].memory == NULL && bppsa_alloc_live() == live));
  }
  sleeps = true;
  assert_int_equal(status, BPPSA_OK);
  assert_true(call > 60);
  free_measured(&m);
  assert_int_equal(bppsa_alloc_live(), live);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(passes_are_told_apart),
                                     cmocka_unit_test(probes_run_again),
                                     cmocka_unit_test(runs_are_counted),
                                     cmocka_unit_test(files_have_what_was_measured),
                                     cmocka_unit_test(ranks_have_the_same_numbers),
                                     cmocka_unit_test(sums_cost_messages),
                                     cmocka_unit_test(noise_depends_on_its_place),
                                     cmocka_unit_test(wrong_requests_are_refused),
                                     cmocka_unit_test(ranks_that_hang_are_named),
                                     cmocka_unit_test(memory_runs_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a rank computes in a step: a part that computes alone is what the rank has in a run, and its traffic is counted; the costs
 * are the same on every rank and leave the weights as they are. */
#include "calibrate/step_costs.h"

#include <time.h>

#include "cnn/network_internal.h"
#include "core/base/clock.h"
#include "tests/core/helpers.h"
#include "tests/distributed/layer_problem.h"

/* One convolution 3 x 3 with padding 1 on 8 x 6 images of 2 channels, to 4 channels, and a linear operator to 5 classes. */
static bppsa_cnn_network small_network(void) {
  bppsa_cnn_network network = {.name = "one", .in = {2, 8, 6}};
  bppsa_cnn_layer layers[] = {{.name = "conv", .prefix = "conv", .op = bppsa_op_default(BPPSA_OPERATOR_CONV2D), .bias = true},
                              {.name = "fc", .prefix = "fc", .op = bppsa_op_default(BPPSA_OPERATOR_LINEAR), .bias = true}};
  layers[0].op.kernel[0] = layers[0].op.kernel[1] = 3;
  for (int i = 0; i < 4; ++i) {
    layers[0].op.padding[i] = 1;
  }
  layers[0].op.out_channels = 4;
  layers[1].op.out_channels = 5;
  assert_int_equal(bppsa_cnn_network_reserve(2, &network), BPPSA_OK);
  assert_int_equal(bppsa_cnn_network_add(&network, &layers[0]), BPPSA_OK);
  assert_int_equal(bppsa_cnn_network_add(&network, &layers[1]), BPPSA_OK);
  return network;
}

/* The part of rank `place` of `ways`, with the problem's weights, after both passes. */
static bppsa_model *pass_alone(const layer_problem *p, const bppsa_device *device, bppsa_layer_strategy strategy, int64_t ways,
                               int32_t place, bppsa_view *logits) {
  const int64_t *in = p->network->in, x_shape[] = {p->batch, in[0], in[1], in[2]};
  bppsa_layer_split_config config = {.strategy = strategy, .batch = p->batch, .dtype = p->dtype, .alone = ways, .place = place};
  bppsa_model *model = NULL;
  assert_int_equal(bppsa_layer_split_create(p->network, &config, device, &model), BPPSA_OK);
  for (int64_t i = 0; i < p->parameter_count; ++i) {
    bppsa_layer_split_take(model, i, p->parameters[i], model->parameters[i].value.data);
  }
  const bppsa_view x = bppsa_view_make(p->x, p->dtype, 4, x_shape),
                   seed = bppsa_view_make(p->seed, p->dtype, 2, (int64_t[]){p->batch, model->classes});
  for (int pass = 0; pass < 2; ++pass) { /* what is counted is one pass */
    assert_int_equal(model->ops->forward(model, &x, NULL, logits), BPPSA_OK);
    assert_int_equal(model->ops->backward(model, &seed), BPPSA_OK);
  }
  return model;
}

/* The only part of one is the whole network. */
static void one_part_is_all(void **state) {
  (void)state;
  bppsa_cnn_network network;
  bppsa_device *device = cpu_device(1);
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  layer_problem p = {.network = &network, .dtype = BPPSA_F32, .batch = 3};
  layer_reference(&p);
  for (int s = 0; s < BPPSA_LAYERS_COUNT; ++s) {
    bppsa_view logits;
    bppsa_model *model = pass_alone(&p, device, (bppsa_layer_strategy)s, 1, 0, &logits);
    assert_true(residual(BPPSA_F32, logits.data, p.y[network.count], bppsa_view_count(&logits), 1) < 30);
    assert_true(residual(BPPSA_F32, model->parameters[0].gradient.data, p.gradients[0], p.sizes[0], 1) < 30);
    const bppsa_layer_traffic *t = bppsa_layer_split_traffic(model);
    assert_int_equal(t->allgathers + t->messages, 0);
    bppsa_model_destroy(model);
  }
  layer_problem_free(&p);
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

/* 3 samples in float64, on two ranks; the gradient of the input is not wanted. */
static void counts_what_would_travel(void **state) {
  (void)state;
  enum { B = 3, REAL = 8, CONV = 4 * 2 * 9, BIAS = 8 /* padded to a line */, FC = 5 * 4 * 48 };
  static const bppsa_layer_traffic expected[BPPSA_LAYERS_COUNT] = {
      /* a row of 2 channels from the neighbour; an allgather of half of conv's output; conv has tiles */
      [BPPSA_LAYERS_SPATIAL] = {.messages = 1,
                                .message_bytes = B * 2 * 6 * REAL,
                                .allgathers = 1,
                                .allgather_bytes = B * 4 * 4 * 6 * REAL,
                                .tile_bytes = (CONV + BIAS) * REAL,
                                .weight_bytes = (CONV + BIAS + FC + BIAS) * REAL},
      /* allgathers of half of conv's channels and of 3 of 5 logits; a sum of fc's input gradient; 2 filters (36 numbers, padded to
       * 40) and 3 classes */
      [BPPSA_LAYERS_FILTER] = {.allgathers = 2,
                               .allgather_bytes = (B * 2 * 48 + B * 3) * REAL,
                               .sums = 1,
                               .sum_bytes = B * 4 * 48 * REAL,
                               .weight_bytes = (40 + BIAS + 3 * 192 + BIAS) * REAL},
      /* a sum of the logits; an allgather of half of fc's input gradient; conv is whole */
      [BPPSA_LAYERS_CHANNEL] = {.allgathers = 1,
                                .allgather_bytes = B * 2 * 48 * REAL,
                                .sums = 1,
                                .sum_bytes = B * 5 * REAL,
                                .weight_bytes = (CONV + BIAS + FC / 2 + BIAS) * REAL}};
  /* of the backward pass: gradients travel as the numbers did, and those of weights are added up */
  static const int64_t meetings[BPPSA_LAYERS_COUNT] = {
      [BPPSA_LAYERS_SPATIAL] = 1, [BPPSA_LAYERS_FILTER] = 2, [BPPSA_LAYERS_CHANNEL] = 2};
  bppsa_cnn_network network = small_network();
  bppsa_device *device = cpu_device(1);
  layer_problem p = {.network = &network, .dtype = BPPSA_F64, .batch = B};
  layer_reference(&p);
  for (int s = 0; s < BPPSA_LAYERS_COUNT; ++s) {
    bppsa_view logits;
    bppsa_model *model = pass_alone(&p, device, (bppsa_layer_strategy)s, 2, 0, &logits);
    const bppsa_layer_traffic *found = bppsa_layer_split_traffic(model), *right = &expected[s];
    int64_t met;
    const double *times = bppsa_layer_split_meetings(model, &met);
    assert_int_equal(met, meetings[s]);
    for (int64_t i = 1; i < met; ++i) {
      assert_true(times[i] >= times[i - 1]);
    }
    assert_int_equal(found->messages, right->messages);
    assert_int_equal(found->message_bytes, right->message_bytes);
    assert_int_equal(found->allgathers, right->allgathers);
    assert_int_equal(found->allgather_bytes, right->allgather_bytes);
    assert_int_equal(found->sums, right->sums);
    assert_int_equal(found->sum_bytes, right->sum_bytes);
    assert_int_equal(found->tile_bytes, right->tile_bytes);
    assert_int_equal(found->weight_bytes, right->weight_bytes);
    bppsa_model_destroy(model);
  }
  layer_problem_free(&p);
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

/* A part that computes alone cannot be collected from others; it has no group. */
static void refuses(void **state) {
  (void)state;
  bppsa_cnn_network network = small_network();
  bppsa_device *device = cpu_device(1);
  bppsa_layer_split_config config = {.strategy = BPPSA_LAYERS_FILTER, .batch = 1, .dtype = BPPSA_F32, .alone = 2};
  bppsa_model *model = NULL;
  double norm = 0, buffer[128] = {0};
  assert_int_equal(bppsa_layer_split_create(&network, &config, device, &model), BPPSA_OK);
  assert_int_equal(bppsa_layer_split_norm(model, &norm), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_layer_split_collect(model, 0, buffer, buffer), BPPSA_ERR_ARGUMENT);
  bppsa_model_destroy(model);
  model = NULL;
  config.place = 2;
  assert_int_equal(bppsa_layer_split_create(&network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  config = (bppsa_layer_split_config){.batch = 1};
  assert_int_equal(bppsa_layer_split_create(&network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  assert_null(model);
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

/* ---- measuring ---- */

enum { RANKS = 3 };
typedef struct measured {
  const bppsa_cnn_network *network;
  bppsa_status (*measure)(bppsa_comm *comm, struct measured *m, bppsa_model *model, const bppsa_device *device);
  bppsa_step_costs whole[RANKS], part[RANKS];
} measured;

static bppsa_status measure_with(bppsa_comm *comm, measured *m, bppsa_model *model, const bppsa_device *device) {
  const int32_t rank = bppsa_comm_rank(comm);
  const bppsa_step_measuring how = {
      .batch = 2, .optimizer = bppsa_optimizer_config_default(), .seed = 1, .budget_s = 1e-6, .device = device};
  float *weight = model->parameters[0].value.data;
  weight[0] = 7;
  const bppsa_layer_strategy filter = BPPSA_LAYERS_FILTER;
  BPPSA_TRY(bppsa_step_measure(comm, m->network, model, NULL, 1, &how, &m->whole[rank]));
  BPPSA_TRY(bppsa_step_measure(comm, m->network, model, &filter, RANKS, &how, &m->part[rank]));
  CHECK(weight[0] == 7);
  bppsa_step_costs untouched = {.forward_s = -1};
  CHECK(bppsa_step_measure(comm, m->network, model, &filter, 7, &how, &untouched) == BPPSA_ERR_ARGUMENT);
  CHECK(strstr(bppsa_last_error(), "more than the 4 filters of conv") != NULL && untouched.forward_s == -1);
  return BPPSA_OK;
}

static bppsa_status measure_here(bppsa_comm *comm, void *context) {
  measured *m = context;
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  const bppsa_layer_split_config config = {.batch = 2, .dtype = BPPSA_F32, .alone = 1};
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  bppsa_status status = bppsa_layer_split_create(m->network, &config, device, &model);
  status = status == BPPSA_OK ? m->measure(comm, m, model, device) : status;
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  return status;
}

static void measures(void **state) {
  (void)state;
  bppsa_cnn_network network = small_network();
  measured m = {.network = &network, .measure = measure_with};
  bppsa_comm_config config = bppsa_comm_config_default();
  config.ranks = RANKS;
  assert_int_equal(bppsa_comm_run(&config, measure_here, &m, NULL), BPPSA_OK);
  assert_true(m.whole[0].forward_s > 0 && m.whole[0].backward_s > 0 && m.whole[0].update_s > 0 && m.whole[0].exchange_s > 0);
  for (int i = 0; i < 2; ++i) { /* both ends, which all ranks know */
    const bppsa_step_costs *c = i == 0 ? &m.whole[1] : &m.part[1];
    assert_true(c->low.forward_s > 0 && c->low.forward_s <= c->forward_s && c->high.forward_s >= c->forward_s);
    assert_true(c->low.backward_s <= c->backward_s && c->high.backward_s >= c->backward_s && c->high.update_s >= c->update_s);
    assert_true(c->low.exchange_s <= c->exchange_s && c->high.exchange_s >= c->exchange_s);
  }
  assert_true(m.part[0].forward_s > 0 && m.part[0].traffic.allgathers == 2 && m.part[0].traffic.sums == 1);
  assert_true(m.part[0].exchange_s == 0);
  assert_int_equal(m.whole[0].traffic.weight_bytes, (4 * 2 * 9 + 4 + 5 * 192 + 5) * 4);
  assert_int_equal(m.whole[0].traffic.allgathers, 0);
  for (int32_t rank = 1; rank < RANKS; ++rank) {
    assert_memory_equal(&m.whole[rank], &m.whole[0], sizeof m.whole[0]);
    assert_memory_equal(&m.part[rank], &m.part[0], sizeof m.part[0]);
  }
  bppsa_cnn_network_free(&network);
}

/* ---- ranks that lose their processors ---- */

enum { STEPS = 9, UNCOUNTED = 3 /* steps in front of them */ };
static const double LOST_S = 0.05;

/* A model's table whose forward pass takes LOST_S more in some steps. */
typedef struct {
  bppsa_model_ops ops;
  const bppsa_model_ops *real;
  int32_t rank, step;
} losing;
static _Thread_local losing lost;

static bppsa_status lose_processor(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, bppsa_view *logits) {
  const int32_t step = lost.step++ - UNCOUNTED;
  const double start = bppsa_now();
  while (step >= 0 && step % RANKS == lost.rank && bppsa_now() - start < LOST_S) {
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
  return lost.real->forward(model, x, h0, logits);
}

static bppsa_status measure_losing(bppsa_comm *comm, measured *m, bppsa_model *model, const bppsa_device *device) {
  const int32_t rank = bppsa_comm_rank(comm);
  bppsa_step_measuring how = {.batch = 2, .optimizer = bppsa_optimizer_config_default(), .steps = STEPS, .device = device};
  lost = (losing){.ops = *model->ops, .real = model->ops, .rank = rank};
  lost.ops.forward = lose_processor;
  model->ops = &lost.ops;
  bppsa_status status = bppsa_step_measure(comm, m->network, model, NULL, 1, &how, &m->whole[rank]);
  how.mean = true;
  lost.step = 0;
  status = status == BPPSA_OK ? bppsa_step_measure(comm, m->network, model, NULL, 1, &how, &m->part[rank]) : status;
  model->ops = lost.real;
  return status;
}

/* In each of 9 steps another one of 3 ranks loses its processor for LOST_S. Of a rank's own steps that is a third: no part of its
 * median, and a third of it part of its mean. The longest rank of every step would make it LOST_S by either. */
static void one_rank_lost_is_not_all(void **state) {
  (void)state;
  bppsa_cnn_network network = small_network();
  measured m = {.network = &network, .measure = measure_losing};
  bppsa_comm_config config = bppsa_comm_config_default();
  config.ranks = RANKS;
  assert_int_equal(bppsa_comm_run(&config, measure_here, &m, NULL), BPPSA_OK);
  assert_true(m.whole[0].forward_s < LOST_S / 2);
  assert_true(m.part[0].forward_s >= LOST_S / 3 && m.part[0].forward_s < LOST_S * 2 / 3);
  bppsa_cnn_network_free(&network);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_part_is_all), cmocka_unit_test(counts_what_would_travel),
                                     cmocka_unit_test(refuses), cmocka_unit_test(measures),
                                     cmocka_unit_test(one_rank_lost_is_not_all)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

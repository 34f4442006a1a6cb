/* Derivatives along a direction of stateless passes on a device beside those on a CPU, whose tests (test_layer_tangent.c) hold them
 * against differences; two points that alternate; recorded passes, played twice; nothing is allocated. BPPSA_TEST_DEVICE names the
 * device. */
#include "core/compute/graph.h"
#include "tests/recurrent/tangent_problem.h"
#include "tests/support/length.h"

/* ---- a point, on a CPU and on the device ---- */

/* What the passes read: inputs and weights, a direction, the gradients of the states, and their tangents. */
typedef struct {
  tangent_set point, direction;
  tangent_seed seed, dots;
} given;

static given draw_given(const tangent_problem *p, layer_dice *d) {
  given g = {.point = tangent_draw(p, d, 5, true), .direction = tangent_draw(p, d, 4, false)};
  g.seed = tangent_draw_seed(p, d, 3);
  g.dots = tangent_draw_seed(p, d, 3);
  return g;
}

static layer_array array_on(const bppsa_device *device, const layer_array *from) {
  layer_array a = {0};
  if (from->data != NULL) {
    a = layer_open(device, from->size, false);
    assert_int_equal(bppsa_memory_put(device, a.data, from->data, from->size), BPPSA_OK);
  }
  return a;
}

static given given_on(const bppsa_device *device, const given *from) {
  given g = {.seed = {{{0}}}};
  for (int i = 0; i < TANGENT_INPUTS; ++i) {
    g.point.a[i] = array_on(device, &from->point.a[i]);
    g.direction.a[i] = array_on(device, &from->direction.a[i]);
  }
  for (int i = 0; i < TANGENT_SEEDS; ++i) {
    g.seed.a[i] = array_on(device, &from->seed.a[i]);
    g.dots.a[i] = array_on(device, &from->dots.a[i]);
  }
  return g;
}

static void free_given(const tangent_problem *p, given *g) {
  tangent_free(p, g->point.a, TANGENT_INPUTS);
  tangent_free(p, g->direction.a, TANGENT_INPUTS);
  tangent_free(p, g->seed.a, TANGENT_SEEDS);
  tangent_free(p, g->dots.a, TANGENT_SEEDS);
}

typedef struct {
  tangent_states states, tangents;
  tangent_set derivatives;
} results;

static results compute(const tangent_problem *p, const given *g) {
  results r = {.states = tangent_forward(p, &g->point)};
  r.tangents = tangent_run(p, &g->point, &r.states, &g->direction);
  r.derivatives = tangent_run_back(p, &g->point, &r.states, &g->direction, &r.tangents, &g->seed, &g->dots);
  return r;
}

static void free_results(const tangent_problem *p, results *r) {
  tangent_free(p, r->states.a, 3);
  tangent_free(p, r->tangents.a, 3);
  tangent_free(p, r->derivatives.a, TANGENT_INPUTS);
}

/* ---- comparisons ---- */

/* The numbers of an array in the device's memory, of which there are so many. */
static double *numbers_of(const tangent_problem *p, const layer_array *a, int64_t count) {
  const int64_t size = (int64_t)bppsa_dtype_size(p->config.dtype);
  void *host = layer_host(p->device, a->data, count * size);
  double *numbers = malloc((size_t)(count > 0 ? count : 1) * sizeof *numbers);
  assert_non_null(numbers);
  const bppsa_view view = bppsa_view_make(host, p->config.dtype, 1, &count);
  for (int64_t i = 0; i < count; ++i) {
    numbers[i] = bppsa_view_get(&view, i);
  }
  free(host);
  return numbers;
}

/* The largest difference, divided by the largest number or 1; NaN if there is one. */
static double difference(const double *a, const double *b, int64_t count) {
  double most = 1, error = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double apart = fabs(a[i] - b[i]);
    most = fabs(b[i]) > most ? fabs(b[i]) : most;
    error = apart <= error ? error : apart;
  }
  return error / most;
}

static void expect_near(const tangent_problem *exact, const results *expected, const tangent_problem *p, const results *found) {
  const double most = p->config.dtype == BPPSA_F64 ? 1e-12 : 5e-5;
  for (int i = 0; i < 2 + TANGENT_INPUTS; ++i) {
    const layer_array *a = i < 2 ? &found->tangents.a[i] : &found->derivatives.a[i - 2],
                      *b = i < 2 ? &expected->tangents.a[i] : &expected->derivatives.a[i - 2];
    const int64_t count = i < 2 ? (p->config.seq_len + 1) * p->counts[1] : p->counts[i - 2];
    if (a->data != NULL) {
      double *one = numbers_of(p, a, count), *other = numbers_of(exact, b, count);
      tangent_expect(p, i < 2 ? "tangent of the states" : tangent_names[i - 2], difference(one, other, count), most);
      free(one);
      free(other);
    }
  }
}

static void expect_same(const tangent_problem *p, const results *found, const results *expected) {
  for (int i = 0; i < 2 + TANGENT_INPUTS; ++i) {
    const layer_array *a = i < 2 ? &found->tangents.a[i] : &found->derivatives.a[i - 2],
                      *b = i < 2 ? &expected->tangents.a[i] : &expected->derivatives.a[i - 2];
    if (a->data != NULL) {
      layer_same(p->device, i < 2 ? "tangent of the states" : tangent_names[i - 2], a->data, b->data, a->size);
    }
  }
}

/* ---- tests ---- */

/* Random layers, and in every eighth case one whose steps a cluster of blocks computes. */
static bppsa_recurrent_config draw_config(layer_dice *d, int k, const bppsa_cell *cell) {
  bppsa_recurrent_config c = tangent_draw_config(d, cell, k / LAYER_CELLS % 2 == 0 ? BPPSA_F64 : BPPSA_F32);
  const bool wide = k % 8 == 7;
  const bool large =
      cell->pair && c.dtype == BPPSA_F64; /* products of chunks of more units need more shared memory than a GPU has */
  c.hidden = wide ? 40 : layer_roll(d, 1, large ? 8 : 21);
  c.seq_len = wide ? 4 : layer_roll(d, 1, 14);
  c.batch = layer_roll(d, 1, 3);
  if (wide) {
    c.method.backward = BPPSA_BACKWARD_BP;
  }
  return c;
}

/* Gives the device's problem the other one's lengths and resets: in host memory or, `far`, in the device's, with lengths that are
 * int32_t if `small`. */
static void share_spans(const tangent_problem *exact, tangent_problem *p, bool far, bool small) {
  const int64_t batch = p->config.batch, bytes = p->config.seq_len * batch;
  p->lengths = exact->lengths;
  p->resets = exact->resets;
  p->far = far;
  p->small = small;
  if (far && exact->lengths != NULL) {
    int32_t narrow[8];
    assert_true(batch <= 8);
    for (int64_t b = 0; b < batch; ++b) { /* one beyond T counts as T */
      narrow[b] = (int32_t)exact->lengths[b] + (exact->lengths[b] == p->config.seq_len ? 5 : 0);
    }
    p->lengths = on_device(p->device, small ? (const void *)narrow : exact->lengths, batch * (small ? 4 : 8));
  }
  if (far && exact->resets != NULL) {
    p->resets = on_device(p->device, exact->resets, bytes);
  }
}

static void drop_spans(tangent_problem *p) {
  if (p->far) {
    bppsa_memory_free(p->device, p->lengths);
    bppsa_memory_free(p->device, p->resets);
  }
  p->lengths = NULL;
  p->resets = NULL;
}

/* Two points' passes alternate on one layer; the first one's bits come again. */
static void test_points(void **state) {
  (void)state;
  for (int k = 0; k < 160; ++k) {
    bppsa_device *device = test_device(1);
    if (is_emulated(device) && !is_drawn(4)) {
      bppsa_device_destroy(device);
      continue;
    }
    layer_dice d = {5000000 + (uint64_t)k};
    const bppsa_cell *cell = layer_cells[k % LAYER_CELLS];
    const bppsa_recurrent_config c = draw_config(&d, k, cell);
    tangent_problem exact = tangent_open(&c, cell, 1), p = tangent_open_on(&c, cell, device);
    tangent_draw_spans(&exact, &d);
    share_spans(&exact, &p, !layer_hosted(device) && k / 2 % 2 == 0, k / 4 % 2 == 0);
    given host[2], far[2];
    results found[2];
    for (int i = 0; i < 2; ++i) {
      host[i] = draw_given(&exact, &d);
      far[i] = given_on(device, &host[i]);
      found[i] = compute(&p, &far[i]);
      results expected = compute(&exact, &host[i]);
      expect_near(&exact, &expected, &p, &found[i]);
      free_results(&exact, &expected);
    }
    const int64_t held = bppsa_memory_held(device);
    results again = compute(&p, &far[0]);
    expect_same(&p, &again, &found[0]);
    free_results(&p, &again);
    assert_int_equal(bppsa_memory_held(device), held);
    for (int i = 0; i < 2; ++i) {
      free_results(&p, &found[i]);
      free_given(&exact, &host[i]);
      free_given(&p, &far[i]);
    }
    drop_spans(&p);
    tangent_close(&p);
    tangent_close(&exact);
  }
}

typedef struct {
  const tangent_problem *p;
  const given *g;
  const results *r;
  void *scratch;
} recorded;

static bppsa_status queue(void *context) {
  const recorded *r = context;
  const tangent_problem *p = r->p;
  const bppsa_layer_inputs in = tangent_inputs_of(p, &r->g->point);
  const bppsa_layer_tape tape = tangent_tape_of(&r->r->states);
  const bppsa_layer_tangents along = tangent_direction_of(&r->g->direction);
  const bppsa_layer_seed seed = tangent_seed_of(&r->g->seed), dots = tangent_seed_of(&r->g->dots);
  const bppsa_layer_gradients to = tangent_gradients_of(&r->r->derivatives);
  void *h = r->r->tangents.a[0].data, *c = r->r->tangents.a[1].data;
  BPPSA_TRY(bppsa_layer_tangent(p->layer, p->device, &in, &tape, &along, h, c, r->scratch));
  return bppsa_layer_tangent_backward(p->layer, p->device, &in, &tape, &along, h, c, &seed, &dots, &to, r->scratch);
}

static void clear(const bppsa_device *device, const layer_array *a) {
  if (a->data != NULL) {
    assert_int_equal(bppsa_memory_clear(device, a->data, a->size), BPPSA_OK);
  }
}

/* A recording of both passes, which would fail if they allocated or waited, is played twice; what it writes is spoiled between. */
static void test_recorded(void **state) {
  (void)state;
  for (int k = 0; k < TANGENT_METHODS * LAYER_CELLS; ++k) {
    bppsa_device *device = test_device(1);
    if (layer_hosted(device) || (is_emulated(device) && !is_drawn(3))) {
      bppsa_device_destroy(device);
      continue;
    }
    layer_dice d = {6000000 + (uint64_t)k};
    const bppsa_cell *cell = layer_cells[k / TANGENT_METHODS];
    bppsa_recurrent_config c = tangent_draw_config(&d, cell, BPPSA_F32);
    c.method = tangent_methods[k % TANGENT_METHODS];
    c.speculation.chunks = c.method.backward == BPPSA_BACKWARD_SPECULATIVE ? 2 : 0;
    c.lengths = c.resets = c.reset_state = false; /* a recording reads them in page-locked memory */
    c.hidden = 5;
    c.seq_len = 9;
    tangent_problem p = tangent_open_on(&c, cell, device), exact = tangent_open(&c, cell, 1);
    given host = draw_given(&exact, &d), far = given_on(device, &host);
    results expected = compute(&p, &far), room = compute(&p, &far);
    layer_array scratch = layer_open(device, p.backward > p.tangent ? p.backward : p.tangent, true);
    recorded r = {&p, &far, &room, scratch.data};
    bppsa_graph *graph = NULL;
    assert_int_equal(bppsa_graph_capture(device, queue, &r, &graph), BPPSA_OK);
    for (int turn = 0; turn < 2; ++turn) {
      clear(device, &scratch);
      for (int i = 0; i < 2 + TANGENT_INPUTS; ++i) {
        clear(device, i < 2 ? &room.tangents.a[i] : &room.derivatives.a[i - 2]);
      }
      assert_int_equal(bppsa_graph_launch(device, graph), BPPSA_OK);
      expect_same(&p, &room, &expected);
    }
    bppsa_graph_destroy(device, graph);
    layer_close(device, &scratch);
    free_results(&p, &expected);
    free_results(&p, &room);
    free_given(&p, &far);
    free_given(&exact, &host);
    tangent_close(&exact);
    tangent_close(&p);
  }
}

/* Second tangents are computed on a CPU alone; wrong arrays are refused as there. */
static void test_refused(void **state) {
  (void)state;
  bppsa_device *device = test_device(1);
  if (layer_hosted(device)) {
    bppsa_device_destroy(device);
    return;
  }
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = c.batch = c.input = c.hidden = 3;
  c.method.backward = BPPSA_BACKWARD_BP;
  layer_dice d = {7};
  tangent_problem p = tangent_open_on(&c, &bppsa_gru_cell, device);
  tangent_set point = tangent_draw(&p, &d, 0, true), direction = tangent_draw(&p, &d, 0, false);
  tangent_states states = tangent_forward(&p, &point), tangents = tangent_run(&p, &point, &states, &direction);
  const bppsa_layer_inputs in = tangent_inputs_of(&p, &point);
  const bppsa_layer_tape tape = tangent_tape_of(&states);
  const bppsa_layer_direction along = tangent_with(&direction, &tangents);
  const bppsa_layer_tangents of_c0 = {.c0 = states.a[0].data};
  layer_array scratch = layer_open(device, p.tangent + p.twice, true);
  void *h = states.a[0].data;
  assert_error(bppsa_layer_second_tangent(p.layer, device, &in, &tape, &along, &along, h, NULL, scratch.data),
               BPPSA_ERR_UNSUPPORTED, "gru layer: tangents of tangents on a GPU, expected a CPU");
  assert_error(bppsa_layer_tangent(p.layer, device, &in, &tape, &of_c0, h, NULL, scratch.data), BPPSA_ERR_ARGUMENT,
               "tangent of c0 is an array");
  assert_error(bppsa_layer_tangent(p.layer, device, &in, &tape, &along.tangents, NULL, NULL, scratch.data), BPPSA_ERR_ARGUMENT,
               "h is NULL");
  layer_close(device, &scratch);
  tangent_free(&p, point.a, TANGENT_INPUTS);
  tangent_free(&p, direction.a, TANGENT_INPUTS);
  tangent_free(&p, states.a, 3);
  tangent_free(&p, tangents.a, 3);
  tangent_close(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_points), cmocka_unit_test(test_recorded),
                                     cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

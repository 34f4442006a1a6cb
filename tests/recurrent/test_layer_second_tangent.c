/* Tangents of tangents of stateless passes (bppsa_layer_second_tangent): beside differences of the tangents, symmetric in the two
 * directions, by every method, on threads, in float32, in sequences of calls. */
#include "tests/recurrent/tangent_problem.h"
#include "tests/support/length.h"

/* point += by · direction */
static void move(const tangent_problem *p, tangent_set *point, const tangent_set *direction, double by) {
  for (int i = 0; i < TANGENT_INPUTS; ++i) {
    for (int64_t k = 0; direction->a[i].data != NULL && k < tangent_count(p, &point->a[i]); ++k) {
      ((double *)point->a[i].data)[k] += by * ((const double *)direction->a[i].data)[k];
    }
  }
}

/* An array that the point lacks has no direction either. */
static void match(const tangent_problem *p, const tangent_set *point, tangent_set *direction) {
  for (int i = 0; i < TANGENT_INPUTS; ++i) {
    if (point->a[i].data == NULL) {
      layer_close(p->device, &direction->a[i]);
    }
  }
}

/* Richardson's central differences of the tangents in direction d, along e; NULL where the layer has no c. */
static double *differences(const tangent_problem *p, tangent_set *point, const tangent_set *d, const tangent_set *e, int half,
                           double by) {
  static const double places[] = {-2, -1, 1, 2}, weights[] = {1, -8, 8, -1};
  const int64_t count = (p->config.seq_len + 1) * p->counts[1];
  double *sum = calloc((size_t)count, sizeof *sum), at = 0;
  assert_non_null(sum);
  for (int k = 0; k < 4; ++k) {
    move(p, point, e, (places[k] - at) * by);
    at = places[k];
    tangent_states states = tangent_forward(p, point), tangents = tangent_run(p, point, &states, d);
    for (int64_t i = 0; i < count; ++i) {
      sum[i] += weights[k] * ((const double *)tangents.a[half].data)[i] / (12 * by);
    }
    tangent_free(p, states.a, 3);
    tangent_free(p, tangents.a, 3);
  }
  move(p, point, e, -at * by);
  return sum;
}

typedef struct {
  tangent_set point, d, e;
  tangent_states states, of_d, of_e;
} directions;

static directions draw_directions(const tangent_problem *p, layer_dice *dice) {
  directions x = {.point = tangent_draw(p, dice, 5, true)};
  x.d = tangent_draw(p, dice, 4, false);
  x.e = tangent_draw(p, dice, 4, false);
  match(p, &x.point, &x.d);
  match(p, &x.point, &x.e);
  x.states = tangent_forward(p, &x.point);
  x.of_d = tangent_run(p, &x.point, &x.states, &x.d);
  x.of_e = tangent_run(p, &x.point, &x.states, &x.e);
  return x;
}

static void free_directions(const tangent_problem *p, directions *x) {
  tangent_set *const sets[] = {&x->point, &x->d, &x->e};
  tangent_states *const all[] = {&x->states, &x->of_d, &x->of_e};
  for (int k = 0; k < 3; ++k) {
    tangent_free(p, sets[k]->a, TANGENT_INPUTS);
    tangent_free(p, all[k]->a, 3);
  }
}

static tangent_states run_both(const tangent_problem *p, const directions *x, bool exchanged) {
  const bppsa_layer_direction one = tangent_with(&x->d, &x->of_d), other = tangent_with(&x->e, &x->of_e);
  return tangent_run_twice(p, &x->point, &x->states, exchanged ? &other : &one, exchanged ? &one : &other);
}

static void compare(tangent_problem *p, layer_dice *dice) {
  const bool kinks = p->config.nonlinearity == BPPSA_NONLINEARITY_RELU;
  directions x = draw_directions(p, dice);
  tangent_states found = run_both(p, &x, false), exchanged = run_both(p, &x, true);
  for (int half = 0; half < (p->cell->pair ? 2 : 1); ++half) {
    tangent_expect(p, "second tangent, exchanged", tangent_error(p, &found.a[half], exchanged.a[half].data, 1), 1e-12);
    double *wanted = differences(p, &x.point, &x.d, &x.e, half, kinks ? 1e-7 : 3e-4);
    tangent_expect(p, "second tangent", tangent_error(p, &found.a[half], wanted, 1), kinks ? 1e-5 : 1e-7);
    free(wanted);
  }
  tangent_free(p, found.a, 3);
  tangent_free(p, exchanged.a, 3);
  free_directions(p, &x);
}

static void test_differences(void **state) {
  (void)state;
  const uint64_t cases = at_full_length() ? 1500 : 300;
  for (uint64_t seed = 0; seed < cases; ++seed) {
    layer_dice d = {5000000 + seed};
    const bppsa_cell *cell = layer_cells[seed % LAYER_CELLS];
    const bppsa_recurrent_config c = tangent_draw_config(&d, cell, BPPSA_F64);
    tangent_problem p = tangent_open(&c, cell, layer_roll(&d, 1, 3));
    tangent_draw_spans(&p, &d);
    compare(&p, &d);
    tangent_close(&p);
  }
}

/* The same bits with 1 to 4 threads, and again behind other passes. */
static void test_bits(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    layer_dice dice = {6000000 + seed};
    const bppsa_cell *cell = layer_cells[seed % LAYER_CELLS];
    bppsa_recurrent_config c = tangent_draw_config(&dice, cell, BPPSA_F64);
    c.batch = layer_roll(&dice, 1, 40);
    c.hidden = seed % 15 == 0 ? 131 : c.hidden;
    tangent_problem p = tangent_open(&c, cell, 1);
    tangent_draw_spans(&p, &dice);
    directions x = draw_directions(&p, &dice);
    tangent_states first = run_both(&p, &x, false);
    for (int64_t threads = 1; threads <= 4; ++threads) {
      tangent_problem other = tangent_open(&c, cell, threads);
      other.lengths = p.lengths;
      other.resets = p.resets;
      tangent_states exchanged = run_both(&other, &x, true), again = run_both(&other, &x, false);
      for (int half = 0; half < (cell->pair ? 2 : 1); ++half) {
        assert_memory_equal(again.a[half].data, first.a[half].data, (size_t)first.a[half].size);
      }
      tangent_free(&p, exchanged.a, 3);
      tangent_free(&p, again.a, 3);
      other.lengths = NULL;
      other.resets = NULL;
      tangent_close(&other);
    }
    tangent_free(&p, first.a, 3);
    free_directions(&p, &x);
    tangent_close(&p);
  }
}

/* The numbers of a set in float32; both sets then hold the same values. */
static tangent_set rounded_set(const tangent_problem *to, const tangent_set *from) {
  tangent_set s = {0};
  for (int i = 0; i < TANGENT_INPUTS; ++i) {
    const int64_t count = from->a[i].data != NULL ? from->a[i].size / (int64_t)sizeof(double) : 0;
    if (count > 0) {
      s.a[i] = layer_open(to->device, count * (int64_t)sizeof(float), false);
    }
    for (int64_t k = 0; k < count; ++k) {
      ((float *)s.a[i].data)[k] = (float)((const double *)from->a[i].data)[k];
      ((double *)from->a[i].data)[k] = (double)((float *)s.a[i].data)[k];
    }
  }
  return s;
}

static void compute_tangents(const tangent_problem *p, directions *x) {
  x->states = tangent_forward(p, &x->point);
  x->of_d = tangent_run(p, &x->point, &x->states, &x->d);
  x->of_e = tangent_run(p, &x->point, &x->states, &x->e);
}

static void test_f32(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    layer_dice dice = {7000000 + seed};
    const bppsa_cell *cell = layer_cells[seed % LAYER_CELLS];
    bppsa_recurrent_config c = tangent_draw_config(&dice, cell, BPPSA_F64);
    c.nonlinearity = BPPSA_NONLINEARITY_TANH;
    tangent_problem exact = tangent_open(&c, cell, 2);
    tangent_draw_spans(&exact, &dice);
    c.dtype = BPPSA_F32;
    tangent_problem p = tangent_open(&c, cell, 2);
    p.lengths = exact.lengths;
    p.resets = exact.resets;
    directions x = {.point = tangent_draw(&exact, &dice, 5, true)}, y;
    x.d = tangent_draw(&exact, &dice, 5, false);
    x.e = tangent_draw(&exact, &dice, 5, false);
    y.point = rounded_set(&p, &x.point);
    y.d = rounded_set(&p, &x.d);
    y.e = rounded_set(&p, &x.e);
    compute_tangents(&exact, &x);
    compute_tangents(&p, &y);
    tangent_states wanted = run_both(&exact, &x, false), found = run_both(&p, &y, false);
    for (int half = 0; half < (cell->pair ? 2 : 1); ++half) {
      tangent_expect(&p, "f32 second tangent", tangent_error(&p, &found.a[half], wanted.a[half].data, 1), 5e-5);
    }
    tangent_free(&exact, wanted.a, 3);
    tangent_free(&p, found.a, 3);
    free_directions(&exact, &x);
    free_directions(&p, &y);
    p.lengths = NULL;
    p.resets = NULL;
    tangent_close(&p);
    tangent_close(&exact);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences), cmocka_unit_test(test_bits), cmocka_unit_test(test_f32)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

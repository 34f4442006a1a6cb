/* Derivatives along a direction of stateless passes: beside differences, the adjoint, the symmetry of the Hessian; on threads, in
 * sequences of calls, beside NaN, and what is refused. */
#include "tests/recurrent/tangent_problem.h"
#include "tests/support/invented_cell.h"
#include "tests/support/length.h"

/* ---- differences ---- */

/* point + by · direction, in place. */
static void step_along(const tangent_problem *p, layer_array *point, const layer_array *direction, int count, double by) {
  for (int i = 0; i < count; ++i) {
    for (int64_t k = 0; direction[i].data != NULL && k < tangent_count(p, &point[i]); ++k) {
      ((double *)point[i].data)[k] += by * ((const double *)direction[i].data)[k];
    }
  }
}

/* What differences are taken of: the states h and c, and all gradients, one behind the other. */
typedef struct {
  double *values[2 + TANGENT_INPUTS];
} outputs;

static outputs outputs_at(const tangent_problem *p, const tangent_set *point, const tangent_seed *seed) {
  outputs o = {0};
  tangent_states states = tangent_forward(p, point);
  tangent_set gradients = tangent_gradients(p, point, &states, seed);
  for (int i = 0; i < 2 + TANGENT_INPUTS; ++i) {
    const layer_array *a = i < 2 ? &states.a[i] : &gradients.a[i - 2];
    if (a->data != NULL) {
      o.values[i] = malloc((size_t)a->size);
      assert_non_null(o.values[i]);
      memcpy(o.values[i], a->data, (size_t)a->size);
    }
  }
  tangent_free(p, states.a, 3);
  tangent_free(p, gradients.a, TANGENT_INPUTS);
  return o;
}

/* Richardson's central differences of all outputs: (8 (f(1) - f(-1)) - (f(2) - f(-2))) / 12 of steps of size `by`; the error is of
 * order by⁴. Point and seed move, and come back only within rounding. */
static outputs differences(const tangent_problem *p, tangent_set *point, const tangent_set *direction, tangent_seed *seed,
                           const tangent_seed *seed_direction, double by) {
  static const double places[] = {-2, -1, 1, 2}, weights[] = {1, -8, 8, -1};
  outputs sum = {0};
  double at = 0;
  for (int k = 0; k < 4; ++k) {
    step_along(p, point->a, direction->a, TANGENT_INPUTS, (places[k] - at) * by);
    step_along(p, seed->a, seed_direction->a, TANGENT_SEEDS, (places[k] - at) * by);
    at = places[k];
    outputs o = outputs_at(p, point, seed);
    for (int i = 0; i < 2 + TANGENT_INPUTS; ++i) {
      const int64_t count = i < 2 ? (p->config.seq_len + 1) * p->counts[1] : p->counts[i - 2];
      sum.values[i] = sum.values[i] == NULL && o.values[i] != NULL ? calloc((size_t)count, sizeof(double)) : sum.values[i];
      for (int64_t j = 0; o.values[i] != NULL && j < count; ++j) {
        sum.values[i][j] += weights[k] * o.values[i][j] / (12 * by);
      }
      free(o.values[i]);
    }
  }
  step_along(p, point->a, direction->a, TANGENT_INPUTS, -at * by);
  step_along(p, seed->a, seed_direction->a, TANGENT_SEEDS, -at * by);
  return sum;
}

static void compare_differences(tangent_problem *p, layer_dice *d) {
  const bool kinks = p->config.nonlinearity == BPPSA_NONLINEARITY_RELU;
  tangent_set point = tangent_draw(p, d, 5, true), direction = tangent_draw(p, d, 4, false);
  tangent_seed seed = tangent_draw_seed(p, d, 3), seed_direction = tangent_draw_seed(p, d, 3);
  for (int i = 0; i < TANGENT_INPUTS; ++i) { /* what is not there cannot move */
    if (point.a[i].data == NULL) {
      layer_close(p->device, &direction.a[i]);
    }
  }
  for (int i = 0; i < TANGENT_SEEDS; ++i) {
    if (seed.a[i].data == NULL) {
      layer_close(p->device, &seed_direction.a[i]);
    }
  }
  tangent_states states = tangent_forward(p, &point), tangents = tangent_run(p, &point, &states, &direction);
  tangent_set found = tangent_run_back(p, &point, &states, &direction, &tangents, &seed, &seed_direction);
  outputs expected = differences(p, &point, &direction, &seed, &seed_direction, kinks ? 1e-7 : 3e-4);
  for (int i = 0; i < 2 + TANGENT_INPUTS; ++i) {
    const layer_array *a = i < 2 ? &tangents.a[i] : &found.a[i - 2];
    if (a->data != NULL) {
      tangent_expect(p, i < 2 ? "tangent of the states" : tangent_names[i - 2], tangent_error(p, a, expected.values[i], 1),
                     kinks ? 1e-5 : 1e-8);
    }
    free(expected.values[i]);
  }
  tangent_free(p, point.a, TANGENT_INPUTS);
  tangent_free(p, direction.a, TANGENT_INPUTS);
  tangent_free(p, found.a, TANGENT_INPUTS);
  tangent_free(p, seed.a, TANGENT_SEEDS);
  tangent_free(p, seed_direction.a, TANGENT_SEEDS);
  tangent_free(p, states.a, 3);
  tangent_free(p, tangents.a, 3);
}

static void test_differences(void **state) {
  (void)state;
  const uint64_t cases = at_full_length() ? 1500 : 300;
  for (uint64_t seed = 0; seed < cases; ++seed) {
    layer_dice d = {seed};
    const bppsa_cell *cell = layer_cells[seed % LAYER_CELLS];
    const bppsa_recurrent_config c = tangent_draw_config(&d, cell, BPPSA_F64);
    tangent_problem p = tangent_open(&c, cell, layer_roll(&d, 1, 3));
    tangent_draw_spans(&p, &d);
    compare_differences(&p, &d);
    tangent_close(&p);
  }
}

/* ---- identities ---- */

/* <seed, tangents of the states>, and the sum of the terms' sizes. */
static double seed_product(const tangent_problem *p, const tangent_seed *seed, const tangent_states *tangents, double *size) {
  const int64_t row = p->counts[1];
  double sum = 0;
  for (int half = 0; half < 2; ++half) {
    sum += tangent_product(p, &seed->a[half], &tangents->a[half], row, size);
    for (int64_t i = 0; i < tangent_count(p, &seed->a[2 + half]); ++i) {
      const int64_t last = p->lengths != NULL ? p->lengths[i / p->config.hidden] : p->config.seq_len;
      const double term = tangent_get(p, &seed->a[2 + half], i) * tangent_get(p, &tangents->a[half], last * row + i);
      sum += term;
      *size += fabs(term);
    }
  }
  return sum;
}

static double set_product(const tangent_problem *p, const tangent_set *a, const tangent_set *b, double *size) {
  double sum = 0;
  for (int i = 0; i < TANGENT_INPUTS; ++i) {
    sum += tangent_product(p, &a->a[i], &b->a[i], 0, size);
  }
  return sum;
}

/* Seeds behind the samples' ends are read by nobody. */
static void clear_seed(const tangent_problem *p, tangent_seed *seed) {
  for (int64_t i = 0; p->lengths != NULL && i < 2 * p->seed_counts[0]; ++i) {
    const int64_t k = i % p->seed_counts[0], b = k / p->config.hidden % p->config.batch;
    double *values = seed->a[i / p->seed_counts[0]].data;
    if (values != NULL && k / p->counts[1] >= p->lengths[b]) {
      values[k] = 0;
    }
  }
}

static void compare_identities(tangent_problem *p, layer_dice *d) {
  tangent_set point = tangent_draw(p, d, 5, true), v = tangent_draw(p, d, 5, false), w = tangent_draw(p, d, 5, false);
  tangent_seed u = tangent_draw_seed(p, d, 3);
  clear_seed(p, &u);
  tangent_states states = tangent_forward(p, &point), of_v = tangent_run(p, &point, &states, &v),
                 of_w = tangent_run(p, &point, &states, &w);
  tangent_set gradient = tangent_gradients(p, &point, &states, &u);
  tangent_set h_v = tangent_run_back(p, &point, &states, &v, &of_v, &u, NULL),
              h_w = tangent_run_back(p, &point, &states, &w, &of_w, &u, NULL);
  double size = 1e-30;
  const double forward = seed_product(p, &u, &of_v, &size), backward = set_product(p, &gradient, &v, &size);
  tangent_expect(p, "<u, J v> - <Jᵀ u, v>", fabs(forward - backward) / size, 1e-13);
  size = 1e-30;
  const double one = set_product(p, &h_v, &w, &size), other = set_product(p, &h_w, &v, &size);
  tangent_expect(p, "<w, H v> - <v, H w>", fabs(one - other) / size, 1e-12);
  tangent_free(p, point.a, TANGENT_INPUTS);
  tangent_free(p, v.a, TANGENT_INPUTS);
  tangent_free(p, w.a, TANGENT_INPUTS);
  tangent_free(p, gradient.a, TANGENT_INPUTS);
  tangent_free(p, h_v.a, TANGENT_INPUTS);
  tangent_free(p, h_w.a, TANGENT_INPUTS);
  tangent_free(p, u.a, TANGENT_SEEDS);
  tangent_free(p, states.a, 3);
  tangent_free(p, of_v.a, 3);
  tangent_free(p, of_w.a, 3);
}

static void test_identities(void **state) {
  (void)state;
  const uint64_t cases = at_full_length() ? 1500 : 300;
  for (uint64_t seed = 0; seed < cases; ++seed) {
    layer_dice d = {1000000 + seed};
    const bppsa_cell *cell = layer_cells[seed % LAYER_CELLS];
    bppsa_recurrent_config c = tangent_draw_config(&d, cell, BPPSA_F64);
    c.input_gradients = true;
    tangent_problem p = tangent_open(&c, cell, layer_roll(&d, 1, 3));
    tangent_draw_spans(&p, &d);
    compare_identities(&p, &d);
    tangent_close(&p);
  }
}

/* ---- the same layer on other threads, in f32, again ---- */

/* A problem's passes: the tangents of both halves, then the derivatives. */
typedef struct {
  tangent_states tangents;
  tangent_set derivatives;
} results;

static results compute(const tangent_problem *p, const tangent_set *point, const tangent_set *direction, const tangent_seed *seed,
                       const tangent_seed *dots) {
  tangent_states states = tangent_forward(p, point);
  results r = {.tangents = tangent_run(p, point, &states, direction)};
  r.derivatives = tangent_run_back(p, point, &states, direction, &r.tangents, seed, dots);
  tangent_free(p, states.a, 3);
  return r;
}

static void free_results(const tangent_problem *p, results *r) {
  tangent_free(p, r->tangents.a, 3);
  tangent_free(p, r->derivatives.a, TANGENT_INPUTS);
}

static void expect_same(const tangent_problem *p, const results *a, const results *b) {
  for (int i = 0; i < 2 + TANGENT_INPUTS; ++i) {
    const layer_array *one = i < 2 ? &a->tangents.a[i] : &a->derivatives.a[i - 2];
    const layer_array *other = i < 2 ? &b->tangents.a[i] : &b->derivatives.a[i - 2];
    if (one->data != NULL && memcmp(one->data, other->data, (size_t)one->size) != 0) {
      tangent_tell(&p->config, p->cell, i < 2 ? "other bits of the states' tangents" : tangent_names[i - 2], 0);
      fail_msg("array %d has other bits", i);
    }
  }
}

/* A layer whose two walks back go run by run on one thread, and one behind the other on several. */
static void make_long(layer_dice *d, const bppsa_cell *cell, bppsa_recurrent_config *c) {
  c->method = tangent_methods[0];
  c->speculation.chunks = 0;
  c->lengths = c->reset_state = false;
  c->batch = 1 << layer_roll(d, 1, 3);
  c->seq_len = 64 * layer_roll(d, 2, 3) / c->batch; /* a part of the weight gradients has 64 rows, and a run about 50 */
  c->hidden = cell->gates > 1 ? layer_roll(d, 22, 26) : layer_roll(d, 64, 68);
}

/* The same with 1 to 4 threads, with another point's passes in between, with the same layer. */
static void test_bits(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const bool is_long = seed % 4 == 3;
    layer_dice d = {2000000 + seed};
    const bppsa_cell *cell = layer_cells[seed % LAYER_CELLS];
    bppsa_recurrent_config c = tangent_draw_config(&d, cell, seed / LAYER_CELLS % 2 ? BPPSA_F32 : BPPSA_F64);
    c.batch = layer_roll(&d, 1, 40); /* several blocks of samples */
    c.hidden = seed % 20 == 0 ? 131 : c.hidden;
    if (is_long) {
      make_long(&d, cell, &c);
    }
    tangent_problem p = tangent_open(&c, cell, 1);
    tangent_draw_spans(&p, &d);
    tangent_set points[2], directions[2];
    tangent_seed seeds[2], dots[2];
    results first[2];
    for (int k = 0; k < 2; ++k) {
      points[k] = tangent_draw(&p, &d, 5, true);
      directions[k] = tangent_draw(&p, &d, 5, false);
      seeds[k] = tangent_draw_seed(&p, &d, 3);
      dots[k] = tangent_draw_seed(&p, &d, 3);
      first[k] = compute(&p, &points[k], &directions[k], &seeds[k], &dots[k]);
    }
    for (int64_t threads = 1; threads <= 4; ++threads) {
      tangent_problem other = tangent_open(&c, cell, threads);
      assert_true(!is_long || threads == 1 || p.backward != other.backward); /* the two ways have other arrays */
      other.lengths = p.lengths;
      other.resets = p.resets;
      for (int call = 0; call < 3; ++call) {
        const int k = call % 2;
        results again = compute(&other, &points[k], &directions[k], &seeds[k], &dots[k]);
        expect_same(&p, &again, &first[k]);
        free_results(&p, &again);
      }
      other.lengths = NULL;
      other.resets = NULL;
      tangent_close(&other);
    }
    for (int k = 0; k < 2; ++k) {
      free_results(&p, &first[k]);
      tangent_free(&p, points[k].a, TANGENT_INPUTS);
      tangent_free(&p, directions[k].a, TANGENT_INPUTS);
      tangent_free(&p, seeds[k].a, TANGENT_SEEDS);
      tangent_free(&p, dots[k].a, TANGENT_SEEDS);
    }
    tangent_close(&p);
  }
}

static layer_array rounded_array(const tangent_problem *to, const layer_array *from) {
  layer_array a = {0};
  if (from->data != NULL) {
    a = layer_open(to->device, from->size / 2, false);
    for (int64_t i = 0; i < from->size / 8; ++i) {
      ((float *)a.data)[i] = (float)((const double *)from->data)[i];
      ((double *)from->data)[i] = (double)((float *)a.data)[i];
    }
  }
  return a;
}

/* f32 beside f64 from the same numbers. */
static void test_f32(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    layer_dice d = {3000000 + seed};
    const bppsa_cell *cell = layer_cells[seed % LAYER_CELLS];
    bppsa_recurrent_config c = tangent_draw_config(&d, cell, BPPSA_F64);
    c.nonlinearity = BPPSA_NONLINEARITY_TANH; /* rounding may cross relu's kink */
    tangent_problem exact = tangent_open(&c, cell, 2);
    tangent_draw_spans(&exact, &d);
    c.dtype = BPPSA_F32;
    tangent_problem p = tangent_open(&c, cell, 2);
    tangent_set sets[2] = {tangent_draw(&exact, &d, 5, true), tangent_draw(&exact, &d, 5, false)}, rounds[2];
    tangent_seed seeds[2] = {tangent_draw_seed(&exact, &d, 3), tangent_draw_seed(&exact, &d, 3)}, round_seeds[2];
    for (int k = 0; k < 2; ++k) {
      for (int i = 0; i < TANGENT_INPUTS; ++i) {
        rounds[k].a[i] = rounded_array(&p, &sets[k].a[i]);
      }
      for (int i = 0; i < TANGENT_SEEDS; ++i) {
        round_seeds[k].a[i] = rounded_array(&p, &seeds[k].a[i]);
      }
    }
    p.lengths = exact.lengths;
    p.resets = exact.resets;
    results expected = compute(&exact, &sets[0], &sets[1], &seeds[0], &seeds[1]),
            found = compute(&p, &rounds[0], &rounds[1], &round_seeds[0], &round_seeds[1]);
    for (int i = 0; i < 2 + TANGENT_INPUTS; ++i) {
      const layer_array *a = i < 2 ? &found.tangents.a[i] : &found.derivatives.a[i - 2];
      const layer_array *b = i < 2 ? &expected.tangents.a[i] : &expected.derivatives.a[i - 2];
      if (a->data != NULL) {
        tangent_expect(&p, i < 2 ? "f32 tangent of the states" : tangent_names[i - 2], tangent_error(&p, a, b->data, 1), 2e-5);
      }
    }
    free_results(&p, &found);
    free_results(&exact, &expected);
    for (int k = 0; k < 2; ++k) {
      tangent_free(&exact, sets[k].a, TANGENT_INPUTS);
      tangent_free(&p, rounds[k].a, TANGENT_INPUTS);
      tangent_free(&exact, seeds[k].a, TANGENT_SEEDS);
      tangent_free(&p, round_seeds[k].a, TANGENT_SEEDS);
    }
    p.lengths = NULL;
    p.resets = NULL;
    tangent_close(&p);
    tangent_close(&exact);
  }
}

/* ---- NaN ---- */

/* Spoils the rows [T][B][width] of a sample from a step on. */
static void spoil(const tangent_problem *p, layer_array *a, int64_t width, int64_t sample, int64_t first) {
  for (int64_t i = first * p->config.batch * width; i < tangent_count(p, a); ++i) {
    if (i / width % p->config.batch == sample) {
      ((double *)a->data)[i] = NAN;
    }
  }
}

/* Are the rows [..][B][width] of all samples but one the same? */
static bool others_agree(const tangent_problem *p, const layer_array *a, const layer_array *b, int64_t width, int64_t sample) {
  for (int64_t i = 0; i < tangent_count(p, a); ++i) {
    if (i / width % p->config.batch != sample && ((double *)a->data)[i] != ((double *)b->data)[i]) {
      return false;
    }
  }
  return true;
}

/* NaN in one sample's inputs and direction harms no other sample; behind a sample's end nothing is read. */
static void test_nan(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    layer_dice d = {4000000 + seed};
    const bppsa_cell *cell = layer_cells[seed % LAYER_CELLS];
    bppsa_recurrent_config c = tangent_draw_config(&d, cell, BPPSA_F64);
    const bool behind = seed / LAYER_CELLS % 2;
    c.batch = 3;
    c.lengths = behind;
    c.input_gradients = true;
    c.method.backward = BPPSA_BACKWARD_BP;
    tangent_problem p = tangent_open(&c, cell, 2);
    tangent_draw_spans(&p, &d);
    tangent_set point = tangent_draw(&p, &d, 0, true), direction = tangent_draw(&p, &d, 0, false);
    tangent_seed u = tangent_draw_seed(&p, &d, 0), dots = tangent_draw_seed(&p, &d, 0);
    results clean = compute(&p, &point, &direction, &u, &dots);
    spoil(&p, &point.a[0], c.input, 1, behind ? p.lengths[1] : 0);
    spoil(&p, &direction.a[0], c.input, 1, behind ? p.lengths[1] : 0);
    results spoiled = compute(&p, &point, &direction, &u, &dots);
    if (behind) {
      expect_same(&p, &spoiled, &clean);
    }
    assert_true(behind || isnan(((double *)spoiled.tangents.a[0].data)[4 * c.hidden])); /* of sample 1 in row 1 */
    for (int half = 0; half < 2; ++half) {
      assert_true(others_agree(&p, &spoiled.tangents.a[half], &clean.tangents.a[half], c.hidden, 1));
    }
    for (int i = 0; i < 3; ++i) {
      assert_true(others_agree(&p, &spoiled.derivatives.a[i], &clean.derivatives.a[i], i == 0 ? c.input : c.hidden, 1));
    }
    free_results(&p, &clean);
    free_results(&p, &spoiled);
    tangent_free(&p, point.a, TANGENT_INPUTS);
    tangent_free(&p, direction.a, TANGENT_INPUTS);
    tangent_free(&p, u.a, TANGENT_SEEDS);
    tangent_free(&p, dots.a, TANGENT_SEEDS);
    tangent_close(&p);
  }
}

/* ---- what is refused ---- */

typedef struct {
  tangent_problem p;
  tangent_set point, direction, room;
  tangent_states states, tangents, twice;
  tangent_seed seed;
  layer_array scratch;
} whole_problem;

static whole_problem whole_open(const bppsa_recurrent_config *c, const bppsa_cell *cell) {
  layer_dice d = {7};
  whole_problem w = {.p = tangent_open(c, cell, 1)};
  w.point = tangent_draw(&w.p, &d, 0, true);
  w.direction = tangent_draw(&w.p, &d, 0, false);
  w.seed = tangent_draw_seed(&w.p, &d, 0);
  w.room = tangent_room(&w.p);
  w.states = tangent_forward(&w.p, &w.point);
  w.tangents = tangent_states_open(&w.p, false);
  w.twice = tangent_states_open(&w.p, false);
  w.scratch = layer_open(w.p.device, w.p.backward + w.p.tangent + w.p.twice, true);
  return w;
}

static void whole_close(whole_problem *w) {
  tangent_free(&w->p, w->point.a, TANGENT_INPUTS);
  tangent_free(&w->p, w->direction.a, TANGENT_INPUTS);
  tangent_free(&w->p, w->room.a, TANGENT_INPUTS);
  tangent_free(&w->p, w->seed.a, TANGENT_SEEDS);
  tangent_free(&w->p, w->states.a, 3);
  tangent_free(&w->p, w->tangents.a, 3);
  tangent_free(&w->p, w->twice.a, 3);
  layer_close(w->p.device, &w->scratch);
  tangent_close(&w->p);
}

static bppsa_status try_tangent(const whole_problem *w, const bppsa_layer_tangents *along, void *h, void *c) {
  const bppsa_layer_inputs in = tangent_inputs_of(&w->p, &w->point);
  const bppsa_layer_tape tape = tangent_tape_of(&w->states);
  return bppsa_layer_tangent(w->p.layer, w->p.device, &in, &tape, along, h, c, w->scratch.data);
}

static bppsa_status try_backward(const whole_problem *w, const bppsa_layer_seed *seed, const bppsa_layer_seed *dots,
                                 const bppsa_layer_gradients *to) {
  const bppsa_layer_inputs in = tangent_inputs_of(&w->p, &w->point);
  const bppsa_layer_tape tape = tangent_tape_of(&w->states);
  const bppsa_layer_tangents along = tangent_direction_of(&w->direction);
  return bppsa_layer_tangent_backward(w->p.layer, w->p.device, &in, &tape, &along, w->tangents.a[0].data, w->tangents.a[1].data,
                                      seed, dots, to, w->scratch.data);
}

static void test_refused(void **state) {
  (void)state;
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = c.batch = c.input = c.hidden = 3;
  c.method.backward = BPPSA_BACKWARD_BP;
  c.no_bias = true;
  whole_problem w = whole_open(&c, &bppsa_gru_cell);
  void *h = w.tangents.a[0].data;
  const bppsa_layer_seed none = {0}, of_c = {.c = h};
  const bppsa_layer_tangents wrong[] = {{.c0 = h}, {.b_ih = h}, {.b_hh = h}, {.reset_state = h}};
  const char *const names[] = {"tangent of c0 is an array", "tangent of b_ih is an array", "tangent of b_hh is an array",
                               "tangent of reset_state is an array"};
  for (int i = 0; i < 4; ++i) {
    assert_error(try_tangent(&w, &wrong[i], h, NULL), BPPSA_ERR_ARGUMENT, names[i]);
  }
  const bppsa_layer_tangents right = tangent_direction_of(&w.direction);
  assert_error(try_tangent(&w, &right, NULL, NULL), BPPSA_ERR_ARGUMENT, "h is NULL");
  assert_error(try_tangent(&w, &right, h, h), BPPSA_ERR_ARGUMENT, "c is an array");
  assert_int_equal(try_tangent(&w, &right, h, NULL), BPPSA_OK);
  const bppsa_layer_inputs in = tangent_inputs_of(&w.p, &w.point);
  const bppsa_layer_tape tape = tangent_tape_of(&w.states);
  const bppsa_layer_direction good = {.h = h}, without = {.h = NULL}, of_bias = {.tangents = {.b_hh = h}, .h = h};
  void *to = w.twice.a[0].data, *room = w.scratch.data;
  const struct {
    const bppsa_layer_direction *one, *other;
    void *h, *c;
    const char *sentence;
  } calls[] = {{&without, &good, to, NULL, "h is NULL"},
               {&good, &without, to, NULL, "h is NULL"},
               {&good, &good, NULL, NULL, "h is NULL"},
               {&good, &good, to, to, "c is an array"},
               {&of_bias, &good, to, NULL, "tangent of b_hh is an array"},
               {&good, &of_bias, to, NULL, "tangent of b_hh is an array"}};
  for (int i = 0; i < 6; ++i) {
    assert_error(
        bppsa_layer_second_tangent(w.p.layer, w.p.device, &in, &tape, calls[i].one, calls[i].other, calls[i].h, calls[i].c, room),
        BPPSA_ERR_ARGUMENT, calls[i].sentence);
  }
  const bppsa_layer_gradients to_x = {.x = w.point.a[0].data}, nothing = {0};
  assert_error(try_backward(&w, &none, &none, &to_x), BPPSA_ERR_ARGUMENT, "gradient of x is an array");
  assert_error(try_backward(&w, &of_c, &none, &nothing), BPPSA_ERR_ARGUMENT, "seed c is an array");
  assert_error(try_backward(&w, &none, &of_c, &nothing), BPPSA_ERR_ARGUMENT, "seed c is an array");
  assert_int_equal(try_backward(&w, &none, &none, &nothing), BPPSA_OK);
  whole_close(&w);
  c.dtype = BPPSA_F64;
  w = whole_open(&c, &two_tanh);
  const bppsa_layer_tangents zero = {0};
  assert_error(try_tangent(&w, &zero, w.tangents.a[0].data, NULL), BPPSA_ERR_UNSUPPORTED,
               "the cell has no derivatives along a direction in f64");
  assert_error(try_backward(&w, &none, &none, &nothing), BPPSA_ERR_UNSUPPORTED, "expected entries 'tangent'");
  whole_close(&w);
}

static bppsa_status back_of(void *problem) {
  const whole_problem *w = problem;
  const bppsa_layer_seed seed = tangent_seed_of(&w->seed), none = {0};
  const bppsa_layer_gradients to = tangent_gradients_of(&w->room);
  return try_backward(w, &seed, &none, &to);
}

static bppsa_status tangent_of(void *problem) {
  const whole_problem *w = problem;
  const bppsa_layer_tangents along = tangent_direction_of(&w->direction);
  return try_tangent(w, &along, w->tangents.a[0].data, w->tangents.a[1].data);
}

static bppsa_status twice_of(void *problem) {
  const whole_problem *w = problem;
  const bppsa_layer_inputs in = tangent_inputs_of(&w->p, &w->point);
  const bppsa_layer_tape tape = tangent_tape_of(&w->states);
  const bppsa_layer_direction along = tangent_with(&w->direction, &w->tangents);
  return bppsa_layer_second_tangent(w->p.layer, w->p.device, &in, &tape, &along, &along, w->twice.a[0].data, w->twice.a[1].data,
                                    w->scratch.data);
}

/* BP allocates nothing; a scan's executor does, and may fail. */
static void test_memory(void **state) {
  (void)state;
  for (int k = 0; k < TANGENT_METHODS; ++k) {
    bppsa_recurrent_config c = bppsa_recurrent_config_default();
    c.seq_len = 9;
    c.batch = c.input = c.hidden = 3;
    c.method = tangent_methods[k];
    whole_problem w = whole_open(&c, &bppsa_lstm_cell);
    const bppsa_layer_tangents along = tangent_direction_of(&w.direction);
    assert_int_equal(try_tangent(&w, &along, w.tangents.a[0].data, w.tangents.a[1].data), BPPSA_OK);
    const bool scans = k >= 2 && k < TANGENT_METHODS - 1;
    bppsa_status (*const passes[])(void *) = {back_of, tangent_of, twice_of};
    for (int pass = 0; pass < 3; ++pass) {
      assert_true((walk_allocations(passes[pass], &w) > 0) == scans);
    }
    whole_close(&w);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences), cmocka_unit_test(test_identities),
                                     cmocka_unit_test(test_bits),        cmocka_unit_test(test_f32),
                                     cmocka_unit_test(test_nan),         cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* dump_tangents FILE COUNT: writes so many random layers in float64 and what stateless passes compute along directions, for
 * tests/recurrent/tangent_autograd.py. A case is nine int64 (cell, T, B, I, H, relu, resets, reset state, lengths), the resets
 * [T][B] and lengths [B] where the layer has them, as float64, and arrays: their count of numbers as int64, then the numbers. */
#include <stdio.h>

#include "tests/recurrent/tangent_problem.h"

static void put(FILE *file, const void *data, int64_t count) {
  assert_int_equal(fwrite(data, 8, (size_t)count, file), count);
}

static void put_arrays(FILE *file, const tangent_problem *p, const layer_array *arrays, int count) {
  for (int i = 0; i < count; ++i) {
    const int64_t numbers = tangent_count(p, &arrays[i]);
    put(file, &numbers, 1);
    put(file, arrays[i].data != NULL ? arrays[i].data : (const void *)&numbers, numbers);
  }
}

static void put_spans(FILE *file, const tangent_problem *p) {
  const bppsa_recurrent_config *c = &p->config;
  for (int64_t i = 0; c->resets && i < c->seq_len * c->batch; ++i) {
    const double reset = p->resets[i];
    put(file, &reset, 1);
  }
  for (int64_t i = 0; c->lengths && i < c->batch; ++i) {
    const double length = (double)p->lengths[i];
    put(file, &length, 1);
  }
}

static void dump(FILE *file, int64_t number) {
  layer_dice d = {77000000u + (uint64_t)number};
  const int64_t which = number % LAYER_CELLS;
  bppsa_recurrent_config c = tangent_draw_config(&d, layer_cells[which], BPPSA_F64);
  c.input_gradients = true;
  c.no_bias = false;
  tangent_problem p = tangent_open(&c, layer_cells[which], layer_roll(&d, 1, 3));
  tangent_draw_spans(&p, &d);
  const int64_t relu = c.nonlinearity == BPPSA_NONLINEARITY_RELU;
  const int64_t head[] = {which, c.seq_len, c.batch, c.input, c.hidden, relu, c.resets, c.reset_state, c.lengths};
  tangent_set point = tangent_draw(&p, &d, 0, true), v = tangent_draw(&p, &d, 0, false), w = tangent_draw(&p, &d, 0, false);
  tangent_seed seed = tangent_draw_seed(&p, &d, 0), dots = tangent_draw_seed(&p, &d, 0);
  tangent_states states = tangent_forward(&p, &point), of_v = tangent_run(&p, &point, &states, &v),
                 of_w = tangent_run(&p, &point, &states, &w);
  const bppsa_layer_direction one = tangent_with(&v, &of_v), other = tangent_with(&w, &of_w);
  tangent_states twice = tangent_run_twice(&p, &point, &states, &one, &other);
  tangent_set gradients = tangent_gradients(&p, &point, &states, &seed),
              derivatives = tangent_run_back(&p, &point, &states, &v, &of_v, &seed, &dots);
  put(file, head, sizeof head / sizeof *head);
  put_spans(file, &p);
  tangent_set *const sets[] = {&point, &v, &w, &gradients, &derivatives};
  tangent_seed *const seeds[] = {&seed, &dots};
  tangent_states *const rows[] = {&states, &of_v, &twice, &of_w};
  for (int i = 0; i < 5; ++i) {
    put_arrays(file, &p, sets[i]->a, TANGENT_INPUTS);
    tangent_free(&p, sets[i]->a, TANGENT_INPUTS);
  }
  for (int i = 0; i < 2; ++i) {
    put_arrays(file, &p, seeds[i]->a, TANGENT_SEEDS);
    tangent_free(&p, seeds[i]->a, TANGENT_SEEDS);
  }
  for (int i = 0; i < 4; ++i) {
    put_arrays(file, &p, rows[i]->a, i < 3 ? 2 : 0);
    tangent_free(&p, rows[i]->a, 3);
  }
  tangent_close(&p);
}

int main(int argc, char **argv) {
  FILE *file = argc == 3 ? fopen(argv[1], "wb") : NULL;
  if (file == NULL) {
    fprintf(stderr, "dump_tangents: '%s', expected a file that can be written, and a count\n", argc > 1 ? argv[1] : "");
    return 2;
  }
  for (int64_t number = 0; number < strtoll(argv[2], NULL, 10); ++number) {
    dump(file, number);
  }
  return fclose(file) == 0 ? 0 : 1;
}

/* Measures speculative BP beside BP on one thread, prints what the cost model predicts (recurrent/backward_cost.c), and fits its
 * constants anew:
 *
 *     backward_costs [REPEATS [HIDDEN]]      12 and all sizes; HIDDEN: this size alone, without a fit
 *
 * A time is the least of all repeats, in seconds of the processor. Columns: cell, type, H, B, C; µs of BP and of chunks, measured;
 * their ratio, measured and predicted. The exit status is 1 where a pass did not speculate. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "tests/recurrent/passes.h"

enum { GROUP = 16, CONSTANTS = 9, KINDS = 4, MOST_ROWS = 2000, SWEEPS = 4000 };

static const char *const names[CONSTANTS] = {"step", "read", "row", "unit", "product", "lane", "gathered", "panel", "panel_row"};
static const double cache = 8192; /* as the model has it */

/* A measured time, and what each constant is multiplied with, both over the time. */
typedef struct {
  double features[CONSTANTS];
  bool beyond; /* the cache */
} row;

static row rows[MOST_ROWS];
static int64_t row_count;

/* steps: of groups, one after the other; walked: of all rows; lanes: rows are gathered, otherwise they are BP's; reads: as the
 * model has it. */
static void add_row(const bppsa_forward_shape *s, double steps, double walked, bool lanes, double reads, double seconds) {
  const double size = s->dtype == BPPSA_F64 ? 2 : 1, u = size * (double)(s->gates * s->hidden), w = u * (double)s->hidden;
  const bool beyond = w > cache, panels = beyond && !lanes;
  const double all[CONSTANTS] = {steps,
                                 panels ? 0 : reads * steps * w,
                                 walked,
                                 walked * u,
                                 panels ? 0 : walked * w,
                                 lanes ? walked : 0,
                                 lanes ? walked * u : 0,
                                 panels ? steps * w : 0,
                                 panels ? walked * w : 0};
  for (int k = 0; k < CONSTANTS && row_count < MOST_ROWS; ++k) {
    rows[row_count].features[k] = all[k] / (1e9 * seconds);
    rows[row_count].beyond = beyond;
  }
  row_count += row_count < MOST_ROWS;
}

/* Least squares of relative errors, of constants of 0 or more: one constant after the other, again and again; of all rows within
 * the cache, or beyond it. */
static void fit(bool beyond) {
  double constants[CONSTANTS] = {0}, *left = bppsa_calloc(row_count, sizeof *left), worst = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < row_count; ++i) {
    left[i] = rows[i].beyond == beyond;
    count += rows[i].beyond == beyond;
  }
  for (int sweep = 0; sweep < SWEEPS; ++sweep) {
    for (int k = 0; k < CONSTANTS; ++k) {
      double product = 0, square = 1e-300;
      for (int64_t i = 0; i < row_count; ++i) {
        if (rows[i].beyond != beyond) {
          continue;
        }
        product += left[i] * rows[i].features[k];
        square += rows[i].features[k] * rows[i].features[k];
      }
      const double next = fmax(0, constants[k] + product / square), change = next - constants[k];
      constants[k] = next;
      for (int64_t i = 0; i < row_count; ++i) {
        left[i] -= (rows[i].beyond == beyond) * change * rows[i].features[k];
      }
    }
  }
  printf("\nfitted to %lld times %s a cache of %g:", (long long)count, beyond ? "beyond" : "within", cache);
  for (int k = 0; k < CONSTANTS; ++k) {
    printf(" %s %.3g", names[k], constants[k]);
  }
  double sum = 0;
  for (int64_t i = 0; i < row_count; ++i) {
    sum += left[i] * left[i];
    worst = fmax(worst, fabs(left[i]));
  }
  printf("\nerrors of a time: %.0f %% in the root of the mean square, %.0f %% at most\n", 100 * sqrt(sum / (double)count),
         100 * worst);
  bppsa_free(left);
}

static double processor_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns whether all passes of chunks speculated. */
static bool measure(const bppsa_cell *cell, const bppsa_recurrent_config *c, int repeats) {
  const int64_t chunks[KINDS] = {1, 8, GROUP, c->seq_len / 100};
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(c, cell, BPPSA_CPU, 0);
  bppsa_recurrent_config of[KINDS];
  double least[KINDS];
  run r[KINDS];
  bool ok = true;
  for (int k = 0; k < KINDS; ++k) {
    of[k] = *c;
    of[k].method.backward = k == 0 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SPECULATIVE;
    of[k].speculation.chunks = chunks[k];
    r[k] = open_run(cell, &of[k], c->batch, 1);
    least[k] = INFINITY;
    assert_int_equal(bppsa_recurrent_init(r[k].model, BPPSA_INIT_DEFAULT, 1), BPPSA_OK);
    assert_int_equal(bppsa_model_forward(r[k].model, &r[k].x, NULL, NULL, &r[k].logits), BPPSA_OK);
  }
  for (int i = 0; i < repeats; ++i) {
    for (int k = 0; k < KINDS; ++k) {
      const double start = processor_seconds();
      assert_int_equal(r[k].model->ops->backward(r[k].model, &r[k].seed), BPPSA_OK);
      least[k] = fmin(least[k], processor_seconds() - start);
    }
  }
  add_row(&shape, (double)c->seq_len, (double)(c->seq_len * c->batch), false, c->batch == 2 ? 1.5 : 1, least[0]);
  for (int k = 1; k < KINDS; ++k) {
    const bppsa_backward_plan *plan = bppsa_backward_plan_of(r[k].model);
    const bppsa_backward_cost model = bppsa_backward_model(&shape, plan);
    const bppsa_backward_expected expected = bppsa_backward_expect(&shape, plan);
    bppsa_backward_stats stats;
    assert_int_equal(bppsa_backward_stats_of(r[k].model, &stats), BPPSA_OK);
    ok = ok && stats.speculated && !stats.given_up;
    printf("%-5s %s %4lld %2lld %4lld %10.1f %10.1f %6.2f %6.2f\n", cell->name, bppsa_dtype_name(c->dtype), (long long)c->hidden,
           (long long)c->batch, (long long)chunks[k], 1e6 * least[0], 1e6 * least[k], least[k] / least[0],
           bppsa_backward_time(&model, expected.path, expected.work));
    const double groups = (double)((chunks[k] * c->batch + GROUP - 1) / GROUP), steps = (double)c->seq_len;
    add_row(&shape, groups * expected.path * steps, expected.work * steps * (double)c->batch, true, 1, least[k]);
  }
  for (int k = 0; k < KINDS; ++k) {
    close_run(&r[k]);
  }
  return ok;
}

int main(int argc, char **argv) {
  static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
  static const int64_t sizes[] = {8, 20, 32, 48, 64, 96, 128, 256};
  const int repeats = argc > 1 ? atoi(argv[1]) : 12;
  const int64_t only = argc > 2 ? atoi(argv[2]) : 0;
  bool ok = repeats > 0;
  for (int i = 0; i < 3 * 2 * (int)(sizeof sizes / sizeof *sizes) * 3; ++i) { /* cell, type, size, batch: the last is fastest */
    const int64_t hidden = sizes[i / 3 % 8];
    bppsa_recurrent_config c = bppsa_recurrent_config_default();
    c.seq_len = hidden > 128 ? 1500 : hidden > 64 ? 3000 : 5000;
    c.hidden = hidden;
    c.batch = 1 << i % 3;
    c.classes = 1;
    c.loss_all = true;
    c.dtype = i / 24 % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    if (only == 0 || hidden == only) {
      ok = measure(cells[i / 48], &c, repeats) && ok;
    }
  }
  if (only == 0) {
    fit(false);
    fit(true);
  }
  return ok ? 0 : 1;
}

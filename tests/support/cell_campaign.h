/* Compares gradients of random configurations of a cell with the float64 reference (cell_problem.h); each prints one JSON line:
 *
 *     campaign_CELL SEED COUNT [MOVES]
 *
 * Configuration k of COUNT depends on SEED + k alone, so `campaign_CELL N 1` shows one again. Exit code 1: a residual of 30 or
 * more that the problem's sensitivity does not explain. One random move estimates that sensitivity; MOVES random moves (1 by
 * default) find more of it. A program includes this after it has defined `cell`, and chooses what computes the gradients:
 * cell_on_threads.h, or ranks (tests/distributed/campaign.c). bench/scripts/gradients.py runs many. */
#ifndef BPPSA_TESTS_SUPPORT_CELL_CAMPAIGN_H
#define BPPSA_TESTS_SUPPORT_CELL_CAMPAIGN_H

#include <stdlib.h>

#include "scan/method.h"
#include "tests/support/cell_sensitivity.h"

enum { LIMIT = 30, SUSPICIOUS = 10, MOST_BATCH = 20 }; /* residuals; from SUSPICIOUS on, the problem's sensitivity is computed */

/* Draws a size; small ones are as likely as large ones. */
static int64_t roll_size(dice *d, int64_t most) {
  const int64_t below = roll(d, 1, most);
  return roll(d, 1, below);
}

static bppsa_gradient_method roll_method(dice *d) {
  static const bppsa_scan_algorithm algorithms[] = {BPPSA_SCAN_AUTO, BPPSA_SCAN_LINEAR, BPPSA_SCAN_BLELLOCH, BPPSA_SCAN_CHUNKED};
  bppsa_gradient_method method = {.backward = (bppsa_backward)roll(d, BPPSA_BACKWARD_BP, BPPSA_BACKWARD_SCAN)};
  method.scan = bppsa_scan_method_of(algorithms[roll(d, 0, 3)]);
  method.scan.up_levels = method.scan.algorithm == BPPSA_SCAN_BLELLOCH ? roll(d, -1, 8) : method.scan.up_levels;
  method.scan.chunks = method.scan.algorithm == BPPSA_SCAN_CHUNKED ? roll(d, 0, 40) : method.scan.chunks;
  return method;
}

static bppsa_recurrent_config roll_config(dice *d) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.input_gradients = true;
  c.dtype = roll(d, 0, 2) == 0 ? BPPSA_F64 : BPPSA_F32;
  c.loss_all = roll(d, 0, 1) != 0;
  c.hidden = roll_size(d, 48);
  c.batch = roll_size(d, MOST_BATCH);
  c.input = roll_size(d, 8);
  c.classes = roll(d, 2, 7);
  c.layers = c.hidden == 1 ? 1 : roll_size(d, 3); /* stacked single units are sums that may cancel (cell_tests.h) */
  const int64_t step = c.batch * c.hidden * (c.hidden + c.input) * c.layers * cell.gates, room = 4000000 / step;
  c.seq_len = roll_size(d, room < 2 ? 2 : room > 1500 ? 1500 : room);
  c.nonlinearity = cell.relu && roll(d, 0, 2) == 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  c.method = roll_method(d);
  return c;
}

/* Draws other properties of sequences: samples of their own lengths, two directions, no biases. */
static void roll_sequences(bppsa_recurrent_config *c, dice *d) {
  c->lengths = roll(d, 0, 2) != 0;
  c->bidirectional = roll(d, 0, 1) != 0;
  c->no_bias = roll(d, 0, 3) == 0;
}

/* How a campaign computes the gradients of a configuration. */
typedef struct {
  const char *key; /* name of what `places` counts: threads or ranks */
  int64_t most;    /* the most places that are drawn */
  bool sequences;  /* call roll_sequences too */
  bool cuts;       /* judge the gradient of x in `places` parts */
  /* Draws what it needs besides the configuration. Returns the largest residual of all gradients, infinite if a number is not
   * finite; name: the gradient that has it. */
  double (*worst)(problem *p, bppsa_recurrent_config *c, int64_t places, dice *d, char name[64]);
} campaign_kind;

static void scale(double *values, int64_t count, double factor, bppsa_dtype dtype) {
  for (int64_t i = 0; i < count; ++i) {
    values[i] *= factor;
  }
  bppsa_free(rounded(dtype, values, count));
}

/* Draws any lengths, or lets all samples end with the sequence. */
static void roll_lengths(problem *p, dice *d) {
  const bool whole = roll(d, 0, 7) == 0;
  int64_t lengths[MOST_BATCH];
  for (int64_t b = 0; b < p->c.batch; ++b) {
    lengths[b] = whole ? p->c.seq_len : roll(d, 1, p->c.seq_len);
  }
  set_lengths(p, lengths);
}

/* Returns whether the gradients are as good as the problem allows. */
static bool run_one(const campaign_kind *kind, uint64_t seed, int64_t moves) {
  dice d = {.seed = seed};
  bppsa_recurrent_config c = roll_config(&d);
  const int64_t places = roll(&d, 1, kind->most);
  if (kind->sequences) {
    roll_sequences(&c, &d);
  }
  /* One relu unit with W_hh = -1 lies exactly on the kink (cell_tests.h). */
  const bool kink = c.hidden == 1 && c.nonlinearity == BPPSA_NONLINEARITY_RELU, orthogonal_hh = roll(&d, 0, 1) != 0 && !kink;
  const double weights = orthogonal_hh ? 1 : ldexp(1, (int)roll(&d, -3, 0)), inputs = ldexp(1, (int)roll(&d, -4, 1));
  problem p = make_problem(&c, orthogonal_hh, 1000 * seed);
  for (int64_t i = 0; i < p.count; ++i) {
    scale(p.w[i], p.sizes[i], weights, c.dtype);
  }
  scale(p.x, c.seq_len * c.batch * c.input, inputs, c.dtype);
  if (c.lengths) {
    roll_lengths(&p, &d);
  }
  reference(&p);
  char method[BPPSA_METHOD_TEXT], name[64] = "";
  const double worst = kind->worst(&p, &c, places, &d, name);
  const double moved = worst < SUSPICIOUS ? 0 : sensitivity(&p, moves, kind->cuts ? places : 1, &d);
  printf(
      "{\"cell\":\"%s\",\"seed\":%llu,\"residual\":%.4g,\"sensitivity\":%.4g,\"tensor\":\"%s\",\"method\":\"%s\",\"seq_len\":%"
      "lld,\"batch\":%lld,"
      "\"hidden\":%lld,\"input\":%lld,\"layers\":%lld,\"classes\":%lld,\"dtype\":\"%s\",\"loss\":\"%s\",\"nonlinearity\":\"%s\","
      "\"orthogonal\":%s,\"weights\":%g,\"inputs\":%g,\"lengths\":%s,\"directions\":%lld,\"bias\":%s,\"%s\":%lld}\n",
      cell.cell->name, (unsigned long long)seed, worst < 1e300 ? worst : 1e300, moved < 1e300 ? moved : 1e300, name,
      bppsa_gradient_method_text(&c.method, method, sizeof method), (long long)c.seq_len, (long long)c.batch, (long long)c.hidden,
      (long long)c.input, (long long)c.layers, (long long)c.classes, bppsa_dtype_name(c.dtype), c.loss_all ? "all" : "last",
      c.nonlinearity == BPPSA_NONLINEARITY_RELU ? "relu" : "tanh", orthogonal_hh ? "true" : "false", weights, inputs,
      c.lengths ? "true" : "false", (long long)directions_of(&c), c.no_bias ? "false" : "true", kind->key, (long long)places);
  free_problem(&p);
  return worst < LIMIT * fmax(1, moved);
}

static int campaign(const campaign_kind *kind, int argc, char **argv) {
  bool good = argc == 3 || argc == 4;
  const int64_t moves = argc == 4 ? strtoll(argv[3], NULL, 10) : 1;
  const uint64_t seed = good ? strtoull(argv[1], NULL, 10) : 0, count = good ? strtoull(argv[2], NULL, 10) : 0;
  if (count == 0 || moves < 1) {
    fprintf(stderr, "%s: expected SEED COUNT [MOVES]\n", argv[0]);
    return 2;
  }
  for (uint64_t k = 0; k < count; ++k) {
    good = run_one(kind, seed + k, moves) && good;
    fflush(stdout);
  }
  return good ? 0 : 1;
}

#endif

/* A search for RNNs whose gradients fool the acceptance of speculative BP: search_backward SEED CHAINS TRIES.
 *
 * States are written to a tape by hand, so that Jacobians are whatever the search wants: 1 - h² of each of SEGMENTS stretches of
 * time, and of each unit; W_hh; what the loss injects in each stretch, from 1 down to nothing at all; chunks and warm-up. A chain
 * begins with one of FAMILIES kinds of networks, the first of them the built one of test_backward.c, and changes something TRIES
 * times; it keeps what makes the error of the weight gradients larger, over that of BP. Errors are those of certificates
 * (recurrent/certify.h); in the end BP's own is the largest of ORDERS orders of the units.
 *
 * Prints a JSON object a chain: how far it came, and what the same network gives without the rule for silent chunks (there a
 * difference is judged beside the later gradients' mean). Exit status 0. */
#include <stdio.h>
#include <stdlib.h>

#include "recurrent/certify.h"
#include "rnn/rnn.h"
#include "tests/recurrent/passes.h"
#include "tests/support/dice.h"

enum { HIDDEN = 12, SEGMENTS = 12, FAMILIES = 5, ORDERS = 8, NOTHING = -60 };

static bool without_rule;
static int64_t steps_now;

/* In the place of the library's. */
bool bppsa_backward_silent(const bppsa_backward_plan *plan, double size, double reach, double deltas) {
  return without_rule ? size <= plan->accept * deltas / (double)steps_now : size * reach * 1000 <= plan->accept * deltas;
}

typedef struct {
  int64_t steps, chunks, warm_up;
  bool all;                  /* the loss reaches every step */
  double w[HIDDEN][HIDDEN];  /* W_hh */
  double slopes[SEGMENTS];   /* 1 - h² in each stretch, */
  double units[HIDDEN];      /* and a factor of each unit */
  double injected[SEGMENTS]; /* log10 of what the loss injects; NOTHING: 0 */
  int64_t order[HIDDEN];     /* of the units */
} network;

typedef struct {
  double error;
  bppsa_backward_stats stats;
} result;

static double uniform_of(dice *d, double least, double most) {
  return least + (most - least) * (double)roll(d, 0, 1 << 24) / (1 << 24);
}

static double normal_of(dice *d) {
  return sqrt(-2 * log(uniform_of(d, 1e-7, 1))) * cos(6.283185307179586 * uniform_of(d, 0, 1));
}

static int64_t segment_of(const network *n, int64_t t) {
  return (t - 1) * SEGMENTS / n->steps;
}

static void write_inputs(const network *n, run *r, bppsa_view *tape) {
  for (int64_t t = 0; t <= n->steps; ++t) {
    for (int64_t j = 0; j < HIDDEN; ++j) {
      const double slope = fmin(n->slopes[t > 0 ? segment_of(n, t) : 0] * n->units[j], .999);
      bppsa_view_set(tape, t * HIDDEN + n->order[j], sqrt(1 - slope) * (j % 2 == 0 ? 1 : -1));
    }
  }
  const int64_t seeds = n->all ? n->steps : 1;
  for (int64_t t = 1; t <= seeds; ++t) {
    const double size = n->injected[n->all ? segment_of(n, t) : SEGMENTS - 1];
    for (int64_t j = 0; j < HIDDEN; ++j) {
      const double number = bppsa_random_double(1, BPPSA_STREAM_TEST, (uint64_t)(t * HIDDEN + j)) - .5;
      bppsa_view_set(&r->seed, (t - 1) * HIDDEN + n->order[j], size <= NOTHING ? 0 : number * pow(10, size));
    }
  }
  for (int64_t i = 0; i < HIDDEN * HIDDEN; ++i) {
    bppsa_view_set(&r->model->parameters[1].value, n->order[i / HIDDEN] * HIDDEN + n->order[i % HIDDEN],
                   n->w[i / HIDDEN][i % HIDDEN]);
  }
}

static result pass_of(const network *n, bppsa_backward backward) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = steps_now = n->steps;
  c.batch = 1;
  c.hidden = HIDDEN;
  c.tape = c.no_head = true;
  c.loss_all = n->all;
  c.method.backward = backward;
  c.speculation.chunks = n->chunks;
  c.speculation.warm_up = n->warm_up;
  run r = open_run(&bppsa_rnn_cell, &c, 1, 1);
  int64_t size;
  assert_int_equal(bppsa_recurrent_tape_size(r.model, &size), BPPSA_OK);
  bppsa_view tape = bppsa_view_make(bppsa_calloc(size, sizeof(float)), BPPSA_F32, 1, &size);
  write_inputs(n, &r, &tape);
  result found = {0};
  bppsa_certificate certificate;
  assert_int_equal(bppsa_recurrent_use_tape(r.model, &r.x, &tape, NULL), BPPSA_OK);
  assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
  assert_int_equal(bppsa_certify(r.model, &certificate), BPPSA_OK);
  assert_int_equal(bppsa_backward_stats_of(r.model, &found.stats), BPPSA_OK);
  found.error = certificate.error;
  bppsa_free(tape.data);
  close_run(&r);
  return found;
}

/* BP's own error; infinite where it is not finite. */
static double own_error(network n, int orders, dice *d) {
  double worst = 0x1p-24;
  for (int order = 0; order < orders; ++order) {
    worst = fmax(worst, pass_of(&n, BPPSA_BACKWARD_BP).error);
    for (int64_t u = 0; u < HIDDEN; ++u) {
      const int64_t at = roll(d, 0, u);
      n.order[u] = n.order[at];
      n.order[at] = u;
    }
  }
  return worst;
}

/* What a chain makes larger. Networks whose gradients underflow or overflow in BP are of no use. */
static double score(const network *n, dice *d) {
  const double error = pass_of(n, BPPSA_BACKWARD_SPECULATIVE).error, own = own_error(*n, 1, d);
  return isfinite(error) && own < 1e-3 ? error / own : 0;
}

/* The network with which a chain of a family begins: the built one; the same with something tiny injected everywhere; any W; two
 * blocks with little between them; a triangle. */
static network begin(int family, dice *d) {
  network n = {.steps = family < 2 ? 1000 : roll(d, 200, 800), .chunks = family < 2 ? 13 : roll(d, 4, 14), .warm_up = 40};
  double *q = orthogonal((uint64_t)roll(d, 0, 1 << 20), HIDDEN, family < 2 ? 2 : uniform_of(d, .5, 2.5));
  n.all = family == 1 || (family > 1 && roll(d, 0, 1) == 1);
  for (int64_t i = 0; i < HIDDEN * HIDDEN; ++i) {
    const int64_t row = i / HIDDEN, column = i % HIDDEN;
    const bool apart = family == 3 ? (row < HIDDEN / 2) != (column < HIDDEN / 2) : family == 4 && row < column;
    n.w[row][column] = q[i] * (apart ? pow(10, uniform_of(d, -9, -1)) : 1);
  }
  bppsa_free(q);
  for (int64_t s = 0; s < SEGMENTS; ++s) {
    n.slopes[s] = family < 2 ? (s >= 5 && s < 11 ? .55 : .25) : uniform_of(d, .1, .9);
    n.injected[s] = family < 2 ? (s == SEGMENTS - 1 ? 0 : -20) : -uniform_of(d, 0, 30);
  }
  for (int64_t u = 0; u < HIDDEN; ++u) {
    n.units[u] = 1;
    n.order[u] = u;
  }
  return n;
}

static void change(network *n, dice *d) {
  const int64_t s = roll(d, 0, SEGMENTS - 1), u = roll(d, 0, HIDDEN - 1);
  const double by = normal_of(d);
  switch (roll(d, 0, 7)) {
  case 0:
    n->injected[s] = roll(d, 0, 3) == 0 ? NOTHING : fmin(fmax(n->injected[s] + 5 * by, -35), 2);
    break;
  case 1:
    n->units[u] *= exp(.3 * by);
    break;
  case 2:
    for (int64_t i = 0; i < HIDDEN * HIDDEN; ++i) {
      n->w[i / HIDDEN][i % HIDDEN] *= 1 + .1 * by;
    }
    break;
  case 3:
    for (int64_t i = 0; i < HIDDEN; ++i) {
      n->w[u][i] += .1 * normal_of(d);
    }
    break;
  case 4:
    n->w[u][roll(d, 0, HIDDEN - 1)] *= exp(3 * by);
    break;
  case 5:
    n->chunks = roll(d, 3, 16);
    break;
  default:
    n->slopes[s] = fmin(n->slopes[s] * exp(.4 * by), .999);
  }
}

static void climb(uint64_t seed, int64_t chain, int64_t tries) {
  dice d = {.seed = seed + (uint64_t)chain};
  const int family = (int)(chain % FAMILIES);
  network best = begin(family, &d);
  double most = score(&best, &d);
  for (int64_t k = 0; k < tries; ++k) {
    network next = best;
    for (int64_t changes = roll(&d, 1, 3); changes > 0; --changes) {
      change(&next, &d);
    }
    const double found = score(&next, &d);
    if (found >= most) {
      most = found;
      best = next;
    }
  }
  const double own = own_error(best, ORDERS, &d);
  const result with = pass_of(&best, BPPSA_BACKWARD_SPECULATIVE);
  without_rule = true;
  const result without = pass_of(&best, BPPSA_BACKWARD_SPECULATIVE);
  without_rule = false;
  printf("{\"seed\":%llu,\"chain\":%lld,\"family\":%d,\"tries\":%lld,\"steps\":%lld,\"chunks\":%lld,\"loss\":\"%s\","
         "\"error\":%.4g,\"own\":%.4g,\"ratio\":%.4g,\"perturbation\":%.3g,\"speculated\":%s,\"given_up\":%s,\"path\":%lld,"
         "\"ratio_without_the_rule\":%.4g,\"injected\":[",
         (unsigned long long)seed, (long long)chain, family, (long long)tries, (long long)best.steps, (long long)best.chunks,
         best.all ? "all" : "last", with.error, own, with.error / own, with.stats.perturbation,
         with.stats.speculated ? "true" : "false", with.stats.given_up ? "true" : "false", (long long)with.stats.path,
         isfinite(without.error) ? without.error / own : -1);
  for (int64_t s = 0; s < SEGMENTS; ++s) {
    printf("%s%.1f", s > 0 ? "," : "", best.injected[s]);
  }
  printf("],\"slopes\":[");
  for (int64_t s = 0; s < SEGMENTS; ++s) {
    printf("%s%.3g", s > 0 ? "," : "", best.slopes[s]);
  }
  printf("]}\n");
  fflush(stdout);
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "search_backward: expected SEED CHAINS TRIES\n");
    return 2;
  }
  for (int64_t chain = 0; chain < strtoll(argv[2], NULL, 10); ++chain) {
    climb(strtoull(argv[1], NULL, 10), chain, strtoll(argv[3], NULL, 10));
  }
  return 0;
}

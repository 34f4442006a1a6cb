#include "oracle/collective.h"

#include <math.h>

double bppsa_point_to_point_s(bppsa_link link, double m) {
  return link.alpha_s + m * link.beta_s;
}

static double ring(bppsa_link link, double p, double m) {
  return 2 * (p - 1) * (link.alpha_s + m / p * link.beta_s);
}

static double tree_of(bppsa_link link, double depth, double m, double chunks) {
  return 2 * (depth + chunks) * (link.alpha_s + m / chunks * link.beta_s);
}

/* (d + k) (alpha + m beta / k) is least at k = sqrt(d m beta / alpha). */
static double tree(bppsa_link link, int64_t p, double m) {
  const double depth = ceil(log2((double)p));
  const double best = link.alpha_s > 0 ? sqrt(depth * m * link.beta_s / link.alpha_s) : m;
  const double below = fmax(1, floor(best));
  return fmin(tree_of(link, depth, m, below), tree_of(link, depth, m, below + 1));
}

double bppsa_allreduce_s(bppsa_collective how, bppsa_link link, int64_t p, double m) {
  if (p <= 1) {
    return 0;
  }
  switch (how) {
  case BPPSA_COLLECTIVE_RING:
    return ring(link, (double)p, m);
  case BPPSA_COLLECTIVE_TREE:
    return tree(link, p, m);
  case BPPSA_COLLECTIVE_ORDERED:
    return 2 * ceil(log2((double)p)) * bppsa_point_to_point_s(link, m);
  default:
    return fmin(ring(link, (double)p, m), tree(link, p, m));
  }
}

double bppsa_allgather_s(bppsa_link link, int64_t p, double m) {
  return p <= 1 ? 0 : (double)(p - 1) * (link.alpha_s + m * link.beta_s);
}

double bppsa_reduce_scatter_s(bppsa_link link, int64_t p, double m) {
  return p <= 1 ? 0 : ring(link, (double)p, m) / 2;
}

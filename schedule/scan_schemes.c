/* Scans over p workers. Each has a share of the n transposed Jacobians: consecutive ones in the order of back-propagation.
 *
 * The `layer` and `layers` of an operation are the Jacobians that its result covers, and `micros` the number of products it takes.
 * For a PRODUCT of two others `part` is the Jacobian at which the second begins. Memory is counted in Jacobians: n / p of them and
 * one product. (BPPSA, section 3.6)
 */
#include "core/base/cut.h"
#include "schedule/schedule_internal.h"

typedef struct {
  bppsa_writer w;
  int64_t n, p;
} scanner;

static int64_t begin_of(const scanner *s, int64_t worker) {
  return bppsa_cut(s->n, s->p, worker);
}

/* Adds an operation on a worker over the shares of workers from .. to - 1. */
static void add(scanner *s, bppsa_schedule_kind kind, int64_t worker, int64_t from, int64_t to, int64_t split, int64_t products,
                double held) {
  const int64_t first = begin_of(s, from), last = begin_of(s, to);
  bppsa_schedule_op op = bppsa_schedule_op_make(kind, worker, 0, worker, first, last - first, 0, products);
  op.part = split < 0 ? -1 : (int32_t)begin_of(s, split);
  op.memory_delta = held;
  bppsa_writer_add(&s->w, op);
}

/* Adds a worker's last operation: the gradients of its share, one product each. Allocates the share unless it is held already. */
static void add_apply(scanner *s, int64_t worker, bool held) {
  const int64_t share = begin_of(s, worker + 1) - begin_of(s, worker);
  add(s, BPPSA_KIND_APPLY, worker, worker, worker + 1, -1, share, held ? 0 : (double)share);
}

static void add_product(scanner *s, int64_t worker) {
  const int64_t share = begin_of(s, worker + 1) - begin_of(s, worker);
  add(s, BPPSA_KIND_PRODUCT, worker, worker, worker + 1, -1, share - 1, (double)share + 1);
}

/* The first worker applies its Jacobians one by one without a product; the last one needs no product, because no worker follows
 * it. */
static void chunked(scanner *s) {
  for (int64_t worker = 0; worker < s->p; ++worker) {
    const bool between = worker > 0 && worker + 1 < s->p;
    if (between) {
      add_product(s, worker);
      add(s, BPPSA_KIND_CARRY, worker, worker, worker + 1, -1, 1, 0);
    }
    add_apply(s, worker, between);
  }
}

/* On the way up, workers make products of 1, 2, 4, ... neighbouring shares; the last worker of these shares computes the product
 * and keeps it in place of its own. On the way down, the last worker of each pair computes the gradient at which the pair's second
 * half begins. Products that reach the last worker are left out because nothing reads them. */
static void blelloch(scanner *s) {
  int64_t size = 1;
  for (int64_t worker = 0; worker + 1 < s->p; ++worker) {
    add_product(s, worker);
  }
  for (; size < s->p; size *= 2) {
    for (int64_t i = 0; i + 2 * size < s->p; i += 2 * size) {
      add(s, BPPSA_KIND_PRODUCT, i + 2 * size - 1, i, i + 2 * size, i + size, 1, 0);
    }
  }
  for (size /= 2; size >= 1; size /= 2) {
    for (int64_t i = 0; i + size < s->p; i += 2 * size) {
      const int64_t end = i + 2 * size < s->p ? i + 2 * size : s->p;
      add(s, BPPSA_KIND_CARRY, end - 1, i, i + size, -1, 1, 0);
    }
  }
  for (int64_t worker = 0; worker < s->p; ++worker) {
    add_apply(s, worker, worker + 1 < s->p);
  }
}

static void linear(scanner *s) {
  for (int64_t worker = 0; worker < s->p; ++worker) {
    add_apply(s, worker, false);
  }
}

static bppsa_status generate(bppsa_schedule *list, void (*add_all)(scanner *s)) {
  scanner s = {.n = list->config.elements - 1, .p = list->workers};
  BPPSA_TRY(bppsa_writer_start(list, &s.w));
  add_all(&s);
  return bppsa_writer_finish(&s.w);
}

bppsa_status bppsa_schedule_scan_linear(bppsa_schedule *list) {
  return generate(list, linear);
}

bppsa_status bppsa_schedule_scan_blelloch(bppsa_schedule *list) {
  return generate(list, blelloch);
}

bppsa_status bppsa_schedule_scan_chunked(bppsa_schedule *list) {
  return generate(list, chunked);
}

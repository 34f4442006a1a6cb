/* Chunks of a linear scan at once (recurrent/speculate_scan.h). A chunk's walks are linear scans of its own steps: one of the
 * steps with the warm-up, and one of the chunk for differences. */
#include "recurrent/speculate_scan.h"

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "core/compute/pool.h"
#include "recurrent/cell.h"

#define EACH_REAL "recurrent/speculate_scan.inc"
#include "core/base/each_real.inc"

enum { HEAD = 8 /* steps of a chunk, from its boundary on */ };

/* A scan of some steps, with a plan of its own. */
typedef struct {
  int64_t first, end; /* links states first .. end */
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
  char *states; /* [end - first + 1][B][S] */
} piece;

typedef struct {
  bool exact;           /* the walk begins with the true state */
  bool doubtful, walks; /* the boundary must be compared; a difference walks in the present round */
  piece guess, difference;
  char *start;    /* [B][S]: the state at the boundary from which the chunk has been computed */
  double *scales; /* [B] */
  bppsa_status found;
} chunk;

typedef struct {
  bppsa_scan_executor base;
  bppsa_scan_executor *whole; /* the linear scan */
  bppsa_dtype dtype;
  int64_t steps, batch, size, chunks, rounds;
  double accept;
  bool forward;
  int32_t threads;
  chunk *all;
  const bppsa_scan_operands *operands; /* of the present execution */
} speculative;

/* Bytes of a state of the samples that the execution has, and of as many samples as the executor was made for. */
static size_t row_of(const speculative *s) {
  return (size_t)(s->operands->batch * s->size) * bppsa_dtype_size(s->dtype);
}

static size_t room_of(const speculative *s) {
  return (size_t)(s->batch * s->size) * bppsa_dtype_size(s->dtype);
}

/* ---- making ---- */

static bppsa_status make_piece(const speculative *s, const bppsa_device *device, int64_t first, int64_t end, bool affine,
                               piece *p) {
  bppsa_scan_config c = *bppsa_scan_plan_config(s->base.plan);
  c.jacobians = end - first;
  c.affine = affine;
  *p = (piece){.first = first, .end = end, .states = bppsa_calloc(end - first + 1, room_of(s))};
  BPPSA_TRY(p->states != NULL ? bppsa_scan_plan_create(&c, &p->plan) : BPPSA_ERR_MEMORY);
  return bppsa_scan_executor_create(p->plan, device, &p->executor);
}

static void free_piece(piece *p) {
  bppsa_scan_executor_destroy(p->executor);
  bppsa_scan_plan_destroy(p->plan);
  bppsa_free(p->states);
}

static void destroy(bppsa_scan_executor *executor) {
  speculative *s = (speculative *)executor;
  for (int64_t k = 0; s->all != NULL && k < s->chunks; ++k) {
    free_piece(&s->all[k].guess);
    free_piece(&s->all[k].difference);
    bppsa_free(s->all[k].start);
    bppsa_free(s->all[k].scales);
  }
  bppsa_scan_executor_destroy(s->whole);
  bppsa_free(s->all);
  bppsa_free(s);
}

/* Chunks count from where the walk begins. */
static bppsa_status make_chunk(const speculative *s, const bppsa_device *device, int64_t k, int64_t warm_up, chunk *to) {
  const int64_t place = s->forward ? k : s->chunks - 1 - k, first = bppsa_cut(s->steps, s->chunks, place),
                end = bppsa_cut(s->steps, s->chunks, place + 1), early = s->forward ? first - warm_up : end + warm_up;
  to->exact = early <= 0 || early >= s->steps;
  to->start = bppsa_calloc(1, room_of(s));
  to->scales = bppsa_calloc(s->batch, sizeof *to->scales);
  BPPSA_TRY(to->start != NULL && to->scales != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY);
  BPPSA_TRY(make_piece(s, device, first, end, false, &to->difference));
  return make_piece(s, device,
                    !s->forward ? first
                    : early > 0 ? early
                                : 0,
                    s->forward         ? end
                    : early < s->steps ? early
                                       : s->steps,
                    true, &to->guess);
}

/* ---- states ---- */

/* A state in a piece. */
static char *state_in(const speculative *s, const piece *p, int64_t state) {
  return p->states + (size_t)(state - p->first) * row_of(s);
}

/* The states at a chunk's boundary and at its end. */
static int64_t boundary_of(const speculative *s, const chunk *c) {
  return s->forward ? c->difference.first : c->difference.end;
}

static char *end_of(const speculative *s, const chunk *c) {
  return state_in(s, &c->guess, s->forward ? c->difference.end : c->difference.first);
}

/* The first of the states that a chunk computes, of which there are as many as steps. */
static int64_t results_of(const speculative *s, const chunk *c) {
  return s->forward ? c->difference.first + 1 : c->difference.first;
}

static double largest(const speculative *s, const char *row, int64_t sample) {
  const char *at = row + (size_t)(sample * s->size) * bppsa_dtype_size(s->dtype);
  return s->dtype == BPPSA_F32 ? largest_of_f32(s->size, (const float *)(const void *)at)
                               : largest_of_f64(s->size, (const double *)(const void *)at);
}

static void add(const speculative *s, int64_t count, const char *from, char *to) {
  if (s->dtype == BPPSA_F32) {
    add_rows_f32(count, (const float *)(const void *)from, (float *)(void *)to);
  } else {
    add_rows_f64(count, (const double *)(const void *)from, (double *)(void *)to);
  }
}

/* ---- walks ---- */

/* Runs a piece from the state with which it begins. */
static bppsa_status run(const speculative *s, const piece *p, bool injects) {
  const void *columns[BPPSA_CELL_MATRICES + 1];
  const bppsa_scan_config *c = bppsa_scan_plan_config(s->base.plan);
  const bool pair = c->element == BPPSA_ELEMENT_PAIR;
  bppsa_scan_operands o = *s->operands;
  const size_t row = row_of(s), factors = pair ? row / 2 : row;
  for (int64_t k = 0; k < c->matrices + pair; ++k) {
    columns[k] = (const char *)o.columns[k] + (size_t)p->first * factors;
  }
  o.columns = columns;
  o.diagonal = o.diagonal != NULL ? (const char *)o.diagonal + (size_t)p->first * factors : NULL;
  o.cuts = o.cuts != NULL ? o.cuts + p->first * o.batch : NULL;
  o.injected = injects ? (const char *)o.injected + (size_t)p->first * row : NULL;
  o.gradients = p->states;
  return p->executor->execute(p->executor, &o);
}

/* The mean of |state|_inf of a chunk, or of its first steps if that is less. */
static void find_scales(const speculative *s, chunk *c) {
  const int64_t first = results_of(s, c), count = c->difference.end - c->difference.first, most = count < HEAD ? count : HEAD;
  for (int64_t b = 0; b < s->operands->batch; ++b) {
    double sum = 0, head = 0;
    for (int64_t k = 0; k < count; ++k) {
      const double size = largest(s, state_in(s, &c->guess, s->forward ? first + k : first + count - 1 - k), b);
      sum += size;
      head += k < most ? size : 0;
    }
    c->scales[b] = fmin(sum / (double)count, head / (double)most);
    c->scales[b] = isfinite(sum) ? c->scales[b] : sum;
  }
}

static bppsa_status guess(const speculative *s, chunk *c) {
  const size_t row = row_of(s);
  const int64_t begins = s->forward ? c->guess.first : c->guess.end;
  const bool known = begins == (s->forward ? 0 : s->steps);
  const char *from = known ? (const char *)s->operands->gradients + (size_t)begins * row
                           : (const char *)s->operands->injected + (size_t)(s->forward ? begins - 1 : begins) * row;
  memcpy(state_in(s, &c->guess, begins), from, row);
  BPPSA_TRY(run(s, &c->guess, true));
  memcpy(c->start, state_in(s, &c->guess, boundary_of(s, c)), row);
  find_scales(s, c);
  return BPPSA_OK;
}

/* Adds a difference, which has walked, to the chunk. */
static bppsa_status mend(const speculative *s, chunk *c) {
  const int64_t first = results_of(s, c), count = c->difference.end - c->difference.first;
  BPPSA_TRY(run(s, &c->difference, false));
  add(s, count * s->operands->batch * s->size, state_in(s, &c->difference, first), state_in(s, &c->guess, first));
  return BPPSA_OK;
}

typedef struct {
  const speculative *s;
  bool differences;
} walk_pass;

static void walk_some(const void *context, int32_t worker, int64_t first, int64_t end) {
  const walk_pass *w = context;
  (void)worker;
  for (int64_t k = first; k < end; ++k) {
    chunk *c = &w->s->all[k];
    c->found = !w->differences ? guess(w->s, c) : c->walks ? mend(w->s, c) : BPPSA_OK;
  }
}

static bppsa_status walk_all(const speculative *s, bool differences) {
  const walk_pass w = {s, differences};
  const bppsa_scan_config *c = bppsa_scan_plan_config(s->base.plan);
  const double flops = 2 * (double)(c->matrices * s->size) * (double)s->size * (double)(s->steps * s->operands->batch);
  bppsa_status status = BPPSA_OK;
  bppsa_parallel_for(s->threads, s->chunks, bppsa_loop_work(flops, 0), walk_some, &w);
  for (int64_t k = 0; k < s->chunks; ++k) {
    status = status == BPPSA_OK ? s->all[k].found : status;
  }
  return status;
}

/* Compares chunk k's boundary with its neighbour's end. True: a difference must walk, which is in its piece. */
static bool compare(const speculative *s, int64_t k) {
  chunk *c = &s->all[k];
  const char *end = end_of(s, c - 1);
  char *difference = state_in(s, &c->difference, boundary_of(s, c));
  const size_t sample = (size_t)s->size * bppsa_dtype_size(s->dtype);
  bool walks = false;
  for (int64_t b = 0; b < s->operands->batch; ++b) {
    const size_t at = (size_t)b * sample;
    if (s->dtype == BPPSA_F32) {
      subtract_row_f32(s->size, (const float *)(const void *)(end + at), (const float *)(const void *)(c->start + at),
                       (float *)(void *)(difference + at));
    } else {
      subtract_row_f64(s->size, (const double *)(const void *)(end + at), (const double *)(const void *)(c->start + at),
                       (double *)(void *)(difference + at));
    }
    if (largest(s, difference, b) <= s->accept * c->scales[b]) {
      memset(difference + at, 0, sample);
    } else {
      memcpy(c->start + at, end + at, sample);
      walks = true;
    }
  }
  return walks;
}

/* The first state of chunk k has changed, and with it perhaps its last one. */
static void doubt_next(const speculative *s, int64_t k) {
  if (k + 1 < s->chunks) {
    s->all[k + 1].doubtful = true;
  }
}

/* A round of all doubtful chunks at once. *done: none had to walk. */
static bppsa_status mend_all(const speculative *s, bool *done) {
  *done = true;
  for (int64_t k = 1; k < s->chunks; ++k) {
    chunk *c = &s->all[k];
    c->walks = c->doubtful && compare(s, k);
    c->doubtful = false;
    *done = *done && !c->walks;
  }
  BPPSA_TRY(*done ? BPPSA_OK : walk_all(s, true));
  for (int64_t k = 1; k < s->chunks; ++k) {
    if (s->all[k].walks) {
      doubt_next(s, k);
    }
  }
  return BPPSA_OK;
}

/* What is doubtful, one chunk behind the other. */
static bppsa_status mend_tail(const speculative *s) {
  for (int64_t k = 1; k < s->chunks; ++k) {
    chunk *c = &s->all[k];
    if (c->doubtful && compare(s, k)) {
      BPPSA_TRY(mend(s, c));
      doubt_next(s, k);
    }
    c->doubtful = false;
  }
  return BPPSA_OK;
}

/* ---- an execution ---- */

static bool is_finite(const speculative *s) {
  for (int64_t k = 0; k < s->chunks; ++k) {
    for (int64_t b = 0; b < s->operands->batch; ++b) {
      if (!isfinite(s->all[k].scales[b])) {
        return false;
      }
    }
  }
  return true;
}

static bppsa_status execute(bppsa_scan_executor *executor, const bppsa_scan_operands *operands) {
  speculative *s = (speculative *)executor;
  bool done = false;
  s->operands = operands;
  for (int64_t k = 0; k < s->chunks; ++k) {
    s->all[k].doubtful = !s->all[k].exact;
    s->all[k].walks = false;
  }
  BPPSA_TRY(walk_all(s, false));
  if (!is_finite(s)) {
    return s->whole->execute(s->whole, operands);
  }
  for (int64_t round = 0; !done && round < s->rounds; ++round) {
    BPPSA_TRY(mend_all(s, &done));
  }
  BPPSA_TRY(mend_tail(s));
  for (int64_t k = 0; k < s->chunks; ++k) { /* what is injected may be the array of results, and is not needed any more */
    const chunk *c = &s->all[k];
    const int64_t first = results_of(s, c), count = c->difference.end - c->difference.first;
    memcpy((char *)operands->gradients + (size_t)first * row_of(s), state_in(s, &c->guess, first), (size_t)count * row_of(s));
  }
  return BPPSA_OK;
}

static bppsa_status make(const bppsa_device *device, int64_t warm_up, speculative *s) {
  s->all = bppsa_calloc(s->chunks, sizeof *s->all);
  BPPSA_TRY(s->all != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY);
  for (int64_t k = 0; k < s->chunks; ++k) {
    BPPSA_TRY(make_chunk(s, device, k, warm_up, &s->all[k]));
  }
  return bppsa_scan_executor_create(s->base.plan, device, &s->whole);
}

bppsa_status bppsa_speculative_scan_create(const bppsa_scan_plan *plan, const bppsa_backward_plan *speculation, bool forward,
                                           const bppsa_device *device, bppsa_scan_executor **executor) {
  const bppsa_scan_config *c = bppsa_scan_plan_config(plan);
  speculative *s = bppsa_calloc(1, sizeof *s);
  if (s == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  s->base = (bppsa_scan_executor){.execute = execute, .destroy = destroy, .plan = plan};
  s->dtype = c->dtype;
  s->steps = c->jacobians;
  s->batch = c->batch;
  s->size = c->dim;
  s->chunks = speculation->chunks < c->jacobians ? speculation->chunks : c->jacobians;
  s->rounds = speculation->rounds;
  s->accept = speculation->accept;
  s->forward = forward;
  s->threads = bppsa_device_get_threads(device);
  const bppsa_status status = make(device, speculation->warm_up, s);
  if (status != BPPSA_OK) {
    destroy(&s->base);
    return status;
  }
  *executor = &s->base;
  return BPPSA_OK;
}

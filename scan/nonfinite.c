/* Finds the first number of a scan's operands that is not finite. A GPU's arrays are copied to the host piece by piece. */
#include <math.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "scan/scan_internal.h"

enum { PIECE = 1 << 14 /* reals copied at once */ };

typedef struct {
  const bppsa_scan_plan *plan;
  const bppsa_scan_operands *o;
  const bppsa_device *gpu; /* NULL: the arrays are in host memory */
  void *piece;
  bppsa_scan_nonfinite *where;
} search;

static int64_t size_of(const search *s) {
  return (int64_t)bppsa_dtype_size(s->plan->config.dtype);
}

static int64_t dim(const search *s, int64_t t) {
  return s->plan->dims != NULL ? s->plan->dims[t] : s->plan->config.dim;
}

static int64_t find_here(bppsa_dtype dtype, const void *values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!(dtype == BPPSA_F32 ? isfinite(((const float *)values)[i]) : isfinite(((const double *)values)[i]))) {
      return i;
    }
  }
  return -1;
}

/* Finds the first real that is not finite among first .. first + count - 1 of an array; *found counts from `first`, -1: none. */
static bppsa_status find_in(const search *s, const void *array, int64_t first, int64_t count, int64_t *found) {
  const char *values = (const char *)array + first * size_of(s);
  *found = s->gpu == NULL ? find_here(s->plan->config.dtype, values, count) : -1;
  for (int64_t at = 0; s->gpu != NULL && *found < 0 && at < count; at += PIECE) {
    const int64_t reals = count - at < PIECE ? count - at : PIECE;
    BPPSA_TRY(bppsa_memory_get(s->gpu, s->piece, values + at * size_of(s), reals * size_of(s)));
    const int64_t here = find_here(s->plan->config.dtype, s->piece, reals);
    *found = here < 0 ? -1 : at + here;
  }
  return BPPSA_OK;
}

/* Looks at `samples` arrays of `each` reals, one behind the other from real `first` on. Returns ERR_* or sets *s->where. */
static bppsa_status look(const search *s, bppsa_scan_nonfinite what, const void *array, int64_t first, int64_t samples,
                         int64_t each) {
  int64_t found;
  BPPSA_TRY(find_in(s, array, first, samples * each, &found));
  if (found >= 0) {
    what.sample = found / each;
    what.element = found % each;
    *s->where = what;
  }
  return BPPSA_OK;
}

static bool is_over(const search *s) {
  return s->where->operand != NULL;
}

/* The Jacobians that the scan reads begin with J_2ᵀ where g_0 is not wanted, and the injected gradients with u_1. */
static int64_t first_step(const search *s) {
  return s->plan->config.input ? 0 : 1;
}

/* Looks at the rows of the steps that are read, in an array [n][b][width]. */
static bppsa_status look_at_steps(const search *s, const char *operand, int64_t index, const void *array, int64_t width) {
  const int64_t b = s->o->batch;
  for (int64_t t = first_step(s); t < s->plan->config.jacobians && !is_over(s); ++t) {
    BPPSA_TRY(look(s, (bppsa_scan_nonfinite){operand, index, t + 1, 0, 0}, array, t * b * width, b, width));
  }
  return BPPSA_OK;
}

static bppsa_status look_at_weights(const search *s, int64_t k) {
  const int64_t h = bppsa_scan_shared_dim(&s->plan->config), row = s->o->weight_row > 0 ? s->o->weight_row : h;
  for (int64_t r = 0; r < h && !is_over(s); ++r) {
    int64_t found;
    BPPSA_TRY(find_in(s, s->o->weights[k], r * row, h, &found));
    if (found >= 0) {
      *s->where = (bppsa_scan_nonfinite){"weight", k, -1, -1, r * h + found};
    }
  }
  return BPPSA_OK;
}

static bppsa_status look_at_factors(const search *s) {
  const bppsa_scan_config *c = &s->plan->config;
  const int64_t h = bppsa_scan_shared_dim(c), columns = c->matrices + (c->element == BPPSA_ELEMENT_PAIR);
  for (int64_t k = 0; k < c->matrices && !is_over(s); ++k) {
    BPPSA_TRY(look_at_weights(s, k));
  }
  for (int64_t k = 0; k < columns && !is_over(s); ++k) {
    BPPSA_TRY(look_at_steps(s, "column factor", k, s->o->columns[k], h));
  }
  return c->diagonal && !is_over(s) ? look_at_steps(s, "diagonal factor", -1, s->o->diagonal, h) : BPPSA_OK;
}

static bppsa_status look_at_sparse(const search *s) {
  const bppsa_scan_config *c = &s->plan->config;
  for (int64_t t = first_step(s); t < c->jacobians; ++t) {
    const bppsa_csr_values *values = &s->o->values[t];
    const int64_t nnz = c->patterns[t]->nnz, samples = values->stride == 0 ? 1 : s->o->batch;
    for (int64_t b = 0; b < samples && !c->patterns[t]->identity && !is_over(s); ++b) {
      int64_t found;
      BPPSA_TRY(find_in(s, values->data, b * values->stride, nnz, &found));
      if (found >= 0) {
        *s->where = (bppsa_scan_nonfinite){"transposed Jacobian", -1, t + 1, values->stride == 0 ? -1 : b, found};
      }
    }
  }
  return BPPSA_OK;
}

static bppsa_status look_at_dense(const search *s) {
  int64_t at = 0;
  for (int64_t t = 0; t < s->plan->config.jacobians && !is_over(s); ++t) {
    const int64_t each = dim(s, t) * dim(s, t + 1), b = s->o->batch;
    BPPSA_TRY(t < first_step(s) ? BPPSA_OK
                                : look(s, (bppsa_scan_nonfinite){"transposed Jacobian", -1, t + 1, 0, 0}, s->o->jt, at, b, each));
    at += b * each;
  }
  return BPPSA_OK;
}

static bppsa_status look_at_jacobians(const search *s) {
  switch (s->plan->config.element) {
  case BPPSA_ELEMENT_DENSE:
    return look_at_dense(s);
  case BPPSA_ELEMENT_CSR:
    return look_at_sparse(s);
  case BPPSA_ELEMENT_DIAGONAL:
    return look_at_steps(s, "transposed Jacobian", -1, s->o->jt, s->plan->config.dim);
  default:
    return look_at_factors(s);
  }
}

/* Looks at the gradients of steps `from` .. `to` in an array that is laid out like g_0 .. g_n. */
static bppsa_status look_at_gradients(const search *s, const char *operand, const void *array, int64_t from, int64_t to) {
  int64_t at = 0;
  for (int64_t t = 0; t <= to && !is_over(s); ++t) {
    const int64_t each = dim(s, t), b = s->o->batch;
    BPPSA_TRY(t < from ? BPPSA_OK : look(s, (bppsa_scan_nonfinite){operand, -1, t, 0, 0}, array, at, b, each));
    at += b * each;
  }
  return BPPSA_OK;
}

static bppsa_status look_at_all(const search *s) {
  const bppsa_scan_config *c = &s->plan->config;
  BPPSA_TRY(look_at_gradients(s, "seed", s->o->gradients, c->jacobians, c->jacobians));
  BPPSA_TRY(is_over(s) ? BPPSA_OK : look_at_jacobians(s));
  return c->affine && !is_over(s) ? look_at_gradients(s, "injected gradient", s->o->injected, first_step(s), c->jacobians - 1)
                                  : BPPSA_OK;
}

bppsa_status bppsa_scan_find_nonfinite(const bppsa_scan_plan *plan, const bppsa_device *device,
                                       const bppsa_scan_operands *operands, bppsa_scan_nonfinite *where) {
  BPPSA_REQUIRE(plan != NULL && device != NULL && operands != NULL && where != NULL);
  BPPSA_TRY(bppsa_scan_check_operands(plan, operands));
  bppsa_scan_nonfinite found = {.operand = NULL, .index = -1, .step = -1, .sample = -1, .element = -1};
  search s = {.plan = plan, .o = operands, .where = &found};
  if (bppsa_device_get_kind(device) == BPPSA_CUDA) {
    s.gpu = device;
    s.piece = bppsa_alloc(PIECE * sizeof(double));
    if (s.piece == NULL) {
      return BPPSA_ERR_MEMORY;
    }
  }
  const bppsa_status status = look_at_all(&s);
  bppsa_free(s.piece);
  if (status == BPPSA_OK) {
    *where = found;
  }
  return status;
}

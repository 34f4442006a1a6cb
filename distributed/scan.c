/* The scan over ranks: agreement between the ranks, and what each of them holds. */
#include "distributed/scan.h"

#include <string.h>

#include "core/alloc.h"
#include "core/cut.h"
#include "distributed/agree.h"
#include "distributed/scan_internal.h"

void bppsa_ranks_share(int64_t steps, int32_t ranks, int32_t rank, int64_t *first, int64_t *count) {
  const int64_t begin = bppsa_cut(steps, ranks, rank), end = bppsa_cut(steps, ranks, rank + 1);
  *first = steps - end; /* rank 0 has the last steps */
  *count = end - begin;
}

int64_t ranks_scan_reals(const ranks_scan *s, const bppsa_scan_operands *o, int32_t rank) {
  return o->batch * s->dims[rank];
}

int64_t ranks_scan_bytes(const ranks_scan *s, const bppsa_scan_operands *o, int32_t rank) {
  return ranks_scan_reals(s, o, rank) * (int64_t)bppsa_dtype_size(s->config->dtype);
}

static int64_t dim_of(const bppsa_scan_config *c, int64_t t) {
  return c->dims != NULL ? c->dims[t] : c->dim;
}

char *ranks_scan_seed(const ranks_scan *s, const bppsa_scan_operands *o) {
  int64_t before = 0;
  for (int64_t t = 0; s->config->dims != NULL && t < s->config->jacobians; ++t) {
    before += s->config->dims[t];
  }
  before = s->config->dims != NULL ? before : s->config->jacobians * s->config->dim;
  return (char *)o->gradients + before * o->batch * (int64_t)bppsa_dtype_size(s->config->dtype);
}

/* ---- agreement ---- */

/* What every rank tells the others. */
enum { STEPS, BEHIND, FRONT, ALGORITHM, ELEMENT, DTYPE, BATCH, AFFINE, INPUT, MATRICES, DIAGONAL, TERMS };

static const char *const term_names[TERMS] = {
    [ALGORITHM] = "algorithm", [ELEMENT] = "element", [DTYPE] = "dtype",       [BATCH] = "batch",
    [AFFINE] = "affine",       [INPUT] = "input",     [MATRICES] = "matrices", [DIAGONAL] = "diagonal"};

/* Do the ranks' shares fit together? terms [ranks][TERMS]. Every rank finds the same. */
static bppsa_status check_shares(const int64_t (*terms)[TERMS], int32_t ranks) {
  int64_t steps = 0;
  for (int32_t r = 0; r < ranks; ++r) {
    steps += terms[r][STEPS];
  }
  for (int32_t r = 0; r < ranks; ++r) {
    int64_t first, count;
    bppsa_ranks_share(steps, ranks, r, &first, &count);
    if (terms[r][STEPS] != count) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "ranks scan: rank %d plans %lld of %lld steps, expected %lld", (int)r,
                        (long long)terms[r][STEPS], (long long)steps, (long long)count);
    }
    if (r > 0 && count > 0 && terms[r][FRONT] != terms[r - 1][BEHIND]) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "ranks scan: rank %d begins with a gradient of size %lld, expected %lld as rank %d ends",
                        (int)r, (long long)terms[r][FRONT], (long long)terms[r - 1][BEHIND], (int)r - 1);
    }
  }
  return BPPSA_OK;
}

static bppsa_status check_support(const bppsa_scan_config *c, const bppsa_device *device) {
  if (bppsa_device_get_kind(device) != BPPSA_CPU) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "ranks scan: device %s, expected cpu", bppsa_device_get_name(device));
  }
  if (ranks_method_find(c->method.algorithm) == NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "ranks scan: %s, expected linear, chunked or blelloch",
                      bppsa_scan_algorithm_name(c->method.algorithm));
  }
  return BPPSA_OK;
}

/* Sets ranks and dims. */
static bppsa_status agree(ranks_scan *s) {
  const bppsa_scan_config *c = s->config;
  const int32_t size = bppsa_comm_size(s->comm);
  int64_t mine[TERMS] = {[STEPS] = c->jacobians,
                         [BEHIND] = dim_of(c, 0),
                         [FRONT] = dim_of(c, c->jacobians),
                         [ALGORITHM] = c->method.algorithm,
                         [ELEMENT] = c->element,
                         [DTYPE] = c->dtype,
                         [BATCH] = c->batch,
                         [AFFINE] = c->affine,
                         [INPUT] = c->input,
                         [MATRICES] = c->matrices,
                         [DIAGONAL] = c->diagonal};
  int64_t *all = NULL;
  s->dims = bppsa_calloc(size + 1, sizeof *s->dims);
  if (s->dims == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(bppsa_ranks_agree(s->comm, "ranks scan", TERMS, term_names, mine, &all));
  const int64_t(*terms)[TERMS] = (const int64_t(*)[TERMS])all;
  const bppsa_status status = check_shares(terms, size);
  s->dims[0] = terms[0][FRONT];
  for (int32_t r = 0; r < size && terms[r][STEPS] > 0; ++r) {
    s->dims[r + 1] = terms[r][BEHIND];
    s->ranks = r + 1;
  }
  bppsa_free(all);
  return status;
}

/* ---- what a rank holds ---- */

static bppsa_status create_local(const bppsa_scan_config *config, int64_t steps, bool input, const bppsa_device *device,
                                 local_scan *local) {
  bppsa_scan_config own = *config;
  own.method = bppsa_scan_method_of(BPPSA_SCAN_LINEAR);
  own.jacobians = steps; /* those at the beginning of all arrays */
  own.input = input;
  own.planner = device;
  BPPSA_TRY(bppsa_scan_plan_create(&own, &local->plan));
  return bppsa_scan_executor_create(local->plan, device, &local->executor);
}

static void destroy_local(local_scan *local) {
  bppsa_scan_executor_destroy(local->executor);
  bppsa_scan_plan_destroy(local->plan);
}

static bppsa_status allocate(ranks_scan *s, const bppsa_device *device) {
  const bppsa_scan_config *c = s->config;
  const ranks_method *method = ranks_method_find(c->method.algorithm);
  int64_t largest = 1, reals;
  for (int32_t r = 0; r <= s->ranks; ++r) {
    largest = s->dims[r] > largest ? s->dims[r] : largest;
  }
  BPPSA_TRY(create_local(c, c->jacobians, false, device, &s->walk));
  BPPSA_TRY(create_local(c, 1, true, device, &s->edge));
  if (!bppsa_mul(c->batch, largest, &reals)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "ranks scan: gradients of size %lld do not fit in 64 bits", (long long)largest);
  }
  s->here = bppsa_calloc(reals + 1, bppsa_dtype_size(c->dtype));
  s->there = bppsa_calloc(reals + 1, bppsa_dtype_size(c->dtype));
  s->result = bppsa_calloc(reals + 1, bppsa_dtype_size(c->dtype));
  s->useless = bppsa_calloc(c->batch, sizeof *s->useless);
  s->late = bppsa_calloc(c->batch, sizeof *s->late);
  if (s->here == NULL || s->there == NULL || s->result == NULL || s->useless == NULL || s->late == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  if (method->multiplies(s)) {
    BPPSA_TRY(bppsa_transition_maker_create(c, device, &s->maker));
    const bppsa_transition_shape shape = bppsa_transition_maker_shape(s->maker);
    BPPSA_TRY(bppsa_transition_create(&shape, &s->own));
  }
  return method->prepare == NULL ? BPPSA_OK : method->prepare(s, device);
}

static bppsa_status ranks_execute(bppsa_scan_executor *executor, const bppsa_scan_operands *operands) {
  ranks_scan *s = (ranks_scan *)executor;
  BPPSA_REQUIRE(operands != NULL);
  if (s->rank >= s->ranks) {
    return BPPSA_OK;
  }
  if (operands->batch < 1 || operands->batch > s->config->batch || operands->gradients == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "ranks scan: batch %lld and %s gradients, expected 1 .. %lld as planned, and gradients",
                      (long long)operands->batch, operands->gradients == NULL ? "no" : "its", (long long)s->config->batch);
  }
  const bppsa_status status = ranks_method_find(s->config->method.algorithm)->execute(s, operands);
  bppsa_comm_at(s->comm, NULL, -1);
  return status;
}

static void ranks_destroy(bppsa_scan_executor *executor) {
  ranks_scan *s = (ranks_scan *)executor;
  destroy_local(&s->walk);
  destroy_local(&s->edge);
  for (int32_t level = MOST_LEVELS - 1; level >= 0; --level) { /* each borrows the patterns of those before it */
    bppsa_transition_destroy(s->joined[level]);
    bppsa_transition_destroy(s->left[level]);
    bppsa_csr_free(&s->patterns[level]);
  }
  bppsa_transition_destroy(s->own);
  bppsa_transition_maker_destroy(s->maker);
  bppsa_free(s->here);
  bppsa_free(s->there);
  bppsa_free(s->result);
  bppsa_free(s->useless);
  bppsa_free(s->late);
  bppsa_free(s->dims);
  bppsa_free(s);
}

bppsa_status bppsa_ranks_scan_create(bppsa_comm *comm, int32_t tag, const bppsa_scan_plan *plan, const bppsa_device *device,
                                     bppsa_scan_executor **executor) {
  BPPSA_REQUIRE(comm != NULL && plan != NULL && device != NULL && executor != NULL);
  ranks_scan *s = bppsa_calloc(1, sizeof *s);
  if (s == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  s->base = (bppsa_scan_executor){.execute = ranks_execute, .destroy = ranks_destroy, .plan = plan};
  s->comm = comm;
  s->tag = tag;
  s->rank = bppsa_comm_rank(comm);
  s->config = bppsa_scan_plan_config(plan);
  bppsa_status status = agree(s);
  status = status == BPPSA_OK ? check_support(s->config, device) : status;
  status = status == BPPSA_OK && s->rank < s->ranks ? allocate(s, device) : status;
  if (status != BPPSA_OK) {
    ranks_destroy(&s->base);
    return status;
  }
  *executor = &s->base;
  return BPPSA_OK;
}

static bppsa_status create_for_network(void *context, const bppsa_scan_plan *plan, const bppsa_device *device,
                                       bppsa_scan_executor **executor) {
  const bppsa_ranks_scan_context *c = context;
  return bppsa_ranks_scan_create(c->comm, c->tag, plan, device, executor);
}

bppsa_scan_factory bppsa_ranks_scan_factory(bppsa_ranks_scan_context *context) {
  return (bppsa_scan_factory){.create = create_for_network, .context = context};
}

/* The scan over ranks: agreement between the ranks, and what each of them holds. */
#include "distributed/time/scan_ranks.h"

#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "core/compute/memory.h"
#include "distributed/agree.h"
#include "distributed/time/scan_ranks_internal.h"

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

static bppsa_status check_support(const ranks_scan *s) {
  const bppsa_scan_config *c = s->config;
  const bool gpu = bppsa_device_get_kind(s->device) == BPPSA_CUDA;
  if (gpu && bppsa_comm_get_device(s->comm) != s->device) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "ranks scan: device %s, expected a communicator for its arrays",
                      bppsa_device_get_name(s->device));
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

/* Makes the scan of a rank's own steps, which goes step by step. A single step does not keep a GPU busy, so there the cost model
 * chooses, but not for sparse steps: a network's operators are few and large. */
static bppsa_status create_local(const ranks_scan *s, int64_t steps, bool input, local_scan *local) {
  const bppsa_device_kind kind = bppsa_device_get_kind(s->device);
  bppsa_scan_config own = *s->config;
  const bool chosen = kind == BPPSA_CUDA && own.element != BPPSA_ELEMENT_CSR;
  own.method = bppsa_scan_method_of(chosen ? BPPSA_SCAN_AUTO : BPPSA_SCAN_LINEAR);
  own.jacobians = steps; /* the first ones of all arrays */
  own.input = input;
  own.device = kind;
  own.planner = s->device;
  BPPSA_TRY(bppsa_scan_plan_create(&own, &local->plan));
  return bppsa_scan_executor_create(local->plan, s->device, &local->executor);
}

static void destroy_local(local_scan *local) {
  bppsa_scan_executor_destroy(local->executor);
  bppsa_scan_plan_destroy(local->plan);
}

/* Memory of the device, cleared. */
static bppsa_status reserve(const ranks_scan *s, int64_t reals, char **data) {
  const int64_t bytes = reals * (int64_t)bppsa_dtype_size(s->config->dtype);
  BPPSA_TRY(bppsa_memory_alloc(s->device, bytes, (void **)data));
  return bppsa_memory_clear(s->device, *data, bytes);
}

static bppsa_status allocate(ranks_scan *s) {
  const bppsa_scan_config *c = s->config;
  const ranks_method *method = ranks_method_find(c->method.algorithm);
  int64_t largest = 1, reals, bytes;
  for (int32_t r = 0; r <= s->ranks; ++r) {
    largest = s->dims[r] > largest ? s->dims[r] : largest;
  }
  BPPSA_TRY(create_local(s, c->jacobians, false, &s->walk));
  BPPSA_TRY(create_local(s, 1, true, &s->edge));
  if (!bppsa_mul(c->batch, largest, &reals) || !bppsa_mul(reals + 1, (int64_t)bppsa_dtype_size(c->dtype), &bytes)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "ranks scan: gradients of size %lld do not fit in 64 bits", (long long)largest);
  }
  BPPSA_TRY(reserve(s, reals + 1, &s->here));
  BPPSA_TRY(reserve(s, reals + 1, &s->there));
  BPPSA_TRY(reserve(s, reals + 1, &s->result));
  s->useless = bppsa_calloc(c->batch, sizeof *s->useless);
  s->late = bppsa_calloc(c->batch, sizeof *s->late);
  if (s->useless == NULL || s->late == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  if (method->multiplies(s)) {
    BPPSA_TRY(bppsa_transition_maker_create(c, s->device, &s->maker));
    const bppsa_transition_shape shape = bppsa_transition_maker_shape(s->maker);
    BPPSA_TRY(bppsa_transition_create(&shape, s->device, &s->own));
  }
  return method->prepare == NULL ? BPPSA_OK : method->prepare(s);
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
  if (operands->forward || operands->transposed) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "ranks scan: %s operands, expected a chain of gradients",
                      operands->forward ? "forward" : "transposed");
  }
  const bppsa_status status = ranks_method_find(s->config->method.algorithm)->execute(s, operands);
  bppsa_comm_at(s->comm, NULL, -1);
  return status;
}

/* Adds the products that a local scan has redone. */
static bppsa_status count_redone(bppsa_scan_executor *executor) {
  ranks_scan *s = (ranks_scan *)executor;
  if (s->walk.executor != NULL) {
    BPPSA_TRY(bppsa_scan_executor_count(s->walk.executor));
    executor->redone += s->walk.executor->redone - s->walked;
    s->walked = s->walk.executor->redone;
  }
  return BPPSA_OK;
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
  bppsa_memory_free(s->device, s->here);
  bppsa_memory_free(s->device, s->there);
  bppsa_memory_free(s->device, s->result);
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
  s->base = (bppsa_scan_executor){.execute = ranks_execute, .destroy = ranks_destroy, .count_redone = count_redone, .plan = plan};
  s->comm = comm;
  s->device = device;
  s->tag = tag;
  s->rank = bppsa_comm_rank(comm);
  s->config = bppsa_scan_plan_config(plan);
  bppsa_status status = agree(s);
  status = status == BPPSA_OK ? check_support(s) : status;
  status = status == BPPSA_OK && s->rank < s->ranks ? allocate(s) : status;
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

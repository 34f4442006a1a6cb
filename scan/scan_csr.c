/* Executes scans of sparse elements on the CPU. Products and mat-vecs run one after the other, each on all threads, because the
 * largest of them take most of the time and have many rows. Records run in the plan's order, so operands are ready.
 */
#include <string.h>

#include "core/base/alloc.h"
#include "scan/scan_internal.h"

typedef struct {
  bppsa_scan_executor base;
  int32_t threads;
  int64_t *offsets;         /* first real of each g_t for one sample, size n + 2 */
  void **held;              /* values of every node; NULL if they are another node's */
  bppsa_csr_values *values; /* of every node, set by an execution */
} scan_csr;

static bppsa_csr_values operand(const scan_csr *s, const bppsa_scan_operands *o, int64_t first, int64_t last) {
  return first == last ? o->values[s->base.plan->config.jacobians - first]
                       : s->values[bppsa_scan_csr_find(s->base.plan, first, last)];
}

/* y[split] = a[first:last] y[first] */
static void apply(const scan_csr *s, const bppsa_scan_operands *o, const bppsa_scan_step *step) {
  const bppsa_scan_plan *plan = s->base.plan;
  const bppsa_dtype dtype = plan->config.dtype;
  const int64_t n = plan->config.jacobians, size = (int64_t)bppsa_dtype_size(dtype);
  const char *in = (const char *)o->gradients + s->offsets[n - step->first + 1] * o->batch * size;
  char *out = (char *)o->gradients + s->offsets[n - step->split + 1] * o->batch * size;
  const bppsa_csr *pattern = bppsa_scan_csr_pattern(plan, step->first, step->last);
  if (pattern->identity) {
    memcpy(out, in, (size_t)(step->m * o->batch * size));
    return;
  }
  bppsa_csr_apply(pattern, dtype, s->threads, o->batch, operand(s, o, step->first, step->last), in, out);
}

/* a[first:last] = a[split:last] · a[first:split-1] */
static bppsa_status multiply(scan_csr *s, const bppsa_scan_operands *o, const bppsa_scan_step *step) {
  const bppsa_scan_plan *plan = s->base.plan;
  const int64_t index = bppsa_scan_csr_find(plan, step->first, step->last);
  const bppsa_csr_values left = operand(s, o, step->split, step->last), right = operand(s, o, step->first, step->split - 1);
  if (s->held[index] == NULL) { /* an operand is the identity */
    s->values[index] = bppsa_scan_csr_pattern(plan, step->split, step->last)->identity ? right : left;
    return BPPSA_OK;
  }
  s->values[index] = (bppsa_csr_values){s->held[index], left.stride == 0 && right.stride == 0 ? 0 : plan->nodes[index].nnz};
  pthread_mutex_t *multiplying = (pthread_mutex_t *)&plan->multiplying;
  (void)pthread_mutex_lock(multiplying); /* executors of one plan may run at the same time */
  const bppsa_status status = bppsa_product_execute(plan->nodes[index].product, o->batch, left, right, s->held[index]);
  (void)pthread_mutex_unlock(multiplying);
  return status;
}

static bppsa_status csr_execute(bppsa_scan_executor *executor, const bppsa_scan_operands *operands) {
  scan_csr *s = (scan_csr *)executor;
  BPPSA_TRY(bppsa_scan_check_operands(executor->plan, operands));
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  while (bppsa_scan_plan_next(executor->plan, &it, &step)) {
    if (step.level->dead) {
      continue;
    }
    if (step.level->op == BPPSA_OP_MV) {
      apply(s, operands, &step);
    } else {
      BPPSA_TRY(multiply(s, operands, &step));
    }
  }
  return BPPSA_OK;
}

static void csr_destroy(bppsa_scan_executor *executor) {
  scan_csr *s = (scan_csr *)executor;
  for (int64_t i = 0; s->held != NULL && i < executor->plan->node_count; ++i) {
    bppsa_free(s->held[i]);
  }
  bppsa_free(s->held);
  bppsa_free(s->offsets);
  bppsa_free(s->values);
  bppsa_free(s);
}

static bppsa_status allocate(scan_csr *s, const bppsa_scan_plan *plan) {
  const int64_t n = plan->config.jacobians;
  s->offsets = bppsa_calloc(n + 2, sizeof *s->offsets);
  s->values = bppsa_calloc(plan->node_count, sizeof *s->values);
  s->held = bppsa_calloc(plan->node_count, sizeof *s->held);
  if (s->offsets == NULL || s->values == NULL || s->held == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t t = 0; t <= n; ++t) {
    s->offsets[t + 1] = s->offsets[t] + plan->dims[t];
  }
  for (int64_t i = 0; i < plan->node_count; ++i) {
    const bppsa_product *product = plan->nodes[i].product;
    if (!plan->nodes[i].dead && bppsa_product_get_info(product)->kind != BPPSA_PRODUCT_IDENTITY) {
      s->held[i] = bppsa_alloc((size_t)(plan->nodes[i].nnz * plan->config.batch) * bppsa_dtype_size(plan->config.dtype));
      if (s->held[i] == NULL) {
        return BPPSA_ERR_MEMORY;
      }
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_scan_csr_check(const bppsa_scan_plan *plan, const bppsa_device *device) {
  if (plan->config.symbolic) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan: a plan that only counts, expected one with product plans");
  }
  return plan->planner_kind == bppsa_device_get_kind(device) &&
                 (plan->planner_kind == BPPSA_CPU || plan->planner_index == bppsa_device_get_index(device))
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "scan: the plan has products for a %s, expected products for device %s",
                          plan->planner_kind == BPPSA_CPU ? "processor" : "GPU", bppsa_device_get_name(device));
}

bppsa_csr_values bppsa_scan_csr_product(const bppsa_scan_executor *executor, const bppsa_scan_operands *operands) {
  return operand((const scan_csr *)executor, operands, 1, executor->plan->config.jacobians);
}

bppsa_status bppsa_scan_csr_create(const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor) {
  BPPSA_TRY(bppsa_scan_csr_check(plan, device));
  scan_csr *s = bppsa_calloc(1, sizeof *s);
  if (s == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  s->base = (bppsa_scan_executor){.execute = csr_execute, .destroy = csr_destroy, .plan = plan};
  s->threads = bppsa_device_get_threads(device);
  const bppsa_status status = allocate(s, plan);
  if (status != BPPSA_OK) {
    csr_destroy(&s->base);
    return status;
  }
  *executor = &s->base;
  return BPPSA_OK;
}

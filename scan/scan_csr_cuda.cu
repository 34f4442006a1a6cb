/* Executes scans of sparse elements on a GPU.
 *
 * The work is listed when the executor is made: products and mat-vecs, level by level, and within a level kind by kind. The items
 * of a level do not depend on each other. Those of one kind are queued together and share launches, the largest first. Kinds are
 * distributed over LANES streams, each to the stream with the least work so far. The first lane is the device's own stream. The
 * others wait for an event on it when a level begins, and it waits for events on them when the level ends. So all of the scan's
 * work is ordered on the device's stream, and a recording contains it as one graph. All memory is allocated when the executor is
 * made.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/check.cuh"
#include "core/compute/memory_internal.h"
#include "jacobian/apply.h"
#include "scan/scan_internal.h"

namespace {

enum { LANES = 4 };

/* Families of work that is queued together: products of a kind, mat-vecs, and ALIAS, which needs no work because a product with
 * the identity is the other operand, `left`. */
enum { ALIAS = BPPSA_PRODUCT_AUTO, MATVEC = BPPSA_PRODUCT_KINDS }; /* the kinds of products are between them */

/* One product or mat-vec. Operands are numbers of nodes, or -t for J_tᵀ. */
struct csr_work {
  int64_t level; /* its index among the levels; each link of a chain is a level */
  int family;
  double weight;
  int64_t number;      /* in the order of the plan */
  int64_t node;        /* product: of the result */
  int64_t left, right; /* product: result = left · right; mat-vec: the matrix is `left` */
  bppsa_apply *apply;  /* mat-vec */
  int64_t in, out;     /* mat-vec: first reals of the gradients, for one sample */
};

/* Works first .. end - 1, all of one family. */
struct csr_group {
  int64_t first, end;
  int lane;
};

/* Groups first .. end - 1; `lanes` streams take part. */
struct csr_level {
  int64_t first, end;
  int lanes;
};

struct csr_executor {
  bppsa_scan_executor base;
  int32_t index;
  cudaStream_t stream, side[LANES - 1]; /* side: lanes 1, 2, .. */
  cudaEvent_t begun, done[LANES - 1];
  int64_t work_count, group_count, level_count;
  csr_work *works;
  csr_group *groups;
  csr_level *levels;
  bppsa_product_pass *products; /* of the group that is being queued */
  bppsa_apply_pass *matvecs;    /* likewise */
  bppsa_apply **applies;        /* of J_1ᵀ .. J_nᵀ, then of the nodes; NULL if it is not applied */
  int64_t *offsets;             /* first real of each g_t for one sample, size n + 2 */
  bppsa_csr_values *values;     /* of every node, set by an execution */
  void **held;                  /* addresses of the nodes' values; NULL if they are another node's */
  void *memory;                 /* the memory of all values */
};

/* ---- execution ---- */

bppsa_csr_values operand(const csr_executor *x, const bppsa_scan_operands *o, int64_t which) {
  return which < 0 ? o->values[-which - 1] : x->values[which];
}

bppsa_product_pass product_of(csr_executor *x, const bppsa_scan_operands *o, const csr_work *w) {
  const bppsa_scan_node *node = &x->base.plan->nodes[w->node];
  const bppsa_csr_values left = operand(x, o, w->left), right = operand(x, o, w->right);
  x->values[w->node].data = x->held[w->node];
  x->values[w->node].stride = left.stride == 0 && right.stride == 0 ? 0 : node->nnz;
  return {node->product, left, right, x->held[w->node]};
}

bppsa_apply_pass matvec_of(const csr_executor *x, const bppsa_scan_operands *o, const csr_work *w) {
  const int64_t size = (int64_t)bppsa_dtype_size(x->base.plan->config.dtype);
  char *gradients = (char *)o->gradients;
  return {w->apply, operand(x, o, w->left), gradients + w->in * o->batch * size, gradients + w->out * o->batch * size};
}

bppsa_status run_group(csr_executor *x, const bppsa_scan_operands *o, const csr_group *group) {
  const cudaStream_t stream = group->lane == 0 ? x->stream : x->side[group->lane - 1];
  const int family = x->works[group->first].family;
  const int64_t count = group->end - group->first;
  for (int64_t i = 0; i < count; ++i) {
    const csr_work *w = &x->works[group->first + i];
    if (family == ALIAS) {
      x->values[w->node] = operand(x, o, w->left);
    } else if (family == MATVEC) {
      x->matvecs[i] = matvec_of(x, o, w);
    } else {
      x->products[i] = product_of(x, o, w);
    }
  }
  if (family == ALIAS) {
    return BPPSA_OK;
  }
  return family == MATVEC ? bppsa_apply_queue(x->matvecs, count, o->batch, stream)
                          : bppsa_product_queue(x->products, count, o->batch, stream);
}

/* Forks, runs a level's groups, and joins. It joins also if one of them failed, because a recording must not end while streams are
 * forked. */
bppsa_status run_level(csr_executor *x, const bppsa_scan_operands *o, const csr_level *level) {
  cudaError_t error = level->lanes > 1 ? cudaEventRecord(x->begun, x->stream) : cudaSuccess;
  for (int lane = 1; error == cudaSuccess && lane < level->lanes; ++lane) {
    error = cudaStreamWaitEvent(x->side[lane - 1], x->begun, 0);
  }
  bppsa_status status = bppsa_cuda_check(error, "scan: fork");
  for (int64_t i = level->first; status == BPPSA_OK && i < level->end; ++i) {
    status = run_group(x, o, &x->groups[i]);
  }
  for (int lane = 1; error == cudaSuccess && lane < level->lanes; ++lane) {
    error = cudaEventRecord(x->done[lane - 1], x->side[lane - 1]);
    error = error == cudaSuccess ? cudaStreamWaitEvent(x->stream, x->done[lane - 1], 0) : error;
  }
  return status == BPPSA_OK ? bppsa_cuda_check(error, "scan: join") : status;
}

bppsa_status execute(bppsa_scan_executor *executor, const bppsa_scan_operands *operands) {
  csr_executor *x = (csr_executor *)executor;
  BPPSA_TRY(bppsa_scan_check_operands(executor->plan, operands));
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(x->index), "scan"));
  for (int64_t i = 0; i < x->level_count; ++i) {
    BPPSA_TRY(run_level(x, operands, &x->levels[i]));
  }
  return BPPSA_OK;
}

/* ---- the list of work ---- */

/* The number by which a[first:last] is named as an operand. */
int64_t name_of(const bppsa_scan_plan *plan, int64_t first, int64_t last) {
  return first == last ? -(plan->config.jacobians - first + 1) : bppsa_scan_csr_find(plan, first, last);
}

/* Weight of a step: the bytes that its kernels read; ten FLOPs count as one byte. */
double weight_of(const bppsa_scan_step *step) {
  return (double)step->bytes + 0.1 * (double)step->flops + 1;
}

csr_work make_work(const csr_executor *x, const bppsa_scan_step *step) {
  const bppsa_scan_plan *plan = x->base.plan;
  const int64_t n = plan->config.jacobians;
  csr_work w = {};
  w.weight = weight_of(step);
  if (step->level->op == BPPSA_OP_MV) {
    w.family = MATVEC;
    w.left = name_of(plan, step->first, step->last);
    w.apply = x->applies[w.left < 0 ? -w.left - 1 : n + w.left];
    w.in = x->offsets[n - step->first + 1];
    w.out = x->offsets[n - step->split + 1];
    return w;
  }
  w.family = step->copy ? (int)ALIAS : (int)bppsa_product_get_info(step->product)->kind;
  w.node = name_of(plan, step->first, step->last);
  w.left = name_of(plan, step->split, step->last);
  w.right = name_of(plan, step->first, step->split - 1);
  if (step->copy && bppsa_scan_csr_pattern(plan, step->split, step->last)->identity) {
    w.left = w.right;
  }
  return w;
}

int compare_works(const void *a, const void *b) {
  const csr_work *x = (const csr_work *)a, *y = (const csr_work *)b;
  if (x->level != y->level) {
    return x->level < y->level ? -1 : 1;
  }
  if (x->family != y->family) {
    return x->family < y->family ? -1 : 1;
  }
  if (x->weight != y->weight) {
    return x->weight > y->weight ? -1 : 1;
  }
  return (x->number > y->number) - (x->number < y->number);
}

/* Lists the works of all levels in the order in which they are queued. */
void list_works(csr_executor *x) {
  bppsa_scan_iterator it = {};
  bppsa_scan_step step;
  int64_t next = 0, first = 0; /* levels: the next free one, and the first one of the plan's present level */
  int32_t level = -1;
  for (int64_t link = it.link; bppsa_scan_plan_next(x->base.plan, &it, &step); link = it.link) {
    if (step.level->dead) {
      continue;
    }
    first = step.level->level != level ? next : first;
    level = step.level->level;
    csr_work w = make_work(x, &step);
    w.level = first + link;
    w.number = x->work_count;
    next = w.level >= next ? w.level + 1 : next;
    x->works[x->work_count++] = w;
  }
  qsort(x->works, (size_t)x->work_count, sizeof *x->works, compare_works);
}

/* Cuts the list into groups and levels, and distributes a level's groups over the lanes. */
void deal_groups(csr_executor *x) {
  double load[LANES] = {};
  for (int64_t i = 0; i < x->work_count;) {
    const csr_work *w = &x->works[i];
    if (i == 0 || w->level != w[-1].level) {
      memset(load, 0, sizeof load);
      x->levels[x->level_count++] = {x->group_count, x->group_count, 1};
    }
    csr_level *level = &x->levels[x->level_count - 1];
    csr_group group = {i, i, 0};
    for (int lane = 1; w->family != ALIAS && lane < LANES; ++lane) {
      group.lane = load[lane] < load[group.lane] ? lane : group.lane;
    }
    for (; i < x->work_count && x->works[i].level == w->level && x->works[i].family == w->family; ++i) {
      load[group.lane] += w->family == ALIAS ? 0 : x->works[i].weight;
    }
    group.end = i;
    x->groups[x->group_count++] = group;
    level->end = x->group_count;
    level->lanes = group.lane + 1 > level->lanes ? group.lane + 1 : level->lanes;
  }
}

/* Plans the mat-vecs. */
bppsa_status make_applies(csr_executor *x, const bppsa_device *device) {
  const bppsa_scan_plan *plan = x->base.plan;
  bppsa_scan_iterator it = {};
  bppsa_scan_step step;
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    if (step.level->op != BPPSA_OP_MV) {
      continue;
    }
    const int64_t name = name_of(plan, step.first, step.last), at = name < 0 ? -name - 1 : plan->config.jacobians + name;
    if (x->applies[at] == NULL) {
      BPPSA_TRY(
          bppsa_apply_create(bppsa_scan_csr_pattern(plan, step.first, step.last), plan->config.dtype, device, &x->applies[at]));
    }
  }
  return BPPSA_OK;
}

/* ---- memory ---- */

int64_t held_bytes(const bppsa_scan_plan *plan, const bppsa_scan_node *node) {
  const bool held = !node->dead && bppsa_product_get_info(node->product)->kind != BPPSA_PRODUCT_IDENTITY;
  return held ? (node->nnz * plan->config.batch * (int64_t)bppsa_dtype_size(plan->config.dtype) + 255) / 256 * 256 : 0;
}

/* Allocates the held products. The mat-vecs' patterns need memory too; a failure reports the sum of both. */
bppsa_status allocate_held(csr_executor *x, const bppsa_device *device) {
  const bppsa_scan_plan *plan = x->base.plan;
  int64_t held = 0, patterns = 0, available = 0;
  for (int64_t i = 0; i < plan->node_count; ++i) {
    held += held_bytes(plan, &plan->nodes[i]);
  }
  BPPSA_TRY(bppsa_scan_csr_apply_bytes(plan, device, &patterns));
  BPPSA_TRY(bppsa_cuda_available(x->index, &available));
  if (held + patterns > available) {
    return bppsa_fail(BPPSA_ERR_MEMORY,
                      "scan: %lld bytes of GPU memory for held products and patterns, expected at most the %lld available",
                      (long long)(held + patterns), (long long)available);
  }
  if (held > 0) {
    BPPSA_TRY(bppsa_cuda_alloc(x->index, held, &x->memory));
  }
  char *at = (char *)x->memory;
  for (int64_t i = 0; i < plan->node_count; ++i) {
    const int64_t bytes = held_bytes(plan, &plan->nodes[i]);
    x->held[i] = bytes > 0 ? at : NULL;
    at += bytes;
  }
  return BPPSA_OK;
}

bppsa_status allocate_lists(csr_executor *x) {
  const bppsa_scan_plan *plan = x->base.plan;
  const int64_t n = plan->config.jacobians;
  bppsa_scan_iterator it = {};
  bppsa_scan_step step;
  int64_t count = 0;
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    ++count; /* includes copies, which the totals leave out */
  }
  x->offsets = (int64_t *)bppsa_calloc(n + 2, sizeof *x->offsets);
  x->values = (bppsa_csr_values *)bppsa_calloc(plan->node_count, sizeof *x->values);
  x->held = (void **)bppsa_calloc(plan->node_count, sizeof *x->held);
  x->applies = (bppsa_apply **)bppsa_calloc(n + plan->node_count, sizeof *x->applies);
  x->works = (csr_work *)bppsa_calloc(count, sizeof *x->works);
  x->groups = (csr_group *)bppsa_calloc(count, sizeof *x->groups);
  x->levels = (csr_level *)bppsa_calloc(count, sizeof *x->levels);
  x->products = (bppsa_product_pass *)bppsa_calloc(count, sizeof *x->products);
  x->matvecs = (bppsa_apply_pass *)bppsa_calloc(count, sizeof *x->matvecs);
  if (x->offsets == NULL || x->values == NULL || x->held == NULL || x->applies == NULL || x->works == NULL || x->groups == NULL ||
      x->levels == NULL || x->products == NULL || x->matvecs == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t t = 0; t <= n; ++t) {
    x->offsets[t + 1] = x->offsets[t] + plan->dims[t];
  }
  return BPPSA_OK;
}

/* Makes as many streams as the widest level uses, with the priority of the device's own, because a level's items are equally
 * important. */
bppsa_status make_streams(csr_executor *x) {
  int lanes = 1, least = 0, greatest = 0;
  for (int64_t i = 0; i < x->level_count; ++i) {
    lanes = x->levels[i].lanes > lanes ? x->levels[i].lanes : lanes;
  }
  cudaError_t error = lanes > 1 ? cudaEventCreateWithFlags(&x->begun, cudaEventDisableTiming) : cudaSuccess;
  error = error == cudaSuccess ? cudaDeviceGetStreamPriorityRange(&least, &greatest) : error;
  for (int lane = 1; error == cudaSuccess && lane < lanes; ++lane) {
    error = cudaStreamCreateWithPriority(&x->side[lane - 1], cudaStreamNonBlocking, greatest);
    error = error == cudaSuccess ? cudaEventCreateWithFlags(&x->done[lane - 1], cudaEventDisableTiming) : error;
  }
  return bppsa_cuda_check(error, "scan: streams");
}

void destroy(bppsa_scan_executor *executor) {
  csr_executor *x = (csr_executor *)executor;
  const bool reachable = cudaSetDevice(x->index) == cudaSuccess;
  for (int lane = 1; reachable && lane < LANES; ++lane) {
    (void)(x->side[lane - 1] != NULL ? cudaStreamDestroy(x->side[lane - 1]) : cudaSuccess);
    (void)(x->done[lane - 1] != NULL ? cudaEventDestroy(x->done[lane - 1]) : cudaSuccess);
  }
  (void)(reachable && x->begun != NULL ? cudaEventDestroy(x->begun) : cudaSuccess);
  if (x->memory != NULL) {
    bppsa_cuda_free(x->index, x->memory);
  }
  const bppsa_scan_plan *plan = x->base.plan;
  for (int64_t i = 0; x->applies != NULL && i < plan->config.jacobians + plan->node_count; ++i) {
    bppsa_apply_destroy(x->applies[i]);
  }
  bppsa_free(x->applies);
  bppsa_free(x->works);
  bppsa_free(x->groups);
  bppsa_free(x->levels);
  bppsa_free(x->products);
  bppsa_free(x->matvecs);
  bppsa_free(x->offsets);
  bppsa_free(x->values);
  bppsa_free(x->held);
  bppsa_free(x);
}

bppsa_status fill(csr_executor *x, const bppsa_device *device) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(x->index), "scan"));
  BPPSA_TRY(allocate_lists(x));
  BPPSA_TRY(allocate_held(x, device));
  BPPSA_TRY(make_applies(x, device));
  list_works(x);
  deal_groups(x);
  return make_streams(x);
}

} // namespace

extern "C" bppsa_status bppsa_scan_csr_cuda_create(const bppsa_scan_plan *plan, const bppsa_device *device,
                                                   bppsa_scan_executor **executor) {
  BPPSA_TRY(bppsa_scan_csr_check(plan, device));
  csr_executor *x = (csr_executor *)bppsa_calloc(1, sizeof *x);
  if (x == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  x->base.execute = execute;
  x->base.destroy = destroy;
  x->base.plan = plan;
  x->index = bppsa_device_get_index(device);
  x->stream = (cudaStream_t)bppsa_device_get_stream(device);
  const bppsa_status status = fill(x, device);
  if (status != BPPSA_OK) {
    destroy(&x->base);
    return status;
  }
  *executor = &x->base;
  return BPPSA_OK;
}

extern "C" bppsa_csr_values bppsa_scan_csr_cuda_product(const bppsa_scan_executor *executor,
                                                        const bppsa_scan_operands *operands) {
  const csr_executor *x = (const csr_executor *)executor;
  return operand(x, operands, name_of(executor->plan, 1, executor->plan->config.jacobians));
}

/* Executes scans of sparse elements on a GPU.
 *
 * What runs is worked out when the executor is made: a list of products and mat-vecs, level by level. Those of a level are independent of each other: they are
 * dealt out to LANES streams, each item to the one with the least work so far. The device's own stream is the first of them; the others wait for an
 * event on it where the level begins, and it waits for theirs where the level ends, so that for anybody else the scan's work stands on the device's stream,
 * and a recording holds one graph of it. A product that fills the GPU gains nothing by company; late in the up-sweep, and in every down-sweep, items are
 * small. All memory is had when the executor is made.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/check.cuh"
#include "core/memory_internal.h"
#include "jacobian/apply.h"
#include "scan/scan_internal.h"

namespace {

enum { LANES = 4 };

/* One product or mat-vec. Operands: a node's number, or -t for J_tᵀ. */
struct csr_work {
  bool mm;
  bool alias; /* mm with an identity: the result is the other operand, `left` */
  int lane;
  int64_t node;        /* mm: of the result */
  int64_t left, right; /* mm: result = left · right; mv: the matrix is `left` */
  bppsa_apply *apply;  /* mv */
  int64_t in, out;     /* mv: first reals of the gradients, for one sample */
};

/* Works [first, end); `lanes` streams take part. */
struct csr_level {
  int64_t first, end;
  int lanes;
};

struct csr_executor {
  bppsa_scan_executor base;
  int32_t index;
  cudaStream_t stream, side[LANES - 1]; /* side: of lanes 1, 2, .. */
  cudaEvent_t begun, done[LANES - 1];
  int64_t work_count, level_count;
  csr_work *works;
  csr_level *levels;
  bppsa_apply **applies;    /* of J_1ᵀ .. J_nᵀ, then of the nodes; NULL where none is applied */
  int64_t *offsets;         /* first real of g_t of one sample, size n + 2 */
  bppsa_csr_values *values; /* of every node, set by an execution */
  void **held;              /* where the nodes' values lie, NULL where they are another's */
  void *memory;             /* all of them */
};

/* ---- execution ---- */

bppsa_csr_values operand(const csr_executor *x, const bppsa_scan_operands *o, int64_t which) {
  return which < 0 ? o->values[-which - 1] : x->values[which];
}

bppsa_status run_work(csr_executor *x, const bppsa_scan_operands *o, const csr_work *w) {
  const bppsa_scan_plan *plan = x->base.plan;
  const cudaStream_t stream = w->lane == 0 ? x->stream : x->side[w->lane - 1];
  const bppsa_csr_values left = operand(x, o, w->left);
  if (!w->mm) {
    const int64_t size = (int64_t)bppsa_dtype_size(plan->config.dtype);
    char *gradients = (char *)o->gradients;
    return bppsa_apply_queue(w->apply, stream, o->batch, left, gradients + w->in * o->batch * size,
                             gradients + w->out * o->batch * size);
  }
  if (w->alias) {
    x->values[w->node] = left;
    return BPPSA_OK;
  }
  const bppsa_csr_values right = operand(x, o, w->right);
  x->values[w->node].data = x->held[w->node];
  x->values[w->node].stride = left.stride == 0 && right.stride == 0 ? 0 : plan->nodes[w->node].nnz;
  return bppsa_product_queue(plan->nodes[w->node].product, stream, o->batch, left, right, x->held[w->node]);
}

/* Forks, runs a level's works, joins: also when one of them failed, for a recording must not end with streams that are still away. */
bppsa_status run_level(csr_executor *x, const bppsa_scan_operands *o, const csr_level *level) {
  cudaError_t error = level->lanes > 1 ? cudaEventRecord(x->begun, x->stream) : cudaSuccess;
  for (int lane = 1; error == cudaSuccess && lane < level->lanes; ++lane) {
    error = cudaStreamWaitEvent(x->side[lane - 1], x->begun, 0);
  }
  bppsa_status status = bppsa_cuda_check(error, "scan: fork");
  for (int64_t i = level->first; status == BPPSA_OK && i < level->end; ++i) {
    status = run_work(x, o, &x->works[i]);
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

/* ---- what runs ---- */

/* The number of a[first:last] as an operand. */
int64_t name_of(const bppsa_scan_plan *plan, int64_t first, int64_t last) {
  return first == last ? -(plan->config.jacobians - first + 1) : bppsa_scan_csr_find(plan, first, last);
}

csr_work make_work(const csr_executor *x, const bppsa_scan_step *step) {
  const bppsa_scan_plan *plan = x->base.plan;
  const int64_t n = plan->config.jacobians;
  csr_work w = {};
  w.mm = step->level->op == BPPSA_OP_MM;
  if (!w.mm) {
    w.left = name_of(plan, step->first, step->last);
    w.apply = x->applies[w.left < 0 ? -w.left - 1 : n + w.left];
    w.in = x->offsets[n - step->first + 1];
    w.out = x->offsets[n - step->split + 1];
    return w;
  }
  w.node = name_of(plan, step->first, step->last);
  w.left = name_of(plan, step->split, step->last);
  w.right = name_of(plan, step->first, step->split - 1);
  w.alias = step->copy;
  if (w.alias && bppsa_scan_csr_pattern(plan, step->split, step->last)->identity) {
    w.left = w.right;
  }
  return w;
}

/* Work of a step in bytes, as its kernels read them; ten FLOPs take about as long as a byte. */
double weight_of(const bppsa_scan_step *step) {
  return (double)step->bytes + 0.1 * (double)step->flops + 1;
}

/* Lists the works of all levels; an item's links follow each other on one stream. */
void list_works(csr_executor *x) {
  const bppsa_scan_plan *plan = x->base.plan;
  bppsa_scan_iterator it = {};
  bppsa_scan_step step;
  double load[LANES] = {};
  int lane = 0;
  int32_t level = -1;
  for (int64_t link = it.link; bppsa_scan_plan_next(plan, &it, &step); link = it.link) {
    if (step.level->dead) {
      continue;
    }
    if (step.level->level != level) {
      level = step.level->level;
      memset(load, 0, sizeof load);
      x->levels[x->level_count] = {x->work_count, x->work_count, 1};
      ++x->level_count;
    }
    csr_level *current = &x->levels[x->level_count - 1];
    csr_work w = make_work(x, &step);
    if (link == 0) {
      lane = 0;
      for (int other = 1; other < LANES; ++other) {
        lane = load[other] < load[lane] ? other : lane;
      }
    }
    w.lane = w.alias ? 0 : lane;
    load[lane] += w.alias ? 0 : weight_of(&step);
    current->lanes = w.lane + 1 > current->lanes ? w.lane + 1 : current->lanes;
    x->works[x->work_count++] = w;
    current->end = x->work_count;
  }
}

/* Plans of the mat-vecs that run. */
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

/* The held products. Beside them the mat-vecs' patterns must find room: what both need is said. */
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
    ++count; /* copies among them, which the totals leave out */
  }
  x->offsets = (int64_t *)bppsa_calloc(n + 2, sizeof *x->offsets);
  x->values = (bppsa_csr_values *)bppsa_calloc(plan->node_count, sizeof *x->values);
  x->held = (void **)bppsa_calloc(plan->node_count, sizeof *x->held);
  x->applies = (bppsa_apply **)bppsa_calloc(n + plan->node_count, sizeof *x->applies);
  x->works = (csr_work *)bppsa_calloc(count, sizeof *x->works);
  x->levels = (csr_level *)bppsa_calloc(count, sizeof *x->levels);
  if (x->offsets == NULL || x->values == NULL || x->held == NULL || x->applies == NULL || x->works == NULL || x->levels == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t t = 0; t <= n; ++t) {
    x->offsets[t + 1] = x->offsets[t] + plan->dims[t];
  }
  return BPPSA_OK;
}

/* As many streams as the widest level takes, of the priority that the device's own has: a level's items are alike. */
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
  bppsa_free(x->levels);
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

/* The scan on a GPU: allocates memory when the executor is made, then makes one launch for each record of the plan. */
#include "core/base/alloc.h"
#include "core/compute/check.cuh"
#include "core/compute/memory_internal.h"
#include "scan/algorithm_internal.h"
#include "scan/scan_internal.h"
#include "scan/scan_kernels.cuh"

namespace {

enum { MOST_THREADS = 256, WARP = 32, SHARED_BYTES = 96 * 1024, MOST_TILE = 16, MOST_BLOCKS = INT32_MAX };
/* A chain of numbers gets a whole warp if there are fewer chains than threads needed to fill a GPU, and enough steps to share. */
enum { FEW_NUMBERS = 4096, LONG_CHAIN = 64 };

struct cuda_executor {
  bppsa_scan_executor base;
  int32_t index;
  cudaStream_t stream;
  int64_t dim;   /* the largest size of a g_t */
  int64_t room;  /* reals of a vector in shared memory, with the affine row's factor; even */
  int tile;      /* rows of products in a block */
  void *memory;  /* one allocation; the pointers below point into it */
  bool borrowed; /* it is the caller's */
  void *slots, *beside, *norms;
  int32_t *exponents;
  int64_t exponent_rows;
  unsigned long long *redone;
  int64_t *dims, *gradient_offsets, *jacobian_offsets, *slot_offsets; /* NULL if sizes are uniform */
};

int64_t largest_dim(const bppsa_scan_plan *plan) {
  int64_t dim = plan->config.dim;
  for (int64_t t = 0; plan->dims != NULL && t <= plan->config.jacobians; ++t) {
    dim = t == 0 || plan->dims[t] > dim ? plan->dims[t] : dim;
  }
  return dim;
}

/* ---- execution ---- */

template <typename real> scan_chain<real> make_chain(const cuda_executor *x, const bppsa_scan_operands *o) {
  const bppsa_scan_plan *plan = x->base.plan;
  const bppsa_scan_config *config = &plan->config;
  scan_chain<real> c = {};
  c.n = config->jacobians;
  c.batch = o->batch;
  c.planned = config->batch;
  c.dim = config->dim;
  c.element = config->element == BPPSA_ELEMENT_DENSE      ? SCAN_DENSE
              : config->element == BPPSA_ELEMENT_DIAGONAL ? SCAN_DIAGONAL
              : config->element == BPPSA_ELEMENT_PAIR     ? SCAN_PAIR
                                                          : SCAN_RECURRENT;
  c.affine = config->affine;
  c.jt = (const real *)o->jt;
  if (bppsa_scan_shares(config)) {
    c.matrices = (int32_t)config->matrices;
    c.weight_row = o->weight_row != 0 ? o->weight_row : bppsa_scan_shared_dim(config);
    for (int32_t q = 0; q < c.matrices; ++q) {
      c.weights[q] = (const real *)o->weights[q];
      c.columns[q] = (const real *)o->columns[q];
    }
    c.columns[c.matrices] = c.element == SCAN_PAIR ? (const real *)o->columns[c.matrices] : NULL;
    c.diagonal = config->diagonal ? (const real *)o->diagonal : NULL;
  }
  c.cuts = o->cuts;
  c.injected = (const real *)o->injected;
  c.gradients = (real *)o->gradients;
  c.dims = x->dims;
  c.gradient_offsets = x->gradient_offsets;
  c.jacobian_offsets = x->jacobian_offsets;
  c.slot_offsets = x->slot_offsets;
  c.slot_reals = plan->slot_reals;
  c.slot_rule = plan->row->slot_rule;
  c.chunks = config->method.chunks;
  c.slots = (real *)x->slots;
  c.beside = (real *)x->beside;
  c.exponents = x->exponents;
  c.norms = (real *)x->norms;
  c.exponent_rows = x->exponent_rows;
  c.redone = x->redone;
  return c;
}

/* Are all links of the record leaves? */
bool walks(const bppsa_scan_level *level) {
  return level->span == 1 && level->wider == 0;
}

int threads_for(int64_t numbers) {
  const int64_t warps = (numbers + WARP - 1) / WARP * WARP;
  return (int)(warps < MOST_THREADS ? warps : (int64_t)MOST_THREADS);
}

template <typename real>
void launch_diagonal(cudaStream_t stream, const scan_chain<real> &c, const bppsa_scan_level *level, const scan_record &record) {
  const int64_t count = level->count * c.batch * c.dim;
  const int threads = threads_for(count), blocks = (int)((count + threads - 1) / threads);
  if (level->op == BPPSA_OP_MV && walks(level) && count <= FEW_NUMBERS && level->length >= LONG_CHAIN) {
    const int warps = MOST_THREADS / WARP;
    BPPSA_LAUNCH(bppsa_scan_diagonal_warp<real>, (int)((count + warps - 1) / warps), MOST_THREADS, 0, stream, c, record, count);
  } else if (level->op == BPPSA_OP_MV && walks(level)) {
    BPPSA_LAUNCH(bppsa_scan_diagonal_walk<real>, blocks, threads, 0, stream, c, record, count);
  } else if (level->op == BPPSA_OP_MV) {
    BPPSA_LAUNCH(bppsa_scan_diagonal_apply<real>, (int)(level->count * c.batch), threads_for(c.dim), 0, stream, c, record);
  } else if (level->span == 1) {
    BPPSA_LAUNCH(bppsa_scan_diagonal_carry<real>, blocks, threads, 0, stream, c, record, count);
  } else {
    BPPSA_LAUNCH(bppsa_scan_diagonal_join<real>, blocks, threads, 0, stream, c, record, count);
  }
}

template <typename real>
void launch_matrices(const cuda_executor *x, const scan_chain<real> &c, const bppsa_scan_level *level,
                     const scan_record &record) {
  const int items = (int)(level->count * c.batch), threads = threads_for(x->dim);
  const size_t vectors = 3 * (size_t)x->room * sizeof(real);
  if (level->op == BPPSA_OP_MV && walks(level)) {
    BPPSA_LAUNCH(bppsa_scan_walk<real>, items, threads, vectors, x->stream, c, record, x->room);
  } else if (level->op == BPPSA_OP_MV) {
    BPPSA_LAUNCH(bppsa_scan_apply<real>, items, threads, vectors, x->stream, c, record, x->room);
  } else if (level->span == 1) {
    const int64_t rows = (x->dim + c.affine) * c.batch, tiles = (rows + x->tile - 1) / x->tile;
    const size_t shared = (size_t)x->tile * (vectors + sizeof(real) + sizeof(int64_t) + 2 * sizeof(int32_t)) + sizeof(real);
    BPPSA_LAUNCH(bppsa_scan_carry<real>, (int)(level->count * tiles), threads_for(x->dim * x->tile), shared, x->stream, c, record,
                 tiles, x->tile, x->room);
  } else {
    const size_t shared = (size_t)x->room * (2 * sizeof(real) + 2 * sizeof(int32_t));
    BPPSA_LAUNCH(bppsa_scan_join<real>, items, threads, shared, x->stream, c, record, x->room);
  }
}

/* Makes the products of parts of all elements: the chunks of a chunked scan, except that here the first chunk has a product too. */
template <typename real>
bppsa_status run_products(const cuda_executor *x, const bppsa_scan_operands *operands, int64_t parts,
                          const bppsa_scan_product *to) {
  const bppsa_scan_config *config = &x->base.plan->config;
  const int64_t n = config->jacobians, last = bppsa_scan_plan_dim(x->base.plan, n + 1);
  scan_chain<real> c = make_chain<real>(x, operands);
  const bool diagonal = c.element == SCAN_DIAGONAL;
  const int64_t rows = (diagonal ? 1 : bppsa_scan_plan_dim(x->base.plan, 1)) + c.affine;
  bppsa_scan_level level = {};
  level.op = BPPSA_OP_MM;
  level.span = 1;
  level.count = parts;
  const scan_record record = {1, n / parts, 1, n / parts - 1, n % parts, 0};
  c.planned = operands->batch;
  c.slot_offsets = NULL;
  c.slot_rule = parts > 1 ? BPPSA_SLOT_CHUNKS : BPPSA_SLOT_ONE;
  c.chunks = parts;
  c.slot_reals = rows * last;
  c.exponent_rows = diagonal ? rows * last : rows;
  const int64_t ahead = parts > 1 ? operands->batch : 0; /* by the rule the product of chunk 0 would be in slot -1 */
  c.slots = (real *)to->values + ahead * c.slot_reals;
  c.exponents = to->exponents + ahead * c.exponent_rows;
  c.norms = (real *)to->norms + ahead * c.exponent_rows;
  if (diagonal) {
    launch_diagonal(x->stream, c, &level, record);
  } else {
    launch_matrices(x, c, &level, record);
  }
  return bppsa_cuda_check(cudaGetLastError(), "scan: launch");
}

template <typename real> bppsa_status run(const cuda_executor *x, const bppsa_scan_operands *operands) {
  const bppsa_scan_plan *plan = x->base.plan;
  const scan_chain<real> c = make_chain<real>(x, operands);
  for (int64_t r = 0; r < plan->record_count; ++r) {
    const bppsa_scan_level *level = &plan->records[r];
    const scan_record record = {level->first, level->stride, level->span, level->length, level->longer, level->wider};
    if (level->dead || level->count == 0 || (level->op == BPPSA_OP_MV && level->length == 0)) {
      continue;
    }
    if (c.element == SCAN_DIAGONAL) {
      launch_diagonal(x->stream, c, level, record);
    } else {
      launch_matrices(x, c, level, record);
    }
    BPPSA_TRY(bppsa_cuda_check(cudaGetLastError(), "scan: launch"));
  }
  return BPPSA_OK;
}

bppsa_status execute(bppsa_scan_executor *executor, const bppsa_scan_operands *operands) {
  cuda_executor *x = (cuda_executor *)executor;
  BPPSA_TRY(bppsa_scan_check_operands(executor->plan, operands));
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(x->index), "scan"));
  return executor->plan->config.dtype == BPPSA_F32 ? run<float>(x, operands) : run<double>(x, operands);
}

bppsa_status count_redone(bppsa_scan_executor *executor) {
  const cuda_executor *x = (const cuda_executor *)executor;
  unsigned long long redone = 0;
  BPPSA_TRY(bppsa_cuda_get(x->index, x->stream, &redone, x->redone, sizeof redone));
  executor->redone = (int64_t)redone;
  return BPPSA_OK;
}

/* ---- memory ---- */

void destroy(bppsa_scan_executor *executor) {
  cuda_executor *x = (cuda_executor *)executor;
  if (x->memory != NULL && !x->borrowed) {
    bppsa_cuda_free(x->index, x->memory);
  }
  bppsa_free(x);
}

/* Checks once how many blocks, and how much shared memory, the records need. */
bppsa_status check_sizes(cuda_executor *x, const bppsa_scan_plan *plan) {
  const int64_t size = (int64_t)bppsa_dtype_size(plan->config.dtype), vectors = 3 * x->room * size;
  int64_t blocks;
  if (bppsa_scan_shares(&plan->config) && plan->config.matrices > SCAN_MATRICES) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "scan on a GPU: %lld matrices an element, expected at most %d",
                      (long long)plan->config.matrices, (int)SCAN_MATRICES);
  }
  if (plan->config.element != BPPSA_ELEMENT_DIAGONAL && vectors + 64 > SHARED_BYTES) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "scan on a GPU: size %lld, expected at most %lld, whose vectors fit into shared memory", (long long)x->dim,
                      (long long)((SHARED_BYTES - 64) / 3 / size - 1));
  }
  if (!bppsa_mul(plan->config.jacobians + 1, plan->config.batch, &blocks) || !bppsa_mul(blocks, x->dim + 1, &blocks) ||
      blocks > MOST_BLOCKS) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "scan on a GPU: %lld steps of batch %lld and size %lld, expected a product below 2^31",
                      (long long)plan->config.jacobians, (long long)plan->config.batch, (long long)x->dim);
  }
  const int64_t fitting = (SHARED_BYTES - 64) / (vectors + size + 16);
  x->tile = fitting < 1 ? 1 : fitting < MOST_TILE ? (int)fitting : (int)MOST_TILE;
  return BPPSA_OK;
}

/* The parts of the one allocation, in order: the first pass adds up their sizes, the second gives them addresses. */
struct layout {
  char *base;
  int64_t bytes;
  bool fits;
};

void *place(layout *l, int64_t count, int64_t size) {
  int64_t bytes;
  void *at = l->base != NULL ? l->base + l->bytes : NULL;
  l->fits = l->fits && bppsa_mul(count, size, &bytes) && bytes < INT64_MAX / 2 - l->bytes;
  l->bytes += l->fits ? (bytes + 255) / 256 * 256 : 0;
  return at;
}

void place_all(cuda_executor *x, const bppsa_scan_plan *plan, layout *l) {
  const int64_t size = (int64_t)bppsa_dtype_size(plan->config.dtype), n = plan->config.jacobians;
  int64_t held = 0;
  l->fits = l->fits && bppsa_mul(plan->slot_count * plan->config.batch, x->exponent_rows, &held);
  const bool joins = plan->row->joins && plan->config.element != BPPSA_ELEMENT_DIAGONAL;
  x->redone = (unsigned long long *)place(l, 1, sizeof *x->redone);
  x->slots = place(l, plan->totals.workspace_bytes, 1);
  x->beside = joins ? place(l, plan->totals.workspace_bytes, 1) : NULL;
  x->exponents = (int32_t *)place(l, held, sizeof *x->exponents);
  x->norms = place(l, held, size);
  if (plan->dims != NULL) {
    x->dims = (int64_t *)place(l, n + 1, sizeof(int64_t));
    x->gradient_offsets = (int64_t *)place(l, n + 2, sizeof(int64_t));
    x->jacobian_offsets = (int64_t *)place(l, n + 1, sizeof(int64_t));
    x->slot_offsets = (int64_t *)place(l, plan->slot_count + 1, sizeof(int64_t));
  }
}

bppsa_status put(const cuda_executor *x, int64_t *to, const int64_t *from, int64_t count) {
  return bppsa_cuda_put(x->index, x->stream, to, from, count * (int64_t)sizeof *from);
}

/* Copies differing sizes, and the offsets that follow from them, to the GPU. */
bppsa_status put_offsets(cuda_executor *x, const bppsa_scan_plan *plan) {
  const int64_t n = plan->config.jacobians;
  if (plan->dims == NULL) {
    return BPPSA_OK;
  }
  int64_t *sums = (int64_t *)bppsa_calloc(2 * (n + 2), sizeof *sums);
  if (sums == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  int64_t *gradients = sums, *jacobians = sums + n + 2;
  for (int64_t t = 0; t <= n; ++t) {
    gradients[t + 1] = gradients[t] + plan->dims[t];
    jacobians[t + 1] = jacobians[t] + (t < n ? plan->dims[t] * plan->dims[t + 1] : 0);
  }
  bppsa_status status = put(x, x->dims, plan->dims, n + 1);
  status = status == BPPSA_OK ? put(x, x->gradient_offsets, gradients, n + 2) : status;
  status = status == BPPSA_OK ? put(x, x->jacobian_offsets, jacobians, n + 1) : status;
  if (status == BPPSA_OK && plan->slot_offsets != NULL) {
    status = put(x, x->slot_offsets, plan->slot_offsets, plan->slot_count + 1);
  }
  bppsa_free(sums);
  return status;
}

/* Bytes of the one allocation. */
bppsa_status measure(cuda_executor *x, const bppsa_scan_plan *plan, int64_t *bytes) {
  layout sum = {NULL, 0, true};
  place_all(x, plan, &sum);
  *bytes = sum.bytes;
  return sum.fits ? BPPSA_OK
                  : bppsa_fail(BPPSA_ERR_MEMORY, "scan: the memory of %lld products does not fit in 64 bits",
                               (long long)plan->slot_count);
}

/* memory: the caller's, or NULL. */
bppsa_status allocate(cuda_executor *x, const bppsa_scan_plan *plan, void *memory) {
  layout real = {NULL, 0, true};
  int64_t bytes;
  BPPSA_TRY(measure(x, plan, &bytes));
  x->borrowed = memory != NULL;
  x->memory = memory;
  const bppsa_status status = memory == NULL ? bppsa_cuda_alloc(x->index, bytes, &x->memory) : BPPSA_OK;
  if (status != BPPSA_OK) {
    return bppsa_fail_prefix(status, "scan");
  }
  real.base = (char *)x->memory;
  place_all(x, plan, &real);
  if (plan->slot_offsets == NULL) {
    x->slot_offsets = NULL;
  }
  BPPSA_TRY(bppsa_cuda_queue_clear(x->index, x->stream, x->redone, sizeof *x->redone));
  return put_offsets(x, plan);
}

/* Asks for more shared memory than 48 KiB. */
template <typename real> bppsa_status allow_shared() {
  cudaError_t error = cudaFuncSetAttribute(bppsa_scan_walk<real>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
  error = error == cudaSuccess
              ? cudaFuncSetAttribute(bppsa_scan_apply<real>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES)
              : error;
  error = error == cudaSuccess
              ? cudaFuncSetAttribute(bppsa_scan_carry<real>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES)
              : error;
  error = error == cudaSuccess
              ? cudaFuncSetAttribute(bppsa_scan_join<real>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES)
              : error;
  return bppsa_cuda_check(error, "scan: shared memory");
}

/* Sets the sizes that follow from the plan. */
void size_up(cuda_executor *x, const bppsa_scan_plan *plan) {
  x->dim = largest_dim(plan);
  x->room = (x->dim + 2) / 2 * 2;
  x->exponent_rows = plan->config.element == BPPSA_ELEMENT_DIAGONAL ? 2 * x->dim : x->dim + 1;
}

} // namespace

extern "C" bppsa_status bppsa_scan_cuda_bytes(const bppsa_scan_plan *plan, int64_t *bytes) {
  cuda_executor x = {};
  size_up(&x, plan);
  return measure(&x, plan, bytes);
}

extern "C" bppsa_status bppsa_scan_cuda_create(const bppsa_scan_plan *plan, const bppsa_device *device,
                                               bppsa_scan_executor **executor) {
  return bppsa_scan_cuda_create_in(plan, device, NULL, executor);
}

extern "C" bppsa_status bppsa_scan_cuda_create_in(const bppsa_scan_plan *plan, const bppsa_device *device, void *memory,
                                                  bppsa_scan_executor **executor) {
  cuda_executor *x = (cuda_executor *)bppsa_calloc(1, sizeof *x);
  if (x == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  x->base.execute = execute;
  x->base.destroy = destroy;
  x->base.plan = plan;
  x->base.count_redone = count_redone;
  x->index = bppsa_device_get_index(device);
  x->stream = (cudaStream_t)bppsa_device_get_stream(device);
  size_up(x, plan);
  bppsa_status status = check_sizes(x, plan);
  status = status == BPPSA_OK ? bppsa_cuda_check(cudaSetDevice(x->index), "scan") : status;
  status = status == BPPSA_OK ? plan->config.dtype == BPPSA_F32 ? allow_shared<float>() : allow_shared<double>() : status;
  status = status == BPPSA_OK ? allocate(x, plan, memory) : status;
  if (status != BPPSA_OK) {
    destroy(&x->base);
    return status;
  }
  *executor = &x->base;
  return BPPSA_OK;
}

extern "C" bppsa_status bppsa_scan_cuda_products(bppsa_scan_executor *executor, const bppsa_scan_operands *o, int64_t parts,
                                                 const bppsa_scan_product *to) {
  const cuda_executor *x = (const cuda_executor *)executor;
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(x->index), "scan"));
  return executor->plan->config.dtype == BPPSA_F32 ? run_products<float>(x, o, parts, to) : run_products<double>(x, o, parts, to);
}

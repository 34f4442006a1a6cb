/* CPU executor: memory, blocks of work, and both real types of scan_cpu.inc. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/flush.h"
#include "core/compute/pool.h"
#include "scan/scan_internal.h"

/* Are the record's products made with samples as lanes? Products of recurrent leaves are. */
static bool uses_lanes(const bppsa_scan_plan *plan, const bppsa_scan_level *level) {
  return plan->config.element == BPPSA_ELEMENT_RECURRENT && level->op == BPPSA_OP_MM && level->span == 1;
}

/* The number of samples in a task of a record. */
static int64_t block_of(const bppsa_scan_cpu *cpu, const bppsa_scan_level *level) {
  if (level->op == BPPSA_OP_MV) {
    return cpu->mv_block;
  }
  return uses_lanes(cpu->base.plan, level) ? cpu->chain_block : cpu->mm_block;
}

static int64_t blocks_of(const bppsa_scan_cpu *cpu, const bppsa_scan_level *level, int64_t batch) {
  const int64_t block = block_of(cpu, level);
  return (batch + block - 1) / block;
}

static int64_t tasks_of(const bppsa_scan_cpu *cpu, const bppsa_scan_level *level, int64_t batch) {
  return level->dead ? 0 : level->count * blocks_of(cpu, level, batch);
}

/* The work of a record for bppsa_parallel_for, as if all its products were as large as the first. */
static double work_of(const bppsa_scan_plan *plan, const bppsa_scan_level *level, int64_t batch) {
  const bppsa_scan_config *c = &plan->config;
  const double products = level->dead ? 0 : (double)bppsa_scan_level_links(level) * (double)batch;
  const double k = (double)bppsa_scan_plan_dim(plan, level->first), m = (double)bppsa_scan_plan_dim(plan, level->first + 1);
  if (c->element == BPPSA_ELEMENT_DIAGONAL) {
    return bppsa_loop_work(0, products * 3 * (1 + c->affine) * m * (double)bppsa_dtype_size(c->dtype));
  }
  const double pairs = bppsa_scan_shares(c) && level->span == 1 ? (double)bppsa_scan_shared_pairs(c) : k * m;
  return bppsa_loop_work(products * 2 * pairs * (level->op == BPPSA_OP_MM ? k + c->affine : 1), 0);
}

#define EACH_REAL "scan/scan_cpu.inc"
#include "core/base/each_real.inc"

static bppsa_status cpu_execute(bppsa_scan_executor *executor, const bppsa_scan_operands *operands) {
  const bppsa_scan_cpu *cpu = (const bppsa_scan_cpu *)executor;
  BPPSA_TRY(bppsa_scan_check_cpu_operands(executor->plan, operands));
  if (executor->plan->config.dtype == BPPSA_F32) {
    bppsa_scan_cpu_run_f32(cpu, operands);
  } else {
    bppsa_scan_cpu_run_f64(cpu, operands);
  }
  executor->redone = 0;
  for (int32_t thread = 0; thread < cpu->threads; ++thread) {
    executor->redone += cpu->redone[thread * REDONE_STRIDE];
  }
  return BPPSA_OK;
}

static void cpu_destroy(bppsa_scan_executor *executor) {
  bppsa_scan_cpu *cpu = (bppsa_scan_cpu *)executor;
  bppsa_free(cpu->gradient_offsets);
  bppsa_free(cpu->jacobian_offsets);
  bppsa_free(cpu->slots);
  bppsa_free(cpu->scratch);
  bppsa_free(cpu->exponents);
  bppsa_free(cpu->weights);
  bppsa_free(cpu->norms);
  bppsa_free(cpu->growing);
  bppsa_free(cpu->growing_norms);
  bppsa_free(cpu->redone);
  bppsa_free(cpu);
}

static int64_t largest_dim(const bppsa_scan_plan *plan) {
  int64_t dim = plan->config.dim;
  for (int64_t t = 0; plan->dims != NULL && t <= plan->config.jacobians; ++t) {
    dim = t == 0 || plan->dims[t] > dim ? plan->dims[t] : dim;
  }
  return dim;
}

/* Prefix sums of the sizes, for chains with differing sizes. */
static bppsa_status make_offsets(bppsa_scan_cpu *cpu, const bppsa_scan_plan *plan) {
  const int64_t n = plan->config.jacobians;
  if (plan->dims == NULL) {
    return BPPSA_OK;
  }
  cpu->gradient_offsets = bppsa_calloc(n + 2, sizeof(int64_t));
  cpu->jacobian_offsets = bppsa_calloc(n + 1, sizeof(int64_t));
  if (cpu->gradient_offsets == NULL || cpu->jacobian_offsets == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t t = 0; t <= n; ++t) {
    cpu->gradient_offsets[t + 1] = cpu->gradient_offsets[t] + plan->dims[t];
  }
  for (int64_t t = 1; t <= n; ++t) {
    cpu->jacobian_offsets[t] = cpu->jacobian_offsets[t - 1] + plan->dims[t - 1] * plan->dims[t];
  }
  return BPPSA_OK;
}

/* The number of threads that can take part, and therefore need scratch: the tasks of the level that has most. */
static int32_t useful_threads(const bppsa_scan_cpu *cpu, const bppsa_scan_plan *plan, int32_t threads) {
  int64_t most = 1, tasks = 0;
  for (int64_t r = 0; r < plan->record_count && most < threads; ++r) {
    const bool same = r > 0 && plan->records[r].level == plan->records[r - 1].level;
    tasks = (same ? tasks : 0) + tasks_of(cpu, &plan->records[r], plan->config.batch);
    most = tasks > most ? tasks : most;
  }
  return most < threads ? (int32_t)most : threads;
}

/* Chooses the sizes of the blocks of work. Those of products depend on the plan alone. */
static void choose_blocks(bppsa_scan_cpu *cpu, const bppsa_scan_plan *plan, int32_t threads, int64_t rows) {
  enum { MOST_BLOCK = 8, MM_ROWS = 64, CHAIN_BYTES = 1 << 18 };
  const int64_t size = (int64_t)bppsa_dtype_size(plan->config.dtype), most = 64 / size; /* one cache line of samples */
  cpu->mv_block = bppsa_sample_block(plan->config.batch, threads, largest_dim(plan), largest_dim(plan));
  cpu->mm_block = rows >= MM_ROWS ? 1 : MM_ROWS / rows < MOST_BLOCK ? MM_ROWS / rows : MOST_BLOCK;
  cpu->chain_block = 1;
  while (cpu->chain_block < most && cpu->chain_block < plan->config.batch &&
         2 * cpu->chain_block * rows * (rows + 1) * size <= CHAIN_BYTES) {
    cpu->chain_block *= 2;
  }
}

/* Chooses strips and segments for chains of recurrent products. A strip's rows before, while and after they are scaled fit into 16
 * KiB together, in whole pairs of vectors, if W leaves room for that. A segment's planes fit into 64 KiB, or are those of one
 * link. */
static bppsa_status choose_segment(bppsa_scan_cpu *cpu, const bppsa_scan_plan *plan, int64_t dim, bool products) {
  enum { STRIP_BYTES = 1 << 14, SEGMENT_BYTES = 1 << 16, PAIR_BYTES = 128, WEIGHT_BYTES = 1 << 20, MOST_LINKS = 64 };
  const bppsa_scan_config *c = &plan->config;
  const int64_t size = (int64_t)bppsa_dtype_size(c->dtype), pair = PAIR_BYTES / size;
  int64_t leaf;
  if (c->element != BPPSA_ELEMENT_RECURRENT || !products) {
    return BPPSA_OK;
  }
  if (!bppsa_mul((c->matrices + c->diagonal + c->affine) * dim, BPPSA_ALIGNMENT / size, &leaf)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "scan: factors of %lld matrices of size %lld do not fit in 64 bits",
                      (long long)c->matrices, (long long)dim);
  }
  const int64_t strip = STRIP_BYTES / (3 * dim * size) / pair * pair, links = SEGMENT_BYTES / (leaf * size);
  cpu->strip = (double)dim * (double)dim * (double)size > WEIGHT_BYTES ? 0 : strip < pair ? pair : strip;
  cpu->segment = links < 1 ? 1 : links > MOST_LINKS ? MOST_LINKS : links;
  cpu->factors = (cpu->segment * leaf + 15) / 16 * 16;
  return BPPSA_OK;
}

static bppsa_status allocate_exponents(bppsa_scan_cpu *cpu, const bppsa_scan_plan *plan, int64_t rows, int64_t dim) {
  const bool diagonal = plan->config.element == BPPSA_ELEMENT_DIAGONAL;
  const int64_t block = cpu->mm_block > cpu->chain_block ? cpu->mm_block : cpu->chain_block;
  int64_t held;
  cpu->exponent_rows = diagonal ? 2 * dim : rows + 1;
  cpu->growing_size = ((block + 1) * cpu->exponent_rows + 15) / 16 * 16; /* the last exponent_rows are for one row's terms */
  if (!bppsa_mul(plan->slot_count * plan->config.batch, cpu->exponent_rows, &held)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "scan: the exponents of %lld products do not fit in 64 bits",
                      (long long)plan->slot_count);
  }
  cpu->exponents = bppsa_calloc(held, sizeof *cpu->exponents);
  cpu->norms = bppsa_calloc(held, bppsa_dtype_size(plan->config.dtype));
  cpu->growing = bppsa_calloc(cpu->growing_size * cpu->threads, sizeof *cpu->growing);
  cpu->growing_norms = bppsa_calloc(cpu->growing_size * cpu->threads, bppsa_dtype_size(plan->config.dtype));
  cpu->redone = bppsa_calloc((int64_t)REDONE_STRIDE * cpu->threads, sizeof *cpu->redone);
  return cpu->exponents == NULL || cpu->norms == NULL || cpu->growing == NULL || cpu->growing_norms == NULL || cpu->redone == NULL
             ? BPPSA_ERR_MEMORY
             : BPPSA_OK;
}

static bppsa_status cpu_allocate(bppsa_scan_cpu *cpu, const bppsa_scan_plan *plan, int32_t threads) {
  enum { AREAS = 3 };
  const int64_t dim = largest_dim(plan), size = (int64_t)bppsa_dtype_size(plan->config.dtype);
  const int64_t rows = plan->config.element == BPPSA_ELEMENT_DIAGONAL ? 1 : dim;
  choose_blocks(cpu, plan, threads, rows);
  cpu->threads = useful_threads(cpu, plan, threads);
  const bool products = plan->totals.mm > plan->totals.dead;
  const int64_t block = cpu->mm_block > cpu->chain_block ? cpu->mm_block : cpu->chain_block;
  int64_t product, vectors, bytes;
  if (!bppsa_mul(rows + 1, (dim + 1) * block, &product) || !bppsa_mul(cpu->mv_block, dim + 1, &vectors)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "scan: products of size %lld do not fit in 64 bits", (long long)dim);
  }
  cpu->area = products && product > vectors ? product : vectors;
  cpu->area = (cpu->area + 15) / 16 * 16;
  BPPSA_TRY(choose_segment(cpu, plan, dim, products));
  if (!bppsa_mul(AREAS * cpu->area + cpu->factors, size * cpu->threads, &bytes)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "scan: scratch for size %lld does not fit in 64 bits", (long long)dim);
  }
  const int64_t matrices = bppsa_scan_shares(&plan->config) ? plan->config.matrices : 0, h = bppsa_scan_shared_dim(&plan->config);
  int64_t weights;
  cpu->weight_row = bppsa_dtype_padded(plan->config.dtype, h);
  if (!bppsa_mul(matrices * cpu->weight_row, h, &weights)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan: %lld matrices of size %lld do not fit in 64 bits", (long long)matrices,
                      (long long)h);
  }
  cpu->weights = bppsa_calloc(weights, (size_t)size);
  cpu->scratch = bppsa_alloc((size_t)bytes);
  cpu->slots = bppsa_alloc((size_t)plan->totals.workspace_bytes);
  if (cpu->weights == NULL || cpu->scratch == NULL || cpu->slots == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(allocate_exponents(cpu, plan, rows, dim));
  return make_offsets(cpu, plan);
}

bppsa_status bppsa_scan_cpu_create(const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor) {
  bppsa_scan_cpu *cpu = bppsa_calloc(1, sizeof *cpu);
  if (cpu == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  cpu->base = (bppsa_scan_executor){.execute = cpu_execute, .destroy = cpu_destroy, .plan = plan};
  const bppsa_status status = cpu_allocate(cpu, plan, bppsa_device_get_threads(device));
  if (status != BPPSA_OK) {
    cpu_destroy(&cpu->base);
    return status;
  }
  *executor = &cpu->base;
  return BPPSA_OK;
}

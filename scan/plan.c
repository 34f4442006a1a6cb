/* Scan plans: shapes and costs of their steps, totals, and slots of held products. scan/plan.h has the notation, algorithm.c writes
 * the level records, plan_auto.c makes the plan of `auto`. */
#include "scan/plan.h"

#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "scan/algorithm_internal.h"
#include "scan/plan_internal.h"

bppsa_scan_config bppsa_scan_config_default(void) {
  return (bppsa_scan_config){
      .method = bppsa_scan_method_of(BPPSA_SCAN_BLELLOCH), .dtype = BPPSA_F32, .batch = 1, .dim = 1, .matrices = 1};
}

/* ---- sizes ---- */

int64_t bppsa_scan_plan_dim(const bppsa_scan_plan *plan, int64_t y) {
  return plan->dims != NULL ? plan->dims[plan->config.jacobians - y + 1] : plan->config.dim;
}

int64_t bppsa_scan_plan_slot(const bppsa_scan_plan *plan, int64_t first, int64_t last) {
  return bppsa_slot(plan->row->slot_rule, plan->config.jacobians, plan->config.method.chunks, first, last);
}

/* Reals of a product a[first:last] for one sample, with the affine row. */
static int64_t product_reals(const bppsa_scan_plan *plan, int64_t first, int64_t last) {
  const int64_t rows = plan->config.element == BPPSA_ELEMENT_DIAGONAL ? 1 : bppsa_scan_plan_dim(plan, first);
  return (rows + plan->config.affine) * bppsa_scan_plan_dim(plan, last + 1);
}

int64_t bppsa_scan_plan_slot_offset(const bppsa_scan_plan *plan, int64_t slot) {
  return plan->slot_offsets != NULL ? plan->slot_offsets[slot] : slot * plan->slot_reals;
}

/* ---- one product ---- */

/* Reals that are read for the operand a[first:last]. */
static int64_t operand_reals(const bppsa_scan_plan *plan, int64_t first, int64_t last) {
  const bppsa_scan_config *c = &plan->config;
  const int64_t injected = c->affine ? bppsa_scan_plan_dim(plan, last + 1) : 0;
  if (first < last) {
    return product_reals(plan, first, last);
  }
  switch (c->element) {
  case BPPSA_ELEMENT_DENSE:
    return bppsa_scan_plan_dim(plan, first) * bppsa_scan_plan_dim(plan, last + 1) + injected;
  case BPPSA_ELEMENT_DIAGONAL:
    return c->dim + injected;
  case BPPSA_ELEMENT_RECURRENT:
    return (c->matrices + c->diagonal) * c->dim + injected;
  case BPPSA_ELEMENT_PAIR:
    return (c->matrices + 2) * bppsa_scan_shared_dim(c) + injected;
  case BPPSA_ELEMENT_CSR: /* bppsa_scan_csr_cost */
  case BPPSA_ELEMENTS:
    break;
  }
  return 0;
}

/* Sets shape and cost of a step whose operands are set. The bounds of the ranges were checked when the plan was made. */
static void step_cost(const bppsa_scan_plan *plan, bppsa_scan_step *step) {
  const bppsa_scan_config *c = &plan->config;
  const bool mm = step->level->op == BPPSA_OP_MM;
  const bool diagonal = c->element == BPPSA_ELEMENT_DIAGONAL;
  const int64_t applied = mm ? step->split : step->first; /* the operand that is applied begins here */
  step->m = bppsa_scan_plan_dim(plan, step->last + 1);
  step->k = bppsa_scan_plan_dim(plan, applied);
  step->n = mm ? bppsa_scan_plan_dim(plan, step->first) : 1;
  step->copy = false;
  step->product = NULL;
  step->flops_error = 0;
  if (c->element == BPPSA_ELEMENT_CSR) {
    bppsa_scan_csr_cost(plan, step);
    return;
  }
  const int64_t columns = mm ? (diagonal ? 1 : step->n) + c->affine : 1;
  const bool shared = bppsa_scan_shares(c) && applied == step->last;
  const int64_t pairs = diagonal ? step->m : shared ? bppsa_scan_shared_pairs(c) : step->m * step->k;
  step->flops = 2 * pairs * columns;
  step->nnz = mm && !diagonal ? step->m * step->n : step->m;
  const int64_t size = (int64_t)bppsa_dtype_size(c->dtype);
  const int64_t applied_reals = operand_reals(plan, applied, step->last);
  const int64_t other = mm ? operand_reals(plan, step->first, step->split - 1) : step->k;
  const int64_t result = mm ? product_reals(plan, step->first, step->last) : step->m;
  step->bytes = size * (applied_reals + other + result);
}

/* Makes the step `link` of item `item` of a record. */
static void step_make(const bppsa_scan_plan *plan, const bppsa_scan_level *level, int64_t item, int64_t link,
                      bppsa_scan_step *step) {
  const int64_t start = bppsa_scan_item_first(level, item);
  step->level = level;
  step->critical = item == level->critical;
  if (level->op == BPPSA_OP_MV) {
    step->first = start + bppsa_scan_reach(level, link);
    step->last = start + bppsa_scan_reach(level, link + 1) - 1;
    step->split = step->last + 1;
  } else if (level->chain) {
    step->first = start;
    step->split = step->last = start + link + 1;
  } else {
    const int64_t n = plan->config.jacobians;
    step->first = start;
    step->split = start + level->span;
    step->last = start + 2 * level->span - 1 < n ? start + 2 * level->span - 1 : n;
  }
  step_cost(plan, step);
}

bool bppsa_scan_plan_next(const bppsa_scan_plan *plan, bppsa_scan_iterator *it, bppsa_scan_step *step) {
  if (it->record >= plan->record_count) {
    return false;
  }
  const bppsa_scan_level *level = &plan->records[it->record];
  step_make(plan, level, it->item, it->link, step);
  step->id = it->id++;
  if (++it->link == bppsa_scan_item_length(level, it->item)) {
    it->link = 0;
    if (++it->item == level->count) {
      it->item = 0;
      ++it->record;
    }
  }
  return true;
}

static void range_text(int64_t first, int64_t last, char *text) {
  if (first == last) {
    snprintf(text, BPPSA_OPERAND_TEXT, "a[%lld]", (long long)first);
  } else {
    snprintf(text, BPPSA_OPERAND_TEXT, "a[%lld:%lld]", (long long)first, (long long)last);
  }
}

void bppsa_scan_step_text(const bppsa_scan_plan *plan, const bppsa_scan_step *step, char *left, char *right, char *out) {
  const int64_t n = plan->config.jacobians;
  if (step->level->op == BPPSA_OP_MM) {
    range_text(step->first, step->split - 1, left);
    range_text(step->split, step->last, right);
    range_text(step->first, step->last, out);
    return;
  }
  snprintf(left, BPPSA_OPERAND_TEXT, "g[%lld]", (long long)(n - step->first + 1));
  range_text(step->first, step->last, right);
  snprintf(out, BPPSA_OPERAND_TEXT, "g[%lld]", (long long)(n - step->split + 1));
}

/* ---- the records ---- */

/* Writes the algorithm's records, and that of the input phase. */
static void write_records(bppsa_scan_plan *plan) {
  const int64_t n = plan->config.jacobians;
  bppsa_scan_records to = {.records = plan->records};
  plan->row->write(n, &plan->config.method, &to);
  if (plan->config.input && n > 0) {
    bppsa_scan_add_record(&to, (bppsa_scan_level){.phase = BPPSA_PHASE_INPUT,
                                                  .op = BPPSA_OP_MV,
                                                  .level = (int32_t)to.level_count,
                                                  .first = n,
                                                  .span = 1,
                                                  .count = 1,
                                                  .length = 1});
  }
  plan->record_count = to.count;
  plan->level_count = to.level_count;
  plan->slot_count = to.slot_count;
}

/* ---- totals ---- */

/* FLOPs of one item, summed over its links; *copies: links without a product. */
static int64_t item_flops(const bppsa_scan_plan *plan, const bppsa_scan_level *level, int64_t item, int64_t *copies) {
  bppsa_scan_step step;
  int64_t flops = 0;
  const int64_t length = bppsa_scan_item_length(level, item), links = plan->dims != NULL ? length : 1;
  *copies = 0;
  for (int64_t link = 0; link < links; ++link) {
    step_make(plan, level, item, link, &step);
    flops += step.flops;
    *copies += step.copy;
  }
  return plan->dims != NULL ? flops : flops * length;
}

/* The sums of a record. */
typedef struct {
  int64_t products;           /* without copies */
  int64_t worst, worst_flops; /* its most expensive item */
  int64_t worst_steps;        /* products of that item */
} record_sum;

static record_sum add_totals(bppsa_scan_plan *plan, const bppsa_scan_level *level) {
  bppsa_scan_totals *t = &plan->totals;
  record_sum r = {.products = bppsa_scan_level_links(level), .worst_flops = -1};
  int64_t sum = 0;
  const int64_t distinct =
      plan->dims != NULL ? level->count : 1; /* with uniform sizes every link costs the same, and the first item is the longest */
  for (int64_t item = 0; item < distinct; ++item) {
    int64_t copies;
    const int64_t flops = item_flops(plan, level, item, &copies);
    sum += flops;
    r.products -= copies;
    if (flops > r.worst_flops) {
      r.worst_flops = flops;
      r.worst = item;
      r.worst_steps = bppsa_scan_item_length(level, item) - copies;
    }
  }
  *(level->op == BPPSA_OP_MM ? &t->mm : &t->mv) += r.products;
  t->dead += level->dead ? r.products : 0;
  sum = plan->dims != NULL ? sum : sum / bppsa_scan_item_length(level, 0) * bppsa_scan_level_links(level);
  if (!level->dead) {
    *(level->op == BPPSA_OP_MM ? &t->mm_flops : &t->mv_flops) += sum;
  }
  return r;
}

static void count_totals(bppsa_scan_plan *plan) {
  int64_t best = -1, best_flops = -1, best_steps = 0;
  for (int64_t r = 0; r < plan->record_count; ++r) {
    bppsa_scan_level *level = &plan->records[r];
    const record_sum sum = add_totals(plan, level);
    if (level->phase == BPPSA_PHASE_INPUT) {
      continue;
    }
    plan->levels[level->level] += sum.products;
    if (!level->dead && sum.worst_flops > best_flops) {
      if (best >= 0) {
        plan->records[best].critical = -1;
      }
      level->critical = sum.worst;
      best = r;
      best_flops = sum.worst_flops;
      best_steps = sum.worst_steps;
    }
    const bool last = r + 1 == plan->record_count || plan->records[r + 1].level != level->level;
    if (last && best >= 0) {
      plan->totals.critical_flops += best_flops;
      plan->totals.critical_steps += best_steps;
      best = best_flops = -1;
    }
  }
}

int64_t bppsa_scan_plan_bp_flops(const bppsa_scan_plan *plan, int64_t element) {
  const int64_t n = plan->config.jacobians;
  const bppsa_scan_level level = {
      .op = BPPSA_OP_MV, .first = element, .stride = 1, .count = 1, .span = 1, .length = 1, .critical = -1};
  bppsa_scan_step step;
  if (element < 1 || element > n || (element == n && !plan->config.input)) {
    return 0;
  }
  step_make(plan, &level, 0, 0, &step);
  return step.flops;
}

static void count_bp(bppsa_scan_plan *plan) {
  /* with uniform sizes all cost the same */
  const int64_t n = plan->config.jacobians, distinct = plan->dims != NULL ? n - 1 : n > 1;
  int64_t sum = 0;
  for (int64_t i = 1; i <= distinct; ++i) {
    sum += bppsa_scan_plan_bp_flops(plan, i);
  }
  plan->totals.bp_critical_flops = plan->dims != NULL || n < 2 ? sum : sum * (n - 1);
  plan->totals.bp_flops = plan->totals.bp_critical_flops + bppsa_scan_plan_bp_flops(plan, n);
}

/* ---- held products ---- */

/* Sets the offsets of the slots, in reals of one sample. A slot is as large as the largest product that it ever holds. */
static bppsa_status place_slots(bppsa_scan_plan *plan) {
  int64_t total = 0;
  if (plan->config.element == BPPSA_ELEMENT_CSR) { /* every product has its own memory, see plan_csr.c */
    return BPPSA_OK;
  }
  if (plan->dims == NULL || plan->slot_count == 0) {
    plan->slot_reals = plan->slot_count > 0 ? product_reals(plan, 1, 1) : 0;
    if (!bppsa_mul(plan->slot_reals, plan->slot_count, &total)) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: %lld held products of %lld values do not fit in 64 bits",
                        (long long)plan->slot_count, (long long)plan->slot_reals);
    }
  } else {
    plan->slot_offsets = bppsa_calloc(plan->slot_count + 1, sizeof(int64_t));
    if (plan->slot_offsets == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    bppsa_scan_iterator it = {0};
    bppsa_scan_step step;
    while (bppsa_scan_plan_next(plan, &it, &step)) {
      if (step.level->op == BPPSA_OP_MM && !step.level->dead) {
        int64_t *reals = &plan->slot_offsets[bppsa_scan_plan_slot(plan, step.first, step.last) + 1];
        const int64_t needed = product_reals(plan, step.first, step.last);
        *reals = needed > *reals ? needed : *reals;
      }
    }
    for (int64_t slot = 0; slot < plan->slot_count; ++slot) {
      plan->slot_offsets[slot + 1] += plan->slot_offsets[slot];
    }
    total = plan->slot_offsets[plan->slot_count];
  }
  int64_t bytes;
  if (!bppsa_mul(total, plan->config.batch, &bytes) || !bppsa_mul(bytes, (int64_t)bppsa_dtype_size(plan->config.dtype), &bytes)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: the held products of batch %lld do not fit in 64 bits",
                      (long long)plan->config.batch);
  }
  plan->totals.workspace_bytes = bytes;
  return BPPSA_OK;
}

/* ---- creation ---- */

static bppsa_status check_dim(int64_t dim, int64_t t) {
  if (dim < 1 || dim > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "scan plan: gradient %lld has size %lld, expected 1 .. 2147483647", (long long)t,
                      (long long)dim);
  }
  return BPPSA_OK;
}

static bppsa_status check_config(const bppsa_scan_config *c) {
  BPPSA_TRY(bppsa_scan_algorithm_check(c->method.algorithm, c->device));
  if ((unsigned)c->element >= BPPSA_ELEMENTS) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: unknown element %d", (int)c->element);
  }
  if (c->dtype != BPPSA_F32 && c->dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "scan plan: dtype %s, expected f32 or f64", bppsa_dtype_name(c->dtype));
  }
  if (c->jacobians < 0 || c->jacobians >= INT64_MAX / 4) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: %lld Jacobians, expected 0 .. 2^61", (long long)c->jacobians);
  }
  if (c->batch < 1 || c->method.chunks < 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: batch %lld and chunks %lld, expected at least 1 and 0", (long long)c->batch,
                      (long long)c->method.chunks);
  }
  if (bppsa_scan_shares(c) && c->matrices < 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: %lld shared matrices, expected at least 1", (long long)c->matrices);
  }
  if (c->element == BPPSA_ELEMENT_PAIR && (c->dim % 2 != 0 || !c->diagonal)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: pairs of size %lld%s, expected an even size and a diagonal",
                      (long long)c->dim, c->diagonal ? "" : " without a diagonal");
  }
  if (c->element == BPPSA_ELEMENT_CSR) {
    if (!bppsa_scan_algorithm_find(c->method.algorithm)->sparse || c->affine) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                        "scan plan: sparse elements with %s, expected linear, blelloch or auto without them",
                        c->affine ? "injected gradients" : "chunks");
    }
    if (c->counter.count != NULL && (!c->symbolic || (c->planner != NULL && bppsa_device_get_kind(c->planner) != BPPSA_CPU))) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: a counter for a plan that is executed, or for a GPU, expected a symbolic "
                                            "plan for a CPU");
    }
    return c->patterns == NULL || c->planner == NULL
               ? bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: sparse elements without patterns or without a device to plan them")
               : BPPSA_OK;
  }
  if (c->dims == NULL) {
    return check_dim(c->dim, 0);
  }
  if (c->element != BPPSA_ELEMENT_DENSE) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: differing sizes need dense elements");
  }
  for (int64_t t = 0; t <= c->jacobians; ++t) {
    BPPSA_TRY(check_dim(c->dims[t], t));
  }
  return BPPSA_OK;
}

/* Checks that FLOPs and bytes of the whole plan fit in 62 bits; then no later sum can overflow. */
static bppsa_status check_magnitude(const bppsa_scan_config *c) {
  if (c->element == BPPSA_ELEMENT_CSR) { /* its products are counted with their own checks */
    return BPPSA_OK;
  }
  double dim = (double)c->dim;
  for (int64_t t = 0; c->dims != NULL && t <= c->jacobians; ++t) {
    dim = t == 0 || (double)c->dims[t] > dim ? (double)c->dims[t] : dim;
  }
  const double flops = 4.0 * (double)c->matrices * dim * dim * (dim + 1) * ((double)c->jacobians + 1);
  if (flops >= 0x1p62) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: %lld Jacobians of size %.0f: the counts do not fit in 64 bits",
                      (long long)c->jacobians, dim);
  }
  return BPPSA_OK;
}

static bppsa_status create_with(const bppsa_scan_config *config, const bppsa_scan_algorithm_row *row, bppsa_scan_plan **out) {
  bppsa_scan_plan *plan = bppsa_calloc(1, sizeof *plan);
  if (plan == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  (void)pthread_mutex_init(&plan->multiplying, NULL);
  plan->config = *config;
  plan->config.dims = NULL;
  plan->row = row;
  bppsa_status status = BPPSA_OK;
  if (config->element == BPPSA_ELEMENT_CSR) {
    status = bppsa_scan_csr_chain(plan, config);
    plan->config.dims = plan->dims;
    plan->config.patterns = plan->patterns;
  } else if (config->dims != NULL) {
    plan->dims = bppsa_calloc(config->jacobians + 1, sizeof(int64_t));
    if (plan->dims != NULL) {
      memcpy(plan->dims, config->dims, (size_t)(config->jacobians + 1) * sizeof(int64_t));
    }
    plan->config.dims = plan->dims;
  }
  plan->config.method = bppsa_scan_method_clamp(&plan->config.method, plan->config.jacobians);
  plan->records = bppsa_calloc(BPPSA_SCAN_MOST_RECORDS, sizeof *plan->records);
  plan->levels = bppsa_calloc(BPPSA_SCAN_MOST_RECORDS, sizeof *plan->levels);
  if (status == BPPSA_OK && (plan->records == NULL || plan->levels == NULL || (config->dims != NULL && plan->dims == NULL))) {
    status = BPPSA_ERR_MEMORY;
  }
  if (status == BPPSA_OK) {
    write_records(plan);
    status = plan->config.element == BPPSA_ELEMENT_CSR ? bppsa_scan_csr_nodes(plan) : BPPSA_OK;
  }
  if (status == BPPSA_OK) {
    count_totals(plan);
    count_bp(plan);
    if (plan->config.element == BPPSA_ELEMENT_CSR) {
      bppsa_scan_csr_executed(plan);
      status = bppsa_scan_csr_errors(plan);
    }
    status = status == BPPSA_OK ? place_slots(plan) : status;
  }
  if (status != BPPSA_OK) {
    bppsa_scan_plan_destroy(plan);
    return status;
  }
  *out = plan;
  return BPPSA_OK;
}

bppsa_status bppsa_scan_create_fixed(const bppsa_scan_config *config, bppsa_scan_plan **plan) {
  return create_with(config, bppsa_scan_algorithm_find(config->method.algorithm), plan);
}

bppsa_status bppsa_scan_create_row(const bppsa_scan_config *config, const bppsa_scan_algorithm_row *row, bppsa_scan_plan **plan) {
  BPPSA_TRY(check_config(config));
  BPPSA_TRY(check_magnitude(config));
  return create_with(config, row, plan);
}

bppsa_status bppsa_scan_plan_create(const bppsa_scan_config *config, bppsa_scan_plan **plan) {
  BPPSA_REQUIRE(config != NULL && plan != NULL);
  BPPSA_TRY(check_config(config));
  BPPSA_TRY(check_magnitude(config));
  return config->method.algorithm == BPPSA_SCAN_AUTO ? bppsa_scan_create_auto(config, plan)
                                                     : bppsa_scan_create_fixed(config, plan);
}

void bppsa_scan_plan_destroy(bppsa_scan_plan *plan) {
  if (plan != NULL) {
    bppsa_free(plan->dims);
    bppsa_free(plan->records);
    bppsa_free(plan->levels);
    bppsa_free(plan->slot_offsets);
    bppsa_scan_csr_free(plan);
    (void)pthread_mutex_destroy(&plan->multiplying);
    bppsa_free(plan);
  }
}

/* ---- access ---- */

int bppsa_scan_walk_place(int64_t dim, int64_t *size) {
  static const int64_t sizes[] = BPPSA_SCAN_WALK_SIZES;
  int place = 0;
  while (sizes[place] < dim && sizes[place] < BPPSA_SCAN_WALK_DIM) {
    ++place;
  }
  *size = sizes[place];
  return place;
}

/* Can a kernel walk through matrices of this size? */
static bool may_walk(const bppsa_scan_config *config) {
  int64_t size;
  (void)bppsa_scan_walk_place(bppsa_scan_shared_dim(config), &size);
  return bppsa_scan_shared_dim(config) <= size &&
         config->matrices * size * size * (int64_t)bppsa_dtype_size(config->dtype) <= BPPSA_SCAN_WALK_BYTES;
}

bppsa_scan_fusion bppsa_scan_fusion_of(const bppsa_scan_config *config) {
  const bppsa_scan_algorithm_row *row = bppsa_scan_algorithm_find(config->method.algorithm);
  if (row == NULL || !bppsa_scan_shares(config) || config->device != BPPSA_CUDA) {
    return BPPSA_FUSION_NONE;
  }
  if (config->element == BPPSA_ELEMENT_PAIR && config->dtype == BPPSA_F64 && row->fusion == BPPSA_FUSION_CHUNKS &&
      bppsa_scan_shared_dim(config) > BPPSA_SCAN_FUSED_WIDE_PAIR) { /* too large for shared memory */
    return BPPSA_FUSION_NONE;
  }
  const bool fits =
      bppsa_scan_shared_dim(config) <= BPPSA_SCAN_FUSED_DIM || (row->fusion == BPPSA_FUSION_WALK && may_walk(config));
  return fits ? row->fusion : BPPSA_FUSION_NONE;
}

const bppsa_scan_config *bppsa_scan_plan_config(const bppsa_scan_plan *plan) {
  return &plan->config;
}

bppsa_gradient_method bppsa_scan_plan_method(const bppsa_scan_plan *plan) {
  return plan == NULL ? (bppsa_gradient_method){.backward = BPPSA_BACKWARD_BP}
                      : (bppsa_gradient_method){.backward = BPPSA_BACKWARD_SCAN, .scan = plan->config.method};
}

const bppsa_scan_totals *bppsa_scan_plan_totals(const bppsa_scan_plan *plan) {
  return &plan->totals;
}

bool bppsa_scan_plan_is_chain(const bppsa_scan_plan *plan) {
  return plan->totals.mm == plan->totals.dead;
}

const bppsa_scan_level *bppsa_scan_plan_records(const bppsa_scan_plan *plan, int64_t *count) {
  *count = plan->record_count;
  return plan->records;
}

const int64_t *bppsa_scan_plan_levels(const bppsa_scan_plan *plan, int64_t *count) {
  *count = plan->level_count;
  return plan->levels;
}

const char *bppsa_scan_phase_name(bppsa_scan_phase phase) {
  static const char *const names[] = {"up", "middle", "down", "input"};
  return names[phase];
}

const char *bppsa_scan_op_name(bppsa_scan_op op) {
  static const char *const names[] = {"mm", "mv"};
  return names[op];
}

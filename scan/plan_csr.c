/* Sparse elements: a product plan for every mat-mat of a scan plan. They are made in the order in which the products run, because
 * a product's operands must be planned before it.
 *
 * With C = A B the product a[i:m-1] ⋄ a[m:j] of elements is a[m:j] · a[i:m-1]. A product with the identity is the other
 * operand: nothing is multiplied and nothing is held. A product with a matrix of nothing but ones (csr.h) is held, but it only
 * copies and adds, so it counts as a copy too. Dead products are counted: their patterns are kept, because further dead
 * products are made of them.
 *
 * Networks repeat their layers. Where products are only counted (a symbolic plan), products of equal patterns are planned once.
 * Equal patterns form a class, which has a number: the class of an element is the first element with its pattern; the class of a
 * product is n more than the node that owns it. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "jacobian/apply.h"
#include "scan/plan_internal.h"

bppsa_status bppsa_scan_csr_chain(bppsa_scan_plan *plan, const bppsa_scan_config *config) {
  const int64_t n = config->jacobians;
  plan->patterns = bppsa_calloc(n, sizeof *plan->patterns);
  plan->dims = bppsa_calloc(n + 1, sizeof *plan->dims);
  if (plan->patterns == NULL || plan->dims == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  plan->planner_kind = bppsa_device_get_kind(config->planner);
  plan->planner_index = bppsa_device_get_index(config->planner);
  plan->dims[0] = n == 0 ? config->dim : config->patterns[0]->rows;
  for (int64_t t = 1; t <= n; ++t) {
    const bppsa_csr *jt = config->patterns[t - 1];
    plan->patterns[t - 1] = jt;
    plan->dims[t] = jt->cols;
    if (jt->rows != plan->dims[t - 1] || jt->rows < 1 || jt->cols < 1 || jt->rows > INT32_MAX) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "scan plan: element %lld is %lld x %lld, expected %lld rows and at least one column",
                        (long long)t, (long long)jt->rows, (long long)jt->cols, (long long)plan->dims[t - 1]);
    }
  }
  return BPPSA_OK;
}

int64_t bppsa_scan_csr_find(const bppsa_scan_plan *plan, int64_t first, int64_t last) {
  for (int64_t i = 0; i < plan->node_count; ++i) {
    if (plan->nodes[i].first == first && plan->nodes[i].last == last) {
      return i;
    }
  }
  return -1;
}

static const bppsa_csr *pattern_of(const bppsa_scan_node *node) {
  return node->product != NULL ? bppsa_product_pattern(node->product) : &node->pattern;
}

const bppsa_csr *bppsa_scan_csr_pattern(const bppsa_scan_plan *plan, int64_t first, int64_t last) {
  if (first == last) {
    return plan->patterns[plan->config.jacobians - first];
  }
  const int64_t node = bppsa_scan_csr_find(plan, first, last);
  return node < 0 ? NULL : pattern_of(&plan->nodes[node]);
}

/* Bytes of entries, and of columns of ones; an identity is not read. */
static int64_t pattern_bytes(const bppsa_csr *csr, int64_t entry) {
  const int64_t ones = csr->ones != NULL ? csr->ones->nnz : 0;
  return csr->identity ? 0 : csr->nnz * entry + ones * (int64_t)sizeof(int32_t);
}

void bppsa_scan_csr_cost(const bppsa_scan_plan *plan, bppsa_scan_step *step) {
  const int64_t size = (int64_t)bppsa_dtype_size(plan->config.dtype), entry = size + (int64_t)sizeof(int32_t);
  step->nnz = step->flops = step->bytes = 0;
  const int64_t index = bppsa_scan_csr_find(plan, step->first, step->last);
  if (step->level->op == BPPSA_OP_MV) {
    const bppsa_csr *applied = bppsa_scan_csr_pattern(plan, step->first, step->last);
    step->flops_error = index < 0 || step->first == step->last ? 0 : 2 * plan->nodes[index].nnz_error;
    step->copy = applied != NULL && bppsa_csr_only_ones(applied);
    step->nnz = step->m;
    step->flops = applied == NULL || step->copy ? 0 : 2 * applied->nnz;
    step->bytes = (applied == NULL ? 0 : pattern_bytes(applied, entry)) + size * (step->m + step->k);
    return;
  }
  if (index < 0) {
    return;
  }
  const bppsa_scan_node *node = &plan->nodes[index];
  const bppsa_csr *left = bppsa_scan_csr_pattern(plan, step->first, step->split - 1);
  const bppsa_csr *right = bppsa_scan_csr_pattern(plan, step->split, step->last);
  step->product = node->dead ? NULL : node->product;
  step->copy = bppsa_csr_only_ones(left) || bppsa_csr_only_ones(right);
  step->nnz = node->nnz;
  step->flops = node->flops;
  step->flops_error = node->flops_error;
  step->bytes = left->identity || right->identity
                    ? 0
                    : pattern_bytes(left, entry) + pattern_bytes(right, entry) + pattern_bytes(pattern_of(node), entry);
}

/* ---- classes ---- */

static bool same_entries(const bppsa_csr *a, const bppsa_csr *b) {
  const bool sizes = a->rows == b->rows && a->cols == b->cols && a->nnz == b->nnz;
  return sizes && (a->row_ptr == NULL) == (b->row_ptr == NULL) && (a->row_ptr == NULL || bppsa_csr_same(a, b));
}

static bool same_pattern(const bppsa_csr *a, const bppsa_csr *b) {
  const bppsa_csr_blocks *x = a->blocks, *y = b->blocks;
  const bool ones = (a->ones == NULL) == (b->ones == NULL) && (a->ones == NULL || same_entries(a->ones, b->ones));
  if (a->identity != b->identity || (x == NULL) != (y == NULL) || !ones || !same_entries(a, b)) {
    return false;
  }
  return x == NULL ||
         (x->groups == y->groups && x->row_channels == y->row_channels && x->col_channels == y->col_channels &&
          x->first_row == y->first_row && x->first_col == y->first_col && same_entries(&x->positions, &y->positions));
}

static bppsa_status make_classes(bppsa_scan_plan *plan) {
  const int64_t n = plan->config.jacobians;
  plan->classes = bppsa_calloc(n, sizeof *plan->classes);
  if (plan->classes == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t t = 0; t < n; ++t) {
    int64_t first = 0;
    while (first < t && !(plan->classes[first] == first && same_pattern(plan->patterns[first], plan->patterns[t]))) {
      ++first;
    }
    plan->classes[t] = first;
  }
  return BPPSA_OK;
}

static int64_t class_of(const bppsa_scan_plan *plan, int64_t first, int64_t last) {
  const int64_t n = plan->config.jacobians;
  return first == last ? plan->classes[n - first] : n + plan->nodes[bppsa_scan_csr_find(plan, first, last)].owner;
}

/* Finds the owner of the node's product among the nodes in front of it; if there is none, the node owns it. */
static int64_t find_owner(const bppsa_scan_plan *plan, const bppsa_scan_node *node) {
  for (int64_t i = 0; i < plan->node_count; ++i) {
    const bppsa_scan_node *other = &plan->nodes[i];
    if (other->owner == i && other->left == node->left && other->right == node->right && other->together == node->together) {
      return i;
    }
  }
  return plan->node_count;
}

/* ---- nodes ---- */

/* Adds up the bytes held so far, and checks the limit. held: is the product, or is it one of its factors? */
static bppsa_status add_bytes(bppsa_scan_plan *plan, int64_t nnz, bool is_held, int64_t plan_bytes) {
  bppsa_scan_totals *t = &plan->totals;
  int64_t held;
  if (!bppsa_mul(nnz, (int64_t)bppsa_dtype_size(plan->config.dtype), &held) || !bppsa_mul(held, plan->config.batch, &held) ||
      held > INT64_MAX / 64 - t->workspace_bytes) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: the held products of batch %lld do not fit in 64 bits",
                      (long long)plan->config.batch);
  }
  t->workspace_bytes += is_held ? held : 0;
  t->plan_bytes += plan_bytes;
  const int64_t limit = plan->config.memory_limit, bytes = t->workspace_bytes + (plan->config.symbolic ? 0 : t->plan_bytes);
  return limit > 0 && bytes > limit
             ? bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "scan plan: the products up to a[%lld:%lld] need %lld bytes, the memory limit is %lld",
                          (long long)plan->nodes[plan->node_count - 1].first, (long long)plan->nodes[plan->node_count - 1].last,
                          (long long)bytes, (long long)limit)
             : BPPSA_OK;
}

/* Bytes that products with ones, which are counted over columns, may take; 0: any number. */
static int64_t count_limit(const bppsa_scan_config *c) {
  return c->count_limit > 0 ? c->count_limit : c->memory_limit;
}

/* Counts a product without a plan for it. Beyond 2^62 a count does not fit, which the caller reports. */
static bppsa_status count_node(bppsa_scan_plan *plan, const bppsa_scan_step *step, const bppsa_csr *left,
                               const bppsa_csr *right) {
  const bppsa_scan_counter *counter = &plan->config.counter;
  const int64_t n = plan->config.jacobians;
  bppsa_scan_node *node = &plan->nodes[plan->node_count];
  bppsa_scan_counted counted;
  BPPSA_TRY(counter->count(counter->context, n - step->last + 1, n - step->split + 1, n - step->first + 1, &counted));
  if (!(counted.nnz < 0x1p62 && counted.ones < 0x1p62 && counted.flops < 0x1p62)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: %.3g FLOPs do not fit in 64 bits", counted.flops);
  }
  *node = (bppsa_scan_node){.first = step->first, .last = step->last, .owner = plan->node_count, .dead = step->level->dead};
  node->nnz = llround(counted.nnz);
  node->flops = llround(counted.flops);
  node->nnz_error = counted.nnz_error;
  node->flops_error = counted.flops_error;
  node->pattern = (bppsa_csr){.rows = left->rows, .cols = right->cols, .nnz = node->nnz, .identity = counted.identity};
  node->ones = (bppsa_csr){.rows = left->rows, .cols = right->cols, .nnz = llround(counted.ones)};
  node->pattern.ones = node->ones.nnz > 0 && !counted.identity ? &node->ones : NULL; /* nodes stay where they are */
  ++plan->node_count;
  return node->dead ? BPPSA_OK : add_bytes(plan, node->nnz, !left->identity && !right->identity, 0);
}

static bppsa_status add_node(bppsa_scan_plan *plan, const bppsa_scan_step *step) {
  const bppsa_scan_config *c = &plan->config;
  const bppsa_csr *left = bppsa_scan_csr_pattern(plan, step->split, step->last);
  const bppsa_csr *right = bppsa_scan_csr_pattern(plan, step->first, step->split - 1);
  const bool dead = step->level->dead;
  if (c->counter.count != NULL) {
    return count_node(plan, step, left, right);
  }
  bppsa_product_config config = {.dtype = c->dtype, .symbolic = c->symbolic || dead, .together = step->level->count};
  if (c->memory_limit > 0 && !dead) { /* at least 1 byte, because a limit of 0 means none */
    const int64_t room = c->memory_limit - plan->totals.workspace_bytes - plan->totals.plan_bytes;
    config.memory_limit = c->symbolic ? 0 : room > 0 ? room : 1;
  }
  bppsa_scan_node *node = &plan->nodes[plan->node_count];
  *node = (bppsa_scan_node){.first = step->first, .last = step->last, .owner = plan->node_count};
  if (c->symbolic) {
    node->left = class_of(plan, step->split, step->last);
    node->right = class_of(plan, step->first, step->split - 1);
    node->together = step->level->count;
    node->owner = find_owner(plan, node);
    node->product = plan->nodes[node->owner].product; /* NULL: the node's own, which is not made yet */
  }
  if (node->product == NULL) {
    const bool ones = c->symbolic && (left->ones != NULL || right->ones != NULL) && count_limit(c) > 0;
    const int64_t room = count_limit(c) - plan->counted;
    config.memory_limit = ones ? (room > 0 ? room : 1) : config.memory_limit;
    BPPSA_TRY(bppsa_product_create(left, right, &config, c->planner, &node->product));
    plan->counted += ones ? bppsa_product_get_info(node->product)->plan_bytes : 0;
  }
  ++plan->node_count;
  const bppsa_product_info *info = bppsa_product_get_info(node->product);
  node->nnz = info->nnz;
  node->flops = info->pair_flops;
  node->dead = dead;
  return dead ? BPPSA_OK
              : add_bytes(plan, info->nnz, info->kind != BPPSA_PRODUCT_IDENTITY, info->plan_bytes + info->workspace_bytes);
}

bppsa_status bppsa_scan_csr_apply_bytes(const bppsa_scan_plan *plan, const bppsa_device *device, int64_t *bytes) {
  const int64_t n = plan->config.jacobians;
  bool *seen = bppsa_calloc(n + plan->node_count + 1, sizeof *seen);
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  if (seen == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *bytes = 0;
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    if (step.level->op != BPPSA_OP_MV) {
      continue;
    }
    const int64_t at = step.first == step.last ? n - step.first : n + bppsa_scan_csr_find(plan, step.first, step.last);
    *bytes += seen[at] ? 0 : bppsa_apply_bytes(bppsa_scan_csr_pattern(plan, step.first, step.last), device);
    seen[at] = true;
  }
  bppsa_free(seen);
  return BPPSA_OK;
}

/* Adds the patterns that a GPU's mat-vecs read, besides those of the products. */
static bppsa_status add_patterns(bppsa_scan_plan *plan) {
  bppsa_scan_totals *t = &plan->totals;
  int64_t bytes = 0;
  if (plan->config.symbolic || plan->planner_kind == BPPSA_CPU) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_scan_csr_apply_bytes(plan, plan->config.planner, &bytes));
  t->plan_bytes += bytes;
  const int64_t limit = plan->config.memory_limit, all = t->workspace_bytes + t->plan_bytes;
  return limit > 0 && all > limit
             ? bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "scan plan: the products and %lld bytes of patterns need %lld bytes, the memory limit is %lld",
                          (long long)bytes, (long long)all, (long long)limit)
             : BPPSA_OK;
}

bppsa_status bppsa_scan_csr_nodes(bppsa_scan_plan *plan) {
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  int64_t count = 0;
  double flops = 0;
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    count += step.level->op == BPPSA_OP_MM;
  }
  plan->nodes = bppsa_calloc(count, sizeof *plan->nodes);
  if (plan->nodes == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(plan->config.symbolic && plan->config.counter.count == NULL ? make_classes(plan) : BPPSA_OK);
  it = (bppsa_scan_iterator){0};
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    if (step.level->op == BPPSA_OP_MM) {
      BPPSA_TRY(add_node(plan, &step));
      flops += (double)plan->nodes[plan->node_count - 1].flops;
    }
  }
  BPPSA_TRY(add_patterns(plan));
  return flops < 0x1p62 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_ARGUMENT, "scan plan: %.3g FLOPs do not fit in 64 bits", flops);
}

void bppsa_scan_csr_executed(bppsa_scan_plan *plan) {
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  while (plan->config.counter.count == NULL && bppsa_scan_plan_next(plan, &it, &step)) {
    const bool mm = step.level->op == BPPSA_OP_MM;
    const int64_t product = step.product != NULL ? bppsa_product_get_info(step.product)->executed_flops : 0;
    plan->totals.executed_flops += step.level->dead ? 0 : mm ? product : step.flops;
  }
}

/* Products are estimated independently. A product's FLOPs and its entries, which mat-vecs multiply, come of the same rows: their
 * errors are added as if they always went the same way, which is never too little. */
bppsa_status bppsa_scan_csr_errors(bppsa_scan_plan *plan) {
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  double *sums = plan->config.counter.count != NULL ? bppsa_calloc(2 * plan->node_count + 1, sizeof *sums) : NULL;
  if (sums == NULL) {
    return plan->config.counter.count != NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  }
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    const int64_t node = bppsa_scan_csr_find(plan, step.first, step.last);
    if (node >= 0 && !step.level->dead) {
      sums[2 * node] += step.flops_error;
      sums[2 * node + 1] += step.critical ? step.flops_error : 0;
    }
  }
  double squares[2] = {0, 0};
  for (int64_t i = 0; i < 2 * plan->node_count; ++i) {
    squares[i % 2] += sums[i] * sums[i];
  }
  plan->totals.flops_error = sqrt(squares[0]);
  plan->totals.critical_error = sqrt(squares[1]);
  bppsa_free(sums);
  return BPPSA_OK;
}

void bppsa_scan_csr_free(bppsa_scan_plan *plan) {
  for (int64_t i = plan->node_count - 1; i >= 0; --i) { /* later plans borrow the patterns of earlier ones */
    bppsa_product_destroy(plan->nodes[i].owner == i ? plan->nodes[i].product : NULL);
  }
  bppsa_free(plan->classes);
  bppsa_free(plan->nodes);
  bppsa_free(plan->patterns);
}

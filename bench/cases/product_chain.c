/* The products of a pruned VGG-11's scan as cases of `bench product`. */
#include <string.h>

#include "bench/cases/product_case.h"
#include "core/base/alloc.h"
#include "jacobian/network_ops.h"
#include "scan/plan.h"

/* An element, or a product of elements: the pattern is borrowed, the values are owned. */
typedef struct {
  int64_t first, last;
  const bppsa_csr *csr;
  float *values;
} element;

struct bppsa_product_chain {
  const bppsa_device *device;
  int64_t n, element_count, product_count;
  bppsa_jacobian *jacobians[BPPSA_NETWORK_OPS];
  const bppsa_csr *patterns[BPPSA_NETWORK_OPS];
  bppsa_scan_plan *plan;
  bppsa_scan_iterator at;
  element elements[2 * BPPSA_NETWORK_OPS]; /* a scan has fewer products than elements */
  bppsa_product *products[BPPSA_NETWORK_OPS];
  char name[BPPSA_OPERAND_TEXT];
};

static element *find(bppsa_product_chain *c, int64_t first, int64_t last) {
  element *e = c->elements;
  while (e->first != first || e->last != last) {
    ++e;
  }
  return e;
}

static bppsa_status fill(bppsa_product_chain *c, const bppsa_scan_method *method, double kept, uint64_t seed) {
  bppsa_named_op ops[BPPSA_NETWORK_OPS];
  BPPSA_TRY(bppsa_network_table("vgg11", ops, &c->n));
  for (int64_t t = 0; t < c->n; ++t) {
    element *e = &c->elements[c->element_count++];
    BPPSA_TRY(bppsa_bench_factor(&ops[t].op, kept, seed + (uint64_t)t, c->device, &c->jacobians[t], &e->values));
    c->patterns[t] = e->csr = bppsa_jacobian_pattern(c->jacobians[t]);
    e->first = e->last = c->n - t;
  }
  bppsa_scan_config config = bppsa_scan_config_default();
  config.element = BPPSA_ELEMENT_CSR;
  config.method = *method;
  config.jacobians = c->n;
  config.patterns = c->patterns;
  config.planner = c->device;
  config.symbolic = true;
  return bppsa_scan_plan_create(&config, &c->plan);
}

bppsa_status bppsa_product_chain_create(const bppsa_scan_method *method, double kept, uint64_t seed, const bppsa_device *device,
                                        bppsa_product_chain **chain) {
  bppsa_product_chain *c = bppsa_calloc(1, sizeof *c);
  if (c == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  c->device = device;
  const bppsa_status status = fill(c, method, kept, seed);
  if (status != BPPSA_OK) {
    bppsa_product_chain_destroy(c);
    return status;
  }
  *chain = c;
  return BPPSA_OK;
}

void bppsa_product_chain_destroy(bppsa_product_chain *c) {
  if (c == NULL) {
    return;
  }
  bppsa_scan_plan_destroy(c->plan);
  for (int64_t i = c->product_count - 1; i >= 0; --i) { /* later plans borrow the patterns of earlier ones */
    bppsa_product_destroy(c->products[i]);
  }
  for (int64_t i = 0; i < c->element_count; ++i) {
    bppsa_free(c->elements[i].values);
  }
  for (int64_t t = 0; t < BPPSA_NETWORK_OPS; ++t) {
    bppsa_jacobian_destroy(c->jacobians[t]);
  }
  bppsa_free(c);
}

/* Computes the product of two elements on the processor; later products take it as an operand. */
static bppsa_status multiply(bppsa_product_chain *c, const bppsa_scan_step *step, const element *left, const element *right) {
  const bppsa_product_config config = bppsa_product_config_default();
  bppsa_product *product = NULL;
  BPPSA_TRY(bppsa_product_create(left->csr, right->csr, &config, c->device, &product));
  c->products[c->product_count++] = product;
  element *e = &c->elements[c->element_count++];
  *e = (element){.first = step->first, .last = step->last, .csr = bppsa_product_pattern(product)};
  e->values = bppsa_alloc((size_t)e->csr->nnz * sizeof *e->values);
  return e->values == NULL ? BPPSA_ERR_MEMORY
                           : bppsa_product_execute(product, 1, (bppsa_csr_values){left->values, 0},
                                                   (bppsa_csr_values){right->values, 0}, e->values);
}

static bppsa_status copy_values(const element *e, float **copy) {
  *copy = bppsa_alloc((size_t)e->csr->nnz * sizeof **copy);
  if (*copy == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memcpy(*copy, e->values, (size_t)e->csr->nnz * sizeof **copy);
  return BPPSA_OK;
}

bppsa_status bppsa_product_chain_next(bppsa_product_chain *c, bppsa_product_case *made, bool *more) {
  bppsa_scan_step step;
  char left_text[BPPSA_OPERAND_TEXT], right_text[BPPSA_OPERAND_TEXT];
  *made = (bppsa_product_case){.name = c->name, .text = "a product of VGG-11's scan"};
  do {
    *more = bppsa_scan_plan_next(c->plan, &c->at, &step);
  } while (*more && (step.level->op != BPPSA_OP_MM || step.level->dead));
  if (!*more) {
    return BPPSA_OK;
  }
  const element *left = find(c, step.split, step.last), *right = find(c, step.first, step.split - 1);
  bppsa_scan_step_text(c->plan, &step, left_text, right_text, c->name);
  BPPSA_TRY(multiply(c, &step, left, right));
  made->a = left->csr;
  made->b = right->csr;
  BPPSA_TRY(copy_values(left, &made->a_values));
  return copy_values(right, &made->b_values);
}

/* The scan executor: argument checks and dispatch. */
#include "scan/scan.h"

#include "scan/algorithm_internal.h"
#include "scan/scan_internal.h"

static const bppsa_scan_element_row rows[BPPSA_ELEMENTS] = {
    [BPPSA_ELEMENT_DENSE] = {"dense",
                             {bppsa_scan_cpu_create, bppsa_scan_cuda_create},
                             {bppsa_scan_cpu_create, bppsa_scan_cuda_create}},
    [BPPSA_ELEMENT_DIAGONAL] = {"diagonal",
                                {bppsa_scan_cpu_create, bppsa_scan_cuda_create},
                                {bppsa_scan_cpu_create, bppsa_scan_cuda_create}},
    [BPPSA_ELEMENT_RECURRENT] = {"recurrent",
                                 {bppsa_scan_cpu_create, bppsa_scan_cuda_create},
                                 {bppsa_scan_cpu_create, bppsa_scan_cuda_create}},
    [BPPSA_ELEMENT_CSR] = {"csr",
                           {bppsa_scan_csr_create, bppsa_scan_csr_cuda_create},
                           {bppsa_scan_csr_create, bppsa_scan_csr_cuda_create}},
    [BPPSA_ELEMENT_PAIR] = {"pair",
                            {bppsa_scan_cpu_create, bppsa_scan_cuda_create},
                            {bppsa_scan_cpu_create, bppsa_scan_cuda_create}},
};

const bppsa_scan_element_row *bppsa_scan_element_find(bppsa_element element) {
  return (unsigned)element < BPPSA_ELEMENTS ? &rows[element] : NULL;
}

/* Does the device know the plan's algorithm? */
static bppsa_status check_plan(const bppsa_scan_plan *plan, const bppsa_device *device) {
  BPPSA_TRY(bppsa_scan_algorithm_check(bppsa_scan_plan_config(plan)->method.algorithm, bppsa_device_get_kind(device)));
  if (plan->row->slot_rule <= BPPSA_SLOT_NONE || plan->row->slot_rule >= BPPSA_SLOT_RULES) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "scan: device %s does not know rule %d for the slots of %s, expected 1 .. %d",
                      bppsa_device_get_name(device), (int)plan->row->slot_rule, plan->row->name, (int)BPPSA_SLOT_RULES - 1);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_scan_executor_create(const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor) {
  BPPSA_REQUIRE(plan != NULL && executor != NULL);
  BPPSA_TRY(check_plan(plan, device));
  return bppsa_scan_element_find(bppsa_scan_plan_config(plan)->element)
      ->create[bppsa_device_get_kind(device)](plan, device, executor);
}

bppsa_status bppsa_scan_executor_bytes(const bppsa_scan_plan *plan, const bppsa_device *device, int64_t *bytes) {
  BPPSA_REQUIRE(plan != NULL && device != NULL && bytes != NULL);
  if (!bppsa_scan_shares(bppsa_scan_plan_config(plan))) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "memory of a scan of %s elements, expected recurrent or pair ones",
                      bppsa_scan_element_find(bppsa_scan_plan_config(plan)->element)->name);
  }
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    *bytes = 0;
    return BPPSA_OK;
  }
  return bppsa_scan_cuda_bytes(plan, bytes);
}

bppsa_status bppsa_scan_executor_create_in(const bppsa_scan_plan *plan, const bppsa_device *device, void *memory,
                                           bppsa_scan_executor **executor) {
  BPPSA_REQUIRE(plan != NULL && device != NULL && executor != NULL);
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    return bppsa_scan_executor_create(plan, device, executor);
  }
  BPPSA_REQUIRE(memory != NULL && bppsa_scan_shares(bppsa_scan_plan_config(plan)));
  BPPSA_TRY(check_plan(plan, device));
  return bppsa_scan_cuda_create_in(plan, device, memory, executor);
}

void bppsa_scan_executor_destroy(bppsa_scan_executor *executor) {
  if (executor != NULL) {
    executor->destroy(executor);
  }
}

bppsa_status bppsa_scan_executor_count(bppsa_scan_executor *executor) {
  BPPSA_REQUIRE(executor != NULL);
  return executor->count_redone == NULL ? BPPSA_OK : executor->count_redone(executor);
}

static bppsa_status refuse_forward(const bppsa_scan_operands *o, const char *where) {
  return !o->forward && !o->transposed ? BPPSA_OK
                                       : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "scan: %s operands %s, expected a chain of gradients",
                                                    o->forward ? "forward" : "transposed", where);
}

static bppsa_status check_present(const bppsa_scan_plan *plan, const bppsa_scan_operands *o) {
  const bppsa_scan_config *c = bppsa_scan_plan_config(plan);
  if (o->batch < 1 || o->batch > c->batch) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan: batch %lld, expected 1 .. %lld as planned", (long long)o->batch,
                      (long long)c->batch);
  }
  if (o->cuts != NULL && !bppsa_scan_shares(c)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan: cuts in a chain of %s elements, expected recurrent ones or pairs",
                      bppsa_scan_element_find(c->element)->name);
  }
  const char *missing = NULL;
  if (o->gradients == NULL) {
    missing = "gradients";
  } else if (c->affine && o->injected == NULL) {
    missing = "injected gradients";
  } else if (bppsa_scan_shares(c)) {
    missing = o->weights == NULL ? "weights" : o->columns == NULL ? "columns" : NULL;
    for (int64_t k = 0; missing == NULL && k < c->matrices; ++k) {
      missing = o->weights[k] == NULL || o->columns[k] == NULL ? "a weight or column factor" : NULL;
    }
    if (missing == NULL && c->element == BPPSA_ELEMENT_PAIR && o->columns[c->matrices] == NULL) {
      missing = "the column factor from h to c";
    }
    missing = missing == NULL && c->diagonal && o->diagonal == NULL ? "diagonal" : missing;
  } else if (c->element == BPPSA_ELEMENT_CSR) {
    missing = o->values == NULL ? "values" : NULL;
    for (int64_t t = c->input ? 0 : 1; missing == NULL && t < c->jacobians; ++t) { /* J_1ᵀ is needed for g_0 only */
      missing = o->values[t].data == NULL && !bppsa_csr_only_ones(c->patterns[t]) ? "the values of an element" : NULL;
    }
  } else if (o->jt == NULL) {
    missing = "transposed Jacobians";
  }
  if (bppsa_scan_shares(c) && o->weight_row != 0 && o->weight_row < bppsa_scan_shared_dim(c)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan: rows of weights %lld elements apart, expected 0 or at least %lld",
                      (long long)o->weight_row, (long long)bppsa_scan_shared_dim(c));
  }
  if (missing != NULL && c->jacobians > 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan: operand '%s' is missing", missing);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_scan_check_operands(const bppsa_scan_plan *plan, const bppsa_scan_operands *o) {
  BPPSA_TRY(refuse_forward(o, "where a local scan on a CPU is not run"));
  return check_present(plan, o);
}

bppsa_status bppsa_scan_check_cpu_operands(const bppsa_scan_plan *plan, const bppsa_scan_operands *o) {
  const bppsa_scan_config *c = bppsa_scan_plan_config(plan);
  BPPSA_TRY(c->dims != NULL ? refuse_forward(o, "of differing sizes") : BPPSA_OK);
  if (o->transposed && c->element != BPPSA_ELEMENT_DENSE) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scan: transposed operands of %s elements, expected dense ones",
                      bppsa_scan_element_find(c->element)->name);
  }
  return check_present(plan, o);
}

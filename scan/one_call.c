/* A scan in one call. */
#include "scan/one_call.h"

#include "scan/scan.h"

/* words: the shape in letters. */
static bppsa_status check_array(const bppsa_device *device, const char *what, const bppsa_view *view, bppsa_dtype dtype,
                                const char *words, int32_t ndim, const int64_t *shape) {
  if (view->dtype != dtype) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %s, expected %s as jt", what, bppsa_dtype_name(view->dtype), bppsa_dtype_name(dtype));
  }
  BPPSA_TRY(bppsa_view_check_shape(what, view, words, ndim, shape));
  if (!bppsa_view_contiguous(view)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: with gaps between its numbers, expected row-major without gaps", what);
  }
  if (view->device != bppsa_device_get_kind(device)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: an array of another device, expected one in the memory of %s", what,
                      bppsa_device_get_name(device));
  }
  return bppsa_view_check_data(what, view);
}

static bppsa_status check_arrays(const bppsa_device *device, const bppsa_view *jt, const bppsa_view *u, const bppsa_view *g) {
  char found[BPPSA_SHAPE_TEXT];
  if ((jt->dtype != BPPSA_F32 && jt->dtype != BPPSA_F64) || (jt->ndim != 3 && jt->ndim != 4) || jt->shape[1] < 1 ||
      jt->shape[2] < 1) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "jt: %s %s, expected f32 or f64 [T, B, H, H], or [T, B, H] for diagonals",
                      bppsa_dtype_name(jt->dtype), bppsa_shape_text(jt->ndim, jt->shape, found, sizeof found));
  }
  const int64_t steps = jt->shape[0], batch = jt->shape[1], size = jt->shape[2];
  const int64_t square[] = {steps, batch, size, size}, rows[] = {steps, batch, size}, states[] = {steps + 1, batch, size};
  BPPSA_TRY(check_array(device, "jt", jt, jt->dtype, "[T, B, H, H]", jt->ndim, square));
  BPPSA_TRY(u == NULL ? BPPSA_OK : check_array(device, "u", u, jt->dtype, "[T, B, H]", 3, rows));
  return check_array(device, "g", g, jt->dtype, "[T+1, B, H]", 3, states);
}

static bppsa_status execute(const bppsa_device *device, const bppsa_scan_plan *plan, const bppsa_scan_operands *operands) {
  bppsa_scan_executor *executor;
  BPPSA_TRY(bppsa_scan_executor_create(plan, device, &executor));
  bppsa_status status = executor->execute(executor, operands);
  if (status == BPPSA_OK) { /* a GPU has only been given the work, which uses the executor's memory */
    status = bppsa_device_wait(device);
  }
  bppsa_scan_executor_destroy(executor);
  return status;
}

bppsa_status bppsa_scan(const bppsa_device *device, const bppsa_view *jt, const bppsa_view *u, const bppsa_view *g,
                        const bppsa_scan_method *method) {
  BPPSA_REQUIRE(device != NULL && jt != NULL && g != NULL);
  BPPSA_TRY(check_arrays(device, jt, u, g));
  if (jt->shape[0] == 0) {
    return BPPSA_OK;
  }
  bppsa_scan_config config = bppsa_scan_config_default();
  config.method = method != NULL ? *method : bppsa_scan_method_of(BPPSA_SCAN_AUTO);
  config.element = jt->ndim == 3 ? BPPSA_ELEMENT_DIAGONAL : BPPSA_ELEMENT_DENSE;
  config.dtype = jt->dtype;
  config.jacobians = jt->shape[0];
  config.batch = jt->shape[1];
  config.dim = jt->shape[2];
  config.affine = u != NULL;
  config.input = true;
  config.device = bppsa_device_get_kind(device);
  bppsa_scan_plan *plan;
  BPPSA_TRY(bppsa_scan_plan_create(&config, &plan));
  const bppsa_scan_operands operands = {
      .batch = config.batch, .jt = jt->data, .injected = u != NULL ? u->data : NULL, .gradients = g->data};
  const bppsa_status status = execute(device, plan, &operands);
  bppsa_scan_plan_destroy(plan);
  return status;
}

#include "core/compute/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/compute/memory.h"

static const bppsa_view *find_value(int64_t count, const bppsa_named_view *values, const char *name) {
  for (int64_t i = 0; i < count; ++i) {
    if (strcmp(values[i].name, name) == 0) {
      return &values[i].view;
    }
  }
  return NULL;
}

/* Checks that no finite f64 value becomes infinite in f32. */
static bppsa_status check_range(const char *where, const bppsa_parameter *parameter, const bppsa_view *value) {
  const int64_t count = value->dtype == BPPSA_F64 && parameter->value.dtype == BPPSA_F32 ? bppsa_view_count(value) : 0;
  for (int64_t i = 0; i < count; ++i) {
    const double number = bppsa_view_get(value, i);
    if (isfinite(number) && !isfinite((float)number)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s: element %lld is %g, beyond f32, expected dtype f64 or smaller weights", where,
                        parameter->name, (long long)i, number);
    }
  }
  return BPPSA_OK;
}

static bppsa_status check_value(const char *where, const bppsa_parameter *parameter, const bppsa_view *value) {
  if (value == NULL) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\" is missing", where, parameter->name);
  }
  if (value->dtype != BPPSA_F32 && value->dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\": dtype %s, expected f32 or f64", where, parameter->name,
                      bppsa_view_dtype_name(value));
  }
  if (!bppsa_view_same_shape(value, &parameter->value)) {
    char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: \"%s\": shape %s, expected %s", where, parameter->name,
                      bppsa_shape_text(value->ndim, value->shape, found, sizeof found),
                      bppsa_shape_text(parameter->value.ndim, parameter->value.shape, expected, sizeof expected));
  }
  if (value->device != BPPSA_CPU || !bppsa_view_contiguous(value)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: \"%s\": expected a contiguous array in host memory", where, parameter->name);
  }
  BPPSA_TRY(bppsa_view_check_data(parameter->name, value));
  return check_range(where, parameter, value);
}

bppsa_status bppsa_model_delay(bppsa_model *model, int64_t k, bppsa_delayed *delayed) {
  BPPSA_REQUIRE(model != NULL && delayed != NULL);
  if (model->ops->delay == NULL || model->device != NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "%s: its weight gradients cannot be put off, expected a network of operators in host memory",
                      model->ops->name);
  }
  return model->ops->delay(model, k > 0 ? k : 0, delayed);
}

bppsa_status bppsa_model_set(bppsa_model *model, const char *where, int64_t count, const bppsa_named_view *values) {
  BPPSA_REQUIRE(model != NULL && where != NULL);
  BPPSA_REQUIRE(count >= 0 && (values != NULL || count == 0));
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    const bppsa_parameter *parameter = &model->parameters[p];
    BPPSA_TRY(check_value(where, parameter, find_value(count, values, parameter->name)));
  }
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    const bppsa_parameter *parameter = &model->parameters[p];
    BPPSA_TRY(bppsa_view_convert(find_value(count, values, parameter->name), &parameter->value));
  }
  return bppsa_model_push(model);
}

bppsa_status bppsa_model_forward(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, const bppsa_spans *spans,
                                 bppsa_view *logits) {
  BPPSA_REQUIRE(model != NULL && x != NULL && logits != NULL);
  if (spans == NULL || (spans->lengths == NULL && spans->resets == NULL)) {
    return model->ops->forward(model, x, h0, logits);
  }
  return model->ops->forward_spans != NULL
             ? model->ops->forward_spans(model, x, h0, spans, logits)
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: takes no %s of samples, expected a recurrent network that is not cut",
                          model->ops->name, spans->lengths != NULL ? "lengths" : "resets");
}

bppsa_status bppsa_model_backward(bppsa_model *model, const bppsa_view *seed) {
  BPPSA_REQUIRE(model != NULL && seed != NULL);
  return model->ops->backward(model, seed);
}

void bppsa_model_drop(bppsa_model *model, int64_t step, const int64_t *samples) {
  if (model->ops->drop != NULL) {
    model->ops->drop(model, step, samples);
  }
}

void bppsa_model_forget(bppsa_model *model) {
  if (model->ops->forget != NULL) {
    model->ops->forget(model);
  }
}

bppsa_status bppsa_model_push(bppsa_model *model) {
  BPPSA_REQUIRE(model != NULL);
  return model->device == NULL ? BPPSA_OK
                               : bppsa_memory_put(model->device, model->device_values, model->parameters[0].value.data,
                                                  model->reals * (int64_t)bppsa_dtype_size(model->dtype));
}

bppsa_status bppsa_model_update_redone(bppsa_model *model) {
  BPPSA_REQUIRE(model != NULL);
  return model->ops->count == NULL ? BPPSA_OK : model->ops->count(model);
}

const char *bppsa_pass_name(bppsa_pass pass) {
  static const char *const names[BPPSA_PASS_KINDS] = {[BPPSA_PASS_FORWARD] = "forward", [BPPSA_PASS_BACKWARD] = "backward"};
  return names[pass];
}

const bppsa_model_account *bppsa_model_get_account(const bppsa_model *model, bppsa_pass pass) {
  const bppsa_model *inner = model->ops->inner != NULL ? model->ops->inner(model) : model;
  return inner->ops->account != NULL ? inner->ops->account(inner, pass) : NULL;
}

bppsa_status bppsa_model_add_pass(bppsa_model *model, bppsa_pass pass, double *sums) {
  BPPSA_REQUIRE(model != NULL && (unsigned)pass < BPPSA_PASS_KINDS && sums != NULL);
  const bppsa_model_account *account = bppsa_model_get_account(model, pass);
  double numbers[BPPSA_ACCOUNT_NUMBERS];
  if (account != NULL) {
    BPPSA_TRY(account->latest(model, numbers));
    account->add(sums, numbers);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_model_pull(bppsa_model *model, bool gradients) {
  BPPSA_REQUIRE(model != NULL);
  if (model->device == NULL) {
    return BPPSA_OK;
  }
  const bppsa_parameter *first = &model->parameters[0];
  return bppsa_memory_get(model->device, gradients ? first->gradient.data : first->value.data,
                          gradients ? model->device_gradients : model->device_values,
                          model->reals * (int64_t)bppsa_dtype_size(model->dtype));
}

/* K of a name that ends in _lK, as in PyTorch's recurrent layers; -1 for other names. */
static int64_t layer_of(const char *name) {
  const char *suffix = strrchr(name, '_');
  if (suffix == NULL || suffix[1] != 'l' || suffix[2] == '\0' || strspn(suffix + 2, "0123456789") != strlen(suffix + 2) ||
      strlen(suffix + 2) > 9) {
    return -1;
  }
  int64_t layer = 0;
  for (const char *digit = suffix + 2; *digit != '\0'; ++digit) {
    layer = 10 * layer + (*digit - '0');
  }
  return layer;
}

void bppsa_model_scale_gradients(const bppsa_model *model, double factor) {
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    bppsa_view_scale(&model->parameters[i].gradient, factor);
  }
}

bool bppsa_model_parameter_nonfinite(const bppsa_model *model, bool gradient, bppsa_nonfinite *where) {
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    const bppsa_parameter *parameter = &model->parameters[p];
    const bppsa_view *view = gradient ? &parameter->gradient : &parameter->value;
    const int64_t n = bppsa_view_count(view);
    for (int64_t i = 0; i < n; ++i) {
      if (!isfinite(bppsa_view_get(view, i))) {
        *where = (bppsa_nonfinite){.what = gradient ? "gradient of" : "value of",
                                   .name = parameter->name,
                                   .layer = layer_of(parameter->name),
                                   .step = -1,
                                   .sample = -1};
        return true;
      }
    }
  }
  return false;
}

void bppsa_model_destroy(bppsa_model *model) {
  if (model != NULL) {
    model->ops->destroy(model);
  }
}

bppsa_status bppsa_model_fail_nonfinite(bppsa_model *model, const char *what) {
  BPPSA_REQUIRE(model != NULL && what != NULL);
  bppsa_nonfinite where;
  if (!model->ops->find_nonfinite(model, &where)) {
    where = (bppsa_nonfinite){.what = what, .layer = -1, .step = -1, .sample = -1};
  }
  char place[120] = "";
  size_t used = 0;
  const struct {
    const char *what;
    int64_t value;
  } parts[] = {{"layer", where.layer}, {"step", where.step}, {"sample", where.sample}};
  for (size_t i = 0; i < 3; ++i) {
    if (parts[i].value >= 0) {
      used += (size_t)snprintf(place + used, sizeof place - used, "%s%s %" PRId64, used == 0 ? " at " : ", ", parts[i].what,
                               parts[i].value);
    }
  }
  return bppsa_fail(BPPSA_ERR_NUMERIC, "%s%s%s%s: not finite, expected finite values", where.what, where.name != NULL ? " " : "",
                    where.name != NULL ? where.name : "", place);
}

/* What a node of an ONNX model reads and gives: inputs, attributes, outputs. */
#include <math.h>
#include <string.h>

#include "cnn/onnx_internal.h"
#include "core/base/alloc.h"
#include "core/base/number.h"

/* ---- inputs ---- */

static const char *input_name(const onnx_reader *r, size_t k) {
  return k < r->node->n_input && r->node->input[k] != NULL ? r->node->input[k] : "";
}

bppsa_status bppsa_onnx_input(const onnx_reader *r, size_t k, onnx_value **value) {
  const char *name = input_name(r, k);
  const json_t *place = name[0] != '\0' ? json_object_get(r->names, name) : NULL;
  *value = place != NULL ? &r->values[json_integer_value(place)] : NULL;
  return place != NULL || name[0] == '\0'
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT, "input '%.60s': no node before gives it, expected one", name);
}

/* Input k, which must be there. */
static bppsa_status needed(const onnx_reader *r, size_t k, onnx_value **value) {
  BPPSA_TRY(bppsa_onnx_input(r, k, value));
  return *value != NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_FORMAT, "%zu inputs, expected input %zu too", r->node->n_input, k);
}

bppsa_status bppsa_onnx_activation(const onnx_reader *r, size_t k, onnx_value **value) {
  onnx_value *found = NULL;
  BPPSA_TRY(needed(r, k, &found));
  if (found->constant) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "input '%.60s' is a constant, expected what depends on the network's input",
                      found->name);
  }
  if (found->step != ONNX_PLAIN) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "input '%.60s' is a part of x (1 + erf(x / sqrt(2))) / 2, expected all of it (gelu)",
                      found->name);
  }
  *value = found;
  return BPPSA_OK;
}

bppsa_status bppsa_onnx_constant(const onnx_reader *r, size_t k, onnx_value **value) {
  onnx_value *found = NULL;
  BPPSA_TRY(needed(r, k, &found));
  if (!found->constant) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "input '%.60s' depends on the network's input, expected a constant", found->name);
  }
  *value = found;
  return BPPSA_OK;
}

bppsa_status bppsa_onnx_scalar(const onnx_value *value, double *number) {
  return bppsa_view_count(&value->view) == 1 && bppsa_number_real(&value->view, 0, number)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "input '%.60s' has %lld numbers, expected one", value->name,
                          (long long)bppsa_view_count(&value->view));
}

bppsa_status bppsa_onnx_wholes(const onnx_value *value, int64_t numbers[ONNX_DIMS], int *count) {
  const int64_t found = bppsa_view_count(&value->view);
  bool good = found <= ONNX_DIMS;
  for (int64_t i = 0; good && i < found; ++i) {
    good = bppsa_number_whole(&value->view, i, &numbers[i]);
  }
  *count = good ? (int)found : 0;
  return good ? BPPSA_OK
              : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "input '%.60s' has %lld elements of %s, expected at most %d whole numbers",
                           value->name, (long long)found, bppsa_view_dtype_name(&value->view), ONNX_DIMS);
}

int64_t bppsa_onnx_readers(const onnx_reader *r, const char *name) {
  return json_integer_value(json_object_get(r->readers, name));
}

/* ---- attributes ---- */

const BppsaOnnx__Attribute *bppsa_onnx_attribute(const onnx_reader *r, const char *name) {
  for (size_t i = 0; i < r->node->n_attribute; ++i) {
    if (r->node->attribute[i]->name != NULL && strcmp(r->node->attribute[i]->name, name) == 0) {
      return r->node->attribute[i];
    }
  }
  return NULL;
}

int64_t bppsa_onnx_whole(const onnx_reader *r, const char *name, int64_t fallback) {
  const BppsaOnnx__Attribute *a = bppsa_onnx_attribute(r, name);
  return a != NULL ? a->i : fallback;
}

/* A number in few decimal digits that becomes this float: 0.01, and not 0.00999999977648258. */
static double widen(float number) {
  double scale = 1;
  for (int digits = 0; digits < 15; ++digits, scale *= 10) {
    const double decimal = round((double)number * scale) / scale;
    if ((float)decimal == number) {
      return decimal;
    }
  }
  return (double)number;
}

double bppsa_onnx_real(const onnx_reader *r, const char *name, double fallback) {
  const BppsaOnnx__Attribute *a = bppsa_onnx_attribute(r, name);
  return a != NULL ? widen(a->f) : fallback;
}

bppsa_status bppsa_onnx_list(const onnx_reader *r, const char *name, int count, int64_t *numbers) {
  const BppsaOnnx__Attribute *a = bppsa_onnx_attribute(r, name);
  if (a == NULL) {
    return BPPSA_OK;
  }
  if (a->n_ints != (size_t)count) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %zu numbers, expected %d", name, a->n_ints, count);
  }
  for (int i = 0; i < count; ++i) {
    numbers[i] = a->ints[i];
  }
  return BPPSA_OK;
}

bool bppsa_onnx_is(const onnx_reader *r, const char *name, const char *text) {
  const BppsaOnnx__Attribute *a = bppsa_onnx_attribute(r, name);
  return a != NULL && a->has_s && a->s.len == strlen(text) && memcmp(a->s.data, text, a->s.len) == 0;
}

/* ---- outputs ---- */

bppsa_status bppsa_onnx_define_name(onnx_reader *r, const char *name, onnx_value value) {
  if (json_object_get(r->names, name) != NULL) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "'%.60s' is given twice, expected once", name);
  }
  BPPSA_TRY(bppsa_grow(&r->values, r->value_count, &r->value_room, sizeof *r->values));
  value.name = name;
  r->values[r->value_count] = value;
  if (json_object_set_new(r->names, name, json_integer((json_int_t)r->value_count)) != 0) {
    return bppsa_json_out_of_memory() ? BPPSA_ERR_MEMORY
                                      : bppsa_fail(BPPSA_ERR_FORMAT, "the name '%.60s' is no UTF-8, expected a text", name);
  }
  r->value_count += 1;
  return BPPSA_OK;
}

bppsa_status bppsa_onnx_define(onnx_reader *r, size_t k, onnx_value value) {
  const char *name = k < r->node->n_output ? r->node->output[k] : NULL;
  return name == NULL || name[0] == '\0' ? BPPSA_OK : bppsa_onnx_define_name(r, name, value);
}

bppsa_status bppsa_onnx_define_wholes(onnx_reader *r, bool vector, int count, const int64_t *numbers) {
  int64_t *data = bppsa_onnx_own(r, (int64_t)sizeof *data * count);
  const int64_t shape = count;
  if (data == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memcpy(data, numbers, (size_t)count * sizeof *data);
  return bppsa_onnx_define(r, 0,
                           (onnx_value){.constant = true, .view = bppsa_view_make(data, BPPSA_I64, vector ? 1 : 0, &shape)});
}

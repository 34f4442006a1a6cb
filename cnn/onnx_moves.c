/* Nodes that give tensors another shape or order, and the constants from which exporters compute such shapes. */
#include <string.h>

#include "cnn/onnx_internal.h"

/* ---- constants ---- */

bppsa_status bppsa_onnx_constant_node(onnx_reader *r) {
  const BppsaOnnx__Attribute *a = bppsa_onnx_attribute(r, "value");
  onnx_value value = {.constant = true};
  if (a != NULL && a->t != NULL) {
    BPPSA_TRY(bppsa_onnx_tensor(r, a->t, &value.view));
    return bppsa_onnx_define(r, 0, value);
  }
  const int64_t count = 1;
  if ((a = bppsa_onnx_attribute(r, "value_float")) != NULL || (a = bppsa_onnx_attribute(r, "value_floats")) != NULL) {
    const bool one = a->n_floats == 0;
    value.view = bppsa_view_make(one ? (void *)&a->f : a->floats, BPPSA_F32, one ? 0 : 1,
                                 one ? &count : (int64_t[]){(int64_t)a->n_floats});
    return bppsa_onnx_define(r, 0, value);
  }
  if ((a = bppsa_onnx_attribute(r, "value_int")) != NULL) {
    return bppsa_onnx_define_wholes(r, false, 1, &a->i);
  }
  if ((a = bppsa_onnx_attribute(r, "value_ints")) != NULL && a->n_ints <= ONNX_DIMS) {
    return bppsa_onnx_define_wholes(r, true, (int)a->n_ints, a->ints);
  }
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "no value that is read, expected a tensor, numbers, or at most %d whole numbers",
                    ONNX_DIMS);
}

/* [N, C, H, W] of an activation. Returns the number of its axes. */
static int dims_of(const onnx_reader *r, const onnx_value *value, int64_t dims[ONNX_DIMS]) {
  const int64_t *shape = bppsa_onnx_shape(r, value);
  dims[0] = r->batch == ONNX_UNKNOWN_BATCH ? ONNX_BATCH : r->batch;
  dims[1] = shape[0];
  dims[2] = shape[value->axes == 3 ? 2 : 1];
  dims[3] = shape[2];
  return value->axes;
}

bppsa_status bppsa_onnx_shape_node(onnx_reader *r) {
  onnx_value *value = NULL;
  int64_t dims[ONNX_DIMS];
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  const int axes = dims_of(r, value, dims);
  int64_t start = bppsa_onnx_whole(r, "start", 0), end = bppsa_onnx_whole(r, "end", axes);
  start = start < 0 ? start + axes : start;
  end = end < 0 ? end + axes : end;
  if (start < 0 || start > end || end > axes) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "axes %lld to %lld, expected some of %d", (long long)start, (long long)end, axes);
  }
  return bppsa_onnx_define_wholes(r, true, (int)(end - start), dims + start);
}

bppsa_status bppsa_onnx_gather(onnx_reader *r) {
  onnx_value *data = NULL, *index = NULL;
  int64_t numbers[ONNX_DIMS], places[ONNX_DIMS], taken[ONNX_DIMS];
  int count, many;
  BPPSA_TRY(bppsa_onnx_constant(r, 0, &data));
  BPPSA_TRY(bppsa_onnx_constant(r, 1, &index));
  BPPSA_TRY(bppsa_onnx_wholes(data, numbers, &count));
  BPPSA_TRY(bppsa_onnx_wholes(index, places, &many));
  for (int i = 0; i < many; ++i) {
    const int64_t place = places[i] < 0 ? places[i] + count : places[i];
    if (place < 0 || place >= count || data->view.ndim != 1) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "index %lld, expected one of a list of %d", (long long)places[i], count);
    }
    taken[i] = numbers[place];
  }
  return bppsa_onnx_define_wholes(r, index->view.ndim > 0, many, taken);
}

/* Puts constants behind each other. */
static bppsa_status concat_constants(onnx_reader *r) {
  int64_t all[ONNX_DIMS], numbers[ONNX_DIMS];
  int total = 0;
  for (size_t k = 0; k < r->node->n_input; ++k) {
    onnx_value *value = NULL;
    int count;
    BPPSA_TRY(bppsa_onnx_constant(r, k, &value));
    BPPSA_TRY(bppsa_onnx_wholes(value, numbers, &count));
    if (count > ONNX_DIMS - total) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "more than %d whole numbers, expected at most those", ONNX_DIMS);
    }
    memcpy(all + total, numbers, (size_t)count * sizeof *all);
    total += count;
  }
  return bppsa_onnx_define_wholes(r, true, total, all);
}

/* Hands input 0 on as it is. */
bppsa_status bppsa_onnx_identity(onnx_reader *r) {
  onnx_value *value = NULL;
  BPPSA_TRY(bppsa_onnx_input(r, 0, &value));
  if (value == NULL) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "no input, expected one");
  }
  onnx_value given = *value;
  given.own = false;
  return bppsa_onnx_define(r, 0, given);
}

/* Conversions matter to constants alone, where whole numbers stay what they are. */
bppsa_status bppsa_onnx_cast(onnx_reader *r) {
  onnx_value *value = NULL;
  int64_t numbers[ONNX_DIMS];
  int count;
  BPPSA_TRY(bppsa_onnx_constant(r, 0, &value));
  BPPSA_TRY(bppsa_onnx_wholes(value, numbers, &count));
  return bppsa_onnx_define_wholes(r, value->view.ndim > 0, count, numbers);
}

bppsa_status bppsa_onnx_compute(onnx_reader *r, char sign) {
  onnx_value *values[2] = {NULL};
  int64_t numbers[2][ONNX_DIMS], made[ONNX_DIMS];
  int counts[2] = {0};
  for (size_t k = 0; k < 2; ++k) {
    BPPSA_TRY(bppsa_onnx_constant(r, k, &values[k]));
    BPPSA_TRY(bppsa_onnx_wholes(values[k], numbers[k], &counts[k]));
  }
  const int count = counts[0] > counts[1] ? counts[0] : counts[1];
  for (int i = 0; i < count; ++i) {
    const int64_t a = numbers[0][counts[0] == 1 ? 0 : i], b = numbers[1][counts[1] == 1 ? 0 : i];
    const bool fits = a >= -INT32_MAX && a <= INT32_MAX && b >= -INT32_MAX && b <= INT32_MAX && (sign != '/' || b != 0);
    if ((counts[0] != count && counts[0] != 1) || (counts[1] != count && counts[1] != 1) || !fits) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "constants that are no shapes, expected as many whole numbers up to 2^31");
    }
    made[i] = sign == '+' ? a + b : sign == '*' ? a * b : a / b;
  }
  return bppsa_onnx_define_wholes(r, values[0]->view.ndim > 0 || values[1]->view.ndim > 0, count, made);
}

/* ---- other shapes ---- */

/* The activation with `count` extents besides the batch: the same layer where these are its own, otherwise a layer more. */
static bppsa_status give_shape(onnx_reader *r, onnx_value *value, int count, const int64_t *dims) {
  const int64_t *in = bppsa_onnx_shape(r, value);
  const int64_t shape[3] = {dims[0], count == 3 ? dims[1] : 1, count == 3 ? dims[2] : count == 2 ? dims[1] : 1};
  onnx_value given = *value;
  given.axes = count + 1;
  given.own = false;
  if (memcmp(shape, in, sizeof shape) == 0) {
    return bppsa_onnx_define(r, 0, given);
  }
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_FLATTEN)};
  if (count > 1) {
    layer.node = BPPSA_CNN_RESHAPE;
    layer.extents = 3;
    memcpy(layer.shape, shape, sizeof shape);
  } else if (shape[0] != in[0] * in[1] * in[2]) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%lld values, expected %lld", (long long)shape[0], (long long)(in[0] * in[1] * in[2]));
  }
  BPPSA_TRY(bppsa_onnx_append(r, &layer, 1, &value, NULL, &given.layer));
  return bppsa_onnx_define(r, 0, given);
}

/* Replaces 0 by the input's extent and one -1 by what is left; count: with the batch. */
static bppsa_status settle(const onnx_reader *r, const onnx_value *value, bool zeros, int count, int64_t *dims) {
  int64_t in[ONNX_DIMS] = {0}, left = 1;
  const int axes = dims_of(r, value, in);
  int open = -1;
  for (int i = 1; i < axes; ++i) {
    left *= in[i]; /* at most 2^31 - 1 */
  }
  for (int i = 0; i < count; ++i) {
    dims[i] = dims[i] == 0 && zeros && i < axes ? in[i] : dims[i];
    if (dims[i] == -1 && open < 0) {
      open = i;
    } else if (i > 0) {
      left = dims[i] > 0 && left % dims[i] == 0 ? left / dims[i] : 0;
    }
  }
  const bool batch = dims[0] == in[0] || open == 0;
  if (open > 0) {
    dims[open] = left;
  }
  return count >= 2 && count <= 4 && batch && left > 0 && (open > 0 || left == 1)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                          "another number of values of a sample, or of axes, expected [N, ..] with 2 to 4 axes, "
                          "N being the batch");
}

bppsa_status bppsa_onnx_reshape(onnx_reader *r) {
  onnx_value *value = NULL, *shape = NULL;
  int64_t dims[ONNX_DIMS];
  int count;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  BPPSA_TRY(bppsa_onnx_constant(r, 1, &shape));
  BPPSA_TRY(bppsa_onnx_wholes(shape, dims, &count));
  BPPSA_TRY(settle(r, value, bppsa_onnx_whole(r, "allowzero", 0) == 0, count, dims));
  return give_shape(r, value, count - 1, dims + 1);
}

bppsa_status bppsa_onnx_flatten(onnx_reader *r) {
  onnx_value *value = NULL;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  const int64_t axis = bppsa_onnx_whole(r, "axis", 1), *in = bppsa_onnx_shape(r, value);
  return axis == 1 || axis == 1 - value->axes
             ? give_shape(r, value, 1, &(int64_t){in[0] * in[1] * in[2]})
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "axis %lld, expected 1: all but the batch", (long long)axis);
}

/* The axes of Squeeze, Unsqueeze and the like, an input; of `axes` in all. */
static bppsa_status read_axes(onnx_reader *r, int axes, int64_t places[ONNX_DIMS], int *count) {
  onnx_value *list;
  BPPSA_TRY(bppsa_onnx_constant(r, 1, &list));
  BPPSA_TRY(bppsa_onnx_wholes(list, places, count));
  for (int i = 0; i < *count; ++i) {
    const int64_t asked = places[i];
    places[i] = asked < 0 ? asked + axes : asked;
    if (places[i] < 1 || places[i] >= axes) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "axis %lld, expected one of 1 .. %d", (long long)asked, axes - 1);
    }
  }
  return BPPSA_OK;
}

static bool has(int count, const int64_t *list, int64_t number) {
  int i = 0;
  while (i < count && list[i] != number) {
    ++i;
  }
  return i < count;
}

/* A constant of one number becomes a list, and the reverse. */
static bppsa_status squeeze_constant(onnx_reader *r, const onnx_value *value, bool vector) {
  int64_t numbers[ONNX_DIMS];
  int count;
  BPPSA_TRY(bppsa_onnx_wholes(value, numbers, &count));
  return count == 1 ? bppsa_onnx_define_wholes(r, vector, 1, numbers)
                    : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "a constant of %d numbers, expected one", count);
}

bppsa_status bppsa_onnx_squeeze(onnx_reader *r) {
  onnx_value *value = NULL;
  int64_t dims[ONNX_DIMS], places[ONNX_DIMS];
  int count, kept = 0;
  BPPSA_TRY(bppsa_onnx_input(r, 0, &value));
  if (value != NULL && value->constant) {
    return squeeze_constant(r, value, false);
  }
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  const int axes = dims_of(r, value, dims);
  BPPSA_TRY(read_axes(r, axes, places, &count));
  for (int i = 1; i < axes; ++i) {
    const bool gone = has(count, places, i);
    if (gone && dims[i] != 1) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "axis %d has %lld values, expected 1", i, (long long)dims[i]);
    }
    dims[kept] = dims[i];
    kept += gone ? 0 : 1;
  }
  return kept > 0 ? give_shape(r, value, kept, dims) : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "no axis is left, expected one");
}

bppsa_status bppsa_onnx_unsqueeze(onnx_reader *r) {
  onnx_value *value = NULL;
  int64_t dims[ONNX_DIMS], made[ONNX_DIMS], places[ONNX_DIMS];
  int count, from = 1;
  BPPSA_TRY(bppsa_onnx_input(r, 0, &value));
  if (value != NULL && value->constant) {
    return squeeze_constant(r, value, true);
  }
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  const int axes = dims_of(r, value, dims);
  onnx_value *list;
  BPPSA_TRY(bppsa_onnx_constant(r, 1, &list));
  const int64_t more = bppsa_view_count(&list->view);
  if (more > 4 - axes) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%lld more axes, expected 4 in all at most", (long long)more);
  }
  BPPSA_TRY(read_axes(r, axes + (int)more, places, &count));
  for (int i = 1; i < axes + count; ++i) {
    made[i - 1] = has(count, places, i) ? 1 : from < axes ? dims[from++] : 1;
  }
  return give_shape(r, value, axes + count - 1, made);
}

bppsa_status bppsa_onnx_transpose(onnx_reader *r) {
  onnx_value *value = NULL;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  int64_t order[4] = {0, 3, 2, 1};
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_FLATTEN), .node = BPPSA_CNN_PERMUTE, .order = {0, 1, 2}};
  BPPSA_TRY(bppsa_onnx_list(r, "perm", value->axes, order));
  if (bppsa_onnx_attribute(r, "perm") == NULL || order[0] != 0 || value->axes == 2) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "the batch moves, expected it to stay in front");
  }
  for (int i = 1; i < value->axes; ++i) {
    int from, to;
    BPPSA_TRY(bppsa_onnx_axis(value, i, &to));
    BPPSA_TRY(bppsa_onnx_axis(value, order[i], &from));
    layer.order[to] = from;
  }
  return bppsa_onnx_give(r, &layer, 1, &value, NULL);
}

/* ---- channels ---- */

static bppsa_status check_channels(const onnx_value *value, int64_t axis) {
  int found;
  BPPSA_TRY(bppsa_onnx_axis(value, axis, &found));
  return found == 0 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "axis %lld, expected 1: the channels", (long long)axis);
}

static bppsa_status check_concat(const onnx_reader *r, const onnx_value *input) {
  return check_channels(input, bppsa_onnx_whole(r, "axis", 1));
}

bppsa_status bppsa_onnx_concat(onnx_reader *r) {
  onnx_value *first = NULL;
  BPPSA_TRY(bppsa_onnx_input(r, 0, &first));
  if (first != NULL && first->constant) {
    return concat_constants(r);
  }
  if (r->node->n_input == 1) {
    BPPSA_TRY(bppsa_onnx_activation(r, 0, &first));
    BPPSA_TRY(check_concat(r, first));
    return bppsa_onnx_identity(r);
  }
  return bppsa_onnx_join(r, BPPSA_CNN_CONCAT, check_concat);
}

/* Output k is `count` channels from channel `first` on. */
static bppsa_status give_slice(onnx_reader *r, size_t k, onnx_value *value, int64_t first, int64_t count) {
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_FLATTEN), .node = BPPSA_CNN_SLICE, .first = first};
  onnx_value given = *value;
  const char *name = k < r->node->n_output ? r->node->output[k] : "";
  layer.op.out_channels = count;
  if (bppsa_onnx_readers(r, name) == 0) { /* a part that no node reads is no layer */
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_onnx_append(r, &layer, 1, &value, NULL, &given.layer));
  return bppsa_onnx_define(r, k, given);
}

bppsa_status bppsa_onnx_split(onnx_reader *r) {
  onnx_value *value = NULL, *sizes = NULL;
  int64_t parts[ONNX_DIMS], first = 0;
  int count = (int)(r->node->n_output < ONNX_DIMS ? r->node->n_output : 0);
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  BPPSA_TRY(check_channels(value, bppsa_onnx_whole(r, "axis", 0)));
  BPPSA_TRY(bppsa_onnx_input(r, 1, &sizes));
  onnx_value whole = *value; /* what is defined below moves the values */
  const int64_t channels = bppsa_onnx_shape(r, value)[0], part = count > 0 ? (channels + count - 1) / count : 0;
  if (sizes != NULL) {
    BPPSA_TRY(bppsa_onnx_constant(r, 1, &sizes));
    BPPSA_TRY(bppsa_onnx_wholes(sizes, parts, &count));
  }
  for (int k = 0; k < count; ++k) {
    parts[k] = sizes != NULL ? parts[k] : k + 1 < count ? part : channels - (count - 1) * part;
    BPPSA_TRY(give_slice(r, (size_t)k, &whole, first, parts[k]));
    first += parts[k] > 0 && parts[k] <= channels ? parts[k] : 0;
  }
  return count > 0 ? BPPSA_OK
                   : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%zu parts, expected at most %d", r->node->n_output, ONNX_DIMS - 1);
}

static int64_t clamp(int64_t place, int64_t extent) {
  place = place < 0 ? place + extent : place;
  return place < 0 ? 0 : place > extent ? extent : place;
}

bppsa_status bppsa_onnx_slice(onnx_reader *r) {
  onnx_value *value = NULL, *lists[4] = {NULL};
  int64_t numbers[4][ONNX_DIMS] = {{0}, {0}, {0}, {1, 1, 1, 1, 1, 1, 1, 1}}, first = 0, last = 0, dims[ONNX_DIMS];
  int counts[4] = {0};
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  const int axes = dims_of(r, value, dims);
  for (int k = 0; k < 4; ++k) { /* starts, ends, axes, steps */
    BPPSA_TRY(bppsa_onnx_input(r, (size_t)k + 1, &lists[k]));
    if (lists[k] != NULL || k < 2) {
      BPPSA_TRY(bppsa_onnx_constant(r, (size_t)k + 1, &lists[k]));
      BPPSA_TRY(bppsa_onnx_wholes(lists[k], numbers[k], &counts[k]));
    }
  }
  last = dims[1];
  for (int i = 0; i < counts[0]; ++i) {
    const int64_t asked = lists[2] != NULL ? numbers[2][i] : i, axis = asked < 0 ? asked + axes : asked;
    if (axis < 1 || axis >= axes || numbers[3][i] != 1 || counts[1] != counts[0]) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "axis %lld, step %lld, expected channels with step 1", (long long)asked,
                        (long long)numbers[3][i]);
    }
    const int64_t begin = clamp(numbers[0][i], dims[axis]), end = clamp(numbers[1][i], dims[axis]);
    if (axis == 1) {
      first = begin;
      last = end;
    } else if (begin != 0 || end != dims[axis]) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "a part of axis %lld, expected channels, axis 1", (long long)axis);
    }
  }
  return give_slice(r, 0, value, first, last - first);
}

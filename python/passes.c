/* Arrays by name become the arguments of recurrent/layer.h, and layers become objects for ctypes (python/passes.h). */
#include "python/passes.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/cell.h"
#include "rnn/rnn.h"

#define TEXT(name, shape, type) #name ":" shape ":" #type " "
const char *bppsa_python_arrays(void) {
  return BPPSA_PYTHON_ARRAYS(TEXT);
}

/* ---- a pass ---- */

#define AT(name) arrays[ARRAY_##name]

/* Rows 1 .. T of an array [T+1][B][H]. */
static const void *rows_of(const void *array, int64_t row) {
  return array == NULL ? NULL : (const char *)array + row;
}

static bppsa_layer_gradients gradients_of(void *const arrays[ARRAYS], bppsa_layer_backward_record *record) {
  return (bppsa_layer_gradients){.x = AT(of_x),
                                 .h0 = AT(of_h0),
                                 .c0 = AT(of_c0),
                                 .w_ih = AT(of_w_ih),
                                 .w_hh = AT(of_w_hh),
                                 .b_ih = AT(of_b_ih),
                                 .b_hh = AT(of_b_hh),
                                 .reset_state = AT(of_reset_state),
                                 .record = record};
}

static bppsa_layer_tangents other_tangents_of(void *const arrays[ARRAYS]) {
  return (bppsa_layer_tangents){.x = AT(e_x),
                                .h0 = AT(e_h0),
                                .c0 = AT(e_c0),
                                .w_ih = AT(e_w_ih),
                                .w_hh = AT(e_w_hh),
                                .b_ih = AT(e_b_ih),
                                .b_hh = AT(e_b_hh),
                                .reset_state = AT(e_reset_state)};
}

static bppsa_layer_tangents tangents_of(void *const arrays[ARRAYS]) {
  return (bppsa_layer_tangents){.x = AT(d_x),
                                .h0 = AT(d_h0),
                                .c0 = AT(d_c0),
                                .w_ih = AT(d_w_ih),
                                .w_hh = AT(d_w_hh),
                                .b_ih = AT(d_b_ih),
                                .b_hh = AT(d_b_hh),
                                .reset_state = AT(d_reset_state)};
}

/* Bytes of the states h, or c, and from one array of the scratch to the next. */
static int64_t apart(const bppsa_layer_sizes *sizes) {
  return (sizes->states + BPPSA_ALIGNMENT - 1) / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT;
}

int64_t bppsa_python_third_bytes(const bppsa_layer_sizes *sizes, int64_t tangent, int64_t third) {
  return 2 * apart(sizes) + (tangent > third ? tangent : third);
}

static bppsa_status compute_third(const bppsa_layer *layer, const bppsa_device *device, const bppsa_layer_inputs *inputs,
                                  const bppsa_layer_tape *tape, void *const arrays[ARRAYS], char *scratch) {
  bppsa_layer_sizes sizes;
  bppsa_layer_bytes(layer, &sizes);
  char *h = scratch, *c = AT(c) != NULL ? scratch + apart(&sizes) : NULL, *rest = scratch + 2 * apart(&sizes);
  const bppsa_layer_direction one = {tangents_of(arrays), AT(d_h), AT(d_c)}, other = {other_tangents_of(arrays), h, c};
  BPPSA_TRY(bppsa_layer_tangent(layer, device, inputs, tape, &other.tangents, h, c, rest));
  return bppsa_layer_second_tangent(layer, device, inputs, tape, &one, &other, AT(e_h), AT(e_c), rest);
}

bppsa_status bppsa_python_compute(int kind, const bppsa_layer *layer, const bppsa_device *device, void *const arrays[ARRAYS],
                                  const bppsa_python_extras *extras, void *scratch) {
  const bppsa_layer_inputs inputs = {.x = AT(x),
                                     .h0 = AT(h0),
                                     .c0 = AT(c0),
                                     .w_ih = AT(w_ih),
                                     .w_hh = AT(w_hh),
                                     .b_ih = AT(b_ih),
                                     .b_hh = AT(b_hh),
                                     .reset_state = AT(reset_state),
                                     .lengths = AT(lengths),
                                     .resets = AT(resets),
                                     .far_resets = extras->far_resets,
                                     .far_lengths = extras->far_lengths,
                                     .short_lengths = extras->short_lengths};
  const bppsa_layer_tape tape = {.h = AT(h), .c = AT(c), .saved = AT(saved), .output = AT(y), .record = extras->forward};
  const bppsa_layer_seed seed = {.h = AT(of_y) != NULL ? AT(of_y) : rows_of(AT(of_h), extras->row),
                                 .c = AT(of_cells) != NULL ? AT(of_cells) : rows_of(AT(of_c), extras->row),
                                 .h_last = AT(of_h_last),
                                 .c_last = AT(of_c_last)};
  const bppsa_layer_seed along = {.h = AT(d_of_y) != NULL ? AT(d_of_y) : rows_of(AT(d_of_h), extras->row),
                                  .c = AT(d_of_cells) != NULL ? AT(d_of_cells) : rows_of(AT(d_of_c), extras->row),
                                  .h_last = AT(d_of_h_last),
                                  .c_last = AT(d_of_c_last)};
  const bppsa_layer_gradients gradients = gradients_of(arrays, kind == BPPSA_PYTHON_BACKWARD ? extras->backward : NULL);
  const bppsa_layer_tangents tangents = tangents_of(arrays);
  switch (kind) {
  case BPPSA_PYTHON_FORWARD:
    return bppsa_layer_forward(layer, device, &inputs, &tape, scratch);
  case BPPSA_PYTHON_BACKWARD:
    return bppsa_layer_backward(layer, device, &inputs, &tape, &seed, &gradients, scratch);
  case BPPSA_PYTHON_TANGENT:
    return bppsa_layer_tangent(layer, device, &inputs, &tape, &tangents, AT(d_h), AT(d_c), scratch);
  case BPPSA_PYTHON_THIRD:
    return compute_third(layer, device, &inputs, &tape, arrays, scratch);
  default:
    return bppsa_layer_tangent_backward(layer, device, &inputs, &tape, &tangents, AT(d_h), AT(d_c), &seed, &along, &gradients,
                                        scratch);
  }
}

/* ---- plans ---- */

bppsa_status bppsa_python_open_device(int64_t threads, int32_t gpu, void *stream, bppsa_device **device) {
  return gpu == -1 ? bppsa_device_create("cpu", threads, device) : bppsa_device_on_stream(gpu, stream, threads, device);
}

bppsa_status bppsa_python_find_cell(const char *name, const bppsa_cell **cell) {
  const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
  for (size_t k = 0; k < sizeof cells / sizeof *cells; ++k) {
    if (strcmp(name, cells[k]->name) == 0) {
      *cell = cells[k];
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "'%s': unknown recurrent cell", name);
}

int64_t bppsa_python_cell_saved(const char *name) {
  const bppsa_cell *cell;
  return bppsa_python_find_cell(name, &cell) == BPPSA_OK ? cell->saved : -1;
}

struct bppsa_python_plan {
  bppsa_device *device;
  bppsa_layer *layer;
  int64_t facts[BPPSA_PYTHON_PLAN_FACTS];
  int64_t row; /* bytes of B rows [H] */
};

static bppsa_status make_plan(const bppsa_recurrent_config *config, const bppsa_cell *cell, int64_t threads, int32_t gpu,
                              void *stream, bppsa_python_plan *plan) {
  bppsa_layer_sizes sizes;
  int64_t tangent, second, third;
  BPPSA_TRY(bppsa_python_open_device(threads, gpu, stream, &plan->device));
  BPPSA_TRY(bppsa_layer_create(config, cell, plan->device, &plan->layer));
  BPPSA_TRY(bppsa_layer_tangent_bytes(plan->layer, &tangent, &second));
  BPPSA_TRY(bppsa_layer_second_tangent_bytes(plan->layer, &third));
  bppsa_layer_bytes(plan->layer, &sizes);
  const int64_t facts[BPPSA_PYTHON_PLAN_FACTS] = {sizes.states,
                                                  sizes.saved,
                                                  sizes.forward,
                                                  sizes.backward,
                                                  tangent,
                                                  second,
                                                  bppsa_python_third_bytes(&sizes, tangent, third),
                                                  cell->pair ? 2 : 1,
                                                  bppsa_layer_forward_plan(plan->layer) != NULL,
                                                  bppsa_layer_backward_plan(plan->layer) != NULL};
  memcpy(plan->facts, facts, sizeof facts);
  plan->row = config->batch * config->hidden * (int64_t)bppsa_dtype_size(config->dtype);
  return BPPSA_OK;
}

bppsa_status bppsa_python_plan_create(const char *cell, const char *method, const char *forward,
                                      const int64_t numbers[BPPSA_PYTHON_PLAN_NUMBERS], double tolerance, int32_t gpu,
                                      void *stream, bppsa_python_plan **plan) {
  const bppsa_cell *found;
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  BPPSA_TRY(bppsa_python_find_cell(cell, &found));
  config.seq_len = numbers[BPPSA_PYTHON_STEPS];
  config.batch = numbers[BPPSA_PYTHON_BATCH];
  config.input = numbers[BPPSA_PYTHON_INPUT];
  config.hidden = numbers[BPPSA_PYTHON_HIDDEN];
  config.no_bias = numbers[BPPSA_PYTHON_BIASES] == 0;
  config.lengths = numbers[BPPSA_PYTHON_LENGTHS] != 0;
  config.resets = numbers[BPPSA_PYTHON_RESETS] != 0;
  config.reset_state = numbers[BPPSA_PYTHON_RESET_STATE] != 0;
  config.input_gradients = numbers[BPPSA_PYTHON_INPUT_GRADIENTS] != 0;
  config.dtype = numbers[BPPSA_PYTHON_F64] != 0 ? BPPSA_F64 : BPPSA_F32;
  config.nonlinearity = numbers[BPPSA_PYTHON_RELU] != 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  config.speculation = (bppsa_backward_method){
      .chunks = numbers[BPPSA_PYTHON_CHUNKS], .warm_up = numbers[BPPSA_PYTHON_WARM_UP], .tolerance = tolerance};
  BPPSA_TRY(bppsa_gradient_method_parse(method, &config.method));
  BPPSA_TRY(bppsa_forward_parse(forward, &config.forward.kind));
  bppsa_python_plan *made = calloc(1, sizeof *made);
  if (made == NULL) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "%s layer: no memory for %zu bytes", cell, sizeof *made);
  }
  const bppsa_status status = make_plan(&config, found, numbers[BPPSA_PYTHON_THREADS], gpu, stream, made);
  if (status != BPPSA_OK) {
    bppsa_python_plan_destroy(made);
    return status;
  }
  *plan = made;
  return BPPSA_OK;
}

void bppsa_python_plan_destroy(bppsa_python_plan *plan) {
  if (plan != NULL) {
    bppsa_layer_destroy(plan->layer);
    bppsa_device_destroy(plan->device);
    free(plan);
  }
}

void bppsa_python_plan_facts(const bppsa_python_plan *plan, int64_t facts[BPPSA_PYTHON_PLAN_FACTS]) {
  memcpy(facts, plan->facts, sizeof plan->facts);
}

int64_t bppsa_python_record_bytes(void) {
  return (int64_t)sizeof(bppsa_python_record);
}

bppsa_status bppsa_python_plan_run(const bppsa_python_plan *plan, int kind, void *const arrays[ARRAYS], void *scratch,
                                   bppsa_python_record *record) {
  bppsa_layer_forward_record forward = {.pause = {0}};
  bppsa_layer_backward_record backward = {.state = {.warm_up = 0}};
  bppsa_python_extras extras = {.row = plan->row, .far_resets = bppsa_device_get_kind(plan->device) != BPPSA_CPU};
  if (record != NULL) {
    forward.pause = (bppsa_forward_pause){.failures = record->state[0], .left = record->state[1]};
    backward.state = (bppsa_backward_state){.pause = forward.pause, .warm_up = record->state[2]};
    extras.forward = kind == BPPSA_PYTHON_FORWARD ? &forward : NULL;
    extras.backward = kind == BPPSA_PYTHON_BACKWARD ? &backward : NULL;
  }
  BPPSA_TRY(bppsa_python_compute(kind, plan->layer, plan->device, arrays, &extras, scratch));
  if (record != NULL) {
    const bppsa_forward_pause pause = kind == BPPSA_PYTHON_FORWARD ? forward.pause : backward.state.pause;
    *record = (bppsa_python_record){
        .state = {pause.failures, pause.left, backward.state.warm_up}, .forward = forward.stats, .backward = backward.stats};
  }
  return BPPSA_OK;
}

void bppsa_python_account_note(bppsa_python_account *account, const bppsa_python_plan *plan, int backward,
                               const bppsa_python_record *record) {
  if (backward) {
    bppsa_python_account_add_backward(account, bppsa_layer_backward_plan(plan->layer), &record->backward);
  } else {
    bppsa_python_account_add_forward(account, bppsa_layer_forward_plan(plan->layer), &record->forward);
  }
}

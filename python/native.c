/* Scans, layers and commands for python/bppsa/_native.py. Every copy is one of core/compute/memory.h, which a processor does at
 * once and a GPU when its stream comes to it. */
#include "python/native.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bppsa_version.h"
#include "cli/cli.h"
#include "comm/comm.h"
#include "core/base/alloc.h"
#include "core/compute/blas.h"
#include "core/compute/memory.h"
#include "core/measure/peak.h"
#include "networks/network_kinds.h"
#include "python/account.h"
#include "recurrent/recurrent.h"
#include "scan/scan.h"

const char *bppsa_python_version(void) {
  return BPPSA_COMMIT[0] != '\0' ? BPPSA_VERSION " " BPPSA_COMMIT : BPPSA_VERSION;
}

const char *bppsa_python_error(void) {
  return bppsa_last_error();
}

bppsa_status bppsa_python_openblas(const char *path) {
  return bppsa_blas_set_fallback(path);
}

/* ---- commands ---- */

/* In a process of mpirun: after a failure the others wait until the job ends. */
static void end_job(void) {
  bppsa_comm_end_job(1);
}

static void end_job_at_exit(void) {
  (void)atexit(end_job);
}

int32_t bppsa_python_left_behind(void) {
  return bppsa_comm_left_behind();
}

int bppsa_python_command(int argc, char **argv, const atomic_int *told, char **out, char **err) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  char *texts[2] = {NULL, NULL};
  size_t sizes[2];
  FILE *streams[2] = {open_memstream(&texts[0], &sizes[0]), open_memstream(&texts[1], &sizes[1])};
  int code = 1;
  if (bppsa_comm_launched()) {
    (void)pthread_once(&once, end_job_at_exit);
  }
  if (streams[0] != NULL && streams[1] != NULL) {
    code = bppsa_cli_run(argc, argv, streams[0], streams[1], told);
  }
  for (int i = 0; i < 2; ++i) {
    if (streams[i] == NULL || fclose(streams[i]) != 0) {
      free(texts[i]);
      texts[i] = NULL;
    }
  }
  *out = texts[0];
  *err = texts[1];
  return code;
}

void bppsa_python_free(void *text) {
  free(text);
}

int64_t bppsa_python_allocated(void) {
  return bppsa_alloc_live();
}

static bppsa_status open_device(int64_t threads, int32_t gpu, void *stream, bppsa_device **device) {
  return gpu == -1 ? bppsa_device_create("cpu", threads, device) : bppsa_device_on_stream(gpu, stream, threads, device);
}

double bppsa_python_burst(int f64) {
  bppsa_device *device = NULL;
  const double rate = open_device(1, -1, NULL, &device) == BPPSA_OK ? bppsa_peak_burst(device, f64 ? BPPSA_F64 : BPPSA_F32) : 0;
  bppsa_device_destroy(device);
  return rate;
}

/* ---- scans ---- */

struct bppsa_python_scan {
  bppsa_device *device;
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
  int64_t batch;
};

static bppsa_status make_scan(bppsa_scan_config *config, int64_t threads, int32_t gpu, void *stream, bppsa_python_scan *scan) {
  BPPSA_TRY(open_device(threads, gpu, stream, &scan->device));
  config->device = bppsa_device_get_kind(scan->device);
  BPPSA_TRY(bppsa_scan_plan_create(config, &scan->plan));
  return bppsa_scan_executor_create(scan->plan, scan->device, &scan->executor);
}

bppsa_status bppsa_python_scan_create(const char *method, int diagonal, int f64, const int64_t sizes[3], int affine,
                                      int64_t threads, int32_t gpu, void *stream, bppsa_python_scan **scan) {
  bppsa_scan_config config = bppsa_scan_config_default();
  config.element = diagonal ? BPPSA_ELEMENT_DIAGONAL : BPPSA_ELEMENT_DENSE;
  config.dtype = f64 ? BPPSA_F64 : BPPSA_F32;
  config.jacobians = sizes[0];
  config.batch = sizes[1];
  config.dim = sizes[2];
  config.affine = affine;
  config.input = true;
  BPPSA_TRY(bppsa_scan_method_parse(method, &config.method));
  bppsa_python_scan *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->batch = sizes[1];
  const bppsa_status status = make_scan(&config, threads, gpu, stream, made);
  if (status != BPPSA_OK) {
    bppsa_python_scan_destroy(made);
    return status;
  }
  *scan = made;
  return BPPSA_OK;
}

bppsa_status bppsa_python_scan_run(bppsa_python_scan *scan, const void *jt, const void *injected, void *gradients) {
  const bppsa_scan_operands operands = {.batch = scan->batch, .jt = jt, .injected = injected, .gradients = gradients};
  return scan->executor->execute(scan->executor, &operands);
}

void bppsa_python_scan_destroy(bppsa_python_scan *scan) {
  if (scan != NULL) {
    bppsa_scan_executor_destroy(scan->executor);
    bppsa_scan_plan_destroy(scan->plan);
    bppsa_device_destroy(scan->device);
    bppsa_free(scan);
  }
}

/* ---- recurrent layers ---- */

struct bppsa_python_layer {
  bppsa_device *device;
  bppsa_model *model;
  bppsa_recurrent_config config;
  int64_t tape; /* numbers */
  bool pair;    /* the state is (h, c), kept as [B,2H] with h in front of c */
  void *first;  /* of a pair: the initial state [B,2H], in the device's memory */
};

static bppsa_view view_of(const bppsa_python_layer *layer, const void *data, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make((void *)data, layer->config.dtype, ndim, shape);
  view.device = bppsa_device_get_kind(layer->device);
  return view;
}

/* Bytes of B rows of H numbers, and of one of them. */
static int64_t half_bytes(const bppsa_python_layer *layer) {
  return layer->config.batch * layer->config.hidden * (int64_t)bppsa_dtype_size(layer->config.dtype);
}

static int64_t row_bytes(const bppsa_python_layer *layer) {
  return layer->config.hidden * (int64_t)bppsa_dtype_size(layer->config.dtype);
}

static bppsa_status copy(const bppsa_python_layer *layer, void *to, const void *from, int64_t bytes) {
  return bppsa_memory_queue_copy(layer->device, to, bytes, from, bytes, bytes, 1);
}

/* Copies h (half 0) or c (half 1) into states [B,2H], or out of them. */
static bppsa_status put_half(const bppsa_python_layer *layer, void *states, int half, const void *from) {
  const int64_t row = row_bytes(layer);
  return bppsa_memory_queue_copy(layer->device, (char *)states + half * row, 2 * row, from, row, row, layer->config.batch);
}

static bppsa_status get_half(const bppsa_python_layer *layer, void *to, const void *states, int half) {
  const int64_t row = row_bytes(layer);
  return bppsa_memory_queue_copy(layer->device, to, row, (const char *)states + half * row, 2 * row, row, layer->config.batch);
}

static bppsa_status make_layer(const bppsa_cell *cell, int64_t threads, int32_t gpu, void *stream, bppsa_python_layer *layer) {
  layer->pair = cell->pair;
  BPPSA_TRY(open_device(threads, gpu, stream, &layer->device));
  BPPSA_TRY(bppsa_recurrent_create(&layer->config, cell, layer->device, &layer->model));
  BPPSA_TRY(bppsa_recurrent_tape_size(layer->model, &layer->tape));
  return cell->pair ? bppsa_memory_alloc(layer->device, 2 * half_bytes(layer), &layer->first) : BPPSA_OK;
}

bppsa_status bppsa_python_layer_create(const char *cell, const char *method, const char *forward, int relu, int f64,
                                       const int64_t sizes[4], int input_gradients, int lengths, int resets, int64_t threads,
                                       int32_t gpu, void *stream, int64_t chunks, int64_t warm_up, double tolerance,
                                       bppsa_python_layer **layer) {
  const bppsa_network_kind *kind = bppsa_network_kind_find(cell);
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  if (kind == NULL || kind->cell == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "'%s': unknown recurrent cell", cell);
  }
  config.seq_len = sizes[0];
  config.batch = sizes[1];
  config.input = sizes[2];
  config.hidden = sizes[3];
  config.classes = 1; /* of the head, which no pass below computes */
  config.loss_all = true;
  config.tape = true;
  config.dtype = f64 ? BPPSA_F64 : BPPSA_F32;
  config.nonlinearity = relu ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  config.input_gradients = input_gradients;
  config.lengths = lengths;
  config.resets = resets != 0;
  config.reset_state = resets == 2;
  config.speculation = (bppsa_backward_method){.chunks = chunks, .warm_up = warm_up, .tolerance = tolerance};
  BPPSA_TRY(bppsa_gradient_method_parse(method, &config.method));
  BPPSA_TRY(bppsa_forward_parse(forward, &config.forward.kind));
  bppsa_python_layer *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->config = config;
  const bppsa_status status = make_layer(kind->cell, threads, gpu, stream, made);
  if (status != BPPSA_OK) {
    bppsa_python_layer_destroy(made);
    return status;
  }
  *layer = made;
  return BPPSA_OK;
}

/* The model's parameter that is weight i; NULL: a reset state that is not learned. It comes in front of the others. */
static bppsa_parameter *parameter_of(const bppsa_python_layer *layer, int i) {
  bppsa_parameter *all = layer->model->parameters;
  const bool last = i + 1 == BPPSA_PYTHON_WEIGHTS, learned = layer->config.reset_state;
  return !last ? &all[i + learned] : learned ? &all[0] : NULL;
}

/* Where the passes read or write an array of a parameter: on a GPU all of them lie in it as their views lie in host memory. */
static void *place_of(const bppsa_python_layer *layer, const bppsa_parameter *parameter, bool gradient) {
  const bppsa_model *model = layer->model;
  const bppsa_parameter *first = &model->parameters[0];
  const char *at = gradient ? parameter->gradient.data : parameter->value.data;
  if (model->device == NULL) {
    return (void *)at;
  }
  return gradient ? (char *)model->device_gradients + (at - (const char *)first->gradient.data)
                  : (char *)model->device_values + (at - (const char *)first->value.data);
}

/* A layer's own arrays of its parameters, while it has the caller's: on the processor passes read the weights and write the
 * gradients where they are. On a GPU they are copied. */
typedef struct {
  bppsa_parameter own[BPPSA_PYTHON_WEIGHTS];
} loan;

static loan borrow(const bppsa_python_layer *layer, const void *const weights[BPPSA_PYTHON_WEIGHTS], void *const *gradients) {
  loan kept;
  for (int i = 0; i < BPPSA_PYTHON_WEIGHTS; ++i) {
    bppsa_parameter *p = parameter_of(layer, i);
    if (p == NULL) {
      continue;
    }
    kept.own[i] = *p;
    if (layer->model->device == NULL) {
      p->value.data = weights[i] != NULL ? (void *)(uintptr_t)weights[i] : p->value.data;
      p->gradient.data = gradients != NULL && gradients[i] != NULL ? gradients[i] : p->gradient.data;
    }
  }
  return kept;
}

static void give_back(const bppsa_python_layer *layer, const loan *kept) {
  for (int i = 0; i < BPPSA_PYTHON_WEIGHTS; ++i) {
    bppsa_parameter *p = parameter_of(layer, i);
    if (p != NULL) {
      *p = kept->own[i];
    }
  }
}

/* Copies weights that are not borrowed. A bias that is missing is 0. */
static bppsa_status put_weights(const bppsa_python_layer *layer, const void *const weights[BPPSA_PYTHON_WEIGHTS]) {
  for (int i = 0; i < BPPSA_PYTHON_WEIGHTS; ++i) {
    const bppsa_parameter *p = parameter_of(layer, i);
    const int64_t bytes = p != NULL ? (int64_t)bppsa_view_bytes(&p->value) : 0;
    if (p != NULL && weights[i] == NULL) {
      BPPSA_TRY(bppsa_memory_queue_clear(layer->device, place_of(layer, p, false), bytes));
    } else if (p != NULL && layer->model->device != NULL) {
      BPPSA_TRY(copy(layer, place_of(layer, p, false), weights[i], bytes));
    }
  }
  return BPPSA_OK;
}

/* Copies gradients that are not borrowed. */
static bppsa_status get_gradients(const bppsa_python_layer *layer, void *const gradients[BPPSA_PYTHON_WEIGHTS]) {
  for (int i = 0; layer->model->device != NULL && i < BPPSA_PYTHON_WEIGHTS; ++i) {
    const bppsa_parameter *p = parameter_of(layer, i);
    if (p != NULL && gradients[i] != NULL) {
      BPPSA_TRY(copy(layer, gradients[i], place_of(layer, p, true), (int64_t)bppsa_view_bytes(&p->gradient)));
    }
  }
  return BPPSA_OK;
}

int64_t bppsa_python_layer_tape(const bppsa_python_layer *layer) {
  return layer->tape;
}

/* Tells the model everything that its next pass reads beside a state or a seed. output: of a forward pass, otherwise NULL. */
static bppsa_status begin_pass(const bppsa_python_layer *layer, const bppsa_view *x, const void *const spans[2],
                               const void *const weights[BPPSA_PYTHON_WEIGHTS], const void *tape, const bppsa_view *output) {
  const bppsa_view view = view_of(layer, tape, 1, &layer->tape);
  BPPSA_TRY(bppsa_recurrent_use_tape(layer->model, x, &view, output));
  if (spans != NULL) {
    bppsa_view resets = view_of(layer, spans[1], 2, (int64_t[]){layer->config.seq_len, layer->config.batch});
    resets.dtype = resets.device == BPPSA_CPU ? BPPSA_U8 : BPPSA_BOOL; /* the caller has checked what is on a GPU */
    BPPSA_TRY(bppsa_recurrent_use_spans(layer->model,
                                        &(bppsa_spans){.lengths = spans[0], .resets = spans[1] != NULL ? &resets : NULL}));
  }
  return put_weights(layer, weights);
}

static bppsa_view input_view(const bppsa_python_layer *layer, const void *x) {
  const bppsa_recurrent_config *c = &layer->config;
  return view_of(layer, x, 3, (int64_t[]){c->seq_len, c->batch, c->input});
}

/* Copies each sample's last row of the states [T,B,H]. lengths: NULL where all samples have T steps; otherwise in host memory, as
 * the states are. */
static bppsa_status copy_last(const bppsa_python_layer *layer, void *last, const void *states, const int64_t *lengths) {
  const bppsa_recurrent_config *c = &layer->config;
  const int64_t half = half_bytes(layer), row = row_bytes(layer);
  if (lengths == NULL) {
    return copy(layer, last, (const char *)states + (c->seq_len - 1) * half, half);
  }
  for (int64_t b = 0; b < c->batch; ++b) {
    memcpy((char *)last + b * row, (const char *)states + (lengths[b] - 1) * half + b * row, (size_t)row);
  }
  return BPPSA_OK;
}

static bppsa_status forward(const bppsa_python_layer *layer, const void *x, const void *const spans[2],
                            const void *const first[2], const void *const weights[BPPSA_PYTHON_WEIGHTS], void *tape,
                            void *const last[2], void *output, void *cells) {
  const bppsa_recurrent_config *c = &layer->config;
  const int64_t states[] = {c->seq_len, c->batch, c->hidden}, *lengths = spans != NULL ? spans[0] : NULL;
  const bppsa_view input = input_view(layer, x), to = view_of(layer, output, 3, states);
  bppsa_view start = {.data = NULL}, found;
  BPPSA_TRY(begin_pass(layer, &input, spans, weights, tape, &to));
  if (first != NULL) {
    start = view_of(layer, layer->pair ? layer->first : first[0], 3, (int64_t[]){1, c->batch, (layer->pair ? 2 : 1) * c->hidden});
    for (int i = 0; layer->pair && i < 2; ++i) {
      BPPSA_TRY(put_half(layer, layer->first, i, first[i]));
    }
  }
  BPPSA_TRY(bppsa_recurrent_forward_layers(layer->model, &input, first != NULL ? &start : NULL));
  BPPSA_TRY(copy_last(layer, last[0], output, lengths));
  if (layer->pair) {
    BPPSA_TRY(bppsa_recurrent_cell_states(layer->model, 0, &found));
    BPPSA_TRY(copy_last(layer, last[1], found.data, lengths));
    BPPSA_TRY(cells != NULL ? copy(layer, cells, found.data, c->seq_len * half_bytes(layer)) : BPPSA_OK);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_python_layer_forward(bppsa_python_layer *layer, const void *x, const void *const spans[2],
                                        const void *const first[2], const void *const weights[BPPSA_PYTHON_WEIGHTS], void *tape,
                                        void *const last[2], void *output, void *cells) {
  const loan kept = borrow(layer, weights, NULL);
  const bppsa_status status = forward(layer, x, spans, first, weights, tape, last, output, cells);
  give_back(layer, &kept);
  return status;
}

/* The gradients of x and of the initial state, each of which may be unwanted. */
static bppsa_status get_input_gradients(const bppsa_python_layer *layer, void *dx, void *const of_first[2]) {
  bppsa_view of_x, of_h0;
  if (dx == NULL && of_first[0] == NULL && of_first[1] == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(layer->model->ops->input_gradients(layer->model, &of_x, &of_h0));
  BPPSA_TRY(dx != NULL ? copy(layer, dx, of_x.data, (int64_t)bppsa_view_bytes(&of_x)) : BPPSA_OK);
  if (!layer->pair) {
    return of_first[0] != NULL ? copy(layer, of_first[0], of_h0.data, half_bytes(layer)) : BPPSA_OK;
  }
  for (int i = 0; i < 2; ++i) {
    BPPSA_TRY(of_first[i] != NULL ? get_half(layer, of_first[i], of_h0.data, i) : BPPSA_OK);
  }
  return BPPSA_OK;
}

static bppsa_status backward(const bppsa_python_layer *layer, const void *x, const void *const spans[2],
                             const void *const weights[BPPSA_PYTHON_WEIGHTS], const void *tape, const void *seed,
                             const void *const of_cells[2], void *const gradients[BPPSA_PYTHON_WEIGHTS], void *dx,
                             void *const of_first[2]) {
  const bppsa_recurrent_config *c = &layer->config;
  const int64_t shape[] = {c->seq_len, c->batch, c->hidden};
  const bppsa_view input = input_view(layer, x), states = view_of(layer, seed, 3, shape);
  const bool all = of_cells[1] != NULL;
  const bppsa_view cells = view_of(layer, of_cells[all], all ? 3 : 2, all ? shape : shape + 1);
  BPPSA_TRY(begin_pass(layer, &input, spans, weights, tape, NULL));
  BPPSA_TRY(cells.data != NULL ? bppsa_recurrent_seed_cells(layer->model, &cells) : BPPSA_OK);
  BPPSA_TRY(bppsa_recurrent_backward_layers(layer->model, &states));
  BPPSA_TRY(get_input_gradients(layer, dx, of_first));
  return get_gradients(layer, gradients);
}

bppsa_status bppsa_python_layer_backward(bppsa_python_layer *layer, const void *x, const void *const spans[2],
                                         const void *const weights[BPPSA_PYTHON_WEIGHTS], const void *tape, const void *seed,
                                         const void *const of_cells[2], void *const gradients[BPPSA_PYTHON_WEIGHTS], void *dx,
                                         void *const of_first[2]) {
  const loan kept = borrow(layer, weights, gradients);
  const bppsa_status status = backward(layer, x, spans, weights, tape, seed, of_cells, gradients, dx, of_first);
  give_back(layer, &kept);
  return status;
}

void bppsa_python_layer_destroy(bppsa_python_layer *layer) {
  if (layer != NULL) {
    bppsa_memory_free(layer->device, layer->first);
    bppsa_model_destroy(layer->model);
    bppsa_device_destroy(layer->device);
    bppsa_free(layer);
  }
}

/* ---- passes in chunks of time ---- */

int bppsa_python_layer_speculates(const bppsa_python_layer *layer, int backward) {
  return backward ? bppsa_backward_plan_of(layer->model) != NULL : bppsa_forward_plan_of(layer->model)->speculative;
}

static bool is_zero(const void *row, int f64, int64_t width) {
  bool zero = true;
  for (int64_t i = 0; zero && i < width; ++i) {
    zero = f64 ? ((const double *)row)[i] == 0 : ((const float *)row)[i] == 0;
  }
  return zero;
}

int bppsa_python_reaches(const void *seed, int f64, int64_t rows, int64_t width) {
  const int64_t bytes = width * (int64_t)(f64 ? sizeof(double) : sizeof(float));
  int64_t row = 0;
  while (row < rows && !is_zero((const char *)seed + row * bytes, f64, width)) {
    ++row;
  }
  return row == rows;
}

bppsa_status bppsa_python_layer_get_state(bppsa_python_layer *layer, int64_t state[BPPSA_PYTHON_STATE]) {
  bppsa_backward_state found;
  BPPSA_TRY(bppsa_backward_state_get(layer->model, &found));
  state[0] = found.pause.failures;
  state[1] = found.pause.left;
  state[2] = found.warm_up;
  return BPPSA_OK;
}

bppsa_status bppsa_python_layer_set_state(bppsa_python_layer *layer, const int64_t state[BPPSA_PYTHON_STATE]) {
  const bppsa_backward_state given = {.pause = {.failures = state[0], .left = state[1]}, .warm_up = state[2]};
  return bppsa_backward_state_set(layer->model, &given);
}

bppsa_status bppsa_python_account_add(bppsa_python_account *account, bppsa_python_layer *layer, int backward) {
  bppsa_forward_stats forward_pass;
  bppsa_backward_stats backward_pass;
  if (!bppsa_python_layer_speculates(layer, backward)) {
    return BPPSA_OK;
  }
  if (backward) {
    BPPSA_TRY(bppsa_backward_stats_of(layer->model, &backward_pass));
    bppsa_python_account_add_backward(account, bppsa_backward_plan_of(layer->model), &backward_pass);
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_forward_stats_of(layer->model, &forward_pass));
  bppsa_python_account_add_forward(account, bppsa_forward_plan_of(layer->model), &forward_pass);
  return BPPSA_OK;
}

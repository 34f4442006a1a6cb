/* What the Python package calls through ctypes: functions whose arguments are numbers, texts and addresses, so that no layout of
 * a struct is written down a second time in Python. They hold no Python object and need no interpreter: ctypes releases its lock
 * around each call, and several threads may call at once, each with a scan or a layer of its own.
 *
 * A function that returns a status leaves its reason in bppsa_python_error() of the thread that called it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bppsa_version.h"
#include "cli/cli.h"
#include "core/alloc.h"
#include "models/network_kind.h"
#include "recurrent/recurrent.h"
#include "scan/scan.h"

/* The version script names nothing else, so that libraries of one process do not meet (python/native.map). */
const char *bppsa_python_version(void);
const char *bppsa_python_error(void);
int bppsa_python_command(int argc, char **argv, char **out, char **err);
void bppsa_python_free(void *text);
int64_t bppsa_python_allocated(void);

typedef struct bppsa_python_scan bppsa_python_scan;
bppsa_status bppsa_python_scan_create(const char *method, int diagonal, int f64, const int64_t sizes[3], int affine,
                                      int64_t threads, bppsa_python_scan **scan);
bppsa_status bppsa_python_scan_run(bppsa_python_scan *scan, const void *jt, const void *injected, void *gradients);
void bppsa_python_scan_destroy(bppsa_python_scan *scan);

typedef struct bppsa_python_layer bppsa_python_layer;
bppsa_status bppsa_python_layer_create(const char *cell, const char *method, const char *forward, int relu, int f64,
                                       const int64_t sizes[4], int input_gradients, int64_t threads, bppsa_python_layer **layer);
bppsa_status bppsa_python_layer_forward(bppsa_python_layer *layer, const void *x, const void *h0, const void *const weights[4],
                                        void **states, void **cells);
bppsa_status bppsa_python_layer_backward(bppsa_python_layer *layer, const void *seed, const void *last_cell,
                                         void *const gradients[4], void *dx, void *dh0);
void bppsa_python_layer_destroy(bppsa_python_layer *layer);

/* "0.1.0", or "0.1.0 COMMIT" */
const char *bppsa_python_version(void) {
  return BPPSA_COMMIT[0] != '\0' ? BPPSA_VERSION " " BPPSA_COMMIT : BPPSA_VERSION;
}

const char *bppsa_python_error(void) {
  return bppsa_last_error();
}

/* ---- commands ---- */

/* Runs a command line of the program. *out and *err receive what it printed; bppsa_python_free frees each. Returns the program's
 * exit code, or 1 with both NULL where the system has no memory for the texts. */
int bppsa_python_command(int argc, char **argv, char **out, char **err) {
  char *texts[2] = {NULL, NULL};
  size_t sizes[2];
  FILE *streams[2] = {open_memstream(&texts[0], &sizes[0]), open_memstream(&texts[1], &sizes[1])};
  int code = 1;
  if (streams[0] != NULL && streams[1] != NULL) {
    code = bppsa_cli_main(argc, argv, streams[0], streams[1]);
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

/* Blocks that the library holds; for tests that look for leaks. */
int64_t bppsa_python_allocated(void) {
  return bppsa_alloc_live();
}

/* ---- scans ---- */

struct bppsa_python_scan {
  bppsa_device *device;
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
  int64_t batch;
};

static bppsa_status make_scan(const bppsa_scan_config *config, int64_t threads, bppsa_python_scan *scan) {
  BPPSA_TRY(bppsa_device_create("cpu", threads, &scan->device));
  BPPSA_TRY(bppsa_scan_plan_create(config, &scan->plan));
  return bppsa_scan_executor_create(scan->plan, scan->device, &scan->executor);
}

/* g_{t-1} = J_tᵀ g_t + u_{t-1} for t = T .. 1, with g_0. sizes: T, B, H. method: the text form of a scan (scan/method.h).
 * threads: 0 for all cores. ERR_* of bppsa_scan_plan_create. */
bppsa_status bppsa_python_scan_create(const char *method, int diagonal, int f64, const int64_t sizes[3], int affine,
                                      int64_t threads, bppsa_python_scan **scan) {
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
  const bppsa_status status = make_scan(&config, threads, made);
  if (status != BPPSA_OK) {
    bppsa_python_scan_destroy(made);
    return status;
  }
  *scan = made;
  return BPPSA_OK;
}

/* jt: [T,B,H,H] or diagonals [T,B,H]. injected: u_0 .. u_{T-1} [T,B,H], or NULL. gradients: [T+1,B,H], g_T in the last row; g_0 ..
 * g_{T-1} are written. */
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

enum { WEIGHTS = 4 }; /* W_ih, W_hh, b_ih, b_hh: the first parameters of a network of one layer */

struct bppsa_python_layer {
  bppsa_device *device;
  bppsa_model *model;
  bppsa_recurrent_config config;
  bool pair;             /* the state is (h, c) */
  const void *last_cell; /* during a backward pass: the gradient of c_T [B,H], or NULL for zeros */
};

/* Numbers in a state. */
static int64_t state_size(const bppsa_python_layer *layer) {
  return (layer->pair ? 2 : 1) * layer->config.hidden;
}

/* Puts the gradient of c_T into the second halves of g_T. */
static bppsa_status add_last_cell(void *context, int64_t number, void *g) {
  const bppsa_python_layer *layer = context;
  const bppsa_recurrent_config *c = &layer->config;
  const size_t half = (size_t)c->hidden * bppsa_dtype_size(c->dtype);
  (void)number;
  for (int64_t b = 0; layer->last_cell != NULL && b < c->batch; ++b) {
    memcpy((char *)g + (size_t)(2 * (c->seq_len * c->batch + b) + 1) * half, (const char *)layer->last_cell + (size_t)b * half,
           half);
  }
  return BPPSA_OK;
}

static bppsa_status make_layer(const bppsa_cell *cell, int64_t threads, bppsa_python_layer *layer) {
  layer->pair = cell->pair;
  if (cell->pair) {
    layer->config.ends = (bppsa_recurrent_ends){.context = layer, .before = add_last_cell};
  }
  BPPSA_TRY(bppsa_device_create("cpu", threads, &layer->device));
  return bppsa_recurrent_create(&layer->config, cell, layer->device, &layer->model);
}

/* One layer of the cell "rnn", "gru", .. without a head. sizes: T, B, I, H. method: the text form of a gradient method
 * (scan/method.h). forward: how states are computed (recurrent/forward.h). threads: 0 for all cores. ERR_ARGUMENT: no such cell;
 * ERR_* of bppsa_recurrent_create. */
bppsa_status bppsa_python_layer_create(const char *cell, const char *method, const char *forward, int relu, int f64,
                                       const int64_t sizes[4], int input_gradients, int64_t threads, bppsa_python_layer **layer) {
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
  config.dtype = f64 ? BPPSA_F64 : BPPSA_F32;
  config.nonlinearity = relu ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  config.input_gradients = input_gradients;
  BPPSA_TRY(bppsa_gradient_method_parse(method, &config.method));
  BPPSA_TRY(bppsa_forward_parse(forward, &config.forward.kind));
  bppsa_python_layer *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->config = config;
  const bppsa_status status = make_layer(kind->cell, threads, made);
  if (status != BPPSA_OK) {
    bppsa_python_layer_destroy(made);
    return status;
  }
  *layer = made;
  return BPPSA_OK;
}

/* x: [T,B,I], borrowed until the last backward pass. h0: [B,H], of an LSTM [B,2H] with h in front of c, or NULL for zeros. weights:
 * W_ih [G·H,I], W_hh [G·H,H], b_ih, b_hh [G·H]; NULL for zeros. *states: h_1 .. h_T [T,B,H], and *cells c_1 .. c_T, or NULL
 * where there is none, in the layer's memory until its next forward pass. */
bppsa_status bppsa_python_layer_forward(bppsa_python_layer *layer, const void *x, const void *h0, const void *const weights[4],
                                        void **states, void **cells) {
  const bppsa_recurrent_config *c = &layer->config;
  const bppsa_view input = bppsa_view_make((void *)x, c->dtype, 3, (int64_t[]){c->seq_len, c->batch, c->input});
  const bppsa_view start = bppsa_view_make((void *)h0, c->dtype, 3, (int64_t[]){1, c->batch, state_size(layer)});
  bppsa_view found, of_c = {.data = NULL};
  for (int i = 0; i < WEIGHTS; ++i) {
    const bppsa_view *value = &layer->model->parameters[i].value;
    if (weights[i] != NULL) {
      memcpy(value->data, weights[i], bppsa_view_bytes(value));
    } else {
      memset(value->data, 0, bppsa_view_bytes(value));
    }
  }
  BPPSA_TRY(bppsa_recurrent_forward_layers(layer->model, &input, h0 != NULL ? &start : NULL));
  BPPSA_TRY(bppsa_recurrent_states(layer->model, 0, &found));
  BPPSA_TRY(layer->pair ? bppsa_recurrent_cell_states(layer->model, 0, &of_c) : BPPSA_OK);
  *states = found.data;
  *cells = of_c.data;
  return BPPSA_OK;
}

static void copy_out(const bppsa_view *from, void *to) {
  if (to != NULL) {
    memcpy(to, from->data, bppsa_view_bytes(from));
  }
}

/* The gradients of the latest forward pass, which may be asked for again. seed: of h_1 .. h_T [T,B,H]. last_cell: of an LSTM's c_T
 * [B,H], or NULL for zeros. Each of gradients (in the order and the shapes of weights), dx [T,B,I] and dh0, shaped as h0, may be
 * NULL: not wanted. ERR_UNSUPPORTED: dx or dh0 of a layer that was created without them. */
bppsa_status bppsa_python_layer_backward(bppsa_python_layer *layer, const void *seed, const void *last_cell,
                                         void *const gradients[4], void *dx, void *dh0) {
  const bppsa_recurrent_config *c = &layer->config;
  const bppsa_view states = bppsa_view_make((void *)seed, c->dtype, 3, (int64_t[]){c->seq_len, c->batch, c->hidden});
  bppsa_view of_x, of_h0;
  layer->last_cell = last_cell;
  BPPSA_TRY(bppsa_recurrent_backward_layers(layer->model, &states));
  if (dx != NULL || dh0 != NULL) {
    BPPSA_TRY(layer->model->ops->input_gradients(layer->model, &of_x, &of_h0));
    copy_out(&of_x, dx);
    copy_out(&of_h0, dh0);
  }
  for (int i = 0; i < WEIGHTS; ++i) {
    copy_out(&layer->model->parameters[i].gradient, gradients[i]);
  }
  return BPPSA_OK;
}

void bppsa_python_layer_destroy(bppsa_python_layer *layer) {
  if (layer != NULL) {
    bppsa_model_destroy(layer->model);
    bppsa_device_destroy(layer->device);
    bppsa_free(layer);
  }
}

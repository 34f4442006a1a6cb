/* `bppsa bench forward`: the forward pass in parallel over time beside the sequential one. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/cases/bench_forward.h"
#include "bench/rivals/guest_bench.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/philox.h"
#include "core/compute/device_buffer.h"
#include "core/compute/memory.h"
#include "core/measure/residual.h"
#include "networks/weights.h"
#include "terminal/machine.h"

const char bppsa_bench_notes_forward[] =
    "A speculative forward pass cuts T steps into chunks. The chunks run at the same time, each from a guessed state, and are\n"
    "corrected until they fit together. A row compares it with the sequential pass on the same weights and random bits.\n"
    "First each pass computes its states once. The check takes every state of the first layer and computes the next one from\n"
    "it. The largest difference is the column residual. A pass whose residual is above its tolerance is wrong: it is not\n"
    "timed, and the program exits 1. Then the passes take turns.\n"
    "  path    dependent steps of the slowest sample: the sequential pass has T\n"
    "  work    steps that were computed, over T\n"
    "  mended  corrections of chunks\n"
    "  tails   samples whose last chunks were computed one after the other, because speculation failed\n"
    "  gap     the largest difference that was accepted where two chunks meet\n"
    "  error   the largest difference of a state of the top layer from a sequential pass in float64\n"
    "  own     the largest such error of the sequential pass with the network's units in four orders, first as they are given:\n"
    "          another order adds the same products in another sequence, and so rounds otherwise\n"
    "  moves   how far these float64 states move when every weight moves by one rounding of the row's type: no pass in\n"
    "          that type can be expected to come closer\n"
    "  mean    of 200 passes: a network on which speculation failed, by its path or its work, pauses it for some passes.\n"
    "          The first of the 200 is failing_s in the document. Networks that failed have a mean, and so has the sequential\n"
    "          pass beside them, where T B H^2 is at most 2e8: more would take minutes.\n"
    "The methods of --rivals take part in the rounds, with forward passes alone: bench/rivals/recurrent.py has PyTorch's and\n"
    "JAX's layers. On a GPU rows named _graph are recordings, and rows named cudnn_ are cuDNN's algorithms, whose last states\n"
    "are held against float64: their error may be 2e-6 and 4 times the sequential pass's, of the persistent algorithms 32\n"
    "times that, because their functions are less accurate. Of --rivals residuals may be 2e-6 (2e-14 in f64), on a GPU 32\n"
    "times that, because they may call cuDNN. Of several layers, and of LSTMs, their error is held against that of the\n"
    "sequential pass instead, because their first layer's states, or its c, are not known.\n"
    "Without --weights the rows go over T, H, B and the initialisation: default, and orthogonal W_hh times 1, 1.2 and 1.5.\n"
    "--seq-len, --hidden and --batch fix one of the sizes. Otherwise B > 1 is left out where T B H^2 is above 1.2e9. With few\n"
    "steps for each sample of a batch the plan of a CPU is the sequential pass: its path is T, and the document has 1 chunk.\n";

enum { ROWS = 1024, CYCLE = 200 }; /* rows of a one-step network; passes of a mean */
enum { ORDERS = 4 };               /* of a network's units, the given one among them */

/* The largest T·B·H² of a point whose mean is measured, and of a point whose batch the benchmark chooses. */
static const double mean_size = 2e8, point_size = 1.2e9;

static const struct {
  const char *name;
  bppsa_init init;
  double scale; /* of W_hh */
} inits[] = {{"default", BPPSA_INIT_DEFAULT, 1},
             {"orthogonal", BPPSA_INIT_ORTHOGONAL, 1},
             {"orthogonal x 1.2", BPPSA_INIT_ORTHOGONAL, 1.2},
             {"orthogonal x 1.5", BPPSA_INIT_ORTHOGONAL, 1.5}};
static const int64_t lengths[] = {1000, 10000, 30000}, quick_lengths[] = {1000}, widths[] = {20, 64, 200}, batches[] = {1, 16};

typedef bppsa_forward_session session;
typedef bppsa_forward_entry entry;

enum { INITS = sizeof inits / sizeof inits[0], LENGTHS = 3, WIDTHS = 3, BATCHES = 2 };

/* ---- points ---- */

/* Chooses one of `count` values by the place in the sweep; a value that was asked for is the only one. */
static int64_t pick(int64_t asked, const int64_t *values, int64_t count, int64_t *place) {
  const int64_t at = asked > 0 ? 0 : *place % count;
  *place /= asked > 0 ? 1 : count;
  return asked > 0 ? asked : values[at];
}

static double size_of(const bppsa_recurrent_config *c) {
  return (double)c->seq_len * (double)c->batch * (double)c->hidden * (double)c->hidden;
}

/* Sets the sizes at a place of the sweep over T, H and B. False: there is no such place. */
static bool place_sizes(const bppsa_bench_settings *asked, int64_t place, bppsa_recurrent_config *c) {
  const bool quick = asked->request.quick;
  c->hidden = pick(asked->hidden, widths, quick ? 1 : WIDTHS, &place);
  c->seq_len = pick(asked->longest, quick ? quick_lengths : lengths, quick ? 1 : LENGTHS, &place);
  c->batch = pick(asked->batch, batches, quick ? 1 : BATCHES, &place);
  return place == 0;
}

/* Sets the sizes and the weights' name of a point. False: there is no such point. */
static bool choose(session *s, const bppsa_bench_settings *asked, int64_t point, int64_t *init) {
  s->config = asked->point.config;
  s->config.method.backward = BPPSA_BACKWARD_BP;
  if (asked->weights != NULL) {
    s->init = asked->weights_name;
    s->config.batch = asked->batch > 0 ? asked->batch : 1;
    return point == 0;
  }
  *init = point % INITS;
  s->init = inits[*init].name;
  int64_t left = point / INITS; /* how many places of the sweep come before it */
  for (int64_t place = 0; place_sizes(asked, place, &s->config); ++place) {
    const bool taken = asked->batch > 0 || s->config.batch == 1 || size_of(&s->config) <= point_size;
    if (taken && left-- == 0) {
      return true;
    }
  }
  return false;
}

/* ---- models and inputs ---- */

static bppsa_status set_weights(const session *s, int64_t init, bppsa_model *model) {
  const bppsa_bench_settings *asked = s->bench->asked;
  if (asked->weights != NULL) {
    const bppsa_weights_request request = {.path = asked->weights_name};
    const bppsa_network network = {.kind = asked->point.kind, .name = asked->point.kind->name};
    return bppsa_weights_set(&request, &network, asked->weights, model, NULL);
  }
  BPPSA_TRY(bppsa_recurrent_init(model, inits[init].init, asked->request.seed));
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_view *w = &model->parameters[i].value;
    for (int64_t k = 0; strstr(model->parameters[i].name, "weight_hh") != NULL && k < bppsa_view_count(w); ++k) {
      bppsa_view_set(w, k, inits[init].scale * bppsa_view_get(w, k));
    }
  }
  return bppsa_model_push(model);
}

/* Copies all weights, whose types may differ. */
static bppsa_status copy_weights(const bppsa_model *from, bppsa_model *to) {
  for (int64_t i = 0; i < from->parameter_count; ++i) {
    for (int64_t k = 0; k < bppsa_view_count(&from->parameters[i].value); ++k) {
      bppsa_view_set(&to->parameters[i].value, k, bppsa_view_get(&from->parameters[i].value, k));
    }
  }
  return bppsa_model_push(to);
}

/* Fills a new x with random bits, each 0 or 1 with probability 1/2, as the bitstream data set does. */
static bppsa_status make_bits(const session *s, bppsa_buffer *x) {
  const bppsa_recurrent_config *c = &s->config;
  BPPSA_TRY(bppsa_buffer_create(NULL, c->dtype, 3, (int64_t[]){c->seq_len, c->batch, c->input}, x));
  for (int64_t i = 0; i < bppsa_view_count(&x->view); ++i) {
    bppsa_view_set(&x->view, i, bppsa_random_double(s->bench->request->seed, BPPSA_STREAM_TEST, (uint64_t)i) < 0.5);
  }
  return BPPSA_OK;
}

static bppsa_status make_input(session *s) {
  BPPSA_TRY(make_bits(s, &s->x));
  BPPSA_TRY(make_bits(s, &s->in));
  BPPSA_TRY(bppsa_buffer_move(s->bench->device, &s->in));
  if (!s->bench->gpu) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_buffer_create(NULL, s->config.dtype, 3, s->x.view.shape, &s->zero));
  return bppsa_buffer_move(s->bench->device, &s->zero);
}

/* A layer's states h or, of pairs, c, in the host's memory, as float64. */
static bppsa_status fetch_half(const bppsa_device *device, const bppsa_model *model, int64_t layer, bool c, double **states) {
  bppsa_view view;
  bppsa_buffer host = {0};
  BPPSA_TRY((c ? bppsa_recurrent_cell_states : bppsa_recurrent_states)(model, layer, &view));
  BPPSA_TRY(bppsa_buffer_fetch(device, &view, &host));
  const int64_t count = bppsa_view_count(&host.view);
  *states = bppsa_calloc(count, sizeof **states);
  for (int64_t i = 0; *states != NULL && i < count; ++i) {
    (*states)[i] = bppsa_view_get(&host.view, i);
  }
  bppsa_buffer_free(&host);
  return *states != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

static bppsa_status fetch_states(const bppsa_device *device, const bppsa_model *model, int64_t layer, double **states) {
  return fetch_half(device, model, layer, false, states);
}

/* Moves every weight by one rounding of a type, up or down at random. */
static void move_weights(bppsa_model *model, bppsa_dtype dtype, uint64_t seed) {
  const double rounding = dtype == BPPSA_F32 ? 0x1p-24 : 0x1p-53;
  uint64_t drawn = 0;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_view *w = &model->parameters[i].value;
    for (int64_t k = 0; k < bppsa_view_count(w); ++k) {
      const bool up = bppsa_random_double(seed, BPPSA_STREAM_TEST, drawn++) < 0.5;
      bppsa_view_set(w, k, bppsa_view_get(w, k) * (1 + (up ? rounding : -rounding)));
    }
  }
}

/* Sets the session's `moves`, by another pass of the float64 network, whose weights it changes. */
static bppsa_status find_moves(session *s, const bppsa_view *x, bppsa_model *exact) {
  double *moved = NULL;
  move_weights(exact, s->config.dtype, s->bench->request->seed);
  BPPSA_TRY(bppsa_model_push(exact));
  BPPSA_TRY(bppsa_recurrent_forward_layers(exact, x, NULL));
  BPPSA_TRY(fetch_states(s->bench->host, exact, s->config.layers - 1, &moved));
  s->moves = 0;
  for (int64_t i = 0; i < s->config.seq_len * s->config.batch * s->config.hidden; ++i) {
    s->moves = bppsa_residual_worse(s->moves, fabs(moved[i] - s->reference[i]));
  }
  bppsa_free(moved);
  return BPPSA_OK;
}

/* A sequential pass in float64 from the same weights and inputs, on the host, and how far its states move. */
static bppsa_status make_reference(session *s, const bppsa_model *model) {
  bppsa_recurrent_config c = s->config;
  bppsa_model *exact = NULL;
  bppsa_buffer x = {0};
  c.dtype = BPPSA_F64;
  c.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  BPPSA_TRY(bppsa_recurrent_create(&c, s->bench->asked->point.kind->cell, s->bench->host, &exact));
  bppsa_status status = copy_weights(model, exact);
  status = status == BPPSA_OK ? bppsa_buffer_create(NULL, BPPSA_F64, 3, s->x.view.shape, &x) : status;
  for (int64_t i = 0; status == BPPSA_OK && i < bppsa_view_count(&x.view); ++i) {
    bppsa_view_set(&x.view, i, bppsa_view_get(&s->x.view, i));
  }
  status = status == BPPSA_OK ? bppsa_recurrent_forward_layers(exact, &x.view, NULL) : status;
  status = status == BPPSA_OK ? fetch_states(s->bench->host, exact, c.layers - 1, &s->reference) : status;
  status = status == BPPSA_OK ? find_moves(s, &x.view, exact) : status;
  bppsa_buffer_free(&x);
  bppsa_model_destroy(exact);
  return status;
}

/* ---- the units in other orders ---- */

/* Draws an order of the units by Fisher and Yates. */
static void draw_order(int64_t hidden, uint64_t seed, int64_t *order) {
  for (int64_t j = 0; j < hidden; ++j) {
    order[j] = j;
  }
  for (int64_t j = hidden - 1; j > 0; --j) {
    const int64_t k = (int64_t)(bppsa_random_double(seed, BPPSA_STREAM_TEST, (uint64_t)j) * (double)(j + 1)), unit = order[j];
    order[j] = order[k];
    order[k] = unit;
  }
}

/* Copies the weights of all layers so that unit j becomes unit order[j] of the first network. */
static bppsa_status reorder_weights(const bppsa_model *from, int64_t layers, int64_t hidden, const int64_t *order,
                                    bppsa_model *to) {
  enum { W_IH, W_HH, OF_LAYER = 4 };
  for (int64_t i = 0; i < OF_LAYER * layers; ++i) {
    const bppsa_view *w = &from->parameters[i].value;
    const int64_t columns = i % OF_LAYER <= W_HH ? w->shape[1] : 1;
    const bool by_units = i % OF_LAYER == W_HH || (i % OF_LAYER == W_IH && i > 0); /* columns are units too */
    for (int64_t k = 0; k < bppsa_view_count(w); ++k) {
      const int64_t row = k / columns, column = k % columns, gate = row / hidden;
      const int64_t taken = (gate * hidden + order[row % hidden]) * columns + (by_units ? order[column] : column);
      bppsa_view_set(&to->parameters[i].value, k, bppsa_view_get(w, taken));
    }
  }
  return bppsa_model_push(to);
}

/* Sets the session's `reordered`, by sequential passes where the entries run. */
static bppsa_status find_reordered(session *s, const bppsa_model *model) {
  bppsa_recurrent_config c = s->config;
  bppsa_model *other = NULL;
  int64_t *order = bppsa_calloc(c.hidden, sizeof *order);
  c.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  s->reordered = 0;
  bppsa_status status = order == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  status = status == BPPSA_OK ? bppsa_recurrent_create(&c, s->bench->asked->point.kind->cell, s->bench->device, &other) : status;
  for (uint64_t k = 1; status == BPPSA_OK && k < ORDERS; ++k) {
    double *states = NULL;
    draw_order(c.hidden, s->bench->request->seed + k, order);
    status = reorder_weights(model, c.layers, c.hidden, order, other);
    status = status == BPPSA_OK ? bppsa_recurrent_forward_layers(other, &s->in.view, NULL) : status;
    status = status == BPPSA_OK ? fetch_states(s->bench->device, other, c.layers - 1, &states) : status;
    for (int64_t i = 0; status == BPPSA_OK && i < c.seq_len * c.batch * c.hidden; ++i) {
      const double expected = s->reference[i / c.hidden * c.hidden + order[i % c.hidden]];
      s->reordered = bppsa_residual_worse(s->reordered, fabs(states[i] - expected));
    }
    bppsa_free(states);
  }
  bppsa_model_destroy(other);
  bppsa_free(order);
  return status;
}

/* ---- verification ---- */

/* How many numbers a state has: H, or 2H for a pair. */
static int64_t state_size(const session *s) {
  return (s->bench->asked->point.kind->cell->pair ? 2 : 1) * s->config.hidden;
}

/* The states before some steps [rows][S], the inputs of these steps [rows][I], and the states that the pass made of them [rows][H]:
 * h, and c of pairs or NULL. */
typedef struct {
  int64_t rows;
  const double *before, *in, *h, *c;
} step_of_rows;

static void add_worst(const bppsa_view *got, const double *expected, bool relative, double *worst) {
  for (int64_t i = 0; i < bppsa_view_count(got); ++i) {
    const double value = bppsa_view_get(got, i), unit = relative ? fmax(1, fabs(value)) : 1;
    *worst = bppsa_residual_worse(*worst, fabs(value - expected[i]) / unit);
  }
}

/* Makes one step of all rows at once: they are the batch of the network `step`. */
static bppsa_status step_rows(bppsa_model *step, const bppsa_recurrent_config *c, int64_t size, const step_of_rows *r,
                              double *worst) {
  const int64_t rows = r->rows;
  bppsa_buffer x = {0}, state = {0};
  bppsa_view got;
  bppsa_status status = bppsa_buffer_create(NULL, c->dtype, 3, (int64_t[]){1, rows, c->input}, &x);
  status = status == BPPSA_OK ? bppsa_buffer_create(NULL, c->dtype, 3, (int64_t[]){1, rows, size}, &state) : status;
  for (int64_t i = 0; status == BPPSA_OK && i < rows * c->input; ++i) {
    bppsa_view_set(&x.view, i, r->in[i]);
  }
  for (int64_t i = 0; status == BPPSA_OK && i < rows * size; ++i) {
    bppsa_view_set(&state.view, i, r->before[i]);
  }
  status = status == BPPSA_OK ? bppsa_recurrent_forward_layers(step, &x.view, &state.view) : status;
  status = status == BPPSA_OK ? bppsa_recurrent_states(step, 0, &got) : status;
  if (status == BPPSA_OK) {
    add_worst(&got, r->h, false, worst);
  }
  if (status == BPPSA_OK && r->c != NULL) {
    status = bppsa_recurrent_cell_states(step, 0, &got);
    add_worst(&got, r->c, true, worst);
  }
  bppsa_buffer_free(&x);
  bppsa_buffer_free(&state);
  return status;
}

bppsa_status bppsa_forward_find_residual(const session *s, const double *h, const double *cells, double *worst) {
  bppsa_recurrent_config c = s->config;
  bppsa_model *step = NULL;
  const int64_t all = c.seq_len * c.batch, size = state_size(s);
  double *before = bppsa_calloc((all + c.batch) * size, sizeof *before), *in = bppsa_calloc(all * c.input, sizeof *in);
  bppsa_status status = before == NULL || in == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  c.seq_len = c.layers = 1;
  c.batch = all < ROWS ? all : ROWS;
  c.forward.kind = BPPSA_FORWARD_SEQUENTIAL;
  status = status == BPPSA_OK ? bppsa_recurrent_create(&c, s->bench->asked->point.kind->cell, s->bench->host, &step) : status;
  for (int64_t i = 0; status == BPPSA_OK && i < 4; ++i) {
    const bppsa_view *from = &s->entries[BPPSA_PASS_SEQUENTIAL].model->parameters[i].value;
    memcpy(step->parameters[i].value.data, from->data, bppsa_view_bytes(from));
  }
  for (int64_t i = 0; status == BPPSA_OK && i < all * c.input; ++i) {
    in[i] = bppsa_view_get(&s->x.view, i);
  }
  for (int64_t row = 0; status == BPPSA_OK && row < all; ++row) {
    double *to = before + (s->config.batch + row) * size;
    memcpy(to, h + row * c.hidden, (size_t)c.hidden * sizeof *to);
    if (cells != NULL) {
      memcpy(to + c.hidden, cells + row * c.hidden, (size_t)c.hidden * sizeof *to);
    }
  }
  for (int64_t row = 0; status == BPPSA_OK && row < all; row += c.batch) {
    const step_of_rows rows = {.rows = all - row < c.batch ? all - row : c.batch,
                               .before = before + row * size,
                               .in = in + row * c.input,
                               .h = h + row * c.hidden,
                               .c = cells != NULL ? cells + row * c.hidden : NULL};
    status = step_rows(step, &c, size, &rows, worst);
  }
  bppsa_model_destroy(step);
  bppsa_free(before);
  bppsa_free(in);
  return status;
}

static bppsa_status run_pass(void *context) {
  const entry *e = context;
  return bppsa_recurrent_forward_layers(e->model, &e->s->in.view, NULL);
}

/* Measures the mean of CYCLE passes; after one that fails, the next ones do not speculate. */
static bppsa_status time_failing(entry *e) {
  const bppsa_forward_pause none = {0};
  BPPSA_TRY(bppsa_forward_pause_set(e->model, &none));
  const double begun = bppsa_now();
  for (int i = 0; i < CYCLE; ++i) {
    BPPSA_TRY(run_pass(e));
    BPPSA_TRY(bppsa_device_wait(e->s->bench->device));
    e->failing_s = i == 0 ? bppsa_now() - begun : e->failing_s;
  }
  e->mean_s = (bppsa_now() - begun) / CYCLE;
  return BPPSA_OK;
}

static bppsa_status judge(void *context, double *residual) {
  entry *e = context;
  session *s = e->s;
  const bppsa_forward_plan *plan = bppsa_forward_plan_of(e->model);
  const double rounding = s->config.dtype == BPPSA_F64 ? 2e-15 : 5e-7, allowed = fmax(fmax(plan->accept, plan->stop), rounding);
  double *top = NULL, *first = NULL, *cells = NULL;
  BPPSA_TRY(bppsa_forward_stats_of(e->model, &e->stats));
  bppsa_status status = fetch_states(s->bench->device, e->model, s->config.layers - 1, &top);
  status = status == BPPSA_OK ? fetch_states(s->bench->device, e->model, 0, &first) : status;
  if (state_size(s) > s->config.hidden && status == BPPSA_OK) {
    status = fetch_half(s->bench->device, e->model, 0, true, &cells);
  }
  e->worst = 0;
  status = status == BPPSA_OK ? bppsa_forward_find_residual(s, first, cells, &e->worst) : status;
  e->error = 0;
  for (int64_t i = 0; status == BPPSA_OK && i < s->config.seq_len * s->config.batch * s->config.hidden; ++i) {
    e->error = bppsa_residual_worse(e->error, fabs(top[i] - s->reference[i]));
  }
  *residual = e->worst / allowed;
  bppsa_free(top);
  bppsa_free(first);
  bppsa_free(cells);
  const bool right = *residual < s->bench->kind->bound, fails = bppsa_forward_fails(plan, &e->stats);
  const bool known = isfinite(e->mean_s); /* measured of queued passes; a recording has no such mean */
  if (status == BPPSA_OK && right && fails && !known && size_of(&s->config) <= mean_size) {
    BPPSA_TRY(time_failing(&s->entries[BPPSA_PASS_SEQUENTIAL]));
    status = time_failing(e);
  }
  return status;
}

/* Makes a pass over zeros, so that the next pass finds other states than its own. */
static bppsa_status clear_pass(void *context) {
  const entry *e = context;
  return bppsa_recurrent_forward_layers(e->model, &e->s->zero.view, NULL);
}

static const bppsa_bench_work work = {.action = run_pass, .judge = judge},
                              recorded_work = {.action = run_pass, .clear = clear_pass, .judge = judge};

/* ---- points ---- */

static bppsa_status prepare(bppsa_bench *bench) {
  session *s = bench->session;
  BPPSA_TRY(bppsa_bench_read_earlier(bench, bench->asked->point.kind->name));
  return bppsa_bench_start_guest(bench, bench->asked->rivals, &s->guest);
}

static bool put_versions(const bppsa_bench *bench, json_t *document) {
  const session *s = bench->session;
  return s->guest == NULL || bppsa_guest_put_versions(s->guest, json_object_get(document, "device"));
}

static void release(bppsa_bench *bench) {
  bppsa_guest_stop(((session *)bench->session)->guest);
}

/* A pass that the device has no kernels for is left out. */
static bppsa_status enter_pass(session *s, bppsa_pass_kind kind, int64_t init) {
  static const char *const names[BPPSA_PASSES] = {"sequential", "speculative"};
  bppsa_bench *bench = s->bench;
  entry *e = &s->entries[kind];
  bppsa_recurrent_config config = s->config;
  char graph[24];
  bool entered = false;
  *e = (entry){.s = s, .kind = kind, .failing_s = NAN, .mean_s = NAN};
  config.forward.kind = kind == BPPSA_PASS_SEQUENTIAL ? BPPSA_FORWARD_SEQUENTIAL : BPPSA_FORWARD_SPECULATIVE;
  const bppsa_status status = bppsa_recurrent_create(&config, bench->asked->point.kind->cell, bench->device, &e->model);
  if (status == BPPSA_ERR_UNSUPPORTED) {
    return bppsa_bench_leave_out(bench, names[kind], "forward");
  }
  BPPSA_TRY(status);
  BPPSA_TRY(set_weights(s, init, e->model));
  BPPSA_TRY(kind == BPPSA_PASS_SEQUENTIAL ? make_reference(s, e->model) : BPPSA_OK);
  BPPSA_TRY(kind == BPPSA_PASS_SEQUENTIAL ? find_reordered(s, e->model) : BPPSA_OK);
  BPPSA_TRY(bppsa_bench_enter(bench, &work, bench->device, e, names[kind], "forward", &entered));
  snprintf(graph, sizeof graph, "%s_graph", names[kind]);
  return bench->gpu && entered ? bppsa_bench_enter_recording(bench, &recorded_work, e, graph, "forward") : BPPSA_OK;
}

static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  session *s = bench->session;
  int64_t init = 0;
  s->bench = bench;
  *more = choose(s, bench->asked, point, &init);
  if (!*more || bppsa_bench_out_of_time(bench)) {
    return BPPSA_OK;
  }
  snprintf(bench->point, sizeof bench->point, "%s", s->init);
  BPPSA_TRY(make_input(s));
  for (int k = 0; k < BPPSA_PASSES; ++k) {
    BPPSA_TRY(enter_pass(s, (bppsa_pass_kind)k, init));
  }
  return bppsa_forward_enter_rivals(s);
}

static void leave(bppsa_bench *bench) {
  session *s = bench->session;
  for (int k = 0; k < BPPSA_PASSES; ++k) {
    bppsa_model_destroy(s->entries[k].model);
    s->entries[k].model = NULL;
  }
  bppsa_forward_end_rivals(s);
  bppsa_buffer_free(&s->x);
  bppsa_buffer_free(&s->in);
  bppsa_buffer_free(&s->zero);
  bppsa_free(s->reference);
  s->reference = NULL;
}

/* ---- rows ---- */

static bool put(const bppsa_bench_entrant *entrant, json_t *row) {
  const entry *e = entrant->context;
  const session *s = e->s;
  const bppsa_recurrent_config *c = &s->config;
  const bppsa_forward_plan *plan = e->model != NULL ? bppsa_forward_plan_of(e->model) : NULL;
  bool ok = bppsa_json_put_text(row, "model", s->bench->asked->point.kind->name) && bppsa_json_put_text(row, "init", s->init);
  ok = ok && bppsa_json_put_integer(row, "seq_len", c->seq_len) && bppsa_json_put_integer(row, "batch", c->batch);
  ok = ok && bppsa_json_put_integer(row, "hidden", c->hidden) && bppsa_json_put_integer(row, "input", c->input);
  ok = ok && bppsa_json_put_integer(row, "layers", c->layers) && bppsa_json_put_text(row, "dtype", bppsa_dtype_name(c->dtype));
  ok = ok && bppsa_json_put_integer(row, "threads", bppsa_device_get_threads(s->bench->device));
  ok = ok && bppsa_json_put_text(row, "method", entrant->method) && bppsa_json_put_text(row, "phase", entrant->phase);
  ok = ok && (e->kind < BPPSA_PASSES || bppsa_json_put_bool(row, "rival", true));
  ok = ok && bppsa_bench_put_timing(row, &entrant->contender.timing[0]);
  ok = ok && (!entrant->contender.beaten || bppsa_json_put_real(row, "qualifying", entrant->contender.qualifying[0]));
  if (plan != NULL) {
    ok = ok && bppsa_json_put_integer(row, "chunks", plan->chunks) && bppsa_json_put_integer(row, "warm_up", plan->warm_up);
    ok = ok && bppsa_forward_stats_put(row, &e->stats);
  }
  ok = ok && bppsa_json_put_real(row, "residual", e->worst) && bppsa_json_put_real(row, "error", e->error);
  const double own = bppsa_residual_worse(s->reordered, s->entries[BPPSA_PASS_SEQUENTIAL].error);
  ok = ok && bppsa_json_put_real(row, "own", own) && bppsa_json_put_real(row, "moves", s->moves);
  return ok && bppsa_json_put_real(row, "mean_s", e->mean_s) && bppsa_json_put_real(row, "failing_s", e->failing_s);
}

static const bppsa_table_column columns[] = {
    {.heading = "init", .width = -18, .key = "init"},
    {.heading = "method", .width = -20, .key = "method"},
    {.heading = "T", .width = 7, .kind = BPPSA_COLUMN_INTEGER, .key = "seq_len"},
    {.heading = "B", .width = 4, .kind = BPPSA_COLUMN_INTEGER, .key = "batch"},
    {.heading = "H", .width = 5, .kind = BPPSA_COLUMN_INTEGER, .key = "hidden"},
    BPPSA_COLUMN_TIMES(10, 10, 6, 3),
    {.heading = "mean", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "mean_s", .scale = 1e3, .digits = 3},
    {.heading = "path", .width = 7, .kind = BPPSA_COLUMN_INTEGER, .key = "path"},
    {.heading = "work", .width = 6, .kind = BPPSA_COLUMN_REAL, .key = "work", .digits = 2},
    {.heading = "mended", .width = 8, .kind = BPPSA_COLUMN_INTEGER, .key = "mended"},
    {.heading = "tails", .width = 6, .kind = BPPSA_COLUMN_INTEGER, .key = "tails"},
    {.heading = "gap", .width = 9, .kind = BPPSA_COLUMN_EXPONENT, .key = "gap"},
    {.heading = "residual", .width = 10, .kind = BPPSA_COLUMN_EXPONENT, .key = "residual"},
    {.heading = "error", .width = 9, .kind = BPPSA_COLUMN_EXPONENT, .key = "error"},
    {.heading = "own", .width = 9, .kind = BPPSA_COLUMN_EXPONENT, .key = "own"},
    {.heading = "moves", .width = 9, .kind = BPPSA_COLUMN_EXPONENT, .key = "moves"},
    {0}};

static bppsa_status print_head(const bppsa_bench *bench) {
  char date[BPPSA_DATE_TEXT];
  return bppsa_output_print(&bench->request->to,
                            "forward passes of %s on %s, %d threads, %s\n"
                            "milliseconds; mean: of %d passes, pauses included; error: against float64\n\n",
                            bench->asked->point.kind->name, bppsa_device_get_hardware(bench->device),
                            bppsa_device_get_threads(bench->device), bppsa_machine_date(date, sizeof date), CYCLE);
}

static const char *note_beaten(const bppsa_bench_entrant *entrant, char *text, size_t size) {
  return entrant->contender.beaten ? bppsa_table_qualifying_text(entrant->contender.qualifying[0], text, size) : NULL;
}

const bppsa_bench_case bppsa_bench_case_forward = {.name = "forward",
                                                   .session = sizeof(session),
                                                   .budget_s = 1,
                                                   .quick_s = 0.1,
                                                   .bound = 1 + 1e-9,
                                                   .names = (const char *const[]){"init", "method", NULL},
                                                   .columns = columns,
                                                   .prepare = prepare,
                                                   .put_members = put_versions,
                                                   .release = release,
                                                   .head = print_head,
                                                   .enter = enter,
                                                   .put = put,
                                                   .note = note_beaten,
                                                   .leave = leave,
                                                   .finish = bppsa_bench_report_points};

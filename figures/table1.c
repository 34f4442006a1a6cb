/* Table 1: the time to make transposed Jacobians directly, compared with reverse mode, which computes them column by column. Both
 * compute the same numbers, which are compared before anything is timed. The timed passes alternate. */
#include <math.h>
#include <string.h>

#include "cnn/conv.h"
#include "cnn/layers.h"
#include "cnn/network.h"
#include "core/base/alloc.h"
#include "core/measure/residual.h"
#include "core/measure/rounds.h"
#include "figures/figure_data.h"
#include "figures/keep_measurements.h"
#include "jacobian/jacobian.h"

static const struct {
  const char *name;
  int layer;    /* layer of VGG-11 */
  double paper; /* the paper's speedup over autograd, which computes one column at a time */
} operators[] = {{"conv1", 0, 8.3e3}, {"relu1", 1, 1.2e6}, {"pool1", 2, 1.5e5}};

#define TOLERANCE 1e-5 /* absolute; values are at most 1 */

/* An operator on one sample and one thread, with the arrays for one column of reverse mode and for all values of its transposed
 * Jacobian. */
typedef struct {
  const bppsa_cnn_layer *layer;
  bppsa_device *device;
  int64_t inputs, outputs, column;
  bppsa_conv conv;
  float *x, *y, *dy, *dx, *weights, *scratch, *values;
  int32_t *places;
  bppsa_jacobian *jacobian;
} operation;

static bool is_conv(const operation *o) {
  return o->layer->op.kind == BPPSA_OPERATOR_CONV2D;
}

/* Computes column X of Jᵀ: the operator's backward pass for a gradient that is 1 at output X and 0 elsewhere. */
static bppsa_status one_column(void *context) {
  operation *o = context;
  const bppsa_layer_call call = {.op = &o->layer->op, .out = o->layer->out, .dtype = BPPSA_F32, .threads = 1, .batch = 1};
  o->dy[o->column] = 0;
  o->column = (o->column + 7919) % o->outputs; /* spread the columns over the whole image */
  o->dy[o->column] = 1;
  if (is_conv(o)) {
    bppsa_conv_input_gradient(&o->conv, 1, o->dy, o->weights, o->scratch, o->dx);
  } else {
    bppsa_cnn_layer_backward(&call, o->dy, o->x, o->y, o->places, o->dx);
  }
  return BPPSA_OK;
}

static bppsa_status all_values(void *context) {
  operation *o = context;
  const bppsa_jacobian_operands operands = {.batch = 1, .weights = o->weights, .input = o->x};
  return bppsa_jacobian_fill(o->jacobian, BPPSA_F32, &operands, o->values);
}

/* Fills an array with numbers in (-1, 1) that repeat after `period` elements. */
static void fill(float *to, int64_t count, int64_t period) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = (float)((i * 7919) % period) / (float)period * 2 - 1;
  }
}

static bppsa_status prepare(operation *o) {
  const bppsa_op *op = &o->layer->op;
  const int64_t weights = bppsa_op_weights(op);
  BPPSA_TRY(bppsa_device_create("cpu", 1, &o->device));
  BPPSA_TRY(is_conv(o) ? bppsa_conv_plan(op, BPPSA_F32, 1, 1, &o->conv) : BPPSA_OK);
  BPPSA_TRY(bppsa_jacobian_create(op, NULL, false, o->device, &o->jacobian));
  o->x = bppsa_calloc(o->inputs + 16, sizeof *o->x);
  o->y = bppsa_calloc(o->outputs + 16, sizeof *o->y);
  o->dy = bppsa_calloc(o->outputs + 16, sizeof *o->dy);
  o->dx = bppsa_calloc(o->inputs + 16, sizeof *o->dx);
  o->places = bppsa_calloc(o->outputs, sizeof *o->places);
  o->weights = bppsa_calloc(weights + 1, sizeof *o->weights);
  o->scratch = bppsa_calloc(is_conv(o) ? bppsa_conv_scratch(&o->conv) : 1, sizeof *o->scratch);
  o->values = bppsa_calloc(bppsa_jacobian_pattern(o->jacobian)->nnz, sizeof *o->values);
  if (o->x == NULL || o->y == NULL || o->dy == NULL || o->dx == NULL || o->places == NULL || o->weights == NULL ||
      o->scratch == NULL || o->values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  fill(o->x, o->inputs, 10007);
  fill(o->weights, weights, 1009);
  if (!is_conv(o)) {
    const bppsa_layer_call call = {.op = op, .out = o->layer->out, .dtype = BPPSA_F32, .threads = 1, .batch = 1};
    bppsa_cnn_layer_forward(&call, o->x, o->places, o->y);
  }
  return BPPSA_OK;
}

/* The largest difference between a column of reverse mode and the same column of the generated matrix. NaN stays. */
static bppsa_status verify(void *context, double *residual) {
  operation *o = context;
  double worst = 0;
  BPPSA_TRY(one_column(o));
  BPPSA_TRY(all_values(o));
  const bppsa_csr *csr = bppsa_jacobian_pattern(o->jacobian);
  for (int64_t r = 0; r < csr->rows; ++r) {
    float value = 0;
    for (int64_t p = csr->row_ptr[r]; p < csr->row_ptr[r + 1]; ++p) {
      value += csr->col[p] == o->column ? o->values[p] : 0;
    }
    worst = bppsa_residual_worse(worst, (double)fabsf(value - o->dx[r]));
  }
  *residual = worst;
  return BPPSA_OK;
}

static void release(operation *o) {
  void *const blocks[] = {o->x, o->y, o->dy, o->dx, o->places, o->weights, o->scratch, o->values};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
    bppsa_free(blocks[i]);
  }
  bppsa_jacobian_destroy(o->jacobian);
  bppsa_device_destroy(o->device);
}

/* ERR_NUMERIC: the two ways computed different numbers. */
static bppsa_status time_both(operation *o, const char *name, bppsa_timing times[2]) {
  bppsa_timed_work work[2] = {{.device = o->device, .action = one_column, .context = o},
                              {.device = o->device, .action = all_values, .context = o}};
  bppsa_contender list[2];
  const bppsa_rounds rounds = {.budget_s = 0.2};
  bppsa_status status = BPPSA_OK;
  for (int i = 0; i < 2; ++i) {
    list[i] = (bppsa_contender){
        .name = name, .verification = {verify, o, TOLERANCE}, .pass = bppsa_timed_work_pass, .context = &work[i], .parts = 1};
    status = status == BPPSA_OK ? bppsa_timed_work_open(&work[i]) : status;
  }
  status = status == BPPSA_OK ? bppsa_rounds_run(&rounds, 2, list) : status;
  for (int i = 0; i < 2; ++i) {
    bppsa_timed_work_close(&work[i]);
    status = status == BPPSA_OK ? bppsa_contender_status(&list[i]) : status;
    times[i] = list[i].timing[0];
  }
  return status;
}

static json_t *row_json(int index, int64_t columns, const bppsa_timing times[2]) {
  json_t *row = json_object();
  bool ok = row != NULL && bppsa_json_put_text(row, "operator", operators[index].name);
  ok = ok && bppsa_json_put_real(row, "columns_s", (double)columns * times[0].median_s);
  ok = ok && bppsa_json_put_real(row, "columns_min_s", (double)columns * times[0].min_s);
  ok = ok && bppsa_json_put_real(row, "generated_s", times[1].median_s);
  ok = ok && bppsa_json_put_real(row, "generated_min_s", times[1].min_s);
  ok = ok && bppsa_json_put_bool(row, "noisy", times[0].noisy || times[1].noisy);
  ok = ok && bppsa_json_put_real(row, "paper_speedup", operators[index].paper);
  return bppsa_json_finish(row, ok);
}

static bppsa_status measure(const bppsa_cnn_network *vgg, int index, json_t *rows) {
  operation o = {.layer = &vgg->layers[operators[index].layer]};
  const bppsa_op *op = &o.layer->op;
  bppsa_timing times[2] = {{0}};
  o.inputs = op->in[0] * op->in[1] * op->in[2];
  o.outputs = o.layer->out[0] * o.layer->out[1] * o.layer->out[2];
  bppsa_status status = prepare(&o);
  status = status == BPPSA_OK ? time_both(&o, operators[index].name, times) : status;
  status = status == BPPSA_ERR_NUMERIC ? bppsa_fail_prefix(status, "table 1") : status;
  release(&o);
  BPPSA_TRY(status);
  return json_array_append_new(rows, row_json(index, o.outputs, times)) == 0 ? BPPSA_OK : bppsa_figures_no_room();
}

/* Adds one row for each operator: its name, the medians and minima of both ways in seconds, "noisy" and the paper's speedup.
 * ERR_NUMERIC: the two ways computed different numbers. */
static bppsa_status measure_all(json_t *rows) {
  bppsa_cnn_network vgg = {0};
  BPPSA_TRY(bppsa_cnn_network_builtin("vgg11", &vgg));
  bppsa_status status = BPPSA_OK;
  for (size_t i = 0; status == BPPSA_OK && i < sizeof operators / sizeof operators[0]; ++i) {
    status = measure(&vgg, (int)i, rows);
  }
  bppsa_cnn_network_free(&vgg);
  return status;
}

/* ---- the figure's data ---- */

static double number_of(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static const char *name_of(const json_t *row) {
  const char *name = json_string_value(json_object_get(row, "operator"));
  return name != NULL ? name : "";
}

static bppsa_status keep_rows(const bppsa_figures *f, const char *name) {
  json_t *rows = json_array();
  const bppsa_status status = rows != NULL ? measure_all(rows) : BPPSA_OK;
  if (status != BPPSA_OK) {
    json_decref(rows);
    return status;
  }
  return bppsa_keep_part(f, name, rows);
}

static void add_row(const json_t *row, bppsa_text *csv, bppsa_text *html) {
  const bool marked = json_is_true(json_object_get(row, "noisy"));
  const double columns = number_of(row, "columns_s"), generated = number_of(row, "generated_s");
  bppsa_text_add(csv, "%s", name_of(row));
  bppsa_text_add_cells(csv, 6,
                       (double[]){columns, generated, columns / generated, number_of(row, "paper_speedup"),
                                  number_of(row, "columns_min_s"), number_of(row, "generated_min_s")});
  bppsa_text_add(csv, ",%d\n", marked);
  bppsa_text_add(html, "<tr><td>%s</td><td>%.3g</td><td>%.3g</td><td>%.3g</td><td>%.3g</td><td>%s%.3g</td><td>%.3g</td></tr>\n",
                 name_of(row), columns, number_of(row, "columns_min_s"), generated, number_of(row, "generated_min_s"),
                 bppsa_timing_mark(marked), columns / generated, number_of(row, "paper_speedup"));
}

bppsa_status bppsa_make_table1(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  bool noisy = false;
  BPPSA_TRY(bppsa_keep_find_part(f, figure->name) != NULL ? BPPSA_OK : keep_rows(f, figure->name));
  const json_t *rows = bppsa_keep_find_part(f, figure->name);
  bppsa_text_add(&made->csv, "operator,columns_s,generated_s,speedup,paper_speedup,columns_min_s,generated_min_s,noisy\n");
  bppsa_text_add(&made->html,
                 "<table>\n<tr><th rowspan=\"2\">operator</th><th colspan=\"2\">reverse mode, a column at a time (s)</th><th "
                 "colspan=\"2\">generated, values (s)</th><th rowspan=\"2\">speedup, by medians</th><th rowspan=\"2\">the "
                 "paper's, over autograd</th></tr>\n"
                 "<tr><th>median</th><th>minimum</th><th>median</th><th>minimum</th></tr>\n");
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    noisy = noisy || json_is_true(json_object_get(row, "noisy"));
    add_row(row, &made->csv, &made->html);
  }
  bppsa_text_add(&made->html, "</table>\n");
  bppsa_text_add(&made->caption,
                 "One thread. The reverse mode is this program's own backward pass, timed on columns all over the image, in turn "
                 "with the generation, and multiplied by their number; bench/rivals/jacobian_pytorch.py does it with PyTorch's "
                 "autograd.%s%s",
                 noisy ? " " : "", noisy ? BPPSA_TIMING_NOTE : "");
  return BPPSA_OK;
}

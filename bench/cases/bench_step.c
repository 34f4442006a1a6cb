/* `bppsa bench step`: whole training steps, by the project's methods and by other libraries. */
#include "bench/cases/bench_step.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/rivals/guest_bench.h"
#include "core/base/alloc.h"
#include "core/compute/device_buffer.h"
#include "core/measure/residual.h"
#include "networks/weights.h"
#include "terminal/machine.h"
#include "train/objective.h"

const char bppsa_bench_notes_step[] =
    "A step is a forward pass, the cross-entropy, a backward pass and an update by Adam (lr 0.001), as train makes it: batch\n"
    "and labels are ready, and the norm of the gradients is found too. On a GPU a row named _graph is one CUDA graph of it all.\n"
    "Every pass is the same step: weights and Adam's averages are set back in front of it, which is not timed.\n"
    "  sequential   both passes step by step\n"
    "  scan         forward step by step, backward by the scan chunked\n"
    "  speculative  a speculative forward pass in chunks, backward by the scan chunked; left out where one chunk remains, as on "
    "a\n"
    "               processor whose vectors the batch fills\n"
    "  both         a speculative forward pass, and backward by speculative BP; left out where one of them remains one chunk\n"
    "  auto         both as the cost model chooses\n"
    "Each row makes one step first. residual is the largest |g - ref| / (|ref| eps sqrt(T)) over the parameters, against a\n"
    "sequential step in float64, and |w - ref| / (|ref| eps), against Adam in float64 on the row's own gradients. Where the "
    "loss\n"
    "of nearly all samples is 0, its gradient is a difference of equal numbers, and the residual is in units of its rounding.\n"
    "A row whose residual is 30 or more is wrong: it is not timed, and the program exits 1.\n"
    "error is the largest difference of an entry of a weight's gradient from float64, over the largest entry; of all weights.\n"
    "path and work say how many dependent steps a speculative forward pass took, for the slowest sample, and how many steps it\n"
    "computed, over T; b path and b work say the same of speculative BP, gap is the largest difference that it dropped at the\n"
    "end of a chunk, relative to the gradients there, and perturbation all that it dropped: its gradients equal those of BP\n"
    "for a dL/dh_t that is changed by this part of its size. The numbers are those of the row's latest step, and no step is one\n"
    "that a pause made sequential. Documents have forward_s, backward_s and other_s too, medians of the parts of a queued step.\n"
    "reach is how many steps a gradient that enters at the last step goes back until all of it is zero or subnormal. Behind\n"
    "that BP could stop: where gradients enter at the last step alone, times of longer sequences are times of a race over "
    "zeros.\n"
    "The steps of --rivals take part in the rounds: bench/rivals/recurrent.py has PyTorch's, on a GPU also as one CUDA graph.\n"
    "x rival is the time of the fastest of them over the row's. cuDNN has no row of its own: PyTorch's layers call it.\n"
    "On a GPU, and beside --time-limit, rivals qualify: one whose first step takes more than twice as long as the fastest\n"
    "rival's keeps this single time, qualifying. One that did so at a shorter T of --earlier is not run.\n";

typedef bppsa_step_session session;
typedef bppsa_step_entry entry;

static const struct {
  const char *name, *graph;
  bppsa_forward_kind forward;
  bppsa_gradient_method method;
} own[BPPSA_STEP_METHODS] = {
    {"sequential", "sequential_graph", BPPSA_FORWARD_SEQUENTIAL, {.backward = BPPSA_BACKWARD_BP}},
    {"scan",
     "scan_graph",
     BPPSA_FORWARD_SEQUENTIAL,
     {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_CHUNKED}}},
    {"speculative",
     "speculative_graph",
     BPPSA_FORWARD_SPECULATIVE,
     {.backward = BPPSA_BACKWARD_SCAN, .scan = {.algorithm = BPPSA_SCAN_CHUNKED}}},
    {"both", "both_graph", BPPSA_FORWARD_SPECULATIVE, {.backward = BPPSA_BACKWARD_SPECULATIVE}},
    {"auto", "auto_graph", BPPSA_FORWARD_AUTO, {.backward = BPPSA_BACKWARD_AUTO, .scan = {.algorithm = BPPSA_SCAN_AUTO}}}};

/* ---- who takes part ---- */

bool bppsa_step_takes_part(const session *s, const char *method) {
  const char *list = s->bench->asked->methods;
  const size_t length = strlen(method);
  bool found = list == NULL;
  while (!found && list != NULL) {
    const size_t word = strcspn(list, ",");
    found = word == length && strncmp(list, method, length) == 0;
    list = list[word] == ',' ? list + word + 1 : NULL;
  }
  return found;
}

static bool is_known(const session *s, size_t length, const char *word) {
  const int guests = s->guest != NULL ? bppsa_guest_method_count(s->guest) : 0;
  for (int m = 0; m < BPPSA_STEP_METHODS + guests; ++m) {
    const char *name = m < BPPSA_STEP_METHODS ? own[m].name : bppsa_guest_method(s->guest, m - BPPSA_STEP_METHODS);
    if (strlen(name) == length && strncmp(name, word, length) == 0) {
      return true;
    }
  }
  return false;
}

/* Checks that every word of --compare is the name of a method. */
static bppsa_status check_methods(const session *s) {
  for (const char *word = s->bench->asked->methods; word != NULL;) {
    const size_t length = strcspn(word, ",");
    if (!is_known(s, length, word)) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT,
                        "--compare: '%.*s', expected sequential, scan, speculative, both, auto, or a method of "
                        "--rivals",
                        (int)(length < 80 ? length : 80), word);
    }
    word = word[length] == ',' ? word + length + 1 : NULL;
  }
  return BPPSA_OK;
}

/* ---- weights ---- */

static bppsa_status set_weights(const session *s, bppsa_model *model) {
  const bppsa_bench_settings *asked = s->bench->asked;
  if (asked->weights == NULL) {
    return bppsa_recurrent_init(model, s->init, asked->request.seed);
  }
  const bppsa_weights_request request = {.path = asked->weights_name};
  const bppsa_network network = {.kind = asked->point.kind, .name = asked->point.kind->name};
  return bppsa_weights_set(&request, &network, asked->weights, model, NULL);
}

/* Makes a network on the host that computes step by step. */
static bppsa_status make_plain(const session *s, bppsa_dtype dtype, bool loss_all, bppsa_model **model) {
  bppsa_recurrent_config config = s->config;
  config.dtype = dtype;
  config.loss_all = loss_all;
  config.method = own[BPPSA_STEP_SEQUENTIAL].method;
  config.forward = bppsa_forward_method_default();
  BPPSA_TRY(bppsa_recurrent_create(&config, s->bench->asked->point.kind->cell, s->bench->host, model));
  return set_weights(s, *model);
}

static int64_t count_reals(const bppsa_model *model) {
  int64_t total = 0;
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    total += bppsa_view_count(&model->parameters[p].value);
  }
  return total;
}

/* ---- the reference ---- */

static bppsa_status fill(const session *s, bppsa_buffer *x) {
  const bppsa_recurrent_config *c = &s->config;
  BPPSA_TRY(bppsa_buffer_create(NULL, c->dtype, 3, (int64_t[]){c->seq_len, c->batch, c->input}, x));
  return bppsa_dataset_fill(s->data, s->bench->host, c->batch, s->indices, &x->view, s->labels);
}

/* How much larger the rounding errors of the loss's gradient, softmax - label, are than the gradient itself: they are as large as
 * for the probabilities, whose norm is at most 1, before the label is subtracted. */
static double conditioning_of(const bppsa_view *seed, int64_t rows) {
  double sum = 0;
  for (int64_t i = 0; i < bppsa_view_count(seed); ++i) {
    const double value = (double)rows * bppsa_view_get(seed, i);
    sum += value * value;
  }
  return sum < (double)rows ? sqrt((double)rows / fmax(sum, DBL_MIN)) : 1;
}

/* Computes the gradients of a sequential step in float64, on the weights as the network's type rounds them. */
static bppsa_status run_reference(session *s, const bppsa_view *x, bppsa_model *model) {
  bppsa_buffer wide = {0}, seed = {0};
  bppsa_view logits;
  bppsa_loss_result loss;
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    const bppsa_view *value = &model->parameters[p].value, *rounded = &s->holder->parameters[p].value;
    for (int64_t i = 0; i < bppsa_view_count(value); ++i) {
      bppsa_view_set(value, i, bppsa_view_get(rounded, i));
    }
  }
  bppsa_status status = bppsa_buffer_create(NULL, BPPSA_F64, x->ndim, x->shape, &wide);
  status = status == BPPSA_OK ? bppsa_view_convert(x, &wide.view) : status;
  status = status == BPPSA_OK ? model->ops->forward(model, &wide.view, NULL, &logits) : status;
  status = status == BPPSA_OK ? bppsa_buffer_create(NULL, BPPSA_F64, logits.ndim, logits.shape, &seed) : status;
  status = status == BPPSA_OK ? bppsa_cross_entropy(s->bench->host, &logits, s->labels, &seed.view, &loss) : status;
  if (status == BPPSA_OK) {
    s->loss = loss.loss;
    s->conditioning = conditioning_of(&seed.view, loss.rows);
    status = model->ops->backward(model, &seed.view);
  }
  double *next = s->gradients;
  for (int64_t p = 0; status == BPPSA_OK && p < model->parameter_count; ++p) {
    const bppsa_view *gradient = &model->parameters[p].gradient;
    memcpy(next, gradient->data, bppsa_view_bytes(gradient));
    next += bppsa_view_count(gradient);
  }
  bppsa_buffer_free(&wide);
  bppsa_buffer_free(&seed);
  return status;
}

/* ---- how far a gradient reaches ---- */

/* Counts the steps, from the last one back, in which a gradient of the states [T,B,S] is a normal number. */
static int64_t count_reach(const bppsa_view *gradients) {
  const int64_t steps = gradients->shape[0], row = gradients->shape[1] * gradients->shape[2];
  const double least = bppsa_smallest_normal(gradients->dtype);
  for (int64_t t = 0; t < steps; ++t) {
    for (int64_t i = 0; i < row; ++i) {
      if (fabs(bppsa_view_get(gradients, t * row + i)) >= least) {
        return steps - t;
      }
    }
  }
  return 0;
}

/* Finds how far the gradient of a loss on the last step reaches back, through the head [C,H] and the layers. */
static bppsa_status find_reach(session *s, const bppsa_view *x, bppsa_model *model) {
  const bppsa_recurrent_config *c = &s->config;
  const bppsa_view *head = &model->parameters[model->parameter_count - 2].value;
  const int64_t *labels = s->labels + (c->loss_all ? (c->seq_len - 1) * c->batch : 0);
  bppsa_buffer seed = {0}, states = {0};
  bppsa_view logits, gradients;
  bppsa_loss_result loss;
  BPPSA_TRY(model->ops->forward(model, x, NULL, &logits));
  bppsa_status status = bppsa_buffer_create(NULL, c->dtype, 2, logits.shape, &seed);
  status = status == BPPSA_OK ? bppsa_buffer_create(NULL, c->dtype, 2, (int64_t[]){c->batch, c->hidden}, &states) : status;
  status = status == BPPSA_OK ? bppsa_cross_entropy(s->bench->host, &logits, labels, &seed.view, &loss) : status;
  for (int64_t i = 0; status == BPPSA_OK && i < c->batch * c->hidden; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < c->classes; ++k) {
      sum += bppsa_view_get(&seed.view, i / c->hidden * c->classes + k) * bppsa_view_get(head, k * c->hidden + i % c->hidden);
    }
    bppsa_view_set(&states.view, i, sum);
  }
  status = status == BPPSA_OK ? bppsa_recurrent_hidden_gradients(model, &states.view, &gradients) : status;
  if (status == BPPSA_OK) {
    s->reach = count_reach(&gradients);
  }
  bppsa_buffer_free(&seed);
  bppsa_buffer_free(&states);
  return status;
}

static bppsa_status make_reference(session *s) {
  bppsa_model *wide = NULL;
  BPPSA_TRY(fill(s, &s->x));
  BPPSA_TRY(make_plain(s, s->config.dtype, false, &s->holder));
  s->reals = count_reals(s->holder);
  s->gradients = bppsa_calloc(s->reals, sizeof *s->gradients);
  s->expected = bppsa_calloc(s->reals, sizeof *s->expected);
  if (s->gradients == NULL || s->expected == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(find_reach(s, &s->x.view, s->holder));
  bppsa_status status = make_plain(s, BPPSA_F64, s->config.loss_all, &wide);
  status = status == BPPSA_OK ? run_reference(s, &s->x.view, wide) : status;
  bppsa_model_destroy(wide);
  return status;
}

/* ---- verification ---- */

double bppsa_step_judge(const session *s, const bppsa_view *gradients, const bppsa_view *values, double unit) {
  const bppsa_optimizer_config adam = bppsa_optimizer_config_default();
  const double *reference = s->gradients;
  double *expected = s->expected, worst = 0;
  for (int64_t p = 0; p < s->holder->parameter_count; ++p) {
    const bppsa_view *before = &s->holder->parameters[p].value, *gradient = &gradients[p];
    const int64_t count = bppsa_view_count(before);
    for (int64_t i = 0; i < count; ++i) { /* in Adam's first step the averages are the gradient and its square */
      const double g = bppsa_view_get(gradient, i);
      expected[i] = bppsa_view_get(before, i) - adam.lr * g / (fabs(g) + adam.epsilon);
    }
    worst = bppsa_residual_worse(worst, bppsa_residual(gradient, reference, s->config.seq_len) / s->conditioning);
    worst = bppsa_residual_worse(worst, bppsa_residual(&values[p], expected, 1));
    reference += count;
  }
  return worst / unit;
}

double bppsa_step_error(const session *s, const bppsa_view *gradients) {
  const double *reference = s->gradients;
  double worst = 0;
  for (int64_t p = 0; p < s->holder->parameter_count; ++p) {
    const int64_t count = bppsa_view_count(&gradients[p]);
    double largest = 0, error = 0;
    for (int64_t i = 0; i < count; ++i) {
      largest = fmax(largest, fabs(reference[i]));
      error = bppsa_residual_worse(error, fabs(bppsa_view_get(&gradients[p], i) - reference[i]));
    }
    worst = bppsa_residual_worse(worst, largest > 0 ? error / largest : error);
    reference += count;
  }
  return worst;
}

/* Sets the residual, and the row's error. */
static bppsa_status judge_model(entry *e, bppsa_model *model, double *residual) {
  const session *s = e->s;
  bppsa_view *views = bppsa_calloc(2 * model->parameter_count, sizeof *views);
  if (views == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = bppsa_model_pull(model, true);
  status = status == BPPSA_OK ? bppsa_model_pull(model, false) : status;
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    views[p] = model->parameters[p].gradient;
    views[model->parameter_count + p] = model->parameters[p].value;
  }
  if (status == BPPSA_OK) {
    *residual = bppsa_step_judge(s, views, views + model->parameter_count, 1);
    e->error = bppsa_step_error(s, views);
  }
  bppsa_free(views);
  return status;
}

/* ---- a step ---- */

/* Resets weights and averages, and ends the pauses that follow failed speculations. */
static bppsa_status reset(entry *e) {
  bppsa_optimizer_state *state = bppsa_optimizer_get_state(e->optimizer);
  for (int64_t p = 0; p < e->model->parameter_count; ++p) {
    const bppsa_view *value = &e->model->parameters[p].value;
    memcpy(value->data, e->s->holder->parameters[p].value.data, bppsa_view_bytes(value));
  }
  for (int64_t i = 0; i < state->count; ++i) {
    memset(state->tensors[i].view.data, 0, bppsa_view_bytes(&state->tensors[i].view));
  }
  state->step = 0;
  BPPSA_TRY(bppsa_bench_end_pauses(e->model));
  BPPSA_TRY(bppsa_model_push(e->model));
  return bppsa_optimizer_push(e->optimizer);
}

/* Sets a mark between the parts of a step, unless it is recorded. */
static bppsa_status mark(const entry *e, int64_t index) {
  return e->marks != NULL && !e->records ? bppsa_timeline_mark(e->marks, index) : BPPSA_OK;
}

/* Makes the step, also while it is recorded; on a GPU it is queued as train does it. */
static bppsa_status make_step(void *context) {
  entry *e = context;
  const bppsa_batch_gpu *g = &e->batch.gpu;
  bppsa_loss_result loss;
  double norm;
  BPPSA_TRY(mark(e, 0));
  BPPSA_TRY(bppsa_batch_forward(&e->batch));
  BPPSA_TRY(mark(e, 1));
  BPPSA_TRY(g->device != NULL ? bppsa_batch_queue_loss(&e->batch) : bppsa_batch_loss(&e->batch, &loss));
  BPPSA_TRY(mark(e, 2));
  BPPSA_TRY(e->model->ops->backward(e->model, &e->batch.dlogits));
  BPPSA_TRY(mark(e, 3));
  if (g->device == NULL) {
    return bppsa_optimizer_update(e->optimizer, e->batch.device, 0, &norm);
  }
  BPPSA_TRY(bppsa_optimizer_queue(e->optimizer, 0, &g->device_input->factors, g->device_result));
  return bppsa_memory_queue_get(g->device, g->result, g->device_result, sizeof *g->result);
}

/* Makes a step that is not recorded, and keeps how long its parts took. */
static bppsa_status make_parts(entry *e, double *seconds) {
  double forward, backward;
  BPPSA_TRY(bppsa_timed_work_pass(&e->timed, seconds));
  BPPSA_TRY(bppsa_timeline_seconds(e->marks, 0, 1, &forward));
  BPPSA_TRY(bppsa_timeline_seconds(e->marks, 2, 3, &backward));
  const int64_t at = e->passes++ % BPPSA_STEP_PASSES;
  e->parts[0][at] = forward;
  e->parts[1][at] = backward;
  e->parts[2][at] = seconds[0] - forward - backward;
  return BPPSA_OK;
}

static bppsa_status make_pass(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  entry *e = context;
  BPPSA_TRY(reset(e->plain != NULL ? e->plain : e));
  return e->plain != NULL ? bppsa_bench_replay_pass(&e->recording, seconds) : make_parts(e, seconds);
}

static bppsa_status verify(void *context, double *residual) {
  entry *e = context;
  double seconds[BPPSA_TIMING_PARTS];
  BPPSA_TRY(make_pass(e, seconds));
  return judge_model(e, e->plain != NULL ? e->plain->model : e->model, residual);
}

static bppsa_status enter_entry(session *s, entry *e, const char *name, bool *entered) {
  const bppsa_contender contender = {
      .verification = {.verify = verify, .context = e}, .pass = make_pass, .context = e, .parts = 1};
  return bppsa_bench_enter_contender(s->bench, &contender, e, name, "", entered);
}

/* Makes the batch once: every step is the first one of a run, on the same samples. */
static bppsa_status stage(entry *e) {
  BPPSA_TRY(
      bppsa_batch_create(e->model, e->s->data, e->s->bench->device, e->s->config.batch, e->s->config.batch, true, &e->batch));
  memcpy(e->batch.indices, e->s->indices, (size_t)e->s->config.batch * sizeof *e->s->indices);
  BPPSA_TRY(bppsa_batch_stage(&e->batch, e->s->config.batch));
  if (e->batch.gpu.device != NULL) {
    e->batch.gpu.input->factors = bppsa_optimizer_begin(e->optimizer);
  }
  BPPSA_TRY(bppsa_batch_queue_fill(&e->batch));
  return bppsa_device_wait(e->s->bench->device);
}

static bppsa_status enter_graph(session *s, int method) {
  entry *e = &s->graphs[method];
  *e = (entry){.s = s, .method = method, .plain = &s->entries[method]};
  e->plain->records = true;
  const bppsa_status status = bppsa_bench_record(s->bench->device, make_step, NULL, e->plain, &e->recording);
  e->plain->records = false;
  if (status == BPPSA_ERR_UNSUPPORTED) {
    return bppsa_bench_leave_out(s->bench, own[method].graph, "");
  }
  BPPSA_TRY(status);
  return enter_entry(s, e, own[method].graph, NULL);
}

/* ERR_UNSUPPORTED: a pass that the row is named for is planned as one chunk, so that it would not speculate. */
static bppsa_status check_speculates(int method, const bppsa_model *model) {
  if (own[method].forward == BPPSA_FORWARD_SPECULATIVE && !bppsa_forward_plan_of(model)->speculative) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "its forward pass would be sequential here%s; --forward-chunks cuts it into chunks",
                      method == BPPSA_STEP_SPECULATIVE ? ", and the step that of scan" : "");
  }
  return own[method].method.backward != BPPSA_BACKWARD_SPECULATIVE || bppsa_backward_plan_of(model) != NULL
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "its backward pass would be BP here; --backward-chunks cuts it into chunks");
}

/* Leaves out a method that the device has no kernels for, and one that another row shows already. */
static bppsa_status enter_method(session *s, int method) {
  const bppsa_optimizer_config adam = bppsa_optimizer_config_default();
  const bppsa_cell *cell = s->bench->asked->point.kind->cell;
  bppsa_recurrent_config config = s->config;
  entry *e = &s->entries[method];
  bool entered = false;
  *e = (entry){.s = s, .method = method};
  config.method.backward = own[method].method.backward;
  config.method.scan.algorithm = own[method].method.scan.algorithm;
  config.forward.kind = own[method].forward;
  bppsa_status status = bppsa_recurrent_choose(&config, cell, bppsa_device_get_kind(s->bench->device), &config);
  status = status == BPPSA_OK ? bppsa_recurrent_create(&config, cell, s->bench->device, &e->model) : status;
  status = status == BPPSA_OK ? check_speculates(method, e->model) : status;
  if (status == BPPSA_ERR_UNSUPPORTED) {
    return bppsa_bench_leave_out(s->bench, own[method].name, "");
  }
  BPPSA_TRY(status);
  e->backward = config.method;
  BPPSA_TRY(bppsa_optimizer_create(&adam, e->model, &e->optimizer));
  BPPSA_TRY(stage(e));
  e->timed = (bppsa_timed_work){.device = s->bench->device, .action = make_step, .context = e};
  BPPSA_TRY(bppsa_timed_work_open(&e->timed));
  BPPSA_TRY(bppsa_timeline_create(s->bench->device, 4, &e->marks));
  BPPSA_TRY(enter_entry(s, e, own[method].name, &entered));
  return s->bench->gpu && entered ? enter_graph(s, method) : BPPSA_OK;
}

/* ---- points ---- */

static bppsa_status open_data(session *s) {
  const bppsa_bench_point *point = &s->bench->asked->point;
  const bppsa_dataset_audio audio = {.set = &bppsa_mfcc_sets[point->set], .padding = point->padding, .device = s->bench->host};
  bppsa_dataset_options options = bppsa_dataset_options_default();
  options.samples = strcmp(point->data, "bitstream") == 0 ? s->config.batch : 0;
  options.seq_len = s->config.seq_len;
  options.labels_per_step = s->config.loss_all;
  options.seed = s->bench->request->seed;
  options.audio = &audio;
  BPPSA_TRY(bppsa_input_status(bppsa_dataset_create(point->data, &options, &s->data)));
  if (bppsa_objective_real(&s->data->objective)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--data: %s: real targets, expected labels", point->data);
  }
  if (s->data->classes > s->config.classes) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--data: %s: %" PRId64 " classes, expected at most the network's %" PRId64, point->data,
                      s->data->classes, s->config.classes);
  }
  return s->data->samples >= s->config.batch
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--batch: %" PRId64 ", more than the %" PRId64 " samples of --data, expected at most that many",
                          s->config.batch, s->data->samples);
}

static bppsa_status prepare(bppsa_bench *bench) {
  session *s = bench->session;
  const bppsa_bench_settings *asked = bench->asked;
  s->bench = bench;
  s->config = asked->point.config;
  s->config.optimizer_slots = 2;
  bench->points = asked->both_inits ? 2 : 1;
  BPPSA_TRY(open_data(s));
  const int64_t rows = s->config.batch * (s->config.loss_all ? s->config.seq_len : 1);
  s->indices = bppsa_calloc(s->config.batch, sizeof *s->indices);
  s->labels = bppsa_calloc(rows, sizeof *s->labels);
  if (s->indices == NULL || s->labels == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < s->config.batch; ++i) {
    s->indices[i] = i;
  }
  BPPSA_TRY(bppsa_bench_read_earlier(bench, asked->point.kind->name));
  BPPSA_TRY(bppsa_bench_start_guest(bench, asked->rivals, &s->guest));
  return check_methods(s);
}

static bool put_versions(const bppsa_bench *bench, json_t *document) {
  const session *s = bench->session;
  return s->guest == NULL || bppsa_guest_put_versions(s->guest, json_object_get(document, "device"));
}

static void release(bppsa_bench *bench) {
  session *s = bench->session;
  bppsa_guest_stop(s->guest);
  bppsa_dataset_destroy(s->data);
  bppsa_free(s->indices);
  bppsa_free(s->labels);
}

static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  session *s = bench->session;
  const bppsa_bench_settings *asked = bench->asked;
  *more = point < bench->points;
  if (!*more || bppsa_bench_out_of_time(bench)) {
    return BPPSA_OK;
  }
  s->init = asked->both_inits && point == 1 ? BPPSA_INIT_ORTHOGONAL : asked->point.init;
  s->init_name = asked->point.weights != NULL ? asked->point.weights : bppsa_bench_init_name(s->init);
  snprintf(bench->point, sizeof bench->point, "%s", s->init_name);
  BPPSA_TRY(make_reference(s));
  for (int m = 0; m < BPPSA_STEP_METHODS; ++m) {
    BPPSA_TRY(bppsa_step_takes_part(s, own[m].name) ? enter_method(s, m) : BPPSA_OK);
  }
  return bppsa_step_enter_rivals(s);
}

static void free_entry(entry *e) {
  bppsa_bench_recording_free(&e->recording);
  bppsa_timed_work_close(&e->timed);
  bppsa_timeline_destroy(e->marks);
  bppsa_batch_free(&e->batch);
  bppsa_optimizer_destroy(e->optimizer);
  bppsa_model_destroy(e->model);
  *e = (entry){0};
}

/* Frees every graph before the step that it recorded. */
static void leave(bppsa_bench *bench) {
  session *s = bench->session;
  for (int m = 0; m < BPPSA_STEP_METHODS; ++m) {
    free_entry(&s->graphs[m]);
    free_entry(&s->entries[m]);
  }
  bppsa_outlook_destroy(s->outlook);
  s->outlook = NULL;
  bppsa_model_destroy(s->holder);
  s->holder = NULL;
  bppsa_buffer_free(&s->x);
  bppsa_free(s->gradients);
  bppsa_free(s->expected);
  s->gradients = s->expected = NULL;
}

const bppsa_bench_case bppsa_bench_case_step = {.name = "step",
                                                .session = sizeof(session),
                                                .budget_s = 1,
                                                .quick_s = 0.1,
                                                .bound = BPPSA_RESIDUAL_BOUND,
                                                .names = (const char *const[]){"init", "method", NULL},
                                                .columns = bppsa_step_columns,
                                                .prepare = prepare,
                                                .put_members = put_versions,
                                                .release = release,
                                                .head = bppsa_step_print_head,
                                                .enter = enter,
                                                .put = bppsa_step_put,
                                                .note = bppsa_step_note,
                                                .leave = leave,
                                                .below = bppsa_step_print_below,
                                                .finish = bppsa_bench_report_points};

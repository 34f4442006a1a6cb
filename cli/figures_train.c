/* Figures 7 and 13: training by BP and by the scans. All methods make every iteration in turn, and the whole is repeated, so that
 * other load hits all of them alike and a stall of the machine hits one repeat: curves are drawn over the medians of the repeats'
 * times. What counts is the time of the forward and backward passes. The losses of all repeats are the same bits, which is
 * checked. Every repeat that is done is kept (figures_keep.h). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/figures_keep.h"
#include "cli/setup.h"
#include "core/alloc.h"
#include "train/loss.h"
#include "train/optimizer.h"
#include "train/trainer.h"

static const bppsa_bench_method methods[] = {BPPSA_BENCH_BP, BPPSA_BENCH_BLELLOCH, BPPSA_BENCH_CHUNKED};
enum { METHODS = sizeof methods / sizeof methods[0], WINDOW = 20, LEAST_REPEATS = 3, MOST_REPEATS = 5 };
static const double learning_rate = 3e-4;

typedef struct {
  bppsa_model *model;
  bppsa_optimizer *optimizer;
  double *losses;  /* [iterations] */
  double *seconds; /* [windows] s of the forward and backward passes of this repeat */
  bppsa_evaluation held_out;
} runner;

typedef struct {
  const bppsa_figures *figures;
  const bppsa_device *device;
  bppsa_progress_line *line;
  bppsa_dataset *data;
  bppsa_split split;
  bppsa_recurrent_config config; /* the data set's shape */
  int64_t windows;
  int64_t *order, *labels;
  float *x, *seed;
  runner runners[METHODS];
  /* {"configuration", "losses": a list of windows' means a method, "largest_difference", "held_out": an accuracy a method,
   * "repeats": [a list of windows' seconds a method]} */
  json_t *document;
} training;

static bppsa_status out_of_memory(void) {
  return bppsa_fail(BPPSA_ERR_MEMORY, "figures: out of memory, expected room for the results");
}

/* ---- data ---- */

static bppsa_status open_bitstream(training *t) {
  const bppsa_recurrent_config *c = &t->config;
  bppsa_dataset_options options = bppsa_dataset_options_default();
  options.seq_len = c->seq_len;
  options.seed = t->figures->seed;
  options.samples = c->batch > BPPSA_PAPER_SAMPLES ? c->batch : 0;
  return bppsa_dataset_create("bitstream", &options, &t->data);
}

/* The data set, and its shape into the configuration. */
static bppsa_status open_data(training *t) {
  bppsa_recurrent_config *c = &t->config;
  *c = t->figures->config;
  if (t->figures->data != NULL) {
    BPPSA_TRY(bppsa_setup_dataset_of(t->figures->cli, t->figures->data, t->device, false, NULL, &t->data));
  } else {
    BPPSA_TRY(open_bitstream(t));
  }
  c->seq_len = t->data->seq_len;
  c->input = t->data->input;
  c->classes = t->data->classes;
  BPPSA_TRY(bppsa_split_make(t->data->samples, t->figures->validation, &t->split));
  return c->batch <= t->split.train
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--batch: %" PRId64 ", more than the %" PRId64 " training samples, expected at most that many",
                          c->batch, t->split.train);
}

static bppsa_status reserve(training *t) {
  const bppsa_recurrent_config *c = &t->config;
  t->windows = (t->figures->iterations + WINDOW - 1) / WINDOW;
  t->order = bppsa_calloc(t->split.train, sizeof *t->order);
  t->labels = bppsa_calloc(c->batch, sizeof *t->labels);
  t->x = bppsa_calloc(c->seq_len * c->batch * c->input, sizeof *t->x);
  t->seed = bppsa_calloc(c->batch * c->classes, sizeof *t->seed);
  bool got = t->order != NULL && t->labels != NULL && t->x != NULL && t->seed != NULL;
  for (int m = 0; got && m < METHODS; ++m) {
    runner *r = &t->runners[m];
    r->losses = bppsa_calloc(t->figures->iterations, sizeof *r->losses);
    r->seconds = bppsa_calloc(t->windows, sizeof *r->seconds);
    got = r->losses != NULL && r->seconds != NULL;
  }
  return got ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

/* ---- one repeat ---- */

static void end_runners(training *t) {
  for (int m = 0; m < METHODS; ++m) {
    bppsa_optimizer_destroy(t->runners[m].optimizer);
    bppsa_model_destroy(t->runners[m].model);
    t->runners[m].optimizer = NULL;
    t->runners[m].model = NULL;
  }
}

static bppsa_status begin_runners(training *t) {
  for (int m = 0; m < METHODS; ++m) {
    runner *r = &t->runners[m];
    const bppsa_recurrent_config config = bppsa_bench_config(&t->config, methods[m]);
    bppsa_optimizer_config adam = bppsa_optimizer_config_default();
    adam.lr = learning_rate;
    memset(r->seconds, 0, (size_t)t->windows * sizeof *r->seconds);
    BPPSA_TRY(t->figures->kind->create(&config, t->device, &r->model));
    BPPSA_TRY(bppsa_recurrent_init(r->model, BPPSA_INIT_DEFAULT, t->figures->seed));
    BPPSA_TRY(bppsa_optimizer_create(&adam, r->model, &r->optimizer));
  }
  return BPPSA_OK;
}

static bppsa_view batch_view(const training *t) {
  const bppsa_recurrent_config *c = &t->config;
  return bppsa_view_make(t->x, BPPSA_F32, 3, (int64_t[]){c->seq_len, c->batch, c->input});
}

static bppsa_status step(training *t, runner *r, int64_t iteration) {
  const bppsa_recurrent_config *c = &t->config;
  const bppsa_view x = batch_view(t);
  const bppsa_view seed = bppsa_view_make(t->seed, BPPSA_F32, 2, (int64_t[]){c->batch, c->classes});
  bppsa_view logits;
  bppsa_loss_result loss;
  const double start = bppsa_now();
  BPPSA_TRY(r->model->ops->forward(r->model, &x, NULL, &logits));
  const double forward = bppsa_now();
  BPPSA_TRY(bppsa_cross_entropy(t->device, &logits, t->labels, &seed, &loss));
  const double scored = bppsa_now();
  BPPSA_TRY(r->model->ops->backward(r->model, &seed));
  r->seconds[iteration / WINDOW] += bppsa_now() - scored + forward - start;
  bppsa_optimizer_step(r->optimizer, t->device);
  r->losses[iteration] = loss.loss;
  return BPPSA_OK;
}

static bppsa_status train_all(training *t, const char *done) {
  const bppsa_recurrent_config *c = &t->config;
  const bppsa_view x = batch_view(t);
  const int64_t batches = t->split.train / c->batch;
  for (int64_t i = 0; i < t->figures->iterations; ++i) {
    if (i % batches == 0) {
      bppsa_shuffle(t->figures->seed, i / batches + 1, t->split.train, t->order);
    }
    BPPSA_TRY(bppsa_dataset_fill(t->data, t->device, c->batch, t->order + i % batches * c->batch, &x, t->labels));
    for (int m = 0; m < METHODS; ++m) {
      BPPSA_TRY(step(t, &t->runners[m], i));
    }
    BPPSA_TRY(bppsa_figures_check_interrupt(t->figures, done));
    if (bppsa_progress_due(t->line)) {
      bppsa_progress_show(t->line, "%s: %s done, iteration %" PRId64 " of %" PRId64 ", loss %.3f", t->figures->curves, done,
                          i + 1, t->figures->iterations, t->runners[0].losses[i]);
    }
  }
  for (int m = 0; t->split.validation > 0 && m < METHODS; ++m) {
    BPPSA_TRY(bppsa_evaluate(t->runners[m].model, t->data, t->device, t->split.train, t->split.validation, c->batch,
                             &t->runners[m].held_out));
  }
  return BPPSA_OK;
}

/* ---- the document ---- */

static json_t *reals_json(int64_t count, const double *values) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int64_t i = 0; ok && i < count; ++i) {
    ok = json_array_append_new(list, bppsa_json_real(values[i])) == 0;
  }
  return bppsa_json_finish(list, ok);
}

/* Means of the windows' losses, a list a method. */
static json_t *losses_json(const training *t) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int m = 0; ok && m < METHODS; ++m) {
    json_t *means = json_array();
    bool filled = means != NULL;
    for (int64_t w = 0; filled && w < t->windows; ++w) {
      const int64_t first = w * WINDOW, left = t->figures->iterations - first, count = left < WINDOW ? left : WINDOW;
      double sum = 0;
      for (int64_t i = first; i < first + count; ++i) {
        sum += t->runners[m].losses[i];
      }
      filled = json_array_append_new(means, bppsa_json_real(sum / (double)count)) == 0;
    }
    ok = json_array_append_new(list, bppsa_json_finish(means, filled)) == 0;
  }
  return bppsa_json_finish(list, ok);
}

/* What the first repeat finds out, and the later ones must find again. */
static bppsa_status put_results(training *t) {
  double most = 0, accuracies[METHODS];
  for (int m = 0; m < METHODS; ++m) {
    for (int64_t i = 0; i < t->figures->iterations; ++i) {
      most = fmax(most, fabs(t->runners[m].losses[i] - t->runners[0].losses[i]));
    }
    accuracies[m] = t->runners[m].held_out.accuracy;
  }
  json_t *losses = losses_json(t), *found = json_object_get(t->document, "losses");
  if (found != NULL) {
    const bool same = losses != NULL && json_equal(found, losses);
    const bool lost = losses == NULL;
    json_decref(losses);
    return lost   ? out_of_memory()
           : same ? BPPSA_OK
                  : bppsa_fail(BPPSA_ERR_NUMERIC, "%s: a repeat's losses are not those of the first one, expected the same bits",
                               t->figures->curves);
  }
  bool ok = bppsa_json_put(t->document, "losses", losses);
  ok = ok && bppsa_json_put_real(t->document, "largest_difference", most);
  ok = ok && bppsa_json_put(t->document, "held_out", reals_json(t->split.validation > 0 ? METHODS : 0, accuracies));
  return ok ? BPPSA_OK : out_of_memory();
}

static bppsa_status put_repeat(training *t) {
  BPPSA_TRY(put_results(t));
  json_t *repeat = json_array();
  bool ok = repeat != NULL;
  for (int m = 0; ok && m < METHODS; ++m) {
    ok = json_array_append_new(repeat, reals_json(t->windows, t->runners[m].seconds)) == 0;
  }
  ok = json_array_append_new(json_object_get(t->document, "repeats"), bppsa_json_finish(repeat, ok)) == 0;
  return ok ? BPPSA_OK : out_of_memory();
}

static double real_at(const json_t *list, int method, int64_t window) {
  const json_t *value = json_array_get(json_array_get(list, (size_t)method), (size_t)window);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

/* The timing of windows first .. last - 1 of a method, over the repeats. */
static bppsa_timing timing_of(const training *t, int method, int64_t first, int64_t last) {
  const json_t *repeats = json_object_get(t->document, "repeats");
  double seconds[MOST_REPEATS] = {0};
  const int64_t count = (int64_t)json_array_size(repeats);
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t w = first; w < last; ++w) {
      seconds[r] += real_at(json_array_get(repeats, (size_t)r), method, w);
    }
  }
  return bppsa_bench_timing(count, seconds);
}

static bool any_noisy(const training *t) {
  bool noisy = false;
  for (int m = 0; m < METHODS; ++m) {
    noisy = noisy || timing_of(t, m, 0, t->windows).noisy;
  }
  return noisy;
}

/* Three repeats; two more where a method's times differ too much. */
static bool needs_more(const training *t) {
  const size_t count = json_array_size(json_object_get(t->document, "repeats"));
  return count < LEAST_REPEATS || (count < MOST_REPEATS && any_noisy(t));
}

/* What an earlier run kept has this run's shape. */
static bool is_whole(const training *t) {
  const json_t *repeats = json_object_get(t->document, "repeats"), *losses = json_object_get(t->document, "losses");
  bool whole = json_array_size(repeats) <= MOST_REPEATS &&
               (json_array_size(repeats) == 0 ||
                (json_array_size(losses) == METHODS && json_is_array(json_object_get(t->document, "held_out"))));
  for (size_t r = 0; whole && r < json_array_size(repeats); ++r) {
    for (int m = 0; m < METHODS; ++m) {
      whole = whole && json_array_size(json_array_get(json_array_get(repeats, r), (size_t)m)) == (size_t)t->windows &&
              json_array_size(json_array_get(losses, (size_t)m)) == (size_t)t->windows;
    }
  }
  return whole;
}

static bppsa_status open_document(training *t, const char *name) {
  BPPSA_TRY(bppsa_figures_resume(t->figures, name, "repeats", &t->document));
  if (t->document != NULL) {
    return is_whole(t) ? BPPSA_OK
                       : bppsa_fail(BPPSA_ERR_FORMAT, "--resume: %s/%s: lists of other lengths, expected what figures kept",
                                    t->figures->directory, name);
  }
  t->document = json_object();
  bool ok = t->document != NULL && bppsa_json_put_text(t->document, "figure", t->figures->curves);
  ok = ok && bppsa_json_put(t->document, "configuration", json_incref(t->figures->configuration));
  ok = ok && bppsa_json_put_integer(t->document, "window", WINDOW);
  ok = ok && bppsa_json_put(t->document, "repeats", json_array());
  return ok ? BPPSA_OK : out_of_memory();
}

static bppsa_status run_repeats(training *t) {
  char name[32], done[64];
  snprintf(name, sizeof name, "%s.json", t->figures->curves);
  BPPSA_TRY(open_data(t));
  BPPSA_TRY(reserve(t));
  BPPSA_TRY(open_document(t, name));
  while (needs_more(t)) {
    snprintf(done, sizeof done, "%zu repeats of %s", json_array_size(json_object_get(t->document, "repeats")),
             t->figures->curves);
    bppsa_status status = begin_runners(t);
    status = status == BPPSA_OK ? train_all(t, done) : status;
    status = status == BPPSA_OK ? put_repeat(t) : status;
    end_runners(t);
    BPPSA_TRY(status);
    BPPSA_TRY(bppsa_figures_keep(t->figures, name, t->document, !needs_more(t)));
  }
  return BPPSA_OK;
}

/* ---- what is said ---- */

static void ratio_text(const training *t, bppsa_text *verdict) {
  bppsa_timing times[METHODS];
  bool noisy = false;
  for (int m = 0; m < METHODS; ++m) {
    times[m] = timing_of(t, m, 0, t->windows);
    noisy = noisy || times[m].noisy;
  }
  if (noisy) {
    bppsa_text_add(verdict, "No ratio of BP to the scan: the times of %" PRId64 " repeats are noisy. ", times[0].repeats);
  } else {
    bppsa_text_add(verdict,
                   "The time of BP over that of the faster scan, forward and backward, medians of %" PRId64 " repeats: %.2f. ",
                   times[0].repeats, times[0].median_s / fmin(times[1].median_s, times[2].median_s));
  }
}

static void verdict_text(const training *t, bppsa_text *verdict) {
  const bppsa_recurrent_config *c = &t->config;
  const json_t *held_out = json_object_get(t->document, "held_out");
  bppsa_text_add(
      verdict,
      "%s, T = %" PRId64 ", B = %" PRId64 ", H = %" PRId64 ", Adam %g, %" PRId64
      " iterations. The largest difference of any single loss from BP's is %.1e; the losses of all repeats are the same bits. ",
      strcmp(t->figures->kind->name, "gru") == 0 ? "GRU" : "RNN", c->seq_len, c->batch, c->hidden, learning_rate,
      t->figures->iterations, json_number_value(json_object_get(t->document, "largest_difference")));
  ratio_text(t, verdict);
  for (int m = 0; t->split.validation > 0 && m < METHODS; ++m) {
    bppsa_text_add(verdict, "%s%s %.1f %%", m == 0 ? "Accuracy on the samples held out: " : ", ",
                   bppsa_bench_method_name(methods[m]), 100 * json_number_value(json_array_get(held_out, (size_t)m)));
  }
  if (t->split.validation > 0) {
    bppsa_text_add(verdict, " of %" PRId64 ". ", t->split.validation);
  }
  bppsa_text_add(verdict, "%s",
                 t->figures->data == NULL
                     ? "The paper (RTX 2070, 80 epochs, Adam 1e-5): 2.73 overall."
                     : "The paper (RTX cards, 400 epochs of IRMAS at B = 16): up to 2.36 overall, over all sets "
                       "and batches.");
}

static void report(const training *t, bppsa_text *csv, bppsa_text *verdict) {
  const json_t *losses = json_object_get(t->document, "losses");
  bppsa_text_add(csv, "method,iterations,seconds,mean_loss,window_median_s,window_min_s,window_max_s,noisy\n");
  for (int m = 0; m < METHODS; ++m) {
    double seconds = 0;
    for (int64_t w = 0; w < t->windows; ++w) {
      const int64_t last = (w + 1) * WINDOW, all = t->figures->iterations;
      const bppsa_timing time = timing_of(t, m, w, w + 1);
      seconds += time.median_s;
      bppsa_text_add(csv, "%s,%" PRId64, bppsa_bench_method_name(methods[m]), last < all ? last : all);
      bppsa_text_add_cells(csv, 5, (double[]){seconds, real_at(losses, m, w), time.median_s, time.min_s, time.max_s});
      bppsa_text_add(csv, ",%d\n", time.noisy);
    }
  }
  verdict_text(t, verdict);
}

bppsa_status bppsa_figures_train(const bppsa_figures *figures, const bppsa_device *device, bppsa_progress_line *line,
                                 bppsa_text *csv, bppsa_text *verdict) {
  training t = {.figures = figures, .device = device, .line = line};
  const bppsa_status status = run_repeats(&t);
  bppsa_progress_clear(line);
  if (status == BPPSA_OK) {
    report(&t, csv, verdict);
  }
  end_runners(&t);
  for (int m = 0; m < METHODS; ++m) {
    bppsa_free(t.runners[m].losses);
    bppsa_free(t.runners[m].seconds);
  }
  json_decref(t.document);
  bppsa_dataset_destroy(t.data);
  void *const blocks[] = {t.order, t.labels, t.x, t.seed};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
    bppsa_free(blocks[i]);
  }
  return status;
}

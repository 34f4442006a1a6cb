/* Figures 7 and 13: training by BP and by the scans in lock step. The training is repeated, so that a stall of the machine affects
 * only one repeat; the curves use the medians of the repeats' times. Only forward and backward passes are timed. The losses of
 * all repeats must have the same bits, which is checked. Every finished repeat is kept (keep_measurements.h). */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "figures/figure_data.h"
#include "figures/keep_measurements.h"
#include "figures/lockstep.h"

enum { METHODS = BPPSA_LOCKSTEP_METHODS, WINDOW = BPPSA_LOCKSTEP_WINDOW, LEAST_REPEATS = 3, MOST_REPEATS = 5 };

typedef struct {
  bppsa_lockstep run;
  const char *paper; /* the paper's finding, in one sentence */
  /* {"configuration", "losses": for each method the list of the windows' mean losses, "largest_difference", "held_out": for each
   * method its accuracy, "repeats": [for each method the list of the windows' seconds]} */
  json_t *document;
} training;

/* ---- the document ---- */

static json_t *reals_json(int64_t count, const double *values) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int64_t i = 0; ok && i < count; ++i) {
    ok = json_array_append_new(list, bppsa_json_real(values[i])) == 0;
  }
  return bppsa_json_finish(list, ok);
}

/* The mean losses of the windows: one list for each method. */
static json_t *losses_json(const training *t) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int m = 0; ok && m < METHODS; ++m) {
    json_t *means = json_array();
    bool filled = means != NULL;
    for (int64_t w = 0; filled && w < t->run.windows; ++w) {
      const int64_t first = w * WINDOW, left = t->run.iterations - first, count = left < WINDOW ? left : WINDOW;
      double sum = 0;
      for (int64_t i = first; i < first + count; ++i) {
        sum += t->run.runners[m].losses[i];
      }
      filled = json_array_append_new(means, bppsa_json_real(sum / (double)count)) == 0;
    }
    ok = json_array_append_new(list, bppsa_json_finish(means, filled)) == 0;
  }
  return bppsa_json_finish(list, ok);
}

/* Stores the losses and accuracies of the first repeat; later repeats must compute the same. */
static bppsa_status put_results(training *t) {
  double most = 0, accuracies[METHODS];
  for (int m = 0; m < METHODS; ++m) {
    for (int64_t i = 0; i < t->run.iterations; ++i) {
      most = fmax(most, fabs(t->run.runners[m].losses[i] - t->run.runners[0].losses[i]));
    }
    accuracies[m] = t->run.runners[m].held_out.accuracy;
  }
  json_t *losses = losses_json(t), *found = json_object_get(t->document, "losses");
  if (found != NULL) {
    const bool same = losses != NULL && json_equal(found, losses);
    const bool lost = losses == NULL;
    json_decref(losses);
    return lost   ? bppsa_figures_no_room()
           : same ? BPPSA_OK
                  : bppsa_fail(BPPSA_ERR_NUMERIC,
                               "%s: the losses of a repeat differ from the first repeat's, expected the same bits", t->run.name);
  }
  bool ok = bppsa_json_put(t->document, "losses", losses);
  ok = ok && bppsa_json_put_real(t->document, "largest_difference", most);
  ok = ok && bppsa_json_put(t->document, "held_out", reals_json(t->run.split.validation > 0 ? METHODS : 0, accuracies));
  return ok ? BPPSA_OK : bppsa_figures_no_room();
}

static bppsa_status put_repeat(training *t) {
  BPPSA_TRY(put_results(t));
  json_t *repeat = json_array();
  bool ok = repeat != NULL;
  for (int m = 0; ok && m < METHODS; ++m) {
    ok = json_array_append_new(repeat, reals_json(t->run.windows, t->run.runners[m].seconds)) == 0;
  }
  ok = json_array_append_new(json_object_get(t->document, "repeats"), bppsa_json_finish(repeat, ok)) == 0;
  return ok ? BPPSA_OK : bppsa_figures_no_room();
}

static double real_at(const json_t *list, int method, int64_t window) {
  const json_t *value = json_array_get(json_array_get(list, (size_t)method), (size_t)window);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

/* The timing of windows first .. last - 1 of a method, over all repeats. */
static bppsa_timing timing_of(const training *t, int method, int64_t first, int64_t last) {
  const json_t *repeats = json_object_get(t->document, "repeats");
  double seconds[MOST_REPEATS] = {0};
  const int64_t count = (int64_t)json_array_size(repeats);
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t w = first; w < last; ++w) {
      seconds[r] += real_at(json_array_get(repeats, (size_t)r), method, w);
    }
  }
  return bppsa_timing_of(count, seconds);
}

static bool any_noisy(const training *t) {
  bool noisy = false;
  for (int m = 0; m < METHODS; ++m) {
    noisy = noisy || timing_of(t, m, 0, t->run.windows).noisy;
  }
  return noisy;
}

/* Makes three repeats, and two more if a method's times differ too much. */
static bool needs_more(const training *t) {
  const size_t count = json_array_size(json_object_get(t->document, "repeats"));
  return count < LEAST_REPEATS || (count < MOST_REPEATS && any_noisy(t));
}

/* Does the document of an earlier run have the lists that this run would make? */
static bool is_whole(const training *t) {
  const json_t *repeats = json_object_get(t->document, "repeats"), *losses = json_object_get(t->document, "losses");
  bool whole = json_array_size(repeats) <= MOST_REPEATS &&
               (json_array_size(repeats) == 0 ||
                (json_array_size(losses) == METHODS && json_is_array(json_object_get(t->document, "held_out"))));
  for (size_t r = 0; whole && r < json_array_size(repeats); ++r) {
    for (int m = 0; m < METHODS; ++m) {
      whole = whole && json_array_size(json_array_get(json_array_get(repeats, r), (size_t)m)) == (size_t)t->run.windows &&
              json_array_size(json_array_get(losses, (size_t)m)) == (size_t)t->run.windows;
    }
  }
  return whole;
}

static bppsa_status open_document(training *t, const char *name) {
  BPPSA_TRY(bppsa_keep_resume(t->run.figures, name, "repeats", &t->document));
  if (t->document != NULL) {
    return is_whole(t)
               ? BPPSA_OK
               : bppsa_fail(BPPSA_ERR_FORMAT, "--resume: %s/%s: its lists have other lengths than this run's, expected the same",
                            t->run.figures->request->directory, name);
  }
  t->document = json_object();
  bool ok = t->document != NULL && bppsa_json_put_text(t->document, "figure", t->run.name);
  ok = ok && bppsa_json_put(t->document, "configuration", json_incref(t->run.figures->request->configuration));
  ok = ok && bppsa_json_put_integer(t->document, "window", WINDOW);
  ok = ok && bppsa_json_put(t->document, "repeats", json_array());
  return ok ? BPPSA_OK : bppsa_figures_no_room();
}

static bppsa_status run_repeats(training *t) {
  char name[32], done[64];
  snprintf(name, sizeof name, "%s.json", t->run.name);
  BPPSA_TRY(open_document(t, name));
  while (needs_more(t)) {
    snprintf(done, sizeof done, "%zu repeats of %s", json_array_size(json_object_get(t->document, "repeats")), t->run.name);
    BPPSA_TRY(bppsa_lockstep_repeat(&t->run, done));
    BPPSA_TRY(put_repeat(t));
    BPPSA_TRY(bppsa_keep_save(t->run.figures, name, t->document, !needs_more(t)));
  }
  return BPPSA_OK;
}

/* ---- sentences ---- */

static void ratio_text(const training *t, bppsa_text *verdict) {
  bppsa_timing times[METHODS];
  double best = INFINITY; /* of the scans, which follow BP */
  bool noisy = false;
  for (int m = 0; m < METHODS; ++m) {
    times[m] = timing_of(t, m, 0, t->run.windows);
    noisy = noisy || times[m].noisy;
    best = m > 0 ? fmin(best, times[m].median_s) : best;
  }
  if (noisy) {
    bppsa_text_add(verdict, "No ratio of BP to the scan: the times of %" PRId64 " repeats are noisy. ", times[0].repeats);
  } else {
    bppsa_text_add(verdict,
                   "The time of BP over that of the fastest scan, forward and backward, medians of %" PRId64 " repeats: %.2f. ",
                   times[0].repeats, times[0].median_s / best);
  }
}

/* Writes the name in capitals: "GRU" for "gru". */
static void capitals(const char *name, char *text, size_t size) {
  size_t i = 0;
  for (; name[i] != '\0' && i + 1 < size; ++i) {
    text[i] = (char)toupper((unsigned char)name[i]);
  }
  text[i] = '\0';
}

static void verdict_text(const training *t, bppsa_text *verdict) {
  const bppsa_recurrent_config *c = &t->run.config;
  const json_t *held_out = json_object_get(t->document, "held_out");
  char kind[16];
  capitals(t->run.figures->kind->name, kind, sizeof kind);
  bppsa_text_add(
      verdict,
      "%s, T = %" PRId64 ", B = %" PRId64 ", H = %" PRId64 ", Adam %g, %" PRId64
      " iterations. The largest difference of any single loss from BP's is %.1e; the losses of all repeats are the same bits. ",
      kind, c->seq_len, c->batch, c->hidden, bppsa_lockstep_rate, t->run.iterations,
      json_number_value(json_object_get(t->document, "largest_difference")));
  ratio_text(t, verdict);
  for (int m = 0; t->run.split.validation > 0 && m < METHODS; ++m) {
    bppsa_text_add(verdict, "%s%s %.1f %%", m == 0 ? "Accuracy on the samples held out: " : ", ", bppsa_lockstep_name(m),
                   100 * json_number_value(json_array_get(held_out, (size_t)m)));
  }
  if (t->run.split.validation > 0) {
    bppsa_text_add(verdict, " of %" PRId64 ". ", t->run.split.validation);
  }
  bppsa_text_add(verdict, "%s", t->paper);
}

static void report(const training *t, bppsa_text *csv, bppsa_text *verdict) {
  const json_t *losses = json_object_get(t->document, "losses");
  bppsa_text_add(csv, "method,iterations,seconds,mean_loss,window_median_s,window_min_s,window_max_s,noisy\n");
  for (int m = 0; m < METHODS; ++m) {
    double seconds = 0;
    for (int64_t w = 0; w < t->run.windows; ++w) {
      const int64_t last = (w + 1) * WINDOW, all = t->run.iterations;
      const bppsa_timing time = timing_of(t, m, w, w + 1);
      seconds += time.median_s;
      bppsa_text_add(csv, "%s,%" PRId64, bppsa_lockstep_name(m), last < all ? last : all);
      bppsa_text_add_cells(csv, 5, (double[]){seconds, real_at(losses, m, w), time.median_s, time.min_s, time.max_s});
      bppsa_text_add(csv, ",%d\n", time.noisy);
    }
  }
  verdict_text(t, verdict);
}

bppsa_status bppsa_make_training(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  training t = {.paper = figure->of};
  bppsa_status status = bppsa_lockstep_open(f, figure->name, &t.run);
  status = status == BPPSA_OK ? run_repeats(&t) : status;
  if (status == BPPSA_OK) {
    report(&t, &made->csv, &made->caption);
  }
  bppsa_lockstep_close(&t.run);
  json_decref(t.document);
  return status;
}

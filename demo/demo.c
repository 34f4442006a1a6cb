/* The demonstration: one RNN, one task and one seed, trained by sequential BP and by each of the scan's algorithms.
 *
 *     bppsa_demo OUT_DIR
 *
 * Prints the loss curves and their largest difference, the milliseconds of an iteration by phase, and which method won and why,
 * or that the timings are too noisy to tell. Writes OUT_DIR/figure7.csv (BPPSA figure 7).
 */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/compute/device.h"
#include "core/measure/rounds.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "train/data/dataset.h"
#include "train/loss.h"
#include "train/optimizer.h"

enum { ITERATIONS = 300, WINDOW = 20, WINDOWS = ITERATIONS / WINDOW, SEQ_LEN = 1000, BATCH = 16, HIDDEN = 20 };
static const double learning_rate = 3e-4;

/* BP is method 0; method m is the scan by algorithm m of scan/algorithm.h, where number 0 is auto. */
enum { METHODS = BPPSA_SCAN_ALGORITHMS, BP = BPPSA_SCAN_AUTO, FORWARD = 0, BACKWARD, UPDATE, ALL, PHASES };

static const char *name_of(int m) {
  return m == BP ? bppsa_backward_name(BPPSA_BACKWARD_BP) : bppsa_scan_algorithm_name((bppsa_scan_algorithm)m);
}

static bppsa_gradient_method method_of(int m) {
  return m == BP ? (bppsa_gradient_method){.backward = BPPSA_BACKWARD_BP}
                 : (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, bppsa_scan_method_of((bppsa_scan_algorithm)m)};
}

/* Is it the linear scan, which is BP under another name? */
static bool is_linear(int m) {
  return m != BP && bppsa_scan_algorithm_is_bp((bppsa_scan_algorithm)m);
}

/* The run of one method. */
typedef struct {
  const char *name;
  bppsa_model *model;
  bppsa_optimizer *optimizer;
  double loss[ITERATIONS];
  double phase_s[PHASES][ITERATIONS]; /* seconds of the forward pass, the backward pass, the update and all three */
  double seconds[ITERATIONS];         /* time of this method's own work since the start */
  bppsa_timing timing[PHASES];
} curve;

/* The batch on which all methods train. */
typedef struct {
  int64_t order[32000], labels[BATCH];
  float x[SEQ_LEN * BATCH], seed[BATCH * 10];
} batch;

static bppsa_status create(int m, const bppsa_device *device, curve *c) {
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  config.seq_len = SEQ_LEN;
  config.batch = BATCH;
  config.hidden = HIDDEN;
  config.method = method_of(m);
  c->name = name_of(m);
  BPPSA_TRY(bppsa_recurrent_create(&config, &bppsa_rnn_cell, device, &c->model));
  BPPSA_TRY(bppsa_recurrent_init(c->model, BPPSA_INIT_DEFAULT, 0));
  bppsa_optimizer_config adam = bppsa_optimizer_config_default();
  adam.lr = learning_rate;
  return bppsa_optimizer_create(&adam, c->model, &c->optimizer);
}

/* Makes one training step and times its phases. */
static bppsa_status step(curve *c, int iteration, batch *b, const bppsa_device *device) {
  const bppsa_view x = bppsa_view_make(b->x, BPPSA_F32, 3, (int64_t[]){SEQ_LEN, BATCH, 1});
  const bppsa_view seed = bppsa_view_make(b->seed, BPPSA_F32, 2, (int64_t[]){BATCH, 10});
  bppsa_view logits;
  bppsa_loss_result loss;
  const double start = bppsa_now();
  BPPSA_TRY(c->model->ops->forward(c->model, &x, NULL, &logits));
  const double forward = bppsa_now();
  BPPSA_TRY(bppsa_cross_entropy(device, &logits, b->labels, &seed, &loss));
  const double scored = bppsa_now();
  BPPSA_TRY(c->model->ops->backward(c->model, &seed));
  const double backward = bppsa_now();
  bppsa_optimizer_step(c->optimizer, device);
  const double update = bppsa_now();
  c->loss[iteration] = loss.loss;
  c->phase_s[FORWARD][iteration] = forward - start;
  c->phase_s[BACKWARD][iteration] = backward - scored;
  c->phase_s[UPDATE][iteration] = update - backward;
  c->phase_s[ALL][iteration] = forward - start + update - scored;
  c->seconds[iteration] = (iteration > 0 ? c->seconds[iteration - 1] : 0) + update - start;
  return BPPSA_OK;
}

/* Lets all methods take turns in every iteration, on the same batch, so that other load on the machine affects them alike. */
static bppsa_status run(const bppsa_device *device, const bppsa_dataset *data, batch *b, curve *curves) {
  for (int m = 0; m < METHODS; ++m) {
    BPPSA_TRY(create(m, device, &curves[m]));
  }
  const bppsa_view x = bppsa_view_make(b->x, BPPSA_F32, 3, (int64_t[]){SEQ_LEN, BATCH, 1});
  bppsa_shuffle(0, 1, data->samples, b->order);
  const bool terminal = isatty(STDERR_FILENO);
  for (int i = 0; i < ITERATIONS; ++i) {
    BPPSA_TRY(bppsa_dataset_fill(data, device, BATCH, b->order + i * BATCH, &x, b->labels));
    for (int m = 0; m < METHODS; ++m) {
      BPPSA_TRY(step(&curves[m], i, b, device));
    }
    if (terminal) {
      fprintf(stderr, "\rtraining by %d methods: iteration %3d of %d, loss %.3f ", METHODS, i + 1, ITERATIONS,
              curves[BP].loss[i]);
    }
  }
  if (terminal) {
    fprintf(stderr, "\r%60s\r", "");
  }
  for (int m = 0; m < METHODS; ++m) {
    for (int phase = 0; phase < PHASES; ++phase) {
      curves[m].timing[phase] = bppsa_timing_of(ITERATIONS, curves[m].phase_s[phase]);
    }
  }
  return BPPSA_OK;
}

static double window_mean(const curve *c, int window) {
  double sum = 0;
  for (int i = 0; i < WINDOW; ++i) {
    sum += c->loss[window * WINDOW + i];
  }
  return sum / WINDOW;
}

/* Returns the totals of the scan; NULL for sequential BP. */
static const bppsa_scan_totals *totals_of(const curve *c) {
  const bppsa_scan_plan *plan = bppsa_recurrent_plan(c->model, 0);
  return plan == NULL ? NULL : bppsa_scan_plan_totals(plan);
}

static double median_ms(const curve *c, int phase) {
  return 1e3 * c->timing[phase].median_s;
}

/* ---- output ---- */

static void print_curves(const curve *curves) {
  printf("Training loss, mean over %d iterations\n\n  iterations", WINDOW);
  for (int m = 0; m < METHODS; ++m) {
    printf("%12s", name_of(m));
  }
  printf("\n");
  for (int w = 0; w < WINDOWS; ++w) {
    printf("  %4d - %3d", w * WINDOW + 1, (w + 1) * WINDOW);
    for (int m = 0; m < METHODS; ++m) {
      printf("%12.6f", window_mean(&curves[m], w));
    }
    printf("\n");
  }
  printf("\nLargest difference of any single loss from BP's\n\n");
  for (int m = 1; m < METHODS; ++m) {
    double most = 0;
    int at = 0;
    for (int i = 0; i < ITERATIONS; ++i) {
      const double d = fabs(curves[m].loss[i] - curves[BP].loss[i]);
      at = d > most ? i : at;
      most = d > most ? d : most;
    }
    printf("  %-10s%9.2e", name_of(m), most);
    if (most > 0) {
      printf("  (iteration %d)\n", at + 1);
    } else {
      printf("  (the same bits)\n");
    }
  }
}

static void print_times(const curve *curves) {
  bool noisy = false;
  printf("\nMilliseconds per iteration, median of %d\n\n", ITERATIONS);
  printf("  method     forward  backward   update     all   backward/BP's\n");
  for (int m = 0; m < METHODS; ++m) {
    char text[PHASES][BPPSA_TIMING_TEXT];
    for (int phase = 0; phase < PHASES; ++phase) {
      bppsa_timing_median_ms(&curves[m].timing[phase], 3, text[phase]);
      noisy = noisy || curves[m].timing[phase].noisy;
    }
    printf("  %-9s%9s%10s%9s%8s%13.2fx\n", name_of(m), text[FORWARD], text[BACKWARD], text[UPDATE], text[ALL],
           median_ms(&curves[m], BACKWARD) / median_ms(&curves[BP], BACKWARD));
  }
  if (noisy) {
    printf("\n  ~ noisy: the median is more than %g times the minimum; nothing is concluded from it\n", BPPSA_TIMING_SPREAD);
  }
  printf("\nThe scan's products in one backward pass: the gradients between steps, without those of weights\n\n");
  printf("  method      mat-mat   mat-vec   MFLOP in the batch   x BP's   critical path, level by level\n");
  double bp = 0;
  for (int m = 0; m < METHODS; ++m) {
    const bppsa_scan_totals *t = totals_of(&curves[m]);
    if (t == NULL) {
      continue;
    }
    const double flops = 1e-6 * BATCH * (double)(t->mm_flops + t->mv_flops);
    bp = is_linear(m) ? flops : bp;
    printf("  %-9s%10lld%10lld%21.1f%9.1f%29lld\n", name_of(m), (long long)(t->mm - t->dead), (long long)t->mv, flops, flops / bp,
           (long long)t->critical_steps);
  }
}

/* Prints which method is the fastest, and which of those that break the chain of steps. Linear is not compared: it is BP. */
static void print_fastest(const curve *curves, int threads) {
  bppsa_timing compared[METHODS];
  int which[METHODS], count = 0;
  for (int m = 0; m < METHODS; ++m) {
    if (!is_linear(m)) {
      which[count] = m;
      compared[count++] = curves[m].timing[ALL];
    }
  }
  const int64_t fastest = bppsa_timing_fastest(count, compared);
  if (fastest < 0) {
    printf("  No winner is named, because a timing is noisy (~): run the demonstration on a machine that does nothing else.\n");
    return;
  }
  const int winner = which[fastest], parallel = which[1 + bppsa_timing_fastest(count - 1, compared + 1)];
  printf("  Fastest here: %s, %.3f ms per iteration. The fastest that breaks the chain of steps is %s: %.3f ms, BP: %.3f ms.\n",
         name_of(winner), median_ms(&curves[winner], ALL), name_of(parallel), median_ms(&curves[parallel], ALL),
         median_ms(&curves[BP], ALL));
  if (winner == BP) {
    printf("  The FLOPs that the parallel scans add are more than %d thread%s can buy back.\n", threads, threads == 1 ? "" : "s");
  } else {
    printf("  It does more FLOPs than BP, and its shorter chain pays for them on %d threads.\n", threads);
  }
}

static void print_verdict(const curve *curves, int threads) {
  int shortest = BP;
  const bppsa_scan_totals *l = NULL, *s = NULL;
  for (int m = 0; m < METHODS; ++m) {
    const bppsa_scan_totals *t = totals_of(&curves[m]);
    l = is_linear(m) ? t : l;
    if (t != NULL && (s == NULL || t->critical_steps < s->critical_steps)) {
      s = t;
      shortest = m;
    }
  }
  const double work = (double)(s->mm_flops + s->mv_flops) / (double)(l->mm_flops + l->mv_flops);
  printf("\nWhat this says\n\n");
  print_fastest(curves, threads);
  printf("  Linear is BP under another name: both do %lld dependent mat-vecs a sample, shared by the samples of a batch, and a\n"
         "  difference between their times is none between methods. %c%s multiplies H x H matrices (H = %d) to break that\n"
         "  chain and does %.1f times BP's FLOPs for the gradients between steps.\n",
         (long long)l->critical_steps, name_of(shortest)[0] - 'a' + 'A', name_of(shortest) + 1, HIDDEN, work);
  printf("  With a worker for every product, the chain would be %lld steps (%s) instead of %lld, and %.4f MFLOP long instead\n"
         "  of %.4f MFLOP: %.0f times shorter in steps, %.1f times in FLOPs, because its steps are matrix products.\n",
         (long long)s->critical_steps, name_of(shortest), (long long)l->critical_steps, 1e-6 * (double)s->critical_flops,
         1e-6 * (double)l->critical_flops, (double)l->critical_steps / (double)s->critical_steps,
         (double)l->critical_flops / (double)s->critical_flops);
}

static int write_csv(const char *directory, const curve *curves) {
  char path[4096];
  snprintf(path, sizeof path, "%s/figure7.csv", directory);
  FILE *file = fopen(path, "w");
  if (file == NULL) {
    fprintf(stderr, "bppsa_demo: error: cannot write %s, expected a writable directory\n", path);
    return 2;
  }
  fprintf(file, "method,iterations,seconds,mean_loss,forward_ms,backward_ms,update_ms\n");
  for (int m = 0; m < METHODS; ++m) {
    for (int w = 0; w < WINDOWS; ++w) {
      const curve *c = &curves[m];
      fprintf(file, "%s,%d,%.6f,%.9g,%.6f,%.6f,%.6f\n", name_of(m), (w + 1) * WINDOW, c->seconds[(w + 1) * WINDOW - 1],
              window_mean(c, w), median_ms(c, FORWARD), median_ms(c, BACKWARD), median_ms(c, UPDATE));
    }
  }
  if (fclose(file) != 0) {
    fprintf(stderr, "bppsa_demo: error: cannot write %s completely\n", path);
    return 1;
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: bppsa_demo OUT_DIR\n");
    return 2;
  }
  static curve curves[METHODS];
  static batch shared;
  bppsa_device *device = NULL;
  bppsa_dataset *data = NULL;
  bppsa_status status = bppsa_device_create("cpu", 0, &device);
  const bppsa_dataset_options options = bppsa_dataset_options_default();
  status = status == BPPSA_OK ? bppsa_dataset_create("bitstream", &options, &data) : status;
  if (status == BPPSA_OK) {
    printf("RNN on the bitstream task: T = %d, B = %d, H = %d, Adam %g, %d iterations, seed 0, f32\n"
           "on %s, %d thread%s\n\n",
           SEQ_LEN, BATCH, HIDDEN, learning_rate, ITERATIONS, bppsa_device_get_hardware(device), bppsa_device_get_threads(device),
           bppsa_device_get_threads(device) == 1 ? "" : "s");
    fflush(stdout);
  }
  status = status == BPPSA_OK ? run(device, data, &shared, curves) : status;
  int code = 0;
  if (status != BPPSA_OK) {
    fprintf(stderr, "bppsa_demo: error: %s\n", bppsa_last_error());
    code = 1;
  } else {
    print_curves(curves);
    print_times(curves);
    print_verdict(curves, bppsa_device_get_threads(device));
    code = write_csv(argv[1], curves);
  }
  for (int m = 0; m < METHODS; ++m) {
    bppsa_optimizer_destroy(curves[m].optimizer);
    bppsa_model_destroy(curves[m].model);
  }
  bppsa_dataset_destroy(data);
  bppsa_device_destroy(device);
  return code;
}

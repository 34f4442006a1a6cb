/* What `auto` costs as a backward pass: the first 200 passes of a network, with their pauses.
 *
 *     cc -O2 -std=gnu17 -I. -o backward_auto bench/scripts/backward_auto.c -Lbuild/cpu/tests -lbppsa_test_library -lm
 *     LD_LIBRARY_PATH=build/cpu/tests ./backward_auto cpu bench/weights/X.safetensors .. >cpu.json
 *     LD_LIBRARY_PATH=build/cpu/tests ./backward_auto cpu random RNN|GRU|LSTM H >random.json
 *     LD_LIBRARY_PATH=build/cpu/tests ./backward_auto gpu bench/weights/X.safetensors .. >gpu.json
 *
 * cpu: measured, B = 1, one thread, in processor time of the thread, so that other programs disturb it little: `auto` beside BP and
 * beside some speculative passes that never pause; in turn, and BP in every fourth turn only where it takes long. A scan takes
 * longer than BP on one thread, so that BP is the best of sequential and scan.
 *
 * gpu: predicted, B = 16, an H200. The cost models say how long passes take (recurrent/backward_cost.c, scan/cost.c,
 * recurrent/parallel_forward.c); paths are found on this processor with the GPU's plans. A row has the forward and the backward
 * pass, whose times add up to those of a whole step. For the mean time of `auto`, 200 passes that all have this path are taken to
 * pause as a network's passes would. BP or a scan computes those that are given up or paused, as the plan says. A scan's launches
 * cost 1.1 µs each in every pass that does not need them. A paused pass has the launch of the parallel kernel, 2 µs, besides, and
 * the first of the scan's, which begins early, costs 0.9 less than one that does not.
 *
 * Networks: the weights given (gpu: and default and orthogonal ones), or those random ones of a cell. Inputs are random bits,
 * gradients of the outputs uniform in [-1, 1] at the last step or, of weights whose name has "_all" and of random ones, at every
 * step. forward_over_best (gpu): the mean of 200 forward passes by `auto` over the faster of the sequential and the speculative
 * one. over_sequential_and_scan: the mean of `auto` over the faster of BP and the best scan; over_best (cpu): over the fastest of
 * these and of speculation alone. Prints a JSON array. */
#include <inttypes.h>
#include <math.h>
#include <strings.h>

#include "bench/scripts/auto_network.h"
#include "recurrent/parallel_backward.h"

enum { PASSES = 200, ALONE = 10, KINDS = 3, CLASSES = 10, BATCH = 16 };

static const bppsa_backward kinds[KINDS] = {BPPSA_BACKWARD_BP, BPPSA_BACKWARD_SPECULATIVE, BPPSA_BACKWARD_AUTO};

static bool is_loss_all(const subject *s) {
  return s->path == NULL || strstr(s->path, "_all") != NULL;
}

static bppsa_recurrent_config config_of(const subject *s, int64_t batch) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.classes = CLASSES;
  c.batch = batch;
  c.seq_len = s->seq_len;
  c.hidden = s->hidden;
  c.loss_all = is_loss_all(s);
  return c;
}

/* A network with a batch of bits, and gradients of its outputs. */
typedef struct {
  bppsa_model *model;
  float *bits, *gradients;
  bppsa_view x, seed;
} net;

static net open_net(const subject *s, const bppsa_recurrent_config *c, const bppsa_device *device) {
  const int64_t rows = (c->loss_all ? c->seq_len : 1) * c->batch, inputs = c->seq_len * c->batch;
  const int64_t shape[] = {c->seq_len, c->batch, CLASSES};
  net n = {.bits = bppsa_calloc(inputs, sizeof(float)), .gradients = bppsa_calloc(rows * CLASSES, sizeof(float))};
  srand(1);
  for (int64_t i = 0; i < inputs; ++i) {
    n.bits[i] = (float)(rand() & 1);
  }
  for (int64_t i = 0; i < rows * CLASSES; ++i) {
    n.gradients[i] = (float)(2. * rand() / RAND_MAX - 1);
  }
  n.x = bppsa_view_make(n.bits, BPPSA_F32, 3, (int64_t[]){c->seq_len, c->batch, 1});
  n.seed = bppsa_view_make(n.gradients, BPPSA_F32, c->loss_all ? 3 : 2, c->loss_all ? shape : shape + 1);
  require(bppsa_recurrent_create(c, s->cell, device, &n.model));
  set_weights(s, n.model);
  bppsa_view logits;
  require(bppsa_model_forward(n.model, &n.x, NULL, NULL, &logits));
  return n;
}

static void close_net(net *n) {
  bppsa_model_destroy(n->model);
  bppsa_free(n->bits);
  bppsa_free(n->gradients);
}

static double pass(net *n) {
  const double start = processor_seconds();
  require(n->model->ops->backward(n->model, &n->seed));
  return processor_seconds() - start;
}

static void print_subject(const subject *s, int64_t batch, bool first) {
  printf("%s{\"model\": \"%s\", \"weights\": \"%s\", \"scale\": %g, \"loss\": \"%s\", \"seq_len\": %" PRId64
         ", \"hidden\": %" PRId64 ", \"batch\": %" PRId64 ", ",
         first ? "" : ",\n", s->cell->name, weights_of(s), s->scale, is_loss_all(s) ? "all" : "last", s->seq_len, s->hidden,
         batch);
}

static void measure(const subject *s, const bppsa_device *device, bool first) {
  static const bppsa_backward_state none = {.warm_up = 0};
  double sums[KINDS] = {0};
  net nets[KINDS];
  bppsa_backward_stats found = {.speculated = false};
  int64_t speculated = 0;
  int every = 1, sequential = 0;
  for (int k = 0; k < KINDS; ++k) {
    bppsa_recurrent_config c = config_of(s, 1);
    c.method.backward = kinds[k];
    nets[k] = open_net(s, &c, device);
    every = pass(&nets[k]) > .01 && k == 0 ? 4 : every;
    require(bppsa_backward_plan_of(nets[k].model) != NULL ? bppsa_backward_state_set(nets[k].model, &none) : BPPSA_OK);
  }
  const bool takes = bppsa_backward_plan_of(nets[2].model) != NULL;
  for (int i = 0; i < PASSES; ++i) {
    if (i % every == 0) {
      sums[0] += pass(&nets[0]);
      sequential += 1;
    }
    sums[2] += pass(&nets[2]) / PASSES;
    if (i < ALONE) {
      require(bppsa_backward_state_set(nets[1].model, &none));
      sums[1] += pass(&nets[1]) / ALONE;
    }
    if (takes) {
      require(bppsa_backward_stats_of(nets[2].model, &found));
      speculated += found.speculated;
    }
  }
  require(bppsa_backward_stats_of(nets[1].model, &found));
  const double alone = speculated == PASSES ? sums[2] : sums[1], bp = sums[0] / sequential;
  print_subject(s, 1, first);
  printf("\"auto\": \"%s\", \"speculated\": %" PRId64 ", \"passes\": %d, \"path\": %" PRId64
         ", \"work\": %.3f, \"bp_s\": %.4g, \"speculative_s\": %.4g, \"auto_mean_s\": %.4g, "
         "\"over_sequential_and_scan\": %.3f, \"over_best\": %.3f}",
         takes ? "speculative" : "bp", speculated, (int)PASSES, found.path, found.work, bp, alone, sums[2], sums[2] / bp,
         sums[2] / fmin(bp, alone));
  fflush(stdout);
  for (int k = 0; k < KINDS; ++k) {
    close_net(&nets[k]);
  }
}

/* ---- a GPU ---- */

/* Seconds of a pass that mends nothing, of BP and of the fastest scan, by the cost models. */
static void find_times(const bppsa_recurrent_config *config, const bppsa_cell *cell, double *bp, double *scan) {
  bppsa_recurrent_config c = *config;
  bppsa_recurrent_candidate found;
  bool more = true;
  c.method = (bppsa_gradient_method){.backward = BPPSA_BACKWARD_AUTO, .scan = config->method.scan};
  *bp = *scan = INFINITY;
  for (int64_t i = 0; more; ++i) {
    require(bppsa_recurrent_find_candidate(&c, cell, BPPSA_CUDA, i, &found, &more));
    double *const to = found.method.backward == BPPSA_BACKWARD_BP ? bp : scan;
    if (more && found.method.backward != BPPSA_BACKWARD_SPECULATIVE) {
      *to = fmin(*to, found.seconds);
    }
  }
}

/* The mean time of 200 passes that all do what `one` did, but for those in pauses. fallback: the time of what computes these. */
static double mean_of(const bppsa_backward_plan *plan, const bppsa_backward_stats *one, double speculative, double fallback,
                      int64_t *speculated) {
  const double launch = plan->scan_chunks > 1 ? 1.1e-6 : 0; /* BP runs in the same launch */
  bppsa_forward_pause pause = {0, 0};
  double sum = 0;
  *speculated = 0;
  for (int i = 0; i < PASSES; ++i) {
    if (pause.left > 0) {
      pause.left -= 1;
      sum += fallback + launch;
    } else {
      const bool fails = bppsa_backward_fails(plan, one);
      pause.failures = fails ? pause.failures + 1 : 0;
      if (pause.failures >= BPPSA_FORWARD_FAILURES) {
        pause.left = (int64_t)BPPSA_FORWARD_PAUSE << (pause.failures - BPPSA_FORWARD_FAILURES);
      }
      sum += speculative + (one->given_up ? fallback : 0);
      *speculated += 1;
    }
  }
  return sum / PASSES;
}

/* The mean time of 200 forward passes by `auto` that all take the path of `one`, those in pauses included: then two launches end at
 * once, and the third one computes the sequential pass. */
static double forward_mean(const bppsa_forward_shape *shape, const bppsa_forward_stats *one) {
  const double sequential = bppsa_forward_gpu_seconds(shape, NULL, 0), launch = 1.1e-6;
  bppsa_forward_method method = bppsa_forward_method_default();
  bppsa_forward_plan plan;
  bppsa_forward_pause pause = {0, 0};
  double sum = 0;
  method.kind = BPPSA_FORWARD_AUTO;
  require(bppsa_forward_plan_make(&method, shape, &plan));
  if (!plan.speculative) {
    return sequential;
  }
  for (int i = 0; i < PASSES; ++i) {
    if (bppsa_forward_pause_begin(&plan, &pause)) {
      sum += bppsa_forward_gpu_seconds(shape, &plan, (double)one->path);
      pause = bppsa_forward_pause_after(&plan, one, pause);
    } else {
      sum += sequential + 2 * launch;
    }
  }
  return sum / PASSES;
}

static void predict(const subject *s, const bppsa_device *device, bool first) {
  bppsa_recurrent_config c = config_of(s, BATCH), chosen;
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(&c, s->cell, BPPSA_CUDA, BPPSA_FORWARD_MULTIPROCESSORS);
  bppsa_forward_method ahead = bppsa_forward_method_default();
  bppsa_forward_plan forward;
  bppsa_backward_plan plan;
  bppsa_forward_stats along;
  bppsa_backward_stats found;
  double bp, scan;
  require(bppsa_recurrent_choose(&c, s->cell, BPPSA_CUDA, &chosen));
  find_times(&c, s->cell, &bp, &scan);
  ahead.kind = BPPSA_FORWARD_SPECULATIVE;
  require(bppsa_forward_plan_make(&ahead, &shape, &forward));
  bppsa_backward_method method = c.speculation;
  require(bppsa_recurrent_find_fallback(&c, s->cell, BPPSA_CUDA, &method));
  require(bppsa_backward_plan_make(&method, &shape, &plan));
  c.forward = ahead;
  c.forward.chunks = forward.chunks;
  c.forward.warm_up = forward.warm_up;
  c.forward.rounds = forward.rounds;
  c.forward.most_work = INFINITY;
  c.method.backward = BPPSA_BACKWARD_SPECULATIVE;
  c.speculation.chunks = plan.chunks;
  c.speculation.warm_up = plan.warm_up;
  c.speculation.cost = plan.cost;
  net n = open_net(s, &c, device);
  (void)pass(&n);
  require(bppsa_forward_stats_of(n.model, &along));
  require(bppsa_backward_stats_of(n.model, &found));
  const bppsa_backward_cost model = bppsa_backward_model(&shape, &plan);
  const double longest = (double)(found.path - (found.given_up ? found.possible : 0)) / (double)found.possible; /* without BP's */
  const double speculative = bp * bppsa_backward_time(&model, longest, 1), fallback = bp * method.scan_time;
  const bool takes = chosen.method.backward == BPPSA_BACKWARD_SPECULATIVE;
  int64_t speculated = 0;
  const double mean = takes                                         ? mean_of(&plan, &found, speculative, fallback, &speculated)
                      : chosen.method.backward == BPPSA_BACKWARD_BP ? bp
                                                                    : scan;
  const double ahead_sequential = bppsa_forward_gpu_seconds(&shape, NULL, 0),
               ahead_speculative = bppsa_forward_gpu_seconds(&shape, &forward, (double)along.path),
               ahead_mean = forward_mean(&shape, &along);
  print_subject(s, BATCH, first);
  printf("\"forward_path\": %" PRId64 ", \"forward_sequential_us\": %.1f, \"forward_speculative_us\": %.1f, "
         "\"forward_auto_mean_us\": %.1f, \"forward_over_best\": %.3f, "
         "\"backward_chunks\": %" PRId64 ", \"backward_path\": %" PRId64 ", \"work\": %.3f, \"rounds\": %" PRId64
         ", \"given_up\": %s, \"scan_chunks\": %" PRId64
         ", \"bp_us\": %.1f, \"scan_us\": %.1f, \"speculative_us\": %.1f, \"auto\": \"%s\", \"speculated\": "
         "%" PRId64 ", \"passes\": %d, \"auto_mean_us\": %.1f, \"over_sequential_and_scan\": %.3f}",
         along.path, 1e6 * ahead_sequential, 1e6 * ahead_speculative, 1e6 * ahead_mean,
         ahead_mean / fmin(ahead_sequential, ahead_speculative), plan.chunks, found.path, found.work, found.rounds,
         found.given_up ? "true" : "false", plan.scan_chunks, 1e6 * bp, 1e6 * scan,
         1e6 * (speculative + (found.given_up ? fallback : 0)), bppsa_backward_name(chosen.method.backward), speculated,
         (int)PASSES, 1e6 * mean, mean / fmin(bp, scan));
  fflush(stdout);
  close_net(&n);
}

/* Reads from the command line which networks to time: files of weights, or random networks. False: it names none. */
static bool run_all(bool gpu, int count, char **arguments, const bppsa_device *device) {
  enum { LENGTHS = 3 };
  static const int64_t lengths[LENGTHS] = {1000, 10000, 30000};
  const bool random = !gpu && strcmp(arguments[0], "random") == 0;
  bool first = true;
  for (int i = 0; !random && i < count * LENGTHS; ++i) {
    const subject s = subject_of(arguments[i / LENGTHS], lengths[i % LENGTHS]);
    if (gpu || i % LENGTHS < 2) { /* T = 30 000 takes minutes */
      (gpu ? predict : measure)(&s, device, first);
      first = false;
    }
  }
  for (int i = 0; (gpu || random) && i < CELLS * SCALES * LENGTHS; ++i) {
    subject s = {cells[i / LENGTHS / SCALES], NULL, scales[i / LENGTHS % SCALES], lengths[i % LENGTHS], 20};
    s.hidden = random ? strtol(arguments[2], NULL, 10) : s.hidden;
    if (gpu || (strcasecmp(s.cell->name, arguments[1]) == 0 && i % LENGTHS == 1)) {
      (gpu ? predict : measure)(&s, device, first);
      first = false;
    }
  }
  return !first;
}

int main(int count, char **arguments) {
  const bool gpu = count > 1 && strcmp(arguments[1], "gpu") == 0, random = count > 2 && strcmp(arguments[2], "random") == 0;
  bppsa_device *device;
  if (count < 3 || (!gpu && strcmp(arguments[1], "cpu") != 0) ||
      (random && (gpu || count != 5 || strtol(arguments[4], NULL, 10) < 1))) {
    fprintf(stderr, "backward_auto: expected gpu or cpu and files of weights, or cpu random RNN|GRU|LSTM H\n");
    return 2;
  }
  require(bppsa_device_create("cpu", 1, &device));
  printf("[");
  if (!run_all(gpu, count - 2, arguments + 2, device)) {
    fprintf(stderr, "backward_auto: '%s' is no cell, expected RNN, GRU or LSTM\n", arguments[3]);
    return 2;
  }
  printf("]\n");
  bppsa_device_destroy(device);
  return 0;
}

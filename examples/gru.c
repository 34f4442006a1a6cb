/* Trains a GRU on data of the program's own, by BP and by the chunked scan beside each other: the same data, the same initial
 * weights, the same optimiser; only the backward pass differs. Each sequence is T random numbers, and its class says whether their
 * sum is positive, so that the network must remember. The program prints losses and times, and exits with 1 if the gradients of the
 * first step differ by more than rounding, or if the network learns nothing. */
#include <bppsa.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { T = 50, B = 32, HIDDEN = 16, CLASSES = 2, STEPS = 300 };

typedef struct {
  bppsa_model *model;
  bppsa_optimizer *optimizer;
  double loss, correct; /* sums over the last fifty steps */
  double seconds;       /* of all steps */
} learner;

/* A library function has failed: prints its sentence, and ends the program. */
static void check(bppsa_status status) {
  if (status != BPPSA_OK) {
    fprintf(stderr, "gru: %s\n", bppsa_last_error());
    exit(1);
  }
}

static double now(void) {
  struct timespec t;
  timespec_get(&t, TIME_UTC);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Makes a batch: x [T, B, 1] and the class of each sample. */
static void draw(double x[T][B], int64_t labels[B]) {
  for (int b = 0; b < B; ++b) {
    double sum = 0;
    for (int t = 0; t < T; ++t) {
      sum += x[t][b] = 2.0 * rand() / RAND_MAX - 1.0;
    }
    labels[b] = sum > 0;
  }
}

static learner make(const bppsa_device *device, bppsa_gradient_method method) {
  learner made = {NULL, NULL, 0, 0, 0};
  bppsa_model_config config = bppsa_model_config_default(); /* config.weights: a safetensors file with PyTorch's names */
  config.seq_len = T;
  config.batch = B;
  config.hidden = HIDDEN;
  config.classes = CLASSES;
  config.dtype = BPPSA_F64;
  config.seed = 1;
  config.method = method;
  bppsa_optimizer_config optimizer = bppsa_optimizer_config_default(); /* Adam */
  optimizer.lr = 0.01;
  check(bppsa_model_open("gru", &config, device, &made.model));
  check(bppsa_optimizer_create(&optimizer, made.model, &made.optimizer));
  return made;
}

/* Forward pass, loss, backward pass: afterwards every parameter of the model has its gradient. */
static void compute_gradients(const learner *l, const bppsa_device *device, const bppsa_view *input, const int64_t labels[B]) {
  double seed[B][CLASSES];
  const int64_t outputs[] = {B, CLASSES};
  const bppsa_view gradient = bppsa_view_make(seed, BPPSA_F64, 2, outputs);
  bppsa_view logits;
  bppsa_loss_result result;
  check(bppsa_model_forward(l->model, input, NULL, NULL, &logits));
  check(bppsa_cross_entropy(device, &logits, labels, &gradient, &result));
  check(bppsa_model_backward(l->model, &gradient));
}

/* The same and the update, in one call. */
static void train(learner *l, const bppsa_device *device, const bppsa_view *input, const int64_t labels[B], bool counted) {
  bppsa_loss_result result;
  const double start = now();
  check(bppsa_model_step(l->model, l->optimizer, device, input, labels, &result));
  l->seconds += now() - start;
  l->loss += counted ? result.loss / 50 : 0;
  l->correct += counted ? (double)result.correct / (50 * B) : 0;
}

/* The norm of the difference between two models' gradients of one parameter, over the gradients' norm. */
static double compare(const bppsa_parameter *a, const bppsa_parameter *b) {
  const double *p = (const double *)a->gradient.data, *q = (const double *)b->gradient.data;
  double difference = 0, size = 0;
  for (int64_t i = 0; i < bppsa_view_count(&a->gradient); ++i) {
    difference += (p[i] - q[i]) * (p[i] - q[i]);
    size += p[i] * p[i];
  }
  return sqrt(difference / size);
}

int main(void) {
  static double x[T][B];
  int64_t labels[B];
  bool good = true;
  bppsa_device *device = NULL;
  const int64_t inputs[] = {T, B, 1};
  const bppsa_view input = bppsa_view_make(x, BPPSA_F64, 3, inputs);
  check(bppsa_device_create("cpu", 1, &device));
  const bppsa_gradient_method bp = {.backward = BPPSA_BACKWARD_BP},
                              chunked = {.backward = BPPSA_BACKWARD_SCAN, .scan = bppsa_scan_method_of(BPPSA_SCAN_CHUNKED)};
  learner learners[] = {make(device, bp), make(device, chunked)};
  for (int step = 0; step < STEPS; ++step) {
    draw(x, labels);
    for (int i = 0; step == 0 && i < 2; ++i) {
      compute_gradients(&learners[i], device, &input, labels);
    }
    for (int64_t i = 0; step == 0 && i < learners[0].model->parameter_count; ++i) {
      const double found = compare(&learners[0].model->parameters[i], &learners[1].model->parameters[i]);
      printf("  %-16s gradients by BP and by the scan differ by %.1e\n", learners[0].model->parameters[i].name, found);
      good = good && found < 1e-10; /* not where it is NaN */
    }
    for (int i = 0; i < 2; ++i) {
      train(&learners[i], device, &input, labels, step >= STEPS - 50);
    }
  }
  const char *const names[] = {"BP", "the chunked scan"};
  for (int i = 0; i < 2; ++i) {
    learner *l = &learners[i];
    printf("%s: loss %.4f, accuracy %.3f, %.2f s\n", names[i], l->loss, l->correct, l->seconds);
    good = good && l->correct > 0.9;
    bppsa_optimizer_destroy(l->optimizer);
    bppsa_model_destroy(l->model);
  }
  bppsa_device_destroy(device);
  return good ? 0 : 1;
}

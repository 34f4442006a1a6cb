/* A user's recurrent cell: the minimal gated unit of Zhou et al. (2016), which the library does not know.
 *
 *     f_t = σ(W_f x_t + b_f + U_f h_{t-1})
 *     c_t = tanh(W_h x_t + b_h + f_t ∘ m_t)              m_t = U_h h_{t-1}
 *     h_t = (1 - f_t) ∘ h_{t-1} + f_t ∘ c_t
 *
 *     Jᵀ_t = U_fᵀ diag(a_t) + U_hᵀ diag(d_t) + diag(1 - f_t)
 *     d_t = f_t² (1 - c_t²)      a_t = ((c_t - h_{t-1}) + f_t (1 - c_t²) m_t) f_t (1 - f_t)
 *
 * The cell is the table `mgu` below: two gates, f and h, K = 2, e = 1 - f. The program compares its gradients, by sequential BP and
 * by every algorithm of the scan, with finite differences in float64, then trains it by each of them. It exits with 1 if a gradient
 * is wrong, if a loss does not fall, or if two methods train differently.
 */
#include <bppsa_cell.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the cell: recurrent/cell.h describes the arguments of its functions ---- */

enum { GATES = 2, SAVED = 3 }; /* SAVED: f, c and m of every step */

/* Returns the address of the block's samples in row t of an array with `vectors` H-vectors for each sample. */
static double *at(const bppsa_cell_block *s, const void *array, int64_t t, int64_t vectors) {
  return (double *)array + (t * s->batch + s->first) * vectors * s->hidden;
}

/* C [m][n] += A [m][k] B [k][n]; a_row and the like are the distances between rows. The library's own cells use a fast product.
 * Every sample's sums run in the same order, whatever block it is in, as recurrent/cell.h requires. */
static void add_product(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, const double *b, int64_t b_row,
                        double *c, int64_t c_row) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t j = 0; j < n; ++j) {
        c[i * c_row + j] += a[i * a_row + p] * b[p * b_row + j];
      }
    }
  }
}

static void forward(const bppsa_cell_block *s) {
  const int64_t n = s->hidden;
  for (int64_t t = 1; t <= s->steps; ++t) {
    const double *before = at(s, s->h, t - 1, 1);
    double *pre = at(s, s->pre, t - 1, GATES), *saved = at(s, s->saved, t - 1, SAVED), *h = at(s, s->h, t, 1);
    const double *u_f = s->w_hh_t, *u_h = u_f + n; /* U_fᵀ and U_hᵀ lie side by side */
    for (int64_t b = 0; b < s->samples; ++b) {
      memset(saved + b * SAVED * n + 2 * n, 0, (size_t)n * sizeof *saved);
    }
    add_product(s->samples, n, n, before, n, u_f, s->w_row_t, pre, GATES * n);
    add_product(s->samples, n, n, before, n, u_h, s->w_row_t, saved + 2 * n, SAVED * n);
    for (int64_t i = 0; i < s->samples * n; ++i) {
      const int64_t x = i / n * GATES * n + i % n, y = i / n * SAVED * n + i % n; /* positions of the first gate, and of f */
      const double f = 1 / (1 + exp(-pre[x])), c = tanh(pre[x + n] + f * saved[y + 2 * n]);
      saved[y] = f;
      saved[y + n] = c;
      h[i] = before[i] + f * (c - before[i]);
    }
  }
}

/* The numbers a, d and f (1 - c²) of one unit. */
typedef struct {
  double f, a, d, by_c;
} factors;

static factors factors_of(const double *saved, int64_t n, double before) {
  const double f = saved[0], c = saved[n], m = saved[2 * n], by_c = f * (1 - c * c);
  return (factors){.f = f, .a = ((c - before) + by_c * m) * f * (1 - f), .d = by_c * f, .by_c = by_c};
}

static void coefficients(const bppsa_cell_block *s) {
  const int64_t n = s->hidden;
  for (int64_t t = 1; t <= s->steps; ++t) {
    const double *before = at(s, s->h, t - 1, 1), *saved = at(s, s->saved, t - 1, SAVED);
    for (int64_t i = 0; i < s->samples * n; ++i) {
      const factors unit = factors_of(saved + i / n * SAVED * n + i % n, n, before[i]);
      at(s, s->columns[0], t - 1, 1)[i] = unit.a;
      at(s, s->columns[1], t - 1, 1)[i] = unit.d;
      at(s, s->diagonal, t - 1, 1)[i] = 1 - unit.f;
    }
  }
}

/* Computes the gradients of x Wᵀ + b and of h Uᵀ; they differ in the gate h, whose m is multiplied by f. */
static void step_deltas(const bppsa_cell_block *s, int64_t t) {
  const int64_t n = s->hidden;
  const double *before = at(s, s->h, t - 1, 1), *saved = at(s, s->saved, t - 1, SAVED), *g = at(s, s->g, t, 1);
  double *delta_x = at(s, s->delta_x, t - 1, GATES), *delta_h = at(s, s->delta_h, t - 1, GATES);
  for (int64_t i = 0; i < s->samples * n; ++i) {
    const factors unit = factors_of(saved + i / n * SAVED * n + i % n, n, before[i]);
    const int64_t x = i / n * GATES * n + i % n;
    delta_x[x] = delta_h[x] = unit.a * g[i];
    delta_x[x + n] = unit.by_c * g[i];
    delta_h[x + n] = unit.d * g[i];
  }
}

static void deltas(const bppsa_cell_block *s) {
  for (int64_t t = s->steps; t >= 1; --t) {
    step_deltas(s, t);
  }
}

/* Sequential BP: g_{t-1} = delta_h U + (1 - f) ∘ g_t + u_{t-1} */
static void backward(const bppsa_cell_block *s) {
  const int64_t n = s->hidden;
  for (int64_t t = s->steps; t >= 1; --t) {
    step_deltas(s, t);
    if (t == 1 && !s->input) {
      break;
    }
    const double *saved = at(s, s->saved, t - 1, SAVED), *g = at(s, s->g, t, 1);
    double *carried = at(s, s->g, t - 1, 1);
    for (int64_t i = 0; i < s->samples * n; ++i) {
      carried[i] = (s->injected ? carried[i] : 0) + g[i] - saved[i / n * SAVED * n + i % n] * g[i];
    }
    add_product(s->samples, n, GATES * n, at(s, s->delta_h, t - 1, GATES), GATES * n, s->w_hh, s->w_row, carried, n);
  }
}

/* The table has no entries for float32 and for a GPU: a caller who asks for these gets BPPSA_ERR_UNSUPPORTED. */
static const bppsa_cell mgu = {
    .name = "mgu",
    .gates = GATES,
    .matrices = 2,
    .diagonal = true,
    .split = true,
    .split_from = 1, /* h */
    .saved = SAVED,
    .forward = {[BPPSA_F64] = forward},
    .backward = {[BPPSA_F64] = backward},
    .coefficients = {[BPPSA_F64] = coefficients},
    .deltas = {[BPPSA_F64] = deltas},
};

/* ---- the methods that compute gradients ---- */

/* The methods as texts (scan/method.h). "blelloch 2": 2 up-levels; "chunked 3": 3 chunks; "scan": the scan that the cost model
 * chooses. */
static const char *const methods[] = {"bp", "linear", "blelloch", "blelloch 2", "chunked", "chunked 3", "scan"};

enum { METHODS = sizeof methods / sizeof methods[0] };

static void check(bppsa_status status) {
  if (status != BPPSA_OK) {
    fprintf(stderr, "cell: %s: %s\n", bppsa_status_name(status), bppsa_last_error());
    exit(1);
  }
}

static bppsa_model *make_network(bppsa_recurrent_config config, int method, const bppsa_device *device) {
  bppsa_model *model = NULL;
  config.dtype = BPPSA_F64;
  check(bppsa_gradient_method_parse(methods[method], &config.method));
  check(bppsa_recurrent_create(&config, &mgu, device, &model));
  check(bppsa_recurrent_init(model, BPPSA_INIT_DEFAULT, 1));
  return model;
}

/* ---- gradients ---- */

/* Returns the loss of one batch; with `backward` also computes the gradients of all parameters. seed: as many reals as logits. */
static double loss_of(bppsa_model *model, const bppsa_view *x, const int64_t *labels, double *seed, int with_backward) {
  bppsa_view logits;
  bppsa_loss_result loss;
  check(model->ops->forward(model, x, NULL, &logits));
  const bppsa_view gradient = bppsa_view_make(seed, BPPSA_F64, logits.ndim, logits.shape);
  check(bppsa_cross_entropy(NULL, &logits, labels, &gradient, &loss));
  if (with_backward) {
    check(model->ops->backward(model, &gradient));
  }
  return loss.loss;
}

/* Returns the largest |gradient - central difference| over all parameters of a network of two layers. */
static double check_method(int method, const bppsa_device *device) {
  enum { T = 13, B = 3, I = 2, C = 4 };
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  config.seq_len = T;
  config.batch = B;
  config.input = I;
  config.hidden = 5;
  config.layers = 2;
  config.classes = C;
  config.loss_all = true;
  double input[T * B * I], seed[T * B * C], worst = 0;
  int64_t labels[T * B];
  for (int i = 0; i < T * B * I; ++i) {
    input[i] = 2.0 * rand() / RAND_MAX - 1;
    labels[i / I] = i % C;
  }
  bppsa_model *model = make_network(config, method, device);
  const bppsa_view x = bppsa_view_make(input, BPPSA_F64, 3, (int64_t[]){T, B, I});
  (void)loss_of(model, &x, labels, seed, 1);
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    const bppsa_parameter *parameter = &model->parameters[p];
    for (int64_t i = 0; i < bppsa_view_count(&parameter->value); ++i) {
      const double value = bppsa_view_get(&parameter->value, i), step = 1e-5;
      bppsa_view_set(&parameter->value, i, value + step);
      const double above = loss_of(model, &x, labels, seed, 0);
      bppsa_view_set(&parameter->value, i, value - step);
      const double below = loss_of(model, &x, labels, seed, 0);
      bppsa_view_set(&parameter->value, i, value);
      const double difference = fabs((above - below) / (2 * step) - bppsa_view_get(&parameter->gradient, i));
      worst = difference <= worst ? worst : difference; /* a NaN is kept */
    }
  }
  bppsa_model_destroy(model);
  return worst;
}

/* ---- training ---- */

/* Trains for 200 steps on bit streams, whose class follows from the fraction of ones (BPPSA eq. 8). */
static bppsa_train_result train(int method, const bppsa_dataset *dataset, const bppsa_device *device) {
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  config.seq_len = dataset->seq_len;
  config.input = dataset->input;
  config.classes = dataset->classes;
  config.hidden = 8;
  bppsa_train_config training = bppsa_train_config_default();
  training.iterations = 200;
  training.optimizer.lr = 1e-2;
  bppsa_train_result result;
  bppsa_model *model = make_network(config, method, device);
  check(bppsa_train(&training, model, dataset, device, NULL, &result));
  bppsa_model_destroy(model);
  return result;
}

int main(void) {
  int bad = 0;
  bppsa_device *device = NULL;
  bppsa_dataset *dataset = NULL;
  bppsa_dataset_options options = bppsa_dataset_options_default();
  options.samples = 320;
  options.seq_len = 60;
  check(bppsa_device_create("cpu", 1, &device));
  check(bppsa_dataset_create("bitstream", &options, &dataset));
  double first = 0;
  for (int m = 0; m < METHODS; ++m) {
    const double difference = check_method(m, device);
    const bppsa_train_result result = train(m, dataset, device);
    first = m == 0 ? result.last.loss : first;
    const int good = difference < 1e-8 && result.last.loss < 0.8 * result.first.loss && fabs(result.last.loss - first) < 1e-6;
    printf("%-11s gradients within %.0e of finite differences, loss %.3f, after %lld steps %.3f (%s)\n", methods[m], difference,
           result.first.loss, (long long)result.steps, result.last.loss, good ? "good" : "BAD");
    bad += !good;
  }
  bppsa_dataset_destroy(dataset);
  bppsa_device_destroy(device);
  return bad > 0;
}

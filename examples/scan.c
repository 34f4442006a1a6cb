/* A dense scan, compared with the recurrence it replaces.
 *
 * n random transposed Jacobians J_tᵀ [H, H] and a seed g_n [H] go through Blelloch's algorithm; g_0 .. g_{n-1} are then
 * compared with g_{t-1} = J_tᵀ g_t, computed one step after the other.
 */
#include <bppsa.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 21, H = 8 };

static double jt[N][H][H]; /* jt[t - 1] = J_tᵀ */
static double g[N + 1][H]; /* the scan's gradients, g[N] is the seed */
static double reference[N + 1][H];

static void check(bppsa_status status) {
  if (status != BPPSA_OK) {
    fprintf(stderr, "scan: %s: %s\n", bppsa_status_name(status), bppsa_last_error());
    exit(1);
  }
}

/* Fills in uniform numbers of variance 1/H, so that the products neither vanish nor explode. */
static void fill(void) {
  const double scale = sqrt(3.0 / H);
  for (int i = 0; i < N * H * H; ++i) {
    (&jt[0][0][0])[i] = scale * (2.0 * rand() / RAND_MAX - 1.0);
  }
  for (int i = 0; i < H; ++i) {
    g[N][i] = reference[N][i] = 1.0;
  }
}

static void scan(void) {
  bppsa_scan_config config = bppsa_scan_config_default();
  config.element = BPPSA_ELEMENT_DENSE;
  config.dtype = BPPSA_F64;
  config.jacobians = N;
  config.dim = H;
  config.input = true;

  bppsa_device *device = NULL;
  bppsa_scan_plan *plan = NULL;
  bppsa_scan_executor *executor = NULL;
  check(bppsa_device_create("cpu", 0, &device));
  check(bppsa_scan_plan_create(&config, &plan));
  check(bppsa_scan_executor_create(plan, device, &executor));

  const bppsa_scan_operands operands = {.batch = 1, .jt = jt, .gradients = g};
  check(executor->execute(executor, &operands));
  printf("%d Jacobians: %lld steps on the critical path\n", N, (long long)bppsa_scan_plan_totals(plan)->critical_steps);

  bppsa_scan_executor_destroy(executor);
  bppsa_scan_plan_destroy(plan);
  bppsa_device_destroy(device);
}

static double difference(void) {
  double worst = 0.0;
  for (int t = N; t >= 1; --t) {
    for (int i = 0; i < H; ++i) {
      reference[t - 1][i] = 0.0;
      for (int j = 0; j < H; ++j) {
        reference[t - 1][i] += jt[t - 1][i][j] * reference[t][j];
      }
      worst = fmax(worst, fabs(reference[t - 1][i] - g[t - 1][i]));
    }
  }
  return worst;
}

int main(void) {
  fill();
  scan();
  const double worst = difference();
  const int good = worst < 1e-10; /* false for a NaN */
  printf("largest difference from the sequential recurrence: %.1e (%s)\n", worst, good ? "good" : "BAD");
  return good ? 0 : 1;
}

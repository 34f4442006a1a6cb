/* A scan: g_0 .. g_{T-1} of g_{t-1} = J_tᵀ g_t by Blelloch's algorithm, in one call. J_tᵀ turns a vector by t radians, so that
 * gradients neither vanish nor explode. The program then compares each of them with one step from the one behind it. */
#include <bppsa.h>
#include <math.h>
#include <stdio.h>

enum { T = 1000, H = 2 };

int main(void) {
  static double jt[T][H][H], g[T + 1][H]; /* jt[t - 1] = J_tᵀ; g[T] is the gradient of the last state */
  const int64_t of_jacobians[] = {T, 1, H, H}, of_gradients[] = {T + 1, 1, H};
  const bppsa_view jacobians = bppsa_view_make(jt, BPPSA_F64, 4, of_jacobians);
  const bppsa_view gradients = bppsa_view_make(g, BPPSA_F64, 3, of_gradients);
  const bppsa_scan_method method = bppsa_scan_method_of(BPPSA_SCAN_BLELLOCH); /* NULL in its place: the planner's choice */
  double worst = 0;
  int good = 1;
  bppsa_device *device = NULL;
  for (int t = 1; t <= T; ++t) {
    jt[t - 1][0][0] = jt[t - 1][1][1] = cos(t);
    jt[t - 1][1][0] = -(jt[t - 1][0][1] = sin(t));
  }
  g[T][0] = 1;
  if (bppsa_device_create("cpu", 0, &device) != BPPSA_OK ||
      bppsa_scan(device, &jacobians, NULL, &gradients, &method) != BPPSA_OK) {
    fprintf(stderr, "scan: %s\n", bppsa_last_error());
    return 1;
  }
  bppsa_device_destroy(device);
  for (int i = 0; i < T * H; ++i) { /* element k of g_{t-1} */
    const int t = T - i / H, k = i % H;
    const double difference = fabs(jt[t - 1][k][0] * g[t][0] + jt[t - 1][k][1] * g[t][1] - g[t - 1][k]);
    worst = fmax(worst, difference);
    good = good && difference < 1e-10; /* not where it is NaN */
  }
  printf("largest difference from the sequential recurrence: %.1e (%s)\n", worst, good ? "good" : "BAD");
  return good ? 0 : 1;
}

/* A dense scan, compared with the recurrence that it replaces: T random transposed Jacobians J_tᵀ [H, H] and a seed g_T [H] go
 * through Blelloch's algorithm; g_0 .. g_{T-1} are then compared with g_{t-1} = J_tᵀ g_t, computed one step after the other. */
#include <bppsa.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 21, H = 8 };

static double jt[T][H][H]; /* jt[t - 1] = J_tᵀ */
static double g[T + 1][H]; /* g[T] is the seed */

int main(void) {
  for (int i = 0; i < T * H * H; ++i) { /* of variance 1 / H, so that the products neither vanish nor explode */
    (&jt[0][0][0])[i] = sqrt(3.0 / H) * (2.0 * rand() / RAND_MAX - 1.0);
  }
  for (int i = 0; i < H; ++i) {
    g[T][i] = 1.0;
  }
  bppsa_device *device = NULL;
  const int64_t of_jacobians[] = {T, 1, H, H}, of_gradients[] = {T + 1, 1, H};
  const bppsa_view jacobians = bppsa_view_make(jt, BPPSA_F64, 4, of_jacobians);
  const bppsa_view gradients = bppsa_view_make(g, BPPSA_F64, 3, of_gradients);
  const bppsa_scan_method method = bppsa_scan_method_of(BPPSA_SCAN_BLELLOCH); /* NULL in its place: the planner's choice */
  if (bppsa_device_create("cpu", 0, &device) != BPPSA_OK ||
      bppsa_scan(device, &jacobians, NULL, &gradients, &method) != BPPSA_OK) {
    fprintf(stderr, "scan: %s\n", bppsa_last_error());
    return 1;
  }
  bppsa_device_destroy(device);

  double worst = 0.0;
  for (int t = T; t >= 1; --t) { /* each step from the scan's own g_t: the errors of steps do not add up */
    for (int i = 0; i < H; ++i) {
      double expected = 0.0;
      for (int j = 0; j < H; ++j) {
        expected += jt[t - 1][i][j] * g[t][j];
      }
      worst = fmax(worst, fabs(expected - g[t - 1][i]));
    }
  }
  const int good = worst < 1e-10; /* false for a NaN */
  printf("largest difference from the sequential recurrence: %.1e (%s)\n", worst, good ? "good" : "BAD");
  return good ? 0 : 1;
}

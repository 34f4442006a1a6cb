/* A scan in one call: g_{t-1} = J_tᵀ g_t for t = 70 .. 1, by Blelloch's algorithm. Every J_tᵀ is [[1, 1], [1, 0]], so that the
 * program prints Fibonacci numbers. They fit into the 53 bits of a double: every order of the products gives them exactly. */
#include <bppsa.h>
#include <stdio.h>

int main(void) {
  static double jt[70][2][2], g[71][2];                       /* jt[t - 1] = J_tᵀ; g[70] is the gradient of the last state */
  const int64_t of_jt[] = {70, 1, 2, 2}, of_g[] = {71, 1, 2}; /* steps, batch, width */
  const bppsa_view jacobians = bppsa_view_make(jt, BPPSA_F64, 4, of_jt);
  const bppsa_view gradients = bppsa_view_make(g, BPPSA_F64, 3, of_g);
  const bppsa_scan_method method = bppsa_scan_method_of(BPPSA_SCAN_BLELLOCH); /* NULL in its place: the planner's choice */
  bppsa_device *cpu = NULL;
  for (int t = 0; t < 70; ++t)
    jt[t][0][0] = jt[t][0][1] = jt[t][1][0] = 1;
  g[70][0] = 1;
  if (bppsa_device_create("cpu", 0, &cpu) != BPPSA_OK || bppsa_scan(cpu, &jacobians, NULL, &gradients, &method) != BPPSA_OK) {
    fprintf(stderr, "scan: %s\n", bppsa_last_error());
    return 1;
  }
  bppsa_device_destroy(cpu);
  for (int t = 70; t >= 0; --t)
    printf("F(%d) = %.0f, F(%d) = %.0f\n", 71 - t, g[t][0], 70 - t, g[t][1]);
}

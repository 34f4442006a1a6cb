/* GRU gradients: the tests of any cell, and what a GRU refuses. */
#include "gru/gru.h"

#include <math.h>

#include "tests/support/cell_reference.h"

/* r, z, m and n of gru/gru.h, one after the other. */
static void gates_of(int64_t hidden, int64_t j, const double *px, const double *ph, double gates[4]) {
  gates[0] = 1 / (1 + exp(-(px[j] + ph[j])));
  gates[1] = 1 / (1 + exp(-(px[hidden + j] + ph[hidden + j])));
  gates[2] = ph[2 * hidden + j];
  gates[3] = tanh(px[2 * hidden + j] + gates[0] * gates[2]);
}

static void reference_step(const bppsa_recurrent_config *c, const double *px, const double *ph, const double *before, double *h) {
  for (int64_t j = 0; j < c->hidden; ++j) {
    double s[4];
    gates_of(c->hidden, j, px, ph, s);
    h[j] = (1 - s[1]) * s[3] + s[1] * before[j];
  }
}

static void reference_step_back(const bppsa_recurrent_config *c, const double *px, const double *ph, const double *before,
                                const double *h, const double *g, double *dx, double *dh, double *carried) {
  const int64_t hidden = c->hidden;
  (void)h;
  for (int64_t j = 0; j < hidden; ++j) {
    double s[4];
    gates_of(hidden, j, px, ph, s);
    const double r = s[0], z = s[1], m = s[2], n = s[3];
    const double dn = g[j] * (1 - z) * (1 - n * n), dr = dn * m * r * (1 - r), dz = g[j] * (before[j] - n) * z * (1 - z);
    dx[j] = dh[j] = dr;
    dx[hidden + j] = dh[hidden + j] = dz;
    dx[2 * hidden + j] = dn;
    dh[2 * hidden + j] = dn * r;
    carried[j] = g[j] * z;
  }
}

static const cell_reference cell = {
    .gates = BPPSA_GRU_GATES, .cell = &bppsa_gru_cell, .forward = reference_step, .backward = reference_step_back};

#include "tests/support/cell_tests.h"

static void test_relu_is_refused(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_recurrent_config c = small();
  bppsa_model *model = NULL;
  c.nonlinearity = BPPSA_NONLINEARITY_RELU;
  assert_int_equal(bppsa_recurrent_create(&c, &bppsa_gru_cell, device, &model), BPPSA_ERR_ARGUMENT);
  assert_null(model);
  assert_non_null(strstr(bppsa_last_error(), "expected tanh"));
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {SHARED_TESTS, cmocka_unit_test(test_relu_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

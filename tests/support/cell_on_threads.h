/* Runs campaigns (cell_campaign.h) of networks on one device, with one to four threads. */
#ifndef BPPSA_TESTS_SUPPORT_CELL_ON_THREADS_H
#define BPPSA_TESTS_SUPPORT_CELL_ON_THREADS_H

#include "tests/support/cell_campaign.h"
#include "tests/support/cell_run.h"

static double worst_on_threads(problem *p, bppsa_recurrent_config *c, int64_t places, dice *d, char name[64]) {
  (void)d;
  bppsa_device *device = cpu_device(places);
  run r = run_model(p, c, device);
  bppsa_view dx, dh0;
  double worst = -1;
  assert_int_equal(r.model->ops->input_gradients(r.model, &dx, &dh0), BPPSA_OK);
  const int64_t count = r.model->parameter_count;
  for (int64_t i = 0; i < count + 2; ++i) {
    const int64_t tensor = i < count ? tensor_of_parameter(p, i) : -1;
    const bppsa_view *got = i < count ? &r.model->parameters[i].gradient : i == count ? &dx : &dh0;
    const double *expected = i < count ? p->dw[tensor] : i == count ? p->dx : p->dh0;
    const double *magnitude = i < count && c->hidden == 1 ? p->magnitude[tensor] : expected;
    const double found =
        residual_of_sum(c->dtype, got->data, expected, magnitude, bppsa_view_count(got), sqrt((double)c->seq_len));
    if (!(found <= worst)) {
      worst = found;
      snprintf(name, 64, "%s", i < count ? r.model->parameters[i].name : i == count ? "input" : "h0");
    }
  }
  free_run(&r);
  bppsa_device_destroy(device);
  return worst;
}

static const campaign_kind on_threads = {"threads", 4, false, false, worst_on_threads};

#endif

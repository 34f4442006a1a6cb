/* What `auto` costs as a forward pass on a CPU: the first 200 passes of a network, with their pauses, beside 200 sequential ones
 * and some that never pause. B = 1, one thread, in processor time of the thread, so that other programs disturb it little.
 *
 *     cc -O2 -std=gnu17 -I. -o forward_auto bench/scripts/forward_auto.c -Lbuild/cpu/tests -lbppsa_test_library -lm
 *     LD_LIBRARY_PATH=build/cpu/tests ./forward_auto bench/weights/X.safetensors .. >rows.json
 *
 * measures the networks given at T = 1000 and 10 000, then ones with default and with orthogonal weights, and prints a JSON array.
 * over_best: the mean of `auto` over the faster of the two others; where it never paused, over the faster of itself and the
 * sequential pass. Inputs are random bits. */
#include <inttypes.h>
#include <math.h>

#include "bench/scripts/auto_network.h"
#include "recurrent/parallel_forward.h"

enum { PASSES = 200, ALONE = 20, METHODS = 3, WIDTHS = 2, LENGTHS = 2 };
enum { SEQUENTIAL = BPPSA_FORWARD_SEQUENTIAL, SPECULATIVE = BPPSA_FORWARD_SPECULATIVE, AUTO = BPPSA_FORWARD_AUTO };

static double pass(bppsa_model *model, const bppsa_view *x) {
  const double start = processor_seconds();
  require(bppsa_recurrent_forward_layers(model, x, NULL));
  return processor_seconds() - start;
}

static void measure(const subject *s, const bppsa_device *device, bool first) {
  static const bppsa_forward_pause none = {0};
  double sums[METHODS] = {0};
  bppsa_model *models[METHODS];
  bppsa_forward_stats found;
  int64_t speculated = 0;
  float *bits = bppsa_calloc(s->seq_len, sizeof *bits);
  for (int64_t i = 0; i < s->seq_len; ++i) {
    bits[i] = (float)(rand() & 1);
  }
  const bppsa_view x = bppsa_view_make(bits, BPPSA_F32, 3, (int64_t[]){s->seq_len, 1, 1});
  for (int kind = 0; kind < METHODS; ++kind) {
    bppsa_recurrent_config c = bppsa_recurrent_config_default();
    c.method.backward = BPPSA_BACKWARD_BP;
    c.classes = 10;
    c.batch = 1;
    c.seq_len = s->seq_len;
    c.hidden = s->hidden;
    c.forward.kind = (bppsa_forward_kind)kind;
    require(bppsa_recurrent_create(&c, s->cell, device, &models[kind]));
    set_weights(s, models[kind]);
  }
  (void)pass(models[SEQUENTIAL], &x);
  for (int i = 0; i < PASSES; ++i) {
    sums[SEQUENTIAL] += pass(models[SEQUENTIAL], &x) / PASSES;
    if (i < ALONE) {
      require(bppsa_forward_pause_set(models[SPECULATIVE], &none));
      sums[SPECULATIVE] += pass(models[SPECULATIVE], &x) / ALONE;
    }
    sums[AUTO] += pass(models[AUTO], &x) / PASSES;
    require(bppsa_forward_stats_of(models[AUTO], &found));
    speculated += found.speculated;
  }
  require(bppsa_forward_stats_of(models[SPECULATIVE], &found));
  const bppsa_forward_plan *plan = bppsa_forward_plan_of(models[AUTO]);
  const double alone = speculated == PASSES ? sums[AUTO] : sums[SPECULATIVE], best = fmin(sums[SEQUENTIAL], alone);
  printf("%s{\"model\": \"%s\", \"weights\": \"%s\", \"scale\": %g, \"seq_len\": %" PRId64 ", \"hidden\": %" PRId64
         ", \"batch\": 1, \"auto\": \"%s\", \"speculated\": %" PRId64 ", \"passes\": %d, \"path\": %" PRId64
         ", \"work\": %.3f, \"sequential_s\": %.4g, \"speculative_s\": %.4g, \"auto_mean_s\": %.4g, \"over_best\": %.3f}",
         first ? "" : ",\n", s->cell->name, weights_of(s), s->scale, s->seq_len, s->hidden,
         bppsa_forward_name(plan->speculative ? BPPSA_FORWARD_SPECULATIVE : BPPSA_FORWARD_SEQUENTIAL), speculated, (int)PASSES,
         found.path, found.work, sums[SEQUENTIAL], alone, sums[AUTO], sums[AUTO] / best);
  fflush(stdout);
  for (int kind = 0; kind < METHODS; ++kind) {
    bppsa_model_destroy(models[kind]);
  }
  bppsa_free(bits);
}

int main(int count, char **paths) {
  static const int64_t lengths[LENGTHS] = {1000, 10000}, widths[WIDTHS] = {20, 64};
  bppsa_device *device;
  bool first = true;
  require(bppsa_device_create("cpu", 1, &device));
  printf("[");
  for (int i = 0; i < LENGTHS * (count - 1); ++i) {
    const subject s = subject_of(paths[1 + i / LENGTHS], lengths[i % LENGTHS]);
    measure(&s, device, first);
    first = false;
  }
  for (int i = 0; i < WIDTHS * LENGTHS * CELLS * SCALES; ++i) {
    const int cell = i / SCALES % CELLS, length = i / SCALES / CELLS % LENGTHS, width = i / SCALES / CELLS / LENGTHS;
    if (cell == 0 || length == 0 || width == 0) { /* the others take minutes */
      const subject s = {cells[cell], NULL, scales[i % SCALES], lengths[length], widths[width]};
      measure(&s, device, first);
      first = false;
    }
  }
  printf("]\n");
  bppsa_device_destroy(device);
  return 0;
}

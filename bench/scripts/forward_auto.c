/* What `auto` costs as a forward pass on a CPU: the first 200 passes of a network, with their pauses, beside 200 sequential ones
 * and some that never pause. B = 1, one thread, in processor time of the thread, so that other programs disturb it little.
 *
 *     cc -O2 -std=gnu17 -I. -o forward_auto bench/scripts/forward_auto.c -Lbuild/cpu/tests -lbppsa_test_library
 *     LD_LIBRARY_PATH=build/cpu/tests ./forward_auto bench/weights/X.safetensors .. >rows.json
 *
 * measures the networks given at T = 1000 and 10 000, then ones with default and with orthogonal weights, and prints a JSON array.
 * over_best: the mean of `auto` over the faster of the two others; where it never paused, over the faster of itself and the
 * sequential pass. Inputs are random bits. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/alloc.h"
#include "core/files/safetensors.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/parallel_forward.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"

enum { PASSES = 200, ALONE = 20, METHODS = 3, CELLS = 3, SCALES = 4, WIDTHS = 2, LENGTHS = 2 };
enum { SEQUENTIAL = BPPSA_FORWARD_SEQUENTIAL, SPECULATIVE = BPPSA_FORWARD_SPECULATIVE, AUTO = BPPSA_FORWARD_AUTO };

static const bppsa_cell *const cells[CELLS] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
static const double scales[SCALES] = {0, 1, 1.2, 1.5}; /* of an orthogonal W_hh; 0: default weights */

typedef struct {
  const bppsa_cell *cell;
  const char *path; /* of weights; NULL: initial ones */
  double scale;
  int64_t seq_len, hidden;
} subject;

static void require(bppsa_status status) {
  if (status != BPPSA_OK) {
    fprintf(stderr, "forward_auto: %s\n", bppsa_last_error());
    exit(1);
  }
}

static double processor_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void set_weights(const subject *s, bppsa_model *model) {
  bppsa_safetensors *file = NULL;
  if (s->path != NULL) {
    require(bppsa_safetensors_load(s->path, &file));
  }
  require(bppsa_recurrent_init(model, s->scale > 0 ? BPPSA_INIT_ORTHOGONAL : BPPSA_INIT_DEFAULT, 1));
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_parameter *p = &model->parameters[i];
    const bppsa_view *from = file != NULL ? bppsa_safetensors_find(file, p->name) : &p->value;
    if (from == NULL) {
      fprintf(stderr, "forward_auto: %s: tensor '%s' is missing\n", s->path, p->name);
      exit(2);
    }
    const double by = s->scale > 0 && strstr(p->name, "weight_hh") != NULL ? s->scale : 1;
    for (int64_t k = 0; k < bppsa_view_count(&p->value); ++k) {
      bppsa_view_set(&p->value, k, by * bppsa_view_get(from, k));
    }
  }
  bppsa_safetensors_destroy(file);
  require(bppsa_model_push(model));
}

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
  const char *slash = s->path != NULL ? strrchr(s->path, '/') : NULL;
  printf("%s{\"model\": \"%s\", \"weights\": \"%s\", \"scale\": %g, \"seq_len\": %" PRId64 ", \"hidden\": %" PRId64
         ", \"batch\": 1, \"auto\": \"%s\", \"speculated\": %" PRId64 ", \"passes\": %d, \"path\": %" PRId64
         ", \"work\": %.3f, \"sequential_s\": %.4g, \"speculative_s\": %.4g, \"auto_mean_s\": %.4g, \"over_best\": %.3f}",
         first ? "" : ",\n", s->cell->name,
         slash != NULL  ? slash + 1
         : s->scale > 0 ? "orthogonal"
                        : "default",
         s->scale, s->seq_len, s->hidden,
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
    const char *path = paths[1 + i / LENGTHS], *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    const int cell = name[0] == 'r' ? 0 : name[0] == 'g' ? 1 : 2; /* rnn_.., gru_.., lstm_.. */
    const subject s = {cells[cell], path, 0, lengths[i % LENGTHS], 20};
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

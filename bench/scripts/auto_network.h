/* What the scripts that judge `auto` share: networks with trained, default or orthogonal weights, and processor time. */
#ifndef BPPSA_BENCH_SCRIPTS_AUTO_NETWORK_H
#define BPPSA_BENCH_SCRIPTS_AUTO_NETWORK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/alloc.h"
#include "core/files/safetensors.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"

enum { CELLS = 3, SCALES = 4 };

static const bppsa_cell *const cells[CELLS] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
static const double scales[SCALES] = {0, 1, 1.2, 1.5}; /* of an orthogonal W_hh; 0: default weights */

typedef struct {
  const bppsa_cell *cell;
  const char *path; /* of weights; NULL: initial ones */
  double scale;
  int64_t seq_len, hidden;
} subject;

/* Ends the program where a call failed. */
static void require(bppsa_status status) {
  if (status != BPPSA_OK) {
    fprintf(stderr, "%s\n", bppsa_last_error());
    exit(1);
  }
}

static double processor_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The weights that a file has, whose name begins with the cell's: rnn_.., gru_.., lstm_... */
static subject subject_of(const char *path, int64_t seq_len) {
  const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
  return (subject){cells[name[0] == 'r' ? 0 : name[0] == 'g' ? 1 : 2], path, 0, seq_len, 20};
}

/* The name of a file without its folder, or of initial weights. */
static const char *weights_of(const subject *s) {
  const char *slash = s->path != NULL ? strrchr(s->path, '/') : NULL;
  return slash != NULL ? slash + 1 : s->path != NULL ? s->path : s->scale > 0 ? "orthogonal" : "default";
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
      fprintf(stderr, "%s: tensor '%s' is missing\n", s->path, p->name);
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

#endif

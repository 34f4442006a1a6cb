#include "distributed/pipeline/staleness.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "distributed/pipeline/pipeline_weights.h"

/* Call number t, from 0, has the weights W_t. A ring of n copies keeps what n calls have made: the copy that call t - n wrote is
 * read by call t, and then overwritten. */
struct bppsa_staleness {
  const bppsa_model *model;
  int64_t ahead, calls;
  int64_t bytes;                     /* of a copy: all parameters, one behind the other */
  char *weights;                     /* ring of `ahead` copies */
  char *predicted[BPPSA_MOST_AHEAD]; /* [s - 1]: ring of s copies, predictions of the weights s updates later */
  void **places;                     /* the parameters in a copy */
};

#define EACH_REAL "distributed/pipeline/staleness.inc"
#include "core/base/each_real.inc"

/* ---- creation ---- */

static bppsa_status make(bppsa_staleness *s) {
  int64_t all;
  for (int64_t i = 0; i < s->model->parameter_count; ++i) {
    s->bytes += (int64_t)bppsa_view_bytes(&s->model->parameters[i].value);
  }
  s->places = bppsa_calloc(s->model->parameter_count + 1, sizeof *s->places);
  if (s->places == NULL || !bppsa_mul(s->bytes, s->ahead, &all)) {
    return BPPSA_ERR_MEMORY;
  }
  s->weights = bppsa_calloc(all + 1, 1);
  bool room = s->weights != NULL;
  for (int64_t i = 0; room && i < s->ahead; ++i) {
    s->predicted[i] = bppsa_calloc((i + 1) * s->bytes + 1, 1);
    room = s->predicted[i] != NULL;
  }
  return room ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

bppsa_status bppsa_staleness_create(const bppsa_model *model, int64_t ahead, bppsa_staleness **staleness) {
  BPPSA_REQUIRE(model != NULL && staleness != NULL);
  if (ahead < 1 || ahead > BPPSA_MOST_AHEAD) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "staleness: weights of %" PRId64 " updates ahead, expected 1 .. %d", ahead,
                      (int)BPPSA_MOST_AHEAD);
  }
  if (model->device != NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "staleness: weights on a GPU, expected a model in host memory");
  }
  bppsa_staleness *s = bppsa_calloc(1, sizeof *s);
  if (s == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *s = (bppsa_staleness){.model = model, .ahead = ahead};
  const bppsa_status status = make(s);
  if (status != BPPSA_OK) {
    bppsa_staleness_destroy(s);
    return status;
  }
  *staleness = s;
  return BPPSA_OK;
}

void bppsa_staleness_destroy(bppsa_staleness *s) {
  if (s == NULL) {
    return;
  }
  for (int64_t i = 0; i < BPPSA_MOST_AHEAD; ++i) {
    bppsa_free(s->predicted[i]);
  }
  bppsa_free(s->weights);
  bppsa_free((void *)s->places);
  bppsa_free(s);
}

/* ---- after an update ---- */

/* Returns the copy, in a ring of `size` copies, that the present call reads and then overwrites. */
static char *copy_of(const bppsa_staleness *s, char *ring, int64_t size) {
  return ring + s->calls % size * s->bytes;
}

/* Returns the copy of the weights that the call `age` calls ago had. */
static const char *weights_of(const bppsa_staleness *s, int64_t age) {
  return s->weights + (s->calls - age) % s->ahead * s->bytes;
}

static double distance(const bppsa_staleness *s, const char *copy) {
  double sum = 0, count = 0;
  for (int64_t i = 0; i < s->model->parameter_count; ++i) {
    const bppsa_view *w = &s->model->parameters[i].value;
    const int64_t values = bppsa_view_count(w);
    sum += w->dtype == BPPSA_F32 ? squares_f32(values, w->data, (const void *)copy)
                                 : squares_f64(values, w->data, (const void *)copy);
    count += (double)values;
    copy += bppsa_view_bytes(w);
  }
  return count > 0 ? sqrt(sum / count) : 0.0;
}

static void compare(const bppsa_staleness *s, bppsa_weight_errors *errors) {
  *errors = (bppsa_weight_errors){.ahead = s->ahead};
  for (int64_t age = 1; age <= s->ahead; ++age) {
    const bool known = s->calls >= age;
    errors->stale[age - 1] = known ? distance(s, weights_of(s, age)) : (double)NAN;
    errors->predicted[age - 1] = known ? distance(s, copy_of(s, s->predicted[age - 1], age)) : (double)NAN;
  }
}

/* Fills in where a copy has the parameters. */
static void place(const bppsa_staleness *s, char *copy) {
  for (int64_t i = 0; i < s->model->parameter_count; ++i) {
    s->places[i] = copy;
    copy += bppsa_view_bytes(&s->model->parameters[i].value);
  }
}

bppsa_status bppsa_staleness_update(bppsa_staleness *s, bppsa_optimizer *optimizer, const bppsa_optimizer_config *config,
                                    bppsa_weight_errors *errors) {
  BPPSA_REQUIRE(s != NULL && optimizer != NULL && config != NULL && errors != NULL);
  bppsa_weight_errors found;
  compare(s, &found);
  for (int64_t ahead = 1; ahead <= s->ahead; ++ahead) {
    place(s, copy_of(s, s->predicted[ahead - 1], ahead));
    BPPSA_TRY(bppsa_pipeline_predict(s->model, optimizer, config, ahead, s->places));
  }
  place(s, copy_of(s, s->weights, s->ahead));
  for (int64_t i = 0; i < s->model->parameter_count; ++i) {
    const bppsa_view *w = &s->model->parameters[i].value;
    memcpy(s->places[i], w->data, bppsa_view_bytes(w));
  }
  s->calls++;
  *errors = found;
  return BPPSA_OK;
}

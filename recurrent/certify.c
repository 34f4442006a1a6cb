/* The weight gradients' error, by a second network in float64 (recurrent/certify.h). */
#include "recurrent/certify.h"

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"
#include "core/compute/memory.h"
#include "core/files/json.h"
#include "recurrent/recurrent_internal.h"
#include "scan/method.h"

enum { PIECE = 1 << 14 /* reals that are copied from a GPU at once */ };

/* The network n, the one in float64, and the arrays that this one borrows. */
typedef struct {
  recurrent_network *n, *exact;
  bppsa_device *host;
  void *x, *seed, *piece;
} pair;

/* ragged: its samples have lengths. */
static bppsa_status check_network(const recurrent_network *n, bool ragged) {
  if (n->config.part.seq_len != 0 || n->config.ends.before != NULL || n->config.ends.after != NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "certificate of a part of a sequence, expected a network with all steps");
  }
  return n->gpu == NULL || !ragged
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "certificate of samples that have lengths on a GPU, expected a CPU");
}

/* Sets p->n to the network that the model is. */
static bppsa_status find_network(bppsa_model *model, pair *p) {
  p->n = bppsa_recurrent_network_of(model);
  return p->n != NULL ? BPPSA_OK
                      : bppsa_fail(BPPSA_ERR_ARGUMENT, "certificate: not a recurrent network, expected a recurrent network");
}

/* ---- the network in float64 ---- */

/* batch: samples that it takes at once. */
static bppsa_status create(pair *p, int64_t batch) {
  const recurrent_network *n = p->n;
  const int64_t limit = n->config.memory_limit, left = limit > n->bytes ? limit - n->bytes : 1;
  bppsa_recurrent_config c = n->config;
  bppsa_model *made = NULL;
  c.dtype = BPPSA_F64;
  c.batch = batch;
  c.method.backward = BPPSA_BACKWARD_BP;
  c.forward = bppsa_forward_method_default();
  c.factory = (bppsa_scan_factory){0};
  c.tape = c.input_gradients = false;
  c.memory_limit = limit > 0 && n->gpu == NULL ? left : 0;
  c.optimizer_slots = 0;
  BPPSA_TRY(bppsa_device_create("cpu", n->threads, &p->host));
  const bppsa_status status = bppsa_recurrent_create(&c, n->cell, p->host, &made);
  p->exact = (recurrent_network *)made;
  return status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(status, "certificate");
}

/* Copies an array of the network n; NULL is none. */
static bppsa_status take(const pair *p, const void *from, int64_t count, void *to) {
  const recurrent_network *n = p->n;
  const int64_t real = (int64_t)bppsa_dtype_size(n->config.dtype);
  for (int64_t first = 0; from != NULL && first < count; first += PIECE) {
    const int64_t some = count - first < PIECE ? count - first : PIECE;
    void *at = bppsa_recurrent_offset(n, from, first);
    if (n->gpu != NULL) {
      BPPSA_TRY(bppsa_memory_get(n->base.device, p->piece, at, some * real));
      at = p->piece;
    }
    const bppsa_view source = bppsa_view_make(at, n->config.dtype, 1, &some),
                     copy = bppsa_view_make((double *)to + first, BPPSA_F64, 1, &some);
    BPPSA_TRY(bppsa_view_convert(&source, &copy));
  }
  return BPPSA_OK;
}

static bppsa_status take_layer(const pair *p, int64_t l) {
  const recurrent_network *n = p->n;
  const recurrent_layer *from = &n->layers[l], *to = &p->exact->layers[l];
  const int64_t hidden = n->config.hidden, rows = bppsa_ragged_rows(n);
  BPPSA_TRY(take(p, from->h, (n->batch + rows) * hidden, to->h));
  BPPSA_TRY(take(p, from->c, (n->batch + rows) * hidden, to->c));
  BPPSA_TRY(take(p, from->saved, rows * n->cell->saved * hidden, to->saved));
  if (n->config.dtype == BPPSA_F32 && n->cell->widen != NULL) {
    n->cell->widen(rows, hidden, to->saved);
  }
  return take(p, from->below, rows * from->input, to->below);
}

/* Gives the network in float64 the places of the samples, if these have lengths, and what the head has seen of the states. */
static bppsa_status take_samples(const pair *p) {
  const recurrent_ragged *from = &p->n->ragged;
  recurrent_network *n = p->exact;
  recurrent_ragged *to = &n->ragged;
  const int64_t hidden = n->config.hidden, top = bppsa_recurrent_layers(&n->config) - 1;
  n->batch = p->n->batch;
  if (from->active) {
    to->active = true;
    to->rows = from->rows;
    to->stretches = from->stretches;
    memcpy(to->stretch, from->stretch, (size_t)from->stretches * sizeof *to->stretch);
    memcpy(to->place, from->place, (size_t)n->batch * sizeof *to->place);
  }
  if (p->n->gpu != NULL && p->n->resets.active) {
    const bppsa_view given =
        bppsa_view_make((void *)(uintptr_t)p->n->resets.given, BPPSA_U8, 2, (int64_t[]){n->config.seq_len, n->batch});
    bppsa_resets_take(n, n->batch, &given);
  } else if (p->n->resets.active) {
    n->resets.active = true;
    const int64_t steps = bppsa_recurrent_directions(&n->config) * n->config.seq_len;
    memcpy(n->resets.mask, p->n->resets.mask, (size_t)(steps * n->batch));
    memcpy(n->resets.any, p->n->resets.any, (size_t)steps);
  }
  n->drop_step = p->n->drop_step;
  n->drop_samples = p->n->drop_samples;
  for (int64_t l = 0; l <= top; ++l) {
    BPPSA_TRY(take_layer(p, l));
  }
  if (n->config.bidirectional) {
    return bppsa_sides_leave(n);
  }
  return from->active ? bppsa_ragged_gather_ends(n, bppsa_recurrent_offset(n, n->layers[top].h, n->batch * hidden), hidden,
                                                 hidden, to->ends, hidden)
                      : BPPSA_OK;
}

static bppsa_status allocate(int64_t count, size_t size, void **array) {
  *array = bppsa_calloc(count, size);
  return *array != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

/* Takes everything that a backward pass reads, and runs it. */
static bppsa_status repeat(pair *p) {
  recurrent_network *n = p->n, *exact = p->exact;
  const bppsa_recurrent_config *c = &exact->config;
  const int64_t width = n->seeds_states ? bppsa_recurrent_outputs(c) : n->base.classes, all[] = {c->seq_len, n->batch, width},
                inputs = c->seq_len * n->batch * c->input;
  bppsa_view seed = bppsa_view_make(NULL, BPPSA_F64, c->loss_all ? 3 : 2, c->loss_all ? all : all + 1);
  BPPSA_TRY(allocate(inputs, sizeof(double), &p->x));
  BPPSA_TRY(allocate(bppsa_view_count(&seed), sizeof(double), &p->seed));
  BPPSA_TRY(n->gpu != NULL ? allocate(PIECE, sizeof(double), &p->piece) : BPPSA_OK);
  BPPSA_TRY(bppsa_model_pull(&n->base, false));
  BPPSA_TRY(bppsa_model_pull(&n->base, true));
  for (int64_t i = 0; i < n->base.parameter_count; ++i) {
    BPPSA_TRY(bppsa_view_convert(&n->base.parameters[i].value, &exact->base.parameters[i].value));
  }
  BPPSA_TRY(take_samples(p));
  BPPSA_TRY(n->ragged.active ? take(p, n->ragged.x, n->ragged.rows * c->input, exact->ragged.x) : take(p, n->x, inputs, p->x));
  BPPSA_TRY(take(p, n->seed, bppsa_view_count(&seed), p->seed));
  exact->x = p->x;
  seed.data = p->seed;
  return n->seeds_states ? bppsa_recurrent_backward_layers(&exact->base, &seed) : exact->ops.backward(&exact->base, &seed);
}

/* ---- the comparison ---- */

/* max |a - b| / max |b| */
static double error_of(const bppsa_view *a, const bppsa_view *b) {
  double error = 0, largest = 0;
  for (int64_t i = 0; i < bppsa_view_count(a); ++i) {
    const double difference = fabs(bppsa_view_get(a, i) - bppsa_view_get(b, i));
    if (!isfinite(difference)) {
      return (double)INFINITY;
    }
    error = fmax(error, difference);
    largest = fmax(largest, fabs(bppsa_view_get(b, i)));
  }
  return error > 0 ? error / largest : 0;
}

static bppsa_certificate compare(const recurrent_network *n, const recurrent_network *exact) {
  bppsa_certificate found = {.parameter = n->base.parameters[0].name, .rounding = n->config.dtype == BPPSA_F32};
  for (int64_t i = 0; i < bppsa_recurrent_parameters(&n->config, !n->seeds_states); ++i) {
    const double error = error_of(&n->base.parameters[i].gradient, &exact->base.parameters[i].gradient);
    if (error > found.error) {
      found.error = error;
      found.parameter = n->base.parameters[i].name;
    }
  }
  return found;
}

static void free_pair(const pair *p) {
  bppsa_model_destroy(p->exact != NULL ? &p->exact->base : NULL);
  bppsa_device_destroy(p->host);
  bppsa_free(p->x);
  bppsa_free(p->seed);
  bppsa_free(p->piece);
}

bppsa_status bppsa_certify_check(bppsa_model *model) {
  BPPSA_REQUIRE(model != NULL);
  pair p = {0};
  BPPSA_TRY(find_network(model, &p));
  BPPSA_TRY(check_network(p.n, p.n->config.lengths));
  const bppsa_status status = create(&p, p.n->config.batch);
  free_pair(&p);
  return status;
}

bppsa_status bppsa_certify(bppsa_model *model, bppsa_certificate *certificate) {
  BPPSA_REQUIRE(model != NULL && certificate != NULL);
  pair p = {0};
  BPPSA_TRY(find_network(model, &p));
  if (p.n->seed == NULL || !p.n->backward_done) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "certificate: no backward pass since the latest forward pass, expected one");
  }
  BPPSA_TRY(check_network(p.n, p.n->ragged.active));
  bppsa_status status = create(&p, p.n->batch);
  status = status == BPPSA_OK ? repeat(&p) : status;
  if (status == BPPSA_OK) {
    *certificate = compare(p.n, p.exact);
  }
  free_pair(&p);
  return status;
}

/* ---- texts ---- */

const char *bppsa_certificate_text(const bppsa_certificate *certificate, char *text, size_t size) {
  (void)bppsa_print(text, size,
                    certificate->rounding
                        ? "weight gradient error %.2g of its largest entry (%s), rounding included, against "
                          "float64 BP over the same states"
                        : "weight gradients differ from BP's by %.2g of their largest entry (%s), over the same states",
                    certificate->error, certificate->parameter);
  return text;
}

const char *bppsa_certificate_members(const bppsa_certificate *certificate, char *text, size_t size) {
  char number[BPPSA_NUMBER_TEXT];
  (void)bppsa_print(text, size, "\"error\":%s,\"parameter\":\"%s\",\"method\":\"%s\",\"rounding\":%s",
                    bppsa_print_number(certificate->error, number), certificate->parameter,
                    bppsa_backward_name(BPPSA_BACKWARD_BP), certificate->rounding ? "true" : "false");
  return text;
}

json_t *bppsa_certificate_json(const bppsa_certificate *certificate) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_real(object, "error", certificate->error);
  ok = ok && bppsa_json_put_text(object, "parameter", certificate->parameter);
  ok = ok && bppsa_json_put_text(object, "method", bppsa_backward_name(BPPSA_BACKWARD_BP));
  return bppsa_json_finish(object, ok && bppsa_json_put_bool(object, "rounding", certificate->rounding));
}

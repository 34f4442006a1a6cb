/* Sums over ranks, and moves between the boxes that ranks hold and those that their layers read. */
#include <string.h>

#include "core/base/clock.h"
#include "core/compute/accumulate.h"
#include "distributed/layers/layer_split_internal.h"

void bppsa_layer_lap(layer_split *s, bppsa_layer_phase phase) {
  const double now = bppsa_now();
  s->seconds[phase] += now - s->mark;
  s->mark = now;
  if (s->met != NULL && phase != BPPSA_LAYER_COMPUTE) {
    s->met[s->met_count++] = now;
  }
}

/* ---- sums ---- */

bppsa_status bppsa_layer_sum_create(bppsa_comm *comm, bppsa_reduction reduction, bppsa_dtype dtype, int64_t count, int32_t tag,
                                    layer_sum *sum) {
  layer_sum made = {.comm = comm, .dtype = dtype, .count = count};
  const int32_t ranks = comm != NULL ? bppsa_comm_size(comm) : 1;
  if (ranks > 1 && reduction == BPPSA_REDUCTION_ORDERED) {
    BPPSA_TRY(bppsa_ordered_sum_create(comm, ranks, NULL, dtype, count, tag, &made.ordered));
  }
  *sum = made;
  return BPPSA_OK;
}

void bppsa_layer_sum_free(layer_sum *sum) {
  bppsa_ordered_sum_destroy(sum->ordered);
  *sum = (layer_sum){.ordered = NULL};
}

bppsa_status bppsa_layer_sum_run(const layer_sum *sum, void *vector) {
  const bppsa_view view = bppsa_view_make(vector, sum->dtype, 1, &sum->count);
  if (sum->comm == NULL || bppsa_comm_size(sum->comm) == 1 || sum->count == 0) {
    return BPPSA_OK;
  }
  if (sum->ordered == NULL) {
    return bppsa_comm_allreduce(sum->comm, BPPSA_COMM_SUM, &view);
  }
  BPPSA_TRY(bppsa_ordered_sum_add(sum->ordered, bppsa_comm_rank(sum->comm), &view));
  return bppsa_ordered_sum_finish(sum->ordered, &view);
}

bppsa_status bppsa_layer_add_up(layer_split *s, const layer_sum *sum, void *vector) {
  s->traffic.sums++;
  s->traffic.sum_bytes += sum->count * (int64_t)bppsa_dtype_size(sum->dtype);
  return bppsa_layer_sum_run(sum, vector);
}

/* ---- copies between boxes ---- */

static size_t real_size(const layer_split *s) {
  return bppsa_dtype_size(s->config.dtype);
}

/* Counts the values of a sample that stand in front of a position in an array of a box. */
static int64_t place_in(const bppsa_layer_box *box, int64_t c, int64_t h) {
  const int64_t height = box->to[1] - box->from[1], width = box->to[2] - box->from[2];
  return ((c - box->from[0]) * height + (h - box->from[1])) * width;
}

/* Counts the values of a region that follow each other in the arrays of all three boxes: a part of a row, rows, or channels. *rows
 * and *channels say how many such runs there are. */
static int64_t run_of(const bppsa_layer_box *region, const bppsa_layer_box *a, const bppsa_layer_box *b, int64_t *rows,
                      int64_t *channels) {
  int64_t run = region->to[2] - region->from[2];
  *rows = region->to[1] - region->from[1];
  *channels = region->to[0] - region->from[0];
  bool all = true;
  int64_t *const joined[] = {rows, channels};
  for (int axis = 2; axis >= 1; --axis) {
    const int64_t extent = region->to[axis] - region->from[axis];
    all = all && extent == a->to[axis] - a->from[axis] && extent == b->to[axis] - b->from[axis];
    if (all) {
      run *= *joined[2 - axis];
      *joined[2 - axis] = 1;
    }
  }
  return run;
}

/* Copies or adds the values of a region, which both boxes contain, for all samples. */
static void copy_region(const layer_split *s, const bppsa_layer_box *region, const bppsa_layer_box *from_box, const void *from,
                        const bppsa_layer_box *to_box, void *to, bool add) {
  const size_t size = real_size(s);
  const int64_t a = bppsa_layer_box_count(from_box), b = bppsa_layer_box_count(to_box);
  int64_t rows, channels;
  const int64_t run = run_of(region, from_box, to_box, &rows, &channels);
  for (int64_t sample = 0; sample < s->b; ++sample) {
    for (int64_t c = region->from[0]; c < region->from[0] + channels; ++c) {
      for (int64_t h = region->from[1]; h < region->from[1] + rows; ++h) {
        const int64_t x = sample * a + place_in(from_box, c, h) + region->from[2] - from_box->from[2];
        const int64_t y = sample * b + place_in(to_box, c, h) + region->from[2] - to_box->from[2];
        const char *source = (const char *)from + x * (int64_t)size;
        char *target = (char *)to + y * (int64_t)size;
        if (add) {
          (void)bppsa_accumulate(NULL, s->config.dtype, run, source, target); /* fails for other types alone */
        } else {
          memcpy(target, source, (size_t)run * size);
        }
      }
    }
  }
}

void bppsa_layer_copy(const layer_split *s, const bppsa_layer_box *from_box, const void *from, const bppsa_layer_box *to_box,
                      void *to) {
  const bppsa_layer_box region = bppsa_layer_box_meet(from_box, to_box);
  if (bppsa_layer_box_count(&region) > 0) {
    copy_region(s, &region, from_box, from, to_box, to, false);
  }
}

/* ---- messages between pairs of ranks ---- */

void bppsa_layer_move_room(const layer_split *s, int64_t *out, int64_t *in) {
  const bppsa_layer_plan *p = s->plan;
  for (int64_t l = 0; l <= p->network.count; ++l) {
    const int64_t whole = bppsa_cnn_size(&p->network, l);
    int64_t sent = 0, received = whole; /* of an allgather */
    for (int64_t q = 0; q < p->ranks && p->layers[l].move == BPPSA_MOVE_EXCHANGE; ++q) {
      const bppsa_layer_box to = bppsa_layer_box_meet(bppsa_layer_plan_held(p, l, s->rank), bppsa_layer_plan_read(p, l, q));
      const bppsa_layer_box from = bppsa_layer_box_meet(bppsa_layer_plan_held(p, l, q), bppsa_layer_plan_read(p, l, s->rank));
      sent += bppsa_layer_box_count(&to);
      received += bppsa_layer_box_count(&from);
    }
    const int64_t most = sent > received ? sent : received; /* in the backward pass they change places */
    *out = most > *out ? most : *out;
    *in = most > *in ? most : *in;
  }
}

/* One side of an exchange, which moves with each other rank the region that both boxes have. */
typedef struct {
  const bppsa_layer_box *mine, *theirs; /* theirs: size ranks */
  void *buffer;
} side;

static bppsa_view region_view(const layer_split *s, const bppsa_layer_box *region, void *buffer, int64_t at) {
  const int64_t count = bppsa_layer_box_count(region) * s->b;
  return bppsa_view_make((char *)buffer + at * (int64_t)real_size(s), s->config.dtype, 1, &count);
}

/* Begins to receive (`from` NULL), or packs and sends regions of `from`, an array of `mine`. Adds the new requests to *requests. */
static bppsa_status begin(layer_split *s, const side *w, const void *from, int64_t *requests) {
  const bool alone = s->config.group == NULL;
  int64_t at = 0;
  for (int32_t q = 0; q < s->plan->ranks; ++q) {
    const bppsa_layer_box region = bppsa_layer_box_meet(w->mine, &w->theirs[q]);
    if (q == s->rank || bppsa_layer_box_count(&region) == 0) {
      continue;
    }
    const bppsa_view view = region_view(s, &region, w->buffer, at);
    bppsa_comm_request **request = &s->requests[*requests];
    if (from == NULL) {
      s->traffic.messages++;
      s->traffic.message_bytes += (int64_t)bppsa_view_bytes(&view);
      BPPSA_TRY(alone ? BPPSA_OK : bppsa_comm_irecv(s->config.group, q, s->config.tag, &view, request));
    } else {
      copy_region(s, &region, w->mine, from, &region, view.data, false);
      BPPSA_TRY(alone ? BPPSA_OK : bppsa_comm_isend(s->config.group, q, s->config.tag, &view, request));
    }
    ++*requests;
    at += view.shape[0];
  }
  return BPPSA_OK;
}

/* Copies what has been received, or adds it in the order of the ranks. */
static void unpack(const layer_split *s, const side *w, void *to, bool add) {
  int64_t at = 0;
  for (int32_t q = 0; q < s->plan->ranks; ++q) {
    const bppsa_layer_box region = bppsa_layer_box_meet(w->mine, &w->theirs[q]);
    if (q == s->rank || bppsa_layer_box_count(&region) == 0) {
      continue;
    }
    const bppsa_view view = region_view(s, &region, w->buffer, at);
    copy_region(s, &region, &region, view.data, w->mine, to, add);
    at += view.shape[0];
  }
}

/* Moves values from the boxes `from_boxes` to `to_boxes` (size ranks). add: values without a sender become
 * 0, and values of several senders are added up. */
static bppsa_status exchange(layer_split *s, const bppsa_layer_box *from_boxes, const void *from, const bppsa_layer_box *to_boxes,
                             void *to, bool add) {
  const bppsa_layer_box *mine = &from_boxes[s->rank], *wanted = &to_boxes[s->rank];
  const side sending = {mine, to_boxes, s->out}, receiving = {wanted, from_boxes, s->in};
  int64_t requests = 0;
  bppsa_status status = begin(s, &receiving, NULL, &requests);
  status = status == BPPSA_OK ? begin(s, &sending, from, &requests) : status;
  if (status != BPPSA_OK) {
    bppsa_comm_cancel(requests, s->requests);
    return status;
  }
  if (add) {
    memset(to, 0, (size_t)(s->b * bppsa_layer_box_count(wanted)) * real_size(s));
  }
  bppsa_layer_copy(s, mine, from, wanted, to);
  BPPSA_TRY(bppsa_comm_wait_all(requests, s->requests));
  unpack(s, &receiving, to, add);
  return BPPSA_OK;
}

/* ---- allgathers ---- */

bppsa_status bppsa_layer_gather(layer_split *s, const bppsa_layer_box *boxes, const void *mine, const int64_t shape[3],
                                void *whole) {
  const bppsa_layer_box all = {.to = {shape[0], shape[1], shape[2]}};
  int64_t total = 0;
  for (int64_t q = 0; q < s->plan->ranks; ++q) {
    s->counts[q] = s->b * bppsa_layer_box_count(&boxes[q]);
    total += s->counts[q];
  }
  const bppsa_view part = bppsa_view_make((void *)(uintptr_t)mine, s->config.dtype, 1, &s->counts[s->rank]);
  const bppsa_view parts = bppsa_view_make(s->in, s->config.dtype, 1, &total);
  s->traffic.allgathers++;
  s->traffic.allgather_bytes += (int64_t)bppsa_view_bytes(&part);
  BPPSA_TRY(s->config.group != NULL ? bppsa_comm_allgather(s->config.group, &part, s->counts, &parts) : BPPSA_OK);
  const char *from = s->in;
  for (int64_t q = 0; q < s->plan->ranks; ++q) {
    bppsa_layer_copy(s, &boxes[q], from, &all, whole);
    from += s->counts[q] * (int64_t)real_size(s);
  }
  return BPPSA_OK;
}

/* ---- moves ---- */

static const int64_t *shape_of(const layer_split *s, int64_t layer) {
  return layer == 0 ? s->plan->network.in : s->plan->network.layers[layer - 1].out;
}

bppsa_status bppsa_layer_move_forward(layer_split *s, int64_t layer) {
  const bppsa_layer_plan *p = s->plan;
  const bppsa_layer_box *held = bppsa_layer_plan_held(p, layer, 0), *read = bppsa_layer_plan_read(p, layer, 0);
  const split_layer *l = &s->layers[layer];
  switch (p->layers[layer].move) {
  case BPPSA_MOVE_SLICE:
    bppsa_layer_copy(s, &held[s->rank], s->held[layer], &read[s->rank], l->read);
    break;
  case BPPSA_MOVE_EXCHANGE:
    BPPSA_TRY(exchange(s, held, s->held[layer], read, l->read, false));
    bppsa_layer_lap(s, BPPSA_LAYER_HALO);
    break;
  case BPPSA_MOVE_GATHER:
    BPPSA_TRY(bppsa_layer_gather(s, held, s->held[layer], shape_of(s, layer), l->read));
    bppsa_layer_lap(s, BPPSA_LAYER_GATHER);
    break;
  default:
    break;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_layer_move_backward(layer_split *s, int64_t layer) {
  const bppsa_layer_plan *p = s->plan;
  const bppsa_layer_box *held = bppsa_layer_plan_held(p, layer, 0), *read = bppsa_layer_plan_read(p, layer, 0);
  const split_layer *l = &s->layers[layer];
  if (p->layers[layer].sums_gradient) {
    bppsa_layer_lap(s, BPPSA_LAYER_COMPUTE);
    BPPSA_TRY(bppsa_layer_add_up(s, &l->inputs, l->gradient));
    bppsa_layer_lap(s, BPPSA_LAYER_REDUCE);
  }
  switch (p->layers[layer].move) {
  case BPPSA_MOVE_SLICE:
    BPPSA_TRY(bppsa_layer_gather(s, read, l->gradient, shape_of(s, layer), s->g[layer]));
    bppsa_layer_lap(s, BPPSA_LAYER_GATHER);
    break;
  case BPPSA_MOVE_EXCHANGE:
    BPPSA_TRY(exchange(s, read, l->gradient, held, s->g[layer], true));
    bppsa_layer_lap(s, BPPSA_LAYER_HALO);
    break;
  case BPPSA_MOVE_GATHER:
    bppsa_layer_copy(s, &read[s->rank], l->gradient, &held[s->rank], s->g[layer]);
    break;
  default:
    break;
  }
  return BPPSA_OK;
}

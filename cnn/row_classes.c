/* Classes of positions from which all walks go alike.
 *
 * Windows and taps of the two axes are independent, so each axis describes on its own what a walk reaches from one of its
 * positions. The walk goes layer by layer. It numbers the positions that it has reached in order, and lists the edges from them
 * to positions of the next live set; an edge has a reader and a tap. Where two positions have equal descriptions on both axes,
 * one walk becomes the other when positions are renamed in order. So both reach as many places, and meet as often. Layers that
 * move values between axes (flatten, norms) are not described: from there on every position is a class of its own.
 */
#include <string.h>

#include "cnn/rows.h"
#include "core/base/alloc.h"

/* Positions of an axis that are reached, in order. */
typedef struct {
  bppsa_rows_spot *spots;
  int64_t count, room;
} spot_list;

/* A description: numbers behind each other. */
typedef struct {
  int32_t *numbers;
  int64_t count, room;
} description;

/* An edge before its end has a number. */
typedef struct {
  int32_t from, reader, tap;
  bppsa_rows_spot to;
} edge;
typedef struct {
  edge *edges;
  int64_t count, room;
} edge_list;

typedef struct {
  const bppsa_cnn_rows *rows;
  int axis;
  spot_list now;
  edge_list edges;
  bool apart; /* a layer is reached that moves values between axes */
} reach;

static bool is_before(bppsa_rows_spot a, bppsa_rows_spot b) {
  return a.place != b.place ? a.place < b.place : a.position < b.position;
}

static bppsa_status add_edge(reach *r, int64_t from, int64_t reader, int64_t tap, int64_t place, int64_t position) {
  BPPSA_TRY(bppsa_grow(&r->edges.edges, r->edges.count, &r->edges.room, sizeof *r->edges.edges));
  r->edges.edges[r->edges.count++] = (edge){(int32_t)from, (int32_t)reader, (int32_t)tap, {(int32_t)place, (int32_t)position}};
  return BPPSA_OK;
}

static bppsa_status add_reader(reach *r, int64_t from, int64_t reader) {
  const bppsa_rows_reader *reads = &r->rows->readers[reader];
  const int64_t output = bppsa_rows_output(r->rows, reads->layer), position = r->now.spots[from].position;
  if (output < 0) {
    return BPPSA_OK;
  }
  if (reads->kind == BPPSA_ROWS_SAME || reads->kind == BPPSA_ROWS_POINT) {
    return add_edge(r, from, reader, 0, output, position);
  }
  if (reads->kind != BPPSA_ROWS_WINDOWS && reads->kind != BPPSA_ROWS_WEIGHTS) {
    r->apart = true;
    return BPPSA_OK;
  }
  const bppsa_rows_axis *axis = &reads->axes[r->axis];
  for (int64_t i = axis->ptr[position]; i < axis->ptr[position + 1]; ++i) {
    BPPSA_TRY(add_edge(r, from, reader, reads->kind == BPPSA_ROWS_WEIGHTS ? axis->tap[i] : 0, output, axis->output[i]));
  }
  return BPPSA_OK;
}

/* Lists the edges of layer t - 1. */
static bppsa_status list_edges(reach *r, int64_t t) {
  r->edges.count = 0;
  for (int64_t i = 0; i < r->now.count; ++i) {
    const bppsa_rows_spot spot = r->now.spots[i];
    if (r->rows->stays[spot.place] >= 0) {
      BPPSA_TRY(add_edge(r, i, -1, 0, r->rows->stays[spot.place], spot.position));
    }
    for (int64_t k = r->rows->reader_ptr[t - 1]; k < r->rows->reader_ptr[t]; ++k) {
      const int64_t tensor = bppsa_cnn_input_of(r->rows->network, t - 1, k - r->rows->reader_ptr[t - 1]) + 1;
      BPPSA_TRY(tensor == r->rows->live.tensors[spot.place] ? add_reader(r, i, k) : BPPSA_OK);
    }
  }
  return BPPSA_OK;
}

/* The ends of all edges, in order, become the positions that are reached. There are few, so that they are inserted one by one. */
static bppsa_status take_ends(reach *r) {
  r->now.count = 0;
  for (int64_t e = 0; e < r->edges.count; ++e) {
    const bppsa_rows_spot to = r->edges.edges[e].to;
    int64_t at = r->now.count;
    while (at > 0 && is_before(to, r->now.spots[at - 1])) {
      --at;
    }
    if (at > 0 && !is_before(r->now.spots[at - 1], to)) {
      continue;
    }
    BPPSA_TRY(bppsa_grow(&r->now.spots, r->now.count, &r->now.room, sizeof *r->now.spots));
    memmove(r->now.spots + at + 1, r->now.spots + at, (size_t)(r->now.count - at) * sizeof *r->now.spots);
    r->now.spots[at] = to;
    ++r->now.count;
  }
  return BPPSA_OK;
}

static int64_t number_of(const spot_list *list, bppsa_rows_spot spot) {
  int64_t low = 0, high = list->count - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (is_before(list->spots[middle], spot)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static bppsa_status add_number(description *d, int64_t number) {
  BPPSA_TRY(bppsa_grow(&d->numbers, d->count, &d->room, sizeof *d->numbers));
  d->numbers[d->count++] = (int32_t)number;
  return BPPSA_OK;
}

static bppsa_status describe(reach *r, int64_t from, int64_t to, bppsa_rows_spot start, description *d) {
  d->count = 0;
  r->apart = false;
  r->now.count = 0;
  BPPSA_TRY(bppsa_grow(&r->now.spots, 0, &r->now.room, sizeof *r->now.spots));
  r->now.spots[r->now.count++] = start;
  for (int64_t t = from; t <= to && !r->apart; ++t) {
    BPPSA_TRY(list_edges(r, t));
    BPPSA_TRY(take_ends(r));
    for (int64_t e = 0; e < r->edges.count; ++e) {
      const edge *each = &r->edges.edges[e];
      const int64_t numbers[] = {each->from, each->reader, each->tap, number_of(&r->now, each->to)};
      for (int k = 0; k < 4; ++k) {
        BPPSA_TRY(add_number(d, numbers[k]));
      }
    }
    BPPSA_TRY(add_number(d, -2));
  }
  return r->apart ? add_number(d, start.position) : BPPSA_OK;
}

/* The descriptions of the classes, one behind the other. */
typedef struct {
  description all;
  int64_t *ptr; /* size extent + 1 */
} known;

static bppsa_status find_class(const description *d, known *seen, int64_t position, bppsa_rows_classes *classes) {
  int64_t at = 0;
  for (; at < classes->count; ++at) {
    const int64_t size = seen->ptr[at + 1] - seen->ptr[at];
    if (size == d->count && memcmp(seen->all.numbers + seen->ptr[at], d->numbers, (size_t)size * sizeof *d->numbers) == 0) {
      break;
    }
  }
  for (int64_t k = 0; at == classes->count && k < d->count; ++k) {
    BPPSA_TRY(add_number(&seen->all, d->numbers[k]));
  }
  if (at == classes->count) {
    seen->ptr[at + 1] = seen->all.count;
    classes->member[classes->count++] = (int32_t)position;
  }
  classes->of[position] = (int32_t)at;
  ++classes->times[at];
  return BPPSA_OK;
}

static bppsa_status find_classes(reach *r, int64_t from, int64_t to, int64_t place, known *seen, bppsa_rows_classes *classes) {
  description d = {.numbers = NULL};
  bppsa_status status =
      seen->ptr == NULL || classes->of == NULL || classes->member == NULL || classes->times == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t x = 0; status == BPPSA_OK && x < classes->extent; ++x) {
    status = describe(r, from, to, (bppsa_rows_spot){(int32_t)place, (int32_t)x}, &d);
    status = status == BPPSA_OK ? find_class(&d, seen, x, classes) : status;
  }
  bppsa_free(d.numbers);
  return status;
}

bppsa_status bppsa_rows_classes_create(const bppsa_cnn_rows *rows, int64_t from, int64_t to, int64_t place, int axis,
                                       bppsa_rows_classes *classes) {
  reach r = {.rows = rows, .axis = axis};
  const int64_t extent = bppsa_rows_shape(rows, place)[axis + 1];
  known seen = {.ptr = bppsa_calloc(extent + 1, sizeof *seen.ptr)};
  bppsa_rows_classes made = {.extent = extent,
                             .of = bppsa_calloc(extent, sizeof *made.of),
                             .member = bppsa_calloc(extent, sizeof *made.member),
                             .times = bppsa_calloc(extent, sizeof *made.times)};
  const bppsa_status status = find_classes(&r, from, to, place, &seen, &made);
  bppsa_free(r.now.spots);
  bppsa_free(r.edges.edges);
  bppsa_free(seen.all.numbers);
  bppsa_free(seen.ptr);
  if (status != BPPSA_OK) {
    bppsa_rows_classes_free(&made);
    return status;
  }
  *classes = made;
  return BPPSA_OK;
}

void bppsa_rows_classes_free(bppsa_rows_classes *classes) {
  bppsa_free(classes->of);
  bppsa_free(classes->member);
  bppsa_free(classes->times);
  *classes = (bppsa_rows_classes){.extent = 0};
}

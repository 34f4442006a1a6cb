#include "distributed/layers/layer_plan.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/cut.h"

/* ---- the strategies ---- */

/* How the ranks hold a tensor, and what a layer does about it. */
typedef enum {
  WHOLE,    /* every rank has all of it */
  TILES,    /* of the grid */
  CHANNELS, /* neighbouring channels */
  GROUPS,   /* the channels of neighbouring groups of a convolution */
  SUM,      /* every rank has all of it, after a sum over the ranks */
  SAME      /* as its input */
} layout;

/* A convolution of one group, one of several, a linear operator, flatten, and all others. */
typedef enum { CONV, GROUPED, LINEAR, FLATTEN, WEIGHTLESS, CLASSES } layer_class;

static const struct {
  const char *name, *ways; /* ways: what limits the number of ranks */
  layout start;            /* of the network's input */
  struct {
    layout reads, gives;
  } rules[CLASSES];
} strategies[BPPSA_LAYERS_COUNT] = {
    [BPPSA_LAYERS_SPATIAL] = {.name = "spatial",
                              .ways = "positions",
                              .start = TILES,
                              .rules = {[CONV] = {TILES, TILES},
                                        [GROUPED] = {TILES, TILES},
                                        [LINEAR] = {WHOLE, WHOLE},
                                        [FLATTEN] = {WHOLE, WHOLE},
                                        [WEIGHTLESS] = {TILES, TILES}}},
    [BPPSA_LAYERS_FILTER] = {.name = "filter",
                             .ways = "filters",
                             .start = WHOLE,
                             .rules = {[CONV] = {WHOLE, CHANNELS},
                                       [GROUPED] = {GROUPS, GROUPS},
                                       [LINEAR] = {WHOLE, CHANNELS},
                                       [FLATTEN] = {SAME, SAME},
                                       [WEIGHTLESS] = {SAME, SAME}}},
    [BPPSA_LAYERS_CHANNEL] = {
        .name = "channel",
        .ways = "channels",
        .start = WHOLE,
        .rules = {[CONV] = {CHANNELS, SUM},
                  [GROUPED] = {GROUPS, GROUPS},
                  [LINEAR] = {CHANNELS, SUM},
                  [FLATTEN] = {CHANNELS, SAME},
                  [WEIGHTLESS] = {CHANNELS, SAME}}}};

const char *bppsa_layer_strategy_name(bppsa_layer_strategy strategy) {
  return strategies[strategy].name;
}

static layer_class class_of(const bppsa_op *op) {
  switch (op->kind) {
  case BPPSA_OPERATOR_CONV2D:
    return op->groups > 1 ? GROUPED : CONV;
  case BPPSA_OPERATOR_LINEAR:
    return LINEAR;
  case BPPSA_OPERATOR_FLATTEN:
    return FLATTEN;
  default:
    return WEIGHTLESS;
  }
}

/* ---- boxes ---- */

int64_t bppsa_layer_box_count(const bppsa_layer_box *box) {
  int64_t count = 1;
  for (int a = 0; a < 3; ++a) {
    count *= box->to[a] > box->from[a] ? box->to[a] - box->from[a] : 0;
  }
  return count;
}

bppsa_layer_box bppsa_layer_box_meet(const bppsa_layer_box *a, const bppsa_layer_box *b) {
  bppsa_layer_box box;
  for (int i = 0; i < 3; ++i) {
    box.from[i] = a->from[i] > b->from[i] ? a->from[i] : b->from[i];
    box.to[i] = a->to[i] < b->to[i] ? a->to[i] : b->to[i];
  }
  return box;
}

static bool same_box(const bppsa_layer_box *a, const bppsa_layer_box *b) {
  return memcmp(a, b, sizeof *a) == 0 || (bppsa_layer_box_count(a) == 0 && bppsa_layer_box_count(b) == 0);
}

static bppsa_layer_box whole_box(const int64_t shape[3]) {
  return (bppsa_layer_box){.to = {shape[0], shape[1], shape[2]}};
}

/* All positions of a range of channels, cut into `parts` units. */
static bppsa_layer_box channel_box(const int64_t shape[3], int64_t parts, int64_t ranks, int64_t rank) {
  bppsa_layer_box box = whole_box(shape);
  box.from[0] = bppsa_cut(parts, ranks, rank) * (shape[0] / parts);
  box.to[0] = bppsa_cut(parts, ranks, rank + 1) * (shape[0] / parts);
  return box;
}

static bppsa_layer_box tile_box(const bppsa_layer_plan *p, const int64_t shape[3], int64_t rank) {
  const int64_t tile[2] = {rank / p->grid[1], rank % p->grid[1]};
  bppsa_layer_box box = whole_box(shape);
  for (int axis = 0; axis < 2; ++axis) {
    box.from[1 + axis] = bppsa_cut(shape[1 + axis], p->grid[axis], tile[axis]);
    box.to[1 + axis] = bppsa_cut(shape[1 + axis], p->grid[axis], tile[axis] + 1);
  }
  return box;
}

static bool has_window(const bppsa_op *op) {
  return op->kind == BPPSA_OPERATOR_CONV2D || op->kind == BPPSA_OPERATOR_MAXPOOL2D || op->kind == BPPSA_OPERATOR_AVGPOOL2D;
}

/* Where the windows of outputs from .. to - 1 along an axis begin, and where they end, padding included. */
static void window_span(const bppsa_op *op, int axis, int64_t from, int64_t to, int64_t *first, int64_t *end) {
  const int64_t s = op->stride[axis], front = op->padding[2 * axis];
  *first = from * s - front;
  *end = (to - 1) * s - front + op->dilation[axis] * (op->kernel[axis] - 1) + 1;
}

/* The inputs that the windows of a tile of the output see. */
static bppsa_layer_box window_box(const bppsa_op *op, const bppsa_layer_box *out) {
  bppsa_layer_box box = *out;
  if (bppsa_layer_box_count(out) == 0) {
    return (bppsa_layer_box){.to = {0}};
  }
  if (op->kind == BPPSA_OPERATOR_CONV2D) {
    box.from[0] = 0;
    box.to[0] = op->in[0];
  }
  for (int axis = 0; axis < 2 && has_window(op); ++axis) {
    int64_t first, end;
    window_span(op, axis, out->from[1 + axis], out->to[1 + axis], &first, &end);
    box.from[1 + axis] = first > 0 ? first : 0;
    box.to[1 + axis] = end < op->in[1 + axis] ? end : op->in[1 + axis];
  }
  return box;
}

/* ---- a plan under construction ---- */

/* The layer with the fewest things that ranks can share, and their number. */
typedef struct {
  int64_t ways;
  const char *layer;
} limit;

typedef struct {
  bppsa_layer_plan *p;
  layout now;          /* of the present layer's input: WHOLE, TILES or CHANNELS */
  bool weights;        /* there was a layer with weights in front of it */
  limit least;         /* filter, channel */
  const char *outside; /* a layer of which a tile's windows see nothing but padding; NULL: none */
} planner;

static void note_ways(planner *m, int64_t ways, const bppsa_cnn_layer *about) {
  if (m->least.layer == NULL || ways < m->least.ways) {
    m->least = (limit){ways, about->name};
  }
}

/* What the layer reads and gives, in the present state of the plan. */
static void rule_of(const planner *m, const bppsa_cnn_layer *about, layout *reads, layout *gives) {
  const bppsa_layer_plan *p = m->p;
  const layer_class class = class_of(&about->op);
  *reads = strategies[p->strategy].rules[class].reads;
  *gives = strategies[p->strategy].rules[class].gives;
  const bool whole = p->strategy == BPPSA_LAYERS_SPATIAL ? m->now == WHOLE : p->strategy == BPPSA_LAYERS_CHANNEL && !m->weights;
  if (p->ranks == 1 || whole) { /* tiles are gathered once; the first layer with weights is not split by channels */
    *reads = *gives = WHOLE;
  }
  *reads = *reads == SAME ? m->now : *reads;
  *gives = *gives == SAME ? *reads : *gives;
}

/* The box of the output that a rank holds. in: the box that it reads; not used for tiles. */
static bppsa_layer_box held_box(planner *m, const bppsa_cnn_layer *about, layout gives, const bppsa_layer_box *in, int64_t rank) {
  const bppsa_layer_plan *p = m->p;
  const bool weights = bppsa_cnn_has_weights(about);
  const int64_t parts = gives == GROUPS ? about->op.groups : about->out[0];
  if (gives == TILES) {
    return tile_box(p, about->out, rank);
  }
  if (gives == GROUPS || (gives == CHANNELS && weights)) {
    note_ways(m, parts, about);
    return channel_box(about->out, parts, p->ranks, rank);
  }
  bppsa_layer_box box = whole_box(about->out);
  if (gives == CHANNELS) { /* flatten makes H W channels of one */
    box.from[0] = in->from[0] * (about->out[0] / about->op.in[0]);
    box.to[0] = in->to[0] * (about->out[0] / about->op.in[0]);
  }
  return box;
}

/* The box of the input that a rank reads. out: the box of the output that it holds, for tiles. */
static bppsa_layer_box read_box(planner *m, const bppsa_cnn_layer *about, layout reads, const bppsa_layer_box *held,
                                const bppsa_layer_box *out, int64_t rank) {
  const int64_t *in = about->op.in, parts = reads == GROUPS ? about->op.groups : in[0];
  if (reads == TILES) {
    const bppsa_layer_box box = window_box(&about->op, out);
    m->outside = bppsa_layer_box_count(&box) == 0 && bppsa_layer_box_count(out) > 0 ? about->name : m->outside;
    return box;
  }
  if (reads == CHANNELS && m->now == CHANNELS) {
    return *held;
  }
  if (reads == WHOLE) {
    return whole_box(in);
  }
  note_ways(m, parts, about);
  return channel_box(in, parts, m->p->ranks, rank);
}

/* Chooses the move from the boxes that ranks hold to those that they read. Windows of tiles may see whole images; that is an
 * exchange too, because each rank then has a part of the gradient. */
static bppsa_layer_move move_between(const bppsa_layer_plan *p, int64_t layer, layout now, layout reads) {
  bool same = true;
  for (int64_t r = 0; r < p->ranks; ++r) {
    same = same && same_box(bppsa_layer_plan_held(p, layer, r), bppsa_layer_plan_read(p, layer, r));
  }
  return same ? BPPSA_MOVE_NONE : now == WHOLE ? BPPSA_MOVE_SLICE : reads == WHOLE ? BPPSA_MOVE_GATHER : BPPSA_MOVE_EXCHANGE;
}

static void plan_layer(planner *m, int64_t layer) {
  bppsa_layer_plan *p = m->p;
  const bppsa_cnn_layer *about = &p->network.layers[layer];
  layout reads, gives;
  rule_of(m, about, &reads, &gives);
  for (int64_t r = 0; r < p->ranks; ++r) {
    bppsa_layer_box *out = &p->held[(layer + 1) * p->ranks + r], *in = &p->read[layer * p->ranks + r];
    if (reads == TILES) {
      *out = held_box(m, about, gives, NULL, r);
    }
    *in = read_box(m, about, reads, bppsa_layer_plan_held(p, layer, r), out, r);
    if (reads != TILES) {
      *out = held_box(m, about, gives, in, r);
    }
  }
  p->layers[layer] = (bppsa_planned_layer){.move = move_between(p, layer, m->now, reads),
                                           .sums_gradient = reads == WHOLE && gives == CHANNELS,
                                           .sums_output = gives == SUM,
                                           .tiled = gives == TILES};
  m->weights = m->weights || bppsa_cnn_has_weights(about);
  m->now = gives == SUM ? WHOLE : gives == GROUPS ? CHANNELS : gives;
}

/* Plans all layers, and the loss behind them. */
static planner plan_layers(bppsa_layer_plan *p) {
  const bppsa_cnn_network *network = &p->network;
  planner m = {.p = p, .now = p->ranks == 1 ? WHOLE : strategies[p->strategy].start};
  for (int64_t r = 0; r < p->ranks; ++r) {
    p->held[r] = m.now == TILES ? tile_box(p, network->in, r) : whole_box(network->in);
    p->read[network->count * p->ranks + r] = whole_box(network->layers[network->count - 1].out);
  }
  for (int64_t l = 0; l < network->count; ++l) {
    plan_layer(&m, l);
  }
  p->layers[network->count].move = move_between(p, network->count, m.now, WHOLE);
  return m;
}

/* ---- limits ---- */

static bppsa_status too_many(const bppsa_layer_plan *p, int64_t ways, const char *what, const char *layer) {
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %" PRId64 " ranks, more than the %" PRId64 " %s of %s, expected at most %" PRId64,
                    strategies[p->strategy].name, p->ranks, ways, what, layer, ways);
}

/* The layers whose images are cut into tiles. */
static int64_t tiled_layers(const bppsa_cnn_network *network) {
  int64_t count = 0;
  while (count < network->count && strategies[BPPSA_LAYERS_SPATIAL].rules[class_of(&network->layers[count].op)].reads == TILES) {
    ++count;
  }
  return count;
}

/* Has every image a position for each tile of the grid? */
static bool grid_fits(const bppsa_layer_plan *p) {
  bool fits = true;
  for (int64_t l = 0; l < tiled_layers(&p->network); ++l) {
    const int64_t *in = p->network.layers[l].op.in;
    fits = fits && in[1] >= p->grid[0] && in[2] >= p->grid[1];
  }
  return fits;
}

/* Counts the positions that the ranks get from each other. */
static int64_t halo_of(const bppsa_layer_plan *p) {
  int64_t halo = 0;
  for (int64_t i = 0; i < tiled_layers(&p->network) * p->ranks; ++i) {
    const bppsa_layer_box own = bppsa_layer_box_meet(&p->read[i], &p->held[i]);
    halo += bppsa_layer_box_count(&p->read[i]) - bppsa_layer_box_count(&own);
  }
  return halo;
}

/* The narrowest image, by its number of positions. */
static limit narrowest(const bppsa_cnn_network *network) {
  limit least = {0};
  for (int64_t l = 0; l < tiled_layers(network); ++l) {
    const int64_t *in = network->layers[l].op.in;
    if (least.layer == NULL || in[1] * in[2] < least.ways) {
      least = (limit){in[1] * in[2], network->layers[l].name};
    }
  }
  return least;
}

/* Chooses the grid with the smallest halo; of several such, the one with the most tiles along the height. */
static bppsa_status choose_grid(bppsa_layer_plan *p) {
  const limit least = narrowest(&p->network);
  int64_t best = -1, rows = 0;
  const char *outside = NULL;
  if (least.layer == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "spatial: %s begins with %s, expected images to split", p->network.name,
                      bppsa_operator_name(p->network.layers[0].op.kind));
  }
  if (p->ranks > least.ways) {
    return too_many(p, least.ways, "positions in the images", least.layer);
  }
  for (int64_t height = p->ranks; height >= 1; --height) {
    p->grid[0] = height;
    p->grid[1] = p->ranks / height;
    if (p->ranks % height != 0 || !grid_fits(p)) {
      continue;
    }
    const planner m = plan_layers(p);
    const int64_t halo = halo_of(p);
    outside = m.outside != NULL ? m.outside : outside;
    if (m.outside == NULL && (best < 0 || halo < best)) {
      best = halo;
      rows = height;
    }
  }
  p->grid[0] = rows > 0 ? rows : 1;
  p->grid[1] = p->ranks / p->grid[0];
  if (best >= 0) {
    return BPPSA_OK;
  }
  return outside != NULL
             ? bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "spatial: with %" PRId64 " ranks a tile of %s lies in the padding alone, expected fewer ranks",
                          p->ranks, outside)
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "spatial: no grid of %" PRId64 " tiles fits into the images of %s, expected at most %" PRId64
                          " ranks, with fewer tiles along height and width",
                          p->ranks, least.layer, least.ways);
}

/* ---- creation ---- */

/* Refuses operators whose inputs, parameters or random numbers are not cut. */
static bppsa_status check_operator(const bppsa_cnn_layer *layer) {
  const bppsa_operator kind = layer->op.kind;
  const bool cut = kind != BPPSA_OPERATOR_BATCHNORM2D && kind != BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D &&
                   kind != BPPSA_OPERATOR_GLOBAL_AVGPOOL && !(kind == BPPSA_OPERATOR_DROPOUT && layer->op.p > 0);
  return cut ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "layer '%s': %s is not cut among ranks, expected another split, such as batch",
                          layer->name, bppsa_operator_name(kind));
}

static bppsa_status build(bppsa_layer_plan *p) {
  const int64_t count = p->network.count;
  int64_t boxes;
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(check_operator(&p->network.layers[i]));
  }
  if (!bppsa_mul(count + 1, p->ranks, &boxes)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "layers: %" PRId64 " of them over %" PRId64 " ranks do not fit in 64 bits", count,
                      p->ranks);
  }
  p->layers = bppsa_calloc(count + 1, sizeof *p->layers);
  p->held = bppsa_calloc(boxes, sizeof *p->held);
  p->read = bppsa_calloc(boxes, sizeof *p->read);
  if (p->layers == NULL || p->held == NULL || p->read == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  p->grid[0] = p->grid[1] = 1;
  if (p->strategy == BPPSA_LAYERS_SPATIAL && p->ranks > 1) {
    BPPSA_TRY(choose_grid(p));
  }
  const planner m = plan_layers(p);
  return m.least.layer != NULL && p->ranks > m.least.ways ? too_many(p, m.least.ways, strategies[p->strategy].ways, m.least.layer)
                                                          : BPPSA_OK;
}

bppsa_status bppsa_layer_plan_create(const bppsa_cnn_network *network, bppsa_layer_strategy strategy, int64_t ranks,
                                     bppsa_layer_plan **plan) {
  BPPSA_REQUIRE(network != NULL && network->count >= 1 && plan != NULL);
  BPPSA_REQUIRE((unsigned)strategy < BPPSA_LAYERS_COUNT && ranks >= 1);
  BPPSA_TRY(bppsa_cnn_require_chain(network, "ranks that share its layers"));
  bppsa_layer_plan *p = bppsa_calloc(1, sizeof *p);
  if (p == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  p->strategy = strategy;
  p->ranks = ranks;
  bppsa_status status = bppsa_cnn_network_copy(network, &p->network);
  status = status == BPPSA_OK ? build(p) : status;
  if (status != BPPSA_OK) {
    bppsa_layer_plan_destroy(p);
    return status;
  }
  *plan = p;
  return BPPSA_OK;
}

void bppsa_layer_plan_destroy(bppsa_layer_plan *p) {
  if (p == NULL) {
    return;
  }
  void *const blocks[] = {p->layers, p->held, p->read};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
  bppsa_cnn_network_free(&p->network);
  bppsa_free(p);
}

/* ---- a rank's part ---- */

/* The padding that a tile's windows have at either end of what the rank reads. A pool's window that goes on behind the padding, as
 * ceil_mode lets it, does so in the tile as well. */
static void pad_tile(const bppsa_op *whole, const bppsa_layer_box *in, const bppsa_layer_box *out, bppsa_op *op) {
  for (int axis = 0; axis < 2 && has_window(op); ++axis) {
    int64_t first, end;
    window_span(whole, axis, out->from[1 + axis], out->to[1 + axis], &first, &end);
    const int64_t most = whole->in[1 + axis] + whole->padding[2 * axis + 1];
    op->padding[2 * axis] = in->from[1 + axis] - first;
    op->padding[2 * axis + 1] = (end < most ? end : most) - in->to[1 + axis];
  }
}

bppsa_status bppsa_layer_plan_local(const bppsa_layer_plan *plan, int64_t layer, int64_t rank, bppsa_cnn_layer *local,
                                    bool *any) {
  BPPSA_REQUIRE(plan != NULL && local != NULL && any != NULL);
  const bppsa_cnn_layer *about = &plan->network.layers[layer];
  const bppsa_layer_box *in = bppsa_layer_plan_read(plan, layer, rank), *out = bppsa_layer_plan_held(plan, layer + 1, rank);
  bppsa_cnn_layer made = *about;
  *any = bppsa_layer_box_count(out) > 0;
  if (!*any) {
    *local = made;
    return BPPSA_OK;
  }
  for (int a = 0; a < 3; ++a) {
    made.op.in[a] = in->to[a] - in->from[a];
  }
  if (bppsa_cnn_has_weights(about)) {
    made.op.out_channels = out->to[0] - out->from[0];
  }
  if (about->op.groups > 1) {
    made.op.groups = about->op.groups * made.op.in[0] / about->op.in[0];
  }
  if (plan->layers[layer].tiled) {
    pad_tile(&about->op, in, out, &made.op);
  }
  BPPSA_TRY(bppsa_op_shape(&made.op, made.out));
  for (int a = 0; a < 3; ++a) {
    if (made.out[a] != out->to[a] - out->from[a]) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "%s: a part with %" PRId64 " outputs along axis %d, expected %" PRId64, about->name,
                        made.out[a], a, out->to[a] - out->from[a]);
    }
  }
  *local = made;
  return BPPSA_OK;
}

bppsa_layer_part bppsa_layer_plan_part(const bppsa_layer_plan *plan, int64_t layer, int64_t rank, bool bias) {
  const bppsa_cnn_layer *about = &plan->network.layers[layer];
  const bppsa_op *op = &about->op;
  const bppsa_layer_box *in = bppsa_layer_plan_read(plan, layer, rank), *out = bppsa_layer_plan_held(plan, layer + 1, rank);
  const bool all = plan->layers[layer].tiled; /* a rank without a tile has all weights as well */
  const int64_t unit = op->kind == BPPSA_OPERATOR_LINEAR ? op->in[1] * op->in[2] : op->kernel[0] * op->kernel[1];
  const int64_t columns = bias ? 1 : op->in[0] / op->groups * unit;
  const bool cut = !bias && !all && op->groups == 1;
  return (bppsa_layer_part){.rows = op->out_channels,
                            .columns = columns,
                            .first_row = all ? 0 : out->from[0],
                            .end_row = all ? op->out_channels : out->to[0],
                            .first_column = cut ? in->from[0] * unit : 0,
                            .end_column = cut ? in->to[0] * unit : columns};
}

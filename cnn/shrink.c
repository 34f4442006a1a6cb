#include "cnn/shrink.h"

#include <string.h>

#include "cnn/groups.h"
#include "core/base/alloc.h"

/* The channels of all tensors, one behind the other. */
typedef struct {
  const bppsa_cnn_network *network;
  const uint8_t *const *masks;
  int64_t *first;        /* of tensor 0 (the network's input) .. count, and the number of all: size count + 2 */
  int64_t *tied;         /* a channel that each is tied to, and so on to one that stands for all of them */
  uint8_t *stays;        /* does a channel that stands for others stay? */
  uint8_t *given, *read; /* likewise, while they are determined */
} shrinking;

static int64_t channels_of(const bppsa_cnn_network *network, int64_t tensor) {
  return tensor == 0 ? network->in[0] : network->layers[tensor - 1].out[0];
}

/* The channel that stands for all that this one is tied to. */
static int64_t find(const shrinking *s, int64_t channel) {
  while (s->tied[channel] != channel) {
    channel = s->tied[channel] = s->tied[s->tied[channel]];
  }
  return channel;
}

/* Ties `count` channels that stand side by side to as many others. */
static void tie(const shrinking *s, int64_t from, int64_t to, int64_t count) {
  for (int64_t c = 0; c < count; ++c) {
    s->tied[find(s, from + c)] = find(s, to + c);
  }
}

/* ---- what layers do with channels ---- */

/* Does every channel of the output depend on one channel of the input alone? */
static bool is_by_channel(const bppsa_cnn_layer *layer) {
  const int64_t *in = layer->op.in, *out = layer->out, plane = in[1] * in[2];
  switch (layer->node) {
  case BPPSA_CNN_OPERATOR:
    return !bppsa_cnn_has_weights(layer);
  case BPPSA_CNN_RESHAPE:
    return in[0] == out[0];
  case BPPSA_CNN_PERMUTE:
    return layer->order[0] == 0;
  case BPPSA_CNN_SUMS:
  case BPPSA_CNN_SOFTMAX:
  case BPPSA_CNN_LAYERNORM:
  case BPPSA_CNN_GROUPNORM: {
    const bppsa_cnn_groups g = bppsa_cnn_groups_of(layer);
    return plane % (g.size * g.inner) == 0;
  }
  default:
    return true;
  }
}

/* Ties the channels of input k of layer i, which is no convolution and no linear operator, to those of its output. */
static void tie_input(const shrinking *s, int64_t i, int64_t k) {
  const bppsa_cnn_layer *layer = &s->network->layers[i];
  const int64_t tensor = bppsa_cnn_input_of(s->network, i, k) + 1, in = channels_of(s->network, tensor);
  const int64_t from = s->first[tensor], to = s->first[i + 1], plane = layer->op.in[1] * layer->op.in[2];
  int64_t before = 0;
  for (int64_t other = 0; layer->node == BPPSA_CNN_CONCAT && other < k; ++other) {
    before += channels_of(s->network, bppsa_cnn_input_of(s->network, i, other) + 1);
  }
  if (layer->node == BPPSA_CNN_SLICE) {
    tie(s, from + layer->first, to, layer->out[0]);
  } else if (layer->node == BPPSA_CNN_CONCAT) {
    tie(s, from, to + before, in);
  } else if (layer->op.kind == BPPSA_OPERATOR_FLATTEN && layer->node == BPPSA_CNN_OPERATOR) {
    for (int64_t v = 0; v < in * plane; ++v) {
      tie(s, from + v / plane, to + v, 1);
    }
  } else if (in == layer->out[0] && (layer->node < BPPSA_CNN_SUMS || k == 0)) {
    tie(s, from, to, in);
  }
}

static void tie_all(const shrinking *s) {
  for (int64_t channel = 0; channel < s->first[s->network->count + 1]; ++channel) {
    s->tied[channel] = channel;
  }
  for (int64_t i = 0; i < s->network->count; ++i) {
    const bppsa_cnn_layer *layer = &s->network->layers[i];
    for (int64_t k = 0; layer->node != BPPSA_CNN_SUMS && is_by_channel(layer) && k < bppsa_cnn_input_count(s->network, i); ++k) {
      tie_input(s, i, k);
    }
  }
}

/* ---- which stay ---- */

static void mark(const shrinking *s, uint8_t *marks, int64_t tensor) {
  for (int64_t channel = s->first[tensor]; channel < s->first[tensor + 1]; ++channel) {
    marks[find(s, channel)] = 1;
  }
}

/* The channels that weights join: in each group `in` by `out` pairs, of `taps` weights each. A linear operator has as many for a
 * channel of its input as that has positions. */
typedef struct {
  int64_t groups, in, out, taps;
} joined;

static joined joined_of(const bppsa_cnn_layer *layer) {
  const bppsa_op *op = &layer->op;
  if (op->kind == BPPSA_OPERATOR_LINEAR) {
    return (joined){1, op->in[0], op->out_channels, op->in[1] * op->in[2]};
  }
  return (joined){op->groups, op->in[0] / op->groups, op->out_channels / op->groups, op->kernel[0] * op->kernel[1]};
}

static bool has_weight(const uint8_t *mask, int64_t first, int64_t taps) {
  bool some = mask == NULL;
  for (int64_t t = 0; !some && t < taps; ++t) {
    some = mask[first + t] != 0;
  }
  return some;
}

/* Marks channels of the output of layer i that a kept weight gives from channels that are given, or, `back`, channels of its input
 * from which a kept weight leads to channels that are read. Returns whether some were not marked before. */
static bool follow_weights(const shrinking *s, int64_t i, bool back) {
  const joined j = joined_of(&s->network->layers[i]);
  const uint8_t *mask = s->masks != NULL ? s->masks[i] : NULL;
  const int64_t from = s->first[bppsa_cnn_input_of(s->network, i, 0) + 1], to = s->first[i + 1];
  bool some = false;
  for (int64_t o = 0; o < j.groups * j.out; ++o) {
    const int64_t out = find(s, to + o), group = o / j.out;
    if (!s->stays[out] || (back ? !s->read[out] : s->given[out])) {
      continue;
    }
    for (int64_t c = 0; c < j.in && (back || !s->given[out]); ++c) {
      const int64_t in = find(s, from + group * j.in + c);
      const bool open = s->stays[in] && (back ? !s->read[in] : s->given[in]);
      if (open && has_weight(mask, (o * j.in + c) * j.taps, j.taps)) {
        *(back ? &s->read[in] : &s->given[out]) = 1;
        some = true;
      }
    }
  }
  return some;
}

/* Marks what layers without weights give or read altogether. */
static void mark_whole(const shrinking *s, int64_t i) {
  const bppsa_cnn_layer *layer = &s->network->layers[i];
  if (bppsa_cnn_has_weights(layer)) {
    return;
  }
  for (int64_t k = 0; k < bppsa_cnn_input_count(s->network, i); ++k) {
    const int64_t tensor = bppsa_cnn_input_of(s->network, i, k) + 1;
    const bool repeated = layer->node == BPPSA_CNN_MUL && channels_of(s->network, tensor) < layer->out[0];
    if (repeated || !is_by_channel(layer)) { /* also a channel that is constant */
      mark(s, s->read, tensor);
      mark(s, s->given, tensor);
    }
  }
  if (!is_by_channel(layer)) {
    mark(s, s->given, i + 1);
  }
}

/* Follows all weights until no more channels are reached. The layers' order makes this two passes, but for ties that lead back. */
static void follow(const shrinking *s, bool back) {
  const int64_t count = s->network->count;
  for (bool some = true; some;) {
    some = false;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t layer = back ? count - 1 - i : i;
      const bool weights = bppsa_cnn_has_weights(&s->network->layers[layer]);
      some = (weights && follow_weights(s, layer, back)) || some;
    }
  }
}

/* Takes out what nothing gives or nothing reads. Returns whether something was. */
static bool take_out(const shrinking *s) {
  const int64_t all = s->first[s->network->count + 1];
  bool some = false;
  memset(s->given, 0, (size_t)all);
  memset(s->read, 0, (size_t)all);
  mark(s, s->given, 0);
  mark(s, s->read, s->network->count);
  mark(s, s->given, s->network->count); /* a logit may be its bias alone */
  for (int64_t i = 0; i < s->network->count; ++i) {
    mark_whole(s, i);
  }
  follow(s, false);
  follow(s, true);
  for (int64_t channel = 0; channel < all; ++channel) {
    const bool goes = s->stays[channel] && s->tied[channel] == channel && !(s->given[channel] && s->read[channel]);
    s->stays[channel] = s->stays[channel] && !goes;
    some = some || goes;
  }
  return some;
}

/* ---- the result ---- */

static int64_t count_left(const shrinking *s, int64_t first, int64_t count) {
  int64_t left = 0;
  for (int64_t c = 0; c < count; ++c) {
    left += s->stays[find(s, first + c)];
  }
  return left;
}

static bppsa_cnn_shrunk shrunk_of(const shrinking *s, int64_t i) {
  const bppsa_cnn_layer *layer = &s->network->layers[i];
  const int64_t tensor = bppsa_cnn_input_of(s->network, i, 0) + 1, from = s->first[tensor], to = s->first[i + 1];
  bppsa_cnn_shrunk made = {.in = count_left(s, from, channels_of(s->network, tensor)), .out = count_left(s, to, layer->out[0])};
  made.share = (double)made.out / (double)layer->out[0];
  if (layer->node == BPPSA_CNN_SUMS) { /* it takes what it reads */
    made.share = is_by_channel(layer) ? (double)made.in / (double)layer->op.in[0] : 1;
    made.out = layer->out[0];
  }
  if (bppsa_cnn_has_weights(layer)) {
    const joined j = joined_of(layer);
    double pairs = 0;
    for (int64_t g = 0; g < j.groups; ++g) {
      pairs += (double)count_left(s, from + g * j.in, j.in) * (double)count_left(s, to + g * j.out, j.out);
    }
    made.share = pairs / ((double)j.groups * (double)j.in * (double)j.out);
  }
  return made;
}

static bppsa_status run(shrinking *s, bppsa_cnn_shrunk *layers) {
  const int64_t count = s->network->count;
  s->first = bppsa_calloc(count + 2, sizeof *s->first);
  if (s->first == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t tensor = 0; tensor <= count; ++tensor) {
    s->first[tensor + 1] = s->first[tensor] + channels_of(s->network, tensor);
  }
  const int64_t all = s->first[count + 1];
  s->tied = bppsa_calloc(all, sizeof *s->tied);
  s->stays = bppsa_calloc(all, 1);
  s->given = bppsa_calloc(all, 1);
  s->read = bppsa_calloc(all, 1);
  if (s->tied == NULL || s->stays == NULL || s->given == NULL || s->read == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memset(s->stays, 1, (size_t)all);
  tie_all(s);
  while (take_out(s)) { /* what a channel gave or read may be next */
  }
  for (int64_t i = 0; i < count; ++i) {
    layers[i] = shrunk_of(s, i);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_shrink(const bppsa_cnn_network *network, const uint8_t *const *masks, bppsa_cnn_shrunk *layers) {
  BPPSA_REQUIRE(network != NULL && network->layers != NULL && layers != NULL);
  shrinking s = {.network = network, .masks = masks};
  const bppsa_status status = run(&s, layers);
  bppsa_free(s.first);
  bppsa_free(s.tied);
  bppsa_free(s.stays);
  bppsa_free(s.given);
  bppsa_free(s.read);
  return status;
}

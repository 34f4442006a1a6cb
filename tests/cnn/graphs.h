/* Random network files that are graphs, and their float64 forward pass, which shares no code with the library. */
#ifndef BPPSA_TESTS_CNN_GRAPHS_H
#define BPPSA_TESTS_CNN_GRAPHS_H

#include "tests/cnn/problems.h"

enum { GRAPH_TENSORS = 40 };

/* A file while it is written: the tensors so far, tensor 0 is the input; tensor i is the output of layer "t<i>". */
typedef struct {
  uint64_t counter;
  bool smooth; /* no operator with a kink */
  int count;
  int64_t shape[GRAPH_TENSORS][3];
  int readers[GRAPH_TENSORS];
  char text[CHAIN_TEXT];
} graph_writer;

static inline const char *graph_name(int tensor, char name[16]) {
  snprintf(name, 16, tensor == 0 ? "input" : "t%d", tensor);
  return name;
}

/* Adds a layer that reads `count` tensors, and returns its tensor. members: begins with a comma, or is empty. */
static inline int graph_add(graph_writer *w, const char *op, const char *members, int count, const int *read, int64_t c,
                            int64_t h, int64_t width) {
  const int made = w->count++;
  char name[16];
  size_t used = strlen(w->text);
  assert_true(w->count <= GRAPH_TENSORS && used + 300 < sizeof w->text);
  used += (size_t)snprintf(w->text + used, sizeof w->text - used, "{\"name\": \"t%d\", \"op\": \"%s\"%s, \"inputs\": [", made, op,
                           members);
  for (int k = 0; k < count; ++k) {
    used += (size_t)snprintf(w->text + used, sizeof w->text - used, "%s\"%s\"", k > 0 ? ", " : "", graph_name(read[k], name));
    ++w->readers[read[k]];
  }
  snprintf(w->text + used, sizeof w->text - used, "]}, ");
  memcpy(w->shape[made], (int64_t[]){c, h, width}, sizeof w->shape[made]);
  return made;
}

static inline int graph_conv(graph_writer *w, int x, int64_t out, int64_t kernel, int64_t groups) {
  const int64_t *s = w->shape[x];
  char members[160];
  snprintf(members, sizeof members, ", \"out\": %d, \"kernel\": %d, \"padding\": %d, \"groups\": %d, \"bias\": %s", (int)out,
           (int)kernel, (int)kernel / 2, (int)groups, chain_below(&w->counter, 2) == 0 ? "true" : "false");
  return graph_add(w, "conv2d", members, 1, &x, out, s[1], s[2]);
}

static inline int graph_function(graph_writer *w, int x) {
  static const char *const functions[] = {"tanh", "sigmoid", "relu", "leaky_relu"};
  const int64_t *s = w->shape[x];
  return graph_add(w, functions[chain_below(&w->counter, w->smooth ? 2 : 4)], "", 1, &x, s[0], s[1], s[2]);
}

/* Another tensor of x's height and width, and unless `any` of its channels, or x itself. */
static inline int graph_alike(graph_writer *w, int x, bool any) {
  for (int tries = 0; tries < 20; ++tries) {
    const int y = (int)chain_below(&w->counter, w->count);
    const int64_t *s = w->shape[x], *t = w->shape[y];
    if (y != x && s[1] == t[1] && s[2] == t[2] && (any || s[0] == t[0])) {
      return y;
    }
  }
  return x;
}

/* Squeeze and excitation: a factor of each channel from the means of all, or of each position from all channels. */
static inline void graph_gate(graph_writer *w, int x) {
  const int64_t c = w->shape[x][0], h = w->shape[x][1], width = w->shape[x][2];
  const bool positions = chain_below(&w->counter, 3) == 0;
  int gate = positions ? x : graph_add(w, "global_avgpool", "", 1, &x, c, 1, 1);
  gate = graph_conv(w, gate, positions ? 1 : c, 1, 1);
  gate = graph_add(w, "sigmoid", "", 1, &gate, positions ? 1 : c, positions ? h : 1, positions ? width : 1);
  const int read[3] = {chain_below(&w->counter, 2) == 0 ? x : gate, 0};
  graph_add(w, "mul", "", 2, (const int[]){read[0], read[0] == x ? gate : x}, c, h, width);
}

static inline void graph_permute(graph_writer *w, int x) {
  static const int orders[][3] = {{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  const int *order = orders[chain_below(&w->counter, 5)];
  const int64_t *s = w->shape[x];
  char members[80];
  snprintf(members, sizeof members, ", \"order\": [%d, %d, %d]", order[0], order[1], order[2]);
  graph_add(w, "permute", members, 1, &x, s[order[0]], s[order[1]], s[order[2]]);
}

/* Positions in a line, over which a convolution goes. */
static inline void graph_line(graph_writer *w, int x) {
  const int64_t c = w->shape[x][0], length = w->shape[x][1] * w->shape[x][2];
  char members[120];
  snprintf(members, sizeof members, ", \"shape\": [%d, 1, %d]", (int)c, (int)length);
  const int line = graph_add(w, "reshape", members, 1, &x, c, 1, length);
  snprintf(members, sizeof members, ", \"out\": %d, \"kernel\": 3, \"padding\": [2, 1], \"stride\": 2, \"groups\": %d", (int)c,
           (int)c);
  graph_add(w, "conv1d", members, 1, &line, c, 1, (length + 3 - 3) / 2 + 1);
}

/* A normalisation of groups of four values or more: the statistics of fewer almost determine them. */
static inline void graph_normalise(graph_writer *w, int x) {
  const int64_t *s = w->shape[x];
  const bool affine = chain_below(&w->counter, 3) > 0;
  char members[120];
  const int kind = (int)chain_below(&w->counter, 3), axis = (int)chain_below(&w->counter, 3);
  if (kind == 0 && s[axis] > 2) {
    snprintf(members, sizeof members, ", \"axis\": %d", axis);
    graph_add(w, "softmax", members, 1, &x, s[0], s[1], s[2]);
  } else if (kind == 1 && s[1] * s[2] > 3) {
    char channels[20] = "";
    if (axis == 0) {
      snprintf(channels, sizeof channels, "%d, ", (int)s[0]);
    }
    snprintf(members, sizeof members, ", \"shape\": [%s%d, %d], \"eps\": 0.1, \"affine\": %s", channels, (int)s[1], (int)s[2],
             affine ? "true" : "false");
    graph_add(w, "layernorm", members, 1, &x, s[0], s[1], s[2]);
  } else if (s[0] * s[1] * s[2] > 7) {
    const int groups = s[0] % 2 == 0 && axis > 0 ? 2 : 1;
    snprintf(members, sizeof members, ", \"groups\": %d, \"eps\": 0.1, \"affine\": %s", groups, affine ? "true" : "false");
    graph_add(w, "groupnorm", members, 1, &x, s[0], s[1], s[2]);
  }
}

static inline void graph_step(graph_writer *w) {
  const int x = w->count - 1 - (int)chain_below(&w->counter, w->count < 4 ? w->count : 4);
  const int64_t c = w->shape[x][0], h = w->shape[x][1], width = w->shape[x][2];
  char members[80];
  int y, read[3];
  switch (chain_below(&w->counter, 14)) {
  case 0:
    graph_function(w, x);
    break;
  case 1: /* depthwise */
    graph_conv(w, x, c, 3, c);
    break;
  case 2: /* a residual block, in both orders of its inputs */
    y = graph_conv(w, graph_function(w, graph_conv(w, x, 1 + chain_below(&w->counter, 3), 3, 1)), c, 1, 1);
    read[0] = chain_below(&w->counter, 2) == 0 ? x : y;
    read[1] = read[0] == x ? y : x;
    graph_add(w, "add", "", 2, read, c, h, width);
    break;
  case 3:
  case 4:
    read[0] = x;
    read[1] = graph_alike(w, x, false);
    if (read[1] != x) {
      graph_add(w, chain_below(&w->counter, 3) == 0 ? "add" : "mul", "", 2, read, c, h, width);
    }
    break;
  case 5: /* a tensor may be concatenated with itself */
    read[0] = x;
    read[1] = graph_alike(w, x, true);
    if (c + w->shape[read[1]][0] < 9) {
      graph_add(w, "concat", "", 2, read, c + w->shape[read[1]][0], h, width);
    }
    break;
  case 6:
    y = (int)chain_below(&w->counter, c);
    snprintf(members, sizeof members, ", \"first\": %d, \"out\": %d", y, (int)(c - y));
    graph_add(w, "slice", members, 1, &x, c - y, h, width);
    break;
  case 7:
    graph_permute(w, x);
    break;
  case 8:
  case 9:
    graph_gate(w, x);
    break;
  case 10:
    graph_line(w, x);
    break;
  case 11:
  case 12:
    graph_normalise(w, x);
    break;
  default:
    if (h > 1 && width > 1) {
      const bool average = w->smooth || chain_below(&w->counter, 2) == 0;
      graph_add(w, average ? "avgpool2d" : "maxpool2d", ", \"kernel\": 2", 1, &x, c, h / 2, width / 2);
    }
  }
}

/* A graph of 4 .. about 20 layers. Every tensor that no step has read goes through a linear layer into the head. */
static inline void graph_text(uint64_t number, bool smooth, graph_writer *w) {
  int ends[GRAPH_TENSORS], heads = 0, x = 0;
  *w = (graph_writer){.counter = 100000 * (number + 1), .smooth = smooth, .count = 1};
  for (int i = 0; i < 3; ++i) {
    w->shape[0][i] = (i == 0 ? 1 : 2) + chain_below(&w->counter, 3);
  }
  snprintf(w->text, sizeof w->text, "{\"input\": [%d, %d, %d], \"layers\": [", (int)w->shape[0][0], (int)w->shape[0][1],
           (int)w->shape[0][2]);
  graph_conv(w, 0, 1 + chain_below(&w->counter, 3), 3, 1);
  for (int64_t steps = 2 + chain_below(&w->counter, 5); steps > 0; --steps) {
    graph_step(w);
  }
  for (int tensor = 1, count = w->count; tensor < count; ++tensor) {
    if (w->readers[tensor] == 0) {
      ends[heads++] = graph_add(w, "linear", ", \"out\": 3", 1, &tensor, 3, 1, 1);
    }
  }
  x = heads > 1 ? graph_add(w, number % 2 == 0 ? "add" : "concat", "", heads, ends, 3, 1, 1) : ends[0];
  snprintf(w->text + strlen(w->text), 100, "{\"name\": \"head\", \"op\": \"linear\", \"out\": 3, \"inputs\": [\"t%d\"]}]}", x);
}

/* The network of a number; those that come out as chains are drawn again. */
static inline bppsa_cnn_network graph_network(uint64_t number, bool smooth) {
  static graph_writer w;
  bppsa_cnn_network network = {.count = 0};
  do {
    bppsa_cnn_network_free(&network);
    graph_text(number, smooth, &w);
    if (bppsa_cnn_network_parse("graph", w.text, (int64_t)strlen(w.text), &network) != BPPSA_OK) {
      fail_msg("%s: %s", bppsa_last_error(), w.text);
    }
    number += 1000;
  } while (!bppsa_cnn_is_graph(&network));
  return network;
}

/* Softmax, layer norm or group norm of the values at first, first + step, ..; weight and bias of a channel, or of a place
 * in the group. */
static inline void graph_group(const bppsa_cnn_layer *layer, int64_t first, int64_t step, int64_t size, const double *in,
                               const double *weight, const double *bias, double *out) {
  double mean = 0, variance = 0, sum = 0;
  for (int64_t k = 0; k < size; ++k) {
    mean += in[first + k * step] / (double)size;
    sum += exp(in[first + k * step]);
  }
  for (int64_t k = 0; k < size; ++k) {
    variance += pow(in[first + k * step] - mean, 2) / (double)size;
  }
  for (int64_t k = 0; k < size; ++k) {
    const int64_t i = first + k * step, channel = i / (layer->op.in[1] * layer->op.in[2]);
    const int64_t place = layer->node == BPPSA_CNN_GROUPNORM ? channel : k;
    const double z = (in[i] - mean) / sqrt(variance + layer->op.epsilon);
    out[i] = layer->node == BPPSA_CNN_SOFTMAX ? exp(in[i]) / sum : !layer->bias ? z : z * weight[place] + bias[place];
  }
}

static inline void graph_normalised(const bppsa_cnn_layer *layer, const double *in, double *const *parameters, double *out) {
  const int64_t *s = layer->op.in, all = s[0] * s[1] * s[2];
  const double *weight = layer->bias ? parameters[0] : NULL, *bias = layer->bias ? parameters[1] : NULL;
  if (layer->node == BPPSA_CNN_SOFTMAX) {
    const int64_t step = layer->axis == 0 ? s[1] * s[2] : layer->axis == 1 ? s[2] : 1, size = s[layer->axis];
    for (int64_t i = 0; i < all; ++i) {
      if (i / step % size == 0) {
        graph_group(layer, i, step, size, in, NULL, NULL, out);
      }
    }
    return;
  }
  int64_t size = all / (layer->node == BPPSA_CNN_GROUPNORM ? layer->op.groups : 1);
  for (int64_t k = 0; k < layer->extents && layer->node == BPPSA_CNN_LAYERNORM; ++k) {
    size = k == 0 ? layer->shape[0] : size * layer->shape[k];
  }
  for (int64_t first = 0; first < all; first += size) {
    graph_group(layer, first, 1, size, in, weight, bias, out);
  }
}

/* A value of a mul's input that may be repeated, at position v of the output. */
static inline double graph_repeated(const bppsa_cnn_layer *layer, const int64_t *in, const double *values, int64_t v) {
  const int64_t *out = layer->out;
  const int64_t at[3] = {v / (out[1] * out[2]) % in[0], v / out[2] % out[1] % in[1], v % out[2] % in[2]};
  return values[(at[0] * in[1] + at[1]) * in[2] + at[2]];
}

/* The place of value v of permute's input in its output. */
static inline int64_t graph_permuted(const bppsa_cnn_layer *layer, int64_t v) {
  const int64_t *in = layer->op.in, at[3] = {v / (in[1] * in[2]), v / in[2] % in[1], v % in[2]};
  const int64_t *order = layer->order;
  return (at[order[0]] * layer->out[1] + at[order[1]]) * layer->out[2] + at[order[2]];
}

/* The output of a layer that is no operator. */
static inline void graph_join(const bppsa_cnn_network *network, int64_t i, double *const *tensors, double *const *parameters,
                              double *out) {
  const bppsa_cnn_layer *layer = &network->layers[i];
  const int64_t plane = layer->out[1] * layer->out[2], size = layer->out[0] * plane;
  int64_t at = 0;
  if (layer->node >= BPPSA_CNN_SUMS) {
    memset(out, 0, (size_t)size * sizeof *out); /* nothing here reads the sums */
    if (layer->node > BPPSA_CNN_SUMS) {
      graph_normalised(layer, tensors[bppsa_cnn_input_of(network, i, 0) + 1], parameters, out);
    }
    return;
  }
  for (int64_t k = 0; k < bppsa_cnn_input_count(network, i); ++k) {
    const int64_t input = bppsa_cnn_input_of(network, i, k), tensor = input + 1;
    const int64_t *shape = input < 0 ? network->in : network->layers[input].out;
    const double *in = tensors[tensor];
    const int64_t count = layer->node == BPPSA_CNN_CONCAT ? bppsa_cnn_size(network, tensor) : size;
    for (int64_t v = 0; v < count; ++v) {
      double *to = &out[layer->node == BPPSA_CNN_PERMUTE ? graph_permuted(layer, v) : at + v];
      const double value = layer->node == BPPSA_CNN_SLICE ? in[layer->first * plane + v]
                           : layer->node == BPPSA_CNN_MUL ? graph_repeated(layer, shape, in, v)
                                                          : in[v];
      *to = k == 0 || layer->node == BPPSA_CNN_CONCAT ? value : layer->node == BPPSA_CNN_ADD ? *to + value : *to * value;
    }
    at += layer->node == BPPSA_CNN_CONCAT ? count : 0;
  }
}

/* Σ seed · logits over the samples of a problem, in float64. */
static inline double graph_loss(const problem *p) {
  const bppsa_cnn_network *network = &p->network;
  double *tensors[2 * GRAPH_TENSORS + 1], loss = 0; /* a normalisation is two layers */
  for (int64_t b = 0; b < p->batch; ++b) {
    double *const *parameters = p->parameters;
    tensors[0] = p->x + b * bppsa_cnn_size(network, 0);
    for (int64_t i = 0; i < network->count; ++i) {
      const bppsa_cnn_layer *layer = &network->layers[i];
      const int64_t size = bppsa_cnn_size(network, i + 1), plane = layer->out[1] * layer->out[2];
      tensors[i + 1] = bppsa_alloc((size_t)size * sizeof(double));
      if (layer->node != BPPSA_CNN_OPERATOR) {
        graph_join(network, i, tensors, parameters, tensors[i + 1]);
        parameters += bppsa_cnn_parameters(layer);
        continue;
      }
      forward_op f = {.op = layer->op, .weights = bppsa_cnn_has_weights(layer) ? *parameters++ : NULL};
      memcpy(f.out, layer->out, sizeof f.out);
      forward_run(&f, tensors[bppsa_cnn_input_of(network, i, 0) + 1], tensors[i + 1]);
      for (int64_t k = 0; layer->bias && k < size; ++k) {
        tensors[i + 1][k] += (*parameters)[k / plane];
      }
      parameters += layer->bias;
    }
    const int64_t classes = bppsa_cnn_size(network, network->count);
    for (int64_t k = 0; k < classes; ++k) {
      loss += p->seed[b * classes + k] * tensors[network->count][k];
    }
    for (int64_t i = 1; i <= network->count; ++i) {
      bppsa_free(tensors[i]);
    }
  }
  return loss;
}

#endif

/* The order of a graph's layers. */
#include <string.h>

#include "cnn/network_internal.h"
#include "core/base/alloc.h"

/* The layers of a file on their way into a network. */
typedef struct {
  const char *where;
  int64_t count;
  const bppsa_cnn_entry *entries;
  int64_t *order; /* the place in the file of the network's layer i, size count */
  int32_t *place; /* the reverse: where a layer of the file went; -1: not yet */
} ordering;

/* The name of the layer in the file: the sums of a normalisation have that of the layer that reads them. */
static const char *name_of(const bppsa_cnn_entry *entry) {
  return entry[entry->layer.node == BPPSA_CNN_SUMS ? 1 : 0].layer.name;
}

static bppsa_status fail_layer(const ordering *o, int64_t i, bppsa_status status) {
  return bppsa_fail_prefix(status, "%s: layer '%s'", o->where, name_of(&o->entries[i]));
}

/* ---- chains ---- */

static bool is_chain(int64_t count, const bppsa_cnn_entry *entries) {
  for (int64_t i = 0; i < count; ++i) {
    if (entries[i].layer.node != BPPSA_CNN_OPERATOR || entries[i].input_count != 1 || entries[i].inputs[0] != i - 1) {
      return false;
    }
  }
  return true;
}

static bppsa_status add_chain(const ordering *o, bppsa_cnn_network *network) {
  for (int64_t i = 0; i < o->count; ++i) {
    bppsa_cnn_layer layer = o->entries[i].layer;
    const bppsa_status status = bppsa_cnn_network_add(network, &layer);
    BPPSA_TRY(status == BPPSA_OK ? BPPSA_OK : fail_layer(o, i, status));
  }
  return BPPSA_OK;
}

/* ---- readers and order ---- */

/* Every layer but the head must be read, and so must the network's input; the head is read by none. */
static bppsa_status check_readers(const ordering *o) {
  int64_t *readers = bppsa_calloc(o->count + 1, sizeof *readers); /* of the input, then of the layers */
  if (readers == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = BPPSA_OK;
  const int64_t head = o->count - 1;
  for (int64_t i = 0; i < o->count; ++i) {
    for (int64_t k = 0; k < o->entries[i].input_count; ++k) {
      ++readers[o->entries[i].inputs[k] + 1];
      if (o->entries[i].inputs[k] == head && status == BPPSA_OK) {
        status =
            fail_layer(o, i,
                       bppsa_fail(BPPSA_ERR_FORMAT, "reads '%s', the last layer of the file, expected none to read this head",
                                  o->entries[head].layer.name));
      }
    }
  }
  if (status == BPPSA_OK && readers[0] == 0) {
    status = bppsa_fail(BPPSA_ERR_FORMAT, "%s: no layer reads \"input\", expected one at least", o->where);
  }
  for (int64_t i = 0; status == BPPSA_OK && i < head; ++i) {
    if (readers[i + 1] == 0) {
      status = fail_layer(o, i, bppsa_fail(BPPSA_ERR_FORMAT, "no layer reads it, expected one at least"));
    }
  }
  bppsa_free(readers);
  return status;
}

/* The first input of layer i that is not in order yet, or -1. */
static int64_t waits_for(const ordering *o, int64_t i) {
  for (int64_t k = 0; k < o->entries[i].input_count; ++k) {
    const int32_t input = o->entries[i].inputs[k];
    if (input >= 0 && o->place[input] < 0) {
      return input;
    }
  }
  return -1;
}

/* Follows the layers that wait for each other until one comes again, which is in a circle. */
static bppsa_status fail_circle(const ordering *o) {
  int64_t at = 0;
  while (o->place[at] >= 0) {
    ++at;
  }
  for (int64_t i = 0; i < o->count; ++i) { /* so many steps end inside a circle */
    at = waits_for(o, at);
  }
  return fail_layer(o, at,
                    bppsa_fail(BPPSA_ERR_FORMAT, "its inputs lead back to it by '%s', expected layers without a circle",
                               name_of(&o->entries[waits_for(o, at)])));
}

/* Takes, again and again, the first layer of the file whose inputs are all in order. */
static bppsa_status sort_layers(ordering *o) {
  for (int64_t i = 0; i < o->count; ++i) {
    o->place[i] = -1;
  }
  for (int64_t done = 0; done < o->count; ++done) {
    int64_t next = 0;
    while (next < o->count && (o->place[next] >= 0 || waits_for(o, next) >= 0)) {
      ++next;
    }
    if (next == o->count) {
      return fail_circle(o);
    }
    o->order[done] = next;
    o->place[next] = (int32_t)done;
  }
  return BPPSA_OK;
}

/* ---- layers ---- */

/* Appends a layer whose inputs are there already. */
static bppsa_status add_layer(bppsa_cnn_network *network, const bppsa_cnn_layer *from) {
  bppsa_cnn_layer layer = *from;
  const int64_t i = network->count;
  const int64_t input = bppsa_cnn_input_of(network, i, 0);
  memcpy(layer.op.in, input < 0 ? network->in : network->layers[input].out, sizeof layer.op.in);
  BPPSA_TRY(layer.node == BPPSA_CNN_OPERATOR ? bppsa_cnn_operator_shape(&layer) : bppsa_cnn_node_shape(network, i, &layer));
  network->layers[network->count++] = layer;
  return BPPSA_OK;
}

static bppsa_status add_graph(const ordering *o, bppsa_cnn_network *network) {
  int64_t edges = 0;
  for (int64_t i = 0; i < o->count; ++i) {
    edges += o->entries[i].input_count;
  }
  network->input_ptr = bppsa_calloc(o->count + 1, sizeof *network->input_ptr);
  network->inputs = bppsa_calloc(edges, sizeof *network->inputs);
  if (network->input_ptr == NULL || network->inputs == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < o->count; ++i) {
    const bppsa_cnn_entry *entry = &o->entries[o->order[i]];
    int32_t *inputs = network->inputs + network->input_ptr[i];
    for (int64_t k = 0; k < entry->input_count; ++k) {
      inputs[k] = entry->inputs[k] < 0 ? -1 : o->place[entry->inputs[k]];
    }
    network->input_ptr[i + 1] = network->input_ptr[i] + entry->input_count;
    const bppsa_status status = add_layer(network, &entry->layer);
    BPPSA_TRY(status == BPPSA_OK ? BPPSA_OK : fail_layer(o, o->order[i], status));
  }
  return BPPSA_OK;
}

static bppsa_status order_entries(ordering *o, bppsa_cnn_network *network) {
  if (is_chain(o->count, o->entries)) {
    return add_chain(o, network);
  }
  o->order = bppsa_calloc(o->count, sizeof *o->order);
  o->place = bppsa_calloc(o->count, sizeof *o->place);
  bppsa_status status = o->order == NULL || o->place == NULL ? BPPSA_ERR_MEMORY : check_readers(o);
  status = status == BPPSA_OK ? sort_layers(o) : status;
  status = status == BPPSA_OK ? add_graph(o, network) : status;
  bppsa_free(o->order);
  bppsa_free(o->place);
  return status;
}

bppsa_status bppsa_cnn_network_order(const char *where, int64_t count, const bppsa_cnn_entry *entries,
                                     bppsa_cnn_network *network) {
  bppsa_cnn_entry *expanded = NULL;
  int64_t total = count;
  BPPSA_TRY(bppsa_cnn_entries_expand(where, count, entries, &total, &expanded));
  ordering o = {.where = where, .count = total, .entries = expanded != NULL ? expanded : entries};
  bppsa_status status = bppsa_cnn_network_reserve(total, network);
  status = status == BPPSA_OK ? order_entries(&o, network) : status;
  bppsa_cnn_entries_free(total, expanded);
  return status;
}

bppsa_status bppsa_cnn_network_check_head(const char *where, const bppsa_cnn_network *network) {
  const bppsa_cnn_layer *head = &network->layers[network->count - 1];
  return head->op.kind == BPPSA_OPERATOR_LINEAR
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: layer '%s': the last operator is %s, expected linear, the head", where,
                          head->name, bppsa_cnn_layer_word(head));
}

/* ---- another input ---- */

bppsa_status bppsa_cnn_network_reshape(bppsa_cnn_network *network, const int64_t in[3]) {
  BPPSA_REQUIRE(network != NULL && network->layers != NULL && in != NULL);
  bppsa_cnn_network made;
  BPPSA_TRY(bppsa_cnn_network_copy(network, &made));
  memcpy(made.in, in, sizeof made.in);
  made.count = 0;
  bppsa_status status = BPPSA_OK;
  while (status == BPPSA_OK && made.count < network->count) {
    status = add_layer(&made, &network->layers[made.count]);
  }
  if (status != BPPSA_OK) {
    status = bppsa_fail_prefix(status, "%s: layer '%s'", made.name, network->layers[made.count].name);
    bppsa_cnn_network_free(&made);
    return status;
  }
  bppsa_cnn_network_free(network);
  *network = made;
  return BPPSA_OK;
}

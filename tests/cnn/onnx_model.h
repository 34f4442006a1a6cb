/* Writes ONNX models by the wire format of protocol buffers, for the tests and the fuzzer of their reader: a model is a text that
 * grows, message by message, with no library for it. */
#ifndef BPPSA_TESTS_CNN_ONNX_MODEL_H
#define BPPSA_TESTS_CNN_ONNX_MODEL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  uint8_t *data;
  size_t size, room;
} wire;

static inline void wire_add(wire *w, const void *bytes, size_t size) {
  if (w->size + size > w->room) {
    w->room = 2 * (w->size + size) + 64;
    w->data = realloc(w->data, w->room);
    if (w->data == NULL) {
      abort();
    }
  }
  if (size > 0) {
    memcpy(w->data + w->size, bytes, size);
  }
  w->size += size;
}

static inline void wire_varint(wire *w, uint64_t value) {
  do {
    const uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    wire_add(w, &byte, 1);
    value >>= 7;
  } while (value > 0);
}

static inline void wire_whole(wire *w, int field, int64_t value) {
  wire_varint(w, (uint64_t)field << 3);
  wire_varint(w, (uint64_t)value);
}

static inline void wire_bytes(wire *w, int field, const void *bytes, size_t size) {
  wire_varint(w, ((uint64_t)field << 3) | 2);
  wire_varint(w, size);
  wire_add(w, bytes, size);
}

static inline void wire_text(wire *w, int field, const char *text) {
  wire_bytes(w, field, text, strlen(text));
}

/* Adds a message, which is freed. */
static inline void wire_message(wire *w, int field, wire *message) {
  wire_bytes(w, field, message->data, message->size);
  free(message->data);
  *message = (wire){NULL, 0, 0};
}

/* ---- tensors, attributes, nodes ---- */

enum { ONNX_F32 = 1, ONNX_I64 = 7, ONNX_F64 = 11 };

/* A tensor; `raw`: its elements are bytes, otherwise they stand in the field of their type. */
static inline wire onnx_tensor_of(const char *name, int type, int axes, const int64_t *dims, const void *elements, int raw) {
  wire t = {NULL, 0, 0};
  size_t count = 1;
  for (int i = 0; i < axes; ++i) {
    wire_whole(&t, 1, dims[i]);
    count *= (size_t)dims[i];
  }
  wire_whole(&t, 2, type);
  if (name[0] != '\0') {
    wire_text(&t, 8, name);
  }
  const size_t size = type == ONNX_F32 ? 4 : 8;
  if (raw) {
    wire_bytes(&t, 9, elements, count * size);
  } else if (type == ONNX_I64) {
    for (size_t i = 0; i < count; ++i) {
      wire_whole(&t, 7, ((const int64_t *)elements)[i]);
    }
  } else {
    wire_bytes(&t, type == ONNX_F32 ? 4 : 10, elements, count * size); /* packed */
  }
  return t;
}

/* What a graph is made of, while it is written. */
typedef struct {
  wire graph;
  wire node; /* the node that is open */
  uint64_t random;
} onnx_model;

static inline void onnx_initializer(onnx_model *m, const char *name, int type, int axes, const int64_t *dims,
                                    const void *elements) {
  m->random += 1;
  wire t = onnx_tensor_of(name, type, axes, dims, elements, (int)(m->random % 2));
  wire_message(&m->graph, 5, &t);
}

/* Reals from -0.5 to 0.5 that depend on the order of calls alone. */
static inline void onnx_weight(onnx_model *m, const char *name, int axes, const int64_t *dims) {
  size_t count = 1;
  for (int i = 0; i < axes; ++i) {
    count *= (size_t)dims[i];
  }
  float *elements = malloc(count * sizeof *elements + 1);
  for (size_t i = 0; elements != NULL && i < count; ++i) {
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    elements[i] = (float)(int32_t)(m->random >> 40) / 16777216.0f - 0.5f;
  }
  onnx_initializer(m, name, ONNX_F32, axes, dims, elements);
  free(elements);
}

static inline void onnx_wholes(onnx_model *m, const char *name, int count, const int64_t *numbers) {
  onnx_initializer(m, name, ONNX_I64, 1, &(int64_t){count}, numbers);
}

static inline void onnx_real(onnx_model *m, const char *name, float number) {
  onnx_initializer(m, name, ONNX_F32, 0, NULL, &number);
}

/* Opens a node; names are separated by spaces, "-" is an input that is left out. */
static inline void onnx_open(onnx_model *m, const char *name, const char *op, const char *inputs, const char *outputs) {
  const char *const lists[2] = {inputs, outputs};
  for (int k = 0; k < 2; ++k) {
    for (const char *at = lists[k]; *at != '\0'; at += strspn(at, " ")) {
      const size_t length = strcspn(at, " ");
      wire_bytes(&m->node, k + 1, at, length == 1 && *at == '-' ? 0 : length);
      at += length;
    }
  }
  wire_text(&m->node, 3, name);
  wire_text(&m->node, 4, op);
}

static inline void onnx_attribute_ints(onnx_model *m, const char *name, int count, const int64_t *numbers) {
  wire a = {NULL, 0, 0};
  wire_text(&a, 1, name);
  for (int i = 0; i < count; ++i) {
    wire_whole(&a, 8, numbers[i]);
  }
  wire_message(&m->node, 5, &a);
}

static inline void onnx_attribute_int(onnx_model *m, const char *name, int64_t number) {
  wire a = {NULL, 0, 0};
  wire_text(&a, 1, name);
  wire_whole(&a, 3, number);
  wire_message(&m->node, 5, &a);
}

static inline void onnx_attribute_real(onnx_model *m, const char *name, float number) {
  wire a = {NULL, 0, 0};
  wire_text(&a, 1, name);
  wire_varint(&a, (2u << 3) | 5);
  wire_add(&a, &number, 4);
  wire_message(&m->node, 5, &a);
}

static inline void onnx_attribute_text(onnx_model *m, const char *name, const char *text) {
  wire a = {NULL, 0, 0};
  wire_text(&a, 1, name);
  wire_text(&a, 4, text);
  wire_message(&m->node, 5, &a);
}

static inline void onnx_close(onnx_model *m) {
  wire_message(&m->graph, 1, &m->node);
}

/* A node without attributes. */
static inline void onnx_node_of(onnx_model *m, const char *name, const char *op, const char *inputs, const char *outputs) {
  onnx_open(m, name, op, inputs, outputs);
  onnx_close(m);
}

/* The graph's input (field 11) or output (12); dims of 0 are left unknown, called N. */
static inline void onnx_value_info(onnx_model *m, int field, const char *name, int axes, const int64_t *dims) {
  wire info = {NULL, 0, 0}, type = {NULL, 0, 0}, tensor = {NULL, 0, 0}, shape = {NULL, 0, 0};
  for (int i = 0; i < axes; ++i) {
    wire dim = {NULL, 0, 0};
    if (dims[i] == 0) {
      wire_text(&dim, 2, "N");
    } else {
      wire_whole(&dim, 1, dims[i]);
    }
    wire_message(&shape, 1, &dim);
  }
  wire_whole(&tensor, 1, ONNX_F32);
  wire_message(&tensor, 2, &shape);
  wire_message(&type, 1, &tensor);
  wire_text(&info, 1, name);
  wire_message(&info, 2, &type);
  wire_message(&m->graph, field, &info);
}

/* Ends the model: what it is made of becomes a file's bytes, which the caller frees. */
static inline wire onnx_finish(onnx_model *m, int64_t opset) {
  wire model = {NULL, 0, 0}, set = {NULL, 0, 0};
  wire_whole(&model, 1, 8);
  wire_text(&set, 1, "");
  wire_whole(&set, 2, opset);
  wire_message(&model, 8, &set);
  wire_message(&model, 7, &m->graph);
  return model;
}

#endif

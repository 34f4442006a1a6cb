/* Readers: cnn/onnx_read.c, cnn/onnx_tensors.c, cnn/onnx_nodes.c, cnn/onnx_layers.c, cnn/onnx_moves.c, cnn/onnx_joins.c and
 * cnn/onnx_names.c. Options: 0 the part is a file; 1 the parts are the initializers, the nodes and the input of a graph of
 * opset 21, whose output is called "logits". */
#include "cnn/onnx.h"
#include "tests/cnn/onnx_model.h"
#include "tests/fuzz/fuzz.h"

static void check(const bppsa_cnn_network *network, const bppsa_safetensors *weights) {
  FUZZ_CHECK(network->count >= 1 && network->layers[network->count - 1].op.kind == BPPSA_OPERATOR_LINEAR);
  for (int64_t i = 0; i < network->count; ++i) {
    FUZZ_CHECK(strlen(network->layers[i].name) > 0 && bppsa_cnn_size(network, i + 1) >= 1);
    for (int64_t k = 0; k < bppsa_cnn_parameters(&network->layers[i]); ++k) { /* every parameter is there, with its shape */
      char name[BPPSA_CNN_PARAMETER];
      const bppsa_parameter wanted = bppsa_cnn_parameter(&network->layers[i], k, BPPSA_F32, name);
      const bppsa_view *found = bppsa_safetensors_find(weights, name);
      FUZZ_CHECK(found != NULL && bppsa_view_same_shape(found, &wanted.value));
    }
  }
}

bppsa_status fuzz_run(const fuzz_input *input) {
  wire file = {NULL, 0, 0};
  if (input->options % 2 == 0) {
    wire_add(&file, input->part[0].data, input->part[0].size);
  } else {
    onnx_model m = {.random = 1};
    for (int i = 0; i < 3; ++i) {
      wire_add(&m.graph, input->part[i].data, input->part[i].size);
    }
    onnx_value_info(&m, 12, "logits", 2, (const int64_t[]){0, 2});
    file = onnx_finish(&m, 21);
  }
  char path[256];
  snprintf(path, sizeof path, "%s", fuzz_file("model.onnx", file.data, file.size));
  free(file.data);
  bppsa_cnn_network network = {0};
  bppsa_safetensors *weights = NULL;
  const bppsa_status status = bppsa_cnn_onnx_load(path, &network, &weights);
  FUZZ_CHECK((status == BPPSA_OK) == (weights != NULL));
  if (status == BPPSA_OK) {
    check(&network, weights);
  }
  bppsa_cnn_network_free(&network);
  bppsa_safetensors_destroy(weights);
  return status;
}

/* ---- seeds ---- */

static void add_part(fuzz_bytes *seed, wire *w) {
  fuzz_add_part(seed, w->data, w->size);
  free(w->data);
  *w = (wire){NULL, 0, 0};
}

/* Most operators once, on two channels of 4 x 4. */
static void write_nodes(onnx_model *m) {
  onnx_open(m, "/a/Conv", "Conv", "x w v", "y1");
  onnx_attribute_text(m, "auto_pad", "SAME_LOWER");
  onnx_close(m);
  onnx_node_of(m, "/b/BatchNormalization", "BatchNormalization", "y1 v v v v", "y2");
  onnx_node_of(m, "s", "Sigmoid", "y2", "s");
  onnx_node_of(m, "t", "Mul", "y2 s", "y3");
  onnx_node_of(m, "add", "Add", "y3 x", "y4");
  onnx_open(m, "split", "Split", "y4", "y5 y6");
  onnx_attribute_int(m, "axis", 1);
  onnx_close(m);
  onnx_open(m, "concat", "Concat", "y6 y5 y4", "y7");
  onnx_attribute_int(m, "axis", 1);
  onnx_close(m);
  onnx_open(m, "pool", "MaxPool", "y7", "y8");
  onnx_attribute_ints(m, "kernel_shape", 2, (const int64_t[]){2, 2});
  onnx_close(m);
  onnx_node_of(m, "shape", "Shape", "y8", "n");
  onnx_node_of(m, "gather", "Gather", "n zero", "b");
  onnx_node_of(m, "unsqueeze", "Unsqueeze", "b zeros", "c");
  onnx_open(m, "dims", "Concat", "c rest", "d");
  onnx_attribute_int(m, "axis", 0);
  onnx_close(m);
  onnx_node_of(m, "view", "Reshape", "y8 d", "y9");
  onnx_open(m, "transpose", "Transpose", "y9", "y10");
  onnx_attribute_ints(m, "perm", 3, (const int64_t[]){0, 2, 1});
  onnx_close(m);
  onnx_node_of(m, "softmax", "Softmax", "y10", "y11");
  onnx_node_of(m, "div", "Div", "y11 root", "e1");
  onnx_node_of(m, "erf", "Erf", "e1", "e2");
  onnx_node_of(m, "one", "Add", "e2 one", "e3");
  onnx_node_of(m, "times", "Mul", "y11 e3", "e4");
  onnx_node_of(m, "gelu", "Mul", "e4 half", "y12");
  onnx_node_of(m, "flatten", "Flatten", "y12", "y13");
  onnx_node_of(m, "matmul", "MatMul", "y13 u", "y14");
  onnx_node_of(m, "bias", "Add", "y14 v", "logits");
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  onnx_model m = {.random = 3};
  if (index > 1) {
    return false;
  }
  fuzz_add_number(seed, index == 0, 1);
  onnx_weight(&m, "w", 4, (const int64_t[]){2, 2, 3, 3});
  onnx_weight(&m, "v", 1, (const int64_t[]){2});
  onnx_weight(&m, "u", 2, (const int64_t[]){36, 2});
  onnx_real(&m, "root", 1.41421356f);
  onnx_real(&m, "one", 1);
  onnx_real(&m, "half", 0.5f);
  onnx_initializer(&m, "zero", ONNX_I64, 0, NULL, (const int64_t[]){0});
  onnx_wholes(&m, "zeros", 1, (const int64_t[]){0});
  onnx_wholes(&m, "rest", 2, (const int64_t[]){4, -1});
  if (index == 0) {
    add_part(seed, &m.graph);
  }
  write_nodes(&m);
  if (index == 0) {
    add_part(seed, &m.graph);
  }
  onnx_value_info(&m, 11, "x", 4, (const int64_t[]){0, 2, 4, 4});
  if (index == 0) {
    add_part(seed, &m.graph);
    return true;
  }
  onnx_value_info(&m, 12, "logits", 2, (const int64_t[]){0, 2});
  wire file = onnx_finish(&m, 13);
  add_part(seed, &file);
  return true;
}

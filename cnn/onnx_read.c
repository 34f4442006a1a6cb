/* ONNX files: the model, its input and output, its nodes in order, and the network that comes of them. */
#include "cnn/onnx.h"

#include <inttypes.h>
#include <string.h>

#include "cnn/onnx_internal.h"
#include "cnn/onnx_library.h"
#include "core/base/alloc.h"
#include "core/files/file.h"

enum { SHOWN = 60 };

/* ---- the model ---- */

/* context: a bool, which becomes true where there is no memory. */
static void *take_memory(void *context, size_t size) {
  void *memory = bppsa_alloc(size);
  *(bool *)context = *(bool *)context || memory == NULL;
  return memory;
}

static void give_memory(void *context, void *pointer) {
  (void)context;
  bppsa_free(pointer);
}

static ProtobufCAllocator allocator(bool *failed) {
  return (ProtobufCAllocator){.alloc = take_memory, .free = give_memory, .allocator_data = failed};
}

/* Parses a file, whose bytes are not kept. */
static bppsa_status parse(const char *path, BppsaOnnx__Model **model) {
  bool failed = false;
  ProtobufCAllocator memory = allocator(&failed);
  char *data = NULL;
  int64_t size = 0;
  BPPSA_TRY(bppsa_onnx_library_load());
  BPPSA_TRY(bppsa_file_read(path, INT32_MAX, &data, &size)); /* protobuf's own limit */
  BppsaOnnx__Model *parsed = bppsa_onnx__model__unpack(&memory, (size_t)size, (const uint8_t *)data);
  bppsa_free(data);
  if (parsed == NULL) {
    return failed ? bppsa_fail_prefix(BPPSA_ERR_MEMORY, "%s", path)
                  : bppsa_fail(BPPSA_ERR_FORMAT, "%s: %" PRId64 " bytes that are no ONNX model, expected one", path, size);
  }
  *model = parsed;
  return BPPSA_OK;
}

static bppsa_status check_opset(const BppsaOnnx__Model *model, int64_t *opset) {
  *opset = 0;
  for (size_t i = 0; i < model->n_opset_import; ++i) {
    const char *domain = model->opset_import[i]->domain;
    *opset = domain == NULL || domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0 ? model->opset_import[i]->version : *opset;
  }
  return *opset >= BPPSA_ONNX_FIRST && *opset <= BPPSA_ONNX_LAST
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "opset %" PRId64 ", expected %d to %d", *opset, BPPSA_ONNX_FIRST,
                          BPPSA_ONNX_LAST);
}

/* ---- constants, input ---- */

static bppsa_status read_initializers(onnx_reader *r, const BppsaOnnx__Graph *graph) {
  for (size_t i = 0; i < graph->n_initializer; ++i) {
    onnx_value value = {.constant = true};
    const char *name = graph->initializer[i]->name;
    BPPSA_TRY(bppsa_onnx_tensor(r, graph->initializer[i], &value.view));
    BPPSA_TRY(bppsa_onnx_define_name(r, name != NULL ? name : "", value));
  }
  return BPPSA_OK;
}

/* Takes the shape [N, C, ..] of the network's input. */
static bppsa_status take_shape(onnx_reader *r, const BppsaOnnx__ValueInfo *info) {
  const BppsaOnnx__TensorType *type = info->type != NULL ? info->type->tensor_type : NULL;
  const BppsaOnnx__Shape *shape = type != NULL ? type->shape : NULL;
  const size_t axes = shape != NULL ? shape->n_dim : 0;
  if (axes < 2 || axes > 4) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%zu axes, expected [N, C], [N, C, L] or [N, C, H, W]", axes);
  }
  int64_t dims[3] = {1, 1, 1};
  for (size_t i = 1; i < axes; ++i) {
    const BppsaOnnx__Dimension *dim = shape->dim[i];
    if (!dim->has_dim_value || dim->dim_value < 1) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "axis %zu is '%.40s', expected a number", i,
                        dim->dim_param != NULL ? dim->dim_param : "?");
    }
    dims[i - 1] = dim->dim_value;
  }
  r->network.in[0] = dims[0];
  r->network.in[1] = axes == 4 ? dims[1] : 1;
  r->network.in[2] = axes == 4 ? dims[2] : dims[1];
  r->batch = shape->dim[0]->has_dim_value && shape->dim[0]->dim_value > 0 ? shape->dim[0]->dim_value : ONNX_UNKNOWN_BATCH;
  bppsa_op whole = bppsa_op_default(BPPSA_OPERATOR_RELU); /* checks the number of values */
  memcpy(whole.in, r->network.in, sizeof whole.in);
  BPPSA_TRY(bppsa_op_shape(&whole, dims));
  return bppsa_onnx_define_name(r, info->name, (onnx_value){.layer = -1, .axes = (int)axes});
}

/* The one input that is no initializer. */
static bppsa_status read_input(onnx_reader *r, const BppsaOnnx__Graph *graph) {
  const BppsaOnnx__ValueInfo *found = NULL;
  for (size_t i = 0; i < graph->n_input; ++i) {
    const char *name = graph->input[i]->name;
    if (name == NULL || json_object_get(r->names, name) != NULL) {
      continue;
    }
    if (found != NULL) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "inputs '%.40s' and '%.40s', expected one", found->name, name);
    }
    found = graph->input[i];
  }
  if (found == NULL) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "no input, expected one");
  }
  const bppsa_status status = take_shape(r, found);
  return status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(status, "input '%.*s'", SHOWN, found->name);
}

/* ---- nodes ---- */

/* Counts how many inputs of nodes each name is; the graph's output counts too. */
static bppsa_status count_reader(onnx_reader *r, const char *name) {
  const json_int_t before = json_integer_value(json_object_get(r->readers, name));
  return json_object_set_new(r->readers, name, json_integer(before + 1)) == 0 || !bppsa_json_out_of_memory()
             ? BPPSA_OK /* a name that is no UTF-8 is refused where it is given */
             : BPPSA_ERR_MEMORY;
}

static bppsa_status count_readers(onnx_reader *r, const BppsaOnnx__Graph *graph) {
  for (size_t i = 0; i < graph->n_node; ++i) {
    for (size_t k = 0; k < graph->node[i]->n_input; ++k) {
      BPPSA_TRY(count_reader(r, graph->node[i]->input[k]));
    }
  }
  return graph->n_output == 1 && graph->output[0]->name != NULL ? count_reader(r, graph->output[0]->name) : BPPSA_OK;
}

static bppsa_status read_nodes(onnx_reader *r, const BppsaOnnx__Graph *graph) {
  for (size_t i = 0; i < graph->n_node; ++i) {
    r->node = graph->node[i];
    const bppsa_status status = bppsa_onnx_read_node(r);
    if (status != BPPSA_OK) {
      const char *name = r->node->name != NULL ? r->node->name : "", *word = r->node->op_type != NULL ? r->node->op_type : "";
      return bppsa_fail_prefix(status, "node %zu, '%.*s' (%.40s)", i, SHOWN, name, word);
    }
  }
  return BPPSA_OK;
}

/* The output must be what the last layer gives: the head. */
static bppsa_status check_output(const onnx_reader *r, const BppsaOnnx__Graph *graph) {
  if (graph->n_output != 1 || graph->output[0]->name == NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%zu outputs, expected one", graph->n_output);
  }
  const json_t *place = json_object_get(r->names, graph->output[0]->name);
  const onnx_value *value = place != NULL ? &r->values[json_integer_value(place)] : NULL;
  return value != NULL && !value->constant && value->step == ONNX_PLAIN && value->layer >= 0 &&
                 value->layer + 1 == r->network.count
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "output '%.60s' is not what the last layer gives, expected that",
                          graph->output[0]->name);
}

static bppsa_status read_graph(onnx_reader *r, const BppsaOnnx__Graph *graph) {
  if (graph == NULL) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "no graph, expected an ONNX model with one");
  }
  BPPSA_TRY(read_initializers(r, graph));
  BPPSA_TRY(read_input(r, graph));
  BPPSA_TRY(count_readers(r, graph));
  BPPSA_TRY(read_nodes(r, graph));
  return check_output(r, graph);
}

/* ---- the network ---- */

/* Hands the layers over, as the reader of network files does. */
static bppsa_status order(onnx_reader *r, bppsa_cnn_network *network) {
  const bppsa_cnn_network *from = &r->network;
  bppsa_cnn_entry *entries = bppsa_calloc(from->count, sizeof *entries);
  bppsa_status status = entries == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < from->count; ++i) {
    entries[i] =
        (bppsa_cnn_entry){from->layers[i], from->inputs + from->input_ptr[i], from->input_ptr[i + 1] - from->input_ptr[i]};
  }
  status = status == BPPSA_OK ? bppsa_cnn_network_order(r->path, from->count, entries, network) : status;
  bppsa_free(entries);
  return status == BPPSA_OK ? bppsa_cnn_network_check_head(r->path, network) : status;
}

static bppsa_status hand_over(onnx_reader *r, bppsa_cnn_network *network, bppsa_safetensors **weights) {
  bppsa_cnn_network made = {.name = "network"};
  bppsa_safetensors *file = NULL;
  memcpy(made.in, r->network.in, sizeof made.in);
  bppsa_named_view *views = bppsa_calloc(r->weight_count, sizeof *views);
  bppsa_status status = views == NULL ? BPPSA_ERR_MEMORY : order(r, &made);
  for (int64_t i = 0; status == BPPSA_OK && i < r->weight_count; ++i) {
    views[i] = (bppsa_named_view){r->weights[i].name, r->weights[i].view};
  }
  status = status == BPPSA_OK && weights != NULL ? bppsa_safetensors_make(r->weight_count, views, &file) : status;
  bppsa_free(views);
  if (status != BPPSA_OK) {
    bppsa_cnn_network_free(&made);
    return status;
  }
  if (network != NULL) {
    *network = made;
  } else {
    bppsa_cnn_network_free(&made);
  }
  if (weights != NULL) {
    *weights = file;
  }
  return BPPSA_OK;
}

static void free_reader(onnx_reader *r) {
  bppsa_cnn_network_free(&r->network);
  json_decref(r->names);
  json_decref(r->readers);
  json_decref(r->layer_names);
  bppsa_free(r->values);
  bppsa_free(r->weights);
  for (int64_t i = 0; i < r->owned_count; ++i) {
    bppsa_free(r->owned[i]);
  }
  bppsa_free((void *)r->owned);
}

bppsa_status bppsa_cnn_onnx_load(const char *path, bppsa_cnn_network *network, bppsa_safetensors **weights) {
  BPPSA_REQUIRE(path != NULL);
  bool failed = false;
  ProtobufCAllocator memory = allocator(&failed);
  BppsaOnnx__Model *model = NULL;
  BPPSA_TRY(parse(path, &model));
  onnx_reader r = {.path = path, .names = json_object(), .readers = json_object(), .layer_names = json_object()};
  bppsa_status status = r.names == NULL || r.readers == NULL || r.layer_names == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  status = status == BPPSA_OK ? check_opset(model, &r.opset) : status;
  status = status == BPPSA_OK ? read_graph(&r, model->graph) : status;
  status = status == BPPSA_OK || status == BPPSA_ERR_MEMORY ? status : bppsa_fail_prefix(status, "%s", path);
  status = status == BPPSA_OK ? hand_over(&r, network, weights) : status;
  free_reader(&r);
  bppsa_onnx__model__free_unpacked(model, &memory);
  return status;
}

/* Convolutional networks: configuration, parameters, memory, the scan's plan. (The file is long because each of these counts its
 * memory before it allocates it, by the same visits.) */
#include <string.h>

#include "cnn/choose.h"
#include "cnn/cnn_internal.h"
#include "cnn/merge.h"
#include "cnn/norm.h"
#include "core/base/alloc.h"
#include "core/compute/memory.h"

bppsa_cnn_config bppsa_cnn_config_default(void) {
  return (bppsa_cnn_config){.batch = 256, .dtype = BPPSA_F32, .method.scan = bppsa_scan_method_of(BPPSA_SCAN_AUTO)};
}

const bppsa_scan_plan *bppsa_cnn_plan(const bppsa_model *model) {
  return ((const cnn *)model)->plan;
}

static bppsa_status check_order(const bppsa_cnn_config *c, const bppsa_device *device) {
  if ((unsigned)c->weight_gradients > BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "unknown order of weight gradients %d", (int)c->weight_gradients);
  }
  if (c->weight_gradients == BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM && c->method.backward != BPPSA_BACKWARD_BP) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "weight gradients on a second stream beside %s, expected sequential BP",
                      c->method.backward == BPPSA_BACKWARD_SCAN ? "a scan" : "a method left to auto");
  }
  return c->weight_gradients == BPPSA_WEIGHT_GRADIENTS_IN_ORDER || bppsa_device_get_kind(device) == BPPSA_CUDA
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "weight gradients on a second stream: device %s has no streams, expected a GPU",
                          bppsa_device_get_name(device));
}

static bppsa_status check_config(const bppsa_cnn_network *network, const bppsa_cnn_config *c, const bppsa_device *device) {
  if (network->count < 1 || network->layers[network->count - 1].op.kind != BPPSA_OPERATOR_LINEAR) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "network: no linear operator at its end, expected one");
  }
  BPPSA_TRY(c->factory.create != NULL ? bppsa_cnn_require_chain(network, "a scan shared by ranks") : BPPSA_OK);
  if (c->batch < 1 || c->batch > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "batch is %lld, expected 1 .. 2147483647", (long long)c->batch);
  }
  if (c->dtype != BPPSA_F32 && c->dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "dtype is %s, expected f32 or f64", bppsa_dtype_name(c->dtype));
  }
  if ((unsigned)c->method.backward > BPPSA_BACKWARD_SCAN || c->memory_limit < 0 || c->optimizer_slots < 0 || c->mask_count < 0 ||
      c->delayed < 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "unknown backward %d, or a negative memory limit, number of optimizer slots, of masks or of layers put off",
                      (int)c->method.backward);
  }
  return check_order(c, device);
}

/* ---- layers and parameters ---- */

static bool is_gpu(const cnn *n) {
  return bppsa_device_get_kind(n->device) == BPPSA_CUDA;
}

static bppsa_status describe_layers(cnn *n) {
  int64_t parameter = 0;
  for (int64_t i = 0; i < n->network.count; ++i) {
    cnn_layer *layer = &n->layers[i];
    layer->about = &n->network.layers[i];
    layer->in = bppsa_cnn_size(&n->network, bppsa_cnn_input_of(&n->network, i, 0) + 1);
    layer->out = bppsa_cnn_size(&n->network, i + 1);
    layer->weight = -1;
    if (bppsa_cnn_parameters(layer->about) > 0) {
      layer->weight = parameter;
      parameter += bppsa_cnn_parameters(layer->about);
    }
    if (layer->about->op.kind == BPPSA_OPERATOR_CONV2D && !is_gpu(n)) {
      BPPSA_TRY(bppsa_conv_plan(&layer->about->op, n->config.dtype, n->threads, n->config.batch, &layer->conv));
    }
  }
  n->base.parameter_count = parameter;
  return BPPSA_OK;
}

static void describe_parameters(cnn *n) {
  for (int64_t i = 0; i < n->network.count; ++i) {
    const cnn_layer *layer = &n->layers[i];
    for (int64_t k = 0; k < bppsa_cnn_parameters(layer->about); ++k) {
      const int64_t p = layer->weight + k;
      n->base.parameters[p] = bppsa_cnn_parameter(layer->about, k, n->config.dtype, n->names[p]);
    }
  }
}

/* Places every parameter in one array for values and one for gradients; returns their bytes. */
static int64_t place_parameters(cnn *n) {
  int64_t place = 0;
  for (int64_t i = 0; i < n->base.parameter_count; ++i) {
    bppsa_parameter *p = &n->base.parameters[i];
    p->value.data = n->parameter_values == NULL ? NULL : (char *)n->parameter_values + place;
    p->gradient.data = n->parameter_gradients == NULL ? NULL : (char *)n->parameter_gradients + place;
    place += ((int64_t)bppsa_view_bytes(&p->value) + BPPSA_ALIGNMENT - 1) / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT;
  }
  return place;
}

/* ---- memory ---- */

static bppsa_status count_array(void *array, int64_t bytes, int64_t *sum) {
  (void)array;
  return bytes < 0 || __builtin_add_overflow(*sum, bytes, sum)
             ? bppsa_fail(BPPSA_ERR_MEMORY, "network: its arrays do not fit in 64 bits")
             : BPPSA_OK;
}

static bppsa_status allocate_array(void *array, int64_t bytes, int64_t *sum) {
  *sum += bytes;
  void *made = bppsa_calloc(bytes, 1);
  memcpy(array, &made, sizeof made); /* a memcpy, because the pointer's type varies */
  return made == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

/* Arrays in a GPU's single allocation begin at multiples of 256 bytes. */
static bppsa_status count_on_gpu(void *array, int64_t bytes, int64_t *sum) {
  enum { LINE = 256 };
  return count_array(array, bytes < 0 || bytes > INT64_MAX - LINE ? -1 : (bytes + LINE - 1) / LINE * LINE, sum);
}

static bppsa_status place_on_gpu(void *array, int64_t bytes, int64_t *address) {
  void *place = (void *)(intptr_t)*address; /* NOLINT: the address stays inside the allocation */
  memcpy(array, &place, sizeof place);
  return count_on_gpu(array, bytes, address);
}

/* Bytes of `count` values of each sample for the whole batch, and of a cache line that kernels may read behind them. */
static int64_t batch_bytes(const cnn *n, int64_t count, int64_t size) {
  int64_t bytes;
  return bppsa_mul(count * size, n->config.batch, &bytes) && bytes < INT64_MAX / 2 ? bytes + BPPSA_ALIGNMENT : -1;
}

/* Visits the results of passes, on a CPU and on a GPU. */
static bppsa_status visit_passes(cnn *n, bppsa_cnn_visit visit, int64_t *sum) {
  const int64_t size = (int64_t)bppsa_dtype_size(n->config.dtype);
  if (n->lent) {
    return BPPSA_OK;
  }
  for (int64_t i = 0; i < n->network.count; ++i) {
    cnn_layer *layer = &n->layers[i];
    BPPSA_TRY(visit(&layer->y, batch_bytes(n, layer->out, size), sum));
    if (layer->about->op.kind == BPPSA_OPERATOR_MAXPOOL2D) {
      BPPSA_TRY(visit(&layer->places, batch_bytes(n, layer->out, (int64_t)sizeof *layer->places), sum));
    }
    if (layer->about->op.kind == BPPSA_OPERATOR_BATCHNORM2D) {
      BPPSA_TRY(visit(&layer->kept, bppsa_norm_kept(layer->about, n->config.dtype), sum));
    }
  }
  return visit(&n->g, batch_bytes(n, n->room, size), sum);
}

/* Visits what the gradients of a graph need besides. */
static bppsa_status visit_graph(cnn *n, bppsa_cnn_visit visit, int64_t *sum) {
  int64_t largest = 0;
  if (!bppsa_cnn_is_graph(&n->network)) {
    return BPPSA_OK;
  }
  for (int64_t tensor = 0; tensor < n->network.count; ++tensor) {
    const int64_t size = bppsa_cnn_size(&n->network, tensor);
    largest = size > largest ? size : largest;
  }
  BPPSA_TRY(visit(&n->gathered, batch_bytes(n, largest, (int64_t)bppsa_dtype_size(n->config.dtype)), sum));
  return visit(&n->written, n->network.count * (int64_t)sizeof *n->written, sum);
}

/* Visits the scratch of a CPU. */
static bppsa_status visit_scratch(cnn *n, bppsa_cnn_visit visit, int64_t *sum) {
  int64_t scratch = 0, sums = 0, transposed = 0;
  for (int64_t i = 0; i < n->network.count; ++i) {
    const bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, &n->layers[i], n->config.batch);
    BPPSA_TRY(bppsa_cnn_pass_room(&pass, &scratch, &sums, &transposed)); /* nothing for a layer that joins or splits tensors */
  }
  BPPSA_TRY(visit(&n->scratch, scratch, sum));
  BPPSA_TRY(visit(&n->sums, sums, sum));
  BPPSA_TRY(visit(&n->transposed, transposed, sum));
  return visit_graph(n, visit, sum);
}

/* Visits the parameters, whose views are in host memory. */
static bppsa_status visit_parameters(cnn *n, bppsa_cnn_visit visit, int64_t *sum) {
  const int64_t parameters = place_parameters(n);
  n->base.reals = n->lent ? 0 : parameters / (int64_t)bppsa_dtype_size(n->config.dtype);
  if (n->lent) {
    return BPPSA_OK;
  }
  BPPSA_TRY(visit(&n->parameter_values, parameters, sum));
  return visit(&n->parameter_gradients, parameters, sum);
}

/* Room for the parameters of all layers. */
static int64_t most_parameters(const cnn *n) {
  int64_t sum = 2 * n->network.count;
  for (int64_t i = 0; i < n->network.count; ++i) {
    sum += n->network.layers[i].op.kind == BPPSA_OPERATOR_BATCHNORM2D ? BPPSA_CNN_PARAMETERS - 2 : 0;
  }
  return sum;
}

/* Bytes of the network's description, masks included. */
static int64_t description_bytes(const cnn *n) {
  const size_t layer =
      sizeof *n->layers + sizeof *n->network.layers + sizeof *n->patterns + sizeof *n->csr_values + sizeof *n->offsets;
  const size_t parameter = sizeof *n->base.parameters + sizeof *n->names;
  int64_t bytes =
      (int64_t)(sizeof *n + sizeof *n->offsets) + n->network.count * (int64_t)layer + most_parameters(n) * (int64_t)parameter;
  if (bppsa_cnn_is_graph(&n->network)) {
    const bppsa_cnn_live *live = &n->elements_made.live;
    const size_t each = sizeof *n->network.input_ptr + sizeof *live->sizes + sizeof *live->ptr +
                        sizeof *n->elements_made.patterns + sizeof *n->elements_made.made;
    bytes += (n->network.count + 1) * (int64_t)each +
             n->network.input_ptr[n->network.count] * (int64_t)sizeof *n->network.inputs +
             live->ptr[n->network.count] * (int64_t)(sizeof *live->tensors + sizeof *live->offsets);
  }
  for (int64_t i = 0; i < n->network.count; ++i) {
    const cnn_layer *of = &n->layers[i];
    bytes += of->mask != NULL ? bppsa_view_count(&n->base.parameters[of->weight].value) : 0;
  }
  return bytes;
}

/* Counts everything except patterns, their values and the memory of the scan. */
static bppsa_status count_arrays(cnn *n, int64_t *sum) {
  int64_t slots;
  if (!bppsa_mul(n->lent ? 0 : place_parameters(n), n->config.optimizer_slots, &slots)) {
    slots = -1;
  }
  BPPSA_TRY(count_array(NULL, description_bytes(n), sum));
  BPPSA_TRY(count_array(NULL, slots, sum));
  BPPSA_TRY(visit_parameters(n, count_array, sum));
  BPPSA_TRY(visit_passes(n, is_gpu(n) ? count_on_gpu : count_array, sum));
  return is_gpu(n) ? bppsa_cnn_cuda_visit(n, count_on_gpu, sum) : visit_scratch(n, count_array, sum);
}

static bppsa_status allocate_on_gpu(cnn *n) {
  int64_t bytes = 0;
  BPPSA_TRY(visit_passes(n, count_on_gpu, &bytes));
  BPPSA_TRY(bppsa_cnn_cuda_visit(n, count_on_gpu, &bytes));
  BPPSA_TRY(bppsa_memory_alloc(n->device, bytes, &n->memory));
  if (bppsa_cnn_is_graph(&n->network)) {
    n->written = bppsa_calloc(n->network.count, sizeof *n->written);
    BPPSA_TRY(n->written != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY);
  }
  int64_t address = (int64_t)(intptr_t)n->memory;
  BPPSA_TRY(visit_passes(n, place_on_gpu, &address));
  BPPSA_TRY(bppsa_cnn_cuda_visit(n, place_on_gpu, &address));
  return bppsa_cnn_cuda_start(n);
}

static bppsa_status allocate_arrays(cnn *n) {
  int64_t allocated = 0;
  BPPSA_TRY(visit_parameters(n, allocate_array, &allocated));
  place_parameters(n);
  if (is_gpu(n)) {
    return allocate_on_gpu(n);
  }
  n->base.reals = 0; /* used on a GPU only */
  BPPSA_TRY(visit_passes(n, allocate_array, &allocated));
  return visit_scratch(n, allocate_array, &allocated);
}

/* ---- the scan ---- */

/* Does a GPU store the ones of J_tᵀ as entries? It does unless J_tᵀ is the operator's own or the identity. */
static bool stores_ones(const cnn *n, int64_t t) {
  return is_gpu(n) && bppsa_cnn_is_graph(&n->network) && !bppsa_cnn_live_is_own(&n->elements_made.live, &n->network, t);
}

/* Does the scan read values of J_tᵀ? A matrix of ones alone has none, and J_1ᵀ is used only if the gradient of the input is
 * wanted. */
static bool uses_values(const cnn *n, int64_t t) {
  const bppsa_cnn_layer *about = n->layers[t - 1].about;
  bool own = true;
  if (bppsa_cnn_is_graph(&n->network)) {
    (void)bppsa_cnn_live_ones(&n->elements_made.live, &n->network, t, &own);
  }
  if (t == 1 && !n->config.input_gradients) {
    return false;
  }
  return stores_ones(n, t) || (own && (bppsa_cnn_has_blocks(about) || !bppsa_op_is_identity(&about->op)));
}

/* Do the samples share the values of J_tᵀ? */
static bool is_shared(const cnn_layer *layer) {
  return layer->constant || (layer->about->node == BPPSA_CNN_OPERATOR && bppsa_op_shares_values(&layer->about->op));
}

/* Counts the entries of J_tᵀ's own operator, at most. */
static bppsa_status count_own(const cnn *n, int64_t t, int64_t *entries) {
  const cnn_layer *layer = &n->layers[t - 1];
  int64_t all;
  if (layer->about->node != BPPSA_CNN_OPERATOR) {
    *entries = 0;
    for (int64_t k = 0; bppsa_cnn_has_blocks(layer->about) && k < bppsa_cnn_input_count(&n->network, t - 1); ++k) {
      *entries += bppsa_cnn_block_entries(&n->network, t - 1, k);
    }
    return BPPSA_OK;
  }
  return bppsa_cnn_count_entries(layer->about, layer->mask, &all, entries);
}

/* Bytes of a pattern in which J_tᵀ stands beside ones; 0 where it is the operator's own. */
static int64_t element_bytes(const cnn *n, int64_t t, int64_t entries) {
  const bppsa_cnn_live *live = &n->elements_made.live;
  bool own;
  if (!bppsa_cnn_is_graph(&n->network) || bppsa_cnn_live_is_own(live, &n->network, t)) {
    return 0;
  }
  const int64_t ones = bppsa_cnn_live_ones(live, &n->network, t, &own);
  return 2 * (live->sizes[t - 1] + 1) * (int64_t)sizeof(int64_t) + (ones + (own ? entries : 0)) * (int64_t)sizeof(int32_t);
}

/* Counts the entries of J_tᵀ for the scan, of which `own` are the operator's, and what a GPU needs to put these among ones. */
static int64_t count_stored(const cnn *n, int64_t t, int64_t own, int64_t *bytes) {
  bool has_own;
  *bytes = 0;
  if (!stores_ones(n, t)) {
    return own;
  }
  const int64_t ones = bppsa_cnn_live_ones(&n->elements_made.live, &n->network, t, &has_own);
  *bytes = own * (int64_t)sizeof(int64_t);
  return ones + (has_own ? own : 0);
}

/* Counts the bytes of all patterns and their values. */
static bppsa_status count_patterns(const cnn *n, int64_t *bytes) {
  const int64_t size = (int64_t)bppsa_dtype_size(n->config.dtype);
  int64_t most = 0; /* bytes of one layer's own entries, before a GPU puts them among ones */
  for (int64_t t = 1; t <= n->elements; ++t) {
    const cnn_layer *layer = &n->layers[t - 1];
    int64_t entries, values = 0, places, scratch;
    BPPSA_TRY(count_own(n, t, &entries));
    const int64_t stored = count_stored(n, t, entries, &places);
    if (uses_values(n, t) && !bppsa_mul(stored * size, is_shared(layer) ? 1 : n->config.batch, &values)) {
      values = -1;
    }
    scratch = stores_ones(n, t) ? entries * (is_shared(layer) ? 1 : n->config.batch) * size : 0;
    most = scratch > most ? scratch : most;
    BPPSA_TRY(count_array(NULL, values, bytes));
    BPPSA_TRY(count_array(NULL, places, bytes));
    BPPSA_TRY(count_array(NULL, element_bytes(n, t, entries), bytes));
    if (layer->about->node == BPPSA_CNN_OPERATOR) {
      BPPSA_TRY(count_array(NULL, entries * (int64_t)sizeof(int32_t) + (layer->in + 1) * (int64_t)sizeof(int64_t), bytes));
    }
  }
  return count_array(NULL, most, bytes);
}

/* Makes the operator's generator, and the pattern of J_tᵀ over the live sets of a graph. */
static bppsa_status make_pattern(cnn *n, int64_t t) {
  cnn_layer *layer = &n->layers[t - 1];
  if (layer->about->node == BPPSA_CNN_OPERATOR) {
    BPPSA_TRY(bppsa_jacobian_create(&layer->about->op, layer->mask, false, n->device, &layer->jt));
    n->patterns[t - 1] = bppsa_jacobian_pattern(layer->jt);
  }
  if (bppsa_cnn_is_graph(&n->network)) {
    BPPSA_TRY(bppsa_cnn_elements_set(&n->network, t, n->patterns[t - 1], &n->elements_made));
    n->patterns[t - 1] = n->elements_made.patterns[t - 1];
  }
  return BPPSA_OK;
}

/* Writes the ones of J_tᵀ, and zeros for the layer's own entries, for `samples` samples. */
static bppsa_status put_constants(const cnn *n, int64_t t, const bppsa_csr_merged *merged, int64_t samples, void *values) {
  const int64_t count = n->patterns[t - 1]->nnz, size = (int64_t)bppsa_dtype_size(n->config.dtype);
  void *made = bppsa_calloc(count * samples, (size_t)size);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count * samples; ++i) {
    if (n->config.dtype == BPPSA_F32) {
      ((float *)made)[i] = (float)merged->constant[i % count];
    } else {
      ((double *)made)[i] = (double)merged->constant[i % count];
    }
  }
  const bppsa_status status = bppsa_memory_put(n->device, values, made, count * samples * size);
  bppsa_free(made);
  return status;
}

/* Gives a GPU the values of J_tᵀ with its ones among them, and the places of the layer's own entries. */
static bppsa_status place_own(cnn *n, int64_t t, const bppsa_csr_merged *merged, int64_t samples) {
  cnn_layer *layer = &n->layers[t - 1];
  const int64_t bytes = layer->own_entries * (int64_t)sizeof *layer->entry_places;
  BPPSA_TRY(put_constants(n, t, merged, samples, layer->values));
  if (layer->constant) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_memory_alloc(n->device, bytes, (void **)&layer->entry_places));
  return bppsa_memory_put(n->device, layer->entry_places, merged->places, bytes);
}

static bppsa_status make_values(cnn *n, int64_t t) {
  const int64_t size = (int64_t)bppsa_dtype_size(n->config.dtype);
  cnn_layer *layer = &n->layers[t - 1];
  const int64_t samples = is_shared(layer) ? 1 : n->config.batch, values = n->patterns[t - 1]->nnz * samples;
  if (!uses_values(n, t) || n->patterns[t - 1]->identity) {
    return BPPSA_OK;
  }
  if (is_gpu(n)) {
    return bppsa_memory_alloc(n->device, values * size, &layer->values);
  }
  layer->values = bppsa_calloc(values, (size_t)size);
  return layer->values != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

/* Makes the element's ones entries where a GPU stores them. */
static bppsa_status merge_pattern(cnn *n, int64_t t) {
  bppsa_csr_merged merged = {0};
  cnn_layer *layer = &n->layers[t - 1];
  if (!stores_ones(n, t)) {
    return make_values(n, t);
  }
  bppsa_csr *element = &n->elements_made.made[t - 1];
  if (element->identity || element->ones == NULL) {
    return make_values(n, t);
  }
  bppsa_status status = bppsa_csr_merge_ones(element, &merged);
  if (status == BPPSA_OK) {
    const int64_t own = element->nnz;
    bppsa_csr_free(element);
    *element = merged.pattern;
    merged.pattern = (bppsa_csr){0};
    layer->own_entries = own;
    layer->constant = own == 0;
    status = make_values(n, t);
  }
  if (status == BPPSA_OK && layer->values != NULL) {
    status = place_own(n, t, &merged, is_shared(layer) ? 1 : n->config.batch);
  }
  bppsa_csr_merged_free(&merged);
  return status;
}

/* Allocates room for the own entries of any layer whose ones are stored. */
static bppsa_status make_entries(cnn *n) {
  int64_t most = 0;
  for (int64_t t = 1; t <= n->elements; ++t) {
    const cnn_layer *layer = &n->layers[t - 1];
    const int64_t count = layer->entry_places == NULL ? 0 : layer->own_entries * (is_shared(layer) ? 1 : n->config.batch);
    most = count > most ? count : most;
  }
  return most == 0 ? BPPSA_OK : bppsa_memory_alloc(n->device, most * (int64_t)bppsa_dtype_size(n->config.dtype), &n->entries);
}

static bppsa_status make_patterns(cnn *n) {
  for (int64_t t = 1; t <= n->elements; ++t) {
    BPPSA_TRY(make_pattern(n, t));
    BPPSA_TRY(merge_pattern(n, t));
  }
  return make_entries(n);
}

/* Makes patterns, plan and executor, within what the limit leaves after `bytes` of other arrays. */
static bppsa_status make_scan(cnn *n, int64_t bytes) {
  const bppsa_cnn_config *c = &n->config;
  BPPSA_TRY(make_patterns(n));
  for (int64_t t = 0; t < n->elements; ++t) {
    bytes += n->layers[t].jt != NULL ? bppsa_jacobian_device_bytes(n->layers[t].jt) : 0;
  }
  if (c->memory_limit > 0 && bytes >= c->memory_limit) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "needs at least %lld bytes with its transposed Jacobians, expected fewer than %lld",
                      (long long)bytes, (long long)c->memory_limit);
  }
  bppsa_scan_config scan = bppsa_scan_config_default();
  scan.method = c->method.scan;
  scan.element = BPPSA_ELEMENT_CSR;
  scan.dtype = c->dtype;
  scan.jacobians = n->elements;
  scan.batch = c->batch;
  scan.dim = n->layers[n->elements].in;
  scan.input = c->input_gradients;
  scan.patterns = n->patterns;
  scan.planner = n->device;
  scan.memory_limit = c->memory_limit > 0 ? c->memory_limit - bytes : 0;
  BPPSA_TRY(bppsa_scan_plan_create(&scan, &n->plan));
  return c->factory.create != NULL ? c->factory.create(c->factory.context, n->plan, n->device, &n->scan)
                                   : bppsa_scan_executor_create(n->plan, n->device, &n->scan);
}

/* ---- creation ---- */

/* Refuses a network that exceeds its limit before anything large is allocated. */
static bppsa_status check_memory(cnn *n, int64_t *bytes) {
  const int64_t limit = n->config.memory_limit;
  *bytes = 0;
  BPPSA_TRY(count_arrays(n, bytes));
  const int64_t arrays = *bytes;
  if (n->config.method.backward == BPPSA_BACKWARD_SCAN) {
    BPPSA_TRY(count_patterns(n, bytes));
  }
  n->bytes = *bytes;
  return limit > 0 && *bytes >= limit
             ? bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "%s: needs at least %lld bytes, %lld of them for transposed Jacobians, expected fewer than %lld",
                          n->network.name, (long long)*bytes, (long long)(*bytes - arrays), (long long)limit)
             : BPPSA_OK;
}

static bppsa_status predict(const cnn *n, bppsa_cnn_seconds *seconds) {
  const uint8_t **masks = bppsa_calloc(n->network.count, sizeof *masks);
  if (masks == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < n->network.count; ++i) {
    masks[i] = n->layers[i].mask;
  }
  const bppsa_status status = bppsa_cnn_predict(&n->network, masks, &n->config, n->device, seconds);
  bppsa_free((void *)masks);
  return status;
}

/* Resolves AUTO: the method that the cost model expects to be the fastest within the memory limit; a scan if the caller provides
 * an executor. */
static bppsa_status choose_method(cnn *n) {
  bppsa_gradient_method *method = &n->config.method;
  bppsa_cnn_seconds seconds;
  int64_t bytes = 0;
  if (method->backward != BPPSA_BACKWARD_AUTO) {
    return BPPSA_OK;
  }
  if (n->config.factory.create != NULL) {
    *method = (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, bppsa_scan_method_of(BPPSA_SCAN_AUTO)};
    return BPPSA_OK;
  }
  BPPSA_TRY(predict(n, &seconds));
  *method = bppsa_cnn_choose(&seconds);
  if (method->backward == BPPSA_BACKWARD_SCAN && n->config.memory_limit > 0) {
    BPPSA_TRY(bppsa_cnn_place_gradients(n));
    BPPSA_TRY(count_arrays(n, &bytes));
    BPPSA_TRY(count_patterns(n, &bytes));
    method->backward = bytes < n->config.memory_limit ? BPPSA_BACKWARD_SCAN : BPPSA_BACKWARD_BP;
  }
  return BPPSA_OK;
}

/* Lets cuDNN choose algorithms; each of its two workspaces may take a quarter of what the limit leaves. */
static bppsa_status choose_algorithms(cnn *n, int64_t *bytes) {
  const int64_t most = (int64_t)1 << 30, left = (n->config.memory_limit - *bytes) / 4;
  BPPSA_TRY(bppsa_cnn_cuda_choose(n, n->config.memory_limit > 0 && left < most ? left : most));
  return check_memory(n, bytes);
}

/* Counts, and allocates what was counted unless only the number is wanted. */
static bppsa_status build(cnn *n, bool allocates) {
  const int64_t count = n->network.count;
  int64_t bytes;
  n->layers = bppsa_calloc(count, sizeof *n->layers);
  n->offsets = bppsa_calloc(count + 1, sizeof *n->offsets);
  const int64_t parameters = most_parameters(n);
  n->base.parameters = bppsa_calloc(parameters, sizeof *n->base.parameters);
  n->names = bppsa_calloc(parameters, sizeof *n->names);
  n->patterns = bppsa_calloc(count, sizeof *n->patterns);
  n->csr_values = bppsa_calloc(count, sizeof *n->csr_values);
  if (n->layers == NULL || n->offsets == NULL || n->base.parameters == NULL || n->names == NULL || n->patterns == NULL ||
      n->csr_values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  if (bppsa_cnn_is_graph(&n->network)) {
    BPPSA_TRY(bppsa_cnn_elements_create(&n->network, n->config.input_gradients, &n->elements_made));
  }
  BPPSA_TRY(describe_layers(n));
  describe_parameters(n);
  BPPSA_TRY(bppsa_cnn_take_masks(n));
  BPPSA_TRY(choose_method(n));
  BPPSA_TRY(bppsa_cnn_place_gradients(n));
  if (is_gpu(n)) {
    BPPSA_TRY(bppsa_cnn_cuda_create(n));
  }
  BPPSA_TRY(check_memory(n, &bytes));
  if (!allocates) {
    return BPPSA_OK;
  }
  if (is_gpu(n)) {
    BPPSA_TRY(choose_algorithms(n, &bytes));
  }
  bppsa_cnn_reserve_delay(n, bytes);
  BPPSA_TRY(allocate_arrays(n));
  if (n->config.method.backward == BPPSA_BACKWARD_BP) {
    return BPPSA_OK;
  }
  const bppsa_status status = make_scan(n, bytes);
  return status == BPPSA_OK || status == BPPSA_ERR_MEMORY ? status : bppsa_fail_prefix(status, "%s", n->network.name);
}

/* Settles what batch norms and dropouts do in steps of training. */
static bppsa_status prepare_training(cnn *n) {
  for (int64_t i = 0; i < n->network.count; ++i) {
    bppsa_cnn_layer *layer = &n->network.layers[i];
    const bool norm = layer->op.kind == BPPSA_OPERATOR_BATCHNORM2D;
    layer->op.dropping = layer->op.kind == BPPSA_OPERATOR_DROPOUT && n->config.dropping && layer->op.p > 0;
    if (!norm || !n->config.batch_statistics) {
      continue;
    }
    if (n->config.method.backward == BPPSA_BACKWARD_SCAN) {
      return bppsa_fail(
          BPPSA_ERR_UNSUPPORTED,
          "layer '%s': a batch norm by the batch's statistics couples the samples, whose Jacobians a scan multiplies "
          "one by one, expected --batch-norm given or --backward bp",
          layer->name);
    }
    n->config.method.backward = BPPSA_BACKWARD_BP;
  }
  return BPPSA_OK;
}

static bppsa_status create(const bppsa_cnn_network *network, const bppsa_cnn_config *config, const bppsa_device *device,
                           bool lent, bool allocates, cnn **made) {
  BPPSA_TRY(check_config(network, config, device));
  cnn *n = bppsa_calloc(1, sizeof *n);
  if (n == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  n->base.ops = &bppsa_cnn_ops;
  n->base.dtype = config->dtype;
  n->base.classes = network->layers[network->count - 1].op.out_channels;
  n->config = *config;
  n->device = device;
  n->lent = lent;
  n->threads = bppsa_device_get_threads(device);
  n->elements = network->count - 1;
  n->training = (bppsa_cnn_training){.seed = config->dropout_seed, .batch_statistics = config->batch_statistics};
  bppsa_status status = bppsa_cnn_network_copy(network, &n->network);
  status = status == BPPSA_OK ? prepare_training(n) : status;
  status = status == BPPSA_OK ? build(n, allocates) : status;
  if (status != BPPSA_OK) {
    bppsa_cnn_destroy(&n->base);
    return status;
  }
  n->config.masks = NULL; /* the caller's masks have been copied */
  *made = n;
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_create(const bppsa_cnn_network *network, const bppsa_cnn_config *config, const bppsa_device *device,
                              bppsa_model **model) {
  BPPSA_REQUIRE(network != NULL && config != NULL && model != NULL);
  cnn *made = NULL;
  BPPSA_TRY(create(network, config, device, false, true, &made));
  *model = &made->base;
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_count(const bppsa_cnn_network *network, const bppsa_cnn_config *config, const bppsa_device *device,
                             int64_t *bytes) {
  BPPSA_REQUIRE(network != NULL && config != NULL && device != NULL && bytes != NULL);
  cnn *made = NULL;
  BPPSA_TRY(create(network, config, device, false, false, &made));
  *bytes = made->bytes;
  bppsa_cnn_destroy(&made->base);
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_create_lent(const bppsa_cnn_network *network, const bppsa_cnn_config *config, const bppsa_device *device,
                                   cnn **made) {
  return create(network, config, device, true, true, made);
}

void bppsa_cnn_destroy(bppsa_model *model) {
  cnn *n = (cnn *)model;
  bppsa_scan_executor_destroy(n->scan);
  bppsa_scan_plan_destroy(n->plan);
  const bool gpu = is_gpu(n); /* on a GPU these arrays are parts of one allocation */
  for (int64_t i = 0; n->layers != NULL && i < n->network.count; ++i) {
    bppsa_jacobian_destroy(n->layers[i].jt);
    bppsa_memory_free(n->device, n->layers[i].values);
    bppsa_memory_free(n->device, n->layers[i].entry_places);
    bppsa_free(gpu ? NULL : n->layers[i].y);
    bppsa_free(gpu ? NULL : n->layers[i].places);
    bppsa_free(gpu ? NULL : n->layers[i].kept);
    bppsa_free(n->layers[i].mask);
  }
  if (gpu) {
    bppsa_cnn_cuda_destroy(n);
    bppsa_memory_free(n->device, n->memory);
    bppsa_memory_free(n->device, n->entries);
  }
  void *const blocks[] = {n->layers,
                          n->offsets,
                          n->base.parameters,
                          n->names,
                          (void *)n->patterns,
                          n->csr_values,
                          gpu ? NULL : n->g,
                          n->scratch,
                          n->sums,
                          n->transposed,
                          n->parameter_values,
                          n->parameter_gradients,
                          gpu ? NULL : n->gathered,
                          n->written};
  bppsa_cnn_elements_free(&n->elements_made);
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
  bppsa_cnn_network_free(&n->network);
  bppsa_free(n);
}

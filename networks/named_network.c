#include "networks/named_network.h"

#include <inttypes.h>

#include "core/base/alloc.h"
#include "core/base/text.h"

static const bppsa_network_family *family_of(const bppsa_network *network) {
  return network->kind->family;
}

enum { MOST_KINDS = 15 }; /* more kinds than this are not suggested */

bppsa_status bppsa_network_open(const char *name, const char *mask_path, bppsa_network *network) {
  bppsa_network opened = {.kind = bppsa_network_kind_find(name), .name = name};
  if (opened.kind == NULL) {
    const char *known[MOST_KINDS + 1] = {NULL};
    char names[BPPSA_NETWORK_NAMES], hint[96];
    for (int64_t i = 0; i < MOST_KINDS && bppsa_network_kind_at(i) != NULL; ++i) {
      known[i] = bppsa_network_kind_at(i)->name;
    }
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "network: unknown '%s', expected %s or the path of a .json or .onnx file%s", name,
                      bppsa_network_kind_names(names, sizeof names), bppsa_suggestion(name, known, hint, sizeof hint));
  }
  const bppsa_network_family *family = family_of(&opened);
  const bppsa_status status = family->open != NULL ? family->open(name, mask_path, &opened) : BPPSA_OK;
  if (status != BPPSA_OK) {
    bppsa_network_close(&opened);
    return status;
  }
  *network = opened;
  return BPPSA_OK;
}

bppsa_status bppsa_network_reshape(bppsa_network *network, const int64_t in[3]) {
  char shape[BPPSA_SHAPE_TEXT];
  const bppsa_status status = bppsa_cnn_network_reshape(&network->layers, in);
  return status == BPPSA_OK ? BPPSA_OK
                            : bppsa_fail_prefix(status, "--in-shape: %s", bppsa_shape_text(3, in, shape, sizeof shape));
}

void bppsa_network_close(bppsa_network *network) {
  bppsa_cnn_network_free(&network->layers);
  bppsa_safetensors_destroy(network->mask);
  bppsa_free(network->masks);
  *network = (bppsa_network){0};
}

bppsa_network_config bppsa_network_config_default(const bppsa_network *network) {
  return family_of(network)->config(network);
}

bppsa_status bppsa_network_infer(const char *where, const bppsa_network *network, int64_t count, const bppsa_named_view *tensors,
                                 bppsa_network_config *config) {
  return family_of(network)->infer(where, network, count, tensors, config);
}

/* ---- models ---- */

bppsa_status bppsa_network_create(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                                  bppsa_model **model) {
  return family_of(network)->create(network, config, device, model);
}

bppsa_status bppsa_network_count(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                                 int64_t *bytes) {
  return family_of(network)->count(network, config, device, bytes);
}

bppsa_status bppsa_network_init(const bppsa_network *network, bppsa_model *model, bppsa_init init, uint64_t seed) {
  return family_of(network)->init(model, init, seed);
}

bppsa_gradient_method bppsa_network_method(const bppsa_network *network, const bppsa_network_config *config,
                                           const bppsa_model *model) {
  return bppsa_backward_plan_of(model) != NULL ? (bppsa_gradient_method){.backward = BPPSA_BACKWARD_SPECULATIVE}
                                               : bppsa_scan_plan_method(family_of(network)->plan(config, model));
}

/* ---- data ---- */

/* Compares outputs and classes with the data's. A network without weights, and without a fixed size, takes the data's. */
static bppsa_status match_classes(const char *whose, const bppsa_network_config *config, const bppsa_dataset *dataset) {
  if (bppsa_objective_real(&dataset->objective) && config->classes != dataset->classes) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: weights for %" PRId64 " outputs, expected %" PRId64 ", the data's targets", whose,
                      config->classes, dataset->classes);
  }
  if (config->classes < dataset->classes) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: weights for %" PRId64 " classes, expected at least %" PRId64 " as in the data", whose,
                      config->classes, dataset->classes);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_network_match(const bppsa_network *network, const bppsa_network_config *config, const char *weights,
                                 const bppsa_dataset *dataset) {
  const bppsa_network_family *family = family_of(network);
  const bool images = dataset->image[0] > 0;
  if (images == family->steps) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %s, expected %s for %s", dataset->ops->name, images ? "images" : "sequences",
                      family->samples, network->kind->name);
  }
  BPPSA_TRY(family->match(network, config, weights, dataset));
  return weights != NULL || family->fit == NULL ? match_classes(weights != NULL ? weights : network->kind->name, config, dataset)
                                                : BPPSA_OK;
}

bppsa_status bppsa_network_fit(const bppsa_network *network, const char *weights, const bppsa_dataset *dataset,
                               bppsa_network_config *config) {
  BPPSA_TRY(bppsa_network_match(network, config, weights, dataset));
  if (family_of(network)->fit != NULL) {
    family_of(network)->fit(dataset, weights != NULL, config);
  }
  return BPPSA_OK;
}

/* ---- words and numbers ---- */

const char *bppsa_network_describe(const bppsa_network *network, const bppsa_network_config *config, char *text, size_t size) {
  return family_of(network)->describe(network, config, text, size);
}

bool bppsa_network_json(const bppsa_network *network, const bppsa_network_config *config, json_t *object) {
  return family_of(network)->json(network, config, object);
}

const char *bppsa_network_identity(const bppsa_network *network, char *text, size_t size) {
  if (size > 0) {
    text[0] = '\0';
  }
  return family_of(network)->identity != NULL ? family_of(network)->identity(network, text, size) : text;
}

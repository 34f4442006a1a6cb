#include "networks/open_model.h"

#include <inttypes.h>

#include "core/files/safetensors.h"
#include "networks/named_network.h"
#include "networks/weights.h"

bppsa_model_config bppsa_model_config_default(void) {
  return (bppsa_model_config){.dtype = BPPSA_F32};
}

/* A size that a caller may ask for. */
typedef struct {
  const char *name;
  int64_t asked;
  int64_t *size;  /* of the network's configuration */
  bool steps;     /* only recurrent networks have it */
  bool described; /* weights say it */
} size_row;

enum { SIZES = 6 };

static void list_sizes(const bppsa_model_config *asked, bppsa_network_config *config, size_row rows[SIZES]) {
  const size_row made[SIZES] = {{"batch", asked->batch, &config->batch, false, false},
                                {"seq_len", asked->seq_len, &config->steps.seq_len, true, false},
                                {"hidden", asked->hidden, &config->steps.hidden, true, true},
                                {"layers", asked->layers, &config->steps.layers, true, true},
                                {"input", asked->input, &config->input, true, true},
                                {"classes", asked->classes, &config->classes, true, true}};
  for (int i = 0; i < SIZES; ++i) {
    rows[i] = made[i];
  }
}

/* Takes the sizes and settings that the caller asks for. */
static bppsa_status take_sizes(const bppsa_network *network, const bppsa_model_config *asked, bppsa_network_config *config) {
  const bool steps = network->kind->family->steps;
  size_row rows[SIZES];
  list_sizes(asked, config, rows);
  for (int i = 0; i < SIZES; ++i) {
    if (rows[i].asked < 0 || (rows[i].asked > 0 && rows[i].steps && !steps)) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s is %" PRId64 ", expected %s", network->name, rows[i].name, rows[i].asked,
                        rows[i].asked < 0 ? "0 or more" : "0: the network's layers say it");
    }
    *rows[i].size = rows[i].asked > 0 ? rows[i].asked : *rows[i].size;
  }
  if (asked->loss_all && !steps) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: loss_all is set, expected a recurrent network for outputs at every step",
                      network->name);
  }
  config->loss_all = asked->loss_all;
  config->dtype = asked->dtype;
  config->method = asked->method;
  config->input_gradients = asked->input_gradients;
  config->training = asked->training;
  config->batch_statistics = asked->training && asked->batch_statistics;
  return BPPSA_OK;
}

/* Refuses sizes that contradict the weights. */
static bppsa_status check_sizes(const bppsa_model_config *asked, bppsa_network_config *described) {
  size_row rows[SIZES];
  list_sizes(asked, described, rows);
  for (int i = 0; i < SIZES; ++i) {
    if (rows[i].described && rows[i].asked > 0 && rows[i].asked != *rows[i].size) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %" PRId64 " contradicts the weights in %s, expected %" PRId64, rows[i].name,
                        rows[i].asked, asked->weights, *rows[i].size);
    }
  }
  return BPPSA_OK;
}

static bppsa_status make_model(const bppsa_model_config *asked, bppsa_network *network, const bppsa_safetensors *file,
                               const bppsa_network_config *config, const bppsa_device *device, bppsa_model **model) {
  bppsa_model *made = NULL;
  BPPSA_TRY(bppsa_network_create(network, config, device, &made));
  const bppsa_weights_request request = {.path = bppsa_weights_path(asked->weights, network->name)};
  const bppsa_status status = file != NULL ? bppsa_weights_set(&request, network, file, made, NULL)
                                           : bppsa_network_init(network, made, asked->init, asked->seed);
  if (status != BPPSA_OK) {
    bppsa_model_destroy(made);
    return status;
  }
  *model = made;
  return BPPSA_OK;
}

static bppsa_status open_in(bppsa_network *network, const bppsa_model_config *asked, const bppsa_device *device,
                            bppsa_model **model) {
  bppsa_network_config config = bppsa_network_config_default(network);
  bppsa_safetensors *file = NULL;
  BPPSA_TRY(take_sizes(network, asked, &config));
  const char *path = bppsa_weights_path(asked->weights, network->name);
  if (path != NULL) {
    const bppsa_weights_request request = {.path = path, .loss_given = true};
    BPPSA_TRY(bppsa_weights_load(&request, network, &config, &file));
  }
  bppsa_status status = file != NULL && network->kind->family->steps ? check_sizes(asked, &config) : BPPSA_OK;
  status = status == BPPSA_OK ? make_model(asked, network, file, &config, device, model) : status;
  bppsa_safetensors_destroy(file);
  return status;
}

bppsa_status bppsa_model_open(const char *name, const bppsa_model_config *config, const bppsa_device *device,
                              bppsa_model **model) {
  BPPSA_REQUIRE(name != NULL && config != NULL && device != NULL && model != NULL);
  bppsa_network network;
  BPPSA_TRY(bppsa_network_open(name, config->mask, &network));
  const bppsa_status status = open_in(&network, config, device, model);
  bppsa_network_close(&network);
  return status;
}

#include "runs/rank_network.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "distributed/time/split_time.h"

enum { TIME_TAG = 512 }; /* for messages along time; those of data parallelism begin at 1024 */

bool bppsa_rank_network_cut(const bppsa_rank_network *ranks) {
  return ranks->comm != NULL && ranks->split.time > 1;
}

int64_t bppsa_rank_network_samples(const bppsa_rank_network *ranks) {
  return bppsa_rank_network_cut(ranks) ? (ranks->parallel.batch - 1) / ranks->split.batch + 1
                                       : bppsa_data_parallel_block(&ranks->parallel, bppsa_comm_size(ranks->comm));
}

bppsa_status bppsa_rank_network_forward(const bppsa_rank_network *ranks, int64_t samples, bppsa_network_config *config) {
  bppsa_forward_method *forward = &config->steps.forward;
  if (config->method.backward == BPPSA_BACKWARD_AUTO) {
    config->steps.speculation.chunks = 1; /* speculative BP is none of its candidates on ranks */
  }
  if (ranks->split.batch == 1 && config->batch >= samples) {
    config->batch = forward->kind == BPPSA_FORWARD_SEQUENTIAL ? config->batch : samples;
    return BPPSA_OK;
  }
  if (forward->kind == BPPSA_FORWARD_SPECULATIVE) {
    return bppsa_fail(
        BPPSA_ERR_ARGUMENT,
        "--forward: speculative beside ranks that take parts of a batch, expected --split time, sequential or auto");
  }
  *forward = bppsa_forward_method_default();
  return BPPSA_OK;
}

bppsa_status bppsa_rank_network_check(const bppsa_rank_split *split, int64_t samples, const char *what) {
  return split->batch <= samples
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--ranks: %" PRId64 ", more than the %" PRId64 " samples of %s, expected at most that many",
                          split->batch, samples, what);
}

bppsa_status bppsa_rank_network_check_micro_batches(const bppsa_rank_network *ranks, bool given, bool trains, int64_t most) {
  const int64_t asked = ranks->micro_batches;
  if (given && !bppsa_rank_network_cut(ranks)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--micro-batches: %" PRId64 " beside --split batch, which has none, expected --split %s", asked,
                      trains ? "gpipe or another scheme of bppsa schedule --list, or time" : "time");
  }
  return asked <= most ? BPPSA_OK
                       : bppsa_fail(BPPSA_ERR_ARGUMENT,
                                    "--micro-batches: %" PRId64 ", more than the %" PRId64
                                    " samples that a rank takes at once, expected at most that many",
                                    asked, most);
}

bppsa_comm *bppsa_rank_network_among(const bppsa_rank_network *ranks) {
  return bppsa_rank_network_cut(ranks) ? ranks->batch : ranks->gpus != NULL ? ranks->gpus : ranks->comm;
}

const char *bppsa_rank_device(const bppsa_comm *comm, const char *name, char *text, size_t size) {
  bppsa_cuda_report report = {0};
  if (strcmp(name, "cuda") == 0) {
    bppsa_cuda_probe(&report);
  }
  if (report.devices == 0) {
    return name;
  }
  snprintf(text, size, "cuda:%d", (int)(bppsa_comm_node_rank(comm) % report.devices));
  return text;
}

/* Tells the communicator of the GPU whose arrays it carries. */
static bppsa_status connect(bppsa_rank_network *ranks, const bppsa_device *device) {
  if (ranks->comm == NULL || bppsa_device_get_kind(device) == BPPSA_CPU) {
    return BPPSA_OK;
  }
  bppsa_comm_set_device(ranks->comm, device);
  return ranks->nccl ? bppsa_comm_create_nccl(ranks->comm, device, &ranks->gpus) : BPPSA_OK;
}

bppsa_status bppsa_rank_network_create(const bppsa_network *network, const bppsa_network_config *config,
                                       const bppsa_device *device, bppsa_rank_network *ranks, bppsa_model **model) {
  const bppsa_cnn_layer *norm = config->batch_statistics ? bppsa_cnn_network_norm(&network->layers) : NULL;
  if (ranks->comm != NULL && norm != NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "--batch-norm: batch beside ranks, of which none has the whole batch of layer '%s', expected given",
                      norm->name);
  }
  BPPSA_TRY(connect(ranks, device));
  if (!bppsa_rank_network_cut(ranks)) {
    return bppsa_network_create(network, config, device, model);
  }
  const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(config);
  const char *refused = recurrent.lengths         ? "--lengths"
                        : recurrent.dropout > 0   ? "--dropout"
                        : recurrent.bidirectional ? "--bidirectional"
                                                  : NULL;
  if (refused != NULL) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: given beside ranks that share time, expected --split batch", refused);
  }
  BPPSA_TRY(bppsa_rank_split_groups(ranks->gpus != NULL ? ranks->gpus : ranks->comm, &ranks->split, &ranks->time, &ranks->batch));
  const bppsa_split_time split = {.comm = ranks->time, .tag = TIME_TAG, .micro_batches = ranks->micro_batches};
  ranks->parallel.time = ranks->time;
  ranks->parallel.world = ranks->comm;
  ranks->parallel.micro_batches = ranks->micro_batches;
  bppsa_ranks_share(recurrent.seq_len, bppsa_comm_size(ranks->time), bppsa_comm_rank(ranks->time), &ranks->parallel.first_step,
                    &ranks->parallel.steps);
  BPPSA_TRY(bppsa_split_time_create(&split, &recurrent, network->kind->cell, device, model));
  ranks->parallel.time_blocks = bppsa_split_time_method(*model).backward == BPPSA_BACKWARD_SPECULATIVE;
  return BPPSA_OK;
}

bppsa_status bppsa_rank_network_init(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                                     const bppsa_rank_network *ranks, bppsa_init init, uint64_t seed, bppsa_model *model) {
  if (!bppsa_rank_network_cut(ranks)) {
    return bppsa_network_init(network, model, init, seed);
  }
  bppsa_network_config one = *config; /* a small model with the same parameters */
  bppsa_model *whole = NULL;
  one.batch = one.steps.seq_len = 1;
  one.method.backward = BPPSA_BACKWARD_BP;
  BPPSA_TRY(bppsa_network_create(network, &one, device, &whole));
  bppsa_status status = bppsa_network_init(network, whole, init, seed);
  for (int64_t i = 0; status == BPPSA_OK && i < whole->parameter_count; ++i) {
    const bppsa_view *value = &whole->parameters[i].value;
    memcpy(model->parameters[i].value.data, value->data, bppsa_view_bytes(value));
  }
  bppsa_model_destroy(whole);
  return status == BPPSA_OK ? bppsa_model_push(model) : status;
}

bppsa_gradient_method bppsa_rank_network_method(const bppsa_network *network, const bppsa_network_config *config,
                                                const bppsa_rank_network *ranks, const bppsa_model *model) {
  return bppsa_rank_network_cut(ranks) ? bppsa_split_time_method(model) : bppsa_network_method(network, config, model);
}

void bppsa_rank_network_free(bppsa_rank_network *ranks) {
  bppsa_comm_destroy(ranks->batch);
  bppsa_comm_destroy(ranks->time);
  bppsa_comm_destroy(ranks->gpus);
  if (ranks->comm != NULL) {
    bppsa_comm_set_device(ranks->comm, NULL); /* the device's memory may be destroyed from here on */
  }
  *ranks = (bppsa_rank_network){0};
}

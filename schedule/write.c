/* Functions with which generators write operations: kinds, the order of I and W, and the version of weights that each operation
 * sees. */
#include <math.h>

#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

bppsa_schedule_op bppsa_schedule_op_make(bppsa_schedule_kind kind, int64_t worker, int64_t replica, int64_t stage, int64_t layer,
                                         int64_t layers, int64_t micro, int64_t micros) {
  return (bppsa_schedule_op){.cost = NAN,
                             .memory_delta = NAN,
                             .worker = (int32_t)worker,
                             .replica = (int32_t)replica,
                             .stage = (int32_t)stage,
                             .layer = (int32_t)layer,
                             .layers = (int32_t)layers,
                             .micro = (int32_t)micro,
                             .micros = (int32_t)micros,
                             .part = -1,
                             .weight_version = -1,
                             .group = -1,
                             .kind = (uint8_t)kind,
                             .lane = BPPSA_LANE_COMPUTE};
}

bppsa_status bppsa_writer_start(bppsa_schedule *list, bppsa_writer *writer) {
  *writer = (bppsa_writer){.list = list, .config = &list->config};
  writer->by_layer = list->config.split != BPPSA_SPLIT_NONE;
  writer->updates = bppsa_calloc(list->replicas * list->stages, sizeof *writer->updates);
  writer->seen = list->scheme->scan ? NULL : bppsa_calloc(list->micros * list->stages, sizeof *writer->seen);
  if (writer->updates == NULL || (writer->seen == NULL && !list->scheme->scan)) {
    writer->status = BPPSA_ERR_MEMORY;
    return bppsa_writer_finish(writer);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_writer_finish(bppsa_writer *writer) {
  bppsa_free(writer->updates);
  bppsa_free(writer->seen);
  writer->updates = writer->seen = NULL;
  return writer->status;
}

void bppsa_writer_add(bppsa_writer *writer, bppsa_schedule_op op) {
  if (writer->status == BPPSA_OK) {
    bppsa_schedule_price(writer->list, &op);
    writer->status = bppsa_schedule_append(writer->list, &op);
  }
}

/* ---- one stage ---- */

/* Makes an operation on `count` layers of a stage, from layer `from` on. */
static bppsa_schedule_op make(const bppsa_writer *writer, bppsa_schedule_kind kind, int64_t replica, int64_t stage, int64_t from,
                              int64_t count, int64_t micro, int64_t micros) {
  return bppsa_schedule_op_make(kind, bppsa_schedule_place(writer->list, replica, stage), replica, stage, from, count, micro,
                                micros);
}

static int64_t first_of(const bppsa_writer *writer, int64_t stage) {
  return bppsa_schedule_layer_of(writer->list, stage);
}

static int64_t layers_of(const bppsa_writer *writer, int64_t stage) {
  return first_of(writer, stage + 1) - first_of(writer, stage);
}

/* Returns the version that a forward or backward pass sees. Keeps a forward pass's version, because some schemes promise the
 * backward pass the same. */
static int32_t see(bppsa_writer *writer, int64_t replica, int64_t stage, int64_t micro, bool forward) {
  const int32_t now = writer->updates[replica * writer->list->stages + stage];
  int32_t *seen = &writer->seen[micro * writer->list->stages + stage];
  const int64_t round = micro / writer->config->micro_batches % writer->list->rounds;
  if (writer->list->scheme->weights == BPPSA_WEIGHTS_BUFFERED) {
    return (int32_t)(round > 0 ? round - 1 : 0); /* one update late, in both passes (2BW) */
  }
  if (forward) {
    *seen = now;
  }
  return writer->list->scheme->weights == BPPSA_WEIGHTS_STASHED ? *seen : now;
}

static void prepare(bppsa_writer *writer, bppsa_schedule_kind kind, int64_t replica, int64_t stage, int64_t micro,
                    int32_t version) {
  bppsa_schedule_op op = make(writer, kind, replica, stage, first_of(writer, stage), layers_of(writer, stage), micro, 1);
  op.weight_version = version;
  bppsa_writer_add(writer, op);
}

void bppsa_writer_forward(bppsa_writer *writer, int64_t replica, int64_t stage, int64_t micro, int64_t micros) {
  const bppsa_schedule_weights weights = writer->list->scheme->weights;
  const int64_t first = first_of(writer, stage), layers = layers_of(writer, stage), each = writer->by_layer ? 1 : layers;
  const int32_t version = see(writer, replica, stage, micro, true);
  for (int64_t i = 1; i < micros; ++i) {
    see(writer, replica, stage, micro + i, true);
  }
  if (weights == BPPSA_WEIGHTS_STASHED || weights == BPPSA_WEIGHTS_PREDICTED) {
    prepare(writer, weights == BPPSA_WEIGHTS_STASHED ? BPPSA_KIND_STASH : BPPSA_KIND_PREDICT, replica, stage, micro, version);
  }
  for (int64_t layer = first; layer < first + layers; layer += each) {
    bppsa_schedule_op op = make(writer, BPPSA_KIND_F, replica, stage, layer, each, micro, micros);
    op.weight_version = version;
    bppsa_writer_add(writer, op);
  }
}

static void add_gradient(bppsa_writer *writer, bppsa_schedule_kind kind, int64_t replica, int64_t stage, int64_t layer,
                         int64_t layers, int64_t micro, int64_t part, int32_t version) {
  bppsa_schedule_op op = make(writer, kind, replica, stage, layer, layers, micro, 1);
  op.part = (int32_t)part;
  op.weight_version = version;
  if (kind != BPPSA_KIND_I || layers > 1 || layer > 0 || !writer->config->skip_first_input_grad) {
    bppsa_writer_add(writer, op);
  }
}

void bppsa_writer_backward(bppsa_writer *writer, int64_t replica, int64_t stage, int64_t micro, int64_t part) {
  const int64_t first = first_of(writer, stage), layers = layers_of(writer, stage);
  const bppsa_schedule_kind before = writer->config->split == BPPSA_SPLIT_WI ? BPPSA_KIND_W : BPPSA_KIND_I;
  const bppsa_schedule_kind after = writer->config->split == BPPSA_SPLIT_WI ? BPPSA_KIND_I : BPPSA_KIND_W;
  const int32_t version = see(writer, replica, stage, micro, false);
  if (writer->list->scheme->weights == BPPSA_WEIGHTS_PREDICTED) {
    prepare(writer, BPPSA_KIND_PREDICT, replica, stage, micro, version);
  }
  if (writer->config->recompute) {
    add_gradient(writer, BPPSA_KIND_RECOMPUTE, replica, stage, first, layers, micro, part, version);
  }
  if (!writer->by_layer) {
    add_gradient(writer, BPPSA_KIND_B, replica, stage, first, layers, micro, part, version);
    return;
  }
  for (int64_t layer = first + layers - 1; layer >= first; --layer) {
    add_gradient(writer, before, replica, stage, layer, 1, micro, part, version);
    add_gradient(writer, after, replica, stage, layer, 1, micro, part, version);
  }
}

void bppsa_writer_gradient(bppsa_writer *writer, bppsa_schedule_kind kind, int64_t replica, int64_t stage, int64_t micro) {
  const int64_t first = first_of(writer, stage), layers = layers_of(writer, stage);
  const int32_t version = see(writer, replica, stage, micro, false);
  for (int64_t layer = first + layers - 1; layer >= first; --layer) {
    add_gradient(writer, kind, replica, stage, layer, 1, micro, -1, version);
  }
}

void bppsa_writer_sync(bppsa_writer *writer, int64_t replica, int64_t stage, bppsa_schedule_lane lane) {
  if (writer->list->replicas > 1) {
    bppsa_schedule_op op =
        make(writer, BPPSA_KIND_SYNC, replica, stage, first_of(writer, stage), layers_of(writer, stage), -1, 0);
    op.lane = (uint8_t)lane;
    bppsa_writer_add(writer, op);
  }
}

void bppsa_writer_step(bppsa_writer *writer, int64_t replica, int64_t stage) {
  int32_t *updates = &writer->updates[replica * writer->list->stages + stage];
  bppsa_schedule_op op = make(writer, BPPSA_KIND_STEP, replica, stage, first_of(writer, stage), layers_of(writer, stage), -1, 0);
  *updates += 1;
  op.weight_version = *updates;
  bppsa_writer_add(writer, op);
}

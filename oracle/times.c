/* Measured times of a model's layers, from a system file (bppsa calibrate). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "oracle/members.h"
#include "oracle/system.h"

enum { APART = 2 /* times of the two gradients, which only people read */ };

/* Reads the spreads of the times that are in the file, and drops spreads that the layer had from another file. */
static bppsa_status read_spreads(const char *where, const json_t *object, const double apart[APART], bppsa_oracle_layer *layer) {
  bppsa_oracle_spread_member members[BPPSA_ORACLE_LAYER_SPREADS + APART];
  bppsa_oracle_spread unread[APART] = {{0}};
  bppsa_oracle_layer_spreads(layer, members);
  for (int i = 0; i < BPPSA_ORACLE_LAYER_SPREADS; ++i) {
    *members[i].spread = (bppsa_oracle_spread){0};
  }
  members[BPPSA_ORACLE_LAYER_SPREADS] = (bppsa_oracle_spread_member){"input_grad_s", apart[0], &unread[0], true};
  members[BPPSA_ORACLE_LAYER_SPREADS + 1] = (bppsa_oracle_spread_member){"weight_grad_s", apart[1], &unread[1], true};
  return bppsa_oracle_spread_parse(where, object, BPPSA_ORACLE_LAYER_SPREADS + APART, members);
}

static bppsa_status read_layer(const char *where, const json_t *object, bppsa_oracle_layer *layer) {
  static const char *const names[] = {"name",   "forward_s",    "backward_s",    "update_s", "product_s",
                                      "scan_s", "input_grad_s", "weight_grad_s", "spread",   NULL};
  char name[BPPSA_ORACLE_NAME];
  double forward = -1, backward = -1, update = -1, product = -1, scan = -1, apart[APART];
  const bppsa_oracle_member numbers[] = {{"forward_s", &forward, 0, 1e9, false},     {"backward_s", &backward, 0, 1e9, false},
                                         {"update_s", &update, 0, 1e9, false},       {"product_s", &product, 0, 1e9, false},
                                         {"scan_s", &scan, 0, 1e9, false},           {"input_grad_s", &apart[0], 0, 1e9, false},
                                         {"weight_grad_s", &apart[1], 0, 1e9, false}};
  BPPSA_TRY(bppsa_oracle_known(where, object, names));
  BPPSA_TRY(bppsa_oracle_text(where, object, "name", sizeof name, name));
  BPPSA_TRY(bppsa_oracle_numbers(where, object, sizeof numbers / sizeof numbers[0], numbers));
  if (strcmp(name, layer->name) != 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"name\": %s, expected %s, the model's layer", where, name, layer->name);
  }
  for (int i = 0; i < 3; ++i) {
    if (*numbers[i].value < 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\" missing, expected seconds", where, numbers[i].name);
    }
  }
  bppsa_oracle_layer made = *layer;
  made.forward_s = forward;
  made.backward_s = backward;
  made.update_s = update;
  made.product_s = product;
  made.scan_s = scan;
  BPPSA_TRY(read_spreads(where, object, apart, &made));
  *layer = made;
  return BPPSA_OK;
}

static bppsa_status read_times(const char *file, const json_t *times, bppsa_oracle_model *model) {
  const json_t *layers = json_object_get(times, "layers");
  if ((int64_t)json_array_size(layers) != model->count) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: layer_times: %zu layers, expected the %" PRId64 " of %s", file,
                      json_array_size(layers), model->count, model->name);
  }
  for (int64_t l = 0; l < model->count; ++l) {
    char where[160];
    snprintf(where, sizeof where, "%.100s: layer_times: layer %" PRId64, file, l);
    BPPSA_TRY(read_layer(where, json_array_get(layers, (size_t)l), &model->layers[l]));
  }
  return BPPSA_OK;
}

/* Reads the shares, which may be absent. */
static bppsa_status read_shares(const char *file, const json_t *times, bppsa_oracle_model *model) {
  const json_t *list = json_object_get(times, "shares");
  const int64_t count = (int64_t)json_array_size(list);
  if (list != NULL && (!json_is_array(list) || count > BPPSA_ORACLE_MOST_SHARES)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: layer_times: \"shares\": expected a list of at most %d", file,
                      BPPSA_ORACLE_MOST_SHARES);
  }
  bppsa_oracle_share *shares = bppsa_calloc(count + 1, sizeof *shares);
  bppsa_status status = shares == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t i = 0; i < count && status == BPPSA_OK; ++i) {
    char where[160];
    snprintf(where, sizeof where, "%.100s: layer_times: share %" PRId64, file, i);
    status = bppsa_oracle_share_parse(where, json_array_get(list, (size_t)i), &shares[i]);
  }
  if (status != BPPSA_OK) {
    bppsa_free(shares);
    return status;
  }
  bppsa_free(model->shares);
  model->shares = shares;
  model->share_count = count;
  return BPPSA_OK;
}

/* Writes in one line when and on what machine the layers were measured, and with how many samples. */
static bppsa_status describe(const char *file, const json_t *document, const json_t *times, bppsa_oracle_model *model) {
  const json_t *measured = json_object_get(document, "measured");
  char where[160], date[BPPSA_ORACLE_NAME], hardware[BPPSA_ORACLE_MEASURED / 2];
  double batch = 0;
  const bppsa_oracle_member number = {"batch", &batch, 1, 9e15, true};
  snprintf(where, sizeof where, "%.100s: measured", file);
  BPPSA_TRY(bppsa_oracle_text(where, measured, "date", sizeof date, date));
  BPPSA_TRY(bppsa_oracle_text(where, measured, "hardware", sizeof hardware, hardware));
  snprintf(where, sizeof where, "%.100s: layer_times", file);
  BPPSA_TRY(bppsa_oracle_numbers(where, times, 1, &number));
  if (batch < 1) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"batch\" missing, expected the samples of a pass", where);
  }
  snprintf(model->measured, sizeof model->measured, "%s, %s, %.0f samples at once", date, hardware, batch);
  return BPPSA_OK;
}

bppsa_status bppsa_oracle_system_times_of(const char *file, const json_t *document, bppsa_oracle_model *model) {
  static const char *const names[] = {"model", "batch", "dtype", "layers", "shares", NULL};
  const json_t *times = json_object_get(document, "layer_times");
  char where[160], name[BPPSA_ORACLE_NAME];
  if (times == NULL) {
    return BPPSA_OK;
  }
  snprintf(where, sizeof where, "%.100s: layer_times", file);
  BPPSA_TRY(bppsa_oracle_known(where, times, names));
  BPPSA_TRY(bppsa_oracle_text(where, times, "model", sizeof name, name));
  if (strcmp(name, model->name) != 0) {
    return BPPSA_OK;
  }
  BPPSA_TRY(read_times(file, times, model));
  BPPSA_TRY(read_shares(file, times, model));
  return describe(file, document, times, model);
}

bppsa_status bppsa_oracle_system_times(const char *name, bppsa_oracle_model *model) {
  json_t *document = NULL;
  if (!bppsa_oracle_is_file(name)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_input_status(bppsa_json_load(name, &document)));
  const bppsa_status status = bppsa_oracle_system_times_of(name, document, model);
  json_decref(document);
  return status;
}

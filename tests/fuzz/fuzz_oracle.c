/* Fuzzes the readers oracle/system.c, oracle/products.c, oracle/times.c, oracle/layer_model.c and oracle/zoo.c. The first part of
 * the input is a system's file, whose times of layers the model takes; the second is a model's or a network's. What was read is
 * written, and must read again. With odd options all strategies are asked for up to 8 processors. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/files/json.h"
#include "oracle/oracle.h"
#include "tests/fuzz/fuzz.h"

/* Writes the document to a file and returns its path. */
static const char *write_json(const char *name, json_t *document, char path[256]) {
  char *text = NULL;
  FUZZ_CHECK(bppsa_json_render(document, &text) == BPPSA_OK);
  snprintf(path, 256, "%s", fuzz_file(name, text, strlen(text)));
  bppsa_free(text);
  return path;
}

static void check_system(const bppsa_oracle_system *system) {
  char path[256];
  bppsa_oracle_system again;
  int64_t inside = 0;
  for (int64_t i = 0; i < system->count; ++i) {
    FUZZ_CHECK(system->levels[i].processors > inside && system->levels[i].beta_s > 0);
    inside = system->levels[i].processors;
    const bppsa_oracle_spread spread = system->levels[i].slowdown_spread;
    FUZZ_CHECK(spread.high == 0 || (spread.low <= system->levels[i].slowdown && spread.high >= system->levels[i].slowdown));
  }
  FUZZ_CHECK(bppsa_oracle_system_open(write_json("again.json", bppsa_oracle_system_json(system), path), &again) == BPPSA_OK);
  FUZZ_CHECK(bppsa_oracle_has_spread(&again) == bppsa_oracle_has_spread(system));
  FUZZ_CHECK(again.count == system->count && again.peak_flops == system->peak_flops);
  for (int i = 0; i < BPPSA_PRODUCTS; ++i) {
    FUZZ_CHECK(bppsa_oracle_product_measured(&system->products[i]) == bppsa_oracle_product_measured(&again.products[i]));
  }
}

static void check_model(const bppsa_oracle_model *model) {
  char path[256];
  bppsa_oracle_model again = {0};
  FUZZ_CHECK(model->count >= 1 && model->gather >= 0 && model->gather <= model->count);
  FUZZ_CHECK(bppsa_oracle_model_open(write_json("again.json", bppsa_oracle_model_json(model), path), &again) == BPPSA_OK);
  FUZZ_CHECK(again.count == model->count && again.samples == model->samples);
  bppsa_oracle_model_free(&again);
}

static void ask(const bppsa_oracle_model *model, const bppsa_oracle_system *system) {
  const bppsa_oracle_query query = bppsa_oracle_query_default(model, system);
  bppsa_oracle_rows rows = {0};
  bppsa_text text = {0};
  if (bppsa_oracle_ask(&query, NULL, 4, 8, &rows) == BPPSA_OK) {
    FUZZ_CHECK(rows.best < rows.count);
    for (int64_t i = 0; i < rows.count; ++i) {
      const bppsa_oracle_row *row = &rows.rows[i];
      FUZZ_CHECK(!row->feasible || (isfinite(row->time_s) && row->time_s >= 0 && isfinite(row->memory_bytes)));
      FUZZ_CHECK(!row->feasible || row->spread_s.high == 0 || row->spread_s.low <= row->spread_s.high);
      FUZZ_CHECK(row->feasible == (row->reason[0] == '\0') && (!row->feasible || row->processors <= row->limit));
    }
    json_decref(bppsa_oracle_rows_json(&query, &rows));
    FUZZ_CHECK(bppsa_oracle_text_table(&query, &rows, &text) == BPPSA_OK);
    FUZZ_CHECK(bppsa_oracle_draw(&query, &rows, &text) == BPPSA_OK);
    bppsa_oracle_rows_free(&rows);
  }
  bppsa_text_free(&text);
}

bppsa_status fuzz_run(const fuzz_input *input) {
  char path[256], place[256];
  bppsa_oracle_system system = {.count = 0};
  bppsa_oracle_model model = {0};
  snprintf(place, sizeof place, "%s", fuzz_file("system.json", input->part[0].data, input->part[0].size));
  const bppsa_status status = bppsa_oracle_system_open(place, &system);
  snprintf(path, sizeof path, "%s", fuzz_file("model.json", input->part[1].data, input->part[1].size));
  const bppsa_status read = bppsa_oracle_model_open(path, &model);
  if (status == BPPSA_OK) {
    check_system(&system);
  }
  if (read == BPPSA_OK) {
    check_model(&model);
  }
  if (read == BPPSA_OK && bppsa_oracle_system_times(place, &model) == BPPSA_OK && model.measured[0] != '\0') {
    FUZZ_CHECK(model.layers[0].forward_s >= 0 && model.layers[model.count - 1].update_s >= 0);
    check_model(&model);
  }
  if (status == BPPSA_OK && read == BPPSA_OK && model.count < 64 && input->options % 2 != 0) {
    ask(&model, &system);
  }
  bppsa_oracle_model_free(&model);
  return status;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const char *const systems[] = {
      ("{\"name\":\"two nodes\",\"peak_flops\":15.7e12,\"efficiency\":0.4,\"memory_bandwidth\":9e11,\"memory_bytes\":16e9,"
       "\"memory_reuse\":0.5,\"levels\":[{\"name\":\"node\",\"processors\":4,\"alpha_s\":1e-5,\"bandwidth\":20e9},"
       "{\"name\":\"rack\",\"processors\":68,\"alpha_s\":2e-5,\"bandwidth\":25e9,\"contention\":2}]}"),
      "{\"name\":\"one\",\"peak_flops\":1,\"memory_bytes\":1,\"levels\":[]}",
      ("{\"name\":\"here\",\"peak_flops\":1e9,\"memory_bytes\":1e9,\"levels\":[{\"name\":\"2 ranks\",\"processors\":2,"
       "\"alpha_s\":1e-6,\"bandwidth\":1e9,\"slowdown\":1.5,\"spread\":{\"slowdown\":[1.25,2],\"messages\":[0.5,3]},"
       "\"allgather\":{\"alpha_s\":1e-6,\"bandwidth\":2e9}}],\"spread\":{\"layers\":[0.9,1.1]},\"products\":"
       "{\"product\":{\"sample_s\":1e-7,\"entry_s\":1e-9,\"term_s\":1e-11},\"apply\":{\"sample_s\":0,\"entry_s\":1e-9,"
       "\"term_s\":1e-11}},\"measured\":"
       "{\"date\":\"2026-01-31\",\"hardware\":\"x\"},\"layer_times\":{\"model\":\"r\",\"batch\":16,\"layers\":["
       "{\"name\":\"rnn\",\"forward_s\":1e-5,\"backward_s\":2e-5,\"update_s\":1e-6,\"product_s\":1e-6,\"scan_s\":1e-6}]}}")};
  static const char *const models[] = {
      ("{\"name\":\"tiny\",\"samples\":50000,\"layers\":[{\"name\":\"conv1\",\"kind\":\"conv\",\"in\":[3,32,32],\"out\":[6,28,28]"
       ","
       "\"kernel\":[5,5],\"w\":450,\"bias\":6,\"flops\":705600},{\"name\":\"p\",\"kind\":\"pool\",\"in\":[6,28,28],"
       "\"out\":[6,14,14],\"kernel\":[2,2],\"stride\":[2,2]},{\"name\":\"fc\",\"kind\":\"linear\",\"in\":[1176],\"out\":[10],"
       "\"w\":11760,\"bias\":10,\"gather\":true}]}"),
      ("{\"name\":\"r\",\"layers\":[{\"name\":\"rnn\",\"kind\":\"recurrent\",\"in\":[1,100],\"out\":[20,100],\"w\":420,\"bias\":"
       "40,"
       "\"forward_s\":1e-3,\"backward_s\":2e-3,\"update_s\":1e-6}]}"),
      ("{\"input\":[1,4,4],\"layers\":[{\"name\":\"c\",\"op\":\"conv2d\",\"out\":2,\"kernel\":3},{\"name\":\"r\",\"op\":\"relu\"}"
       ","
       "{\"name\":\"fc\",\"op\":\"linear\",\"out\":3}]}"),
      ("{\"name\":\"x\",\"layers\":[{\"name\":\"n\",\"kind\":\"norm\",\"in\":[1e18,1e18],\"out\":[1,1]}]}"),
      ("{\"name\":\"block\",\"samples\":900,\"layers\":[{\"name\":\"a\",\"kind\":\"conv\",\"in\":[3,8],\"out\":[4,8],\"w\":12},"
       "{\"name\":\"m\",\"kind\":\"conv\",\"in\":[4,8],\"out\":[6,8],\"w\":24},{\"name\":\"s\",\"kind\":\"conv\",\"in\":[4,8],"
       "\"out\":[6,8],\"w\":24},{\"name\":\"+\",\"kind\":\"add\",\"in\":[6,8],\"out\":[6,8]}]}")};
  if (index >= 7) {
    return false;
  }
  fuzz_add_number(seed, 1, 1);
  fuzz_add_part_text(seed, systems[index < 4 || index > 5 ? 0 : index - 3]);
  fuzz_add_part_text(seed, models[index < 6 ? index % 4 : 4]);
  return true;
}

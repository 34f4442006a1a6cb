/* Readers: the results of a benchmark (figures/measured_rows.c), what an interrupted run of figures kept
 * (figures/keep_measurements.c), and the documents of earlier points (bench/harness/outlook.c). The part is the document. */
#include <string.h>

#include "bench/harness/outlook.h"
#include "figures/drawn_rows.h"
#include "figures/keep_measurements.h"
#include "figures/measured_rows.h"
#include "tests/fuzz/fuzz.h"

/* Judges a rival by the rows of a file of documents. */
static bppsa_status judge_rival(const char *path) {
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  json_t *rows = NULL;
  bppsa_outlook *outlook = NULL;
  config.seq_len = 1000;
  config.batch = 16;
  BPPSA_TRY(bppsa_outlook_read(path, "rnn", "rnn", &rows));
  const bppsa_status status = bppsa_outlook_create(rows, rows, &config, &outlook);
  if (status == BPPSA_OK) {
    const bppsa_rival_outlook found = bppsa_outlook_of(outlook, bppsa_outlook_winner(outlook), "cudnn_standard");
    FUZZ_CHECK(!(found.seconds < 0) && !(found.times < 0));
    (void)bppsa_outlook_check(&found);
  }
  bppsa_outlook_destroy(outlook);
  json_decref(rows);
  return status;
}

bppsa_status fuzz_run(const fuzz_input *input) {
  static const int64_t lengths[] = {10, 1000}, batches[] = {16, 2};
  const char *path = fuzz_file("rnn.json", input->part[0].data, input->part[0].size);
  json_t *document = NULL, *kept = NULL;
  const bppsa_status judged = judge_rival(path);
  if (judged == BPPSA_ERR_MEMORY) {
    return judged;
  }
  BPPSA_TRY(bppsa_json_load(path, &document));
  const json_t *rows = json_object_get(document, "rows");
  bppsa_status status = json_is_array(rows) ? bppsa_measured_check("--results", path, rows) : BPPSA_OK;
  (void)(json_is_array(rows) ? bppsa_ranks_rows_check(path, rows) : BPPSA_OK);
  (void)(json_is_array(rows) ? bppsa_out_of_order_rows_check(path, rows) : BPPSA_OK);
  for (int i = 0; status == BPPSA_OK && i < 2; ++i) {
    bool noisy = false;
    (void)bppsa_measured_median(rows, lengths[i], batches[i], NULL);
    (void)bppsa_measured_best_scan(rows, lengths[i], batches[i], &noisy);
    for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
      (void)bppsa_measured_iteration(rows, lengths[i], batches[i], bppsa_measured_method(m), "min_s");
      (void)bppsa_measured_noisy(rows, lengths[i], batches[i], bppsa_measured_method(m));
    }
  }
  json_decref(document);
  json_t *configuration = json_pack("{s:i,s:s}", "seed", 1, "dtype", "f32");
  FUZZ_CHECK(configuration != NULL);
  const bppsa_figures_request request = {.directory = fuzz_path(""), .resume = true, .configuration = configuration};
  bppsa_figures figures = {.request = &request};
  const bppsa_status resumed = bppsa_keep_resume(&figures, "rnn.json", "parts", &kept);
  if (resumed == BPPSA_OK && kept != NULL) {
    figures.document = kept;
    (void)bppsa_keep_find_part(&figures, "rnn");
  }
  json_decref(kept);
  json_decref(configuration);
  return status == BPPSA_OK ? resumed : status;
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  static const char *const texts[] = {
      ("{\"rows\":[{\"seq_len\":10,\"batch\":16,\"method\":\"forward\",\"phase\":\"forward\",\"init\":\"default\",\"median_s\":0."
       "1,"
       "\"min_s\":0.05},{\"seq_len\":10,\"batch\":16,\"method\":\"blelloch\",\"phase\":\"backward\",\"init\":\"default\","
       "\"median_s\":0.1,\"min_s\":0.1,\"noisy\":true}]}"),
      ("{\"configuration\":{\"seed\":1,\"dtype\":\"f32\"},\"parts\":[{\"name\":\"rnn\",\"rows\":[1]},{\"name\":7}],\"finished\":"
       "false}"),
      ("{\"bench\":\"rnn\",\"rows\":[{\"seq_len\":10,\"batch\":16,\"hidden\":20,\"input\":1,\"layers\":1,\"dtype\":\"f32\","
       "\"init\":\"default\",\"method\":\"cudnn_standard\",\"rival\":true,\"qualifying\":3},{\"seq_len\":10,\"batch\":16,"
       "\"hidden\":20,\"input\":1,\"layers\":1,\"dtype\":\"f32\",\"init\":\"default\",\"method\":\"cudnn_packed\",\"rival\":true,"
       "\"median_s\":1}]}\n\n{}"),
      "{\"configuration\":{\"seed\":[1,{\"a\":\"b\"}]},\"parts\":[]}", "{\"rows\":[{\"seq_len\":\"10\"}]}"};
  return fuzz_seed_text(index, 0, texts, (int)(sizeof texts / sizeof texts[0]), seed);
}

/* `bppsa data bitstream`: writes the bitstream task as a pair of NPY files. */
#include <inttypes.h>

#include "cli/data.h"

#include "cli/progress.h"
#include "cli/setup.h"

static const bppsa_option_use uses[] = {{.option = BPPSA_OPTION_LOSS, .help = "which steps have a label: the last or every one"},
                                        {.option = BPPSA_OPTION_SAMPLES, .fallback = "32000"},
                                        {.option = BPPSA_OPTION_SEQ_LEN, .fallback = "1000"},
                                        {.option = BPPSA_OPTION_SEED, .help = "of the data"},
                                        {.option = BPPSA_OPTION_DTYPE, .help = "type of the sequences"},
                                        {.option = BPPSA_OPTION_THREADS},
                                        {.option = BPPSA_OPTION_OUT_X, .required = true},
                                        {.option = BPPSA_OPTION_OUT_Y, .required = true},
                                        {.option = BPPSA_OPTION_JSON},
                                        {.option = BPPSA_OPTION_HELP},
                                        {.option = BPPSA_OPTION_COUNT}};

static void show_progress(void *context, int64_t done, int64_t total) {
  bppsa_progress_line *line = context;
  if (bppsa_progress_due(line)) {
    bppsa_progress_show(line, "%" PRId64 " of %" PRId64 " samples", done, total);
  }
}

static json_t *data_json(const bppsa_dataset *dataset, bppsa_dtype dtype) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "data", dataset->ops->name);
  ok = ok && bppsa_json_put_integer(object, "samples", dataset->samples);
  ok = ok && bppsa_json_put_integer(object, "seq_len", dataset->seq_len);
  ok = ok && bppsa_json_put_integer(object, "input", dataset->input);
  ok = ok && bppsa_json_put_integer(object, "classes", dataset->classes);
  ok = ok && bppsa_json_put_text(object, "loss_on", bppsa_loss_name(dataset->labels_per_step));
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(dtype));
  return bppsa_json_finish(object, ok);
}

bppsa_status bppsa_data_write(bppsa_cli *cli, const bppsa_device *device, const bppsa_dataset *dataset, bppsa_dtype dtype) {
  const char *x_path = bppsa_cli_value(cli, BPPSA_OPTION_OUT_X)->text;
  const char *y_path = bppsa_cli_value(cli, BPPSA_OPTION_OUT_Y)->text;
  bppsa_progress_line line = bppsa_progress_start(cli->err);
  const bppsa_status status = bppsa_dataset_write(dataset, device, dtype, x_path, y_path, show_progress, &line);
  bppsa_progress_clear(&line);
  BPPSA_TRY(status);
  if (cli->json) {
    bppsa_json_start();
    return bppsa_cli_print_json(cli, data_json(dataset, dtype));
  }
  const int64_t x_shape[3] = {dataset->samples, dataset->seq_len, dataset->input};
  const int64_t y_shape[2] = {dataset->samples, dataset->seq_len};
  char x_text[BPPSA_SHAPE_TEXT], y_text[BPPSA_SHAPE_TEXT];
  return bppsa_cli_print(cli, "%s: %s %s\n%s: i64 %s, classes 0 .. %" PRId64 "\n", x_path, bppsa_dtype_name(dtype),
                         bppsa_shape_text(3, x_shape, x_text, sizeof x_text), y_path,
                         bppsa_shape_text(dataset->labels_per_step ? 2 : 1, y_shape, y_text, sizeof y_text),
                         dataset->classes - 1);
}

static bppsa_status run(bppsa_cli *cli) {
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_OUT_X));
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_OUT_Y));
  BPPSA_TRY(bppsa_cli_check_distinct(cli, BPPSA_OPTION_OUT_X, BPPSA_OPTION_OUT_Y));
  bppsa_dataset_options options = {.samples = bppsa_cli_value(cli, BPPSA_OPTION_SAMPLES)->integer,
                                   .seq_len = bppsa_cli_value(cli, BPPSA_OPTION_SEQ_LEN)->integer,
                                   .seed = (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer,
                                   .labels_per_step = bppsa_cli_value(cli, BPPSA_OPTION_LOSS)->choice == 1};
  bppsa_dtype dtype;
  BPPSA_TRY(bppsa_dtype_parse(bppsa_cli_value(cli, BPPSA_OPTION_DTYPE)->text, &dtype));
  bppsa_device *device = NULL;
  bppsa_dataset *dataset = NULL;
  bppsa_status status = bppsa_setup_device(cli, &device);
  if (status == BPPSA_OK) {
    status = bppsa_dataset_create("bitstream", &options, &dataset);
  }
  if (status == BPPSA_OK) {
    status = bppsa_data_write(cli, device, dataset, dtype);
  }
  bppsa_dataset_destroy(dataset);
  bppsa_device_destroy(device);
  return status;
}

const bppsa_command bppsa_command_data_bitstream = {.verb = "data",
                                                    .object = "bitstream",
                                                    .summary = "Writes the bitstream task as NPY files",
                                                    .example =
                                                        "data bitstream --seq-len 100 --samples 1000 --out-x X.npy --out-y Y.npy",
                                                    .uses = uses,
                                                    .run = run};

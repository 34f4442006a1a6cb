/* `bppsa data cifar10`: a synthetic set in CIFAR-10's binary format. */
#include <inttypes.h>

#include "cli/command.h"
#include "cli/progress.h"
#include "cli/setup.h"
#include "train/data/cifar10.h"

static const bppsa_option_use uses[] = {
    {.option = BPPSA_OPTION_SYNTHETIC},
    {.option = BPPSA_OPTION_SAMPLES, .fallback = "10000", .help = "images to train on; a fifth as many more are held out"},
    {.option = BPPSA_OPTION_SEED, .help = "of the images"},
    {.option = BPPSA_OPTION_THREADS},
    {.option = BPPSA_OPTION_OUT, .metavar = "DIR", .required = true, .help = "where data_batch_1.bin .. test_batch.bin go"},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

static const char notes[] = "CIFAR-10 itself needs no conversion: unpack cifar-10-binary.tar.gz and name its directory, train "
                            "lenet5 --data cifar10:DIR.\n"
                            "The synthetic set has ten classes: stripes that lie, stand or slope, a checkerboard, dots; a disk, "
                            "a square, a triangle, a ring, "
                            "a cross.\n"
                            "Colours, places, sizes, phases and noise vary. Image k is of class k mod 10 and depends on the seed "
                            "and k alone. A directory that "
                            "holds\n"
                            "any of the files is refused.\n";

static void show_progress(void *context, int64_t done, int64_t total) {
  bppsa_progress_line *line = context;
  if (bppsa_progress_due(line)) {
    bppsa_progress_show(line, "%" PRId64 " of %" PRId64 " images", done, total);
  }
}

static json_t *cifar10_json(const char *directory, int64_t samples, int64_t seed) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "data", "cifar10");
  ok = ok && bppsa_json_put_text(object, "directory", directory);
  ok = ok && bppsa_json_put_integer(object, "samples", samples);
  ok = ok && bppsa_json_put_integer(object, "held_out", samples / 5);
  ok = ok && bppsa_json_put_integer(object, "classes", BPPSA_CIFAR10_CLASSES);
  ok = ok && bppsa_json_put_integer(object, "seed", seed);
  return bppsa_json_finish(object, ok);
}

static bppsa_status write_images(bppsa_cli *cli, const bppsa_device *device) {
  const char *directory = bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text;
  const int64_t samples = bppsa_cli_value(cli, BPPSA_OPTION_SAMPLES)->integer;
  const int64_t seed = bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer;
  bppsa_progress_line line = bppsa_progress_start(cli->err);
  const bppsa_status status =
      bppsa_cifar10_write(directory, samples, (uint64_t)seed, bppsa_device_get_threads(device), show_progress, &line);
  bppsa_progress_clear(&line);
  BPPSA_TRY(status);
  if (cli->json) {
    bppsa_json_start();
    return bppsa_cli_print_json(cli, cifar10_json(directory, samples, seed));
  }
  return bppsa_cli_print(cli, "%s: %" PRId64 " images to train on, %" PRId64 " held out, of %d classes\n", directory, samples,
                         samples / 5, BPPSA_CIFAR10_CLASSES);
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_device *device = NULL;
  if (!bppsa_cli_value(cli, BPPSA_OPTION_SYNTHETIC)->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--synthetic: missing, expected it: CIFAR-10 itself is read as it is, --data cifar10:DIR");
  }
  BPPSA_TRY(bppsa_cli_check_directory(cli, BPPSA_OPTION_OUT));
  BPPSA_TRY(bppsa_setup_device(cli, &device));
  const bppsa_status status = write_images(cli, device);
  bppsa_device_destroy(device);
  return status;
}

const bppsa_command bppsa_command_data_cifar10 = {.verb = "data",
                                                  .object = "cifar10",
                                                  .summary = "Writes a synthetic set of images in CIFAR-10's binary format",
                                                  .example = "data cifar10 --synthetic --out cifar",
                                                  .notes = notes,
                                                  .uses = uses,
                                                  .run = run};

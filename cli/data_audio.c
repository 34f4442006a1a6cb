/* `bppsa data irmas`: WAV files to features; `bppsa data instruments`: WAV files of synthetic instruments. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "audio/instruments.h"
#include "cli/data.h"
#include "cli/progress.h"
#include "cli/setup.h"
#include "core/alloc.h"

/* ---- irmas ---- */

static const bppsa_option_use irmas_uses[] = {
    {.option = BPPSA_OPTION_LOSS, .help = "which steps have a label: the last or every one"},
    {.option = BPPSA_OPTION_DIRECTORY, .required = true, .operand = true},
    {.option = BPPSA_OPTION_SET, .help = "259 steps of 38 features, 517 of 24, 1034 of 12"},
    {.option = BPPSA_OPTION_PADDING, .help = "what lies beyond the ends: silence, or the mirror image"},
    {.option = BPPSA_OPTION_SEED, .help = "of the order of the samples"},
    {.option = BPPSA_OPTION_DTYPE, .help = "type of the features"},
    {.option = BPPSA_OPTION_THREADS},
    {.option = BPPSA_OPTION_OUT_X, .required = true, .help = "where the features go, [N,T,I]"},
    {.option = BPPSA_OPTION_OUT_Y, .required = true},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

static const char irmas_notes[] =
    "Reads DIR/CLASS/NAME.wav, CLASS one of cel cla flu gac gel org pia sax tru vio voi (labels 0 .. 10); classes may be "
    "missing.\n"
    "Of every file the first 3 s count; a shorter one is followed by silence, one shorter than a window of the transform is "
    "refused.\n"
    "  rate      other than 44100 Hz: converted by libsamplerate's best converter; 4000 to 384000 Hz\n"
    "  channels  two, or one that stands for both; more are refused\n"
    "  set       S: 20 MFCC, windows of 4096, hop 512;  M: 13, 2048, 256;  L: 7, 1024, 128\n"
    "  features  of each channel: librosa's MFCC without the first, each with mean 0 and variance 1 over the steps\n"
    "The order of the samples depends on the seed and the sorted names alone. Every stretch of it has its share of every class, "
    "so that\n"
    "the last samples can be held out. A file that cannot be used is named, with the number of those that can, and nothing is "
    "written.\n";

static bppsa_status run_irmas(bppsa_cli *cli) {
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_OUT_X));
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_OUT_Y));
  BPPSA_TRY(bppsa_cli_check_distinct(cli, BPPSA_OPTION_OUT_X, BPPSA_OPTION_OUT_Y));
  const char *directory = bppsa_cli_value(cli, BPPSA_OPTION_DIRECTORY)->text;
  bppsa_dtype dtype;
  BPPSA_TRY(bppsa_dtype_parse(bppsa_cli_value(cli, BPPSA_OPTION_DTYPE)->text, &dtype));
  bppsa_device *device = NULL;
  BPPSA_TRY(bppsa_setup_device(cli, &device));
  bppsa_dataset *dataset = NULL;
  const size_t size = strlen(directory) + sizeof "irmas:";
  char *spec = bppsa_alloc(size);
  bppsa_status status = spec == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  if (status == BPPSA_OK) {
    snprintf(spec, size, "irmas:%s", directory);
    status = bppsa_setup_dataset_of(cli, spec, device, bppsa_cli_value(cli, BPPSA_OPTION_LOSS)->choice == 1, NULL, &dataset);
  }
  if (status == BPPSA_OK) {
    status = bppsa_data_write(cli, device, dataset, dtype);
  }
  bppsa_free(spec);
  bppsa_dataset_destroy(dataset);
  bppsa_device_destroy(device);
  return status;
}

const bppsa_command bppsa_command_data_irmas = {
    .verb = "data",
    .object = "irmas",
    .summary = "Turns directories of WAV files, as IRMAS has them, into MFCC features in NPY files",
    .example = "data irmas instruments --set S --out-x X.npy --out-y Y.npy",
    .notes = irmas_notes,
    .uses = irmas_uses,
    .run = run_irmas};

/* ---- instruments ---- */

static const bppsa_option_use instruments_uses[] = {
    {.option = BPPSA_OPTION_FILES, .fallback = "1100"},
    {.option = BPPSA_OPTION_SEED, .help = "of everything that varies"},
    {.option = BPPSA_OPTION_THREADS},
    {.option = BPPSA_OPTION_OUT, .metavar = "DIR", .required = true, .help = "where the folders of the classes go"},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

static const char instruments_notes[] =
    "Writes DIR/CLASS/CLASS_NUMBER.wav, 3 s each, stereo, 44100 Hz, 16 bits (529 kB): short phrases by eleven synthetic timbres "
    "named as\n"
    "IRMAS's classes. Pitch, tempo, level, envelopes, vibrato, noise, room and place vary. File k is of class k mod 11 and "
    "depends on the seed\n"
    "and k alone: more files, or more threads, change none of the others. Every file is complete or absent. A directory whose "
    "class folders\n"
    "hold WAV files already is refused, so that two sets never mix: remove it, or name another.\n";

static void show_progress(void *context, int64_t done, int64_t total) {
  bppsa_progress_line *line = context;
  if (bppsa_progress_due(line)) {
    bppsa_progress_show(line, "%" PRId64 " of %" PRId64 " files", done, total);
  }
}

static json_t *instruments_json(const char *directory, int64_t files, int64_t seed) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "data", "instruments");
  ok = ok && bppsa_json_put_text(object, "directory", directory);
  ok = ok && bppsa_json_put_integer(object, "files", files);
  ok = ok && bppsa_json_put_integer(object, "classes", BPPSA_INSTRUMENTS);
  ok = ok && bppsa_json_put_integer(object, "length_s", BPPSA_INSTRUMENT_FRAMES / BPPSA_AUDIO_RATE);
  ok = ok && bppsa_json_put_integer(object, "rate", BPPSA_AUDIO_RATE);
  ok = ok && bppsa_json_put_integer(object, "seed", seed);
  return bppsa_json_finish(object, ok);
}

static bppsa_status write_instruments(bppsa_cli *cli, const bppsa_device *device) {
  const char *directory = bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text;
  const int64_t files = bppsa_cli_value(cli, BPPSA_OPTION_FILES)->integer,
                seed = bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer;
  bppsa_progress_line line = bppsa_progress_start(cli->err);
  const bppsa_status status =
      bppsa_instruments_write(directory, files, (uint64_t)seed, bppsa_device_get_threads(device), show_progress, &line);
  bppsa_progress_clear(&line);
  BPPSA_TRY(status);
  if (cli->json) {
    bppsa_json_start();
    return bppsa_cli_print_json(cli, instruments_json(directory, files, seed));
  }
  return bppsa_cli_print(cli, "%s: %" PRId64 " files of %d classes, 3 s each\n", directory, files,
                         files < BPPSA_INSTRUMENTS ? (int)files : BPPSA_INSTRUMENTS);
}

static bppsa_status run_instruments(bppsa_cli *cli) {
  bppsa_device *device = NULL;
  BPPSA_TRY(bppsa_cli_check_directory(cli, BPPSA_OPTION_OUT));
  BPPSA_TRY(bppsa_setup_device(cli, &device));
  const bppsa_status status = write_instruments(cli, device);
  bppsa_device_destroy(device);
  return status;
}

const bppsa_command bppsa_command_data_instruments = {.verb = "data",
                                                      .object = "instruments",
                                                      .summary =
                                                          "Writes WAV files of eleven synthetic instruments, as IRMAS has them",
                                                      .example = "data instruments --files 1100 --seed 1 --out instruments",
                                                      .notes = instruments_notes,
                                                      .uses = instruments_uses,
                                                      .run = run_instruments};

/* `bppsa data`: makes data sets, or converts them to NPY files. */
#include <inttypes.h>
#include <string.h>

#include "audio/instruments.h"
#include "cli/setup.h"
#include "core/base/alloc.h"
#include "terminal/progress.h"
#include "train/data/cifar10.h"
#include "train/data/report.h"

/* A line of progress, and the name of the things that it counts. */
typedef struct {
  bppsa_progress_line line;
  const char *things; /* "samples" */
} counter;

static void show_progress(void *context, int64_t done, int64_t total) {
  counter *shown = context;
  if (bppsa_progress_due(&shown->line)) {
    bppsa_progress_show(&shown->line, "%" PRId64 " of %" PRId64 " %s", done, total, shown->things);
  }
}

/* ---- bitstream and irmas: NPY files ---- */

/* Writes a data set to --out-x and --out-y with progress, and says what was written. */
static bppsa_status write_set(bppsa_cli *cli, const bppsa_device *device, const bppsa_dataset *dataset, bppsa_dtype dtype) {
  const char *x = bppsa_cli_value(cli, BPPSA_OPTION_OUT_X)->text, *y = bppsa_cli_value(cli, BPPSA_OPTION_OUT_Y)->text;
  counter count = {bppsa_progress_start(cli->to.err), "samples"};
  bppsa_text shown = {0};
  bppsa_status status = cli->to.json ? bppsa_json_render(bppsa_dataset_json(dataset, dtype), &shown.text)
                                     : bppsa_dataset_text(dataset, dtype, x, y, &shown);
  status = status == BPPSA_OK ? bppsa_dataset_write(dataset, device, dtype, x, y, show_progress, &count) : status;
  bppsa_progress_clear(&count.line);
  return bppsa_setup_finish(cli, status, &shown);
}

/* Makes the data set `spec` and writes it to --out-x and --out-y. */
static bppsa_status convert(bppsa_cli *cli, const char *spec) {
  bppsa_dtype dtype;
  bppsa_device *device = NULL;
  bppsa_dataset *dataset = NULL;
  BPPSA_TRY(bppsa_dtype_parse(bppsa_cli_value(cli, BPPSA_OPTION_DTYPE)->text, &dtype));
  BPPSA_TRY(bppsa_setup_device(cli, &device));
  bppsa_status status = bppsa_setup_dataset_of(cli, spec, device, bppsa_cli_value(cli, BPPSA_OPTION_LOSS)->choice == 1, &dataset);
  status = status == BPPSA_OK ? write_set(cli, device, dataset, dtype) : status;
  bppsa_dataset_destroy(dataset);
  bppsa_device_destroy(device);
  return status;
}

static const bppsa_option_use bitstream_uses[] = {
    {.option = BPPSA_OPTION_LOSS, .help = "which steps have a label: the last or every one"},
    {.option = BPPSA_OPTION_SAMPLES, .fallback = "32000"},
    {.option = BPPSA_OPTION_SEQ_LEN, .fallback = "1000"},
    {.option = BPPSA_OPTION_SEED, .help = "of the data"},
    {.option = BPPSA_OPTION_DTYPE, .help = "type of the sequences"},
    BPPSA_USE(THREADS),
    {.option = BPPSA_OPTION_OUT_X, .required = true},
    {.option = BPPSA_OPTION_OUT_Y, .required = true},
    BPPSA_USES_END};

static bppsa_status run_bitstream(bppsa_cli *cli) {
  return convert(cli, "bitstream");
}

const bppsa_command bppsa_command_data_bitstream = {.verb = "data",
                                                    .object = "bitstream",
                                                    .summary = "Writes the bitstream task as NPY files",
                                                    .example =
                                                        "data bitstream --seq-len 100 --samples 1000 --out-x X.npy --out-y Y.npy",
                                                    .uses = bitstream_uses,
                                                    .run = run_bitstream};

static const bppsa_option_use irmas_uses[] = {
    {.option = BPPSA_OPTION_LOSS, .help = "which steps have a label: the last or every one"},
    {.option = BPPSA_OPTION_DIRECTORY, .required = true, .operand = true},
    {.option = BPPSA_OPTION_SET, .help = "259 steps of 38 features, 517 of 24, 1034 of 12"},
    {.option = BPPSA_OPTION_PADDING, .help = "what lies beyond the ends: silence, or the mirror image"},
    {.option = BPPSA_OPTION_SEED, .help = "of the order of the samples"},
    {.option = BPPSA_OPTION_DTYPE, .help = "type of the features"},
    BPPSA_USE(THREADS),
    {.option = BPPSA_OPTION_OUT_X, .required = true, .help = "where the features go, [N,T,I]"},
    {.option = BPPSA_OPTION_OUT_Y, .required = true},
    BPPSA_USES_END};

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
  const char *directory = bppsa_cli_value(cli, BPPSA_OPTION_DIRECTORY)->text;
  const size_t size = strlen(directory) + sizeof "irmas:";
  char *spec = bppsa_alloc(size);
  if (spec == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  snprintf(spec, size, "irmas:%s", directory);
  const bppsa_status status = convert(cli, spec);
  bppsa_free(spec);
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

/* ---- instruments and cifar10: files in a folder ---- */

/* A data set that is made as files in --out. */
typedef struct {
  bppsa_option count; /* which option says how many there are */
  const char *things; /* what it counts */
  json_t *(*json)(const char *directory, int64_t count, int64_t seed);
  bppsa_status (*text)(const char *directory, int64_t count, bppsa_text *text);
  bppsa_status (*write)(const char *directory, int64_t count, uint64_t seed, int32_t threads,
                        void (*progress)(void *context, int64_t done, int64_t total), void *context);
} folder_set;

static bppsa_status write_folder(bppsa_cli *cli, const folder_set *set) {
  const char *directory = bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text;
  const int64_t number = bppsa_cli_value(cli, set->count)->integer, seed = bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer;
  bppsa_device *device = NULL;
  BPPSA_TRY(bppsa_setup_device(cli, &device));
  counter count = {bppsa_progress_start(cli->to.err), set->things};
  bppsa_text shown = {0};
  bppsa_status status =
      cli->to.json ? bppsa_json_render(set->json(directory, number, seed), &shown.text) : set->text(directory, number, &shown);
  status = status == BPPSA_OK
               ? set->write(directory, number, (uint64_t)seed, bppsa_device_get_threads(device), show_progress, &count)
               : status;
  bppsa_progress_clear(&count.line);
  bppsa_device_destroy(device);
  return bppsa_setup_finish(cli, status, &shown);
}

static const bppsa_option_use instruments_uses[] = {{.option = BPPSA_OPTION_FILES, .fallback = "1100"},
                                                    {.option = BPPSA_OPTION_SEED, .help = "of everything that varies"},
                                                    BPPSA_USE(THREADS),
                                                    {.option = BPPSA_OPTION_OUT,
                                                     .metavar = "DIR",
                                                     .required = true,
                                                     .path = BPPSA_PATH_FOLDER,
                                                     .help = "where the folders of the classes go"},
                                                    BPPSA_USES_END};

static const char instruments_notes[] =
    "Writes DIR/CLASS/CLASS_NUMBER.wav, 3 s each, stereo, 44100 Hz, 16 bits (529 kB): short phrases by eleven synthetic timbres "
    "named as\n"
    "IRMAS's classes. Pitch, tempo, level, envelopes, vibrato, noise, room and place vary. File k is of class k mod 11 and "
    "depends on the seed\n"
    "and k alone: more files, or more threads, change none of the others. Every file is complete or absent. A directory whose "
    "class folders\n"
    "hold WAV files already is refused, so that two sets never mix: remove it, or name another.\n";

static bppsa_status run_instruments(bppsa_cli *cli) {
  static const folder_set instruments = {BPPSA_OPTION_FILES, "files", bppsa_instruments_json, bppsa_instruments_text,
                                         bppsa_instruments_write};
  return write_folder(cli, &instruments);
}

const bppsa_command bppsa_command_data_instruments = {.verb = "data",
                                                      .object = "instruments",
                                                      .summary =
                                                          "Writes WAV files of eleven synthetic instruments, as IRMAS has them",
                                                      .example = "data instruments --files 1100 --seed 1 --out instruments",
                                                      .notes = instruments_notes,
                                                      .uses = instruments_uses,
                                                      .run = run_instruments};

static const bppsa_option_use cifar10_uses[] = {
    BPPSA_USE(SYNTHETIC),
    {.option = BPPSA_OPTION_SAMPLES, .fallback = "10000", .help = "images to train on; a fifth as many more are held out"},
    {.option = BPPSA_OPTION_SEED, .help = "of the images"},
    BPPSA_USE(THREADS),
    {.option = BPPSA_OPTION_OUT,
     .metavar = "DIR",
     .required = true,
     .path = BPPSA_PATH_FOLDER,
     .help = "where data_batch_1.bin .. test_batch.bin go"},
    BPPSA_USES_END};

static const char cifar10_notes[] =
    "CIFAR-10 itself needs no conversion: unpack cifar-10-binary.tar.gz and name its directory, train "
    "lenet5 --data cifar10:DIR.\n"
    "The synthetic set has ten classes: stripes that lie, stand or slope, a checkerboard, dots; a disk, "
    "a square, a triangle, a ring, "
    "a cross.\n"
    "Colours, places, sizes, phases and noise vary. Image k is of class k mod 10 and depends on the seed "
    "and k alone. A directory that "
    "holds\n"
    "any of the files is refused.\n";

static bppsa_status run_cifar10(bppsa_cli *cli) {
  static const folder_set images = {BPPSA_OPTION_SAMPLES, "images", bppsa_cifar10_json, bppsa_cifar10_text, bppsa_cifar10_write};
  return bppsa_cli_value(cli, BPPSA_OPTION_SYNTHETIC)->given
             ? write_folder(cli, &images)
             : bppsa_fail(
                   BPPSA_ERR_ARGUMENT,
                   "--synthetic: missing, expected this option: CIFAR-10 itself needs no conversion, see --data cifar10:DIR");
}

const bppsa_command bppsa_command_data_cifar10 = {.verb = "data",
                                                  .object = "cifar10",
                                                  .summary = "Writes a synthetic set of images in CIFAR-10's binary format",
                                                  .example = "data cifar10 --synthetic --out cifar",
                                                  .notes = cifar10_notes,
                                                  .uses = cifar10_uses,
                                                  .run = run_cifar10};

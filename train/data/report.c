#include "train/data/report.h"

#include <inttypes.h>

#include "audio/instruments.h"
#include "train/data/cifar10.h"
#include "train/objective.h"

/* ---- sequences ---- */

json_t *bppsa_dataset_json(const bppsa_dataset *dataset, bppsa_dtype dtype) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "data", dataset->ops->name);
  ok = ok && bppsa_json_put_integer(object, "samples", dataset->samples);
  ok = ok && bppsa_json_put_integer(object, "seq_len", dataset->seq_len);
  ok = ok && bppsa_json_put_integer(object, "input", dataset->input);
  ok = ok && bppsa_json_put_integer(object, "classes", dataset->classes);
  ok = ok && bppsa_json_put_text(object, "loss_on", bppsa_objective_loss(NULL, dataset->labels_per_step));
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(dtype));
  return bppsa_json_finish(object, ok);
}

bppsa_status bppsa_dataset_text(const bppsa_dataset *dataset, bppsa_dtype dtype, const char *x_path, const char *y_path,
                                bppsa_text *text) {
  const int64_t x_shape[3] = {dataset->samples, dataset->seq_len, dataset->input};
  const int64_t y_shape[2] = {dataset->samples, dataset->seq_len};
  char x_text[BPPSA_SHAPE_TEXT], y_text[BPPSA_SHAPE_TEXT];
  bppsa_text_add(text, "%s: %s %s\n%s: i64 %s, classes 0 .. %" PRId64 "\n", x_path, bppsa_dtype_name(dtype),
                 bppsa_shape_text(3, x_shape, x_text, sizeof x_text), y_path,
                 bppsa_shape_text(dataset->labels_per_step ? 2 : 1, y_shape, y_text, sizeof y_text), dataset->classes - 1);
  return bppsa_text_check(text);
}

/* ---- WAV files ---- */

json_t *bppsa_instruments_json(const char *directory, int64_t files, int64_t seed) {
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

bppsa_status bppsa_instruments_text(const char *directory, int64_t files, bppsa_text *text) {
  bppsa_text_add(text, "%s: %" PRId64 " files of %d classes, 3 s each\n", directory, files,
                 files < BPPSA_INSTRUMENTS ? (int)files : BPPSA_INSTRUMENTS);
  return bppsa_text_check(text);
}

/* ---- images ---- */

json_t *bppsa_cifar10_json(const char *directory, int64_t samples, int64_t seed) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "data", "cifar10");
  ok = ok && bppsa_json_put_text(object, "directory", directory);
  ok = ok && bppsa_json_put_integer(object, "samples", samples);
  ok = ok && bppsa_json_put_integer(object, "held_out", samples / 5);
  ok = ok && bppsa_json_put_integer(object, "classes", BPPSA_CIFAR10_CLASSES);
  ok = ok && bppsa_json_put_integer(object, "seed", seed);
  return bppsa_json_finish(object, ok);
}

bppsa_status bppsa_cifar10_text(const char *directory, int64_t samples, bppsa_text *text) {
  bppsa_text_add(text, "%s: %" PRId64 " images to train on, %" PRId64 " held out, of %d classes\n", directory, samples,
                 samples / 5, BPPSA_CIFAR10_CLASSES);
  return bppsa_text_check(text);
}

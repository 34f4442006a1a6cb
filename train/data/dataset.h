/* Data sets of labelled sequences and images.
 *
 * A data set is a table of functions and a few numbers. Samples are made or copied into a batch's buffers when they are
 * asked for; any sample can be had at any time, by any thread, and is the same every time.
 *
 *     bitstream   BPPSA eq. 8: class c uniform in 0..9, x_t ~ Bernoulli(0.05 + 0.1 c), I = 1. Made on the fly from the
 *                 counter-based generator: 32 000 sequences of 30 000 bits occupy no memory. The first t steps of a
 *                 sample depend on the seed and the sample's index alone, not on T or N.
 *     npy:X,Y     X [N,T,I] or, images, [N,C,H,W], f32 or f64, Y integers [N], or [N,T] when there is a label per step. With
 *                 real targets Y is f32 or f64, [N] (C = 1) or [N,C], for every step [N,T] or [N,T,C].
 *     cifar10:DIR CIFAR-10's binary version: DIR/data_batch_1.bin .. data_batch_5.bin, as many of them as there are, to train
 *                 on, and DIR/test_batch.bin, where it is there, held out. Records of a label and 3 x 32 x 32 bytes, made (x /
 *                 255 - 0.5) / 0.25.
 *     irmas:DIR, instruments:DIR
 *                 WAV files DIR/CLASS/NAME.wav, CLASS one of IRMAS's eleven (audio/instruments.h), turned into MFCC features
 *                 when the set is made (audio/features.h): T frames, I = 2 (n_mfcc - 1). Samples stand in an order that depends
 *                 on the seed and the sorted names alone, in which every stretch has its share of every class, so that the last
 *                 ones can be held out.
 */
#ifndef BPPSA_TRAIN_DATA_DATASET_H
#define BPPSA_TRAIN_DATA_DATASET_H

#include "audio/mfcc.h"
#include "core/device.h"
#include "core/view.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BPPSA_MAX_SAMPLES INT32_MAX /* samples, and steps of a sample */

typedef struct bppsa_dataset bppsa_dataset;

typedef struct {
  const char *name; /* "bitstream" */

  /* As bppsa_dataset_fill; the arguments have been checked. Must not allocate. */
  void (*fill)(const bppsa_dataset *dataset, int32_t threads, int64_t count, const int64_t *indices, const bppsa_view *x,
               int64_t *labels);
  void (*destroy)(bppsa_dataset *dataset);
  /* As bppsa_dataset_targets; the arguments have been checked. NULL: the set has labels. */
  void (*targets)(const bppsa_dataset *dataset, int64_t count, const int64_t *indices, const bppsa_view *targets);
  /* As bppsa_dataset_queue; the arguments have been checked. NULL: batches are made on the host. */
  bppsa_status (*queue)(const bppsa_dataset *dataset, const bppsa_device *device, int64_t count, const int64_t *indices,
                        const bppsa_view *x, int64_t *labels);
  /* As bppsa_dataset_check. NULL: values are finite in either dtype. */
  bppsa_status (*check)(const bppsa_dataset *dataset, bppsa_dtype dtype);
} bppsa_dataset_ops;

struct bppsa_dataset {
  const bppsa_dataset_ops *ops;
  int64_t samples;   /* N >= 1 */
  int64_t seq_len;   /* T >= 1 */
  int64_t input;     /* I >= 1 */
  int64_t image[3];  /* C, H, W of images, which have T = 1 and I = C H W; 0 of sequences */
  int64_t held_out;  /* samples, the last ones, that are there to be evaluated on; 0: none in particular */
  int64_t classes;   /* C: every label is in 0 .. C - 1; of real targets: how many a row */
  bool real_targets; /* instead of labels: for the mean squared error */
  bool ignores;      /* rows of the label `ignored` take no part in the loss */
  int64_t ignored;
  bool labels_per_step; /* labels are [T, b], otherwise [b] */
  uint64_t identity;    /* two sets of one kind and shape with one identity hold the same values: a seed, or a checksum */
};

/* Called now and then with the samples done so far. */
typedef void (*bppsa_dataset_progress)(void *context, int64_t done, int64_t total);

/* How WAV files become features. */
typedef struct {
  const bppsa_mfcc_config *set; /* NULL: set S */
  bppsa_mfcc_padding padding;
  const bppsa_device *device;      /* gives the number of threads; NULL: one. Neither features nor order depend on it */
  bppsa_dataset_progress progress; /* called while files are read; may be NULL */
  void *context;
} bppsa_dataset_audio;

typedef struct {
  int64_t samples;      /* 0: 32 000 for bitstream, the files' for the others; cifar10: the first so many of those trained on */
  int64_t seq_len;      /* 0: 1000 for bitstream, the files' for the others */
  int64_t input;        /* 0: 1 for bitstream, the files' for the others, which take no other number */
  uint64_t seed;        /* of the bits; of the order of WAV files */
  bool labels_per_step; /* a label for every step (loss all) */
  bool real_targets;    /* npy: Y holds real targets, not labels */
  bool ignores;         /* a label that takes no part in the loss, and need not be one of the classes */
  int64_t ignored;
  const bppsa_dataset_audio *audio; /* WAV files only; NULL: a zeroed one */
} bppsa_dataset_options;

bppsa_dataset_options bppsa_dataset_options_default(void);

/* spec: "bitstream", "npy:X,Y", "irmas:DIR", "instruments:DIR" or "cifar10:DIR". ERR_ARGUMENT: an unknown kind (the message
 * lists the known), a count out of range or one that contradicts the files, a label out of range or a value that is not finite
 * (the message gives its index). ERR_SHAPE: files that disagree or are empty. ERR_UNSUPPORTED: a dtype, WAV files in a build
 * without audio. ERR_FORMAT, ERR_UNSUPPORTED, ERR_IO of a WAV file: the message names the first bad one and says how many are
 * good. ERR_IO, ERR_FORMAT, ERR_MEMORY: as bppsa_npy_load. */
bppsa_status bppsa_dataset_create(const char *spec, const bppsa_dataset_options *options, bppsa_dataset **dataset);
void bppsa_dataset_destroy(bppsa_dataset *dataset); /* NULL is legal */

/* The shape of a batch's x, [T, count, I] or [count, C, H, W]; returns the number of extents. */
int32_t bppsa_dataset_shape(const bppsa_dataset *dataset, int64_t count, int64_t shape[4]);

/* All values are finite as f32 or f64: an f64 value may lie beyond f32's range. ERR_ARGUMENT: the message names the first that is
 * not, and where. */
bppsa_status bppsa_dataset_check(const bppsa_dataset *dataset, bppsa_dtype dtype);

/* Fills a batch: x as bppsa_dataset_shape has it, f32 or f64, labels [count] or [T, count]. Either may be NULL. indices: size
 * count >= 1, each in 0 .. N-1. device gives the number of threads (NULL: one); the values do not depend on it. Allocates nothing.
 * ERR_ARGUMENT, ERR_SHAPE. */
bppsa_status bppsa_dataset_fill(const bppsa_dataset *dataset, const bppsa_device *device, int64_t count, const int64_t *indices,
                                const bppsa_view *x, int64_t *labels);

/* The batch's real targets, in host memory: [count, C], or [T, count, C] with a target for every step, f32 or f64, contiguous.
 * Allocates nothing. ERR_UNSUPPORTED: the set has labels. ERR_ARGUMENT, ERR_SHAPE. */
bppsa_status bppsa_dataset_targets(const bppsa_dataset *dataset, int64_t count, const int64_t *indices,
                                   const bppsa_view *targets);

/* The same batch, made on a GPU from indices in its memory into x and labels there; queued (core/device.h), and may be recorded.
 * The indices are the caller's to check. ERR_UNSUPPORTED: the data set makes its batches on the host (ops->queue is NULL).
 * ERR_ARGUMENT, ERR_SHAPE, ERR_CUDA. */
bppsa_status bppsa_dataset_queue(const bppsa_dataset *dataset, const bppsa_device *device, int64_t count, const int64_t *indices,
                                 const bppsa_view *x, int64_t *labels);

/* Writes X [N,T,I] or [N,C,H,W] of `dtype` (f32 or f64) and Y int64 [N] or [N,T] as NPY files, a few samples at a time. Neither
 * file appears before both are complete. progress may be NULL. ERR_ARGUMENT, ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_dataset_write(const bppsa_dataset *dataset, const bppsa_device *device, bppsa_dtype dtype, const char *x_path,
                                 const char *y_path, bppsa_dataset_progress progress, void *context);

/* Which samples are trained on and which are held out. */
typedef struct {
  int64_t train;      /* samples 0 .. train-1 */
  int64_t validation; /* samples train .. train+validation-1 */
} bppsa_split;

/* Holds out the last round(samples * fraction). fraction in [0, 1). ERR_ARGUMENT: out of range, or one of the two parts
 * would be empty although fraction > 0. */
bppsa_status bppsa_split_make(int64_t samples, double fraction, bppsa_split *split);

/* The split of a data set: where it has samples held out and fraction is 0, those; otherwise a fraction of the samples in front
 * of them, which then are not used. ERR_ARGUMENT as above. */
bppsa_status bppsa_dataset_split(const bppsa_dataset *dataset, double fraction, bppsa_split *split);

/* The order in which epoch `epoch` (from 1) visits samples 0 .. count-1: Fisher-Yates with numbers keyed by (seed, epoch).
 * order: size count, overwritten. */
void bppsa_shuffle(uint64_t seed, int64_t epoch, int64_t count, int64_t *order);

/* Where a run stands in its data: all there is to store to continue it. */
typedef struct {
  int64_t epoch;    /* from 1 */
  int64_t position; /* samples of this epoch already used */
} bppsa_batch_cursor;

#ifdef __cplusplus
}
#endif
#endif

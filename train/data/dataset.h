/* Data sets of labelled sequences and images.
 *
 * A data set is a table of functions and a few numbers. Samples are made, or copied into a batch's buffers, on demand. Any thread
 * may ask for any sample at any time, and gets the same values every time.
 *
 *     bitstream   BPPSA eq. 8: class c uniform in 0..9, x_t ~ Bernoulli(0.05 + 0.1 c), I = 1. Samples are computed on demand by a
 *                 counter-based generator, so 32 000 sequences of 30 000 bits occupy no memory. The first t steps of a sample
 *                 depend on the seed and the sample's index alone, not on T or N.
 *     npy:X,Y     X is [N,T,I], or for images [N,C,H,W], f32 or f64. Y is integers [N], or [N,T] with a label for each step; real
 *                 targets are f32 or f64, [N] (C = 1) or [N,C], with a target for each step [N,T] or [N,T,C].
 *     cifar10:DIR CIFAR-10's binary version: DIR/data_batch_1.bin .. data_batch_5.bin, as many as exist, are trained on, and
 *                 DIR/test_batch.bin, if it exists, is held out. A record is a label and 3 x 32 x 32 bytes x, which become
 *                 (x / 255 - 0.5) / 0.25.
 *     irmas:DIR, instruments:DIR
 *                 WAV files DIR/CLASS/NAME.wav, CLASS one of IRMAS's eleven: cel, cla, flu, gac, gel, org, pia, sax, tru, vio or
 *                 voi. They become MFCC features when the set is made (audio/mfcc.h): T frames, I = 2 (n_mfcc - 1). The order
 *                 of the samples depends on the seed and the sorted names alone; every range of samples has its share of every
 *                 class, so the last ones can be held out.
 */
#ifndef BPPSA_TRAIN_DATA_DATASET_H
#define BPPSA_TRAIN_DATA_DATASET_H

#include "audio/mfcc.h"
#include "core/base/view.h"
#include "core/compute/device.h"
#include "train/objective.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BPPSA_MAX_SAMPLES INT32_MAX /* samples, and steps of a sample */

typedef struct bppsa_dataset bppsa_dataset; /* samples and their labels */

/* Where the first steps of one sample go, in a batch whose rows of consecutive steps lie `apart` rows apart. */
typedef struct {
  int64_t sample, steps, apart;
  bppsa_dtype dtype;
  void *x;         /* the row of the first step, of I reals; NULL: not wanted */
  int64_t *labels; /* the label of the first step, or without labels_per_step the sample's; NULL: not wanted */
  void *targets;   /* likewise a row of C real targets */
} bppsa_dataset_part;

typedef struct {
  const char *name; /* "bitstream" */

  /* bppsa_dataset_fill, with checked arguments. Must not allocate. */
  void (*fill)(const bppsa_dataset *dataset, int32_t threads, int64_t count, const int64_t *indices, const bppsa_view *x,
               int64_t *labels);
  void (*destroy)(bppsa_dataset *dataset);
  /* Likewise fills real targets. NULL: the set has labels. */
  void (*targets)(const bppsa_dataset *dataset, int64_t count, const int64_t *indices, const bppsa_view *targets);
  /* Queues the making of a batch on a GPU. NULL: batches are made on the host. */
  bppsa_status (*queue)(const bppsa_dataset *dataset, const bppsa_device *device, int64_t count, const int64_t *indices,
                        const bppsa_view *x, int64_t *labels);
  /* Writes the first steps of one sample; asked for sequences alone. Any thread may call it. Must not allocate. */
  void (*part)(const bppsa_dataset *dataset, const bppsa_dataset_part *part);
  /* Checks that values are finite. NULL: they are, in f32 and f64. */
  bppsa_status (*check)(const bppsa_dataset *dataset, bppsa_dtype dtype);
} bppsa_dataset_ops;

/* How samples are packed into rows. */
typedef struct {
  int64_t rows, steps;       /* R rows of T steps, those held out included */
  int64_t samples;           /* that the rows hold */
  int64_t shortest, longest; /* the steps of samples */
  int64_t used;              /* steps of all samples: used / (R T) of the rows is full */
  bool ends;                 /* the loss counts at the last step of each sample alone */
} bppsa_packing;

struct bppsa_dataset {
  const bppsa_dataset_ops *ops;
  int64_t samples;           /* N >= 1 */
  int64_t seq_len;           /* T >= 1 */
  int64_t input;             /* I >= 1 */
  int64_t image[3];          /* C, H, W of images, which have T = 1 and I = C H W; 0 for sequences */
  int64_t held_out;          /* the number of samples at the end that are meant for evaluation; 0: none */
  int64_t classes;           /* C: every label is in 0 .. C - 1; for real targets the number in each row */
  bppsa_objective objective; /* what its labels, or its real targets, are for */
  bool labels_per_step;      /* labels are [T, b], otherwise [b] */
  int64_t *lengths;          /* [N], 1 .. T: the steps of each sample, owned; NULL: all have T */
  uint8_t *resets;           /* [N][T], 1: the sample begins anew in front of the step (bppsa_spans), owned; NULL: nowhere */
  double *loss_weights;      /* [N][T] with labels_per_step, otherwise [N]: of the rows' losses, owned; NULL: all are 1 */
  /* Its samples are pieces of streams: sample i of a batch continues sample i of the batch before it. A pass then begins with the
   * states in which the pass before has ended, a constant for its gradient; the first one of an epoch with 0 */
  bool streams;
  /* Of streams: a training pass has the steps of up to so many batches, the latest ones, and its gradient goes back through them
   * (train/trainer.h). Samples are sequences that are no rows of others. 0 or 1: the latest batch alone */
  int64_t windows;
  /* Of windows, for models whose samples have one length: every pass has the steps of K batches, that of evaluation too. Where an
   * epoch's first batches have fewer in front of them, the row begins with steps of zeros, and behind them anew (bppsa_spans) */
  bool whole_rows;
  const bppsa_packing *packing; /* its samples are rows that hold others, a member of the set; NULL: they are not */
  uint64_t identity; /* sets of one kind and shape with the same identity hold the same values: a seed, or a checksum */
};

/* Called from time to time with the number of samples done so far. */
typedef void (*bppsa_dataset_progress)(void *context, int64_t done, int64_t total);

/* How features are computed from WAV files. */
typedef struct {
  const bppsa_mfcc_config *set; /* NULL: set S */
  bppsa_mfcc_padding padding;
  const bppsa_device *device;      /* gives the number of threads; NULL: one. Features and order do not depend on it */
  bppsa_dataset_progress progress; /* called while files are read; may be NULL */
  void *context;
} bppsa_dataset_audio;

typedef struct {
  /* 0: 32 000 for bitstream, all samples of the files for others; cifar10: the first so many samples to train on */
  int64_t samples;
  int64_t seq_len;           /* 0: 1000 for bitstream, that of the files for others */
  int64_t input;             /* 0: 1 for bitstream, that of the files for others, which accept no other number */
  int64_t classes;           /* 0: 10 for bitstream, which has the first C classes otherwise; that of the files for others */
  uint64_t seed;             /* of the bits; of the order of WAV files */
  bool labels_per_step;      /* a label for every step (loss all) */
  bppsa_objective objective; /* only npy takes an error of real targets: Y then holds targets instead of labels */
  const bppsa_dataset_audio *audio; /* for WAV files; NULL: the same as a zeroed one */
} bppsa_dataset_options;

bppsa_dataset_options bppsa_dataset_options_default(void); /* all 0: what the comments above say */

/* spec: "bitstream", "npy:X,Y", "irmas:DIR", "instruments:DIR" or "cifar10:DIR". ERR_ARGUMENT: an unknown kind (the message lists
 * the known ones), a count out of range or one that disagrees with the files, a label out of range or a value that is not finite
 * (the message gives its index). ERR_SHAPE: files that disagree or are empty. ERR_UNSUPPORTED: a dtype, WAV files in a build
 * without audio. For WAV files ERR_FORMAT, ERR_UNSUPPORTED and ERR_IO name the first bad file and say how many are good. ERR_IO,
 * ERR_FORMAT, ERR_MEMORY: those of bppsa_npy_load. */
bppsa_status bppsa_dataset_create(const char *spec, const bppsa_dataset_options *options, bppsa_dataset **dataset);
void bppsa_dataset_destroy(bppsa_dataset *dataset); /* NULL is legal */

/* The shape of a batch's x, [T, count, I] or [count, C, H, W]; returns the number of extents. */
int32_t bppsa_dataset_shape(const bppsa_dataset *dataset, int64_t count, int64_t shape[4]);

/* Checks that all values are finite as f32 or f64; an f64 value may exceed the range of f32. ERR_ARGUMENT: the message names the
 * first value that is not finite, and its place. */
bppsa_status bppsa_dataset_check(const bppsa_dataset *dataset, bppsa_dtype dtype);

/* Fills a batch: x in the shape of bppsa_dataset_shape, f32 or f64, labels [count] or [T, count]. Either may be NULL. indices:
 * size count >= 1, each in 0 .. N-1. device gives the number of threads (NULL: one); values do not depend on it. Allocates
 * nothing. ERR_ARGUMENT, ERR_SHAPE. */
bppsa_status bppsa_dataset_fill(const bppsa_dataset *dataset, const bppsa_device *device, int64_t count, const int64_t *indices,
                                const bppsa_view *x, int64_t *labels);

/* Fills the batch's real targets, in host memory: [count, C], or [T, count, C] with a target for every step, f32 or f64,
 * contiguous. Allocates nothing. ERR_UNSUPPORTED: the set has labels. ERR_ARGUMENT, ERR_SHAPE. */
bppsa_status bppsa_dataset_targets(const bppsa_dataset *dataset, int64_t count, const int64_t *indices,
                                   const bppsa_view *targets);

/* Makes the same batch on a GPU; indices, x and labels are in GPU memory. The work is queued (core/compute/device.h) and may be
 * recorded. The caller checks the indices. ERR_UNSUPPORTED: the data set makes its batches on the host (ops->queue is NULL).
 * ERR_ARGUMENT, ERR_SHAPE, ERR_CUDA. */
bppsa_status bppsa_dataset_queue(const bppsa_dataset *dataset, const bppsa_device *device, int64_t count, const int64_t *indices,
                                 const bppsa_view *x, int64_t *labels);

/* Writes X [N,T,I] or [N,C,H,W] of `dtype` (f32 or f64) and Y int64 [N] or [N,T] as NPY files, a few samples at a time. Neither
 * file appears before both are complete. progress may be NULL. ERR_ARGUMENT, ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_dataset_write(const bppsa_dataset *dataset, const bppsa_device *device, bppsa_dtype dtype, const char *x_path,
                                 const char *y_path, bppsa_dataset_progress progress, void *context);

/* The samples that are trained on and those that are held out. */
typedef struct {
  int64_t train;      /* samples 0 .. train-1 */
  int64_t validation; /* samples train .. train+validation-1 */
} bppsa_split;

/* Holds out the last round(samples * fraction) samples, fraction in [0, 1). ERR_ARGUMENT: out of range, or one part would be
 * empty although fraction > 0. */
bppsa_status bppsa_split_make(int64_t samples, double fraction, bppsa_split *split);

/* The split of a data set. If the set has held-out samples and fraction is 0, those are held out; otherwise a fraction of the
 * samples in front of them, and they are not used. ERR_ARGUMENT as above. */
bppsa_status bppsa_dataset_split(const bppsa_dataset *dataset, double fraction, bppsa_split *split);

/* The order in which epoch `epoch` (from 1) visits samples 0 .. count-1: Fisher-Yates with random numbers keyed by (seed, epoch).
 * order: size count, overwritten. */
void bppsa_shuffle(uint64_t seed, int64_t epoch, int64_t count, int64_t *order);

/* A run's position in its data: all that must be stored to continue it. */
typedef struct {
  int64_t epoch;    /* from 1 */
  int64_t position; /* samples of this epoch that have been used */
} bppsa_batch_cursor;

#ifdef __cplusplus
}
#endif
#endif

/* Checkpoints: named tensors in a directory, saved such that a valid one remains when the program is killed or the disk is full.
 *
 *     DIR/checkpoint.safetensors             the latest
 *     DIR/checkpoint.previous.safetensors    the one before
 *     DIR/checkpoint.new.safetensors         complete but not in place: the program was killed between two renames
 *
 * save: writes checkpoint.new (temporary file, fsync, rename, fsync of the directory), then renames checkpoint to
 * checkpoint.previous and checkpoint.new to checkpoint, then calls fsync on the directory. Wherever this stops, the latest or the
 * previous checkpoint is complete.
 *
 * A file holds the tensors. Its metadata holds the CRC-32 (zlib's) of each tensor's bytes ("crc32.NAME"), the fields in which a
 * resumed run must agree, the library's version, and the CRC-32 of all this metadata ("crc32"). Only one program at a time may
 * use a directory: it is locked (flock) while it is open, if the file system supports that.
 */
#ifndef BPPSA_TRAIN_CHECKPOINT_H
#define BPPSA_TRAIN_CHECKPOINT_H

#include "core/files/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is saved and restored. The arrays, and what they point to, are borrowed until the checkpoint is closed. */
typedef struct {
  int64_t tensor_count;
  const bppsa_named_view *tensors; /* saved and restored; contiguous, in host memory */
  int64_t field_count;
  const bppsa_metadata
      *fields;          /* settings of the run: "seq_len" "1000". A resumed run must have the same ones, no less, no more */
  const char *open_key; /* the key of a field in which a resumed run may differ; NULL: none */
} bppsa_checkpoint_contents;

typedef struct bppsa_checkpoint bppsa_checkpoint;

/* Opens the directory and locks it. Creates it if it does not exist (its parent must exist), and removes temporary files that
 * killed programs left. ERR_ARGUMENT: another program is using it. ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_checkpoint_open(const char *directory, const bppsa_checkpoint_contents *contents,
                                   bppsa_checkpoint **checkpoint);
void bppsa_checkpoint_close(bppsa_checkpoint *checkpoint); /* unlocks; NULL is legal */

/* Does the directory hold a checkpoint, valid or damaged? */
bool bppsa_checkpoint_exists(const bppsa_checkpoint *checkpoint);

/* Saves the present values of the tensors as the latest checkpoint. ERR_IO: a valid checkpoint from before is kept. */
bppsa_status bppsa_checkpoint_save(bppsa_checkpoint *checkpoint);
/* The save has failed with this status, and there is work since the one before: the checkpoint goes to a new directory in TMPDIR or
 * /tmp, from which it can be resumed. Returns status, and the last error also says where it is. */
bppsa_status bppsa_checkpoint_rescue(bppsa_checkpoint *checkpoint, bppsa_status status);

#define BPPSA_CHECKPOINT_NOTICE 1024

/* Restores the tensors from the latest checkpoint, or from the previous one if the latest is missing or damaged. `notice`, of
 * BPPSA_CHECKPOINT_NOTICE bytes, receives "" or a line for the user: that the previous one was taken, or that another version of
 * the library wrote it. ERR_ARGUMENT: there is no checkpoint, or a field disagrees (the message names it and both values).
 * ERR_SHAPE: a tensor disagrees. ERR_FORMAT: all checkpoints are damaged. ERR_MEMORY. Nothing is restored on failure. */
bppsa_status bppsa_checkpoint_load(bppsa_checkpoint *checkpoint, char *notice);

/* Reads fields of the checkpoint that a load would take, without opening the directory, for callers that need them to build what
 * is restored. "" where the checkpoint lacks a field; longer values are cut off. ERR_ARGUMENT: there is no checkpoint.
 * ERR_FORMAT. */
#define BPPSA_CHECKPOINT_VALUE 192
bppsa_status bppsa_checkpoint_peek(const char *directory, int64_t count, const char *const *keys,
                                   char (*values)[BPPSA_CHECKPOINT_VALUE]);

#ifdef __cplusplus
}
#endif
#endif

/* Checkpoints: named tensors in a directory, saved so that a program killed at any moment, or a full disk, leaves a valid one.
 *
 *     DIR/checkpoint.safetensors             the latest
 *     DIR/checkpoint.previous.safetensors    the one before
 *     DIR/checkpoint.new.safetensors         complete, but not yet in place: a program was killed between two renames
 *
 * save: write checkpoint.new (temporary file, fsync, rename, fsync of the directory), then rename checkpoint to
 * checkpoint.previous and checkpoint.new to checkpoint, then fsync the directory. Whatever prefix of this happens, the latest
 * or the previous checkpoint is whole.
 *
 * A file holds the tensors and, in its metadata, the CRC-32 (zlib's) of each tensor's bytes ("crc32.NAME"), the fields a run must
 * agree with, the library's version, and the CRC-32 of all this metadata ("crc32"). One program at a time uses a directory: it is
 * locked (flock) while it is open, where the file system can.
 */
#ifndef BPPSA_TRAIN_CHECKPOINT_H
#define BPPSA_TRAIN_CHECKPOINT_H

#include "core/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is saved and restored. The arrays and what they point to are borrowed until the checkpoint is closed. */
typedef struct {
  int64_t tensor_count;
  const bppsa_named_view *tensors; /* saved from, restored into; contiguous, in host memory */
  int64_t field_count;
  const bppsa_metadata *fields; /* what the run is: "seq_len" "1000". Compared as text when it is resumed */
} bppsa_checkpoint_contents;

typedef struct bppsa_checkpoint bppsa_checkpoint;

/* Opens the directory, made where it does not exist (its parent must), locks it, and removes what killed programs left in it.
 * ERR_ARGUMENT: another program is using it. ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_checkpoint_open(const char *directory, const bppsa_checkpoint_contents *contents,
                                   bppsa_checkpoint **checkpoint);
void bppsa_checkpoint_close(bppsa_checkpoint *checkpoint); /* unlocks; NULL is legal */

/* Is there a checkpoint, valid or not? */
bool bppsa_checkpoint_exists(const bppsa_checkpoint *checkpoint);

/* Saves the tensors' present values as the latest checkpoint. ERR_IO: there still is a valid one, if there was. */
bppsa_status bppsa_checkpoint_save(bppsa_checkpoint *checkpoint);

#define BPPSA_CHECKPOINT_NOTICE 512

/* Restores the tensors from the latest checkpoint, or from the previous one where the latest is missing or damaged. `notice`, of
 * BPPSA_CHECKPOINT_NOTICE bytes, is "" or a line that the user should see: that, or that another version wrote it. ERR_ARGUMENT:
 * there is none, or a field contradicts (the message names it and both values). ERR_SHAPE: a tensor contradicts. ERR_FORMAT: all
 * are damaged. ERR_MEMORY. Nothing is restored on failure. */
bppsa_status bppsa_checkpoint_load(bppsa_checkpoint *checkpoint, char *notice);

/* The value of a field in the valid checkpoint that a load would take, without opening the directory: for those who must know
 * before they can build what is restored. "" where the checkpoint has no such field. ERR_ARGUMENT: there is no checkpoint.
 * ERR_FORMAT. */
bppsa_status bppsa_checkpoint_peek(const char *directory, int64_t count, const char *const *keys, char (*values)[64]);

#ifdef __cplusplus
}
#endif
#endif

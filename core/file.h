/* Whole-file reads with a cap, and writes that are complete or absent: a temporary file in the same directory, fsync,
 * rename, fsync of the directory. Every writer of the project goes through here.
 */
#ifndef BPPSA_CORE_FILE_H
#define BPPSA_CORE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a regular file whole into *data (owned, bppsa_free) when it has at most `limit` bytes. A terminating 0 follows the
 * data and is not counted in *size. ERR_IO names the path and the system's reason; ERR_FORMAT: larger than limit. */
bppsa_status bppsa_file_read(const char *path, int64_t limit, char **data, int64_t *size);

/* A regular file read in pieces, from its first byte on. Close what was opened. */
typedef struct {
  int descriptor;
  int64_t size;     /* bytes of the file when it was opened */
  int64_t offset;   /* bytes read so far */
  const char *path; /* borrowed */
} bppsa_file_reader;

bppsa_status bppsa_file_reader_open(const char *path, bppsa_file_reader *reader);
/* The next `bytes` bytes; ERR_IO when the file ends before. */
bppsa_status bppsa_file_reader_read(bppsa_file_reader *reader, void *data, int64_t bytes);
void bppsa_file_reader_close(bppsa_file_reader *reader);

typedef struct bppsa_file_writer bppsa_file_writer;

/* Opens a temporary file next to `path`. Nothing is visible at `path` until commit. A symbolic link is followed: what it
 * names is replaced. A path that is no regular file (/dev/null, a pipe, a terminal), or on which standard output or error is open,
 * is written to directly and at once; a directory is refused. */
bppsa_status bppsa_file_writer_create(const char *path, bppsa_file_writer **writer);
bppsa_status bppsa_file_writer_write(bppsa_file_writer *writer, const void *data, size_t bytes);
/* The next bytes go to `offset` from the beginning, which may lie behind all that was written. ERR_IO: a pipe or a terminal takes
 * them in order. */
bppsa_status bppsa_file_writer_seek(bppsa_file_writer *writer, int64_t offset);
/* fsync, rename over `path`, fsync of the directory. Destroys the writer in every case; on failure the temporary file
 * is removed and `path` is as it was; or it is complete, where only its directory could not be brought to disk (the message says
 * so). */
bppsa_status bppsa_file_writer_commit(bppsa_file_writer *writer);
/* Removes the temporary file. NULL is legal. */
void bppsa_file_writer_abort(bppsa_file_writer *writer);

/* create + write + commit. */
bppsa_status bppsa_file_write(const char *path, const void *data, size_t bytes);

/* Brings a directory's names to disk. ERR_IO; not every file system can: those succeed. */
bppsa_status bppsa_file_sync_directory(const char *path);

/* Removes the temporary files that programs left in a directory when they were killed: those of processes that are no more, and
 * those of this one's number, which must not be writing into the directory meanwhile. ERR_IO: it cannot be listed. */
bppsa_status bppsa_file_clean(const char *directory);

/* Removes the temporary files of this process's open writers, of the first 16 where there are more: for a signal handler that
 * ends the process. Async-signal-safe. A writer whose file is gone fails to commit. A process forked meanwhile removes nothing. */
void bppsa_file_remove_temporaries(void);

#ifdef __cplusplus
}
#endif
#endif

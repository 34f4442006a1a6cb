/* Whole-file reads with a limit, from regular files only: pipes, devices and directories are refused. Writes that are complete or
 * absent: a temporary file in the same directory, fsync, rename, fsync of the directory. Every reader and writer of the project
 * uses these functions.
 */
#ifndef BPPSA_CORE_FILES_FILE_H
#define BPPSA_CORE_FILES_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/status.h"
#include "core/files/temporary.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a whole regular file of at most `limit` bytes into *data (owned, bppsa_free). A 0 follows the data and is not counted in
 * *size. ERR_IO names the path and the system's reason; ERR_FORMAT: larger than limit. */
bppsa_status bppsa_file_read(const char *path, int64_t limit, char **data, int64_t *size);

/* A regular file that is read in pieces, from its first byte on. A file that was opened must be closed. */
typedef struct {
  int descriptor;
  int64_t size;     /* bytes of the file when it was opened */
  int64_t offset;   /* bytes read so far */
  const char *path; /* borrowed */
} bppsa_file_reader;

bppsa_status bppsa_file_reader_open(const char *path, bppsa_file_reader *reader);
/* Reads the next `bytes` bytes. ERR_IO: the file ends before. */
bppsa_status bppsa_file_reader_read(bppsa_file_reader *reader, void *data, int64_t bytes);
/* Passes over the next `bytes` bytes. ERR_IO: the system cannot move to that place. */
bppsa_status bppsa_file_reader_skip(bppsa_file_reader *reader, int64_t bytes);
void bppsa_file_reader_close(bppsa_file_reader *reader);
/* Does a regular file begin with that text? False too where it cannot be read: whoever opens it next says why. */
bool bppsa_file_begins(const char *path, const char *text);

typedef struct bppsa_file_writer bppsa_file_writer;

/* Opens a temporary file next to `path`. Nothing is visible at `path` until commit. If `path` is a symbolic link, the file it
 * names is replaced. A path that is no regular file (/dev/null, a pipe, a terminal), or on which standard output or error is
 * open, is written to directly. A directory, a pipe that nobody reads, and a file that the system will not let a new one replace
 * are refused. */
bppsa_status bppsa_file_writer_create(const char *path, bppsa_file_writer **writer);
bppsa_status bppsa_file_writer_write(bppsa_file_writer *writer, const void *data, size_t bytes);
/* Continues at `offset` from the beginning, which may lie behind everything written so far. ERR_IO: a pipe or a terminal can only
 * be written in order. */
bppsa_status bppsa_file_writer_seek(bppsa_file_writer *writer, int64_t offset);
/* Calls fsync, renames the file to `path`, and calls fsync on the directory. Destroys the writer in every case. On failure the
 * temporary file is removed and `path` is unchanged; if only the directory could not be brought to disk, `path` is complete (the
 * message says so). */
bppsa_status bppsa_file_writer_commit(bppsa_file_writer *writer);
/* Removes the temporary file. NULL is legal. */
void bppsa_file_writer_abort(bppsa_file_writer *writer);

/* create + write + commit. */
bppsa_status bppsa_file_write(const char *path, const void *data, size_t bytes);

/* Proves that a file can be put in place at `path`, as a writer would do it: makes its temporary file, writes a page to it and
 * removes it. What is at the path stays as it is. ERR_IO. */
bppsa_status bppsa_file_prove(const char *path);
/* The same for new files in a directory. */
bppsa_status bppsa_file_prove_directory(const char *path);

/* Brings a directory's names to disk. ERR_IO; a file system that cannot do it is no error. */
bppsa_status bppsa_file_sync_directory(const char *path);

#ifdef __cplusplus
}
#endif
#endif

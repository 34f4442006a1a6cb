/* Removes temporary files that nobody completes. A temporary file takes the place of an output when it is complete
 * (core/files/file.h). */
#ifndef BPPSA_CORE_FILES_TEMPORARY_H
#define BPPSA_CORE_FILES_TEMPORARY_H

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Removes temporary files that killed programs left in a directory: those of processes that no longer exist, and those with this
 * process's number that no writer has open (of the first 16 writers). ERR_IO: the directory cannot be listed. */
bppsa_status bppsa_file_clean(const char *directory);

/* Removes the temporary files of this process's open writers (the first 16), for a signal handler that ends the process.
 * Async-signal-safe. A writer whose file is removed fails to commit. In a process forked while files are open it removes nothing.
 */
void bppsa_file_remove_temporaries(void);

#ifdef __cplusplus
}
#endif
#endif

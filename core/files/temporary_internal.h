/* The names of temporary files. */
#ifndef BPPSA_CORE_FILES_TEMPORARY_INTERNAL_H
#define BPPSA_CORE_FILES_TEMPORARY_INTERNAL_H

/* Writes a name that this process has not used, ".bppsa-PROCESS-NUMBER.tmp", and returns the number. */
#define BPPSA_TEMPORARY_NAME 64
unsigned bppsa_temporary_name(char name[BPPSA_TEMPORARY_NAME]);

/* Makes a path known to a signal handler before the file exists. Returns its slot; -1 if all are taken or the path is too long. */
int bppsa_temporary_remember(const char *path, unsigned number);
/* Frees the slot, because the file is removed or has its final name. */
void bppsa_temporary_forget(int slot);

#endif

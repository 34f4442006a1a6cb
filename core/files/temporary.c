#include "core/files/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/io.h"
#include "core/files/temporary_internal.h"

#define TEMPORARY_NAME ".bppsa-%ld-%u.tmp" /* process, number */

#define SLOTS 16 /* names that a signal handler can remove */

unsigned bppsa_temporary_name(char name[BPPSA_TEMPORARY_NAME]) {
  static atomic_uint next;
  const unsigned number = atomic_fetch_add(&next, 1);
  snprintf(name, BPPSA_TEMPORARY_NAME, TEMPORARY_NAME, (long)getpid(), number);
  return number;
}

/* ---- temporary names, for a signal handler ---- */

typedef enum { SLOT_FREE = 0, SLOT_HELD, SLOT_LIVE, SLOT_REMOVED } slot_state;

/* Names in fixed memory, with states that change by compare and exchange, because a handler may run at any moment on any thread.
 * HELD: the name is being written, or its file removed. */
static struct {
  atomic_int state;
  atomic_uint number;
  pid_t process;
  char path[PATH_MAX];
} slots[SLOTS];

int bppsa_temporary_remember(const char *path, unsigned number) {
  const size_t size = strlen(path) + 1;
  for (int i = 0; i < SLOTS && size <= sizeof slots[i].path; ++i) {
    int expected = SLOT_FREE;
    if (atomic_compare_exchange_strong(&slots[i].state, &expected, SLOT_HELD)) {
      memcpy(slots[i].path, path, size);
      slots[i].process = getpid();
      atomic_store(&slots[i].number, number);
      atomic_store(&slots[i].state, SLOT_LIVE);
      return i;
    }
  }
  return -1;
}

/* A slot that a handler is working on stays taken, because the process is ending. */
void bppsa_temporary_forget(int slot) {
  int expected = SLOT_LIVE;
  if (slot >= 0 && !atomic_compare_exchange_strong(&slots[slot].state, &expected, SLOT_FREE) && expected == SLOT_REMOVED) {
    atomic_store(&slots[slot].state, SLOT_FREE);
  }
}

void bppsa_file_remove_temporaries(void) {
  const int reason = errno;
  for (int i = 0; i < SLOTS; ++i) {
    int expected = SLOT_LIVE;
    if (atomic_compare_exchange_strong(&slots[i].state, &expected, SLOT_HELD)) {
      if (slots[i].process == getpid()) {
        (void)bppsa_io_unlink(slots[i].path); /* as safe in a handler as unlink; a test's hook does not see it */
      }
      atomic_store(&slots[i].state, SLOT_REMOVED);
    }
  }
  errno = reason;
}

/* ---- files that killed programs left behind ---- */

/* Is a writer of this process at work on the file with this number? */
static bool is_open(unsigned number) {
  for (int i = 0; i < SLOTS; ++i) {
    if (atomic_load(&slots[i].state) == SLOT_LIVE && atomic_load(&slots[i].number) == number) {
      return true;
    }
  }
  return false;
}

/* Is it the name of a temporary file that nobody is writing any more? */
static bool is_left_over(const char *name) {
  long process = 0;
  unsigned number = 0;
  char again[BPPSA_TEMPORARY_NAME];
  if (sscanf(name, TEMPORARY_NAME, &process, &number) != 2 || process <= 0) {
    return false;
  }
  snprintf(again, sizeof again, TEMPORARY_NAME, process, number);
  if (strcmp(name, again) != 0) {
    return false;
  }
  return process == getpid() ? !is_open(number) : kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

bppsa_status bppsa_file_clean(const char *directory) {
  BPPSA_REQUIRE(directory != NULL);
  DIR *entries = opendir(directory);
  if (entries == NULL) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: cannot list the directory: %s", directory, strerror(errno));
  }
  for (const struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
    char path[PATH_MAX];
    if (is_left_over(entry->d_name) && snprintf(path, sizeof path, "%s/%s", directory, entry->d_name) < (int)sizeof path) {
      (void)bppsa_io_unlink(path); /* a file that cannot be removed does no harm */
    }
  }
  closedir(entries);
  return BPPSA_OK;
}

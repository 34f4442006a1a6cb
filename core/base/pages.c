#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* madvise */
#endif
#include "core/base/pages.h"

#include <errno.h>
#include <stddef.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

void bppsa_pages_advise(const void *array, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  enum { LARGE_PAGE = 1 << 21, LEAST = 2 * LARGE_PAGE };
  if (array != NULL && bytes >= LEAST) {
    const int before = errno;
    const uintptr_t first = ((uintptr_t)array + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE,
                    end = ((uintptr_t)array + (uintptr_t)bytes) / LARGE_PAGE * LARGE_PAGE;
    (void)madvise((void *)first, end - first, MADV_HUGEPAGE); /* a system that has no such pages goes on with small ones */
    errno = before;
  }
#else
  (void)array, (void)bytes;
#endif
}

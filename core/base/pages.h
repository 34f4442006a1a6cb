/* Pages of memory. */
#ifndef BPPSA_CORE_BASE_PAGES_H
#define BPPSA_CORE_BASE_PAGES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Asks the system to give an array that is about to be written as a whole large pages, each of which it clears at once. Arrays of
 * less than 4 MiB keep small ones, and so do all arrays where the system has no large pages. */
void bppsa_pages_advise(const void *array, int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif

/* The only host allocator. All host memory of the library comes from here, so that a test can make the k-th allocation fail and
 * count the blocks that are still allocated.
 *
 * Memory is aligned to BPPSA_ALIGNMENT bytes. Thread-safe.
 */
#ifndef BPPSA_CORE_BASE_ALLOC_H
#define BPPSA_CORE_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BPPSA_ALIGNMENT 64 /* bytes */

/* `bytes` uninitialised bytes, or NULL on failure (with the last error set, ERR_MEMORY). 0 bytes give a distinct pointer. Free
 * with bppsa_free. */
void *bppsa_alloc(size_t bytes);

/* The same for count * size bytes, zeroed; NULL also if the product overflows or is negative. */
void *bppsa_calloc(int64_t count, size_t size);

/* Resizes (contents kept up to the smaller size); NULL on failure, and `pointer` is then still valid. */
void *bppsa_realloc(void *pointer, size_t bytes);

/* Makes room for one more element of `size` bytes behind `count`: a full array of *room elements grows, first to 64 elements, then
 * to twice as many. `array` points to the pointer to the elements. ERR_MEMORY: the array is as it was. */
bppsa_status bppsa_grow(void *array, int64_t count, int64_t *room, size_t size);

/* A copy of the string, or NULL. */
char *bppsa_strdup(const char *text);

void bppsa_free(void *pointer); /* NULL is legal */

/* *product = a * b; false when a factor is negative or the product does not fit. */
bool bppsa_mul(int64_t a, int64_t b, int64_t *product);

/* Failure injection: the `call`-th allocation from now (1 = the next) and every one after it fails. 0 switches it off. */
void bppsa_alloc_fail_at(int64_t call);
/* Only that one allocation fails; later ones succeed. */
void bppsa_alloc_fail_once(int64_t call);
/* Allocations attempted since the last bppsa_alloc_fail_at / _fail_once. */
int64_t bppsa_alloc_calls(void);
/* Blocks and bytes that are allocated and not freed. */
int64_t bppsa_alloc_live(void);
int64_t bppsa_alloc_live_bytes(void);

/* An account counts the memory of the threads that use it: how much of a program's memory is one rank's. */
typedef struct bppsa_alloc_account bppsa_alloc_account;
/* NULL (last error set, ERR_MEMORY) on failure. */
bppsa_alloc_account *bppsa_alloc_account_create(void);
/* Blocks that were charged to it stay valid and are freed like any other. NULL is legal. */
void bppsa_alloc_account_destroy(bppsa_alloc_account *account);
/* Charges this thread's new blocks to the account, or to none (NULL), until any thread frees them. */
void bppsa_alloc_account_use(bppsa_alloc_account *account);
/* Bytes charged to it now, and the most there ever were. */
int64_t bppsa_alloc_account_bytes(const bppsa_alloc_account *account);
int64_t bppsa_alloc_account_peak(const bppsa_alloc_account *account);

#ifdef __cplusplus
}
#endif
#endif

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "core/base/alloc.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/pages.h"

/* A block is a header of BPPSA_ALIGNMENT bytes, then the caller's bytes. */
typedef struct {
  size_t bytes;                 /* the caller's */
  bppsa_alloc_account *account; /* counts its bytes; NULL: none */
} header;

struct bppsa_alloc_account {
  atomic_int_least64_t bytes, peak;
  atomic_int_least64_t holders; /* its blocks, and its owner; the last of them frees it */
};

_Static_assert(sizeof(header) <= BPPSA_ALIGNMENT, "the header fits in front of the aligned block");

static atomic_int_least64_t live_blocks;
static atomic_int_least64_t live_bytes;
static atomic_int_least64_t calls;      /* since the injection was set */
static atomic_int_least64_t fail_first; /* calls fail_first .. fail_last fail; 0: none */
static atomic_int_least64_t fail_last;
static _Thread_local bppsa_alloc_account *charged; /* pays for this thread's blocks */

static header *header_of(void *pointer) {
  return (header *)(void *)((char *)pointer - BPPSA_ALIGNMENT);
}

static void release_account(bppsa_alloc_account *account) {
  if (account != NULL && atomic_fetch_sub(&account->holders, 1) == 1) {
    bppsa_free(account);
  }
}

static void charge(bppsa_alloc_account *account, int64_t bytes) {
  if (account == NULL) {
    return;
  }
  atomic_fetch_add(&account->holders, 1);
  const int64_t now = atomic_fetch_add(&account->bytes, bytes) + bytes;
  int64_t peak = atomic_load(&account->peak);
  while (now > peak && !atomic_compare_exchange_weak(&account->peak, &peak, now)) {
  }
}

/* Counts one call; true if it is to fail. */
static bool injected(void) {
  const int64_t call = atomic_fetch_add(&calls, 1) + 1;
  const int64_t first = atomic_load(&fail_first);
  return first > 0 && call >= first && call <= atomic_load(&fail_last);
}

void *bppsa_alloc(size_t bytes) {
  if (injected()) {
    bppsa_fail(BPPSA_ERR_MEMORY, "out of memory: %zu bytes (injected failure)", bytes);
    return NULL;
  }
  void *block = NULL;
  if (bytes > (size_t)PTRDIFF_MAX - BPPSA_ALIGNMENT || posix_memalign(&block, BPPSA_ALIGNMENT, bytes + BPPSA_ALIGNMENT) != 0) {
    bppsa_fail(BPPSA_ERR_MEMORY, "out of memory: %zu bytes", bytes);
    return NULL;
  }
  bppsa_pages_advise(block, (int64_t)bytes);
  void *pointer = (char *)block + BPPSA_ALIGNMENT;
  *header_of(pointer) = (header){bytes, charged};
  charge(charged, (int64_t)bytes);
  atomic_fetch_add(&live_blocks, 1);
  atomic_fetch_add(&live_bytes, (int64_t)bytes);
  return pointer;
}

void *bppsa_calloc(int64_t count, size_t size) {
  int64_t bytes = 0;
  if (size > (size_t)INT64_MAX || !bppsa_mul(count, (int64_t)size, &bytes)) {
    bppsa_fail(BPPSA_ERR_MEMORY, "out of memory: %lld elements of %zu bytes do not fit in 64 bits", (long long)count, size);
    return NULL;
  }
  void *pointer = bppsa_alloc((size_t)bytes);
  if (pointer != NULL) {
    memset(pointer, 0, (size_t)bytes);
  }
  return pointer;
}

void *bppsa_realloc(void *pointer, size_t bytes) {
  void *moved = bppsa_alloc(bytes);
  if (moved != NULL && pointer != NULL) {
    const size_t old = header_of(pointer)->bytes;
    memcpy(moved, pointer, old < bytes ? old : bytes);
    bppsa_free(pointer);
  }
  return moved;
}

bppsa_status bppsa_grow(void *array, int64_t count, int64_t *room, size_t size) {
  BPPSA_REQUIRE(array != NULL && room != NULL);
  if (count < *room) {
    return BPPSA_OK;
  }
  void *elements;
  memcpy(&elements, array, sizeof elements);
  const int64_t more = *room == 0 ? 64 : 2 * *room;
  elements = bppsa_realloc(elements, (size_t)more * size);
  if (elements == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memcpy(array, &elements, sizeof elements);
  *room = more;
  return BPPSA_OK;
}

char *bppsa_strdup(const char *text) {
  const size_t bytes = strlen(text) + 1;
  char *copy = bppsa_alloc(bytes);
  if (copy != NULL) {
    memcpy(copy, text, bytes);
  }
  return copy;
}

void bppsa_free(void *pointer) {
  if (pointer == NULL) {
    return;
  }
  header *block = header_of(pointer);
  atomic_fetch_sub(&live_blocks, 1);
  atomic_fetch_sub(&live_bytes, (int64_t)block->bytes);
  bppsa_alloc_account *account = block->account;
  if (account != NULL) {
    atomic_fetch_sub(&account->bytes, (int64_t)block->bytes);
  }
  free(block);
  release_account(account);
}

bppsa_alloc_account *bppsa_alloc_account_create(void) {
  bppsa_alloc_account *outer = charged;
  charged = NULL; /* an account's own memory is charged to none, so that every account can end */
  bppsa_alloc_account *account = bppsa_calloc(1, sizeof *account);
  charged = outer;
  if (account != NULL) {
    atomic_init(&account->holders, 1);
  }
  return account;
}

void bppsa_alloc_account_destroy(bppsa_alloc_account *account) {
  release_account(account);
}

void bppsa_alloc_account_use(bppsa_alloc_account *account) {
  charged = account;
}

int64_t bppsa_alloc_account_bytes(const bppsa_alloc_account *account) {
  return atomic_load(&account->bytes);
}

int64_t bppsa_alloc_account_peak(const bppsa_alloc_account *account) {
  return atomic_load(&account->peak);
}

bool bppsa_mul(int64_t a, int64_t b, int64_t *product) {
  if (a < 0 || b < 0 || (b != 0 && a > INT64_MAX / b)) {
    return false;
  }
  *product = a * b;
  return true;
}

static void inject(int64_t first, int64_t last) {
  atomic_store(&fail_first, 0);
  atomic_store(&calls, 0);
  atomic_store(&fail_last, last);
  atomic_store(&fail_first, first);
}

void bppsa_alloc_fail_at(int64_t call) {
  inject(call, INT64_MAX);
}

void bppsa_alloc_fail_once(int64_t call) {
  inject(call, call);
}

int64_t bppsa_alloc_calls(void) {
  return atomic_load(&calls);
}

int64_t bppsa_alloc_live(void) {
  return atomic_load(&live_blocks);
}

int64_t bppsa_alloc_live_bytes(void) {
  return atomic_load(&live_bytes);
}

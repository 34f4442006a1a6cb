/* Chooses the kernels for the processor. */
#include "core/compute/simd.h"

#include <stdatomic.h>
#include <string.h>

extern const bppsa_simd bppsa_simd_portable;
#if defined(__x86_64__)
extern const bppsa_simd bppsa_simd_avx2, bppsa_simd_avx512;

static bool has_avx2(void) {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}

static bool has_avx512(void) {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0;
}
#else
static bool never(void) {
  return false;
}
#endif

static bool always(void) {
  return true;
}

/* The widest first. Other families of processors know the names, and have no kernels for them. */
static const struct {
  const char *name;
  const bppsa_simd *kernels;
  bool (*supported)(void);
} table[] = {
#if defined(__x86_64__)
    {"avx512", &bppsa_simd_avx512, has_avx512},
    {"avx2", &bppsa_simd_avx2, has_avx2},
#else
    {"avx512", NULL, never},
    {"avx2", NULL, never},
#endif
    {"portable", &bppsa_simd_portable, always},
};

enum { KERNELS = sizeof table / sizeof *table };

static _Atomic(const bppsa_simd *) chosen;

static const bppsa_simd *widest(void) {
  int i = 0;
  while (!table[i].supported()) {
    ++i;
  }
  return table[i].kernels;
}

const bppsa_simd *bppsa_simd_get(void) {
  const bppsa_simd *kernels = atomic_load_explicit(&chosen, memory_order_acquire);
  if (kernels == NULL) {
    kernels = widest();
    atomic_store_explicit(&chosen, kernels, memory_order_release);
  }
  return kernels;
}

bppsa_status bppsa_simd_select(const char *name) {
  if (strcmp(name, "auto") == 0) {
    atomic_store_explicit(&chosen, widest(), memory_order_release);
    return BPPSA_OK;
  }
  for (int i = 0; i < KERNELS; ++i) {
    if (strcmp(name, table[i].name) == 0) {
      if (!table[i].supported()) {
        return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "kernels '%s': this processor cannot run them", name);
      }
      atomic_store_explicit(&chosen, table[i].kernels, memory_order_release);
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "kernels '%s' are unknown, expected auto, portable, avx2 or avx512", name);
}

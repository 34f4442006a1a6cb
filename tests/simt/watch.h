/* What the SIMT machine is asked to launch, for tests that want to see it. A program that runs without the machine too declares
 * simt_watch weak and calls it on an emulated device alone (is_emulated). */
#ifndef BPPSA_TESTS_SIMT_WATCH_H
#define BPPSA_TESTS_SIMT_WATCH_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char *kernel; /* as the launch names it: "(name<float, 4>)" */
  unsigned blocks, threads;
  int arguments;
  const void *const *argument; /* the kernel's parameters, size `arguments` */
  const size_t *size;          /* bytes of each */
} simt_call;

/* From now on launches are shown to `see` and do not run; NULL: they run again. */
void simt_watch(void (*see)(void *context, const simt_call *call), void *context) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#endif

/* What the parts of the SIMT machine know of each other. */
#ifndef BPPSA_TESTS_SIMT_SIMT_H
#define BPPSA_TESTS_SIMT_SIMT_H

#include <cuda_runtime.h>

/* Counts the launch; whether a device would take its sizes. */
bool simt_launch_is_valid(const char *kernel, dim3 grid, dim3 block, size_t shared);
/* All blocks, one after the other; `thread` is what each thread does. */
void simt_run(const char *kernel, dim3 grid, dim3 block, size_t shared, const std::function<void()> &thread);

#endif

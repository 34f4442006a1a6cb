/* The interface between the parts of the SIMT machine. */
#ifndef BPPSA_TESTS_SIMT_SIMT_H
#define BPPSA_TESTS_SIMT_SIMT_H

#include <cuda_runtime.h>

#include <map>
#include <string>

/* "(name<float, 4>)" -> "name" */
std::string simt_plain_name(const char *kernel);

/* Bytes of shared memory that a block can have: those of the GPUs that have least, or as many as SIMT_MOST_SHARED says. */
size_t simt_most_shared();

/* Counts the launch; returns whether a device would accept its sizes. */
bool simt_launch_is_valid(const char *kernel, unsigned cluster, dim3 grid, dim3 block, size_t shared);
/* Runs all clusters one after the other, of one block each unless `cluster` says otherwise; `thread` is the code of a thread.
 * early: the launch may begin while the piece of work in front of it runs, in front of which simt_before was called. */
void simt_run(const char *kernel, unsigned cluster, bool early, dim3 grid, dim3 block, size_t shared,
              const std::function<void()> &thread);

/* ---- launches that begin early (early.cc) ---- */

/* Keeps what the GPU's memory has now. blocks: the allocations, and their sizes. */
void simt_before(const std::map<void *, size_t> &blocks);
/* Poisons what has changed since, before a cluster of an early launch runs, */
void simt_hide(bool first);
/* and puts it back when all its threads wait. first: of the launch. False: the cluster has written something. */
bool simt_reveal(bool first);

#endif

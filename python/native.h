/* What the Python package calls through ctypes: functions whose arguments are numbers, texts and addresses, so that no layout of
 * a struct is written down a second time in Python. They hold no Python object and need no interpreter: ctypes releases its lock
 * around each call, and several threads may call at once, each with a scan of its own. Passes of layers are in python/passes.h.
 *
 * These functions, like the ones in python/passes.h and python/xla.h, call the public functions of the library and no others.
 *
 * A function that returns a status leaves its reason in bppsa_python_error() of the thread that called it.
 *
 * Scans are made for the processor, or for a GPU and a stream of the caller's. Then all arrays are in that GPU's memory,
 * all work is queued on the stream, in order with the caller's own, no pass waits for it, and arrays are in use until it is done.
 */
#ifndef BPPSA_PYTHON_NATIVE_H
#define BPPSA_PYTHON_NATIVE_H

#include <stdint.h>

#include "core/base/status.h"

/* "0.2.0", or "0.2.0 COMMIT" */
const char *bppsa_python_version(void);
const char *bppsa_python_error(void);

/* Names the OpenBLAS of a package of PyPI, for machines whose system has none (bppsa_blas_set_fallback). */
bppsa_status bppsa_python_openblas(const char *path);
/* Loads what commands need beyond layers and scans (python/late.c): jansson and zlib. ERR_LIBRARY names the package that is
 * missing. */
bppsa_status bppsa_python_load(void);
/* Runs a command line of the program, behind bppsa_python_load. *out and *err receive what it printed; bppsa_python_free frees
 * each. Returns the program's exit code, or 1 with both NULL where the system has no memory for the texts. Another thread sets
 * *told to a signal's number to end training and figures (bppsa_run); NULL: nothing is told. */
int bppsa_python_command(int argc, char **argv, const int *told, char **out, char **err);
void bppsa_python_free(void *text);
/* Ranks of failed runs that have not ended yet (bppsa_comm_left_behind). */
int32_t bppsa_python_left_behind(void);
/* Blocks that the library holds; for tests that look for leaks. */
int64_t bppsa_python_allocated(void);

typedef struct bppsa_python_scan bppsa_python_scan;

/* g_{t-1} = J_tᵀ g_t + u_{t-1} for t = T .. 1, with g_0. sizes: T, B, H. method: the text form of a scan (scan/method.h).
 * threads: 0 for all cores. gpu: its number, or -1 for the processor, which has no stream. ERR_* of bppsa_scan_plan_create and
 * bppsa_device_on_stream. */
bppsa_status bppsa_python_scan_create(const char *method, int diagonal, int f64, const int64_t sizes[3], int affine,
                                      int64_t threads, int32_t gpu, void *stream, bppsa_python_scan **scan);
/* jt: [T,B,H,H] or diagonals [T,B,H]. injected: u_0 .. u_{T-1} [T,B,H], or NULL. gradients: [T+1,B,H], g_T in the last row; g_0 ..
 * g_{T-1} are written. */
bppsa_status bppsa_python_scan_run(bppsa_python_scan *scan, const void *jt, const void *injected, void *gradients);
void bppsa_python_scan_destroy(bppsa_python_scan *scan);

/* Does each of so many rows of `width` numbers in host memory have one that is not 0? Of a seed: does the loss reach every step of
 * every sample? Otherwise gradients of x and of the initial state by "speculative" may be right absolutely only. */
int bppsa_python_reaches(const void *seed, int f64, int64_t rows, int64_t width);

#endif

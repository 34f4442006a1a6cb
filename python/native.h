/* What the Python package calls through ctypes: functions whose arguments are numbers, texts and addresses, so that no layout of
 * a struct is written down a second time in Python. They hold no Python object and need no interpreter: ctypes releases its lock
 * around each call, and several threads may call at once, each with a scan or a layer of its own.
 *
 * A function that returns a status leaves its reason in bppsa_python_error() of the thread that called it.
 *
 * Scans and layers are made for the processor, or for a GPU and a stream of the caller's. Then all arrays are in that GPU's memory,
 * all work is queued on the stream, in order with the caller's own, no pass waits for it, and arrays are in use until it is done.
 */
#ifndef BPPSA_PYTHON_NATIVE_H
#define BPPSA_PYTHON_NATIVE_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/base/status.h"
#include "python/account.h"

enum { BPPSA_PYTHON_WEIGHTS = 5 }; /* W_ih, W_hh, b_ih, b_hh, a learned reset state */

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
 * *told to a signal's number to end training and figures (bppsa_cli_run); NULL: nothing is told. */
int bppsa_python_command(int argc, char **argv, const atomic_int *told, char **out, char **err);
void bppsa_python_free(void *text);
/* Ranks of failed runs that have not ended yet (bppsa_comm_left_behind). */
int32_t bppsa_python_left_behind(void);
/* Blocks that the library holds; for tests that look for leaks. */
int64_t bppsa_python_allocated(void);
/* FLOP/s of multiply-adds on one thread during the next millisecond (bppsa_peak_burst), with which scripts compare the passes that
 * they time before and after it. 0: there was no memory. */
double bppsa_python_burst(int f64);

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

typedef struct bppsa_python_layer bppsa_python_layer;

/* One layer of the cell "rnn", "gru", .. without a head. sizes: T, B, I, H. method: the text form of a gradient method
 * (scan/method.h). forward: how states are computed (recurrent/parallel_forward.h). lengths, resets: passes may be given them;
 * resets 2: samples then begin anew with the last of the weights in the place of zeros. threads, gpu, stream: as above. chunks,
 * warm_up, tolerance: of the method "speculative" (recurrent/parallel_backward.h); 0, -1 and -1 leave them open. ERR_ARGUMENT: no
 * such cell; ERR_* of bppsa_recurrent_create and bppsa_device_on_stream. */
bppsa_status bppsa_python_layer_create(const char *cell, const char *method, const char *forward, int relu, int f64,
                                       const int64_t sizes[4], int input_gradients, int lengths, int resets, int64_t threads,
                                       int32_t gpu, void *stream, int64_t chunks, int64_t warm_up, double tolerance,
                                       bppsa_python_layer **layer);
/* The numbers in a tape: what a forward pass leaves for its backward passes, in an array of the caller's. Between two passes the
 * layer keeps nothing that the next one reads. */
int64_t bppsa_python_layer_tape(const bppsa_python_layer *layer);
/* x: [T,B,I]. spans: the samples' lengths, int64 [B] in host memory, and their resets, bytes [T,B] (bppsa_spans), each of which
 * may be NULL; NULL: neither. first: h_0 and of an LSTM c_0, [B,H] each, or NULL for zeros. weights: W_ih [G·H,I], W_hh
 * [G·H,H], b_ih, b_hh [G·H], the reset state [S]; NULL for zeros. The pass writes the tape, each sample's last h and an LSTM's
 * last c to last, h_1 .. h_T [T,B,H] to output, and an LSTM's c_1 .. c_T to cells unless that is NULL. Behind a sample's end these
 * are 0. Resets are in the device's memory; those in a GPU's are not checked, and every byte but 0 counts as 1. ERR_ARGUMENT:
 * spans that the layer was created without, a length out of range, a byte in host memory that is neither 0 nor 1. */
bppsa_status bppsa_python_layer_forward(bppsa_python_layer *layer, const void *x, const void *const spans[2],
                                        const void *const first[2], const void *const weights[BPPSA_PYTHON_WEIGHTS], void *tape,
                                        void *const last[2], void *output, void *cells);
/* The gradients of a forward pass of this layer, or of another one with the same options and sizes, from its x, its spans, its
 * weights and its tape, wherever they lie by now. seed: of h_1 .. h_T [T,B,H]. of_cells: of an LSTM's last c [B,H], and of c_1 ..
 * c_T [T,B,H]; one of them, or none, is not NULL. Each of gradients (in the order and the shapes of weights), dx [T,B,I] and the
 * two of_first [B,H] may be NULL: not wanted. ERR_UNSUPPORTED: dx or of_first of a layer that was created without them. */
bppsa_status bppsa_python_layer_backward(bppsa_python_layer *layer, const void *x, const void *const spans[2],
                                         const void *const weights[BPPSA_PYTHON_WEIGHTS], const void *tape, const void *seed,
                                         const void *const of_cells[2], void *const gradients[BPPSA_PYTHON_WEIGHTS], void *dx,
                                         void *const of_first[2]);
void bppsa_python_layer_destroy(bppsa_python_layer *layer);

/* ---- passes in chunks of time: what they did, and what the next ones have to know ---- */

/* Are the layer's forward passes (backward: 0) or its backward passes (1) planned in chunks of time? */
int bppsa_python_layer_speculates(const bppsa_python_layer *layer, int backward);

/* Does each of so many rows of `width` numbers in host memory have one that is not 0? Of a seed: does the loss reach every step of
 * every sample? Otherwise gradients of x and of the initial state by "speculative" may be right absolutely only. */
int bppsa_python_reaches(const void *seed, int f64, int64_t rows, int64_t width);

/* The state that the bits of the next backward passes depend on: failing passes in a row, passes of BP still to come, and the next
 * warm-up, or 0 for the plan's. A layer begins with zeros. On a GPU `get` waits for the pass. ERR_ARGUMENT: set: a negative number;
 * ERR_CUDA. */
enum { BPPSA_PYTHON_STATE = 3 };
bppsa_status bppsa_python_layer_get_state(bppsa_python_layer *layer, int64_t state[BPPSA_PYTHON_STATE]);
bppsa_status bppsa_python_layer_set_state(bppsa_python_layer *layer, const int64_t state[BPPSA_PYTHON_STATE]);

/* Adds the layer's latest forward or backward pass, if it was planned in chunks. On a GPU it waits for the pass; ERR_CUDA. */
bppsa_status bppsa_python_account_add(bppsa_python_account *account, bppsa_python_layer *layer, int backward);

#endif

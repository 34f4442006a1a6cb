/* A rival in a process of its own: any program that answers as below takes part in the rounds of `bench rnn`, `bench gru`,
 * `bench forward` and `bench step`. bench/rivals/recurrent.py is one, with PyTorch's and JAX's layers.
 *
 * The program is started as `PROGRAM --threads N --device cpu|cuda`. Its standard input and output are one socket, over which it
 * sends one line of JSON, then answers each line of JSON that it receives with one line of JSON. A line that has the member "bytes"
 * is followed by as many raw bytes. An answer {"refused": "why"} becomes the reason in a row.
 *
 *   first   {"guest": 1, "methods": ["name", ..], "versions": {"library": "1.2", ..}}
 *   asked   {"ask": "point", "model", "seq_len", "batch", "input", "hidden", "layers", "nonlinearity", "loss_on", "dtype",
 *            "parameters": [{"name", "shape"}, ..], "bytes"}
 *           x [T,B,I]; the gradient of the last states [B,H], or of all states [T,B,H] with loss_on all; the layers' parameters by
 *           PyTorch's names, in PyTorch's layout, one after the other. What was entered before is forgotten.
 *   answer  {}
 *   asked   {"ask": "enter", "method", "seconds"}: makes one forward and one backward pass; refuses when it has taken so many
 *           seconds. The request has them only where the benchmark has a time limit.
 *   answer  {"bytes"}: the top layer's states of the last step [B,H], and the gradients of all parameters, in their order
 *   asked   {"ask": "pass", "method"}
 *   answer  {"seconds": [forward, backward]}
 *
 * `bench forward` sends a point with the member "passes": "forward". Then there is no backward pass: the answer to "enter" has the
 * top layer's states of all steps [T,B,H] and nothing else, and the one to "pass" has {"seconds": [forward]}.
 *
 * `bench step` sends one with the members "passes": "step", "lr" and "classes", whose parameters end with the head's weight [C,H]
 * and bias [C]. Labels stand in the place of the gradient, as numbers of the dtype: [B], or [T,B] with loss_on all. A pass is then
 * a training step from these parameters: forward, cross-entropy, backward, the first step of Adam (PyTorch's other defaults). The
 * answer to "enter" has the gradients of all parameters, then the parameters behind the step, and the one to "pass" has
 * {"seconds": [step]}.
 *
 * The program ends when its input ends.
 */
#ifndef BPPSA_BENCH_RIVALS_GUEST_H
#define BPPSA_BENCH_RIVALS_GUEST_H

#include <jansson.h>

#include "recurrent/recurrent.h"

enum { BPPSA_GUEST_METHODS = 16, BPPSA_GUEST_NAME = 40 /* bytes */ };

typedef struct bppsa_guest bppsa_guest;

/* How long a program is waited for. No method is entered when the time is over. One that is being entered then is told to refuse
 * after grace_s more; where it does not, the program is lost after another twice grace_s and a second. */
typedef struct {
  double patience_s; /* for any answer */
  double over;       /* when the time is over, as bppsa_now says it; 0: never */
  double grace_s;
} bppsa_guest_waits;

/* Starts a program and takes its first line. ERR_ARGUMENT: it cannot be started, or begins with something else; ERR_MEMORY. */
bppsa_status bppsa_guest_start(const char *program, int threads, const char *device, const bppsa_guest_waits *waits,
                               bppsa_guest **guest);
/* Ends the program: closes its input, and kills it where it does not end within two seconds. NULL is legal. */
void bppsa_guest_stop(bppsa_guest *guest);

int bppsa_guest_method_count(const bppsa_guest *guest);
const char *bppsa_guest_method(const bppsa_guest *guest, int method);
/* Adds the versions of the guest's libraries to an object that describes the machine. False: no memory. */
bool bppsa_guest_put_versions(const bppsa_guest *guest, json_t *device);

/* The seconds that a method may take which is entered now: INFINITY where there is no limit, 0 where it is over. */
double bppsa_guest_time(const bppsa_guest *guest);

/* Sends a request, whose member "bytes" it sets, and the arrays; takes the answer (release it), and so many bytes behind it into
 * `received`. The answer may take time_s, as bppsa_guest_time says it, or INFINITY. ERR_UNSUPPORTED: the answer is a refusal, or
 * the program ended, was silent for too long or answered something else: then it is killed, and every later request gets the same
 * error. ERR_MEMORY. */
bppsa_status bppsa_guest_ask(bppsa_guest *guest, double time_s, json_t *request, int64_t count, const bppsa_view *sent,
                             int64_t bytes, void *received, json_t **answer);

/* ---- the three requests (guest_point.c) ---- */

/* Layers, and what they are run on. Views of host memory. */
typedef struct {
  const char *model; /* "rnn" */
  const bppsa_recurrent_config *config;
  int64_t parameter_count; /* of the layers, without the head's; of a step with them */
  const bppsa_parameter *parameters;
  bppsa_view x, seed;
  bool forward_only;
  double step_lr; /* of a training step, whose labels stand in the place of the seed; 0: there is none */
} bppsa_guest_point;

/* Hands a point over. ERR_* of bppsa_guest_ask. */
bppsa_status bppsa_guest_send_point(bppsa_guest *guest, const bppsa_guest_point *point);
/* A method's first pass, whose results have so many bytes. ERR_* of bppsa_guest_ask; ERR_UNSUPPORTED: the time is over. */
bppsa_status bppsa_guest_enter(bppsa_guest *guest, const char *method, int64_t bytes, void *received);
/* A pass that is timed: its forward part, and with parts 2 its backward part. ERR_* of bppsa_guest_ask; ERR_UNSUPPORTED: an answer
 * without these seconds. */
bppsa_status bppsa_guest_pass(bppsa_guest *guest, const char *method, int parts, double *seconds);

#endif

/* How wrong are the weight gradients of a backward pass, its rounding included?
 *
 * A certificate repeats the latest backward pass by sequential BP in float64, over what the forward pass has left as it is: the
 * states, what the cell has saved, the weights, x and the seed, all of them rounded as they were. Then it compares:
 *
 *     error = max over the parameters of  max |dW - dW64| / max |dW64|
 *
 * Whatever a speculative pass or a scan can miss, BP in float64 does not share with it, and it needs no tolerance. The error of a
 * model in f32 has the rounding of the whole backward pass in it; what the forward pass has rounded is not, because the rounded
 * Jacobians are taken as they are. A model in f64 is compared with BP of the same type, so that its error is the difference from
 * BP alone: BP's own rounding is not in it. */
#ifndef BPPSA_RECURRENT_CERTIFY_H
#define BPPSA_RECURRENT_CERTIFY_H

#include "core/compute/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  double error;          /* as above; infinite where a gradient is not finite, or where dW64 is 0 and dW is not */
  const char *parameter; /* with the largest error, of several the first; borrowed from the model */
  bool rounding;         /* the error has the pass's rounding in it: the model computes in f32 */
} bppsa_certificate;

/* Certifies the gradients of all parameters that the latest backward pass has set, and changes nothing in the model. x, the seed, a
 * tape and the samples of bppsa_model_drop must still be there, and the parameters must have their values of the pass. Takes about
 * as long as two passes of BP, and for that time the memory of a network in f64 that computes by BP; config.memory_limit holds for
 * both networks together. A model on a GPU is certified on the host, with the device's host threads: its values and gradients are
 * copied to its views.
 *
 * ERR_ARGUMENT: not a recurrent model; no backward pass since the latest forward pass; the memory limit. ERR_UNSUPPORTED: the model
 * holds a part of a sequence; samples have lengths on a GPU; the cell has no functions for f64. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_certify(bppsa_model *model, bppsa_certificate *certificate);
/* Whether bppsa_certify will take the model's passes, before the first: its errors but for those that only a pass can show.
 * Allocates the second network, and frees it. */
bppsa_status bppsa_certify_check(bppsa_model *model);

#define BPPSA_CERTIFICATE_TEXT 256 /* enough bytes for the text, unless a cell's name is longer than it may be */

/* "weight gradient error 3.1e-07 of its largest entry (gru.weight_hh_l0), rounding included, against float64 BP over the same
 * states"; of a model in f64 "weight gradients differ from BP's by 3.1e-16 of their largest entry (..), over the same states".
 * Returns text. */
const char *bppsa_certificate_text(const bppsa_certificate *certificate, char *text, size_t size);

/* {"error", "parameter", "method": "bp", "rounding"}. NULL when out of memory. */
struct json_t; /* jansson's */
struct json_t *bppsa_certificate_json(const bppsa_certificate *certificate);
/* The members of that object as text, with all digits and without braces; an infinite error is null. Returns text. */
const char *bppsa_certificate_members(const bppsa_certificate *certificate, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif

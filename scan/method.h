/* How gradients are computed: by sequential back-propagation (BP) or by a scan, and by which algorithm.
 *
 * A bppsa_gradient_method answers both questions; its member bppsa_scan_method (scan/algorithm.h) answers the second alone, for
 * what is a scan in any case. Configurations of networks, plans, checkpoints, the planner's cache and tables of results use one of
 * the two. Each has a text form for files and options, a form in words for people, and a JSON form.
 *
 *   text          words                         JSON
 *   auto          auto                          "backward": "auto"
 *   bp            sequential BP                 "backward": "bp"
 *   scan          scan, auto                    "backward": "scan", "algorithm": "auto"
 *   linear        scan, linear                  "backward": "scan", "algorithm": "linear"
 *   blelloch 3    scan, blelloch (3 up-levels)  "backward": "scan", "algorithm": "blelloch", "up_levels": 3
 *   speculative   speculative BP                "backward": "speculative"
 *   chunked 45    scan, chunked (45 chunks)     "backward": "scan", "algorithm": "chunked", "chunks": 45
 *
 * A bppsa_scan_method without a backward has the text "auto" instead of "scan", and neither "scan, " nor "backward". The backward
 * "auto" leaves open whether BP or a scan runs; "scan", and the scan's own "auto", leave the scan's algorithm open.
 */
#ifndef BPPSA_SCAN_METHOD_H
#define BPPSA_SCAN_METHOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "scan/algorithm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  BPPSA_BACKWARD_AUTO = 0, /* the one of BP, speculative BP and all scans that the cost model expects to be the fastest */
  BPPSA_BACKWARD_BP,
  BPPSA_BACKWARD_SCAN,
  BPPSA_BACKWARD_SPECULATIVE /* BP in chunks of time at once, verified (recurrent/parallel_backward.h) */
} bppsa_backward;

typedef struct {
  bppsa_backward backward;
  bppsa_scan_method scan; /* if backward = SCAN */
} bppsa_gradient_method;

/* Does the method leave a choice to a cost model or to measurement? */
bool bppsa_gradient_method_open(const bppsa_gradient_method *method);

const char *bppsa_backward_name(bppsa_backward backward); /* "bp" */

#define BPPSA_METHOD_TEXT 64 /* enough bytes for any method's text or words */

/* The text form, without a number if all up-levels or the default number of chunks are meant. Returns text. */
const char *bppsa_scan_method_text(const bppsa_scan_method *method, char *text, size_t size);
const char *bppsa_gradient_method_text(const bppsa_gradient_method *method, char *text, size_t size);
/* Parses the text form. ERR_FORMAT: no such method, no such number; *method is then untouched. */
bppsa_status bppsa_scan_method_parse(const char *text, bppsa_scan_method *method);
bppsa_status bppsa_gradient_method_parse(const char *text, bppsa_gradient_method *method);

/* The form in words. Returns text. */
const char *bppsa_scan_method_words(const bppsa_scan_method *method, char *text, size_t size);
const char *bppsa_gradient_method_words(const bppsa_gradient_method *method, char *text, size_t size);

/* The JSON form, as members of an object. put: false when out of memory. get: false if the members are no method; *method is then
 * untouched. */
struct json_t; /* jansson's */
bool bppsa_scan_method_put(struct json_t *object, const bppsa_scan_method *method);
bool bppsa_gradient_method_put(struct json_t *object, const bppsa_gradient_method *method);
bool bppsa_scan_method_get(const struct json_t *object, bppsa_scan_method *method);
bool bppsa_gradient_method_get(const struct json_t *object, bppsa_gradient_method *method);

#ifdef __cplusplus
}
#endif
#endif

/* Draws a scan plan: figures 1 and 3 of the paper.
 *
 * Columns are the scan's elements a[0] .. a[n], rows are its levels. A product a[first:last] stands in the column of its last
 * element, and so does the gradient y[last+1] that a[0:last] gives. Blue squares are matrices, orange circles are gradients; a
 * chain within a level descends link by link. The critical path is red, dead products are grey and dashed. A network's columns
 * are labelled with its operators' names.
 */
#ifndef BPPSA_RUNS_PLAN_DRAW_H
#define BPPSA_RUNS_PLAN_DRAW_H

#include "draw/canvas.h"
#include "scan/plan.h"

#define BPPSA_DRAW_LIMIT 10000 /* products; a plan with more is not drawn */

/* What is drawn, borrowed. */
typedef struct {
  const bppsa_scan_plan *plan;
  const char *const *names;     /* of the operators of J_1 .. J_n, size n; NULL: they have none */
  const bppsa_scan_step *steps; /* the plan's steps with the caller's counts, in execution order; NULL: the plan's counts */
  const char *png;              /* NULL: SVG; otherwise a gnuplot script that writes this file */
} bppsa_plan_picture;

/* Appends the drawing to `text`. ERR_ARGUMENT: too many products. */
bppsa_status bppsa_plan_draw(const bppsa_plan_picture *picture, bppsa_text *text);

/* Names the two factors of a step by their operators: "pool3·conv5" and "relu5·conv6", the left one first; a mat-vec has "fc1"
 * and "g7". n: the number of Jacobians. Both texts have room for BPPSA_RANGE_TEXT; longer ones are cut off. */
#define BPPSA_RANGE_TEXT 200
void bppsa_plan_operands(const char *const *names, int64_t n, const bppsa_scan_step *step, char *left, char *right);

#endif

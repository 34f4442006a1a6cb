/* Draws a scan plan: figures 1 and 3 of the paper.
 *
 * Columns are the scan's elements a[0] .. a[n], rows its levels. A product stands where its last element stands: a[first:last]
 * and the gradient that a[0:last] gives, y[last+1]. Blue squares are matrices, orange circles gradients; a chain within a level
 * descends link by link. The critical path is red, dead products are grey and dashed. A network's columns are labelled with its
 * operators' names.
 */
#ifndef BPPSA_CLI_PLAN_DRAW_H
#define BPPSA_CLI_PLAN_DRAW_H

#include "draw/canvas.h"
#include "scan/plan.h"

#define BPPSA_DRAW_LIMIT 10000 /* products */

/* What is drawn, borrowed. */
typedef struct {
  const bppsa_scan_plan *plan;
  const char *const *names;     /* of the operators of J_1 .. J_n, size n; NULL: they have none */
  const bppsa_scan_step *steps; /* the plan's steps as counted elsewhere, in execution order; NULL: as the plan counts them */
  const char *png;              /* NULL: SVG; otherwise a gnuplot script that writes this file */
} bppsa_plan_picture;

/* Appends the drawing to `text`. ERR_ARGUMENT: too many products. */
bppsa_status bppsa_plan_draw(const bppsa_plan_picture *picture, bppsa_text *text);

/* What a step multiplies, left · right, by the names of its operators: "pool3·conv5" and "relu5·conv6", of a mat-vec "fc1" and
 * "g7". n: Jacobians.
 * Both texts have room for BPPSA_RANGE_TEXT; longer ones are cut off. */
#define BPPSA_RANGE_TEXT 200
void bppsa_plan_operands(const char *const *names, int64_t n, const bppsa_scan_step *step, char *left, char *right);

#endif

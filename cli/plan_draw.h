/* Draws a scan plan: figures 1 and 3 of the paper.
 *
 * Columns are the scan's elements a[0] .. a[n], rows its levels. A product stands where its last element stands: a[first:last] and the
 * gradient that a[0:last] gives, y[last+1]. Blue squares are matrices, orange circles gradients; a chain within a level descends
 * link by link. The critical path is red, dead products are grey and dashed.
 */
#ifndef BPPSA_CLI_PLAN_DRAW_H
#define BPPSA_CLI_PLAN_DRAW_H

#include "draw/canvas.h"
#include "scan/plan.h"

#define BPPSA_DRAW_LIMIT 10000 /* products */

/* Appends the drawing to `text`: SVG, or with `png` a gnuplot script that writes that file. ERR_ARGUMENT: too many products. */
bppsa_status bppsa_plan_draw(const bppsa_scan_plan *plan, const char *png, bppsa_text *text);

#endif

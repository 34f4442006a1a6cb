/* Draws simple shapes as SVG or as a gnuplot script that makes a PNG. Coordinates are in pixels, y points down. */
#ifndef BPPSA_DRAW_CANVAS_H
#define BPPSA_DRAW_CANVAS_H

#include <stdbool.h>

#include "core/base/text.h"

typedef struct {
  const char *colour; /* "#rrggbb", for lines and outlines */
  const char *fill;   /* "#rrggbb", for the inside of shapes; NULL: not filled */
  double width;       /* width of lines */
  bool dashed;
} bppsa_stroke;

typedef struct bppsa_canvas bppsa_canvas;
struct bppsa_canvas {
  bppsa_text *text;
  double width, height;
  const char *png; /* the file that the gnuplot script writes; NULL: SVG */
};

void bppsa_canvas_begin(bppsa_canvas *canvas, const char *title);
void bppsa_canvas_end(bppsa_canvas *canvas);
/* Opens a named group with a tooltip; SVG only. */
void bppsa_canvas_open(bppsa_canvas *canvas, const char *name, const char *tooltip);
void bppsa_canvas_close(bppsa_canvas *canvas);
/* Draws a line whose middle is bent by `bend` pixels to the left. */
void bppsa_canvas_line(bppsa_canvas *canvas, double x0, double y0, double x1, double y1, double bend, bppsa_stroke stroke);
/* Fills a rectangle whose upper left corner is (x, y). */
void bppsa_canvas_rectangle(bppsa_canvas *canvas, double x, double y, double width, double height, const char *fill);
void bppsa_canvas_square(bppsa_canvas *canvas, double x, double y, double half, bppsa_stroke stroke);
void bppsa_canvas_circle(bppsa_canvas *canvas, double x, double y, double radius, bppsa_stroke stroke);
/* Writes a text. anchor -1: it begins at x; 0: it is centred at x; 1: it ends at x. y is the middle of its height. */
void bppsa_canvas_words(bppsa_canvas *canvas, double x, double y, int anchor, double size, const char *colour, const char *words);

#endif

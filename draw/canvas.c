#include "draw/canvas.h"

#define SVG_FONT "DejaVu Sans, Helvetica, Arial, sans-serif"

/* Turns y around, because gnuplot's y axis points upwards. */
static double up(const bppsa_canvas *canvas, double y) {
  return canvas->height - y;
}

void bppsa_canvas_begin(bppsa_canvas *canvas, const char *title) {
  bppsa_text *t = canvas->text;
  if (canvas->png == NULL) {
    bppsa_text_add(t,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                   "font-family=\"%s\">\n<title>",
                   canvas->width, canvas->height, canvas->width, canvas->height, SVG_FONT);
    bppsa_text_add_escaped(t, title);
    bppsa_text_add(t, "</title>\n<rect width=\"%.0f\" height=\"%.0f\" fill=\"#ffffff\"/>\n", canvas->width, canvas->height);
    return;
  }
  bppsa_text_add(t, "set terminal pngcairo size %.0f,%.0f font \"DejaVu Sans\" background rgb \"white\"\nset output \"%s\"\n",
                 canvas->width, canvas->height, canvas->png);
  bppsa_text_add(t, "unset border\nunset tics\nunset key\nset margins 0,0,0,0\nset xrange [0:%.0f]\nset yrange [0:%.0f]\n",
                 canvas->width, canvas->height);
}

void bppsa_canvas_end(bppsa_canvas *canvas) {
  bppsa_text_add(canvas->text, canvas->png == NULL ? "</svg>\n" : "plot NaN notitle\n");
}

void bppsa_canvas_open(bppsa_canvas *canvas, const char *name, const char *tooltip) {
  if (canvas->png == NULL) {
    bppsa_text_add(canvas->text, "<g class=\"%s\"><title>", name);
    bppsa_text_add_escaped(canvas->text, tooltip);
    bppsa_text_add(canvas->text, "</title>\n");
  }
}

void bppsa_canvas_close(bppsa_canvas *canvas) {
  if (canvas->png == NULL) {
    bppsa_text_add(canvas->text, "</g>\n");
  }
}

/* Draws a quadratic curve from (x0,y0) to (x1,y1) whose middle is moved by `bend`; gnuplot gets eight straight pieces. */
static void plot_line(bppsa_canvas *canvas, double x0, double y0, double x1, double y1, double bend, bppsa_stroke s) {
  const int pieces = bend == 0 ? 1 : 8;
  for (int i = 0; i < pieces; ++i) {
    double x[2], y[2];
    for (int end = 0; end < 2; ++end) {
      const double f = (double)(i + end) / pieces;
      x[end] = x0 + f * (x1 - x0) - 4 * f * (1 - f) * bend;
      y[end] = y0 + f * (y1 - y0);
    }
    bppsa_text_add(canvas->text, "set arrow from %.1f,%.1f to %.1f,%.1f nohead lc rgb \"%s\" lw %.1f dt %d back\n", x[0],
                   up(canvas, y[0]), x[1], up(canvas, y[1]), s.colour, s.width, s.dashed ? 2 : 1);
  }
}

void bppsa_canvas_line(bppsa_canvas *canvas, double x0, double y0, double x1, double y1, double bend, bppsa_stroke s) {
  if (canvas->png != NULL) {
    plot_line(canvas, x0, y0, x1, y1, bend, s);
    return;
  }
  bppsa_text_add(canvas->text,
                 "<path d=\"M%.1f %.1f Q%.1f %.1f %.1f %.1f\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"%s/>\n", x0, y0,
                 (x0 + x1) / 2 - 2 * bend, (y0 + y1) / 2, x1, y1, s.colour, s.width, s.dashed ? " stroke-dasharray=\"4 3\"" : "");
}

void bppsa_canvas_rectangle(bppsa_canvas *canvas, double x, double y, double width, double height, const char *fill) {
  const bppsa_stroke stroke = {.colour = fill, .width = height};
  bppsa_canvas_line(canvas, x, y + height / 2, x + width, y + height / 2, 0, stroke);
}

void bppsa_canvas_square(bppsa_canvas *canvas, double x, double y, double half, bppsa_stroke s) {
  const char *fill = s.fill != NULL ? s.fill : "#ffffff";
  if (canvas->png != NULL) {
    bppsa_text_add(
        canvas->text,
        "set object rectangle center %.1f,%.1f size %.1f,%.1f front fc rgb \"%s\" lw %.1f fs solid border lc rgb \"%s\"\n", x,
        up(canvas, y), 2 * half, 2 * half, fill, s.width, s.colour);
    return;
  }
  bppsa_text_add(
      canvas->text,
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" stroke=\"%s\" stroke-width=\"%.1f\"%s/>\n",
      x - half, y - half, 2 * half, 2 * half, fill, s.colour, s.width, s.dashed ? " stroke-dasharray=\"3 2\"" : "");
}

void bppsa_canvas_circle(bppsa_canvas *canvas, double x, double y, double radius, bppsa_stroke s) {
  const char *fill = s.fill != NULL ? s.fill : "#ffffff";
  if (canvas->png != NULL) {
    bppsa_text_add(canvas->text,
                   "set object circle at %.1f,%.1f size %.1f front fc rgb \"%s\" lw %.1f fs solid border lc rgb \"%s\"\n", x,
                   up(canvas, y), radius, fill, s.width, s.colour);
    return;
  }
  bppsa_text_add(canvas->text, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n",
                 x, y, radius, fill, s.colour, s.width);
}

void bppsa_canvas_words(bppsa_canvas *canvas, double x, double y, int anchor, double size, const char *colour,
                        const char *words) {
  static const char *const svg_anchors[] = {"start", "middle", "end"}, *const plot_anchors[] = {"left", "center", "right"};
  if (canvas->png != NULL) { /* with noenhanced no character of these texts has a meaning for gnuplot */
    bppsa_text_add(canvas->text, "set label \"%s\" at %.1f,%.1f %s noenhanced font \",%.0f\" tc rgb \"%s\" front\n", words, x,
                   up(canvas, y), plot_anchors[anchor + 1], size * 0.8, colour);
    return;
  }
  bppsa_text_add(canvas->text, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%.0f\" fill=\"%s\">", x,
                 y + 0.35 * size, svg_anchors[anchor + 1], size, colour);
  bppsa_text_add_escaped(canvas->text, words);
  bppsa_text_add(canvas->text, "</text>\n");
}

/* Shapes as SVG and as a gnuplot script: each call leaves its shape, the words are escaped, y points up for gnuplot. */
#include "draw/canvas.h"

#include <string.h>

#include "core/base/alloc.h"
#include "tests/core/helpers.h"

static void draw_all(bppsa_canvas *canvas) {
  const bppsa_stroke stroke = {"#123456", "#abcdef", 2, true};
  bppsa_canvas_begin(canvas, "a < b");
  bppsa_canvas_open(canvas, "group", "tip & top");
  bppsa_canvas_line(canvas, 1, 2, 31, 42, 3, stroke);
  bppsa_canvas_square(canvas, 10, 20, 5, stroke);
  bppsa_canvas_circle(canvas, 30, 40, 6, stroke);
  bppsa_canvas_close(canvas);
  bppsa_canvas_words(canvas, 50, 60, 1, 10, "#010203", "x & y");
  bppsa_canvas_end(canvas);
}

static void contains(const bppsa_text *text, const char *const *parts) {
  for (; *parts != NULL; ++parts) {
    if (strstr(text->text, *parts) == NULL) {
      fail_msg("no '%s' in\n%s", *parts, text->text);
    }
  }
}

static void svg(void **state) {
  (void)state;
  bppsa_text text = {0};
  bppsa_canvas canvas = {.text = &text, .width = 100, .height = 80};
  draw_all(&canvas);
  assert_int_equal(bppsa_text_check(&text), BPPSA_OK);
  contains(&text, (const char *const[]){"viewBox=\"0 0 100 80\"", "<title>a &lt; b</title>",
                                        "<g class=\"group\"><title>tip &amp; top</title>",
                                        "<path d=\"M1.0 2.0 Q10.0 22.0 31.0 42.0\"", "<rect x=\"5.0\" y=\"15.0\" width=\"10.0\"",
                                        "<circle cx=\"30.0\" cy=\"40.0\" r=\"6.0\" fill=\"#abcdef\"", "text-anchor=\"end\"",
                                        ">x &amp; y</text>", "</g>", "</svg>\n", NULL});
  bppsa_text_free(&text);
}

static void gnuplot(void **state) {
  (void)state;
  bppsa_text text = {0};
  bppsa_canvas canvas = {.text = &text, .width = 100, .height = 80, .png = "F.png"};
  draw_all(&canvas);
  contains(&text, (const char *const[]){"size 100,80", "set output \"F.png\"", "set yrange [0:80]", "set arrow from 1.0,78.0",
                                        "set object rectangle center 10.0,60.0 size 10.0,10.0",
                                        "set object circle at 30.0,40.0 size 6.0", "set label \"x & y\" at 50.0,20.0 right",
                                        "plot NaN notitle\n", NULL});
  assert_null(strstr(text.text, "group"));
  bppsa_text_free(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(svg), cmocka_unit_test(gnuplot)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

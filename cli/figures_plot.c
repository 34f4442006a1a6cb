/* Files of the figures, and gnuplot. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/figures.h"
#include "core/alloc.h"
#include "core/file.h"

/* What all scripts begin with: `gnuplot -c figureN.gp svg|png`, run in the directory of the CSV file. The key of all panels is
 * drawn once, by a last plot without data below them. */
#define HEAD(name, width, height)                                                                                                \
  "# gnuplot -c " name ".gp svg|png: draws " name ".csv\n"                                                                       \
  "data = '" name ".csv'\n"                                                                                                      \
  "set output '" name ".' . ARG1\n"                                                                                              \
  "if (ARG1 eq 'svg') {\n"                                                                                                       \
  "  set terminal svg size " width "," height " font 'DejaVu Sans,13' background rgb 'white' noenhanced\n"                       \
  "} else {\n"                                                                                                                   \
  "  set terminal pngcairo size " width "," height " font 'DejaVu Sans,10' background rgb 'white' noenhanced\n"                  \
  "}\n"                                                                                                                          \
  "set datafile separator ','\n"                                                                                                 \
  "set grid back lt 1 lw 1 lc rgb '#dddddd'\n"                                                                                   \
  "set border 3\n"                                                                                                               \
  "set tics nomirror out\n"                                                                                                      \
  "title_of(i) = system(sprintf(\"echo '%s' | cut -d'|' -f%d\", titles, i))\n"                                                   \
  "unset key\n"                                                                                                                  \
  "set multiplot\n"

#define KEY                                                                                                                      \
  "unset title\n"                                                                                                                \
  "unset xlabel\n"                                                                                                               \
  "unset ylabel\n"                                                                                                               \
  "unset tics\n"                                                                                                                 \
  "unset border\n"                                                                                                               \
  "unset grid\n"                                                                                                                 \
  "unset logscale\n"                                                                                                             \
  "set xrange [0:1]\n"                                                                                                           \
  "set yrange [0:1]\n"                                                                                                           \
  "set lmargin at screen 0.02\n"                                                                                                 \
  "set rmargin at screen 0.98\n"                                                                                                 \
  "set bmargin at screen 0.0\n"                                                                                                  \
  "set tmargin at screen 0.06\n"                                                                                                 \
  "set key center center horizontal maxrows 1\n"

#define CURVES(name)                                                                                                             \
  HEAD(name, "1100", "480")                                                                                                      \
  "names = 'bp blelloch chunked'\n"                                                                                              \
  "titles = 'sequential BP|scan: Blelloch|scan: chunked'\n"                                                                      \
  "array colours[3] = ['#b2182b', '#2166ac', '#1b7837']\n"                                                                       \
  "array widths[3] = [7, 4, 1.5]\n"                                                                                              \
  "only(i, column) = (stringcolumn(1) eq word(names, i) ? column(column) : NaN)\n"                                               \
  "set bmargin at screen 0.20\n"                                                                                                 \
  "set tmargin at screen 0.91\n"                                                                                                 \
  "set ylabel 'training loss, mean of 20 iterations'\n"                                                                          \
  "set xrange [0:*]\n"                                                                                                           \
  "set lmargin at screen 0.08\n"                                                                                                 \
  "set rmargin at screen 0.47\n"                                                                                                 \
  "set title 'Loss over wall-clock time'\n"                                                                                      \
  "set xlabel 'seconds of the method''s forward and backward passes, medians of repeats'\n"                                      \
  "noisy(i, column) = (column(8) == 1 ? only(i, column) : NaN)\n"                                                                \
  "plot for [i = 1:3] data using (only(i, 3)):4 every ::1 with lines lc rgb colours[i] lw 2, \\\n"                               \
  "  for [i = 1:3] data using (noisy(i, 3)):4 every ::1 with points pt 6 ps 0.9 lc rgb colours[i]\n"                             \
  "set lmargin at screen 0.58\n"                                                                                                 \
  "set rmargin at screen 0.97\n"                                                                                                 \
  "set title 'Loss over iterations: the same curve'\n"                                                                           \
  "set xlabel 'iterations'\n"                                                                                                    \
  "plot for [i = 1:3] data using (only(i, 2)):4 every ::1 with lines lc rgb colours[i] lw widths[i]\n" KEY                       \
  "plot for [i = 1:3] NaN with lines lc rgb colours[i] lw 2 title title_of(i), \\\n"                                             \
  "  NaN with points pt 6 ps 0.9 lc rgb '#333333' title 'noisy: repeats differ'\n"                                               \
  "unset multiplot\n"

const char bppsa_figure7_script[] = CURVES("figure7");
const char bppsa_figure13_script[] = CURVES("figure13");

const char bppsa_figure8_script[] = HEAD(
    "figure8", "1180",
    "860") "names = 'bp linear blelloch chunked pytorch paper'\n"
           "titles = 'BP|linear scan|Blelloch|chunked|PyTorch|paper, V100'\n"
           "array colours[6] = ['#b2182b', '#f4a582', '#2166ac', '#1b7837', '#7b3294', '#888888']\n"
           "array points[6] = [7, 1, 6, 2, 4, 8]\n"
           "array there[6]\n"
           "do for [i = 1:6] { there[i] = int(system(sprintf(\"grep -c ',%s,' %s || true\", word(names, i), data))) > 0 }\n"
           "only(i, axis, column) = (stringcolumn(1) eq axis && stringcolumn(3) eq word(names, i) ? column(column) : NaN)\n"
           "noisy(i, axis, column) = (column(8) == 1 ? only(i, axis, column) : NaN)\n"
           "file(i) = there[i] ? data : '/dev/null'\n"
           "set logscale xy\n"
           "set format y '%g'\n"
           "do for [panel = 0:3] {\n"
           "  axis = panel < 2 ? 'T' : 'B'\n"
           "  column = panel % 2 == 0 ? 7 : 6\n"
           "  set lmargin at screen panel % 2 == 0 ? 0.08 : 0.58\n"
           "  set rmargin at screen panel % 2 == 0 ? 0.47 : 0.97\n"
           "  set tmargin at screen panel < 2 ? 0.95 : 0.485\n"
           "  set bmargin at screen panel < 2 ? 0.62 : 0.155\n"
           "  if (axis eq 'T') {\n"
           "    set xtics (10, 30, 100, 300, 1000, 3000, 10000, 30000)\n"
           "    set xrange [7:43000]\n"
           "    set xlabel 'sequence length T  (B = 16)' offset 0,0.5\n"
           "  } else {\n"
           "    set xtics (2, 4, 8, 16, 32, 64, 128, 256)\n"
           "    set xrange [1.6:320]\n"
           "    set xlabel 'batch B  (T = 1000)' offset 0,0.5\n"
           "  }\n"
           "  set title column == 7 ? 'Forward and backward pass' : 'Forward and backward: speedup over BP (above 1: faster)' "
           "offset 0,-0.4\n"
           "  set ylabel column == 7 ? 'milliseconds' : 'time of BP / time of the method'\n"
           "  plot for [i = 1:6] file(i) using (only(i, axis, 2)):(only(i, axis, column)) every ::1 \\\n"
           "    with linespoints lc rgb colours[i] lw 2 pt points[i] ps 0.8, \\\n"
           "    for [i = 1:6] file(i) using (noisy(i, axis, 2)):(noisy(i, axis, column)) every ::1 \\\n"
           "    with points lc rgb '#333333' lw 1.5 pt 6 ps 2\n"
           "}\n" KEY "plot for [i = 1:6] NaN with linespoints lc rgb colours[i] lw 2 pt points[i] ps 0.8 title (there[i] ? "
           "title_of(i) : ''), \\\n  NaN with points lc rgb '#333333' lw 1.5 pt 6 ps 2 title 'noisy'\n"
           "unset multiplot\n";

/* ---- files ---- */

static bppsa_status path_of(const bppsa_figures *figures, const char *name, const char *suffix, char *path, size_t size) {
  const int length = snprintf(path, size, "%s/%s%s", figures->directory, name, suffix);
  return length > 0 && (size_t)length < size
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--out: a path of %d characters, expected at most %zu", length, size - 1);
}

static bppsa_status list_file(bppsa_figures *figures, const char *name, const char *suffix) {
  char whole[128];
  snprintf(whole, sizeof whole, "%s%s", name, suffix);
  return json_array_append_new(figures->files, json_string(whole)) == 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_MEMORY, "figures: out of memory, expected room for the list of files");
}

bppsa_status bppsa_figures_write(bppsa_figures *figures, const char *name, const bppsa_text *text) {
  char path[4096];
  BPPSA_TRY(bppsa_text_check(text));
  BPPSA_TRY(path_of(figures, name, "", path, sizeof path));
  BPPSA_TRY(bppsa_file_write(path, text->text, text->size));
  return list_file(figures, name, "");
}

/* ---- gnuplot ---- */

enum { NOT_FOUND = 127 };

/* The child: gnuplot in the figures' directory, silent. Its complaints would only repeat the exit code. */
static _Noreturn void run_child(const char *directory, const char *script, const char *format) {
  const int null = open("/dev/null", O_RDWR);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0 ||
      chdir(directory) != 0) {
    _exit(1);
  }
  execlp("gnuplot", "gnuplot", "-c", script, format, (char *)NULL);
  _exit(errno == ENOENT ? NOT_FOUND : 1);
}

bppsa_status bppsa_figures_plot(bppsa_figures *figures, const char *name, const char *format) {
  char script[64], suffix[8];
  snprintf(script, sizeof script, "%s.gp", name);
  snprintf(suffix, sizeof suffix, ".%s", format);
  if (!figures->gnuplot) {
    return BPPSA_OK;
  }
  const pid_t child = fork();
  if (child == 0) {
    run_child(figures->directory, script, format);
  }
  int status = 0;
  pid_t waited = child;
  while (child > 0 && (waited = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  if (waited < 0) {
    return bppsa_fail(BPPSA_ERR_IO, "gnuplot: cannot be started (%s), expected it to draw %s", strerror(errno), script);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND) {
    figures->gnuplot = false;
    return BPPSA_OK;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return bppsa_fail(BPPSA_ERR_IO, "gnuplot: failed on %s/%s, expected it to draw %s%s", figures->directory, script, name,
                      suffix);
  }
  return list_file(figures, name, suffix);
}

/* ---- SVG inside HTML ---- */

/* Gnuplot calls its symbols gpPt0, gpDot, .. in every drawing: each use gets a prefix. */
static void add_prefixed(bppsa_text *text, const char *svg, const char *prefix) {
  static const char *const marks[] = {"id=\"", "id='", "href='#", "href=\"#", "url(#"};
  while (*svg != '\0') {
    const char *mark = NULL;
    for (size_t i = 0; mark == NULL && i < sizeof marks / sizeof marks[0]; ++i) {
      mark = strncmp(svg, marks[i], strlen(marks[i])) == 0 ? marks[i] : NULL;
    }
    if (mark != NULL) {
      bppsa_text_add(text, "%s%s-", mark, prefix);
      svg += strlen(mark);
    } else {
      const size_t length = 1 + strcspn(svg + 1, "ihu"); /* what a mark begins with */
      bppsa_text_add(text, "%.*s", (int)length, svg);
      svg += length;
    }
  }
}

bppsa_status bppsa_figures_inline(const bppsa_figures *figures, const char *name, bppsa_text *text) {
  enum { LIMIT = 64 << 20 };
  char path[4096], *data = NULL;
  int64_t size;
  BPPSA_TRY(path_of(figures, name, ".svg", path, sizeof path));
  BPPSA_TRY(bppsa_file_read(path, LIMIT, &data, &size));
  const char *svg = strstr(data, "<svg"); /* behind the XML declaration and the document type */
  if (svg != NULL) {
    add_prefixed(text, svg, name);
  }
  bppsa_free(data);
  return svg != NULL ? bppsa_text_check(text)
                     : bppsa_fail(BPPSA_ERR_IO, "%s: no <svg> element, expected gnuplot's drawing", path);
}

#include "figures/scripts.h"

/* ---- the beginning of every script ---- */

#define USAGE(name) "# gnuplot -c " name ".gp svg|png: draws " name ".csv\n"
#define DATA(name) "data = '" name ".csv'\n"
#define TERMINAL(name, width, height)                                                                                            \
  "set output '" name ".' . ARG1\n"                                                                                              \
  "if (ARG1 eq 'svg') {\n"                                                                                                       \
  "  set terminal svg size " width "," height " font 'DejaVu Sans,13' background rgb 'white' noenhanced\n"                       \
  "} else {\n"                                                                                                                   \
  "  set terminal pngcairo size " width "," height " font 'DejaVu Sans,10' background rgb 'white' noenhanced\n"                  \
  "}\n"                                                                                                                          \
  "set datafile separator ','\n"
#define GRID(tics) "set grid " tics "back lt 1 lw 1 lc rgb '#dddddd'\nset border 3\nset tics nomirror out\n"

/* ---- several panels under one key ---- */

/* The methods that a column of the data names, in the order of the data, without `auto`; and how the key calls them. */
#define METHODS(column)                                                                                                          \
  "names = system(\"awk -F, 'NR > 1 && $" column " != \\\"auto\\\" && !seen[$" column "]++ { printf \\\"%s \\\", $" column       \
  " }' \" . data)\n"                                                                                                             \
  "count = words(names)\n"                                                                                                       \
  "title_of(i) = (word(names, i) eq 'bp' ? 'sequential BP' : word(names, i) eq 'paper' ? 'paper, V100' : \\\n"                   \
  "  word(names, i) eq 'pytorch' ? 'PyTorch' : 'scan: ' . word(names, i))\n"                                                     \
  "array colours[6] = ['#b2182b', '#2166ac', '#1b7837', '#f4a582', '#7b3294', '#b8860b']\n"                                      \
  "colour(i) = (word(names, i) eq 'paper' ? '#888888' : colours[1 + (i - 1) % 6])\n"

#define PANELS(name, width, height)                                                                                              \
  USAGE(name)                                                                                                                    \
  DATA(name)                                                                                                                     \
  TERMINAL(name, width, height)                                                                                                  \
  GRID("")                                                                                                                       \
  "unset key\n"                                                                                                                  \
  "set multiplot\n"

/* The key of all panels: a last plot without data draws it once, below the panels. */
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

/* ---- figures 7 and 13 ---- */

#define CURVES(name)                                                                                                             \
  PANELS(name, "1100", "480")                                                                                                    \
  METHODS("1")                                                                                                                   \
  "width(i) = 1.5 + 5.5 * (count - i) / (count > 1 ? count - 1 : 1)\n"                                                           \
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
  "plot for [i = 1:count] data using (only(i, 3)):4 every ::1 with lines lc rgb colour(i) lw 2, \\\n"                            \
  "  for [i = 1:count] data using (noisy(i, 3)):4 every ::1 with points pt 6 ps 0.9 lc rgb colour(i)\n"                          \
  "set lmargin at screen 0.58\n"                                                                                                 \
  "set rmargin at screen 0.97\n"                                                                                                 \
  "set title 'Loss over iterations: the same curve'\n"                                                                           \
  "set xlabel 'iterations'\n"                                                                                                    \
  "plot for [i = 1:count] data using (only(i, 2)):4 every ::1 with lines lc rgb colour(i) lw width(i)\n" KEY                     \
  "plot for [i = 1:count] NaN with lines lc rgb colour(i) lw 2 title title_of(i), \\\n"                                          \
  "  NaN with points pt 6 ps 0.9 lc rgb '#333333' title 'noisy: repeats differ'\n"                                               \
  "unset multiplot\n"

const char bppsa_script_figure7[] = CURVES("figure7");
const char bppsa_script_figure13[] = CURVES("figure13");
const char bppsa_script_lstm_loss[] = CURVES("lstm_loss");

/* ---- figure 8 ---- */

#define SENSITIVITY(name)                                                                                                        \
  PANELS(name, "1180", "860")                                                                                                    \
  METHODS("3")                                                                                                                   \
  "array points[6] = [7, 6, 2, 1, 4, 8]\n"                                                                                       \
  "point(i) = points[1 + (i - 1) % 6]\n"                                                                                         \
  "only(i, axis, column) = (stringcolumn(1) eq axis && stringcolumn(3) eq word(names, i) ? column(column) : NaN)\n"              \
  "noisy(i, axis, column) = (column(8) == 1 ? only(i, axis, column) : NaN)\n"                                                    \
  "set logscale xy\n"                                                                                                            \
  "set format y '%g'\n"                                                                                                          \
  "do for [panel = 0:3] {\n"                                                                                                     \
  "  axis = panel < 2 ? 'T' : 'B'\n"                                                                                             \
  "  column = panel % 2 == 0 ? 7 : 6\n"                                                                                          \
  "  set lmargin at screen panel % 2 == 0 ? 0.08 : 0.58\n"                                                                       \
  "  set rmargin at screen panel % 2 == 0 ? 0.47 : 0.97\n"                                                                       \
  "  set tmargin at screen panel < 2 ? 0.95 : 0.485\n"                                                                           \
  "  set bmargin at screen panel < 2 ? 0.62 : 0.155\n"                                                                           \
  "  if (axis eq 'T') {\n"                                                                                                       \
  "    set xtics (10, 30, 100, 300, 1000, 3000, 10000, 30000)\n"                                                                 \
  "    set xrange [7:43000]\n"                                                                                                   \
  "    set xlabel 'sequence length T  (B = 16)' offset 0,0.5\n"                                                                  \
  "  } else {\n"                                                                                                                 \
  "    set xtics (2, 4, 8, 16, 32, 64, 128, 256)\n"                                                                              \
  "    set xrange [1.6:320]\n"                                                                                                   \
  "    set xlabel 'batch B  (T = 1000)' offset 0,0.5\n"                                                                          \
  "  }\n"                                                                                                                        \
  "  set title column == 7 ? 'Forward and backward pass' : 'Forward and backward: speedup over BP (above 1: faster)' "           \
  "offset 0,-0.4\n"                                                                                                              \
  "  set ylabel column == 7 ? 'milliseconds' : 'time of BP / time of the method'\n"                                              \
  "  plot for [i = 1:count] data using (only(i, axis, 2)):(only(i, axis, column)) every ::1 \\\n"                                \
  "    with linespoints lc rgb colour(i) lw 2 pt point(i) ps 0.8, \\\n"                                                          \
  "    for [i = 1:count] data using (noisy(i, axis, 2)):(noisy(i, axis, column)) every ::1 \\\n"                                 \
  "    with points lc rgb '#333333' lw 1.5 pt 6 ps 2\n"                                                                          \
  "}\n" KEY "plot for [i = 1:count] NaN with linespoints lc rgb colour(i) lw 2 pt point(i) ps 0.8 title title_of(i), "           \
  "\\\n  NaN with points lc rgb '#333333' lw 1.5 pt 6 ps 2 title 'noisy'\n"                                                      \
  "unset multiplot\n"

const char bppsa_script_figure8[] = SENSITIVITY("figure8");
const char bppsa_script_lstm_sensitivity[] = SENSITIVITY("lstm_sensitivity");

/* ---- figure 9 ---- */

const char bppsa_script_figure9[] = USAGE("figure9") DATA("figure9") TERMINAL("figure9", "1100", "480") GRID("ytics ") //
    "set style fill solid 0.9 noborder\n"
    "set boxwidth 0.36\n"
    "set yrange [0.1:*]\n"
    "set logscale y\n"
    "set xrange [-0.6:8.6]\n"
    "set ylabel 'over forward + BP'\n"
    "set xlabel 'set and batch'\n"
    "set key top left\n"
    "height(who, parts) = (stringcolumn(3) eq who ? column(4) + (parts > 1 ? column(5) : 0) + (parts > 2 ? column(6) : 0) : "
    "NaN)\n"
    "plot data using ($1 - 0.2):(height('paper', 3)):xtic(2) every ::1 with boxes lc rgb '#92c5de' title 'paper: BPPSA', \\\n"
    "  data using ($1 - 0.2):(height('paper', 2)) every ::1 with boxes lc rgb '#f4a582' title 'paper: overhead', \\\n"
    "  data using ($1 - 0.2):(height('paper', 1)) every ::1 with boxes lc rgb '#bababa' title 'paper: forward', \\\n"
    "  data using ($1 + 0.2):(height('here', 3)) every ::1 with boxes lc rgb '#1b7837' title 'here: best scan', \\\n"
    "  data using ($1 + 0.2):(height('here', 1)) every ::1 with boxes lc rgb '#7f7f7f' title 'here: forward', \\\n"
    "  data using ($1 + 0.2):(column(7) == 1 ? 1.15 * height('here', 3) : NaN) every ::1 with points lc rgb '#333333' lw 1.5 pt "
    "6 ps 1.2 "
    "title 'noisy', \\\n"
    "  1 with lines lc rgb '#b2182b' lw 2 title 'BP'\n";

/* ---- figure 6 ---- */

const char bppsa_script_figure6[] = USAGE("figure6") TERMINAL("figure6", "1000", "420") GRID("") //
    "set xlabel 'epoch'\n"
    "set ylabel 'loss'\n"
    "at(rate, who, column_) = (strcol(1) eq rate && strcol(2) eq who ? column(column_) : NaN)\n"
    "set key outside below center horizontal maxrows 2\n"
    "set bmargin 6\n"
    "set offsets graph 0.03, graph 0.03, graph 0.05, graph 0.05\n"
    "set multiplot layout 1,2\n"
    "do for [rate in '0.001 0.01'] {\n"
    "  set title 'learning rate '.rate\n"
    "  plot 'figure6.csv' using 3:(at(rate, 'bp', 4)) every ::1 with lines lw 3 lc rgb '#999999' title 'BP, training', \\\n"
    "       '' using 3:(at(rate, 'scan', 4)) every ::1 with points pt 7 ps 0.6 lc rgb '#c0392b' title 'scan, training', \\\n"
    "       '' using 3:(at(rate, 'bp', 5)) every ::1 with lines lw 3 dt 2 lc rgb '#555555' title 'BP, test', \\\n"
    "       '' using 3:(at(rate, 'scan', 5)) every ::1 with points pt 6 ps 0.9 lc rgb '#2c6fbb' title 'scan, test'\n"
    "}\n"
    "unset multiplot\n";

/* ---- figure 10 ---- */

const char bppsa_script_figure10[] = USAGE("figure10") TERMINAL("figure10", "1000", "460") GRID("") //
    "set logscale xy\n"
    "set xlabel 'm k n'\n"
    "set ylabel 'FLOP'\n"
    "set key below\n"
    "of(pattern, op, critical) = (strcol(1) eq pattern && strcol(3) eq op && column(6) == critical && column(5) > 0 ? column(5) "
    ": NaN)\n"
    "set multiplot layout 1,2\n"
    "do for [pattern in 'value guaranteed'] {\n"
    "  set title pattern.' patterns'\n"
    "  plot 'figure10.csv' using 4:(of(pattern, 'mm', 0)) every ::1 with points pt 7 lc rgb '#8fb8de' title 'mat-mat', \\\n"
    "       '' using 4:(of(pattern, 'mm', 1)) every ::1 with points pt 7 ps 1.4 lc rgb '#c0392b' title 'mat-mat, critical', \\\n"
    "       '' using 4:(of(pattern, 'mv', 0)) every ::1 with points pt 5 lc rgb '#b7d7a8' title 'mat-vec', \\\n"
    "       '' using 4:(of(pattern, 'mv', 1)) every ::1 with points pt 5 ps 1.4 lc rgb '#e67e22' title 'mat-vec, critical', \\\n"
    "       '' using 4:(of(pattern, 'bp', 0)) every ::1 with points pt 2 lc rgb '#333333' title 'BP, unpruned'\n"
    "}\n"
    "unset multiplot\n";

/* ---- schedules ---- */

#define POWERS(name, width)                                                                                                      \
  USAGE(name)                                                                                                                    \
  DATA(name)                                                                                                                     \
  TERMINAL(name, width, "420")                                                                                                   \
  GRID("")                                                                                                                       \
  "set logscale x 2\n"

const char bppsa_script_bubble_ratio[] = POWERS("bubble_ratio", "1100") //
    "set multiplot layout 1,2\n"
    "set yrange [0:1]\n"
    "set ylabel 'bubble ratio'\n"
    "set key below center horizontal maxrows 2\n"
    "set bmargin 6\n"
    "ratio(axis, scheme) = (stringcolumn(1) eq axis && stringcolumn(3) eq scheme ? column(4) : NaN)\n"
    "schemes = 'gpipe 1f1b gems chimera zb-h1'\n"
    "set datafile missing NaN\n"
    "set xlabel 'N micro-batches, D = 8'\n"
    "plot for [s in schemes] data using 2:(ratio('N', s)) every ::1 with linespoints lw 2 title s\n"
    "set xlabel 'D stages, N = 32'\n"
    "plot for [s in schemes] data using 2:(ratio('D', s)) every ::1 with linespoints lw 2 title s\n"
    "unset multiplot\n";

const char bppsa_script_schedule_memory[] = POWERS("schedule_memory", "820") //
    "set logscale y 2\n"
    "set ylabel 'activations or Jacobians of one device'\n"
    "set xlabel 'devices, n = 4096'\n"
    "set key below center horizontal maxrows 1\n"
    "plot data using 1:2 every ::1 with linespoints lw 2 lc rgb '#b35806' title 'pipeline, M_x', \\\n"
    "  data using 1:4 every ::1 with linespoints lw 2 lc rgb '#2166ac' title 'Blelloch scan, M_Jacob'\n";

/* ---- ranks ---- */

/* Picks the rows of one method, and its noisy rows, which get rings. */
#define RANKS(name)                                                                                                              \
  PANELS(name, "1100", "520")                                                                                                    \
  METHODS("2")                                                                                                                   \
  "set datafile missing NaN\n"                                                                                                   \
  "only(i, network, column) = (stringcolumn(1) eq network && stringcolumn(2) eq word(names, i) ? column(column) : NaN)\n"        \
  "noisy(i, network, column) = (column(6) == 1 ? only(i, network, column) : NaN)\n"                                              \
  "networks = system(\"awk -F, 'NR > 1 && !seen[$1]++ { printf \\\"%s \\\", $1 }' \" . data)\n"                                  \
  "set logscale xy 2\n"                                                                                                          \
  "set format y '%g'\n"                                                                                                          \
  "set offsets graph 0.05, graph 0.05, graph 0.05, graph 0.05\n"                                                                 \
  "set xlabel 'ranks' offset 0,0.5\n"                                                                                            \
  "set bmargin at screen 0.23\n"                                                                                                 \
  "set tmargin at screen 0.92\n"
#define RANKS_LEFT "set lmargin at screen 0.08\nset rmargin at screen 0.47\n"
#define RANKS_RIGHT "set lmargin at screen 0.58\nset rmargin at screen 0.97\n"
/* Draws measured times, the model's as dashed lines, and the rings. */
#define RANKS_TIMES(network)                                                                                                     \
  "set ylabel 'milliseconds of the slowest rank'\n"                                                                              \
  "plot for [i = 1:count] data using 3:(only(i, " network ", 4)) every ::1 with linespoints lc rgb colour(i) lw 2 pt 7, \\\n"    \
  "  for [i = 1:count] data using 3:(only(i, " network ", 5)) every ::1 with lines lc rgb colour(i) lw 1.5 dt 2, \\\n"           \
  "  for [i = 1:count] data using 3:(noisy(i, " network ", 4)) every ::1 with points lc rgb '#333333' lw 1.5 pt 6 ps 2\n"
#define RANKS_KEY                                                                                                                \
  KEY "set tmargin at screen 0.12\nset key maxrows 2\n"                                                                          \
      "plot for [i = 1:count] NaN with linespoints lc rgb colour(i) lw 2 pt 7 title title_of(i), \\\n"                           \
      "  NaN with lines lc rgb '#333333' lw 1.5 dt 2 title 'model', \\\n"

const char bppsa_script_ranks_time[] = RANKS("ranks_time") RANKS_LEFT //
    "set title 'Forward and backward pass of ' . word(networks, 1)\n" RANKS_TIMES("word(networks, 1)") RANKS_RIGHT
    "set title 'Memory of the rank that holds most'\n"
    "set ylabel 'MB'\n"
    "plot for [i = 1:count] data using 3:(only(i, word(networks, 1), 7)) every ::1 with linespoints lc rgb colour(i) lw 2 pt 7, "
    "\\\n  for [i = 1:count] data using 3:(only(i, word(networks, 1), 8)) every ::1 with lines lc rgb colour(i) lw 2 dt "
    "3\n" RANKS_KEY "  NaN with lines lc rgb '#333333' lw 2 dt 3 title 'section 3.6', \\\n"
    "  NaN with points lc rgb '#333333' lw 1.5 pt 6 ps 2 title 'noisy'\n"
    "unset multiplot\n";

const char bppsa_script_ranks_batch[] = RANKS("ranks_batch") //
    "title_of(i) = word(names, i)\n"
    "do for [k = 1:words(networks)] {\n"
    "  set lmargin at screen (k == 1 ? 0.08 : 0.58)\n"
    "  set rmargin at screen (k == 1 ? 0.47 : 0.97)\n"
    "set title 'Forward and backward pass of ' . word(networks, k)\n" RANKS_TIMES(
        "word(networks, k)") "}\n" RANKS_KEY "  NaN with points lc rgb '#333333' lw 1.5 pt 6 ps 2 title 'noisy'\n"
                             "unset multiplot\n";

/* ---- forward passes ---- */

const char bppsa_script_forward_path[] = PANELS("forward_path", "1000", "520") //
    METHODS("1") "title_of(i) = word(names, i)\n"
                 "rows_of(i) = sprintf(\"< awk -F, '$1 == \\\"%s\\\"' %s\", word(names, i), data) # a network's rows alone make "
                 "a line\n"
                 "set bmargin at screen 0.21\n"
                 "set tmargin at screen 0.92\n"
                 "set lmargin at screen 0.08\n"
                 "set rmargin at screen 0.97\n"
                 "set title 'Dependent steps of a speculative forward pass, the slowest sample'\n"
                 "set xlabel 'training iterations'\n"
                 "set ylabel 'path / T (sequential: 1)'\n"
                 "set yrange [0:*]\n"
                 "set xrange [0:*]\n"
                 "plot for [i = 1:count] rows_of(i) using 2:4 with linespoints lc rgb colour(i) lw 2 pt 7 ps 0.6\n" KEY
                 "set tmargin at screen 0.11\nset key maxrows 2\n"
                 "plot for [i = 1:count] NaN with linespoints lc rgb colour(i) lw 2 pt 7 ps 0.6 title title_of(i)\n"
                 "unset multiplot\n";

const char bppsa_script_forward_steps[] = PANELS("forward_steps", "1100", "520") //
    "networks = system(\"awk -F, 'NR > 1 && !seen[$1]++ { printf \\\"%s \\\", $1 }' \" . data)\n"
    "panels = words(networks)\n"
    "set bmargin at screen 0.26\n"
    "set tmargin at screen 0.92\n"
    "set style fill solid 0.9 border lt -1\n"
    "set boxwidth 0.8\n"
    "set yrange [0:*]\n"
    "set ylabel 'time of the step / with a sequential forward pass'\n"
    "set xtics rotate by 25 right\n"
    "do for [k = 1:panels] {\n"
    "  set lmargin at screen (k == 1 ? 0.08 : 0.58)\n"
    "  set rmargin at screen (panels == 1 ? 0.97 : k == 1 ? 0.47 : 0.97)\n"
    "  set title 'A step of ' . word(networks, k) . ', one sample'\n"
    "  set xrange [0.2:*]\n"
    "  rows = \"< awk -F, 'NR > 1 && $1 == \\\"\" . word(networks, k) . \"\\\"' \" . data\n"
    "  plot rows using ($0 + 1 + 0.5 * int($0 / 2)):($6 + $7):xtic('T ' . stringcolumn(2) . ' ' . stringcolumn(3)) with boxes lc "
    "rgb "
    "'#2166ac', \\\n"
    "    rows using ($0 + 1 + 0.5 * int($0 / 2)):6 with boxes lc rgb '#f4a582', \\\n"
    "    rows using ($0 + 1 + 0.5 * int($0 / 2)):($8 == 1 ? $6 + $7 : NaN) with points lc rgb '#333333' lw 1.5 pt 6 ps 2\n"
    "}\n" KEY "plot NaN with boxes lc rgb '#f4a582' title 'forward', NaN with boxes lc rgb '#2166ac' title 'backward', \\\n"
    "  NaN with points lc rgb '#333333' lw 1.5 pt 6 ps 2 title 'noisy'\n"
    "unset multiplot\n";

/* ---- training steps ---- */

/* Lists the panels, the values of column 1, and sets the margins of panel k below. */
#define STEP_PANELS                                                                                                              \
  "names = system(\"awk -F, 'NR > 1 && !seen[$1]++ { printf \\\"%s \\\", $1 }' \" . data)\n"                                     \
  "panels = words(names)\n"                                                                                                      \
  "left(k) = 0.07 + (k - 1) * 0.93 / panels\n"                                                                                   \
  "right(k) = left(k) + 0.93 / panels - 0.05\n"                                                                                  \
  "set tmargin at screen 0.92\n"

const char bppsa_script_step_path[] = PANELS("step_path", "1200", "460") //
    STEP_PANELS
    "networks = system(\"awk -F, 'NR > 1 && !seen[$2]++ { printf \\\"%s \\\", $2 }' \" . data)\n"
    "count = words(networks)\n"
    "array colours[6] = ['#b2182b', '#2166ac', '#1b7837', '#7b3294', '#b8860b', '#333333']\n"
    "colour(i) = colours[1 + (i - 1) % 6]\n"
    "rows_of(k, i) = sprintf(\"< awk -F, '$1 == \\\"%s\\\" && $2 == \\\"%s\\\"' %s\", word(names, k), word(networks, i), data)\n"
    "set bmargin at screen 0.22\n"
    "set xlabel 'training iterations'\n"
    "set xrange [0:*]\n"
    "set yrange [0:*]\n"
    "do for [k = 1:panels] {\n"
    "  set lmargin at screen left(k)\n"
    "  set rmargin at screen right(k)\n"
    "  set title word(names, k)\n"
    "  if (k == 1) { set ylabel 'path / T (sequential: 1)' } else { unset ylabel }\n"
    "  plot for [i = 1:count] rows_of(k, i) using 3:4 with lines lc rgb colour(i) lw 2, \\\n"
    "    for [i = 1:count] rows_of(k, i) using 3:5 with lines lc rgb colour(i) lw 2 dt 2\n"
    "}\n" KEY "set tmargin at screen 0.09\nset key maxrows 1\n"
    "plot for [i = 1:count] NaN with lines lc rgb colour(i) lw 4 title word(networks, i), \\\n"
    "  NaN with lines lc rgb '#333333' lw 2 title 'forward', NaN with lines lc rgb '#333333' lw 2 dt 2 title 'backward'\n"
    "unset multiplot\n";

const char bppsa_script_step_parts[] = PANELS("step_parts", "1200", "520") //
    STEP_PANELS "set bmargin at screen 0.27\n"
                "set style fill solid 0.9 border lt -1\n"
                "set boxwidth 0.85\n"
                "set yrange [0:2]\n"
                "set xtics rotate by 40 right\n"
                "do for [k = 1:panels] {\n"
                "  set lmargin at screen left(k)\n"
                "  set rmargin at screen right(k)\n"
                "  set title 'A step of ' . word(names, k)\n"
                "  if (k == 1) { set ylabel 'time / sequential step' } else { unset ylabel }\n"
                "  set xrange [0.2:*]\n"
                "  rows = \"< awk -F, '$1 == \\\"\" . word(names, k) . \"\\\"' \" . data\n"
                "  plot rows using 4:8:xtic('H ' . stringcolumn(2) . ' ' . stringcolumn(3)) with boxes lc rgb '#bbbbbb', \\\n"
                "    rows using 4:($5 + $6) with boxes lc rgb '#2166ac', rows using 4:5 with boxes lc rgb '#f4a582', \\\n"
                "    rows using 4:($8 < 1.85 ? $8 + 0.1 : 1.9):(sprintf('%.2f', $8)) with labels font ',9', \\\n"
                "    rows using 4:($10 == 1 ? ($8 < 2 ? $8 : 2) : NaN) with points lc rgb '#333333' lw 1.5 pt 6 ps 1.2\n"
                "}\n" KEY
                "plot NaN with boxes lc rgb '#f4a582' title 'forward', NaN with boxes lc rgb '#2166ac' title 'backward', \\\n"
                "  NaN with boxes lc rgb '#bbbbbb' title 'loss and update', \\\n"
                "  NaN with points lc rgb '#333333' lw 1.5 pt 6 ps 1.2 title 'noisy'\n"
                "unset multiplot\n";

/* ---- old and predicted weights ---- */

/* Places the panels: a column for each task, two rows. found: all tasks; task: that of the column. */
#define TASKS                                                                                                                    \
  "found = system(\"awk -F, 'NR > 1 && !seen[$1]++ { printf \\\"%s \\\", $1 }' \" . data)\n"                                     \
  "columns = words(found)\n"                                                                                                     \
  "array colours[6] = ['#555555', '#b2182b', '#2166ac', '#1b7837', '#7b3294', '#b8860b']\n"                                      \
  "title_of(i) = word(names, i)\n"                                                                                               \
  "set format y '%g'\n"
#define PLACE                                                                                                                    \
  "    task = word(found, k)\n"                                                                                                  \
  "    set lmargin at screen (k - 1 + 0.2) / columns\n"                                                                          \
  "    set rmargin at screen (k - 0.06) / columns\n"                                                                             \
  "    set tmargin at screen (panel == 1 ? 0.95 : 0.50)\n"                                                                       \
  "    set bmargin at screen (panel == 1 ? 0.60 : 0.15)\n"

const char bppsa_script_prediction[] = PANELS("prediction", "1200", "760") //
    METHODS("2") TASKS
    "only(i, ahead, column) = (stringcolumn(1) eq task && stringcolumn(2) eq word(names, i) && column(3) == "
    "ahead ? column(column) : NaN)\n"
    "set datafile missing NaN\n"
    "set logscale y\n"
    "set format y '%.0e'\n"
    "set xlabel 'updates' offset 0,0.5\n"
    "do for [panel = 1:count] {\n"
    "  do for [k = 1:columns] {\n" PLACE "    set title task . ', ' . title_of(panel) offset 0,-0.5\n"
    "    set ylabel (k == 1 ? 'RMSE' : '')\n"
    "    plot for [s = 1:3] data using 4:(only(panel, s, 5)) every ::1 with lines lc rgb colours[s + 1] lw 1.5 dt 2, \\\n"
    "      for [s = 1:3] data using 4:(only(panel, s, 6)) every ::1 with lines lc rgb colours[s + 1] lw 2\n"
    "  }\n"
    "}\n" KEY "set tmargin at screen 0.09\nset key maxrows 2\n"
    "plot for [s = 1:3] NaN with lines lc rgb colours[s + 1] lw 2 title sprintf('predicted, s = %d', s), \\\n"
    "  for [s = 1:3] NaN with lines lc rgb colours[s + 1] lw 1.5 dt 2 title sprintf('stale, s = %d', s)\n"
    "unset multiplot\n";

/* Draws means as curves and ranges as bars: accuracy above, loss below. */
#define STALENESS(name)                                                                                                          \
  PANELS(name, "1200", "760")                                                                                                    \
  METHODS("2")                                                                                                                   \
  TASKS                                                                                                                          \
  "only(i, column) = (stringcolumn(1) eq task && stringcolumn(2) eq word(names, i) ? column(column) : NaN)\n"                    \
  "beside(i) = column(3) + 0.15 * (i - (count + 1) / 2.0)\n"                                                                     \
  "set datafile missing NaN\n"                                                                                                   \
  "set xlabel 'epochs' offset 0,0.5\n"                                                                                           \
  "do for [panel = 1:2] {\n"                                                                                                     \
  "  at = 2 + 3 * panel\n"                                                                                                       \
  "  do for [k = 1:columns] {\n" PLACE "    set title task offset 0,-0.5\n"                                                      \
  "    set ylabel (k > 1 ? '' : panel == 1 ? 'validation accuracy' : 'validation loss')\n"                                       \
  "    plot for [i = 1:count] data using (beside(i)):(only(i, at)):(only(i, at + 1)):(only(i, at + 2)) every ::1 \\\n"           \
  "      with yerrorbars lc rgb colour(i) lw 1 pt 7 ps 0.3, \\\n"                                                                \
  "      for [i = 1:count] data using (beside(i)):(only(i, at)) every ::1 with lines lc rgb colour(i) lw 2\n"                    \
  "  }\n"                                                                                                                        \
  "}\n" KEY "plot for [i = 1:count] NaN with lines lc rgb colour(i) lw 2 title title_of(i)\n"                                    \
  "unset multiplot\n"

const char bppsa_script_staleness[] = STALENESS("staleness");
const char bppsa_script_adam[] = STALENESS("adam");

/* ---- the oracle ---- */

/* Lines are projected, points are published; a published line joins two points. */
#define PROJECTED(name)                                                                                                          \
  PANELS(name, "900", "520")                                                                                                     \
  "curves = \"awk -F, 'NR > 1 && !seen[$1]++ { print $1 }' \" . data\n"                                                          \
  "count = int(system(curves . ' | wc -l'))\n"                                                                                   \
  "array titles[count]\n"                                                                                                        \
  "do for [i = 1:count] { titles[i] = system(curves . ' | sed -n ' . i . 'p') }\n"                                               \
  "array colours[6] = ['#2166ac', '#b2182b', '#1b7837', '#b8860b', '#7b3294', '#555555']\n"                                      \
  "only(i, column) = (stringcolumn(1) eq titles[i] ? column(column) : NaN)\n"                                                    \
  "set bmargin at screen 0.21\n"                                                                                                 \
  "set tmargin at screen 0.92\n"                                                                                                 \
  "set lmargin at screen 0.11\n"                                                                                                 \
  "set rmargin at screen 0.97\n"                                                                                                 \
  "set logscale x 2\n"
#define PROJECTED_PLOT                                                                                                           \
  "plot for [i = 1:count] data using (only(i, 2)):3 every ::1 with lines lc rgb colours[i] lw 2, \\\n"                           \
  "  for [i = 1:count] data using (only(i, 2)):4 every ::1 with linespoints lc rgb colours[i] lw 1.5 dt 3 pt 7 ps 1.2\n" KEY     \
  "set tmargin at screen 0.11\n"                                                                                                 \
  "set key maxrows 2\n"                                                                                                          \
  "plot for [i = 1:count] NaN with lines lc rgb colours[i] lw 4 title titles[i]\n"                                               \
  "unset multiplot\n"

const char bppsa_script_paradl_figure3[] = PROJECTED("paradl_figure3") //
    "set title 'Halo exchange / gradient exchange of data+spatial'\n"
    "set xlabel 'processors'\n"
    "set ylabel 'ratio'\n"
    "set yrange [0:*]\n" PROJECTED_PLOT;

const char bppsa_script_paradl_figure5[] = PROJECTED("paradl_figure5") //
    "set title 'Seconds an epoch'\n"
    "set xlabel 'processors'\n"
    "set ylabel 's'\n"
    "set logscale y\n" PROJECTED_PLOT;

const char bppsa_script_paradl_figure7[] = PROJECTED("paradl_figure7") //
    "set title 'Weight update / computing'\n"
    "set xlabel 'samples of a mini-batch on one processor'\n"
    "set ylabel 'share'\n"
    "set yrange [0:*]\n" PROJECTED_PLOT;

/* ---- out of order ---- */

/* A panel for each group, as wide as it has ways; bars are medians, lines reach from the fastest to the slowest round. The groups'
 * names have blanks, which words() would part. */
const char bppsa_script_out_of_order[] = PANELS("out_of_order", "1100", "480") //
    "groups = system(\"awk -F, 'NR > 1 && !seen[$1]++ { gsub(/ /, \\\"_\\\", $1); printf \\\"%s \\\", $1 }' \" . data)\n"
    "panels = words(groups)\n"
    "count(k) = int(system(\"awk -F, 'NR > 1 { gsub(/ /, \\\"_\\\", $1); n += $1 == \\\"\" . word(groups, k) . \"\\\" } "
    "END { print n }' \" . data))\n"
    "all = 0\n"
    "do for [k = 1:panels] { all = all + count(k) + 1.5 }\n"
    "set tmargin at screen 0.90\n"
    "set bmargin at screen 0.28\n"
    "set style fill solid 0.9 border lt -1\n"
    "set boxwidth 0.7\n"
    "set yrange [0:*]\n"
    "set xtics rotate by 25 right\n"
    "place = 0\n"
    "do for [k = 1:panels] {\n"
    "  set ylabel (k == 1 ? 'milliseconds a step' : '')\n"
    "  set lmargin at screen (0.01 + 0.97 * (place + 1.2) / all)\n"
    "  place = place + count(k) + 1.5\n"
    "  set rmargin at screen (0.01 + 0.97 * place / all)\n"
    "  set title system(\"echo '\" . word(groups, k) . \"' | tr _ ' '\")\n"
    "  set xrange [0.4:count(k) + 0.6]\n"
    "  rows = \"< awk -F, 'NR > 1 { g = $1; gsub(/ /, \\\"_\\\", g); if (g == \\\"\" . word(groups, k) . \"\\\") print }' \" . "
    "data\n"
    "  plot rows using ($0 + 1):3:xtic(2) with boxes lc rgb '#9ecae1', \\\n"
    "    rows using ($0 + 1):3:4:5 with yerrorbars lc rgb '#333333' lw 1.5 pt 1 ps 0, \\\n"
    "    rows using ($0 + 1):($8 == 1 ? $3 : NaN) with points lc rgb '#333333' lw 1.5 pt 6 ps 2\n"
    "}\n" KEY "plot NaN with boxes lc rgb '#9ecae1' title 'median of the rounds', \\\n"
    "  NaN with lines lc rgb '#333333' lw 1.5 title 'fastest to slowest round', \\\n"
    "  NaN with points lc rgb '#333333' lw 1.5 pt 6 ps 2 title 'noisy'\n"
    "unset multiplot\n";

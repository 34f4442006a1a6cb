# gnuplot -c figure7.gp DATA.csv OUT png|svg
# Figure 7 of the paper: training loss over wall-clock time, left; milliseconds per iteration, right.
# DATA.csv: method,iterations,seconds,mean_loss,forward_ms,backward_ms,update_ms
data = ARG1
set output ARG2
if (ARG3 eq "svg") {
  set terminal svg size 1100,460 font "DejaVu Sans,13" background rgb "white"
} else {
  set terminal pngcairo size 1100,460 font "DejaVu Sans,11"
}
set datafile separator ","
methods = system("awk -F, 'NR > 1 && !seen[$1]++ { printf \"%s \", $1 }' '" . data . "'")
count = words(methods)
array colours[4] = ["#b2182b", "#2166ac", "#1b7837", "#e08214"]
colour(i) = colours[1 + (i - 1) % 4]
set multiplot layout 1,2
set grid lc rgb "#dddddd"
set border 3
set tics nomirror out

set title "Training loss over wall-clock time"
set xlabel "seconds"
set ylabel "cross-entropy, mean of 20 iterations"
set key bottom left
plot for [i = 1:count] data using (stringcolumn(1) eq word(methods, i) ? column(3) : NaN):4 every ::1 \
  with linespoints lc rgb colour(i) lw 2 pt 6 ps 0.6 title word(methods, i)

set title "Time of one iteration (median)"
set xlabel ""
set ylabel "milliseconds"
set key top left
set style data histograms
set style histogram rowstacked
set style fill solid 0.85 border -1
set boxwidth 0.6
set yrange [0:*]
# one row per method: the last row of its data
rows = "< awk -F, 'NR > 1 { row[$1] = $0; if (!seen[$1]++) order[++n] = $1 } END { for (i = 1; i <= n; ++i) print row[order[i]] }' '" . data . "'"
plot rows using 5:xtic(1) lc rgb "#92c5de" title "forward", \
     "" using 6 lc rgb "#2166ac" title "backward", \
     "" using 7 lc rgb "#b2182b" title "update"
unset multiplot

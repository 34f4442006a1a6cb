#!/bin/sh
# bench/scripts/roofline.sh F.json ...: prints what `bppsa bench rnn|gru --device cuda --out F.json` measured as Markdown. A row's
# time is divided by its floor, which follows from the ceilings measured beside it, and by the fastest of cuDNN's rows of the same
# point and phase that are right and do not use TF32. A noisy row has a ~ before its median and no ratio, and is not cuDNN's
# fastest. Neither is a rival that did not qualify, whose row has the time of its single pass.
set -eu
if [ $# -eq 0 ]; then
  echo "roofline: no file, expected documents of bppsa bench"
  exit 2
fi
for file in "$@"; do
  if [ ! -r "$file" ]; then
    echo "roofline: $file cannot be read, expected a document of bppsa bench"
    exit 2
  fi
  # A row is an object that contains no object: each becomes one line.
  tr '{}' '\n\n' <"$file" | awk -v file="$(basename "$file" .json)" '
    # Returns the value of a field; a text without its quotes.
    function field(name,    at, rest) {
      at = index($0, "\"" name "\": ")
      if (at == 0) return ""
      rest = substr($0, at + length(name) + 4)
      if (substr(rest, 1, 1) == "\"") { rest = substr(rest, 2); sub(/".*/, "", rest) } else sub(/,.*/, "", rest)
      return rest
    }
    function seconds(s) {
      return s < 1e-3 ? sprintf("%.4g us", s * 1e6) : s < 1 ? sprintf("%.4g ms", s * 1e3) : sprintf("%.4g s", s)
    }
    field("method") != "" && field("phase") != "" {
      ++n
      point[n] = field("seq_len") " | " field("batch") " | " field("hidden") " | " field("input") " | " field("init")
      phase[n] = field("phase"); method[n] = field("method"); skipped[n] = field("skipped"); right[n] = field("ok") == "true"
      median[n] = field("median_s") + 0; least[n] = field("min_s") + 0; single[n] = field("qualifying") + 0
      flops[n] = field("flops") + 0; bytes[n] = field("bytes") + 0
      floor_s[n] = field("floor_s") + 0; device[n] = field("peak_device_bytes") + 0; step[n] = field("step_s") + 0
      if (field("peak_flops_per_s") + 0 > top) { top = field("peak_flops_per_s") + 0; copy = field("copy_bytes_per_s") + 0 }
      noisy[n] = field("noisy") == "true" || (field("noisy") == "" && field("min_s") != "" && median[n] > 1.25 * field("min_s"))
      key = point[n] " " phase[n]
      counts = method[n] ~ /^cudnn/ && method[n] !~ /tf32|bf16/ && right[n] && skipped[n] == "" && median[n] > 0 && !noisy[n]
      if (counts && (!(key in best) || median[n] < best[key])) best[key] = median[n]
    }
    END {
      if (n == 0) { print "roofline: " file ": no rows, expected a document of bppsa bench"; exit 2 }
      printf "## %s\n\nCeilings measured beside the rows: %.4g TFLOP/s of multiply-adds, ", file, top / 1e12
      printf "%.4g TB/s of a copy.\n\n", copy / 1e12
      printf "| T | B | H | I | init | phase | method | median | min | a step | TFLOP/s | TB/s | floor | over floor "
      print "| GPU memory, MB | best cuDNN over it |"
      print "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
      for (i = 1; i <= n; ++i) {
        printf "| %s | %s | %s | ", point[i], phase[i], method[i]
        if (skipped[i] != "") { printf "skipped: %s | | | | | | | | |\n", skipped[i]; continue }
        if (single[i] > 0) { printf "%s in its qualifying pass | | | | | | | | |\n", seconds(single[i]); continue }
        if (median[i] == 0) { printf "not timed | | | | | | | | |%s\n", (right[i] ? "" : " **wrong**"); continue }
        key = point[i] " " phase[i]
        rate = flops[i] / median[i] / 1e12
        moved = bytes[i] / median[i] / 1e12
        over = (floor_s[i] > 0 ? median[i] / floor_s[i] : 0)
        ratio = (key in best && right[i] && !noisy[i] ? sprintf("%.2f", best[key] / median[i]) : "")
        printf "%s%s | %s | %s | %.3g | %.3g | %s | %.1f | %.1f | %s |%s\n", (noisy[i] ? "~" : ""), seconds(median[i]),
          seconds(least[i]), seconds(step[i]), rate, moved, seconds(floor_s[i]), over, device[i] / 1e6,
          ratio, (right[i] ? "" : " **wrong**")
      }
      print ""
    }'
done

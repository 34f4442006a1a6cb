#!/bin/sh
# test_spectrain.sh SCRIPT PROGRAM DIRECTORY: the studies of spectrain.py with small shapes. Two ranks give what one gives, every
# study has its rows, the figures take them, and a request that names no study is refused.
set -eu
script=$1
program=$2
directory=$3
rm -rf "$directory"
mkdir -p "$directory"
cd "$directory"
study() { python3 "$script" --program "$program" --folder data --quick "$@"; }
study --out all.json
study --studies accuracy --tasks gru --ranks 2 --out two.json >/dev/null
python3 - <<'PYTHON'
import json
with open("all.json") as one, open("two.json") as two:
    rows, again = json.load(one)["rows"], json.load(two)["rows"]
count = {study: sum(row["study"] == study for row in rows) for study in ("rmse", "accuracy", "adam")}
assert count == {"rmse": 4 * 2 * 3, "accuracy": 4 * 2 * 4, "adam": 3 * 2 * 2}, count
for row in rows:
    if row["study"] == "rmse":
        assert 0 < row["predicted"] and 0 < row["stale"] and 0 <= row["nearer"] <= 1 and len(row["curve"]) > 10, row
for study in ("accuracy", "adam"):
    for task in ("lenet5", "gru", "mlp") + (("deep",) if study == "accuracy" else ()):
        for seed in (1, 2):
            found = [row for row in rows if (row["study"], row["task"], row.get("seed")) == (study, task, seed)]
            assert len({row["updates"] for row in found}) == 1, found  # every scheme makes as many updates
            assert len({str(row["epochs"]) for row in found}) == len(found), found  # and none does what another one does
same = [row for row in rows if row["study"] == "accuracy" and row["task"] == "gru"]
assert [row["epochs"] for row in same] == [row["epochs"] for row in again]
PYTHON
"$program" figures --results all.json --out pages >/dev/null
for name in prediction prediction_table staleness staleness_table adam adam_table; do
  test -s "pages/$name.csv"
done
status=0
study --studies tabel 2>error || status=$?
test "$status" -eq 2
grep -q "'tabel', expected some of rmse, accuracy, adam" error

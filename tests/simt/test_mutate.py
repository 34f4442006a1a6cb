"""What tools/mutate knows of CTest's tests, in a built directory: test_mutate.py ROOT BUILD. Exits 77 where BUILD is not the one of
the preset cpu, whose tests it asks for."""
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
root, built = sys.argv[1:]
if os.path.realpath(built) != os.path.realpath(os.path.join(root, "build", "cpu")):
    sys.exit(77)
sys.path.insert(0, os.path.join(root, "tools"))
loader = importlib.machinery.SourceFileLoader("mutate", os.path.join(root, "tools", "mutate"))
mutate = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
loader.exec_module(mutate)
build = mutate.mutate_build.Build([], root, built)
tests = mutate.mutate_build.Tests(build, 2, "")
failures = 0


def check(condition, what):
    global failures
    if not condition:
        print("not so: " + what)
        failures += 1


def programs(name):
    return sorted(os.path.relpath(word, built) for word in tests.tests[name]["programs"]) if name in tests.tests else None


# programs in commands: as the command, as arguments of scripts, and a folder with a library
check(programs("test_kill_resume") == ["bppsa", "tests/kill_resume"], "test_kill_resume runs two programs")
check(programs("test_oracle_formulas") == ["bppsa"], "a script runs the program")
check(programs("test_campaign_rnn") == ["tests/campaign_rnn"], "a campaign runs its own program")
check(programs("fuzz_replay_json") == ["tests/fuzz/fuzz_replay_json"], "a replay")
for name in ("test_null_calls", "test_list_mutants", "test_counted_flops", "simt_scan_scan", "fuzz_refuse_all", "test_docs"):
    check(name in tests.tests, name + " takes part")
in_c = {"test_python_" + name[5:-2] for name in os.listdir(os.path.join(root, "tests", "python")) if name.endswith(".c")}
python = [name for name in tests.tests if name.startswith("test_python_") and name not in in_c]
check(all(programs(name) == ["python"] for name in python), "the Python package is a folder")
for name in ("check_floors", "test_headers_c17", "test_install", "mutate_shuffles"):
    check(name in tests.left_out, name + " has no part")
check("--mutations" in tests.tests["fuzz_replay_json"]["command"], "arguments are CTest's")

# a folder's tests are its label's, without scripts; kernels have those on the emulated GPU
own = tests.of("scan", "scan/scan.c")
check({"test_scan_scan", "test_counted_flops", "simt_scan_scan"} <= set(own), "scan's own tests")
of_ranks = tests.of("distributed", "distributed/time/scan_ranks.c")
check({"test_campaign_ranks_rnn", "test_list_mutants"} <= set(of_ranks), "distributed's tests")
check("test_kill_resume" not in tests.of("train", "train/loss.c"), "scripts are the rest")
check("test_lstm_lstm" in tests.of("recurrent", "recurrent/chain.c"), "cells test what recurrent/ computes")
tests.chosen = "^test_lstm_l|^test_scan"
check(tests.of("recurrent", "recurrent/chain.c") == ["test_lstm_lstm"], "tests by their names")
tests.chosen = ""
check(all(name.startswith("simt_") for name in tests.of("scan", "scan/scan_kernels.cuh")), "kernels on the emulated GPU")

# the result is CTest's: an exit code, or an expression in the output
word = next(iter(tests.tests["fuzz_refuse_all"]["programs"]))
check(tests.run("fuzz_refuse_all", {}, 60) == "passed", "fuzz_refuse_all passes by its output")
check(tests.run("fuzz_refuse_all", {word: "/bin/true"}, 60) == "failed", "a program that says nothing fails")
word = next(iter(tests.tests["test_core_base_status"]["programs"]))
check(tests.run("test_core_base_status", {word: "/bin/true"}, 60) == "passed", "exit code 0 passes")
check(tests.run("test_core_base_status", {word: "/bin/false"}, 60) == "failed", "exit code 1 fails")

# what is known to be equal, and what an earlier run has judged
listed = mutate.known_survivors()[0]
with open(os.path.join(root, listed["file"]), encoding="utf-8") as file:
    lines = [line.strip() for line in file.read().split("\n")]
number = lines.index(listed["before"])
mutant = ("schedule", listed["file"], number, "operator", listed["after"])
check(mutate.is_known(mutant, [listed]), "a listed mutant is known")
check(not mutate.is_known(mutant[:4] + ("other",), [listed]), "another one is not")

# an earlier run's rows, whose lines have moved since
path = "core/base/cut.h"
some = [mutant for mutant in mutate.all_mutants(["core"]) if mutant[1] == path]
texts = mutate.mutants_by_text(some)
text, single = next((text, found[0]) for text, found in sorted(texts.items()) if len(found) == 1)
row = {"file": path, "line": single[2] + 1000, "kind": text[1], "before": text[2], "after": text[3]}
with tempfile.TemporaryDirectory() as folder:
    for result, again in (("killed", 0), ("invalid", 0), ("survived", 1)):
        record = os.path.join(folder, result + ".json")
        with open(record, "w", encoding="utf-8") as file:
            json.dump({"commit": "abc", "mutants": [{**row, "result": result}]}, file)
        earlier = mutate.earlier_results([record])
        waiting, rows = mutate.draw(some, 5, 1, earlier)
        check(len(rows) == 1 and len(waiting) == 4 + again, "%s: judged again %d" % (result, again))
        check(rows[0]["line"] == single[2] + 1 and rows[0]["commit"] == "abc", "%s: where it is today" % result)
        check(again == 0 or waiting[-1] == (single, rows[0]), "a survivor is judged behind new mutants, in the place of its row")
        check(all(row is None for _, row in waiting[:4]), "new mutants have no row")
    check(mutate.draw(some, 5, 1, []) == mutate.draw(some, 5, 1, []), "a seed draws the same mutants")
    check(len(mutate.draw(some, 0, 1, [])[0]) == len(some), "a sample of 0 is all of them")

# mutants that somebody has chosen
row = {"file": path, "kind": "one too many", "before": text[2], "after": "else"}
with tempfile.TemporaryDirectory() as folder:
    record = os.path.join(folder, "list.json")
    for before, fits in ((text[2], True), (text[2] + " else", False), ("", False)):
        with open(record, "w", encoding="utf-8") as file:
            json.dump({"mutants": [{**row, "before": before}]}, file)
        try:
            found = mutate.listed_mutants(record)
            check(fits and found[0][:4] == ("core", path, single[2], "one too many"), "a chosen mutant's place")
            check(found[0][4].strip() == "else", "a chosen mutant's line")
        except ValueError as error:
            check(not fits and path in str(error), "a mutant that fits one line is taken")

# what enters the function of a mutant: unknown tests and lines are taken for entered
reach = mutate.mutate_reach.Reach.__new__(mutate.mutate_reach.Reach)
first, second = ("core/a.c", 10, 20), ("core/a.c", 30, 40)
reach.ran = {"enters": {("core/a.c", 12)}, "without": set(), "failed": None}
reach.functions = {first, second}
check([reach.enters(name, "core/a.c", 15) for name in ("enters", "without", "failed", "other")] == [True, False, True, True],
      "a test that enters the first function")
check(not reach.enters("enters", "core/a.c", 30), "and not the second one")
check(reach.enters("without", "core/a.c", 25) and reach.enters("without", "core/b.c", 15), "a line outside of functions")
document = {"current_working_directory": "/build", "files": [
    {"file": "/tree/core/a.c", "functions": [{"start_line": 10, "end_line": 20, "execution_count": 0},
                                             {"start_line": 30, "end_line": 40, "execution_count": 1}],
     "lines": [{"line_number": 12, "count": 3}, {"line_number": 31, "count": 0}]},
    {"file": "/usr/include/stdio.h", "functions": [], "lines": []}]}
check(mutate.mutate_reach.read_counts(document, "/tree", {"core/a.c"}) == ({first, second}, {("core/a.c", 12), ("core/a.c", 30)}),
      "a function that was inlined was not called, but its lines ran")
sys.exit(1 if failures else 0)

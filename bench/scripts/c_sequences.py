#!/usr/bin/env python3
"""c_sequences.py COUNT OUT.json BUILD [BUILD ...]: random sequences of calls on the library's objects in C.

Runs the sequences 1 .. COUNT of every program BUILD/tests/test_FOLDER_calls (tests/support/calls.h), for each build, in the
environment that its preset has in CMakePresets.json, and writes how many sequences and calls of each kind there were. A program
that finds a wrong result prints the sequence and its calls, and the others still run. BUILD: a build of a preset of that name,
such as build/asan or build/tsan. Exit code 1: a result was wrong, or a sanitizer complained.
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

import results_file
from program import ROOT, built, commit, plain_parser, where_and_when

FOLDERS = ("recurrent", "scan", "jacobian", "train", "comm")


def cached(build, *names):
    """the values of entries of the build's CMakeCache.txt"""
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
        entries = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line and line[0] not in "#/")
    found = {key.split(":")[0]: value for key, value in entries.items()}
    return [found.get(name, "") for name in names]


def environment(build):
    """the variables of the test preset that has the build's name"""
    with open(os.path.join(ROOT, "CMakePresets.json"), encoding="utf-8") as file:
        presets = json.load(file)["testPresets"]
    name = os.path.basename(os.path.abspath(build))
    return next((preset.get("environment", {}) for preset in presets if preset["name"] == name), {})


def run(job):
    """what a program of a build counted, with its exit code and processor seconds"""
    build, program, count = job
    with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:
        process = subprocess.Popen([program, "1", str(count)], stdout=printed, stderr=subprocess.STDOUT,
                                   cwd=os.path.join(build, "tests", "tmp"), env={**os.environ, **environment(build)})
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        text = printed.read()
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if process.returncode != 0 or not lines:
        print(text)
    counted = json.loads(lines[-1]) if lines else {"object": os.path.basename(program), "sequences": 0, "calls": {}}
    row = {**counted, "calls": dict(sorted(counted["calls"].items())), "processor_s": round(used.ru_utime + used.ru_stime, 1),
           "commit": commit()}
    print("%s: %s: %d sequences, exit code %d" % (build, row["object"], row["sequences"], process.returncode), flush=True)
    return build, row, process.returncode


def main():
    parser = plain_parser(__doc__)
    parser.add_argument("count", type=int, help="sequences of each object")
    parser.add_argument("out", help="where the JSON document goes")
    parser.add_argument("build", nargs="+", help="build/asan build/tsan")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="programs at once [%(default)s]")
    o = parser.parse_args()
    jobs = [(build, built(parser, build, "test_%s_calls" % folder), o.count) for folder in FOLDERS for build in o.build]
    document = {"bench": "c_sequences", **where_and_when(), "asked": o.count, "wrong": 0, "builds": []}
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        rows = list(pool.map(run, jobs))
    document["wrong"] = sum(code != 0 for _, _, code in rows)
    for build in o.build:
        compiler, sanitizer = cached(build, "CMAKE_C_COMPILER", "BPPSA_SANITIZE")
        version = subprocess.run([compiler, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout.split("\n")[0]
        document["builds"].append({"preset": os.path.basename(os.path.abspath(build)), "compiler": version,
                                   "sanitizer": sanitizer, "objects": [row for of, row, _ in rows if of == build]})
    results_file.write(o.out, document)
    return 0 if document["wrong"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

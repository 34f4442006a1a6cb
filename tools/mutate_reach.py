"""Which tests run the function that a mutant changes, for `tools/mutate --rest`. The objects that the files of the survivors go
into are compiled with gcov's counters, the programs of all tests are linked with them, and each test runs once. A mutant in a
function of which a test runs no line cannot make it fail, so it need not face it."""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

# Tests that end processes before they have written their counts: they face every mutant.
UNCOUNTED = re.compile(r"^test_core_|kill|signal|interrupt|checkpoint|resume|fault|mpi|long_run|outputs|absurd|null_calls|guest|"
                       r"guard|eval_out")


def read_counts(document, tree, files):
    """Of what gcov says of one object: {(file, first line, last line)} of its functions, and {(file, line)} of the lines that ran.
    The first line of a function that was called counts among them."""
    functions, ran = set(), set()
    for entry in document["files"]:
        path = os.path.normpath(os.path.join(document["current_working_directory"], entry["file"]))
        path = os.path.relpath(path, tree) if path.startswith(tree + os.sep) else os.path.normpath(entry["file"])
        if path in files:
            functions.update((path, function["start_line"], function["end_line"]) for function in entry["functions"])
            ran.update((path, function["start_line"]) for function in entry["functions"] if function["execution_count"] != 0)
            ran.update((path, line["line_number"]) for line in entry["lines"] if line["count"] != 0)
    return functions, ran


def has_counters(program):
    """Does a linked program hold an object that counts? The linker takes of an archive what a program needs. None: not linked."""
    if program is None:
        return False
    with open(program, "rb") as file:
        return b".gcda" in file.read()


class Reach:
    """For each test which lines of some files it runs, and where functions are in these files."""

    def __init__(self, tests, workers, files, end):
        """end: time.monotonic() from which on no test is counted."""
        self.functions = set()
        self.tests, self.worker, self.end = tests, workers[0], end
        self.linking, self.reading = threading.Lock(), threading.Lock()
        tests.build_all()
        self.worker.begin_counting(files)
        names = [name for name in tests.tests if not UNCOUNTED.search(name)]
        with concurrent.futures.ThreadPoolExecutor(len(workers)) as pool:
            self.ran = dict(zip(names, pool.map(self.count, names))) # lines as read_counts has them; None: unknown
        self.worker.end()
        without = [name for name in names if self.ran[name] is None]
        print("mutate: %d of %d tests were counted; without counts are %s" % (len(names) - len(without), len(tests.tests),
                                                                             " ".join(without) or "none that could have some"),
              flush=True)

    def count(self, name):
        try:
            return self.count_lines(name)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            print("mutate: %s is not counted: %s" % (name, error), file=sys.stderr, flush=True)
            return None

    def count_lines(self, name):
        """The lines that the programs of a test run; None: it failed, or left no counts."""
        if time.monotonic() > self.end:
            return None
        with self.linking:
            places = self.worker.places(self.tests.tests[name]["programs"])
        if places is None:
            return None
        programs = {target for targets in self.tests.tests[name]["programs"].values() for target in targets}
        if not any(has_counters(self.worker.made.get(program)) for program in programs):
            return set()
        with tempfile.TemporaryDirectory() as scratch:
            begin = time.monotonic()
            if self.tests.run(name, places, 600, {"GCOV_PREFIX": scratch}) != "passed":
                return None
            self.tests.seconds.setdefault(name, time.monotonic() - begin)
            return self.read_all(scratch)

    def read_all(self, scratch):
        """Reads the counts that processes have written below a folder, in which they have the names of their objects."""
        ran, known = set(), False
        for directory, _, names in os.walk(scratch):
            for counts in (os.path.join(directory, each) for each in names if each.endswith(".gcda")):
                notes = re.sub(r"gcda$", "gcno", counts)
                shutil.copyfile(notes[len(scratch):], notes)
                said = subprocess.run(["gcov", "--json-format", "--stdout", counts], cwd=scratch, capture_output=True, check=True)
                for line in said.stdout.splitlines():
                    functions, lines = read_counts(json.loads(line), self.worker.tree, self.worker.files)
                    ran |= lines
                    known = True
                    with self.reading:
                        self.functions |= functions
        return ran if known else None

    def enters(self, name, path, line):
        """May the test run the line? A line outside of all functions, or a test whose lines are unknown: yes."""
        ran = self.ran.get(name)
        around = [key for key in self.functions if key[0] == path and key[1] <= line <= key[2]]
        return ran is None or not around or any((path, number) in ran
                                                for _, first, last in around for number in range(first, last + 1))

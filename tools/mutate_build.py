"""Builds and runs mutants for tools/mutate. A mutant is compiled and linked beside the build, in a worker's own copy of the sources
and by the build's own commands: only the objects that the changed file goes into, and of the tests only the one that runs next.
So the build itself stays as it is, and several workers use it at once."""
import collections
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import types

MEMORY = 12 << 30  # bytes of address space that a test may take: a mutant can ask for anything


def known_sources(root):
    """The files that git knows."""
    found = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True)
    return list(filter(None, found.stdout.decode().split("\0")))


def copy_sources(names, root, copy):
    """Copies these files as they are; files that did not change keep their time. Other files of the copy go."""
    kept = set()
    for name in names:
        source, target = os.path.join(root, name), os.path.join(copy, name)
        if not os.path.isfile(source):
            continue
        kept.add(name)
        with open(source, "rb") as file:
            content = file.read()
        if os.path.exists(target):
            with open(target, "rb") as file:
                if file.read() == content:
                    continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(content)
        shutil.copymode(source, target)
    for directory, folders, files in os.walk(copy):
        if directory == copy and "build" in folders:
            folders.remove("build")
        for name in files:
            if os.path.relpath(os.path.join(directory, name), copy) not in kept:
                os.remove(os.path.join(directory, name))


class Build:
    """The commands of a build by CMake and Ninja, and what depends on what. Paths of objects are relative to the build."""

    def __init__(self, sources, copy, build):
        self.sources, self.copy, self.build = sources, copy, build
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
            self.compile = {re.search(r" -o (\S+)", entry["command"]).group(1): entry["command"] for entry in json.load(file)}
        self.links = {}     # program -> its link command
        self.archives = {}  # archive -> its objects
        self.digests = {}   # object -> digest without a mutant

    def ninja(self, *arguments):
        return subprocess.run(["ninja", "-C", self.build, *arguments], capture_output=True, check=False)

    def read_dependents(self):
        """dependents[file of the sources] = objects whose compilation reads it. Workers read the earlier ones meanwhile."""
        found = collections.defaultdict(set)
        name = None
        for line in self.ninja("-t", "deps").stdout.decode().splitlines():
            if not line.startswith(" "):
                name = line.split(":")[0]
            else:
                path = os.path.relpath(os.path.join(self.build, line.strip()), self.copy)
                if not path.startswith(".."):
                    found[path].add(name)
        self.dependents = found

    def link_of(self, program):
        """The command that links a program, or None: it is none; takes note of the archives in it."""
        if program not in self.links:
            for line in self.ninja("-t", "commands", program).stdout.decode().splitlines():
                match = re.search(r"\bar qc (\S+) (.*?) && ", line)
                if match:
                    self.archives[match.group(1)] = match.group(2).split()
                if " -o %s " % program in line:
                    self.links[program] = line
        return self.links.get(program)

    def objects_of(self, program):
        """The objects that a program is linked from, the members of its archives among them."""
        words = set(shlex.split(self.link_of(program)))
        found = {word for word in words if word.endswith(".o")}
        for archive in words & set(self.archives):
            found.update(self.archives[archive])
        return found


class Worker:
    """A copy of the sources in which one mutant at a time lives, and what was compiled and linked of it."""

    def __init__(self, build, number):
        self.build = build
        self.tree = "%s-%d" % (build.copy, number)
        self.out = os.path.join(build.copy, "build", "mutant-%d" % number)
        os.makedirs(self.tree, exist_ok=True)
        copy_sources(build.sources, build.copy, self.tree)

    def compile(self, name, to, more=""):
        """Compiles an object from the worker's sources, with more options. Returns its digest; None: it does not compile."""
        command = re.sub(re.escape(self.build.copy) + r"(?=/(?!build/)|\s|$)", self.tree, self.build.compile[name])
        command = re.sub(r" -g\d?(?= )| -MD| -M[TF] \S+| -o \S+", "", command)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        command += " -g0 -w -ffile-prefix-map=%s=. -o %s%s" % (self.tree, shlex.quote(to), more)
        if subprocess.run(command, shell=True, cwd=self.build.build, capture_output=True, check=False).returncode != 0:
            return None
        with open(to, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def begin(self, path, text):
        """Puts a mutant in the place of a file. end() takes it away again."""
        self.path = os.path.join(self.tree, path)
        with open(self.path, encoding="utf-8") as file:
            self.text = file.read()
        self.mutant = text
        self.tests = 0 # that have run with the mutant
        self.start([path], False)

    def begin_counting(self, files):
        """In the place of a mutant come gcov's counters, in all objects that these files go into."""
        self.start(files, True)

    def start(self, files, counting):
        self.files, self.counting = set(files), counting
        self.changed = {} # object -> where its mutant is; None: it is the same as without the mutant
        self.made = {}    # counting: program -> where it is, because other tests may be running it
        shutil.rmtree(self.out, ignore_errors=True)
        os.makedirs(self.out)
        for module in glob.glob(os.path.join(self.build.build, "*.so")): # programs look for them in their own folder and above
            os.symlink(module, os.path.join(self.out, os.path.basename(module)))

    def end(self):
        if not self.counting:
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(self.text)

    def compile_mutant(self, name):
        """True: the object exists, and self.changed says where. False: the mutant does not compile."""
        if self.counting:
            self.changed[name] = os.path.join(self.out, name)
            return self.compile(name, self.changed[name], " --coverage -fprofile-update=atomic") is not None
        if name not in self.build.digests:
            self.end()
            self.build.digests[name] = self.compile(name, os.path.join(self.out, "original.o"))
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(self.mutant)
        to = os.path.join(self.out, name)
        digest = self.compile(name, to)
        self.changed[name] = to if digest != self.build.digests[name] else None
        return digest is not None

    def link(self, program):
        """The program with the mutant: its path. "equal": it is the program without it; "build": it cannot be built."""
        if program in self.made:
            return self.made[program]
        needed = self.build.objects_of(program) & set().union(*(self.build.dependents[path] for path in self.files))
        for name in sorted(needed):
            if name not in self.changed and not self.compile_mutant(name):
                return "build"
        changed = {name: self.changed[name] for name in needed if self.changed[name] is not None}
        if not changed:
            return "equal"
        to = os.path.join(self.out, program)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        words = []
        for word in self.build.link_of(program).split():
            members = self.build.archives.get(word, [])
            if set(members) & set(changed):
                word = self.archive(word, [changed.get(name, name) for name in members])
            words += ["--coverage"] if self.counting and word == "-o" else []
            words.append(changed.get(word, to if word == program else word))
        linked = subprocess.run(" ".join(words), shell=True, cwd=self.build.build, capture_output=True, check=False)
        if linked.returncode != 0:
            return "build"
        if self.counting:
            self.made[program] = to
        return to

    def places(self, programs):
        """{word of a command: where the mutant's program, or a folder with its libraries, is}; empty: the mutant changes none.
        None: it cannot be built."""
        found = {}
        for word, targets in programs.items():
            linked = [self.link(target) for target in targets]
            if "build" in linked:
                return None
            if all(program == "equal" for program in linked):
                continue
            if word in self.made:
                found[word] = self.made[word]
            elif os.path.isdir(word):
                folder = os.path.join(self.out, os.path.relpath(word, self.build.build))
                made = {os.path.abspath(program) for program in linked}
                shutil.copytree(word, folder, dirs_exist_ok=True, ignore=lambda at, names: [
                    name for name in names if os.path.join(folder, os.path.relpath(os.path.join(at, name), word)) in made])
                found[word] = folder
                if self.counting:
                    self.made[word] = folder
            else:
                found[word] = linked[0]
        return found

    def archive(self, name, members):
        """An archive of references to objects, made once a mutant."""
        to = os.path.join(self.out, name)
        if not os.path.exists(to):
            os.makedirs(os.path.dirname(to), exist_ok=True)
            paths = [os.path.join(self.build.build, name) for name in members]
            subprocess.run(["ar", "qcTs", to, *paths], check=True, capture_output=True)
        return to


class Tests:
    """CTest's tests: their commands as CTest has them, which programs of the build they run, how long each took without a mutant,
    and which mutants it has killed."""

    # These look at sources, install the build as it is, or run this very script.
    WITHOUT_MUTANT = {"style", "install", "mutants"}
    # Cells have tests of their own of what recurrent/ computes.
    BESIDE = {"recurrent": {"rnn", "gru", "lstm"}}

    def __init__(self, build, jobs, chosen):
        """chosen: a regular expression of names; of() has no other tests."""
        self.build, self.jobs, self.chosen = build, jobs, chosen
        rules = dict(line.split(": ", 1) for line in build.ninja("-t", "targets", "all").stdout.decode().splitlines())
        known = set(rules)
        self.tests, self.left_out = {}, []
        self.seconds, self.useless = {}, set()
        self.kills = collections.Counter() # (test, file) -> mutants killed
        self.measuring = threading.Lock()
        for test in self.ask([name for name, rule in rules.items() if "_EXECUTABLE_LINKER_" in rule]):
            properties = {p["name"]: p["value"] for p in test.get("properties", [])}
            labels = set(properties.get("LABELS", []))
            programs = {word: targets for word in test["command"] for targets in [self.targets_of(word, known)] if targets}
            if not programs or labels & self.WITHOUT_MUTANT:
                self.left_out.append(test["name"])
                continue
            self.tests[test["name"]] = {
                "command": test["command"], "programs": programs, "labels": labels,
                "directory": properties.get("WORKING_DIRECTORY", build.build),
                "environment": dict(item.split("=", 1) for item in properties.get("ENVIRONMENT", [])),
                "skipped": properties.get("SKIP_RETURN_CODE"), "expressions": properties.get("PASS_REGULAR_EXPRESSION", [])}
        self.locks = {name: threading.Lock() for name in self.tests} # a test's files are its own: it never runs twice at once

    def ask(self, programs):
        """What CTest says of its tests. It gives no command of a program that is not built: empty files stand for these while it
        is asked."""
        missing = [path for path in (os.path.join(self.build.build, name) for name in programs) if not os.path.exists(path)]
        for path in missing:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o777))
        try:
            found = subprocess.run(["ctest", "--preset", "cpu", "--show-only=json-v1"], cwd=self.build.copy, capture_output=True,
                                   check=True)
        finally:
            for path in missing:
                os.remove(path)
        return [test for test in json.loads(found.stdout)["tests"] if "command" in test]

    def targets_of(self, word, known):
        """The programs of the build that a word of a command names: one, or the shared libraries below a folder."""
        target = os.path.relpath(word, self.build.build) if os.path.isabs(word) else ".."
        if target.startswith(".") or "tests/tmp" in target:
            return []
        below = sorted(name for name in known if name.startswith(target + "/") and name.endswith(".so"))
        return below or ([target] if target in known and self.build.link_of(target) is not None else [])

    def of(self, folder, path):
        """The tests with the folder's label; scripts, which take long, come with the rest. Kernels have theirs on the emulated
        GPU."""
        wanted = {folder} | self.BESIDE.get(folder, set())
        kernels = path.endswith((".cuh", ".cu"))
        return [name for name, test in self.tests.items()
                if re.search(self.chosen, name) and test["labels"] & wanted and "script" not in test["labels"]
                and (not kernels or "simt" in test["labels"])]

    def run(self, name, places, seconds, variables=types.MappingProxyType({})):
        """"passed", "skipped" or "failed". places: what stands for words of the command. Its processes may compute for 5 times as
        long as it takes, and wait for 20 times. They are a group, so that a mutant that never ends is ended with its children."""
        test = self.tests[name]

        def limit():
            compute = 10 + 5 * int(seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (compute, compute))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGINT, signal.SIG_DFL) # a shell's background jobs ignore these two, and so would tests of them
            signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen([places.get(word, word) for word in test["command"]], cwd=test["directory"],
                                       env={**os.environ, **test["environment"], **variables}, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=limit)
            try:
                code = process.wait(20 + 20 * seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "failed"
            if test["skipped"] is not None and code == test["skipped"]:
                return "skipped"
            if not test["expressions"]:
                return "passed" if code == 0 else "failed"
            output.seek(0)
            text = output.read().decode(errors="replace")
            return "passed" if any(re.search(expression, text) for expression in test["expressions"]) else "failed"

    def measure(self, names, everything):
        """Builds and runs tests that have no time yet. Those that fail without a mutant are left out, and named; those that are
        skipped here are left out too. everything: scripts need more of the build than the programs that they are given."""
        new = [name for name in names if name not in self.seconds and name not in self.useless]
        if new and everything:
            self.build_all()
        elif new:
            targets = {target for name in new for found in self.tests[name]["programs"].values() for target in found}
            self.build.ninja("-k", "0", *sorted(targets))
            self.build.read_dependents()
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for name, result, seconds in pool.map(self.time_without_mutant, new):
                if result == "passed":
                    self.seconds[name] = seconds
                    continue
                self.useless.add(name)
                if result == "failed":
                    print("mutate: %s fails without a mutant and is left out" % name, flush=True)

    def build_all(self):
        self.build.ninja("-k", "0", "all")
        self.build.read_dependents()

    def time_without_mutant(self, name):
        """The test's name, its result without a mutant, and the seconds that it takes beside the other workers. One that fails has
        a second try: a pause of the machine may have been why."""
        for _ in range(2):
            begin = time.monotonic()
            result = self.run(name, {}, 600)
            if result != "failed":
                break
        return name, result, time.monotonic() - begin

    def sorted(self, names, path, everything):
        """The tests that are likeliest to kill a mutant of the file in little time first: those that have killed some, the one
        of the file's module, then the shortest."""
        with self.measuring:
            self.measure(names, everything)
        module = re.sub(r"(_kernels|_internal|_cpu|_cuda)?\.\w+$", "", os.path.basename(path))

        def cost(name):
            return (self.seconds[name] + 0.3) / (1 + self.kills[name, path] + (2 if name.endswith("_" + module) else 0))
        return sorted((name for name in names if name in self.seconds and name not in self.useless), key=cost)

    def take(self, names):
        """Takes the first test that no other worker runs out of the list, and its lock."""
        name = next((name for name in names if self.locks[name].acquire(blocking=False)), None)
        if name is None:
            name = names[0]
            self.locks[name].acquire()
        names.remove(name)
        return name

    def stands(self, worker, name, places):
        """Does the test pass with the programs as they are, in the places where the mutant's programs were?"""
        for target in {target for targets in self.tests[name]["programs"].values() for target in targets}:
            path = os.path.join(worker.out, target)
            if os.path.exists(path):
                os.remove(path)
                shutil.copy2(os.path.join(self.build.build, target), path)
        if self.run(name, places, self.seconds[name]) == "failed":
            self.useless.add(name)
            print("mutate: %s fails without a mutant in another place and is left out" % name, flush=True)
            return False
        return True

    def fails_again(self, worker, name):
        """Links the mutant's programs anew, in the places of those without it. A test that now passes had failed by chance."""
        places = worker.places(self.tests[name]["programs"])
        if self.run(name, places, self.seconds[name]) == "failed":
            return True
        print("mutate: %s fails by chance" % name, flush=True)
        return False

    def killer(self, worker, names, path, control):
        """The first test that fails; "build": the mutant cannot be built; "equal": it changes no program; None: it survives.
        control: a test that fails must pass without the mutant in the same place, and then fail again with it."""
        waiting, equal = list(names), True
        while waiting:
            name = self.take(waiting)
            try:
                places = worker.places(self.tests[name]["programs"])
                if places is None:
                    return "build"
                equal = equal and not places
                if not places or name in self.useless:
                    continue
                worker.tests += 1
                if self.run(name, places, self.seconds[name]) != "failed":
                    continue
                if control and not (self.stands(worker, name, places) and self.fails_again(worker, name)):
                    continue
                self.kills[name, path] += 1
                return name
            finally:
                self.locks[name].release()
        return "equal" if equal else None

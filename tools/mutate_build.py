"""Builds and runs mutants for tools/mutate. A mutant is compiled and linked beside the build, in a worker's own copy of the sources
and by the build's own commands: only the objects that the changed file goes into, and of the tests only the one that runs next.
So the build itself stays as it is, and several workers use it at once."""
import collections
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import threading
import time

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
        """dependents[file of the sources] = objects whose compilation reads it."""
        self.dependents = collections.defaultdict(set)
        name = None
        for line in self.ninja("-t", "deps").stdout.decode().splitlines():
            if not line.startswith(" "):
                name = line.split(":")[0]
            else:
                path = os.path.relpath(os.path.join(self.build, line.strip()), self.copy)
                if not path.startswith(".."):
                    self.dependents[path].add(name)

    def link_of(self, program):
        """The command that links a program; takes note of the archives in it."""
        if program not in self.links:
            for line in self.ninja("-t", "commands", program).stdout.decode().splitlines():
                match = re.search(r"\bar qc (\S+) (.*?) && ", line)
                if match:
                    self.archives[match.group(1)] = match.group(2).split()
                if " -o %s " % program in line:
                    self.links[program] = line
        return self.links[program]

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

    def compile(self, name, to):
        """Compiles an object from the worker's sources. Returns its digest; None: it does not compile."""
        command = re.sub(re.escape(self.build.copy) + r"(?=/(?!build/)|\s|$)", self.tree, self.build.compile[name])
        command = re.sub(r" -g\d?(?= )| -MD| -M[TF] \S+| -o \S+", "", command)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        command += " -g0 -w -ffile-prefix-map=%s=. -o %s" % (self.tree, shlex.quote(to))
        if subprocess.run(command, shell=True, cwd=self.build.build, capture_output=True, check=False).returncode != 0:
            return None
        with open(to, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def begin(self, path, text):
        """Puts a mutant in the place of a file. end() takes it away again."""
        self.path = os.path.join(self.tree, path)
        with open(self.path, encoding="utf-8") as file:
            self.text = file.read()
        self.changed = {} # object -> where its mutant is; None: it is the same as without the mutant
        shutil.rmtree(self.out, ignore_errors=True)
        self.mutant = text

    def end(self):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(self.text)

    def compile_mutant(self, name):
        """True: the object exists, and self.changed says where. False: the mutant does not compile."""
        if name not in self.build.digests:
            self.end()
            self.build.digests[name] = self.compile(name, os.path.join(self.out, "original.o"))
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(self.mutant)
        to = os.path.join(self.out, name)
        digest = self.compile(name, to)
        self.changed[name] = to if digest != self.build.digests[name] else None
        return digest is not None

    def link(self, program, path):
        """The program with the mutant: its path. "equal": it is the program without it; "build": it cannot be built."""
        needed = self.build.objects_of(program) & self.build.dependents[path]
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
            words.append(changed.get(word, to if word == program else word))
        linked = subprocess.run(" ".join(words), shell=True, cwd=self.build.build, capture_output=True, check=False)
        return to if linked.returncode == 0 else "build"

    def archive(self, name, members):
        """An archive of references to objects, made once a mutant."""
        to = os.path.join(self.out, name)
        if not os.path.exists(to):
            os.makedirs(os.path.dirname(to), exist_ok=True)
            paths = [os.path.join(self.build.build, name) for name in members]
            subprocess.run(["ar", "qcTs", to, *paths], check=True, capture_output=True)
        return to


class Tests:
    """The test programs, how long each took without a mutant, and which mutants it has killed."""

    def __init__(self, build):
        self.build = build
        found = subprocess.run(["ctest", "--preset", "cpu", "--show-only=json-v1"], cwd=build.copy, capture_output=True, check=True)
        known = {line.split(":")[0] for line in build.ninja("-t", "targets", "all").stdout.decode().splitlines()}
        self.commands, self.seconds, self.broken = {}, {}, set()
        self.kills = collections.Counter() # (test, file) -> mutants killed
        self.measuring = threading.Lock()
        for test in json.loads(found.stdout)["tests"]:
            match = re.match(r"(test|simt|fuzz_replay)_", test["name"])
            folder = match and {"test": "tests", "simt": "tests/simt", "fuzz_replay": "tests/fuzz"}[match.group(1)]
            target = match and "%s/%s" % (folder, test["name"])
            if match and target in known:
                properties = {p["name"]: p["value"] for p in test.get("properties", [])}
                self.commands[test["name"]] = (target, properties.get("WORKING_DIRECTORY", build.build),
                                               dict(item.split("=", 1) for item in properties.get("ENVIRONMENT", [])))

        self.locks = {name: threading.Lock() for name in self.commands} # a test's files are its own: it never runs twice at once

    def target(self, name):
        return self.commands[name][0]

    def of(self, folder, path):
        """The tests of a folder; kernels have theirs on the emulated GPU."""
        kernels = path.endswith((".cuh", ".cu"))
        prefixes = ["simt_%s_" % folder] if kernels else ["test_%s_" % folder, "simt_%s_" % folder]
        if folder == "recurrent": # what cells compute is what it computes
            prefixes += ["simt_rnn_", "simt_gru_"] if kernels else ["test_rnn_", "test_gru_"]
        if folder == "scan":
            prefixes += ["test_counted_flops"]
        return [name for name in self.commands if name.startswith(tuple(prefixes))]

    def run(self, name, program, seconds):
        """True: passed. Its processes may compute for 5 times as long as it takes, and wait for 20 times. They are a group, so
        that a mutant that never ends is ended with its children."""
        _, directory, environment = self.commands[name]

        def limit():
            compute = 10 + 5 * int(seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (compute, compute))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        process = subprocess.Popen([program], cwd=directory, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=limit)
        try:
            return process.wait(20 + 20 * seconds) in (0, 77)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False

    def measure(self, names):
        """Builds and runs tests that have no time yet; one that fails without a mutant is left out, and named."""
        new = [name for name in names if name not in self.seconds and name not in self.broken]
        if new:
            self.build.ninja("-k", "0", *[self.target(name) for name in new])
            self.build.read_dependents()
        for name in new:
            begin = time.monotonic()
            program = os.path.join(self.build.build, self.target(name))
            if not os.path.exists(program) or not self.run(name, program, 600):
                self.broken.add(name)
                print("mutate: %s fails without a mutant and is left out" % name, flush=True)
                continue
            self.seconds[name] = time.monotonic() - begin

    def sorted(self, names, path):
        """The tests that are likeliest to kill a mutant of the file in little time first: those that have killed some, the one
        of the file's module, then the shortest."""
        with self.measuring:
            self.measure(names)
        module = re.sub(r"(_kernels|_internal|_cpu|_cuda)?\.\w+$", "", os.path.basename(path))

        def cost(name):
            return (self.seconds[name] + 0.3) / (1 + self.kills[name, path] + (2 if name.endswith("_" + module) else 0))
        return sorted((name for name in names if name in self.seconds), key=cost)

    def take(self, names):
        """Takes the first test that no other worker runs out of the list, and its lock."""
        name = next((name for name in names if self.locks[name].acquire(blocking=False)), None)
        if name is None:
            name = names[0]
            self.locks[name].acquire()
        names.remove(name)
        return name

    def killer(self, worker, names, path):
        """The first test that fails; "build": the mutant cannot be built; "equal": it changes no program; None: it survives."""
        waiting, equal = list(names), True
        while waiting:
            name = self.take(waiting)
            try:
                program = worker.link(self.target(name), path)
                if program == "build":
                    return "build"
                equal = equal and program == "equal"
                if program != "equal" and not self.run(name, program, self.seconds[name]):
                    self.kills[name, path] += 1
                    return name
            finally:
                self.locks[name].release()
        return "equal" if equal else None

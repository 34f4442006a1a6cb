#!/usr/bin/env python3
"""A long run of training that is disturbed again and again, beside the same run left alone.

    python3 bench/scripts/long_run.py --program build/cpu/bppsa --folder DIR --minutes 60 --out bench/results/long_run.json

Two runs train a GRU from equal seeds, with a checkpoint after every epoch. One is left alone; its resident memory is read every
second. The other is disturbed, in turn and at random moments, and resumed every time:

  kill    SIGKILL
  disk    its checkpoints lie in a file system of 1 MiB that another file fills (--tmpfs, as root), or its files may not grow beyond
          a few KiB: it has to end with exit code 1, or 2 before the work, and one line
  memory  its address space is limited to a part of what it needs: it has to end with exit code 1 or 2 and one line, or to work

When the time is over both are brought to the same number of epochs. The script exits 1 unless their weights are equal bit for bit,
every disturbed run ended as it has to, and the resident memory of the run that was left alone has stayed within 1 %.
"""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import program
import results_file

LIMIT = 1 << 20  # bytes of the small file system


def command(o, folder, epochs, *more):
    text = [o.program, "train", "gru", "--seq-len", "300", "--samples", "640", "--batch", "16", "--hidden", "20",
            "--threads", str(o.threads), "--epochs", str(epochs), "--checkpoint", os.path.join(folder, "checkpoints"),
            "--save-weights", os.path.join(folder, "weights.safetensors"), "--log", os.path.join(folder, "log.jsonl")]
    return text + list(more)


def saved(folder):
    """is there a checkpoint? A run that was killed between two renames has left the previous one alone"""
    return any(os.path.exists(os.path.join(folder, "checkpoints", name))
               for name in ("checkpoint.safetensors", "checkpoint.previous.safetensors"))


def start(o, folder, epochs, prepare=None):
    resume = ["--resume"] if saved(folder) else []
    return subprocess.Popen(command(o, folder, epochs, *resume), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            preexec_fn=prepare)


def epochs_in(folder):
    """the epochs in the log, which --resume cuts back to the checkpoint; lines that were cut off do not count, nor does the first
    one, which describes the run"""
    try:
        with open(os.path.join(folder, "log.jsonl")) as file:
            lines = file.read().split("\n")[:-1]
    except FileNotFoundError:
        return 0
    return json.loads(lines[-1]).get("epoch", 0) if lines else 0


def resident(process):
    """bytes of memory that the process holds, or None where it has ended"""
    try:
        with open("/proc/%d/statm" % process.pid) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return None


def one_line(process, codes):
    """what the process said, and whether it ended with one of these codes and one line"""
    said = process.communicate()[1].strip()
    good = process.returncode in codes and said.startswith("bppsa: error: ") and "\n" not in said
    return said, good


class Disturbed:
    """the run that is killed and starved"""

    def __init__(self, o, folder):
        self.o, self.folder = o, folder
        self.draw = random.Random(o.seed)
        self.counts = {"kill": 0, "disk": 0, "memory": 0, "memory_worked": 0}
        self.wrong, self.said = [], {}
        self.small = os.path.join(folder, "checkpoints")
        if o.tmpfs:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%d" % LIMIT, "tmpfs", self.small], check=True)

    def close(self):
        if self.o.tmpfs:
            subprocess.run(["umount", self.small], check=True)

    def pause(self):
        time.sleep(self.draw.uniform(0.05, self.o.longest))

    def judge(self, what, process, codes):
        said, good = one_line(process, codes)
        if not good:
            self.wrong.append({"what": what, "code": process.returncode, "said": said})
        elif said:
            key = said.split(", expected")[0].replace(self.folder + "/", "")
            self.said[key] = self.said.get(key, 0) + 1

    def kill(self):
        process = start(self.o, self.folder, self.o.epochs)
        self.pause()
        process.kill()
        said = process.communicate()[1].strip()
        self.counts["kill"] += 1
        if process.returncode != -signal.SIGKILL:
            self.wrong.append({"what": "kill", "code": process.returncode, "said": said})

    def disk(self):
        if self.o.tmpfs:
            process = start(self.o, self.folder, self.o.epochs)
            self.pause()
            self.fill()
        else:
            process = start(self.o, self.folder, self.o.epochs, self.small_files)
        self.judge("disk", process, (1, 2))
        self.counts["disk"] += 1
        if self.o.tmpfs:
            os.remove(os.path.join(self.small, "filler"))

    def small_files(self):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = self.draw.randrange(512, 8192)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    def fill(self):
        with open(os.path.join(self.small, "filler"), "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 4096)
            except OSError:
                pass

    def memory(self):
        share = self.draw.uniform(0.5, 1.05)
        limit = int(share * self.o.address_space)
        process = start(self.o, self.folder, self.o.epochs, lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        try:
            process.wait(self.draw.uniform(0.5, self.o.longest))
            self.judge("memory", process, (1, 2))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.counts["memory_worked"] += 1
        self.counts["memory"] += 1

    def run(self, until):
        while time.time() < until:
            for disturb in (self.kill, self.disk, self.memory):
                disturb()


class Alone:
    """the run beside it"""

    def __init__(self, o, folder):
        self.process = start(o, folder, o.epochs)
        self.begun, self.warm_up = time.time(), o.warm_up
        self.sizes = []

    def watch(self, until):
        while time.time() < until:
            size = resident(self.process)
            if size is not None and time.time() - self.begun > self.warm_up:
                self.sizes.append(size)
            time.sleep(min(1, self.warm_up))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)  # ends the run after its step
        self.process.communicate()


def address_space(o, folder):
    """the largest address space of a short run"""
    process = start(o, folder, 20)
    most = 0
    while process.poll() is None:
        try:
            with open("/proc/%d/statm" % process.pid) as file:
                most = max(most, int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE"))
        except (FileNotFoundError, ProcessLookupError, IndexError):
            pass
    process.communicate()
    return most


def bring(o, folder, epochs):
    """goes on from the checkpoint to that number of epochs; returns the weights"""
    done = subprocess.run(command(o, folder, epochs, *(["--resume"] if saved(folder) else [])), stdout=subprocess.DEVNULL)
    if done.returncode:
        sys.exit("long_run: the last run ended with %d" % done.returncode)
    with open(os.path.join(folder, "weights.safetensors"), "rb") as file:
        return file.read()


def fresh(o, name):
    folder = os.path.join(o.folder, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, "checkpoints"))
    return folder


def main():
    p = program.parser(__doc__, "for checkpoints, logs and weights")
    p.add_argument("--minutes", type=float, default=60, help="[60]")
    p.add_argument("--seed", type=int, default=1, help="of the moments [1]")
    p.add_argument("--longest", type=float, default=20, help="seconds between two disturbances at most [20]")
    p.add_argument("--warm-up", type=float, default=5, help="seconds before memory counts [5]")
    p.add_argument("--tmpfs", action="store_true", help="fill a small file system; needs root")
    o = p.parse_args()
    o.epochs = 10**9
    o.address_space = address_space(o, fresh(o, "short"))
    folders = fresh(o, "alone"), fresh(o, "disturbed")
    begun = time.time()
    until = begun + 60 * o.minutes
    alone, disturbed = Alone(o, folders[0]), Disturbed(o, folders[1])
    watcher = threading.Thread(target=alone.watch, args=(until,))
    watcher.start()
    try:
        disturbed.run(until)
        watcher.join()
        alone.stop()
        epochs = max(map(epochs_in, folders)) + 1
        same = bring(o, folders[0], epochs) == bring(o, folders[1], epochs)
    finally:
        alone.process.kill()
        disturbed.close()
    spread = (max(alone.sizes) - min(alone.sizes)) / min(alone.sizes)
    result = {"bench": "long_run", "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun)), "minutes": o.minutes,
              "seed": o.seed, "epochs": epochs, "steps": epochs * 40,
              "disk": "a file system of 1 MiB, filled" if o.tmpfs else "files of a limited size", **disturbed.counts,
              "same_bits": same, "resident_bytes": [min(alone.sizes), max(alone.sizes)], "resident_spread_percent": 100 * spread,
              "said": disturbed.said, "wrong": disturbed.wrong}
    print(json.dumps(result, indent=1))
    if o.out:
        results_file.write(o.out, result)
    sys.exit(0 if same and not disturbed.wrong and spread <= 0.01 else 1)


if __name__ == "__main__":
    main()

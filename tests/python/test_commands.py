"""The package without PyTorch: commands, errors, threads, Ctrl-C, memory."""
import concurrent.futures
import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import warnings

import numpy as np

import bppsa
from bppsa import _native
from bppsa._arrays import load_tensors
from support import Exporter, main, run_until_interrupted


def rnn_weights(rng, inputs=2, hidden=3, classes=4):
    shapes = {"rnn.weight_ih_l0": (hidden, inputs), "rnn.weight_hh_l0": (hidden, hidden), "rnn.bias_ih_l0": (hidden,),
              "rnn.bias_hh_l0": (hidden,), "linear.weight": (classes, hidden), "linear.bias": (classes,)}
    return {name: rng.uniform(-0.6, 0.6, shape) for name, shape in shapes.items()}


def rnn_loss(weights, x, labels, h0):
    h = h0[0]
    for step in x:
        h = np.tanh(step @ weights["rnn.weight_ih_l0"].T + weights["rnn.bias_ih_l0"]
                    + h @ weights["rnn.weight_hh_l0"].T + weights["rnn.bias_hh_l0"])
    logits = h @ weights["linear.weight"].T + weights["linear.bias"]
    sums = np.log(np.exp(logits).sum(1))
    return float(np.mean(sums - logits[np.arange(len(labels)), labels]))


class Commands(unittest.TestCase):
    def test_version(self):
        self.assertRegex(bppsa.__version__, r"^[0-9]+\.[0-9]+\.[0-9]+$")

    def test_plan(self):
        plan = bppsa.plan("rnn", seq_len=21, algorithm="blelloch")
        self.assertEqual(plan["elements"], 22)
        self.assertEqual(plan["totals"]["critical_steps"], 7)

    def test_flops_of_a_dict(self):
        network = {"input": [1, 8, 8], "layers": [{"name": "c", "op": "conv2d", "out": 2, "kernel": [3, 3]},
                                                  {"name": "r", "op": "relu"}, {"name": "f", "op": "flatten"},
                                                  {"name": "l", "op": "linear", "out": 3}]}
        flops = bppsa.flops(network, up_levels=1)
        self.assertEqual([operator["name"] for operator in flops["operators"]], ["c", "r", "f"])
        self.assertEqual(flops["operators"][0]["nnz"], 2 * 6 * 6 * 9)

    def test_doctor(self):
        report = bppsa.doctor()
        self.assertEqual(report["version"], bppsa.__version__)
        self.assertTrue(all(backend["name"] for backend in report["backends"]))
        self.assertIn("built", report["cuda"])

    def test_schedule(self):
        schedule = bppsa.schedule("gpipe", stages=4, micro_batches=4)
        self.assertEqual(schedule["stages"], 4)
        self.assertEqual(len(schedule["workers"]), 4)

    def test_errors_are_the_librarys_sentences(self):
        with self.assertRaisesRegex(bppsa.RequestError, "--seq-length: unknown option.*did you mean --seq-len"):
            bppsa.plan("rnn", seq_length=3)
        with self.assertRaisesRegex(ValueError, "plan: unknown model 'rrn'.*did you mean rnn"):
            bppsa.plan("rrn")
        weights, x, labels = rnn_weights(np.random.default_rng(9)), np.ones((3, 2, 2)), np.zeros(2, np.int64)
        with self.assertRaisesRegex(bppsa.RequestError, "^input.npy: element 0 is not finite"):
            bppsa.grad("rnn", weights, np.full_like(x, np.nan), labels)
        weights["linear.weight"][:] = 1.7e308
        weights["rnn.bias_ih_l0"][:] = 50
        with self.assertRaisesRegex(bppsa.RunError, "^logits at step 3, sample 0: not finite"):
            bppsa.grad("rnn", weights, x, labels)

    def test_a_nul_byte_is_refused(self):
        """C would read "auto" and "rnn"."""
        for call in (lambda: bppsa.scan(np.zeros((4, 2, 3)), None, np.zeros((2, 3)), method="auto\0x"),
                     lambda: bppsa.plan("rnn\0x"), lambda: bppsa.plan("rnn", algorithm="linear\0x")):
            with self.assertRaisesRegex(bppsa.RequestError, r"x00x': has a NUL byte, expected a text without one"):
                call()

    def test_a_command_without_a_document(self):
        self.assertIn(bppsa.__version__, bppsa.run("--version"))

    def test_notes_become_warnings(self):
        rng = np.random.default_rng(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            bppsa.grad("rnn", rnn_weights(rng), rng.random((3, 2, 2)), np.zeros(2, np.int64), dtype="f32")
        self.assertTrue(any("converted to f32, which rounds them" in str(warning.message) for warning in caught))

    def test_gradients(self):
        rng = np.random.default_rng(1)
        weights, x, h0 = rnn_weights(rng), rng.standard_normal((5, 2, 2)), rng.standard_normal((1, 2, 3))
        labels = np.array([3, 0])
        found = bppsa.grad("rnn", weights, Exporter(x), labels, h0, backward="scan", algorithm="blelloch")
        self.assertAlmostEqual(float(found["loss"]), rnn_loss(weights, x, labels, h0), 12)
        self.assertEqual(found["loss"].shape, ())
        places = {**weights, "input": x, "h0": h0}
        self.assertEqual(set(found), set(places) | {"loss"})
        for name, array in places.items():
            self.assertEqual(found[name].shape, array.shape)
            for index in np.ndindex(*array.shape):
                value = array[index]
                losses = []
                for step in (1e-5, -1e-5):
                    array[index] = value + step
                    losses.append(rnn_loss(weights, x, labels, h0))
                array[index] = value
                self.assertAlmostEqual(found[name][index], (losses[0] - losses[1]) / 2e-5, 8, (name, index))

    def test_an_lstm_with_its_initial_states(self):
        rng = np.random.default_rng(10)
        shapes = {"lstm.weight_ih_l0": (12, 2), "lstm.weight_hh_l0": (12, 3), "lstm.bias_ih_l0": (12,), "lstm.bias_hh_l0": (12,),
                  "linear.weight": (4, 3), "linear.bias": (4,)}
        weights = {name: rng.uniform(-0.6, 0.6, shape) for name, shape in shapes.items()}
        x, h0, c0 = rng.standard_normal((5, 2, 2)), rng.standard_normal((1, 2, 3)), rng.standard_normal((1, 2, 3))

        def loss():
            return float(bppsa.grad("lstm", weights, x, np.array([3, 0]), h0, c0)["loss"])

        found = bppsa.grad("lstm", weights, x, np.array([3, 0]), h0, c0)
        for name, array in {"h0": h0, "c0": c0}.items():
            kept, losses = array[0, 1, 2], []
            for step in (1e-5, -1e-5):
                array[0, 1, 2] = kept + step
                losses.append(loss())
            array[0, 1, 2] = kept
            self.assertAlmostEqual(found[name][0, 1, 2], (losses[0] - losses[1]) / 2e-5, 8, name)

    def test_a_wrong_array_is_named_without_its_folder(self):
        rng = np.random.default_rng(2)
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch("bppsa._commands._places", lambda: [folder]):
            with self.assertRaisesRegex(bppsa.RequestError, "^labels.npy: .*expected"):
                bppsa.grad("rnn", rnn_weights(rng), rng.random((3, 2, 2)), np.zeros((2, 2), np.int64))
            self.assertEqual(os.listdir(folder), [])

    def test_training_on_arrays(self):
        rng = np.random.default_rng(3)
        y = rng.integers(0, 2, 64)
        x = (rng.random((64, 12, 1)) < 0.2 + 0.6 * y[:, None, None]).astype(np.float32)
        report = bppsa.train("rnn", data=(x, y), hidden=4, batch=16, iterations=5, threads=1)
        self.assertEqual(report["steps_done"], 5)
        self.assertEqual(report["config"]["seq_len"], 12)


class Threads(unittest.TestCase):
    def test_several_at_once(self):
        rng = np.random.default_rng(7)
        problems = [(rng.standard_normal((60, 4, 8, 8)) * 0.3, rng.standard_normal((4, 8))) for _ in range(4)]
        expected = [bppsa.scan(jt, None, g, method="chunked 4") for jt, g in problems]
        wrong = []

        def work(number):
            jt, g = problems[number]
            for _ in range(20):
                if not np.array_equal(bppsa.scan(jt, None, g, method="chunked 4"), expected[number]):
                    wrong.append(number)
                try:
                    bppsa.scan(jt, None, g, method=f"wrong{number}")
                except bppsa.RequestError as error:
                    if f"'wrong{number}'" not in str(error):
                        wrong.append(str(error))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_others_go_on_meanwhile(self):
        jt, g = np.full((300, 8, 64, 64), 1e-2), np.ones((8, 64))
        plan = _native.Scan("blelloch", False, True, (300, 8, 64), False, 1)
        gradients = np.empty((301, 8, 64))
        gradients[300] = g
        seen = []
        thread = threading.Thread(target=lambda: plan.run(jt.ctypes.data, None, gradients.ctypes.data))
        thread.start()
        while thread.is_alive():
            seen.append(time.monotonic())
            time.sleep(0.0005)
        self.assertGreater(len(seen), 5)  # with the interpreter's lock held, at most one or two

    def test_arrays_on_the_ranks_of_mpirun(self):
        with unittest.mock.patch.dict(os.environ, OMPI_COMM_WORLD_SIZE="2"):
            for call in (lambda: bppsa.train("rnn", data=(np.zeros((4, 3, 1)), np.zeros(4, int)), ranks=2),
                         lambda: bppsa.grad("rnn", "w.safetensors", "x.npy", "y.npy", ranks=2)):
                with self.assertRaisesRegex(bppsa.RequestError, "on the ranks of mpirun, .* expected the paths of files"):
                    call()

    def test_ctrl_c_ends_a_call(self):
        out, err = run_until_interrupted(self, """
import bppsa
print("ready")
try:
    bppsa.run("bench", "rnn", threads=1)
except KeyboardInterrupt:
    print("interrupted")
""")
        self.assertEqual((out.strip(), err), ("interrupted", ""))

    def test_ctrl_c_ends_training_after_its_step(self):
        out, err = run_until_interrupted(self, """
import bppsa
print("ready")
try:
    bppsa.train("rnn", seq_len=200, iterations=1000000, threads=1)
except KeyboardInterrupt as reason:
    print(reason)
""")
        self.assertRegex(out, "^stopped by SIGINT after step [0-9]+", err)

    def test_ctrl_c_before_training_begins(self):
        """While arrays are written: training does not begin, and the next Ctrl-C is Python's."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = run_until_interrupted(self, f"""
import os, signal, time, numpy as np, bppsa
from bppsa import _native
write, weights = np.lib.format.write_array, os.path.join({folder!r}, "w.safetensors")
def slowly(*words, **options):
    time.sleep(0.7)
    return write(*words, **options)
np.lib.format.write_array = slowly
print("ready")
try:
    bppsa.train("rnn", data=(np.zeros((64, 200, 1), np.float32), np.zeros(64, int)), iterations=10**7, save_weights=weights)
except KeyboardInterrupt as reason:
    print(reason, len(_native.under_way), os.path.exists(weights))
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
    print("no second one")
except KeyboardInterrupt:
    print("a second one")
""")
        self.assertEqual(out, "stopped by SIGINT before the command began, nothing was written 0 False\na second one\n", err)

    def test_told_to_stop(self):
        """Only the run that is told; before its first step it writes nothing, and later it ends behind a step."""
        with tempfile.TemporaryDirectory() as folder:
            weights = os.path.join(folder, "w.safetensors")
            line = ["train", "rnn", "--seq-len", "20", "--iterations", "100000000", "--threads", "1", "--save-weights", weights]
            told = ctypes.c_int(signal.SIGINT)
            code, out, err = _native.command(line, told)
            self.assertEqual((code, out), (1, ""))
            self.assertEqual(err, "bppsa: error: stopped by SIGINT before the first step, nothing was written\n")
            self.assertFalse(os.path.exists(weights))
            told.value = 0
            timer = threading.Timer(0.3, lambda: setattr(told, "value", signal.SIGTERM))
            timer.start()
            code, _, err = _native.command(line, told)
            timer.join()
            self.assertRegex(err, "error: stopped by SIGTERM after step [0-9]+, its weights are in ")
            self.assertTrue(os.path.exists(weights))

    def test_told_to_stop_on_ranks(self):
        """Ranks agree before the first step too: none of them takes one."""
        with tempfile.TemporaryDirectory() as folder:
            files = {name: os.path.join(folder, name) for name in ("save-weights", "log")}
            for split in ("batch", "time", "gpipe"):
                code, out, err = _native.command(
                    ["train", "rnn", "--seq-len", "20", "--samples", "32", "--batch", "8", "--ranks", "2", "--split", split,
                     *(word for name, path in files.items() for word in (f"--{name}", path))], ctypes.c_int(signal.SIGINT))
                self.assertEqual((code, out), (1, ""))
                self.assertRegex(err, "^bppsa: error: (rank [01]: )*stopped by SIGINT before the first step, nothing was written$")
                self.assertEqual(os.listdir(folder), [])

    # Half a second behind the first Ctrl-C comes a second one.
    TWICE = """
import os, signal, threading, time, bppsa
from bppsa import _native
came = []
def twice(*_):
    came.append(time.monotonic())
    if len(came) == 1:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, twice)
"""

    def test_a_second_ctrl_c_ends_the_wait_behind_the_first(self):
        """The first one waits for a call that takes long, the second one does not. The call goes on meanwhile, and the interpreter
        ends without it."""
        out, err = run_until_interrupted(self, self.TWICE + """
ended, told = [], _native.ctypes.c_int(0)
def work():
    print("ready")
    time.sleep(20)
    ended.append(True)
try:
    _native.interruptible(work, told, ends=True)
except KeyboardInterrupt:
    print(0.4 < time.monotonic() - came[0] < 10, len(came), told.value == signal.SIGINT, len(ended), len(_native.under_way))
""")
        self.assertEqual((out, err), ("True 2 True 0 1\n", ""))

    def test_a_second_ctrl_c_in_training(self):
        """Its step takes far longer than the wait for it."""
        out, err = run_until_interrupted(self, self.TWICE + """
print("ready")
try:
    bppsa.train("rnn", seq_len=200000, hidden=128, samples=16, batch=16, iterations=1, threads=1)
except KeyboardInterrupt as reason:
    print(0.4 < time.monotonic() - came[0] < 10, len(came), len(_native.under_way), str(reason) == "")
""")
        self.assertEqual((out, err), ("True 2 1 True\n", ""))

    def test_another_handlers_exception_ends_training(self):
        out, err = run_until_interrupted(self, """
import signal, bppsa
from bppsa import _native
def late(*_):
    raise TimeoutError("late")
signal.signal(signal.SIGINT, late)
print("ready")
try:
    bppsa.train("rnn", seq_len=200, iterations=10**7, threads=1)
except TimeoutError as reason:
    print(reason, len(_native.under_way))
""")
        self.assertEqual(out, "late 0\n", err)

    def test_training_in_a_thread_leaves_ctrl_c_to_the_main_one(self):
        """Both get it, and handlers that the main thread installs meanwhile stay."""
        out, err = run_until_interrupted(self, """
import os, signal, threading, time, bppsa
def work():
    try:
        bppsa.train("rnn", seq_len=200, iterations=10**7, threads=1)
    except KeyboardInterrupt as reason:
        print(reason)
thread = threading.Thread(target=work)
thread.start()
time.sleep(0.2)
signal.signal(signal.SIGTERM, lambda *_: print("own handler"))
print("ready")
try:
    time.sleep(20)
    print("no Ctrl-C")
except KeyboardInterrupt:
    thread.join()
    os.kill(os.getpid(), signal.SIGTERM)
""")
        self.assertRegex(out, "^stopped by SIGINT after step [0-9]+, .*\nown handler\n$", err)

    def test_ctrl_c_ends_training_on_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            out, err = run_until_interrupted(self, f"""
import os, threading, time, bppsa
log = os.path.join({folder!r}, "log")
def watch():
    while not os.path.exists(log) or os.path.getsize(log) < 1000:
        time.sleep(0.01)
    print("ready")
threading.Thread(target=watch).start()
try:
    bppsa.train("rnn", seq_len=200, iterations=1000000, ranks=2, batch=16, log=log)
except KeyboardInterrupt as reason:
    print(reason)
""")
        self.assertRegex(out, "^(rank [01]: )+stopped by SIGINT after step [0-9]+", err)

    def test_an_interrupted_call_leaves_no_folder(self):
        """Nor a warning, if the interpreter ends while it goes on."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = run_until_interrupted(self, f"""
import os, warnings, bppsa
from bppsa import _commands
warnings.simplefilter("error")
_commands._places = lambda: [{folder!r}]
print("ready")
try:
    bppsa.run("bench", "rnn", threads=1)
except KeyboardInterrupt:
    print(len(os.listdir({folder!r})))
""")
            self.assertEqual((out.strip(), err, os.listdir(folder)), ("1", "", []))


    def test_commands_at_once(self):
        rng = np.random.default_rng(3)
        x, y = rng.standard_normal((24, 9, 2)).astype(np.float32), rng.integers(0, 2, 24)
        with tempfile.TemporaryDirectory() as folder:
            def train(name, **options):
                path = os.path.join(folder, name)
                bppsa.train("gru", data=(x, y), hidden=5, iterations=8, batch=8, threads=1, save_weights=path, **options)
                weights = load_tensors(path)
                gradients = bppsa.grad("gru", weights, x.transpose(1, 0, 2), y, threads=1)
                loss = bppsa.run("eval", "gru", weights=weights, data=(x, y), threads=1)["loss"]
                return {**weights, **{f"of {key}": value for key, value in gradients.items()}, "loss": np.float64(loss)}

            expected = [train("alone"), train("alone", ranks=2)]
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                found = list(pool.map(lambda i: train(f"w{i}", **({"ranks": 2} if i % 2 else {"checkpoint": f"{folder}/{i}"})),
                                      range(8)))
        for number, values in enumerate(found):
            self.assertEqual(values.keys(), expected[number % 2].keys())
            for name, value in values.items():
                np.testing.assert_array_equal(value, expected[number % 2][name], f"{name}, run {number}")


LEFT_BEHIND = """
import atexit, os, sys, time
import numpy as np
import bppsa
from bppsa import _commands, _native
folder = os.path.join(os.path.dirname(sys.argv[1]), "arrays")
os.mkdir(folder)
_commands._places = lambda: [folder]
rng = np.random.default_rng(5)
x, y = rng.standard_normal((3, 20000, 4)).astype(np.float32), np.array([0, 1, 1])
weights = sys.argv[1]
def train(**options):
    return bppsa.train("gru", data=options.pop("data"), hidden=256, iterations=1, batch=3, threads=1, **options)
def grad(**options):
    x, y = options.pop("data")
    return bppsa.grad("gru", weights, x.transpose(1, 0, 2), y, threads=1, **options)
def evaluate(**options):
    return bppsa.run("eval", "gru", weights=weights, threads=1, **options)
train(data=(x[:, :4], y), save_weights=weights)
def leave_behind(call):
    try:
        call(data=(x, y), ranks=2, split="time", timeout=0.05)
    except bppsa.RunError as error:
        assert "rank " in str(error) and " waited 0.05 s for rank " in str(error), error
    else:
        print("finished")
    finally:
        left = _native.left_behind()
        assert os.listdir(folder) == []
    call(data=(x[:, :4], y), ranks=2)  # beside the ranks that still compute
    return left
left = max([leave_behind(call) for call in (train, grad, evaluate)])
while left == 0 and x.shape[1] < 300000:  # a fast machine needs a longer sequence
    x = np.concatenate((x, x), axis=1)
    left = leave_behind(train)
atexit.register(lambda: print("the end"))
sys.stdout.flush()
begin = time.monotonic()
child = os.fork()  # which has none of them, and does not wait for them
if child == 0:
    _native._wait_for_ranks(5)
    os._exit(int(time.monotonic() - begin > 2))
assert os.waitpid(child, 0)[1] == 0
print("left behind" if left > 0 else "all ended")
"""


class Ranks(unittest.TestCase):
    def test_ranks_that_do_not_end_in_time(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", LEFT_BEHIND, os.path.join(folder, "w.safetensors")], text=True,
                                  capture_output=True, timeout=100)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "left behind\nthe end\n", ""))


    # Every process of mpirun's gets the sentence as an exception and goes on; the job ends when the interpreters do.
    def test_processes_of_mpirun(self):
        folder = pathlib.Path(bppsa.__file__).resolve().parents[2]  # of a build
        if not (folder / "bppsa_mpi.so").exists() or shutil.which("mpirun") is None or "LD_PRELOAD" in os.environ:
            self.skipTest("no MPI")
        program = """
import atexit, sys
import bppsa
atexit.register(lambda: print("the end", flush=True))
try:
    bppsa.run("train", "gru", seq_len=6000, hidden=256, samples=3, batch=3, iterations=1, split="time", threads=1, timeout=0.05)
except bppsa.RunError as error:
    print("waited" if " waited 0.05 s for " in str(error) else error, flush=True)
"""
        done = subprocess.run(["mpirun", "--oversubscribe", "-n", "2", sys.executable, "-c", program], text=True,
                              capture_output=True, timeout=100,
                              env={**os.environ, "BPPSA_MODULES": str(folder), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        lines = done.stdout.split("\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertGreaterEqual(lines.count("waited"), 1, done)  # the first that ends takes the job with it
        self.assertGreaterEqual(lines.count("the end"), 1, done)
        self.assertEqual(set(lines) - {"waited", "the end", ""}, set())


class Files(unittest.TestCase):
    def test_outputs_are_proven_first(self):
        with self.assertRaisesRegex(bppsa.RequestError, "^--save-weights: /proc/w: cannot create a file in its directory: "):
            bppsa.train("rnn", iterations=1000000, save_weights="/proc/w")

    def test_weights_are_rescued(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, TMPDIR=folder):
            place, log = os.path.join(folder, "place"), os.path.join(folder, "log")
            os.mkdir(place)

            def remove():
                while not os.path.exists(log):
                    time.sleep(0.001)
                os.rmdir(place)

            thread = threading.Thread(target=remove)
            thread.start()
            with self.assertRaises(bppsa.RunError) as caught:
                bppsa.train("gru", hidden=4, seq_len=400, iterations=60, threads=1, log=log, save_weights=place + "/w.safetensors")
            thread.join()
            found = re.search("; it is in (.*/w.safetensors) instead$", str(caught.exception))
            self.assertTrue(found and found[1].startswith(folder), caught.exception)
            self.assertIn("gru.weight_hh_l0", load_tensors(found[1]))


class Memory(unittest.TestCase):
    def test_nothing_is_kept(self):
        rng = np.random.default_rng(8)
        jt, u, g = rng.random((9, 2, 3)), rng.random((9, 2, 3)), rng.random((2, 3))

        def once():
            bppsa.scan(jt, u, g)
            bppsa.plan("gru", seq_len=9)
            with contextlib.suppress(bppsa.RequestError):
                bppsa.plan("gru", sequence=9)
            with contextlib.suppress(bppsa.RequestError):
                bppsa.scan(jt, u, g, method="wrong")

        once()
        before = _native.allocated()
        for _ in range(50):
            once()
        self.assertEqual(_native.allocated(), before)


if __name__ == "__main__":
    main()

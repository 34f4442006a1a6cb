"""What users pass: scalars of other libraries as options, arrays of other types, lists; and the places where arrays travel."""
import errno
import glob
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

import bppsa
from bppsa import _commands
from support import has, main
from test_commands import rnn_weights

def problem():
    """Weights, input, classes and initial state of a small RNN, whose numbers every type below holds exactly."""
    rng = np.random.default_rng(3)
    weights = {name: np.round(8 * value) / 8 for name, value in rnn_weights(rng).items()}
    return weights, np.round(4 * rng.random((5, 3, 2))) / 4, np.array([0, 3, 1]), np.round(4 * rng.random((1, 3, 3))) / 4


class Scalars(unittest.TestCase):
    def kinds(self):
        """What is a number for users: constructors of numpy's scalars, of arrays without axes, of PyTorch's tensors."""
        kinds = [np.int64, np.int32, np.uint8, np.array]
        if has("torch"):
            import torch
            kinds.append(torch.tensor)
        return kinds

    def test_numbers(self):
        for kind in self.kinds():
            self.assertEqual(bppsa.plan("rnn", seq_len=kind(8)), bppsa.plan("rnn", seq_len=8), kind)
            self.assertEqual(bppsa.schedule("1f1b", stages=kind(2), micro_batches=kind(3)),
                             bppsa.schedule("1f1b", stages=2, micro_batches=3), kind)
            for shape in ((kind(1), kind(4), kind(4)), [kind(1), 4, 4]):
                found = bppsa.jacobian.maxpool2d(in_shape=shape, kernel=kind(2), stride=(kind(1), 2))
                self.assertEqual(found.nnz, bppsa.jacobian.maxpool2d(in_shape=(1, 4, 4), kernel=2, stride=(1, 2)).nnz)
        self.assertEqual(bppsa.flops("lenet5", prune=np.float64(0.5)), bppsa.flops("lenet5", prune=0.5))
        self.assertEqual(bppsa.plan("rnn", algorithm=np.str_("blelloch")), bppsa.plan("rnn", algorithm="blelloch"))

    def test_arrays_and_ranges_with_commas(self):
        for shape in (np.array([1, 2, 3]), range(1, 4), (np.int8(1), np.array(2), 3)):
            self.assertEqual(bppsa.jacobian.relu(in_shape=shape).shape, (6, 6))

    def test_truth_values(self):
        kinds = [np.bool_, np.array]
        if has("torch"):
            import torch
            kinds.append(torch.tensor)
        for kind in kinds:
            for value in (False, True):
                self.assertEqual(bppsa.flops("lenet5", input_grad=kind(value)), bppsa.flops("lenet5", input_grad=value))

    def test_networks_with_scalars(self):
        network = {"input": np.array([1, 4, 4]), "layers": [{"name": "f", "op": "flatten"},
                                                            {"name": "l", "op": "linear", "out": np.int64(3)}]}
        plain = {"input": [1, 4, 4], "layers": [{"name": "f", "op": "flatten"}, {"name": "l", "op": "linear", "out": 3}]}
        self.assertEqual(bppsa.flops(network)["totals"], bppsa.flops(plain)["totals"])
        with self.assertRaisesRegex(bppsa.RequestError, "a set, expected numbers, texts, lists and dicts"):
            bppsa.flops({**plain, "input": {1, 4}})

    def test_what_is_no_text_or_number_at_all(self):
        jt, g = np.ones((2, 2, 2)), np.ones((2, 2))
        for call, sentence in ((lambda: bppsa.run(), "run: no words, expected a command"),
                               (lambda: bppsa.scan(jt, None, g, method=3), "3: a int, expected a text"),
                               (lambda: bppsa.scan(jt, None, g, threads="x"), "threads: 'x', expected a whole number"),
                               (lambda: bppsa.plan("rnn\ud800"), "surrogates not allowed, expected a text in Unicode"),
                               (lambda: bppsa.plan("rnn", seq_len={1: {2}}), "a set, expected numbers, texts, lists and dicts"),
                               (lambda: bppsa.train("rnn", data=(jt,)), r"data: 1 arrays, expected a pair \(X, Y\)")):
            with self.assertRaisesRegex(bppsa.RequestError, sentence):
                call()

    def test_wrong_numbers_are_told(self):
        for wrong in (8.5, np.float32(8.5), np.array(8.5)):
            with self.assertRaisesRegex(bppsa.RequestError, "--seq-len: '8.5', expected a whole number"):
                bppsa.plan("rnn", seq_len=wrong)


class Arrays(unittest.TestCase):
    def setUp(self):
        self.weights, self.x, self.labels, self.h0 = problem()
        self.expected = self.grad()

    def grad(self, weights=None, x=None, labels=None, h0=None):
        given = [mine if other is None else other for other, mine in ((weights, self.weights), (x, self.x), (labels, self.labels),
                                                                      (h0, self.h0))]
        return bppsa.grad("rnn", *given)

    def assert_same(self, found, dtype=np.float64):
        self.assertEqual(list(found), list(self.expected))
        for name, gradient in self.expected.items():
            self.assertEqual(found[name].dtype, dtype, name)
            np.testing.assert_allclose(found[name], gradient, rtol=0, atol=1e-12 if dtype is np.float64 else 1e-6)

    def test_types_that_hold_the_numbers(self):
        for code in ("f4", "f2", ">f8", ">f4", "f8", "g"):
            self.assert_same(self.grad(x=self.x.astype(code), h0=self.h0.astype(code)))
        for code in ("i4", "u1", ">i8", ">i2", "u8", "i1"):
            self.assert_same(self.grad(labels=self.labels.astype(code)))
        for code, dtype in ((">f8", np.float64), ("f2", np.float32), (">f4", np.float32)):
            self.assert_same(self.grad({name: weight.astype(code) for name, weight in self.weights.items()}), dtype)
        self.assert_same(self.grad(x=np.asfortranarray(self.x), labels=np.array([0, 9, 3, 9, 1])[::2]))

    def test_whole_numbers(self):
        ones = bppsa.grad("rnn", self.weights, np.ones((5, 3, 2)), self.labels)
        for code in ("i8", "i4", "?", "u1"):
            for name, gradient in bppsa.grad("rnn", self.weights, np.ones((5, 3, 2), code), self.labels).items():
                np.testing.assert_array_equal(gradient, ones[name])

    def test_lists(self):
        self.assert_same(self.grad({name: weight.tolist() for name, weight in self.weights.items()}, self.x.tolist(),
                                   tuple(self.labels.tolist()), self.h0.tolist()))
        single = {name: weight.astype(np.float32) for name, weight in self.weights.items()}
        single["linear.bias"] = self.weights["linear.bias"].tolist()  # has no type of its own
        self.assert_same(self.grad(single), np.float32)
        lengths = bppsa.grad("rnn", self.weights, self.x, self.labels, lengths=np.array([5, 2, 4]))
        for given in ([5, 2, 4], (5, 2, 4), np.array([5, 2, 4], "i2")):
            for name, gradient in bppsa.grad("rnn", self.weights, self.x, self.labels, lengths=given).items():
                np.testing.assert_array_equal(gradient, lengths[name])

    def test_data(self):
        x, y = self.x.transpose(1, 0, 2), self.labels
        losses = [bppsa.train("rnn", data=data, hidden=2, iterations=1, batch=3)["final"] for data in
                  ((x, y), [x.astype("f4"), y.astype("i4")], (x.tolist(), y.tolist()), [x.astype(">f8"), list(y)])]
        self.assertIsNotNone(losses[0]["loss"])
        self.assertEqual([final["loss"] for final in losses], [losses[0]["loss"]] * 4)

    def test_jacobians(self):
        weights = [[1, 2], [3, 4]]
        expected = bppsa.jacobian.linear(input=np.ones((2, 1, 1)), weights=np.array(weights, float)).toarray()
        np.testing.assert_array_equal(bppsa.jacobian.linear(input=[[[1.0]], [[1.0]]], weights=weights).toarray(), expected)
        masked = bppsa.jacobian.linear(input=np.ones((2, 1, 1), "f2"), weights=np.array(weights, ">i4"), mask=[[1, 0], [True, 1]])
        np.testing.assert_array_equal(masked.toarray(), expected * np.array([[1, 0], [1, 1]]).T)

    def test_scans(self):
        jt, u, g = np.full((4, 2, 3), 0.5), np.ones((4, 2, 3)), np.ones((2, 3))
        expected = bppsa.scan(jt, u, g)
        for given in ((jt.tolist(), u.tolist(), g.tolist()), (jt, u.astype(int), g.astype("u1")),
                      (jt.astype(">f8"), u, g.tolist())):
            np.testing.assert_array_equal(bppsa.scan(*given, threads=np.int64(1)), expected)
        for given in ((jt.astype("f2"), u.astype("f4"), g.tolist()), (jt.tolist(), u.astype(int), g.astype(">f4"))):
            found = bppsa.scan(*given)
            self.assertEqual(found.dtype, np.float32)
            np.testing.assert_array_equal(found, expected)

    @unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
    def test_tensors(self):
        import torch
        self.assert_same(self.grad({name: torch.tensor(weight).bfloat16() for name, weight in self.weights.items()},
                                   torch.tensor(self.x).bfloat16(), torch.tensor(self.labels, dtype=torch.int32)), np.float32)
        self.assert_same(self.grad(x=torch.tensor(self.x, requires_grad=True), h0=torch.tensor(self.h0).half()))
        jt = torch.full((4, 2, 3), 0.5).bfloat16()
        np.testing.assert_array_equal(bppsa.scan(jt, None, jt[0]), bppsa.scan(jt.float(), None, jt[0].float()))
        kept = [bppsa.flops("lenet5", mask={"conv1.weight": mask})["totals"]
                for mask in (torch.ones(6, 3, 5, 5, dtype=torch.bool), np.ones((6, 3, 5, 5)))]
        self.assertEqual(*kept)

    def test_refusals(self):
        """In the package's own sentence, with the argument's name."""
        big = np.array(2 ** 53 + 1, np.int64)
        for wrong, sentence in (
                (dict(x=self.x.astype(complex)), "input: dtype complex128, expected an array of numbers"),
                (dict(x=np.array(["a"])), "input: dtype <U1, expected an array of numbers"),
                (dict(x=np.array([None])), "input: dtype object, expected an array of numbers"),
                (dict(x=[[1.0], [1.0, 2.0]]), "input: .*, expected an array of numbers"),
                (dict(x=self.x.astype(np.int64) + big), "input: dtype int64 with numbers that float64 does not hold"),
                (dict(x=self.x.astype(np.longdouble) + np.longdouble(2) ** -60), "input: dtype float128 with numbers that float64"),
                (dict(labels=np.array([0, 2 ** 64 - 1, 1], np.uint64)), "labels: dtype uint64 with numbers that int64 does not"),
                (dict(x=np.full((5, 3, 2), 2 ** 64 - 1, np.uint64)), "input: dtype uint64 with numbers that float64 does not hold"),
                (dict(labels=self.labels.astype(float)), "dtype f64, expected i64"),
                (dict(labels=np.array(1)), "labels: the number 1, expected an array or the path of a file"),
                (dict(x=np.ma.masked_array(self.x, self.x > 0)), "input: a masked array, expected an array without masked numbers"),
                (dict(weights={**self.weights, "linear.bias": ["a"]}), "linear.bias: dtype <U1, expected an array of numbers")):
            with self.assertRaisesRegex(bppsa.RequestError, sentence):
                self.grad(**wrong)
        with self.assertRaisesRegex(bppsa.RequestError, "lengths: dtype float64, expected int64"):
            bppsa.grad("rnn", self.weights, self.x, self.labels, lengths=[5.0, 2.5, 1.0])
        cyclic = {}
        cyclic["layers"] = cyclic
        for model, sentence in ((cyclic, "Circular reference"), ({np.int64(1): 2}, "keys must be str"),
                                ({"x": 1j}, "(1j: a complex|complex)")):
            with self.assertRaisesRegex(bppsa.RequestError, sentence):
                bppsa.flops(model)
        jt, g = np.ones((4, 2, 3)), np.ones((2, 3))
        for given, sentence in (((None, None, g), "jt: None, expected an array"), ((jt, None, None), "g: None, expected an array")):
            with self.assertRaisesRegex(bppsa.RequestError, sentence):
                bppsa.scan(*given)
        for threads in (2 ** 70, -2 ** 70, 2 ** 63):
            with self.assertRaisesRegex(bppsa.RequestError, "threads: .*, expected a number of cores"):
                bppsa.scan(jt, None, g, threads=threads)

    def test_numbers_longer_than_float64(self):
        self.assertEqual(bppsa.flops("lenet5", prune=np.longdouble(0.5)), bppsa.flops("lenet5", prune=0.5))
        with self.assertRaisesRegex(bppsa.RequestError, "a number that float64 does not hold, expected one in float64"):
            bppsa.flops("lenet5", prune=np.longdouble(0.5) + np.longdouble(2) ** -60)

    def test_a_masked_array_without_a_mask(self):
        found = self.grad(x=np.ma.masked_array(self.x))
        for name, gradient in self.grad().items():
            np.testing.assert_array_equal(found[name], gradient)


class Places(unittest.TestCase):
    """The folders in which arrays travel."""

    def write(self, full):
        """_Folder.array, for which the places in `full` have no room."""
        array = _commands._Folder.array

        def write(folder, name, value):
            if any(str(folder.path).startswith(place) for place in full):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return array(folder, name, value)

        return mock.patch.object(_commands._Folder, "array", write)

    def test_the_next_place(self):
        weights, x, labels, _ = problem()
        expected = bppsa.grad("rnn", weights, x, labels)
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            with mock.patch.object(_commands, "_places", lambda: [first, second]):
                with self.write([first]):
                    found = bppsa.grad("rnn", weights, x, labels)
                for name, gradient in expected.items():
                    np.testing.assert_array_equal(found[name], gradient)
                with self.write([first, second]):
                    with self.assertRaisesRegex(bppsa.RunError, f"{first} and {second}: No space left on device, where arrays are "
                                                "written, expected room for them in /dev/shm or in the folder that TMPDIR names"):
                        bppsa.grad("rnn", weights, x, labels)
            self.assertEqual(glob.glob(f"{first}/*") + glob.glob(f"{second}/*"), [])

    def test_a_program_without_room(self):
        """What the program says of a file in a folder of ours: the next place, if there was no room, whatever limits it."""
        seen = []

        def command(words, _told):
            seen.append(words)
            return 1, "", f"bppsa: error: {folder.path}/J.npz: cannot write after 10 bytes: {os.strerror(reason)}"

        for reason in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            folder = _commands._Folder("/somewhere")
            with mock.patch.object(_commands._native, "command", command), self.assertRaises(OSError) as caught:
                _commands._run(folder, ["jacobian"], {})
            self.assertEqual((caught.exception.errno, caught.exception.filename), (reason, "/somewhere"))
        self.assertEqual(len(seen), 3)

    def test_places_that_are_not_there(self):
        with mock.patch.object(_commands, "_places", lambda: ["/nowhere"]):
            with self.assertRaisesRegex(bppsa.RunError, "/nowhere: No such file or directory, where arrays are written"):
                bppsa.plan("rnn")
        with mock.patch("os.access", lambda *_: False), mock.patch("tempfile.gettempdir", mock.Mock(side_effect=FileNotFoundError(
                errno.ENOENT, "No usable temporary directory found in ['/tmp']"))):
            with self.assertRaisesRegex(bppsa.RunError, "No usable temporary directory found .*, expected a folder for arrays"):
                bppsa.plan("rnn")

    def test_a_small_dev_shm(self):
        """1 MiB, in a mount namespace: arrays that Python writes, and one that the program writes."""
        code = """
import os, numpy as np, bppsa
x, y = np.zeros((2000, 100, 3), "f4"), np.arange(2000) % 2
bppsa.train("rnn", data=(x, y), hidden=2, iterations=1)
print(bppsa.jacobian.conv2d(in_shape=(3, 32, 32), out_channels=16, kernel=3, padding=1).nnz, os.listdir("/dev/shm"))
"""
        script = "mount -t tmpfs -o size=1m tmpfs /dev/shm && exec \"$0\" -c \"$1\""
        if subprocess.run(["unshare", "-rm", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no mount namespace can be made here (unshare -rm)")
        done = subprocess.run(["unshare", "-rm", "sh", "-c", script, sys.executable, code], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout.split()[1:]), (0, ["[]"]), done.stderr)

    def test_paths_that_are_no_utf8(self):
        folder = os.fsdecode(tempfile.mkdtemp().encode() + b"/caf\xe9")
        os.mkdir(folder)
        weights = os.path.join(folder, "w.safetensors")
        x, y = np.zeros((4, 3, 1)), np.arange(4) % 2
        bppsa.train("rnn", data=(x, y), hidden=2, iterations=1, batch=4, save_weights=weights)
        self.assertIn("rnn.weight_ih_l0", bppsa.grad("rnn", weights, x.transpose(1, 0, 2), y))


if __name__ == "__main__":
    main()

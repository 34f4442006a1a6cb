"""bppsa.torch beside torch.nn: gradients, shapes, state_dict, training, refusals, memory. BPPSA_PYTHON_CONFIGURATIONS and
BPPSA_PYTHON_CALLS say how much of it runs."""
import contextlib
import copy
import gc
import io
import itertools
import os
import pickle
import random
import threading
import unittest
from unittest import mock

from support import has, main, residual, run_until_interrupted

if has("torch"):
    import torch

    import bppsa.torch
    from bppsa import _native
    from bppsa._tensors import MODERN

CONFIGURATIONS = int(os.environ.get("BPPSA_PYTHON_CONFIGURATIONS", "60"))
CALLS = int(os.environ.get("BPPSA_PYTHON_CALLS", "400"))
SCANS = ["auto", "bp", "scan", "linear", "blelloch", "blelloch 2", "chunked", "chunked 3"]
SPECULATIVE = "speculative"  # on a GPU it is refused


def pack(x, lengths, batch_first):
    return torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)


def unpack(packed, batch_first, steps):
    return torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first, total_length=steps)[0]


class Torch(unittest.TestCase):
    def setUp(self):
        if not has("torch"):
            self.skipTest("PyTorch is missing (package python3-torch)")
        torch.manual_seed(0)
        torch.set_num_threads(2)

    def grads(self, layer, x, start, weights, lengths=None):
        """Output (padded with zeros where `lengths` says that sequences end), h_n, an LSTM's c_n, and the gradients of
        Σ weight ∘ result over those results that have a weight. start: the initial states, one or two tensors, or None."""
        start = (start,) if isinstance(start, torch.Tensor) else start
        output, last = layer(x if lengths is None else pack(x, lengths, layer.batch_first),
                             start if start is None or len(start) == 2 else start[0])
        output = output if lengths is None else unpack(output, layer.batch_first, x.shape[0 if not layer.batch_first else 1])
        results = [output, *last] if isinstance(last, tuple) else [output, last]
        pairs = [(weight, result) for weight, result in zip(weights, results) if weight is not None]
        loss = sum((weight.to(result.dtype) * result).sum() for weight, result in pairs)
        return results + list(torch.autograd.grad(loss, [x, *(start or ()), *layer.parameters()]))


class BothDirections(Torch):
    def gradients(self, cell, layers, all_steps, start, lengths):
        """Those of torch.nn's layers and a head, by names as in files of weights, and the weights."""
        steps, batch, inputs, hidden, classes = 13, len(lengths), 3, 4, 5
        layer = getattr(torch.nn, cell.upper())(inputs, hidden, layers, bidirectional=True).double()
        head = torch.nn.Linear(2 * hidden, classes).double()
        x = torch.randn(steps, batch, inputs, dtype=torch.float64, requires_grad=True)
        labels = torch.randint(classes, (steps, batch) if all_steps else (batch,))
        h0 = start.clone().requires_grad_()
        output, last = layer(pack(x, lengths, False), (h0, torch.zeros_like(h0)) if cell == "lstm" else h0)
        last = last[0] if cell == "lstm" else last
        used = torch.arange(steps)[:, None] < torch.tensor(lengths) if all_steps else ...
        logits = head(unpack(output, False, steps) if all_steps else torch.cat([last[-2], last[-1]], 1))
        torch.nn.functional.cross_entropy(logits[used], labels[used]).backward()
        named = {f"{cell}.{name}": weight for name, weight in layer.named_parameters()}
        named.update({f"linear.{name}": weight for name, weight in head.named_parameters()})
        found = {name: weight.grad for name, weight in named.items()}
        return {name: weight.detach() for name, weight in named.items()}, x, labels, {**found, "input": x.grad, "h0": h0.grad}

    def test_grad_of_sequences_with_lengths(self):
        """`bppsa grad` of weights in both directions beside autograd: layers 1 to 3, both losses, lengths, initial states."""
        lengths = [4, 13, 1, 7, 9]
        for cell, layers, all_steps in itertools.product(("rnn", "gru", "lstm"), (1, 2, 3), (False, True)):
            start = torch.randn(2 * layers, len(lengths), 4, dtype=torch.float64)
            weights, x, labels, expected = self.gradients(cell, layers, all_steps, start, lengths)
            found = bppsa.grad(cell, weights, x.detach(), labels, start, loss="all" if all_steps else "last",
                               lengths=torch.tensor(lengths), algorithm="blelloch")
            for name, gradient in expected.items():
                self.assertLess(residual(found[name], gradient, 13, "float64"), 30, (cell, layers, all_steps, name))


class Gradients(Torch):
    def configuration(self, seed):
        rng = random.Random(seed)
        torch.manual_seed(seed)
        cell = rng.choice(["RNN", "GRU", "LSTM"])
        options = dict(num_layers=rng.randint(1, 3), bidirectional=rng.random() < 0.5, batch_first=rng.random() < 0.5,
                       bias=rng.random() < 0.8)
        if cell == "RNN":
            options["nonlinearity"] = rng.choice(["tanh", "relu"])
        steps, batch, inputs, hidden = rng.randint(1, 40), rng.randint(1, 5), rng.randint(1, 6), rng.randint(1, 12)
        dtype = rng.choice([torch.float32, torch.float64])
        scan, forward = rng.choice([*SCANS, SPECULATIVE]), rng.choice(["sequential", "auto"])
        numbers = {"scan_chunks": rng.randint(1, 6), "scan_warm_up": rng.randint(0, 9)} if scan == SPECULATIVE else {}
        theirs = getattr(torch.nn, cell)(inputs, hidden, **options).to(dtype)
        ours = getattr(bppsa.torch, cell)(inputs, hidden, scan=scan, forward=forward, **numbers, **options).to(dtype)
        ours.load_state_dict(theirs.state_dict())
        theirs = theirs.double()
        directions = 2 if options["bidirectional"] else 1
        x = torch.randn(*((batch, steps) if options["batch_first"] else (steps, batch)), inputs, dtype=dtype, requires_grad=True)
        state = (options["num_layers"] * directions, batch, hidden)
        start = tuple(torch.randn(state, dtype=dtype, requires_grad=True) for _ in range(2 if cell == "LSTM" else 1))
        start = start if rng.random() < 0.7 else None
        of_output = torch.randn(*x.shape[:2], hidden * directions, dtype=torch.float64)
        of_output = of_output * (torch.rand(*of_output.shape) < rng.choice([0.05, 0.5, 1]))  # a subset
        of_last, of_cell = torch.randn(state, dtype=torch.float64), torch.randn(state, dtype=torch.float64)
        weights = rng.choice([(of_output, None), (None, of_last), (of_output, of_last)])
        if cell == "LSTM":
            weights = rng.choice([(*weights, None), (*weights, of_cell), (None, None, of_cell)])
        lengths = [rng.randint(1, steps) for _ in range(batch)] if rng.random() < 0.4 else None
        return theirs, ours, x, start, weights, lengths, (cell, options, steps, batch, inputs, hidden, dtype, scan, forward)

    def compare(self, found, expected, steps, dtype):
        """The residual of every result, -1 where a shape or type is another one."""
        return [residual(one.detach(), other.detach(), steps, str(dtype).split(".")[1])
                if (one.shape, one.dtype) == (other.shape, dtype) else -1 for one, other in zip(found, expected)]

    def test_random_configurations(self):
        """Residuals below 30. A sum whose terms cancel may have a larger one: then the reference moves further than that when its
        inputs are rounded once more."""
        worst, cancelled = 0, 0
        for seed in range(CONFIGURATIONS):
            theirs, ours, x, start, weights, lengths, what = self.configuration(seed)
            state = None if start is None else tuple(part.detach().double().requires_grad_() for part in start)
            found = self.grads(ours, x, start, weights, lengths)
            expected = self.grads(theirs, x.detach().double().requires_grad_(), state, weights, lengths)
            self.assertEqual(len(found), len(expected))
            sizes = self.compare(found, expected, what[2], x.dtype)
            self.assertGreaterEqual(min(sizes), 0, (seed, what))
            if max(sizes) >= 30:
                rounded = x.detach().double() * (1 + torch.finfo(x.dtype).eps * torch.randn(x.shape, dtype=torch.float64))
                again = self.compare(self.grads(theirs, rounded.requires_grad_(), state, weights, lengths), expected, what[2],
                                     torch.float64)
                moved = [size * torch.finfo(torch.float64).eps / torch.finfo(x.dtype).eps for size in again]
                self.assertTrue(all(size < max(30, limit) for size, limit in zip(sizes, moved)), (seed, what, sizes, moved))
                cancelled += 1
                sizes = [size for size, limit in zip(sizes, moved) if limit < 30]
            worst = max(worst, *sizes)
        self.assertLessEqual(cancelled, CONFIGURATIONS // 100)
        print(f"{CONFIGURATIONS} configurations, worst residual {worst:.2f}, {cancelled} with sums that cancel")

    def test_a_last_state_and_outputs(self):
        """The gradient of h_n alone, of outputs alone, and of both; the seeds stay as they are."""
        theirs, ours, x = torch.nn.GRU(3, 4), bppsa.torch.GRU(3, 4), torch.randn(6, 2, 3)
        ours.load_state_dict(theirs.state_dict())
        for use in ((0,), (1,), (0, 1)):
            found = []
            for layer in (ours, theirs):
                results, seeds = layer(x), [torch.ones(6, 2, 4), torch.ones(1, 2, 4)]
                found.append(torch.autograd.grad([results[i] for i in use], list(layer.parameters()), [seeds[i] for i in use]))
                self.assertTrue(all(bool((seed == 1).all()) for seed in seeds))
            for one, other in zip(*found):
                torch.testing.assert_close(one, other)

    def test_packed_sequences(self):
        """Sorted and unsorted, the longest sequences beyond the others, one sequence, equal lengths: also without gradients."""
        for lengths in ([5, 3, 3, 1], [1, 4, 2, 4], [7], [3, 3]):
            theirs, ours = (kind(2, 3, 2, bidirectional=True, dropout=0.5).eval() for kind in (torch.nn.GRU, bppsa.torch.GRU))
            ours.load_state_dict(theirs.state_dict())
            x, h0 = torch.randn(max(lengths), len(lengths), 2), torch.randn(4, len(lengths), 3)
            for state in (None, h0):
                expected, last = theirs(pack(x, lengths, False), state)
                with torch.no_grad():
                    found, ours_last = ours(pack(x, lengths, False), state)
                self.assertEqual(type(found), type(expected))
                for one, other in zip((*found, ours_last), (*expected, last)):
                    torch.testing.assert_close(one, other)

    def test_long_calls_have_a_thread_of_their_own(self):
        layer, x = bppsa.torch.GRU(3, 4), torch.randn(7, 2, 3, requires_grad=True)
        expected = torch.autograd.grad(layer(x)[0].sum(), x)[0]
        limit, bppsa._tensors.LONG = bppsa._tensors.LONG, 0
        try:
            self.assertTrue(torch.equal(torch.autograd.grad(layer(x)[0].sum(), x)[0], expected))
            with self.assertRaisesRegex(bppsa.RequestError, "method 'fast'"):
                bppsa.torch.scan(x.detach(), None, x[0].detach(), method="fast")
        finally:
            bppsa._tensors.LONG = limit

    def test_gradcheck(self):
        double = {"bidirectional": True, "num_layers": 2}
        for cell, options in ((bppsa.torch.RNN, {}), (bppsa.torch.GRU, double), (bppsa.torch.LSTM, {}), (bppsa.torch.LSTM, double)):
            for scan in ("bp", "blelloch"):
                layer = cell(2, 3, scan=scan, **options).double()
                x = torch.randn(5, 2, 2, dtype=torch.float64, requires_grad=True)
                pair = cell is bppsa.torch.LSTM
                start = [torch.randn(4 if options else 1, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(1 + pair)]
                names = [name for name, _ in layer.named_parameters()]

                def run(x, *tensors):
                    for name, parameter in zip(names, tensors[1 + pair:]):
                        delattr(layer, name)
                        setattr(layer, name, parameter)
                    output, last = layer(x, tensors[:2] if pair else tensors[0])
                    return (output, *last) if pair else (output, last)

                parameters = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]
                self.assertTrue(torch.autograd.gradcheck(run, (x, *start, *parameters)))

    def test_gradcheck_of_the_scan(self):
        for shape in ((4, 2, 3, 3), (4, 2, 3), (1, 2, 3, 3)):
            jt = (torch.randn(shape, dtype=torch.float64) * 0.5).requires_grad_()
            u = torch.randn(shape[:3], dtype=torch.float64, requires_grad=True)
            g = torch.randn(shape[1:3], dtype=torch.float64, requires_grad=True)
            for method in ("linear", "blelloch", "chunked 2"):
                self.assertTrue(torch.autograd.gradcheck(lambda *a: bppsa.torch.scan(*a, method=method), (jt, u, g)))
                self.assertTrue(torch.autograd.gradcheck(lambda a, b: bppsa.torch.scan(a, None, b, method=method), (jt, g)))
            self.assertTrue(torch.autograd.gradgradcheck(bppsa.torch.scan, (jt, u, g)))

    def test_the_scan_of_any_length(self):
        for steps in (0, 1, 2, 3, 5, 10, 50, 1000):
            a, b, h = torch.rand(steps, 2, 3), torch.randn(steps, 2, 3), torch.randn(2, 3)
            expected, state = [], h.double()
            for step in range(steps):
                state = a[step].double() * state + b[step].double()
                expected.append(state)
            found = bppsa.torch.scan(a.flip(0), b.flip(0), h).flip(0)
            self.assertEqual(found.shape, (steps, 2, 3))
            if steps:
                self.assertLess(residual(found, torch.stack(expected), steps, "float32"), 30)

    def test_training_gives_the_same_losses(self):
        for name in ("GRU", "LSTM"):
            self.train(getattr(torch.nn, name), getattr(bppsa.torch, name))

    def train(self, *kinds):
        losses = []
        for kind in kinds:
            torch.manual_seed(3)
            layer, head = kind(3, 8, batch_first=True), torch.nn.Linear(8, 2)
            optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=1e-4)
            x, y = torch.randn(8, 30, 3), torch.randint(0, 2, (8,))
            losses.append([])
            for _ in range(200):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(head(layer(x)[0][:, -1]), y)
                loss.backward()
                optimizer.step()
                losses[-1].append(loss.item())
        self.assertLess(losses[1][-1], losses[1][0])
        self.assertLess(max(abs(one - other) for one, other in zip(*losses)), 1e-4)


class Module(Torch):
    def test_state_dict_both_ways(self):
        for name in ("RNN", "GRU", "LSTM"):
            theirs, ours = getattr(torch.nn, name)(3, 4, 2), getattr(bppsa.torch, name)(3, 4, 2)
            self.assertIsInstance(ours, torch.nn.RNNBase)
            self.assertEqual(list(ours.state_dict()), list(theirs.state_dict()))
            x = torch.randn(5, 2, 3)
            ours.load_state_dict(theirs.state_dict())
            torch.testing.assert_close(ours(x)[0], theirs(x)[0])
            ours.reset_parameters()
            theirs.load_state_dict(ours.state_dict())
            torch.testing.assert_close(ours(x)[0], theirs(x)[0])

    def test_copies(self):
        layer, x = bppsa.torch.GRU(3, 4, scan="chunked 2"), torch.randn(5, 2, 3)
        expected = layer(x)[0]
        self.assertIn("scan='chunked 2'", repr(layer))
        stream = io.BytesIO()
        torch.save(layer, stream)
        stream.seek(0)
        try:
            loaded = torch.load(stream, weights_only=False)
        except TypeError:  # before 1.13
            loaded = torch.load(stream)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), loaded):
            self.assertEqual(other.scan, "chunked 2")
            self.assertTrue(torch.equal(other(x)[0], expected))

    def test_a_single_sequence(self):
        theirs, ours = torch.nn.GRU(3, 4, bidirectional=True), bppsa.torch.GRU(3, 4, bidirectional=True)
        ours.load_state_dict(theirs.state_dict())
        x, h0 = torch.randn(5, 3), torch.randn(2, 4)
        for one, other in zip(ours(x, h0), theirs(x, h0)):
            torch.testing.assert_close(one, other)

    def test_a_single_sequence_of_an_lstm(self):
        theirs, ours = torch.nn.LSTM(3, 4, bidirectional=True), bppsa.torch.LSTM(3, 4, bidirectional=True)
        ours.load_state_dict(theirs.state_dict())
        x, start = torch.randn(5, 3), (torch.randn(2, 4), torch.randn(2, 4))
        (one, (h, c)), (other, (their_h, their_c)) = ours(x, start), theirs(x, start)
        for found, expected in ((one, other), (h, their_h), (c, their_c)):
            torch.testing.assert_close(found, expected)

    def test_refusals_of_an_lstm(self):
        layer, x = bppsa.torch.LSTM(3, 4), torch.randn(5, 2, 3)
        state = torch.zeros(1, 2, 4)
        for wrong, kind, message in (
                (state, TypeError, "hx is a Tensor, expected a tuple of two tensors, h_0 and c_0"),
                ((state,), TypeError, "expected a tuple of two tensors"),
                ((state, state[:, :1]), ValueError, r"h_0 is \[1, 2, 4\] and c_0 \[1, 1, 4\], expected the same shape"),
                ((state[:, :1], state[:, :1]), ValueError, r"hx is \[1, 1, 4\], expected \[1, 2, 4\]"),
                ((state[0], state[0]), ValueError, "hx has 2 dimensions, expected 3")):
            with self.assertRaisesRegex(kind, message):
                layer(x, wrong)
        with self.assertRaisesRegex(NotImplementedError, "proj_size is 2, expected 0"):
            bppsa.torch.LSTM(3, 4, proj_size=2)

    def test_a_speculative_forward_pass_of_an_lstm(self):
        theirs, ours = torch.nn.LSTM(3, 8), bppsa.torch.LSTM(3, 8, forward="speculative")
        ours.load_state_dict(theirs.state_dict())
        x = torch.randn(1500, 1, 3)
        (one, (h, c)), (other, (their_h, their_c)) = ours(x), theirs(x)
        for found, expected in ((one, other), (h, their_h), (c, their_c)):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)

    def test_dropout(self):
        layer, x = bppsa.torch.GRU(3, 8, 2, dropout=0.5), torch.randn(5, 2, 3)
        torch.manual_seed(1)
        first = layer(x)[0]
        torch.manual_seed(1)
        self.assertTrue(torch.equal(layer(x)[0], first))
        self.assertFalse(torch.equal(layer(x)[0], first))
        plain = bppsa.torch.GRU(3, 8, 2)
        plain.load_state_dict(layer.state_dict())
        self.assertTrue(torch.equal(layer.eval()(x)[0], plain(x)[0]))

    def test_several_passes_before_a_backward_pass(self):
        layer = bppsa.torch.GRU(3, 4)
        inputs = [torch.randn(6, 2, 3, requires_grad=True) for _ in range(3)]
        alone = [torch.autograd.grad(layer(x)[0].square().sum(), [x, layer.weight_hh_l0]) for x in inputs]
        outputs = [layer(x)[0] for x in inputs]
        for x, output, expected in zip(inputs, outputs, alone):
            for _ in range(2):  # twice over the same graph
                found = torch.autograd.grad(output.square().sum(), [x, layer.weight_hh_l0], retain_graph=True)
                self.assertTrue(all(torch.equal(one, other) for one, other in zip(found, expected)))

    def test_threads_of_torch_do_not_change_a_bit(self):
        layer, x = bppsa.torch.GRU(3, 16), torch.randn(200, 8, 3)
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            output = layer(x)[0]
            results.append([output, *torch.autograd.grad(output.sum(), list(layer.parameters()))])
        self.assertTrue(all(torch.equal(one, other) for one, other in zip(*results)))

    def test_threads_of_python(self):
        layer = bppsa.torch.GRU(3, 4)
        inputs = [torch.randn(20, 2, 3) for _ in range(4)]
        expected = [torch.autograd.grad(layer(x)[0].sum(), layer.weight_hh_l0)[0] for x in inputs]
        wrong = []

        def work(number):
            for _ in range(20):
                if not torch.equal(torch.autograd.grad(layer(inputs[number])[0].sum(), layer.weight_hh_l0)[0], expected[number]):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    @unittest.skipUnless(has("torch._dynamo"), "this PyTorch has no torch.compile")
    def test_a_compiled_module(self):
        layer, x = torch.nn.Sequential(torch.nn.Linear(3, 3), bppsa.torch.GRU(3, 4)), torch.randn(5, 2, 3)
        expected = layer(x)[0]
        output = torch.compile(layer, backend="eager")(x)[0]
        torch.testing.assert_close(output, expected)
        self.assertTrue(all(torch.equal(*pair) for pair in zip(torch.autograd.grad(output.sum(), list(layer.parameters())),
                                                               torch.autograd.grad(expected.sum(), list(layer.parameters())))))

    def test_refusals(self):
        layer, x = bppsa.torch.GRU(3, 4), torch.randn(5, 2, 3, requires_grad=True)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x[..., :2], [5, 3])
        for wrong, kind, message in (
                ((packed,), ValueError, "input is .8, 2., expected 3 numbers"),
                ((torch.nn.utils.rnn.pack_padded_sequence(x, [5, 3]), torch.zeros(1, 3, 4)), ValueError,
                 r"hx is \[1, 3, 4\], expected \[1, 2, 4\]"),
                ((x.half(),), TypeError, "input: torch.float16, expected torch.float32 as weight_ih_l0"),
                ((x.double(),), TypeError, "weight_ih_l0: torch.float32, expected torch.float64"),
                ((x[..., :2],), ValueError, "input is .5, 2, 2., expected 3 numbers"),
                ((x[:0],), ValueError, "at least one step"),
                ((x[0, 0],), ValueError, "input has 1 dimensions, expected 3"),
                ((x, torch.zeros(2, 2, 4)), ValueError, r"hx is \[2, 2, 4\], expected \[1, 2, 4\]"),
                ((x, torch.zeros(1, 4)), ValueError, "hx has 2 dimensions, expected 3")):
            with self.assertRaisesRegex(kind, message):
                layer(*wrong)
        with self.assertRaisesRegex(bppsa.RequestError, "method 'fast', expected auto, bp, scan"):
            bppsa.torch.GRU(3, 4, scan="fast")(x)
        with self.assertRaisesRegex(bppsa.RequestError, "forward pass 'fast', expected sequential"):
            bppsa.torch.GRU(3, 4, forward="fast")(x)

    def test_devices_that_are_not_there(self):
        layer = bppsa.torch.GRU(3, 4)
        with self.assertRaisesRegex(NotImplementedError, "input: on meta, expected the CPU or a GPU of CUDA"):
            layer(torch.empty(5, 2, 3, device="meta"))
        with self.assertRaisesRegex(ValueError, "weight_ih_l0: on meta, expected cpu as the others"):
            layer.to("meta")(torch.randn(5, 2, 3))
        missing = "device cuda:999: (this build has no CUDA|no CUDA device found|CUDA devices here)"
        with self.assertRaisesRegex(bppsa.RequestError, missing):  # what a tensor on a GPU meets in a package without CUDA
            _native.Plan(("gru", False, "auto", "auto"), (5, 2, 3, 4), False, (True, False, False, False), False, 1, 999, None)
        with self.assertRaisesRegex(bppsa.RequestError, missing):
            _native.Scan("auto", True, False, (5, 2, 3), True, 1, 999, None)

    def test_second_derivatives(self):
        """Refused without stateless passes, which test_torch_transforms.py asks for their numbers."""
        layer, x = bppsa.torch.RNN(3, 4), torch.randn(5, 2, 3, requires_grad=True)
        gradient, = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
        expected, = torch.autograd.grad(layer(x)[0].square().sum(), x)
        self.assertTrue(torch.equal(gradient, expected))
        if MODERN:
            self.assertTrue(torch.autograd.grad(gradient.square().sum(), x)[0].any())
            return
        with self.assertRaisesRegex(NotImplementedError, "second derivatives are refused"):
            torch.autograd.grad(gradient.square().sum(), x)


def has_gpu():
    """Whether PyTorch and the package both have CUDA, and there is a GPU."""
    if not has("torch") or not torch.cuda.is_available():
        return False
    try:
        _native.Plan(("rnn", False, "auto", "auto"), (1, 1, 1, 1), False, (True, False, False, False), False, 1, 0, None)
        return True
    except bppsa.RequestError:
        return False


@unittest.skipUnless(has_gpu(), "no GPU, or PyTorch or the package was built without CUDA")
class Gpu(Torch):
    """The same on a GPU as on the processor."""

    def both(self, cell, **options):
        layer = getattr(bppsa.torch, cell)(3, 8, **options).double()
        return layer, copy.deepcopy(layer).cuda()

    def results(self, layer, x, start, weights, lengths=None):
        return [result.detach().cpu() for result in self.grads(layer, x, start, weights, lengths)]

    def test_layers(self):
        for cell, scan, several in itertools.product(("RNN", "GRU", "LSTM"), SCANS, (False, True)):
            options = {"num_layers": 2, "bidirectional": True} if several else {}
            here, there = self.both(cell, scan=scan, **options)
            for lengths in (None, [20, 13, 13, 4]):
                x = torch.randn(20, 4, 3, dtype=torch.float64, requires_grad=True)
                start = [torch.randn(4 if several else 1, 4, 8, dtype=torch.float64, requires_grad=True)
                         for _ in range(2 if cell == "LSTM" else 1)]
                weights = [torch.randn(20, 4, 16 if several else 8), *(torch.randn_like(part) for part in start)]
                expected = self.results(here, x, start, weights, lengths)
                x, *start = (tensor.detach().cuda().requires_grad_() for tensor in (x, *start))
                found = self.results(there, x, start, [weight.cuda() for weight in weights], lengths)
                for one, other in zip(found, expected):
                    self.assertLess(residual(one, other, 20, "float64"), 30, (cell, scan, several, lengths))

    def test_the_callers_stream(self):
        """A pass follows what its stream had to do before, and its results are ready for what comes after."""
        here, there = self.both("GRU")
        x = torch.randn(50, 4, 3, dtype=torch.float64)
        with torch.cuda.stream(torch.cuda.Stream()):
            late = torch.empty_like(x, device="cuda")
            torch.cuda._sleep(50_000_000)
            late.copy_(x)
            found = there(late)[0].sum()
            found.backward()
        expected = here(x)[0].sum()
        expected.backward()
        torch.testing.assert_close(found.cpu(), expected)
        torch.testing.assert_close(there.weight_hh_l0.grad.cpu(), here.weight_hh_l0.grad)

    def test_the_scan(self):
        for shape in ((30, 2, 5), (30, 2, 5, 5)):
            tensors = [torch.randn(shape, dtype=torch.float64) * 0.4, torch.randn(30, 2, 5, dtype=torch.float64),
                       torch.randn(2, 5, dtype=torch.float64)]
            results = []
            for device in ("cpu", "cuda"):
                moved = [tensor.to(device).requires_grad_() for tensor in tensors]
                output = bppsa.torch.scan(*moved)
                results.append([output, *torch.autograd.grad(output.sum(), moved)])
            for one, other in zip(*results):
                torch.testing.assert_close(other.cpu(), one)


class AsOnAGpu(Torch):
    """What Python does with tensors of a GPU, in front of the processor's passes: outputs and states are tensors of their own."""

    def test_results(self):
        for cell, several in itertools.product(("RNN", "GRU", "LSTM"), (False, True)):
            options = {"num_layers": 2, "bidirectional": True} if several else {}
            layer, x = getattr(bppsa.torch, cell)(3, 4, **options), torch.randn(9, 3, 3, requires_grad=True)
            start = [torch.randn(4 if several else 1, 3, 4, requires_grad=True) for _ in range(2 if cell == "LSTM" else 1)]
            weights = [torch.randn(9, 3, 8 if several else 4), *(torch.randn_like(part) for part in start)]
            expected = [self.grads(layer, x, start, weights, lengths) for lengths in (None, [9, 4, 6])]
            tapes = len(layer._pool.tapes._idle) + len(layer._pool.tapes._returned)
            with mock.patch.object(torch.Tensor, "is_cuda", True), mock.patch.object(torch.Tensor, "get_device", lambda _: -1), \
                    mock.patch("torch.cuda.current_stream", lambda _: mock.Mock(cuda_stream=None)), \
                    mock.patch("torch.cuda.device", lambda _: contextlib.nullcontext()):
                found = [self.grads(layer, x, start, weights, lengths) for lengths in (None, [9, 4, 6])]
                output = layer(x)[0]
                output.mul_(2).sum().backward()  # the layer's own states stay as they are
                # tapes are tensors of their own too
                self.assertEqual(len(layer._pool.tapes._idle) + len(layer._pool.tapes._returned), tapes)
            self.assertTrue(all(torch.equal(one, other) for one, other in zip(found[0], expected[0])), (cell, several))
            for one, other in zip(found[1], expected[1]):  # the processor's one pass has other sums than the GPU's stretches
                self.assertLess(residual(one.detach(), other.detach(), 9, "float32"), 30, (cell, several))


class Interrupts(Torch):
    """Ctrl-C frees the caller of a layer while the library's call goes on in a thread of its own."""

    PROGRAM = """
import torch, bppsa.torch
from bppsa import _native
torch.set_num_threads(1)
{setup}
print("ready")
try:
    {call}
    print("came to its end")
except KeyboardInterrupt:
    print("under way" if _native.under_way else "after its end")
"""

    def check(self, setup, call):
        out, _ = run_until_interrupted(self, self.PROGRAM.format(setup=setup, call=call))
        self.assertEqual(out.strip(), "under way")

    def test_a_layer_that_is_being_made(self):
        self.check("""
class Slow(_native.Plan):
    def __init__(self, *options):
        _native.command(["bench", "rnn", "--threads", "1"])
        super().__init__(*options)
_native.Plan = Slow
bppsa._tensors.LONG, layer, x = 0, bppsa.torch.GRU(1, 2), torch.randn(3, 2, 1)
""", "layer(x)")

    def test_a_scan_of_a_layer(self):
        """2·10⁹ FLOPs of back-propagation, and by a scan a hundred times as many."""
        self.check("output = bppsa.torch.RNN(1, 256, scan='chunked 8')(torch.randn(1800, 4, 1))[0].sum()", "output.backward()")


class Memory(Torch):
    def resident(self):
        gc.collect()
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def test_calls_keep_no_memory(self):
        before = _native.allocated()
        layer, x = bppsa.torch.GRU(3, 8, 2, bidirectional=True), torch.randn(40, 4, 3, requires_grad=True)
        gated = bppsa.torch.LSTM(3, 5)

        def once():
            layer(x)[0].sum().backward()
            gated(x)[1][1].sum().backward()  # of c_T alone
            with torch.no_grad():
                layer(x)

        for _ in range(50):
            once()
        blocks, begin = _native.allocated(), self.resident()
        for _ in range(CALLS):
            once()
        self.assertEqual(_native.allocated(), blocks)
        if "asan" not in os.environ.get("LD_PRELOAD", ""):  # it keeps what is freed for a while
            self.assertLess(self.resident() - begin, 1 << 20)
        del layer, gated, once
        x.grad = None
        gc.collect()
        self.assertEqual(_native.allocated(), before)

    def test_a_tape_comes_back_at_any_time(self):
        if MODERN:
            self.skipTest("this PyTorch's passes have no tapes of the module's")
        layer = bppsa.torch.RNN(2, 3)
        tapes, output = layer._pool.tapes, [layer(torch.randn(4, 1, 2))[0]]

        def release():  # as the garbage collector does in the middle of take
            with tapes._lock:
                output.clear()

        thread = threading.Thread(target=release, daemon=True)
        thread.start()
        thread.join(10)
        self.assertFalse(thread.is_alive())
        self.assertEqual(len(tapes._returned), 1)
        layer(torch.randn(4, 1, 2))
        self.assertEqual(len(tapes._idle) + len(tapes._returned), 1)  # the same memory again

    def test_many_lengths_keep_few_layers(self):
        layer = bppsa.torch.RNN(2, 3)
        counts, kept = [], 64  # plans, which have no arrays
        for steps in range(1, 4 * kept):
            layer(torch.randn(steps, 1, 2))[0].sum().backward()
            counts.append(_native.allocated())
        self.assertLessEqual(counts[-1], max(counts[:kept]))


if __name__ == "__main__":
    main()

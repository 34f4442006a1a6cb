"""bppsa.torch with resets, packed sequences in one pass, and all c of an LSTM, beside a loop over steps (loops.py).
BPPSA_PYTHON_RESETS says how many random configurations run."""
import copy
import os
import random
import unittest

import numpy as np

from support import has, main, residual

if has("torch"):
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
    from torch.utils.checkpoint import checkpoint

    import bppsa.torch
    from bppsa._tensors import MODERN
    import loops

COUNT = int(os.environ.get("BPPSA_PYTHON_RESETS", "60"))
SCANS = ("auto", "bp", "linear", "blelloch", "blelloch 2", "chunked", "chunked 3", "speculative")
SPECULATIVE = {"scan_chunks": 3, "scan_warm_up": 2}


def run(layer, x, start, resets, lengths, cells=False):
    """Ours on x [T,B,I], packed where there are lengths: outputs, last states, and all c with cells."""
    state = None if start is None else tuple(start) if len(start) == 2 else start[0]
    more = {"return_cells": True} if cells else {}
    if lengths is None:
        output, last, *rest = layer(x, state, resets, **more)
    else:
        longest = None if resets is None else resets[:max(lengths)]
        packed, last, *rest = layer(pack_padded_sequence(x, lengths, enforce_sorted=False), state, longest, **more)
        output, *rest = (pad_packed_sequence(each, total_length=len(x))[0] for each in (packed, *rest))
    return [output, *(last if isinstance(last, tuple) else (last,)), *rest]


@unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
class Resets(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch.set_num_threads(2)

    def compare(self, layer, x, start, resets, lengths, cells, seeds):
        """The worst residual of results and gradients beside a loop in float64. seeds: of which results the loss is."""
        exact = copy.deepcopy(layer).double()
        wide = [None if part is None else part.detach().double().requires_grad_() for part in (x, *(start or ()))]
        found = run(layer, x, start, resets, lengths, cells)
        output, last, c = loops.outputs(exact, wide[0], wide[1:] or None, resets, lengths)
        expected = [output, *last, *([c] if cells else [])]
        weights = [torch.randn(part.shape) if n in seeds else None for n, part in enumerate(found)]
        results = []
        for kind, parts, inputs in ((layer, found, [x, *(start or ())]), (exact, expected, wide)):
            loss = sum((weight.to(part.dtype) * part).sum() for weight, part in zip(weights, parts) if weight is not None)
            inputs = [*inputs, *kind.parameters()]
            results.append([*parts, *(torch.zeros_like(tensor) if each is None else each for tensor, each in
                                      zip(inputs, torch.autograd.grad(loss, inputs, allow_unused=True)))])
        code = "float64" if x.dtype is torch.float64 else "float32"
        return max(residual(one.detach(), other.detach(), len(x), code) for one, other in zip(*results) if other.numel())

    def test_random_configurations(self):
        worst = 0
        for number in range(COUNT):
            rng = random.Random(number)
            torch.manual_seed(number)
            cell, scan = rng.choice(("RNN", "GRU", "LSTM")), rng.choice(SCANS)
            options = dict(num_layers=rng.randint(1, 3), bidirectional=rng.random() < 0.4, bias=rng.random() < 0.8,
                           forward=rng.choice(("sequential", "auto", "speculative")), scan=scan,
                           reset_state=rng.choice(("zero", "learned")))
            options.update(SPECULATIVE if scan == "speculative" else {})
            steps, batch = rng.randint(1, 40), rng.randint(1, 5)
            dtype = rng.choice((torch.float32, torch.float64))
            layer = getattr(bppsa.torch, cell)(rng.randint(1, 4), rng.randint(1, 12), **options).to(dtype)
            if options["reset_state"] == "learned":
                torch.nn.init.normal_(layer.reset_state)
            draw = lambda *shape: torch.randn(*shape, dtype=dtype, requires_grad=True)
            states = (options["num_layers"] * (2 if options["bidirectional"] else 1), batch, layer.hidden_size)
            start = None if rng.random() < 0.4 else [draw(*states) for _ in range(1 + (cell == "LSTM"))]
            resets = torch.rand(steps, batch) < rng.choice((0, 0.02, 0.1, 0.5, 1))
            lengths = [rng.randint(1, steps) for _ in range(batch)] if rng.random() < 0.5 else None
            cells = cell == "LSTM" and rng.random() < 0.7
            seeds = rng.choice(((0,), (0, 1), (1, 2), (0, 1, 2, 3), (3,) if cells else (0,)))
            torch.set_num_threads(rng.randint(1, 3))
            found = self.compare(layer, draw(steps, batch, layer.input_size), start, resets, lengths, cells, seeds)
            self.assertLess(found, 30, (number, cell, options, steps, batch, lengths, cells, seeds))
            worst = max(worst, found)
        print(f"{COUNT} configurations with resets, worst residual {worst:.3g}")

    def test_one_layer_called_in_many_ways(self):
        """With a mask and without one, other lengths of time, packed, a single sequence, in evaluation and in training."""
        layer = bppsa.torch.LSTM(3, 5, 2, bidirectional=True, dropout=0.5).double().eval()
        fresh = copy.deepcopy(layer)
        kept = []
        for number in range(24):
            rng = random.Random(number)
            steps, batch = rng.choice((7, 12)), rng.choice((1, 4))
            x = torch.randn(steps, batch, 3, dtype=torch.float64, requires_grad=True)
            resets = torch.rand(steps, batch) < 0.3 if rng.random() < 0.6 else None
            lengths = [rng.randint(1, steps) for _ in range(batch)] if rng.random() < 0.4 else None
            if rng.random() < 0.3:  # a pass with dropout in between, whose backward pass follows at the end
                layer.train()
                kept.append(run(layer, x, None, resets, lengths)[0])
                layer.eval()
            self.assertLess(self.compare(layer, x, None, resets, lengths, number % 2 == 1, (0, 1, 2, 3)), 30)
            with torch.no_grad():
                results = [run(each, x, None, resets, lengths, True) for each in (layer, copy.deepcopy(fresh))]
            for one, other in zip(*results):
                self.assertTrue(torch.equal(one, other))
        for output in kept:
            self.assertTrue(all(torch.isfinite(each).all() for each in torch.autograd.grad(output.sum(), layer.parameters())))

    def test_dropout_reaches_samples_alone(self):
        """Dropout between layers with a mask and lengths: outputs behind an end stay 0."""
        layer = bppsa.torch.GRU(2, 4, 2, dropout=0.5)
        x, resets = torch.randn(9, 3, 2), torch.rand(9, 3) < 0.3
        torch.manual_seed(1)
        first = run(layer, x, None, resets, [9, 2, 5])[0]
        torch.manual_seed(1)
        self.assertTrue(torch.equal(run(layer, x, None, resets, [9, 2, 5])[0], first))
        self.assertEqual(first[2:, 1].abs().sum().item() + first[5:, 2].abs().sum().item(), 0)

    def test_a_reset_at_the_first_step(self):
        """h_0 is not read there, and its gradient is exactly 0; the reverse direction reads its own."""
        for cell, bidirectional in (("RNN", False), ("GRU", True), ("LSTM", False), ("LSTM", True)):
            for scan in ("bp", "chunked"):
                layer = getattr(bppsa.torch, cell)(3, 4, scan=scan, bidirectional=bidirectional)
                x, resets = torch.randn(6, 3, 3), torch.zeros(6, 3, dtype=torch.bool)
                resets[0, 1] = True
                start = [torch.randn(1 + bidirectional, 3, 4) for _ in range(1 + (cell == "LSTM"))]
                for part in start:
                    part[0, 1] = float("nan")
                    part.requires_grad_()
                output, *_ = run(layer, x, start, resets, None)
                self.assertTrue(torch.isfinite(output).all())
                for part in torch.autograd.grad(output.sum(), start):
                    self.assertEqual(part[0, 1].abs().sum().item(), 0)
                    self.assertTrue((part[0, ::2] != 0).all() and (not bidirectional or (part[1] != 0).all()))

    def test_nothing_crosses_a_reset(self):
        """NaN in one episode stays in it, forward and backward."""
        for cell in ("RNN", "GRU", "LSTM"):
            layer = getattr(bppsa.torch, cell)(2, 4)
            x, resets = torch.randn(9, 2, 2), torch.zeros(9, 2, dtype=torch.bool)
            resets[3, 0] = resets[6, 0] = True
            x[4, 0] = float("nan")
            x.requires_grad_()
            output = layer(x, None, resets)[0]
            finite = torch.isfinite(output).all(2)
            self.assertEqual(finite[:, 0].tolist(), [True] * 4 + [False] * 2 + [True] * 3)
            dx = torch.autograd.grad(output.sum(), x)[0]
            self.assertEqual(torch.isfinite(dx).all(2)[:, 0].tolist(), [True] * 3 + [False] * 3 + [True] * 3)
            self.assertTrue(finite[:, 1].all() and torch.isfinite(dx[:, 1]).all())

    def test_the_bits_of_a_segment_alone(self):
        """Float32, by BP; and a mask of zeros has the bits of none."""
        for cell in ("RNN", "GRU", "LSTM"):
            layer = getattr(bppsa.torch, cell)(3, 8, scan="bp")
            x, seed = torch.randn(20, 2, 3), torch.randn(20, 2, 8)
            resets = torch.zeros(20, 2, dtype=torch.bool)
            given = x.clone().requires_grad_()
            plain, masked = layer(given)[0], layer(given, None, resets)[0]
            self.assertTrue(torch.equal(plain, masked))
            inputs = [given, *layer.parameters()]
            for one, other in zip(*[torch.autograd.grad(each, inputs, seed) for each in (plain, masked)]):
                self.assertTrue(torch.equal(one, other))
            resets[[7, 13], 0] = True
            output = layer(given, None, resets)[0]
            dx = torch.autograd.grad(output, given, seed)[0]
            for first, end in ((0, 7), (7, 13), (13, 20)):
                alone = x[first:end, :1].clone().requires_grad_()
                found = layer(alone)[0]
                self.assertTrue(torch.equal(found, output[first:end, :1]), cell)
                self.assertTrue(torch.equal(torch.autograd.grad(found, alone, seed[first:end, :1])[0], dx[first:end, :1]), cell)

    def test_forms_of_a_mask(self):
        """Bytes, other strides, the batch first, a single sequence: the same bits."""
        layer, turned = bppsa.torch.GRU(3, 4), bppsa.torch.GRU(3, 4, batch_first=True)
        turned.load_state_dict(layer.state_dict())
        x, resets = torch.randn(8, 2, 3), torch.rand(8, 2) < 0.4
        expected = layer(x, None, resets)[0]
        for found in (layer(x, None, resets.byte())[0], layer(x, None, resets.t().contiguous().t())[0],
                      turned(x.transpose(0, 1), None, resets.t())[0].transpose(0, 1),
                      turned(pack_padded_sequence(x.transpose(0, 1), [8, 8], batch_first=True), None,
                             resets.t())[0].data.view(8, 2, 4),
                      layer(x, resets=resets)[0]):
            self.assertTrue(torch.equal(found, expected))
        self.assertTrue(torch.equal(layer(x[:, 0], None, resets[:, 0])[0], layer(x[:, :1], None, resets[:, :1])[0].squeeze(1)))

    def test_hooks_and_checkpoints(self):
        layer = bppsa.torch.LSTM(3, 4)
        x, resets = torch.randn(8, 2, 3, requires_grad=True), torch.rand(8, 2) < 0.4
        expected = torch.autograd.grad(layer(x, None, resets)[0].sum(), x)[0]
        with torch.autograd.graph.save_on_cpu():
            output = layer(x, None, resets)[0]
        self.assertTrue(torch.equal(torch.autograd.grad(output.sum(), x)[0], expected))
        output = checkpoint(lambda x: layer(x, None, resets)[0], x, use_reentrant=False)
        self.assertTrue(torch.equal(torch.autograd.grad(output.sum(), x)[0], expected))
        for _ in range(2):  # two passes before their backward passes
            other = layer(x, None, ~resets)[0]
        output = layer(x, None, resets)[0]
        other = layer(x)[0]
        self.assertTrue(torch.equal(torch.autograd.grad(output.sum(), x)[0], expected))
        self.assertTrue(other.requires_grad)
        output = layer(x, None, resets)[0]
        resets[0] = ~resets[0]  # as of any tensor that a backward pass reads
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            torch.autograd.grad(output.sum(), x)

    def test_refusals(self):
        layer, x = bppsa.torch.GRU(3, 4), torch.randn(8, 2, 3)
        packed = pack_padded_sequence(x, [8, 5])
        mask = torch.zeros(8, 2, dtype=torch.bool)
        two = mask.byte()
        two[5, 1] = 2
        for given, resets, kind, sentence in (
                (x, mask.t(), ValueError, r"resets is \[2, 8\], expected \[T, B\] = \[8, 2\]"),
                (x, mask.unsqueeze(2), ValueError, r"resets is \[8, 2, 1\], expected \[T, B\] = \[8, 2\]"),
                (x[:, 0], mask, ValueError, r"resets is \[8, 2\], expected \[T\] = \[8\]"),
                (packed, mask[:7], ValueError, r"resets is \[7, 2\], expected \[T, B\] = \[8, 2\]"),
                (x, mask.float(), TypeError, "resets: torch.float32, expected torch.bool, as .bool"),
                (x, mask.int(), TypeError, "resets: torch.int32, expected torch.bool, as .bool"),
                (x, mask.numpy(), TypeError, "resets is a ndarray, expected a tensor of torch.bool"),
                (x, True, TypeError, "resets is a bool, expected a tensor of torch.bool"),
                (x, mask.to_sparse(), NotImplementedError, "resets: its layout is torch.sparse_coo, expected a dense tensor"),
                (x, two, ValueError, r"resets\[5, 1\] is 2, expected 0 or 1"),
                (packed, two, ValueError, r"resets\[5, 1\] is 2, expected 0 or 1"),
                (x, mask.to("meta"), ValueError, "resets: on meta, expected cpu as the input")):
            with self.assertRaisesRegex(kind, "^bppsa.torch.GRU: " + sentence):
                layer(given, None, resets)
        turned = bppsa.torch.GRU(3, 4, batch_first=True)
        with self.assertRaisesRegex(ValueError, r"resets is \[8, 2\], expected \[B, T\] = \[2, 8\]"):
            turned(x.transpose(0, 1), None, mask)
        for given in (layer, bppsa.torch.RNN(3, 4)):
            with self.assertRaisesRegex(ValueError, "return_cells is True, expected False: only the state of an LSTM has c"):
                given(x, return_cells=True)
        self.assertTrue(torch.equal(layer(x, None, mask)[0], layer(x)[0]))  # nothing has changed

    def test_no_samples(self):
        layer = bppsa.torch.LSTM(3, 4, 2, bidirectional=True)
        x = torch.randn(5, 0, 3, requires_grad=True)
        output, last, cells = layer(x, None, torch.zeros(5, 0, dtype=torch.bool), return_cells=True)
        self.assertEqual([list(part.shape) for part in (output, *last, cells)], [[5, 0, 8], [4, 0, 4], [4, 0, 4], [5, 0, 8]])
        self.assertEqual(list(torch.autograd.grad(output.sum() + cells.sum(), x)[0].shape), [5, 0, 3])

    def test_all_cells(self):
        """Shapes with the batch first and of a single sequence; what follows them has gradients, and a gradient has them with
        stateless passes alone."""
        layer = bppsa.torch.LSTM(3, 4, batch_first=True)
        x = torch.randn(2, 6, 3, requires_grad=True)
        output, (h, c), cells = layer(x, return_cells=True)
        self.assertEqual([list(part.shape) for part in (output, cells)], [[2, 6, 4]] * 2)
        self.assertTrue(torch.equal(cells[:, -1], c[0]) and torch.equal(output[:, -1], h[0]))
        self.assertEqual([list(part.shape) for part in layer(x[0], return_cells=True)[::2]], [[6, 4]] * 2)
        step = torch.autograd.grad(cells[:, 2].sum(), x)[0]  # what c_3 depends on, and nothing else
        self.assertTrue((step[:, :3] != 0).all() and not step[:, 3:].any())
        gradient = torch.autograd.grad(layer(x, return_cells=True)[2].sum(), x, create_graph=True)[0]
        if MODERN:
            gradient.sum().backward()
            self.assertTrue(x.grad.any())
            return
        with self.assertRaisesRegex(NotImplementedError, "second derivatives are refused"):
            gradient.sum().backward()

    def test_packed_sequences_are_one_pass(self):
        layer = bppsa.torch.GRU(2, 4, scan="speculative", **SPECULATIVE)
        x = torch.randn(60, 4, 2)
        layer(pack_padded_sequence(x, [60, 41, 30, 12]))[0].data.square().sum().backward()
        self.assertEqual(layer.report()["backward"]["passes"], 1)
        self.assertTrue(layer.report()["backward"]["speculated"])

    def test_gradcheck(self):
        layer = bppsa.torch.LSTM(2, 3, bidirectional=True).double()
        x, resets = torch.randn(6, 2, 2, dtype=torch.float64, requires_grad=True), torch.rand(6, 2) < 0.4
        self.assertTrue(torch.autograd.gradcheck(lambda x: layer(x, None, resets, True)[::2], x))

    def test_learned_reset_state(self):
        """The parameter: its shape, its name, what it begins with; of one direction the gradient by finite differences, with the
        batch first, packed, and two directions; another layer reads it; without a mask it has no gradient."""
        for cell, pair in (("RNN", 1), ("GRU", 1), ("LSTM", 2)):
            make = getattr(bppsa.torch, cell)
            layer = make(2, 3, 2, bidirectional=True, batch_first=True, reset_state="learned").double()
            self.assertEqual(list(layer.state_dict())[-1], "reset_state")
            self.assertEqual(list(layer.reset_state.shape), [4, 3 * pair])
            self.assertEqual(layer.reset_state.abs().sum().item(), 0)
            self.assertIn("reset_state='learned'", repr(layer))
            plain = make(2, 3, 2, bidirectional=True, batch_first=True).double()
            self.assertEqual(set(layer.state_dict()) - set(plain.state_dict()), {"reset_state"})
            plain.load_state_dict({name: value for name, value in layer.state_dict().items() if name != "reset_state"})
            x, resets = torch.randn(2, 6, 2, dtype=torch.float64), torch.rand(2, 6) < 0.4
            resets[0, 0] = resets[1, 3] = True
            self.assertTrue(torch.equal(layer(x, None, resets)[0], plain(x, None, resets)[0]))  # zeros
            torch.nn.init.normal_(layer.reset_state)
            packed = pack_padded_sequence(x, [6, 4], batch_first=True)
            for run in (lambda: layer(x, None, resets)[0], lambda: layer(packed, None, resets)[0].data):
                def outputs(state):
                    with torch.no_grad():
                        layer.reset_state.copy_(state)
                    return run()

                def gradient(seed):
                    return torch.autograd.grad(run(), layer.reset_state, seed)[0]

                at, seed = layer.reset_state.detach().clone(), torch.randn_like(run())
                found = gradient(seed)
                for number in range(at.numel()):
                    step = torch.zeros_like(at).view(-1)
                    step[number] = 1e-6
                    slope = ((outputs(at + step.view_as(at)) - outputs(at - step.view_as(at))).detach() * seed).sum() / 2e-6
                    self.assertLess(abs(slope - found.view(-1)[number]).item(), 1e-7)
                outputs(at)
            other = copy.deepcopy(layer)
            self.assertTrue(torch.equal(other(x, None, resets)[0], layer(x, None, resets)[0]))
            self.assertIsNone(torch.autograd.grad(layer(x)[0].sum(), layer.reset_state, allow_unused=True)[0])
            output = layer(x, None, resets)[0]
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"), torch.no_grad():
                layer.reset_state.add_(1)
                with torch.enable_grad():
                    output.sum().backward()
            layer.reset_parameters()
            self.assertEqual(layer.reset_state.abs().sum().item(), 0)
            layer.reset_state = torch.nn.Parameter(torch.zeros(3, 3 * pair).double())
            with self.assertRaisesRegex(ValueError, r"reset_state is \[3, \d\], expected \[4, \d\]"):
                layer(x, None, resets)
            with self.assertRaisesRegex(ValueError, "reset_state is 'ones', expected 'zero' or 'learned'"):
                make(2, 3, reset_state="ones")

    def test_weights_of_the_program(self):
        """A state_dict under the cell's name is a file of weights of `grad`, which has the gradient of the reset state."""
        layer = bppsa.torch.LSTM(2, 3, 2, reset_state="learned").double()
        torch.nn.init.normal_(layer.reset_state)
        weights = {f"lstm.{name}": value.detach().numpy() for name, value in layer.named_parameters()}
        x, resets = torch.randn(7, 2, 2, dtype=torch.float64), torch.rand(7, 2) < 0.4
        layer(x, None, resets)[0].sum().backward()
        found = bppsa.grad("lstm", weights, x.numpy(), grad_output=np.ones((7, 2, 3)), resets=resets.numpy())
        for name, parameter in layer.named_parameters():
            self.assertLess(residual(found[f"lstm.{name}"], parameter.grad.numpy(), 7, "float64"), 30, name)

    def test_grad_of_numpy(self):
        """bppsa.grad with a mask, of bool, bytes and lists, beside the loop."""
        layer = torch.nn.GRU(2, 3).double()
        weights = {f"gru.{name}": value.detach().numpy() for name, value in layer.named_parameters()}
        x, resets = torch.randn(7, 2, 2, dtype=torch.float64, requires_grad=True), torch.rand(7, 2) < 0.4
        output = loops.outputs(layer, x, None, resets)[0]
        expected = torch.autograd.grad(output.sum(), x)[0].numpy()
        for mask in (resets.numpy(), resets.numpy().astype(np.uint8), resets.numpy().astype(np.int64), resets.tolist(), resets):
            found = bppsa.grad("gru", weights, x.detach().numpy(), grad_output=np.ones((7, 2, 3)), resets=mask)
            self.assertLess(residual(found["input"], expected, 7, "float64"), 30)
        for wrong, sentence in ((resets.numpy() * 2, "resets: dtype int64, expected bool, or whole numbers 0 and 1"),
                                (resets.numpy() * 1.0, "resets: dtype float64, expected bool, or whole numbers 0 and 1"),
                                (resets.numpy().T, r"resets.*\[2, 7\], expected .*\[7, 2\]")):
            with self.assertRaisesRegex(bppsa.RequestError, sentence):
                bppsa.grad("gru", weights, x.detach().numpy(), grad_output=np.ones((7, 2, 3)), resets=wrong)


if __name__ == "__main__":
    main()

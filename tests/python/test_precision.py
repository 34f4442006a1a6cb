"""Layers of bppsa.torch in bfloat16 and float16: types, values, gradients, training beside torch.nn's."""
import unittest

from support import has, main

if has("torch"):
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence

    import bppsa.torch

CELLS = ("RNN", "GRU", "LSTM")
OPTIONS = ({}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}, {"reset_state": "learned"})


def tensors(value):
    """All tensors of a layer's results."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [] if value is None else [each for part in value for each in tensors(part)]


@unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
class Precision(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def twins(self, cell, dtype, **options):
        """A layer in lower precision, and one in float32 with the same weights."""
        lower = getattr(bppsa.torch, cell)(3, 4, **options).to(dtype)
        wide = getattr(bppsa.torch, cell)(3, 4, **options)
        wide.load_state_dict(lower.state_dict())
        return lower, wide

    def assert_same(self, lower, wide, dtype, arguments, words=None):
        """Outputs and gradients are those in float32, rounded."""
        found, leaves = [], []
        for layer, change in ((lower, lambda t: t), (wide, lambda t: t.float())):
            each = [change(t.detach()).requires_grad_() for t in arguments["tensors"]]
            given, hx = arguments["make"](each)
            results = tensors(layer(given, hx, **(words or {})))
            floating = [t for t in results if t.is_floating_point()]
            sum((t.float() ** 2).sum() for t in floating).backward()
            found.append(floating)
            leaves.append([*each, *layer.parameters()])
        for one, other in zip(*found):
            self.assertIs(one.dtype, dtype)
            self.assertTrue(torch.equal(one, other.to(dtype)))
        for one, other in zip(*leaves):
            self.assertIs(one.grad.dtype, dtype)
            scale = other.grad.abs().max().item() + 1e-30  # the seed of the lower layer is rounded too
            self.assertLess((one.grad.float() - other.grad).abs().max().item(), 4 * torch.finfo(dtype).eps * scale)

    def test_layers(self):
        """Every cell and option: plain inputs, initial states, packed sequences, resets."""
        for dtype in (torch.bfloat16, torch.float16):
            for cell in CELLS:
                for options in OPTIONS:
                    lower, wide = self.twins(cell, dtype, **options)
                    states = 2 if cell == "LSTM" else 1
                    h = [torch.randn(len(lower._names), 2, 4, dtype=dtype) for _ in range(states)]
                    x = torch.randn(*((2, 6, 3) if "batch_first" in options else (6, 2, 3)), dtype=dtype)

                    def plain(each, states=states):
                        return each[0], (tuple(each[1:]) if states == 2 else each[1]) if len(each) > 1 else None

                    def packed(each, first="batch_first" in options):
                        return pack_padded_sequence(each[0], [6, 4], batch_first=first), None

                    with self.subTest(dtype=dtype, cell=cell, **options):
                        self.assert_same(lower, wide, dtype, {"tensors": [x], "make": plain}) if "reset_state" not in options \
                            else None
                        mask = torch.zeros(x.shape[:2], dtype=torch.bool)
                        mask[1, 1] = True
                        self.assert_same(*self.twins(cell, dtype, **options), dtype, {"tensors": [x, *h], "make": plain},
                                         {"resets": mask})
                        if "reset_state" not in options:
                            self.assert_same(*self.twins(cell, dtype, **options), dtype, {"tensors": [x], "make": packed})

    def test_autocast(self):
        """Results have the input's type, weights and their gradients their own."""
        layer = bppsa.torch.LSTM(3, 4, 2)
        x, h = torch.randn(5, 2, 3), torch.randn(2, 2, 4)
        for given, state in ((x, h), (x, h.bfloat16()), (x.bfloat16(), h), (x.bfloat16(), h.bfloat16()), (x.half(), None)):
            with torch.autocast("cpu", torch.bfloat16):
                output, last = layer(given, None if state is None else (state, state))
            self.assertEqual({t.dtype for t in tensors((output, last))}, {given.dtype})
            wide = None if state is None else (state.float(), state.float())
            self.assertTrue(torch.equal(output, layer(given.float(), wide)[0].to(given.dtype)))
            layer.zero_grad()
            output.float().sum().backward()
            self.assertEqual({p.grad.dtype for p in layer.parameters()}, {torch.float32})
        with torch.autocast("cpu", torch.bfloat16):
            self.assertIs(layer.bfloat16()(x)[0].dtype, torch.float32)
            self.assertIs(bppsa.torch.scan(x.bfloat16(), None, x[0].bfloat16()).dtype, torch.float32)

    def test_sequence_of_types(self):
        """One module in several types, one after the other: no pass reads what an earlier one kept."""
        layer, x = bppsa.torch.GRU(3, 4), torch.randn(5, 2, 3)
        for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.bfloat16, torch.float16, torch.float32):
            layer.to(dtype)
            reference = torch.nn.GRU(3, 4)
            reference.load_state_dict(layer.state_dict())
            output = layer(x.to(dtype))[0]
            self.assertIs(output.dtype, dtype)
            expected = reference(x.to(dtype).float())[0]
            self.assertLess((output.float() - expected).abs().max().item(), max(torch.finfo(dtype).eps, 1e-6))
            with torch.no_grad():
                layer.weight_hh_l0.mul_(0.9)  # in place: passes read the new values
            self.assertFalse(torch.equal(layer(x.to(dtype))[0], output))
            with self.assertRaises(TypeError):
                layer(x.to(torch.float64 if dtype is not torch.float64 else torch.float32))
        self.assertIs(layer(x)[0].dtype, torch.float32)

    def test_training(self):
        """50 steps from one start: the losses in bfloat16 stay as near to float32's as torch.nn's do under autocast."""
        start, x = torch.nn.GRU(2, 16), torch.randn(30, 8, 2)
        target, head = x.cumsum(0)[..., :1].tanh(), torch.randn(16, 1) / 4
        losses = {}
        for name, kind, dtype in (("nn", torch.nn.GRU, torch.float32), ("ours", bppsa.torch.GRU, torch.float32),
                                  ("lower", bppsa.torch.GRU, torch.bfloat16)):
            layer = kind(2, 16)
            layer.load_state_dict(start.state_dict())
            optimizer, losses[name] = torch.optim.Adam(layer.parameters(), lr=1e-2), []
            for _ in range(50):
                with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
                    output = layer(x.to(dtype))[0]
                loss = ((output.float() @ head - target) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses[name].append(loss.item())
        for one, other, lower in zip(losses["nn"], losses["ours"], losses["lower"]):
            self.assertAlmostEqual(one, other, delta=1e-4 * one)
            self.assertAlmostEqual(one, lower, delta=2e-2 * one)
        self.assertLess(losses["lower"][-1], losses["lower"][0] / 2)


main()

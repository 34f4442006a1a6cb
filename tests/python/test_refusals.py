"""What bppsa.torch does at its edges: batches of no sequences, mixed types, and sentences where PyTorch would record or transform a
layer instead of calling it with numbers."""
import io
import os
import re
import unittest
import warnings

import numpy as np

from support import has, main

if has("torch"):
    import torch

    import bppsa.torch

PAGE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "docs", "python.md")


@unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
class Edges(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        warnings.simplefilter("ignore")  # PyTorch's, about what it deprecates
        self.layer, self.x = bppsa.torch.GRU(3, 4, 2), torch.randn(5, 2, 3)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 3), self.layer)

    def assert_refused(self, sentence, function):
        """By a sentence of the package's on one line, which PyTorch may put into its own."""
        with self.assertRaisesRegex(Exception, sentence):
            function()

    def test_tracing_and_scripting(self):
        traced = r"bppsa.torch.GRU: torch.jit.trace cannot look into it, expected a layer of torch.nn with its state_dict " \
                 r"\(docs/python.md, \"Export\"\)"
        with torch.no_grad():
            self.assert_refused(traced, lambda: torch.jit.trace(self.layer, (self.x,), check_trace=False))
        self.assert_refused(traced, lambda: torch.jit.trace(self.model, (self.x,)))
        for model in (self.layer, self.model):
            self.assert_refused("bppsa.torch.GRU: torch.jit.script cannot", lambda: torch.jit.script(model))
        self.assert_refused("bppsa.torch.scan: torch.jit.trace cannot look into it, expected a loop over the steps",
                            lambda: torch.jit.trace(lambda a: bppsa.torch.scan(a, None, torch.zeros(2, 3)), (self.x,)))
        self.assert_refused("GRU: input is a Proxy, expected a tensor or a PackedSequence",
                            lambda: torch.fx.symbolic_trace(self.layer))
        self.assert_refused("GRU: input is a list, expected a tensor", lambda: self.layer([[1.0]]))
        with open(PAGE, encoding="utf-8") as page:
            self.assertIn("### Export", page.read())

    def test_onnx(self):
        older = {} if torch.__version__.startswith("1.") else {"dynamo": False}
        self.assert_refused("bppsa.torch.GRU: torch.jit.trace cannot",
                            lambda: torch.onnx.export(self.layer, (self.x,), io.BytesIO(), **older))

    @unittest.skipUnless(has("torch.export"), "this PyTorch has no torch.export")
    def test_export(self):
        for model in (self.layer, self.model):
            self.assert_refused("bppsa.torch.GRU: torch.export .*cannot",
                                lambda: torch.export.export(model, (self.x,), strict=False))
            self.assert_refused("bppsa.torch computes in C; where it has to be recorded, expected a layer of torch.nn",
                                lambda: torch.export.export(model, (self.x,), strict=True))

    @unittest.skipUnless(has("torch.func"), "this PyTorch has no torch.func")
    def test_transforms(self):
        batches = self.x.unsqueeze(0).repeat(2, 1, 1, 1)
        for transform in (lambda: torch.func.vmap(lambda x: self.layer(x)[0])(batches),
                          lambda: torch.func.grad(lambda x: self.layer(x)[0].sum())(self.x),
                          lambda: torch.func.jacrev(lambda x: self.layer(x)[0].sum())(self.x)):
            self.assert_refused("bppsa.torch.GRU: vmap, and other transforms of torch.func, cannot look into it", transform)
        self.assert_refused("bppsa.torch.scan: vmap, and other",
                            lambda: torch.func.vmap(lambda a: bppsa.torch.scan(a, None, torch.zeros(2, 3)))(batches))
        doubled = {name: 2 * weight for name, weight in self.layer.named_parameters()}
        found = torch.func.functional_call(self.layer, doubled, (self.x,))[0]
        self.layer.load_state_dict(doubled)
        self.assertTrue(torch.equal(found, self.layer(self.x)[0]))  # no transform

    def test_modes_that_record(self):
        from torch.fx.experimental.proxy_tensor import make_fx
        for what, function in (("GRU", lambda x: self.layer(x)[0]), ("scan", lambda x: bppsa.torch.scan(x, None, x[0]))):
            self.assert_refused(f"bppsa.torch.{what}: make_fx cannot look into it", lambda: make_fx(function)(self.x))
        if has("torch._subclasses.fake_tensor"):
            from torch._subclasses.fake_tensor import FakeTensorMode
            with FakeTensorMode() as mode:
                self.assert_refused(r"bppsa.torch.GRU: torch.export \(FakeTensorMode\) cannot",
                                    lambda: self.layer(mode.from_tensor(self.x)))

    def test_layouts(self):
        for layout, tensor in (("sparse", self.x.to_sparse()), ("mkldnn", self.x.to_mkldnn()),
                               ("nested", torch.nested_tensor([self.x[0]]) if not hasattr(torch, "nested")
                                else torch.nested.nested_tensor([self.x[0]]))):
            self.assert_refused(f"bppsa.torch.GRU: input: its layout is .*{layout}.*, expected a dense tensor",
                                lambda: self.layer(tensor))

    def test_what_is_no_tensor(self):
        for given in ([[0.0]], "zeros", self.x[:2].numpy(), (self.x[:2], self.x[:2])):
            self.assert_refused(f"bppsa.torch.GRU: hx is a {type(given).__name__}, expected a tensor",
                                lambda: self.layer(self.x, given))
            if not isinstance(given, str):
                self.assert_refused("bppsa.torch.scan: jt is a .*, expected a tensor",
                                    lambda: bppsa.torch.scan(given, None, self.x))
        self.assert_refused("bppsa.torch.LSTM: hx has a int, expected a tensor", lambda: bppsa.torch.LSTM(3, 4)(self.x, (0, 0)))
        self.assert_refused("bppsa.torch.scan: g is a NoneType, expected a tensor", lambda: bppsa.torch.scan(self.x, None, None))

    @unittest.skipUnless(has("torch.func"), "this PyTorch turns every error of a hook into one of its own")
    def test_errors_of_hooks_stay_theirs(self):
        def pack(_):
            raise KeyError("vmap over Fake")

        with self.assertRaises(KeyError), torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
            self.layer(self.x)

    def test_sizes_of_numpy(self):
        layer = bppsa.torch.GRU(np.int64(3), np.int32(4), num_layers=np.int8(2), bias=np.True_, batch_first=np.False_)
        layer.load_state_dict(self.layer.state_dict())
        self.assertTrue(torch.equal(layer(self.x)[0], self.layer(self.x)[0]))
        self.assertIs(type(layer.hidden_size), int)

    def test_packed_sequences_that_are_none(self):
        def packed(rows, sizes):
            return torch.nn.utils.rnn.PackedSequence(torch.randn(rows, 3), torch.tensor(sizes))

        for rows, sizes in ((4, [2, 3]), (5, [2, 2]), (3, [2, 2]), (1, [2, -1]), (0, [])):
            self.assert_refused("bppsa.torch.GRU: a PackedSequence of .* with batch_sizes .*, expected counts that do not grow",
                                lambda: self.layer(packed(rows, sizes)))
        theirs = torch.nn.GRU(3, 4, 2)
        theirs.load_state_dict(self.layer.state_dict())
        for rows, sizes in ((4, [2, 2, 0]), (3, [2, 1, 0, 0])):
            given = packed(rows, sizes)
            torch.testing.assert_close(self.layer(given)[0].data, theirs(given)[0].data)
        output, last = self.layer(packed(0, [0, 0]))
        self.assertEqual((output.data.shape, last.shape), ((0, 4), (2, 0, 4)))

    def test_many_seeds_at_once(self):
        def output(x):
            return self.layer(x)[0]

        sentence = "gradients of several seeds at once .* are refused, expected one seed after the other"
        self.assert_refused(sentence, lambda: torch.autograd.functional.jacobian(output, self.x[:1], vectorize=True))
        theirs = torch.nn.GRU(3, 4, 2)
        theirs.load_state_dict(self.layer.state_dict())
        torch.testing.assert_close(torch.autograd.functional.jacobian(output, self.x[:2]),
                                   torch.autograd.functional.jacobian(lambda x: theirs(x)[0], self.x[:2]))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(self.x, self.x)
            self.assert_refused("bppsa.torch.GRU: forward-mode differentiation cannot", lambda: self.layer(dual))
            self.assert_refused("bppsa.torch.scan: forward-mode differentiation cannot",
                                lambda: bppsa.torch.scan(dual, None, self.x[0]))

    def test_other_precisions(self):
        """Without autocast an input, a state and the weights must have one type."""
        for dtype in (torch.float16, torch.bfloat16):
            self.assert_refused(re.escape(f"GRU: input: {dtype}, expected torch.float32 as weight_ih_l0 has it, or torch.autocast"),
                                lambda: self.layer(self.x.to(dtype)))
            lower = bppsa.torch.GRU(3, 4).to(dtype)
            self.assert_refused(f"GRU: hx: torch.float32, expected {dtype} as the input, or torch.autocast",
                                lambda: lower(self.x.to(dtype), torch.zeros(1, 2, 4)))
            self.assert_refused(f"weight_ih_l0: {dtype}, expected torch.float32 or", lambda: lower(self.x))
            with torch.autocast("cpu", torch.bfloat16, enabled=False):
                self.assert_refused(f"input: {dtype}, expected", lambda: self.layer(self.x.to(dtype)))

    def test_no_sequences(self):
        """[T,0,H], and gradients of 0, as torch.nn has them."""
        for cell in ("RNN", "GRU", "LSTM"):
            for options in ({}, {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False}):
                found = []
                for library in (torch.nn, bppsa.torch):
                    layer = getattr(library, cell)(3, 4, **options)
                    x = torch.zeros((0, 5, 3) if options else (5, 0, 3), requires_grad=True)
                    start = [torch.zeros(4 if options else 1, 0, 4, requires_grad=True) for _ in range(1 + (cell == "LSTM"))]
                    output, last = layer(x, tuple(start) if cell == "LSTM" else start[0])
                    tensors = [x, *start, *layer.parameters()]
                    found.append([output, *(last if cell == "LSTM" else [last]), *torch.autograd.grad(output.sum(), tensors)])
                for one, other in zip(*found):
                    self.assertTrue(torch.equal(one, other), (cell, options))
                    self.assertEqual(one.shape, other.shape)
        with torch.no_grad():
            self.assertEqual(self.layer(torch.zeros(5, 0, 3))[0].shape, (5, 0, 4))
        x = torch.zeros(5, 0, 3, requires_grad=True)
        first = torch.autograd.grad(self.layer(x)[0].sum(), [x, *self.layer.parameters()], create_graph=True)
        for gradient in torch.autograd.grad(sum(each.sum() for each in first), list(self.layer.parameters())):
            self.assertTrue(bool((gradient == 0).all()))
        self.assert_refused("input is .0, 2, 3., expected 3 numbers in each step, at least one step and one number",
                            lambda: self.layer(self.x[:0]))
        self.assert_refused(r"hx is \[2, 2, 4\], expected \[2, 0, 4\]", lambda: self.layer(self.x[:, :0], torch.zeros(2, 2, 4)))

    def test_scans_of_nothing(self):
        for shape in ((0, 2, 3), (5, 0, 3), (5, 2, 0)):
            for dense in (False, True):
                jt = torch.ones(*shape, *([shape[2]] if dense else []), requires_grad=True)
                u, g = torch.ones(shape, requires_grad=True), torch.ones(shape[1:], requires_grad=True)
                for injected in (u, None):
                    tensors = [each for each in (jt, injected, g) if each is not None]
                    found = bppsa.torch.scan(jt, injected, g)
                    self.assertEqual(found.shape, shape)
                    for gradient, tensor in zip(torch.autograd.grad(found.sum(), tensors), tensors):
                        self.assertTrue(torch.equal(gradient, torch.zeros_like(tensor)))
                self.assertEqual(bppsa.scan(jt, None, g).shape, shape)


if __name__ == "__main__":
    main()

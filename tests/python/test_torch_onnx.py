"""Layers of bppsa.torch as nodes of ONNX: what torch.onnx.export writes, run by onnxruntime and by onnx's own evaluator, gives the
layers' results. Skipped where one of the packages onnx, onnxscript and onnxruntime is missing (bench/rivals/setup has them)."""
import io
import itertools
import unittest
import warnings

import numpy as np

from support import has, main

MODERN = False
if has("torch"):
    import torch

    import bppsa.torch
    from bppsa._tensors import MODERN

MISSING = [name for name in ("onnx", "onnxscript", "onnxruntime") if not has(name)]
CELLS = ("RNN", "GRU", "LSTM")


def leaves(tree):
    return torch.utils._pytree.tree_leaves(tree)


class Model(torch.nn.Module if MODERN else object):
    """A layer between others, which is given initial states or not."""

    def __init__(self, layer):
        super().__init__()
        self.first, self.layer = torch.nn.Linear(3, layer.input_size), layer

    def forward(self, x, *states):
        return self.layer(self.first(x), tuple(states) if len(states) == 2 else states[0] if states else None)


@unittest.skipUnless(MODERN, "this PyTorch is older than 2.5")
@unittest.skipIf(MISSING, f"{', '.join(MISSING)} missing, expected the packages, as bench/rivals/setup installs them")
class Onnx(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        warnings.simplefilter("ignore")  # PyTorch's, about what it deprecates

    def export(self, model, inputs, **options):
        """The file as onnx reads it."""
        import onnx
        program = torch.onnx.export(model.eval(), inputs, dynamo=True, verbose=False,
                                    custom_translation_table=bppsa.torch.onnx_translations(), **options)
        file = io.BytesIO()
        program.save(file)
        made = onnx.load_from_string(file.getvalue())
        onnx.checker.check_model(made, full_check=True)
        return made

    def compare(self, made, model, inputs, what, evaluate=False):
        import onnxruntime
        from onnx.reference import ReferenceEvaluator
        named = {value.name: tensor.numpy() for value, tensor in zip(made.graph.input, inputs)}
        expected = [each.detach().numpy() for each in leaves(model(*inputs))]
        runners = [onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])]
        for runner in (*runners, *([ReferenceEvaluator(made)] if evaluate else [])):
            found = runner.run(None, named)
            self.assertEqual(len(found), len(expected), what)
            for one, other in zip(found, expected):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=str(what))

    def test_layers(self):
        for cell, several, states in itertools.product(CELLS, (False, True), (False, True)):
            bias = several != states
            options = {"num_layers": 2, "bidirectional": True, "batch_first": True} if several else {}
            if cell == "RNN" and several:
                options["nonlinearity"] = "relu"
            model = Model(getattr(bppsa.torch, cell)(4, 5, bias=bias, **options))
            given = [torch.randn(4 if several else 1, 2, 5) for _ in range((1 + (cell == "LSTM")) * states)]
            inputs = (torch.randn(*((2, 6) if several else (6, 2)), 3), *given)
            with torch.set_grad_enabled(several):  # with gradients the pass has a tape, which no node of ONNX has
                made = self.export(model, inputs)
            kinds = [node.op_type for node in made.graph.node]
            self.assertEqual(kinds.count(cell), 4 if several else 1, kinds)
            self.assertFalse([node for node in made.graph.node if node.domain not in ("", "ai.onnx")])
            self.compare(made, model, inputs, (cell, several, states), evaluate=not several)

    def test_other_lengths_and_batches(self):
        for cell in CELLS:
            model, dim = Model(getattr(bppsa.torch, cell)(4, 5, 2)), torch.export.Dim
            made = self.export(model, (torch.randn(6, 2, 3),), dynamic_shapes=({0: dim("T", min=2), 1: dim("B", min=2)},))
            for shape in ((6, 2, 3), (11, 3, 3)):
                self.compare(made, model, (torch.randn(*shape),), (cell, shape))

    def test_a_program_that_was_exported_before(self):
        model, x = Model(bppsa.torch.LSTM(4, 5)), torch.randn(6, 2, 3)
        made = self.export_of(torch.export.export(model.eval(), (x,)))
        self.compare(made, model, (x,), "program")

    def export_of(self, program):
        import onnx
        file = io.BytesIO()
        torch.onnx.export(program, dynamo=True, verbose=False,
                          custom_translation_table=bppsa.torch.onnx_translations()).save(file)
        return onnx.load_from_string(file.getvalue())

    def test_what_is_refused(self):
        layer, mask = bppsa.torch.LSTM(3, 5), torch.zeros(6, 2, dtype=torch.bool)

        class Resets(torch.nn.Module):
            def __init__(self, cells):
                super().__init__()
                self.layer, self.cells = layer, cells

            def forward(self, x, mask):
                return self.layer(x, None, None if self.cells else mask, self.cells)

        for cells, sentence in ((False, "a mask of resets cannot become a node LSTM of ONNX"),
                                (True, "a layer that returns c_1 .. c_T cannot become a node LSTM of ONNX")):
            with self.assertRaises(Exception) as refused:
                self.export(Resets(cells), (torch.randn(6, 2, 3), mask))
            reasons, reason = [], refused.exception
            while reason is not None:
                reasons.append(str(reason))
                reason = reason.__cause__
            self.assertIn(sentence + ", expected a layer of torch.nn with its state_dict", " ".join(reasons))


if __name__ == "__main__":
    main()

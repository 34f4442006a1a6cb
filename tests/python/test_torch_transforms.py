"""bppsa.torch with a PyTorch that has stateless passes (2.5 or newer): second derivatives, torch.func, forward mode, torch.compile,
torch.export, operators, threads, memory. Against torch.nn's plain autograd in float64. At full length (BPPSA_TEST_LENGTH=full)
300 random layers each."""
import copy
import gc
import itertools
import os
import pickle
import threading
import unittest
import warnings
from unittest import mock

from support import has, main

MODERN = False
if has("torch"):
    import torch
    import torch.utils.checkpoint

    import bppsa.torch
    from bppsa import _native
    from bppsa._tensors import MODERN
    from torch_reference import CELLS, Calls, Random, compare, flat, leaves, real, twins, worst

FULL = os.environ.get("BPPSA_TEST_LENGTH") == "full"
CLOSE = 1e-12


@unittest.skipUnless(MODERN, "this PyTorch is older than 2.5, whose layers lease memory")
class Modern(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch.set_num_threads(2)
        warnings.simplefilter("ignore")  # PyTorch's, about what it deprecates


class Derivatives(Modern):
    def test_random_layers(self):
        """Values, gradients, gradients of gradients, forward mode and Hessian-vector products."""
        for seed in range(300 if FULL else 20):
            case = Random(seed)
            for what, difference in compare(case).items():
                self.assertLess(difference, CLOSE, (seed, what, str(case)))

    def test_gradcheck(self):
        for cell in CELLS:
            for dtype_layers in (1, 2):
                layer = getattr(bppsa.torch, cell)(2, 3, dtype_layers).double()
                x, parts = real(4, 2, 2, requires_grad=True), [real(dtype_layers, 2, 3, requires_grad=True)
                                                               for _ in range(1 + (cell == "LSTM"))]
                names = [name for name, _ in layer.named_parameters()]

                def results(x, *rest):
                    state = tuple(rest[:2]) if cell == "LSTM" else rest[0]
                    weights = dict(zip(names, rest[len(parts):]))
                    return tuple(flat(torch.func.functional_call(layer, weights, (x, state))))

                inputs = (x, *parts, *[weight.detach().requires_grad_() for weight in layer.parameters()])
                self.assertTrue(torch.autograd.gradcheck(results, inputs, check_forward_ad=True, check_batched_grad=True,
                                                         check_batched_forward_grad=True))
                self.assertTrue(torch.autograd.gradgradcheck(results, inputs, check_fwd_over_rev=True, check_rev_over_rev=True))

    def test_resets_and_lengths(self):
        """Second derivatives of passes with resets, a learned reset state and several lengths, against a loop of cells."""
        mask = torch.rand(6, 3) < 0.3
        for cell in CELLS:
            layer = getattr(bppsa.torch, cell)(2, 3, reset_state="learned").double()
            with torch.no_grad():
                layer.reset_state.uniform_(-1, 1)
            x = real(6, 3, 2, requires_grad=True)

            def loop(x):
                step, rows = copy.deepcopy(layer), []
                step._parameters = layer._parameters
                begins = layer.reset_state[0].split(3)
                state = [torch.zeros(3, 3, dtype=torch.float64)] * (1 + (cell == "LSTM"))
                one = getattr(torch.nn, cell)(2, 3).double()
                for t in range(6):
                    state = [torch.where(mask[t].unsqueeze(1), begin, part) for begin, part in zip(begins, state)]
                    given = tuple(part.unsqueeze(0) for part in state)
                    weights = {name: weight for name, weight in layer._parameters.items() if name != "reset_state"}
                    output, last = torch.func.functional_call(one, weights, (x[t:t + 1], given if cell == "LSTM" else given[0]))
                    state = [part[0] for part in (last if cell == "LSTM" else [last])]
                    rows.append(output)
                return torch.cat(rows)

            found = []
            for function in (lambda x: layer(x, None, mask)[0], loop):
                tensors = [x, *layer.parameters()]
                first = torch.autograd.grad(function(x).square().sum(), tensors, create_graph=True)
                found.append([first, torch.autograd.grad(sum(each.square().sum() for each in first), tensors)])
            self.assertLess(worst(*found), CLOSE, cell)
            theirs, ours = twins(cell, 2, 3, 2)
            found = []
            for layer_ in (theirs, ours):
                packed = torch.nn.utils.rnn.pack_padded_sequence(x, [6, 4, 1])
                output, last = layer_(packed)
                tensors = [x, *layer_.parameters()]
                first = torch.autograd.grad(output.data.square().sum() + sum(each.sum() for each in leaves(last)), tensors,
                                            create_graph=True)
                found.append([first, torch.autograd.grad(sum(each.square().sum() for each in first), tensors)])
            self.assertLess(worst(found[1], found[0]), CLOSE, cell)

    def test_cells_of_an_lstm(self):
        """c_1 .. c_T: gradients of gradients by difference quotients."""
        layer = bppsa.torch.LSTM(2, 3).double()

        def results(x):
            output, (h, c), cells = layer(x, None, None, True)
            return output, h, c, cells

        x = real(4, 2, 2, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(results, (x,), check_forward_ad=True))
        self.assertTrue(torch.autograd.gradgradcheck(results, (x,)))

    def test_what_is_refused(self):
        layer, x = bppsa.torch.GRU(2, 3).double(), real(4, 2, 2, requires_grad=True)
        function = lambda x: layer(x)[0].sum()
        with self.assertRaisesRegex(NotImplementedError, "third derivatives are refused, expected a layer of torch.nn"):
            torch.func.grad(lambda x: torch.func.grad(lambda x: torch.func.grad(function)(x).square().sum())(x).square().sum())(x)
        with self.assertRaisesRegex(NotImplementedError, "third derivatives are refused"):
            twice = lambda x: torch.func.jvp(lambda x: torch.func.jvp(function, (x,), (x,))[1], (x,), (x,))[1]
            torch.func.grad(twice)(x)
        total = function(x)
        first, = torch.autograd.grad(total, x, create_graph=True)
        second, = torch.autograd.grad(first.square().sum(), x, create_graph=True)
        with self.assertRaisesRegex(NotImplementedError, "third derivatives are refused"):
            torch.autograd.grad(second.sum(), x)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            with torch.no_grad():
                layer.weight_hh_l0.mul_(2)
            torch.autograd.grad(first.sum(), x)

    def test_third_derivatives(self):
        """However three derivatives follow each other, in inputs and in weights: a sentence, and never a wrong number."""
        func = torch.func
        for cell in CELLS:
            layer = getattr(bppsa.torch, cell)(2, 2).double()
            x, name = real(3, 1, 2), "weight_hh_l0"
            weights = {key: weight.detach() for key, weight in layer.named_parameters()}
            of_x = lambda x: func.functional_call(layer, weights, (x,))[0].square().sum()
            of_weight = lambda w: func.functional_call(layer, {**weights, name: w}, (x,))[0].square().sum()
            for transforms in itertools.product((func.jacrev, func.jacfwd), repeat=3):
                for function, point in ((of_x, x), (of_weight, weights[name])):
                    for transform in transforms:
                        function = transform(function)
                    with self.assertRaisesRegex(NotImplementedError, "third derivatives are refused"):
                        function(point)

    def test_data_that_is_exchanged(self):
        """A graph of gradients over weights that have other memory by then is refused; gradients alone are the forward pass's."""
        layer, x = bppsa.torch.GRU(2, 3).double(), real(4, 2, 2)
        output = layer(x)[0]
        layer.weight_hh_l0.data = torch.zeros_like(layer.weight_hh_l0)
        torch.autograd.grad(output.sum(), layer.weight_ih_l0, retain_graph=True)
        with self.assertRaisesRegex(bppsa.RequestError, "w_hh has had other memory since its pass"):
            torch.autograd.grad(output.sum(), layer.weight_ih_l0, create_graph=True)


class Functions(Modern):
    """torch.func, against loops."""

    def check(self, found, expected, what=None):
        self.assertLess(worst(found, expected), CLOSE, what)

    def each(self):
        for cell in CELLS:
            theirs, ours = twins(cell, 3, 4, 2)
            weights = {name: weight.detach() for name, weight in ours.named_parameters()}

            def loss(layer):
                return lambda weights, x: torch.func.functional_call(layer, weights, (x,))[0].square().sum()

            yield cell, theirs, ours, loss(theirs), loss(ours), weights

    def test_vmap(self):
        xs = real(5, 6, 2, 3)
        for cell, theirs, ours, their_loss, our_loss, weights in self.each():
            alone = [flat(theirs(x)) for x in xs]
            self.check(torch.func.vmap(lambda x: flat(ours(x)))(xs), [torch.stack(parts) for parts in zip(*alone)], cell)
            self.check(torch.func.vmap(lambda x: flat(ours(x)), 2)(xs.movedim(0, 2)),
                       [torch.stack(parts) for parts in zip(*alone)], cell)
            per_sample = torch.func.vmap(torch.func.grad(our_loss), (None, 0))(weights, xs)
            loop = [torch.func.grad(their_loss)(weights, x) for x in xs]
            self.check(per_sample, {name: torch.stack([each[name] for each in loop]) for name in weights}, cell)
            self.check(torch.func.grad(lambda weights: torch.func.vmap(lambda x: our_loss(weights, x))(xs).sum())(weights),
                       {name: sum(each[name] for each in loop) for name in weights}, cell)
            many = {name: torch.stack([weight, 0.5 * weight, -weight]) for name, weight in weights.items()}
            ensemble = torch.func.vmap(torch.func.grad(our_loss), (0, None))(many, xs[0])
            loop = [torch.func.grad(their_loss)({name: weight[k] for name, weight in many.items()}, xs[0]) for k in range(3)]
            self.check(ensemble, {name: torch.stack([each[name] for each in loop]) for name in weights}, cell)
            both = torch.func.vmap(torch.func.vmap(our_loss, (None, 0)), (0, None))(many, xs)
            self.check(both, torch.stack([torch.stack([their_loss({name: weight[k] for name, weight in many.items()}, x)
                                                       for x in xs]) for k in range(3)]), cell)

    def test_jacobians_and_hessians(self):
        func = torch.func
        for cell, theirs, ours, their_loss, our_loss, weights in self.each():
            x, along = real(4, 2, 3), real(4, 2, 3)
            name = "weight_hh_l0"
            for transform in (lambda layer, loss: func.jacrev(lambda x: layer(x)[0])(x),
                              lambda layer, loss: func.jacfwd(lambda x: flat(layer(x)))(x),
                              lambda layer, loss: func.hessian(lambda x: loss(weights, x))(x),
                              lambda layer, loss: func.hessian(lambda w: loss({**weights, name: w}, x))(weights[name]),
                              lambda layer, loss: func.jacrev(func.jacrev(lambda x: loss(weights, x)))(x),
                              lambda layer, loss: func.jacrev(func.jacfwd(lambda x: loss(weights, x)))(x),
                              lambda layer, loss: func.jacfwd(func.jacfwd(lambda x: loss(weights, x)))(x),
                              lambda layer, loss: func.jacfwd(func.jacfwd(lambda w: loss({**weights, name: w}, x)))(weights[name]),
                              lambda layer, loss: func.jvp(layer, (x,), (along,)),
                              lambda layer, loss: func.vjp(loss, weights, x)[1](torch.ones((), dtype=torch.float64))):
                self.check(transform(ours, our_loss), transform(theirs, their_loss), cell)

    def test_linearize(self):
        for cell in CELLS:
            theirs, ours = twins(cell, 3, 4, 2)
            x, along = real(4, 2, 3), real(4, 2, 3)
            self.check(torch.func.linearize(lambda x: ours(x)[0], x)[1](along),
                       torch.func.jvp(lambda x: theirs(x)[0], (x,), (along,))[1], cell)

    def test_autograd_functional(self):
        functional = torch.autograd.functional
        for cell in CELLS:
            theirs, ours = twins(cell, 2, 3)
            x = real(4, 2, 2)
            expected = functional.jacobian(lambda x: theirs(x)[0], x)
            for options in ({}, {"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}):
                self.check(functional.jacobian(lambda x: ours(x)[0], x, **options), expected, (cell, options))
            found, expected = (functional.hessian(lambda x: layer(x)[0].square().sum(), x, vectorize=True) if layer is ours else
                               functional.hessian(lambda x: layer(x)[0].square().sum(), x) for layer in (ours, theirs))
            self.check(found, expected, cell)


class Recorded(Modern):
    """torch.compile, torch.export, make_fx, fake tensors and the operators."""

    def compare(self, model, compiled, layer, x):
        found = []
        for function in (model, compiled):
            given = x.clone().requires_grad_()
            results = flat(function(given))
            found.append([results, torch.autograd.grad(sum(each.square().sum() for each in results), [given, *model.parameters()])])
        self.assertLess(worst(found[1], found[0]), 1e-13)

    def test_compile(self):
        for backend in ("eager", "aot_eager", "inductor"):
            for cell, options in zip(CELLS, ({}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True})):
                torch._dynamo.reset()
                layer = getattr(bppsa.torch, cell)(3, 4, **options).double()
                model = torch.nn.Sequential(torch.nn.Linear(3, 3).double(), layer)
                compiled = torch.compile(model, fullgraph=True, backend=backend)
                self.compare(model, compiled, layer, real(5, 2, 3))
                self.compare(model, compiled, layer, real(7, 3, 3))  # of another shape
                with torch.no_grad():
                    self.assertTrue(torch.equal(compiled(real(5, 2, 3))[0], compiled(real(5, 2, 3))[0]) is False)
                if backend == "inductor" and not FULL:
                    break

    def test_compile_with_symbols(self):
        torch._dynamo.reset()
        layer = bppsa.torch.LSTM(3, 4, 2).double()
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
        for shape in ((5, 2, 3), (9, 4, 3), (11, 3, 3)):
            self.compare(layer, compiled, layer, real(*shape))

    def test_compile_with_resets_states_and_autocast(self):
        torch._dynamo.reset()
        layer = bppsa.torch.GRU(3, 4)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        x, state, mask = torch.randn(5, 2, 3), torch.randn(1, 2, 4), torch.rand(5, 2) < 0.3
        for one, other in zip(compiled(x, state, mask), layer(x, state, mask)):
            self.assertTrue(torch.equal(one, other))
        with torch.autocast("cpu", torch.bfloat16):
            for one, other in zip(compiled(x.bfloat16()), layer(x.bfloat16())):
                self.assertEqual(one.dtype, torch.bfloat16)
                self.assertTrue(torch.equal(one, other))

    def test_second_derivatives_of_what_is_compiled(self):
        """By the backend that keeps autograd's graph they hold; AOT autograd says that it has none."""
        torch._dynamo.reset()
        layer, x = bppsa.torch.GRU(3, 4).double(), real(5, 2, 3, requires_grad=True)
        found = []
        for function in (layer, torch.compile(layer, fullgraph=True, backend="eager")):
            first, = torch.autograd.grad(function(x)[0].square().sum(), x, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), x))
        self.assertLess(worst(found[1], found[0]), CLOSE)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        with self.assertRaisesRegex(RuntimeError, "double backward"):
            first, = torch.autograd.grad(compiled(x)[0].square().sum(), x, create_graph=True)
            torch.autograd.grad(first.square().sum(), x)

    def test_transforms_within_compile(self):
        """They are refused in a sentence, or called as they are: none gives another result without a word."""
        layer, x, func = bppsa.torch.GRU(3, 4).double(), real(5, 2, 3), torch.func

        def loss(x):
            return layer(x)[0].square().sum()

        def alone(x):
            return layer(x.unsqueeze(1))[0]

        for transform in (func.grad(loss), func.vmap(alone), func.vmap(func.grad(lambda x: alone(x).square().sum())),
                          func.grad(lambda x: func.vmap(alone)(x).square().sum()),
                          lambda x: func.jvp(lambda x: layer(x)[0], (x,), (x,))[1],
                          lambda x: func.jvp(func.grad(loss), (x,), (x,))[1]):
            torch._dynamo.reset()
            expected = transform(x)
            try:
                found = torch.compile(lambda x: transform(x), backend="aot_eager")(x)
            except Exception as reason:  # whatever PyTorch makes of the package's
                self.assertIn("a transform of torch.func within torch.compile or around an operator is refused", str(reason))
            else:  # called as it is
                self.assertLess(worst(found, expected), CLOSE)

    def test_operators_along_a_direction(self):
        """torch.ops.bppsa.forward itself is differentiated in forward mode: the derivative is not 0."""
        layer, x = bppsa.torch.GRU(3, 4).double(), real(5, 2, 3)
        arrays = [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0]
        text = "gru|False|auto|sequential|0|-1|-1.0||-1"

        def output(x):
            return torch.ops.bppsa.forward([x, *arrays], "x w_ih w_hh b_ih b_hh", "y h_last h saved", text)[0]

        with torch.autograd.forward_ad.dual_level():
            found = torch.autograd.forward_ad.unpack_dual(output(torch.autograd.forward_ad.make_dual(x, x))).tangent
        self.assertLess(worst(found, torch.func.jvp(lambda x: layer(x)[0], (x,), (x,))[1]), CLOSE)

    def test_export(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), bppsa.torch.GRU(3, 4, 2))
        x = torch.randn(5, 2, 3)
        for strict in (False, True):
            program = torch.export.export(model, (x,), strict=strict,
                                          dynamic_shapes=[{0: torch.export.Dim("T", min=2), 1: torch.export.Dim("B", min=2)}])
            for given in (x, torch.randn(9, 3, 3)):
                for one, other in zip(flat(program.module()(given)), flat(model(given))):
                    self.assertTrue(torch.equal(one, other))
            names = {str(node.target) for node in program.graph.nodes}
            self.assertIn("bppsa.forward.default", names)

    def test_make_fx_and_fake_tensors(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import make_fx
        layer, x = bppsa.torch.LSTM(3, 4), torch.randn(5, 2, 3)
        for one, other in zip(flat(make_fx(layer)(x)(x)), flat(layer(x))):
            self.assertTrue(torch.equal(one, other))
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            self.assertEqual([tuple(part.shape) for part in flat(layer(mode.from_tensor(x)))], [(5, 2, 4), (1, 2, 4), (1, 2, 4)])

    def test_opcheck(self):
        x, state = torch.randn(5, 2, 3), torch.randn(2, 4)
        for cell, rows, states in (("rnn", 4, 1), ("gru", 12, 1), ("lstm", 16, 2)):
            text = f"{cell}|False|auto|sequential|0|-1|-1.0||-1"
            named = {"x": x, "h0": state, **({"c0": state} if states == 2 else {}), "w_ih": torch.randn(rows, 3) / 2,
                     "w_hh": torch.randn(rows, 4) / 2, "b_ih": torch.randn(rows), "b_hh": torch.randn(rows)}
            named = {name: array.clone().requires_grad_() for name, array in named.items()}
            results = bppsa._passes.results_of(cell, True, states == 2, False)
            calls = [("forward", named, results)]
            tape = dict(zip(results.split(), torch.ops.bppsa.forward(list(named.values()), " ".join(named), results, text)))
            tape = {name: array.detach() for name, array in tape.items() if name in bppsa._passes.TAPE}
            seeds = {"of_y": torch.randn(5, 2, 4, requires_grad=True), "of_h_last": torch.randn(2, 4, requires_grad=True)}
            calls.append(("backward", {**named, **tape, **seeds}, "of_x of_h0 of_w_ih of_w_hh of_b_hh"))
            along = {f"d_{name}": torch.randn_like(array).requires_grad_() for name, array in named.items()}
            calls.append(("tangent", {**named, **tape, **along}, "d_h d_c" if states == 2 else "d_h"))
            for kind, arrays, wanted in calls:
                torch.library.opcheck(getattr(torch.ops.bppsa, kind).default,
                                      (list(arrays.values()), " ".join(arrays), wanted, text))

    def test_arrays_that_do_not_fit(self):
        x, w_ih, w_hh = torch.randn(5, 2, 3), torch.randn(12, 3), torch.randn(12, 4)
        text = "gru|False|auto|sequential|0|-1|-1.0||-1"
        call = lambda arrays, names, results="y h_last", text=text: torch.ops.bppsa.forward(arrays, names, results, text)
        for sentence, function in {
                r"forward: w_hh is torch.float32 \[8, 4\] on cpu, expected torch.float32 \[12, 4\] on cpu":
                    lambda: call([x, w_ih, w_hh[:8]], "x w_ih w_hh"),
                "forward: w_ih is torch.float64": lambda: call([x, w_ih.double(), w_hh], "x w_ih w_hh"),
                "forward: expected x .T, B, I., w_ih": lambda: call([x, w_ih], "x w_ih"),
                "'weights' is no array of a pass": lambda: call([x, w_ih], "x weights"),
                "3 arrays, expected 2": lambda: call([x, w_ih, w_hh], "x w_ih"),
                "layer 'gru', expected 9 parts": lambda: call([x, w_ih, w_hh], "x w_ih w_hh", "y", "gru"),
                "no cell 'gry', expected rnn, gru, lstm":
                    lambda: call([x, w_ih, w_hh], "x w_ih w_hh", "y", text.replace("gru", "gry"))}.items():
            with self.assertRaisesRegex(bppsa.RequestError, sentence):
                function()


class Long(Modern):
    """Long sequences of calls, threads, memory."""

    def test_threads(self):
        layer = bppsa.torch.GRU(3, 8, 2).double()
        x = [real(20, 3, 3) for _ in range(4)]

        def work(k):
            given = x[k].clone().requires_grad_()
            first = torch.autograd.grad(layer(given)[0].square().sum(), [given, *layer.parameters()], create_graph=True)
            return [*first, *torch.autograd.grad(sum(each.square().sum() for each in first), [given, *layer.parameters()])]

        expected, found = [work(k) for k in range(4)], [[] for _ in range(4)]

        def several(k):
            for _ in range(10):
                found[k].append(work(k))

        threads = [threading.Thread(target=several, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for k, results in enumerate(found):
            self.assertEqual(len(results), 10)
            for result in results:
                self.assertTrue(all(torch.equal(one, other) for one, other in zip(result, expected[k])))

    def test_the_same_pass_again(self):
        """A pass whose like has been computed goes a shorter way, with the same bits, whatever came between."""
        for cell in CELLS:
            layer, x = getattr(bppsa.torch, cell)(3, 4, 2).double(), real(5, 2, 3)

            def once(given):
                results = flat(layer(given))
                return [*results, *torch.autograd.grad(results[0].sum() + results[1].square().sum(), list(layer.parameters()))]

            expected = once(x)
            once(real(6, 2, 3))
            layer.float()(x.float())
            layer.double()
            with self.assertRaisesRegex(ValueError, "input is"):
                layer(real(5, 2, 4))
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor.flatten()):
                output = layer(x)[0]
                with self.assertRaisesRegex(bppsa.RequestError, "saved for the backward pass came back as"):
                    output.sum().backward()
            with mock.patch.object(bppsa._derivatives, "compute", side_effect=AssertionError("the longer way")):
                for given in (x, x.clone(), x.transpose(0, 1).contiguous().transpose(0, 1)):
                    for one, other in zip(once(given), expected):
                        self.assertTrue(torch.equal(one, other), cell)
                self.assertTrue(torch.equal(flat(torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False))[0], expected[0]))
                with self.assertRaisesRegex(AssertionError, "the longer way"):
                    once(real(4, 2, 3))
            results = flat(layer(x))
            for saved in results[0].grad_fn._raw_saved_tensors:  # hooks that come behind the forward pass
                saved.register_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor)
            total = results[0].sum() + results[1].square().sum()
            for retain in (True, False):
                found = torch.autograd.grad(total, list(layer.parameters()), retain_graph=retain)
                for one, other in zip(found, expected[len(results):]):
                    self.assertTrue(torch.equal(one, other), cell)
            torch.set_num_threads(1)
            for one, other in zip(once(x), expected):
                self.assertTrue(torch.equal(one, other), cell)
            torch.set_num_threads(2)

    def test_no_memory_is_kept(self):
        """Calls of all kinds in any order keep nothing, and a module that is gone nothing of the library's."""
        before, calls = _native.allocated(), Calls()
        blocks, grown = calls.kept(5000 if FULL else 300)
        self.assertEqual(blocks, 0)
        self.assertLess(grown, 4 << 20)
        del calls
        gc.collect()
        self.assertLessEqual(_native.allocated(), before + self.unowned())

    def unowned(self):
        """Blocks of plans of calls without a module, such as members of vmap: at most 64 plans are kept."""
        nobody = bppsa._passes._NOBODY
        self.assertLessEqual(len(nobody._plans), 64)
        before = _native.allocated()
        nobody._plans.clear()
        nobody.ready.clear()
        gc.collect()
        return before - _native.allocated()

    def test_copies(self):
        """Copies, pickles, and modules that are gone: a graph outlives its module."""
        theirs, layer = twins("GRU", 3, 4, 2)
        x = real(5, 2, 3, requires_grad=True)
        expected = torch.autograd.grad(theirs(x)[0].sum(), x)
        for one in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            self.assertNotEqual(one._pool.account.handle, layer._pool.account.handle)
            self.assertLess(worst(torch.autograd.grad(one(x)[0].sum(), x), expected), CLOSE)
        total = layer(x)[0].sum()
        del layer
        gc.collect()
        self.assertLess(worst(torch.autograd.grad(total, x, retain_graph=True), expected), CLOSE)
        first, = torch.autograd.grad(total, x, create_graph=True)
        torch.autograd.grad(first.sum(), x)

    def test_kinds(self):
        """The layers are what they say they are, and torch.nn's by their weights."""
        for cell, arguments in itertools.product(CELLS, ((3, 4), (3, 4, 2), (3, 4, 2, True, True, 0.0, True))):
            if cell == "RNN" and len(arguments) > 3:
                arguments = (*arguments[:3], "relu", *arguments[3:])
            ours, theirs = (getattr(library, cell)(*arguments) for library in (bppsa.torch, torch.nn))
            self.assertIsInstance(ours, torch.nn.RNNBase)
            theirs.load_state_dict(ours.state_dict())
            self.assertEqual(ours.mode, theirs.mode)
            self.assertEqual(getattr(ours, "nonlinearity", None), getattr(theirs, "nonlinearity", None))
            x = torch.randn(5, 2, 3)
            self.assertLess(worst(flat(ours(x)), flat(theirs(x))), 1e-5)


if __name__ == "__main__":
    main()

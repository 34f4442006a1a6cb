"""bppsa.torch with tensors of a GPU: results beside the processor's, and what Python does with such tensors in front of passes."""
import contextlib
import copy
import itertools
import unittest
from unittest import mock

from support import has, main, residual
from test_torch import SCANS, Torch, pack

if has("torch"):
    import torch

    import bppsa.torch
    from bppsa import _native
    from bppsa._tensors import MODERN


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

    @unittest.skipUnless(has("torch") and MODERN, "layers of an older PyTorch lease memory")
    def test_a_recorded_step(self):
        """A forward and a backward pass in a CUDA graph, played with other inputs."""
        for cell in ("RNN", "GRU", "LSTM"):
            here, there = self.both(cell, num_layers=2)
            x = torch.randn(20, 4, 3, dtype=torch.float64, device="cuda")
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):  # makes the plans
                there(x)[0].square().sum().backward()
            torch.cuda.current_stream().wait_stream(aside)
            there.zero_grad(set_to_none=True)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                output = there(x)[0]
                output.square().sum().backward()
            for _ in range(2):
                x.copy_(torch.randn(20, 4, 3, dtype=torch.float64))
                graph.replay()
                here.zero_grad(set_to_none=True)
                expected = here(x.cpu())[0]
                expected.square().sum().backward()
                torch.testing.assert_close(output.cpu(), expected)
                for one, other in zip(there.parameters(), here.parameters()):
                    torch.testing.assert_close(one.grad.cpu(), other.grad)

    @unittest.skipUnless(has("torch") and MODERN, "layers of an older PyTorch have no second derivatives")
    def test_derivatives(self):
        """Along directions, and of gradients."""
        for cell, lengths in itertools.product(("RNN", "GRU", "LSTM"), (None, [20, 13, 5, 13])):
            here, there = self.both(cell, num_layers=2)
            x, along = (torch.randn(20, 4, 3, dtype=torch.float64) for _ in range(2))
            expected, found = derivatives(here, x, along, lengths), derivatives(there, x.cuda(), along.cuda(), lengths)
            for one, other in zip(found, expected):
                torch.testing.assert_close(one.detach().cpu(), other.detach(), rtol=1e-9, atol=1e-11)

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


@contextlib.contextmanager
def as_on_a_gpu(capturing=False):
    """Tensors of the processor that say that they are a GPU's. capturing: a CUDA graph records."""
    with mock.patch.object(torch.Tensor, "is_cuda", True), mock.patch.object(torch.Tensor, "get_device", lambda _: -1), \
            mock.patch("torch.cuda.current_stream", lambda _: mock.Mock(cuda_stream=None)), \
            mock.patch("torch.cuda.is_current_stream_capturing", lambda: capturing), \
            mock.patch("torch.cuda.device", lambda _: contextlib.nullcontext()):
        yield


def derivatives(layer, x, along, lengths):
    """Of a loss of all results: its derivative along a direction, its gradient, the gradient of a penalty on that, and the product
    of its Hessian with the direction."""
    packed = None
    if lengths is not None:  # the derivatives are those in packed rows, because packing has none along a direction
        packed, (along, *_) = (pack(each, lengths, False) for each in (x, along))
        x = packed.data

    def loss(x):
        output, last = layer(x if packed is None else packed._replace(data=x))
        return (output if packed is None else output.data).square().sum() + (last if torch.is_tensor(last) else last[1]).sum()

    x = x.clone().requires_grad_()
    gradient, = torch.autograd.grad(loss(x), x, create_graph=True)
    second = torch.autograd.grad(gradient.square().sum(), [x, *layer.parameters()])
    plain = x.detach()
    return [*torch.func.jvp(loss, (plain,), (along,)), gradient, *second,
            torch.func.jvp(torch.func.grad(loss), (plain,), (along,))[1]]


class AsOnAGpu(Torch):
    """What Python does with tensors of a GPU, in front of the processor's passes: outputs and states are tensors of their own."""

    def test_results(self):
        for cell, several in itertools.product(("RNN", "GRU", "LSTM"), (False, True)):
            options = {"num_layers": 2, "bidirectional": True} if several else {}
            layer, x = getattr(bppsa.torch, cell)(3, 4, **options), torch.randn(9, 3, 3, requires_grad=True)
            start = [torch.randn(4 if several else 1, 3, 4, requires_grad=True) for _ in range(2 if cell == "LSTM" else 1)]
            weights = [torch.randn(9, 3, 8 if several else 4), *(torch.randn_like(part) for part in start)]
            expected = [self.grads(layer, x, start, weights, lengths) for lengths in (None, [9, 4, 6])]
            layer = copy.deepcopy(layer)  # without passes that are prepared for the processor
            tapes = len(layer._pool.tapes._idle) + len(layer._pool.tapes._returned)
            with as_on_a_gpu():
                found = [self.grads(layer, x, start, weights, lengths) for lengths in (None, [9, 4, 6])]
                output = layer(x)[0]
                output.mul_(2).sum().backward()  # the layer's own states stay as they are
                # tapes are tensors of their own too
                self.assertEqual(len(layer._pool.tapes._idle) + len(layer._pool.tapes._returned), tapes)
            for each in zip(found, expected):
                self.assertTrue(all(torch.equal(one, other) for one, other in zip(*each)), (cell, several))
            with as_on_a_gpu(capturing=True):
                found = self.grads(layer, x, start, weights, [9, 4, 6])
            for one, other in zip(found, expected[1]):  # stretches have other sums than one pass
                self.assertLess(residual(one.detach(), other.detach(), 9, "float32"), 30, (cell, several))

    @unittest.skipUnless(has("torch") and MODERN, "layers of an older PyTorch have no second derivatives")
    def test_derivatives(self):
        """Along directions, and of gradients."""
        for cell, lengths in itertools.product(("RNN", "GRU", "LSTM"), (None, [7, 3, 5])):
            layer = getattr(bppsa.torch, cell)(3, 4, 2).double()
            x, along = (torch.randn(7, 3, 3, dtype=torch.float64) for _ in range(2))
            with contextlib.ExitStack() as stack:
                found = []
                for _ in range(2):
                    layer = copy.deepcopy(layer)
                    found.append(derivatives(layer, x, along, lengths))
                    stack.enter_context(as_on_a_gpu())
            for one, other in zip(*found):
                self.assertTrue(torch.equal(one, other), (cell, lengths))


if __name__ == "__main__":
    main()

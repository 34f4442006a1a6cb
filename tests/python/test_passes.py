"""Passes of one layer do not harm each other: nothing of an earlier call is read or written by a later one, a backward pass reads
what autograd saved wherever it lies, and passes may overlap."""
import ctypes
import gc
import itertools
import os
import signal
import sys
import threading
import time
import unittest
import weakref

import numpy as np

from speculation import Speculation  # noqa: F401, a test case too
from support import has, main

if has("torch"):
    import torch
    import torch.nn.utils.prune
    from torch.utils.checkpoint import checkpoint

    import bppsa.torch
    from bppsa._tensors import MODERN

CELLS = ("RNN", "GRU", "LSTM")


def both(cell, *sizes, **options):
    """A layer of torch.nn and one of ours with its weights, in float64."""
    theirs, ours = (getattr(library, cell)(*sizes, **options).double() for library in (torch.nn, bppsa.torch))
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def states(cell, count, batch, hidden, **options):
    """Initial states [count,B,H] as the cell takes them, and the list of them."""
    parts = [torch.randn(count, batch, hidden, dtype=torch.float64, **options) for _ in range(2 if cell == "LSTM" else 1)]
    return (tuple(parts) if cell == "LSTM" else parts[0]), parts


def real(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


class Passes(unittest.TestCase):
    def setUp(self):
        if not has("torch"):
            self.skipTest("PyTorch is missing (package python3-torch)")
        torch.manual_seed(0)
        torch.set_num_threads(2)

    def assert_close(self, found, expected, what=None):
        for number, (one, other) in enumerate(zip(found, expected)):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11, msg=lambda text: f"{what}, {number}: {text}")


class Addresses(Passes):
    """No address of an earlier call is used again."""

    def test_initial_states_once_and_never_again(self):
        """The gradients of one call's initial states stay as they are, whatever the next calls have and want."""
        for cell in CELLS:
            layer = getattr(bppsa.torch, cell)(1, 3).double()
            state, parts = states(cell, 1, 2, 3, requires_grad=True)
            layer(real(4, 2, 1), state)[0].sum().backward()
            first = [part.grad.clone() for part in parts]
            for _ in range(3):
                layer(real(4, 2, 1))[0].sum().backward()                                       # without
                layer(real(4, 2, 1), states(cell, 1, 2, 3)[0])[0].sum().backward()             # not wanted
                layer(real(4, 2, 1), states(cell, 1, 2, 3, requires_grad=True)[0])[0].sum().backward()
            for part, gradient in zip(parts, first):
                self.assertTrue(torch.equal(part.grad, gradient), cell)

    def test_one_of_two_states_wants_a_gradient(self):
        theirs, ours = both("LSTM", 2, 3)
        for wanted in ((True, False), (False, True), (True, True), (False, False)):
            found = []
            for layer in (ours, theirs):
                torch.manual_seed(1)
                start = [torch.randn(1, 2, 3, dtype=torch.float64).requires_grad_(want) for want in wanted]
                layer(real(5, 2, 2), tuple(start))[0].square().sum().backward()
                found.append([part.grad for part in start])
            for one, other in zip(*found):
                self.assertEqual(one is None, other is None)
                if one is not None:
                    self.assert_close([one], [other], wanted)

    def test_memory_that_a_gradient_had_belongs_to_somebody_else(self):
        """Gradients of initial states are freed and their memory is given to other tensors, which stay as they are."""
        for cell in CELLS:
            layer = getattr(bppsa.torch, cell)(1, 4).double()
            for _ in range(20):
                state, parts = states(cell, 1, 8, 4, requires_grad=True)
                layer(real(3, 8, 1), state)[0].sum().backward()
                del state, parts
                others = [torch.full((1, 8, 4), 7.0, dtype=torch.float64) for _ in range(16)]
                layer(real(3, 8, 1))[0].sum().backward()
                self.assertTrue(all(bool((other == 7).all()) for other in others), cell)


class Saved(Passes):
    """The backward pass reads the tensors that autograd hands out."""

    def gradients(self, layer, x, run):
        layer.zero_grad()
        if x.grad is not None:
            x.grad = None
        output = run(x)
        junk = [torch.full((7, 2, 3), 9.0, dtype=torch.float64) for _ in range(64)]  # takes over freed memory
        (output.square().sum() + output[2].sum()).backward()
        del junk
        return [x.grad.clone(), *(parameter.grad.clone() for parameter in layer.parameters())]

    def check(self, wrap, **options):
        """wrap(block): a function that runs it. The layer's input is a temporary."""
        for cell in CELLS:
            theirs, ours = both(cell, 3, 4, **options)
            x = real(7, 2, 3)
            expected = self.gradients(theirs, x, lambda x: theirs(x * 2)[0])
            for _ in range(2):
                self.assert_close(self.gradients(ours, x, wrap(lambda x: ours(x * 2)[0])), expected, cell)

    def test_checkpoints(self):
        for reentrant in (False, True):
            self.check(lambda block: lambda x: checkpoint(block, x, use_reentrant=reentrant))
            self.check(lambda block: lambda x: checkpoint(block, x, use_reentrant=reentrant), num_layers=2, bidirectional=True)

    def test_checkpoints_within_checkpoints(self):
        self.check(lambda block: lambda x: checkpoint(lambda y: checkpoint(block, y, use_reentrant=True), x, use_reentrant=False))

    def with_hooks(self, pack, unpack):
        def wrap(block):
            def run(x):
                with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                    return block(x)
            return run
        return wrap

    def test_hooks(self):
        """That copy, move to a file, or hand out an array that is not contiguous."""
        self.check(self.with_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor))
        self.check(self.with_hooks(lambda tensor: tensor.numpy().copy() if not tensor.requires_grad else tensor.detach().numpy(),
                                   lambda packed: torch.from_numpy(packed.copy())))

        def apart(tensor):
            return torch.stack([tensor.detach()] * 2, -1)

        self.check(self.with_hooks(apart, lambda tensor: tensor[..., 0]), num_layers=2)

    def test_what_was_saved_is_not_read_where_it_lay(self):
        """The input is overwritten, behind autograd's back, when hooks have a copy of it."""
        for cell in CELLS:
            theirs, ours = both(cell, 3, 4)
            x = torch.randn(7, 2, 3, dtype=torch.float64)
            expected = torch.autograd.grad(theirs(x)[0].sum(), list(theirs.parameters()))
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor):
                total = ours(x)[0].sum()
            x.numpy().fill(float("nan"))
            self.assert_close(torch.autograd.grad(total, list(ours.parameters())), expected, cell)

    def test_save_on_cpu(self):
        def wrap(block):
            def run(x):
                with torch.autograd.graph.save_on_cpu():
                    return block(x)
            return run
        self.check(wrap)

    def test_hooks_that_change_what_they_hold(self):
        layer = bppsa.torch.GRU(3, 4).double()
        for unpack in (lambda tensor: tensor.float(), lambda tensor: tensor.reshape(-1)[:1]):
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
                output = layer(real(7, 2, 3))[0]
            with self.assertRaisesRegex(bppsa.RequestError, "a tensor saved for the backward pass came back as .*, expected "):
                output.sum().backward()

    def test_storage_that_moves(self):
        """share_memory_ moves what a tensor holds; x.data = gives the tensor another storage. The values are the forward pass's."""
        for cell in CELLS:
            found = []
            for layer in both(cell, 3, 4):
                for wants in (True, False):
                    torch.manual_seed(2)
                    x = real(7, 2, 3) if wants else torch.randn(7, 2, 3, dtype=torch.float64)
                    total, tensors = layer(x)[0].sum(), ([x] if wants else []) + list(layer.parameters())
                    x.data.share_memory_()
                    layer.share_memory()
                    gradients = torch.autograd.grad(total, tensors, retain_graph=True)
                    values = [tensor.data for tensor in (x, *layer.parameters())]
                    for tensor in (x, *layer.parameters()):
                        tensor.data = torch.full_like(tensor, 0.3)
                    found.append(gradients + torch.autograd.grad(total, tensors, retain_graph=True))
                    x.data = torch.zeros(1, 1, 1, dtype=torch.float64)  # of other extents
                    found[-1] += torch.autograd.grad(total, list(layer.parameters()))
                    for tensor, value in zip((x, *layer.parameters()), values):
                        tensor.data = value
            for number in range(2):
                self.assert_close(found[2 + number], found[number], cell)

    def test_weights_that_are_others(self):
        """What a module keeps of its weights follows them: other values, storages, types and parameters, pruned ones, copies."""
        def prune(layer):
            torch.nn.utils.prune.l1_unstructured(layer, "weight_hh_l0", 0.5)

        def turn(layer):
            if type(layer).__name__ == "RNN":  # of the same extents, in the same memory
                layer.weight_hh_l0.data = layer.weight_hh_l0.data.t()

        def replace(layer):
            layer.bias_ih_l0 = torch.nn.Parameter(torch.ones_like(layer.bias_ih_l0))

        def move(layer):
            layer.weight_ih_l0.data = layer.weight_ih_l0.data.flip(0).contiguous()
            layer.share_memory()

        plain = [lambda layer: layer.weight_hh_l0.data.mul_(0.5), replace, move, lambda layer: layer.float().double(),
                 lambda layer: layer.weight_ih_l0.requires_grad_(False), turn]
        for cell, changes in itertools.product(CELLS, (plain, [prune, move, replace])):
            layers, x = both(cell, 3, 3), torch.randn(7, 2, 3, dtype=torch.float64)
            for number, change in enumerate(changes):
                found = []
                for layer in layers:
                    change(layer)
                    weights = [weight for weight in layer.parameters() if weight.requires_grad]
                    for _ in range(2):
                        output = layer(x)[0]
                        found.append([output, *torch.autograd.grad(output.square().sum(), weights)])
                self.assert_close(found[2], found[0], (cell, number))
                self.assert_close(found[3], found[0], (cell, number))
            with self.assertRaisesRegex(TypeError, "weight_.*: torch.float64, expected torch.float32 as the others"):
                layers[1](x.float())

    def test_a_first_call_in_inference_mode(self):
        for mode in (torch.no_grad, torch.inference_mode):
            theirs, ours = both("GRU", 3, 4)
            x, found = real(7, 2, 3), []
            with mode():
                ours(x.detach())
            for layer in (ours, theirs):
                found.append(torch.autograd.grad(layer(x)[0].square().sum(), [x, *layer.parameters()]))
            self.assert_close(*found, mode)

    def test_an_input_that_an_interrupted_pass_reads(self):
        """x.data = .. and new weights, while a forward pass goes on behind Ctrl-C: its memory stays until it has ended."""
        held = []

        kind = bppsa._native.Plan

        class Slow(kind):
            def run(self, *arguments):
                held.append(arguments)
                began.set()
                go_on.wait(60)
                super().run(*arguments)

        layer, array = bppsa.torch.GRU(3, 4), np.ones((50, 20, 3), np.float32)
        x, memory = torch.from_numpy(array), weakref.ref(array)  # x has the array's memory, and keeps it
        del array
        began, go_on = threading.Event(), threading.Event()
        limit, bppsa._tensors.LONG = bppsa._tensors.LONG, -1
        bppsa._native.Plan = Slow
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            threading.Thread(target=lambda: (began.wait(), os.kill(os.getpid(), signal.SIGINT))).start()
            with self.assertRaises(KeyboardInterrupt):
                with torch.no_grad():
                    layer(x)
                time.sleep(60)
            addresses = [weight.data_ptr() for weight in layer.parameters()]
            weights = [] if MODERN else [weakref.ref(alias) for alias in layer._pool.weights.pop(0).aliases]
            x.data = torch.zeros(1)
            for name in [name for name, _ in layer.named_parameters()]:
                setattr(layer, name, torch.nn.Parameter(torch.zeros_like(getattr(layer, name))))
            gc.collect()
            self.assertTrue(all(weight().data_ptr() in held[0][1] for weight in weights))
            self.assertTrue(set(addresses) < set(held[0][1]))
            taken = [torch.zeros_like(weight) for weight in layer.parameters() for _ in range(64)]
            self.assertTrue(set(addresses).isdisjoint(other.data_ptr() for other in taken))  # the pass has them yet
            self.assertIsNotNone(memory())
        finally:
            go_on.set()
            bppsa._native.Plan = kind
            bppsa._tensors.LONG = limit
            signal.signal(signal.SIGINT, handler)
        end = time.monotonic() + 60
        while bppsa._native.under_way and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(bppsa._native.under_way, set())

    def test_weights_that_are_no_parameters_are_not_kept(self):
        layer = bppsa.torch.GRU(3, 4).double()
        del layer.weight_hh_l0
        layer.weight_hh_l0 = torch.randn(12, 4, dtype=torch.float64, requires_grad=True) * 2
        kept = weakref.ref(layer.weight_hh_l0)
        total = layer(real(5, 2, 3))[0].sum()
        total.backward()
        layer.weight_hh_l0 = torch.randn(12, 4, dtype=torch.float64)
        del total
        self.assertIsNone(kept())

    def test_weights_that_changed(self):
        """Autograd refuses a backward pass whose weights an optimiser has changed."""
        layer = bppsa.torch.GRU(3, 4).double()
        total = layer(real(7, 2, 3))[0].sum()
        with torch.no_grad():
            layer.weight_hh_l0.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            total.backward()


class Outputs(Passes):
    def test_weights_of_other_shapes(self):
        """They are refused before their memory is read, whether new, changed in place, or made wrong by another size."""
        def shrink(layer):
            layer.weight_hh_l0.data = layer.weight_hh_l0.data[:3]

        def resize(layer):
            layer.hidden_size = 64

        changes = {"weight_ih_l0 is .12, 1., expected .12, 3.":
                   lambda layer: setattr(layer, "weight_ih_l0", torch.nn.Parameter(torch.randn(12, 1))),
                   "weight_ih_l0 is .3, 12., expected .12, 3.":
                   lambda layer: setattr(layer, "weight_ih_l0", torch.nn.Parameter(torch.randn(3, 12))),
                   "bias_hh_l0 is .1., expected .12.":
                   lambda layer: setattr(layer, "bias_hh_l0", torch.nn.Parameter(torch.randn(1))),
                   "bias_hh_l0: a NoneType, expected a tensor": lambda layer: setattr(layer, "bias_hh_l0", None),
                   "weight_hh_l0 is .3, 4., expected .12, 4.": shrink,
                   "weight_ih_l0 is .12, 3., expected .192, 3.": resize}
        for sentence, change in changes.items():
            for used in (False, True):
                layer, x = bppsa.torch.GRU(3, 4), torch.randn(5, 2, 3)
                if used:
                    layer(x)
                change(layer)
                with self.assertRaisesRegex((ValueError, TypeError), "bppsa.torch.GRU: " + sentence):
                    layer(x)

    def test_tensors_that_are_negated_when_they_are_read(self):
        """Autograd notes a minus sign instead of computing it; the memory does not have it."""
        for cell in CELLS:
            theirs, ours = both(cell, 3, 4)
            x, seed, (state, _) = real(5, 2, 3), real(5, 2, 4).detach(), states(cell, 1, 2, 4)
            negated = torch._neg_view
            found = []
            for layer in (theirs, ours):
                start = tuple(map(negated, state)) if cell == "LSTM" else negated(state)
                output, last = layer(negated(x), start)
                last = last[1] if cell == "LSTM" else last
                found.append([output.detach(), *torch.autograd.grad([output, last], [x, *layer.parameters()],
                                                                    [negated(seed), negated(seed[:1])])])
            self.assert_close(*reversed(found), cell)
        a, u, g = (torch.rand(4, 2, 3), torch.rand(4, 2, 3), torch.rand(2, 3))
        torch.testing.assert_close(bppsa.torch.scan(*map(torch._neg_view, (a, u, g))), bppsa.torch.scan(-a, -u, -g))
        np.testing.assert_array_equal(bppsa.scan(torch._neg_view(a), u, g), bppsa.scan(-a, u, g))

    def test_outputs_may_be_changed(self):
        """In place by autograd, and behind its back: the pass has states of its own, as in torch.nn on a CPU."""
        def edit(output):
            output.detach().numpy().fill(0)
            return output

        def zero(output):
            output.data.zero_()
            return output

        for change in (torch.nn.ReLU(inplace=True), lambda output: output.mul_(2), edit, zero):
            for cell, options in itertools.product(CELLS, ({}, {"num_layers": 2, "bidirectional": True})):
                found = []
                for layer in both(cell, 3, 4, **options):
                    torch.manual_seed(3)
                    x = real(7, 2, 3)
                    output, last = layer(x)
                    last = last if cell == "LSTM" else (last,)
                    total = change(output).sum() + sum(change(part).square().sum() for part in last)
                    found.append([total, *torch.autograd.grad(total, [x, *layer.parameters()])])
                self.assert_close(*found, cell)


    def test_outputs_of_a_scan(self):
        """They may be changed in place where no gradient depends on them; elsewhere autograd refuses the backward pass."""
        jt, u, g = torch.rand(6, 2, 3), torch.randn(6, 2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
        expected = torch.autograd.grad(torch.relu(bppsa.torch.scan(jt, u, g)).sum(), [u, g])
        found = torch.autograd.grad(bppsa.torch.scan(jt, u, g).relu_().sum(), [u, g])
        self.assertTrue(all(torch.equal(one, other) for one, other in zip(found, expected)))
        changed = bppsa.torch.scan(jt.requires_grad_(), u, g).mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            changed.sum().backward()

    def test_scans_under_hooks_and_checkpoints(self):
        for dense in (False, True):
            jt = (0.5 * torch.rand(6, 2, 3, *([3] if dense else []), dtype=torch.float64)).requires_grad_()
            u, g = real(6, 2, 3), real(2, 3)

            def run(*tensors):
                return bppsa.torch.scan(*(tensor * 1 for tensor in tensors))

            def hooked(*tensors):
                with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor):
                    return run(*tensors)

            seed = torch.randn(6, 2, 3, dtype=torch.float64)
            expected = torch.autograd.grad(run(jt, u, g), [jt, u, g], seed)
            for wrapped in (hooked, lambda *a: checkpoint(run, *a, use_reentrant=False)):
                self.assert_close(torch.autograd.grad(wrapped(jt, u, g), [jt, u, g], seed), expected)
            layer = [tensor.detach().clone().requires_grad_() for tensor in (jt, u, g)]
            checkpoint(run, *layer, use_reentrant=True).backward(seed)
            self.assert_close([tensor.grad for tensor in layer], expected)


class Kept(Passes):
    """What stays in memory is what the caller holds."""

    def resident(self):
        gc.collect()
        if MODERN:  # these passes allocate, and what the C library keeps of freed memory is not held by anybody
            ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    @unittest.skipIf("asan" in os.environ.get("LD_PRELOAD", ""), "a sanitizer keeps what is freed for a while")
    def test_after_the_backward_pass(self):
        layer, x = bppsa.torch.LSTM(1, 20), torch.randn(1000, 16, 1)
        output = 1000 * 16 * 20 * 4
        steps = 40  # the allocator itself may keep what one pass takes, 16 MB: that must be little beside them
        for what, limit in (("loss", output), ("detached", 2 * output), ("row", 2 * output)):
            for _ in range(3):
                layer(x)[0].sum().backward()
            kept, before = [], self.resident()
            for _ in range(steps):
                states = layer(x)[0]
                loss = states.sum()
                loss.backward()
                kept.append({"loss": loss, "detached": states.detach(), "row": states[-1, 0].detach()}[what])
                del states, loss
            self.assertLess((self.resident() - before) / steps, limit, what)

    def test_a_loss_keeps_no_memory_of_a_module(self):
        """Nor can it be told from one whose module is there: a graph that is retained still has its backward pass."""
        for cell in CELLS:
            layer, x = getattr(bppsa.torch, cell)(1, 3), torch.randn(4, 2, 1, requires_grad=True)
            loss = layer(x)[0].sum()
            pool, weights = weakref.ref(layer._pool), list(layer.parameters())
            expected = torch.autograd.grad(loss, [x, *weights], retain_graph=True)
            held = weakref.ref(layer._pool.account if MODERN else layer._pool.weights[0])
            del layer
            gc.collect()
            self.assertIsNone(pool(), cell)
            self.assertIsNone(held(), cell)
            for one, other in zip(torch.autograd.grad(loss, [x, *weights]), expected):
                self.assertTrue(torch.equal(one, other), cell)

    def test_a_tape_begins_with_a_cache_line(self):
        """Elsewhere the passes at H 128 take up to a quarter more."""
        from bppsa._pool import Idle, Tape
        tapes = Idle(4)
        for dtype in (torch.float32, torch.float64):
            kept = [Tape(tapes, size, dtype) for size in (1, 7, 1000, 12345)]
            for tape in kept:
                self.assertEqual(tape.address % 64, 0)
                self.assertEqual(tape.tensor().data_ptr(), tape.address)
                self.assertEqual(tape.tensor().dtype, dtype)

    def test_a_tape_serves_the_next_pass(self):
        """It goes back when the graph is done with it, not when the loss is deleted."""
        if MODERN:
            self.skipTest("this PyTorch's passes have no tapes of the module's")
        layer, x = bppsa.torch.GRU(3, 4), torch.randn(5, 2, 3)
        kept = []
        for _ in range(6):
            kept.append(layer(x)[0].sum())
            kept[-1].backward()
        pool = layer._pool
        self.assertEqual(len(pool.tapes._idle) + len(pool.tapes._returned), 1)
        self.assertLessEqual(len(pool.scratch._idle) + len(pool.scratch._returned), 2)  # of forward and of backward passes


class Together(Passes):
    """Passes that overlap."""

    def test_threads_on_one_retained_graph(self):
        for cell in CELLS:
            layer = getattr(bppsa.torch, cell)(3, 8).double()
            x = real(60, 4, 3)
            output = layer(x)[0]
            inputs = [x, *layer.parameters()]
            seeds = [torch.randn_like(output) for _ in range(4)]
            expected = [torch.autograd.grad(output, inputs, seed, retain_graph=True) for seed in seeds]
            wrong = []

            def work(number):
                for _ in range(40):
                    found = torch.autograd.grad(output, inputs, seeds[number], retain_graph=True)
                    if not all(torch.equal(one, other) for one, other in zip(found, expected[number])):
                        wrong.append(number)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(len(seeds))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [], cell)

    def test_one_plan_in_three_threads(self):
        """A plan never changes, and all that a pass reads and writes is its caller's."""
        plan = bppsa._native.Plan(("gru", False, "auto", "sequential"), (50, 2, 3, 4), True, (True, False, False, False), True, 1)
        shapes = {"w_ih": (12, 3), "w_hh": (12, 4), "b_ih": (12,), "b_hh": (12,)}
        weights = {name: torch.randn(*shape, dtype=torch.float64) for name, shape in shapes.items()}
        numbers = {name: number for number, (name, _, _) in enumerate(bppsa._native.arrays())}

        def compute(kind, **arrays):
            at, scratch = bppsa._native.addresses(), torch.empty(plan.scratch[kind], dtype=torch.uint8)
            for name, array in {**weights, **arrays}.items():
                at[numbers[name]] = array.data_ptr()
            plan.run(kind, at, scratch.data_ptr())

        def once(x):
            states, saved, y, dx = (x.new_empty(size) for size in ((51, 2, 4), 50 * 2 * 4 * bppsa._native.cell_saved("gru"),
                                                                   (50, 2, 4), (50, 2, 3)))
            compute(0, x=x, h=states, saved=saved, y=y)
            compute(1, x=x, h=states, saved=saved, of_y=y, of_x=dx)
            return y, dx

        inputs = [torch.randn(50, 2, 3, dtype=torch.float64) for _ in range(3)]
        expected, wrong = [once(x) for x in inputs], []

        def work(number):
            for _ in range(200):
                if not all(torch.equal(one, other) for one, other in zip(once(inputs[number]), expected[number])):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_a_pass_behind_an_interrupted_one(self):
        """Ctrl-C in a backward pass, and another one on the same graph while the first goes on."""
        layer = bppsa.torch.GRU(16, 64)
        x = torch.randn(1500, 8, 16, requires_grad=True)
        output = layer(x)[0]
        inputs, seed = [x, *layer.parameters()], torch.randn_like(output)
        limit, bppsa._tensors.LONG = bppsa._tensors.LONG, 0
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            expected = torch.autograd.grad(output, inputs, seed, retain_graph=True)
            begin = time.monotonic()
            torch.autograd.grad(output, inputs, seed, retain_graph=True)
            took, caught = time.monotonic() - begin, 0
            for share in (0.2, 0.4, 0.6, 0.8):
                try:
                    threading.Timer(share * took, os.kill, (os.getpid(), signal.SIGINT)).start()
                    torch.autograd.grad(output, inputs, seed * 2, retain_graph=True)
                    time.sleep(60)
                except KeyboardInterrupt:
                    caught += 1
                found = torch.autograd.grad(output, inputs, seed, retain_graph=True)
                self.assertTrue(all(torch.equal(one, other) for one, other in zip(found, expected)), share)
            self.assertEqual(caught, 4)
        finally:
            bppsa._tensors.LONG = limit
            signal.signal(signal.SIGINT, handler)

    def test_an_interrupt_is_an_interrupt(self):
        """Whenever it comes in a call with a thread of its own: no lock of Python's raises another error."""
        armed, came, other = [False], 0, []

        def interrupt(*_):
            if armed[0]:
                armed[0] = False
                raise KeyboardInterrupt

        handler, hook = signal.signal(signal.SIGALRM, interrupt), sys.unraisablehook
        sys.unraisablehook = lambda event: None if event.exc_type is KeyboardInterrupt else hook(event)  # in a destructor
        try:
            for number in range(3000):
                try:
                    try:
                        armed[0] = True
                        signal.setitimer(signal.ITIMER_REAL, 1e-6 + number % 100 * 2e-6)
                        bppsa._native.interruptible(lambda: None)
                    finally:
                        armed[0] = False
                except KeyboardInterrupt:
                    came += 1
                except RuntimeError as error:
                    other.append(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            sys.unraisablehook = hook
        self.assertEqual(other, [])
        self.assertGreater(came, 100)

    def test_a_child_of_fork(self):
        """Computes with what its parent made, though a thread of the parent's holds a lock."""
        layer, x = bppsa.torch.GRU(3, 4).double(), real(5, 2, 3)
        total = layer(x)[0].sum()
        expected = torch.autograd.grad(total, x, retain_graph=True)[0]
        locks = [idle._lock for idle in (layer._pool.scratch, layer._pool.tapes, layer._pool.account)]
        for lock in locks:
            lock.acquire()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            again = torch.autograd.grad(layer(x)[0].sum(), x)[0]
            both_right = torch.equal(torch.autograd.grad(total, x)[0], expected) and torch.equal(again, expected)
            os._exit(0 if both_right else 1)
        for lock in locks:
            lock.release()
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


if __name__ == "__main__":
    main()

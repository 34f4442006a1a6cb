"""Passes of one layer that overlap: in several threads, behind an interrupted one, and in a child of fork()."""
import os
import signal
import sys
import threading
import time

from support import has, main
from test_passes import CELLS, Passes, real

if has("torch"):
    import torch

    import bppsa.torch


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

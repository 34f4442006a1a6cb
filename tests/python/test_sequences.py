"""tests/python/sequences.py: 50 random sequences of calls, and that a wrong result is found and told with its seed.
BPPSA_PYTHON_SEQUENCES says how many, BPPSA_PYTHON_SEED where they begin."""
import os
import unittest

from support import has, main

if has("torch"):
    import torch

    import bppsa.torch
    import sequences
    from bppsa._tensors import MODERN

COUNT = int(os.environ.get("BPPSA_PYTHON_SEQUENCES", "50"))
SEED = int(os.environ.get("BPPSA_PYTHON_SEED", "0"))


@unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
class Sequences(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(2)

    def test_random_sequences(self):
        for seed in range(SEED, SEED + COUNT):
            self.assertIsNone(sequences.run(seed, 40))

    def test_a_wrong_gradient_is_told(self):
        """A thousandth too much is found, and the text has the seed and the calls."""
        function = bppsa._derivatives.EAGER if MODERN else bppsa._lease._Layer
        backward = function.backward

        def wrong(ctx, *gradients):
            return tuple(None if each is None else each * 1.001 for each in backward(ctx, *gradients))

        function.backward = staticmethod(wrong)
        try:
            text = sequences.run(SEED, 40)
        finally:
            function.backward = staticmethod(backward)
        self.assertRegex(text, rf"^sequence {SEED}: Wrong: g\d+, gradient of .*: differs by ")
        self.assertIn("m0 = ", text)
        self.assertIn("backward of g", text)


if __name__ == "__main__":
    main()

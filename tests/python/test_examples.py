"""The examples of examples/python, each with little work."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

from support import at_length, has, main

MODERN = False
if has("torch"):
    from bppsa._tensors import MODERN

EXAMPLES = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "examples", "python")


# A training whose recurrent cell has the name, the calls and the parameters of PureJaxRL's.
STAND_IN = """
import functools
import flax.linen as nn
import jax
import jax.numpy as jnp


class ScannedRNN(nn.Module):
    @functools.partial(nn.scan, variable_broadcast="params", in_axes=0, out_axes=0, split_rngs={"params": False})
    @nn.compact
    def __call__(self, carry, x):
        inputs, resets = x
        return nn.GRUCell(features=inputs.shape[-1])(jnp.where(resets[:, None], 0 * carry, carry), inputs)

    @staticmethod
    def initialize_carry(batch_size, hidden_size):
        return jnp.zeros((batch_size, hidden_size))


class Network(nn.Module):
    @nn.compact
    def __call__(self, carry, x):
        carry, rows = ScannedRNN()(carry, (nn.Dense(8)(x[0]), x[1]))
        return carry, nn.Dense(1)(rows)


def make_train(config):
    def train(key):
        steps, count = config["NUM_STEPS"], config["NUM_ENVS"]
        x = jax.random.normal(key, (steps, count, 3)), jax.random.bernoulli(key, 0.05, (steps, count))
        network, carry = Network(), ScannedRNN.initialize_carry(count, 8)
        variables = network.init(key, carry, (x[0][:1], x[1][:1]))  # one step, as an actor takes it

        def update(variables, _):
            def loss(variables):
                return jnp.square(network.apply(variables, carry, x)[1] - 1).mean()
            value, gradient = jax.value_and_grad(loss)(variables)
            return jax.tree.map(lambda each, of: each - 0.5 * of, variables, gradient), value[None]
        variables, values = jax.lax.scan(update, variables, None, config["TOTAL_TIMESTEPS"] // steps // count)
        return {"metrics": {"returned_episode_returns": values}}
    return train
"""


class Examples(unittest.TestCase):
    def run_example(self, name, *options):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, os.path.join(EXAMPLES, name), *options], cwd=folder, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            return done.stdout, os.listdir(folder)

    def test_every_example_is_here(self):
        here = ["audio_gru.py", "fisher_vector.py", "gradient_penalty.py", "gru_sessions.py", "pruned.py", "purejaxrl.py",
                "recurrent_ppo.py", "state_space.py"]
        self.assertEqual(sorted(os.listdir(EXAMPLES)), here)

    def test_the_first_one_of_the_page_is_short(self):
        """tests/docs runs it."""
        with open(os.path.join(EXAMPLES, "..", "..", "docs", "python.md"), encoding="utf-8") as page:
            example = re.search(r"<<'END'\n(.*?)\nEND\n", page.read(), re.DOTALL)[1]
        self.assertEqual(len(example.splitlines()), 10, example)

    @unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
    def test_time_around(self):
        """bench/scripts/python_around.py measures what a layer takes beside an empty operator."""
        script = os.path.join(EXAMPLES, "..", "..", "bench", "scripts", "python_around.py")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "around.json")
            done = subprocess.run([sys.executable, script, "--rounds", "5", "--out", path], check=False, capture_output=True,
                                  text=True)
            if "expected 2.5 or newer" in done.stderr:
                self.skipTest("this PyTorch is older than 2.5")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)["around"]
        self.assertEqual([row["cell"] for row in rows], ["RNN", "GRU", "LSTM"])
        for row in rows:
            self.assertGreater(row["empty"], 0)
            self.assertAlmostEqual(row["empty"] + row["beyond"], row["microseconds"], delta=0.02)

    def test_pruned(self):
        out, files = self.run_example("pruned.py")
        ratios = [float(line.split()[-1]) for line in out.splitlines() if "%" in line]
        self.assertEqual(len(ratios), 7)
        self.assertLess(ratios[-1], ratios[0])
        if "written" in out:
            self.assertEqual(files, ["flops.svg"])

    @unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
    def test_state_space(self):
        out, _ = self.run_example("state_space.py", "--steps", "60", "--length", "37")
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", out)]
        self.assertLess(losses[-1], 0.5 * losses[0], out)

    @unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
    def test_gradient_penalty(self):
        """With the penalty the answer's slope is smaller. An older PyTorch is refused in a line."""
        if not MODERN:
            done = subprocess.run([sys.executable, os.path.join(EXAMPLES, "gradient_penalty.py")], stderr=subprocess.PIPE,
                                  text=True, check=False)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            self.assertIn("expected 2.5 or newer", done.stderr)
            return
        out, _ = self.run_example("gradient_penalty.py", "--steps", "15", "--length", "40")
        slopes = [float(slope) for slope in re.findall(r"slope ([0-9.]+)", out)]
        self.assertEqual(len(slopes), 2, out)
        self.assertLess(slopes[1], slopes[0], out)

    @unittest.skipUnless(MODERN, "this PyTorch is older than 2.5")
    def test_fisher_vector(self):
        out, _ = self.run_example("fisher_vector.py", "--steps", "4", "--length", "30")
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", out)]
        self.assertEqual(len(losses), 5, out)
        self.assertEqual(sorted(losses, reverse=True), losses, out)

    @unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
    def test_recurrent_ppo(self):
        out, _ = self.run_example("recurrent_ppo.py", "--updates", "2", "--both")
        self.assertLess(float(re.search(r"differ by at most (\S+)", out)[1]), 1e-5)
        for name in ("bppsa.torch.GRU", "torch.nn.GRUCell"):
            least, most = map(float, re.search(rf"{name}: returns (\S+) \.\. (\S+) of 1, ", out).groups())
            self.assertTrue(0 < least == most < 1, out)

    @at_length
    @unittest.skipUnless(has("jax"), "JAX is missing (pip install jax)")
    def test_sessions(self):
        out, _ = self.run_example("gru_sessions.py", "--sessions", "30", "--length", "40", "--seeds", "2", "--steps", "20")
        losses = [[float(each) for each in pair] for pair in re.findall(r"loss (\S+) \.\. (\S+) of 2 seeds", out)]
        self.assertTrue(losses[-1][0] <= losses[-1][1] < losses[0][0], out)

    @at_length
    @unittest.skipUnless(has("jax") and has("flax"), "JAX or Flax is missing (pip install jax flax)")
    def test_purejaxrl(self):
        """With a file in the place of PureJaxRL's, which has a cell of the same name: both cells give the same number."""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "ppo_rnn.py"), "w", encoding="utf-8") as file:
                file.write(STAND_IN)
            out, _ = self.run_example("purejaxrl.py", folder, "--updates", "3", "--envs", "4", "--both")
        found = re.findall(r"(\S+): 3 updates in \S+ s, return (\S+)", out)
        self.assertEqual([name for name, _ in found], ["bppsa.jax", "PureJaxRL"], out)
        self.assertLess(abs(float(found[0][1]) - float(found[1][1])), 1e-3 * abs(float(found[1][1])), out)

    @unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
    def test_audio(self):
        try:
            out, _ = self.run_example("audio_gru.py", "--files", "11", "--epochs", "2")
        except AssertionError as error:
            if "without audio" in str(error) or "libsndfile" in str(error):
                self.skipTest("the library was built without audio")
            raise
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", out)]
        self.assertEqual(len(losses), 2, out)
        self.assertLess(losses[1], losses[0])


if __name__ == "__main__":
    main()

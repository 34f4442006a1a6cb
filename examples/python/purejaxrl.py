#!/usr/bin/env python3
"""PureJaxRL's recurrent PPO with its recurrent cell computed by bppsa.jax: applied to a checkout of PureJaxRL that you have.

    git clone https://github.com/luchris429/purejaxrl
    PYTHONPATH=build/cpu/python python3 examples/python/purejaxrl.py purejaxrl [--updates 20] [--env CartPole-v1] [--both]

It loads purejaxrl/ppo_rnn.py of the checkout, which stays as it is, puts a module of the same name, arguments and parameters in
the place of its ScannedRNN, trains, and prints the seconds and the mean return of the last update. --both: with PureJaxRL's own as
well. A program of yours does the same in one line behind its imports: purejaxrl.swap(ppo_rnn). It needs what PureJaxRL needs (jax,
flax, optax, distrax, gymnax).
"""
import argparse
import importlib.util
import os
import sys
import time
import types

import flax.linen as nn
import jax
import jax.numpy as jnp

import bppsa.jax


class ScannedRNN(nn.Module):
    """A GRU over inputs [T, B, H] with resets [T, B]; called with a carry [B, H] and the pair of both. Acting takes one step, for
    which Flax's cell is as fast."""

    @nn.compact
    def __call__(self, carry, x):
        inputs, resets = x
        cell = nn.GRUCell(features=inputs.shape[-1])
        if inputs.shape[0] == 1:
            carry, y = cell(jnp.where(resets[0][:, None], jnp.zeros_like(carry), carry), inputs[0])
            return carry, y[None]
        return bppsa.jax.linen.RNN(cell, time_major=True, return_carry=True)(inputs, initial_carry=carry, resets=resets)

    @staticmethod
    def initialize_carry(batch_size, hidden_size):
        return jnp.zeros((batch_size, hidden_size))


def load(checkout):
    """The checkout's ppo_rnn.py as a module."""
    for path in (os.path.join(checkout, "purejaxrl", "ppo_rnn.py"), os.path.join(checkout, "ppo_rnn.py")):
        if os.path.exists(path):
            break
    else:
        sys.exit(f"purejaxrl.py: error: {checkout}: no purejaxrl/ppo_rnn.py, expected a checkout of PureJaxRL")
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("ppo_rnn", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def swap(module: types.ModuleType) -> type:
    """Puts ScannedRNN in the place of the module's own, which it returns."""
    own = getattr(module, "ScannedRNN", None)
    if own is None:
        sys.exit(f"purejaxrl.py: error: {module.__file__}: no ScannedRNN, expected PureJaxRL's ppo_rnn.py")
    module.ScannedRNN = ScannedRNN
    return own


def train(module, name, options):
    """Trains, and prints how long it took and what it reached."""
    config = {"LR": 2.5e-4, "NUM_ENVS": options.envs, "NUM_STEPS": 128, "TOTAL_TIMESTEPS": options.updates * options.envs * 128,
              "UPDATE_EPOCHS": 4, "NUM_MINIBATCHES": 4, "GAMMA": 0.99, "GAE_LAMBDA": 0.95, "CLIP_EPS": 0.2, "ENT_COEF": 0.01,
              "VF_COEF": 0.5, "MAX_GRAD_NORM": 0.5, "ENV_NAME": options.env, "ANNEAL_LR": True, "DEBUG": False}
    run = jax.jit(module.make_train(config)).lower(jax.random.key(30)).compile()
    begin = time.perf_counter()
    result = jax.block_until_ready(run(jax.random.key(30)))
    seconds = time.perf_counter() - begin
    returns = result["metrics"]["returned_episode_returns"] if isinstance(result["metrics"], dict) else result["metrics"]
    print(f"{name}: {options.updates} updates in {seconds:.2f} s, return {float(jnp.mean(returns[-1])):.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", help="the directory of PureJaxRL")
    parser.add_argument("--updates", type=int, default=20, help="[20]")
    parser.add_argument("--envs", type=int, default=16, help="environments, a multiple of 4 [16]")
    parser.add_argument("--env", default="CartPole-v1", help="of gymnax [CartPole-v1]")
    parser.add_argument("--both", action="store_true", help="with PureJaxRL's own cell too")
    options = parser.parse_args()
    if options.updates < 1 or options.envs < 4 or options.envs % 4 != 0:
        parser.error(f"--updates {options.updates} --envs {options.envs}: expected 1 or more, and a multiple of 4")
    module = load(options.checkout)
    own = swap(module)
    train(module, "bppsa.jax", options)
    if options.both:
        module.ScannedRNN = own
        train(module, "PureJaxRL", options)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Fits GRUs of 16 units to the choices of animals, many seeds at once: bppsa.jax under jax.vmap over the weights.

    PYTHONPATH=build/cpu/python python3 examples/python/gru_sessions.py [--sessions 500] [--length 200] [--seeds 8] [--steps 100]

As in computational neuroscience, where small recurrent networks are fitted to behaviour (tiny RNNs, disentangled RNNs), a network
sees the choice and the reward of each trial of a session and predicts the next choice. The sessions here are drawn: a learner with
a learning rate and a stickiness chooses between two arms, whose rewards swap now and then. Prints the loss, the mean negative log
likelihood of a choice, of the best seed and of the worst one, beside that of the learner itself, which no network can beat.
"""
import argparse

import jax
import jax.numpy as jnp
import numpy as np

import bppsa.jax

UNITS = 16


def draw_sessions(count, length, seed=0):
    """Inputs [T, B, 2] (the choice and the reward of the trial before), choices [T, B], and the learner's own loss."""
    random = np.random.default_rng(seed)
    values, last, good = np.zeros((count, 2)), np.zeros((count, 2)), random.integers(0, 2, count)
    inputs, choices, loss = np.zeros((length, count, 2), np.float32), np.zeros((length, count), np.int32), 0.0
    for t in range(length):
        right = 1 / (1 + np.exp(-(3 * (values[:, 1] - values[:, 0]) + 0.5 * (last[:, 1] - last[:, 0]))))
        choice = (random.random(count) < right).astype(int)
        loss -= np.log(np.where(choice == 1, right, 1 - right)).mean() / length
        reward = (random.random(count) < np.where(choice == good, 0.8, 0.2)).astype(float)
        choices[t] = choice
        if t + 1 < length:
            inputs[t + 1] = np.stack([2 * choice - 1, reward], 1)
        values[np.arange(count), choice] += 0.4 * (reward - values[np.arange(count), choice])
        last = np.eye(2)[choice]
        good = np.where(random.random(count) < 0.02, 1 - good, good)
    return jnp.asarray(inputs), jnp.asarray(choices), loss


def loss_of(parameters, inputs, choices):
    """The mean negative log likelihood of the choices."""
    states, _ = bppsa.jax.gru(inputs, parameters["gru"])
    logits = states @ parameters["out"]
    return -jnp.mean(jax.nn.log_sigmoid(jnp.where(choices == 1, logits, -logits)))


def adam(parameters, moments, gradient, step, rate=0.01):
    """One step of Adam (Kingma and Ba 2015)."""
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], gradient)
    moved = jax.tree.map(lambda p, m, v: p - rate * (m / (1 - 0.9 ** step)) / (jnp.sqrt(v / (1 - 0.999 ** step)) + 1e-8),
                         parameters, first, second)
    return moved, (first, second)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("sessions", 500), ("length", 200), ("seeds", 8), ("steps", 100)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"[{default}]")
    options = parser.parse_args()
    if min(vars(options).values()) < 1:
        parser.error("expected numbers of 1 or more")
    inputs, choices, best = draw_sessions(options.sessions, options.length)

    def begin(key):
        return {"gru": bppsa.jax.init(key, "gru", 2, UNITS), "out": 0.1 * jax.random.normal(key, (UNITS,))}

    @jax.jit
    def update(parameters, moments, step):
        loss, gradient = jax.vmap(jax.value_and_grad(loss_of), (0, None, None))(parameters, inputs, choices)
        return *adam(parameters, moments, gradient, step), loss

    parameters = jax.vmap(begin)(jax.random.split(jax.random.key(0), options.seeds))
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    moments = zeros, zeros
    for step in range(1, options.steps + 1):
        parameters, moments, loss = update(parameters, moments, step)
        if step == 1 or step % 10 == 0 or step == options.steps:
            print(f"step {step}: loss {float(loss.min()):.4f} .. {float(loss.max()):.4f} of {options.seeds} seeds", flush=True)
    print(f"the learner's own loss is {best:.4f}")


if __name__ == "__main__":
    main()

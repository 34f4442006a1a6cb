#!/usr/bin/env python3
"""A recurrent PPO in JAX of PureJaxRL's shape, with nn.scan over Flax's GRUCell and with bppsa.jax in its place: wall clock.

    PYTHONPATH=build/cpu/python build/rivals/bin/python bench/rivals/jax_ppo.py --out jax_ppo.json [--updates 200] [--turns 3]

16 environments (a pole on a cart, of which the agent sees the positions alone), 128 steps an update, a GRU of 128 units between two
layers of 128, 4 epochs of 4 minibatches, in float32: what PureJaxRL's ppo_rnn.py does in an update. Everything is one compiled
program, and the two programs differ in the cell alone: PureJaxRL's way to write it, or examples/python/purejaxrl.py's. First both
must agree: of a random minibatch with resets the loss, and of every parameter the gradient, none of which is 0, within 1e-4 of its
norm; then the mean loss of a first update. Then they train in turns, all updates in one call. A row has the seconds, and the mean
length of the episodes that ended in the last updates. Exits 77 where JAX, Flax or optax is missing, 1 where the two disagree.
"""
import argparse
import functools
import os
import sys
import time

import guest
import noise
import side_by_side  # in front of what it sets up

import program
import results_file

jax, nn, optax = (side_by_side.need(name, "JAX, Flax and optax") for name in ("jax", "flax.linen", "optax"))
jnp = jax.numpy
sys.path.append(os.path.join(guest.ROOT, "examples", "python"))
purejaxrl = side_by_side.need_bppsa("purejaxrl")

ENVS, STEPS, UNITS, EPOCHS, MINIBATCHES = 16, 128, 128, 4, 4
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, RATE, NORM = 0.99, 0.95, 0.2, 0.01, 0.5, 2.5e-4, 0.5


class FlaxScan(nn.Module):
    """nn.scan over a cell with resets."""

    @functools.partial(nn.scan, variable_broadcast="params", in_axes=0, out_axes=0, split_rngs={"params": False})
    @nn.compact
    def __call__(self, carry, x):
        inputs, resets = x
        carry = jnp.where(resets[:, None], jnp.zeros_like(carry), carry)
        return nn.GRUCell(features=inputs.shape[-1])(carry, inputs)


class Agent(nn.Module):
    """Logits of two actions and the value of every step, from observations and resets."""

    cell: type

    @nn.compact
    def __call__(self, carry, x):
        seen, resets = x
        carry, rows = self.cell(name="rnn")(carry, (nn.relu(nn.Dense(UNITS)(seen)), resets))
        logits = nn.Dense(2)(nn.relu(nn.Dense(UNITS)(rows)))
        return carry, logits, nn.Dense(1)(nn.relu(nn.Dense(UNITS)(rows)))[..., 0]


def begin(key, count):
    """States of the cart (x, speed, angle, turn) [B, 4]."""
    return jax.random.uniform(key, (count, 4), minval=-0.05, maxval=0.05)


def move(state, action, age, key):
    """One step of the poles (Barto, Sutton and Anderson 1983, by Euler's rule): states, rewards, ends, ages."""
    x, speed, angle, turn = state.T
    force = jnp.where(action == 1, 10.0, -10.0)
    common = (force + 0.05 * turn ** 2 * jnp.sin(angle)) / 1.1
    of_turn = (9.8 * jnp.sin(angle) - jnp.cos(angle) * common) / (0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / 1.1))
    of_speed = common - 0.05 * of_turn * jnp.cos(angle) / 1.1
    new = jnp.stack([x + 0.02 * speed, speed + 0.02 * of_speed, angle + 0.02 * turn, turn + 0.02 * of_turn], 1)
    ended = (jnp.abs(new[:, 0]) > 2.4) | (jnp.abs(new[:, 2]) > 0.2095) | (age + 1 >= 500)
    return jnp.where(ended[:, None], begin(key, len(x)), new), jnp.ones(len(x)), ended, jnp.where(ended, 0, age + 1)


def see(state):
    return state[:, ::2] * jnp.array([1.0, 10.0])


def loss_of(agent, parameters, batch):
    """The clipped loss of a minibatch of whole rollouts."""
    carry, seen, resets, action, of_action, value, advantage, target = batch
    _, logits, found = agent.apply(parameters, carry, (seen, resets))
    logs = jax.nn.log_softmax(logits)
    ratio = jnp.exp(jnp.take_along_axis(logs, action[..., None], -1)[..., 0] - of_action)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage).mean()
    clipped = value + jnp.clip(found - value, -CLIP, CLIP)
    error = 0.5 * jnp.maximum((found - target) ** 2, (clipped - target) ** 2).mean()
    return policy + VALUE * error + ENTROPY * (jnp.exp(logs) * logs).sum(-1).mean()


def make(cell, updates):
    """A function of a key: trains, and gives the losses and the mean length of the episodes that ended, of each update."""
    agent = Agent(cell)
    optimizer = optax.chain(optax.clip_by_global_norm(NORM), optax.adam(RATE, eps=1e-5))

    def act(parameters, now, key):
        state, resets, age, carry = now
        of_choice, of_env = jax.random.split(key)
        new_carry, logits, value = agent.apply(parameters, carry, (see(state)[None], resets[None]))
        action = jax.random.categorical(of_choice, logits[0])
        of_action = jnp.take_along_axis(jax.nn.log_softmax(logits[0]), action[:, None], 1)[:, 0]
        new, reward, ended, new_age = move(state, action, age, of_env)
        return (new, ended, new_age, new_carry), (see(state), resets, action, of_action, value[0], reward, ended, age)

    def learn(carried, key):
        parameters, moments, now = carried
        of_rollout, of_order = jax.random.split(key)
        first = now[3]
        now, rollout = jax.lax.scan(lambda at, k: act(parameters, at, k), now, jax.random.split(of_rollout, STEPS))
        seen, resets, action, of_action, value, reward, ended, age = rollout
        last = agent.apply(parameters, now[3], (see(now[0])[None], now[1][None]))[2][0]

        def back(state, step):
            advantage, after = state
            reward_t, value_t, ended_t = step
            delta = reward_t + GAMMA * after * (1 - ended_t) - value_t
            advantage = delta + GAMMA * LAMBDA * (1 - ended_t) * advantage
            return (advantage, value_t), advantage
        advantage = jax.lax.scan(back, (jnp.zeros(ENVS), last), (reward, value, ended.astype(jnp.float32)), reverse=True)[1]
        rows = seen, resets, action, of_action, value, advantage, advantage + value

        def epoch(state, key):
            order = jax.random.permutation(key, ENVS).reshape(MINIBATCHES, -1)

            def minibatch(state, which):
                parameters, moments = state
                batch = (first[which], *(each[:, which] for each in rows))
                loss, gradient = jax.value_and_grad(lambda p: loss_of(agent, p, batch))(parameters)
                change, moments = optimizer.update(gradient, moments)
                return (optax.apply_updates(parameters, change), moments), loss
            return jax.lax.scan(minibatch, state, order)
        (parameters, moments), losses = jax.lax.scan(epoch, (parameters, moments), jax.random.split(of_order, EPOCHS))
        lengths = (age + 1) * ended
        return (parameters, moments, now), (losses.mean(), lengths.sum() / jnp.maximum(ended.sum(), 1))

    def train(key):
        of_init, of_env, of_updates = jax.random.split(key, 3)
        carry = jnp.zeros((ENVS, UNITS))
        now = begin(of_env, ENVS), jnp.zeros(ENVS, bool), jnp.zeros(ENVS, jnp.int32), carry
        parameters = agent.init(of_init, carry, (see(now[0])[None], now[1][None]))
        state = parameters, optimizer.init(parameters), now
        return jax.lax.scan(learn, state, jax.random.split(of_updates, updates))[1]
    return jax.jit(train)


def compare_gradients(cells, key):
    """The differences of the loss of a random minibatch and of its gradients, each divided by the number's or the array's norm."""
    keys, count = jax.random.split(key, 8), ENVS // MINIBATCHES
    resets = jax.random.bernoulli(keys[0], 0.03, (STEPS, count))
    rows = [jax.random.normal(each, (STEPS, count)) for each in keys[1:5]]
    seen, action = jax.random.normal(keys[5], (STEPS, count, 2)), jax.random.bernoulli(keys[6], 0.5, (STEPS, count)).astype(int)
    batch = (jnp.zeros((count, UNITS)), seen, resets, action, 0.1 * rows[0] - 0.7, *rows[1:])
    parameters = Agent(cells["flax"]).init(keys[7], batch[0], (seen, resets))
    found = {name: jax.jit(jax.value_and_grad(lambda p, agent=Agent(cell): loss_of(agent, p, batch)))(parameters)
             for name, cell in cells.items()}
    (loss, gradients), (other, others) = found["bppsa"], found["flax"]
    norms = [float(jnp.linalg.norm(each)) for each in jax.tree.leaves(others)]
    apart = [float(jnp.linalg.norm(a - b)) for a, b in zip(jax.tree.leaves(gradients), jax.tree.leaves(others), strict=True)]
    assert all(norm > 0 for norm in norms), "a gradient that is 0 shows nothing"
    return abs(float(loss - other)) / abs(float(other)), max(a / norm for a, norm in zip(apart, norms))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="the JSON document")
    parser.add_argument("--updates", type=int, default=200, help="[200]")
    parser.add_argument("--turns", type=int, default=3, help="[3]")
    options = parser.parse_args()
    if options.updates < 1 or options.turns < 1:
        parser.error(f"--updates is {options.updates} and --turns {options.turns}, expected 1 or more")
    key = jax.random.key(1)
    cells = {"bppsa": purejaxrl.ScannedRNN, "flax": FlaxScan}
    of_loss, of_gradients = compare_gradients(cells, key)
    print(f"a minibatch's losses differ by {of_loss:.1e}, its gradients by {of_gradients:.1e}")
    losses = {name: float(make(cell, 1)(key)[0][0]) for name, cell in cells.items()}
    difference = abs(losses["bppsa"] - losses["flax"]) / max(abs(each) for each in losses.values())
    print(f"the first update's losses differ by {difference:.1e}")
    if not max(of_loss, of_gradients, difference) < 1e-4:
        print("jax_ppo.py: expected less than 1e-4")
        return 1
    runs = {name: make(cell, options.updates).lower(key).compile() for name, cell in cells.items()}
    times, reached = {name: [] for name in runs}, {}
    for _ in range(options.turns):
        for name, run in runs.items():
            start = time.perf_counter()
            lengths = jax.block_until_ready(run(key))[1]
            times[name].append(time.perf_counter() - start)
            reached[name] = float(lengths[-10:].mean())
    rows = [{"method": name, "updates": options.updates, "episode_length": reached[name], **noise.timing(times[name])}
            for name in runs]
    for row in rows:
        print(f"{row['method']:6s} {row['median_s']:8.2f} s{noise.mark(row)}, at the end episodes of {row['episode_length']:.0f} "
              "steps")
    if options.out:
        results_file.write(options.out, {"bench": "jax_ppo", **program.where_and_when(), "jax": jax.__version__, "threads": 1,
                                         "loss_difference": of_loss, "gradient_difference": of_gradients,
                                         "first_update_difference": difference, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Modules of bppsa.jax beside those whose parameters they take: flax.linen.RNN, flax.nnx.RNN, and scans over Equinox's cells."""
import unittest

from support import has, main

if has("jax"):
    import jax
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    import bppsa.jax as bj
    from jax_reference import distance, same_bits
if has("jax") and has("flax"):
    import flax.linen as nn
    from flax import nnx
if has("jax") and has("equinox"):
    import equinox as eqx

NEAR = 1e-12


def data(batch=(3,), steps=6, width=4):
    return jax.random.normal(jax.random.key(1), (*batch, steps, width), "float64")


def jittered(tree):
    """The parameters with random numbers added, so that biases are not 0."""
    leaves, form = jax.tree.flatten(tree)
    return jax.tree.unflatten(form, [leaf + 0.1 * jax.random.normal(key, leaf.shape, leaf.dtype) for leaf, key in
                                     zip(leaves, jax.random.split(jax.random.key(2), len(leaves)))])


def total(outputs):
    return sum(jnp.sin(each).sum() for each in jax.tree.leaves(outputs))


@unittest.skipUnless(has("jax") and has("flax"), "JAX or Flax is missing (pip install jax flax)")
class Linen(unittest.TestCase):
    def cells(self):
        options = {"features": 5, "param_dtype": jnp.float64}
        return [nn.SimpleCell(**options), nn.SimpleCell(**options, activation_fn=nn.relu), nn.GRUCell(**options),
                nn.LSTMCell(**options), nn.OptimizedLSTMCell(**options)]

    def test_rnn(self):
        """Parameters bit for bit, outputs, carries and gradients, in every arrangement of the arguments."""
        calls = [({}, {}), ({"return_carry": True}, {"seq_lengths": jnp.array([2, 6, 1])}),
                 ({"reverse": True, "keep_order": True, "return_carry": True}, {"seq_lengths": jnp.array([2, 6, 3])}),
                 ({"reverse": True}, {"return_carry": True})]
        for cell in self.cells():
            for number, (made, called) in enumerate(calls):
                theirs, ours = nn.RNN(cell, **made), bj.linen.RNN(cell, **made)
                x = data()
                variables = theirs.init(jax.random.key(3), x)
                if number == 0:
                    self.assertTrue(same_bits(ours.init(jax.random.key(3), x), variables))
                    self.assertEqual(jax.tree.structure(ours.init(jax.random.key(3), x)), jax.tree.structure(variables))
                variables = jittered(variables)
                found, wanted = (jax.jit(jax.value_and_grad(lambda v, x, m=module: total(m.apply(v, x, **called)), (0, 1)))(
                    variables, x) for module in (ours, theirs))
                self.assertLess(distance(found, wanted), NEAR, (cell, made))
                self.assertLess(distance(ours.apply(variables, x, **called), theirs.apply(variables, x, **called)), NEAR)

    def test_axes_and_carry(self):
        cell = nn.LSTMCell(5, param_dtype=jnp.float64)
        x = data((2, 3))
        carry = tuple(jax.random.normal(jax.random.key(k), (2, 3, 5), "float64") for k in (4, 5))
        theirs, ours = nn.RNN(cell, return_carry=True), bj.linen.RNN(cell, return_carry=True)
        variables = jittered(theirs.init(jax.random.key(3), x))
        self.assertLess(distance(ours.apply(variables, x, initial_carry=carry), theirs.apply(variables, x, initial_carry=carry)),
                        NEAR)
        turned = jnp.moveaxis(x, 2, 0)
        self.assertLess(distance(ours.apply(variables, turned, time_major=True), theirs.apply(variables, turned, time_major=True)),
                        NEAR)

    def test_resets(self):
        """A sequence with a reset is two sequences."""
        x = data()
        ours = bj.linen.RNN(nn.GRUCell(5, param_dtype=jnp.float64))
        variables = jittered(ours.init(jax.random.key(3), x))
        found = ours.apply(variables, x, resets=jnp.zeros((3, 6), bool).at[:, 4].set(True))
        parts = [ours.apply(variables, part) for part in (x[:, :4], x[:, 4:])]
        self.assertLess(distance(found, jnp.concatenate(parts, 1)), NEAR)

    def test_refusals(self):
        x = data()
        for cell, sentence in ((nn.SimpleCell(5, residual=True), r"W_i x \+ b \+ W_h h \+ h"),
                               (nn.MGUCell(5), "a MGUCell, expected"),
                               (nn.GRUCell(5, gate_fn=nn.hard_sigmoid), "gate_fn hard_sigmoid, expected sigmoid"),
                               (nn.LSTMCell(5, activation_fn=nn.relu), "activation_fn relu, expected tanh")):
            with self.assertRaisesRegex(bj.RequestError, sentence):
                bj.linen.RNN(cell).init(jax.random.key(0), x)


@unittest.skipUnless(has("jax") and has("flax"), "JAX or Flax is missing (pip install jax flax)")
class Nnx(unittest.TestCase):
    def test_rnn(self):
        options = {"in_features": 4, "hidden_features": 5, "param_dtype": jnp.float64}
        makers = [lambda: nnx.SimpleCell(**options, dtype=jnp.float64, rngs=nnx.Rngs(0)),
                  lambda: nnx.GRUCell(**options, rngs=nnx.Rngs(0)),
                  lambda: nnx.LSTMCell(**options, rngs=nnx.Rngs(0)), lambda: nnx.OptimizedLSTMCell(**options, rngs=nnx.Rngs(0))]
        x = data()
        for make in makers:
            for called in ({"return_carry": True}, {"reverse": True, "keep_order": True, "return_carry": True,
                                                    "seq_lengths": jnp.array([2, 6, 3])}):
                theirs, ours = nnx.RNN(make()), bj.nnx.RNN(make())
                state = jittered(nnx.state(theirs, nnx.Param))
                self.assertEqual(jax.tree.structure(nnx.state(ours, nnx.Param)), jax.tree.structure(state))
                found, wanted = (self.results(module, state, x, called) for module in (ours, theirs))
                self.assertLess(distance(found, wanted), NEAR, make())

    def results(self, module, state, x, called):
        nnx.update(module, state)
        value, gradient = nnx.value_and_grad(lambda m, x: total(m(x, **called)))(module, x)
        return value, jax.tree.leaves(gradient), module(x, **called)


@unittest.skipUnless(has("jax") and has("equinox"), "JAX or Equinox is missing (pip install jax equinox)")
class Equinox(unittest.TestCase):
    def test_rnn(self):
        for kind in (eqx.nn.GRUCell, eqx.nn.LSTMCell):
            for bias in (True, False):
                cell = kind(4, 5, use_bias=bias, dtype=jnp.float64, key=jax.random.key(0))
                xs = data(())
                zeros = jnp.full(5, 0.3)
                start = (zeros, zeros) if kind is eqx.nn.LSTMCell else zeros

                def theirs(cell, xs):
                    def step(state, x):
                        state = cell(x, state)
                        return state, state[0] if isinstance(state, tuple) else state
                    return jax.lax.scan(step, start, xs)
                ours = bj.equinox.RNN(cell)
                found = eqx.filter_value_and_grad(lambda module, xs=xs, start=start: total(module(xs, start)))(ours)
                wanted = eqx.filter_value_and_grad(lambda cell, xs=xs: total(theirs(cell, xs)))(cell)
                self.assertLess(distance(found, wanted), NEAR)
                self.assertLess(distance(ours(xs, start), theirs(cell, xs)), NEAR)
                batch = jax.vmap(lambda xs, ours=ours: ours(xs)[1])(data())
                self.assertLess(distance(batch, jnp.moveaxis(ours(jnp.moveaxis(data(), 1, 0))[1], 1, 0)), NEAR)
        with self.assertRaisesRegex(bj.RequestError, "a Linear, expected equinox.nn.GRUCell or LSTMCell"):
            bj.equinox.RNN(eqx.nn.Linear(2, 3, key=jax.random.key(0)))


@unittest.skipUnless(has("jax"), "JAX is missing (pip install jax)")
class Haiku(unittest.TestCase):
    def test_lstm(self):
        """The step of haiku.LSTM, as its documentation has it, from its parameters."""
        keys = jax.random.split(jax.random.key(0), 3)
        parameters = {"w": jax.random.normal(keys[0], (9, 20), "float64"), "b": jax.random.normal(keys[1], (20,), "float64")}
        x = data()

        def step(state, x_t):
            h, c = state
            i, g, f, o = jnp.split(jnp.concatenate([x_t, h], -1) @ parameters["w"] + parameters["b"], 4, -1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h
        zeros = jnp.zeros((3, 5))
        last, outputs = jax.lax.scan(step, (zeros, zeros), jnp.moveaxis(x, 1, 0))
        self.assertLess(distance(bj.lstm(jnp.moveaxis(x, 1, 0), bj.from_haiku(parameters)), (outputs, last)), NEAR)


if __name__ == "__main__":
    main()

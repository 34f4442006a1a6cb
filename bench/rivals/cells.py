"""Cells as functions of an array library f and of the weights w (w_ih, w_hh, b_ih, b_hh).

f has tanh, sigmoid, relu, concatenate and split, by whatever name the library calls them; Jacobians also need eye, ones_like and
jvp, which JAX alone has here. Nothing here is global, so that one process can run the same cell with several libraries.
"""
import collections
import functools
import types

# The input's part of a step, the step, its Jacobian, and the numbers in a state, over H.
Cell = collections.namedtuple("Cell", "take_input step jacobian width")


def torch_functions(torch):
    """f of PyTorch's module."""
    return types.SimpleNamespace(tanh=torch.tanh, sigmoid=torch.sigmoid, relu=torch.relu, concatenate=torch.cat, split=torch.chunk)


def jax_functions(jax):
    """f of JAX's module."""
    jnp = jax.numpy
    return types.SimpleNamespace(tanh=jnp.tanh, sigmoid=jax.nn.sigmoid, relu=jax.nn.relu, concatenate=jnp.concatenate,
                                 split=jnp.split, eye=jnp.eye, ones_like=jnp.ones_like, jvp=jax.jvp)


def rnn_input(w, x):
    return x @ w[0].T + (w[2] + w[3])


def rnn_step(function, w, a, h):
    return function(a + h @ w[1].T)


def rnn_jacobian(f, function, w, a, h):
    """d h' / d h, [..., H, H]."""
    _, slope = f.jvp(function, (a + h @ w[1].T,), (f.ones_like(h),))
    return slope[..., None] * w[1]


def gru_input(w, x):
    return x @ w[0].T + w[2]


def gru_gates(f, w, a, h):
    """r, z, n and the product of n's recurrent weights with h."""
    (xr, xz, xn), (hr, hz, hn) = f.split(a, 3, -1), f.split(h @ w[1].T + w[3], 3, -1)
    r, z = f.sigmoid(xr + hr), f.sigmoid(xz + hz)
    return r, z, f.tanh(xn + r * hn), hn


def gru_step(f, w, a, h):
    r, z, n, _ = gru_gates(f, w, a, h)
    return n + z * (h - n)


def gru_jacobian(f, w, a, h):
    r, z, n, hn = gru_gates(f, w, a, h)
    by_n = (1 - z) * (1 - n * n)
    wr, wz, wn = f.split(w[1], 3)
    product = (by_n * hn * r * (1 - r))[..., None] * wr + ((h - n) * z * (1 - z))[..., None] * wz + (by_n * r)[..., None] * wn
    return product + z[..., None] * f.eye(h.shape[-1], dtype=h.dtype)


def lstm_gates(f, w, a, s):
    """i, f, g, o and c' of a state s, which is h in front of c."""
    h, c = f.split(s, 2, -1)
    i, forget, g, o = f.split(a + h @ w[1].T, 4, -1)
    i, forget, g, o = f.sigmoid(i), f.sigmoid(forget), f.tanh(g), f.sigmoid(o)
    return i, forget, g, o, c, forget * c + i * g


def lstm_step(f, w, a, s):
    _, _, _, o, _, c = lstm_gates(f, w, a, s)
    return f.concatenate([o * f.tanh(c), c], -1)


def lstm_jacobian(f, w, a, s):
    i, forget, g, o, before, c = lstm_gates(f, w, a, s)
    out, (wi, wf, wg, wo) = f.tanh(c), f.split(w[1], 4)
    by_h = (g * i * (1 - i))[..., None] * wi + (before * forget * (1 - forget))[..., None] * wf + (i * (1 - g * g))[..., None] * wg
    by_c = forget[..., None] * f.eye(forget.shape[-1], dtype=forget.dtype)
    bridge = (o * (1 - out * out))[..., None]
    of_h = f.concatenate([bridge * by_h + (out * o * (1 - o))[..., None] * wo, bridge * by_c], -1)
    return f.concatenate([of_h, f.concatenate([by_h, by_c], -1)], -2)


def cell_of(f, model, nonlinearity):
    if model == "gru":
        return Cell(gru_input, functools.partial(gru_step, f), functools.partial(gru_jacobian, f), 1)
    if model == "lstm":
        return Cell(rnn_input, functools.partial(lstm_step, f), functools.partial(lstm_jacobian, f), 2)
    function = {"tanh": f.tanh, "relu": f.relu}[nonlinearity]
    return Cell(rnn_input, functools.partial(rnn_step, function), functools.partial(rnn_jacobian, f, function), 1)

#!/usr/bin/env python3
"""jax.experimental.rnn in the rounds of `bench lstm`, as bench/rivals/recurrent.py takes part in them.

    build/cuda/bppsa bench lstm --device cuda --rivals bench/rivals/jax_rnn.py [--seq-len 500 --batch 64 --hidden 128]

It is the LSTM of cuDNN, as JAX calls it, in float32 and without TF32, and nothing else: no other cell. It reads the batch first and
its weights as one array: both are made before the passes are timed. The methods:

  jax_rnn            jax.experimental.rnn.lstm, on a GPU alone
  jax_rnn_reference  lstm_ref of the same module, which checks on a processor what is handed over and what comes back
"""
import functools

import recurrent


class Lstm(recurrent.Jax):
    def __init__(self, reference, point, device):
        if device == "cpu" and not reference:
            raise recurrent.Refused("left out: jax.experimental.rnn calls cuDNN, on a GPU alone; jax_rnn_reference runs here")
        if device != "cpu" and reference:
            raise recurrent.Refused("left out: a check for processors")
        if point["model"] != "lstm" or point["dtype"] != "f32":
            raise recurrent.Refused("left out: jax.experimental.rnn has an LSTM in float32 alone")
        self.reference = reference
        super().__init__(point, device)

    def make(self, point, device):
        rnn = recurrent.need("jax.experimental.rnn", "jax")
        jax, jnp = recurrent.jax, recurrent.jnp
        shape = {"input_size": point["input"], "hidden_size": point["hidden"], "num_layers": point["layers"], "dropout": 0.0,
                 "bidirectional": False}
        # All matrices, layer by layer, then all biases.
        self.order = [(layer, kind) for kinds in ((0, 1), (2, 3)) for layer in range(point["layers"]) for kind in kinds]
        self.shapes = [self.weights[layer][kind].shape for layer, kind in self.order]
        self.weights = jnp.concatenate([self.weights[layer][kind].ravel() for layer, kind in self.order])
        self.x = self.x.swapaxes(0, 1)
        self.seed = self.seed.swapaxes(0, 1) if self.seed.ndim == 3 else self.seed
        zeros = jnp.zeros((point["layers"], point["batch"], point["hidden"]), jnp.float32)
        lengths = jnp.full((point["batch"],), point["seq_len"], jnp.int32)

        def forward(weights, x):
            if self.reference:
                parts = rnn.unpack_lstm_weights(weights, *list(shape.values())[:3], False)
                y, last, _ = rnn.lstm_ref(x, zeros, zeros, *parts, lengths, *shape.values())
            else:
                y, last, _ = rnn.lstm(x, zeros, zeros, weights, seq_lengths=lengths, **shape, precision=jax.lax.Precision.HIGHEST)
            return y if self.every else last[-1]

        return jax.jit(forward), jax.jit(lambda weights, x, seed: jax.vjp(lambda w: forward(w, x), weights)[1](seed)[0])

    def unpack(self, states, gradients=None):
        """As the program expects them: states by time, the gradients of W_ih, W_hh, b_ih, b_hh of each layer."""
        states = states.swapaxes(0, 1) if self.every else states
        if gradients is None:
            return states, None
        layers, at = [[None] * 4 for _ in range(len(self.order) // 4)], 0
        for (layer, kind), shape in zip(self.order, self.shapes):
            size = int(recurrent.np.prod(shape))
            layers[layer][kind] = gradients[at : at + size].reshape(shape)
            at += size
        return states, layers


METHODS = {"jax_rnn": ("JAX", functools.partial(Lstm, False)), "jax_rnn_reference": ("JAX", functools.partial(Lstm, True))}
if __name__ == "__main__":
    recurrent.serve(__doc__, METHODS, "jax")

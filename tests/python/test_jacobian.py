"""The package without PyTorch: Jacobians of operators, and the scan on arrays."""
import unittest

import numpy as np

import bppsa
from support import Exporter, has, main, residual
from test_commands import rnn_weights

METHODS = ["auto", "linear", "blelloch", "blelloch 2", "chunked", "chunked 3"]


def reference_scan(jt, u, g):
    y = np.zeros((len(jt) + 1, *g.shape))
    y[-1] = g
    for t in range(len(jt), 0, -1):
        product = jt[t - 1] * y[t] if jt.ndim == 3 else (jt[t - 1] @ y[t][..., None])[..., 0]
        y[t - 1] = product + (0 if u is None else u[t - 1])
    return y[:-1]


class Jacobians(unittest.TestCase):
    def setUp(self):
        if not has("scipy.sparse"):
            self.skipTest("SciPy is missing")
        self.rng = np.random.default_rng(4)

    def test_convolution(self):
        x, w = self.rng.standard_normal((2, 5, 6)), self.rng.standard_normal((3, 2, 3, 2))
        padded = np.pad(x, ((0, 0), (1, 1), (0, 0)))
        y = np.zeros((3, 3, 5))
        for o, i, j in np.ndindex(*y.shape):
            y[o, i, j] = np.sum(w[o] * padded[:, 2 * i:2 * i + 3, j:j + 2])
        jt = bppsa.jacobian.conv2d(in_shape=(2, 5, 6), weights=w, padding=(1, 0), stride=(2, 1), dtype="f64")
        self.assertEqual(type(jt).__name__, "csr_array")
        self.assertEqual(jt.shape, (60, 45))
        np.testing.assert_allclose(jt.T @ x.ravel(), y.ravel(), rtol=1e-12)

    def test_pointwise(self):
        x = self.rng.standard_normal((2, 3, 4))
        for name, slope in {"tanh": 1 - np.tanh(x) ** 2, "relu": (x > 0) * 1.0, "leaky_relu": np.where(x > 0, 1, 0.1)}.items():
            options = {"slope": 0.1} if name == "leaky_relu" else {}
            jt = getattr(bppsa.jacobian, name)(input=x, dtype="f64", **options)
            np.testing.assert_allclose(jt.toarray(), np.diag(slope.ravel()), atol=1e-12)
        s, hard = 1 / (1 + np.exp(-x)), (x > -3) & (x < 3)
        for name, slope in {"relu6": ((x > 0) & (x < 6)) * 1.0, "hardsigmoid": hard / 6, "silu": s * (1 + x * (1 - s)),
                            "hardswish": np.where(hard, x / 3 + 0.5, x > 0)}.items():
            jt = getattr(bppsa.jacobian, name)(input=x, dtype="f64")
            np.testing.assert_allclose(jt.toarray(), np.diag(slope.ravel()), atol=1e-12)
        u, du = 2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3), 2 * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x ** 2)
        t = 1 / (1 + np.exp(-u))
        jt = bppsa.jacobian.gelu(input=x, approximate="tanh", dtype="f64")
        np.testing.assert_allclose(jt.toarray(), np.diag((t + x * t * (1 - t) * du).ravel()), atol=1e-12)
        jt = bppsa.jacobian.sigmoid(input=x, dtype="f64")
        np.testing.assert_allclose(jt.toarray(), np.diag((s * (1 - s)).ravel()), atol=1e-12)

    def test_others(self):
        x, w = self.rng.standard_normal((1, 4, 4)), self.rng.standard_normal((3, 16))
        np.testing.assert_allclose(bppsa.jacobian.linear(in_shape=(1, 4, 4), weights=w, dtype="f64").T @ x.ravel(), w @ x.ravel())
        means = x.reshape(1, 2, 2, 2, 2).mean((2, 4))
        average = bppsa.jacobian.avgpool2d(input=x, kernel=2, dtype="f64")
        np.testing.assert_allclose(average.T @ x.ravel(), means.ravel())
        adaptive = bppsa.jacobian.adaptive_avgpool2d(input=x, size=2, dtype="f64")
        np.testing.assert_allclose(adaptive.T @ x.ravel(), means.ravel())
        whole = bppsa.jacobian.global_avgpool(input=x, dtype="f64")
        np.testing.assert_allclose(whole.T @ x.ravel(), [x.mean()])
        norm = bppsa.jacobian.batchnorm2d(in_shape=(2, 1, 2), weights=np.array([3.0, -0.5]), dtype="f64")
        np.testing.assert_array_equal(norm.toarray(), np.diag([3, 3, -0.5, -0.5]))
        np.testing.assert_array_equal(bppsa.jacobian.dropout(in_shape=(1, 2, 2)).toarray(), np.eye(4))
        largest = bppsa.jacobian.maxpool2d(input=x, kernel=2, pattern="argmax", dtype="f64")
        np.testing.assert_allclose(largest.T @ x.ravel(), x.reshape(1, 2, 2, 2, 2).max((2, 4)).ravel())
        np.testing.assert_array_equal(bppsa.jacobian.flatten(in_shape=(1, 2, 2)).toarray(), np.eye(4))

    def test_a_step(self):
        weights, x, h = rnn_weights(self.rng), self.rng.standard_normal(2), self.rng.standard_normal(3)
        after = np.tanh(weights["rnn.weight_ih_l0"] @ x + weights["rnn.weight_hh_l0"] @ h + weights["rnn.bias_ih_l0"]
                        + weights["rnn.bias_hh_l0"])
        jt = bppsa.jacobian.rnn(weights=weights, input=x, h0=h, dtype="f64")
        np.testing.assert_allclose(jt.toarray(), weights["rnn.weight_hh_l0"].T * (1 - after ** 2), rtol=1e-12)

    def test_a_step_of_an_lstm(self):
        """Its columns are the derivatives of the textbook's step by h and c."""
        size, x, h, c = 3, self.rng.standard_normal(2), self.rng.standard_normal(3), self.rng.standard_normal(3)
        weights = {f"lstm.{name}_l0": self.rng.uniform(-0.6, 0.6, shape)
                   for name, shape in (("weight_ih", (12, 2)), ("weight_hh", (12, 3)), ("bias_ih", (12,)), ("bias_hh", (12,)))}
        weights.update({"linear.weight": np.zeros((4, 3)), "linear.bias": np.zeros(4)})

        def step(state):
            gates = (weights["lstm.weight_ih_l0"] @ x + weights["lstm.bias_ih_l0"] + weights["lstm.weight_hh_l0"] @ state[:size]
                     + weights["lstm.bias_hh_l0"])
            i, f, o = (1 / (1 + np.exp(-gates[k * size:(k + 1) * size])) for k in (0, 1, 3))
            after = f * state[size:] + i * np.tanh(gates[2 * size:3 * size])
            return np.concatenate([o * np.tanh(after), after])

        jt, state = bppsa.jacobian.lstm(weights=weights, input=x, h0=h, c0=c, dtype="f64"), np.concatenate([h, c])
        quotients = [(step(state + 1e-6 * unit) - step(state - 1e-6 * unit)) / 2e-6 for unit in np.eye(2 * size)]
        np.testing.assert_allclose(jt.toarray(), quotients, atol=1e-9)

    def test_wrong_requests(self):
        with self.assertRaisesRegex(bppsa.RequestError, "--kernel: 'x'"):
            bppsa.jacobian.conv2d(in_shape=(1, 4, 4), out_channels=1, kernel="x")


class Scans(unittest.TestCase):
    def test_against_the_recurrence(self):
        rng = np.random.default_rng(5)
        for steps in (0, 1, 2, 3, 5, 10, 50):
            for shape in ((steps, 2, 3, 3), (steps, 2, 3)):
                for dtype in (np.float32, np.float64):
                    jt = rng.standard_normal(shape).astype(dtype) * dtype(0.6)
                    u, g = rng.standard_normal((steps, 2, 3)).astype(dtype), rng.standard_normal((2, 3)).astype(dtype)
                    for injected in (u, None):
                        expected = reference_scan(jt.astype(float), injected, g.astype(float))
                        for method in METHODS:
                            found = bppsa.scan(jt, injected, g, method=method)
                            self.assertEqual((found.shape, found.dtype), ((steps, 2, 3), dtype))
                            self.assertLess(residual(found, expected, steps, dtype), 30, (shape, dtype, method))

    def test_arrays_of_other_libraries(self):
        rng = np.random.default_rng(6)
        jt, u, g = rng.random((4, 2, 3)), rng.random((4, 2, 3)), rng.random((2, 3))
        expected = bppsa.scan(jt, u, g)
        np.testing.assert_array_equal(bppsa.scan(Exporter(jt), Exporter(u), Exporter(g)), expected)
        turned = np.asfortranarray(jt)
        np.testing.assert_array_equal(bppsa.scan(turned, u, g), expected)

    def test_wrong_arguments(self):
        g = np.zeros((2, 3))
        for jt, u, message in ((np.zeros((4, 2, 3, 2)), None, "jt: shape"), (np.zeros((4, 2)), None, "jt: shape"),
                               (np.zeros((4, 2, 3)), np.zeros((3, 2, 3)), r"u: shape \[3, 2, 3\], expected"),
                               (np.zeros((4, 2, 3), np.float32), None, "g: dtype float64, expected float32"),
                               (np.zeros((4, 2, 3), complex), None, "jt: dtype complex128, expected an array of numbers")):
            with self.assertRaisesRegex(ValueError, message):
                bppsa.scan(jt, u, g)
        with self.assertRaisesRegex(bppsa.RequestError, "method 'quick', expected auto"):
            bppsa.scan(np.zeros((4, 2, 3)), None, g, method="quick")


if __name__ == "__main__":
    main()

"""bppsa.jax.scan beside jax.lax.scan and jax.lax.associative_scan: values, derivatives of any order, and JAX's transforms."""
import os
import unittest

from support import at_length, has, main

# Programs run once, so that they are compiled quickly rather than well.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
if has("jax"):
    import jax
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", 2)
    import jax.numpy as jnp
    import numpy as np
    import bppsa
    import bppsa.jax as bj
    from jax_reference import distance, same_bits

FULL = os.environ.get("BPPSA_TEST_LENGTH") == "full"
NEAR = 1e-12
METHODS = ("auto", "linear", "blelloch", "blelloch 2", "chunked", "chunked 3")


def looped(a, b, h0, reverse=False):
    """By jax.lax.scan."""
    def step(h, now):
        a_t, b_t = now
        h = (jnp.einsum("...ij,...j->...i", a_t, h) if a_t.ndim > h.ndim else a_t * h) + b_t
        return h, h
    return jax.lax.scan(step, h0, (a, b), reverse=reverse)[1]


def associative(a, b, h0, reverse=False):
    """By jax.lax.associative_scan of the pairs (A, b)."""
    order = (lambda rows: rows[::-1]) if reverse else (lambda rows: rows)
    times = jnp.matmul if a.ndim > b.ndim else jnp.multiply
    apply = (lambda m, x: jnp.einsum("...ij,...j->...i", m, x)) if a.ndim > b.ndim else jnp.multiply
    products, sums = jax.lax.associative_scan(lambda x, y: (times(y[0], x[0]), apply(y[0], x[1]) + y[1]), (order(a), order(b)))
    return order(apply(products, jnp.broadcast_to(h0, b.shape)) + sums)


class Case:
    """A random recurrence."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        steps, batch, hidden = (int(random.integers(1, most)) for most in (24, 5, 7))
        draw = lambda *shape: jnp.asarray(random.standard_normal(shape))  # noqa: E731
        axes = (batch,) if random.random() < 0.8 else ()
        self.diagonal = bool(random.random() < 0.4)
        last = (hidden,) if self.diagonal else (hidden, hidden)
        self.options = {"reverse": bool(random.random() < 0.4), "method": METHODS[int(random.integers(len(METHODS)))],
                        "threads": int(random.integers(1, 4))}
        self.arguments = (draw(steps, *axes, *last) * (0.9 if self.diagonal else 0.9 * hidden ** -0.5),
                          draw(steps, *axes, hidden), draw(*axes, hidden))
        self.along = tuple(draw(*each.shape) for each in self.arguments)
        self.seed = draw(steps, *axes, hidden)

    def ours(self, *arguments):
        return bj.scan(*arguments, **self.options)

    def reference(self, *arguments):
        return looped(*arguments, reverse=self.options["reverse"])

    def loss(self, function):
        def value(*arguments):
            rows = function(*arguments)
            return jnp.vdot(self.seed, rows + 0.3 * rows * rows)
        return value

    def __str__(self):
        return f"{[each.shape for each in self.arguments]} {self.options}"


@unittest.skipUnless(has("jax"), "JAX is missing (pip install jax)")
class Scans(unittest.TestCase):
    def test_random(self):
        """Values, gradients, JVPs and Hessian-vector products of random recurrences, within 1e-12 of jax.lax.scan's."""
        every = (0, 1, 2)
        for seed in range(300 if FULL else 4):
            case = Case(seed)
            ways = lambda f: lambda *at: {  # noqa: E731
                "value and jvp": jax.jvp(f, at, case.along),
                "gradient and its jvp": jax.jvp(jax.grad(case.loss(f), every), at, case.along)}
            found, wanted = (jax.jit(ways(f))(*case.arguments) for f in (case.ours, case.reference))
            for name, each in found.items():
                with self.subTest(seed=seed, way=name, case=str(case)):
                    self.assertLess(distance(each, wanted[name]), NEAR)
            with self.subTest(seed=seed, way="associative", case=str(case)):
                value = found["value and jvp"][0]
                self.assertLess(distance(value, associative(*case.arguments, case.options["reverse"])), NEAR)

    @at_length
    def test_orders(self):
        """jax.test_util.check_grads of second order, forward and reverse in every combination, and a third derivative."""
        from jax.test_util import check_grads
        for seed in range(8 if FULL else 2):
            case = Case(seed + 50)
            check_grads(jax.jit(case.ours), case.arguments, order=2, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)
            third = lambda f: jax.grad(lambda at: jax.jvp(lambda x: jax.jvp(  # noqa: E731
                lambda y: case.loss(f)(y, *case.arguments[1:]), (x,), (case.along[0],))[1], (at,), (case.along[0],))[1])
            self.assertLess(distance(third(case.ours)(case.arguments[0]), third(case.reference)(case.arguments[0])), 1e-11)

    @at_length
    def test_vmap(self):
        """Over each argument, over all, twice, and of gradients."""
        for seed in range(1, 4 if FULL else 2):
            case = Case(seed)
            stacked = [jnp.stack([each, each * 0.5, each * 0.25], 1) for each in case.arguments]
            for axes in ((1, None, None), (None, 1, None), (None, None, 1), (1, 1, 1), (None, 1, 1)):
                arguments = [own if axis is None else many for own, many, axis in zip(case.arguments, stacked, axes)]
                for way in (lambda f: f, lambda f: jax.grad(case.loss(f), (0, 1, 2)),
                            lambda f: lambda *at: jax.jvp(f, at, case.along)[1]):
                    found, wanted = (jax.jit(jax.vmap(way(f), axes))(*arguments) for f in (case.ours, case.reference))
                    self.assertLess(distance(found, wanted), NEAR)
            both = lambda f: jax.vmap(jax.vmap(jax.grad(case.loss(f), (0, 1, 2)), (None, 1, None)), (1, None, None))  # noqa: E731
            found, wanted = (both(f)(stacked[0], stacked[1], case.arguments[2]) for f in (case.ours, case.reference))
            self.assertLess(distance(found, wanted), NEAR)
            found, wanted = (jax.jit(jax.hessian(case.loss(f), 2))(*case.arguments) for f in (case.ours, case.reference))
            self.assertLess(distance(found, wanted), NEAR)
            found, wanted = (jax.jit(jax.grad(lambda *at, f=f: jax.vmap(f, (1, None, None))(*at).sum(), (0, 1, 2)))(
                stacked[0], *case.arguments[1:]) for f in (case.ours, case.reference))
            self.assertLess(distance(found, wanted), NEAR)

    def test_left_out(self):
        a, b, h0 = Case(3).arguments
        self.assertTrue(same_bits(bj.scan(a, b), bj.scan(a, b, jnp.zeros_like(h0))))
        self.assertLess(distance(bj.scan(a, None, h0), looped(a, jnp.zeros_like(b), h0)), NEAR)
        found = jax.grad(lambda a, h0: (bj.scan(a, None, h0) ** 2).sum(), (0, 1))(a, h0)
        self.assertLess(distance(found, jax.grad(lambda a, h0: (looped(a, b * 0, h0) ** 2).sum(), (0, 1))(a, h0)), NEAR)
        self.assertEqual(bj.scan(a[:0], b[:0], h0).shape, b[:0].shape)
        gradient = jax.grad(lambda h0: bj.scan(a[:0], b[:0], h0).sum())(h0)
        self.assertEqual(distance(gradient, jnp.zeros_like(h0)), 0)

    def test_numpy(self):
        """The reverse scan is bppsa.scan."""
        random = np.random.default_rng(0)
        jt, u, g = random.standard_normal((9, 2, 3, 3)), random.standard_normal((9, 2, 3)), random.standard_normal((2, 3))
        for dtype in (np.float32, np.float64):
            for method in METHODS:
                given = [each.astype(dtype) for each in (jt, u, g)]
                self.assertTrue(same_bits(bj.scan(*given, reverse=True, method=method), bppsa.scan(*given, method=method)))

    @at_length
    def test_transforms(self):
        """checkpoint, a scan around it, shard_map over B, and threads change no bit."""
        random = np.random.default_rng(1)
        a, b, h0 = (jnp.asarray(random.standard_normal(shape)) for shape in ((9, 4, 3, 3), (9, 4, 3), (4, 3)))
        loss = lambda *at: (bj.scan(*at) ** 2).sum()  # noqa: E731
        self.assertTrue(same_bits(jax.grad(jax.checkpoint(loss), (0, 1, 2))(a, b, h0), jax.grad(loss, (0, 1, 2))(a, b, h0)))
        step = lambda f: lambda h, _: (f(a, b, h)[-1] * 0.5, h.sum())  # noqa: E731
        found, wanted = (jax.lax.scan(step(f), h0, None, 4) for f in (bj.scan, looped))
        self.assertLess(distance(found, wanted), NEAR)
        self.assertTrue(same_bits(bj.scan(a, b, h0, threads=3), bj.scan(a, b, h0)))
        from jax.sharding import Mesh, PartitionSpec as P
        mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
        split = jax.shard_map(bj.scan, mesh=mesh, in_specs=(P(None, "data"), P(None, "data"), P("data")),
                              out_specs=P(None, "data"))
        self.assertTrue(same_bits(jax.jit(split)(a, b, h0), bj.scan(a, b, h0)))
        self.assertNotIn("all-gather", jax.jit(split).lower(a, b, h0).compile().as_text())

    def test_refusals(self):
        a, b, h0 = jnp.ones((5, 2, 3, 3)), jnp.ones((5, 2, 3)), jnp.ones((2, 3))
        wrong = [
            (lambda: bj.scan(a), "b and h0: None, expected at least one of them"),
            (lambda: bj.scan(a.astype("float16"), b), "a: float16, expected float32 or float64"),
            (lambda: bj.scan(a, b, h0.astype("float32")), "h0: float32, expected float64, as a"),
            (lambda: bj.scan(a, b[:4]), r"b: shape \[4, 2, 3\], expected \[T, B, H\] = \[5, 2, 3\]"),
            (lambda: bj.scan(a[:, 0], b), r"b: shape \[5, 2, 3\], expected \[T, B, H\] = \[5, 3, 3\]"),
            (lambda: bj.scan(a[..., 0, 0], b), r"a: shape \[5, 2\], expected \[T, B, H, H\], or \[T, B, H\] of diagonals"),
            (lambda: bj.scan(a[..., :2], b), r"a: shape \[5, 2, 3, 2\], expected"),
            (lambda: bj.scan(a, b[0, 0]), "b: 1 axes, expected"),
            (lambda: bj.scan(a, b, method="fast"), "fast"),
            (lambda: bj.scan(a, b, method="bp"), "bp"),
            (lambda: bj.scan(a, b, threads=-1), "-1"),
        ]
        for number, (call, sentence) in enumerate(wrong):
            with self.subTest(number=number):
                with self.assertRaisesRegex(bj.RequestError, sentence):
                    call()


if __name__ == "__main__":
    main()

"""bppsa.jax beside jax.lax.scan: values and derivatives of random layers, and JAX's transforms. At full length
(BPPSA_TEST_LENGTH=full) 300 random layers and 10 000 calls in place of a few."""
import concurrent.futures
import gc
import os
import shutil
import subprocess
import sys
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
    import bppsa.jax as bj
    from bppsa import _native
    from jax_reference import Case, KINDS, derivatives, distance, layer, run, same_bits

FULL = os.environ.get("BPPSA_TEST_LENGTH") == "full"
NEAR = 1e-12
HEADER = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "python", "xla_ffi.h"))


def problem(kind, steps=6, batch=3, width=4, hidden=5, dtype="float64", seed=0):
    keys = jax.random.split(jax.random.key(seed), 4)
    state = tuple(jax.random.normal(key, (batch, hidden), dtype) for key in keys[:2])
    return (jax.random.normal(keys[2], (steps, batch, width), dtype), bj.init(keys[3], kind, width, hidden, dtype=dtype),
            state if kind == "lstm" else state[0])


def loss_of(kind, function, **options):
    return lambda *arguments: sum(jnp.sin(rows).sum() for rows in jax.tree.leaves(function(kind, *arguments, **options)))


@unittest.skipUnless(has("jax"), "JAX is missing (pip install jax)")
class Layers(unittest.TestCase):
    def test_random_layers(self):
        """Values and all gradients, within 1e-12 of those of jax.lax.scan."""
        first = int(os.environ.get("BPPSA_TEST_SEED", 0))
        for seed in range(first, first + (300 if FULL else 6)):
            case = Case(seed)
            with self.subTest(seed=seed, case=str(case)):
                both = lambda f, loss: lambda at: (f(at), jax.value_and_grad(loss)(at))  # noqa: E731
                found, wanted = (jax.jit(both(f, case.loss(f)))(case.arguments) for f in (case.ours, case.reference))
                self.assertLess(distance(found, wanted), NEAR)

    @at_length
    def test_second_derivatives(self):
        """jvp, the four ways to a Hessian-vector product, and second derivatives of all outputs, within 1e-12."""
        first = int(os.environ.get("BPPSA_TEST_SEED", 0))
        for seed in range(first, first + (300 if FULL else 3)):
            case = Case(seed)
            ours, reference = (jax.jit(derivatives(case, f, seed)) for f in (case.ours, case.reference))
            found, wanted = ours(case.arguments), reference(case.arguments)
            for name, each in found.items():
                with self.subTest(seed=seed, way=name, case=str(case)):
                    self.assertLess(distance(each, wanted[name]), NEAR)
        loss, along = case.loss(case.ours), case.arguments
        with self.assertRaisesRegex(NotImplementedError, "third derivatives"):
            jax.grad(lambda at: jax.jvp(jax.grad(loss), (at,), (along,))[1][0].sum())(case.arguments)

    @at_length
    def test_check_grads(self):
        """jax.test_util.check_grads to second order, forward and reverse in every combination."""
        from jax.test_util import check_grads
        for number, kind in enumerate(KINDS):
            x, weights, state = problem(kind, 4, 2, 3, 3, seed=number)
            mask = jnp.zeros((4, 2), bool).at[2, 1].set(True) if kind == "gru" else None
            check_grads(jax.jit(lambda *at, kind=kind, mask=mask: run(kind, *at, resets=mask)), (x, weights, state), order=2,
                        modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)

    @at_length
    def test_hessian(self):
        """Over vmap: jax.hessian and jacfwd of a small layer, in the weights and in x."""
        x, weights, state = problem("gru", 3, 2, 2, 2)
        for argument in (0, 1):
            found, wanted = (jax.jit(jax.hessian(loss_of("gru", own), argument))(x, weights, state) for own in (run, layer))
            self.assertLess(distance(found, wanted), NEAR)
            found, wanted = (jax.jit(jax.jacfwd(jax.jacfwd(loss_of("gru", own), argument), argument))(x, weights, state)
                             for own in (run, layer))
            self.assertLess(distance(found, wanted), NEAR)
            found, wanted = (jax.jit(jax.jacfwd(lambda *at, own=own: own("gru", *at)[0], argument))(x, weights, state)
                             for own in (run, layer))
            self.assertLess(distance(found, wanted), NEAR)

    def test_float32(self):
        for kind in KINDS:
            arguments = problem(kind, 40, 3, 4, 16, "float32")
            wide = jax.tree.map(lambda each: each.astype("float64"), arguments)
            for function in (lambda own: loss_of(kind, own), lambda own: jax.grad(loss_of(kind, own), (0, 1, 2))):
                found, wanted = jax.jit(function(run))(*arguments), jax.jit(function(layer))(*wide)
                self.assertTrue(all(each.dtype == "float32" for each in jax.tree.leaves(found)))
                self.assertLess(distance(found, wanted), 1e-5)

    def test_single_sequence(self):
        for kind in KINDS:
            x, weights, state = problem(kind, batch=1)
            mask = jnp.arange(6) == 3
            alone = run(kind, x[:, 0], weights, jax.tree.map(lambda part: part[0], state), resets=mask)
            wanted = layer(kind, x, weights, state, resets=mask[:, None])
            self.assertLess(distance(alone, jax.tree.map(lambda each: each[:, 0] if each.ndim == 3 else each[0], wanted)), NEAR)

    def test_weights_in_other_forms(self):
        x, weights, state = problem("gru")
        wanted = bj.gru(x, weights, state)
        self.assertTrue(same_bits(bj.gru(x, weights._asdict(), state), wanted))
        self.assertTrue(same_bits(bj.gru(np.asarray(x), tuple(np.asarray(each) for each in weights[:4]), state), wanted))

    def test_empty(self):
        for kind in KINDS:
            x, weights, state = problem(kind)
            none = jax.tree.map(lambda part: part[:0], state)
            y, _ = run(kind, x[:, :0], weights, none)[:2]
            self.assertEqual(y.shape, (6, 0, 5))
            gradients = jax.grad(loss_of(kind, run), 1)(x[:, :0], weights, none)
            self.assertEqual(distance(gradients, jax.tree.map(jnp.zeros_like, weights)), 0)
            found = jax.value_and_grad(loss_of(kind, run), (0, 1, 2))(x[:0], weights, state)
            self.assertLess(distance(found, jax.value_and_grad(loss_of(kind, layer), (0, 1, 2))(x[:0], weights, state)), NEAR)

    def test_resets_cut(self):
        """A number that is not finite in front of a reset has no part in what follows, and the gradient of h0 is 0 behind one."""
        x, weights, state = problem("gru")
        mask = jnp.zeros((6, 3), bool).at[0].set(True)
        y, _ = bj.gru(x, weights, state * jnp.nan, resets=mask)
        self.assertTrue(bool(jnp.isfinite(y).all()))
        gradient = jax.grad(lambda h0: bj.gru(x, weights, h0, resets=mask)[0].sum())(state)
        self.assertTrue(bool((gradient == 0).all()))


@unittest.skipUnless(has("jax"), "JAX is missing (pip install jax)")
class Transforms(unittest.TestCase):
    dtype, near = "float64", NEAR

    def problem(self, kind, steps=6, batch=3, width=4, hidden=5):
        return problem(kind, steps, batch, width, hidden, self.dtype)

    @at_length
    def test_vmap(self):
        """Over x, states, weights and several of them; vmap of grad, and grad of vmap."""
        for kind, axes in (("rnn", (0, None, None)), ("gru", (None, 0, None)), ("lstm", (0, 0, 0)), ("gru", (1, None, 1)),
                           ("lstm", (None, None, 0)), ("rnn", (2, 1, 0))):
            x, weights, state = self.problem(kind)
            stacked = [each if axis is None else jax.tree.map(lambda part, at=axis: jnp.stack([part, part * 2], min(at, part.ndim)),
                                                              each) for each, axis in zip((x, weights, state), axes)]
            axes = [axis if axis is None else jax.tree.map(lambda part, at=axis: min(at, part.ndim), each)
                    for each, axis in zip((x, weights, state), axes)]
            with self.subTest(kind=kind, axes=axes):
                self.compare_vmap(kind, stacked, axes)

    def compare_vmap(self, kind, stacked, axes):
        found, wanted = (jax.jit(jax.vmap(jax.value_and_grad(loss_of(kind, own), (0, 1, 2)), axes))(*stacked)
                         for own in (run, layer))
        self.assertLess(distance(found, wanted), self.near)
        found, wanted = (jax.jit(jax.grad(lambda *arguments, own=own: jax.vmap(loss_of(kind, own), axes)(*arguments).sum(),
                                          (0, 1, 2)))(*stacked) for own in (run, layer))
        self.assertLess(distance(found, wanted), self.near)

    @at_length
    def test_nested_vmap(self):
        """Seeds of weights, and for each of them samples."""
        x, weights, state = self.problem("gru")
        seeds = jax.tree.map(lambda each: jnp.stack([each, -each, 2 * each]), weights)
        xs = jnp.stack([x, x + 1])
        both = lambda own: jax.vmap(jax.vmap(jax.grad(loss_of("gru", own), 1), (0, None, None)), (None, 0, None))  # noqa: E731
        self.assertLess(distance(jax.jit(both(run))(xs, seeds, state), jax.jit(both(layer))(xs, seeds, state)), self.near)
        other = lambda own: jax.vmap(jax.vmap(jax.grad(loss_of("gru", own), 1), (None, 0, None)), (0, None, None))  # noqa: E731
        self.assertLess(distance(jax.jit(other(run))(xs, seeds, state), jax.jit(other(layer))(xs, seeds, state)), self.near)

    @at_length
    def test_jacrev(self):
        x, weights, state = self.problem("gru", 3, 2, 2, 3)
        found, wanted = (jax.jacrev(lambda x, own=own: own("gru", x, weights, state)[0])(x) for own in (run, layer))
        self.assertLess(distance(found, wanted), self.near)

    @at_length
    def test_checkpoint_and_two_pulls(self):
        for kind in KINDS:
            arguments = self.problem(kind)
            loss = loss_of(kind, run)
            self.assertTrue(same_bits(jax.grad(jax.checkpoint(loss), (0, 1, 2))(*arguments), jax.grad(loss, (0, 1, 2))(*arguments)))
            y, pull = jax.vjp(lambda *own, kind=kind: run(kind, *own)[0], *arguments)
            first, second = pull(jnp.ones_like(y)), pull(jnp.cos(y))
            self.assertTrue(same_bits(first, pull(jnp.ones_like(y))))
            wanted = jax.vjp(lambda *own, kind=kind: layer(kind, *own)[0], *arguments)[1](jnp.cos(y))
            self.assertLess(distance(second, wanted), self.near)

    @at_length
    def test_training_in_a_scan(self):
        """Five steps of SGD within lax.scan, and with weights that are donated."""
        x, weights, state = self.problem("lstm")

        def train(own):
            def step(weights, _):
                value, gradient = jax.value_and_grad(loss_of("lstm", own), 1)(x, weights, state)
                return jax.tree.map(lambda each, of: each - 0.05 * of, weights, gradient), value
            return step
        found, wanted = (jax.jit(lambda weights, own=own: jax.lax.scan(train(own), weights, None, 5))(weights)
                         for own in (run, layer))
        self.assertLess(distance(found, wanted), self.near)
        step = jax.jit(lambda weights: train(run)(weights, None)[0], donate_argnums=0)
        moved = jax.tree.map(jnp.copy, weights)
        for _ in range(5):
            moved = step(moved)
        self.assertLess(distance(moved, found[0]), self.near)

    @at_length
    def test_threads(self):
        """64 runs in four threads, two shapes at once: the same bits."""
        cases = [self.problem(kind, steps, 3, 4, 16) for kind, steps in (("gru", 30), ("gru", 31))]
        gradient = jax.jit(jax.value_and_grad(loss_of("gru", run), (0, 1, 2)))
        wanted = [gradient(*case) for case in cases]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda number: gradient(*cases[number % 2]), range(64)))
        self.assertTrue(all(same_bits(each, wanted[number % 2]) for number, each in enumerate(found)))
        several = jax.jit(jax.value_and_grad(loss_of("gru", run, threads=4), (0, 1, 2)))
        self.assertTrue(same_bits(several(*cases[0]), wanted[0]))

    @at_length
    @unittest.skipUnless(has("flatbuffers"), "jax.export needs flatbuffers")
    def test_export(self):
        """A program for any B, with its derivative, written and read."""
        x, weights, _ = self.problem("gru")
        weights = tuple(weights[:4])
        loss = loss_of("gru", lambda kind, w, x: run(kind, x, bj.Weights(*w)))
        from jax import export
        samples, = export.symbolic_shape("B")
        checks = [export.DisabledSafetyCheck.custom_call(name) for name in bj.FFI_TARGETS]
        made = export.export(jax.jit(loss), disabled_checks=checks)(weights, jax.ShapeDtypeStruct((6, samples, 4), x.dtype))
        again = export.deserialize(made.serialize(vjp_order=1))
        for count in (3, 1):
            found = jax.value_and_grad(again.call)(weights, x[:, :count])
            self.assertTrue(same_bits(found, jax.jit(jax.value_and_grad(loss))(weights, x[:, :count])))

    @at_length
    def test_shard_map(self):
        """Samples on two devices: no gather of arrays, and one sum of the weights' gradients."""
        x, weights, _ = self.problem("gru", batch=4)
        from jax.sharding import Mesh, PartitionSpec as P
        mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
        loss = loss_of("gru", lambda kind, w, x: run(kind, x, w))
        shared = loss_of("gru", lambda kind, w, x: layer(kind, x, w))
        for check in (False, True):
            both = jax.shard_map(lambda w, x: jax.lax.psum(loss(w, x), "data"), mesh=mesh, in_specs=(P(), P(None, "data")),
                                 out_specs=P(), check_vma=check)
            gradient = jax.jit(jax.value_and_grad(both))
            self.assertLess(distance(gradient(weights, x), jax.value_and_grad(shared)(weights, x)), self.near)
            self.assertNotIn("all-gather", gradient.lower(weights, x).compile().as_text())


@unittest.skipUnless(has("jax"), "JAX is missing (pip install jax)")
class TransformsInFloat32(Transforms):
    """The same in float32, beside lax.scan in float32."""

    dtype, near = "float32", 2e-5


@unittest.skipUnless(has("jax"), "JAX is missing (pip install jax)")
class Calls(unittest.TestCase):
    def test_refusals(self):
        x, weights, state = problem("gru")
        lstm = problem("lstm")[1]
        wrong = [
            (lambda: bj.gru(x[0, 0], weights), "x: shape .*expected .T, B, I., or .T, I."),
            (lambda: bj.gru(x.astype("float16"), weights), "x: float16, expected float32 or float64"),
            (lambda: bj.gru(x, weights, state.astype("float32")), "h0: float32, expected float64, as x"),
            (lambda: bj.gru(x, weights, state[:2]), r"h0: shape \[2, 5\], expected \[B, H\] = \[3, 5\]"),
            (lambda: bj.gru(x, lstm), r"w_ih: shape \[20, 4\], expected \[G H, I\] = \[15, 4\]"),
            (lambda: bj.gru(x, {"w": 1}), "weights: expected bppsa.jax.Weights"),
            (lambda: bj.lstm(x, lstm, state), "state: a ArrayImpl, expected a pair"),
            (lambda: bj.gru(x, weights, resets=jnp.zeros((6, 3))), "resets: float64, expected bool"),
            (lambda: bj.gru(x, weights, resets=jnp.zeros((3, 6), bool)), r"resets: shape \[3, 6\], expected \[T, B\] = \[6, 3\]"),
            (lambda: bj.gru(x, weights, lengths=jnp.ones(3)), "lengths: float64, expected whole numbers"),
            (lambda: bj.gru(x, weights, method="fast"), "fast"),
            (lambda: bj.gru(x, weights, forward="fast"), "fast"),
            (lambda: bj.gru(x, weights, threads=-1), "threads -1"),
            (lambda: bj.rnn(x, weights, nonlinearity="elu"), "nonlinearity: 'elu', expected 'tanh' or 'relu'"),
            (lambda: bj.gru(x, weights._replace(reset_state=jnp.zeros(5))), "reset_state: needs resets"),
            (lambda: bj.from_flax({"a": {}}), "expected those of SimpleCell"),
            (lambda: bj.from_haiku({"w_i": 0, "w_h": 0, "b": 0}), "haiku.GRU computes n = tanh"),
        ]
        for call, sentence in wrong:
            self.assertRaisesRegex(bj.RequestError, sentence, call)
        with self.assertRaisesRegex(Exception, "INVALID_ARGUMENT: bppsa.jax: gru, forward: length 7 of sample 1.*expected 1 .. 6"):
            jax.block_until_ready(bj.gru(x, weights, lengths=jnp.array([6, 7, 1])))

    def test_other_platforms(self):
        """A program for a GPU is refused with a sentence while it is made."""
        from jax import export
        x, weights, _ = problem("gru")
        with self.assertRaisesRegex(NotImplementedError, "bppsa.jax: computes on the CPU"):
            export.export(jax.jit(lambda x: bj.gru(x, weights)[0]), platforms=["cuda"])(x)

    def test_memory(self):
        """Nothing stays of calls, or of layers that are not among the latest."""
        case = problem("gru", 5, 2, 2, 3, "float32")
        gradient = jax.jit(jax.value_and_grad(loss_of("gru", run), (0, 1, 2)))
        jax.block_until_ready(gradient(*case))
        before = _native.allocated()
        for _ in range(10000 if FULL else 300):
            jax.block_until_ready(gradient(*case))
        self.assertEqual(_native.allocated(), before)
        for steps in range(1, 100):  # asks for a layer of each length
            jax.eval_shape(lambda x: bj.gru(x, case[1])[0], jax.ShapeDtypeStruct((steps, 2, 2), "float32"))
        self.assertLessEqual(_native.xla_kept(), 64)
        self.assertTrue(same_bits(gradient(*case), gradient(*case)))
        gc.collect()

    @unittest.skipUnless(shutil.which("cc") and os.path.exists(HEADER), "no C compiler, or not the repository")
    def test_declarations(self):
        """python/xla_ffi.h beside XLA's own header: sizes, offsets and numbers."""
        pairs = {"version": "Api_Version", "metadata_extension": "Metadata_Extension", "text": "ByteSpan", "scalar": "Scalar",
                 "buffer": "Buffer", "list": "Args", "attributes": "Attrs", "new_error": "Error_Create_Args",
                 "extension": "Extension_Base", "stream": "Stream_Get_Args", "allocation": "DeviceMemory_Allocate_Args",
                 "release": "DeviceMemory_Free_Args", "device": "DeviceOrdinal_Get_Args"}
        lines = [f"_Static_assert(sizeof(bppsa_xla_{ours}) == sizeof(XLA_FFI_{theirs}), \"{ours}\");"
                 for ours, theirs in pairs.items()]
        members = [("metadata", "version", "Metadata", "api_version"), ("metadata", "traits", "Metadata", "traits"),
                   ("metadata_extension", "metadata", "Metadata_Extension", "metadata"),
                   ("extension", "type", "Extension_Base", "type"), ("buffer", "dtype", "Buffer", "dtype"),
                   ("buffer", "data", "Buffer", "data"), ("buffer", "dims", "Buffer", "dims"),
                   ("list", "count", "Args", "size"), ("list", "items", "Args", "args"), ("list", "items", "Rets", "rets"),
                   ("attributes", "names", "Attrs", "names"), ("attributes", "items", "Attrs", "attrs"),
                   ("new_error", "code", "Error_Create_Args", "errc"), ("api", "error_create", "Api", "XLA_FFI_Error_Create"),
                   ("api", "stream_get", "Api", "XLA_FFI_Stream_Get"), ("api", "device_get", "Api", "XLA_FFI_DeviceOrdinal_Get"),
                   ("api", "memory_allocate", "Api", "XLA_FFI_DeviceMemory_Allocate"),
                   ("api", "memory_free", "Api", "XLA_FFI_DeviceMemory_Free"), ("stream", "stream", "Stream_Get_Args", "stream"),
                   ("allocation", "alignment", "DeviceMemory_Allocate_Args", "alignment"),
                   ("allocation", "data", "DeviceMemory_Allocate_Args", "data"),
                   ("release", "data", "DeviceMemory_Free_Args", "data"),
                   ("device", "number", "DeviceOrdinal_Get_Args", "device_ordinal"),
                   *(("frame", ours, "CallFrame", theirs) for ours, theirs in (
                       ("extensions", "extension_start"), ("api", "api"), ("context", "ctx"), ("stage", "stage"),
                       ("arguments", "args"), ("results", "rets"), ("attributes", "attrs")))]
        lines += [f"_Static_assert(offsetof(bppsa_xla_{ours}, {member}) == offsetof(XLA_FFI_{theirs}, {other}), \"{member}\");"
                  for ours, member, theirs, other in members]
        numbers = {"METADATA": "Extension_Metadata", "BUFFER": "ArgType_BUFFER", "SCALAR": "AttrType_SCALAR",
                   "STRING": "AttrType_STRING", "EXECUTE": "ExecutionStage_EXECUTE", "PRED": "DataType_PRED", "S32": "DataType_S32",
                   "S64": "DataType_S64", "U8": "DataType_U8", "F32": "DataType_F32", "F64": "DataType_F64",
                   **{name: f"Error_Code_{name}" for name in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
                                                              "UNIMPLEMENTED", "INTERNAL")}}
        lines += [f"_Static_assert((int)BPPSA_XLA_{ours} == (int)XLA_FFI_{theirs}, \"{ours}\");"
                  for ours, theirs in numbers.items()]
        lines += ["_Static_assert(BPPSA_XLA_MAJOR == XLA_FFI_API_MAJOR && BPPSA_XLA_MINOR <= XLA_FFI_API_MINOR, \"version\");"]
        program = f'#include "{HEADER}"\n#include "xla/ffi/api/c_api.h"\n' + "\n".join(lines)
        done = subprocess.run(["cc", "-std=gnu17", "-fsyntax-only", "-I", jax.ffi.include_dir(), "-xc", "-"], input=program,
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_imports_alone(self):
        """The package without JAX, and the door without PyTorch, Flax and Equinox."""
        program = "import sys, bppsa; print('jax' in sys.modules); import bppsa.jax; " \
                  "print([name for name in ('torch', 'flax', 'equinox') if name in sys.modules])"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout, "False\n[]\n", done.stderr)


if __name__ == "__main__":
    main()

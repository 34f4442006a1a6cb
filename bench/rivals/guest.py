"""How a script takes part in the rounds of the program: the talk that bench/rivals/guest.h describes, its options, its environment
and its libraries. serve() does all of it for a table of methods.

numpy, PyTorch and JAX are imported while the program goes on with its own methods. Other modules take them from here as np, torch,
jax and jnp, at once, and use them in the functions of their methods.
"""
import argparse
import contextlib
import glob
import importlib
import importlib.metadata
import json
import os
import signal
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
ENVIRONMENT = os.path.join(ROOT, "build", "rivals")  # as in bench/rivals/setup


class Later:
    """A module that is imported where it is first used."""

    def __init__(self, name):
        self.module_name = name

    def __getattr__(self, attribute):
        found = getattr(importlib.import_module(self.module_name), attribute)
        setattr(self, attribute, found)  # so that a pass does not look for it again
        return found


np, torch, jax, jnp = map(Later, ("numpy", "torch", "jax", "jax.numpy"))


class Refused(Exception):
    """What the program writes into the row."""


def enter_environment():
    """Starts again in the environment, whose PyTorch finds CUDA's libraries beside it or in the toolkit, where there is one."""
    python = os.path.join(ENVIRONMENT, "bin", "python")
    if os.access(python, os.X_OK) and os.path.realpath(sys.prefix) != os.path.realpath(ENVIRONMENT):
        folders = glob.glob(os.path.join(ENVIRONMENT, "lib", "python3*", "site-packages", "nvidia", "*", "lib"))
        folders += [folder for folder in ["/usr/local/cuda/lib64", os.environ.get("LD_LIBRARY_PATH")] if folder]
        os.environ["LD_LIBRARY_PATH"] = ":".join(folders)
        os.execv(python, [python, os.path.realpath(sys.argv[0]), *sys.argv[1:]])


def parse(description):
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=1, help="that a pass may use [1]")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="[cpu]")
    return p.parse_args()


def limit_threads(count):
    """OpenMP is PyTorch's. XLA takes as many threads as there are processors for the process, and has a switch for one thread."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    if count == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    elif count < len(os.sched_getaffinity(0)):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


@contextlib.contextmanager
def at_most(seconds):
    """Refuses what is inside when it has taken so long. None: it may take any time."""

    def stop(*_):
        raise Refused("--time-limit was over before its first pass was")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Server:
    """Answers requests until there are no more. The libraries are imported beside it."""

    def __init__(self, options, methods, packages, steps):
        self.device, self.methods, self.steps = options.device, methods, steps
        self.versions = dict(versions_of(packages))
        self.imports = threading.Thread(target=import_libraries, args=(options, {library for library, _ in methods.values()}))
        self.input = os.fdopen(os.dup(0), "rb")
        self.output = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)  # what a library prints does not disturb the answers
        self.point, self.entered = None, {}

    def send(self, answer, arrays=()):
        data = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        self.output.write(json.dumps(dict(answer, bytes=len(data)) if arrays else answer).encode() + b"\n" + data)
        self.output.flush()

    @staticmethod
    def read_point(request, data):
        """The request with its arrays."""
        dtype, at = np.dtype({"f32": "float32", "f64": "float64"}[request["dtype"]]), 0
        T, B, H = (request[key] for key in ("seq_len", "batch", "hidden"))
        seed = [T] * (request["loss_on"] == "all") + [B] + [H] * (request.get("passes") != "step")
        shapes = [("x", [T, B, request["input"]]), ("seed", seed)]
        shapes += [(p["name"], p["shape"]) for p in request["parameters"]]
        arrays = {}
        for name, shape in shapes:
            count = int(np.prod(shape))
            arrays[name] = np.frombuffer(data, dtype, count, at).reshape(shape)
            at += count * dtype.itemsize
        forward_only = request.get("passes") == "forward"
        return dict(request, forward_only=forward_only, x=arrays.pop("x"), seed=arrays.pop("seed"), weights=arrays)

    def enter(self, method):
        library, make = self.methods[method]
        self.imports.join()
        if library in MISSING:
            raise Refused(f"{library} is not installed ({MISSING[library]}): bench/rivals/setup installs it")
        point = self.read_point(*self.point)
        if point.get("passes") == "step":
            if method not in self.steps:
                raise Refused("it makes no training step")
            make = self.steps[method]
        self.entered[method] = make(point, self.device)
        return self.entered[method].results()

    def answer(self, request, data):
        asked, method = request["ask"], request.get("method")
        if asked == "point":
            self.point, self.entered = (request, data), {}
            self.send({})
        elif asked == "enter":
            with at_most(request.get("seconds")):
                results = self.enter(method)
            self.send({}, results)
        elif asked == "pass":
            self.send({"seconds": self.entered[method].seconds()})
        else:
            raise Refused(f"asked for {asked}")

    def run(self):
        self.imports.start()
        self.send({"guest": 1, "methods": list(self.methods), "versions": self.versions})
        for line in iter(self.input.readline, b""):
            request = json.loads(line)
            data = self.input.read(request.get("bytes", 0))
            try:
                self.answer(request, data)
            except Exception as failed:  # a method that cannot run here is a row that says why
                words = words_of(failed)
                self.send({"refused": words if isinstance(failed, Refused) else f"{type(failed).__name__}: {words}"})


def words_of(failed):
    """The first line of what an exception says."""
    return (str(failed).strip() or type(failed).__name__).splitlines()[0]


MISSING = {}  # why a library cannot be used


def versions_of(packages):
    """Of those that are installed, without an import."""
    for name in packages:
        try:
            yield {"torch": "pytorch"}.get(name, name), importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass


def import_torch(options):
    try:
        importlib.import_module("numpy")
        importlib.import_module("torch")
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        if options.device == "cuda" and not torch.cuda.is_available():
            MISSING["PyTorch"] = "this one has no CUDA"
    except Exception as missing:  # also a library that is broken leaves rows that say so
        MISSING["PyTorch"] = words_of(missing)


def import_jax(options):
    os.environ.setdefault("JAX_PLATFORMS", options.device)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the program and PyTorch need memory of the GPU too
    try:
        for name in ("jax", "jax.numpy", "numpy"):
            importlib.import_module(name)
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_default_matmul_precision", "highest")
    except Exception as missing:
        MISSING["JAX"] = words_of(missing)
        return
    try:
        jax.devices(options.device)
    except Exception as missing:  # such as a plugin that does not fit the driver
        MISSING["JAX"] = f"this one has no {'CUDA' if options.device == 'cuda' else options.device}: {words_of(missing)}"


def import_libraries(options, libraries):
    """One after the other: modules that two threads import at once may wait for each other."""
    for library, load in {"PyTorch": import_torch, "JAX": import_jax}.items():
        if library in libraries:
            load(options)


def need(module, package):
    """A module of a package that bench/rivals/setup does not install."""
    try:
        return importlib.import_module(module)
    except Exception as missing:  # also of one that is broken, or that another version of a library breaks
        raise Refused(f"left out: needs {package} ({words_of(missing)})") from missing


def serve(description, methods, *packages, steps=None):
    """Runs a rival: {"method": ("library", what makes it of a point and a device)}. packages: whose versions the document gets.
    steps: {"method": what makes its training step}."""
    enter_environment()
    options = parse(description)
    limit_threads(options.threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program ends the talk
    Server(options, methods, packages, steps or {}).run()

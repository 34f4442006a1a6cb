"""The shared library of the package: how it is loaded, called, and how its errors become exceptions."""
from __future__ import annotations

import _thread
import atexit
import ctypes
import importlib.util
import os
import pathlib
import signal
import threading
import time
from typing import Any, Callable, Sequence, Tuple

_PATH = pathlib.Path(__file__).with_name("libbppsa_python.so")

try:
    _library = ctypes.CDLL(str(_PATH))
except OSError as reason:
    raise ImportError(f"bppsa: {reason}; expected {_PATH.name} beside the modules, as `pip install ./python` puts it there, "
                      "and the C library") from reason


class Error(Exception):
    """What every error of the library is. Its text is the library's sentence: what was wrong, where, and what was expected."""


class RequestError(Error, ValueError):
    """The request was wrong: a value, a shape, an option, a file. (The program's exit code 2.)"""


class RunError(Error, RuntimeError):
    """The request failed while it ran: no memory, a full disk, a library that is missing, a value that is not
    finite. (The program's exit code 1.)"""


_Pointer = ctypes.c_void_p
_Sizes = ctypes.POINTER(ctypes.c_int64)
_Pointers = ctypes.POINTER(ctypes.c_void_p)
_Text = ctypes.c_char_p
_Int = ctypes.c_int
_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "version": (_Text, []),
    "error": (_Text, []),
    "openblas": (_Int, [_Text]),
    "load": (_Int, []),
    "command": (_Int, [_Int, ctypes.POINTER(_Text), ctypes.POINTER(_Int), _Pointers, _Pointers]),
    "free": (None, [_Pointer]),
    "allocated": (ctypes.c_int64, []),
    "left_behind": (ctypes.c_int32, []),
    "scan_create": (_Int, [_Text, _Int, _Int, _Sizes, _Int, ctypes.c_int64, ctypes.c_int32, _Pointer, _Pointers]),
    "scan_run": (_Int, [_Pointer, _Pointer, _Pointer, _Pointer]),
    "scan_destroy": (None, [_Pointer]),
    "reaches": (_Int, [_Pointer, _Int, ctypes.c_int64, ctypes.c_int64]),
    "account_bytes": (ctypes.c_int64, []),
    "arrays": (_Text, []),
    "cell_saved": (ctypes.c_int64, [_Text]),
    "plan_create": (_Int, [_Text, _Text, _Text, _Sizes, ctypes.c_double, ctypes.c_int32, _Pointer, _Pointers]),
    "plan_destroy": (None, [_Pointer]),
    "plan_facts": (None, [_Pointer, _Sizes]),
    "plan_run": (_Int, [_Pointer, _Int, _Pointers, _Pointer, _Pointer, _Pointer]),
    "record_bytes": (ctypes.c_int64, []),
    "account_note": (None, [_Pointer, _Pointer, _Int, _Pointer]),
    "xla_facts": (_Int, [_Text, _Text, _Text, _Int, _Int, ctypes.c_int64, _Int, _Sizes, ctypes.c_int64, _Sizes]),
    "xla_find_gpu": (_Int, []),
    "xla_kept": (ctypes.c_int64, []),
    "account_read": (_Text, [_Pointer, _Int, ctypes.POINTER(ctypes.c_double)]),
}


def _function(name: str) -> Callable[..., Any]:
    function = getattr(_library, "bppsa_python_" + name)
    function.restype, function.argtypes = _PROTOTYPES[name]
    return function


version: Callable[[], bytes] = _function("version")
allocated: Callable[[], int] = _function("allocated")
left_behind: Callable[[], int] = _function("left_behind")
_error, _load, _command, _free = _function("error"), _function("load"), _function("command"), _function("free")
_scan_create, _scan_run, _scan_destroy = _function("scan_create"), _function("scan_run"), _function("scan_destroy")
_reaches = _function("reaches")
_account_bytes, _account_read = _function("account_bytes"), _function("account_read")
_plan_create, _plan_destroy, _plan_facts, _plan_run = (_function("plan_" + name) for name in ("create", "destroy", "facts", "run"))
_record_bytes, _account_note = _function("record_bytes"), _function("account_note")
_arrays, _xla_facts, _xla_find_gpu = _function("arrays"), _function("xla_facts"), _function("xla_find_gpu")
xla_kept: Callable[[], int] = _function("xla_kept")

# The codes of core/base/status.h whose cause is the request: argument, shape, unsupported, format.
_REQUEST = frozenset([1, 2, 4, 7])


def _check(status: int) -> None:
    if status != 0:
        raise (RequestError if status in _REQUEST else RunError)(_error().decode(errors="replace"))


def _word(text: str) -> bytes:
    """The text for C, where a NUL byte would end it. A path may have bytes that are no UTF-8."""
    if not isinstance(text, str):
        raise RequestError(f"{text!r}: a {type(text).__name__}, expected a text")
    if "\0" in text:
        raise RequestError(f"{text!r}: has a NUL byte, expected a text without one")
    try:
        return os.fsencode(text)
    except UnicodeEncodeError as reason:
        raise RequestError(f"{text!r}: {reason.reason}, expected a text in Unicode") from reason


def _name_openblas() -> None:
    """Tells the library where the OpenBLAS of the package scipy-openblas32 is, in case the system has none. Imports nothing."""
    found = importlib.util.find_spec("scipy_openblas32")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        path = os.path.join(folder, "lib", "libscipy_openblas.so")
        if os.path.exists(path):
            _check(_function("openblas")(os.fsencode(path)))


_name_openblas()


def sizes(*values: int) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


# The functions that run in threads of their own now, interrupted ones too.
under_way: set[Callable[[], Any]] = set()


def interruptible(function: Callable[[], Any], told: ctypes.c_int | None = None, ends: bool = False) -> Any:
    """Calls the function so that Ctrl-C ends the wait for it. Python handles signals in the main thread and between two of its own
    instructions alone, so there a long call runs in a thread of its own; after Ctrl-C its result is dropped when it comes, and
    what it works with stays until then. No threading.Thread: Ctrl-C in its start() or join() may end in another error.

    told: what the function watches. After Ctrl-C, or another exception of a signal's handler, it is SIGINT's number. ends: the
    function then ends soon by itself and is waited for, so that what it has to write is written; a second Ctrl-C ends that wait."""
    if threading.current_thread() is not threading.main_thread():
        return function()
    results: list[Any] = []
    errors: list[BaseException] = []
    begun: list[bool] = []
    running = threading.Lock()
    running.acquire()

    def work() -> None:
        begun.append(True)
        under_way.add(work)
        try:
            results.append(function())
        except BaseException as error:  # raised in the caller's thread
            errors.append(error)
        finally:
            under_way.discard(work)
            running.release()

    try:
        _thread.start_new_thread(work, ())
        running.acquire()
    except BaseException as interrupt:
        if told is not None:
            told.value = signal.SIGINT
        if ends and begun and not results and not errors:
            running.acquire()
        if errors and isinstance(errors[0], KeyboardInterrupt) and isinstance(interrupt, KeyboardInterrupt):
            raise errors[0] from None  # its message says what is kept
        raise interrupt from (errors[0] if errors else None)
    if errors:
        raise errors[0]
    return results[0]


_inherited = 0  # ranks that a parent left behind, which a child of fork() counts and does not have


def _count_inherited() -> None:
    global _inherited
    _inherited = left_behind()


os.register_at_fork(after_in_child=_count_inherited)


@atexit.register
def _wait_for_ranks(patience: float = 10) -> None:
    """Ranks that a failed run left behind still compute, with memory that the end of the process takes away: so the interpreter
    waits for them, at most so many seconds. A rank ends by itself with the pass that it is at."""
    deadline = time.monotonic() + patience
    while left_behind() > _inherited and time.monotonic() < deadline:
        time.sleep(0.01)


def command(words: list[str], told: ctypes.c_int | None = None) -> tuple[int, str, str]:
    """Runs a command line of the program `bppsa`: its exit code, and what it wrote to stdout and to stderr. Where another process
    of a job of MPI reports the error, the sentence of this one takes its place. told: ends training and figures when it becomes a
    signal's number. RunError: a library that commands need is missing."""
    _check(_load())
    line = (ctypes.c_char_p * (len(words) + 2))(b"bppsa", *map(_word, words), None)
    texts = [ctypes.c_void_p(), ctypes.c_void_p()]
    watched = None if told is None else ctypes.byref(told)
    code = _command(len(words) + 1, line, watched, ctypes.byref(texts[0]), ctypes.byref(texts[1]))
    out, err = ("" if text.value is None else ctypes.string_at(text).decode(errors="replace") for text in texts)
    for text in texts:
        _free(text)
    if code != 0 and "bppsa: error: " not in err:
        err += f"bppsa: error: {_error().decode(errors='replace')}\n"
    return code, out, err


class Scan:
    """A plan of g_{t-1} = J_tᵀ g_t + u_{t-1} with its memory, for one shape. Not for two threads at once. gpu: its number, or -1
    for the processor; stream: the address of the CUDA stream on which a GPU's work is queued."""

    def __init__(self, method: str, diagonal: bool, f64: bool, shape: tuple[int, int, int], affine: bool, threads: int,
                 gpu: int = -1, stream: int | None = None) -> None:
        self._handle = ctypes.c_void_p()
        _check(_scan_create(_word(method), diagonal, f64, sizes(*shape), affine, threads, gpu, stream,
                            ctypes.byref(self._handle)))

    def run(self, jt: int, injected: int | None, gradients: int) -> None:
        """Addresses of jt [T,B,H,H] or [T,B,H], u [T,B,H] or None, and g [T+1,B,H] whose last row is given."""
        _check(_scan_run(self._handle, jt, injected, gradients))

    def __del__(self, destroy: Callable[..., None] = _scan_destroy) -> None:
        if getattr(self, "_handle", None):
            destroy(self._handle)


State = Tuple[int, int, int]  # failing backward passes in a row, passes of BP still to come, the next warm-up or 0
OPEN: tuple[int, int, float] = (0, -1, -1.0)  # chunks, warm-up and tolerance, all left to the plan


def reaches(seed: int, f64: bool, rows: int, width: int) -> bool:
    """Whether each row of an array on the processor has a number that is not 0."""
    return bool(_reaches(seed, f64, rows, width))


_COUNTS = ("speculated", "passes", "path", "possible", "work", "rounds", "mended", "gap")
_NUMBERS = ((*_COUNTS, "reseeded", "tails"), (*_COUNTS, "given_up", "perturbation"))
_REALS, _ANSWERS = ("work", "gap", "perturbation"), ("speculated", "given_up")


class Sums:
    """Sums of what passes did. Not for two threads at once."""

    def __init__(self) -> None:
        self._memory = (ctypes.c_double * (_account_bytes() // ctypes.sizeof(ctypes.c_double)))()

    def note(self, plan: Plan, backward: bool, record: Record) -> None:
        """Adds a recorded pass."""
        _account_note(self._memory, plan._handle, backward, record.memory)

    def read(self, backward: bool) -> dict[str, Any] | None:
        """The plan of the latest pass, and the sums of all by their names; None if there was no pass."""
        numbers = (ctypes.c_double * len(_NUMBERS[backward]))()
        plan = _account_read(self._memory, backward, numbers)
        if plan is None:
            return None
        found = {name: value if name in _REALS else bool(value) if name in _ANSWERS else int(value)
                 for name, value in zip(_NUMBERS[backward], numbers)}
        return {"plan": plan.decode(), **found}


# ---- stateless passes (python/passes.h), and handlers for JAX (python/xla.h) ----

def arrays() -> list[tuple[str, str, str]]:
    """Name, shape and type of each array that stateless passes know."""
    return [tuple(row.replace("'", "").split(":")) for row in _arrays().decode().split()]


def cell_saved(cell: str) -> int:
    """How many numbers the cell saves for each unit, step and sample beside its states."""
    return _function("cell_saved")(_word(cell))


_COUNT = len(arrays())
_Addresses = ctypes.c_void_p * _COUNT


def addresses(like: Any = None) -> Any:
    """Room for an address of each of these arrays, in their order; with the addresses of another one."""
    return _Addresses() if like is None else _Addresses.from_buffer_copy(like)


class Record:
    """What a pass in chunks of time did, and in `state` what the next one has to know."""

    __slots__ = ("memory",)

    def __init__(self) -> None:
        self.memory = (ctypes.c_int64 * (_record_bytes() // ctypes.sizeof(ctypes.c_int64)))()

    @property
    def state(self) -> State:
        return tuple(self.memory[:3])

    @state.setter
    def state(self, state: State) -> None:
        self.memory[:3] = state


class Plan:
    """One recurrent layer for one shape (T, B, I, H), which never changes: any number of threads may compute with it. layer: cell,
    relu, method, forward. has: biases, lengths, resets, a learned reset state. gpu, stream: as of Scan. speculation: chunks,
    warm-up and tolerance of the method "speculative"."""

    def __init__(self, layer: tuple[str, bool, str, str], shape: tuple[int, int, int, int], f64: bool,
                 has: tuple[bool, bool, bool, bool], input_gradients: bool, threads: int, gpu: int = -1, stream: int | None = None,
                 speculation: tuple[int, int, float] = OPEN) -> None:
        cell, relu, method, forward = layer
        self._handle = ctypes.c_void_p()
        numbers = sizes(*shape, relu, f64, *has, input_gradients, threads, *speculation[:2])
        _check(_plan_create(_word(cell), _word(method), _word(forward), numbers, speculation[2], gpu, stream,
                            ctypes.byref(self._handle)))
        facts = sizes(*[0] * 10)
        _plan_facts(self._handle, facts)
        self.scratch: list[int] = facts[2:7]  # bytes, of each kind of pass
        self.speculates = [bool(fact) for fact in facts[8:10]]  # forward and backward passes: in chunks of time?

    def run(self, kind: int, at: Any, scratch: int, record: Record | None = None, stream: int | None = None) -> None:
        """Computes a pass with arrays at these addresses (addresses), which it reads and writes during the call alone, on a GPU
        until its stream has done the work: this one, or the plan's."""
        _check(_plan_run(self._handle, kind, at, scratch, None if record is None else record.memory, stream))

    def __del__(self, destroy: Callable[..., None] = _plan_destroy) -> None:
        if getattr(self, "_handle", None):
            destroy(self._handle)


def xla_handler(name: str) -> Any:
    """The function "forward", "backward", "tangent", "second" or "third", or on a GPU "gpu_forward", .., as jax.ffi.pycapsule takes
    it."""
    return getattr(_library, "bppsa_python_xla_" + name)


def xla_facts(cell: str, method: str, forward: str, relu: bool, f64: bool, threads: int, gpu: int, shape: Sequence[int],
              arguments: int) -> tuple[int, ...]:
    """Of a layer of shape T, B, I, H on the GPU of that number, or on the CPU if it is -1: bytes of `saved`, of the scratch of
    forward, backward, tangent, second and third, and the parts of a state, 1 or 2."""
    facts = sizes(*[0] * 7)
    _check(_xla_facts(_word(cell), _word(method), _word(forward), relu, f64, threads, gpu, sizes(*shape), arguments, facts))
    return tuple(facts)


def xla_find_gpu() -> None:
    """Raises RequestError where this build, or this machine, has no GPU that it can compute on."""
    _check(_xla_find_gpu())

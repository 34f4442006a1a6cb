"""What the tests of the Python package share."""
import importlib
import os
import signal
import subprocess
import sys
import time
import unittest

import numpy as np


def residual(found, reference, steps, dtype):
    """The normalised residual of docs/conventions.md: ‖found − reference‖ / (‖reference‖ ε √T)."""
    found, reference = np.asarray(found, np.float64), np.asarray(reference, np.float64)
    norm = np.linalg.norm(reference)
    epsilon = np.finfo(dtype).eps
    scale = norm * epsilon if norm > np.finfo(dtype).tiny / epsilon else np.finfo(dtype).tiny
    return np.linalg.norm(found - reference) / (scale * max(steps, 1) ** 0.5)


def has(module):
    try:
        importlib.import_module(module)
        return True
    except ImportError:
        return False


class Exporter:
    """An array of a library that numpy does not know: DLPack is all it speaks."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


# Leaves a test out of `make test`, which sets BPPSA_TEST_SHORT where a file would take more than seconds: it runs by hand, and at
# full length.
at_length = unittest.skipIf(os.environ.get("BPPSA_TEST_SHORT") and os.environ.get("BPPSA_TEST_LENGTH") != "full",
                            "runs at full length")


def run_until_interrupted(test, program):
    """Runs a program, sends it Ctrl-C half a second after it has printed "ready", and gives what else it printed."""
    # A shell's background jobs ignore Ctrl-C, and so would what they start.
    process = subprocess.Popen([sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=os.environ, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    test.assertEqual(process.stdout.readline().strip(), "ready")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    test.assertEqual(process.returncode, 0, err)
    return out, err


def main():
    """Runs the tests of the calling file. 77, which CTest shows as skipped, where all of them were skipped."""
    program = unittest.main(exit=False, verbosity=1)
    result = program.result
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    if result.wasSuccessful() and result.testsRun > 0 and len(result.skipped) == result.testsRun:
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)

"""Which shared libraries the package needs, and when: importing it and the passes of layers and scans load an OpenBLAS and no
other, commands jansson and zlib, and what reads sound libsndfile, libsamplerate and libavutil. A library that is missing is named,
with its package, by what needs it, and by nothing else."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from support import has, main

import bppsa

LIBRARY = os.path.join(os.path.dirname(bppsa.__file__), "libbppsa_python.so")
FILES = {"openblas": "libopenblas.so.0", "jansson": "libjansson.so.4", "z": "libz.so.1", "sndfile": "libsndfile.so.1",
         "samplerate": "libsamplerate.so.0"}
BUNDLED = os.environ.get("BPPSA_TEST_BUNDLED") == "1"  # a wheel of tools/wheel, which has jansson beside the library
SYSTEM = r"(libc|libm|libpthread|libdl|librt|libgcc_s|libstdc\+\+|ld-linux[-a-z0-9_]*)\.so\.\d+$"  # the last two: CUDA's
SANITIZERS = r"lib(clang_rt\.)?(a|ub)san"
SCAN = """
import numpy as np, bppsa
g = bppsa.scan(np.full((3, 2, 4, 4), 0.5, np.float32), np.zeros((3, 2, 4), np.float32), np.ones((2, 4), np.float32))
assert g.shape == (3, 2, 4) and g[0, 0, 0] == 8
"""
STEP = """
import torch, bppsa.torch
layer = bppsa.torch.GRU(3, 4)
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
layer(torch.ones(5, 2, 3))[0].sum().backward()
optimizer.step()
assert all(parameter.grad.abs().sum() > 0 for parameter in layer.parameters())
"""
MAPS = """
def loaded():
    return {line.split()[-1].rsplit("/", 1)[-1] for line in open("/proc/self/maps") if ".so" in line}
"""


def run(program, missing=()):
    """Runs the program. In front of the loader's own search is a folder in which the missing libraries are empty files."""
    with tempfile.TemporaryDirectory() as folder:
        for name in missing:
            open(os.path.join(folder, FILES[name]), "w", encoding="utf-8").close()
        path = ":".join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder,
                              env={**os.environ, "LD_LIBRARY_PATH": path})


class Libraries(unittest.TestCase):
    @unittest.skipUnless(shutil.which("readelf"), "readelf is missing (package binutils)")
    def test_needed(self):
        text = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
        self.assertTrue(any(name.startswith("libc.so") for name in needed), text)
        others = [name for name in needed if not re.match(SYSTEM, name) and not re.match(SANITIZERS, name)]
        if BUNDLED:
            self.assertRegex(" ".join(sorted(others)), r"^libjansson-[0-9a-f]+\.so\.[0-9.]+ libz\.so\.1$")
            return
        self.assertEqual(others, [], "expected the C library alone")

    def check_loaded(self, before, program, after=""):
        """What the program loads beyond `before` is the package's library, an OpenBLAS, and what comes with that."""
        done = run(f"{MAPS}\n{before}\nfirst = loaded()\n{program}\nprint(*sorted(loaded() - first))\n{after}")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = done.stdout.split("\n")[0].split()
        allowed = r"libbppsa_python\.so|lib(scipy_)?openblas|libgfortran|libquadmath|lib(pthread|m|gcc_s)|_|[a-z_]*\.(cpython|abi3)"
        # Before glibc 2.34 the C library had libdl and librt apart; what is linked for an older one names them.
        allowed += r"|libjansson-|libz\.so|lib(dl|rt)\.so" if BUNDLED else ""
        self.assertEqual([name for name in names if not re.match(allowed, name)], [])
        self.assertIn("libbppsa_python.so", names)
        return done.stdout

    def test_scan(self):
        loaded = "print(sorted(name for name in loaded() if name.startswith(('libjansson', 'libsndfile', 'libavutil'))))"
        out = self.check_loaded("import numpy, shutil, tempfile", SCAN, f"bppsa.plan('gru', seq_len=4)\n{loaded}")
        self.assertIn("libjansson", out)  # the command loads it, or it came with the package
        self.assertNotIn("libsndfile", out)
        self.assertNotIn("libavutil", out)

    @unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
    def test_training_step(self):
        before = "import torch\nlayer = torch.nn.GRU(3, 4)\noptimizer = torch.optim.SGD(layer.parameters(), 0.1)\n" \
                 "layer(torch.ones(5, 2, 3))[0].sum().backward()\noptimizer.step()"
        self.check_loaded(before, STEP)

    def test_doctor(self):
        """What it finds does not stay loaded, where it would take the place of another version that PyTorch brings."""
        done = run(f"{MAPS}\nimport bppsa\nbppsa.plan('gru', seq_len=4)\nfirst = loaded()\n"
                   "report = bppsa.run('doctor')\nprint(report['audio']['found'], len(report['transports']))\n"
                   "print(*sorted(name for name in loaded() - first if not name.startswith(('libopenblas', 'libgfortran',"
                   " 'libquadmath', 'libm', 'libgcc_s', 'libpthread'))))")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^(True|False) [1-9]\n\n$")

    @unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
    def test_doctor_before_torch(self):
        done = run(f"import bppsa\nprint(len(bppsa.run('doctor')['backends']))\n{STEP}")
        self.assertEqual((done.returncode, done.stdout), (0, "11\n"), done.stderr)

    def test_missing_blas_and_zlib(self):
        """A machine that lacks a library is no wrong request. Without numpy, which may need these libraries itself."""
        program = f"import ctypes\nlibrary, scan = ctypes.CDLL({LIBRARY!r}), ctypes.c_void_p()\n" \
                  "library.bppsa_python_error.restype = ctypes.c_char_p\n" \
                  "create, sizes = library.bppsa_python_scan_create, (ctypes.c_int64 * 3)(3, 2, 4)\n" \
                  "status = {}\nprint(status, library.bppsa_python_error().decode())"
        scan = "create(b'chunked', 0, 0, sizes, 0, ctypes.c_int64(1), -1, None, ctypes.byref(scan))"
        for name, call, sentence in (("openblas", scan, r"OpenBLAS: .*libopenblas\.so\.0: .*; install libopenblas0-pthread"),
                                     ("z", "library.bppsa_python_load()", r"commands: .*libz\.so\.1: .*; install zlib1g")):
            if BUNDLED and name == "z":
                continue
            done = run(program.format(call), [name])
            if done.returncode == 127 and "python" in done.stderr:
                continue  # the interpreter itself needs it
            self.assertEqual(done.returncode, 0, done.stderr)
            status, text = done.stdout.rstrip().split(" ", 1)
            self.assertRegex(text, f"^{sentence}$")
            self.assertNotIn(int(status), bppsa._native._REQUEST | {0})

    @unittest.skipUnless(has("scipy_openblas32"), "the package scipy-openblas32 is missing")
    def test_openblas_of_a_package(self):
        """Where the system has no OpenBLAS, that of the package is used, and its functions compute products."""
        done = run(f"{MAPS}\n{SCAN}\ng = bppsa.scan(np.ones((3, 2, 40, 40)), None, np.ones((2, 40)))\nassert g[0, 0, 0] == 64000\n"
                   "print(*sorted(name for name in loaded() if 'openblas' in name))", ["openblas"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("libscipy_openblas.so", done.stdout.split())  # numpy of PyPI has another one beside

    def test_missing_json(self):
        plan = "try:\n    bppsa.plan('gru', seq_len=4)\nexcept bppsa.RunError as error:\n    print(error)"
        done = run(f"{SCAN}\n{plan}", ["jansson"])
        self.assertEqual(done.returncode, 0, done.stderr)
        if BUNDLED:
            self.assertEqual(done.stdout, "")
            return
        self.assertRegex(done.stdout, r"^commands: .*libjansson\.so\.4: .*; install libjansson4\n$")

    @unittest.skipUnless(has("torch"), "PyTorch is missing (package python3-torch)")
    def test_training_step_without_them(self):
        done = run(STEP, ["jansson", "sndfile", "samplerate"])
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_missing_sound(self):
        program = "import bppsa\nprint(bppsa.plan('gru', seq_len=4)['totals']['critical_steps'] > 0)\n" \
                  "try:\n    bppsa.run('data', 'irmas', '.', out_x='X.npy', out_y='Y.npy')\n" \
                  "except bppsa.Error as error:\n    print(error)"
        for name, package in (("sndfile", "libsndfile1"), ("samplerate", "libsamplerate0")):
            done = run(program, [name])
            self.assertEqual(done.returncode, 0, done.stderr)
            if "built without" in done.stdout:
                self.skipTest("the library was built without audio")
            self.assertRegex(done.stdout, rf"^True\naudio: .*{re.escape(FILES[name])}: .*; install {package}\n$")


if __name__ == "__main__":
    main()

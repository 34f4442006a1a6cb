#!/bin/sh
# test_wheel.sh ROOT WORK: builds a wheel by tools/wheel, installs it into a fresh virtual environment and tests it there, away from
# the sources. Skipped (77), with the reason, where the build back-end or numpy cannot be had.
set -eu
root=$1
work=$2
rm -rf "$work"
mkdir -p "$work/elsewhere"
python=/usr/bin/python3
"$python" -c 'import ensurepip' 2>/dev/null || python=python3
skip() {
  echo "test_wheel: skipped, $1"
  tail -n 3 "$work/log"
  exit 77
}
"$root/tools/wheel" "$work"
wheel=$(ls "$work"/bppsa-*.whl)
tar -tzf "$work"/bppsa-*.tar.gz >"$work/sources"
for file in pyproject.toml CMakeLists.txt cmake/interface.awk tools/floors python/native.c python/bppsa/__init__.py LICENSE; do
  grep -q "^bppsa-[0-9.]*/$file\$" "$work/sources" || {
    echo "test_wheel: $file is missing in the source archive, expected all that a build reads"
    exit 1
  }
done
"$python" -m venv "$work/env" >"$work/log" 2>&1 || skip "no virtual environment could be made (package python3-venv)"
pip="$work/env/bin/python -m pip --disable-pip-version-check"
$pip install numpy scipy scipy-openblas32 >"$work/log" 2>&1 || skip "numpy, scipy and scipy-openblas32 could not be installed"
$pip install --no-deps "$wheel" >"$work/log" 2>&1
cd "$work/elsewhere"
"$work/env/bin/python" - <<'END'
import importlib.metadata, pathlib, bppsa
assert importlib.metadata.version("bppsa") == bppsa.__version__, (importlib.metadata.version("bppsa"), bppsa.__version__)
folder = pathlib.Path(bppsa.__file__).parent
assert "site-packages" in str(folder), folder
assert (folder / "py.typed").exists()
assert sorted(path.name for path in folder.glob("*.so")) == ["libbppsa_python.so"], list(folder.iterdir())
assert not bppsa.run("doctor")["cuda"]["built"], "CUDA was built though nobody asked for it"
END
for test in test_libraries test_commands; do
  BPPSA_TEST_BUNDLED=1 PYTHONDONTWRITEBYTECODE=1 "$work/env/bin/python" "$root/tests/python/$test.py"
done
echo "test_wheel: $(basename "$wheel"), $(du -k "$wheel" | cut -f1) KiB"

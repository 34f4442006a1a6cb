#!/bin/sh
# test_depends.sh ROOT WORK CC: a configuration without libraries names all packages that are missing, in one line.
set -eu
root=$1
work=$2
cc=$3
rm -rf "$work"
mkdir -p "$work"
expect() { # expect TEXT PKG-CONFIG
  rm -rf "$work/build"
  if cmake -S "$root" -B "$work/build" "-DCMAKE_C_COMPILER=$cc" -DBPPSA_WITH_CUDA=OFF "-DPKG_CONFIG_EXECUTABLE=$2" \
    >"$work/output" 2>&1; then
    echo "test_depends: expected the configuration to fail without $1"
    exit 1
  fi
  line="bppsa: libraries were not found, expected Debian's packages $1, or the same libraries by pkg-config"
  grep -qx " *$line" "$work/output" || {
    cat "$work/output"
    echo "test_depends: expected one line with the packages $1"
    exit 1
  }
}
expect 'pkg-config libopenblas-dev libjansson-dev zlib1g-dev' "$work/nothing"
cat >"$work/only-zlib" <<'END'
#!/bin/sh
# pkg-config on a machine that has zlib alone.
case "$*" in
--version) echo 1.8.1 ;;
*zlib*) exec pkg-config "$@" ;;
*) exit 1 ;;
esac
END
chmod +x "$work/only-zlib"
expect 'libopenblas-dev libjansson-dev' "$work/only-zlib"

# Shared by demo.sh, test.sh and bench.sh: installs what is missing, builds, and says in one sentence what stands in the way.
# Source it from a script in this folder, then call `set_up` and `build`.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$ROOT/scripts/versions.env"

# Third-party builds are shared by all checkouts of one user; the folder's name holds every version that is in it.
DEPS=${MPC_DEPS_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/mpc}/onnx-$ONNX_VERSION-onednn-$ONEDNN_VERSION
BUILD=${MPC_BUILD_DIR:-$ROOT/build}
JOBS=${MPC_JOBS:-$(nproc)}

# Other checkouts of the same sources find the same objects in the compiler cache.
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# as_root COMMAND…: directly, or through sudo.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "installing packages needs root: run this script as root, or install sudo"; fi
}

# quietly LOG MESSAGE COMMAND…: output goes to LOG; if COMMAND fails, MESSAGE and the log's end are shown.
quietly() {
  local log=$1 message=$2; shift 2
  mkdir -p "$(dirname "$log")"
  if ! "$@" >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    die "$message (whole output: $log)"
  fi
}

install_packages() {
  local missing=() package
  for package in $DEBIAN_PACKAGES; do
    [ "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  command -v apt-get >/dev/null || die "this set-up installs Debian packages with apt-get, which is not here; install by hand: ${missing[*]}"
  say "installing ${missing[*]}"
  quietly "$BUILD/log/apt-update.log" "apt-get update failed: is there a network?" as_root apt-get update -q
  for package in "${missing[@]}"; do
    apt-cache show "$package" >/dev/null 2>&1 && continue
    # apt-get update succeeds even where it reaches no server.
    grep -E '^(W|E|Err)' "$BUILD/log/apt-update.log" | head -n 3 >&2 &&
      die "the package $package was not found, and the package lists could not be fetched: is there a network?"
    die "the package $package is not in this machine's package sources: Debian 12 with its updates has it, in section main"
  done
  quietly "$BUILD/log/apt-install.log" "apt-get install failed: is there a network, and room on the disk?" \
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# The Python environment brings cmake where the system's is too old, and what some tests need. Nothing that is built needs it.
python_environment() {
  [ -x "$DEPS/python/bin/python" ] && "$DEPS/python/bin/python" -c '' 2>/dev/null ||
    quietly "$BUILD/log/venv.log" "python3 -m venv failed" python3 -m venv --clear "$DEPS/python"
}

pip_install() {
  python_environment
  local stamp="$DEPS/python/.installed-$(printf '%s\n' "$@" | sha256sum | cut -c1-16)"
  [ -e "$stamp" ] && return
  quietly "$BUILD/log/pip.log" "pip could not install $*: is there a network?" "$DEPS/python/bin/pip" install -q "$@"
  touch "$stamp"
}

version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

find_cmake() {
  CMAKE=$(command -v cmake || true)
  if [ -n "$CMAKE" ] && version_at_least "$("$CMAKE" --version | sed -n '1s/[^0-9]*//p')" "$CMAKE_MINIMUM"; then return; fi
  pip_install "cmake==$CMAKE_VERSION"
  CMAKE="$DEPS/python/bin/cmake"
  version_at_least "$("$CMAKE" --version | sed -n '1s/[^0-9]*//p')" "$CMAKE_MINIMUM" ||
    die "CMake $CMAKE_MINIMUM or later is needed; found $("$CMAKE" --version | head -n 1)"
}

# pip_download DIR ARGUMENT…: package files as they are in the index, without their dependencies.
pip_download() {
  local dir=$1; shift
  python_environment
  quietly "$BUILD/log/pip-download.log" "pip could not download ${*: -1}: is there a network?" \
    "$DEPS/python/bin/pip" download -q --no-deps -d "$dir" "$@"
}

install_onednn() {
  [ -e "$DEPS/onednn/.done" ] && return
  say "fetching oneDNN"
  local dir=$DEPS/onednn.part
  rm -rf "$dir" "$DEPS/onednn"; mkdir -p "$dir"
  pip_download "$dir" "onednn-cpu-gomp==$ONEDNN_VERSION"
  pip_download "$dir" "onednn-devel-cpu-gomp==$ONEDNN_VERSION"
  local wheel
  for wheel in "$dir"/*.whl; do python3 -m zipfile -e "$wheel" "$dir/wheel"; done
  # A wheel's files for the prefix lie in NAME-VERSION.data/data.
  local data
  for data in "$dir"/wheel/*.data/data; do cp -a "$data"/. "$dir"/; done
  rm -rf "$dir"/wheel "$dir"/*.whl
  touch "$dir/.done"; mv "$dir" "$DEPS/onednn"
}

install_onnx() {
  [ -e "$DEPS/onnx/.done" ] && return
  say "building ONNX $ONNX_VERSION (about two minutes on two cores)"
  local dir=$DEPS/onnx.part
  rm -rf "$dir" "$DEPS/onnx"; mkdir -p "$dir"
  pip_download "$dir" --no-binary onnx "onnx==$ONNX_VERSION"
  tar -xf "$dir/onnx-$ONNX_VERSION.tar.gz" -C "$dir"
  quietly "$BUILD/log/onnx-configure.log" "configuring ONNX failed" \
    "$CMAKE" -GNinja -S "$dir/onnx-$ONNX_VERSION" -B "$dir/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$DEPS/onnx" \
    -DONNX_USE_PROTOBUF_SHARED_LIBS=ON -DONNX_GEN_PB_TYPE_STUBS=OFF -DONNX_BUILD_PYTHON=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
  quietly "$BUILD/log/onnx-build.log" "building ONNX failed" "$CMAKE" --build "$dir/build" -j "$JOBS"
  quietly "$BUILD/log/onnx-install.log" "installing ONNX failed" "$CMAKE" --install "$dir/build"
  rm -rf "$dir"
  touch "$DEPS/onnx/.done"
}

set_up() {
  mkdir -p "$BUILD/log" "$DEPS"
  install_packages
  exec 9>"$DEPS/.lock"; flock 9   # two set-ups at once would build into the same folders
  find_cmake
  install_onednn
  install_onnx
  flock -u 9
}

# build [TARGET…]: configures once, then builds.
build() {
  if [ ! -e "$BUILD/build.ninja" ]; then
    quietly "$BUILD/log/configure.log" "configuring failed" "$CMAKE" -GNinja -S "$ROOT" -B "$BUILD" -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_PREFIX_PATH="$DEPS/onnx;$DEPS/onednn" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
  fi
  say "building"
  quietly "$BUILD/log/build.log" "building failed" "$CMAKE" --build "$BUILD" -j "$JOBS" ${1+--target "$@"}
}

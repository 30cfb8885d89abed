# shellcheck shell=bash
# Shared by demo.sh, test.sh, bench.sh and check-reference.sh: installs what is missing, builds, and says in one sentence what
# stands in the way. Source it from a script in this folder, then call `set_up` and `build`. Every piece is made under another
# name, or has a mark of its own that is written last, so that a run that was interrupted is simply run again.
#
# From the environment: MPC_BUILD_DIR (build), MPC_DEPS_DIR (~/.cache/mpc), MPC_JOBS (compilers at a time), MPC_CMAKE_OPTIONS.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$ROOT/scripts/versions.env"

# Third-party builds are shared by all checkouts of one user; the folder's name holds the versions of what takes long to build.
DEPS=$(realpath -m "${MPC_DEPS_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/mpc}/onnx-$ONNX_VERSION-onednn-$ONEDNN_VERSION")
BUILD=$(realpath -m "${MPC_BUILD_DIR:-$ROOT/build}")

# As many compilers at a time as there are cores, but 1.5 GiB of memory for each.
job_count() {
  local by_memory
  by_memory=$(awk '/^MemAvailable:/ { print int($2 / 1572864) }' /proc/meminfo 2>/dev/null || echo 1)
  echo $((by_memory < 1 ? 1 : by_memory < $(nproc) ? by_memory : $(nproc)))
}
JOBS=${MPC_JOBS:-$(job_count)}

# Other checkouts of the same sources find the same objects in the compiler cache.
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

# Bold on a terminal, plain in a log.
say() { if [ -t 2 ]; then printf '\033[1m==> %s\033[0m\n' "$*" >&2; else printf '==> %s\n' "$*" >&2; fi; }
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
  "$@" >"$log" 2>&1 || failed "$log" "$message"
}

# compiling LOG MESSAGE COMMAND…: the same for a command that runs ninja, and tells how far it is.
compiling() {
  local log=$1 message=$2; shift 2
  mkdir -p "$(dirname "$log")"
  "$@" 2>&1 | tee "$log" | progress || failed "$log" "$message"
}

failed() {
  tail -n 15 "$1" >&2
  die "$2 (whole output: $1)"
}

# Of ninja's output, how far it is: in one line of a terminal, and in a line every tenth in a log.
progress() {
  local line now all tenth=0
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    now=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
    if [ -t 2 ]; then
      printf '\r\033[K%d of %d steps' "$now" "$all" >&2
    elif ((10 * now / all > tenth)); then
      tenth=$((10 * now / all))
      printf '    %d of %d steps\n' "$now" "$all" >&2
    fi
  done
  if [ -t 2 ]; then printf '\r\033[K' >&2; fi
}

# install_packages PACKAGE…: with apt-get, those that are missing.
install_packages() {
  local missing=() package
  command -v dpkg-query >/dev/null || die "this set-up installs Debian packages, and this is no Debian system; install by hand what scripts/versions.env lists, and build with cmake"
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  say "installing the packages ${missing[*]}"
  as_root true || die "sudo does not let this script install packages"
  quietly "$BUILD/log/apt-update.log" "apt-get update failed: is there a network?" as_root apt-get update -q
  for package in "${missing[@]}"; do
    apt-cache show "$package" >/dev/null 2>&1 && continue
    # apt-get update succeeds even where it reaches no server.
    grep -E '^(W|E|Err)' "$BUILD/log/apt-update.log" | head -n 3 >&2 &&
      die "the package $package was not found, and the package lists could not be fetched: is there a network?"
    die "the package $package is not in this machine's package sources: Debian 12 with its updates has it, in section main"
  done
  quietly "$BUILD/log/apt-install.log" "apt-get install failed: is there a network, and room on the disk?" \
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q -o DPkg::Lock::Timeout=600 --no-install-recommends "${missing[@]}"
}

# python_environment NAME PACKAGE==VERSION…: the environment DEPS/NAME with these packages, made by one run at a time.
python_environment() {
  ( flock 7; fill_environment "$@" ) 7>"$DEPS/.lock-$1"
}

fill_environment() {
  local name=$1 dir=$DEPS/$1 package missing=(); shift
  # It may be there and not run: the system's Python is another one since.
  if ! [ -e "$dir/.has-pip" ] || ! "$dir/bin/python" -c '' 2>/dev/null; then
    quietly "$BUILD/log/venv-$name.log" "python3 -m venv failed: is there room on the disk?" python3 -m venv --clear "$dir"
    touch "$dir/.has-pip"
  fi
  for package in "$@"; do
    [ -e "$dir/.has-$package" ] || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  say "installing $* from PyPI"
  # Their other versions, which another checkout may have wanted, are gone from here on.
  for package in "${missing[@]}"; do rm -f "$dir/.has-${package%%==*}=="*; done
  quietly "$BUILD/log/pip-$name.log" "pip could not install $*: is there a network, and room on the disk?" "$dir/bin/pip" install -q "$@"
  for package in "$@"; do touch "$dir/.has-$package"; done
}

version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

find_cmake() {
  CMAKE=$(command -v cmake || true)
  if [ -n "$CMAKE" ] && version_at_least "$("$CMAKE" --version | sed -n '1s/[^0-9]*//p')" "$CMAKE_MINIMUM"; then return; fi
  python_environment python "cmake==$CMAKE_VERSION"
  CMAKE="$DEPS/python/bin/cmake"
  version_at_least "$("$CMAKE" --version | sed -n '1s/[^0-9]*//p')" "$CMAKE_MINIMUM" ||
    die "CMake $CMAKE_MINIMUM or later is needed; found $("$CMAKE" --version | head -n 1)"
}

# pip_download DIR ARGUMENT…: package files as they are in the index, without their dependencies.
pip_download() {
  local dir=$1; shift
  python_environment python
  quietly "$BUILD/log/pip-download.log" "pip could not download ${*: -1}: is there a network, and room on the disk?" \
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
  for wheel in "$dir"/*.whl; do
    quietly "$BUILD/log/onednn.log" "unpacking oneDNN failed: is there room on the disk?" python3 -m zipfile -e "$wheel" "$dir/wheel"
  done
  # A wheel's files for the prefix lie in NAME-VERSION.data/data.
  local data
  for data in "$dir"/wheel/*.data/data; do
    quietly "$BUILD/log/onednn.log" "unpacking oneDNN failed: is there room on the disk?" cp -a "$data"/. "$dir"/
  done
  rm -rf "$dir"/wheel "$dir"/*.whl
  touch "$dir/.done"; mv "$dir" "$DEPS/onednn"
}

# NVIDIA's assembler, device library and headers; the folders' names have the versions, so that the other pieces outlive new ones.
CUDA_TOOLS=$DEPS/cuda-nvcc-$CUDA_NVCC_VERSION CUDA_HEADERS=$DEPS/cuda-headers-$CUDA_HEADERS_VERSION CUDA_CCCL=$DEPS/cuda-cccl-$CUDA_CCCL_VERSION
CUDNN_HEADERS=$DEPS/cudnn-headers-$CUDNN_HEADERS_VERSION CUDNN_FRONTEND=$DEPS/cudnn-frontend-$CUDNN_FRONTEND_VERSION
install_cuda_tools() {
  install_cuda_package "$CUDA_TOOLS" "NVIDIA's assembler" nvidia-cuda-nvcc-cu12==$CUDA_NVCC_VERSION cuda_nvcc
  chmod +x "$CUDA_TOOLS/bin/ptxas" # Python's unpacking loses the mark
  install_cuda_package "$CUDA_HEADERS" "NVIDIA's headers" nvidia-cuda-runtime-cu12==$CUDA_HEADERS_VERSION cuda_runtime/include
  install_cuda_package "$CUDA_CCCL" "more of NVIDIA's headers" nvidia-cuda-cccl-cu12==$CUDA_CCCL_VERSION cuda_cccl/include
  install_wheel_part "$CUDNN_HEADERS" "cuDNN's headers" nvidia-cudnn-cu12==$CUDNN_HEADERS_VERSION nvidia/cudnn/include
  install_wheel_part "$CUDNN_FRONTEND" "cuDNN's frontend" nvidia-cudnn-frontend==$CUDNN_FRONTEND_VERSION include
}

# install_cuda_package DIR WHAT PACKAGE FOLDER: the package's folder nvidia/FOLDER as DIR.
install_cuda_package() {
  [ -e "$1/.done" ] && return
  say "fetching $2"
  local dir=$1.part wheel
  rm -rf "$dir" "$1"; mkdir -p "$dir"
  pip_download "$dir" "$3"
  for wheel in "$dir"/*.whl; do
    quietly "$BUILD/log/cuda-tools.log" "unpacking $2 failed: is there room on the disk?" python3 -m zipfile -e "$wheel" "$dir/wheel"
  done
  mv "$dir/wheel/nvidia/$4"/* "$dir"/
  rm -rf "$dir"/wheel "$dir"/*.whl
  touch "$dir/.done"; mv "$dir" "$1"
}

# install_wheel_part DIR WHAT PACKAGE FOLDER: a folder of a package as DIR, fetching little more than that (wheel-part.py).
install_wheel_part() {
  [ -e "$1/.done" ] && return
  say "fetching $2"
  rm -rf "$1.part" "$1"
  python_environment python
  quietly "$BUILD/log/$(basename "$1").log" "fetching $2 failed: is there a network, and room on the disk?" \
    "$DEPS/python/bin/python" "$ROOT/scripts/wheel-part.py" "$3" "$4" "$1.part"
  touch "$1.part/.done"; mv "$1.part" "$1"
}

install_onnx() {
  [ -e "$DEPS/onnx/.done" ] && return
  say "building ONNX $ONNX_VERSION (about two minutes on two cores)"
  local dir=$DEPS/onnx.part
  rm -rf "$dir" "$DEPS/onnx"; mkdir -p "$dir"
  pip_download "$dir" --no-binary onnx "onnx==$ONNX_VERSION"
  quietly "$BUILD/log/onnx-unpack.log" "unpacking ONNX failed: is there room on the disk?" tar -xf "$dir/onnx-$ONNX_VERSION.tar.gz" -C "$dir"
  quietly "$BUILD/log/onnx-configure.log" "configuring ONNX failed" \
    "$CMAKE" -GNinja -S "$dir/onnx-$ONNX_VERSION" -B "$dir/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$DEPS/onnx" \
    -DONNX_USE_PROTOBUF_SHARED_LIBS=ON -DONNX_GEN_PB_TYPE_STUBS=OFF -DONNX_BUILD_PYTHON=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
  compiling "$BUILD/log/onnx-build.log" "building ONNX failed" "$CMAKE" --build "$dir/build" -j "$JOBS"
  quietly "$BUILD/log/onnx-install.log" "installing ONNX failed" "$CMAKE" --install "$dir/build"
  rm -rf "$dir"
  touch "$DEPS/onnx/.done"
}

# lock DESCRIPTOR FOLDER: one run at a time; the lock ends with the script and what it started.
lock() {
  flock -n "$1" && return
  say "another run uses $2; waiting for it"
  flock "$1"
}

set_up() {
  [ -f /proc/meminfo ] || die "/proc is not mounted: the set-up and the tests need it"
  case $ROOT$BUILD$DEPS in
    *[\;:]*) die "CMake and the loader take ';' and ':' in a folder's name for separators: $ROOT, $BUILD, $DEPS must have none" ;;
  esac
  mkdir -p "$BUILD/log" "$DEPS" || die "cannot make the folders $BUILD and $DEPS (MPC_BUILD_DIR and MPC_DEPS_DIR name others)"
  exec 8>"$BUILD/.lock" 9>"$DEPS/.lock"
  lock 8 "$BUILD"
  lock 9 "$DEPS"
  install_packages $DEBIAN_PACKAGES
  find_cmake
  install_onednn
  install_cuda_tools
  install_onnx
  flock -u 9
}

# build [TARGET…]: configures where that is not yet done with these options, then builds. A folder that was configured by hand stays so.
build() {
  # shellcheck disable=SC2206 # MPC_CMAKE_OPTIONS may be several
  local options=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$DEPS/onnx;$DEPS/onednn" -DMPC_CUDA_TOOLS="$CUDA_TOOLS"
    -DMPC_CUDA_HEADERS="$CUDA_HEADERS" -DMPC_CUDA_CCCL="$CUDA_CCCL" -DMPC_CUDNN_HEADERS="$CUDNN_HEADERS" -DMPC_CUDNN_FRONTEND="$CUDNN_FRONTEND"
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache ${MPC_CMAKE_OPTIONS:-})
  local wanted="$ROOT $BUILD ${options[*]}"
  if [ ! -e "$BUILD/build.ninja" ] || { [ -e "$BUILD/.configured" ] && [ "$(cat "$BUILD/.configured")" != "$wanted" ]; }; then
    say "configuring"
    # Without the answers that an earlier configuration got, in another folder or from other libraries.
    rm -rf "$BUILD/build.ninja" "$BUILD/CMakeCache.txt" "$BUILD/CMakeFiles"
    quietly "$BUILD/log/configure.log" "configuring failed" "$CMAKE" -GNinja -S "$ROOT" -B "$BUILD" "${options[@]}"
    printf '%s\n' "$wanted" >"$BUILD/.configured"
  fi
  say "building with $JOBS compilers at a time (the first time takes some minutes)"
  compiling "$BUILD/log/build.log" "building failed: is there room on the disk, and in memory (MPC_JOBS=1 needs the least)?" \
    "$CMAKE" --build "$BUILD" -j "$JOBS" ${1+--target "$@"}
}

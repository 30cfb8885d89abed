#!/usr/bin/env bash
# mpc beside its peers: bench.sh [--models A,B] [--products 512,1024] [--precisions fp32,bf16,fp16] [--json FILE] [--markdown FILE]; --help tells the rest.
# PyTorch and JAX, and ONNX Runtime's training release, are installed into environments of their own.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# Before anything is installed: help, and what is wrong with the options. A machine without Python learns it afterwards.
if command -v python3 >/dev/null; then
  for argument in "$@"; do
    case $argument in -h | --help) exec python3 "$ROOT/bench/options.py" --help ;; esac
  done
  python3 "$ROOT/bench/options.py" --mpc "$BUILD/bin/mpc" "$@"
fi
set_up
build mpc mpc_runtime library-bench
install_packages $DEBIAN_BENCH_PACKAGES
python_environment bench-python $PYTHON_BENCH_PACKAGES
ORT=()
if (python_environment bench-ort $PYTHON_ORT_PACKAGES); then
  ORT=(--ort "$DEPS/bench-ort/bin/python")
else
  say "going on without ONNX Runtime"
fi
exec "$DEPS/bench-python/bin/python" "$ROOT/bench/run.py" --mpc "$BUILD/bin/mpc" ${ORT[@]+"${ORT[@]}"} "$@"

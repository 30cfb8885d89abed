#!/usr/bin/env bash
# mpc beside its peers: bench.sh [--models A,B] [--precisions fp32,bf16,fp16] [--json FILE]. PyTorch and JAX are installed into an environment of the bench.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up
build mpc mpc_runtime library-bench
if [ ! -e "$DEPS/bench-python/.done" ]; then
  say "installing the peers: $PYTHON_BENCH_PACKAGES"
  quietly "$BUILD/log/bench-venv.log" "python3 -m venv failed" python3 -m venv --clear "$DEPS/bench-python"
  quietly "$BUILD/log/bench-pip.log" "pip could not install the peers: is there a network?" "$DEPS/bench-python/bin/pip" install -q $PYTHON_BENCH_PACKAGES
  touch "$DEPS/bench-python/.done"
fi
exec "$DEPS/bench-python/bin/python" "$ROOT/bench/run.py" --mpc "$BUILD/bin/mpc" "$@"

#!/usr/bin/env bash
# Makes the folder that gpu-check.sh takes to a machine with a GPU (build/gpu-check, 64 MiB at most): gpu-prepare.sh [DIR] [--arch sm_90]
# [--models FOLDER] [--only A,B]; --help tells the rest. build/reference, which check-reference.sh makes, is a FOLDER with the large models.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
for argument in "$@"; do
  case $argument in -h | --help) exec python3 "$ROOT/scripts/gpu/prepare.py" --help ;; esac
done
set_up
build mpc mpc_runtime
exec python3 "$ROOT/scripts/gpu/prepare.py" --mpc "$BUILD/bin/mpc" "$@"

#!/usr/bin/env bash
# Runs what gpu-prepare.sh made on a GPU: gpu-check.sh PREPARED [--out DIR] [--seconds N] [--device N|sim]; --help tells the rest.
# Needs the GPU's driver and a Python of 3.8 or later with its standard library; uses PyTorch, compute-sanitizer, nsys and ncu where they are there.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 >/dev/null || { echo "error: gpu-check.sh needs python3" >&2; exit 1; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' || { echo "error: gpu-check.sh needs Python 3.8 or later" >&2; exit 1; }
exec python3 "$HERE/gpu/check.py" "$@"

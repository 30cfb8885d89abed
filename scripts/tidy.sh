#!/usr/bin/env bash
# Runs clang-tidy on every C++ file of the project: tidy.sh [FOLDER_OR_FILE…]. Some minutes; test.sh does it for runtime and tools alone.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up
install_packages $DEBIAN_TEST_PACKAGES
build # what TableGen makes is included everywhere
exec python3 "$ROOT/test/tidy.py" --build "$BUILD" -j "$JOBS" "$@"

#!/usr/bin/env bash
# The same set-up as demo.sh, then every test: GoogleTest, lit, the case folders. The last line is "N passed, N failed, N skipped".
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
case $ROOT$BUILD in *[[:space:]]*) die "lit, which runs a part of the tests, takes a space for a separator: $ROOT and $BUILD must have none" ;; esac
set_up
install_packages $DEBIAN_TEST_PACKAGES
python_environment python $PYTHON_TEST_PACKAGES
build
PYTHON=$DEPS/python/bin/python exec "$DEPS/python/bin/python" "$ROOT/test/run_all.py" --build "$BUILD" "$@"

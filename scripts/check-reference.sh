#!/usr/bin/env bash
# All nine reference models against PyTorch: check-reference.sh [--models A,B] [--precisions fp64,fp32,bf16,fp16] [-v]
# Installs PyTorch into an environment of its own (or uses MPC_REFERENCE_PYTHON, a Python with torch, numpy, onnx and onnxscript), exports the models, lets
# PyTorch train them 20 steps in each precision, and compares mpc's outputs, gradients, losses and trained weights (test/e2e/reference.py says how closely).
# PyTorch's values are kept in the build folder and made again only with --again. The last line is "N passed, N failed, N skipped".
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

MODELS="linear,mlp,mlp_dropout,mlp_ln,fashion_cnn,simple_cnn,resnet18_cifar,bert_tiny,gpt_tiny"
AGAIN= ARGUMENTS=()
while [ $# -gt 0 ]; do
  case $1 in
    --models) [ $# -ge 2 ] || die "--models needs a list"; MODELS=$2; shift 2 ;;
    --models=*) MODELS=${1#*=}; shift ;;
    --again) AGAIN=1; shift ;;
    --precisions) [ $# -ge 2 ] || die "--precisions needs a list"; ARGUMENTS+=(--precisions "$2"); shift 2 ;;
    --precisions=* | -v) ARGUMENTS+=("$1"); shift ;;
    -h | --help) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
    *) printf 'error: unknown option %s; see --help\n' "$1" >&2; exit 2 ;;
  esac
done

if [ -z "${MPC_REFERENCE_PYTHON:-}" ]; then
  set_up
  build mpc mpc_runtime
  python_environment reference-python $PYTHON_REFERENCE_PACKAGES
  MPC_REFERENCE_PYTHON=$DEPS/reference-python/bin/python
fi

REFERENCE=$BUILD/reference
for model in ${MODELS//,/ }; do
  [ -z "$AGAIN" ] && [ -e "$REFERENCE/$model/reference.json" ] && continue
  say "PyTorch trains $model"
  rm -rf "$REFERENCE/$model"
  OMP_NUM_THREADS=$JOBS quietly "$BUILD/log/reference-$model.log" "PyTorch's values of $model could not be made" \
    "$MPC_REFERENCE_PYTHON" "$ROOT/test/e2e/torch_reference.py" "$REFERENCE" "$model"
done
# One model at a time: the large ones use all cores.
exec "$MPC_REFERENCE_PYTHON" "$ROOT/test/e2e/test_reference.py" --build "$BUILD" --reference "$REFERENCE" -j 1 --only "^(${MODELS//,/|}) " ${ARGUMENTS[@]+"${ARGUMENTS[@]}"}

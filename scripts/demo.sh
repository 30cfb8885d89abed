#!/usr/bin/env bash
# Installs what is missing, builds mpc, compiles the Fashion-MNIST model in fp16, trains it for five epochs and prints its test accuracy.
# PRECISION=bf16 and SEED=1 in the environment choose others than fp16 and 0.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
[ $# = 0 ] || die "demo.sh takes no arguments; PRECISION=bf16 and SEED=1 in the environment choose others than fp16 and 0"
PRECISION=${PRECISION:-fp16} SEED=${SEED:-0}
case $PRECISION in fp16 | bf16 | fp32 | fp64) ;; *) die "PRECISION=$PRECISION: it is fp16, bf16, fp32 or fp64" ;; esac
set_up
build mpc mpc_runtime
DATA=$(dpkg -L dataset-fashion-mnist | sed -n 's,/train-images-idx3-ubyte.gz$,,p')
[ -n "$DATA" ] || die "the package dataset-fashion-mnist holds no train-images-idx3-ubyte.gz"
WORK=$BUILD/demo
mkdir -p "$WORK"
say "compiling models/fashion_cnn.onnx in $PRECISION"
"$BUILD/bin/mpc" "$ROOT/models/fashion_cnn.onnx" --loss=cross-entropy --optimizer=adam --precision="$PRECISION" --batch=64 -o "$WORK/fashion_cnn"
say "training"
"$WORK/fashion_cnn" train --data "idx:$DATA/train-images-idx3-ubyte.gz,$DATA/train-labels-idx1-ubyte.gz" \
  --valid "idx:$DATA/t10k-images-idx3-ubyte.gz,$DATA/t10k-labels-idx1-ubyte.gz" \
  --epochs 5 --lr 1e-3 --seed "$SEED" --out "$WORK/run" --overwrite --metrics "$WORK/metrics.jsonl"
"$WORK/fashion_cnn" export --checkpoint "$WORK/run" -o "$WORK/fashion_cnn_trained.onnx"
accuracy=$(sed -n 's/.*"event": *"eval".*"accuracy": *\([0-9.]*\).*/\1/p; s/.*"accuracy": *\([0-9.]*\).*"event": *"eval".*/\1/p' "$WORK/metrics.jsonl" | tail -n 1)
[ -n "$accuracy" ] || die "the run left no accuracy in $WORK/metrics.jsonl"
echo "trained model: $WORK/fashion_cnn_trained.onnx"
awk -v a="$accuracy" 'BEGIN { printf "test accuracy: %.2f %%\n", 100 * a }'

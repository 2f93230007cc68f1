#!/usr/bin/env bash
# Two machines; the scheduler sets MASTER_ADDR and NODE_RANK.
set -euo pipefail
export NCCL_DEBUG=WARN
export NCCL_IB_HCA=mlx5_0,mlx5_1
export TORCH_FR_BUFFER_SIZE=2000
export PYTORCH_ALLOC_CONF=expandable_segments:True
torchrun \
  --nnodes 2 \
  --nproc-per-node 8 \
  --node-rank "$NODE_RANK" \
  --rdzv-backend c10d \
  --rdzv-endpoint "$MASTER_ADDR:29500" \
  --max-restarts 3 \
  train_full.py --learning_rate 1e-5 --eval_strategy steps

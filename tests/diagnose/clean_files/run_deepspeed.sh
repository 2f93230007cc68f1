#!/bin/bash
set -eu
deepspeed --num_gpus=4 --master_port 29501 train_full.py \
  --model_name_or_path Qwen/Qwen3-8B \
  --deepspeed zero3.json \
  --output_dir out

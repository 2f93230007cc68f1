#!/bin/bash
export NCCL_IB_DISABLE=0
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node 4 train.py --evaluation_strategy steps
docker run -d -p 9090:9090 prometheus/prometheus

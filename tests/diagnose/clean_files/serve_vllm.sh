#!/usr/bin/env bash
exec vllm serve Qwen/Qwen3.5-27B --served-model-name chat \
  --max-model-len 32768 --gpu-memory-utilization 0.92 --tensor-parallel-size 2 \
  --enable-prefix-caching --max-num-seqs 64 --host 127.0.0.1 --port 8000

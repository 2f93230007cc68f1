python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2 --mem-fraction-static 0.88 \
  --context-length 32768 --enable-metrics --host 127.0.0.1 --port 30000

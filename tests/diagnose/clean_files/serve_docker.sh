docker run -d --name llm --gpus all --shm-size 8g --restart unless-stopped \
  -p 127.0.0.1:8000:8000 -v "$HOME/.cache/huggingface:/cache" \
  -e HF_TOKEN -e HF_HOME=/cache \
  vllm/vllm-openai:v0.33.0 --model Qwen/Qwen3-8B --max-model-len 16384

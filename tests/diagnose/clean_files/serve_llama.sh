llama-server -m models/qwen3-8b-q4_k_m.gguf -c 16384 -ngl 99 --n-cpu-moe 20 --flash-attn on --metrics --host 127.0.0.1 --port 8080

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

name = "Qwen/Qwen3-30B-A3B"
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(
    name, dtype="auto", device_map="auto", max_memory={0: "20GiB", "cpu": "60GiB"}
)
inputs = tokenizer("What fits?", return_tensors="pt").to(model.device)
with torch.inference_mode():
    print(tokenizer.decode(model.generate(**inputs, max_new_tokens=64)[0]))
model.to(torch.bfloat16)

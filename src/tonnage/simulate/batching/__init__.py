"""Schedulers of serving engines, one file each: which requests take part in each step of a replica.

Each is other code, not a parameter, because engines decide differently: by a budget of tokens a step
(`token_budget`, vLLM and TensorRT-LLM), prompts first (`prompts_first`, SGLang), or slots (`slots`, llama.cpp).
"""

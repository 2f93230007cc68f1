import torch

torch.cuda.memory._record_memory_history(max_entries=100_000)
try:
    torch.empty(1 << 20, device="cuda")
finally:
    torch.cuda.memory._dump_snapshot("snapshot.pickle")
print(torch.cuda.memory_stats()["num_alloc_retries"])

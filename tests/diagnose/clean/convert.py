import torch
from safetensors.torch import save_file

state = torch.load("old.pt", map_location="cpu", weights_only=True)
save_file({name: tensor.contiguous() for name, tensor in state.items()}, "new.safetensors")

"""The trace oracle, an extra: a training step run by PyTorch on tensors without data, every allocation noted.

`types`, `timeline` and `depths` are plain values; torch and transformers are imported by `step` and what it calls.
"""

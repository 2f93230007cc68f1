"""Candidate -> `horovodrun`. A template: Horovod rests since 2023 and does not build with today's torch.

Flags as in horovod 0.28.1 horovod/runner/launch.py. `torchrun` runs the same plan (`--engine torchrun`).
"""

from __future__ import annotations

from typing import Final

from tonnage.engines.transformers.training import JOB, job_file
from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate

__all__ = ["launch"]

SCRIPT: Final = "train_horovod.py"
_BODY: Final = '''"""Plain data parallel with Horovod 0.28.1: each rank holds the whole model. Today's way is torchrun."""

import json
from pathlib import Path

import horovod.torch as hvd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

hvd.init()
torch.cuda.set_device(hvd.local_rank())
job = json.loads(Path("{job}").read_text(encoding="utf-8"))
said = job["training_arguments"]
tokenizer = AutoTokenizer.from_pretrained(job["model"])
texts = (json.loads(line)["text"] for line in Path("data/text.jsonl").read_text(encoding="utf-8").splitlines())
ids = [one for text in texts for one in (*tokenizer(text)["input_ids"], tokenizer.eos_token_id)]
rows = torch.tensor(ids)[: len(ids) // job["seq_len"] * job["seq_len"]].view(-1, job["seq_len"])
data = [{{"input_ids": row, "labels": row.clone()}} for row in rows]
sampler = torch.utils.data.distributed.DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
loader = torch.utils.data.DataLoader(data, batch_size=said["per_device_train_batch_size"], sampler=sampler)
model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=getattr(torch, job["dtype"])).cuda()
passes = said["gradient_accumulation_steps"]
optimizer = hvd.DistributedOptimizer(
    torch.optim.AdamW(model.parameters(), lr=said["learning_rate"], fused=True),
    named_parameters=model.named_parameters(),
    backward_passes_per_step=passes,
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for number, batch in enumerate(loader, 1):
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=said["bf16"]):
        loss = model(**{{name: part.cuda() for name, part in batch.items()}}).loss / passes
    loss.backward()
    if number % passes == 0:
        optimizer.step()
        optimizer.zero_grad()
if hvd.rank() == 0:
    model.save_pretrained(Path(said["output_dir"]) / "final")
'''


def launch(candidate: Candidate) -> Launch:
    """Return `horovodrun` on one machine; on several, `hosts` names them."""
    cluster = candidate.cluster
    where = ("--hostfile", "hosts") if cluster.num_nodes > 1 else ()
    files = {SCRIPT: _BODY.format(job=JOB), JOB: job_file(candidate)}
    if where:
        slots = len(cluster.node.devices)
        files["hosts"] = "".join(f"node{number} slots={slots}\n" for number in range(cluster.num_nodes))
    argv = ("horovodrun", "-np", str(candidate.layout.num_devices), *where, "python", SCRIPT, JOB)
    return Launch(argv=argv, files=files)

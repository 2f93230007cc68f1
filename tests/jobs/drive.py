"""Runs several trainings in one process, so that the imports are paid once; started as a rank by the tests."""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

JOBS = Path(__file__).parents[2] / "src" / "tonnage" / "jobs"
sys.path.insert(0, str(JOBS))


def forget_engine():
    """Let accelerate read its environment again for the next training."""
    from accelerate.state import AcceleratorState, GradientState
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    AcceleratorState._reset_state(reset_partial_state=False)
    GradientState._reset_state()
    unset_hf_deepspeed_config()


def make_tokenizer(folder):
    """A byte is a token; the chat template renders turn after turn."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = pre_tokenizers.ByteLevel.alphabet()
    core = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(sorted(letters))}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<pad>")
    made.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    made.save_pretrained(folder)


def make_model(config, folder):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(11)
    table = dict(config)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(table.pop("model_type"), **table)).save_pretrained(folder)


def replaced(owner, name, make):
    """Replace a function by one made from it; return what undoes that."""
    old = getattr(owner, name)
    setattr(owner, name, make(old))
    return lambda: setattr(owner, name, old)


def at_step(step, act):
    """Act when the numbers of a step are written."""
    from train_folder import RunFolder

    def make(write):
        def metric(self, **values):
            write(self, **values)
            if values["step"] == step:
                act()

        return metric

    return replaced(RunFolder, "metric", make)


def stop_at(step):
    """SIGTERM comes when a step is written."""
    return at_step(step, lambda: os.kill(os.getpid(), signal.SIGTERM))


def watch_routers(file):
    """Write which types every router's weights and scores had, and how far the scores are from those of fp32."""
    import torch
    import train_setup

    seen = set()

    def hook(module, inputs, output):
        with torch.autocast("cpu", enabled=False):
            rows = inputs[0].float().reshape(-1, inputs[0].shape[-1])
            right = torch.nn.functional.linear(rows, module.weight.float())
        error = float((output[0] - right).abs().max())
        seen.add((str(module.weight.dtype), str(output[0].dtype), error))
        Path(file).write_text(json.dumps(sorted(seen)))

    def make(keep):
        def kept(model):
            from train_models import routers

            for _, module in routers(model):
                module.register_forward_hook(hook)
            return keep(model)

        return kept

    return replaced(train_setup, "keep_routers_in_fp32", make)


def ask_stacks_at(step):
    return at_step(step, lambda: os.kill(os.getpid(), signal.SIGUSR1))


def ask_snapshot_at(step):
    return at_step(step, lambda: os.kill(os.getpid(), signal.SIGUSR2))


def poison_at(step):
    """The loss of one step is no number."""
    import train_loop

    def make(compute):
        def poisoned(self, *args, **kwargs):
            return compute(self, *args, **kwargs) * (float("nan") if self.state.global_step == step - 1 else 1.0)

        return poisoned

    return replaced(train_loop.Trainer, "compute_loss", make)


def spoil_second_rank_at(step):
    """A weight of one replica flips."""
    import train_loop

    def make(record):
        def recorded(self, *args, **kwargs):
            if self.state.global_step == step and self.ranks.rank == 1:
                next(iter(self.model.parameters())).data.view(-1)[0] += 1
            return record(self, *args, **kwargs)

        return recorded

    return replaced(train_loop.Loop, "_maybe_log_save_evaluate", make)


def measure_memory(file):
    """Write the most bytes of tensors that live at once in the second step, as torch's own tracker counts them."""
    import gc

    import torch
    from torch.distributed._tools.mem_tracker import MemTracker
    from train_folder import RunFolder

    tracker = MemTracker()

    def storages():  # of tensors that live; those of an earlier training are none of ours
        found = {}
        for one in gc.get_objects():
            if isinstance(one, torch.Tensor) and type(one).__name__ != "FakeTensor":
                local = one.to_local() if hasattr(one, "to_local") else one
                if local.device.type == "cpu" and local.layout == torch.strided:
                    found[local.untyped_storage()._cdata] = local
        return list(found.values())

    gc.collect()
    earlier = storages()
    known = {one.untyped_storage()._cdata for one in earlier}

    def make(write):
        def metric(self, **values):
            write(self, **values)
            if values["step"] == 1:
                gc.collect()
                tracker.track_external(*(one for one in storages() if one.untyped_storage()._cdata not in known))
                tracker.__enter__()
            elif values["step"] == 2:
                tracker.__exit__(None, None, None)
                (device,) = [one for one in tracker._peak_mem_snap if one.type == "cpu"]
                snapshot = {str(key): value for key, value in tracker._peak_mem_snap[device].items()}
                Path(file.format(rank=os.environ.get("RANK", "0"))).write_text(json.dumps(snapshot))

        return metric

    return replaced(RunFolder, "metric", make)


def fill_disk_at(step):
    """The save of one step finds the disk full."""
    import train_checkpoints

    def make(write):
        def full(self, pending, parts, texts):
            if pending.step == step:
                texts = {name: BadText(text) for name, text in texts.items()}
            return write(self, pending, parts, texts)

        return full

    class BadText(str):
        __slots__ = ()

        def encode(self, *args):
            raise OSError(28, "No space left on device")

    return replaced(train_checkpoints.Checkpoints, "_write", make)


def main(plan: Path, out: Path) -> None:
    from train_main import run

    codes = []
    for task in json.loads(plan.read_text()):
        if "make" in task:
            make_model(task["make"], task["root"]) if task["make"] else make_tokenizer(task["root"])
            continue
        for command in task.get("before", ()) if os.environ.get("RANK", "0") == "0" else ():
            exec(command, {"root": Path(task["root"])})
        job = {"final": True, "dtype": "float32", "attn_implementation": "sdpa", **task["job"]}
        hooks = [make(task[name]) for name, make in HOOKS.items() if name in task]
        environment = dict(os.environ)
        try:
            codes.append(run(job, Path(task["root"]), attempt=task.get("attempt", 0)))
        except Exception as error:  # noqa: BLE001  the test reads it
            traceback.print_exc()
            codes.append(f"{type(error).__name__}: {error}")
        finally:
            for undo in hooks:
                undo()
            os.environ.clear()
            os.environ.update(environment)
            forget_engine()
    out.write_text(json.dumps(codes))


HOOKS = {
    hook.__name__: hook
    for hook in (
        stop_at, watch_routers, measure_memory, fill_disk_at, ask_stacks_at, ask_snapshot_at, poison_at,
        spoil_second_rank_at,
    )
}  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

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


def stop_at(step):
    """SIGTERM comes when a step is written."""
    from train_folder import RunFolder

    def make(write):
        def metric(self, **values):
            write(self, **values)
            if values["step"] == step:
                os.kill(os.getpid(), signal.SIGTERM)

        return metric

    return replaced(RunFolder, "metric", make)


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


HOOKS = {"stop_at": stop_at, "watch_routers": watch_routers, "fill_disk_at": fill_disk_at}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""What `tonnage plan` refuses at the door: in one line, before anything is searched."""

from __future__ import annotations

import pytest

SMALL = ("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4090")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--quant", "nosuch"), "'nosuch' is not a format of weights"),
        (("--quant", "q4km"), "did you mean q4_k_m"),
        (("--kv", "fp9"), "'fp9' is not a format of the cache"),
        (("--serve", "--pretrain"), "one goal at a time"),
        (("--serve", "--finetune", "lora"), "one goal at a time"),
        (("--today", "no-such-file"), "no-such-file: cannot be read"),
        (("--tp", "0"), "--tp: '0' does not do"),
        (("--context", "1e999"), "--context: "),
        (("--utilization", "1.5"), "--utilization: '1.5' is not a share"),
        (("--host", "64"), "--host: '64' is not a machine's memory"),
        (("--price", "rtx-4090=1800"), "--price: '1800' is not an amount"),
    ],
)
def test_a_wrong_word_is_one_line(tonnage, words, says):
    answer = tonnage(*SMALL, *words)
    assert answer.code == 2
    assert answer.out == ""
    assert says in answer.err
    assert answer.err.count("\n") == 1


def test_a_stack_that_is_not_compared_is_said_so(tonnage, tmp_path):
    stack = tmp_path / "today.txt"
    stack.write_text("torch==2.9.0\n")
    answer = tonnage(*SMALL, "--today", str(stack))
    assert answer.code == 0
    assert "nothing is said of what carries over" in answer.err

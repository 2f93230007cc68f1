"""Whatever a name holds, it stays one word in each format, as that format's own reader tells."""

import shlex
import subprocess

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import RequestError
from tonnage.render.quote import compose_value, kubernetes_words, shell_words, systemd_words, to_yaml
from tonnage.render.scripts import command_lines, comment

NASTY = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40),
    st.sampled_from(
        ["$(id)", "`id`", "a b", "it's", '"', "\\", "\n", "#", "- x", "a: b", "yes", "%n", "${HOME}", "--x", ""]
    ),
)
TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**9), 10**9), NASTY),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NASTY, inner, max_size=4)),
    max_leaves=12,
)


@given(st.lists(NASTY, min_size=1, max_size=6))
def test_a_shell_reads_the_words_back(words):
    assert shlex.split(shell_words(words)) == words


@given(st.lists(NASTY, min_size=1, max_size=8))
def test_a_command_over_several_lines_is_the_same_command(words):
    lines = command_lines(["run", *words])
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert shlex.split(" ".join(line.removesuffix(" \\") for line in lines)) == ["run", *words]


def test_bash_itself_reads_the_words_back():
    words = ["$(touch /tmp/never)", "`id`", "it's", "a\nb", "*", "~", "!x"]
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' {shell_words(words)}"], capture_output=True, check=True)
    assert said.stdout.decode().split("\0")[:-1] == words


@given(st.dictionaries(NASTY, TREES, min_size=1, max_size=5))
def test_yaml_gives_the_same_value_back(tree):
    assert yaml.safe_load(to_yaml(tree)) == tree


@pytest.mark.parametrize(
    "text", ["yes", "No", "null", "1", "1e3", "0x10", "2026-01-01", "~", "=", "<<", "12:30", ".5", "-"]
)
def test_text_that_looks_like_something_else_stays_text(text):
    assert yaml.safe_load(to_yaml({"a": text})) == {"a": text}


@given(NASTY)
def test_a_comment_is_one_line(text):
    assert len(comment(text).splitlines()) == 1


def test_nothing_is_expanded_by_systemd_compose_or_kubernetes():
    assert (
        systemd_words(["a", "$HOME", "%n", "x;y", ";", 'q"q', "b\\c"]) == 'a $$HOME %%n "x;y" "\\x3b" "q\\"q" "b\\\\c"'
    )
    assert compose_value({"command": ["$A", "$$"]}) == {"command": ["$$A", "$$$$"]}
    assert kubernetes_words(["$(A)"]) == ["$$(A)"]


def test_nul_is_refused():
    with pytest.raises(RequestError, match="NUL"):
        shell_words(["a\0b"])

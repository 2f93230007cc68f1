"""What writing a bundle does to a folder: nothing of a person's is ever written over."""

import json

import pytest

from tonnage.errors import BadFileError
from tonnage.render.bundle import State, compare, digest, manifest_text, read_manifest
from tonnage.render.types import Bundle, BundleFile


def a_bundle(**texts):
    files = tuple(BundleFile(path=path, text=text, purpose="p") for path, text in texts.items())
    return Bundle(name="n", place="local", files=files, start="bash start.sh")


def states(bundle, held, written):
    return {change.path: change.state for change in compare(bundle, held, written)}


def test_a_manifest_tells_each_file_with_its_hash():
    bundle = a_bundle(a="one", b="two")
    assert read_manifest(manifest_text(bundle)) == {"a": digest("one"), "b": digest("two")}
    assert manifest_text(bundle) == manifest_text(a_bundle(b="two", a="one"))


def test_each_state_of_a_file():
    bundle = a_bundle(new="1", same="1", changed="2", edited="2", taken="2")
    held = {"same": "1", "changed": "1", "edited": "mine", "taken": "mine", "stale": "1", "stale_edited": "mine"}
    written = {p: digest("1") for p in ("same", "changed", "edited", "stale", "stale_edited", "gone")}
    assert states(bundle, held, written) == {
        "new": State.NEW,
        "same": State.SAME,
        "changed": State.CHANGED,
        "edited": State.EDITED,
        "taken": State.TAKEN,
        "stale": State.STALE,
    }


def test_the_difference_is_a_patch():
    (change,) = compare(a_bundle(a="one\ntwo"), {"a": "one\n"}, {"a": digest("one\n")})
    assert change.diff == "--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n one\n+two\n"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"files": 1}', '{"files": [{}]}', json.dumps({"files": [], "format": 9})]
)
def test_a_file_that_is_no_manifest_is_refused(text):
    with pytest.raises(BadFileError):
        read_manifest(text)

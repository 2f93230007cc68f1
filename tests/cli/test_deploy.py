"""`tonnage deploy`: files that start a plan, and a folder in which a person's work is safe."""

import json
import subprocess
from dataclasses import replace

import pytest

from tonnage import api
from tonnage.plan.request import make_request


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    answer = api.plan(make_request("Qwen/Qwen3-8B", gpus=["rtx-4090"]))
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    path.write_text(api.write_plan(answer.plans[0]), encoding="utf-8")
    return path


def test_a_bundle_is_written_and_left_as_it_is_the_second_time(tonnage, plan_file, tmp_path):
    first = tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b"), "--json")
    assert first.code == 0
    assert {one["state"] for one in json.loads(first.out)["changes"]} == {"new"}
    again = tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b"), "--json")
    assert {one["state"] for one in json.loads(again.out)["changes"]} == {"same"}
    assert tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b"), "--diff").out == ""


def test_what_a_person_changed_is_not_written_over(tonnage, plan_file, tmp_path):
    tonnage("deploy", str(plan_file), "--to", str(tmp_path))
    start = tmp_path / "start.sh"
    start.write_text("mine\n")
    said = tonnage("deploy", str(plan_file), "--to", str(tmp_path), "--port", "9000")
    assert said.code == 0
    assert "start.sh was changed by hand" in said.err
    assert start.read_text() == "mine\n"
    assert "+  --port 9000" in tonnage("deploy", str(plan_file), "--to", str(tmp_path), "--port", "9000", "--diff").out


def test_a_manifest_that_points_outside_reaches_nothing(tonnage, plan_file, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("x")
    tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b"))
    manifest = tmp_path / "b" / "manifest.json"
    table = json.loads(manifest.read_text())
    from tonnage.render.bundle import digest

    table["files"] += [{"path": "../victim", "sha256": digest("x")}, {"path": str(victim), "sha256": digest("x")}]
    manifest.write_text(json.dumps(table))
    assert tonnage("deploy", str(plan_file), "--to", str(tmp_path / "b")).code == 0
    assert victim.read_text() == "x"


def test_the_start_script_is_shell(tonnage, plan_file, tmp_path):
    tonnage("deploy", str(plan_file), "--to", str(tmp_path))
    for script in tmp_path.glob("*.sh"):
        subprocess.run(["bash", "-n", script], check=True)


def test_a_place_that_is_none(tonnage, plan_file):
    said = tonnage("deploy", str(plan_file), "--to", "-", "--place", "moon")
    assert said.code == 2
    assert "'moon' is no place" in said.err


@pytest.mark.parametrize("folder", ["", " ", "x" * 300, "/proc/none/here"])
def test_a_folder_that_cannot_be(tonnage, plan_file, folder):
    said = tonnage("deploy", str(plan_file), "--to", folder)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "fault of ours" not in said.err


def test_a_start_script_of_a_persons_own_is_not_offered(tonnage, plan_file, tmp_path):
    (tmp_path / "start.sh").write_text("mine\n")
    said = tonnage("deploy", str(plan_file), "--to", str(tmp_path))
    assert said.code == 3
    assert "start with" not in said.out
    assert "start.sh is there already" in said.out
    assert (tmp_path / "start.sh").read_text() == "mine\n"


def test_the_files_that_are_counted_are_those_written(tonnage, plan_file, tmp_path):
    tonnage("deploy", str(plan_file), "--to", str(tmp_path))
    (tmp_path / "start.sh").unlink()
    assert ": 1 files" in tonnage("deploy", str(plan_file), "--to", str(tmp_path)).out


def test_a_name_of_two_lines_stays_in_its_place(plan_file):
    plan = api.read_plan(plan_file.read_text(encoding="utf-8"))
    plan = replace(plan, request=replace(plan.request, model="a\n\n# b"))
    assert api.read_plan(api.write_plan(plan)) == plan
    page = next(file.text for file in api.deploy(plan).files if file.path == "README.md")
    assert "\n# b" not in page

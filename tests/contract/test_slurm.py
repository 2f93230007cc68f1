"""Slurm takes every batch script, and its frame starts, ends and goes back into the queue as it says."""

from __future__ import annotations

import re

import pytest
from tests.contract import readers
from tests.contract.cases import combinations, offers, rendered
from tests.contract.cluster import NODES, cluster, run, wait_for

pytestmark = [pytest.mark.contract, pytest.mark.slow]
SCRIPT = "job.sbatch"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    readers.tool("sbatch")
    with cluster(tmp_path_factory.mktemp("slurm")) as configuration:
        yield configuration


@pytest.fixture(scope="module")
def verdicts(slurm, tmp_path_factory):
    """What `sbatch --test-only` has against each script; it looks at the options, so equal ones are asked once."""
    folder = tmp_path_factory.mktemp("scripts")
    return {head: complaint(slurm, head, folder) for head in dict.fromkeys(map(head_of, scripts(rendered("slurm"))))}


def scripts(offers):
    return [text for offer in offers for path, text in offer.files.items() if path.endswith(".sbatch")]


def head_of(text):
    """Return a script's first line and its options."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith(("#!", "#SBATCH")))


def complaint(slurm, text, folder):
    path = folder / SCRIPT
    path.write_text(text, encoding="utf-8")
    done = run(slurm, "sbatch", "--test-only", str(path))
    said = [line for line in done.stderr.splitlines() if not re.match(r"sbatch: Job \d+ to start at ", line)]
    return "\n".join(said) or ("" if done.returncode == 0 else f"exit code {done.returncode}")


@pytest.mark.parametrize(("program", "goal", "place"), [key for key in combinations() if key[2] == "slurm"])
def test_sbatch_takes_every_script(verdicts, program, goal, place):
    found = [offer for offer in offers(program, goal, place) if offer.bundle]
    wrong = {
        f"{offer.what}: {said}" for offer in found for text in scripts([offer]) if (said := verdicts[head_of(text)])
    }
    assert not wrong


FAULTS = {
    "an option": ("#SBATCH --nodes=", "#SBATCH --nodez="),
    "a signal": ("#SBATCH --signal=TERM@", "#SBATCH --signal=TERM@x"),
    "more devices than there are": ("#SBATCH --gres=gpu:8", "#SBATCH --gres=gpu:99"),
    "a unit of memory": (r"#SBATCH --mem=", "#SBATCH --mem=x"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_refused(slurm, name, tmp_path):
    right, broken = FAULTS[name]
    text = next(o.files[SCRIPT] for o in rendered("slurm") if right in o.files[SCRIPT])
    assert complaint(slurm, text, tmp_path) == ""
    assert complaint(slurm, text.replace(right, broken), tmp_path)


def a_job_of_two_machines() -> dict[str, str]:
    return next(
        o.files for o in rendered("slurm") if o.goal != "serve" and o.plan.estimate.candidate.cluster.num_nodes == 2
    )


def submitted(slurm, folder, script, start):
    """Submit a real batch script whose start script is a small one; return the job's number."""
    (folder / SCRIPT).write_text(script, encoding="utf-8")
    (folder / "start.sh").write_text(start, encoding="utf-8")
    done = run(slurm, "sbatch", "--parsable", SCRIPT, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def state(slurm, number):
    """Return a job's fields as `scontrol` shows them."""
    text = run(slurm, "scontrol", "show", "job", number).stdout
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def log_of(folder):
    return "".join(path.read_text(errors="replace") for path in folder.glob("*.log"))


def test_the_frame_starts_a_process_on_each_machine(slurm, tmp_path):
    start = 'echo "rank $NODE_RANK meets at $MASTER_ADDR as $JOB_ID"\n'
    number = submitted(slurm, tmp_path, a_job_of_two_machines()[SCRIPT], start)
    assert wait_for(lambda: state(slurm, number).get("JobState") == "COMPLETED"), (
        state(slurm, number),
        log_of(tmp_path),
    )
    lines = {f"rank {rank} meets at {NODES[0]} as {number}" for rank in (0, 1)}
    assert lines <= set(log_of(tmp_path).splitlines())


def test_a_job_that_stopped_with_a_checkpoint_goes_back_into_the_queue(slurm, tmp_path):
    number = submitted(slurm, tmp_path, a_job_of_two_machines()[SCRIPT], "exit 75\n")
    assert wait_for(lambda: state(slurm, number).get("Restarts") == "1"), (state(slurm, number), log_of(tmp_path))
    run(slurm, "scancel", number)


def test_a_job_that_failed_does_not(slurm, tmp_path):
    number = submitted(slurm, tmp_path, a_job_of_two_machines()[SCRIPT], "exit 2\n")
    assert wait_for(lambda: state(slurm, number).get("JobState") == "FAILED"), (state(slurm, number), log_of(tmp_path))
    assert state(slurm, number)["ExitCode"] == "2:0"


@pytest.mark.parametrize("whom", [["--batch"], []], ids=["to the script", "to the programs"])
def test_a_signal_reaches_the_programs_and_their_code_is_kept(slurm, tmp_path, whom):
    """As before the time is up: each program saves, and says so with 75; the job goes back into the queue."""
    start = "trap 'echo saved; exit 75' TERM\necho waiting\nfor _ in $(seq 300); do sleep 0.1; done\n"
    number = submitted(slurm, tmp_path, a_job_of_two_machines()[SCRIPT], start)
    assert wait_for(lambda: log_of(tmp_path).count("waiting") == len(NODES)), (state(slurm, number), log_of(tmp_path))
    run(slurm, "scancel", *whom, "--signal=TERM", number)
    assert wait_for(lambda: state(slurm, number).get("Restarts") == "1"), (state(slurm, number), log_of(tmp_path))
    assert log_of(tmp_path).count("saved") == len(NODES)
    run(slurm, "scancel", number)

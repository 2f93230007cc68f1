"""What every test may ask for: the shared measurements, golden files, the command line run in this process."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
# A skip that no installation could mend starts with this word and is left alone by TONNAGE_REQUIRE_TOOLS.
UNAVOIDABLE = "platform:"

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("home", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "home"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the golden files anew instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the user's own settings out of the tests, in this process and in those it starts."""
    del config
    for name in [n for n in os.environ if n.startswith("TONNAGE_") and n not in _KEPT]:
        del os.environ[name]
    os.environ |= {"LC_ALL": "C.UTF-8", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "100"}
    os.environ["TONNAGE_TODAY"] = "2026-11-30"  # prices age; golden answers must not
    os.environ |= {name: str(ROOT / "no-such-folder") for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    if os.environ.get("TONNAGE_FROM_WHEEL"):
        import tonnage

        assert ROOT / "src" not in Path(tonnage.__file__).parents, "this is the checkout, not the wheel"


_KEPT = ("TONNAGE_REQUIRE_TOOLS", "TONNAGE_FROM_WHEEL", "TONNAGE_SHARED")


def refuse_skip(report: Any) -> None:
    """Turn a skip into a failure: where every tool is meant to be installed, a skipped test is a hole."""
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("TONNAGE_REQUIRE_TOOLS"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith(UNAVOIDABLE):
            report.outcome = "failed"
            report.longrepr = f"skipped although TONNAGE_REQUIRE_TOOLS is set: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
    del item, call
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    del collector
    report = yield
    refuse_skip(report)
    return report


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of shared facts that lies beside a checkout on some machines; skip where it does not."""
    places = [Path(p) for p in (os.environ.get("TONNAGE_SHARED"),) if p] + [
        ROOT.parent / "shared",
        ROOT.parent.parent / "shared",
    ]
    for place in places:
        if (place / "data").is_dir():
            return place
    pytest.skip("no folder of shared facts beside this checkout")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file of tests/golden, or write the file with `pytest --update`."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"tests/golden/{name} is missing; pytest --update writes it"
        assert text == path.read_text(encoding="utf-8"), f"tests/golden/{name} differs; pytest --update, then review"

    return compare


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one call of the command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def call_tonnage(*arguments: str) -> Answer:
    """Run the command line in this process."""
    from tonnage.cli import main
    from tonnage.messages import choose_language

    out, err = io.StringIO(), io.StringIO()
    choose_language("en")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(list(arguments))
    choose_language("en")
    code = ended.value.code
    return Answer(code=code if isinstance(code, int) else int(code is not None), out=out.getvalue(), err=err.getvalue())


@pytest.fixture
def tonnage() -> Callable[..., Answer]:
    """Return a function that runs the command line: `tonnage("model", "Qwen/Qwen3.5-27B").code`."""
    return call_tonnage

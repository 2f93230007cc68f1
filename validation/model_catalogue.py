"""Write the facts that ship about models: the built-in catalogue, and the configurations that the tests count.

    python validation/model_catalogue.py ../shared/data/models

Of each configuration only the fields that the parser reads are kept. The folder holds `index.csv`, `oracle.jsonl`,
`cache.jsonl` and `configs/`. Lines of the catalogue that do not come from the folder are kept as they are, less the
fields that the parser does not read.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tonnage.errors import RequestError  # noqa: E402
from tonnage.estimate.parameters import count  # noqa: E402
from tonnage.model.hf import model_from_config  # noqa: E402

CATALOGUE = ROOT / "src" / "tonnage" / "data" / "models" / "models.jsonl"
TESTED = ROOT / "tests" / "model" / "configs.jsonl"
AS_PUBLISHED = ("verbatim", "verbatim-fields")
# Copies that tests made smaller: not the model of that name.
REDUCED = ("google-t5/t5-small",)


class Watched(Mapping):
    """A config that notes which of its fields are read."""

    def __init__(self, config: Mapping) -> None:
        self._config = config
        self._parts = {key: Watched(value) for key, value in config.items() if isinstance(value, Mapping)}
        self._read: set[str] = set()

    def __getitem__(self, key: str) -> object:
        self._read.add(key)
        return self._parts[key] if key in self._parts else self._config[key]

    def __contains__(self, key: object) -> bool:
        self._read.add(str(key))
        return key in self._config

    def __iter__(self) -> Iterator[str]:
        self._read.update(self._config)
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)

    def facts(self) -> dict:
        """Return the fields that were read, in the file's order."""
        return {
            key: self._parts[key].facts() if key in self._parts else value
            for key, value in self._config.items()
            if key in self._read
        }


def facts(config: Mapping) -> dict:
    """Return the fields of a config that matter to counts; all refused configs keep only their family."""
    config = without_quantization(config)
    watched = Watched(config)
    try:
        model_from_config(watched)
    except RequestError:
        return {"model_type": config["model_type"]}
    kept = watched.facts()
    assert count(model_from_config(kept)) == count(model_from_config(config)), config["model_type"]
    return kept


def without_quantization(config: Mapping) -> dict:
    """Return a config without its list of quantised modules, which the catalogue keeps in a short form of its own."""
    kept = {key: value for key, value in config.items() if key not in ("quantization_config", "compression_config")}
    return {key: without_quantization(value) if isinstance(value, Mapping) else value for key, value in kept.items()}


def quantization(config: Mapping) -> dict:
    """Return what a config says of its weights' format, as the row's further fields."""
    try:
        found = model_from_config(config).quantization
    except RequestError:
        return {}
    if found is None:
        return {}
    return {"quantization": {key: value for key, value in dataclasses.asdict(found).items() if value}}


def jsonl(path: Path) -> list[dict]:
    """Read a JSONL file; none where it is not there yet."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line] if path.exists() else []


def write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows), encoding="utf-8")


def catalogue_status(row: Mapping[str, str]) -> str | None:
    """Return how a model is shown, or None where its configuration is not certain enough to bear its name."""
    if row["hub_id"] in REDUCED:
        return None
    if row["status"] in AS_PUBLISHED:
        return "verbatim"
    stated, counted = float(row["official_total_B"] or 0), float(row["oracle_total"] or 0) / 1e9
    return "reconstructed" if stated and abs(counted - stated) <= 0.01 * stated else None


def main(folder: Path) -> None:
    with (folder / "index.csv").open(encoding="utf-8") as file:
        index = {row["hub_id"]: row for row in csv.DictReader(file)}
    configs = {name: json.loads((folder / "configs" / row["file"]).read_text("utf-8")) for name, row in index.items()}
    before = {row["name"]: row for row in jsonl(CATALOGUE)}
    rows = {}
    for name, row in index.items():
        status, kept = catalogue_status(row), facts(configs[name])
        if status and len(kept) > 1:
            rows[name] = {"name": name, "status": status, "source": row["source"], "config": kept}
            # what an hf_quant_config.json beside the config says is only in the catalogue
            kept_quantization = {
                key: before.get(name, {})[key] for key in ("quantization",) if key in before.get(name, {})
            }
            rows[name] |= quantization(configs[name]) or kept_quantization
    for name, row in before.items():
        if name not in rows and name not in REDUCED:
            rows[name] = row | {"config": facts(row["config"])}
    write(CATALOGUE, [rows[name] for name in sorted(rows, key=str.casefold)])

    caches = {row["hub_id"]: row for row in jsonl(folder / "cache.jsonl")}
    tested = []
    for row in jsonl(folder / "oracle.jsonl"):
        line = {"config": facts(configs[row["hub_id"]])}
        for key in ("total_params", "text_params", "by_component", "expert_params", "tied"):
            if key in row:
                line[key] = row[key]
        for key in ("active_text_params", "active_excl_embed", "active_matmul_params"):
            if key in row:
                line[key] = row[key]
        for key in ("bytes_per_token_growing", "window_bytes_per_token", "fixed_state_bytes", "bytes_at"):
            if row["hub_id"] in caches:
                line[key] = caches[row["hub_id"]][key]
        tested.append(line)
    write(TESTED, tested)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

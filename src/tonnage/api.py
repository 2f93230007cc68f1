"""The verbs as functions; the command line, the web and users call only this. Documented and stable.

Each function is a few lines: it reads its inputs through the pure packages and returns their values.
"""

from __future__ import annotations

from typing import BinaryIO

from tonnage.estimate.summary import ModelSummary, summarize
from tonnage.model.types import Model

__all__ = ["describe_model", "read_model"]


def read_model(spec: str, stdin: BinaryIO | None = None) -> Model:
    """Return the model that a text names; only headers are read, nothing is executed.

    Parameters
    ----------
    spec : str
        A name of the catalogue, a hub id (`Qwen/Qwen3.5-27B`; of a GGUF repository `owner/name:Q4_K_M`), `modelscope:ID`,
        a folder, a config.json, a .gguf, a .safetensors or its index, or `-` for standard input.
    stdin : file
        What `-` reads; the process's standard input by default.

    Returns
    -------
    Model
        The model; its `status` says whether it comes from the catalogue, a config or a header.

    Raises
    ------
    UnknownNameError
        No catalogue has the name; with the nearest ones.
    BadFileError
        A file is missing, cut off or not what it should be.
    RequestError
        The family is unknown, and no weights' header is at hand to count.
    OutsideError
        The hub is unreachable, or does not give the model.
    """
    from tonnage.probe.spec import read_spec

    return read_spec(spec, stdin)


def describe_model(spec: str, *, context_tokens: int = 4096, stdin: BinaryIO | None = None) -> ModelSummary:
    """Return what a model is: parameters, cache, operations and bytes in each format.

    Parameters
    ----------
    spec : str
        As for `read_model`.
    context_tokens : int
        Length of the sequence that operations a token are counted in. [1]
    stdin : file
        What `-` reads.

    Returns
    -------
    ModelSummary
        The numbers; what cannot be known is None.

    Raises
    ------
    TonnageError
        As for `read_model`.
    """
    return summarize(read_model(spec, stdin), context_tokens)

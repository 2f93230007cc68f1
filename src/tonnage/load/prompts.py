"""Prompts of stated lengths, as text that no prefix cache knows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tonnage.nouns import noun

__all__ = ["Prompt", "prompts_of", "words_for"]

# Short English words, most of which tokenizers hold whole; how many tokens a word takes is asked of the server.
_TEXT = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power hour
game line end member law car city community name president team minute idea kid body information back parent face others
level office door health person art war history party result change morning reason research girl guy moment air teacher
"""
WORDS = tuple(_TEXT.split())


@noun
class Prompt:
    """What one request asks."""

    text: str
    input_tokens: int  # that it is meant to have
    output_tokens: int


def words_for(num_tokens: int, tokens_per_word: float, extra_tokens: float = 0.0) -> int:
    """Return how many words give so many tokens.

    Parameters
    ----------
    num_tokens : int
        Tokens wanted, the template's among them. [1]
    tokens_per_word : float
        As the server counted them. [1]
    extra_tokens : float
        Tokens that the template adds. [1]

    Returns
    -------
    int
        Words, at least one. [1]

    Notes
    -----
    Derived.
    """
    return max(1, round((num_tokens - extra_tokens) / tokens_per_word))


def prompts_of(
    input_tokens: Sequence[int],
    output_tokens: Sequence[int],
    *,
    tokens_per_word: float = 1.0,
    extra_tokens: float = 0.0,
    seed: int = 0,
) -> list[Prompt]:
    """Return prompts of such lengths; words are drawn at random, so that none begins like another.

    Parameters
    ----------
    input_tokens, output_tokens : sequence of int
        Lengths of each. [1]
    tokens_per_word, extra_tokens : float
        As `words_for`. [1]
    seed : int
        The same seed gives the same prompts.

    Returns
    -------
    list of Prompt
        The prompts.

    Notes
    -----
    Derived.
    """
    draw = np.random.default_rng(seed)
    made = []
    for given, wanted in zip(input_tokens, output_tokens, strict=True):
        places = draw.integers(0, len(WORDS), words_for(given, tokens_per_word, extra_tokens))
        made.append(Prompt(text=" ".join(WORDS[at] for at in places), input_tokens=given, output_tokens=wanted))
    return made

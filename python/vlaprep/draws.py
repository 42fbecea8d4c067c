"""Draw windows from groups of them: the arithmetic of sampling, which knows no dataset.

Windows are numbered group after group: those of group g are ``first[g] + 0, 1, …, sizes[g] - 1``.
What a group is, is all that a mode of sampling decides.

Both functions permute the groups and visit them round and round in that order; groups without
windows are left out. One call of ``integers`` makes all draws, in their order: NumPy fills 64-bit
integers one by one, so a longer sequence begins with a shorter one, and with what a loop of single
calls gives.

**Repeating.** A draw of group g is ``first[g] + integers(0, sizes[g])``.

**Distinct.** Each group deals its cards by the shuffle of Fisher and Yates, which stops early: for
k = 0, 1, … it reaches for place ``k + integers(0, sizes[g] - k)``, deals the card there, and puts
the card of place k, which nobody reaches for any more, into the gap. A group that has dealt all of
its cards drops out. Nothing of the size of a group is ever built. Which card lies where follows
from the draws alone:

- what draw i deals: the card that the last draw before it that reached for the same place put
  there; if there is none, the place's own card;
- what draw i puts into the gap: the card that the last draw that reached for place k put there,
  which is what *that* draw put into its gap; if there is none, card k. Such links lead to ever
  earlier draws, and of n they make chains of about log n.

Both need one sort of the places reached for. Time and memory grow with the draws and the number of
groups, not with the windows.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

__all__ = ["MOST_DISTINCT", "MOST_DRAWS", "draw_distinct", "draw_repeating"]

MOST_DRAWS = 10**9
"""Of a billion draws the places alone take 16 GB."""

MOST_DISTINCT = 2**33
"""Of so many windows distinct ones can be drawn: a place and a draw share 63 bits in a sort."""


def draw_repeating(
    sizes: Ints, n_draws: int, rng: np.random.Generator, *, per_visit: int = 1
) -> Ints:
    """Draw windows, any of them any number of times, `per_visit` at each visit of a group.

    Parameters
    ----------
    sizes : int64 array, shape (G,)
        Windows of each group; one at least is above 0.
    n_draws : int
        How many to draw.
    rng : numpy.random.Generator
        Where chance comes from.
    per_visit : int
        Draws before the next group's turn.

    Returns
    -------
    int64 array, shape (n_draws,)
        Numbers of windows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> draw_repeating(np.array([3, 0, 2]), 6, rng).tolist()
    [3, 0, 3, 0, 3, 2]
    """
    visits = _visits(sizes, rng)
    group = visits[np.arange(n_draws) // per_visit % len(visits)]
    # int64 on purpose: smaller integer types buffer bits per call and would give another stream.
    return _first(sizes)[group] + rng.integers(0, sizes[group], dtype=np.int64)


def draw_distinct(sizes: Ints, n_draws: int, rng: np.random.Generator) -> Ints:
    """Draw windows, none of them twice, one at each visit of a group.

    Parameters
    ----------
    sizes : int64 array, shape (G,)
        Windows of each group; one at least is above 0, and there are at most `MOST_DISTINCT`.
    n_draws : int
        How many to draw; where there are fewer windows, all of them are.
    rng : numpy.random.Generator
        Where chance comes from.

    Returns
    -------
    int64 array, shape (min(n_draws, sizes.sum()),)
        Numbers of windows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> draw_distinct(np.array([3, 0, 2]), 9, rng).tolist()
    [3, 0, 4, 1, 2]
    """
    visits = _visits(sizes, rng)
    counts = _round_robin(sizes[visits], n_draws)
    # Everything lies group after group here; turn[i] is where the i-th draw lies.
    group = np.repeat(visits, counts)
    dealt = np.arange(len(group), dtype=np.int64) - np.repeat(_first(counts), counts)
    _, turn = _stable_sort(dealt)
    jump = np.empty_like(dealt)
    jump[turn] = rng.integers(0, (sizes[group] - dealt)[turn], dtype=np.int64)
    still_to_come = np.repeat(counts, counts) - dealt
    return _deal(_first(sizes)[group] + dealt, jump, still_to_come)[turn]


def _visits(sizes: Ints, rng: np.random.Generator) -> Ints:
    visits = rng.permutation(len(sizes)).astype(np.int64)
    return visits[sizes[visits] > 0]


def _first(sizes: Ints) -> Ints:
    return np.cumsum(sizes) - sizes


def _round_robin(sizes: Ints, n_draws: int) -> Ints:
    """Count how many of `n_draws` fall to each group, one a round until it is exhausted."""
    rounds = range(min(int(sizes.max()), n_draws) + 1)
    whole = bisect_right(rounds, n_draws, key=lambda r: int(np.minimum(sizes, r).sum())) - 1
    counts = np.minimum(sizes, whole)
    begun = np.flatnonzero(sizes > whole)[: n_draws - int(counts.sum())]
    counts[begun] += 1
    return counts


def _deal(place: Ints, jump: Ints, still_to_come: Ints) -> Ints:
    """Deal the cards of draws that reach from their own place for the one `jump` further.

    Draws lie group after group, and a group's own places follow each other, so the draw whose own
    place another one reaches for lies as far from it, unless that is beyond those still to come.
    """
    card = place + jump
    reached, draw = _stable_sort(card)
    again = reached[1:] == reached[:-1]
    last = draw[np.append(~again, [True])]
    last = last[jump[last] < still_to_come[last]]
    link = np.arange(len(draw), dtype=np.int64)
    link[last + jump[last]] = last
    card[draw[1:][again]] = place[_ends(link, draw[:-1][again])]
    return card


def _ends(link: Ints, start: Ints) -> Ints:
    """Follow links from `start` to the end, which links to itself."""
    at: Ints = start.copy()
    on_the_way = np.arange(len(start))
    while len(on_the_way):
        here = at[on_the_way]
        further = link[here]
        at[on_the_way] = further
        on_the_way = on_the_way[further != here]
    return at


def _stable_sort(keys: Ints) -> tuple[Ints, Ints]:
    """Sort, and tell where each lay; several times as fast as a stable ``argsort``."""
    bits = len(keys).bit_length()
    packed = keys << bits | np.arange(len(keys), dtype=np.int64)
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)

"""The cases of tests/cases by what they hold, and the mark that runs a test on some of them."""

from __future__ import annotations

from typing import Any

import pytest

from cases.make_cases import REGISTRY

IDS = sorted(case for case, entry in REGISTRY.items() if not entry["big"])
VARIANTS = {"C20", "C23", "C24"}
"""Several data sets under one id."""
DATASETS = [c for c in IDS if REGISTRY[c]["layout"].startswith("v") and c not in VARIANTS]

ASKED: set[str] = set()
"""Every id that some test runs."""


def only(*ids: str) -> pytest.MarkDecorator:
    """Run the test on a private copy of each of these cases, given by the fixture ``case``."""
    ASKED.update(ids)
    return pytest.mark.parametrize("case", ids, indirect=True)


def ints(mapping: dict[str, Any]) -> dict[int, Any]:
    """JSON's text keys as the integers they stand for."""
    return {int(key): value for key, value in mapping.items()}

"""Another Python, that has what this one need not have: torch, lerobot or opentau.

None of them is a dependency, so what runs with them is an optional stage: `make interop` makes the
environments and runs it. Where they are absent the tests skip, and say how to get them.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import vlaprep

ROOT = Path(__file__).resolve().parent.parent
VARIABLES = {  # the first that is set names the Python to use
    "torch": ("VLAPREP_TORCH_PYTHON", "VLAPREP_LEROBOT_PYTHON"),
    "lerobot": ("VLAPREP_LEROBOT_PYTHON",),
    "opentau": ("VLAPREP_OPENTAU_PYTHON",),
}
MADE = ("build/interop/lerobot/bin/python", "build/interop/opentau/bin/python")
PROBE = """
import importlib.metadata, importlib.util, json, sys
names = sys.argv[1:]
missing = [name for name in names if importlib.util.find_spec(name) is None]
if not missing:
    import vlaprep
versions = {"python": sys.version.split()[0]}
for name in [*names, "transformers", "tokenizers", "numpy"]:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps([missing, versions]))
"""


@dataclass(frozen=True)
class OtherPython:
    """An interpreter that can import vlaprep and some packages."""

    path: str
    versions: dict[str, str] = field(compare=False)

    def run(
        self, *arguments: object, home: Path, timeout: float = 240, check: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it without the network, its caches in `home`."""
        ran = subprocess.run(
            [self.path, *map(str, arguments)],
            env=environment(home) | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert not check or ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-6000:]
        return ran


def environment(home: Path | None = None) -> dict[str, str]:
    """Variables of another Python: this checkout's package where it is built, and no network."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "HF_MODULES_CACHE")}
    if Path(vlaprep.__file__).is_relative_to(ROOT / "python"):
        env["PYTHONPATH"] = str(ROOT / "python")  # else the wheel is installed there, too
    env |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    env |= {"GLOO_SOCKET_IFNAME": "lo", "TOKENIZERS_PARALLELISM": "false"}
    return env if home is None else env | {"HF_HOME": str(home), "HOME": str(home)}


def probe(python: str, packages: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Which of the packages a Python lacks, and the versions of what it has."""
    command = [python, "-c", PROBE, *packages]
    ran = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    if ran.returncode:
        why = (ran.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise RuntimeError(f"{python} cannot import vlaprep: {why}")
    missing, versions = json.loads(ran.stdout)
    return missing, versions


@functools.cache
def _look(packages: tuple[str, ...]) -> OtherPython | str:
    """Find a Python, or say why there is none."""
    variables = VARIABLES[packages[0]]
    named = [(name, os.environ[name]) for name in variables if os.environ.get(name)][:1]
    made = [("", str(ROOT / path)) for path in MADE if (ROOT / path).exists()]
    tried = []
    for variable, python in named or [("", sys.executable), *made]:
        missing, versions = probe(python, packages)
        if not missing:
            return OtherPython(python, versions)
        if variable and packages[0] in missing:  # somebody meant it
            raise RuntimeError(f"{variable} is {python}, which lacks {packages[0]}")
        tried.append(f"{python} lacks {', '.join(missing)}")
    return (
        f"{'; '.join(tried)}: run `make interop`, or set {' or '.join(variables)} to a Python "
        "that has them and vlaprep"
    )


def other_python(*packages: str) -> OtherPython:
    """Find a Python with these packages, the most telling first; skip the test without one."""
    found = _look(packages)
    if isinstance(found, str):
        pytest.skip(found)
    return found

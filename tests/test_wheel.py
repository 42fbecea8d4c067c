"""The built wheel: what it needs of a machine, and that every Python here can use it.

The wheel is the one that VLAPREP_WHEEL names, else the one in ``dist/`` (``make wheel``). The two
of `make ci` and `make slow` name it, so that there nothing is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

import vlaprep

NEWEST_GLIBC = (2, 28)  # the C library of RHEL 8, and so of every training image in use
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
C_LIBRARY = ("libc.", "libm.", "libpthread.", "libdl.", "ld-linux", "libgcc_s.")


@pytest.fixture(scope="session")
def wheel(project_root: Path) -> Path:
    named = os.environ.get("VLAPREP_WHEEL")
    if named:
        path = project_root / named
        assert path.is_file(), f"VLAPREP_WHEEL={named} is no file"
        return path
    built = sorted((project_root / "dist").glob("vlaprep-*.whl"))
    if not built:
        pytest.skip("no wheel in dist/: build one with `make wheel`")
    return built[-1]


@pytest.fixture(scope="session")
def extension(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared object in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".so")]
        return Path(archive.extract(name, tmp_path_factory.mktemp("wheel")))


def test_the_tag_says_any_python_from_3_10_and_an_old_c_library(wheel: Path) -> None:
    pattern = r"vlaprep-[\d.]+-cp310-abi3-manylinux_2_28_\w+\.whl"
    assert re.fullmatch(pattern, wheel.name), wheel.name


def test_no_symbol_is_newer_than_the_oldest_c_library(extension: Path) -> None:
    with extension.open("rb") as file:
        needs = ELFFile(file).get_section_by_name(".gnu.version_r")
        versions = [aux.name for _, parts in needs.iter_versions() for aux in parts]
    glibc = [v.removeprefix("GLIBC_").split(".") for v in versions if v.startswith("GLIBC_")]
    assert glibc
    assert max(tuple(map(int, version)) for version in glibc) <= NEWEST_GLIBC


def test_only_the_c_library_is_linked(extension: Path) -> None:
    with extension.open("rb") as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        needed = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
    assert "libc.so.6" in needed
    assert {name for name in needed if not name.startswith(C_LIBRARY)} == set()


def test_the_wheel_holds_the_package_whole_and_nothing_else(
    wheel: Path, project_root: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = project_root / "python"
    sources = [p for p in package.rglob("*") if p.suffix in {".py", ".pyi", ".typed"}]
    assert len(sources) > 10
    wanted = {p.relative_to(package).as_posix() for p in sources}
    assert held == wanted | {"vlaprep/_native.abi3.so"}


def test_these_tests_run_against_the_wheel_they_were_given() -> None:
    if "VLAPREP_WHEEL" not in os.environ:
        pytest.skip("VLAPREP_WHEEL is not set: the sources may be what is tested")
    assert Path(vlaprep.__file__).is_relative_to(sys.prefix)


def pythons() -> dict[str, Path]:
    """One interpreter per version, on the path or under pyenv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found: dict[str, Path] = {}
    for version in PYTHONS:
        on_path = shutil.which(f"python{version}")
        candidates = [Path(on_path)] if on_path else []
        candidates += sorted(root.glob(f"versions/{version}.*/bin/python{version}"))
        for candidate in candidates:
            # A shim of pyenv is on the path even where its version is switched off.
            works = subprocess.run([candidate, "-c", "import ensurepip"], capture_output=True)
            if works.returncode == 0:
                found[version] = candidate
                break
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", PYTHONS)
def test_a_fresh_environment_passes_the_smoke_test(
    version: str, wheel: Path, golden: Path, tmp_path: Path
) -> None:
    found = pythons()
    assert found, "the Python that runs this is not even found"
    if version not in found:
        pytest.skip(f"no Python {version} on this machine")
    environment = tmp_path / "venv"
    subprocess.run([found[version], "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    options = ["--quiet", "--no-compile", "--only-binary=:all:"]
    subprocess.run([*pip, "install", *options, wheel], check=True)

    smoke = Path(__file__).with_name("smoke.py")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    ran = subprocess.run(
        [python, smoke, golden], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout.splitlines()[-1])
    assert answer["python"] == version
    assert answer["loaded_at_import"] == []
    assert Path(answer["home"]).is_relative_to(environment)
    shown = subprocess.run(
        [environment / "bin" / "vlaprep", "--help"], capture_output=True, text=True, check=True
    )
    assert "speed" in shown.stdout
    shutil.rmtree(environment)  # half a gigabyte each


def test_one_version_of_what_crosses_the_border(project_root: Path) -> None:
    """Two copies of pyo3 or arrow in one binary do not know each other's types."""
    listing = subprocess.run(
        ["cargo", "tree", "--edges=normal", "--prefix=none", "--offline"],
        cwd=project_root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert listing.returncode == 0, listing.stderr
    lines = {tuple(line.split()[:2]) for line in listing.stdout.splitlines() if line.strip()}
    names = [name for name, _version in lines]
    for crate in ("arrow-array", "arrow-schema", "numpy", "parquet", "pyo3"):
        assert names.count(crate) == 1, crate

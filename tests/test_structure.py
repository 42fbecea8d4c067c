"""Rules of the house that no single test sees. Each check counts what it looked at."""

from __future__ import annotations

import ast
import copy
import doctest
import importlib
import inspect
import pickle
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vlaprep
from vlaprep import _native, errors, kernels
from vlaprep.normalization import Normalization

MAX_LINES = 500
MAX_LINES_OF = {
    # One file by contract: its copy beside a saved tokenizer has to work without vlaprep.
    "python/vlaprep/processing_action_tokenizer.py": 920,
    "tests/cases/make_cases.py": 1310,  # a builder of data, kept as it came
}
FORBIDDEN = ("../" + "shared", "/" + "work/", "TO" + "DO", "FIX" + "ME")
LAZY = (
    "transformers",
    "pyarrow",
    "huggingface_hub",
    "torch",
    "matplotlib",
    "typer",
    "tokenizers",
    "rich",
    "tqdm",
    "filelock",
)


def modules() -> list[str]:
    """Every module of the package."""
    found = pkgutil.walk_packages(vlaprep.__path__, "vlaprep.")
    return ["vlaprep", *(module.name for module in found)]


def tracked(root: Path) -> list[Path]:
    """Every file under version control; in an unpacked source archive, every file there is."""
    if shutil.which("git") and (root / ".git").exists():
        listing = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
        )
        names = [Path(name) for name in listing.stdout.split("\0") if name]
    else:
        tops = ("rust", "python", "tests", "benches", "docs", "examples")
        names = [p.relative_to(root) for top in tops for p in (root / top).rglob("*")]
    return [name for name in names if (root / name).is_file()]


def in_fresh_process(code: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


# -------------------------------------------------------------------------------- layering


def test_the_core_has_never_heard_of_python(project_root: Path) -> None:
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo/bin/cargo")
    listing = subprocess.run(
        [cargo, "tree", "-p", "vlaprep-core", "-e", "normal", "--prefix", "none", "--offline"],
        cwd=project_root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert listing.returncode == 0, listing.stderr
    crates = {line.split()[0] for line in listing.stdout.splitlines() if line.strip()}
    assert {"vlaprep-core", "parquet"} <= crates
    assert not {crate for crate in crates if re.search("pyo3|numpy|python|rayon", crate)}


def test_the_core_neither_prints_nor_reads_the_environment(project_root: Path) -> None:
    sources = sorted((project_root / "rust/core/src").rglob("*.rs"))
    assert len(sources) > 10
    banned = re.compile(r"\b(e?print(ln)?|dbg)!|\bstd::env::|\bfs::write\b|File::create")
    for path in sources:
        shipped, _, _ = path.read_text().partition("#[cfg(test)]\nmod tests {")
        code = re.sub(r"^\s*//.*$", "", shipped, flags=re.MULTILINE)
        assert not banned.search(code), path


def test_importing_vlaprep_loads_numpy_and_the_extension_only() -> None:
    code = "import sys, vlaprep, vlaprep.kernels; print(*sorted(sys.modules))"
    loaded = set(in_fresh_process(code).split())
    assert {"vlaprep._native", "vlaprep.kernels"} <= loaded
    assert not loaded & set(LAZY)


def test_speed_labels_need_none_of_the_heavy_packages() -> None:
    code = (
        "import sys; from vlaprep import speed; "
        "speed.compute_task_percentiles({0: list(range(30))}); print(*sorted(sys.modules))"
    )
    loaded = set(in_fresh_process(code).split())
    assert not loaded & {"transformers", "huggingface_hub", "torch", "pyarrow", "tokenizers"}


def test_only_the_command_line_prints(project_root: Path) -> None:
    sources = sorted((project_root / "python/vlaprep").glob("*.py"))
    assert len(sources) > 10
    calls = {
        path.name
        for path in sources
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    }
    assert calls <= {"cli.py"}


# --------------------------------------------------------------------------------- surface


def native_names() -> list[str]:
    return [name for name in dir(_native) if not name.startswith("_")]


def test_every_native_name_is_documented_and_in_the_stub() -> None:
    names = native_names()
    assert len(names) >= 5
    stub = ast.parse(Path(_native.__file__).with_name("_native.pyi").read_text())
    defs = (ast.FunctionDef, ast.ClassDef)
    declared = {node.name for node in stub.body if isinstance(node, defs)}
    assert declared == set(names)
    for name in names:
        assert len(inspect.getdoc(getattr(_native, name)) or "") > 40, name


def test_every_native_name_is_used_by_the_package(project_root: Path) -> None:
    sources = sorted((project_root / "python/vlaprep").glob("*.py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    names = native_names()
    assert len(names) >= 5
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []
    for name in kernels.__all__:
        assert getattr(kernels, name) is getattr(_native, name)


def test_native_classes_are_frozen() -> None:
    classes = [name for name in native_names() if isinstance(getattr(_native, name), type)]
    assert classes == ["Codec", "Reader"]
    objects = (
        _native.Reader("tests/golden/lerobot_v21"),
        _native.Codec(None, 10.0, -5, 5),
    )
    for thing in objects:
        names = [name for name in dir(thing) if not name.startswith("_")]
        assert len(names) > 3
        for name in [*names, "new_attribute"]:
            with pytest.raises(AttributeError):
                setattr(thing, name, 1)


def test_public_names_exist_and_carry_docstrings() -> None:
    seen = 0
    for module_name in modules():
        module = importlib.import_module(module_name)
        assert module.__doc__, module_name
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if callable(thing):
                seen += 1
                assert inspect.getdoc(thing), f"{module_name}.{name}"
    assert seen > 30
    assert sorted(vlaprep.__all__) == list(vlaprep.__all__) == dir(vlaprep)


@pytest.mark.parametrize("module_name", modules())
def test_examples_in_docstrings_run(
    module_name: str, project_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project_root)
    module = importlib.import_module(module_name)
    outcome = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert outcome.failed == 0


def test_examples_in_the_docstrings_of_kernels_run() -> None:
    # doctest passes by functions of an extension module, so they are handed to it one by one.
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
    for name in kernels.__all__:
        doc = inspect.getdoc(getattr(kernels, name)) or ""
        test = parser.get_doctest(doc, {}, name, None, None)
        assert test.examples, name
        runner.run(test)
    assert runner.failures == 0


def test_the_package_has_enough_examples() -> None:
    found = doctest.DocTestFinder()
    tests = [t for name in modules() for t in found.find(importlib.import_module(name))]
    assert sum(bool(test.examples) for test in tests) >= 10


# ---------------------------------------------------------------------------------- errors


BUILT_IN: dict[str, tuple[type[Exception], ...]] = {
    "DatasetNotFoundError": (FileNotFoundError, RuntimeError),
    "DatasetFormatError": (ValueError, RuntimeError),
    "EpisodeSelectionError": (ValueError,),
    "NoChunksError": (ValueError, RuntimeError),
    "VocabularyError": (ValueError, AssertionError),
    "PercentileFileError": (ValueError,),
    "PublishError": (OSError,),
    "TokenizerFormatError": (ValueError,),
    "TokenizerNotFoundError": (ValueError, FileNotFoundError),
    "FitFailedElsewhereError": (RuntimeError,),
    "FitGateError": (ValueError, RuntimeError),
    "WaitTimeoutError": (TimeoutError, RuntimeError),
    "RanksDisagreeError": (RuntimeError,),
}


def test_errors_are_what_callers_of_the_references_catch() -> None:
    assert set(errors.__all__) == {*BUILT_IN, "VlaprepError"}
    for name, bases in BUILT_IN.items():
        kind = getattr(errors, name)
        assert all(issubclass(kind, base) for base in (errors.VlaprepError, *bases)), name
        error = kind("what, where, way out")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind
        assert str(again) == str(error) == "what, where, way out"


def test_objects_that_go_into_data_loaders_pickle() -> None:
    chunks = np.sin(np.linspace(0, 3, 400)).reshape(20, 10, 2)
    codec = vlaprep.FastActionProcessor.fit(chunks, vocab_size=256)
    normalization = Normalization.fit(chunks)
    for again in (pickle.loads(pickle.dumps(codec)), copy.deepcopy(codec)):
        assert again(chunks) == codec(chunks)
        np.testing.assert_array_equal(again.decode(codec(chunks)), codec.decode(codec(chunks)))
    for same in (pickle.loads(pickle.dumps(normalization)), copy.deepcopy(normalization)):
        assert same == normalization
        np.testing.assert_array_equal(same.normalize(chunks), normalization.normalize(chunks))


# ----------------------------------------------------------------------------------- files


def is_code(name: Path) -> bool:
    return name.suffix in {".rs", ".py", ".pyi"}


def test_no_file_is_long(project_root: Path) -> None:
    files = [name for name in tracked(project_root) if is_code(name)]
    assert len(files) > 30
    lines = {
        name.as_posix(): len((project_root / name).read_text(encoding="utf-8").splitlines())
        for name in files
    }
    assert {name: n for name, n in lines.items() if n > MAX_LINES_OF.get(name, MAX_LINES)} == {}
    assert MAX_LINES_OF.keys() <= lines.keys()


def test_no_file_names_what_is_not_part_of_the_project(project_root: Path) -> None:
    looked = 0
    for name in tracked(project_root):
        if name.suffix in {".parquet", ".npz", ".png", ".lock"}:
            continue
        text = (project_root / name).read_text(encoding="utf-8")
        found = [word for word in FORBIDDEN if word in text]
        assert not found, f"{name}: {found}"
        looked += 1
    assert looked > 60


def test_every_core_folder_has_its_binding(project_root: Path) -> None:
    core = {p.name for p in (project_root / "rust/core/src").iterdir() if p.is_dir()}
    binding = {p.stem for p in (project_root / "rust/python/src").glob("*.rs")}
    assert core == {"dataset", "stats", "chunks", "fast"}
    assert core <= binding


def test_a_saved_processor_needs_only_the_standard_library_numpy_and_transformers(
    project_root: Path,
) -> None:
    path = project_root / "python/vlaprep/processing_action_tokenizer.py"
    body: list[Any] = ast.parse(path.read_text(encoding="utf-8")).body
    top = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in top
        for alias in node.names
    }
    packages = {name.split(".")[0] for name in names}
    assert packages - set(sys.stdlib_module_names) == {"numpy", "transformers"}

"""The README and the pages: their code runs, their links lead somewhere, the site builds."""

from __future__ import annotations

import importlib.util
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from doc_page import blocks_of
from hub_server import Repo, folder_files, serve
from vlaprep import fit_fast_tokenizer

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
WITH_CODE = [page for page in PAGES if blocks_of(page.read_text(encoding="utf-8"))]
HAS_CLI = importlib.util.find_spec("vlaprep.cli") is not None


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_there_are_pages_and_they_have_code() -> None:
    names = {name_of(page) for page in WITH_CODE}
    assert {"README.md", "docs/quickstart-speed.md", "docs/quickstart-tokenizer.md"} <= names
    assert len(PAGES) > 20
    assert sum(len(blocks_of(page.read_text(encoding="utf-8"))) for page in WITH_CODE) > 15


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_code_of_a_page_runs(page: Path, golden: Path, tmp_path: Path) -> None:
    # Pages speak of a reader's own data: a folder my_dataset, and a repository of the Hub.
    shutil.copytree(golden / "lerobot_v30", tmp_path / "here" / "my_dataset")
    runner = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); import runpy; "
    runner += "runpy.run_module('doc_page', run_name='__main__', alter_sys=True)"
    with serve({"your-org/your-dataset": Repo(folder_files(golden / "lerobot_v30"))}) as hub:
        ran = hub.run(runner, tmp_path / "home", args=(page, tmp_path / "here"))
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    left_out = re.findall(r"^\S+:\d+ not run: \S.*$", ran.stdout, re.MULTILINE)
    assert len(left_out) < len(blocks_of(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_files_that_a_page_names_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target
    for file, test in re.findall(
        r"`((?:tests|examples|docs|benches|rust)/[\w./-]+)(?:::(\w+))?`", text
    ):
        assert (ROOT / file).exists(), file
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_the_cache_key_is_told_of_every_argument_of_a_fit() -> None:
    page = (ROOT / "docs" / "cache-key.md").read_text(encoding="utf-8")
    section = page.split("## Every argument")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    told = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(told) == sorted(inspect.signature(fit_fast_tokenizer).parameters)


def test_the_sections_that_other_tools_fill_are_there() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.count("<!-- bench:begin -->") == readme.count("<!-- bench:end -->") == 1
    assert readme.index("<!-- bench:begin -->") < readme.index("<!-- bench:end -->")
    assert readme.index("make demo") < readme.index("make test") < readme.index("pip install")


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for package in ("mkdocs", "material", "mkdocstrings_handlers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: the site is not built here (group docs)")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    ran = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    pages = sorted(tmp_path.rglob("index.html"))
    assert len(pages) >= len([page for page in PAGES if page.parent != ROOT])
    kernels = (tmp_path / "api" / "kernels" / "index.html").read_text(encoding="utf-8")
    for words in ("percentiles_by_task", "np.searchsorted", "Frames of each episode"):
        assert words in kernels, words  # docstrings of compiled functions got there
    for page in pages:  # a page must show on a machine without a network
        loaded = r"<(?:script|img|link)\b[^>]*?(?:src|href)=\"(https?://[^\"]+)\"[^>]*>"
        text = page.read_text(encoding="utf-8")
        foreign = [tag.group(1) for tag in re.finditer(loaded, text) if "canonical" not in tag[0]]
        assert foreign == [], page

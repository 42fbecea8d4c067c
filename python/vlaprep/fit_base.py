"""The processor class a fit starts from: the built-in one, or any that transformers can load.

Only the class of a base survives a fit: its own vocabulary and settings do not.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from vlaprep.errors import TokenizerFormatError
from vlaprep.fit_report import digest_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

__all__ = ["FIT_DEFAULTS", "Base", "open_base"]

FIT_DEFAULTS: Mapping[str, Any] = {
    "scale": 10.0,
    "vocab_size": 1024,
    "max_token_length": 10_000,
    "alphabet": "bytes",
    "compatible": False,
}
"""Settings of ``.fit``. The published FAST class has the first three; the reference leaves them."""

# What the loaders of transformers and the code of a base raise for a folder they cannot use.
_LOADING_FAILED = (
    AttributeError,
    ImportError,
    KeyError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Base(Protocol):
    """How a tokenizer of one class is made and read back."""

    symbol_slack: ClassVar[int]
    """By how much symbols may differ from those of float64 arithmetic."""

    def identity(self) -> dict[str, Any]:
        """Give all of the base that can change a byte of the result, as JSON types."""

    def fit(
        self,
        blocks: Iterable[NDArray[Any]],
        settings: Mapping[str, Any],
        num_threads: int | None = None,
    ) -> Any:
        """Train on normalised chunks in blocks (n, H, D), which may pass again; a new processor."""

    def load(self, folder: Path) -> Any:
        """Read a saved processor of this class."""


def open_base(name: str | None, *, trust_remote_code: bool) -> Base:
    """Find the base of a fit without loading it.

    Parameters
    ----------
    name : str or None
        None for the built-in processor, else a folder or a Hub id.
    trust_remote_code : bool
        Passed on to ``transformers.AutoProcessor``.

    Raises
    ------
    TokenizerFormatError
        `name` is neither a folder nor a Hub id.
    """
    if name is None:
        return _BuiltIn()
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _Foreign(name, folder, None, trust_remote_code)
    from vlaprep import hub

    if not hub.is_repo_id(name):
        raise TokenizerFormatError(
            f"base tokenizer {name!r} is neither a folder nor a Hub id like 'org/name'; leave "
            "base_tokenizer_name out to use the built-in processor"
        )
    commit = hub.resolve_revision(name, repo_type="model")
    return _Foreign(name, None, commit, trust_remote_code)


@dataclass(frozen=True)
class _BuiltIn:
    """`vlaprep.FastActionProcessor`; needs no network."""

    symbol_slack: ClassVar[int] = 0

    def identity(self) -> dict[str, Any]:
        # Its source is saved beside the tokenizer, so it is part of the result. Read, not imported:
        # a hit then needs no transformers.
        source = Path(__file__).with_name("processing_action_tokenizer.py")
        code = hashlib.sha256(source.read_bytes()).hexdigest()
        return {"name": None, "code": code, "tokenizers": metadata.version("tokenizers")}

    def fit(
        self,
        blocks: Iterable[NDArray[Any]],
        settings: Mapping[str, Any],
        num_threads: int | None = None,
    ) -> Any:
        from vlaprep.processing_action_tokenizer import FastActionProcessor

        return FastActionProcessor.fit(blocks, **settings, num_threads=num_threads)

    def load(self, folder: Path) -> Any:
        from vlaprep.processing_action_tokenizer import FastActionProcessor

        return FastActionProcessor.from_pretrained(folder)


@dataclass(frozen=True)
class _Foreign:
    """A class that ``transformers.AutoProcessor`` loads from a folder or a commit on the Hub."""

    # The published class transforms float32 in float32, which rounds a rare half the other way.
    symbol_slack: ClassVar[int] = 1
    name: str
    folder: Path | None
    commit: str | None
    trust_remote_code: bool

    def identity(self) -> dict[str, Any]:
        return {
            "name": self.name if self.folder is None else None,
            "commit": self.commit,
            "files": None if self.folder is None else digest_files(self.folder),
            "trust_remote_code": self.trust_remote_code,
            **{package: _version(package) for package in ("tokenizers", "transformers", "scipy")},
        }

    def fit(
        self,
        blocks: Iterable[NDArray[Any]],
        settings: Mapping[str, Any],
        num_threads: int | None = None,  # noqa: ARG002 (a base has its own ways)
    ) -> Any:
        folder = self.folder
        if folder is None:
            from vlaprep import hub

            folder, _ = hub.download_tokenizer(self.name, revision=self.commit)
        fit = getattr(self._fittable(folder), "fit", None)
        if not callable(fit):
            raise ImportError(  # noqa: TRY004 (the reference raises it)
                f"base tokenizer {self.name} has no .fit and cannot be fitted: update it, or "
                "transformers, to one whose processor class is a FAST tokenizer with .fit; or "
                "leave base_tokenizer_name out to use the built-in processor"
            )
        chunks = [chunk for block in blocks for chunk in block]
        return fit(chunks, **self._changed(fit, settings))

    def load(self, folder: Path) -> Any:
        import transformers

        try:
            return transformers.AutoProcessor.from_pretrained(
                folder, trust_remote_code=self.trust_remote_code
            )
        except _LOADING_FAILED as error:
            raise TokenizerFormatError(
                f"transformers {transformers.__version__} cannot load the processor in {folder} "
                f"({type(error).__name__}: {str(error).strip().partition(chr(10))[0]}); tested are "
                f"4.57, 5.0, 5.5 and 5.24; base {self.name}, trust_remote_code="
                f"{self.trust_remote_code}. Without base_tokenizer_name the built-in processor is "
                "used, which needs none of this"
            ) from error

    def _fittable(self, folder: Path) -> Any:
        """Load the processor; where this transformers cannot, its class, which is all a fit needs.

        The published FAST repository is such a case: 4.57 and 5.24 load it, 5.0 and 5.5 do not.
        """
        try:
            return self.load(folder)
        except TokenizerFormatError:
            config = folder / "processor_config.json"
            if not (self.trust_remote_code and config.is_file()):
                raise
            auto_map = json.loads(config.read_text(encoding="utf-8")).get("auto_map", {})
            if "AutoProcessor" not in auto_map:
                raise
        from transformers.dynamic_module_utils import get_class_from_dynamic_module

        found = get_class_from_dynamic_module(auto_map["AutoProcessor"], folder)
        found.register_for_auto_class("AutoProcessor")  # so that it is saved with its source
        return found

    def _changed(self, fit: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Pick the settings that differ from the published ones: a base gets nothing else."""
        changed = {k: value for k, value in settings.items() if value != FIT_DEFAULTS[k]}
        refused = sorted(changed.keys() - inspect.signature(fit).parameters.keys())
        if refused:
            raise ValueError(
                f"the .fit of base tokenizer {self.name} does not take {', '.join(refused)}: leave "
                "them at their defaults, or base_tokenizer_name out to use the built-in processor"
            )
        return changed


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

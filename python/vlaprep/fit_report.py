"""What a fit depended on and what it gave: signature, report, and the test for a whole cache entry.

The signature names everything that can change a byte of the result, so two fits share a folder of
the cache exactly when they would write the same files. The report lists those files with their
digests; a folder whose report is absent, torn, of another fit, or at odds with its files is no
cache entry.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.errors import TokenizerFormatError
from vlaprep.persist import check_format_version, read_retrying, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = [
    "EXAMPLES_NAME",
    "FORMAT_VERSION",
    "REPORT_NAME",
    "defect",
    "read_report",
    "read_whole",
    "signature",
    "write_report",
]

FORMAT_VERSION = 1
REPORT_NAME = "fit_report.json"
EXAMPLES_NAME = "fit_examples.json"


def signature(inputs: Mapping[str, Any]) -> str:
    """First 16 hex digits of SHA-256 over the canonical JSON of what a fit depends on."""
    canonical = json.dumps(inputs, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def digest_arrays(*arrays: NDArray[Any]) -> str:
    """SHA-256 over dtype, shape and little-endian bytes of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"{little.dtype.str}{little.shape}".encode())
        digest.update(little.tobytes())
    return digest.hexdigest()


def digest_files(folder: Path) -> dict[str, str]:
    """SHA-256 of each file below a folder by relative path; hidden ones and caches left out."""
    files = {path.relative_to(folder).as_posix(): path for path in _visible_files(folder)}
    return {name: hashlib.sha256(read_retrying(files[name])).hexdigest() for name in sorted(files)}


def write_report(folder: Path, inputs: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Write the report beside the files it vouches for; nothing may be added afterwards."""
    report = {
        "format_version": FORMAT_VERSION,
        "signature": signature(inputs),
        "inputs": inputs,
        **results,
        "files": digest_files(folder),
    }
    text = json.dumps(report, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    write_atomic(folder / REPORT_NAME, text.encode())


def read_report(folder: Path) -> dict[str, Any]:
    """Read the report of a fitted folder.

    Parameters
    ----------
    folder : pathlib.Path
        What `vlaprep.fit_fast_tokenizer` returned.

    Returns
    -------
    dict
        ``signature``, ``inputs``, ``draws``, ``actions``, ``normalization``, ``tokens``,
        ``reconstruction``, ``validation`` and ``files``.

    Raises
    ------
    TokenizerFormatError
        The report is absent, torn, or written by a newer vlaprep.
    """
    return _read(folder)[1]


def read_whole(folder: Path, wanted: str | None = None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read every file of a fitted folder once, and make sure that they are what the fit wrote.

    Parameters
    ----------
    folder : pathlib.Path
        What `vlaprep.fit_fast_tokenizer` returned.
    wanted : str, optional
        Signature that the fit must have. By default the one that its own inputs have.

    Returns
    -------
    report : dict
    files : dict
        Bytes of the report, and of each file that it vouches for, by path in the folder.

    Raises
    ------
    TokenizerFormatError
        The folder is not the whole result of that fit; the message says why.
    """
    raw, report = _read(folder)
    found = report.get("signature")
    if wanted is None and found != signature(report.get("inputs", {})):
        raise TokenizerFormatError(f"its report has signature {found!r}, not that of its inputs")
    if wanted not in (None, found):
        raise TokenizerFormatError(f"its report has signature {found!r}")
    listed = report.get("files")
    if not isinstance(listed, dict) or not listed:
        raise TokenizerFormatError("its report lists no files")
    files = {REPORT_NAME: raw}
    for name, digest in listed.items():
        try:
            files[name] = read_retrying(folder / name)
        except OSError as error:
            reason = error.strerror or error
            raise TokenizerFormatError(f"{name} cannot be read: {reason}") from error
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise TokenizerFormatError(f"{name} is not what the fit wrote")
    return report, files


def defect(folder: Path, wanted: str) -> str | None:
    """Say why a folder is not the whole result of the fit `wanted`; None when it is."""
    try:
        read_whole(folder, wanted)
    except TokenizerFormatError as error:
        return str(error)
    return None


def _read(folder: Path) -> tuple[bytes, dict[str, Any]]:
    path = folder / REPORT_NAME
    try:
        raw = read_retrying(path)
        report = json.loads(raw)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TokenizerFormatError(f"there is no {REPORT_NAME} in {folder}") from error
    except OSError as error:
        raise TokenizerFormatError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor JSON
        raise TokenizerFormatError(f"fit report {path} is torn: {error}") from error
    if not isinstance(report, dict):
        raise TokenizerFormatError(f"fit report {path} is no JSON object")
    check_format_version(
        report.get("format_version"),
        supported=FORMAT_VERSION,
        what="fit report",
        path=path,
        error=TokenizerFormatError,
    )
    return raw, report


def _visible_files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_dir():
            yield from _visible_files(path)
        else:
            yield path

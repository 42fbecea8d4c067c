"""The model card of a published tokenizer: what it was fitted to, how, and how to load it.

Everything comes from the report of the fit. In a repository that has a card already, only the part
between the two markers is vlaprep's; what people wrote around it stays.
"""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, TypeGuard

from vlaprep._native import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["merged_card", "model_card"]

BEGIN, END = "<!-- vlaprep:begin -->", "<!-- vlaprep:end -->"
_TAGS = ("robotics", "action-tokenizer", "fast", "vlaprep")
_TOKENS = (("50 %", "p50"), ("99 %", "p99"), ("at most", "max"))
_SHOWN_ELSEWHERE = ("chunk_size", "scale", "vocab_size", "report_version")
_LOADING = """\
```python
from transformers import AutoProcessor

# Runs the processor's own source, which lies in this repository; vlaprep may be absent.
processor = AutoProcessor.from_pretrained("{repo_id}", trust_remote_code=True)
```

With vlaprep, without transformers, for data loaders:

```python
{imports}import vlaprep
from vlaprep.hub import download_tokenizer

folder, commit = download_tokenizer("{repo_id}")  # revision= pins a commit
codec = vlaprep.ActionCodec.from_pretrained(folder)
{encode}
```

In LeRobot: `--policy.action_tokenizer_name={repo_id}`."""
_NORMALIZED = """\
normalization = vlaprep.Normalization.from_pretrained(folder)
normalised = normalization.normalize(chunks){pad}
ids, offsets = codec.encode_batch(normalised)
decoded, status = codec.decode_batch(ids, offsets)
actions = normalization.unnormalize(decoded{cut})"""
_PLAIN = """\
ids, offsets = codec.encode_batch(chunks)  # normalised as in the fit
actions, status = codec.decode_batch(ids, offsets)"""


def model_card(repo_id: str, config: Mapping[str, Any], report: Mapping[str, Any] | None) -> str:
    """Write the card of a tokenizer.

    Parameters
    ----------
    repo_id : str
        Where it is going to be.
    config : mapping
        Its ``processor_config.json``.
    report : mapping, optional
        Its ``fit_report.json``, if it has one.

    Returns
    -------
    str
        Markdown with metadata in front. The same inputs give the same text.
    """
    from huggingface_hub import ModelCardData

    dataset = _dataset(report)
    on_hub = [str(dataset["repo_id"])] if dataset.get("commit") else None
    data = ModelCardData(library_name="transformers", tags=[*_TAGS], datasets=on_hub)
    encode = _encoding(report)
    imports = "import numpy as np\n" if "np." in encode else ""
    parts = [
        f"# FAST action tokenizer {repo_id}",
        "Turns chunks of robot actions into tokens and back: a discrete cosine transform over "
        "time, rounding, byte-pair encoding.",
        _table(("", ""), _facts(config, report, dataset)),
        "## Loading",
        _LOADING.format(repo_id=repo_id, imports=imports, encode=encode),
    ]
    if report is None:
        parts.append(
            "There is no report of the fit: which data, and which normalisation of actions, this "
            "tokenizer was made for, its author has to say."
        )
    else:
        parts += [*_action_space(report), *_normalization(report), *_trial(report)]
        parts += [*_reconstruction(report), *_settings(report)]
    body = "\n\n".join([BEGIN, *parts, f"Published by vlaprep {__version__}.", END])
    return f"---\n{data.to_yaml()}\n---\n\n{body}\n"


def merged_card(new: str, old: str) -> str:
    """Put vlaprep's part of a new card into the card that a repository has.

    Metadata is kept but for the datasets, which are the new ones, and tags, which are added.

    Raises
    ------
    ValueError
        The metadata of the old card cannot be read.
    """
    import yaml
    from huggingface_hub import ModelCard

    fresh = ModelCard(new)
    try:
        card = ModelCard(old) if old.lstrip().startswith("---") else ModelCard(f"---\n---\n{old}")
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from error
    card.data.datasets = fresh.data.datasets
    card.data.library_name = card.data.library_name or fresh.data.library_name
    card.data.tags = list(dict.fromkeys([*(card.data.tags or ()), *fresh.data.tags]))
    before, begin, rest = str(card.text).partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        before, after = f"{before.rstrip()}\n\n" if not begin else before, "\n"
    own = fresh.text[fresh.text.index(BEGIN) : fresh.text.index(END) + len(END)]
    card.text = before + own + after
    return str(card)


# ------------------------------------------------------------------------------------ its parts


def _facts(
    config: Mapping[str, Any], report: Mapping[str, Any] | None, dataset: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    yield "data set", dataset.get("repo_id") or ("a local folder" if report else None)
    yield "its commit", dataset.get("commit")
    yield "SHA-256 of its draws", dataset.get("content")
    draws = _part(report, "draws")
    yield "chunks fitted on", draws.get("chunks")
    yield "time horizon", config.get("time_horizon") or draws.get("time_horizon")
    yield "action dims", config.get("action_dim") or draws.get("action_dim")
    yield "scale, steps a unit", config.get("scale")
    tokens = _part(report, "tokens")
    yield "vocabulary asked for", config.get("vocab_size")
    yield "vocabulary", tokens.get("vocabulary")
    low, high = config.get("min_token"), config.get("max_token")
    yield "coefficients", low if high is None else f"{low} to {high}"
    per_chunk = _part(tokens, "per_chunk")
    if per_chunk:
        yield (
            "tokens a chunk",
            f"{_text(per_chunk.get('mean'))} on average, 50 % {_text(per_chunk.get('p50'))}, "
            f"99 % {_text(per_chunk.get('p99'))}, at most {_text(per_chunk.get('max'))}",
        )
    yield "signature of the fit", (report or {}).get("signature")


def _encoding(report: Mapping[str, Any] | None) -> str:
    """Code that encodes chunks, with the zeros that the fit filled them up with."""
    if report is None:
        return _PLAIN
    width = _part(report, "actions").get("max_action_dim")
    zeros = width - _width(report) if isinstance(width, int) else 0
    if not zeros:
        return _NORMALIZED.format(pad="", cut="")
    pad = f"\nnormalised = np.pad(normalised, ((0, 0), (0, 0), (0, {zeros})))  # zeros behind"
    return _NORMALIZED.format(pad=pad, cut=f"[..., :{_width(report)}]")


def _action_space(report: Mapping[str, Any]) -> Iterator[str]:
    told, width = _part(report, "actions"), _width(report)
    if not told:
        return
    relative, padded = told.get("relative") or [], told.get("max_action_dim")
    tail = "the last frame of the episode repeated past its end"
    steps = [
        f"{_text(_part(report, 'draws').get('time_horizon'))} consecutive frames of column "
        f"`{_code(told.get('action_key'))}`" + f", {tail}" * (told.get("tail") == "clamp"),
        f"minus `{_code(told.get('state_key'))}` at the first of them, in the relative dims"
        if relative
        else None,
        "the dims below, in that order" if told.get("dims") else None,
        "normalisation",
        f"zeros up to {padded} dims" if padded else None,
    ]
    yield "## Action space"
    yield (
        "What is encoded is made of a data set in this order; `chunks` above are what is to be "
        "normalised."
    )
    yield "\n".join(f"{n}. {step}" for n, step in enumerate(filter(None, steps), 1))
    dims = told.get("dims") or range(width)
    columns = _named(told.get("names"), width) | {"dim of the column": [*dims]}
    if relative:
        columns["relative"] = ["yes" if dim in relative else "" for dim in dims]
    yield _by_dim(columns)


def _trial(report: Mapping[str, Any]) -> Iterator[str]:
    if "validation" not in report:
        return
    told = _part(report, "validation")
    yield "## Trial"
    if not told:
        yield "This tokenizer was not tried on chunks beside those of the fit."
        return
    chunks, episodes = _text(told.get("chunks")), _text(told.get("episodes"))
    yield (
        f"{chunks} chunks of {episodes} held-out episodes, which gave the fit no chunk, encoded "
        "and decoded."
        if told.get("held_out")
        else f"{chunks} further chunks of the same {episodes} episodes, encoded and decoded: none "
        "was held out."
    )
    normal, units = _part(told, "normalized"), _part(told, "dataset_units")
    tokens = _part(told, "tokens")
    rows = [
        ("RMSE, normalised", normal.get("rmse")),
        ("share of coefficients that come back exactly", told.get("exact_symbols")),
        ("share of them out of the fitted range", told.get("symbols_out_of_range")),
        *((f"tokens a chunk, {n}", tokens.get(key)) for n, key in _TOKENS),
    ]
    yield _table(("", ""), rows)
    found = {
        "RMSE, normalised": normal.get("rmse_by_dim"),
        "RMSE, units of the data set": units.get("rmse_by_dim"),
        "max, units of the data set": units.get("max_by_dim"),
        "share clipped": told.get("clipped_values"),
    }
    width = _width(report)
    columns = {name: by for name, by in found.items() if _is_by_dim(by, width)}
    if columns:
        yield _by_dim(_named(told.get("names"), width) | columns)


def _normalization(report: Mapping[str, Any]) -> Iterator[str]:
    told = _part(report, "normalization")
    if not told:
        return
    rule = f"Convention `{told.get('convention')}`, mode `{told.get('mode')}`"
    yield "## Normalisation"
    yield (
        f"{rule}; `lo` and `hi` are the two statistics of the mode. Actions have to be normalised "
        "so before they are encoded; `vlaprep.Normalization.from_pretrained` does it."
    )
    width = _width(report)
    columns = {
        name: values
        for name, values in told.items()
        if _is_by_dim(values, width) and name not in ("constant_dims", "relative")
    }
    constant = told.get("constant_dims") or []
    if constant:
        columns["constant"] = ["yes" if dim in constant else "" for dim in range(width)]
    yield _by_dim(columns)


def _reconstruction(report: Mapping[str, Any]) -> Iterator[str]:
    told = _part(report, "reconstruction")
    columns = {
        f"{name}, {unit}": _part(told, key)[name]
        for key, unit in (("normalized", "normalised"), ("dataset_units", "units of the data set"))
        for name in ("rms", "p99", "max")
        if name in _part(told, key)
    }
    if columns:
        yield "## Reconstruction"
        yield (
            f"Error of {_text(told.get('chunks'))} chunks of the fit, encoded and decoded; in "
            "units of the data set with what was clipped."
        )
        yield _by_dim(columns)


def _settings(report: Mapping[str, Any]) -> Iterator[str]:
    inputs = _part(report, "inputs")
    rows = [
        (name, value)
        for name, value in inputs.items()
        if name not in _SHOWN_ELSEWHERE and isinstance(value, (str, Real))
    ]
    rows += [(f"base: {name}", value) for name, value in _part(inputs, "base").items()]
    if rows:
        yield "## Settings"
        yield _table(("setting", "value"), rows)


# ------------------------------------------------------------------------------------ Markdown


def _by_dim(columns: Mapping[str, Sequence[Any]]) -> str:
    rows = zip(*columns.values(), strict=True)
    return _table(("dim", *columns), ((dim, *row) for dim, row in enumerate(rows)))


def _named(names: Any, width: int) -> dict[str, Sequence[Any]]:
    """Give a column of names, where there are any."""
    return {"name": names} if _is_by_dim(names, width) else {}


def _is_by_dim(values: Any, width: int) -> TypeGuard[list[Any]]:
    return isinstance(values, list) and len(values) == width


def _code(value: Any) -> str:
    """Give a name that stands between backticks."""
    return "".join(c for c in str(value) if c.isprintable() and c not in "`|<>")


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lay a table out; rows without a value are left out."""
    lines = [head, ["---"] * len(head)]
    lines += [[_text(cell) for cell in row] for row in rows if row[1] is not None]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    # Names come from anywhere: one cell each, and no markup.
    text = "".join(c if c.isprintable() else " " for c in str(value))
    for mark in "\\`|<>[]*_":
        text = text.replace(mark, "\\" + mark)
    return text


def _part(told: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    value = (told or {}).get(name)
    return value if isinstance(value, dict) else {}


def _dataset(report: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return _part(_part(report, "inputs"), "dataset")


def _width(report: Mapping[str, Any]) -> int:
    width = _part(report, "draws").get("action_dim")
    return width if isinstance(width, int) else len(_part(report, "normalization").get("lo", ()))

"""Where the data of a fit come from, and what is drawn of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vlaprep.action_space import ActionSpace, column_width
from vlaprep.dataset_types import episode_ids
from vlaprep.errors import DatasetFormatError, EpisodeSelectionError, NoChunksError
from vlaprep.fit_chunks import ChunkReader, RowBlocks
from vlaprep.fit_cover import cover_sample
from vlaprep.fit_sample import draw_sample, hold_out, select_table
from vlaprep.fit_statistics import check_labels, of_dims, statistics_of
from vlaprep.normalization import Normalization

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from vlaprep.dataset import Dataset
    from vlaprep.fit_cover import Cover
    from vlaprep.fit_options import FitPlan
    from vlaprep.fit_sample import Sample, Table

__all__ = ["FitData", "Selection", "Source"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Selection:
    """Episodes by id and by task, as asked for, in normal form.

    Parameters
    ----------
    episodes : list of int, optional
        Ids to keep, ascending; None: all.
    exclude : list of int
        Ids to leave out, ascending; none where `episodes` says all.
    tasks : list of int and str, optional
        Tasks to keep, by number or text; None: all.
    """

    episodes: list[int] | None
    exclude: list[int]
    tasks: list[int | str] | None

    @classmethod
    def of(
        cls,
        episodes: Iterable[int] | None = None,
        exclude_episodes: Iterable[int] | None = None,
        tasks: Iterable[int | str] | int | str | None = None,
    ) -> Selection:
        """Bring a selection to normal form; an id in both is left out."""
        # The truth value of an array says nothing of its length.
        left = episode_ids(() if exclude_episodes is None else exclude_episodes)
        exclude = np.unique(left).tolist()
        named = None if tasks is None else _named(tasks)
        if named == []:
            raise EpisodeSelectionError("no episodes are left: tasks= is empty")
        keep = None
        if episodes is not None:
            keep = episode_ids(episodes).tolist()
            keep, exclude = sorted(set(keep).difference(exclude)), []
            if not keep:
                raise EpisodeSelectionError(
                    "no episodes are left: episodes= is empty or exclude_episodes= names all of "
                    "them"
                )
        return cls(keep, exclude, named)


@dataclass(frozen=True, eq=False)
class FitData:
    """All that a fit sees of the data.

    Parameters
    ----------
    sample : Sample
        Chunks to fit on.
    space : ActionSpace
        What they are.
    normalization : Normalization
        How they are normalised.
    cover : Cover, optional
        Windows that are fitted on beside those drawn, so that all of the dataset can be encoded.
    validation : Sample, optional
        Chunks to try the tokenizer on.
    held_out : bool
        Whether those are of episodes that gave no chunk to the fit.
    """

    sample: Sample
    space: ActionSpace
    normalization: Normalization
    cover: Cover | None
    validation: Sample | None
    held_out: bool

    def identity(self) -> dict[str, Any]:
        """Tell these data from any other, wherever they lie."""
        cover = self.cover
        return {
            "content": self.sample.digest(),
            "statistics": self.normalization.to_dict(),
            "validation": self.validation and self.validation.digest(),
            "cover": cover and cover.digest(),
        }


@dataclass(frozen=True)
class Source:
    """The data of a fit, found but not yet read."""

    place: str | Path
    name: str | None
    commit: str | None
    """The resolved commit of data on the Hub; None for a local folder."""
    selection: Selection
    num_threads: int | None

    @classmethod
    def find(
        cls,
        repo_id: str | None,
        root: str | PathLike[str] | None,
        revision: str | None,
        selection: Selection,
        num_threads: int | None,
    ) -> Source:
        """Find the data; on the Hub, their commit."""
        from vlaprep import hub

        place = repo_id if root is None else root
        if place is None:
            raise ValueError("no dataset: pass dataset_repo_id= or dataset_root=")
        if root is None and hub.is_repo_id(str(place)) and not Path(place).exists():
            commit = hub.resolve_revision(str(place), revision)
            return cls(str(place), repo_id, commit, selection, num_threads)
        if revision is not None:
            raise ValueError(
                f"revision={revision!r} is of no use with local data in {place}: leave it out"
            )
        # A Path is never taken for a Hub id.
        folder = Path(place).expanduser()
        name = None if root is None else repo_id
        return cls(folder, name, None, selection, num_threads)

    @property
    def label(self) -> str:
        """How messages call the data."""
        return f"{self.place}@{self.commit}" if self.commit else str(self.place)

    def open(self) -> Dataset:
        """Open the dataset; on the Hub, download what of it is needed."""
        from vlaprep.dataset import open_dataset

        return open_dataset(
            self.place,
            revision=self.commit,
            episodes=self.selection.episodes,
            num_threads=self.num_threads,
        )

    def draw(self, plan: FitPlan, dataset: Dataset | None = None) -> FitData:
        """Draw the chunks to fit on, and those to try the tokenizer on."""
        dataset = dataset or self.open()
        action_key = plan.actions.action_key
        table = select_table(dataset, self.selection, self.label, action_key)
        space = plan.actions.resolve(dataset, self.label) if len(table) else None
        reader = ChunkReader(dataset, space or ActionSpace(action_key), plan.draws.chunk_size)
        fitted, held = hold_out(table, plan.held.episodes, plan.draws, reader, self.label)
        sample = draw_sample(reader, fitted, plan.draws, self.label)
        normalization = self._normalization(plan, reader, table, sample)
        cover = None
        if plan.coverage == "all":
            cover = cover_sample(
                reader,
                sample,
                fitted,
                scale=plan.scale,
                normalization=normalization,
                num_threads=self.num_threads,
            )
            if plan.draws.nan == "error" and (skipped := cover.swept.skipped):
                raise DatasetFormatError(
                    f"{skipped} windows of column {action_key!r} of dataset {self.label} "
                    "hold NaN, infinity or null, and coverage='all' is to cover all of them; "
                    "nan='skip' leaves such windows out"
                )
        validation, held_out = None, False
        if plan.held.samples:
            if held is None:
                gave = [sample.episode_index, *([] if cover is None else [cover.episode_index])]
                held = fitted.without(np.concatenate(gave)).usable(reader)
            held_out = len(held) > 0
            validation = self._trial(plan, reader, held if held_out else fitted)
        return FitData(sample, reader.space, normalization, cover, validation, held_out)

    def _trial(self, plan: FitPlan, reader: ChunkReader, table: Table) -> Sample | None:
        """Draw the chunks to try the tokenizer on; None where no window is finite."""
        draws = replace(
            plan.draws,
            n_samples=plan.held.samples,
            seed=int(np.random.SeedSequence([plan.draws.seed, 1]).generate_state(1)[0]),
            replace=True,
            nan="skip",
        )
        try:
            return draw_sample(reader, table, draws, self.label)
        except NoChunksError as error:
            if plan.held.episodes is not None:
                raise NoChunksError(f"of validation_episodes: {error}") from error
            logger.warning("no finite chunk to try the tokenizer on was found in %s", self.label)
            return None

    def identity(self, data: FitData | None) -> dict[str, Any]:
        """Tell these data from any other, wherever they are mounted."""
        if data is not None:  # the content covers the selection
            return {"repo_id": self.name, **data.identity()}
        return {
            "repo_id": self.name,
            "commit": self.commit,
            "episodes": self.selection.episodes,
            "exclude_episodes": self.selection.exclude,
            "tasks": self.selection.tasks,
        }

    def _normalization(
        self, plan: FitPlan, reader: ChunkReader, table: Table, sample: Sample
    ) -> Normalization:
        """Take the statistics from where they are to come from, of the dims that are encoded."""
        asked, space = plan.scaling, reader.space
        rule = {"convention": asked.convention, "mode": asked.mode}
        dim = sample.shape[2]
        if asked.source == "sample":
            norm = Normalization.fit_blocks(RowBlocks(sample.drawn_chunks), **rule)
        else:
            if asked.given is not None:
                norm = asked.given
            elif asked.source == "dataset":
                ids = table.episode_index
                with statistics_of(asked.source, self.label):
                    norm = Normalization.from_dataset(
                        reader.dataset, space.action_key, **rule, episodes=ids
                    )
            else:
                with statistics_of(asked.source, self.label):
                    norm = Normalization.from_stats(reader.dataset.root, space.action_key, **rule)
            width = dim if space.dims is None else column_width(reader.dataset, space.action_key)
            norm = of_dims(norm, space, dim, width)
            if asked.labelled:
                check_labels(norm, space, dim)
        names = space.names if space.names is not None and len(space.names) == dim else None
        return replace(norm, dim_names=names, relative=space.relative_mask(dim))


def _named(tasks: Any) -> list[int | str]:
    """Give tasks in an order of their own, each once."""
    if isinstance(tasks, str) or not hasattr(tasks, "__iter__"):
        tasks = [tasks]
    found: set[int | str] = set()
    for task in tasks:
        if isinstance(task, bool) or not (isinstance(task, str) or hasattr(task, "__index__")):
            raise EpisodeSelectionError(f"tasks= holds {task!r}, which is no number or text")
        found.add(str(task) if isinstance(task, str) else index(task))
    return sorted(found, key=lambda task: (str(task), isinstance(task, str)))

"""What a lock must do when things go wrong around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlaprep.coordinate import file_lock


def test_a_link_at_the_place_of_the_lock_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".x.lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"), file_lock(tmp_path / "x", 1):
        pass
    assert victim.read_text() == "precious"


def test_an_interrupt_during_the_release_still_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with (
        monkeypatch.context() as patch,
        pytest.raises(KeyboardInterrupt),
        file_lock(tmp_path / "x", 1),
    ):
        patch.setattr(Path, "unlink", interrupted)
    with file_lock(tmp_path / "x", 1) as locked:
        assert locked

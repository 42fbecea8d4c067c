from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import pi052_normalize
from vlaprep.errors import DatasetFormatError, TokenizerFormatError
from vlaprep.normalization import CONVENTIONS, Normalization


@pytest.mark.parametrize("recorded", ["lerobot_v21", "lerobot_v30"])
def test_golden_statistics_and_values_to_the_last_bit(golden, recorded):
    want = np.load(golden / f"{recorded}_expected.npz")
    norm = Normalization.fit(want["raw"])
    got = norm.normalize(want["raw"])
    assert norm.lo.tobytes() == want["q01"].tobytes()
    assert norm.hi.tobytes() == want["q99"].tobytes()
    assert got.dtype == np.float32
    assert got.tobytes() == want["normalised"].tobytes()


@pytest.mark.parametrize("case", ["F17", "F18", "F20"])
def test_flat_and_narrow_dims_of_real_reports(cases_root, case):
    chunks = np.load(cases_root / case / "chunks.npz")["chunks"].astype(np.float32)
    norm = Normalization.fit(chunks)
    got = norm.normalize(chunks)
    want, q01, q99 = pi052_normalize(chunks)
    assert norm.lo.tobytes() == q01.tobytes()
    assert norm.hi.tobytes() == q99.tobytes()
    assert got.tobytes() == want.tobytes()
    assert np.isfinite(got).all()
    assert np.abs(got).max() <= 1
    clipped = norm.clipped_fraction(chunks)
    if case == "F17":  # two dims are zero save for four entries of +-0.3
        assert norm.constant_dims == (4, 5)
        assert (clipped[4:6] > 0).any()
    if case == "F18":  # one dim spans 0.001, one chunk is 0 there
        assert norm.constant_dims == ()
        assert clipped[4] >= 1 / len(chunks)
    if case == "F20":  # 7 real dims padded to 32
        assert norm.constant_dims == tuple(range(7, 32))
        assert np.abs(norm.unnormalize(got.astype(np.float64))[..., 7:]).max() == 0


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 60),
    dims=st.integers(1, 5),
    exponent=st.integers(-6, 6),
)
def test_equal_to_the_reference_on_any_chunks(seed, rows, dims, exponent):
    rng = np.random.default_rng(seed)
    chunks = (rng.standard_normal((rows, 4, dims)) * 10.0**exponent).astype(np.float32)
    chunks[..., 0] = chunks[0, 0, 0]  # a constant dim
    norm = Normalization.fit(chunks)
    want, q01, q99 = pi052_normalize(chunks)
    assert norm.lo.tobytes() == q01.tobytes()
    assert norm.hi.tobytes() == q99.tobytes()
    assert norm.normalize(chunks).tobytes() == want.tobytes()
    assert 0 in norm.constant_dims


def test_unnormalize_undoes_what_was_not_clipped():
    rng = np.random.default_rng(0)
    actions = rng.uniform(-3, 3, (50, 10, 3)).astype(np.float32)
    norm = Normalization.fit(actions)
    inside = np.clip(actions, norm.lo, norm.hi)
    np.testing.assert_allclose(norm.unnormalize(norm.normalize(inside)), inside, atol=1e-5)
    assert norm.unnormalize(np.zeros((2, 3), np.float32)).dtype == np.float32
    assert norm.unnormalize(np.zeros((2, 3))).dtype == np.float64


def test_clipped_fraction_counts_each_dim():
    norm = Normalization("pi052", "QUANTILES", lo=[0, 0], hi=[1, 1])
    actions = np.array([[0.5, 2.0], [1.0, 0.0], [-1.0, 5.0], [0.2, 0.3]])
    assert norm.clipped_fraction(actions).tolist() == [0.25, 0.5]


def test_counting_gives_the_same() -> None:
    chunks = np.random.default_rng(2).standard_normal((10, 4, 3)).astype(np.float32)
    norm = Normalization.fit(chunks)
    normal, counts = norm.normalize_counting(chunks)
    assert normal.tobytes() == norm.normalize(chunks).tobytes()
    assert (counts / 40).tolist() == norm.clipped_fraction(chunks).tolist()
    assert counts.all()


def test_survives_json_and_pickle_bit_for_bit():
    norm = Normalization.fit(np.random.default_rng(1).standard_normal((9, 5, 3)))
    for copy in (
        Normalization.from_dict(json.loads(json.dumps(norm.to_dict()))),
        pickle.loads(pickle.dumps(norm)),
    ):
        assert copy == norm
        assert hash(copy) == hash(norm)
        assert copy.lo.tobytes() == norm.lo.tobytes()
        assert copy.hi.tobytes() == norm.hi.tobytes()
    assert norm != Normalization("pi052", "QUANTILES", norm.lo, norm.hi + 1)


def test_is_frozen():
    source = np.zeros(2, np.float32)
    norm = Normalization("pi052", "QUANTILES", source, source + 1)
    source[0] = 9
    assert norm.lo.tolist() == [0, 0]
    with pytest.raises(ValueError, match="read-only"):
        norm.lo[0] = 1
    with pytest.raises(AttributeError):
        norm.mode = "MEAN_STD"


def test_unknown_names_list_the_known_ones():
    for known in CONVENTIONS:
        with pytest.raises(ValueError, match=known):
            Normalization("pi099", "QUANTILES", [0], [1])
    with pytest.raises(ValueError, match=r"no mode 'MEAN_STD'; it has: QUANTILES"):
        Normalization("pi052", "MEAN_STD", [0], [1])


def test_bad_statistics_and_shapes_are_refused():
    with pytest.raises(ValueError, match=r"dim 1 are not finite"):
        Normalization.fit(np.array([[0.0, np.nan], [1.0, 2.0]], np.float32))
    for lo, hi in [([0], [1, 2]), ([[0]], [[1]]), ([], [])]:
        with pytest.raises(ValueError, match="flat and equally long"):
            Normalization("pi052", "QUANTILES", lo, hi)
    norm = Normalization("pi052", "QUANTILES", [0, 0], [1, 1])
    with pytest.raises(ValueError, match=r"shape \(4, 3\).*2 dims"):
        norm.normalize(np.zeros((4, 3)))


def test_newer_or_torn_files_are_refused():
    data = Normalization("pi052", "QUANTILES", [0], [1]).to_dict()
    for field in ("format_version", "rule_version"):
        with pytest.raises(TokenizerFormatError, match=f"{field} 99.*update vlaprep"):
            Normalization.from_dict({**data, field: 99})
    with pytest.raises(TokenizerFormatError, match="'lo'"):
        Normalization.from_dict({k: v for k, v in data.items() if k != "lo"})


def test_a_folder_without_a_report_has_no_normalisation(tmp_path):
    with pytest.raises(TokenizerFormatError, match=r"fit_report\.json"):
        Normalization.from_pretrained(tmp_path)
    report = {"format_version": 1, "signature": "0" * 16, "files": {}}
    (tmp_path / "fit_report.json").write_text(json.dumps(report))
    with pytest.raises(TokenizerFormatError, match="normalization"):
        Normalization.from_pretrained(tmp_path)


def test_a_range_that_float32_cannot_subtract():
    chunks = np.zeros((8, 5, 2), np.float32)
    chunks[::2, :, 1], chunks[1::2, :, 1] = 3e38, -3e38
    with pytest.raises(DatasetFormatError, match="dim 1"):
        Normalization.fit(chunks)

"""The codec among threads and processes, and over a long time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from action_chunks import fitted, smooth
from codec_workers import Batches, round_trip
from vlaprep import ActionCodec, _native

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)


@pytest.fixture(scope="module")
def codec() -> ActionCodec:
    """Used in this process, by two threads, before any test begins."""
    processor = fitted()
    text = processor.bpe_tokenizer.backend_tokenizer.to_str()
    low, high = processor.min_token, processor.max_token
    codec = ActionCodec(text, 10.0, 512, low, high, time_horizon=10, action_dim=3)
    codec.encode_batch(smooth(1000), num_threads=2)
    return codec


def same(got: tuple[np.ndarray, ...], want: tuple[np.ndarray, ...]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_give_the_same(method: str, codec: ActionCodec) -> None:
    x = smooth(64)
    with multiprocessing.get_context(method).Pool(2) as pool:
        work = pool.starmap_async(round_trip, [(codec, x)] * 6)
        assert all(same(got, round_trip(codec, x)) for got in work.get(timeout=120))


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_a_data_loader_of_torch(method: str | None, codec: ActionCodec) -> None:
    data = pytest.importorskip("torch.utils.data", reason="no torch here: pools above stand in")
    batches = Batches(codec, smooth(64))
    loader = data.DataLoader(
        batches, batch_size=None, num_workers=2 if method else 0, multiprocessing_context=method
    )
    for number, (ids, mask) in enumerate(loader):
        assert same((ids.numpy(), mask.numpy()), batches[number])


def test_a_thousand_forks_while_another_thread_encodes(codec: ActionCodec) -> None:
    x = smooth(3)
    want = round_trip(codec, x)
    done = threading.Event()

    def keep_encoding() -> None:
        while not done.is_set():
            codec.encode_batch(x, num_threads=2)

    other = threading.Thread(target=keep_encoding)
    other.start()
    try:
        for _ in range(1000):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a lock that nobody holds any more would hang it
                os._exit(0 if same(round_trip(codec, x), want) else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        other.join()


def test_threads_share_one_codec(codec: ActionCodec) -> None:
    batches = [smooth(50, seed=seed) for seed in range(16)]
    want = [round_trip(codec, x) for x in batches]
    with ThreadPoolExecutor(8) as pool:
        got = pool.map(lambda x: round_trip(codec, x), batches * 20)
        assert all(same(a, b) for a, b in zip(got, want * 20, strict=True))


def test_another_thread_runs_while_it_encodes(codec: ActionCodec) -> None:
    """The interpreter lock is free: a thread counts on while a large batch is encoded."""
    x = np.tile(smooth(2000), (100, 1, 1))
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    other = threading.Thread(target=tick)
    other.start()
    began = time.perf_counter()
    codec.encode_batch(x)
    ended = time.perf_counter()
    done.set()
    other.join()
    inside = sum(began < at < ended for at in ticks)
    assert inside > min(20, (ended - began) / 0.02)


@pytest.mark.slow
@pytest.mark.skipif(_native.__build__ != "release", reason="times of a debug build say nothing")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one CPU has no second thread to offer")
def test_two_threads_encode_nearly_twice_as_fast(codec: ActionCodec) -> None:
    batches = [np.tile(smooth(1000, seed=seed), (20, 1, 1)) for seed in range(2)]

    def seconds(threads: int) -> float:
        began = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(codec.encode_batch, batches))
        return time.perf_counter() - began

    ratios = [seconds(1) / seconds(2) for _ in range(15)]
    assert statistics.median(ratios) >= 1.7


def test_the_threads_that_there_are_suffice(project_root: Path) -> None:
    """No thread can start whose stack does not fit into memory."""
    code = (
        "import numpy as np, vlaprep; x = np.sin(np.arange(64_000.0)).reshape(2000, 16, 2); "
        "codec = vlaprep.ActionCodec.from_pretrained('tests/golden/fast/pusht/processor'); "
        "one, many = (codec.encode_batch(x, num_threads=n)[0] for n in (1, 8)); "
        "assert (one == many).all()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "RUST_MIN_STACK": str(2**56)},
        cwd=project_root, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("call", ["encode", "decode"])
def test_ctrl_c_ends_a_long_call(call: str, codec: ActionCodec) -> None:
    x = np.tile(smooth(2000), (100, 1, 1))
    ids = codec.encode_batch(x)

    def seconds() -> float:
        began = time.perf_counter()
        try:
            _ = codec.encode_batch(x) if call == "encode" else codec.decode_batch(*ids)
        except KeyboardInterrupt:
            return time.perf_counter() - began
        return time.perf_counter() - began

    whole = min(seconds(), seconds())
    threading.Timer(whole / 10, signal.raise_signal, [signal.SIGINT]).start()
    assert seconds() < 0.8 * whole


GROWTH = """
import sys
from pathlib import Path
import numpy as np
import vlaprep

def resident():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])

codec = vlaprep.ActionCodec.from_pretrained("tests/golden/fast/pusht/processor")
rounds = int(sys.argv[1])
rng = np.random.default_rng(0)
sizes = []
for number in range(rounds):
    x = np.clip(np.cumsum(rng.normal(0, 0.1, (500, 16, 2)), axis=1), -1, 1)
    ids, offsets = codec.encode_batch(x)
    codec.encode_padded(x, 20)
    codec.decode_batch(ids, offsets)
    codec.decode_batch([ids[:7], [10**6], []])
    try:
        codec.encode_batch(x * np.nan)
    except ValueError:
        pass
    sizes.append(resident())
print(max(sizes[rounds // 4:]) - max(sizes[:rounds // 4]))
"""


@pytest.mark.parametrize("chunks", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc to ask")
def test_memory_does_not_grow(chunks: int, project_root: Any) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", GROWTH, str(chunks // 500)],
        cwd=project_root, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 3000, "kB"

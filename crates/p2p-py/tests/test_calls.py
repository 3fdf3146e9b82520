"""What is refused, and how; and that a wait ends when it is to. Each test has peers of its own, in threads of this process."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyrail_p2p as p2p

Pair = tuple[p2p.Peers, p2p.Peers]


def meet(**job: Any) -> Pair:
    founding = p2p.found()
    with ThreadPoolExecutor() as threads:
        joined = threads.submit(p2p.join, founding.address)
        first = founding.gather(others=1, **{"parts": 2, "tolerance": 1e-8, **job})
        return first, joined.result()


@pytest.fixture
def pair() -> Iterator[Pair]:
    first, second = meet()
    yield first, second
    # both at once: one alone is waited for
    with ThreadPoolExecutor() as threads:
        list(threads.map(p2p.Peers.leave, (first, second)))


@pytest.mark.parametrize("kind", ["f8", "f4", "i8", "i4", "u1", "?", "c16", ">f8"])
def test_numbers_of_all_kinds_arrive_where_they_are_wanted(pair: Pair, kind: str) -> None:
    first, second = pair
    sent, into = np.arange(24).reshape(4, 6).astype(kind), np.zeros((3, 6), kind)
    first.send((0, 1), sent[2])
    received = second.receive((0, 1), into[1])
    assert (received.kind, received.is_new, received.iteration, received.age) == ("new", True, 0, None)
    assert np.array_equal(into[1], sent[2]) and not into[[0, 2]].any()


def test_what_a_run_is(pair: Pair) -> None:
    first, second = pair
    assert (first.me, first.members, first.parts, first.owners) == (0, 2, [0], [0, 1])
    assert (second.me, second.parts, second.iteration, second.judged, second.keeps) == (1, [1], 0, False, False)
    assert (second.job.parts, second.job.scheme, second.job.tolerance, second.job.task) == (2, "sync", 1e-8, b"")
    first.tell(1, b"far")
    first.post_to(1, np.array([1.5]))
    assert second.posted(60) == (0, np.array([1.5]).tobytes())


def test_all_go_on_after_a_verdict(pair: Pair) -> None:
    def run(peers: p2p.Peers) -> list[tuple[int, int]]:
        stages: list[tuple[int, int]] = []
        while len(stages) < 3:
            if peers.converged(0.0) is None:
                continue
            stages.append((peers.stage, peers.iteration))
            if len(stages) < 3:
                assert peers.next_stage() == len(stages)
        return stages

    with pytest.raises(p2p.Use, match="no verdict"):
        pair[0].next_stage()
    with ThreadPoolExecutor() as threads:
        first, second = threads.map(run, pair)
    assert first == second and [stage for stage, _ in first] == [0, 1, 2]


def test_what_has_no_right_shape_is_refused(pair: Pair) -> None:
    first, second = pair
    square = np.zeros((4, 4))
    with pytest.raises(p2p.Use, match="ascontiguousarray"):
        first.send((0, 1), square[:, 1])
    with pytest.raises(p2p.Use, match="C-contiguous"):
        first.send((0, 1), np.asfortranarray(square))
    with pytest.raises(TypeError, match="numpy.asarray"):
        first.send((0, 1), [1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="array of numbers"):
        first.send((0, 1), np.array([None]))
    square.flags.writeable = False
    with pytest.raises(p2p.Use, match="into a copy"):
        second.receive((0, 1), square[0])
    # to be sent it need not be writable
    first.send((0, 1), square[0])


def test_another_length_is_refused(pair: Pair) -> None:
    first, second = pair
    first.send((0, 1), np.zeros(3))
    with pytest.raises(p2p.Breach, match="24 bytes.*wants 32"):
        # what is longer than its receive is told of, what is shorter too
        second.receive((0, 1), np.zeros(4))


@pytest.mark.parametrize(
    ("link", "says"),
    [((0, 7), "no part 7"), ((1, 0), "part 1 is not held here"), ((0, 1, 4096), "tag"), ((0,), "no link"), ((0, -1), "no link"), ("01", "no link")],
)
def test_links_that_there_are_not(pair: Pair, link: Any, says: str) -> None:
    with pytest.raises(p2p.Use, match=says):
        pair[0].send(link, np.zeros(1))


@pytest.mark.parametrize("address", ["", "nonsense", "A" * 86 + "==", "ä" * 86])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(p2p.Use, match="no address of a run"):
        p2p.join(address)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"scheme": "quick"}, '"sync", "async"'),
        ({"scheme": p2p.bounded(0)}, "bound is 1 or more"),
        ({"every": 0}, "every 0"),
        ({"parts": 0}, "0 parts"),
        ({"tolerance": float("nan")}, "tolerance"),
        ({"task": bytes(1 << 17)}, "task"),
        ({"others": 1 << 20}, "others"),
    ],
)
def test_jobs_that_cannot_be(job: dict[str, Any], says: str) -> None:
    with pytest.raises(p2p.Use, match=says):
        p2p.found().gather(**{"others": 1, "parts": 2, "tolerance": 1.0, **job})
    with pytest.raises(ValueError, match="patience"):
        p2p.found(patience=-1.0)


@pytest.mark.parametrize("scheme", ["async", "hybrid", p2p.bounded(3)])
def test_schemes_are_the_same_for_all(scheme: Any) -> None:
    first, second = meet(scheme=scheme, task=b"any")
    assert first.job.scheme == second.job.scheme == scheme
    assert second.job.task == b"any"
    if scheme == "async":
        received = second.receive((0, 1), np.zeros(1))
        assert (received.kind, received.is_new, received.iteration) == ("nothing", False, None)
        first.send((0, 1), np.ones(1))
        assert second.wait([(0, 1)], 60)
        assert second.receive((0, 1), np.zeros(1)).is_new
        again = second.receive((0, 1), np.zeros(1))
        assert again.kind == "unchanged" and again.iteration == 0 and again.age is not None
    with ThreadPoolExecutor() as threads:
        list(threads.map(p2p.Peers.leave, (first, second)))


def test_who_leaves_is_gone_and_nothing_is_called_after_it(pair: Pair) -> None:
    first, second = pair
    with first:
        pass
    with pytest.raises(p2p.Use, match="over"):
        first.send((0, 1), np.zeros(1))
    with pytest.raises(p2p.Gone, match="member 0 is gone"):
        second.receive((0, 1), np.zeros(1))


def test_one_thread_at_a_time(pair: Pair) -> None:
    first, second = pair
    raised: list[p2p.Use] = []

    def calls() -> None:
        # until the other thread waits
        while not raised:
            time.sleep(0.01)
            try:
                first.told(1)
            except p2p.Use as why:
                raised.append(why)
        second.send((1, 0), np.ones(1))

    thread = threading.Thread(target=calls)
    thread.start()
    into = np.zeros(1)
    while not into[0]:
        # it may be refused, as the other thread's call
        with contextlib.suppress(p2p.Use):
            first.receive((1, 0), into)
        time.sleep(0.01)
    thread.join()
    assert "one at a time" in str(raised[0])


def interrupted(call: Callable[[], Any]) -> None:
    """A signal comes while a call waits, and ends it; without, the call would not end."""
    # what is started in the background of a shell has it ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        call()
    timer.join()


def test_waits_end_by_a_signal(pair: Pair) -> None:
    first, second = pair
    into = np.zeros(1)
    interrupted(lambda: first.receive((1, 0), into))
    interrupted(lambda: first.wait([(1, 0)], 1e9))
    interrupted(lambda: first.posted(1e9))
    # and what was waited for is still received
    second.send((1, 0), np.ones(1))
    assert first.receive((1, 0), into).is_new and into[0] == 1


def test_meeting_ends_by_a_signal() -> None:
    founding = p2p.found()
    interrupted(lambda: p2p.join(founding.address))
    interrupted(lambda: founding.gather(others=1, parts=2, tolerance=1.0))
    with pytest.raises(p2p.Use, match="over"):
        founding.gather(others=1, parts=2, tolerance=1.0)


def test_a_child_does_not_use_its_parents_connections() -> None:
    # a program of its own: who forks should have one thread
    program = """
import os, polyrail_p2p as p2p
founding = p2p.found()
child = os.fork()
try:
    founding.gather(others=0, parts=1, tolerance=1.0)
except p2p.Use as why:
    assert child == 0 and "spawn" in str(why), why
    del founding
else:
    assert child != 0 and os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_processes_that_were_started_together_meet(tmp_path: Path) -> None:
    # as a launcher tells its processes of each other, by variables
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = """
import numpy as np, polyrail_p2p as p2p
with p2p.start(parts=2, tolerance=1.0) as peers:
    (part,) = peers.parts
    into = np.zeros(1)
    peers.send((part, 1 - part), np.array([part + 1.0]))
    peers.receive((1 - part, part), into)
    assert (peers.members, into[0]) == (2, 2.0 - part)
"""
    processes = []
    for rank in range(2):
        variables = os.environ | {"POLYRAIL_MEET": f"127.0.0.1:{port}", "POLYRAIL_RANK": str(rank), "POLYRAIL_SIZE": "2"}
        variables["POLYRAIL_SECRET_FILE"] = str(tmp_path / "secret")
        processes.append(subprocess.Popen([sys.executable, "-c", program], env=variables))
    assert [process.wait(120) for process in processes] == [0, 0]

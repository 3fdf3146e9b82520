"""What the compiled module has; use it by ``polyrail_p2p``."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Change", "Founding", "Job", "Peers", "Received", "Verdict", "found", "join", "start"]

# NumPy's own names for shapes and kinds of numbers do not matter here: any numbers that lie in a row
_Array: TypeAlias = NDArray[np.number[Any]] | NDArray[np.bool]
_Data: TypeAlias = bytes | bytearray | _Array
# from which part to which, and which of several between those, less than 4096
_Link: TypeAlias = tuple[int, int] | tuple[int, int, int]
# "sync", "async", "hybrid", or what polyrail_p2p.bounded gives; a word may be read from anywhere
_Scheme: TypeAlias = str | tuple[str, int]

@final
class Received:
    """What a receive found."""

    @property
    def kind(self) -> Literal["new", "unchanged", "nothing"]:
        """``new``: it is in the array. ``unchanged``, ``nothing``: the array is as it was; nothing since the last, or nothing at all has come."""
    @property
    def is_new(self) -> bool:
        """Whether the array has something new."""
    @property
    def iteration(self) -> int | None:
        """The sender's iteration that it is of; none with ``nothing``."""
    @property
    def age(self) -> float | None:
        """Seconds since it came; with ``unchanged`` only."""

@final
class Verdict:
    """What a round found, when all may stop."""

    @property
    def round(self) -> int:
        """The round's number."""
    @property
    def iteration(self) -> int:
        """The iteration of this member whose vector was judged: what it sent in it, together with what the others sent in theirs."""
    @property
    def norm(self) -> float:
        """The largest norm that a member had for that vector."""

@final
class Change:
    """What has changed for this member."""

    @property
    def iteration(self) -> int:
        """The iteration that is gone on with."""
    @property
    def lost(self) -> list[int]:
        """Parts that are not held here any more."""
    @property
    def set(self) -> list[tuple[int, bytes | None]]:
        """Parts that are to be set, and to what was given to ``keep``; None: as at the beginning. All that are not named go on as they are."""

@final
class Job:
    """What is computed, the same for all members."""

    @property
    def parts(self) -> int:
        """Into how many parts it is divided."""
    @property
    def scheme(self) -> _Scheme:
        """Who waits for whom."""
    @property
    def tolerance(self) -> float:
        """The norm at which all stop."""
    @property
    def every(self) -> int:
        """Where all are in step: iterations between two rounds."""
    @property
    def keep(self) -> int:
        """Iterations between two of which states are kept; 0: none are."""
    @property
    def task(self) -> bytes:
        """What the founder gave for all to know."""

@final
class Founding:
    """A run that is about to begin: it waits for its members."""

    @property
    def address(self) -> str:
        """What others need to join. It is the key to the run: give it to those only who may."""
    def gather(
        self,
        *,
        others: int,
        parts: int,
        tolerance: float,
        scheme: _Scheme = "sync",
        every: int = 16,
        keep: int = 0,
        task: bytes = b"",
    ) -> Peers:
        """Waits until there are so many others, and begins: once.

        With ``keep`` not 0, states are kept each so many iterations, so that members may be lost, and join. ``task`` is any bytes for all members
        (``Peers.job``), 64 KiB at most.
        """

@final
class Peers:
    """One process of a run. One thread at a time may call it, and no other may change an array that a call has."""

    @property
    def job(self) -> Job:
        """What is computed."""
    @property
    def me(self) -> int:
        """This member's number."""
    @property
    def members(self) -> int:
        """How many members there are."""
    @property
    def owners(self) -> list[int]:
        """The member that holds each part."""
    @property
    def parts(self) -> list[int]:
        """The parts that this process holds."""
    @property
    def iteration(self) -> int:
        """The iteration that is computed, from 0 on."""
    @property
    def stage(self) -> int:
        """How many verdicts have been gone on from.

        Where states are kept it may be less after ``change`` than before, 0 even: those stages then end anew, with other verdicts.
        """
    @property
    def judged(self) -> bool:
        """Whether what is sent in this iteration may be what all stop with: keep it until ``converged`` has returned, and have its norm exactly."""
    @property
    def keeps(self) -> bool:
        """Whether states are to be given to ``keep`` in this iteration, before anything is sent."""
    @property
    def is_alone(self) -> bool:
        """Whether all others who compute are gone, or say nothing: then the run cannot go on."""
    def send(self, link: _Link, array: _Array) -> None:
        """What a part of this process has for another in this iteration: once for each link and iteration. The array may be changed when it returns.

        It waits only where the other is in step and has not taken what was sent before.
        """
    def receive(self, link: _Link, array: _Array) -> Received:
        """What another part has for one of this process, into an array of the length, and of the kind of numbers, that is sent.

        In step it is what that sent in this iteration, and waited for; else the newest that has come, and not waited for unless it is too old for
        the scheme.
        """
    def wait(self, links: Sequence[_Link] = (), most: float = 0.0) -> bool:
        """Until each of these links has what a receive would take, or so many seconds. False: those have passed first.

        Meanwhile whatever there is to be moved is moved; without arguments, which is what to call now and then in long computations, that is all.
        """
    def converged(self, norm: float) -> Verdict | None:
        """Ends the iteration; a verdict, when all may stop.

        ``norm`` is how far the vector is from a solution that this member's parts and what they received make, before they were computed anew.
        """
    def next_stage(self) -> int:
        """After a verdict, in place of stopping: all go on with a problem that follows from the vector that was judged, a time step say; which stage that is, from 0 on.

        All members call it, or none. Iterations go on counting.
        """
    def keep(self, part: int, state: _Data) -> None:
        """Keeps the state of a part, with which this iteration begins, here and at another member, so that the run can go on when this one is lost."""
    def change(self) -> Change:
        """After ``Changed``: what has changed for this member. It waits for states that come from others."""
    def tell(self, member: int, data: _Data) -> None:
        """Gives another member the newest of something that is not of an iteration. Nothing is waited for."""
    def told(self, member: int) -> bytes | None:
        """The newest that another member told, if it was not had before."""
    def post_to(self, member: int, data: _Data) -> None:
        """Sends bytes to another member, whole, after all that was posted to it before."""
    def posted(self, most: float = 0.0) -> tuple[int, bytes] | None:
        """The next piece, of at most 1 MiB, that was posted, and by whom. Waits at most so many seconds."""
    def is_gone(self, member: int) -> str | None:
        """Why a member is gone, if it is known to be."""
    def leave(self, most: float = 10.0) -> None:
        """Leaves: what was sent is brought to its end, for at most so many seconds. Nothing else can be called after it."""
    def __enter__(self) -> Peers:
        """The peers themselves; at the end of the block they are left."""
    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /) -> None:
        """Leaves, sooner when the block ended by an exception."""

def found(*, site: int = 0, weight: int = 1, patience: float | None = None) -> Founding:
    """Opens an endpoint for a run that others are to join, by the environment's settings (``POLYRAIL_...``).

    ``site`` says where this machine is, for the scheme "hybrid", 0: what ``POLYRAIL_SITE`` calls it; ``weight`` how much it is given to do, as a share, 0: it looks on; ``patience`` how many
    seconds to wait for somebody who is connected and says nothing, None: as long as it is connected.
    """

def join(address: str, *, site: int = 0, weight: int = 1, patience: float | None = None) -> Peers:
    """Joins a run by the address that its founder has (``Founding.address``), and waits until it begins. The rest is as with ``found``."""

def start(
    *,
    parts: int,
    tolerance: float,
    scheme: _Scheme = "sync",
    every: int = 16,
    keep: int = 0,
    task: bytes = b"",
    site: int = 0,
    weight: int = 1,
    patience: float | None = None,
) -> Peers:
    """Meets the processes that the same launcher (mpiexec, srun, Kubernetes) started, once in each; where there is none it is alone.

    What the first says of parts, scheme and so on (as with ``Founding.gather``) counts for all.
    """

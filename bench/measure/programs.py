"""Finding programs, and running them, alone or as two sides."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from .figures import Failed

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "release"
POLYRAIL = Path(os.environ.get("POLYRAIL", TARGET / "polyrail"))
# libfabric loads the provider from there.
PROVIDER_DIR = Path(os.environ.get("POLYRAIL_PROVIDER_DIR", TARGET))


@dataclass(frozen=True)
class Build:
    """A build of Polyrail: its command, and the directory of its provider."""

    command: Path
    provider: Path


OURS = Build(POLYRAIL, PROVIDER_DIR)
# Another build (its target/release), which the peers give way to: what a change made of the figures.
AGAINST = "POLYRAIL_AGAINST"
BEFORE = Build(Path(os.environ[AGAINST]) / "polyrail", Path(os.environ[AGAINST])) if os.environ.get(AGAINST) else None

HOW_TO_BUILD = "make build"


def provider_missing() -> str:
    file = PROVIDER_DIR / "libpolyrail_fi.so"
    return "" if file.is_file() else f"{file} is not there ({HOW_TO_BUILD})"


def find(name: str, variable: str) -> Path | None:
    """A program in the directory that an environment variable names, else on PATH."""
    directory = os.environ.get(variable)
    if directory:
        for inside in ("", "bin"):
            file = Path(directory) / inside / name
            if os.access(file, os.X_OK):
                return file.resolve()
    found = shutil.which(name)
    return Path(found) if found else None


# Ports for benchmarks that name one to both sides; one after the other, so that none meets what a former run left.
_next_port = 21000 + os.getpid() % 4000


def fresh_port() -> int:
    global _next_port
    while True:
        _next_port += 1
        with socket.socket() as probe:
            try:
                probe.bind(("", _next_port))
                return _next_port
            except OSError:
                continue


@dataclass(frozen=True)
class Place:
    """Where a side runs: here, or on a host of scripts/lab."""

    host: str | None = None

    def command(self, words: list[str], env: dict[str, str]) -> list[str]:
        words = [str(word) for word in words]
        if env:
            words = ["env", *(f"{name}={value}" for name, value in env.items()), *words]
        if self.host is None:
            return words
        # a login hands nothing on, so neither does the lab's: what programs need is named
        kept = [f"{name}={os.environ[name]}" for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ]
        return [os.environ["POLYRAIL_LAB_SSH"], self.host, shlex.join(["env", *kept, *words])]

    def listens(self, port: int) -> bool:
        """Whether something listens at this port there."""
        try:
            text = subprocess.run(
                self.command(["cat", "/proc/net/tcp", "/proc/net/tcp6"], {}), capture_output=True, text=True, timeout=10
            ).stdout
        except subprocess.TimeoutExpired:
            return False
        rows = (line.split() for line in text.splitlines())
        return any(len(row) > 3 and row[3] == "0A" and row[1].endswith(f":{port:04X}") for row in rows)


HERE = Place()


@dataclass
class Output:
    text: str
    errors: str
    status: int
    cpu_seconds: float

    def reason(self) -> str:
        """Its last words."""
        lines = [line.strip() for line in (self.errors + "\n" + self.text).splitlines() if any(map(str.isalnum, line))]
        return f"status {self.status}: " + (lines[-1] if lines else "no output")


class Process:
    """A program whose output goes to files, so that it never waits for a reader."""

    def __init__(self, command: list[str]):
        self.command = command
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err, start_new_session=True
            )
        except OSError as why:
            raise Failed(f"{command[0]}: {why.strerror}") from None

    def wait(self, deadline: float) -> Output:
        while True:
            # not through Popen: the kernel tells the processor time of the process and all that it waited for
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                self.stop()
                raise Failed(f"no end in time: {shlex.join(self.command)}")
            time.sleep(0.005)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (self.out, self.err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
            file.close()
        return Output(texts[0], texts[1], self.process.returncode, usage.ru_utime + usage.ru_stime)

    def so_far(self) -> str:
        """What it has written to its standard output until now."""
        return os.pread(self.out.fileno(), 1 << 24, 0).decode(errors="replace")

    def errors_so_far(self) -> str:
        """The same of its standard error."""
        return os.pread(self.err.fileno(), 1 << 24, 0).decode(errors="replace")

    def running(self) -> bool:
        return self.process.returncode is None and os.waitid(
            os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
        ) is None

    def stop(self) -> None:
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def alone(words: list[str], env: dict[str, str] | None = None, place: Place = HERE, limit: float = 120) -> Output:
    """Runs a program to its end; Failed if that is a bad one."""
    process = Process(place.command(words, env or {}))
    try:
        output = process.wait(time.monotonic() + limit)
    finally:
        process.stop()
    if output.status != 0:
        raise Failed(output.reason())
    return output


def pair(
    server: list[str],
    client: list[str],
    port: int,
    env: dict[str, str] | None = None,
    places: tuple[Place, Place] = (HERE, HERE),
    limit: float = 120,
) -> tuple[Output, Output]:
    """Runs a server, and once it listens at the port, its client."""
    deadline = time.monotonic() + limit
    first = Process(places[0].command(server, env or {}))
    second = None
    try:
        while not places[0].listens(port):
            if not first.running():
                raise Failed(first.wait(deadline).reason())
            if time.monotonic() > deadline:
                raise Failed(f"it never listened: {shlex.join(first.command)}")
            time.sleep(0.02)
        second = Process(places[1].command(client, env or {}))
        output = second.wait(deadline)
        if output.status != 0:
            raise Failed(output.reason())
        # a server has nothing to wait for any more; what it did counts nevertheless
        served = first.wait(min(deadline, time.monotonic() + 10))
        if served.status != 0:
            raise Failed(served.reason())
        return served, output
    finally:
        first.stop()
        if second is not None:
            second.stop()


LIBFABRIC = "install libfabric's headers (Debian: libfabric-dev), or set PKG_CONFIG_PATH to where libfabric.pc is"


def libfabric_program(name: str) -> tuple[str, str]:
    """A C program of bench that calls libfabric, built; or what is missing for that."""
    file = ROOT / "build" / name
    if not (shutil.which("cc") and shutil.which("pkg-config")):
        return "", "install a C compiler and pkg-config"
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libfabric"], capture_output=True, text=True)
    if flags.returncode != 0:
        return "", LIBFABRIC
    library = subprocess.run(["pkg-config", "--variable=libdir", "libfabric"], capture_output=True, text=True).stdout.strip()
    file.parent.mkdir(exist_ok=True)
    words = ["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", file, ROOT / f"bench/{name}.c", *flags.stdout.split(), f"-Wl,-rpath,{library}"]
    alone(words)
    return str(file), ""

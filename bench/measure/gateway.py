"""Connections through a pair of gateways: over loopback beside other relays, and over a far path that loses packets beside none."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from .failures import lab
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import HERE, POLYRAIL, ROOT, Place, Process, alone, fresh_port

SPEC = "relay:1000,delay=10ms,queue=2500000"
# Hosts beside each other: as fast as it goes, and by four cards.
NEAR, CARDS = "0", "1000 1000 1000 1000"
PINGS, BYTES = 3000, 2_000_000_000
TRIP, TAIL = Figure("one byte and back: median", "us", True), Figure("one byte and back: 99 of 100 within", "us", True)
RATE, CPU = Figure("one connection", "MB/s", False), Figure("processor time of the relays", "s/GB", True)
# Losses and bytes: few where the kernel's own TCP takes long.
LOSSES = (("0", 500_000_000), ("0.01%", 200_000_000), ("0.1%", 100_000_000), ("1%", 20_000_000))
MESSAGES = (1 << 10, 64 << 10, 256 << 10, 1 << 20)


def program() -> Path:
    built = Path(tempfile.gettempdir()) / f"polyrail-bench-gateway-{os.getuid()}"
    source = ROOT / "bench/gateway.c"
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        if subprocess.run(["cc", "-O2", "-pthread", "-o", built, source]).returncode:
            raise SystemExit(f"{source} cannot be built")
    return built


def until_listens(place: Place, port: int, what: str) -> None:
    deadline = time.monotonic() + 20
    while not place.listens(port):
        if time.monotonic() > deadline:
            raise Failed(f"{what} does not listen")
        time.sleep(0.05)


def pair(directory: Path, stack: ExitStack, east: Place, west: Place, networks: tuple[str, str], reached: str) -> tuple[int, list[Process]]:
    """Two gateways; the port at which the first is called."""
    ports, trunk = (fresh_port(), fresh_port()), fresh_port()
    tokens = []
    for n, site in enumerate(("east", "west")):
        file = directory / site / "site.toml"
        words = [POLYRAIL, "gateway", "--config", file, "init", "--site", site, "--network", networks[n], "--listen", f"127.0.0.1:{ports[n]}"]
        tokens.append(alone([*words, *(["--reached-at", f"{reached}:{trunk}"] if n else [])]).text.strip())
    for n, site in enumerate(("east", "west")):
        alone([POLYRAIL, "gateway", "--config", directory / site / "site.toml", "trust", tokens[1 - n]])
    if not east.host:
        # addresses that each host has for itself are nobody's, unless the file says so
        with (directory / "east/site.toml").open("a") as file:
            file.write(f'\n[to.west]\nnetworks = ["{networks[1]}"]\n')
    processes = []
    for site, place in (("west", west), ("east", east)):
        words = [POLYRAIL, "gateway", "--config", directory / site / "site.toml"]
        processes.append(Process(place.command(words, {"POLYRAIL_INTERFACES": "r*" if place.host else "lo"})))
        stack.callback(processes[-1].stop)
    deadline = time.monotonic() + 30
    until_listens(east, ports[0], "the gateway")
    while '"up":true' not in alone([POLYRAIL, "gateway", "--config", directory / "east/site.toml", "status", "--json"], place=east, limit=20).text:
        if time.monotonic() > deadline:
            raise Failed("the gateways do not find each other")
        time.sleep(0.2)
    return ports[0], processes


def processor_time(processes: list[Process]) -> float:
    """Of these and what they started, so far, in seconds."""
    pids = [process.process.pid for process in processes]
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            pids += map(int, task.read_text().split())
    ticks = 0
    for pid in pids:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def certificate(directory: Path) -> Path:
    made = directory / "both.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=gateway"]
    alone([*words, "-keyout", directory / "key.pem", "-out", directory / "cert.pem"])
    made.write_text((directory / "key.pem").read_text() + (directory / "cert.pem").read_text())
    return made


def haproxy(directory: Path, stack: ExitStack, to: int, tls: bool) -> tuple[int, list[Process]]:
    first, second = fresh_port(), fresh_port()
    pem, processes = certificate(directory) if tls else None, []
    towards = f" ssl crt {pem} ca-file {directory}/cert.pem verify required verifyhost gateway" if tls else ""
    waits = f" ssl crt {pem} ca-file {directory}/cert.pem verify required" if tls else ""
    for name, here, there in (("far", f"127.0.0.1:{second}{waits}", f"127.0.0.1:{to}"), ("near", f"127.0.0.1:{first}", f"127.0.0.1:{second}{towards}")):
        file = directory / f"haproxy-{name}-{tls}.cfg"
        file.write_text(
            f"global\n  nbthread 1\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n  option splice-auto\n"
            f"listen relay\n  bind {here}\n  server next {there}\n"
        )
        processes.append(Process(["haproxy", "-db", "-f", str(file)]))
        stack.callback(processes[-1].stop)
    until_listens(HERE, first, "HAProxy")
    until_listens(HERE, second, "HAProxy")
    return first, processes


def nginx(directory: Path, stack: ExitStack, to: int, tls: bool) -> tuple[int, list[Process]]:
    first, second = fresh_port(), fresh_port()
    near, far = f"listen 127.0.0.1:{first}; proxy_pass 127.0.0.1:{second};", f"listen 127.0.0.1:{second}{' ssl' if tls else ''}; proxy_pass 127.0.0.1:{to};"
    if tls:
        certificate(directory)
        key = f"{{}}_certificate {directory}/cert.pem; {{}}_certificate_key {directory}/key.pem;"
        near += f" proxy_ssl on; proxy_ssl_verify on; proxy_ssl_name gateway; proxy_ssl_trusted_certificate {directory}/cert.pem; {key.format('proxy_ssl', 'proxy_ssl')}"
        far += f" ssl_verify_client on; ssl_client_certificate {directory}/cert.pem; {key.format('ssl', 'ssl')}"
    processes = []
    for name, server in (("near", near), ("far", far)):
        file = directory / f"nginx-{name}-{tls}.conf"
        file.write_text(
            f"load_module /usr/lib/nginx/modules/ngx_stream_module.so; daemon off; pid {directory}/nginx-{name}-{tls}.pid; error_log {directory}/nginx-{name}.log; worker_processes 1;\n"
            f"events {{}}\nstream {{ tcp_nodelay on; proxy_buffer_size 64k; server {{ {server} }} }}\n"
        )
        processes.append(Process(["nginx", "-c", str(file)]))
        stack.callback(processes[-1].stop)
    until_listens(HERE, first, "nginx")
    until_listens(HERE, second, "nginx")
    return first, processes


def ssh(directory: Path, stack: ExitStack, to: int) -> tuple[int, list[Process]]:
    """OpenSSH's own: `ssh -L`, by an sshd of this user's."""
    first, second = fresh_port(), fresh_port()
    for name in ("host", "user"):
        alone(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)])
    file = directory / "sshd_config"
    file.write_text(
        f"ListenAddress 127.0.0.1:{second}\nHostKey {directory}/host\nAuthorizedKeysFile {directory}/user.pub\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    processes = [Process([shutil.which("sshd") or "sshd", "-D", "-f", str(file)])]
    stack.callback(processes[0].stop)
    until_listens(HERE, second, "sshd")
    known = ["-F", "none", "-i", str(directory / "user"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ExitOnForwardFailure=yes"]
    processes.append(Process(["ssh", *known, "-N", "-L", f"127.0.0.1:{first}:127.0.0.1:{to}", "-p", str(second), "127.0.0.1"]))
    stack.callback(processes[-1].stop)
    until_listens(HERE, first, "ssh")
    return first, processes


def key_pair() -> tuple[str, str]:
    """Of X25519, private and public, in hexadecimal digits."""
    with tempfile.NamedTemporaryFile() as file:
        alone(["openssl", "genpkey", "-algorithm", "X25519", "-outform", "DER", "-out", file.name])
        public = subprocess.run(["openssl", "pkey", "-inform", "DER", "-in", file.name, "-pubout", "-outform", "DER"], capture_output=True, check=True).stdout
        return Path(file.name).read_bytes()[-32:].hex(), public[-32:].hex()


def wireguard(stack: ExitStack, places: tuple[Place, Place]) -> tuple[str, list[Process]]:
    """A tunnel of WireGuard's between two hosts, as a process of a user; the second's address there."""
    keys, processes = [key_pair(), key_pair()], []
    for n, place in enumerate(places):
        device = f"wg-bench-{place.host}"
        processes.append(Process(place.command(["wireguard-go", "-f", device], {"LOG_LEVEL": "error"})))
        stack.callback(processes[-1].stop)
        door, deadline = Path(f"/var/run/wireguard/{device}.sock"), time.monotonic() + 10
        stack.callback(door.unlink, missing_ok=True)
        while not door.exists():
            if time.monotonic() > deadline:
                raise Failed("wireguard-go does not start")
            time.sleep(0.05)
        with socket.socket(socket.AF_UNIX) as talk:
            talk.settimeout(10)
            talk.connect(str(door))
            lines = ["set=1", f"private_key={keys[n][0]}", "listen_port=51820", f"public_key={keys[1 - n][1]}", f"endpoint=10.77.0.{2 - n}:51820", "allowed_ip=10.66.0.0/24"]
            talk.sendall("".join(f"{line}\n" for line in [*lines, ""]).encode())
            if b"errno=0" not in talk.recv(100):
                raise Failed("wireguard-go refuses its configuration")
        alone(["sh", "-c", f"ip addr add 10.66.0.{n + 1}/24 dev {device} && ip link set {device} up"], place=place)
    return "10.66.0.2", processes


def socat(stack: ExitStack, to: int) -> tuple[int, list[Process]]:
    first, second = fresh_port(), fresh_port()
    processes = []
    for here, there in ((second, to), (first, second)):
        processes.append(Process(["socat", "-b", "262144", f"TCP-LISTEN:{here},bind=127.0.0.1,fork,reuseaddr,nodelay", f"TCP:127.0.0.1:{there},nodelay"]))
        stack.callback(processes[-1].stop)
    until_listens(HERE, first, "socat")
    until_listens(HERE, second, "socat")
    return first, processes


def missing(name: str, package: str) -> str:
    return "" if shutil.which(name) else f"no {name}; apt-get install {package}"


def relayed(port: int, begin: Callable[[], tuple[str, list[Process]]], server: str = "127.0.0.1", place: Place = HERE) -> Parts:
    """What begins on its way to a server's port is kept: how it is called (`wrap:` a gateway, or as bench/gateway.c has it), and its processes."""
    begun: list[tuple[str, list[Process]]] = []

    def via() -> tuple[str, list[Process]]:
        if not begun:
            begun.append(begin())
        return begun[0]

    def client(*words: object) -> list[str]:
        way, _ = via()
        by, way = ([POLYRAIL, "wrap", "--gateway", way[5:], "--"], "-") if way.startswith("wrap:") else ([], way)
        return alone([*by, program(), "client", server, port, way, *words], place=place).text.split()

    def pings() -> Sample:
        _, median, tail = client("pings", PINGS)
        return {(TRIP, None): float(median), (TAIL, None): float(tail)}

    def stream() -> Sample:
        before = processor_time(via()[1])
        _, rate = client("stream", BYTES)
        sample: Sample = {(RATE, None): float(rate)}
        # what socat forks for a connection is gone with it: its time is its parent's then, which does not tell
        if via()[1] and "socat" not in via()[1][0].command[0]:
            sample[CPU, None] = (processor_time(via()[1]) - before) / BYTES * 1e9
        return sample

    return {"pings": pings, "stream": stream}


def loopback(rounds: int) -> list[Table]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = fresh_port()
        server = Process([str(program()), "server", str(port)])
        stack.callback(server.stop)
        until_listens(HERE, port, "the server")

        def ours() -> tuple[str, list[Process]]:
            called, processes = pair(directory, stack, HERE, HERE, ("127.66.0.0/16", "127.0.0.1/32"), "127.0.0.1")
            return f"socks:127.0.0.1:{called}", processes

        def other(begin: Callable[[], tuple[int, list[Process]]]) -> Callable[[], tuple[str, list[Process]]]:
            def begun() -> tuple[str, list[Process]]:
                called, processes = begin()
                return f"127.0.0.1:{called}", processes

            return begun

        columns = [
            Column("no relay", relayed(port, lambda: ("-", [])), limit=True),
            Column("polyrail gateway, encrypted", relayed(port, ours), ours=True),
            Column("HAProxy, mutual TLS", relayed(port, other(lambda: haproxy(directory, stack, port, True))), missing("haproxy", "haproxy")),
            Column("nginx stream, mutual TLS", relayed(port, other(lambda: nginx(directory, stack, port, True))), missing("nginx", "nginx-light libnginx-mod-stream")),
            Column("ssh -L", relayed(port, other(lambda: ssh(directory, stack, port))), missing("sshd", "openssh-server")),
            Column("HAProxy, plain", relayed(port, other(lambda: haproxy(directory, stack, port, False))), missing("haproxy", "haproxy")),
            Column("nginx stream, plain", relayed(port, other(lambda: nginx(directory, stack, port, False))), missing("nginx", "nginx-light libnginx-mod-stream")),
            Column("socat, plain", relayed(port, other(lambda: socat(stack, port))), missing("socat", "socat")),
        ]
        alternate(columns, rounds)
        found = Table("one connection through two relays, over loopback", columns)
        found.show()
        return [found]


def near(rounds: int, spec: str) -> list[Table]:
    """Inside the lab: an unmodified program's connection from host a to b, each with a gateway."""
    a, b = Place("a"), Place("b")
    with ExitStack() as stack:
        directory, port = Path(stack.enter_context(tempfile.TemporaryDirectory())), fresh_port()
        server = Process(b.command([str(program()), "server", str(port)], {}))
        stack.callback(server.stop)
        until_listens(b, port, "the server")

        def ours() -> tuple[str, list[Process]]:
            called, processes = pair(directory, stack, a, b, ("10.77.0.1/32", "10.77.0.2/32"), "10.77.0.2")
            return f"wrap:127.0.0.1:{called}", processes

        def tunnel() -> tuple[str, list[Process]]:
            address, processes = wireguard(stack, (a, b))
            return f"{address}:{port}", processes

        def by(begin: Callable[[], tuple[str, list[Process]]]) -> Parts:
            return relayed(port, begin, "10.77.0.2", a)

        cards = len(spec.split())
        columns = [
            Column("directly", by(lambda: ("-", [])), limit=cards == 1),
            Column("polyrail gateway, encrypted", by(ours), ours=True),
            Column("wireguard-go", by(tunnel), missing("wireguard-go", "wireguard-go")),
        ]
        alternate(columns, rounds)
        found = Table(f"one connection between two hosts, {f'by {cards} cards of 1 Gb/s' if cards > 1 else 'as fast as it goes'}", columns)
        found.show()
        return [found]


def far(rounds: int) -> list[Table]:
    """Inside the lab: hosts a and b, each with a gateway and one end."""
    a, b = Place("a"), Place("b")
    with ExitStack() as stack:
        directory, port = Path(stack.enter_context(tempfile.TemporaryDirectory())), fresh_port()
        server = Process(b.command([str(program()), "server", str(port)], {}))
        stack.callback(server.stop)
        called, _ = pair(directory, stack, a, b, ("10.77.0.1/32", "10.77.0.2/32"), "10.77.0.2")
        until_listens(b, port, "the server")

        def parts(via: str) -> Parts:
            def client(*words: object) -> float:
                return float(alone([program(), "client", "10.77.0.2", port, via, *words], place=a).text.split()[1])

            def rate(loss: str, count: int, streams: int) -> Sample:
                lab(["relay", "0", f"loss={loss}"])
                try:
                    what = f"loss {loss}: {'one connection' if streams == 1 else f'{streams} connections'}"
                    return {(Figure(what, "MB/s", False), None): client("stream", count, streams)}
                finally:
                    lab(["relay", "0", "loss=0"])

            def messages() -> Sample:
                return {
                    (Figure("a message and an answer, after 1.1 s of rest", "ms", True), size): client("rests", 3, size, 1100) for size in MESSAGES
                } | {(Figure("the same, on a fresh connection", "ms", True), size): client("fresh", 5, size) for size in MESSAGES}

            found: Parts = {"messages": messages}
            for loss, count in LOSSES:
                for streams in (1, 32):
                    found[f"loss {loss}, {streams}"] = lambda loss=loss, count=count, streams=streams: rate(loss, count, streams)
            return found

        columns = [
            Column("through two gateways", parts(f"socks:127.0.0.1:{called}"), ours=True),
            Column("directly, CUBIC", parts("-")),
        ]
        alternate(columns, rounds)
        found = Table("an unmodified program's connections over 1 Gb/s and 20 ms", columns)
        found.show()
        return [found]

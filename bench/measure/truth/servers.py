"""nginx, Redis and PostgreSQL, with their clients."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from .recording import Row, Run, between, losses, run, whole


NGINX = """
daemon off; pid @PLACE/pid; error_log @PLACE/error.log; worker_processes 2; user %s;
events { worker_connections 1024; }
http {
    log_format counts '$bytes_sent $request_length $connection $status'; access_log @PLACE/access.log counts;
    client_body_temp_path @PLACE/body; proxy_temp_path @PLACE/proxy; fastcgi_temp_path @PLACE/fastcgi; uwsgi_temp_path @PLACE/uwsgi;
    scgi_temp_path @PLACE/scgi;
    sendfile on; keepalive_requests 100000000;
    server { listen 127.0.0.1:@PORT; root @PLACE/www; }
}
"""
# A file of 5000 bytes and one of 200 MB are served; what the log has counted is printed.
SERVED = """
mkdir -p $PLACE/www; head -c 5000 /dev/urandom >$PLACE/www/small; head -c ${LARGE:-0} /dev/zero >$PLACE/www/large
nginx -c $PLACE/nginx.conf & listens $PORT
"""
LOGGED = """
kill -QUIT $(cat $PLACE/pid); wait
awk '{ sent += $1; asked += $2; if (!($3 in seen)) { seen[$3]; connections++ } }
    END { printf "== log\\nrequests %d\\nsent %.0f\\nasked %.0f\\nconnections %d\\n", NR, sent, asked, connections }' $PLACE/access.log
"""


def nginx(client: str, outside: bool = False, user: str = "root", **files: str) -> Run:
    conf = {"nginx.conf": NGINX % user, **files}
    if not outside:
        return run(SERVED + client + LOGGED, files=conf)
    # whoever asks is told that the server may end by a file
    wait = "until [ -e $PLACE/asked ]; do sleep 0.05; done\n"
    return run(SERVED + wait + LOGGED, f"listens $PORT\n{client}\ntouch $PLACE/asked", files=conf)


def log(run: Run) -> list[Row]:
    """What nginx says in its log, beside what is recorded of it."""
    said, recorded = run.part("log"), run.recorded
    return [
        Row("nginx: bytes sent", recorded.sent("nginx"), run.number(r"^sent (\d+)", said), "nginx's log: bytes_sent"),
        Row("nginx: bytes received", recorded.received("nginx"), run.number(r"^asked (\d+)", said), "nginx's log: request_length"),
    ]


def ab(quick: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    requests, at_once = (3000 if quick else 20000), 50
    words = f"ab -q -n {requests} -c {at_once} http://127.0.0.1:$PORT/small"

    def rows(one: Run) -> list[Row]:
        said = one.beside or one.said
        done = one.number(r"^Complete requests:\s+(\d+)", said)
        found = [
            Row("TCP connections", one.recorded.connections(), done, "ab: complete requests", 0, at_once, "ab opens more at its end and says nothing there"),
            *log(one),
        ]
        if not one.beside:
            total = one.number(r"^Total transferred:\s+(\d+)", said)
            found += [Row("ab: bytes received", one.recorded.received("ab"), total, "ab: total transferred"), *between(one, "nginx", "ab")]
            accepted = one.recorded.calls("accept", "accept4")
            found.append(Row("calls of accept4 with success", accepted, one.kernel["TcpPassiveOpens"], "TcpPassiveOpens"))
        return found + whole(one)

    yield "", lambda: rows(nginx(words))
    yield "client not traced", lambda: rows(nginx(words, outside=True))
    yield "workers of user nobody", lambda: rows(nginx(words, user="nobody nogroup"))


WRK_SAYS = """
done = function(all) print(string.format("requests %d\\nbytes %d\\nerrors %d", all.requests, all.bytes,
    all.errors.connect + all.errors.read + all.errors.write + all.errors.status + all.errors.timeout)) end
"""


def wrk(quick: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    clients = 20

    def rows() -> list[Row]:
        one = nginx(f"wrk -t 2 -c {clients} -d {1 if quick else 3}s -s $PLACE/says.lua http://127.0.0.1:$PORT/small", **{"says.lua": WRK_SAYS})
        answer = one.number(r"^bytes (\d+)") // max(one.number(r"^requests (\d+)"), 1)
        unread = (2 * answer + 4096) * clients
        unfinished = "of requests under way at the end"
        return [
            Row("TCP connections", one.recorded.connections(), clients, "wrk -c", 1, 1, "wrk tries the address once"),
            Row("wrk: bytes received", one.recorded.received("wrk"), one.number(r"^bytes (\d+)"), "wrk: bytes read", 0, unread, unfinished),
            Row("nginx: bytes sent", one.recorded.sent("nginx"), one.number(r"^sent (\d+)", one.part("log")), "nginx's log: bytes_sent"),
            Row("wrk: sends", sum(s["sends"] for s in one.recorded.by("wrk")), one.number(r"^requests (\d+)"), "wrk: requests", 0, clients, unfinished),
            *whole(one),
        ]  # fmt: skip

    yield "", rows


def sendfile(quick: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    size = (20 if quick else 200) * 1_000_000
    client = """
for n in 1 2 3; do curl -sS -o /dev/null -w 'body %{size_download} head %{size_header} asked %{size_request}\\n' http://127.0.0.1:$PORT/large; done
wget -q -O /dev/null http://127.0.0.1:$PORT/large
"""

    def rows() -> list[Row]:
        one = nginx(f"LARGE={size}\n" + "head -c $LARGE /dev/zero >$PLACE/www/large\n" + client)
        curls = [tuple(map(int, found)) for found in re.findall(r"^body (\d+) head (\d+) asked (\d+)", one.said, re.MULTILINE)]
        return [
            Row("TCP connections", one.recorded.connections(), 4, "three of curl, one of wget"),
            Row("curl: bytes received", one.recorded.received("curl"), sum(body + head for body, head, _ in curls), "curl: size_download, size_header"),
            Row("curl: bytes sent", one.recorded.sent("curl"), sum(asked for _, _, asked in curls), "curl: size_request"),
            *log(one),
            *whole(one),
        ]

    yield "", rows


def redis(quick: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    count = 5000 if quick else 50000
    serve = "redis-server --bind 127.0.0.1 --port $PORT --save '' --appendonly no --dir $PLACE >/dev/null & server=$!; listens $PORT\n"
    info = "echo == info; redis-cli -p $PORT info\n"

    def rows(one: Run) -> list[Row]:
        said = (one.beside or one.said).split("== info\n", 1)[1]
        recorded = one.recorded
        body = len(said.rstrip("\r\n").encode()) + 2
        # redis has counted the question when it answers, and not yet the answer: $LENGTH\r\n...\r\n
        answer = len(str(body)) + 3 + body + 2
        found = [
            Row("TCP connections", recorded.connections(), one.number(r"^total_connections_received:(\d+)", said), "redis: total_connections_received"),
            Row("redis: bytes received", recorded.received("redis-server"), one.number(r"^total_net_input_bytes:(\d+)", said), "redis: total_net_input_bytes"),
            Row(
                "redis: bytes sent", recorded.sent("redis-server"), one.number(r"^total_net_output_bytes:(\d+)", said) + answer,
                "redis: total_net_output_bytes, and this answer", -2, 2, "the length that redis-cli prints is cut at line ends",
            ),
        ]  # fmt: skip
        if not one.beside:
            found += between(one, "redis-server", "redis-benchmark", "redis-cli")
        return found + whole(one)

    for label, words in (("", "-t set,get"), ("pipelined", "-t set,get -P 16"), ("200 clients", "-t incr,lpush -c 200")):
        bench = f"redis-benchmark -p $PORT -n {count} {words} --csv\n"
        yield label, lambda bench=bench: rows(run(serve + bench + info + "kill $server; wait"))
    outside = f"listens $PORT\nredis-benchmark -p $PORT -n {count} -t set,get -P 4 --csv\n{info}touch $PLACE/asked"
    yield "client not traced", lambda: rows(run(serve + "until [ -e $PLACE/asked ]; do sleep 0.05; done\nkill $server; wait", outside))


def postgres_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


def postgres(quick: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    clients, each = 4, 50 if quick else 300

    def rows(where: str, more: str = "") -> list[Row]:
        user = "postgres" if os.geteuid() == 0 else ""
        settings = "-D $PLACE/data -p $PORT -k $PLACE -c listen_addresses=127.0.0.1 -c log_connections=on -c fsync=off"
        script = f"""
PATH={postgres_programs()}:$PATH
initdb -D $PLACE/data -A trust -U postgres --no-sync >/dev/null
postgres {settings} 2>$PLACE/log & server=$!; listens $PORT
export PGUSER=postgres PGPORT=$PORT PGHOST={where}
pgbench -q -i -s 1 postgres
pgbench -n -c {clients} -j 2 -t {each} {more} postgres || {{ kill -INT $server; exit 1; }}
kill -INT $server; wait
echo == log; grep -c 'connection received' $PLACE/log
"""
        one = run(script, user=user)
        unix = where != "127.0.0.1"
        recorded, kind = one.recorded, "unix" if unix else "tcp"
        opened = one.number(r"^(\d+)", one.part("log"))
        found = [
            Row("transactions", one.number(r"^number of transactions actually processed: (\d+)"), clients * each, "pgbench -c, -t"),
            Row(f"{'Unix' if unix else 'TCP'} connections", recorded.connections(kind), opened, "PostgreSQL's log"),
            *between(one, "postgres", "pgbench", kind=kind),
        ]
        return found + (losses(one) if unix else whole(one))

    yield "TCP", lambda: rows("127.0.0.1")
    yield "TCP, a connection each", lambda: rows("127.0.0.1", "-C")
    yield "Unix socket", lambda: rows("$PLACE")

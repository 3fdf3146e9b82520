"""Transfers over TCP, for `bench/trace`.

  trace_transfer.py serve PORT                      answers each transfer with one byte; ends after one connection
  trace_transfer.py idle HOST PORT CONTROL          64 KiB to 1 MiB, each after a second of rest on a warm connection
  trace_transfer.py bulk HOST PORT CONTROL BYTES    one transfer; prints what the kernel says was sent again

A transfer is its length (8 bytes) and that many bytes. CONTROL: congestion control, or "-" for the system's.
"""

import socket
import struct
import subprocess
import sys
import time


def exactly(connection, length):
    while length:
        got = len(connection.recv(min(length, 1 << 20)))
        if not got:
            raise SystemExit("the other side ended early")
        length -= got


def serve(port):
    listener = socket.create_server(("", int(port)))
    connection, _ = listener.accept()
    while header := connection.recv(8, socket.MSG_WAITALL):
        exactly(connection, struct.unpack("!Q", header)[0])
        connection.sendall(b".")


def connect(host, port, control):
    for _ in range(200):
        connection = socket.socket()
        if control != "-":
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        try:
            connection.connect((host, int(port)))
            return connection
        except ConnectionRefusedError:
            connection.close()
            time.sleep(0.05)
    raise SystemExit(f"nobody listens at {host}:{port}")


def transfer(connection, length):
    begin = time.monotonic()
    connection.sendall(struct.pack("!Q", length) + bytes(length))
    exactly(connection, 1)
    return time.monotonic() - begin


def idle(host, port, control):
    connection = connect(host, port, control)
    for kib in (64, 256, 1024):
        for _ in range(4):
            transfer(connection, 2 << 20)
        warm = transfer(connection, kib << 10)
        time.sleep(1)
        print(f"{kib:5} KiB   {warm * 1e3:6.1f} ms without rest   {transfer(connection, kib << 10) * 1e3:6.1f} ms after 1 s", flush=True)


def bulk(host, port, control, length):
    connection = connect(host, port, control)
    seconds = transfer(connection, int(length))
    time.sleep(0.5)  # acknowledgements of acknowledgements
    said = subprocess.run(["ss", "-tinH", "dst", f"{host}:{port}"], capture_output=True, text=True, check=True).stdout
    again = [word for word in said.split() if word.startswith("retrans:")]
    counted = subprocess.run(["nstat", "-asz", "TcpRetransSegs"], capture_output=True, text=True, check=True).stdout
    print(f"transferred {int(length) / seconds / 1e6:.1f} MB/s")
    print(f"ss {int(again[0].split('/')[1]) if again else 0}")
    print(f"nstat {counted.split()[counted.split().index('TcpRetransSegs') + 1]}", flush=True)


if __name__ == "__main__":
    {"serve": serve, "idle": idle, "bulk": bulk}[sys.argv[1]](*sys.argv[2:])

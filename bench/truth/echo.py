"""An echo server and its clients in asyncio: echo.py CLIENTS MESSAGES. Prints what both have counted."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter

count: Counter[str] = Counter()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    count["connections"] += 1
    while data := await reader.read(1 << 16):
        count["server_received"] += len(data)
        writer.write(data)
        count["server_sent"] += len(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def client(port: int, messages: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(messages):
        message = b"x" * random.randrange(1, 20_000)
        writer.write(message)
        count["client_sent"] += len(message)
        answer = await reader.readexactly(len(message))
        count["client_received"] += len(answer)
    writer.close()
    await writer.wait_closed()


async def main(clients: int, messages: int) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.gather(*(client(port, messages) for _ in range(clients)))
    await asyncio.sleep(0.2)  # the server's ends are closed, too
    server.close()
    await server.wait_closed()
    for name, value in count.items():
        print(name, value)


asyncio.run(main(*map(int, sys.argv[1:])))

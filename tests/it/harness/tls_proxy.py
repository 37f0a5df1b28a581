"""Takes TLS with a fresh certificate for 'localhost' and leads it, bare, to a port of 127.0.0.1.

Arguments: a folder, the port. Prints one JSON line {"port": …} when it listens; the authority is
in <folder>/ca.pem. Ends when its standard input closes.
"""

import asyncio
import json
import pathlib
import sys

tests = pathlib.Path(__file__).parents[3] / "crates/relay/tests/it"
sys.path.append(str(tests))
from certificate import certificate  # noqa: E402


async def copy(reader, writer):
    try:
        while data := await reader.read(64 * 1024):
            writer.write(data)
            await writer.drain()
    except OSError:
        # Either side may go at any time.
        pass
    finally:
        writer.close()


async def main():
    folder, upstream = pathlib.Path(sys.argv[1]), int(sys.argv[2])

    async def lead(reader, writer):
        outer_reader, outer_writer = await asyncio.open_connection("127.0.0.1", upstream)
        await asyncio.gather(copy(reader, outer_writer), copy(outer_reader, writer))

    server = await asyncio.start_server(lead, "127.0.0.1", 0, ssl=certificate(folder))
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())

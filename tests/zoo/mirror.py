"""A web server on this machine that serves one folder's worth of files well or badly, as a test asks."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Mirror:
    """What the server has, how it misbehaves, and what it was asked."""

    files: dict[str, bytes]
    ranges: bool = True
    length: bool = True  # whether the answer says how long it is
    cuts: list[int] = field(default_factory=list)  # bytes after which the next answers break off
    shift: int = 0  # how far beside the asked range the answer lies
    url: str = ""
    requests: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def serving(mirror: Mirror) -> Iterator[Mirror]:
    """Serve until the block ends; `url` is then a mirror's address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            byte_range = self.headers.get("Range")
            mirror.requests.append((self.path[1:], byte_range))
            contents = mirror.files.get(self.path[1:])
            if contents is None:
                self.send_error(404)
                return
            start = int(re.findall(r"\d+", byte_range)[0]) + mirror.shift if byte_range and mirror.ranges else 0
            body = contents[start:]
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(contents) - 1}/{len(contents)}")
            if mirror.length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: mirror.cuts.pop(0)] if mirror.cuts else body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass  # standard error is the tests'

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        mirror.url = f"http://127.0.0.1:{server.server_port}/"
        yield mirror
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

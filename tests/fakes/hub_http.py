"""The fake Hub's side of HTTP: requests in, faults, answers out. What is answered stands in hub_routes.py."""

from __future__ import annotations

import contextlib
import io
import json
import re
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fakes.hub_repo import BLOCK, HubError

if TYPE_CHECKING:
    from tests.fakes.hub import FakeHub


@dataclass
class Answer:
    """What is sent back: `body` as JSON or, where given, bytes `start` to `end` (exclusive) of `file`."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    file: Path | None = None
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class Route:
    method: str
    path: re.Pattern[str]
    function: Callable[..., Answer]
    streams: bool


ROUTES: list[Route] = []


def route(method: str, path: str, *, streams: bool = False) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Let a method of the handler answer requests whose (still encoded) path matches wholly.

    It runs under the hub's lock with the body read into `self.data`, or, if it `streams`, with neither.
    """

    def register(function: Callable[..., Answer]) -> Callable[..., Answer]:
        ROUTES.append(Route(method, re.compile(path), function, streams))
        return function

    return register


class Server(ThreadingHTTPServer):
    """Listens on a free port of 127.0.0.1, a thread for each connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, hub: FakeHub, handler: type[Handler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.hub = hub
        self._connections: set[socket.socket] = set()

    def finish_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        try:
            super().finish_request(request, client_address)
        finally:
            self._connections.discard(request)

    def hang_up_all(self) -> None:
        """End the connections that clients keep open: a closed hub must not go on answering."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # clients that go away are what some tests are about
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection. A subclass says in `call` who may call which route."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes; without this each answer waits 40 ms
    server: Server

    def call(self, function: Callable[..., Answer], groups: dict[str, str]) -> Answer:
        raise NotImplementedError

    def log_message(self, *args: Any) -> None:
        """Nothing to stderr: requests are in the hub's log."""

    def handle_request(self) -> None:
        self.hub = self.server.hub
        self.query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        self.pieces = self.receive()
        self.record = self.hub.open_record(self.command, self.path, self.headers.get("Range"))
        fault = self.record.fault
        trouble = fault.kind if fault else ""
        time.sleep(fault.seconds if fault else 0)
        try:
            if trouble == "truncate":
                self.receive_half()
            if trouble in ("truncate", "drop before"):
                return self.hang_up()
            answer = self.refuse(fault.error) if fault and fault.error else self.find_answer()
            for _ in self.pieces:
                pass  # unread bytes would be taken for the next request
        except ConnectionError:
            return self.hang_up()  # the client went away while sending
        if trouble == "drop after":
            return self.hang_up()
        self.send_answer(answer, halfway=trouble == "drop halfway")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_request

    def find_answer(self) -> Answer:
        path, method = urlsplit(self.path).path, "GET" if self.command == "HEAD" else self.command
        for known in ROUTES:
            if known.method == method and (match := known.path.fullmatch(path)):
                groups = {key: unquote(value or "") for key, value in match.groupdict().items()}
                try:
                    if known.streams:
                        return known.function(self, **groups)
                    self.data = b"".join(self.pieces)
                    with self.hub.lock:
                        return self.call(known.function, groups)
                except HubError as error:
                    return self.refuse(error)
                except ConnectionError:
                    raise
                except Exception:  # 501, for the clients try again on 500
                    return Answer({"error": f"bug in the fake Hub\n{traceback.format_exc()}"}, 501)
        return Answer({"error": f"the fake Hub has no {self.command} {path}"}, 501)

    def refuse(self, error: HubError) -> Answer:
        code = {"X-Error-Code": error.code} if error.code else {}
        message = error.message.encode("ascii", "replace").decode()
        return Answer({"error": error.message}, error.status, {"X-Error-Message": message, **code, **error.headers})

    def receive(self) -> Iterator[bytes]:
        """The request's body, in pieces. Raises ConnectionError where the client stops short."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            yield from self.receive_bytes(int(self.headers.get("Content-Length") or 0))
            return
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            yield from self.receive_bytes(size)
            self.rfile.readline()
        self.rfile.readline()

    def receive_bytes(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self.rfile.read(min(BLOCK, size))
            if not piece:
                raise ConnectionError("the client stopped in the middle of the body")
            size -= len(piece)
            self.record.bytes_in += len(piece)
            yield piece

    def receive_half(self) -> None:
        """Half of the body, or its first chunk where the client does not say how long it is."""
        if length := self.headers.get("Content-Length"):
            for _ in self.receive_bytes(int(length) // 2):
                pass
        else:
            next(self.pieces, None)

    def send_answer(self, answer: Answer, *, halfway: bool) -> None:
        """Send it, or half of its body. The log is written first: who has the answer finds it in the log."""
        data = b"" if answer.file else json.dumps(answer.body).encode()
        length = answer.end - answer.start if answer.file else len(data)
        kind = "application/octet-stream" if answer.file else "application/json"
        self.record.status = answer.status
        self.send_response(answer.status)
        for name, value in {"Content-Type": kind, "Content-Length": str(length), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        left = length // 2 if halfway else length
        with open(answer.file, "rb") if answer.file else io.BytesIO(data) as source:
            source.seek(answer.start)
            while left:
                piece = source.read(min(BLOCK, left))
                left -= len(piece)
                self.record.bytes_out += len(piece)
                self.wfile.write(piece)
        if halfway:
            self.hang_up()

    def hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Servers that real clients talk to: HTTPS with a package index, a git repository, a bucket, uploads and event streams;
gRPC; WebSocket. Started by the tests inside the private internet:

    services.py ADDRESS CERT KEY DIRECTORY

HTTPS is on port 8443, gRPC on 8444, WebSocket on 8445. Prints "ready". Each answer says which x-api-key came."""
import asyncio
import hashlib
import http.server
import os
import ssl
import subprocess
import sys
import threading
import time

ADDRESS, CERT, KEY, DIRECTORY = sys.argv[1:5]
PART = b"x" * 65536


def context(*alpn):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(CERT, KEY)
    if alpn:
        made.set_alpn_protocols(alpn)
    return made


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    rbufsize = 1 << 18

    def log_message(self, *_):
        pass

    def reply(self, body, kind="text/plain", status=200, **headers):
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        """The request's body, a part at a time."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return
        left = int(self.headers.get("content-length", 0))
        while left:
            part = self.rfile.read(min(left, 1 << 20))
            if not part:
                raise ConnectionError("cut")
            left -= len(part)
            yield part

    def upload(self):
        """How much came, its digest, and which key it came with."""
        total, digest = 0, hashlib.sha256()
        for part in self.body():
            total += len(part)
            digest.update(part)
        text = "" if self.path.startswith("/bucket/") else f"{total} {digest.hexdigest()} {self.headers.get('x-api-key')}"
        self.reply(text.encode(), ETag=f'"{digest.hexdigest()[:32]}"')

    def handle_expect_100(self):
        type(self).expected = True
        return super().handle_expect_100()

    expected = False

    def git(self):
        path, _, query = self.path.partition("?")
        env = {"GIT_PROJECT_ROOT": DIRECTORY, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path[len("/git"):],
               "QUERY_STRING": query, "REQUEST_METHOD": self.command, "PATH": os.environ["PATH"],
               "CONTENT_TYPE": self.headers.get("content-type", ""), "REMOTE_ADDR": "203.0.113.1",
               "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
               "GIT_PROTOCOL": self.headers.get("git-protocol", "")}
        done = subprocess.run(["git", "-c", "safe.directory=*", "http-backend"], env={**env, "HOME": DIRECTORY},
                              input=b"".join(self.body()), stdout=subprocess.PIPE, check=True).stdout
        head, _, rest = done.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        status = int(fields.pop("Status", "200").split()[0])
        kind = fields.pop("Content-Type", "text/plain")
        self.reply(rest, kind, status, **fields)

    def events(self):
        """One event at once, the next when the client has said (by a file) that it has the first."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in (1, 2):
            text = f"data: {number}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
            self.wfile.flush()
            for _ in range(200):
                if number == 2 or Handler.seen:
                    break
                time.sleep(0.05)
        self.wfile.write(b"0\r\n\r\n")

    seen = False

    def do_GET(self):
        if self.path.startswith("/git/"):
            self.git()
        elif self.path == "/events":
            self.events()
        elif self.path == "/seen":
            Handler.seen = True
            self.reply(b"ok")
        elif self.path == "/expected":
            self.reply(str(Handler.expected).encode())
        elif self.path == "/simple/cellatest/":
            self.reply(b'<a href="/simple/cellatest-1.0-py3-none-any.whl">cellatest-1.0-py3-none-any.whl</a>', "text/html")
        elif self.path.startswith("/download/"):
            self.send_response(200)
            size = int(self.path.rsplit("/", 1)[1])
            self.send_header("content-length", str(size))
            self.end_headers()
            for at in range(0, size, len(PART)):
                self.wfile.write(PART[:size - at])
        elif self.path.endswith(".whl"):
            with open(f"{DIRECTORY}/wheel.whl", "rb") as handle:
                self.reply(handle.read(), "application/octet-stream")
        elif self.path.startswith("/bucket/"):
            self.reply(b"object", "binary/octet-stream", ETag='"e"', **{"Last-Modified": "Mon, 30 Nov 2026 00:00:00 GMT"})
        else:
            self.reply(f"{self.request_version} {self.headers.get('x-api-key')}".encode())
    do_HEAD = do_GET

    def do_POST(self):
        self.git() if self.path.startswith("/git/") else self.upload()
    do_PUT = upload


def https():
    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, *_):
            pass
    server = Server((ADDRESS, 8443), Handler)
    server.socket = context().wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def grpc_server():
    """Methods of bytes to bytes: unary, and streams in each direction. The metadata's key is part of the answer."""
    import grpc

    def key(context_):
        return dict(context_.invocation_metadata()).get("x-api-key", "-").encode()

    def unary(request, ctx):
        ctx.set_trailing_metadata((("x-trailer", "at-the-end"),))
        if request == b"fail":
            ctx.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked")
        return b"%d %s" % (len(request), key(ctx))

    def down(request, ctx):
        for number in range(int(request)):
            yield b"%d %s" % (number, key(ctx))

    def up(requests, ctx):
        return b"%d %s" % (sum(len(r) for r in requests), key(ctx))

    def both(requests, ctx):
        for request in requests:
            yield request + b" " + key(ctx)

    from concurrent import futures
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("cella.Test", {
        "Unary": grpc.unary_unary_rpc_method_handler(unary), "Down": grpc.unary_stream_rpc_method_handler(down),
        "Up": grpc.stream_unary_rpc_method_handler(up), "Both": grpc.stream_stream_rpc_method_handler(both)}),))
    with open(KEY, "rb") as private, open(CERT, "rb") as certificate:
        credentials = grpc.ssl_server_credentials([(private.read(), certificate.read())])
    assert server.add_secure_port(f"{ADDRESS}:8444", credentials)
    server.start()
    return server


async def websocket(socket):
    async for message in socket:
        await socket.send(f"{message} {socket.request_headers.get('x-api-key')}" if isinstance(message, str) else message)


async def main():
    import websockets
    https()
    server = grpc_server()
    async with websockets.serve(websocket, ADDRESS, 8445, ssl=context()):
        print("ready", flush=True)
        await asyncio.Future()
    server.stop(None)


if __name__ == "__main__":
    asyncio.run(main())

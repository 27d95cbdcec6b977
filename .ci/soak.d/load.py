"""The load: clients of many kinds, each a thread, which compare what they get."""

import hashlib
import json
import os
import random
import re
import socket
import struct
import subprocess
import threading
import time
from collections import Counter, deque

PIECE = 64 << 10
# Longer than any answer takes on a machine that is busy with other things, too.
PATIENCE = 90
TOKENS = b'data: {"token": "hello world this is"}\n\n' * 100
EVENT = b"data: " + b"x" * 100 + b"\n\n"
# Files that are replaced during downloads, and how many of their versions an answer may be of.
DEPLOYED, VERSIONS = {"page.html": 1_000, "app.js": 20_001, "font.bin": 300_007, "film.bin": 2_000_003}, 48
LARGE = 24 << 20


class Wrong(Exception):
    """An answer is not what it has to be."""


class Load:
    """Clients of a server, and of a second one that speaks TLS."""

    def __init__(self, work, seed):
        self.work, self.www, self.up, self.client = work, work / "www", work / "up", work / "client"
        self.seed, self.random, self.lock = seed, random.Random(seed), threading.Lock()
        self.ended, self.names = threading.Event(), 0
        self.done, self.bytes, self.cut, self.bad = Counter(), Counter(), Counter(), Counter()
        self.messages = []
        self.versions = {name: deque(maxlen=VERSIONS) for name in DEPLOYED}
        for name in DEPLOYED:
            self.deploy_one(name, self.random)
        # Stays the same; each of its pages is different.
        self.large = self.random.randbytes(LARGE)
        (self.www / "large.bin").write_bytes(self.large)
        self.threads = []

    def to(self, port, tls, streams):
        """Names the ports of the servers, and the program that makes many streams at a time."""
        self.port, self.tls, self.streams = port, tls, streams

    def run(self, seconds, recorder):
        """Runs all clients for a time. Ends early if the servers do."""
        self.ended.clear()
        # Each thread has numbers of its own, so that the seed decides what a thread does.
        for kind, count in KINDS.items():
            for index in range(count):
                numbers = random.Random(f"{self.seed} {kind.__name__} {index}")
                self.threads.append(threading.Thread(target=self.repeat, args=(kind, numbers), daemon=True))
        for thread in self.threads:
            thread.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not recorder.failure:
            time.sleep(0.2)
        self.stop()

    def stop(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(2 * PATIENCE)
            if thread.is_alive():
                self.note("clients", f"{thread.name} does not end")
        self.threads = []
        # What was cut is removed by the server once it knows.
        deadline = time.monotonic() + 30
        while list(self.up.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for left in self.up.iterdir():
            self.note("uploads", f"{left.name} is left behind")

    def repeat(self, kind, numbers):
        name = kind.__name__
        threading.current_thread().name = name
        while not self.ended.is_set():
            try:
                count = kind(self, numbers)
                with self.lock:
                    self.done[name] += 1
                    self.bytes[name] += count or 0
            except Exception as error:  # noqa: BLE001 - whatever a client meets is a result
                self.note(name, f"{type(error).__name__}: {error}")
                self.ended.wait(0.2)

    def note(self, name, message):
        with self.lock:
            self.bad[name] += 1
            if len(self.messages) < 20:
                self.messages.append(f"{name}: {' '.join(message.split())[:300]}")

    def is_cut(self, name):
        with self.lock:
            self.cut[name] += 1

    def wrong(self):
        return list(self.messages) + [f"{name}: {count} wrong answers" for name, count in self.bad.items()] + [
            f"{kind.__name__} came to no end" for kind in KINDS if not self.done[kind.__name__]]

    def table(self):
        lines = ["\n| client | done | MB | cut on purpose | wrong |", "|---|---|---|---|---|"]
        for kind in KINDS:
            name = kind.__name__
            lines.append(f"| {name} | {self.done[name]} | {self.bytes[name] / 1e6:.1f} | {self.cut[name]} | "
                         f"{self.bad[name]} |")
        return "\n".join(lines)

    def fresh(self):
        with self.lock:
            self.names += 1
            return f"n{self.names}"

    def deploy_one(self, name, numbers):
        # Of varying length, so that a head of one version with a body of another shows.
        data = numbers.randbytes(DEPLOYED[name] + numbers.randrange(1000))
        # Before the file is there, because it may be answered at once.
        with self.lock:
            self.versions[name].append((data, hashlib.sha256(data).hexdigest()))
        part = self.work / f"{name}.part"
        part.write_bytes(data)
        os.replace(part, self.www / name)

    def is_whole(self, name, data):
        if name == "large.bin":
            return data == self.large
        digest = hashlib.sha256(data).hexdigest()
        with self.lock:
            return any(digest == known for _, known in self.versions[name])

    def is_part(self, name, first, data, whole):
        """Whether `data` is that part of a version with the length `whole`."""
        if name == "large.bin":
            return whole == LARGE and data == self.large[first : first + len(data)]
        with self.lock:
            known = [version for version, _ in self.versions[name]]
        return any(len(version) == whole and version[first : first + len(data)] == data for version in known)

    def is_cut_out(self, name, first, last, data):
        """Whether `data` is what a version has from `first` to `last`."""
        if name == "large.bin":
            return data == self.large[first : last + 1]
        with self.lock:
            known = [version for version, _ in self.versions[name]]
        return any(data == version[first : last + 1] for version in known)

    def any_file(self, numbers):
        return numbers.choice([*DEPLOYED, *DEPLOYED, "large.bin"])

    def curl(self, *arguments, may_fail=False):
        """Runs curl; returns what it prints."""
        command = ["curl", "--silent", "--show-error", "--no-progress-meter", "--max-time", str(PATIENCE), *map(str, arguments)]
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=2 * PATIENCE)
        if ran.returncode != 0 and not may_fail:
            raise Wrong(f"curl exits with {ran.returncode}: {ran.stderr.decode(errors='replace').strip()}")
        return ran.stdout.decode()


class Connection:
    """A connection of HTTP/1, as careless or as slow as a test wants it."""

    def __init__(self, port, receive_buffer=None):
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))
        self.unread = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, method, path, *fields, body=b""):
        head = [f"{method} {path} HTTP/1.1", "host: localhost", *fields, "", ""]
        self.socket.sendall("\r\n".join(head).encode() + body)

    def more(self):
        data = self.socket.recv(PIECE)
        if not data:
            raise Wrong("the connection ended early")
        self.unread += data

    def line(self):
        while b"\r\n" not in self.unread:
            self.more()
        line, self.unread = self.unread.split(b"\r\n", 1)
        return line

    def exactly(self, count):
        pieces, have = [self.unread], len(self.unread)
        while have < count:
            piece = self.socket.recv(min(PIECE, count - have))
            if not piece:
                raise Wrong(f"the connection ended after {have} of {count} bytes")
            pieces.append(piece)
            have += len(piece)
        data = b"".join(pieces)
        self.unread = data[count:]
        return data[:count]

    def head(self):
        """Returns the status and the fields."""
        status = int(self.line().split(b" ")[1])
        fields = {}
        while line := self.line():
            name, value = line.split(b":", 1)
            fields[name.decode().lower()] = value.strip().decode()
        return status, fields

    def chunks(self):
        while True:
            length = int(self.line(), 16)
            data = self.exactly(length + 2)
            if data[-2:] != b"\r\n":
                raise Wrong("a chunk has another length")
            if length == 0:
                return
            yield data[:-2]

    def answer(self, expected):
        status, fields = self.head()
        if status != expected:
            raise Wrong(f"status {status}, not {expected}")
        if "content-length" in fields:
            return fields, self.exactly(int(fields["content-length"]))
        return fields, b"".join(self.chunks())

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def files(load, numbers):
    """Whole files, parts, and files that did not change, over one connection."""
    count = 0
    with Connection(load.port) as connection:
        for _ in range(numbers.randint(1, 12)):
            name = load.any_file(numbers)
            if numbers.random() < 0.4:
                first = numbers.randrange(1000)
                last = first + numbers.choice([0, 99, 70_000, LARGE])
                connection.send("GET", f"/f/{name}", f"range: bytes={first}-{last}")
                status, fields = connection.head()
                if status == 416 and name == "page.html":
                    connection.exactly(int(fields.get("content-length", 0)))
                    continue
                if status != 206:
                    raise Wrong(f"status {status} for a part of {name}")
                data = connection.exactly(int(fields["content-length"]))
                span, whole = fields["content-range"].removeprefix("bytes ").split("/")
                got_first, got_last = map(int, span.split("-"))
                if (got_first, got_last) != (first, min(last, int(whole) - 1)) or len(data) != got_last - first + 1:
                    raise Wrong(f"{fields['content-range']} for {first}-{last} of {name}")
                if not load.is_part(name, first, data, int(whole)):
                    raise Wrong(f"other bytes in {first}-{last} of {name}")
            else:
                connection.send("GET", f"/f/{name}")
                fields, data = connection.answer(200)
                if not load.is_whole(name, data):
                    raise Wrong(f"other bytes in {name}, {len(data)} of them")
                if name == "large.bin":
                    connection.send("GET", f"/f/{name}", f"if-none-match: {fields['etag']}")
                    status, _ = connection.head()
                    if status != 304:
                        raise Wrong(f"status {status} for what did not change")
            count += len(data)
    return count


def tokens(load, numbers):
    """Answers that are streamed to their end."""
    with Connection(load.port) as connection:
        requests = numbers.randint(1, 50)
        for _ in range(requests):
            connection.send("GET", "/tokens")
            if connection.answer(200)[1] != TOKENS:
                raise Wrong("other tokens")
    return requests * len(TOKENS)


def events(load, numbers):
    """Endless events, left by closing or by a reset."""
    with Connection(load.port) as connection:
        connection.send("GET", f"/events?hz={numbers.choice([10, 100, 1000])}")
        if connection.head()[0] != 200:
            raise Wrong("no events")
        data, until = bytearray(), time.monotonic() + numbers.uniform(0.1, 4)
        for chunk in connection.chunks():
            data += chunk
            if time.monotonic() > until or load.ended.is_set():
                break
        if data != (EVENT * (len(data) // len(EVENT) + 1))[: len(data)]:
            raise Wrong("other events")
        load.is_cut("events")
        if numbers.random() < 0.5:
            connection.reset()
    return len(data)


def live(load, numbers):
    """Events of the hub, with replay."""
    with Connection(load.port) as connection:
        connection.send("GET", "/live?lastEventId=0", "accept: text/event-stream")
        if connection.head()[0] != 200:
            raise Wrong("no live events")
        data, wanted = b"", numbers.randint(1, 5)
        for chunk in connection.chunks():
            data += chunk
            if data.count(b"\n\n") > wanted or load.ended.is_set():
                break
        for event in data.split(b"\n\n")[:-1]:
            for line in event.split(b"\n"):
                if line.startswith(b"data:"):
                    json.loads(line[5:])
        load.is_cut("live")
    return len(data)


def resets(load, numbers):
    """Downloads that are reset in the middle."""
    with Connection(load.port) as connection:
        connection.send("GET", "/f/large.bin")
        connection.head()
        data = connection.exactly(numbers.randrange(1, 4 << 20))
        if data != load.large[: len(data)]:
            raise Wrong("other bytes before a reset")
        connection.reset()
    load.is_cut("resets")
    return len(data)


def slow(load, numbers):
    """A reader that takes a hundred to a thousand KiB a second."""
    with Connection(load.port, receive_buffer=16 << 10) as connection:
        connection.send("GET", "/f/large.bin")
        connection.head()
        position, until = 0, time.monotonic() + numbers.uniform(1, 15)
        step, rest = numbers.choice([(16 << 10, 0.1), (64 << 10, 0.06), (1 << 10, 0.01)])
        while time.monotonic() < until and not load.ended.is_set() and position + step <= LARGE:
            if connection.exactly(step) != load.large[position : position + step]:
                raise Wrong(f"other bytes at {position}")
            position += step
            time.sleep(rest)
    load.is_cut("slow")
    return position


def stalled(load, numbers):
    """A reader that stops, a head that stays unfinished, a connection without a request."""
    with Connection(load.port, receive_buffer=8 << 10) as connection:
        kind = numbers.randrange(4)
        if kind == 0:
            connection.socket.sendall(b"GET /f/large.bin HTTP/1.1\r\nhost: loc")
        elif kind == 1:
            connection.send("GET", numbers.choice(["/f/large.bin", "/events?hz=1000"]))
        elif kind == 2:
            connection.send("PUT", f"/upload/{load.fresh()}", "content-length: 5000000", body=bytes(10_000))
        # Beyond the 30 s after which the server ends it, now and then.
        load.ended.wait(numbers.choice([0.5, 3, 12, 40]))
    load.is_cut("stalled")


def churn(load, numbers):
    """Connections with a request each, or none."""
    for _ in range(30):
        with Connection(load.port) as connection:
            if numbers.random() < 0.2:
                continue
            connection.send("GET", "/hello", *(["connection: close"] if numbers.random() < 0.5 else []))
            if connection.answer(200)[1] != b'{"msg":"ok"}':
                raise Wrong("another greeting")
    return 0


def uploads(load, numbers):
    """Files that are uploaded, by length or in chunks, and compared on the disk; some are cut."""
    name, data = load.fresh(), numbers.randbytes(numbers.choice([0, 1, 5000, 70_000, 1_500_000]))
    with Connection(load.port) as connection:
        if numbers.random() < 0.3:
            connection.send("PUT", f"/upload/{name}", f"content-length: {len(data) + 1}", body=data)
            if numbers.random() < 0.5:
                connection.reset()
            load.is_cut("uploads")
            return 0
        if numbers.random() < 0.5:
            connection.send("PUT", f"/upload/{name}", f"content-length: {len(data)}", body=data)
        else:
            connection.send("PUT", f"/upload/{name}", "transfer-encoding: chunked")
            for start in range(0, len(data), 50_000):
                piece = data[start : start + 50_000]
                connection.socket.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            connection.socket.sendall(b"0\r\n\r\n")
        connection.answer(201)
    if (load.up / name).read_bytes() != data:
        raise Wrong(f"other bytes in upload {name}")
    (load.up / name).unlink()
    return len(data)


def deploy(load, numbers):
    """Replaces the files that others download."""
    load.deploy_one(numbers.choice(list(DEPLOYED)), numbers)
    load.ended.wait(0.3)


def by_curl(load, numbers, base, http, version, most):
    """Up to `most` files at a time, whole or in part; HTTP/2 has them on one connection."""
    kept, arguments, wanted = [], [], []
    first, last = 100, numbers.choice([199, 50_000])
    in_part = numbers.random() < 0.3
    for _ in range(numbers.randint(1, most)):
        name, path = load.any_file(numbers), load.client / load.fresh()
        kept.append(path)
        wanted.append(name)
        arguments += ["--output", path, base + name]
    options = [http, "--insecure", "--write-out", "%{http_code} %{http_version}\n"]
    if most > 1:
        options += ["--parallel"]
    if in_part:
        options += ["--range", f"{first}-{last}"]
    try:
        printed = load.curl(*options, *arguments)
        expected = f"{206 if in_part else 200} {version}"
        if printed.split("\n")[:-1] != [expected] * len(wanted):
            raise Wrong(f"{printed!r}, not {expected}")
        count = 0
        for name, path in zip(wanted, kept):
            data = path.read_bytes()
            count += len(data)
            if not (load.is_cut_out(name, first, last, data) if in_part else load.is_whole(name, data)):
                raise Wrong(f"other bytes in {name}, {len(data)} of them")
        return count
    finally:
        for path in kept:
            path.unlink(missing_ok=True)


def http2(load, numbers):
    # curl before 8 cannot use a connection a second time that began as HTTP/2 without TLS; `tls` has several streams.
    return by_curl(load, numbers, f"http://127.0.0.1:{load.port}/f/", "--http2-prior-knowledge", "2", 1)


def tls(load, numbers):
    http, version = numbers.choice([("--http2", "2"), ("--http1.1", "1.1")])
    return by_curl(load, numbers, f"https://127.0.0.1:{load.tls}/", http, version, 8)


def streams(load, numbers):
    """Many streams at a time by examples/load, over HTTP/2 without TLS; it counts what arrives, and ends by resets."""
    url = f"http://127.0.0.1:{load.port}" + numbers.choice(["/tokens", "/events?hz=200"])
    seconds = str(numbers.randint(1, 3))
    ran = subprocess.run([load.streams, "--streams", "40", "--seconds", seconds, "--h2", url], stdin=subprocess.DEVNULL,
                         capture_output=True, timeout=PATIENCE)
    # A machine with much to do may be late with some of them.
    late = re.search(rb"error: (\d+) of 40 streams had no answer", ran.stderr)
    if ran.returncode != 0 and not (late and int(late[1]) < 40):
        raise Wrong(f"load ended with {ran.returncode}: {ran.stderr.decode(errors='replace').strip()}")


def http2_resets(load, numbers):
    """A stream that the client gives up, by a reset and the end of its connection."""
    url, path = f"http://127.0.0.1:{load.port}", load.client / load.fresh()
    url += numbers.choice(["/events?hz=1000", "/f/large.bin"])
    try:
        load.curl("--http2-prior-knowledge", "--max-time", f"{numbers.uniform(0.2, 1.5):.2f}", "--limit-rate", "300K",
                  "--output", path, url, may_fail=True)
        data = path.read_bytes() if path.exists() else b""
        if data not in (load.large[: len(data)], (EVENT * (len(data) // len(EVENT) + 1))[: len(data)]):
            raise Wrong("other bytes before a reset")
        load.is_cut("http2_resets")
        return len(data)
    finally:
        path.unlink(missing_ok=True)


def http2_tokens(load, numbers):
    """Tokens over HTTP/2, compared; `streams` has many at a time, and counts them."""
    if load.curl("--http2-prior-knowledge", f"http://127.0.0.1:{load.port}/tokens").encode() != TOKENS:
        raise Wrong("other tokens")
    return len(TOKENS)


def http2_uploads(load, numbers):
    name, path = load.fresh(), load.client / load.fresh()
    data = numbers.randbytes(numbers.choice([1, 5000, 200_000, 3_000_000]))
    path.write_bytes(data)
    try:
        url = f"http://127.0.0.1:{load.port}/upload/{name}"
        load.curl("--http2-prior-knowledge", "--fail", "--upload-file", path, url)
        if (load.up / name).read_bytes() != data:
            raise Wrong(f"other bytes in upload {name}")
        (load.up / name).unlink()
        return len(data)
    finally:
        path.unlink(missing_ok=True)


# Clients at a time.
KINDS = {
    files: 3, tokens: 2, events: 6, live: 3, resets: 2, slow: 6, stalled: 8, churn: 2, uploads: 2, deploy: 1,
    http2: 2, http2_resets: 1, http2_tokens: 1, http2_uploads: 1, streams: 1, tls: 2,
}

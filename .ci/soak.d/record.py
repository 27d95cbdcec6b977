"""Samples of what the servers hold, once a second, and a plot of them."""

import os
import re
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass

COLUMNS = (
    "seconds,phase,rss_kib,descriptors,threads,connections,active_requests,queued_bytes,requests,"
    "tls_rss_kib,tls_descriptors,tls_threads\n"
)


def open_descriptors(pid):
    """Returns what the descriptors of a process stand for, and how many stand for each."""
    names = Counter()
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            names[re.sub(r":\[\d+\]", "", os.readlink(f"/proc/{pid}/fd/{number}"))] += 1
        except FileNotFoundError:
            pass
    return names


@dataclass
class Sample:
    """Pairs are of serve and tls; memory is in KiB."""

    at: float
    phase: str
    rss: tuple
    descriptors: tuple
    names: tuple
    threads: tuple
    connections: int
    active: int
    queued: int
    requests: int


class Recorder:
    """A thread that takes samples until `stop`. `failure` says why it ended before."""

    def __init__(self, path, metrics, pids):
        self.phase, self.samples, self.failure, self.last = "start", [], None, None
        self.file, self.metrics, self.pids = open(path, "w"), metrics, pids
        self.file.write(COLUMNS)
        self.began = time.monotonic()
        self.ended, self.taken = threading.Event(), threading.Condition()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        n = 0
        while not self.ended.wait(max(0, self.began + n - time.monotonic())):
            n = max(n, int(time.monotonic() - self.began)) + 1
            try:
                sample = self.take()
            except Exception as error:  # noqa: BLE001 - a server that ended is a result
                self.failure = f"no sample after {time.monotonic() - self.began:.0f} s: {error!r}"
                with self.taken:
                    self.taken.notify_all()
                return
            first, second = zip(sample.rss, sample.descriptors, sample.threads)
            row = (f"{sample.at:.1f}", sample.phase, *first, sample.connections, sample.active, sample.queued,
                   sample.requests, *second)
            self.file.write(",".join(map(str, row)) + "\n")
            self.file.flush()
            with self.taken:
                self.samples.append(sample)
                self.last = sample
                self.taken.notify_all()

    def take(self):
        held = []
        for pid in self.pids:
            with open(f"/proc/{pid}/status") as status:
                status = status.read()
            if re.search(r"^State:\s+[ZX]", status, re.M):
                raise RuntimeError(f"process {pid} ended")
            value = lambda name: int(re.search(rf"^{name}:\s+(\d+)", status, re.M)[1])  # noqa: E731
            names = open_descriptors(pid)
            held.append((value("VmRSS"), names.total(), names, value("Threads")))
        rss, descriptors, names, threads = zip(*held)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=30) as page:
            page = page.read().decode()
        value = lambda name: int(float(re.search(rf"^{name} (\S+)$", page, re.M)[1]))  # noqa: E731
        # The page itself is asked for by a connection.
        return Sample(
            time.monotonic() - self.began, self.phase, rss, descriptors, names, threads,
            value("millstream_open_connections") - 1, value("millstream_active_requests"),
            value("millstream_queued_bytes"), value("millstream_requests_total"),
        )

    def next(self):
        """Waits for the next sample; None if there will be none."""
        with self.taken:
            count = len(self.samples)
            self.taken.wait_for(lambda: self.failure or len(self.samples) > count, timeout=60)
            return self.last if len(self.samples) > count else None

    def stop(self):
        if not self.ended.is_set():
            self.ended.set()
            self.thread.join()
            self.file.close()


def plot(samples, path):
    """Writes memory and descriptors over time as an SVG that needs no other file."""
    width, height, left, top = 900, 230, 70, 40
    end = max((s.at for s in samples), default=1) or 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + left + 30} {2 * height + 140}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    x = lambda at: left + at / end * width  # noqa: E731
    panels = [
        ("RSS, MiB", [[s.rss[i] / 1024 for s in samples] for i in (0, 1)]),
        ("descriptors", [[s.descriptors[i] for s in samples] for i in (0, 1)]),
    ]
    for number, (title, lines) in enumerate(panels):
        base = top + number * (height + 50) + height
        highest = max((max(line, default=1) for line in lines), default=1) * 1.1 or 1
        begin = 0
        for index in range(1, len(samples) + 1):
            if index == len(samples) or samples[index].phase != samples[begin].phase:
                start, stop = x(samples[begin].at), x(samples[index].at if index < len(samples) else end)
                shade = "#f0f4ff" if samples[begin].phase in ("load", "warm-up") else "#ffffff"
                parts.append(f'<rect x="{start:.1f}" y="{base - height}" width="{stop - start:.1f}" height="{height}" '
                             f'fill="{shade}"/>')
                if number == 0:
                    parts.append(f'<text x="{start + 3:.1f}" y="{base - height + 14}" fill="#667">'
                                 f"{samples[begin].phase}</text>")
                begin = index
        for step in range(5):
            y = base - height * step / 4
            parts.append(f'<path d="M{left} {y}H{left + width}" stroke="#ccc"/>'
                         f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{highest * step / 4:.0f}</text>')
        for step in range(7):
            parts.append(f'<text x="{x(end * step / 6):.1f}" y="{base + 16}" text-anchor="middle">'
                         f"{end * step / 6:.0f} s</text>")
        parts.append(f'<text x="{left}" y="{base - height - 8}" font-weight="bold">{title}</text>')
        for index, (line, colour, name) in enumerate(zip(lines, ("#1f5fbf", "#c05a10"), ("serve", "tls"))):
            points = " ".join(f"{x(s.at):.1f},{base - value / highest * height:.1f}" for s, value in zip(samples, line))
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
                         f'<text x="{left + width - 90 + 50 * index}" y="{base - height - 8}" fill="{colour}">{name}</text>')
    parts.append("</svg>\n")
    path.write_text("\n".join(parts))

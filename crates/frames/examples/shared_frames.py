#!/usr/bin/env python3
"""Exchanges bodies with a Rust service in shared memory; PROTOCOL.md has the protocol.

    python3 shared_frames.py produce SOCKET < FILE     the service streams the bytes to one HTTP client
    python3 shared_frames.py consume SOCKET > FILE     the bytes of one upload to the service

Needs Linux and Python 3.9, and nothing else. Sender and Receiver are written to be copied.
"""

import argparse
import fcntl
import mmap
import os
import socket
import struct
import sys

# Kind, number of frames, number of bytes.
MESSAGE = struct.Struct("<4sIQ")
FIXED = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class Broken(Exception):
    """The other process breaks the protocol, or has ended."""


class Link:
    """The socket: messages of 16 bytes, with a descriptor for each frame."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)

    def put(self, kind, frames, size, descriptors=()):
        message = MESSAGE.pack(kind, frames, size)
        if socket.send_fds(self.socket, [message], descriptors) != len(message):
            raise Broken("a message was cut")

    def take(self):
        """Returns the next message: its kind, two numbers, and the descriptor of a frame or None."""
        message, descriptors = b"", []
        while len(message) < MESSAGE.size:
            part, more, flags, _ = socket.recv_fds(self.socket, MESSAGE.size - len(message), 1)
            descriptors += more
            if not part or flags & socket.MSG_CTRUNC:
                for descriptor in descriptors:
                    os.close(descriptor)
                raise Broken("the other process has ended the connection")
            message += part
        kind, frames, size = MESSAGE.unpack(message)
        if len(descriptors) != (kind == b"FRAM"):
            for descriptor in descriptors:
                os.close(descriptor)
            raise Broken(f"{kind} with {len(descriptors)} descriptors")
        return kind, frames, size, descriptors[0] if descriptors else None


class Sender(Link):
    """Frames for the other process."""

    def __init__(self, path):
        super().__init__(path)
        self.put(b"MSF1", 0, 0)
        kind, self.frames, self.size, _ = self.take()
        if kind != b"MSF1" or not self.frames:
            raise Broken("it does not receive frames")
        self.largest = self.size
        self.sent = [0, 0]
        # Closing the last descriptor of a frame frees its memory. That is left to this process.
        self.kept = []

    def send(self, data):
        """Sends a frame of at most `largest` bytes. Waits until the other process needs earlier ones no more."""
        if not data:
            return
        descriptor = os.memfd_create("frame", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left):]
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, FIXED | fcntl.F_SEAL_SEAL)
            while self.frames < 1 or self.size < len(data):
                self.take_credit()
            self.put(b"FRAM", 1, len(data), [descriptor])
        except BaseException:
            os.close(descriptor)
            raise
        self.kept.append(descriptor)
        self.frames -= 1
        self.size -= len(data)
        self.sent[0] = (self.sent[0] + 1) % (1 << 32)
        self.sent[1] += len(data)

    def take_credit(self):
        kind, frames, size, _ = self.take()
        if kind != b"CRED":
            raise Broken(f"{kind} in place of credit")
        self.frames += frames
        self.size += size
        for descriptor in self.kept[:frames]:
            os.close(descriptor)
        del self.kept[:frames]

    def finish(self):
        """Ends the frames, and waits until the other process has taken all of them."""
        try:
            self.put(b"DONE", *self.sent)
        except BrokenPipeError:
            pass  # It may have taken all before.
        while True:
            kind, frames, size, _ = self.take()
            if kind == b"DONE":
                break
        self.socket.close()
        for descriptor in self.kept:
            os.close(descriptor)
        if [frames, size] != self.sent:
            raise Broken("it has taken a part of the frames")


class Receiver(Link):
    """Frames from the other process. A loop over it ends with the frames."""

    def __init__(self, path, frames=16, size=16 << 20):
        super().__init__(path)
        self.put(b"MSF1", frames, size)
        kind, frames, _, _ = self.take()
        if kind != b"MSF1" or frames:
            raise Broken("it does not send frames")

    def __iter__(self):
        """Yields each frame as a mapping, which is valid until the next one."""
        taken = [0, 0]
        while True:
            kind, frames, size, descriptor = self.take()
            if kind == b"DONE":
                if [frames, size] != taken:
                    raise Broken("frames were lost")
                self.put(b"DONE", *taken)
                self.socket.close()
                return
            if kind != b"FRAM":
                raise Broken(f"{kind} in place of a frame")
            try:
                if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & FIXED != FIXED:
                    raise Broken("a frame that is not sealed")
                # Private, because before Linux 6.7 a sealed file cannot be shared. Nothing is written to it.
                frame = mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
            finally:
                os.close(descriptor)
            with frame:
                yield frame
            taken = [(taken[0] + 1) % (1 << 32), taken[1] + size]
            self.put(b"CRED", 1, size)


def produce(path, length):
    sender = Sender(path)
    while data := sys.stdin.buffer.read(min(length, sender.largest)):
        sender.send(data)
    sender.finish()


def consume(path):
    for frame in Receiver(path):
        sys.stdout.buffer.write(frame)
    sys.stdout.buffer.flush()


def main():
    parser = argparse.ArgumentParser(description="Exchanges a body with a Rust service in shared memory.")
    parser.add_argument("action", choices=["produce", "consume"])
    parser.add_argument("socket", help="path of the Unix socket")
    parser.add_argument("--frame", type=int, default=1 << 20, metavar="BYTES", help="length of a produced frame")
    options = parser.parse_args()
    try:
        if options.action == "produce":
            produce(options.socket, options.frame)
        else:
            consume(options.socket)
    except (Broken, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

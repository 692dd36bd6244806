"""Server-sent events, cut out of a body wherever its packets were cut. Pure."""

from __future__ import annotations


class EventReader:
    """Cuts a body into the payloads of its server-sent events (WHATWG HTML, 9.2.6), wherever the packets were cut.

    Understands LF, CRLF and CR line ends, comments, other fields and data over several lines.
    """

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that this piece completes."""
        if self.rest:
            data = self.rest + data
        if b"\r" in data:
            data = _unix_lines(data)
        blocks = data.split(b"\n\n")
        self.rest = blocks.pop()
        return [_payload(block) for block in blocks if block]


def _unix_lines(data: bytes) -> bytes:
    """LF line ends only; a CR at the very end waits for the LF that may follow it."""
    held = b"\r" if data.endswith(b"\r") else b""
    body = data[:-1] if held else data
    return body.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held


def _payload(block: bytes) -> bytes:
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)

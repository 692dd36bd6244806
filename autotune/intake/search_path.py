"""``PATH`` as a study stores it: each folder once, and none of a virtual environment that the script leaves. Pure."""

from __future__ import annotations


def without_doubles(path: str) -> str:
    """Each folder where it stands first: the later ones are never looked into."""
    return ":".join(dict.fromkeys(path.split(":")))


def activated(path: str, root: str, active: str) -> str:
    """The path with ``root/bin`` in front, as ``bin/activate`` makes it: the environment that was active leaves."""
    left = [folder for folder in path.split(":") if not active or folder.rstrip("/") != f"{active.rstrip('/')}/bin"]
    return without_doubles(":".join([f"{root}/bin", *left]))

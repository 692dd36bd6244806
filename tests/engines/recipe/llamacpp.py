"""llama.cpp's own HTTP server out of the xllamacpp package, as a process with the flags of llama-server.

The package is the library with the server inside; what reads a command line is not in it, so that part is here, with
llama-server's words for a flag that it does not know.
"""

import argparse
import signal
import sys
import threading
from typing import NoReturn

import xllamacpp

NUMBERS = {"ctx-size": "n_ctx", "parallel": "n_parallel", "batch-size": "n_batch", "ubatch-size": "n_ubatch"}
SWITCHES = {"metrics": "endpoint_metrics", "slots": "endpoint_slots", "props": "endpoint_props"}


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line that names the first unknown flag, and exit status 1."""
        words = message.removeprefix("unrecognized arguments: ")
        unknown = f"invalid argument: {words.split()[0]}" if words != message else message
        print(f"error: {unknown}", file=sys.stderr)
        sys.exit(1)


def parse() -> argparse.Namespace:
    """The flags that the tests use."""
    parser = Parser(prog="llama-server", allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", default="default")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    for name in (*NUMBERS, "threads", "threads-batch"):
        parser.add_argument(f"--{name}", type=int)
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args()


def params(args: argparse.Namespace) -> xllamacpp.CommonParams:
    """The library's own record of parameters; what was not given keeps the library's default."""
    found = xllamacpp.CommonParams()
    found.model.path, found.model_alias = args.model, {args.alias}
    found.hostnames, found.port = [args.host], args.port
    for name, field in NUMBERS.items():
        value = getattr(args, name.replace("-", "_"))
        if value is not None:
            setattr(found, field, value)
    for name, field in SWITCHES.items():
        setattr(found, field, getattr(args, name))
    if args.threads:
        found.cpuparams.n_threads = args.threads
    if args.threads_batch:
        found.cpuparams_batch.n_threads = args.threads_batch
    # Off in llama-server too, where several slots are asked for with a context size.
    found.kv_unified = False
    found.ui, found.n_gpu_layers = False, 0
    return found


if __name__ == "__main__":
    asked = params(parse())
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = xllamacpp.Server(asked)
    ended.wait()
    del server

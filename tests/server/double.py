"""A tiny HTTP server with bad manners, run as a script by the tests of the lifecycle."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SLEEPER = "import time; time.sleep(300)"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--die", type=int)
    parser.add_argument("--bind-delay-s", type=float, default=0.0)
    parser.add_argument("--deaf", action="store_true", help="ignores SIGTERM")
    parser.add_argument("--child", action="store_true", help="a child in the same group")
    parser.add_argument("--stray", action="store_true", help="a child that leaves the session")
    parser.add_argument("--answer", default='{"tokens": 1}')
    parser.add_argument("--status", type=int, default=200)
    parser.add_argument("--echo-env", default="")
    parser.add_argument("--gpu-file", default="", help="pretends to hold GPU memory")
    return parser.parse_args()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        args = self.server.args  # type: ignore[attr-defined]
        body = args.answer.encode()
        self.send_response(args.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        print("access", self.path, file=sys.stderr)


def main() -> None:
    args = options()
    if args.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("double starts", os.environ.get(args.echo_env, ""))
    if args.child:
        subprocess.Popen([sys.executable, "-c", SLEEPER])
    if args.stray:
        subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True)
    if args.gpu_file:
        with open(args.gpu_file, "w") as file:
            json.dump({"0": {str(os.getpid()): 40 << 30}}, file)
    if args.die is not None:
        sys.exit(args.die)
    time.sleep(args.bind_delay_s)
    server = ThreadingHTTPServer(("127.0.0.1", args.port), Handler)
    server.args = args  # type: ignore[attr-defined]
    print("double listens", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

"""Requests on the wire: the path and the JSON body of each route.

Greedy and ``ignore_eos`` throughout: the length of a reply is the workload's, not the model's.
"""

from __future__ import annotations

import msgspec

from autotune.load.words import words_of
from autotune.load.workload import Request
from autotune.study.file import Workload

PATHS = {"generate": "/generate", "completions": "/v1/completions", "chat": "/v1/chat/completions"}


def route_path(workload: Workload) -> str:
    return PATHS[workload.route]


def encode_body(request: Request, workload: Workload, model: str) -> bytes:
    """The JSON body for the workload's route."""
    if workload.route == "generate":
        return _generate(request, workload)
    asks = {"messages": _messages(request)} if workload.route == "chat" else {"prompt": _prompt(request)}
    return _openai(asks, request, workload, model)


def exact_tokens(request: Request, workload: Workload) -> int:
    """How many tokens the server must count in the prompt; 0 where only the server can tell."""
    return 0 if workload.route == "chat" else len(request.input_ids)


def _prompt(request: Request) -> object:
    return msgspec.Raw(request.encoded) if request.encoded else request.input_ids


def _messages(request: Request) -> object:
    if request.messages:
        return msgspec.Raw(request.encoded)
    content = msgspec.Raw(request.encoded) if request.encoded else words_of(request.input_ids)
    return [{"role": "user", "content": content}]


def _generate(request: Request, workload: Workload) -> bytes:
    params = {"max_new_tokens": request.output_tokens, "ignore_eos": True, "temperature": 0.0}
    name = "text" if request.encoded else "input_ids"
    return msgspec.json.encode({name: _prompt(request), "sampling_params": params, "stream": workload.stream})


def _openai(asks: dict[str, object], request: Request, workload: Workload, model: str) -> bytes:
    body: dict[str, object] = {
        "model": model,
        **asks,
        "max_tokens": request.output_tokens,
        "ignore_eos": True,
        "temperature": 0.0,
        "stream": workload.stream,
    }
    if workload.stream:
        body["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(body)

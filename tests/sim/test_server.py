"""The server as a process: its log, its routes and its orderly end."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from tests.sim.conftest import Start, events

ORDER = [
    "server_args=ServerArgs(",
    "Init torch distributed begin.",
    "Load weight begin. avail mem=",
    "Load weight end.",
    "KV Cache is allocated.",
    "Memory pool end. avail mem=",
    "Capture target decode CUDA graph begin.",
    "Capturing batches (bs=24",
    "Capture target decode CUDA graph end.",
    "max_total_num_tokens=12190, chunked_prefill_size=2048, max_prefill_tokens=16384, max_running_requests=24",
    "Started server process [",
    "Uvicorn running on http://127.0.0.1:",
    "Prefill batch, #new-seq: 1",
    "The server is fired up and ready to roll!",
]


def test_log_lines_come_in_order_and_sigterm_ends_it(start: Start) -> None:
    """A start logs SGLang's lines in order, and SIGTERM on an idle server ends it with status 0."""
    sim = start().ready()
    places = [sim.log.index(text) for text in ORDER]
    assert places == sorted(places)
    assert sim.stop() == 0
    assert "Gracefully exiting" in sim.log


def test_routes(start: Start) -> None:
    """One server answers every route in SGLang's form."""
    sim = start("--enable-metrics", "--model-path", "some/model").ready()
    assert sim.request("GET", "/health")[0] == 200
    assert sim.request("GET", "/health_generate")[0] == 200
    assert sim.request("GET", "/nowhere")[0] == 404
    assert sim.get("/model_info")["model_path"] == "some/model"
    assert sim.get("/v1/models")["data"][0]["id"] == "some/model"
    info = sim.get("/server_info")
    assert info["max_running_requests"] is None
    assert info["max_total_num_tokens"] == 12190
    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 24
    assert info["cuda_graph_config"]["decode"]["max_bs"] == 24
    assert sim.get("/get_server_info") == info
    load = sim.get("/v1/loads")["loads"][0]
    assert (load["num_running_reqs"], load["max_running_requests"]) == (0, 24)
    assert sim.request("POST", "/flush_cache")[0] == 200


def test_generate_and_completions(start: Start) -> None:
    """Both routes, streaming and not, report exactly the tokens that were asked for."""
    sim = start("--enable-metrics").ready()
    status, body = sim.generate(5)
    meta = json.loads(body)["meta_info"]
    assert status == 200
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (3, 5, 0)
    assert meta["finish_reason"] == {"type": "length", "length": 5}
    chunks = events(sim.generate(5, stream=True)[1])
    assert [chunk["meta_info"]["completion_tokens"] for chunk in chunks] == [1, 2, 3, 4, 5]
    assert chunks[-1]["meta_info"]["finish_reason"] is not None
    assert len(chunks[-1]["output_ids"]) == 5
    ask = {"prompt": "a b c d", "max_tokens": 6}
    usage = json.loads(sim.request("POST", "/v1/completions", ask)[1])["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (4, 6)
    streamed = sim.request(
        "POST", "/v1/completions", {**ask, "stream": True, "stream_options": {"include_usage": True}}
    )[1]
    *parts, last = events(streamed)
    assert "".join(part["choices"][0]["text"] for part in parts) == " tok" * 6
    assert last["usage"]["completion_tokens"] == 6
    metrics = sim.request("GET", "/metrics")[1].decode()
    total = next(line for line in metrics.splitlines() if line.startswith("sglang:generation_tokens_total"))
    # The server's own warm-up of one token, then 5 + 5 + 6 + 6.
    assert float(total.split()[-1]) == 23.0


def test_chat(start: Start) -> None:
    """The chat route names the role first, then says as many tokens as asked; bad messages get status 400."""
    sim = start().ready()
    ask = {"messages": [{"role": "user", "content": "a b c"}], "max_tokens": 4}
    whole = json.loads(sim.request("POST", "/v1/chat/completions", ask)[1])
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": " tok" * 4}
    assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (5, 4)
    streamed = {**ask, "stream": True, "stream_options": {"include_usage": True}}
    role, *parts, last = events(sim.request("POST", "/v1/chat/completions", streamed)[1])
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(part["choices"][0]["delta"]["content"] for part in parts) == " tok" * 4
    assert {part["object"] for part in (role, *parts, last)} == {"chat.completion.chunk"}
    assert last["usage"]["completion_tokens"] == 4
    for bad in (None, [], [{"content": "x"}], [{"role": "user", "content": 3}]):
        assert sim.request("POST", "/v1/chat/completions", {"messages": bad})[0] == 400


def test_refused_requests(start: Start) -> None:
    """Bodies that SGLang refuses get status 400 and a message, and the server lives on."""
    sim = start("--skip-tokenizer-init").ready()
    for path, body in (
        ("/generate", {"text": "words"}),
        ("/generate", {}),
        ("/generate", {"input_ids": [1] * 5000}),
        ("/generate", {"input_ids": [1], "sampling_params": {"max_new_tokens": 5000}}),
        ("/v1/completions", {"prompt": [1, 2]}),
    ):
        status, answer = sim.request("POST", path, body)
        assert status == 400
        assert json.loads(answer)["message"]
    assert "text" not in json.loads(sim.generate(2)[1])


def test_repeated_prompts_hit_the_cache(start: Start) -> None:
    """An identical prompt is served from the radix cache, after a flush or without one it is not."""
    prompt = {"input_ids": list(range(64)), "sampling_params": {"max_new_tokens": 2}}

    def cached(sim_body: bytes) -> int:
        tokens: int = json.loads(sim_body)["meta_info"]["cached_tokens"]
        return tokens

    sim = start().ready()
    first, second = (cached(sim.request("POST", "/generate", prompt)[1]) for _ in range(2))
    assert (first, second) == (0, 63)
    assert sim.request("POST", "/flush_cache")[0] == 200
    assert cached(sim.request("POST", "/generate", prompt)[1]) == 0
    plain = start("--disable-radix-cache").ready()
    assert [cached(plain.request("POST", "/generate", prompt)[1]) for _ in range(2)] == [0, 0]


def test_keys(start: Start) -> None:
    """With keys, requests need them; /health does not; admin routes need the admin key; the log hides both."""
    sim = start("--api-key", "user-secret", "--admin-api-key", "admin-secret").ready()
    assert sim.request("GET", "/health")[0] == 200
    assert sim.request("GET", "/server_info")[0] == 401
    assert sim.request("GET", "/server_info", key="user-secret")[0] == 200
    assert sim.request("POST", "/flush_cache", key="user-secret")[0] == 401
    assert sim.request("POST", "/flush_cache", key="admin-secret")[0] == 200
    assert "secret" not in sim.log


def test_live_running_limit(start: Start) -> None:
    """pp_max_micro_batch_size takes effect at once, shows in /server_info, and is refused out of range."""
    sim = start("--max-running-requests", "16").ready()

    def change(value: object) -> tuple[int, bytes]:
        return sim.request("POST", "/set_internal_state", {"server_args": {"pp_max_micro_batch_size": value}})

    assert json.loads(change(2)[1])[0]["updated"] is True
    assert sim.get("/server_info")["internal_states"][0]["pp_max_micro_batch_size"] == 2
    assert sim.load(8, tokens=40) == [200] * 8
    assert "#running-req: 3" not in sim.log
    assert json.loads(change(17)[1])[0]["updated"] is False
    assert change("many")[0] == 400


def test_taken_port_is_found_after_loading(start: Start) -> None:
    """A second server on the same port loads its model, then ends with Errno 98 and status 1."""
    first = start().ready()
    second = start(port=first.port)
    assert second.exit_status() == 1
    assert "Load weight end." in second.log
    assert "[Errno 98] error while attempting to bind on address" in second.log
    assert first.generate()[0] == 200


def test_port_is_closed_until_loaded(start: Start) -> None:
    """While the model loads nothing listens; a lying server answers /health with 200 but cannot generate."""
    sim = start("--sim-fault", "slow_start=30")
    sim.wait_for("Load weight begin.")
    try:
        sim.request("GET", "/health", timeout_s=5)
    except ConnectionRefusedError:
        pass
    else:
        raise AssertionError("the port is open before the model is loaded")
    liar = start("--sim-fault", "slow_start=30", "--sim-fault", "lying_health")
    liar.wait_for("Load weight begin.")
    assert liar.request("GET", "/health")[0] == 200
    assert liar.generate()[0] == 503


def test_sigterm_drains_running_requests(start: Start) -> None:
    """SIGTERM lets a running request finish before the process ends."""
    sim = start().ready()
    results: list[tuple[int, bytes]] = []
    import threading

    thread = threading.Thread(target=lambda: results.append(sim.generate(100)))
    thread.start()
    sim.wait_for("Decode batch, #running-req: 1")
    sim.process.send_signal(signal.SIGTERM)
    thread.join()
    assert results[0][0] == 200
    assert sim.exit_status() == 0


def test_gpu_file_rises_and_returns(start: Start, tmp_path: Path) -> None:
    """Pretended GPU memory rises with the start and returns after the end, however the process died."""
    file = tmp_path / "gpu.json"
    file.write_text('{"0": 1000}')
    for signum in (signal.SIGTERM, signal.SIGKILL):
        sim = start("--sim-gpu-file", str(file)).ready()
        _until(lambda: _used(file) > 20 << 30)
        sim.process.send_signal(signum)
        sim.exit_status()
        _until(lambda: _used(file) == 1000)


def test_gpu_leak_stays(start: Start, tmp_path: Path) -> None:
    """With the leak fault the memory stays up after the end."""
    file = tmp_path / "gpu.json"
    sim = start("--sim-gpu-file", str(file), "--sim-gpu-release-s", "0", "--sim-fault", "gpu_leak").ready()
    _until(lambda: _used(file) > 20 << 30)
    sim.stop()
    time.sleep(0.3)
    assert _used(file) > 20 << 30


def _used(file: Path) -> int:
    used: int = json.loads(file.read_text()).get("0", 0) if file.exists() else 0
    return used


def _until(condition: object, limit_s: float = 30.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)

#!/usr/bin/env bash
# Written by autotune. This command line is exactly the one that was measured.
# study:           cold-start (cold-start.toml)
# trial:           1
# date:            2026-11-29T21:12:14.022+00:00
# engine:          sglang 0.5.14
# GPU:             NVIDIA H200
# model:           /tmp/model
# workload:        128 tokens in, 128 out, 2048 in flight
# parameters:      max_running_requests=2048, cuda_graph_max_bs=2048, mem_fraction_static=0.8
# score:           output_throughput_tok_s 22,021.4 +- 1,101.1 within one start
# confirmed gain:  reliable gain of 27.9 % (11.7–46.4)
# address:         http://127.0.0.1:27163
# Without an argument it starts the measured configuration; with --baseline the one before tuning.
set -euo pipefail

tuned() {
    exec -- python3 \
        -m \
        sglang.launch_server \
        --model-path \
        /tmp/model \
        --load-format \
        dummy \
        --skip-tokenizer-init \
        --attention-backend \
        triton \
        --sampling-backend \
        pytorch \
        --grammar-backend \
        none \
        --disable-radix-cache \
        --disable-prefill-cuda-graph \
        --random-seed \
        1 \
        --stream-interval \
        16 \
        --max-running-requests \
        2048 \
        --cuda-graph-max-bs-decode \
        2048 \
        --mem-fraction-static \
        0.8 \
        --host \
        127.0.0.1 \
        --port \
        27163
}

baseline() {
    exec -- python3 \
        -m \
        sglang.launch_server \
        --model-path \
        /tmp/model \
        --load-format \
        dummy \
        --skip-tokenizer-init \
        --attention-backend \
        triton \
        --sampling-backend \
        pytorch \
        --grammar-backend \
        none \
        --disable-radix-cache \
        --disable-prefill-cuda-graph \
        --mem-fraction-static \
        0.85 \
        --random-seed \
        1 \
        --stream-interval \
        16 \
        --host \
        127.0.0.1 \
        --port \
        22383
}

case "${1:-}" in
    "") tuned ;;
    --baseline) baseline ;;
    *) echo "usage: $0 [--baseline]" >&2; exit 2 ;;
esac

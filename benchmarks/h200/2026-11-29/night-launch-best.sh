#!/usr/bin/env bash
# Written by autotune. This command line is exactly the one that was measured.
# study:           qwen3-30b-a3b-h200 (qwen3-30b-a3b-h200.toml)
# trial:           5
# date:            2026-11-29T21:20:02.544+00:00
# engine:          sglang 0.5.14
# GPU:             NVIDIA H200
# model:           /tmp/model
# workload:        128 tokens in, 128 out, 2048 in flight
# parameters:      max_running_requests=1544, cuda_graph_max_bs=1544, mem_fraction_static=0.945
# score:           output_throughput_tok_s 21,720.1 +- 1,086.0 within one start
# address:         http://127.0.0.1:20251
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
        1544 \
        --cuda-graph-max-bs-decode \
        1544 \
        --mem-fraction-static \
        0.945 \
        --host \
        127.0.0.1 \
        --port \
        20251
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
        22690
}

case "${1:-}" in
    "") tuned ;;
    --baseline) baseline ;;
    *) echo "usage: $0 [--baseline]" >&2; exit 2 ;;
esac

#!/usr/bin/env bash
# Written by autotune. This command line is exactly the one that was measured.
# study:           two-gpus (two-gpus.toml)
# trial:           6
# date:            2026-11-30T07:06:20.129+00:00
# engine:          sglang 0.5.14
# GPU:             NVIDIA H200
# model:           /tmp/model
# workload:        512 tokens in, 256 out, 2048 in flight
# parameters:      max_running_requests=1408, cuda_graph_max_bs=1408, mem_fraction_static=0.965
# score:           output_throughput_tok_s 12,639.4 +- 632.0 within one start
# promise:         output_throughput_tok_s 12,440.7; another start 9,673.3 to 15,999.7 (95 %; starts: 1, noise of one: 6.85 %)
# baseline:        output_throughput_tok_s 9,837.9; another start 7,919.8 to 12,220.5 (95 %; starts: 3, noise of one: 6.85 %)
# address:         http://127.0.0.1:24304
# Without an argument it starts the measured configuration; with --baseline the one before tuning.
set -euo pipefail

tuned() {
    export CUDA_VISIBLE_DEVICES=0
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
        1408 \
        --cuda-graph-max-bs-decode \
        1408 \
        --mem-fraction-static \
        0.965 \
        --host \
        127.0.0.1 \
        --port \
        24304
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
        24304
}

case "${1:-}" in
    "") tuned ;;
    --baseline) baseline ;;
    *) echo "usage: $0 [--baseline]" >&2; exit 2 ;;
esac

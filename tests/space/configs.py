"""Published config.json values, cut down to what the arithmetic reads."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def gqa(hidden: int, layers: int, heads: int, kv_heads: int, **more: Any) -> Config:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **more,
    }


def mla(hidden: int, layers: int, experts: int, **more: Any) -> Config:
    return {
        **gqa(hidden, layers, 64, 64),
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": experts,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "moe_layer_freq": 1,
        **more,
    }


LLAMA_8B = gqa(4096, 32, 32, 8)
LLAMA_70B = gqa(8192, 80, 64, 8)
QWEN3_32B = gqa(5120, 64, 64, 8, head_dim=128)
QWEN3_30B = gqa(2048, 48, 32, 4, head_dim=128, num_experts=128, num_experts_per_tok=8, decoder_sparse_step=1)
QWEN3_235B = gqa(4096, 94, 64, 4, head_dim=128, num_experts=128, num_experts_per_tok=8)
QWEN3_CODER = gqa(6144, 62, 96, 8, head_dim=128, num_experts=160, num_experts_per_tok=8)
QWEN3_CODER["shared_expert_intermediate_size"] = 0
QWEN15_MOE = gqa(2048, 24, 16, 16, num_experts=60, num_experts_per_tok=4, shared_expert_intermediate_size=5632)
QWEN3_NEXT = gqa(2048, 48, 16, 2, head_dim=256, full_attention_interval=4, num_experts=512, num_experts_per_tok=10)
MIXTRAL = gqa(4096, 32, 32, 8, num_local_experts=8, num_experts_per_tok=2, sliding_window=None)
GPT_OSS_120B = gqa(
    2880,
    36,
    64,
    8,
    head_dim=64,
    model_type="gpt_oss",
    num_local_experts=128,
    num_experts_per_tok=4,
    experts_per_token=4,
    sliding_window=128,
    layer_types=["sliding_attention", "full_attention"] * 18,
)
DEEPSEEK_V3 = mla(7168, 61, 256)
KIMI_K2 = mla(7168, 61, 384, first_k_dense_replace=1)
KIMI_K25: Config = {"model_type": "kimi_k25", "text_config": KIMI_K2}
DEEPSEEK_V32 = mla(7168, 61, 256, index_head_dim=128, index_topk=2048)
GLM_5 = mla(6144, 78, 256, index_head_dim=128, head_dim=64, max_position_embeddings=202752)
GLM_52 = {**GLM_5, "indexer_types": ["full"] * 18 + ["shared"] * 60, "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 75}
GLM_47 = gqa(
    5120,
    92,
    96,
    8,
    head_dim=128,
    n_routed_experts=160,
    num_experts_per_tok=8,
    n_shared_experts=1,
    first_k_dense_replace=3,
)
MINIMAX_M25 = gqa(3072, 62, 48, 8, head_dim=128, num_local_experts=256, num_experts_per_tok=8)
MINIMAX_01 = gqa(6144, 80, 64, 8, head_dim=128, num_local_experts=32, num_experts_per_tok=2)
MINIMAX_01["attn_type_list"] = ([0] * 7 + [1]) * 10
LLAMA4_MAVERICK: Config = {
    "model_type": "llama4",
    "text_config": gqa(
        5120,
        48,
        40,
        8,
        head_dim=128,
        model_type="llama4_text",
        num_local_experts=128,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
        attention_chunk_size=8192,
        layer_types=(["chunked_attention"] * 3 + ["full_attention"]) * 12,
    ),
}
NEMOTRON_SUPER = gqa(
    4096,
    8,
    32,
    2,
    head_dim=128,
    n_routed_experts=512,
    num_experts_per_tok=22,
    moe_shared_expert_intermediate_size=5376,
    hybrid_override_pattern="MEMEM*EM",
)
DBRX: Config = {
    "d_model": 6144,
    "n_layers": 40,
    "n_heads": 48,
    "ffn_config": {"moe_num_experts": 16, "moe_top_k": 4, "ffn_hidden_size": 10752},
    "attn_config": {"kv_n_heads": 8},
}
HUNYUAN = gqa(4096, 32, 32, 8, head_dim=128, num_experts=64, moe_topk=[8] * 32, num_shared_expert=[1] * 32)
ERNIE_VL = gqa(8192, 54, 64, 8, head_dim=128, moe_num_experts=[64, 64], moe_k=8, moe_layer_start_index=[3, 3])
GRANITE_H = gqa(
    4096,
    40,
    32,
    8,
    layer_types=(["mamba"] * 9 + ["attention"]) * 4,
    num_local_experts=72,
    num_experts_per_tok=10,
    shared_intermediate_size=1536,
)
KIMI_LINEAR = mla(
    2304,
    27,
    256,
    num_shared_experts=1,
    first_k_dense_replace=1,
    linear_attn_config={"full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "kda_layers": list(range(20))},
)
GEMMA3 = gqa(5376, 62, 32, 16, head_dim=128, sliding_window=1024, sliding_window_pattern=6)
JAMBA = gqa(
    4096,
    32,
    32,
    8,
    attn_layer_period=8,
    attn_layer_offset=4,
    expert_layer_period=2,
    expert_layer_offset=1,
    num_experts=16,
    num_experts_per_tok=2,
)
QWEN3_OMNI: Config = {"thinker_config": {"text_config": QWEN3_30B}}
NEMOTRON_PUZZLE = gqa(
    2048, 3, 32, 2, head_dim=128, num_experts_per_tok=4, block_configs=[{"n_routed_experts": n} for n in (0, 64, 128)]
)

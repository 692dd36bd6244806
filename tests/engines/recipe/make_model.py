"""Write a tiny Qwen3-MoE with random weights and a byte-level tokenizer: 16 experts, top-4, 4 layers, 15 MB.

usage: make_model.py FOLDER
"""

import json
import pathlib
import random
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN, LAYERS, EXPERTS, TOP_K, EXPERT_WIDTH = 256, 4, 16, 4, 128
HEADS, KV_HEADS, HEAD_DIM, VOCAB, CONTEXT = 4, 2, 64, 1024, 4096


def tokenizer(folder: pathlib.Path) -> None:
    """A byte-pair tokenizer trained on made-up words, so that nothing is downloaded."""
    draw = random.Random(7)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(1500)]
    lines = [" ".join(draw.choices(words, k=25)) for _ in range(1500)]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(lines, trainer)
    made.save(str(folder / "tokenizer.json"))
    special = dict.fromkeys(("eos_token", "bos_token", "pad_token"), "<|endoftext|>")
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(special | settings))


def config(folder: pathlib.Path) -> None:
    """The model's config.json; key names as Qwen3-MoE checkpoints have them."""
    shape = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": 2 * HIDDEN,
        "moe_intermediate_size": EXPERT_WIDTH,
        "num_experts": EXPERTS,
        "num_experts_per_tok": TOP_K,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "vocab_size": VOCAB,
        "max_position_embeddings": CONTEXT,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "initializer_range": 0.02,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "router_aux_loss_coef": 0.001,
        "output_router_logits": False,
    }
    (folder / "config.json").write_text(json.dumps(shape, indent=1))


def weights(folder: pathlib.Path) -> None:
    """Random bf16 weights in one safetensors file. The imports are here: the other parts serve without torch."""
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(0)

    def draw(*size: int) -> "torch.Tensor":
        return (torch.randn(*size, generator=generator) * 0.02).to(torch.bfloat16)

    def ones(size: int) -> "torch.Tensor":
        return torch.ones(size, dtype=torch.bfloat16)

    made = {"model.embed_tokens.weight": draw(VOCAB, HIDDEN), "lm_head.weight": draw(VOCAB, HIDDEN)}
    made["model.norm.weight"] = ones(HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        made[at + "input_layernorm.weight"] = ones(HIDDEN)
        made[at + "post_attention_layernorm.weight"] = ones(HIDDEN)
        made[at + "self_attn.q_proj.weight"] = draw(HEADS * HEAD_DIM, HIDDEN)
        made[at + "self_attn.k_proj.weight"] = draw(KV_HEADS * HEAD_DIM, HIDDEN)
        made[at + "self_attn.v_proj.weight"] = draw(KV_HEADS * HEAD_DIM, HIDDEN)
        made[at + "self_attn.o_proj.weight"] = draw(HIDDEN, HEADS * HEAD_DIM)
        made[at + "self_attn.q_norm.weight"] = ones(HEAD_DIM)
        made[at + "self_attn.k_norm.weight"] = ones(HEAD_DIM)
        made[at + "mlp.gate.weight"] = draw(EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            mlp = at + f"mlp.experts.{expert}."
            made[mlp + "gate_proj.weight"] = draw(EXPERT_WIDTH, HIDDEN)
            made[mlp + "up_proj.weight"] = draw(EXPERT_WIDTH, HIDDEN)
            made[mlp + "down_proj.weight"] = draw(HIDDEN, EXPERT_WIDTH)
    save_file(made, str(folder / "model.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    tokenizer(target)
    config(target)
    weights(target)

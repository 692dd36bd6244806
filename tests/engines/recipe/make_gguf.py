"""Write the tiny model of ``make_model`` as a GGUF file, with other random weights: llama.cpp's form, F16, 15 MB.

usage: make_gguf.py FILE
"""

import json
import pathlib
import sys
import tempfile

import gguf
import make_model as shape
import numpy as np

ARCHITECTURE = "qwen3moe"


def describe(writer: gguf.GGUFWriter) -> None:
    """The shape, as llama.cpp names it."""
    writer.add_name("tiny-moe")
    writer.add_context_length(shape.CONTEXT)
    writer.add_embedding_length(shape.HIDDEN)
    writer.add_block_count(shape.LAYERS)
    writer.add_feed_forward_length(2 * shape.HIDDEN)
    writer.add_expert_feed_forward_length(shape.EXPERT_WIDTH)
    writer.add_head_count(shape.HEADS)
    writer.add_head_count_kv(shape.KV_HEADS)
    writer.add_key_length(shape.HEAD_DIM)
    writer.add_value_length(shape.HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_expert_count(shape.EXPERTS)
    writer.add_expert_used_count(shape.TOP_K)
    writer.add_vocab_size(shape.VOCAB)


def add_tokenizer(writer: gguf.GGUFWriter) -> None:
    """The byte-pair tokenizer of the other form, place by place."""
    with tempfile.TemporaryDirectory() as folder:
        shape.tokenizer(pathlib.Path(folder))
        made = json.loads((pathlib.Path(folder) / "tokenizer.json").read_text())
    places = {place: token for token, place in made["model"]["vocab"].items()}
    tokens = [places.get(place, f"<unused{place}>") for place in range(shape.VOCAB)]
    special = {token["content"] for token in made["added_tokens"]}
    kinds = [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in made["model"]["merges"]])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        add(0)
    writer.add_add_bos_token(False)


def add_weights(writer: gguf.GGUFWriter) -> None:
    """Random tensors; the sizes are written outermost first."""
    generator = np.random.default_rng(0)

    def draw(*size: int, kind: type = np.float16) -> np.ndarray:
        return (generator.standard_normal(size) * 0.02).astype(kind)

    def ones(size: int) -> np.ndarray:
        return np.ones(size, dtype=np.float32)

    hidden, heads, kv = shape.HIDDEN, shape.HEADS * shape.HEAD_DIM, shape.KV_HEADS * shape.HEAD_DIM
    experts, width = shape.EXPERTS, shape.EXPERT_WIDTH
    made = {"token_embd": draw(shape.VOCAB, hidden), "output": draw(shape.VOCAB, hidden), "output_norm": ones(hidden)}
    for layer in range(shape.LAYERS):
        block = {
            "attn_norm": ones(hidden),
            "ffn_norm": ones(hidden),
            "attn_q": draw(heads, hidden),
            "attn_k": draw(kv, hidden),
            "attn_v": draw(kv, hidden),
            "attn_output": draw(hidden, heads),
            "attn_q_norm": ones(shape.HEAD_DIM),
            "attn_k_norm": ones(shape.HEAD_DIM),
            "ffn_gate_inp": draw(experts, hidden, kind=np.float32),
            "ffn_gate_exps": draw(experts, width, hidden),
            "ffn_up_exps": draw(experts, width, hidden),
            "ffn_down_exps": draw(experts, hidden, width),
        }
        made |= {f"blk.{layer}.{name}": tensor for name, tensor in block.items()}
    for name, tensor in made.items():
        writer.add_tensor(f"{name}.weight", tensor)


if __name__ == "__main__":
    made = gguf.GGUFWriter(sys.argv[1], ARCHITECTURE)
    describe(made)
    add_tokenizer(made)
    add_weights(made)
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()

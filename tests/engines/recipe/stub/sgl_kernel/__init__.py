"""The names of SGLang's kernel package that a CPU without AMX imports; PyPI's wheel of it is CUDA only.

One of them is called on the plain-torch paths and is written here; the others explain themselves when called.
"""

from typing import Any

import torch


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Scatter the flat ``out_cache_loc`` into the rows ``req_pool_indices``, each from its start to its end."""
    lengths = (end_offset - start_offset).tolist()
    pieces = torch.split(out_cache_loc[: sum(lengths)], lengths)
    rows = zip(req_pool_indices.tolist(), start_offset.tolist(), pieces, strict=True)
    for row, start, piece in rows:
        req_to_token[row, start : start + piece.numel()] = piece.to(req_to_token.dtype)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def absent(*_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError(f"sgl_kernel.{name} has no CPU form here")

    absent.__name__ = name
    return absent

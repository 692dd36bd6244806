"""Start SGLang beside a CPU build of torch.

PyPI's torchvision is built for CUDA: its operators do not load here, and the package then fails at import because it
registers a fake for an operator that nobody defined. Text models never call it, so defining the names is enough. This
happens at import time, so that the processes SGLang spawns get it as well.
"""

import runpy

import torch

_LIBRARY = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__")

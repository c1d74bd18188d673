"""The scores of a learned index, which chooses for each query the keys that it may look at.

DeepSeek V3.2, MiniMax M3 and others have such an index. It returns its choice, not its scores.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mha_core.capture import collector


def on_leaving(module: nn.Module, args: tuple, kwargs: dict, blocks: object) -> None:
    """Keep the scores: the index runs again, under a mode that sees its top-k."""
    active = collector.current()
    if active is None or not isinstance(blocks, Tensor):
        return
    with _Choices() as choices:
        again = type(module).forward(module, *args, **kwargs)
    if torch.equal(again, blocks) and choices.scores is not None:
        active.add_index_scores(blocks, choices.scores)


class _Choices(TorchFunctionMode):
    """Keeps the input of the last top-k."""

    scores: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if getattr(func, "__name__", "") == "topk" and args and isinstance(args[0], Tensor):
            self.scores = args[0].detach()
        return func(*args, **(kwargs or {}))

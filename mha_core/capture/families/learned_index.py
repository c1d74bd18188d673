"""Attention to the keys that a learned index chooses for each query: the scores by which it chooses.

DeepSeek V3.2, MiniMax M3 and others have such an index. It returns its choice alone.
"""

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mha_core.capture import collector


def watch(_place: str, part: nn.Module) -> bool:
    """Collect the scores of an index. The layers that it chooses for do have a softmax."""
    part.register_forward_hook(_on_leaving, with_kwargs=True)
    return False


def _on_leaving(module: nn.Module, args: tuple, kwargs: dict, blocks: object) -> None:
    """Keep the scores: the index runs once more, and its choice of the highest ones is observed."""
    active = collector.current()
    if active is None or not isinstance(blocks, Tensor):
        return
    with _Choices() as choices:
        again = type(module).forward(module, *args, **kwargs)
    if torch.equal(again, blocks) and choices.scores is not None:
        active.add_index_scores(blocks, choices.scores)


class _Choices(TorchFunctionMode):
    """Keeps the scores of the last choice of the highest ones."""

    scores: Tensor | None = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") == "topk" and args and isinstance(args[0], Tensor):
            self.scores = args[0].detach()
        return func(*args, **(kwargs or {}))

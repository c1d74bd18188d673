"""Where an operation runs: the line of code, the modules around it, and how many texts they read."""

import os
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_core.errors import MhaError

MODULE_CALL = nn.Module._wrapped_call_impl.__code__
CAPTURE = os.path.dirname(os.path.dirname(__file__))
LIBRARIES = (os.path.dirname(torch.__file__) + os.sep, CAPTURE + os.sep)
RECORDER = os.sep.join(("mha_core", "sources", "recorder.py"))
EINOPS = f"{os.sep}einops{os.sep}"


class Root(NamedTuple):
    """The outermost call around an attention: its frame, and what was called. A second call is a new pass."""

    frame: FrameType
    called: nn.Module | tuple[CodeType, int]


class Caller(NamedTuple):
    """The caller of an attention: a line of code, the calls of modules (innermost first), and the root."""

    line: str
    frames: tuple[FrameType, ...]
    root: Root | None

    @property
    def module(self) -> nn.Module | None:
        """The innermost running module with submodules, since a mere product can be a module, too."""
        holders = (module for module in self.modules() if next(module.children(), None) is not None)
        return next(holders, next(self.modules(), None))

    @property
    def innermost(self) -> nn.Module | None:
        """The innermost running module that is not a small one of torch's own, such as a softmax."""
        for module in self.modules():
            own = not type(module).__module__.startswith("torch.")
            if own or next(module.children(), None) is not None:
                return module
        return None

    def modules(self) -> Iterator[nn.Module]:
        """The running modules, innermost first."""
        return (frame.f_locals["self"] for frame in self.frames)

    @property
    def frame(self) -> FrameType | None:
        """The call of the innermost running module."""
        return next(iter(self.frames), None)

    def packed_heads(self, q_shape: Sequence[int]) -> int:
        """The number of heads in the rows of these queries (text, head, row, width); 1 where rows are tokens.

        For a single further token, transformers passes the heads that share a key as if they were queries.
        Raises `MhaError` where a module reads one token of each text and has several queries for another
        reason.
        """
        if len(q_shape) != 4 or q_shape[2] == 1:
            return 1
        for frame in self.frames:
            values = (*frame.f_locals["args"], *frame.f_locals["kwargs"].values())
            shapes = [tuple(value.shape) for value in values if _is_of_tokens(value)]
            if not shapes or shapes[0] == tuple(q_shape):
                continue
            if shapes[0][:2] != (q_shape[0], 1):
                return 1
            if getattr(frame.f_locals["self"], "num_key_value_groups", 1) == q_shape[2]:
                return q_shape[2]
            raise MhaError(
                "It has {n_query} queries, and {model} reads one token "
                "of each text, so it cannot be told what they are.",
                n_query=q_shape[2],
                model=type(frame.f_locals["self"]).__name__,
            )
        return 1

    def batch(self, lengths: Sequence[int], q_shape: Sequence[int]) -> int | None:
        """The number of texts that the running modules read at once, by the shapes of their arguments.

        `lengths` are the numbers of queries and keys. The first tensor of a module is (text, token[, width]),
        (token, text, width), or of one text (token[, width]). A first tensor with the shape of the queries
        says nothing, since it may be q itself. None where no module shows it.
        """
        for frame in self.frames:
            values = (*frame.f_locals["args"], *frame.f_locals["kwargs"].values())
            tensors = [value for value in values if isinstance(value, Tensor) and not value.is_nested]
            if tensors and tuple(tensors[0].shape) == tuple(q_shape):
                continue
            sizes = next(filter(None, (set(_batch_sizes(tensor, lengths)) for tensor in tensors)), ())
            if len(sizes) == 1:
                return next(iter(sizes))
        return None

    def items(self, lengths: Sequence[int]) -> set[int]:
        """The possible numbers of texts, images or sounds that the outermost module reads; empty if unknown.

        `lengths` are the numbers of queries and keys of an attention. An axis of one of these lengths counts
        tokens; in other tensors the first axis counts items.
        """
        if self.root is None or self.root.frame.f_code is not MODULE_CALL:
            return set()
        given = self.root.frame.f_locals
        sizes = set()
        for value in (*given["args"], *given["kwargs"].values()):
            if not isinstance(value, Tensor) or value.is_nested or value.dim() == 0:
                continue
            tokens = set(_batch_sizes(value, lengths))
            sizes |= tokens or ({value.shape[0]} if value.dim() > 1 + value.is_floating_point() else set())
        return sizes


def caller(block: FrameType | None = None, model: nn.Module | None = None) -> Caller:
    """The caller of the running operation; `block` is the frame of the recording code, `model` its model.

    The root is the call of `model`, else of the outermost module, else of the outermost function below
    `block`; None for an operation in the block itself.
    """
    frame: FrameType | None = sys._getframe(1)
    frames: list[FrameType] = []
    inner = outer = None
    while frame is not None and frame is not block:
        if frame.f_code is MODULE_CALL:
            frames.append(frame)
        elif not _is_library(frame):
            inner, outer = inner or frame, frame
        frame = frame.f_back
    line = inner or frame
    place = "" if line is None else f"{os.path.basename(line.f_code.co_filename)}:{line.f_lineno}"
    whole = [each for each in frames if each.f_locals["self"] is model]
    root = None
    if frames:
        at = (whole or frames)[-1]
        root = Root(at, at.f_locals["self"])
    elif frame is not None and outer is not None:
        root = Root(outer, (outer.f_code, id(outer.f_locals.get("self"))))
    return Caller(place, tuple(frames), root)


def searches_beams(frame: FrameType | None, block: FrameType | None) -> bool:
    """Whether a call runs inside a search for the best of several beams, as transformers' generate does."""
    while frame is not None and frame is not block:
        beams = frame.f_locals.get("num_beams") if "num_beams" in frame.f_code.co_varnames else None
        if isinstance(beams, int) and beams > 1:
            return True
        frame = frame.f_back
    return False


def _is_library(frame: FrameType) -> bool:
    """Whether it is a frame of torch, of einops, or of the recorder."""
    file = frame.f_code.co_filename
    return file.startswith(LIBRARIES) or file.endswith(RECORDER) or EINOPS in file


def _is_of_tokens(value: object) -> bool:
    """Whether it is a tensor (text, token, width), or one with more axes."""
    return isinstance(value, Tensor) and not value.is_nested and value.is_floating_point() and value.dim() > 2


def _batch_sizes(tensor: Tensor, lengths: Sequence[int]) -> Iterator[int]:
    """The possible numbers of texts in a tensor of tokens, or of vectors for each token."""
    axes = tensor.shape[:-1] if tensor.is_floating_point() else tensor.shape
    is_mask = len(axes) < tensor.dim() and tensor.shape[-1] in lengths
    is_mask |= len(axes) == tensor.dim() == 2 and 1 not in axes and {*axes} <= {*lengths}
    if is_mask:
        return
    if len(axes) == 1 and axes[0] in lengths:
        yield 1
    if len(axes) == 2 and axes[1] in lengths:
        yield axes[0]
    if len(axes) == 2 and axes[0] in lengths and tensor.is_floating_point():
        yield axes[1]

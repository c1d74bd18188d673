"""Calls that type checkers have to refuse: mypy reports each comment below that it does not need."""

from torch import nn

import mha_core as mha


def right(model: nn.Module) -> list[mha.AttentionTrace]:
    several = [mha.trace("a", h=2, d_k=3, mask="causal"), mha.trace("a", source="mini", trained=False)]
    several += [mha.trace("a", source="gpt2", revision="main"), mha.trace([3], source=model, tokenizer=None)]
    return several + list(mha.trace_many(["a"], source=model))


def wrong(model: nn.Module) -> None:
    mha.trace("a", sead=1)  # type: ignore[call-overload]
    mha.trace("a", h="2")  # type: ignore[call-overload]
    mha.trace("a", trained=False)  # type: ignore[call-overload]
    mha.trace("a", source="mini", seed=1)  # type: ignore[call-overload]
    mha.trace("a", source="gpt2", h=4)  # type: ignore[call-overload]
    mha.trace("a", source="gpt2", tokenizer=None)  # type: ignore[call-overload]
    mha.trace("a", source=model, dtype="float16")  # type: ignore[call-overload]
    mha.trace("a", source=model, limit="9")  # type: ignore[call-overload]
    mha.trace_many(["a"], reduce=3)  # type: ignore[call-overload]

"""Headscope: multi-head attention with every number of every head in sight.

>>> import mha_core as mha
>>> trace = mha.trace("How are you?", h=4, d_model=64)
>>> trace.layers[0].weights(head=2).shape
(4, 4)

Importing this loads torch, but neither a web framework nor a plotting library.
"""

from mha_core.attention import Attended, MultiHeadAttention, Projections, attend
from mha_core.check import Check, against_torch
from mha_core.errors import MhaError
from mha_core.given import from_tensors, from_weights
from mha_core.layer import LayerTrace
from mha_core.rule import ScoreRule
from mha_core.sources import trace
from mha_core.sources.recorder import record
from mha_core.spec import AttentionSpec
from mha_core.tokens import Tokens, words
from mha_core.trace import AttentionTrace, load

__all__ = [
    "Attended",
    "AttentionSpec",
    "AttentionTrace",
    "Check",
    "LayerTrace",
    "MhaError",
    "MultiHeadAttention",
    "Projections",
    "ScoreRule",
    "Tokens",
    "against_torch",
    "attend",
    "from_tensors",
    "from_weights",
    "load",
    "record",
    "trace",
    "words",
]

"""Headscope: multi-head attention with every number of every head in sight.

>>> import mha_core as mha
>>> trace = mha.trace("How are you?", h=4, d_model=64)
>>> trace.layers[0].weights(head=2).shape
(4, 4)

Importing this loads torch, but neither a web framework nor a plotting library.
"""

from mha_core.attention.functional import attend
from mha_core.attention.module import Attended, AttentionSpec, MultiHeadAttention, Projections
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError
from mha_core.sources import trace
from mha_core.sources.arrays import from_tensors, from_weights
from mha_core.sources.recorder import record
from mha_core.traces.layer import LayerTrace
from mha_core.traces.tokens import Sides, Tokens, words
from mha_core.traces.trace import AttentionTrace, load
from mha_core.traces.verify import Check, against_torch

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
    "Sides",
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

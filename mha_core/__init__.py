"""Headscope: multi-head attention with every number of every head in sight.

>>> import mha_core as mha
>>> trace = mha.trace("How are you?", h=4, d_model=64)
>>> trace.layers[0].weights(head=2).shape
(4, 4)

Importing it loads nothing else: a name loads what it needs at its first use, torch with the first trace,
pandas with the first table, plotly with the first figure.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from mha_core.resources import VERSION

if TYPE_CHECKING:  # for editors and type checkers; `__getattr__` does the same at run time
    from mha_core import figures
    from mha_core.analysis.explanation import Explanation, explain
    from mha_core.analysis.overview import Overview, overview
    from mha_core.analysis.patterns import metrics, similarity
    from mha_core.analysis.roles import roles
    from mha_core.analysis.rollout import rollout
    from mha_core.atlases.query import Atlas
    from mha_core.atlases.run import atlas
    from mha_core.attention import edits
    from mha_core.attention.functional import attend
    from mha_core.attention.module import Attended, AttentionSpec, MultiHeadAttention, Projections
    from mha_core.attention.score_rule import ScoreRule
    from mha_core.differences.traces import Difference, difference
    from mha_core.errors import MhaError
    from mha_core.export.head_view import HeadView
    from mha_core.interventions.attribution import Attribution, Writer, attribution
    from mha_core.interventions.effects import effects, mean_outputs
    from mha_core.interventions.ledger import Ledger, ledger
    from mha_core.scene.scene import Scene
    from mha_core.sources import trace, trace_many
    from mha_core.sources.arrays import from_tensors, from_weights, view
    from mha_core.sources.decoding import CacheCheck, Decoding, decode
    from mha_core.sources.recorder import Recorder, record
    from mha_core.traces.layer import LayerTrace
    from mha_core.traces.mixer import MixerTrace
    from mha_core.traces.sparse_index import SparseIndex
    from mha_core.traces.tokens import Sides, Tokens, words
    from mha_core.traces.trace import AttentionTrace, load
    from mha_core.traces.verify import Check, against_torch

__version__ = VERSION
__all__ = [
    "Atlas",
    "Attended",
    "AttentionSpec",
    "AttentionTrace",
    "Attribution",
    "CacheCheck",
    "Check",
    "Decoding",
    "Difference",
    "Explanation",
    "HeadView",
    "LayerTrace",
    "Ledger",
    "MhaError",
    "MixerTrace",
    "MultiHeadAttention",
    "Overview",
    "Projections",
    "Recorder",
    "Scene",
    "ScoreRule",
    "Sides",
    "SparseIndex",
    "Tokens",
    "Writer",
    "against_torch",
    "atlas",
    "attend",
    "attribution",
    "decode",
    "difference",
    "edits",
    "effects",
    "explain",
    "figures",
    "from_tensors",
    "from_weights",
    "ledger",
    "load",
    "mean_outputs",
    "metrics",
    "overview",
    "record",
    "roles",
    "rollout",
    "similarity",
    "trace",
    "trace_many",
    "view",
    "words",
]


# The public names of each module; "figures" and "edits" are the modules themselves.
HOMES = {
    "figures": ("figures",),
    "analysis.explanation": ("Explanation", "explain"),
    "analysis.overview": ("Overview", "overview"),
    "analysis.patterns": ("metrics", "similarity"),
    "analysis.roles": ("roles",),
    "analysis.rollout": ("rollout",),
    "atlases.query": ("Atlas",),
    "atlases.run": ("atlas",),
    "attention.edits": ("edits",),
    "attention.functional": ("attend",),
    "attention.module": ("Attended", "AttentionSpec", "MultiHeadAttention", "Projections"),
    "attention.score_rule": ("ScoreRule",),
    "differences.traces": ("Difference", "difference"),
    "errors": ("MhaError",),
    "export.head_view": ("HeadView",),
    "interventions.attribution": ("Attribution", "Writer", "attribution"),
    "interventions.effects": ("effects", "mean_outputs"),
    "interventions.ledger": ("Ledger", "ledger"),
    "scene.scene": ("Scene",),
    "sources": ("trace", "trace_many"),
    "sources.arrays": ("from_tensors", "from_weights", "view"),
    "sources.decoding": ("CacheCheck", "Decoding", "decode"),
    "sources.recorder": ("Recorder", "record"),
    "traces.layer": ("LayerTrace",),
    "traces.mixer": ("MixerTrace",),
    "traces.sparse_index": ("SparseIndex",),
    "traces.tokens": ("Sides", "Tokens", "words"),
    "traces.trace": ("AttentionTrace", "load"),
    "traces.verify": ("Check", "against_torch"),
}


def __getattr__(name: str) -> object:
    for home, names in HOMES.items():
        if name in names:
            module = import_module(f"mha_core.{home}")
            globals()[name] = value = getattr(module, name, module)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]

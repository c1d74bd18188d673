"""Headscope: multi-head attention with every number of every head in sight.

>>> import mha_core as mha
>>> trace = mha.trace("How are you?", h=4, d_model=64)
>>> trace.layers[0].weights(head=2).shape
(4, 4)

Importing it loads nothing else: a name loads what it needs at its first use, torch with the first trace,
pandas with the first table, plotly with the first figure.
"""

# mypy: disable-error-code=no-redef
# `home` in `__getattr__` is a module of its own in each case, and only one case runs.

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


def __getattr__(name: str) -> object:
    match name:
        case "trace" | "trace_many":
            from mha_core import sources as home
        case "from_tensors" | "from_weights" | "view":
            from mha_core.sources import arrays as home
        case "decode" | "CacheCheck" | "Decoding":
            from mha_core.sources import decoding as home
        case "record" | "Recorder":
            from mha_core.sources import recorder as home
        case "AttentionTrace" | "load":
            from mha_core.traces import trace as home
        case "MixerTrace":
            from mha_core.traces import mixer as home
        case "LayerTrace":
            from mha_core.traces import layer as home
        case "SparseIndex":
            from mha_core.traces import sparse_index as home
        case "Sides" | "Tokens" | "words":
            from mha_core.traces import tokens as home
        case "Check" | "against_torch":
            from mha_core.traces import verify as home
        case "Difference" | "difference":
            from mha_core.differences import traces as home
        case "HeadView":
            from mha_core.export import head_view as home
        case "metrics" | "similarity":
            from mha_core.analysis import patterns as home
        case "rollout":
            from mha_core.analysis import rollout as home
        case "roles":
            from mha_core.analysis import roles as home
        case "explain" | "Explanation":
            from mha_core.analysis import explanation as home
        case "overview" | "Overview":
            from mha_core.analysis import overview as home
        case "attribution" | "Attribution" | "Writer":
            from mha_core.interventions import attribution as home
        case "Ledger" | "ledger":
            from mha_core.interventions import ledger as home
        case "effects" | "mean_outputs":
            from mha_core.interventions import effects as home
        case "atlas":
            from mha_core.atlases import run as home
        case "Atlas":
            from mha_core.atlases import query as home
        case "Scene":
            from mha_core.scene import scene as home
        case "attend":
            from mha_core.attention import functional as home
        case "Attended" | "AttentionSpec" | "MultiHeadAttention" | "Projections":
            from mha_core.attention import module as home
        case "ScoreRule":
            from mha_core.attention import score_rule as home
        case "MhaError":
            from mha_core import errors as home
        case "edits":
            import mha_core.attention.edits as edits

            return edits
        case "figures":
            import mha_core.figures as figures

            return figures
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]

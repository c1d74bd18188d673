"""Computes traces and what is asked of them once for all visitors, and holds the trainings of the server."""

import itertools
import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import streamlit as st

import mha_core as mha
from mha_core import resources
from mha_core.attention.edits import Edit
from mha_core.attention.edits import read as read_edit
from mha_core.attention.module import AttentionSpec
from mha_core.cache import Cache, size
from mha_core.errors import listed
from mha_core.scene.link import SETTINGS, WITH_CLS
from mha_core.scene.scene import Scene
from mha_core.sources import mini
from mha_core.sources.random_weights import nbytes
from mha_core.traces.source import EditedSource, RunSource, TrainedSource
from mha_core.training.checkpoints import Trained, untrained
from mha_core.training.language import MAX_WORDS
from mha_core.training.queue import Trainings
from mha_core.training.runs import Runs
from pages._kit import model_source, uploads
from pages._kit.text import language
from pages._server import limits
from pages._server.turns import HEAVY_BYTES, in_turn

SOURCES = ("mini", "random", "run", "model", "file")
OPENED = "opened"  # inside the folder of runs: the models from visitors' files, with bounds of their own
MIN_TRACE_BYTES = 1_000_000  # the least that a trace counts as: it is more than its tensors
MAX_SMALL_TEXT = 64  # tokens; results of longer texts are not kept

Subject = TypeVar("Subject")
Result = TypeVar("Result")
_numbers: WeakKeyDictionary[object, int] = WeakKeyDictionary()  # of the subjects, in the keys of the results
_count = itertools.count()


def _weigh(result: object) -> int:
    return max(result.nbytes, MIN_TRACE_BYTES) if isinstance(result, mha.AttentionTrace) else size(result)


caches: dict[str, Cache[Any]] = {  # what all visitors share, by the names of `limits.KEPT`
    name: Cache(limits.kept_bytes(name), _weigh) for name in limits.KEPT if name not in model_source.KEPT
}


def max_tokens(source: str) -> int:
    """The largest number of tokens that a source reads."""
    most = limits.current().tokens
    return min(most, MAX_WORDS) if source in WITH_CLS else most  # the small models read no more anywhere


def trace(
    scene: Scene, *, text: str | None = None, trained: bool = True, edits: Sequence[Edit] = ()
) -> mha.AttentionTrace:
    """The trace of the scene's text, or of another `text` with the same settings, with `edits` of attention.

    The trace of a saved file ignores `text`. ``trained=False`` takes the model before its first step of
    training. Raises `MhaError` for settings that do not fit, and for a trace without attention.
    """
    if scene.source == "file":
        saved = uploads.trace(scene)
        if saved is None:
            raise mha.MhaError("No saved trace is open; open one above.")
        return saved
    if scene.source == "model":
        traces = model_source.read(scene, scene.text if text is None else text, edits)
        of_kind = traces.with_kind(scene.kind)
        if not of_kind.layers:
            rules = listed(dict.fromkeys(mixer.rule for mixer in of_kind.mixers), "comma")
            raise mha.MhaError(
                "No layer of this model has attention weights ({rules}). The page Real model shows the "
                "matrices by which they mix the words.",
                rules=rules,
                fixes=({"source": "mini"},),
            )
        return of_kind
    settings = scene.settings(text) | ({} if trained else {"trained": False})
    settings |= {"edits": [edit.to_json() for edit in edits]} if edits else {}
    # One canonical string is the key: separate arguments can collide in the cache's hash.
    key = json.dumps(settings, sort_keys=True)
    name = "large traces" if is_large(scene, settings["text"]) else "traces"

    def read() -> mha.AttentionTrace:
        return kept(name, key, lambda: _computed(key))

    # A trace that is kept needs no turn.
    return read() if name == "traces" or key in caches[name] else in_turn(read)


class Nearest(NamedTuple):
    """A trace, its scene, and the reasons why it is not the scene that was asked for."""

    scene: Scene
    trace: mha.AttentionTrace
    reasons: tuple[mha.MhaError, ...]


def nearest(scene: Scene, *, field: str = "text") -> Nearest:
    """The trace of the scene's "text" or "twin", or else the nearest one.

    A text that is too long is cut, and if no small model has the scene's sizes, the one with the nearest
    sizes reads it. The second text takes the model of the first. Raises `MhaError` if there is none.
    """
    reasons: list[mha.MhaError] = []
    while True:
        try:
            return Nearest(scene, trace(scene, text=getattr(scene, field)), tuple(reasons))
        except mha.MhaError as error:
            fix = error.fixes[0] if error.fixes else {}
            sizes = scene.source == "mini" and field == "text" and fix.keys() <= set(SETTINGS["mini"])
            if not fix or len(reasons) > len(SETTINGS["mini"]):
                raise
            changed: dict[str, Any] = fix if sizes else {field: beginning(error)}
            scene = replace(scene, **changed)
            reasons.append(error)


def beginning(error: mha.MhaError) -> str:
    """The beginning of a text that was too long. Raises the error again if it is another one."""
    if len(error.fixes) != 1 or "text" not in error.fixes[0]:
        raise error
    return error.fixes[0]["text"]


def once(subject: Subject, function: Callable[..., Result], *beside: object, **settings: object) -> Result:
    """`function(subject, *beside, **settings)`, computed once for everybody who looks at a short text.

    A class looks at the same sentences, so what is computed from a trace, a layer, a source or another such
    result is shared; nobody may change it. The result may not hold the subject, which would stay in memory
    with it. Its texts are in the reader's language.
    """
    layer = subject.layers[0] if isinstance(subject, mha.AttentionTrace) else subject
    if isinstance(layer, mha.LayerTrace) and max(layer.n_query, layer.n_key) > MAX_SMALL_TEXT:
        return function(subject, *beside, **settings)
    key = (*map(serial_number, (subject, *beside)), function, language(), *settings.items())
    return kept("results", key, lambda: function(subject, *beside, **settings))


def kept(name: str, key: Hashable, function: Callable[[], Result]) -> Result:
    """`function()`, computed once for everybody with that key; `limits.KEPT` has the bytes of each name."""
    return caches[name].get(key, lambda _key: function())


def serial_number(subject: object) -> int:
    """The number of an object in keys; no other object gets it later."""
    return _numbers.setdefault(subject, next(_count))


def cache_key(scene: Scene) -> str:
    """The scene's settings as a string, with the state of the files of a model in a folder."""
    entry = model_source.loaded_model(scene) if scene.source == "model" else None
    return json.dumps([scene.settings(), entry and entry.fingerprint], sort_keys=True, default=str)


def is_large(scene: Scene, text: str) -> bool:
    """Whether the trace takes too much memory to be kept among the small ones."""
    if scene.source != "random":
        return False
    try:
        spec = AttentionSpec(scene.d_model, scene.h, scene.n_kv_heads, scene.d_k, scene.d_v, scene.bias)
    except mha.MhaError:  # the trace is refused
        return False
    tokens = min(len(text), max_tokens("random"))  # a token has at least one character
    return nbytes(spec, tokens, scene.layers, masked=scene.mask != "full") > HEAVY_BYTES


def peek(scene: Scene) -> mha.AttentionTrace | None:
    """The scene's trace or the nearest one; None if its settings do not fit."""
    try:
        return nearest(scene).trace
    except mha.MhaError:
        return None


def small_model(source: TrainedSource) -> Trained:
    """The small trained model of a trace's source; each shipped model is read once."""
    if isinstance(source, RunSource):
        return trainings().model(source.name, source.step)
    return mini.model(mini.find(source.language, source.architecture, source.h, source.d_model))


@st.cache_resource
def trainings() -> Trainings:
    """The one queue of trainings that all visitors of this server share."""
    figures = limits.current()
    return Trainings(
        Runs(resources.runs()),
        Runs(resources.runs() / OPENED),
        max_waiting=figures.waiting,
        max_waiting_of_user=figures.waiting_of_visitor,
    )


def remember_run(name: str) -> None:
    """Note that the visitor trained this model, opened it from a file, or went to look at it."""
    names = st.session_state.setdefault("runs", [])
    if name not in names:
        names.insert(0, name)


def run_names() -> list[str]:
    """The models of this session that are still there, the latest first, and the one that is asked for.

    That one may be gone: then the page says so, and no other is shown in its place.
    """
    here = [name for name in st.session_state.get("runs", []) if trainings().steps(name)]
    asked = st.session_state.get("run") or st.query_params.get("run")
    return here if not asked or asked in here else [asked, *here]


def _computed(settings: str) -> mha.AttentionTrace:
    arguments = json.loads(settings)
    edits = tuple(map(read_edit, arguments.pop("edits", ())))
    if arguments["source"] == "run":
        finished = trainings().model(arguments["run"], arguments["step"])
        trained = finished if arguments.get("trained", True) else untrained(finished.plan)
        trace = mini.follow(trained, arguments["text"], edits=edits)
        source = RunSource(**vars(trace.source.origin), name=arguments["run"])
        return replace(trace, source=EditedSource(source, edits) if edits else source)
    if arguments["source"] == "random":
        figures = limits.current()
        arguments |= {"max_bytes": figures.trace_bytes, "max_flops": figures.trace_flops}
    return mha.trace(limit=max_tokens(arguments["source"]), edits=edits, **arguments)

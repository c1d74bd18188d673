"""Everything that decides what is on screen, as one value. Heads and layers count from 1, as on screen."""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mha_core import resources, sources
from mha_core.attention.edits import Edit
from mha_core.attention.module import AttentionSpec
from mha_core.errors import MAX_SHOWN, MhaError, Phrase, listed, one_of
from mha_core.export.head_view import HeadView
from mha_core.focus.fields import NO_LIMITS, Limits, read_all
from mha_core.focus.focus import FIELDS as FOCUS
from mha_core.focus.focus import Focus
from mha_core.focus.token_names import as_number
from mha_core.scene import changes, swaps
from mha_core.scene import link as grammar
from mha_core.scene.link import APP_ONLY, HEAD, SETTINGS, Refused
from mha_core.scene.page import HOME, OF_APP, PAGES, LinkParts, Page, compose, moved, parts
from mha_core.scene.places import indices
from mha_core.sources.huggingface.model import model_of
from mha_core.traces.tokens import check_characters
from mha_core.traces.trace import AttentionTrace
from mha_core.training import checkpoints
from mha_core.training.lexicon import HIDDEN

# The example sentences of each language; the first is where a visit begins.
EXAMPLES: dict[str, list[dict[str, str]]] = json.loads(
    resources.path("assets", "examples.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Scene:
    """Everything that decides what is on screen: a text, its source and settings, changes, and the focus.

    Its fields have the names in a link. `twin` is a second sentence. `source` is mini, random, model, run or
    file; `model` is an id or a folder, `kind` is encoder, decoder or cross. The other settings are arguments
    of `mha.trace`; those of other sources are ignored. `edits` are the changes of the page What if, `against`
    is the other side of the page Compare, both as in a link. `focus` is where it looks, counted from 1, and
    `page` is the page that shows it.

    >>> opened = mha.Scene.of_link("text=The cat sat&h=8&head=3")
    >>> opened.scene.focus.head, opened.refused
    (3, ())
    """

    text: str = EXAMPLES["en"][0]["text"]
    twin: str = EXAMPLES["en"][0]["twin"]
    source: str = "mini"
    architecture: str = "glass-box"
    run: str | None = None
    step: int | None = None  # of the training; None for the last
    file: str | None = None
    kind: str | None = None
    model: str | None = None
    revision: str | None = None
    dtype: str | None = None
    target: str | None = None
    ask_model: bool = False
    h: int = 4
    d_model: int = 64
    seed: int = 0
    layers: int = 1
    d_k: int | None = None
    d_v: int | None = None
    n_kv_heads: int | None = None
    position: str = "sinusoidal"
    mask: str = "full"
    bias: bool = True
    edits: str = ""
    against: str = ""
    focus: Focus = Focus()
    page: Page = Page()

    @classmethod
    def of_link(cls, link: str) -> "Opened":
        """The `scene` of a link, an address or what follows its "?", and its values that were `refused`.

        Each refused value has its `name`, `value`, the `reason`, and the `replacement` that is used instead:
        the nearest valid number, the valid rest of `edits`, or else the default. If the small models have
        been trained again since, heads have other roles: the layers and heads of the link are left out and
        its `weights` refused. So is a name that is no field of any link, as where a mail has made ``&amp;``
        of an ``&``. Raises `MhaError` if the link is not a text.

        >>> for name, value, reason, replacement in mha.Scene.of_link("d_model=9000").refused:
        ...     print(f"{name}={value}: {reason}; {replacement} is used instead")
        d_model=9000: d_model is a whole number from 1 to 8,192; 8192 is used instead
        """
        name, values, section = parts(link)
        scene, refused = scene_of_values(values)
        known = {*grammar.FIELDS, *FOCUS, grammar.WEIGHTS, *OF_APP}.union(*PAGES.values())
        unknown = [(field, value) for field, value in values.items() if field not in known]
        refused += tuple(Refused(*one, Phrase("no link has a field of this name"), None) for one in unknown)
        name, values = moved(name, values)
        if name not in PAGES:
            refused += (
                Refused("page", name, Phrase("the page is {names}", names=listed(PAGES, "or")), HOME),
            )
            name = HOME
        return Opened(replace(scene, page=Page.of(name, section, values)), refused)

    def link(self) -> str:
        """The scene as a link, ``text=…&h=4&token=it``, which `of_link` reads.

        It contains the text, whose default depends on the language, and everything that is not a default; a
        page other than the home page comes first: ``cost?text=…&cost_h=8#sharing``. With a layer or a head of
        a small model it also contains the edition of the trained weights.

        Raises `MhaError` for a value that no link can have, and for a source that only the app has.
        """
        self._check_source()
        start = vars(replace(DEFAULTS, twin=twin_of(self.text))) | Focus().link()
        values = {
            name: _written(value)
            for name, value in (vars(self) | self.focus.link()).items()
            if name not in NESTED and (value != start[name] or name == "text")
        }
        check_characters("".join(values.values()))
        for one in scene_of_values(values).refused:
            raise MhaError(
                "No link can say {name}={value}: {reason}.",
                name=one.name,
                value=one.value[:MAX_SHOWN],
                reason=one.reason,
                fixes=({one.name: one.replacement},),
            )
        if self.source == "mini" and grammar.names_heads(values):
            values[grammar.WEIGHTS] = str(checkpoints.edition())
        page = self.page
        link = compose(LinkParts(page.name, values | dict(page.fields), page.section))
        return link.removeprefix("?") if page == Page() else link

    def trace(self, edits: Sequence[Edit] = ()) -> AttentionTrace:
        """The trace of its text with its changes, then `edits`; of several kinds of attention, its `kind`.

        The trace without changes is that of `dataclasses.replace(scene, edits="")`. Raises `MhaError` as
        `mha.trace` does, for a source that only the app has, and if no model is chosen.
        """
        self._check_source()
        chosen, _ = changes.read(self.edits)
        trace = self._traced(self.text)
        if chosen or edits:
            text, swapped = self.text, changes.swaps_of(chosen)
            if swapped:
                text = swaps.text(swaps.typed_tokens(text, trace.sides), swapped)
            edits = [*changes.edits_of(chosen), *edits]
            if len(trace.kinds) > 1:
                edits = [replace(edit, kind=self._kind(trace)) for edit in edits]
            trace = self._traced(text, edits)
        return trace.part(self._kind(trace)) if trace.kinds else trace

    def view(self) -> HeadView:
        """The head view of its trace, opened where it looks, with its link. Raises as `trace` does."""
        return view(self.trace(), self)

    def _traced(self, text: str, edits: Sequence[Edit] = ()) -> AttentionTrace:
        if self.source != "model":
            return sources.trace(**self.settings(text), edits=edits)
        if self.model is None:
            raise MhaError("No model is chosen.", fixes=({"source": "mini"},))
        settings: dict[str, Any] = {"revision": self.revision, "dtype": self.dtype}
        has_target = (self.target or "").strip() and model_of(self.model, **settings).has_target
        settings |= {"target": self.target} if has_target else {}
        return sources.trace(text, source=self.model, **settings, edits=edits)

    def _kind(self, trace: AttentionTrace) -> str:
        """The kind of attention to look at: the first one unless another is chosen."""
        return self.kind if self.kind in trace.kinds else trace.kinds[0]

    def _check_source(self) -> None:
        others = [name for name in SETTINGS if name not in APP_ONLY]
        if self.source in APP_ONLY:
            raise MhaError(
                "The source {source!r} of this scene is only in the app in which it was trained; "
                "{others} can be had anywhere."
                if self.source == "run"
                else "The source {source!r} of this scene is only in the app in which it was opened; "
                "{others} can be had anywhere.",
                source=self.source,
                others=listed(others, "and"),
                fixes=tuple({"source": name} for name in others),
            )
        one_of("source", self.source, others)

    def settings(self, text: str | None = None) -> dict:
        """The text, or another one, the source and its settings, by name."""
        names = {name: getattr(self, name) for name in ("source", *SETTINGS[self.source])}
        return {"text": self.text if text is None else text, **names}


def view(trace: AttentionTrace, scene: Scene) -> HeadView:
    """The trace's head view, opened where the scene looks. Raises `MhaError` for a trace without layers."""
    if not trace.layers:
        return trace.view()  # raises MhaError
    layer, head, token = indices(trace, scene.focus)
    named = {as_number(one) for one in scene.focus.heads.split(",")}
    on = [at for at in range(trace.layers[layer].n_heads) if at + 1 in named] if scene.focus.heads else None
    named_token = token if scene.focus.token else None
    shown = trace.view(layer=layer, head=head, token=named_token)
    return replace(shown, header={**shown.header, "on": on}, scene=lambda: scene)


DEFAULTS = Scene()
OLDER = Phrase(
    "the weights have been trained again since, so that its layers and heads are others and were left out"
)
OTHER = Phrase("the weights are others here, so that its layers and heads are others and were left out")
MAX_TRIED = 256  # sizes: enough to find a multiple of any h, also with even parts
NESTED = ("focus", "page")  # fields that have fields of their own


class Opened(NamedTuple):
    """The scene that a link opens, and the values of the link that were refused."""

    scene: Scene
    refused: tuple[Refused, ...]


def scene_of_values(values: Mapping[str, str], limits: Limits = NO_LIMITS) -> Opened:
    """The scene of a link's values by name, and those that were refused.

    `limits` are a server's own: its largest numbers by name, and the most "characters" of a text.
    """
    found, wrong = read_all(grammar.FIELDS, values, Scene, limits)
    if edits := found.get("edits"):
        chosen, others = changes.read(edits)
        found["edits"] = changes.write(chosen)
        if others:
            wrong["edits"] = ";".join(others), changes.RULE
    if "twin" not in values:
        found["twin"] = twin_of(found.get("text", DEFAULTS.text))
    focus, wrong_of_focus = read_all(FOCUS, values, Focus)
    scene = _fitted(Scene(**found, focus=Focus(**focus)), wrong.keys(), limits)
    accepted, wrong = vars(scene) | scene.focus.link(), wrong | wrong_of_focus
    refused = tuple(Refused(name, *why, accepted[name]) for name, why in wrong.items())
    weights, here = values.get(grammar.WEIGHTS, ""), checkpoints.edition()
    if scene.source != "mini" or not grammar.names_heads(values) or weights in ("", str(here)):
        return Opened(scene, refused)
    own = (one for one in refused if one.name not in grammar.OF_HEADS)
    reason = OLDER if grammar.is_older(weights) else OTHER
    return Opened(_without_heads(scene), (*own, Refused(grammar.WEIGHTS, weights, reason, here)))


def _without_heads(scene: Scene) -> Scene:
    """The scene without layers and heads to look at, and without changes of single heads."""
    focus = replace(scene.focus, **{name: getattr(Focus, name) for name in grammar.OF_HEADS})
    chosen = [one for one in changes.read(scene.edits)[0] if getattr(one, "heads", None) is None]
    against = "" if scene.against.partition(":")[0] == HEAD else scene.against
    return replace(scene, focus=focus, edits=changes.write(chosen), against=against)


def _fitted(scene: Scene, repaired: Set[str], limits: Limits) -> Scene:
    """The scene with the sizes that were `repaired` changed to the nearest that fit the others."""
    for name in (name for name in grammar.SIZES if name in repaired):
        size = getattr(scene, name)
        if size is not None and not _fits(scene):
            least, most = grammar.NUMBERS[name].least, limits.get(name, grammar.NUMBERS[name].most)
            near = sorted(range(least, most + 1), key=lambda other: abs(other - size))
            sizes: list[dict[str, Any]] = [{name: other} for other in near[:MAX_TRIED]]
            others = (replace(scene, **changed) for changed in sizes)
            scene = next(filter(_fits, others), scene)
    return scene


def _fits(scene: Scene) -> bool:
    """Whether the sizes fit together, as far as the source of the scene uses them."""
    used = SETTINGS[scene.source]
    if "h" not in used:
        return True
    sizes: list[Any] = [getattr(scene, name) if name in used else None for name in grammar.SIZES]
    try:
        spec = AttentionSpec(*sizes)
    except MhaError:
        return False
    return "position" not in used or scene.position != "rotary" or spec.d_k % 2 == 0


def twin_of(text: str) -> str:
    """The second sentence if a link names none: that of the first visit beside its own first one, else "".

    Words of the first one may be hidden.
    """
    pairs = [*zip(words := text.split(), others := DEFAULTS.text.split(), strict=False)]
    same = len(words) == len(others) and all(HIDDEN in word or word == other for word, other in pairs)
    return DEFAULTS.twin if same else ""


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)

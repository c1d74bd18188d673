"""Everything that decides what is on screen, as one value. Heads and layers count from 1, as on screen."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, NamedTuple

from mha_core.errors import MAX_SHOWN, MhaError, Phrase, listed, one_of
from mha_core.scene import link as grammar
from mha_core.scene.focus import Focus
from mha_core.scene.focus import refusal as focus_refusal
from mha_core.scene.link import Refused
from mha_core.scene.other import HEAD
from mha_core.scene.page import HOME, PAGES, Page, moved
from mha_core.scene.source_settings import OF_THE_APP, SETTINGS
from mha_core.traces.tokens import check_characters

if TYPE_CHECKING:
    from mha_core.attention.edits import Edit
    from mha_core.export.head_view import HeadView
    from mha_core.traces.trace import AttentionTrace


@dataclass(frozen=True)
class Scene:
    """Everything that decides what is on screen: a text, its source and settings, changes, and the focus.

    Its fields have the names of a link. `twin` is a second sentence. `source` is mini, random, model, run or
    file; `model` is an id or a folder, `kind` is encoder, decoder or cross, the other settings are arguments
    of `mha.trace`, and those of other sources wait. `edits` are the changes of the page What if, `against` is
    what the page Compare sets beside it, both as in a link. `focus` is where it looks, in numbers from 1.
    `page` shows it.

    >>> opened = mha.Scene.of_link("text=The cat sat&h=8&head=3")
    >>> opened.scene.focus.head, opened.refused
    (3, ())
    """

    text: str = "The animal didn't cross the street because it was too tired."
    twin: str = "The animal didn't cross the street because it was too wide."
    source: str = "mini"
    architecture: str = "glass-box"
    run: str | None = None
    step: int | None = None  # of the training, None for the last
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
    focus: Focus = field(default_factory=Focus)
    page: Page = field(default_factory=Page)

    @classmethod
    def of_link(cls, link: str) -> "Opened":
        """The `scene` of a link, an address or what follows its "?", and what was `refused` of the link.

        Each value that cannot be is refused with its `name`, `value`, the `reason`, and what was `taken`
        instead: of a number the nearest that can be, of `edits` the rest, and else what a link means that
        does not name it. Where the small models have been trained again since, its layers and heads are left
        out, for heads have other roles then, and its `weights` are refused. Names that are neither of a scene
        nor of its page are passed over. Raises `MhaError` for what is no text.

        >>> for name, value, reason, taken in mha.Scene.of_link("d_model=9000").refused:
        ...     print(f"{name}={value}: {reason}; {taken} was taken")
        d_model=9000: d_model is a whole number from 1 to 8,192; 8192 was taken
        """
        name, values, section = grammar.parts(link)
        scene, refused = opened(values)
        name, values = moved(name, values)
        if name not in PAGES:
            refused += (
                Refused("page", name, Phrase("the page is {names}", names=listed(PAGES, "or")), HOME),
            )
            name = HOME
        return Opened(replace(scene, page=Page.of(name, section, values)), refused)

    def link(self) -> str:
        """The scene as a link, ``text=…&h=4&token=it``, which `of_link` reads.

        It names the text, which begins differently in each language, and everything else that is not a
        default; the page comes first where it is not the home page: ``cost?text=…&cost_h=8#sharing``. Where
        it names a layer or a head of a small model it has the edition of the trained weights, too.

        Raises `MhaError` for a value that no link can have, and for a source that the app alone has.
        """
        self._check_source()
        start = vars(replace(DEFAULTS, twin=twin_of(self.text))) | Focus().link()
        values = {
            name: _written(value)
            for name, value in (vars(self) | self.focus.link()).items()
            if name not in NESTED and (value != start[name] or name == "text")
        }
        check_characters("".join(values.values()))
        for one in opened(values).refused:
            raise MhaError(
                "No link can say {name}={value}: {reason}.",
                name=one.name,
                value=one.value[:MAX_SHOWN],
                reason=one.reason,
                fixes=({one.name: one.taken},),
            )
        if self.source == "mini" and grammar.names_heads(values):
            values[grammar.WEIGHTS] = str(grammar.edition())
        page = self.page
        link = grammar.written(grammar.LinkParts(page.name, values | dict(page.fields), page.section))
        return link.removeprefix("?") if page == Page() else link

    def trace(self, edits: "Sequence[Edit]" = ()) -> "AttentionTrace":
        """The trace of its text with its changes, then `edits`; of several kinds of attention the scene's.

        Without its changes it is `dataclasses.replace(scene, edits="").trace()`. Raises `MhaError` as
        `mha.trace` does, for a source that the app alone has, and where no model is chosen.
        """
        from mha_core.scene import changes, swaps

        self._check_source()
        chosen, _ = changes.read(self.edits)
        trace = self._traced(self.text)
        if chosen or edits:
            text, swapped = self.text, changes.swaps_of(chosen)
            if swapped:
                text = swaps.text(swaps.typed(text, trace.sides), swapped)
            edits = [*changes.edits_of(chosen), *edits]
            if len(trace.kinds) > 1:
                edits = [replace(edit, kind=self._kind(trace)) for edit in edits]
            trace = self._traced(text, edits)
        return trace.part(self._kind(trace)) if trace.kinds else trace

    def view(self) -> "HeadView":
        """The head view of its trace, which begins where it looks, with its link. Raises as `trace`."""
        from mha_core.scene import places

        return places.view(self.trace(), self)

    def _traced(self, text: str, edits: "Sequence[Edit]" = ()) -> "AttentionTrace":
        from mha_core import sources

        if self.source != "model":
            return sources.trace(**self.settings(text), edits=edits)
        from mha_core.sources.huggingface.model import model_of

        if self.model is None:
            raise MhaError("No model is chosen.", fixes=({"source": "mini"},))
        settings = {"revision": self.revision, "dtype": self.dtype}
        has_target = (self.target or "").strip() and model_of(self.model, **settings).has_target
        target = {"target": self.target} if has_target else {}
        return sources.trace(text, source=self.model, **settings, **target, edits=edits)

    def _kind(self, trace: "AttentionTrace") -> str:
        """The kind of attention that is looked at: the first one unless it is chosen."""
        return self.kind if self.kind in trace.kinds else trace.kinds[0]

    def _check_source(self) -> None:
        others = [name for name in SETTINGS if name not in OF_THE_APP]
        if self.source in OF_THE_APP:
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
        """The text, or another one, the source, and what the scene says of that source, by their names."""
        names = {name: getattr(self, name) for name in ("source", *SETTINGS[self.source])}
        return {"text": self.text if text is None else text, **names}


DEFAULTS = Scene()
OLDER = Phrase(
    "the weights have been trained again since, so that its layers and heads are others and were left out"
)
OTHER = Phrase("the weights are others here, so that its layers and heads are others and were left out")
MAX_TRIED = 256  # sizes; among so many in a row one is a multiple of any h, also one of even parts
NESTED = ("focus", "page")  # fields that are values with fields of their own


class Opened(NamedTuple):
    """What a link opens: the scene, and the values of the link that it has others in place of."""

    scene: Scene
    refused: tuple[Refused, ...]


def opened(values: Mapping[str, str], most: Mapping[str, int] | None = None) -> Opened:
    """The scene of a link's values by their names, and those that cannot be.

    `most` are a server's own limits, as in `link.refusal`.
    """
    from mha_core.scene import changes

    found, wrong = {}, {}
    for one in fields(Scene):
        name, value = one.name, values.get(one.name)
        if value is None or name in NESTED:
            continue
        default = getattr(DEFAULTS, name)
        if reason := grammar.refusal(name, value, most):
            wrong[name], found[name] = (value, reason), grammar.instead(name, value, default, most)
        else:
            found[name] = grammar.read(name, value, default)
    if edits := found.get("edits"):
        chosen, others = changes.read(edits)
        found["edits"] = changes.write(chosen)
        if others:
            wrong["edits"] = ";".join(others), changes.RULE
    if "twin" not in values:
        found["twin"] = twin_of(found.get("text", DEFAULTS.text))
    scene = _fitted(Scene(**found, focus=Focus.of_link(values)), wrong.keys(), most)
    focus = scene.focus.link()
    for name in focus:
        if name in values and (reason := focus_refusal(name, values[name])):
            wrong[name] = values[name], reason
    taken = vars(scene) | focus
    refused = tuple(Refused(name, *said, taken[name]) for name, said in wrong.items())
    weights, here = values.get(grammar.WEIGHTS, ""), grammar.edition()
    if scene.source != "mini" or not grammar.names_heads(values) or weights in ("", str(here)):
        return Opened(scene, refused)
    own = (one for one in refused if one.name not in grammar.OF_HEADS)
    reason = OLDER if grammar.is_older(weights) else OTHER
    return Opened(_without_heads(scene), (*own, Refused(grammar.WEIGHTS, weights, reason, here)))


def _without_heads(scene: Scene) -> Scene:
    """The scene of the same link without layers to look at, heads, and changes of single heads."""
    from mha_core.scene import changes

    focus = replace(scene.focus, **{name: getattr(Focus, name) for name in grammar.OF_HEADS})
    chosen = [one for one in changes.read(scene.edits)[0] if getattr(one, "heads", None) is None]
    against = "" if scene.against.partition(":")[0] == HEAD else scene.against
    return replace(scene, focus=focus, edits=changes.write(chosen), against=against)


def _fitted(scene: Scene, repaired: Set[str], most: Mapping[str, int] | None) -> Scene:
    """The scene with the nearest sizes that go with the others in place of those that were repaired."""
    most = grammar.largest() if most is None else most
    for name in (name for name in grammar.SIZES if name in repaired):
        size = getattr(scene, name)
        if size is not None and not _fits(scene):
            near = sorted(range(grammar.LEAST[name], most[name] + 1), key=lambda other: abs(other - size))
            others = (replace(scene, **{name: other}) for other in near[:MAX_TRIED])
            scene = next(filter(_fits, others), scene)
    return scene


def _fits(scene: Scene) -> bool:
    """Do the sizes go together, as far as the source of the scene has them?"""
    from mha_core.attention.module import AttentionSpec

    used = SETTINGS[scene.source]
    if "h" not in used:
        return True
    try:
        spec = AttentionSpec(*(getattr(scene, name) if name in used else None for name in grammar.SIZES))
    except MhaError:
        return False
    return "position" not in used or scene.position != "rotary" or spec.d_k % 2 == 0


def twin_of(text: str) -> str:
    """The second sentence beside a text where a link names none: that of the start with the first, else none.

    Words of the first one may be hidden.
    """
    from mha_core.training.lexicon import HIDDEN

    pairs = [*zip(words := text.split(), others := DEFAULTS.text.split(), strict=False)]
    same = len(words) == len(others) and all(HIDDEN in word or word == other for word, other in pairs)
    return DEFAULTS.twin if same else ""


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)

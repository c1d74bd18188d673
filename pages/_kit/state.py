"""What the app is looking at: every key of its state with its default, and how to move elsewhere.

Keys are URL parameters too (``?text=…&h=4&token=it``), so a copied link shows the same picture. Controls that
are bound to the link hold the scene; the focus is held by the browser (assets/components/address.js), which
writes it into every address and sends it with its messages. Heads and layers count from 1, as on screen.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace

import streamlit as st
from streamlit.errors import StreamlitAPIException

from mha_core import AttentionTrace, MhaError, Tokens
from mha_core.sources import mini
from mha_core.traces.tokens import MARKS
from mha_core.training.lexicon import HIDDEN, lexicon, normalized
from pages._kit import streamlit_parts

# What each source can be asked for, besides the text.
SETTINGS = {
    "mini": ("h", "d_model", "architecture"),
    "random": ("h", "d_model", "seed", "layers", "d_k", "d_v", "n_kv_heads", "position", "mask", "bias"),
    "run": ("run", "step"),
    "file": ("file", "kind"),
    "model": ("model", "revision", "dtype", "target", "kind"),
}
MAX_WORDS = 10_000  # characters of a field of the focus
# The values of those fields of the focus that have a few names; the first is the default.
CHOICES = {
    "drawing": ("lines", "text", "arcs", "matrix"),
    "side": ("query", "key"),
    "specials": ("shown", "hidden"),
    "words": ("pieces", "whole"),
}
STARTED = ("mini", "run")  # sources whose sentences begin with [CLS]


@dataclass(frozen=True)
class Focus:
    """What the pictures of a page look at and how they are drawn: one value in link, server and browser.

    A token is its word, the second "the" is ``the~2``; a number counts from 1. "" chooses nothing, or leaves
    the choice to the picture. `token` looks, and `key_token` is looked at where those are two texts; `pins`
    are further tokens, with spaces between them. They look, or are looked at with the `side` "key". `heads`
    are drawn, the chosen one where it is "", none where it is "0". `hop1` and `hop2` are the two heads that
    words pass through, the best ones where they are "".
    """

    layer: int = 2
    head: int = 1
    token: str = "it"
    key_token: str = ""
    sentence: int = 1
    side: str = "query"
    pins: str = ""
    heads: str = ""
    drawing: str = "lines"
    threshold: str = ""
    lines: str = ""
    specials: str = "shown"
    words: str = "pieces"
    hop1: str = ""
    hop2: str = ""

    @classmethod
    def of_link(cls, values: Mapping[str, object]) -> "Focus":
        """The focus that a link names; a value that makes no sense is left out."""
        return cls(
            **{name: value for name, value in map(_read, _strings(values).items()) if value is not None}
        )

    def link(self) -> dict[str, str]:
        """Every field as it stands in a link."""
        return {name: str(value) for name, value in vars(self).items()}


def _strings(values: Mapping[str, object]) -> dict[str, str]:
    return {field.name: str(values[field.name]) for field in fields(Focus) if field.name in values}


def _read(field: tuple[str, str]) -> tuple[str, int | str | None]:
    """A field of a link with its value; None where that is no number, or too long for anything."""
    name, value = field
    if not isinstance(getattr(Focus, name), int):
        return name, value if len(value) <= MAX_WORDS else None
    number = int(value) if value.isascii() and value.isdecimal() and len(value) < 9 else 0
    return name, number or None


@dataclass(frozen=True)
class Scene:
    """Everything that decides what is on screen."""

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
    focus: Focus = Focus()

    def settings(self, text: str | None = None) -> dict:
        """The source and what it is names for, for this text or another."""
        names = {name: getattr(self, name) for name in ("source", *SETTINGS[self.source])}
        return {"text": self.text if text is None else text, **names}


DEFAULTS = Scene()
CONTROLS = tuple(
    field.name for field in fields(Scene) if field.name != "focus"
)  # each has a control of its name


def begin() -> bool:
    """Take up the focus of the link at first, and after Back and Forward; the frame calls it first.

    Returns whether it did.
    """
    new = "focus" not in st.session_state or streamlit_parts.after_history()
    _hear()
    if streamlit_parts.after_history():
        _take_link()
    return new


def _hear() -> None:
    """Take up what the browser has sent since; it stands in every message until another is sent."""
    if "focus" not in st.session_state:
        _take_link()
    hear((st.session_state.get("address") or {}).get("focus"))


def hear(sent: Mapping | None) -> None:
    """Take up what the browser has sent of the focus, perhaps with a message about a part of the page.

    It counts what it sends: an older message stands in later ones, too.
    """
    if sent and sent["count"] > st.session_state.get("focus_count", 0):
        st.session_state["focus_count"] = sent["count"]
        _take(sent["link"])


def _take_link() -> None:
    _take(st.query_params.to_dict())
    st.session_state["token_is_named"] = True


def _take(link: Mapping[str, object]) -> None:
    st.session_state["focus"] = Focus.of_link(link)
    st.session_state["focus_heard"] = Focus().link() | _strings(link)


def focus() -> Focus:
    """What the pictures of the page look at."""
    _hear()
    return st.session_state["focus"]


def setting(name: str):
    """What the control of that name holds, or its default."""
    chosen = st.session_state.get(name)
    return getattr(DEFAULTS, name) if chosen is None else chosen


def current() -> Scene:
    """The scene that the controls describe, also where a page runs without its frame."""
    held = st.session_state.to_dict()
    chosen = {name: held.get(name) for name in CONTROLS}
    nothing = {
        name for name, value in chosen.items() if value is None or (value == "" and _is_optional(name))
    }
    return Scene(**{name: chosen[name] for name in chosen.keys() - nothing}, focus=focus())


def _is_optional(name: str) -> bool:
    return getattr(DEFAULTS, name) is None


def address() -> dict[str, dict[str, str]]:
    """For the browser: the focus, the one that it was heard to hold before, and the one of a bare link."""
    return {
        "focus": focus().link(),
        "heard": st.session_state["focus_heard"],
        "defaults": Focus().link(),
    }


def indices(trace: AttentionTrace, scene: Scene) -> tuple[int, int, int]:
    """Layer, head and token of the scene as positions from 0 that the trace has."""
    focus = scene.focus
    layer = min(focus.layer, len(trace.layers)) - 1
    of_layer = trace.layers[layer]
    token = token_in(trace.sides.queries, scene)
    return layer, min(focus.head, of_layer.n_heads) - 1, min(token, of_layer.n_query - 1)


def name_tokens(trace: AttentionTrace) -> None:
    """Give the focus's tokens the names of words, which another sentence has, too, where they are numbered.

    A new text is looked at from its `first_token` alone, whatever was looked at in the old one, unless a
    token was named with it, by a link or by the page. So is a text that has no word of the name.
    """
    now, queries, keys = focus(), trace.sides.queries, trace.sides.keys
    text, is_named = setting("text"), st.session_state.pop("token_is_named", False)
    is_new = st.session_state.get("text_of_token", text) != text
    st.session_state["text_of_token"] = text
    is_other = is_new and not is_named
    if is_other:
        now = replace(now, sentence=1, key_token="", pins="")
    if now.sentence != 1:
        return
    token, key = _numbered(queries, now.token), _numbered(keys, now.key_token)
    if now.token and (is_other or position(queries, now.token) is None):
        token = first_token(queries)
    names = {} if token is None else {"token": name_of(queries, token)}
    if now.key_token:
        key = position(keys, now.key_token) if key is None else key
        names["key_token"] = "" if key is None else name_of(keys, key)
    pinned = [position(keys if now.side == "key" else queries, pin) for pin in now.pins.split()]
    pins = [name_of(keys if now.side == "key" else queries, pin) for pin in pinned if pin is not None]
    names |= {"pins": " ".join(pins)}
    st.session_state["focus"] = replace(now, **names)


def shape_of(trace: AttentionTrace) -> list[int]:
    """The number of heads of each layer."""
    return [layer.n_heads for layer in trace.layers]


def within(focus: Focus, shapes: Sequence[Sequence[int]]) -> Focus:
    """The focus with the last layer or head of these traces in place of one beyond it, in no layer at all."""
    n_layers, n_heads = max(map(len, shapes)), max(max(shape) for shape in shapes)
    drawn = focus.heads.split(",")
    kept = [one for one in drawn if as_number(one) is None or as_number(one) <= n_heads]
    hops = {name: as_number(getattr(focus, name)) or 0 for name in ("hop1", "hop2")}
    return replace(
        focus,
        layer=min(focus.layer, n_layers),
        head=min(focus.head, n_heads),
        heads=focus.heads if len(kept) == len(drawn) else ",".join(kept),
        **{name: str(n_heads) for name, hop in hops.items() if hop > n_heads},
    )


def stay_within(trace: AttentionTrace) -> None:
    """Move the focus to what there is, where the layers or heads have become others since the last run.

    Or the page's own link would name what nobody sees. What stands in no link, as the layer and the head that
    a page begins with, stays.
    """
    shape, now = shape_of(trace), focus()
    if st.session_state.get("shape", shape) != shape:
        inside = within(now, [shape])
        kept = {name: getattr(now, name) for name in ("layer", "head")}
        first = {name: value for name, value in kept.items() if value == getattr(Focus, name)}
        st.session_state["focus"] = replace(inside, **first)
    st.session_state["shape"] = shape


def say_instead(name: str, taken: object) -> None:
    """A page has another value in a field of its own than the link; the frame says so in its line."""
    st.session_state.setdefault("instead", {})[name] = taken


def as_number(text: str) -> int | None:
    """The number that a value of a link is, however many digits it has; None for anything else."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 19  # Python reads 4,300 digits at most
    return int(text) if is_number else None


def _numbered(tokens: Tokens, name: str) -> int | None:
    """The position from 0 that a number from 1 means, the last one beyond the end; None for a word."""
    number = as_number(name)
    return min(number, len(tokens)) - 1 if number else None


def token_in(tokens: Tokens, scene: Scene) -> int:
    """The position from 0 of the scene's token in these."""
    at = position(tokens, scene.focus.token)
    return first_token(tokens) if at is None else at


def first_token(tokens: Tokens) -> int:
    """The position from 0 of the word that is looked at first: a pronoun.

    Where there is none it is a hidden word, a noun, a verb or a word that no lexicon has, or any word.
    """
    words = lexicon(mini.language(tokens.text))
    spans = tokens.spans or [(0, 1)] * len(tokens)
    pieces = [normalized(piece.lstrip(MARKS)) for piece in tokens.pieces]
    typed = [at for at, (start, end) in enumerate(spans) if start < end and at not in tokens.special]

    def is_content(piece: str) -> bool:
        known = piece in words.noun_forms or words.kinds.get(piece) == "verb"
        return known or (any(map(str.isalpha, piece)) and piece not in words.number)

    tests = (
        words.pronouns.__contains__,
        HIDDEN.__eq__,
        is_content,
        lambda piece: any(map(str.isalpha, piece)),
    )
    return next((at for test in tests for at in typed if test(pieces[at])), typed[0] if typed else 0)


def position(tokens: Tokens, name: str) -> int | None:
    """The position from 0 of the token of this name, a word or a number from 1; None where there is none.

    Of a word that was cut into pieces, or that stands several times, it is the first.
    """
    number = _numbered(tokens, name)
    if number is not None or not name:
        return number
    try:
        return tokens.index(name)
    except MhaError as error:
        return error.fixes[0]["token"] if error.fixes else None


def name_of(tokens: Tokens, at: int) -> str:
    """The name of a token in a focus: its word, or its number where the word would not lead back to it."""
    forms = [label.partition("\u2009")[0].lstrip(MARKS) for label in tokens.labels[: at + 1]]
    names = (forms[at], f"{forms[at]}~{forms.count(forms[at])}")
    words = (name for name in names if name and " " not in name and not name.isdecimal())
    return next((name for name in words if _leads_to(tokens, name, at)), str(at + 1))


def _leads_to(tokens: Tokens, name: str, at: int) -> bool:
    try:
        return tokens.index(name) == at
    except MhaError:
        return False


def follow(key: str, **values: object) -> None:
    """Move to another scene, and to the page to which the link in the container of that key leads.

    The link is followed in the browser: Streamlit changes no page while controls are bound to the link.
    """
    go(**values)
    st.session_state.follow = key


def go(**values: object) -> None:
    """Move to another scene; for callbacks, since a widget's state is set before it is drawn.

    A token is named by its word or its number from 1. The link follows a control that the page has drawn by
    itself, and Streamlit refuses a second writer; for the others it is written here.
    """
    _hear()
    names = [field.name for field in fields(Focus) if field.name in values]
    moves = {name: "" if (value := values.pop(name)) is None else str(value) for name in names}
    if moves.get("token"):
        st.session_state["token_is_named"] = True
    st.session_state["focus"] = Focus.of_link(st.session_state["focus"].link() | moves)
    st.session_state.update(values)
    for name, value in values.items():
        if name in CONTROLS and value not in (None, "", getattr(DEFAULTS, name)):
            with suppress(StreamlitAPIException):
                st.query_params[name] = str(value)


def forget(key: str) -> None:
    """Let go of what the user has chosen under a key that is no control; for callbacks."""
    st.session_state.pop(key, None)

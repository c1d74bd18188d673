"""The head view: all heads of a layer over a sentence, in the app, in a notebook, or in a saved page.

The page contains the numbers, packed by `payload`, and our scripts, all compressed and in base64; it loads
nothing from elsewhere. It is ASCII, so it can be written in any encoding and pasted anywhere.
"""

import html
import json
import re
import struct
import warnings
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial, reduce
from os import PathLike
from typing import TYPE_CHECKING, Any

from mha_core import resources
from mha_core.errors import Listed, MhaError, Phrase, count_of, in_range, listed, named_type, shown
from mha_core.export import scripts
from mha_core.export.payload import BUDGET, Panel, fitting, pack, size
from mha_core.focus.focus import focus_on
from mha_core.focus.token_names import names
from mha_core.traces import showing
from mha_core.traces.answers import NOTHING
from mha_core.traces.indices import index
from mha_core.traces.matrices import VIEWED
from mha_core.traces.source import RandomSource, TrainedSource, caption
from mha_core.traces.storage import replacing
from mha_core.traces.tokens import MASK_TOKENS, special_positions, word_groups
from mha_core.traces.trace import AttentionTrace

if TYPE_CHECKING:
    from mha_core.interventions.ledger import Ledger

STYLES = (
    "pictures/print.css",
    "pictures/matrix_gallery.css",
    "pictures/cell_path.css",
    "pictures/ledger.css",
    "view/head_view.css",
)


OF_MODELS = ("page/share.css", "page/model_page.css")  # further styles, of a page that computes


@cache
def page(program: str = "page/program.js", styles: Sequence[str] = ()) -> str:
    """The page, with ``__PARTS__`` in place of its parts and ``__OLD__`` of a text for old browsers."""
    style = "".join(map(scripts.asset, (*STYLES, "page/page.css", *styles)))
    script = "\0".join(map(scripts.bare, (style, scripts.merged(program))))
    start = scripts.bare(scripts.asset("page/start.js"))
    return _with_parts(scripts.asset("page/page.html"), {"PROGRAM": packed(script.encode()), "START": start})


def filled(header: Mapping[str, Any], payload: bytes) -> str:
    """The whole page with this header and payload, as assets/components/page/program.js reads them."""
    apology = html.escape(header["texts"]["old_browser"]).encode("ascii", "xmlcharrefreplace").decode()
    encoded = json.dumps(header).encode()
    numbers = struct.pack("<I", len(encoded)) + encoded + payload
    return _with_parts(page(), {"OLD": apology, "PARTS": part("numbers", numbers), "FILES": ""})


def with_parts(parts: Mapping[str, bytes], files: str = "") -> str:
    """A page that computes, with these parts inside, by their names; `files` are the sources of others."""
    apology = texts("en")["old_browser"]
    inside = "\n".join(part(name, data) for name, data in parts.items())
    template = page("page/model_program.js", OF_MODELS)
    return _with_parts(template, {"OLD": apology, "PARTS": inside, "FILES": files})


def part(name: str, data: bytes) -> str:
    """A part of a page, as assets/components/page/parts.js finds it."""
    return f'<script type="text/plain" id="{name}">{packed(data)}</script>'


def packed(data: bytes) -> str:
    """Bytes as text, compressed."""
    return b64encode(zlib.compress(data)).decode("ascii")


def _with_parts(template: str, parts: Mapping[str, str]) -> str:
    """The template with each ``__NAME__`` replaced once; a part itself is not searched for more."""
    return re.sub(r"__([A-Z]+)__", lambda slot: parts.get(slot[1], slot[0]), template)


TEXTS, LEDGER_TEXTS = "head_view.", "ledger."  # prefixes of the keys of texts
HEIGHTS = (100, 10_000)  # limits of the height of a frame in a notebook, in pixels
MAX_HEIGHT, MIN_HEIGHT, TOKEN_HEIGHT = 1080, 740, 22  # for a frame without a given height
LONGEST_TITLE = 400  # characters: each row of a table has it
ALL_LAYERS = 8  # budgets that a file may take, since it cannot load more later


@dataclass(frozen=True, eq=False)
class HeadView:
    """The head view of a trace: a notebook shows it, and `save` writes a page that works without a server.

    `height` is that of its frame in a notebook, in pixels. `scene` computes the scene that it shows.
    """

    header: dict = field(repr=False)
    blob: bytes = field(repr=False)
    height: int
    scene: Callable[[], Any] = field(repr=False)

    def __repr__(self) -> str:
        header = self.header
        return (
            f"<HeadView {header['file']}: {header['source']}; "
            f"layers[{header['layer']}] of {header['layers']}, {count_of(header['heads'], 'head')}>"
        )

    def link(self) -> str:
        """The link that opens the same picture in the app: ``headscope open "text=…&head=3&token=it"``.

        The scene of the link is computed to check that it gives the same numbers. Raises `MhaError` if it
        does not, and for a trace that no link can reproduce: of arrays, of a model in memory, with a mask or
        weights of your own. `Scene.view` has the link of any scene.
        """
        return self.scene().link()

    def html(self) -> str:
        """The whole page with numbers and scripts, in ASCII."""
        return filled(self.header, self.blob)

    def save(self, path: str | PathLike, *, model: bool = False) -> None:
        """Write the page as one HTML file, replacing an existing file in one step.

        With `model` the small model itself is inside: the page opens where the view looks, and computes any
        sentence in the browser, and any change of What if. A warning names the layers and heads of a page
        with numbers if not all of them fit. Raises `MhaError` if the folder does not exist, and with `model`
        for a trace that is not of a shipped model.
        """
        if model:
            showing.save_model_page(path, self.link())
            return
        if self.header["held"]:
            warnings.warn(self.header["held"], stacklevel=2)
        with replacing(path) as temporary:
            temporary.write_text(self.html(), encoding="utf-8")

    def _repr_html_(self) -> str:
        """The page in a frame, for a notebook."""
        return (
            f'<iframe srcdoc="{html.escape(self.html())}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{self.height}px;border:0" title="Headscope"></iframe>'
        )


def view(
    trace: AttentionTrace,
    *,
    layer: int | None = None,
    head: int | None = None,
    token: int | str | None = None,
    heads: Sequence[int] | None = None,
    beside: AttentionTrace | None = None,
    titles: Sequence[str] | None = None,
    height: int | None = None,
    ledger: "Ledger | None" = None,
    language: str = "en",
    said: Callable[[str], str] = str,
) -> HeadView:
    """The head view of one trace: the lines of a token in a layer (by default the last), and six matrices.

    Another trace with as many layers and heads can be shown `beside` it, and a ledger of the first one below.
    The page contains as many layers as fit, the nearest to the chosen one first; of a long text only heads
    around the chosen one. Layers, heads and tokens count from 0; `token` is a query, by position or by word.
    `said` is that of `header_of`. Raises as `AttentionTrace.view` does.
    """
    if beside is not None and not hasattr(beside, "layers"):
        raise MhaError("beside is a second trace; got {type}.", type=named_type(beside))
    traces = [trace] if beside is None else [trace, beside]
    _check_layers(traces)
    layer = index("layer", -1 if layer is None else layer, len(trace.layers), of=Phrase("This trace"))
    chosen = trace.layers[layer]
    if ledger is not None:
        _check_ledger(trace, ledger)
        token = ledger.token if token is None and ledger.token < chosen.n_query else token
    if token is not None:
        token = trace.sides.queries.index(token) if isinstance(token, str) else token
        token = index("token", token, chosen.n_query, of=Phrase("This trace"))
    if heads is not None and not isinstance(heads, Iterable):
        raise MhaError("heads are a list of heads, as in heads=[0, 2]; got {heads}.", heads=repr(heads))
    on = None if heads is None else [chosen.head_index(one) for one in heads]
    if on == []:
        raise MhaError("heads names no head; name one at least, or leave it out.")
    if head is not None:
        head = chosen.head_index(head)
        on = on or [head]
    else:
        head = on[0] if on else 0
    if height is not None:
        in_range("height", height, *HEIGHTS)
    titles = _titles(traces) if titles is None else titles
    named = isinstance(titles, list | tuple) and all(isinstance(title, str) for title in titles)
    if not named or len(titles) != len(traces):
        raise MhaError(
            "titles are a list with a title for each trace, here {n_traces}; got {titles}.",
            n_traces=len(traces),
            titles=shown(titles),
        )
    budget = ALL_LAYERS * BUDGET // len(traces)
    numbers, loaded_heads = fitting(largest(traces).layers, layer, head, budget=budget, values=True)
    panels = [panel(each, numbers, title) for each, title in zip(traces, titles, strict=True)]
    blob = pack(panels, heads=loaded_heads, values=True)
    tokens = max(len(text) for each in traces for text in (each.sides.queries, each.sides.keys))
    frame_height = min(MAX_HEIGHT, MIN_HEIGHT + TOKEN_HEIGHT * tokens) if height is None else height
    focus = focus_on(trace, layer, head, token, on)
    header = header_of(
        traces,
        layer=layer,
        head=head,
        token=token,
        on=on,
        texts=texts(language),
        said=said,
    )
    header |= {"matrices": True, "held": held(texts(language), trace, layer, numbers, loaded_heads)}
    if ledger is not None:
        header["ledger"] = ledger.drawing() | {"texts": ledger_texts(language)}
    return HeadView(header, blob, frame_height, partial(showing.scene_of, traces, focus))


def _check_ledger(trace: AttentionTrace, ledger: "Ledger") -> None:
    """Raise `MhaError` for anything but a ledger of a token of this trace."""
    if not hasattr(ledger, "drawing"):
        raise MhaError("ledger= takes what mha.ledger(trace) returns; got {type}.", type=named_type(ledger))
    if ledger.label not in trace.answered.labels[ledger.token : ledger.token + 1]:
        raise MhaError(
            "The ledger explains token {token}, {label!r}, which this trace does not have there; call "
            "mha.ledger on this trace.",
            token=ledger.token,
            label=ledger.label,
        )


def _check_layers(traces: Sequence[AttentionTrace]) -> None:
    """Raise `MhaError` for a trace with layers of several kinds, and for traces of different sizes."""
    for trace in traces:
        if len(trace.kinds) > 1:
            raise MhaError(
                "This trace has layers of the kinds {kinds}; look at one of them, "
                "as in trace.part({kind!r}).view().",
                kinds=listed(trace.kinds, "comma"),
                kind=trace.kinds[-1],
            )
    counts = [[layer.n_heads for layer in trace.layers] for trace in traces]
    if counts[0] != counts[-1]:
        largest = [max(each, default=0) for each in counts]
        raise MhaError(
            "A trace beside another must have as many layers and heads; these have {n_layers} and "
            "{n_layers_beside} layers, with {n_heads} and {n_heads_beside} heads.",
            n_layers=len(counts[0]),
            n_layers_beside=len(counts[1]),
            n_heads=largest[0],
            n_heads_beside=largest[1],
        )


def _titles(traces: Sequence[AttentionTrace]) -> list[str]:
    """The titles of the traces: the facts of the source in which they differ, then the text."""
    facts = [trace.source.caption_facts() for trace in traces]
    differences = [
        caption({key: value for key, value in one.items() if any(other.get(key) != value for other in facts)})
        for one in facts
    ]
    return [
        f"{mark} · \u2068{trace.title}\u2069" if mark else trace.title
        for mark, trace in zip(differences, traces, strict=True)
    ]


def held(
    texts: Mapping[str, str],
    trace: AttentionTrace,
    layer: int,
    numbers: Sequence[int],
    heads: Sequence[int] | None,
) -> str:
    """Which of its layers, and of the heads of one, a page holds, in a sentence each; "" for all of them."""
    every = ("layer", numbers, len(trace.layers)), ("head", heads, trace.layers[layer].n_heads)
    said = [
        texts[f"held_{kind}{'s' * (len(has) > 1)}"].format(first=has[0] + 1, last=has[-1] + 1, count=count)
        for kind, has, count in every
        if has is not None and len(has) < count
    ]
    return reduce(lambda one, other: texts["two_sentences"].format(first=one, last=other), said or [""])


def largest(traces: Sequence[AttentionTrace]) -> AttentionTrace:
    """The largest of several traces of one model: layers and heads of it that fit, fit for all."""
    return max(traces, key=lambda trace: sum(map(size, trace.layers)))


def header_of(
    traces: Sequence[AttentionTrace],
    *,
    layer: int,
    said: Callable[[str], str] = str,
    **options: Any,
) -> dict:
    """`header` of traces of one model; `options` are its other arguments.

    `said` puts phrases into the language of the texts: the names of edits and the source of the numbers.
    """
    first = traces[0]
    about = header(
        list(map(special, traces)),
        n_layers=len(first.layers),
        n_heads=first.layers[layer].n_heads,
        layer=layer,
        source=said(caption_of(traces, layer)),
        title=first.title,
        **options,
    )
    return about | {
        "kv": first.layers[layer].n_kv_heads,
        "groups": list(map(groups, traces)),
        "unknown": [[list(trace.sides.queries.unknown), list(trace.sides.keys.unknown)] for trace in traces],
        "questions": list(map(questions, traces)),
        "edits": [[said(edit.describe()) for edit in trace.source.edits] for trace in traces],
        "random": all(isinstance(trace.source.origin, RandomSource) for trace in traces),
    }


def caption_of(traces: Sequence[AttentionTrace], layer: int) -> Listed:
    """The source of the numbers, in one line that is true of all the traces.

    Where the traces have different edits, the line names those of each, in the order of the traces.
    """
    layers = [trace.layers[layer] for trace in traces]
    sizes = [{"h": one.n_heads, "d_model": one.d_model} for one in layers]
    first, *others = (of | trace.source.caption_facts() for of, trace in zip(sizes, traces, strict=True))
    shared = {key: value for key, value in first.items() if all(o.get(key) == value for o in others)}
    edits = [facts.get("edited", Phrase("(no)")) for facts in (first, *others)]
    if len(set(edits)) > 1:
        shared["edited"] = reduce(lambda one, other: Phrase("{one} | {other}", one=one, other=other), edits)
    return caption(shared)


def header(
    special: list[list[list[int]]],
    *,
    n_layers: int,
    n_heads: int,
    layer: int,
    head: int,
    token: int | None,
    on: Sequence[int] | None,
    source: str,
    title: str,
    texts: Mapping[str, str],
    name: str = "view",
) -> dict:
    """The settings that the scripts read besides the numbers, here of weights that belong to no trace.

    For each panel, `special` has the positions of its queries and of its keys. `on` are the heads drawn
    first; by default those that answer at the chosen token, else the chosen one. A view may ask for
    "matrices", of the chosen head and of all heads, and say in "held" which layers and heads it has.

    `header_of` adds what traces know: "kv", the number of key/value heads, of which neighbours share one; for
    each panel the results of `groups` and `questions`, the "unknown" words, and descriptions of the "edits";
    and whether all weights are "random", so that their lines are grey.
    """
    return {
        "name": name,
        "id": name,
        "layers": n_layers,
        "heads": n_heads,
        "kv": None,
        "layer": layer,
        "head": head,
        "token": token,
        "on": None if on is None else list(on),
        "special": special,
        "groups": None,
        "unknown": [],
        "questions": [],
        "edits": [],
        "matrices": False,
        "random": False,
        "held": "",
        "source": source,
        "file": "-".join(re.findall(r"\w+", f"headscope {title[:40]}")),
        "texts": dict(texts),
    }


def panel(trace: AttentionTrace, numbers: Sequence[int], title: str | None = None) -> Panel:
    """The trace as one panel with these layers, titled by its text, cut where it is long, or by `title`."""
    sides = trace.sides
    of_keys = {} if sides.same else {"keys": sides.keys.labels, "key_names": names(sides.keys)}
    layers = {number: trace.layers[number] for number in numbers}
    title = trace.title if title is None else title
    title = title if len(title) <= LONGEST_TITLE else f"{title[:LONGEST_TITLE]}…"
    return Panel(title, sides.queries.labels, layers, names=names(sides.queries), **of_keys)


def special(trace: AttentionTrace) -> list[list[int]]:
    """Positions of tokens that are not words, of the queries and of the keys, or else the first one.

    The first token can be a sink, but not among queries that are never keys.
    """
    sides = trace.sides
    return [special_positions(sides.queries) or [0] * sides.same, special_positions(sides.keys) or [0]]


def questions(trace: AttentionTrace) -> list[dict[str, list]]:
    """The questions of each head of the last layer, and the queries at which it has nothing to find.

    These are the tokens at which the answer to each of its questions is `NOTHING`; a head without questions
    has nothing to find anywhere, and of one that is switched off it is not said. At a hidden word all heads
    help to guess it. Empty for a model without questions.
    """
    origin = trace.source.origin
    if not trace.questions or not isinstance(origin, TrainedSource):
        return []
    pieces = trace.answered.pieces
    hidden = {at for at, piece in enumerate(pieces) if piece in MASK_TOKENS}
    heads: list[dict[str, list]] = []
    given = trace.layers[-1].rule.patched_outputs  # by edits
    for head, asks in enumerate(map(str.split, origin.questions)):
        asked = [(at, answer) for q in asks for at, answer in enumerate(trace.questions.get(q, ())) if answer]
        found = hidden | {at for at, answer in asked if answer[0][0] != NOTHING}
        if given is not None and not given[head % len(given)].any():
            found = set(range(len(pieces)))
        heads.append({"asks": asks, "nothing": [at for at in range(len(pieces)) if at not in found]})
    return heads


def groups(trace: AttentionTrace) -> dict | None:
    """For each side the number of each token's word, and the words; None if every token is a word."""
    sides = trace.sides.queries, trace.sides.keys
    joined_sides = [word_groups(side) for side in sides]
    if not any(joined_sides):
        return None
    words = [
        (range(len(side)), side.labels) if words_of_side is None else words_of_side
        for side, words_of_side in zip(sides, joined_sides, strict=True)
    ]
    return {
        name: {"of": list(of), "labels": list(labels)}
        for name, (of, labels) in zip(("query", "key"), words, strict=True)
    }


@cache
def texts(language: str) -> dict[str, str]:
    """The texts of the view and of the matrices that it draws, by their keys."""
    words = catalogue(language)
    of_matrices = {f"matrix_{name}": words[f"matrix.{name}"] for name in (*VIEWED, "alt")}
    return _of_prefix(TEXTS, words) | {"lang": words["language.code"]} | of_matrices


@cache
def ledger_texts(language: str) -> dict[str, str]:
    """The texts of a ledger, by their keys."""
    return _of_prefix(LEDGER_TEXTS, catalogue(language))


def catalogue(language: str) -> dict[str, str]:
    """All texts of a language, by their keys."""
    return json.loads(resources.path("assets", "languages", f"{language}.json").read_text(encoding="utf-8"))


def _of_prefix(prefix: str, words: Mapping[str, str]) -> dict[str, str]:
    """The texts below a prefix, and the words with which every script joins a list."""
    own = {key.removeprefix(prefix): text for key, text in words.items() if key.startswith(prefix)}
    return own | {name: words[f"list.{name}"] for name in ("comma", "sentence", "two_sentences")}

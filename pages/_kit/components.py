"""Our components: the sentence as tokens, all heads at a glance, and a Back button that works.

Their scripts are modules that the app serves (app.py). Data reaches the page by `textContent` and canvas
alone.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
import streamlit as st

from mha_core import LayerTrace
from mha_core.export import scripts
from pages._kit import heights
from pages._kit.text import number, t

HIDDEN = 255


# A component's own script fetches its module, and all that this imports, at once.
LOADER = """\
const at = (file) => new URL(`./headscope/{digest}/${{file}}`, document.baseURI);
const modules = Promise.all({files}.map((file) => import(at(file)))).catch((error) => {{
  throw new Error({sorry}, {{ cause: error }});
}});
export default async (component) => (await modules)[0].default(component);
"""


def component(name: str, module: str, *, html: str | None = None, style: str | None = None, **options):
    """A component of Streamlit's whose script is the default export of one of assets/components."""
    first, *others = reversed(scripts.order(module))
    js = LOADER.format(
        digest=scripts.digest(),
        files=json.dumps([first, *others]),
        sorry=json.dumps(t("components.not_served")),
    )
    css = None if style is None else scripts.asset(style)
    return st.components.v2.component(f"headscope_{name}", html=html, js=js, css=css, **options)


_grid = component(
    "head_grid", "head_grid.js", html='<div class="grid" role="group"></div>', style="head_grid.css"
)
_strip = component(
    "token_strip", "token_strip.js", html='<div class="strip" role="group"></div>', style="token_strip.css"
)
_history = component("history", "history.js")
_charts = component("charts", "charts.js", style="charts.css", isolate_styles=False)
_bytes = component("bytes", "blobs.js")


def send(name: str, data: bytes, *, key: str) -> None:
    """Bytes for the scripts of the page, sent again only when they change; shows nothing.

    The scripts find them by their name and `digest` (blobs.js). Sent after the component that shows them:
    what is still loading takes some height, also where it shows nothing in the end.
    """
    header = {"name": name, "digest": digest(data)}
    _bytes(key=key, data=json.dumps(header).encode() + b"\n" + data)


def digest(data: bytes) -> str:
    """The name of these bytes: the scripts wait for the ones with the digest that they are told."""
    return blake2b(data, digest_size=8).hexdigest()


def history() -> None:
    """Make the browser's Back undo a change of a control; shows nothing."""
    _history(key="history")


def charts(words: dict[str, str], on_pick) -> None:
    """Let every plotly figure be clicked, and it and our own be saved; shows nothing by itself.

    `on_pick` gets the figure's key and the row and column of the cell, from 0, None for no token.
    """
    _charts(key="charts", data=words, on_picked_change=lambda: on_pick(**st.session_state.charts.picked))


def head_grid(
    layer: LayerTrace,
    labels: Sequence[str],
    *,
    chosen: int,
    limits: Sequence[float],
    roles: Sequence[str],
    on_pick,
    meta: Mapping[str, object],
    numbers: Mapping[str, object] | None = None,
    keys: Sequence[str] | None = None,
) -> None:
    """Every head's weights as a small picture; `limits` is where each one's colours end.

    `labels` are those of the tokens; of another text that is looked at they are `keys`.
    `roles` is what each head was measured to do, if anything; `on_pick` gets the number of the head
    that was chosen, counted from 0. `meta` is what a file of them says, as `charts.described` has it;
    `numbers` is where the browser finds the weights for a table, as `head_view.of_traces` returns it.
    """
    options = {"chosen": chosen, "roles": roles, "meta": meta, "numbers": numbers}
    data = grid_data(layer, labels, limits=limits, keys=keys, **options)
    _grid(key="head_grid", data=data, on_picked_change=lambda: on_pick(st.session_state.head_grid.picked))


def grid_data(
    layer: LayerTrace,
    labels: Sequence[str],
    *,
    chosen: int,
    limits: Sequence[float],
    roles: Sequence[str] = (),
    meta: Mapping[str, object] | None = None,
    numbers: Mapping[str, object] | None = None,
    keys: Sequence[str] | None = None,
) -> bytes:
    """One byte a cell behind a JSON header, as head_grid.js reads it."""
    weights, allowed = layer.weights(), layer.allowed()
    share = np.clip(weights / np.asarray(limits)[:, None, None], 0, 1)
    cells = np.where(allowed, np.rint(share * (HIDDEN - 1)), HIDDEN).astype(np.uint8)
    header = {
        "title": t("heads.grid_label"),
        "meta": meta or {},
        "numbers": numbers,
        "rows": layer.n_query,
        "columns": layer.n_key,
        "chosen": chosen,
        "width": 108 if layer.n_heads <= 8 else 88,
        "names": [t("heads.grid_name", head=head + 1) for head in range(layer.n_heads)],
        "roles": list(roles) or [""] * layer.n_heads,
        "hints": [_hint(head, weights[head], labels, keys or labels) for head in range(layer.n_heads)],
    }
    packed = json.dumps(header).encode()
    return struct.pack("<I", len(packed)) + packed + cells.tobytes()


def token_strip(
    row: np.ndarray | None,
    allowed: np.ndarray | None,
    labels: Sequence[str],
    *,
    chosen: int,
    limit: float,
    on_pick,
    key: str = "token_strip",
    hides: Sequence[str | None] | None = None,
    query: str | None = None,
    columns: int = 1,
):
    """The sentence, shaded by the weights that the chosen token gives; all positions from 0.

    `hides` says, where a click does more than choose a token, what it does (None: nothing more). The weights
    may be given by a `query` of another text; without any (`row` None) the sentence is not shaded. The strip
    stands in one of so many `columns` of the page.
    """
    query = labels[chosen] if query is None else query
    rows = () if row is None else zip(labels, row, allowed, strict=True)
    data = {
        "title": t("token.strip"),
        "tokens": list(labels),
        "weights": None
        if row is None
        else [float(weight) if may else None for weight, may in zip(row, allowed, strict=True)],
        "limit": float(limit),
        "chosen": chosen,
        "hides": None if hides is None else list(hides),
        "hints": [
            t("token.hint", query=query, key=key, weight=number(weight))
            if may
            else t("token.hint_hidden", query=query, key=key)
            for key, weight, may in rows
        ]
        or list(labels),
    }
    _strip(
        key=key,
        data=data,
        height=heights.strip(labels, columns),
        on_picked_change=lambda: on_pick(st.session_state[key].picked),
    )


def _hint(head: int, weights: np.ndarray, labels: Sequence[str], keys: Sequence[str]) -> str:
    row, column = np.unravel_index(weights.argmax(), weights.shape)
    largest = number(weights[row, column])
    return t("heads.grid_hint", head=head + 1, weight=largest, query=labels[row], key=keys[column])

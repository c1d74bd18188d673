"""Changes of a cache on the view Decode: which rows are kept, rows dropped by hand, two rows exchanged."""

from collections.abc import Sequence

import streamlit as st

from mha_core import AttentionTrace
from mha_core.attention.edits import Edit, Evict, Exchange, Mask
from mha_core.scene import changes
from mha_core.scene.changes import Change
from mha_core.scene.scene import Scene
from pages._kit import state
from pages._kit.text import isolated, joined, literal, t

ALL, KEPT = "all", 3  # earlier rows of a window at first
KEEPS = (ALL, "window", "streaming")
BY_HAND = {"drop": ("row",), "exchange": ("row", "other_row")}
ICONS = {"drop": ":material/delete_sweep:", "exchange": ":material/swap_vert:"}


def acting(scene: Scene, trace: AttentionTrace) -> tuple[Edit, ...]:
    """The changes of a cache among those of the scene, as far as the text has their rows."""

    def acts(change: Change) -> bool:
        if isinstance(change, Mask):
            everywhere = change.layer is change.heads is None
            return everywhere and change.mask.partition(":")[0] in KEEPS
        return isinstance(change, Evict | Exchange) and max(_rows(change)) < len(trace.tokens)

    return changes.edits_of(filter(acts, changes.read(scene.edits)[0]))


def _rows(change: Evict | Exchange) -> list[int]:
    """The rows that are dropped or exchanged; a link has numbers, no words."""
    keys = (change.one, change.other) if isinstance(change, Exchange) else change.keys
    return list(keys)  # type: ignore[arg-type]


def choose(scene: Scene, trace: AttentionTrace, *, at: int) -> None:
    """The controls: what is kept by rule, a row to drop, two rows to exchange, and what acts already."""
    every, chosen = changes.read(scene.edits)[0], acting(scene, trace)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _keep(every, next((one for one in chosen if isinstance(one, Mask)), None))
        for name, fields in BY_HAND.items():
            if at >= len(fields):
                _by_hand(name, fields, trace, every, at=at)
    with st.container(horizontal=True, vertical_alignment="center"):
        for one in chosen:
            if isinstance(one, Evict | Exchange):
                words = joined(literal(isolated(trace.tokens.labels[row])) for row in _rows(one))
                name = "drop" if isinstance(one, Evict) else "exchange"
                st.button(
                    t(f"decode.{name}_says", words=words, since=one.since + 1),
                    key=f"lift_{changes.text(one)}",
                    icon=":material/close:",
                    on_click=_set,
                    args=([other for other in every if other != one],),
                )


def _keep(every: Sequence[Change], mask: Mask | None) -> None:
    """Which rows are kept by rule; for a window also how many."""
    name, _, size = ("" if mask is None else mask.mask).partition(":")
    st.session_state["decode_keep"] = name or ALL
    st.session_state["decode_kept"] = int(size or KEPT)

    def chosen() -> None:
        kept, rows = (st.session_state.get(key) for key in ("decode_keep", "decode_kept"))
        masks = [] if kept == ALL else [Mask(mask=f"{kept}:{rows or KEPT}")]
        _set([*(one for one in every if one != mask), *masks])

    st.segmented_control(
        t("decode.keep"),
        KEEPS,
        required=True,
        format_func=lambda keep: t(f"decode.keep_{keep}"),
        key="decode_keep",
        on_change=chosen,
    )
    if name:
        st.number_input(t("decode.window"), 1, 999, key="decode_kept", width=130, on_change=chosen)


def _by_hand(
    name: str, fields: Sequence[str], trace: AttentionTrace, every: Sequence[Change], *, at: int
) -> None:
    """A popover that drops a row of the cache, or exchanges two, from this step on."""
    labels, rows = trace.tokens.labels, list[int]()
    keys = [f"decode_{name}_{field}" for field in fields]

    def apply() -> None:  # with the rows that are chosen now: a press may come before a run has seen them
        one, *_, other = [st.session_state[key] for key in (*keys, keys[-1])]
        made = Evict(keys=[one], since=at) if name == "drop" else Exchange(one=one, other=other, since=at)
        _set([*every, made])

    with st.popover(t(f"decode.{name}"), icon=ICONS[name], key=f"{name}_{len(every)}"):
        for field, key in zip(fields, keys, strict=True):
            rest = [row for row in range(at) if row not in rows]
            named = {row: f"{row + 1} · {isolated(labels[row])}" for row in rest}
            rows.append(st.selectbox(t(f"decode.{field}"), rest, format_func=named.__getitem__, key=key))
        st.button(t(f"decode.{name}_apply"), key=f"{name}_apply", on_click=apply)


def _set(chosen: Sequence[Change]) -> None:
    state.go(edits=changes.write(chosen))

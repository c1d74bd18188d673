"""Our components: their loading, bytes for the scripts, the focus in the address, sharing.

Their scripts are modules that the app serves (app.py). Data reaches the page by `textContent` and canvas
alone.
"""

import json
from collections.abc import Callable, Mapping
from hashlib import blake2b
from html import escape
from typing import Any

import streamlit as st

from mha_core.export import scripts
from mha_core.training import checkpoints
from pages._kit import state
from pages._kit.text import (
    COOKIE,
    DEFAULT,
    catalogue,
    chosen_language,
    joined,
    language,
    shared_language,
    t,
    template,
    templates,
)
from pages._server import limits, streamlit_parts

# A component's own script fetches its module with all imports and its style sheets at once. Streamlit itself
# would send a style sheet with every run.
LOADER = """\
const at = (file) => new URL(`./headscope/{digest}/${{file}}`, document.baseURI);
const failed = (error) => {{
  throw new Error({sorry}, {{ cause: error }});
}};
const modules = Promise.all({files}.map((file) => import(at(file)))).catch(failed);
const sheet = async (file) => new CSSStyleSheet().replace(await (await fetch(at(file))).text());
const kept = (window.headscopeSheets ??= {{}}); // each is fetched once for all components
const sheets = Promise.all({styles}.map((file) => (kept[file] ??= sheet(file)))).catch(failed);
export default async (component) => {{
  const data = Array.isArray(component.data) ? component.data[0] : component.data;
  const [[module], styles] = await Promise.all([modules, sheets]);
  const {{ adoptedStyleSheets }} = component.parentElement.getRootNode();
  adoptedStyleSheets.push(...styles.filter((style) => !adoptedStyleSheets.includes(style)));
  return module.default({{ ...component, data }});
}};
"""


def component(
    name: str, module: str, *styles: str, box: str | None = None, **options: Any
) -> Callable[..., Any]:
    """A Streamlit component whose script is the default export of a module in assets/components.

    One with styles is drawn in an element of the class `box`, or else of its name; others show nothing.

    Its data is bytes, or a mapping, which is sent in a list, because Streamlit would search it for tables.
    Until the script has drawn it, a component is as high as the `height` with which it is mounted; then the
    script lifts that (`fitHeight` in streamlit/adapter.js). Otherwise what is below would be pushed down.
    """
    first, *others = reversed(scripts.order(module))
    js = LOADER.format(
        digest=scripts.digest(),
        files=json.dumps([first, *others]),
        styles=json.dumps(list(styles)),
        sorry=json.dumps(t("components.not_served")),
    )
    html = f'<div class="{box or name}"></div>' if styles else None
    mount = st.components.v2.component(f"headscope_{name}", html=html, js=js, **options)

    def draw(*, data: bytes | Mapping[str, object], **arguments: Any) -> Any:
        return mount(data=data if isinstance(data, bytes) else [data], **arguments)

    return draw


_address = component("address", "streamlit/address.js")
_charts = component(
    "charts", "pictures/charts.js", css=scripts.asset("pictures/charts.css"), isolate_styles=False
)
_bytes = component("bytes", "numbers/blobs.js")
_share = component("share", "streamlit/share.js", "page/share.css")
_whole = component("whole", "streamlit/embedded.js", "streamlit/embedded.css")


def send(name: str, data: bytes) -> None:
    """Send bytes to the scripts of the page, and again only when they change; shows nothing.

    The scripts find them by name and `digest` (blobs.js). Call it after the component that shows them: while
    it loads, even a component that shows nothing takes up some height.
    """
    header = {"name": name, "digest": digest(data)}
    _bytes(key=f"{name}_blob", data=json.dumps(header).encode() + b"\n" + data)


def digest(data: bytes) -> str:
    """The name of these bytes; a script waits for the bytes with the digest that it was given."""
    return blake2b(data, digest_size=8).hexdigest()


def address() -> None:
    """Keep the focus in the browser's address, so that Back undoes a choice; shows nothing.

    The browser also remembers the language that the visitor has chosen, and follows a link (state.follow).
    """
    chosen = chosen_language()
    data = {
        **state.address(),
        "follow": st.session_state.pop("follow", None),
        "weights": str(checkpoints.edition()),
        "ownWords": _own_words(),
        "language": t("language.code"),
        "cookie": chosen and f"{COOKIE}={chosen}",
    }
    _address(key="address", data=data, on_focus_change=lambda: None)


def _own_words() -> dict[str, list[tuple[str, str]]]:
    """The words that Streamlit shows by itself, in English and translated, by where they stand."""
    if language() == DEFAULT:
        return {}
    english = catalogue(DEFAULT)
    return {
        selector: [(english[f"streamlit.{name}"], template(f"streamlit.{name}")) for name in names.split()]
        for selector, names in streamlit_parts.OWN_WORDS.items()
    }


def charts() -> None:
    """Mount the script that makes every figure savable; it shows nothing on the page."""
    _charts(key="charts", data={name: t(f"save.{name}") for name in ("open", "png", "svg", "csv")})


def share_menu() -> None:
    """Draw the menu that shares a scene, in the header of every page."""
    data = {"texts": templates("share."), "note": _share_note(), "language": shared_language()}
    _share(key="share", data=data)


def _share_note() -> str:
    """A note on who will not see what is shared; "" if everybody will."""
    sites = limits.framing_sites()
    if st.session_state.get("source", st.query_params.get("source")) == "file":
        return t("share.file")
    if sites == limits.THIS_MACHINE:
        return t("share.this_machine", variable=limits.FRAMES)
    return "" if sites is None else t("share.sites", sites=joined(sites))


def code(text: str, *, wraps: bool = False) -> None:
    """Draw code without colours, and a button that copies it (streamlit/code.js).

    For ``st.code`` a browser fetches 1.5 MB, the colours of every language. Tab reaches the code, so that the
    keyboard scrolls a long line.
    """
    copy, copied = (escape(t(f"code.{name}")) for name in ("copy", "copied"))
    button = (
        f'<button type="button" data-copy="{copy}" data-copied="{copied}" aria-live="polite">{copy}</button>'
    )
    kind = "code-block wraps" if wraps else "code-block"
    st.html(f'<div class="{kind}"><pre tabindex="0">{escape(text.strip())}</pre>{button}</div>')


def link_to_whole() -> None:
    """Draw, in a frame on another site, the link that opens the same scene with all its controls."""
    _whole(key="whole", data={"text": t("share.whole")})

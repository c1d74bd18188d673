"""The private parts of Streamlit that our scripts rely on (streamlit/adapter.js) still exist."""

import pytest
from playwright.sync_api import expect

from mha_core.export import scripts

MODULE = f"./headscope/{scripts.digest()}/streamlit/adapter.js"
IMPORTED = f"const ours = await import(new URL('{MODULE}', document.baseURI));"


@pytest.fixture
def page(visit, app):
    return visit(app)


def test_the_adapter_detects_the_end_of_a_run_and_follows_a_link(page):
    acts = page.evaluate(
        f"""async () => {{
            {IMPORTED}
            const [real, act, later] = [window.setTimeout, () => {{}}, []];
            window.setTimeout = (next) => later.push(next); // the first: what it does a moment later
            ours.atRest(act);
            window.setTimeout = real;
            return later.length === 1 && later[0] === act;
        }}"""
    )
    assert acts  # and does not look again
    followed = """async () => {
        const box = document.createElement('div');
        box.className = 'st-key-there';
        const link = box.appendChild(document.createElement('a'));
        let clicks = 0;
        link.onclick = () => { clicks += 1; };
        document.body.append(box);
        ours.followLink('there');
        ours.followLink('nowhere');
        box.remove();
        return clicks;
    }"""
    assert page.evaluate(followed.replace("async () => {", f"async () => {{ {IMPORTED}")) == 1


@pytest.mark.parametrize(
    ("address", "keys"),
    [("?source=random&layers=3", ("head_view", "overview_fold")), ("token", ("chooser",))],
)
def test_components_have_the_height_they_need(visit, app, address, keys):
    page = visit(f"{app}/{address}")
    for key in keys:
        page.locator(f".st-key-{key} :is(.panel, canvas, button)").first.wait_for()
        box = page.locator(f".st-key-{key}")
        style = box.evaluate("box => [box.style.height, box.style.flex, box.style.overflow]")
        assert style == ["auto", "0 0 auto", "visible"], key
        box.evaluate(
            "box => box.querySelectorAll('*').forEach(({ shadowRoot }) => shadowRoot?.replaceChildren())"
        )
        assert box.bounding_box()["height"] < 100, key  # it has no more room than what is in it


def test_a_control_is_written_into_the_address_in_streamlits_form(page, settled):
    # Written over what is in place: ours is called by it, and passes on what it leaves alone.
    page.evaluate(
        """() => {
            window.written = [];
            for (const how of ['replaceState', 'pushState']) {
                const real = history[how];
                history[how] = (state, title, url) => {
                    window.written.push([how, String(url)]);
                    real.call(history, state, title, url);
                };
            }
        }"""
    )
    number = page.get_by_role("spinbutton", name="Heads, h", exact=True)
    number.fill("2")
    page.keyboard.press("Enter")
    settled(page)
    written = page.evaluate("window.written")  # a write of the opening run may still come first
    how, address = next((how, address) for how, address in written if "h=2" in address)
    assert how == "replaceState"
    assert address.startswith("http://")
    page.go_back()  # to an entry of its own: without one it would be another page's
    settled(page)
    expect(number).to_have_value("4")

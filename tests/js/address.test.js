// The address of the page while the reader goes back, and the server still speaks of the page that was left.
import assert from "node:assert/strict";
import test from "node:test";

test("an address to which Back returns is not overwritten until its page is there", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const window = new EventTarget();
  let isAtRest = false;
  let heard = 0;
  window.addEventListener("popstate", () => heard++);
  const PopStateEvent = Event;
  Object.assign(globalThis, { window, PopStateEvent, document: { querySelector: () => isAtRest || null } });
  const location = new URL("http://a.b/?text=c");
  const write = (_state, _title, url) => Object.assign(location, { href: new URL(url, location).href });
  const history = /** @type {any} */ ({ pushState: write, replaceState: write });
  return import("../../assets/components/streamlit/adapter.js").then(({ undoByBack }) => {
    undoByBack((url) => new URL(url ?? location.href, location).href, history, /** @type {any} */ (location));
    const search = (url) => {
      history.pushState({}, "", url);
      return location.search;
    };
    history.pushState({}, "", "/lessons?lesson=make");
    location.href = "http://a.b/?text=c"; // Back
    window.dispatchEvent(new Event("popstate"));
    assert.equal(search("?lesson=make&file=d"), "?text=c");
    history.replaceState({}, "", "?lesson=make");
    assert.equal(location.search, "?text=c");
    history.pushState({}, "", "/lessons?lesson=make"); // opened anew, before Back could be heard
    assert.deepEqual([location.href, heard], ["http://a.b/?text=c", 2]);
    history.replaceState({}, "", "?lesson=make");
    assert.equal(location.search, "?text=c");
    isAtRest = true;
    for (let moment = 0; moment < 20; moment++) t.mock.timers.tick(50);
    assert.equal(search("?text=e"), "?text=e");
    window.dispatchEvent(new Event("popstate")); // on the same page
    assert.equal(search("?text=f"), "?text=f");
  });
});

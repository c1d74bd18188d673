// The focus of a view as a link, and read back.
import assert from "node:assert/strict";
import test from "node:test";
import { linkOf, placeOf } from "../../assets/components/scene/focus_link.js";
import { CHOICES, DEFAULTS } from "../../assets/components/scene/schema.js";
import { DRAWINGS } from "../../assets/components/view/head_view.js";

/** @type {any} */
const HEADER = { layer: 1, head: 2, layers: 2, heads: 4, on: [2], token: null };
const panelOf = (names, keys = null, heads = [0, 1, 2, 3]) => {
  const tokens = [...names];
  const layers = new Map([0, 1].map((number) => [number, { heads }]));
  return { tokens, keys: keys ?? tokens, names, keyNames: keys ?? names, layers };
};
/** @type {any} */
const ONE = [panelOf(["the~1", "cat", "the~2", "4"])];
/** @type {any} */
const TWO = [panelOf(["the", "cat"], ["le", "chat"])];

const place = (focus, panels = ONE, header = HEADER) => placeOf({ ...DEFAULTS, ...focus }, header, panels);

test("every drawing that a link can name can be drawn, in its order", () => {
  assert.deepEqual(Object.keys(DRAWINGS), CHOICES.drawing);
});

test("a link without choices has the first of each", () => {
  const { drawing, side, rescaled, words, threshold, maxLines } = place({});
  assert.deepEqual([drawing, side, rescaled, words], [CHOICES.drawing[0], CHOICES.side[0], false, false]);
  assert.deepEqual([threshold, maxLines], [null, 0]);
});

test("two texts are not drawn as arcs, and unknown drawings are ignored", () => {
  assert.equal(place({ drawing: "arcs" }).drawing, "arcs");
  assert.equal(place({ drawing: "arcs" }, TWO).drawing, "lines");
  assert.equal(place({ drawing: "pie" }).drawing, "lines");
});

test("layers and heads beyond the last become the last", () => {
  const at = (layer, head) => {
    const found = place({ layer, head });
    return [found.layer, found.head];
  };
  assert.deepEqual(at("9", "99"), [1, 3]);
  assert.deepEqual(at("1", "2"), [0, 1]);
  for (const none of ["", "0", "-1", "x", "1.5", "100000000"]) assert.deepEqual(at(none, none), [1, 2], none);
});

test("the heads of the link that exist are switched on", () => {
  assert.equal(place({ head: "2" }).on, null);
  assert.deepEqual(place({ heads: "1,3" }).on, [0, 2]);
  assert.deepEqual(place({ heads: "0" }).on, []);
  assert.deepEqual(place({ heads: "1,3" }, [panelOf(["a"], null, [2, 3])]).on, [2]);
});

test("the focus reads back from its link", () => {
  const drawn = { threshold: 0.25, maxLines: 7, rescaled: true, matrix: "weights", number: "9,3" };
  const common = { layer: 1, head: 2, nth: 0, side: "query", words: true, fitted: true, ...drawn };
  const places = [
    { ...common, layer: 0, head: 3, on: [3], tokens: [0, 2], drawing: "matrix" },
    { ...common, head: 0, on: [0, 1], side: "key", tokens: [3], drawing: "arcs", threshold: null },
    { ...common, on: [], tokens: [], drawing: "text", words: false, fitted: false },
    { ...common, on: null, tokens: [1], drawing: "lines" },
  ];
  for (const looked of places) {
    const link = linkOf({ looked, original: ONE, two: false }, { ...DEFAULTS });
    assert.deepEqual(placeOf(link, HEADER, ONE), looked);
  }
});

test("with two texts the link has a token for each side", () => {
  const looked = { ...place({}, TWO), side: "key", tokens: [1] };
  const link = linkOf({ looked, original: TWO, two: true }, { ...DEFAULTS, token: "the" });
  assert.deepEqual([link.token, link.key_token], ["the", "chat"]);
});

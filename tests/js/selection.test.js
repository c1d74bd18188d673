// The selection of a head view: what is kept for another scene, and how it moves.
import assert from "node:assert/strict";
import test from "node:test";
import { Selection } from "../../assets/components/view/selection.js";

const panelOf = (words, keys = null) => {
  const tokens = words.split(" ");
  const layers = new Map([0, 1].map((number) => [number, { number, heads: [0, 1, 2, 3] }]));
  return { title: words, tokens, keys: keys?.split(" ") ?? tokens, layers };
};
const HEADER = { id: "v", layers: 2, heads: 4, layer: 1, head: 2, token: null, on: null, special: [], texts: {} };

/** @param {any} header @param {any} panels */
function shown(header = {}, ...panels) {
  const selection = new Selection();
  selection.show(/** @type {any} */ ({ ...HEADER, ...header }), panels.length ? panels : [panelOf("the cat sat")]);
  return selection;
}

test("a view begins with the focus of its header", () => {
  const { looked } = shown({ token: 1 });
  assert.deepEqual([looked.layer, looked.head, looked.on, looked.side, looked.tokens], [1, 2, null, "query", [1]]);
  assert.deepEqual(shown().heads, [2]);
  for (const on of [[1], [1, 3]]) {
    const asked = shown({ on, token: 2, questions: [ASKED] });
    assert.deepEqual([asked.heads, asked.chosenHead], [on, 1]);
  }
});

test("another sentence keeps the chosen heads but not the words", () => {
  const selection = shown();
  selection.choose(0, "key", 2, false);
  selection.on = new Set([0, 3]);
  selection.show(selection.header, [panelOf("the cat sat")]);
  assert.deepEqual(selection.looked.tokens, [2]);
  assert.deepEqual(selection.heads, [0, 3]);
  selection.show(selection.header, [panelOf("a dog ran")]);
  assert.deepEqual(selection.looked.tokens, []);
});

test("the chosen head is the last one switched on", () => {
  const selection = shown();
  selection.on = new Set([0, 3]);
  selection.last = 3;
  assert.equal(selection.chosenHead, 3);
  selection.on = new Set([0, 2]);
  assert.equal(selection.chosenHead, 2); // the page's own
  selection.on = new Set([0, 1]);
  assert.equal(selection.chosenHead, 0);
  selection.on = new Set();
  assert.equal(selection.chosenHead, 2);
});

// Of "the cat sat": what each head is asked, and at which words it has nothing to find.
const ASKED = [
  { asks: ["noun"], nothing: [0, 2] },
  { asks: ["doer"], nothing: [0, 1] },
  { asks: ["doer", "object"], nothing: [0, 1] },
  { asks: ["noun"], nothing: [0, 2] },
];

test("at first one head of each answered question is drawn", () => {
  const selection = shown({ token: 2, questions: [ASKED] });
  assert.deepEqual([selection.heads, selection.chosenHead], [[2], 2]);
  selection.choose(0, "query", 1, false); // two heads are asked for its noun: the first
  assert.deepEqual([selection.heads, selection.chosenHead], [[0], 0]);
  selection.choose(0, "query", 0, false); // nothing to find: the chosen head
  assert.deepEqual([selection.heads, selection.chosenHead], [[2], 2]);
  selection.choose(0, "query", 0, false); // no word is chosen
  assert.deepEqual(selection.heads, [2]);
});

test("a head that an answer names is drawn, also if it finds no word", () => {
  const at = [[], [], [["What does it stand for?", "perhaps no word here", "", false, [0]]]];
  assert.deepEqual(shown({ token: 2, questions: [ASKED], answers: [at] }).heads, [0, 2]);
});

test("drawn heads follow the hovered token, but the chosen head stays", () => {
  const selection = shown({ token: 2, questions: [ASKED] });
  selection.hover = selection.everywhere(0, { side: "query", tokens: [1] });
  assert.deepEqual([selection.heads, selection.chosenHead], [[0], 2]);
});

test("switched heads stay for any token", () => {
  const selection = shown({ token: 2, questions: [ASKED] });
  selection.on = new Set([3]);
  selection.choose(0, "query", 1, false);
  assert.deepEqual([selection.heads, selection.looked.on], [[3], [3]]);
  selection.on = null;
  selection.state.layer = 0;
  assert.deepEqual(selection.heads, [2]);
});

test("a second click unpins a word only in its own sentence", () => {
  const selection = shown({}, panelOf("the cat sat"), panelOf("the dog sat"));
  const held = () => selection.pinned.map((one) => one?.tokens ?? null);
  selection.choose(0, "query", 2, false);
  assert.deepEqual(held(), [[2], [2]]);
  selection.choose(1, "query", 2, false);
  assert.deepEqual([held(), selection.nth], [[[2], [2]], 1]);
  selection.choose(1, "query", 2, false);
  assert.deepEqual(held(), [null, null]);
});

test("another panel shows the same word, or the one in its place", () => {
  const selection = shown({}, panelOf("the cat sat"), panelOf("sat the dog"));
  selection.choose(0, "query", 2, false);
  selection.lookAtPanel(1);
  assert.deepEqual(selection.active(selection.panels[1]), { side: "query", token: 0 });
  selection.choose(1, "query", 2, false); // "dog", which the first one lacks
  selection.lookAtPanel(0);
  assert.deepEqual(selection.active(selection.panels[0]), { side: "query", token: 1 });
});

test("a given focus is applied, and a redraw reported if needed", () => {
  const selection = shown();
  const place = { ...selection.looked, layer: 0, head: 1, on: [1, 2], tokens: [0, 2] };
  assert.equal(selection.goTo(place), false);
  assert.deepEqual(selection.looked, place);
  const other = { ...place, drawing: "arcs", side: "key", threshold: 0.1, rescaled: true };
  assert.equal(selection.goTo(other), true);
  assert.deepEqual(selection.looked, other);
});

test("arcs become lines between two texts", () => {
  const selection = shown();
  selection.set("drawing", "arcs");
  selection.show(selection.header, [panelOf("the cat", "le chat")]);
  assert.equal(selection.state.drawing, "lines");
});

test("the choice follows a change of direction, and is dropped when words are joined", () => {
  const selection = shown();
  selection.choose(0, "query", 1, false);
  selection.set("side", "key");
  assert.deepEqual(selection.pinned, [{ side: "key", tokens: [1] }]);
  selection.set("words", true);
  assert.equal(selection.pinned, null);
});

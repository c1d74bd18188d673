// What a head view looks at: what stays and what goes when something else is shown, and where it is moved to.
import assert from "node:assert/strict";
import test from "node:test";
import { Selection } from "../../assets/components/view/selection.js";

const panelOf = (words, keys = null) => {
  const tokens = words.split(" ");
  const layers = new Map([0, 1].map((number) => [number, { number, heads: [0, 1, 2, 3] }]));
  return { title: words, tokens, keys: keys?.split(" ") ?? tokens, layers };
};
const HEADER = { id: "v", layers: 2, heads: 4, layer: 1, head: 2, token: null, on: [2], special: [], texts: {} };

/** @param {any} header @param {any} panels */
function shown(header = {}, ...panels) {
  const selection = new Selection();
  selection.show(/** @type {any} */ ({ ...HEADER, ...header }), panels.length ? panels : [panelOf("the cat sat")]);
  return selection;
}

test("it begins where its header says", () => {
  const { looked } = shown({ token: 1 });
  assert.deepEqual([looked.layer, looked.head, looked.on, looked.side, looked.tokens], [1, 2, null, "query", [1]]);
  assert.deepEqual(shown().heads, [2]);
  assert.deepEqual(shown({ on: [1, 3] }).heads, [1, 3]);
});

test("in the same sentence heads and words stay chosen, in another one the words do not", () => {
  const selection = shown();
  selection.choose(0, "key", 2, false);
  selection.on = new Set([0, 3]);
  selection.show(selection.header, [panelOf("the cat sat")]);
  assert.deepEqual(selection.looked.tokens, [2]);
  assert.deepEqual(selection.heads, [0, 3]);
  selection.show(selection.header, [panelOf("a dog ran")]);
  assert.deepEqual(selection.looked.tokens, []);
});

test("the chosen head is the one that was switched on last, as long as it is on", () => {
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

test("until heads are switched, one head of each question is drawn that has an answer there", () => {
  const selection = shown({ token: 2, questions: [ASKED] });
  assert.deepEqual([selection.heads, selection.chosenHead], [[2], 2]);
  selection.choose(0, "query", 1, false); // two heads are asked for its noun: the first
  assert.deepEqual([selection.heads, selection.chosenHead], [[0], 0]);
  selection.choose(0, "query", 0, false); // nothing to find: the chosen head
  assert.deepEqual([selection.heads, selection.chosenHead], [[2], 2]);
  selection.choose(0, "query", 0, false); // no word is chosen
  assert.deepEqual(selection.heads, [2]);
});

test("heads that answer follow what is pointed at, but the chosen head does not", () => {
  const selection = shown({ token: 2, questions: [ASKED] });
  selection.hover = selection.everywhere(0, { side: "query", tokens: [1] });
  assert.deepEqual([selection.heads, selection.chosenHead], [[0], 2]);
});

test("switched heads stay, whatever is looked at; in another layer none is asked", () => {
  const selection = shown({ token: 2, questions: [ASKED] });
  selection.on = new Set([3]);
  selection.choose(0, "query", 1, false);
  assert.deepEqual([selection.heads, selection.looked.on], [[3], [3]]);
  selection.on = null;
  selection.state.layer = 0;
  assert.deepEqual(selection.heads, [2]);
});

test("a second click lets go of a word in its own sentence alone", () => {
  const selection = shown({}, panelOf("the cat sat"), panelOf("the dog sat"));
  const held = () => selection.pinned.map((one) => one?.tokens ?? null);
  selection.choose(0, "query", 2, false);
  assert.deepEqual(held(), [[2], [2]]);
  selection.choose(1, "query", 2, false);
  assert.deepEqual([held(), selection.nth], [[[2], [2]], 1]);
  selection.choose(1, "query", 2, false);
  assert.deepEqual(held(), [null, null]);
});

test("another panel is looked at where the same word stands, or at the one in its place", () => {
  const selection = shown({}, panelOf("the cat sat"), panelOf("sat the dog"));
  selection.choose(0, "query", 2, false);
  selection.lookAtPanel(1);
  assert.deepEqual(selection.active(selection.panels[1]), { side: "query", token: 0 });
  selection.choose(1, "query", 2, false); // "dog", which the first one lacks
  selection.lookAtPanel(0);
  assert.deepEqual(selection.active(selection.panels[0]), { side: "query", token: 2 });
});

test("where it is told to look it looks, and says whether all is drawn in another way", () => {
  const selection = shown();
  const place = { ...selection.looked, layer: 0, head: 1, on: [1, 2], tokens: [0, 2] };
  assert.equal(selection.goTo(place), false);
  assert.deepEqual(selection.looked, place);
  const other = { ...place, drawing: "arcs", side: "key", threshold: 0.1, rescaled: true };
  assert.equal(selection.goTo(other), true);
  assert.deepEqual(selection.looked, other);
});

test("arcs become lines where one text looks at another", () => {
  const selection = shown();
  selection.set("drawing", "arcs");
  selection.show(selection.header, [panelOf("the cat", "le chat")]);
  assert.equal(selection.state.drawing, "lines");
});

test("what is chosen turns round with the direction, and goes where words are joined", () => {
  const selection = shown();
  selection.choose(0, "query", 1, false);
  selection.set("side", "key");
  assert.deepEqual(selection.pinned, [{ side: "key", tokens: [1] }]);
  selection.set("words", true);
  assert.equal(selection.pinned, null);
});

// A panel: unknown words, rows without meaning, and empty rows.
import assert from "node:assert/strict";
import test from "node:test";
import { layerOf, nothingIn, prepared } from "../../assets/components/numbers/panel.js";

const QUERY_WORDS = [0, 1, 2, 2, 3, 4, 5];
const KEY_WORDS = [0, 1, 1, 1, 2, 3, 3, 4, 5, 6, 7];
const lettered = (letter, count) => Array.from({ length: count }, (_, at) => `${letter}${at}`);

test("names are dim if no head that is on has anything to find", () => {
  const heads = [
    { asks: ["noun"], nothing: [0, 2, 3, 6] },
    { asks: ["doer"], nothing: [2, 3, 4, 6] },
  ];
  /** @type {any} */
  const header = { layers: 2, questions: [heads, []] };
  assert.deepEqual(nothingIn(header, 0, 1, [0]), [0, 2, 3, 6]);
  assert.deepEqual(nothingIn(header, 0, 1, [0, 1]), [2, 3, 6]);
  assert.deepEqual(nothingIn(header, 0, 0, [0]), []); // only in the last layer heads are asked
  assert.deepEqual(nothingIn(header, 1, 1, [0]), []);
  assert.deepEqual(nothingIn(header, 0, 1, []), []);
  assert.deepEqual(
    nothingIn(header, 0, 1, [0, 1], (_, at) => QUERY_WORDS[at]),
    [2, 5],
  );
  assert.deepEqual(nothingIn(/** @type {any} */ ({ layers: 2 }), 0, 1, [0]), []);
});

test("a word with an unknown piece is unknown", () => {
  const groups = {
    query: { of: QUERY_WORDS, labels: lettered("q", 6) },
    key: { of: KEY_WORDS, labels: lettered("w", 8) },
  };
  /** @type {any} */
  const header = { id: "v", special: [[[0], [10]]], groups: [groups], unknown: [[[3], [2, 9]]] };
  /** @type {any} */
  const panel = { title: "a", tokens: lettered("q", 7), keys: lettered("k", 11), layers: new Map() };
  const unknown = (joined) => {
    const { query, key } = prepared(panel, header, 0, joined).unknown;
    return [[...query], [...key]];
  };
  assert.deepEqual(unknown(true), [[2], [1, 6]]);
  assert.deepEqual(unknown(false), [[3], [2, 9]]);
});

test("a row that goes to hidden keys alone is empty", () => {
  const row = () => Float32Array.from([1, 0, 0]);
  const layer = { number: 0, heads: [0], nHeads: 1, nQuery: 1, nKey: 3, row, weight: (_, __, key) => row()[key] };
  /** @type {any} */
  const panel = { layers: new Map([[0, layer]]), rescaled: new Map(), special: { key: new Set([0]) } };
  const rest = layerOf(panel, 0, true);
  assert.deepEqual([...rest.row(0, 0)], [0, 0, 0]);
  assert.deepEqual([rest.weight(0, 0, 1), rest.away(0, 0)], [0, 1]);
});

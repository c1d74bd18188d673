// The second of two sentences on its way from the first one.
import assert from "node:assert/strict";
import test from "node:test";
import { oneOther, swung } from "../../assets/components/view/swing.js";

const curve = (head, weight, end) => ({ head, query: 0, key: 0, weight, strength: weight, points: [0, end] });

test("only sentences that differ in one word swing", () => {
  const cases = [
    ["a cat is tired", "a cat is wide", 3],
    ["a cat is tired", "a cat is tired", -1],
    ["a cat is tired", "a dog is wide", -1],
    ["a cat is tired", "a cat is", -1],
  ];
  for (const [one, other, at] of cases) assert.equal(oneOther(one.split(" "), other.split(" ")), at);
});

test("the strongest line of a head swings over, the others of it fade in", () => {
  const from = [curve(0, 0.2, 5), curve(0, 0.8, 10), curve(1, 0.9, 40)];
  const to = [curve(0, 0.6, 30), curve(0, 0.3, 20), curve(2, 0.5, 50)];
  const shown = (share) => swung(from, to, share).map(({ points, strength }) => [points[1], strength]);
  assert.deepEqual(shown(0), [
    [10, 0.8],
    [20, 0],
    [50, 0],
  ]);
  assert.deepEqual(shown(0.5), [
    [20, 0.7],
    [20, 0.15],
    [50, 0.25],
  ]);
  assert.deepEqual(shown(1), [
    [30, 0.6],
    [20, 0.3],
    [50, 0.5],
  ]);
});

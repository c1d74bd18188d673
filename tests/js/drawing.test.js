// Drawings of a sentence: how much of it is in sight.
import assert from "node:assert/strict";
import test from "node:test";
import { heightInSight, ROW, seenAt } from "../../assets/components/pictures/drawing.js";

test("one single word is never out of sight", () => {
  const most = 320; // 14.5 rows
  const heights = [3, 14, 15, 16].map((rows) => heightInSight(rows, most));
  assert.deepEqual(heights, [3 * ROW, 14 * ROW, 15 * ROW, most]);
});

test("of the weights of a token the largest stand first, so that no room for all hides the smallest", () => {
  const numbers = [0.1, 0.01, 0.9, 0.3].map((weight, head) => ({ head, values: Float32Array.of(0, weight) }));
  assert.deepEqual(
    seenAt(numbers, 1, 0.05).map(({ head }) => head),
    [2, 3, 0],
  );
});

// Drawings of a sentence: how much of it is in sight.
import assert from "node:assert/strict";
import test from "node:test";
import { heightInSight, ROW } from "../../assets/components/pictures/drawing.js";

test("one single word is never out of sight", () => {
  const most = 320; // 14.5 rows
  const heights = [3, 14, 15, 16].map((rows) => heightInSight(rows, most));
  assert.deepEqual(heights, [3 * ROW, 14 * ROW, 15 * ROW, most]);
});

// Matrices as pictures: their ranges, the part of a long text that is drawn, and the keys.
import assert from "node:assert/strict";
import test from "node:test";
import { cellAfter, rangeOf } from "../../assets/components/pictures/matrix_gallery.js";
import { windowAround } from "../../assets/components/view/matrices.js";

test("the range covers all visible numbers", () => {
  assert.deepEqual(rangeOf([NaN, 0.25, -2, NaN]), [-2, 0.25]);
  assert.deepEqual(rangeOf([NaN, NaN]), [0, 0]);
  // As 128 tokens of d_v 2,048 have it: more numbers than a function takes arguments.
  const large = Float32Array.from({ length: 128 * 2048 }, (_, at) => at - 1000);
  assert.deepEqual(rangeOf(large), [-1000, 128 * 2048 - 1001]);
});

test("a part of a long text has the token near its middle and its full length", () => {
  for (const length of [1, 6, 7, 8, 600])
    for (let around = 0; around < length; around++) {
      const [first, after] = windowAround(length, around, 7);
      assert.ok(first >= 0 && first <= around && around < after && after <= length);
      assert.equal(after - first, Math.min(length, 7));
      if (around >= 3 && around < length - 4) assert.equal(around - first, 3);
      const [from, to] = windowAround(length, around);
      assert.equal(to - from, Math.min(length, 128));
    }
});

test("arrow keys walk the cells and stop at the edges", () => {
  const walk = (...keys) => keys.reduce((cell, key) => cellAfter(key, cell, 2, 3), { row: 0, column: 0 });
  assert.deepEqual(walk("ArrowUp", "ArrowLeft"), { row: 0, column: 0 });
  assert.deepEqual(walk("ArrowDown", "ArrowRight"), { row: 1, column: 1 });
  assert.deepEqual(walk("ArrowDown", "ArrowDown"), { row: 1, column: 0 });
  assert.deepEqual(walk("End", "ArrowRight"), { row: 0, column: 2 });
  assert.deepEqual(walk("End", "Home"), { row: 0, column: 0 });
  assert.equal(cellAfter("x", { row: 0, column: 0 }, 2, 3), null);
});

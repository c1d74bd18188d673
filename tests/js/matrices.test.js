// The matrices of a head and of a page: the largest of their numbers.
import assert from "node:assert/strict";
import test from "node:test";
import { largestOf } from "../../assets/components/pictures/colours.js";

test("the largest number is one that is visible, of either sign", () => {
  assert.equal(largestOf([NaN, 0.25, -2, NaN]), 2);
  assert.equal(largestOf([NaN, 0.25, -0.125]), 0.25);
  assert.equal(largestOf([NaN, NaN]), 0);
  // As 128 tokens of d_v 2,048 have it: more numbers than a function takes arguments.
  assert.equal(largestOf(Float32Array.from({ length: 128 * 2048 }, (_, at) => at - 1000)), 128 * 2048 - 1001);
});

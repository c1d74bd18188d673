// Colours of numbers.
import assert from "node:assert/strict";
import test from "node:test";
import { HIDDEN_COLOUR, inkOn, largestOf, pixelOf, shade } from "../../assets/components/pictures/colours.js";
import { cellColour } from "../../assets/components/pictures/heatmap.js";

/** @type {any} */
const LOOK = {
  sequential: [
    [0, 0, 0],
    [100, 200, 50],
  ],
  diverging: [
    [0, 0, 255],
    [250, 250, 250],
    [255, 0, 0],
  ],
};
const [BLUE, WHITE, RED] = LOOK.diverging.map((colour) => [...colour, 255]);

/** @param {any} numbers */
const colours = (numbers, ...values) => values.map((value) => cellColour(numbers, LOOK, value));

test("a weight is placed on the scale as a share of the largest", () => {
  const found = colours({ signed: false, end: 0.5 }, 0, 0.25, 0.5, 0.7);
  assert.deepEqual(found, [
    [0, 0, 0, 255],
    [50, 100, 25, 255],
    [100, 200, 50, 255],
    [100, 200, 50, 255],
  ]);
});

test("a signed number has the middle of the scale at zero, also where all are zero", () => {
  assert.deepEqual(colours({ signed: true, end: 4 }, -4, 0, 4, 2, -9), [BLUE, WHITE, RED, [253, 125, 125, 255], BLUE]);
  assert.deepEqual(colours({ signed: true, end: 0 }, 0), [WHITE]);
  assert.deepEqual(colours({ signed: false, end: 0 }, 0), [[0, 0, 0, 255]]);
});

test("a hidden cell has no colour of the scale", () => {
  for (const signed of [false, true]) assert.deepEqual(colours({ signed, end: 1 }, NaN), [HIDDEN_COLOUR]);
});

test("a pixel is a packed colour of the scale", () => {
  const bytes = (number) => [...new Uint8Array(new Uint32Array([number]).buffer)];
  const pixel = pixelOf(LOOK.diverging);
  for (const share of [0, 0.5, 1])
    bytes(pixel(share)).forEach((byte, at) => {
      assert.ok(Math.abs(byte - [...shade(LOOK.diverging, share), 255][at]) <= 1);
    });
  assert.deepEqual(bytes(pixel(NaN)), HIDDEN_COLOUR);
});

test("ink is dark on light and light on dark", () => {
  assert.deepEqual([inkOn([255, 255, 200]), inkOn([30, 10, 60])], ["#000000", "#ffffff"]);
});

test("the largest number is one that is visible, of either sign", () => {
  assert.equal(largestOf([NaN, 0.25, -2, NaN]), 2);
  assert.equal(largestOf([NaN, NaN]), 0);
  // As 128 tokens of d_v 2,048 have it: more numbers than a function takes arguments.
  assert.equal(largestOf(Float32Array.from({ length: 128 * 2048 }, (_, at) => at - 1000)), 128 * 2048 - 1001);
});

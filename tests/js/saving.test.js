// Saved files: captions, numbers of a table, sizes of figures.
import assert from "node:assert/strict";
import test from "node:test";
import { csvText, inColumns, slideOf, wrapped } from "../../assets/components/page/saving.js";

// A wide character counts twice.
const columns = (text) => [...text].reduce((sum, c) => sum + (/[\p{L}\p{S}]/u.test(c) && c > "z" ? 2 : 1), 0);

test("a caption is broken between words, never within a character", () => {
  const cases = [
    ["one two three", 7, ["one two", "three"]],
    ["one two three", 100, ["one two three"]],
    ["a verylongword b", 5, ["a", "veryl", "ongwo", "rd b"]],
    ["", 5, []],
    ["小猫没有过马路", 6, ["小猫没", "有过马", "路"]],
    ["𠀀𠀀𠀀", 3, ["𠀀", "𠀀", "𠀀"]],
    ["👍👍👍 ok", 4.9, ["👍👍", "👍", "ok"]],
  ];
  for (const [text, most, lines] of cases) assert.deepEqual(wrapped(text, most, columns), lines);
});

test("numbers of single precision have the fewest digits that read back", () => {
  const numbers = [Math.fround(0.1), Math.fround(1 / 3), 1 / 3, 2, NaN, Number.POSITIVE_INFINITY, null];
  assert.equal(csvText([numbers]), "\ufeff0.1,0.33333334,0.3333333333333333,2,,,\r\n");
});

test("a figure fills a slide and is centred, up to a largest scale", () => {
  assert.deepEqual(slideOf(960, 540), { width: 1920, height: 1080, scale: 2, x: 0, y: 0 });
  assert.deepEqual(slideOf(1920, 540), { width: 1920, height: 1080, scale: 1, x: 0, y: 270 });
  assert.deepEqual(slideOf(960, 1080), { width: 1920, height: 1080, scale: 1, x: 480, y: 0 });
  assert.deepEqual(slideOf(200, 100), { width: 1920, height: 1080, scale: 3.5, x: 610, y: 365 });
});

test("a figure that would shrink on a slide is drawn at twice its size", () => {
  assert.deepEqual(slideOf(2000, 100), { width: 4000, height: 200, scale: 2, x: 0, y: 0 });
  assert.deepEqual(slideOf(100, 64_000), { width: 50, height: 32_000, scale: 0.5, x: 0, y: 0 });
});

test("pictures have the number of columns that makes them largest", () => {
  const columns = (...sizes) => new Set(inColumns(...sizes, 10).places.map(([x]) => x)).size;
  assert.equal(columns(2, 350, 350), 2); // lines, a matrix
  assert.equal(columns(2, 660, 80), 1); // a line of text
  assert.equal(columns(4, 260, 300), 4);
  assert.equal(columns(4, 300, 160), 2); // and no place is empty: not three
  assert.equal(columns(16, 260, 300), 6);
  const places = [
    [0, 0],
    [110, 0],
    [0, 70],
    [110, 70],
  ];
  assert.deepEqual(inColumns(4, 100, 60, 10), { width: 210, height: 130, places });
});

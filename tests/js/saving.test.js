// What is saved: lines of words, numbers of a table.
import assert from "node:assert/strict";
import test from "node:test";
import { csvText, wrapped } from "../../assets/components/page/saving.js";

// A wide character counts twice.
const columns = (text) => [...text].reduce((sum, c) => sum + (/[\p{L}\p{S}]/u.test(c) && c > "z" ? 2 : 1), 0);

test("a caption is cut between words and never within a character", () => {
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

test("numbers of single precision are written as short as they are right", () => {
  const numbers = [Math.fround(0.1), Math.fround(1 / 3), 1 / 3, 2, NaN, Number.POSITIVE_INFINITY, null];
  assert.equal(csvText([numbers]), "\ufeff0.1,0.33333334,0.3333333333333333,2,,,\r\n");
});

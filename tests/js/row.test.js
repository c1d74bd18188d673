// A row of weights that is drawn by hand: whole per cents whose sum stays 100, whatever is done to it.
import assert from "node:assert/strict";
import test from "node:test";
import { evenly, readRow, withWeight, writtenRow } from "../../assets/components/lesson/row.js";

const sum = (row) => row.reduce((all, one) => all + one, 0);

test("a row begins even, and what is left over goes to the first words", () => {
  assert.deepEqual(evenly(4), [25, 25, 25, 25]);
  assert.deepEqual(evenly(7), [15, 15, 14, 14, 14, 14, 14]);
  assert.deepEqual(evenly(1), [100]);
});

test("the other weights give way in proportion", () => {
  assert.deepEqual(withWeight([20, 60, 20], 1, 80), [10, 80, 10]);
  assert.deepEqual(withWeight([20, 60, 20], 0, 60), [60, 30, 10]);
  assert.deepEqual(withWeight([100, 0, 0], 0, 40), [40, 30, 30]); // they had none
  assert.deepEqual(withWeight([50, 50], 0, 250), [100, 0]);
  assert.deepEqual(withWeight([50, 50], 0, -3), [0, 100]);
  assert.deepEqual(withWeight([100], 0, 20), [100]);
});

test("weights that were moved stay while the others have enough to give", () => {
  assert.deepEqual(withWeight([50, 25, 25, 0], 1, 50, new Set([0])), [50, 50, 0, 0]);
  assert.deepEqual(withWeight([50, 50, 0, 0], 0, 70, new Set([0, 1])), [70, 30, 0, 0]); // they have not
  assert.deepEqual(withWeight([50, 50, 0, 0], 0, 30, new Set([0, 1])), [30, 50, 10, 10]);
  assert.deepEqual(withWeight([50, 50], 0, 30, new Set([0, 1])), [30, 70]);
});

test("after a thousand moves the sum is still 100, and no weight is below 0", () => {
  let seed = 1;
  const random = (below) => {
    seed = (seed * 48271) % 2147483647;
    return seed % below;
  };
  for (const count of [2, 3, 13, 64]) {
    let row = evenly(count);
    for (let move = 0; move < 1000; move++) {
      const [at, share] = [random(count), random(101)];
      row = withWeight(row, at, share);
      assert.equal(row[at], share);
      assert.equal(sum(row), 100);
      assert.ok(row.every((one) => Number.isInteger(one) && one >= 0));
    }
  }
});

test("an answer is read as it was written, and what is none is refused", () => {
  const row = [0, 0, 60, 0, 40];
  assert.equal(writtenRow(row), "3:60,5:40");
  assert.deepEqual(readRow("3:60,5:40", 5), row);
  for (const wrong of [null, "", "3", "3:60", "0:100", "6:100", "1:50,2:60", "1:-5,2:105"])
    assert.equal(readRow(wrong, 5), null);
});

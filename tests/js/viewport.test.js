// The visible part of a matrix.
import assert from "node:assert/strict";
import test from "node:test";
import { Viewport } from "../../assets/components/pictures/viewport.js";

const hundred = () => new Viewport(100, 400, 400); // cells of 4 pixels

function near(found, expected) {
  found.forEach((value, at) => {
    assert.ok(Math.abs(value - expected[at]) < 1e-6, `${found} is not ${expected}`);
  });
}

test("zooming keeps the place under the pointer", () => {
  const w = hundred();
  const under = (x, y) => [(x - w.x) / w.cell, (y - w.y) / w.cell];
  const steps = [
    [2, 100, 300],
    [3, 250, 20],
    [0.7, 333, 333],
    [1.5, 10, 390],
  ];
  for (const [by, x, y] of steps) {
    const before = under(x, y);
    w.zoom(by, x, y);
    near(under(x, y), before);
    assert.ok(w.zoomed);
  }
});

test("zoom is bounded and the matrix never leaves the view", () => {
  const w = hundred();
  w.zoom(1000, 0, 0);
  assert.deepEqual([w.cell, w.x, w.y], [72, 0, 0]);
  w.pan(50, 50);
  assert.deepEqual([w.x, w.y], [0, 0]);
  w.pan(-1e6, -1e6);
  assert.deepEqual([w.x, w.y], [400 - 7200, 400 - 7200]);
  w.zoom(1e-6, 200, 200);
  assert.deepEqual([w.cell, w.x, w.y, w.zoomed], [4, 0, 0, false]);
  w.zoom(4, 200, 200);
  w.whole();
  assert.deepEqual([w.cell, w.x, w.y, w.zoomed], [4, 0, 0, false]);
});

test("only visible cells are found at a position", () => {
  const w = hundred();
  assert.deepEqual(w.at(0, 0), { row: 0, column: 0 });
  assert.deepEqual(w.at(5, 399), { row: 99, column: 1 });
  assert.deepEqual([w.at(-1, 5), w.at(5, 400)], [null, null]);
  const narrow = new Viewport(2, 400, 400, 10); // cells of 40 pixels
  assert.deepEqual([narrow.at(79, 0), narrow.at(80, 0)], [{ row: 0, column: 1 }, null]);
  assert.deepEqual(w.seen("x"), [0, 100]);
  w.zoom(10, 0, 0);
  w.pan(-85, -1000);
  assert.deepEqual(w.at(0, 0), { row: 25, column: 2 });
  assert.deepEqual(w.at(39, 399), { row: 34, column: 3 });
  assert.deepEqual([w.at(-10, 5), w.at(10, -1), w.at(400, 5)], [null, null, null]);
  assert.deepEqual(
    [w.seen("x"), w.seen("y")],
    [
      [2, 13],
      [25, 35],
    ],
  );
});

test("cells of another shape stay under the pointer, with a limited height", () => {
  const w = new Viewport(64, 640, 360, 12, 3); // cells of 10 × 30 pixels
  const sizes = [];
  for (const by of [2, 2, 2]) {
    w.zoom(by, 200, 90);
    sizes.push([w.cell, w.high]);
    near([(200 - w.x) / w.cell, (90 - w.y) / w.high], [20, 3]);
  }
  assert.deepEqual(sizes, [
    [20, 60],
    [40, 72],
    [72, 72],
  ]);
  assert.deepEqual(w.at(200, 90), { row: 3, column: 20 });
  assert.deepEqual(w.seen("y"), [1, 7]);
});

test("a few tokens fill the view, and a matrix may have more columns than rows", () => {
  const few = new Viewport(3, 300, 300);
  few.zoom(5, 1, 1);
  assert.deepEqual([few.minCell, few.cell], [100, 100]);
  const w = new Viewport(11, 220, 140, 7);
  const corner = { row: 6, column: 10 };
  assert.equal(w.cell, 20);
  assert.deepEqual([w.at(219, 139), w.at(219, 0)], [corner, { row: 0, column: 10 }]);
  assert.deepEqual(
    [w.seen("x"), w.seen("y")],
    [
      [0, 11],
      [0, 7],
    ],
  );
  w.zoom(3, 0, 0);
  w.pan(-1e6, -1e6);
  assert.deepEqual([w.x, w.y], [220 - 660, 140 - 420]);
  assert.deepEqual(w.at(219, 139), corner);
});

test("a cell is scrolled just into view", () => {
  const w = hundred();
  w.zoom(10, 0, 0);
  w.reveal({ row: 3, column: 4 });
  assert.deepEqual([w.x, w.y], [0, 0]);
  w.reveal({ row: 50, column: 4 });
  assert.deepEqual([w.x, w.y], [0, 400 - 51 * 40]);
  w.reveal({ row: 20, column: 99 });
  assert.deepEqual([w.x, w.y], [400 - 4000, -20 * 40]);
});

// Curves between tokens, and the colours of heads.
import assert from "node:assert/strict";
import test from "node:test";
import { lookOf } from "../../assets/components/pictures/colours.js";
import { arc, between, distance, point, under } from "../../assets/components/pictures/curves.js";

const FINELY = Array.from({ length: 4001 }, (_, at) => at / 4000);

// A point of a cubic Bézier, from its definition: means of means of its four handles.
function onCurve(numbers, t) {
  let handles = [0, 2, 4, 6].map((at) => numbers.slice(at, at + 2));
  while (handles.length > 1)
    handles = handles
      .slice(1)
      .map(([x, y], at) => [handles[at][0] * (1 - t) + x * t, handles[at][1] * (1 - t) + y * t]);
  return handles[0];
}

const near = (found, expected, by) => assert.ok(Math.abs(found - expected) <= by, `${found} is not ${expected}`);

test("a point of a curve is the mean of the means of its handles, and its distance the nearest of them", () => {
  const curve = [0, 12, 45, 12, 55, 108, 100, 108];
  for (const t of [0, 0.2, 0.5, 1])
    point(curve, t).forEach((found, axis) => {
      near(found, onCurve(curve, t)[axis], 1e-9);
    });
  const every = FINELY.map((t) => onCurve(curve, t));
  for (const at of ["0 12", "100 108", "50 60", "50 66", "20 19", "97 100", "30 60"]) {
    const [x, y] = at.split(" ").map(Number);
    near(distance(curve, x, y, 1000), Math.min(...every.map(([px, py]) => Math.hypot(px - x, py - y))), 0.15);
  }
});

test("curves far from the pointer are skipped", () => {
  const curve = [0, 0, 45, 0, 55, 50, 100, 50];
  assert.equal(distance(curve, 50, 80, 8), Number.POSITIVE_INFINITY);
  assert.equal(distance(curve, -9, 0, 8), Number.POSITIVE_INFINITY);
});

test("the nearest curve is hovered, the strongest of equal ones", () => {
  const flat = (y, weight, head) => ({ points: between(0, y, 100, y), weight, head, strength: weight });
  const curves = [flat(10, 0.2, 0), flat(10.5, 0.9, 1), flat(20, 0.1, 2)];
  const head = (y) => under(curves, 50, y)?.head ?? null;
  assert.deepEqual([9.8, 18, 40, 14.9].map(head), [1, 2, null, 1]);
  assert.equal(under([], 50, 10), null);
});

test("an arc rises with the distance up to a limit and a token's own is a loop", () => {
  const pairs = [
    [10, 60],
    [10, 900],
    [10, 10],
    [60, 10],
  ];
  const arcs = pairs.map(([from, to]) => arc(from, to, 200, 150));
  const tops = arcs.map((one) => Math.min(...FINELY.map((t) => onCurve(one, t)[1])));
  near(tops[0], 200 - (14 + 0.45 * 50), 0.1);
  near(tops[1], 50, 0.1);
  assert.ok(tops[2] > 175 && tops[2] < 195);
  assert.equal(tops[3], tops[0]);
  assert.deepEqual(
    [arcs[0].slice(0, 2), arcs[0].slice(-2)],
    [
      [10, 200],
      [60, 200],
    ],
  );
  assert.ok(arcs[2][0] < 10 && arcs[2].at(-2) > 10);
});

test("each of thirty heads has a look of its own, sixteen a colour, and the tenth is the last without dashes", () => {
  const palette = Array.from({ length: 16 }, (_, at) => `#${at}`);
  const looks = Array.from({ length: 30 }, (_, head) => lookOf(palette, head));
  assert.equal(new Set(looks.slice(0, 16).map(({ colour }) => colour)).size, 16);
  assert.equal(new Set(looks.map((look) => JSON.stringify(look))).size, 30);
  assert.deepEqual(
    looks.slice(8, 12).map(({ dash }) => dash.length > 0),
    [false, false, true, true],
  );
});

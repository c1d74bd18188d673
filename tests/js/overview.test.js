// The overview without a page: orders, positions, pointer and keys, and opening a head on another page.
import assert from "node:assert/strict";
import test from "node:test";
import { leads } from "../../assets/components/pictures/overview.js";
import {
  arrange,
  byRole,
  corner,
  headsOf,
  numbered,
  placeAt,
  ranking,
  stepTo,
} from "../../assets/components/pictures/overview_plan.js";

const grid = (layers, heads) => Array.from({ length: layers }, () => heads);

// Orders

test("heads are sorted by a measure in both orders, those without it last", () => {
  const values = [0.3, NaN, 0.9, 0.3, 0.1, NaN];
  assert.deepEqual(ranking(values, false), [4, 0, 3, 2, 1, 5]);
  assert.deepEqual(ranking(values, true), [2, 0, 3, 4, 1, 5]);
  assert.deepEqual(ranking([], true), []);
});

test("heads with the same role are neighbours, the highest score first", () => {
  const roles = ["b", "", "a", "b", "a", ""];
  const scores = [0.6, NaN, 0.7, 0.9, 0.8, NaN];
  assert.deepEqual(byRole(roles, scores, false), [4, 2, 3, 0, 1, 5]);
  assert.deepEqual(byRole(roles, scores, true), [3, 0, 4, 2, 1, 5]);
});

// Places

test("a row of the grid is a layer and a column a head", () => {
  const plan = arrange([3, 2, 3], 900);
  assert.deepEqual([plan.columns, plan.rows], [3, 3]);
  assert.deepEqual(plan.slots, [0, 1, 2, 3, 4, -1, 5, 6, 7]);
  assert.deepEqual(headsOf([3, 2]).slice(3), [
    { layer: 1, head: 0 },
    { layer: 1, head: 1 },
  ]);
});

test("the pictures fit the width and a screen", () => {
  const counts = [
    [2, 4],
    [12, 12],
    [80, 64],
    [128, 1],
    [1, 128],
  ];
  for (const width of [302, 360, 1100])
    for (const [layers, heads] of counts) {
      const plan = arrange(grid(layers, heads), width);
      const said = `${layers} × ${heads} in ${width}`;
      // Three pixels a picture is the least.
      if (heads * 3 + 26 <= width) assert.ok(plan.width <= width + 2, said);
      assert.ok(plan.height <= Math.max(720, 10 * layers) + 22, said);
      assert.ok(plan.size >= 1 && plan.size < plan.pitch && plan.pitch <= 96, said);
      const [first, second] = [corner(plan, 0), corner(plan, 1)];
      if (heads > 1) assert.deepEqual([second[0] - first[0], second[1] - first[1]], [plan.pitch, 0]);
    }
});

test("5120 pictures on a wide screen are 9 pixels and 144 are 54", () => {
  assert.equal(arrange(grid(80, 64), 900).size, 9);
  assert.equal(arrange(grid(12, 12), 900).size, 54);
});

test("a ranking is as wide as the grid and has captions where there is room", () => {
  const plain = arrange(grid(12, 12), 900);
  const ranked = arrange(
    grid(12, 12),
    900,
    Array.from({ length: 144 }, (_, at) => 143 - at),
  );
  assert.deepEqual([ranked.pitch, ranked.width, ranked.columns], [plain.pitch, plain.width, 12]);
  assert.deepEqual(ranked.slots.slice(0, 2), [143, 142]);
  assert.deepEqual([ranked.left, ranked.top], [0, 0]);
  assert.ok(ranked.caption > 0);
  assert.equal(ranked.down, ranked.pitch + ranked.caption);
  assert.equal(arrange(grid(80, 64), 900, [...Array(5120).keys()]).caption, 0);
});

// The finger

test("the pointer finds the picture below it", () => {
  for (const ranked of [null, [4, 3, 2, 1, 0]]) {
    const plan = arrange([3, 2], 500, ranked);
    plan.slots.forEach((head, slot) => {
      const [x, y] = corner(plan, slot);
      for (const by of [0.5, plan.size - 0.5]) assert.equal(placeAt(plan, x + by, y + by), head >= 0 ? slot : -1);
    });
    const outside = [
      [-1, 50],
      [plan.width + 40, 50],
      [50, -1],
      [50, plan.height + 40],
    ];
    for (const [x, y] of outside) assert.equal(placeAt(plan, x, y), -1);
  }
});

// The keys

const walk = (plan, start, ...keys) => keys.reduce((slot, key) => stepTo(plan, slot, key), start);

test("arrows lead from head to head and stop at the edges", () => {
  const plan = arrange([3, 2, 3], 900);
  assert.equal(walk(plan, 0, "ArrowRight", "ArrowDown"), 4);
  assert.equal(walk(plan, 1, "ArrowLeft", "ArrowLeft"), 0);
  assert.equal(walk(plan, 1, "ArrowUp"), 1);
  assert.equal(walk(plan, 8, "ArrowRight"), 8);
  assert.equal(walk(plan, 7, "ArrowDown"), 7);
  assert.equal(walk(plan, 4, "Home"), 0);
  assert.equal(walk(plan, 4, "End"), 8);
  assert.equal(walk(plan, 4, "a"), 4);
});

test("arrows step over heads that a layer lacks", () => {
  const plan = arrange([3, 2, 3], 900);
  assert.equal(walk(plan, 2, "ArrowDown"), 8); // the second layer has no third head
  assert.equal(walk(plan, 4, "ArrowRight"), 6);
  assert.equal(walk(plan, 6, "ArrowLeft"), 4);
});

// The axes

test("labels of an axis never overlap", () => {
  assert.deepEqual(numbered(4, 30, 20), [0, 1, 2, 3]);
  assert.deepEqual(numbered(8, 18, 20), [1, 3, 5, 7]);
  assert.deepEqual(numbered(12, 6, 20), [3, 7, 11]);
  assert.deepEqual(numbered(16, 4, 20), [4, 9, 14]);
  assert.deepEqual(numbered(1, 5, 20), [0]);
});

// Another page

/** A page that is drawn while time goes by: `rest` moments until it is at rest, and only then its link. */
function slowPage(context, rest) {
  const [waiting, clicks] = [[], []];
  let moments = 0;
  context.mock.method(globalThis, "setTimeout", (act) => waiting.push(act));
  const link = { click: () => clicks.push(moments) };
  const found = (asked) => (asked.includes("stApp") ? {} : link);
  /** @type {any} */ (globalThis).document = { querySelector: (asked) => (moments < rest ? null : found(asked)) };
  context.after(() => Reflect.deleteProperty(globalThis, "document"));
  const pass = () => {
    while (waiting.length) {
      moments += 1;
      waiting.shift()();
    }
  };
  return { clicks, pass };
}

for (const rest of [0, 1, 150])
  for (const isNew of [true, false])
    test(`a head that is opened is followed after ${rest} moments${isNew ? ", once the scene has moved" : ""}`, (context) => {
      const { clicks, pass } = slowPage(context, rest);
      const [root, chosen, chose] = [{}, { layer: 0, head: 1 }, []];
      const head = isNew ? { layer: 0, head: 2 } : chosen;
      leads(root, "there", chosen)(head, () => chose.push(1));
      if (isNew) leads(root, "there", /** @type {any} */ (root).leaving); // the server has moved the scene
      pass();
      leads(root, "there", chosen);
      pass();
      assert.deepEqual([chose.length, clicks], [Number(isNew), [rest + 1]]);
    });

test("without a link a click only chooses a head", (context) => {
  const { clicks, pass } = slowPage(context, 0);
  const [chosen, chose] = [{ layer: 0, head: 1 }, []];
  leads({}, null, chosen)(chosen, () => chose.push(1));
  pass();
  assert.deepEqual([chose.length, clicks], [1, []]);
});

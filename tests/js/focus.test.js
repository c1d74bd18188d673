// The focus: heads that are on, chosen tokens, and the same tokens in another sentence.
import assert from "node:assert/strict";
import test from "node:test";
import { afterClick, afterPick, everywhere, nextHead, strongest } from "../../assets/components/scene/focus.js";

test("a click on a chip", () => {
  const every = [0, 1, 2, 3, 5]; // 4 is not loaded
  const cases = [
    [[2, 3], 1, "toggle", undefined, [1, 2, 3]],
    [[2, 3], 3, "toggle", undefined, [2]],
    [[3], 3, "toggle", undefined, []],
    [[2, 3], 1, "solo", undefined, [1]],
    [[1], 1, "solo", undefined, every],
    [[1], 2, "solo", undefined, [2]],
    [[0], 3, "range", 1, [0, 1, 2, 3]],
    [[0], 1, "range", 3, [0, 1, 2, 3]],
    [[0], 5, "range", 2, [0, 2, 3, 5]],
    [[0], 2, "range", undefined, [0, 2]],
  ];
  for (const [on, head, how, last, after] of cases) {
    const found = [...afterClick(new Set(on), head, how, every, last)].sort();
    assert.deepEqual(found, after, `${how} ${head} from ${on}`);
  }
});

test("the next head", () => {
  const cases = [
    [[0], 1, 2],
    [[2], 1, 5],
    [[5], 1, 0],
    [[0], -1, 5],
    [[2, 5], 1, 2],
    [[2, 5], -1, 0],
    [[], 1, 0],
  ];
  for (const [on, by, after] of cases) assert.equal(nextHead(new Set(on), [0, 2, 5], by), after, `${by} from ${on}`);
  assert.equal(nextHead(new Set([7]), [8, 9], 1), 9); // one that is on and not loaded
});

test("a click on a token", () => {
  const pinned = (side, ...tokens) => ({ side, tokens });
  const cases = [
    [null, "query", 2, false, pinned("query", 2)],
    [null, "query", 2, true, pinned("query", 2)],
    [pinned("query", 2), "query", 2, false, null],
    [pinned("query", 2), "key", 2, false, pinned("key", 2)],
    [pinned("query", 2), "query", 4, false, pinned("query", 4)],
    [pinned("query", 4), "query", 2, true, pinned("query", 2, 4)],
    [pinned("query", 2, 4), "query", 4, true, pinned("query", 2)],
    [pinned("query", 2, 4), "query", 4, false, pinned("query", 4)],
    [pinned("query", 2), "query", 2, true, null],
    [pinned("query", 2, 3), "key", 3, true, pinned("key", 3)],
  ];
  for (const [before, side, token, more, after] of cases) assert.deepEqual(afterPick(before, side, token, more), after);
});

test("the strongest weights are listed first, the earlier of equal ones", () => {
  const weights = [0.1, 0.4, 0.1, 0, 0.4];
  assert.deepEqual(strongest(weights), [1, 4, 0, 2, 3]);
  assert.deepEqual(strongest(weights, { threshold: 0.1 }), [1, 4, 0, 2]);
  assert.deepEqual(strongest(weights, { count: 3 }), [1, 4, 0]);
  assert.deepEqual(strongest(weights, { threshold: 0.1, count: 2, hidden: new Set([1]) }), [4, 0]);
});

test("a token chosen in one sentence is chosen in the other, or the token in its place", () => {
  const query = (tokens) => ({ side: "query", tokens });
  const cases = [
    ["the animal was tired", "the street animal was", [0], [0]],
    ["the animal was tired", "the street animal was", [1], [2]], // the same word stands elsewhere
    ["the animal was tired", "the street animal was", [2, 1], [2, 3]],
    ["it was tired .", "it was wide .", [2], [2]],
    ["it was tired .", "he was so bored .", [0, 2], [0, 2]], // as far into what differs
    ["it was so very tired .", "it was wide .", [4], [2]], // at its end
    ["the old dog ran", "the dog ran", [1], [1]], // nothing stands there: the next one
    ["the dog ran", "the dog", [2], [1]],
    ["a b", "c", [1], [0]],
  ];
  for (const [one, other, chosen, found] of cases) {
    const panels = [one, other].map((words) => ({ tokens: words.split(" ") }));
    assert.deepEqual(everywhere(panels, 0, query(chosen))[1], query(found), `${one} | ${other}`);
  }
  assert.deepEqual(everywhere([{ tokens: ["a"] }, { tokens: ["a"] }], 0, null), [null, null]);
});

test("the same token is found on the same side of the other panel", () => {
  const keys = Array.from({ length: 11 }, (_, at) => `k${at}`);
  const panels = [
    { tokens: ["[CLS]", "the", "ani", "##mal"], keys },
    { tokens: ["x", "k3"], keys: ["k3", "y", "k9"] },
  ];
  assert.deepEqual(everywhere(panels, 0, { side: "key", tokens: [9, 3] })[1], { side: "key", tokens: [0, 2] });
});

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

test("a token chosen in one sentence is chosen in the other if it is there", () => {
  const panels = [{ tokens: ["the", "animal", "was", "tired"] }, { tokens: ["the", "street", "animal", "was"] }];
  const query = (tokens, more = {}) => ({ side: "query", tokens, ...more });
  const cases = [
    [[0], query([0])],
    [[1], query([2])], // the same word stands elsewhere
    [[3], query([], { absent: ["tired"] })],
    [[2, 1], query([2, 3])],
    [[0, 3], query([0])],
  ];
  for (const [chosen, found] of cases) assert.deepEqual(everywhere(panels, 0, query(chosen)), [query(chosen), found]);
  assert.deepEqual(everywhere(panels, 0, null), [null, null]);
});

test("the same token is found on the same side of the other panel", () => {
  const keys = Array.from({ length: 11 }, (_, at) => `k${at}`);
  const panels = [
    { tokens: ["[CLS]", "the", "ani", "##mal"], keys },
    { tokens: ["x", "k3"], keys: ["k3", "y", "k9"] },
  ];
  assert.deepEqual(everywhere(panels, 0, { side: "key", tokens: [9, 3] })[1], { side: "key", tokens: [0, 2] });
  const absent = { side: "query", tokens: [], absent: ["##mal"] };
  assert.deepEqual(everywhere(panels, 0, { side: "query", tokens: [3] })[1], absent);
});

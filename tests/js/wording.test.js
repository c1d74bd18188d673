// Wording: templates, digits of weights, titles of two sentences, direction of a text.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { apart, byPointer, drawnAs, exact, fill, isRtl, short } from "../../assets/components/page/wording.js";

test("two sentences are titled by their differences", () => {
  const cases = [
    [
      ["It was too tired.", "It was too wide."],
      ["… too tired.", "… too wide."],
    ],
    [
      ["It was", "It was too"],
      ["It was", "It was too"],
    ], // one word left out would be no gain
    [
      ["It was too", "It was too wide"],
      ["… was too", "… was too wide"],
    ],
    [
      ["We went home", "It went home"],
      ["We went home", "It went home"],
    ],
    [["It was too tired."], ["It was too tired."]],
    [
      ["我累了。", "我困了。"],
      ["我累了。", "我困了。"],
    ],
    [
      ["It is so.", "It is so."],
      ["… is so.", "… is so."],
    ],
  ];
  for (const [titles, shown] of cases) assert.deepEqual(apart(titles), shown);
});

test("values of placeholders are not templates", () => {
  const values = { tokens: "{list}", list: "$& {tokens} $1" };
  assert.equal(fill("{tokens} looks at {list}", values), "{list} looks at $& {tokens} $1");
  assert.equal(fill("{who} {what}", { who: 0 }), "0 {what}");
});

test("digits", () => {
  assert.deepEqual([0, 0.004, 0.0051, 0.955, 1].map(short), ["0.00", "<0.01", "0.01", "0.95", "1.00"]);
  const written = ["0.0000", "4.0e-5", "0.0001", "0.9551", "1.0000"];
  assert.deepEqual([0, 0.00004, 0.00012, 0.95507, 1].map(exact), written);
});

test("the direction of a text is that of its first letter", () => {
  const toTheLeft = [
    ["القط", "sat"],
    ["[CLS]", "القط", "نام", "[SEP]"], // what a tokenizer adds is not of the text
    ["<s>", "שלום", "</s>"],
    ["1", ".", "القط"],
  ];
  for (const tokens of toTheLeft) assert.equal(isRtl(tokens), true, tokens.join());
  for (const tokens of [["the", "القط"], ["[a]", "小猫"], []]) assert.equal(isRtl(tokens), false, tokens.join());
});

test("Chinese characters are drawn in the Chinese way on an English page", () => {
  assert.deepEqual(["动物", "小猫A", "cat", ""].map(drawnAs), ["zh-Hans", "zh-Hans", "", ""]);
});

test("where a finger points, texts say what it does", () => {
  const texts = { release: "Unpin (Esc)", release_touch: "Unpin", all: "all" };
  assert.deepEqual([byPointer(texts, false).release, byPointer(texts, true).release], ["Unpin (Esc)", "Unpin"]);
  assert.equal(byPointer(texts, true).all, "all");
  for (const name of ["en", "zh"]) {
    const file = new URL(`../../assets/languages/${name}.json`, import.meta.url);
    const touched = Object.entries(byPointer(JSON.parse(readFileSync(file, "utf8")), true));
    const wrong = touched.filter(
      ([key, text]) => /^(head_view|heatmap)/.test(key) && /Hover|（Esc）|\(Esc\)/.test(text),
    );
    assert.deepEqual(wrong, []);
  }
});

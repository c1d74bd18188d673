// The files that a head view saves: the answers below the title of a slide.
import assert from "node:assert/strict";
import test from "node:test";
import { answerLine } from "../../assets/components/view/files.js";

test("a note stands apart from its answer", () => {
  assert.equal(answerLine(["Who?", "dog 27%", "A guess.", true, []]), "Who? dog 27% · A guess.");
  assert.equal(answerLine(["Who?", "dog 99%", "", true, []]), "Who? dog 99%");
});

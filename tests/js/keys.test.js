// Arrow keys of controls.
import assert from "node:assert/strict";
import test from "node:test";
import { arrowOf } from "../../assets/components/page/radios.js";

const alone = { key: "ArrowLeft", ctrlKey: false, metaKey: false, altKey: false };

test("an arrow key leads somewhere, and with Ctrl, Cmd or Alt, as Alt and Left go back, nowhere", () => {
  assert.deepEqual(arrowOf(alone), [0, -1]);
  assert.deepEqual(arrowOf({ ...alone, key: "ArrowDown" }), [1, 0]);
  assert.equal(arrowOf({ ...alone, key: "n" }), null);
  for (const held of ["ctrlKey", "metaKey", "altKey"]) assert.equal(arrowOf({ ...alone, [held]: true }), null);
});

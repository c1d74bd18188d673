import assert from "node:assert/strict";
import test from "node:test";
import { fittingEdits, readEdits } from "../../assets/components/engine/edits.js";
import {
  modelNamed,
  nearestModel,
  readScene,
  replacedIn,
  sceneQuery,
  twinOf,
} from "../../assets/components/engine/scene_link.js";
import { DEFAULTS } from "../../assets/components/scene/schema.js";

const english = { text: "it was too tired.", twin: "it was too wide.", token: "it" };
const chinese = { text: "它太累了。", twin: "它太宽了。", token: "它" };
/** @param {string} query */
const opened = (query, example = english) => readScene(query, { example, english, edition: "7" });

test("a link without a text begins with the example of the page's language", () => {
  const { scene, notes } = opened("h=8", chinese);
  assert.deepEqual([scene.text, scene.twin, scene.h, scene.focus.token], [chinese.text, chinese.twin, 8, "它"]);
  assert.deepEqual(notes, []);
  assert.equal(opened(`text=${chinese.text}`, chinese).scene.twin, ""); // as the app reads it
});

test("the second sentence is that of the first visit, also beside hidden words", () => {
  assert.equal(twinOf("it was [MASK] tired.", english), english.twin);
  assert.equal(twinOf("it was tired.", english), "");
});

test("a link that the page wrote opens the same scene", () => {
  const asked = "text=A+cat.&twin=A+dog.&architecture=latent&h=2&d_model=32&edits=off%2Chead%3D2&lang=zh";
  const { scene } = opened(asked);
  assert.equal(sceneQuery(scene, english, "zh"), asked);
});

test("layers and heads of other weights are left out, and that is said", () => {
  const { scene, notes } = opened("text=a&layer=1&head=3&edits=off,head=2;cut,from=1&weights=6");
  assert.deepEqual([scene.focus.layer, scene.focus.head], [DEFAULTS.layer, DEFAULTS.head]);
  assert.deepEqual(
    scene.edits.map(({ kind }) => kind),
    ["cut"],
  );
  assert.deepEqual(notes, [["static.weights", {}]]);
});

test("what only the app can show is named with the command that opens it", () => {
  const { notes, scene } = opened("source=model&model=gpt2&layer=6");
  const [[key, values], [further]] = notes;
  const command = 'headscope open "source=model&model=gpt2&layer=6"';
  assert.deepEqual([key, values.command, further], ["static.source_model", command, "static.weights"]);
  assert.equal(scene.focus.layer, DEFAULTS.layer); // that of another model means nothing here
});

test("what nobody understands is named, in a command that a shell reads as one word", () => {
  const [[key, values]] = opened("source=constructor&h=many&text=$(id)`id`").notes;
  assert.deepEqual([key, values.changes], ["static.edits", "source=constructor; h=many"]);
  assert.equal(values.command, 'headscope open "source=constructor&h=many&text=%24%28id%29%60id%60"');
});

test("the nearest model has the architecture that is asked for, if one is here", () => {
  const models = ["glass-box-en-h4-d64", "glass-box-en-h8-d128", "latent-en-h4-d64", "glass-box-zh-h4-d64"].map(
    modelNamed,
  );
  /** @type {(language: string, architecture: string, h: number, width: number) => string | undefined} */
  const near = (language, architecture, h, width) =>
    nearestModel(models, language, { architecture, h, d_model: width })?.name;
  assert.equal(near("en", "glass-box", 16, 256), "glass-box-en-h8-d128");
  assert.equal(near("en", "latent", 8, 128), "latent-en-h4-d64");
  assert.equal(near("zh", "latent", 8, 128), "glass-box-zh-h4-d64");
  assert.equal(near("fr", "latent", 8, 128), undefined);
});

test("what a link asks for and the page replaces is named", () => {
  const names = ["[CLS]", "A", "cat"];
  /** @type {(query: string) => string[]} */
  const replaced = (query) => {
    const asked = opened(query).scene.focus;
    return replacedIn(query, asked, { ...asked, layer: "2", head: "4", drawing: "lines" }, names);
  };
  assert.deepEqual(replaced("text=A+cat&token=cat&layer=2&head=4"), []);
  assert.deepEqual(replaced("text=A+cat&token=3&drawing=lines"), []);
  assert.deepEqual(replaced("text=A+cat&token="), []); // no token is chosen
  assert.deepEqual(replaced("token=unicorn&layer=9&head=7&drawing=foo"), ["layer", "head", "token", "drawing"]);
  assert.deepEqual(replaced("token=4"), ["token"]);
  assert.deepEqual(replaced("layer=9&weights=6"), []); // of other weights, which is said
});

test("a change goes with the words that it names", () => {
  const [before, after] = ["a b c d e f", "a b c x e"].map((text) => text.split(" "));
  const stay = ["cut,from=2,to=3", "cut,layer=1,from=2-3", "even,from=5", "off,head=2", "divisor,by=3"];
  const go = ["cut,from=2,to=4", "cut,to=6", "row,layer=1,head=1,from=2,weights=0.5 0.5 0 0 0 0"];
  const { edits } = readEdits([...stay, ...go].join(";"));
  assert.equal(edits.length, stay.length + go.length);
  assert.deepEqual(
    fittingEdits(edits, before, after).map(({ link }) => link),
    stay,
  );
});

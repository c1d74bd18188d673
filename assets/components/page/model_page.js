// A page that computes: type a sentence and see every head of a small model, with no server. The engine (engine/) has the
// model, the head view draws; this file holds the scene, its fields and its address.
import { answersInWords, firstToken, headWithAnswer } from "../engine/answers.js";
import { fittingEdits, linkOfEdits, withEdits } from "../engine/edits.js";
import { HIDDEN_MARK, Lexicon, languageOf } from "../engine/lexicon.js";
import { SmallModel } from "../engine/model.js";
import { modelNamed, nearestModel, readScene, replacedIn, sceneQuery } from "../engine/scene_link.js";
import { ReadSentence } from "../engine/sentence.js";
import { stepsToVector } from "../engine/vector_steps.js";
import { linkOf, placeOf, queryOf } from "../scene/focus_link.js";
import { DEFAULTS } from "../scene/schema.js";
import { showView } from "../view/head_view.js";
import { make, makeButton, makeChoice, makeMenu, makeSvg, makeToggle, renew, required, targetOf } from "./elements.js";
import { Experiment } from "./experiment.js";
import { keepUnder, keptUnder } from "./kept.js";
import { bytesOfPart, partAsJson, partsLike } from "./parts.js";
import { showShareMenu } from "./share_menu.js";
import { oneTabStop } from "./tab_stop.js";
import { fill, paragraph } from "./wording.js";

/** @typedef {import("../engine/scene_link.js").PageScene} PageScene */
/** @typedef {import("../engine/edits.js").Edit} Edit */
/** @typedef {import("../engine/scene_link.js").Example} Example */
/** @typedef {import("../view/head_view.js").Header} Header */
/** @typedef {{ page: Record<string, string>, view: Record<string, string> }} PageTexts */
/**
 * @typedef {{ texts: Record<string, PageTexts>, examples: Record<string, Example[]>, edition: number }} PageWords
 */
/** @typedef {"text" | "twin"} SentenceName */
/** @typedef {{ model: SmallModel, lexicon: Lexicon, cut: import("../engine/lexicon.js").CutText }} CutByModel */

const COUNT = new Intl.NumberFormat("en");
const TYPING_PAUSE = 600; // milliseconds without a key, after which what was typed is an entry of the browser's history
const MAX_QUOTED = 40; // characters of a wrong value
const OF_SENTENCE = ["token", "key_token", "pins"]; // fields whose values are words of the sentence
const CHOSEN_LANGUAGE = "headscope_language";
const LOGO =
  "M0 0h6v6H0zM8 0h6v6H8zM16 0h6v6h-6zM0 8h6v6H0zM8 8h6v6H8zM16 8h6v6h-6zM0 16h6v6H0zM8 16h6v6H8zM16 16h6v6h-6z";
const PRECISION = "0.00005"; // the largest difference of a weight from torch, with a change; 0.00003 of it are torch's own rounding

/** @param {HTMLElement} root */
export async function openModelPage(root) {
  /** @type {PageWords} */
  const words = await partAsJson("texts");
  const names = partsLike(/-h\d+-d\d+$/);
  const link = partsLike(/^link$/).length ? new TextDecoder().decode(await bytesOfPart("link")) : "";
  const page = new ModelPage(root, words, names.map(modelNamed));
  await page.open(location.search.slice(1) || link);
}

class ModelPage {
  /** @type {Map<string, { model: SmallModel, lexicon: Lexicon }>} that have arrived, by their names */
  models = new Map();
  /** @type {ReadSentence[]} what is drawn */
  reads = [];
  /** @type {import("../engine/scene_link.js").LinkNote[]} */
  notes = [];
  shown = "en"; // the language of the page
  chosen = ""; // the one that its reader chose
  asked = ""; // the link, until its scene is drawn
  /** @type {{ read: ReadSentence, edits: Edit[] } | null} what was drawn before another text is typed */
  before = null;
  isNew = false; // is the text another one than before?
  isDrawing = false;
  sized = ""; // the model that the fields of sizes offer
  turn = 0;
  pause = 0;

  /**
   * @param {HTMLElement} root
   * @param {PageWords} words
   * @param {import("../engine/scene_link.js").ModelName[]} offered
   */
  constructor(root, words, offered) {
    this.root = root;
    this.words = words;
    this.offered = offered;
    this.edition = String(words.edition);
    /** @type {PageScene} */
    this.scene = readScene("", this.here).scene;
    this.top = make("header", "top");
    this.fields = make("section", "fields");
    this.sizes = make("div", "sizes");
    this.said = Object.assign(make("p", "said"), { role: "status" });
    this.title = make("div", "question");
    this.view = make("div", "view");
    this.about = make("p", "about");
    this.experiment = new Experiment((edits) => this.change({ edits }));
    root.className = "page";
    root.replaceChildren(this.top, this.fields, this.said, this.title, this.experiment.root, this.view, this.about);
    window.addEventListener("popstate", () => this.open(location.search.slice(1)));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    // Links of the view to the page What if of the app: this page computes it in place.
    this.view.addEventListener("click", (event) => {
      const link = targetOf(event)?.closest("a");
      if (!link?.href.includes("what-if?")) return;
      event.preventDefault();
      this.experiment.root.open = true;
      const [edit = ""] = new URL(link.href).searchParams.get("edits")?.split(";").slice(-1) ?? [];
      this.change({ edits: withEdits(this.scene.edits, edit) });
    });
  }

  /** @returns {PageTexts} */
  get texts() {
    return this.words.texts[this.shown];
  }

  get example() {
    return (this.words.examples[this.shown] ?? this.words.examples.en)[0];
  }

  get here() {
    return { example: this.example, english: this.words.examples.en[0], edition: this.edition };
  }

  /** @param {string} key @param {Record<string, string | number>} [values] */
  t = (key, values = {}) => fill(this.texts.page[key] ?? key, values);

  // A link, as it was opened or as Back returns to it.
  /** @param {string} query */
  async open(query) {
    clearTimeout(this.pause);
    const asked = new URLSearchParams(query).get("lang") ?? "";
    const preferred = [asked, keptUnder(CHOSEN_LANGUAGE).code, ...navigator.languages];
    const spoken = Object.keys(this.words.texts);
    this.shown = preferred.map((tag) => tag?.split("-")[0]).find((code) => spoken.includes(code)) ?? "en";
    if (asked) this.chosen = this.shown;
    const { scene, notes } = readScene(query, this.here);
    Object.assign(this, { scene, notes, asked: query, before: null, isNew: false });
    this.build();
    await this.draw();
    this.#name();
  }

  // Everything but the view, in the language of its reader.
  build() {
    const { scene, words } = this;
    document.documentElement.lang = this.t("language.code");
    const name = make("span", "name", "Headscope");
    const ground = makeSvg("rect", { x: -5, y: -5, width: 32, height: 32, rx: 5 });
    const look = { viewBox: "-5 -5 32 32", class: "logo", "aria-hidden": "true" };
    const logo = makeSvg("svg", look, ground, makeSvg("path", { d: LOGO }));
    const spoken = Object.entries(words.texts).map(([code, { page }]) => {
      const button = makeToggle(page["language.name"], "", code === this.shown, () => this.speak(code));
      return Object.assign(button, { lang: page["language.code"] });
    });
    const languages = make("div", "languages segments", ...spoken);
    Object.assign(languages, { role: "toolbar", ariaLabel: this.t("static.language") });
    const share = make("div", "share");
    const named = Object.entries(this.texts.page).filter(([key]) => key.startsWith("share."));
    const texts = Object.fromEntries(named.map(([key, text]) => [key.slice("share.".length), text]));
    const note = location.protocol === "file:" ? this.t("static.share_file") : "";
    showShareMenu(share, { texts, note, language: this.chosen || null }, () => this.address.href);
    renew(this.top, [logo, name, share, languages]);
    oneTabStop(languages);
    const how = make("small", "", paragraph([this.t("heads.how"), this.t("heads.start")], this.texts.view));
    this.title.replaceChildren(make("h1", "", this.t("heads.question")), how);
    renew(this.sizes, this.#sizes());
    renew(this.fields, [
      this.#sentence("text", scene.text, this.t("control.text"), ""),
      this.#sentence("twin", scene.twin, this.t("control.twin"), this.t("control.twin_empty")),
      this.sizes,
    ]);
    this.experiment.speak(this.texts.page);
  }

  /** @param {string} code */
  speak(code) {
    this.shown = this.chosen = code;
    keepUnder(CHOSEN_LANGUAGE, { code });
    this.build();
    this.draw();
    this.toAddress(true);
  }

  /** @param {SentenceName} name @param {string} value @param {string} label @param {string} placeholder */
  #sentence(name, value, label, placeholder) {
    const field = Object.assign(make("textarea"), { value, placeholder, rows: 2, spellcheck: false });
    field.addEventListener("input", () => {
      if (name === "text") this.#leaveText();
      this.scene[name] = field.value;
      this.isNew ||= name === "text";
      this.notes = [];
      this.draw();
      this.toAddress(false);
    });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault(); // it has answered already
      this.toAddress(true);
    });
    field.addEventListener("blur", () => this.toAddress(true));
    return make("label", `sentence ${name}`, make("span", "", label), field);
  }

  #sizes() {
    const { scene, offered } = this;
    const language = languageOf(scene.text);
    const here = offered.filter((model) => model.language === language);
    const model = nearestModel(offered, language, scene);
    this.sized = model?.name ?? "";
    const same = here.filter(({ architecture }) => architecture === model?.architecture);
    const choices = /** @type {const} */ (["h", "d_model"]).map((name) => {
      const numbers = [...new Set(same.map((one) => one[name]))].sort((a, b) => a - b);
      const change = (/** @type {string} */ value) => this.change({ [name]: Number(value) });
      return makeChoice(this.t(`control.${name}`), numbers.map(String), String(model?.[name]), change);
    });
    const names = [...new Set(here.map(({ architecture }) => architecture))];
    const change = (/** @type {string} */ architecture) => this.change({ architecture });
    const nameOf = (/** @type {string} */ name) => this.t(`option.architecture.${name}`);
    const architectures = makeChoice(this.t("control.architecture"), names, model?.architecture, change, nameOf);
    const inside = make("div", "inside");
    const examples = makeMenu("menu examples", [this.t("control.example")], inside);
    for (const example of this.words.examples[this.shown] ?? []) {
      if (!nearestModel(offered, languageOf(example.text), scene)) continue;
      const button = makeButton(example.text, "", () => {
        examples.open = false;
        this.change({
          text: example.text,
          twin: example.twin ?? "",
          focus: { ...DEFAULTS, token: example.token },
        });
      });
      inside.append(button);
    }
    return [...choices, ...(names.length > 1 ? [architectures] : []), examples];
  }

  // Something else is to be seen: an entry of the browser's history.
  /** @param {Partial<PageScene>} changes */
  async change(changes) {
    this.notes = [];
    if ("text" in changes) this.#leaveText();
    Object.assign(this.scene, changes);
    if (!("edits" in changes && Object.keys(changes).length === 1)) this.build();
    await this.draw();
    this.toAddress(true);
  }

  #leaveText() {
    const [read] = this.reads;
    if (read) this.before ??= { read, edits: this.scene.edits };
  }

  // Changes go with the words that they name; a text that is still typed may have these words again.
  /** @param {string[]} pieces of the new text */
  #takeEditsAway(pieces) {
    if (!this.before) return;
    const { read, edits } = this.before;
    this.scene.edits = fittingEdits(edits, read.cut.pieces, pieces);
    const gone = edits.filter((edit) => !this.scene.edits.includes(edit));
    const changes = gone.map((edit) => this.experiment.inWords(edit, read)).join(" · ");
    this.notes = gone.length ? [["what_if.taken_away", { changes }]] : [];
  }

  // The picture follows what is typed: at once where the model is here, else when it has arrived.
  draw() {
    this.turn += 1;
    const { turn, scene } = this;
    const language = languageOf(scene.text.trim() ? scene.text : this.example.text);
    const model = nearestModel(this.offered, language, scene);
    if (!model) return this.say(this.t(language === "zh" ? "static.no_chinese" : "static.no_english"));
    const twinLanguage = languageOf(scene.twin);
    const twin = scene.twin.trim() ? nearestModel(this.offered, twinLanguage, scene) : undefined;
    const missing = [model, ...(twin ? [twin] : [])].filter(({ name }) => !this.models.has(name));
    if (!missing.length) return this.#drawWith(model.name, twin?.name ?? null);
    this.root.ariaBusy = "true";
    this.#takeEditsAway([]); // words of another language
    return Promise.all(missing.map((one) => this.#fetch(one.name, one.language))).then(
      () => turn === this.turn && this.#drawWith(model.name, twin?.name ?? null),
      () => turn === this.turn && this.say(this.t("static.not_loaded")),
    );
  }

  /** @param {string} name @param {string} language */
  async #fetch(name, language) {
    const [bytes, words] = await Promise.all([bytesOfPart(name), partAsJson(`words-${language}`)]);
    this.models.set(name, { model: new SmallModel(bytes), lexicon: new Lexicon(words) });
  }

  // A sentence that is drawn already, as the second one while the first is typed, is not computed anew.
  /** @param {CutByModel} read @param {import("../engine/edits.js").Edit[]} [edits] */
  #read({ model, lexicon, cut }, edits = []) {
    const before = this.reads.find((one) => one.model === model && one.cut.text === cut.text && !one.edits.length);
    return (!edits.length && before) || new ReadSentence(model, lexicon, cut, edits);
  }

  /** @param {string} modelName @param {string} text */
  #cut(modelName, text) {
    const { model, lexicon } = required(this.models.get(modelName), modelName);
    return { model, lexicon, cut: lexicon.cut(text) };
  }

  // A text that cannot be read is named; the picture before it stays.
  /** @param {string} modelName @param {string | null} twinName */
  #drawWith(modelName, twinName) {
    const { scene } = this;
    const first = this.#cut(modelName, scene.text);
    const second = twinName === null ? null : this.#cut(twinName, scene.twin);
    this.#takeEditsAway(first.cut.pieces);
    const { limit } = first.lexicon;
    const unread = [first, second].some((one) => one?.model.isDecoder && one.cut.pieces.includes(HIDDEN_MARK));
    if (unread) return this.say(this.t("static.decoder"));
    if (first.cut.pieces.length < 2) return this.say(this.t("static.empty"));
    const long = [first, second].find((one) => (one?.cut.pieces.length ?? 0) > limit);
    if (long) return this.#tooLong(long === first ? "text" : "twin", long.cut, limit);
    const plain = this.#read(first);
    const twin = second && !scene.edits.length ? this.#read(second) : null;
    /** @type {string[]} */
    const said = [];
    const { facts } = first.model;
    if (this.sized !== facts.name) renew(this.sizes, this.#sizes());
    const { h, d_model, architecture } = facts;
    const sizes = { h, d_model, architecture: this.t(`option.architecture.${architecture}`) };
    if (h !== scene.h || d_model !== scene.d_model || architecture !== scene.architecture)
      said.push(this.t("static.nearest", sizes));
    this.reads = [plain];
    if (scene.edits.length) {
      let changed = this.#read(first, scene.edits);
      const others = scene.edits.filter(({ values }) => !values);
      if (changed.clashes) changed = this.#read(first, others);
      if (changed.edits.length < scene.edits.length) said.push(this.t("static.edits_not_here"));
      this.reads.push(changed);
    } else if (twin && twin.words.length > 1) {
      const other = twin.model.facts;
      if (other.h === h && other.layers.length === facts.layers.length) this.reads.push(twin);
      else said.push(this.t("static.twin_elsewhere"));
    }
    this.#drawView(); // which adds notes on the link
    this.say([...this.notes.map(([key, values]) => this.t(key, values)), ...said].join(" "));
    const trained = first.model.isDecoder ? "model.trained_decoder" : "model.trained";
    const about = [
      this.t(trained, { ...sizes, steps: COUNT.format(facts.steps) }),
      this.t("static.computed", { difference: PRECISION }),
      this.t("static.more"),
    ];
    this.about.textContent = paragraph(about, this.texts.view);
  }

  /** @param {SentenceName} name @param {import("../engine/lexicon.js").CutText} cut @param {number} limit */
  #tooLong(name, { text, pieces, spans }, limit) {
    this.say(this.t("static.too_long", { count: pieces.length - 1, limit: limit - 1 }));
    const kept = text.slice(0, spans[limit - 1][1]);
    this.said.append(
      " ",
      makeButton(this.t("static.keep", { limit: limit - 1 }), "", () => this.change({ [name]: kept })),
    );
  }

  /** @param {string} text */
  say(text) {
    this.root.ariaBusy = null;
    this.said.textContent = text;
  }

  #drawView() {
    const { reads, scene } = this;
    const [read] = reads;
    const { facts } = read.model;
    const panels = reads.map((one) => one.panel);
    if (scene.edits.length)
      for (const [nth, key] of ["static.before", "static.after"].entries()) panels[nth].title = this.t(key);
    // In a new text, and where the text lacks the word: the first thing to look at, and a head with an answer there.
    const { token: asked, sentence } = scene.focus;
    const own = reads[Number(sentence) - 1] ?? read;
    const before = { ...scene.focus };
    if (asked && (this.isNew || (!/^\d+$/.test(asked) && !own.cut.names.includes(asked)))) {
      const isFirst = this.isNew || (scene.focus.layer === DEFAULTS.layer && scene.focus.head === DEFAULTS.head);
      const head = isFirst ? headWithAnswer(read, firstToken(read)) : null;
      const token = read.cut.names[firstToken(read)];
      Object.assign(scene.focus, { token, pins: "", sentence: "1", side: "query", number: "" });
      if (head !== null)
        Object.assign(scene.focus, { layer: String(facts.layers.length), head: String(head + 1), heads: "" });
    }
    const start = { layer: facts.layers.length - 1, head: 0, token: null, layers: facts.layers.length, heads: facts.h };
    const place = placeOf(scene.focus, /** @type {Header} */ ({ ...start }), panels);
    const header = this.#header(facts, place);
    this.isDrawing = true;
    const view = showView(this.view, header, panels, {
      moved: () => {
        if (this.isDrawing) return;
        scene.focus = { ...scene.focus, ...linkOf(view.selection, scene.focus) };
        this.experiment.follow(view.selection);
        this.toAddress(true);
      },
      rewrite: scene.edits.length ? null : (nth, token, word) => this.#rewrite(nth, token, word),
      steps: (asked) => stepsToVector(this.reads[asked.panel] ?? read, asked),
    });
    view.goTo(place);
    const looked = { ...scene.focus, ...linkOf(view.selection, scene.focus) };
    for (const name of replacedIn(this.asked, before, looked, own.cut.names)) {
      const taken = (name === "drawing" && this.texts.view[`draw_${looked.drawing}`]) || looked[name];
      const isPlain = !OF_SENTENCE.includes(name) && /[\p{L}\p{N}]/u.test(taken);
      const quoted = isPlain ? taken : `“${taken}”`; // a word or a mark would be read as one of the note
      this.notes.push(["link.refused", { name, value: before[name].slice(0, MAX_QUOTED), taken: quoted }]);
    }
    this.asked = "";
    [this.isDrawing, this.isNew] = [false, false];
    this.experiment.show(read, scene.edits, view.selection);
  }

  /** @param {import("../engine/model.js").ModelFacts} facts @param {import("../scene/focus_link.js").ViewPlace} place @returns {Header} */
  #header(facts, place) {
    const { reads, scene, texts } = this;
    const layers = [...facts.layers.keys()];
    const edits = reads.map((one) => one.edits.map((edit) => this.experiment.inWords(edit, one)));
    const source = [facts.source, ...(scene.edits.length ? [linkOfEdits(scene.edits)] : [])].join(" · ");
    return {
      id: "view",
      name: "view",
      layers: layers.length,
      heads: facts.h,
      kv: facts.kv_heads,
      layer: place.layer,
      head: place.head,
      token: place.nth === 0 ? (place.tokens.at(-1) ?? null) : firstToken(reads[0]),
      on: place.on,
      special: reads.map(({ special }) => [special, special]),
      groups: null,
      unknown: reads.map(({ cut }) => [cut.unknown, cut.unknown]),
      questions: reads.map(({ nothing }) => nothing),
      edits,
      matrices: true,
      source,
      file: ["headscope", ...(scene.text.slice(0, 40).match(/[\p{L}\p{N}_]+/gu) ?? [])].join("-"),
      texts: texts.view,
      brief: !scene.edits.length,
      follows: true,
      strips: true,
      answers: reads.map((one) => answersInWords(one, texts.page)),
      rewrite: texts.page["heads.rewrite"],
      without: this.t("heads.without"),
      block: texts.page["heads.block"],
      notes: layers.map((layer) =>
        this.t(`model.layer.${facts.layers[layer]}`, { layer: layer + 1, layers: layers.length }),
      ),
      roles: Object.fromEntries(layers.map((layer) => [layer, this.#roles(facts, layer)])),
    };
  }

  // The measured role of each head of a layer, alone and with its score; heads of the last layer have their questions.
  /** @param {import("../engine/model.js").ModelFacts} facts @param {number} layer @returns {[string, string][]} */
  #roles({ h, layers, roles, scores }, layer) {
    const { view } = this.texts;
    return Array.from({ length: h }, (_, head) => {
      const measured = roles.filter(([of, at]) => of === layer && at === head);
      /** @type {[name: string, score: number | undefined][]} */
      const named =
        layer < layers.length - 1
          ? measured.map(([, , role, score]) => [this.t(`role.${role}`), score])
          : this.reads[0].asks[head].map((question) => [view[`question_${question}`], scores[question]]);
      const scored = named.map(([role, score]) =>
        score === undefined ? role : this.t("roles.label", { role, score: score.toFixed(2) }),
      );
      return [named.map(([name]) => name).join(" · "), scored.join(" · ")];
    });
  }

  // Another word in the place of one.
  /** @param {number} nth @param {number} token @param {string} word */
  #rewrite(nth, token, word) {
    const { spans, text: before } = this.reads[nth].cut; // of what is drawn: what is typed may not be
    const text = before.slice(0, spans[token][0]) + word + before.slice(spans[token][1]);
    const focus = { ...this.scene.focus, token: String(token + 1), pins: "", side: "query", sentence: String(nth + 1) };
    this.change({ [nth ? "twin" : "text"]: text, focus });
  }

  // The address of the scene on screen.
  get address() {
    const { scene } = this;
    const own = sceneQuery(scene, this.words.examples.en[0], this.chosen);
    return Object.assign(new URL(location.href), { search: queryOf(own, scene.focus, this.edition) });
  }

  // The scene as the address; where something was chosen, or typing pauses, as an entry of the history.
  /** @param {boolean} isEntry */
  toAddress(isEntry) {
    clearTimeout(this.pause);
    if (!isEntry) {
      this.pause = window.setTimeout(() => this.toAddress(true), TYPING_PAUSE);
      return;
    }
    this.before = null;
    const { search } = this.address;
    try {
      if (search !== location.search) history.pushState(null, "", search);
    } catch {
      // a frame without an origin has no address of its own
    }
    this.#name(); // the new entry, not the one before it
  }

  #name() {
    document.title = [this.scene.text.trim(), "Headscope"].filter(Boolean).join(" · ");
  }
}

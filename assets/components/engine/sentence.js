// A sentence read by a small model: its tokens, its layers as the pictures draw them, and the model's answers
// (mha_core/sources/mini.py).
import { strongest } from "../scene/focus.js";
import { isEditHere } from "./edits.js";
import { HIDDEN_MARK, normalized, START } from "./lexicon.js";

/** @typedef {import("./lexicon.js").CutText} CutText */
/** @typedef {[word: string, share: number][]} WordAnswer the most probable words */

const MOST_ANSWERS = 5;
const GUESSING = "hidden"; // the question for the word behind [MASK]
const NEXT = "next"; // the one question of a decoder
const HIDDEN_MARKS = [HIDDEN_MARK, "<mask>"]; // which are words, though of no text
const NO_WORD_FORM = /^(\[[A-Z]{2,12}\]|<[^\s<>]{1,20}>)$/;

/**
 * A sentence as a model reads it. `answers` has for each token the noun that it stands for or belongs to, or the
 * words that can stand in its place, and none for [CLS]; of a decoder the words that can come next.
 */
export class ReadSentence {
  /**
   * @param {import("./model.js").SmallModel} model
   * @param {import("./lexicon.js").Lexicon} lexicon
   * @param {CutText} cut
   * @param {import("./edits.js").Edit[]} edits
   */
  constructor(model, lexicon, cut, edits = []) {
    const { facts } = model;
    this.model = model;
    this.lexicon = lexicon;
    this.cut = cut;
    this.words = cut.pieces.map(normalized);
    /** for each head of the last layer its questions, in the order in which they are named */
    this.asks = Array.from({ length: facts.h }, (_, head) => {
      const own = QUESTION_ORDER.filter((question) => facts.questions[question]?.includes(head));
      return own.length || model.isDecoder ? own : [GUESSING];
    });
    const site = { length: cut.ids.length, h: facts.h, layers: facts.layers.length };
    this.edits = edits.filter((edit) => isEditHere(edit, site));
    const pass = model.pass(cut.ids, this.edits);
    this.pass = pass;
    this.layers = pass.layers.map(({ layer }) => layer);
    const spelled = spelling(cut);
    const tokens = cut.ids.map((_, at) => at).slice(1); // [CLS] is asked nothing
    /** @type {Map<string, (WordAnswer | null)[]>} */
    this.questions = new Map();
    for (const question of Object.keys(facts.questions)) {
      if (!QUESTION_ORDER.includes(question)) continue;
      const chances = model.probabilities(pass, question, tokens, [...spelled.keys()], this.edits);
      this.questions.set(question, [null, ...chances.map((one) => mostProbable(one, [...spelled.values()]))]);
    }
    const [asked, places] = model.isDecoder
      ? [NEXT, [0, ...tokens]]
      : [GUESSING, tokens.filter((at) => cut.pieces[at] === HIDDEN_MARK)];
    const known = lexicon.known.map((word) => lexicon.number.get(word) ?? 0);
    const guessed = places.length ? model.probabilities(pass, asked, places, known, this.edits) : [];
    this.answers = cut.ids.map((_, at) => {
      const nth = places.indexOf(at);
      return nth < 0 ? (this.questions.get("noun")?.[at] ?? null) : mostProbable(guessed[nth], lexicon.known);
    });
  }

  // Does a row of one's own put weight on a cell that another change hides? There the cell stays hidden.
  get clashes() {
    const { length } = this.words;
    return this.layers.some((layer) =>
      layer.patchedWeights?.data.some((weight, at) => {
        const [head, query, key] = [Math.floor(at / length ** 2), Math.floor(at / length) % length, at % length];
        return weight > 0 && weight < Infinity && !layer.sees(head, query, key);
      }),
    );
  }

  // The panel of the head view.
  get panel() {
    const { text: title, labels: tokens, names } = this.cut;
    const layers = new Map(this.layers.map((layer) => [layer.number, layer]));
    return { title, tokens, keys: tokens, names, keyNames: names, layers };
  }

  /** @param {number} token @param {import("./lexicon.js").WordKind} kind */
  is = (token, kind) => this.lexicon.is(this.words[token], kind);

  // The heads of the last layer that are asked one of these questions.
  /** @param {string[]} questions */
  headsOf = (questions) =>
    [...Array(this.model.facts.h).keys()].filter((head) => this.asks[head].some((one) => questions.includes(one)));

  // The questions of each head, and the tokens at which it has nothing to find, as the head view takes them.
  // Of a head that is switched off it is not said.
  get nothing() {
    if (this.model.isDecoder) return [];
    const { pieces } = this.cut;
    const last = this.layers[this.layers.length - 1];
    return this.asks.map((asks, head) => {
      const isOff = last.isPatchedOutput(head, 0, 0);
      /** @param {number} at */
      const isFound = (at) =>
        isOff ||
        HIDDEN_MARKS.includes(pieces[at]) ||
        asks.some((question) => {
          const answer = this.questions.get(question)?.[at];
          return answer && answer[0][0] !== START;
        });
      return { asks, nothing: [...pieces.keys()].filter((at) => !isFound(at)) };
    });
  }

  // Positions of tokens that are not words, or else the first one; a hidden word is a word.
  get special() {
    const { pieces } = this.cut;
    return [...pieces.keys()].filter((at) => NO_WORD_FORM.test(pieces[at]) && !HIDDEN_MARKS.includes(pieces[at]));
  }
}

export const QUESTION_ORDER = ["noun", "doer", "object", "before", "after", "decider"];

// The possible answers, by their numbers: the words of the text, in small letters where one occurs so.
/** @param {CutText} cut */
function spelling({ ids, pieces }) {
  /** @type {Map<number, string>} */
  const spelled = new Map();
  for (const [at, id] of ids.entries()) {
    const before = spelled.get(id);
    const isSmall = pieces[at] === pieces[at].toLowerCase();
    if (before === undefined || (isSmall && before !== before.toLowerCase())) spelled.set(id, pieces[at]);
  }
  return spelled;
}

/** @type {(chances: number[], words: string[]) => WordAnswer} */
const mostProbable = (chances, words) =>
  strongest(chances, { count: MOST_ANSWERS }).map((at) => [words[at], chances[at]]);

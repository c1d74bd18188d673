// The model's answers in words (pages/_kit/answers.py), and where to look first in a text (mha_core/scene/first_look.py).
import { fill, isolated, paragraph } from "../page/wording.js";
import { HIDDEN_MARK, normalized, START } from "./lexicon.js";
import { QUESTION_ORDER } from "./sentence.js";

/** @typedef {import("./sentence.js").ReadSentence} ReadSentence */
/** @typedef {import("./sentence.js").WordAnswer} WordAnswer */
/** @typedef {import("../view/head_view.js").AnswerText} AnswerText */
/** @typedef {Record<string, string>} Wording */

const LEAST_GUESS = 0.3; // probability of the best word; below it the model does not know
const SURE = 0.9;
const MIN_SHARE = 0.01; // of a further word, for it to be named
const MIN_BESIDES = 0.1; // the same beside an answer that the model knows
const MOST_GUESSES = 3;
const EVERYWHERE = new Set(["before", "after"]); // questions that have an answer at every word

/** @param {ReadSentence} read @param {string} question @param {number} token */
const answerTo = (read, question, token) => read.questions.get(question)?.[token] ?? null;

// Is the answer to a question about a token another word of the text?
/** @param {ReadSentence} read @param {string} question @param {number} token */
function hasAnswer(read, question, token) {
  const answer = answerTo(read, question, token);
  return answer !== null && answer[0][0] !== START && normalized(answer[0][0]) !== read.words[token];
}

// Do questions have an answer at every word?
/** @param {string[]} questions */
const areEverywhere = (questions) => questions.every((question) => EVERYWHERE.has(question));

// A sure answer is not more certain than another sure one.
/** @param {WordAnswer} answer */
const certainty = ([[, share]]) => Math.min(Math.round(share * 10) / 10, SURE);

/**
 * The questions about each token, and the answers.
 * @param {ReadSentence} read
 * @param {Wording} texts
 * @returns {AnswerText[][]}
 */
export const answersInWords = (read, texts) => read.answers.map((_, token) => answersAbout(read, token, texts));

/** @param {ReadSentence} read @param {number} token @param {Wording} texts @returns {AnswerText[]} */
function answersAbout(read, token, texts) {
  const answer = read.answers[token];
  if (!answer) return [];
  if (read.model.isDecoder) {
    const asked = fill(texts["answer.next"], { query: isolated(read.cut.labels[token]) });
    const words = sharesOf(answer.slice(0, MOST_GUESSES), texts, MIN_SHARE);
    const isKnown = answer[0][1] >= LEAST_GUESS;
    return [[asked, isKnown ? words : fill(texts["answer.perhaps"], { words }), "", isKnown, []]];
  }
  if (read.cut.pieces[token] === HIDDEN_MARK) return [unsure(texts["answer.hidden"], answer, texts, [])];
  const ofPronoun = read.is(token, "pronoun");
  /** @type {Set<string>} */
  const noted = new Set();
  const said = ofPronoun ? [answerAbout(read, token, ["noun"], answer, noted, texts)] : [];
  /** @type {[questions: string[], answer: WordAnswer][]} */
  const grouped = groupedQuestions(read, token, ofPronoun).map((questions) => [
    questions,
    /** @type {WordAnswer} */ (answerTo(read, questions[0], token)),
  ]);
  grouped.sort(
    ([one, a], [other, b]) => Number(areEverywhere(one)) - Number(areEverywhere(other)) || certainty(b) - certainty(a),
  );
  for (const [questions, own] of grouped) {
    if (said.length && (questions.includes("noun") || areEverywhere(questions))) continue;
    if (own[0][1] < LEAST_GUESS && said.some(([, words]) => words === texts["answer.unsure"])) continue;
    said.push(answerAbout(read, token, questions, own, noted, texts));
  }
  const nothing = fill(texts["answer.word"], { query: isolated(read.cut.labels[token]) });
  return said.length ? said : [[nothing, texts["answer.nothing"], "", true, []]];
}

// The questions about a word that another word answers, by the heads that answer them. What decides is a question about
// pronouns; a head that is asked it finds no verb for them.
/** @param {ReadSentence} read @param {number} token @param {boolean} ofPronoun */
function groupedQuestions(read, token, ofPronoun) {
  /** @type {Map<string, string[]>} */
  const byHeads = new Map();
  for (const question of QUESTION_ORDER) {
    if (!hasAnswer(read, question, token)) continue;
    const heads = read.headsOf([question]).join();
    byHeads.set(heads, [...(byHeads.get(heads) ?? []), question]);
  }
  return [...byHeads.values()]
    .map((questions) => {
      const unasked = questions.includes("decider") ? (ofPronoun ? "doer" : "decider") : "";
      return questions.filter((question) => question !== unasked);
    })
    .filter(({ length }) => length);
}

/**
 * @param {ReadSentence} read
 * @param {number} token
 * @param {string[]} questions
 * @param {WordAnswer} answer
 * @param {Set<string>} noted notes that are not repeated
 * @param {Wording} texts
 * @returns {AnswerText}
 */
function answerAbout(read, token, questions, answer, noted, texts) {
  const heads = read.headsOf(questions);
  const [[word, share]] = answer;
  const each = questions.map((question) => askedAbout(read, question, token, texts));
  const asked = paragraph(each, texts);
  if (share < LEAST_GUESS) return unsure(asked, answer, texts, heads);
  const best = normalized(word);
  // An unknown word has a place, too.
  const fresh = areEverywhere(questions) ? null : unknownWord(read, token, questions, best);
  const isSure = fresh === null && share >= SURE;
  const words = sharesOf(answer, texts, MIN_BESIDES);
  /** @type {AnswerText} */
  const said = [asked, isSure ? words : fill(texts["answer.perhaps"], { words }), "", isSure, heads];
  const notes = fresh === null ? [] : [fill(texts["answer.guess"], { word: isolated(fresh) })];
  const last = read.layers[read.layers.length - 1];
  // A head that is off passes nothing on, wherever it looks.
  const acting = heads.filter((head) => last.output(head, token).some(Boolean));
  const rows = acting.map((head) => last.row(head, token));
  const keys = rows.map((row) => row.indexOf(Math.max(...row)));
  if (keys.length && !keys.some((key) => read.words[key] === best))
    notes.push(fill(texts["answer.differs"], { head: acting[0] + 1, key: isolated(read.cut.labels[keys[0]]) }));
  const unsaid = notes.filter((note) => !noted.has(note));
  for (const note of unsaid) noted.add(note);
  said[2] = paragraph(unsaid, texts);
  return said;
}

// A word that the model has never seen and that the answer is about, gives, or was decided by.
/** @param {ReadSentence} read @param {number} token @param {string[]} questions @param {string} best */
function unknownWord(read, token, questions, best) {
  const used = [read.words[token], best];
  const why = answerTo(read, "decider", token);
  if (why && questions.includes("noun") && read.is(token, "pronoun")) used.push(normalized(why[0][0]));
  const { unknown, pieces } = read.cut;
  const at = used
    .map((word) => unknown.findLast((place) => read.words[place] === word))
    .find((place) => place !== undefined);
  return at === undefined ? null : pieces[at];
}

// A question about a word, which differs between pronouns, verbs and nouns.
/** @param {ReadSentence} read @param {string} question @param {number} token @param {Wording} texts */
function askedAbout(read, question, token, texts) {
  const query = isolated(read.cut.labels[token]);
  if (question === "noun" && read.is(token, "pronoun")) return fill(texts["answer.pronoun"], { query });
  const other = answerTo(read, question, token)?.[0][0] ?? "";
  const isOf = (question === "doer" || question === "object") && isNoun(read, token, normalized(other));
  return fill(texts[isOf ? `answer.${question}_of` : `answer.${question}`], { query });
}

// Is a word a noun and not a verb? Where its form leaves that open, the other word decides.
/** @param {ReadSentence} read @param {number} token @param {string} other */
function isNoun({ lexicon, words }, token, other) {
  const word = words[token];
  /** @param {string} one */
  const names = (one) => lexicon.is(one, "noun") || lexicon.is(one, "pronoun");
  const isVerb = lexicon.is(word, "verb");
  if (isVerb !== names(word)) return names(word);
  return !names(other) && (lexicon.is(other, "verb") || !lexicon.number.has(other));
}

// The model does not know; its guesses stand beside that.
/** @type {(asked: string, answer: WordAnswer, texts: Wording, heads: number[]) => AnswerText} */
const unsure = (asked, answer, texts, heads) => [
  asked,
  texts["answer.unsure"],
  sharesOf(answer.slice(0, MOST_GUESSES), texts, MIN_SHARE),
  false,
  heads,
];

// Words with their probabilities; a punctuation mark is quoted, so that it is not read as part of the list.
/** @param {WordAnswer} answer @param {Wording} texts @param {number} least */
const sharesOf = (answer, texts, least) =>
  answer
    .filter(([, share], nth) => !nth || share >= least)
    .map(([word, share]) => {
      const named = word === START ? texts["answer.none"] : isolated(word);
      const isWord = word === START || /[\p{L}\p{N}]/u.test(word);
      return `${isWord ? named : `“${named}”`} ${Math.round(share * 100)}%`;
    })
    .join(texts["list.comma"]);

/**
 * The token to look at first: a pronoun, rather one after a noun that fits it, else a hidden word, a verb, an adjective,
 * a form of "be", a noun or an unknown word, else the first word.
 * @param {ReadSentence} read
 */
export function firstToken(read) {
  const { lexicon, words } = read;
  const typed = [...words.keys()].slice(1);
  const pronouns = typed.filter((at) => read.is(at, "pronoun"));
  /** @param {number} at */
  const hasNoun = (at) => words.slice(0, at).some((word) => lexicon.fitting.get(words[at])?.has(word));
  if (pronouns.length) return pronouns.find(hasNoun) ?? pronouns[0];
  /** @param {string} word */
  const isWritten = (word) => /\p{L}/u.test(word);
  /** @type {((at: number) => boolean)[]} */
  const tests = [
    (at) => words[at] === HIDDEN_MARK,
    (at) => read.is(at, "shownVerb"),
    (at) => read.is(at, "adjective"),
    (at) => read.is(at, "be"),
    (at) => read.is(at, "noun") || (isWritten(words[at]) && !lexicon.number.has(words[at])),
    (at) => isWritten(words[at]),
  ];
  for (const test of tests) {
    const found = typed.find(test);
    if (found !== undefined) return found;
  }
  return typed[0] ?? 0;
}

/**
 * The head of the last layer, from 0, whose question has an answer at a token; null where none has.
 * @param {ReadSentence} read
 * @param {number} token
 */
export function headWithAnswer(read, token) {
  const ofPronoun = read.is(token, "pronoun");
  /** @param {string} question */
  const rank = (question) =>
    (EVERYWHERE.has(question) ? 0 : 100) +
    (ofPronoun && question === "noun" ? 10 : 0) +
    certainty(/** @type {WordAnswer} */ (answerTo(read, question, token)));
  const answered = [...read.questions.keys()].filter((question) => hasAnswer(read, question, token));
  const [best] = answered.toSorted((a, b) => rank(b) - rank(a));
  if (best === undefined) return null;
  const word = normalized(answerTo(read, best, token)?.[0][0] ?? "");
  const last = read.layers[read.layers.length - 1];
  /** @param {number} head */
  const given = (head) =>
    last.row(head, token).reduce((sum, weight, key) => sum + (read.words[key] === word ? weight : 0), 0);
  return read.headsOf([best]).reduce((most, head) => (given(head) > given(most) ? head : most));
}

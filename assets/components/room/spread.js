// The answers of a class to one question, drawn on its scene: counts on words and cells, drawn rows over each other,
// places of heads, dots on a line, lists of sentences. Before the reveal the server has not sent the right answer.
import { weightsOf } from "../lesson/choose.js";
import { makeMatrix } from "../lesson/matrix.js";
import { asksBesideSentence, sceneSentence } from "../lesson/scene_sentence.js";
import { make, makeLink, makeSvg } from "../page/elements.js";
import { fill, isRtl, written } from "../page/wording.js";
import { themeColours } from "../pictures/colours.js";

/**
 * One vote. `truth` is there once it is revealed: an answer, a row of weights, a number, or the answers that are right.
 * @typedef {object} VoteSpread
 * @property {string} heading
 * @property {number} count
 * @property {string} [lost] how many answers cannot be drawn
 * @property {number[] | number[][]} [counts]
 * @property {[string, number][]} [rows]
 * @property {number[]} [mean]
 * @property {[number, number][]} [numbers]
 * @property {{ answer: string, count: number, text: string, links: { text: string, href: string }[] }[]} [answers]
 * @property {string | number | number[] | string[]} [truth]
 */
/**
 * @typedef {object} SceneSpread
 * @property {string} heading
 * @property {string} [refusal]
 * @property {import("../lesson/screen.js").Question} question
 * @property {VoteSpread[]} votes
 * @property {import("./projector.js").RunOfClass[]} [runs] for the class, once it is revealed
 * @property {{ matrix_rows: string, matrix_columns: string }} titles
 */
/** @typedef {{ root: Element, question: any, vote: VoteSpread, scene: SceneSpread, texts: Record<string, string> }} OfVote */

/** @type {Record<string, (of: OfVote) => HTMLElement>} */
const DRAWN = {
  point: ({ question, vote }) => onWords(question.words, vote),
  cell: onCells,
  draw: overRows,
  order: onPlaces,
  choose: onPictures,
  estimate: onLine,
  flip: inList,
  find: inList,
  why: inList,
};

/** @param {Element} root @param {SceneSpread} scene @param {Record<string, string>} texts */
export function drawSpread(root, scene, texts) {
  const { heading, question, refusal } = scene;
  const title = heading && make("h3", "", heading);
  if (refusal) return make("div", "scene", title, make("p", "refusal", refusal));
  const votes = scene.votes.map((vote) => {
    const name = vote.heading && make("h3", "", vote.heading);
    const drawn = vote.count
      ? DRAWN[question.kind]({ root, question, vote, scene, texts })
      : make("p", "none", texts.waiting);
    return make("div", `vote ${question.kind}`, name, drawn, vote.lost && make("p", "note", vote.lost));
  });
  const sentence = asksBesideSentence(question) && sceneSentence(question);
  return make("div", "scene", title, sentence, make("div", "votes", ...votes));
}

/** @param {string[]} words @param {VoteSpread} vote */
function onWords(words, { counts, count, truth }) {
  const names = words.map((word, at) => {
    const given = /** @type {number[]} */ (counts)[at];
    const number = make("output", given ? "" : "nobody", String(given));
    const name = make("div", truth === String(at + 1) ? "word true" : "word", make("bdi", "", word), number);
    name.style.setProperty("--share", `${(100 * given) / count}%`);
    return name;
  });
  return Object.assign(make("div", "words", ...names), { dir: isRtl(words) ? "rtl" : "ltr" });
}

/** @param {OfVote} of */
function onCells({ question, vote, scene }) {
  const counts = /** @type {number[][]} */ (vote.counts);
  return makeMatrix(question.queries, question.words, scene.titles, (row, column) => {
    const given = counts[row][column];
    const cell = make("td", vote.truth === `${row + 1},${column + 1}` ? "true" : "", given ? String(given) : "");
    cell.style.setProperty("--share", `${(100 * given) / vote.count}%`);
    return cell;
  });
}

// Each drawn row is a line through its weights, over those of the others; their mean is a thick line, the true row a
// dashed one.
/** @param {OfVote} of */
function overRows({ question, vote, texts }) {
  const { words } = question;
  const [width, height] = [Math.max(words.length * 44, 240), 190];
  const look = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": texts.drawn, class: "rows" };
  const picture = makeSvg("svg", look);
  picture.style.width = `${width}px`;
  /** @param {number} at @param {number} weight */
  const point = (at, weight) => `${((at + 0.5) * width) / words.length},${height - 8 - weight * (height - 16)}`;
  /** @param {number[]} row @param {string} name @param {number} count */
  const line = (row, name, count = 1) => {
    const path = makeSvg("polyline", { points: row.map((weight, at) => point(at, weight)).join(" "), class: name });
    path.style.strokeOpacity = name === "one" ? String(Math.min(0.22 * count, 1)) : "1";
    return path;
  };
  for (const share of [0, 0.5, 1]) {
    const y = height - 8 - share * (height - 16);
    picture.append(makeSvg("line", { x1: 0, x2: width, y1: y, y2: y, class: "rule" }));
  }
  for (const [answer, count] of vote.rows ?? []) {
    const row = words.map(() => 0);
    for (const one of answer.split(",")) {
      const [at, share] = one.split(":");
      row[Number(at) - 1] = Number(share) / 100;
    }
    picture.append(line(row, "one", count));
  }
  picture.append(line(vote.mean ?? [], "mean"));
  if (Array.isArray(vote.truth)) picture.append(line(/** @type {number[]} */ (vote.truth), "truth"));
  const names = make("div", "names", ...words.map((/** @type {string} */ word) => make("bdi", "", word)));
  names.style.width = `${width}px`;
  const truth = Array.isArray(vote.truth) && make("span", "key truth", texts.truth);
  const keys = make("p", "legend", make("span", "key mean", texts.mean), truth);
  return make("div", "", make("div", "scrolls", picture, names), keys);
}

/** @param {OfVote} of */
function onPlaces({ question, vote, texts }) {
  /** @type {number[]} */
  const heads = question.heads;
  const right = typeof vote.truth === "string" ? vote.truth.split(",") : [];
  const names = heads.map((_, at) => make("th", "column", fill(texts.place, { number: at + 1 })));
  const lines = heads.map((number, at) => {
    const cells = /** @type {number[][]} */ (vote.counts)[at].map((given, place) => {
      const cell = make("td", right[place] === String(number) ? "true" : "", given ? String(given) : "");
      cell.style.setProperty("--share", `${(100 * given) / vote.count}%`);
      return cell;
    });
    return make("tr", "", make("th", "row", fill(texts.head, { head: number })), ...cells);
  });
  return make("table", "matrix places", make("tr", "", make("th"), ...names), ...lines);
}

/** @param {OfVote} of */
function onPictures({ root, question, vote, scene, texts }) {
  const colours = themeColours(root);
  const pictures = /** @type {number[]} */ (vote.counts).map((given, at) => {
    const title = make("span", "", fill(texts.picture, { number: at + 1 }));
    const name = make("div", "word", title, make("output", "", String(given)));
    name.style.setProperty("--share", `${(100 * given) / vote.count}%`);
    const weights = weightsOf(question.pictures[at], scene.titles, colours);
    return make("div", vote.truth === String(at + 1) ? "picture true" : "picture", name, weights);
  });
  return make("div", "pictures", ...pictures);
}

// Numbers as dots on their line; those that would cover each other are stacked.
/** @param {OfVote} of */
function onLine({ question, vote, texts }) {
  const { low, high } = question;
  const [width, dot, bins] = [640, 9, 64];
  /** @type {number[]} */
  const stacks = Array.from({ length: bins + 1 }, () => 0);
  /** @type {[number, number][]} */
  const dots = [];
  for (const [number, count] of vote.numbers ?? []) {
    const bin = Math.round(((number - low) / (high - low)) * bins);
    for (let nth = 0; nth < count; nth++) dots.push([bin, stacks[bin]++]);
  }
  const most = Math.max(...stacks);
  const size = Math.min(dot, 150 / most);
  const height = Math.max(most * size + 12, 40);
  const viewBox = `-8 ${-height} ${width + 16} ${height + 24}`;
  const rule = makeSvg("line", { x1: 0, x2: width, y1: 0, y2: 0, class: "rule" });
  const picture = makeSvg("svg", { viewBox, role: "img", "aria-label": texts.drawn, class: "dots" }, rule);
  if (typeof vote.truth === "number") {
    const x = ((vote.truth - low) / (high - low)) * width;
    picture.append(makeSvg("line", { x1: x, x2: x, y1: 4, y2: -height, class: "truth" }));
  }
  for (const [bin, nth] of dots)
    picture.append(makeSvg("circle", { cx: (bin / bins) * width, cy: -(nth + 0.5) * size - 1, r: size / 2 - 0.6 }));
  picture.append(
    makeSvg("text", { x: 0, y: 18 }, String(low)),
    makeSvg("text", { x: width, y: 18, "text-anchor": "end" }, String(high)),
  );
  if (typeof vote.truth !== "number") return make("div", "", picture);
  const key = make("span", "key truth", `${texts.truth}: ${written(vote.truth)}`);
  return make("div", "", picture, make("p", "legend", key));
}

// Sentences and changes, the most frequent first. A sentence opens in another tab, where the model reads it.
/** @param {OfVote} of */
function inList({ vote, texts }) {
  const right = Array.isArray(vote.truth) ? vote.truth.map(String) : [];
  const items = (vote.answers ?? []).map(({ answer, count, text, links }) => {
    const isRight = right.includes(answer);
    const one = make("li", isRight ? "true" : "", make("bdi", "", text));
    if (count > 1) one.append(" ", make("output", "", fill(texts.times, { count })));
    if (isRight) one.append(" ", make("span", "verdict", `● ${texts.right}`));
    for (const { text: page, href } of links) {
      const link = makeLink(fill(texts.run, { page }), href);
      Object.assign(link, { target: "_blank", rel: "noopener", className: "leads-out" });
      one.append(" · ", link);
    }
    return one;
  });
  return make("ol", "given", ...items);
}

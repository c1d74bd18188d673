// Who wrote an answer: what each part of a model adds to a logit as bars, the largest first, and their sum in words.
import { elementsIn, emphasized, make, makeSvg, treeOf } from "../page/elements.js";
import { measured, shortenedTo } from "../page/saving.js";
import { oneTabStop } from "../page/tab_stop.js";
import { fill, isolated, paragraph, written } from "../page/wording.js";
import { themeOf } from "./theme.js";

/** @typedef {{ name: string, layer: number | null, head: number | null, share: number, norm: number | null }} LedgerPart */
/** @typedef {[word: string, share: number][]} LedgerWords */
/**
 * A ledger as `Ledger.drawing` writes it (mha_core/interventions/ledger.py).
 * @typedef {object} LedgerFacts
 * @property {LedgerPart[]} parts in the order of the model
 * @property {number} token
 * @property {string} label of the token
 * @property {string} word
 * @property {string | null} other the word that it is compared with
 * @property {number} logit
 * @property {number} probability
 * @property {Record<string, string>} texts
 * @property {number | null} [chosen] the part whose bar was clicked
 * @property {{ raised: LedgerWords, lowered: LedgerWords } | null} [words] that the chosen part writes
 */
/** @typedef {HTMLElement & { draw?: (focused?: string | null) => void, opened?: boolean }} LedgerRoot which shows all parts once it is `opened` */

const PART_HEIGHT = 24; // pixels
const BAR_HEIGHT = 14;
const LETTER_SIZE = 12;
const NUMBER_WIDTH = 60; // of a column of numbers
const NAME_MARGIN = 8;
const NAMES_SHARE = 0.42; // of the width, at most
const FIRST_PARTS = 16; // parts that are drawn at once; the others are added up
const LEAST_SHARE = 0.001; // probability that is written as a number

// The parts with a share, the largest first, by their places in the model.
/** @param {LedgerFacts} ledger */
function rankedParts({ parts }) {
  const places = parts.flatMap(({ share }, at) => (share ? [at] : []));
  return places.sort((one, other) => Math.abs(parts[other].share) - Math.abs(parts[one].share) || one - other);
}

/** @param {LedgerPart[]} parts */
const totalShare = (parts) => parts.reduce((sum, { share }) => sum + share, 0);

// A table of all parts, also of those that add nothing.
/** @param {LedgerFacts} ledger @returns {import("../page/saving.js").TableCell[][]} */
export function ledgerLines({ parts }) {
  /** @param {number | null} at */
  const counted = (at) => (at === null ? "" : at + 1);
  const rows = parts.toSorted((one, other) => Math.abs(other.share) - Math.abs(one.share));
  return [
    ["writer", "layer", "head", "share", "norm"],
    ...rows.map(({ name, layer, head, share, norm }) => [name, counted(layer), counted(head), share, norm]),
  ];
}

/**
 * The bars in this width. Others than the first parts are one bar, or all are there once they are `opened`.
 * @param {LedgerFacts} ledger
 * @param {number} width
 * @param {import("./theme.js").Theme} theme
 * @param {boolean} opened
 */
export function ledgerDrawn(ledger, width, { ink, accent, font }, opened) {
  const { parts, texts, chosen } = ledger;
  const order = rankedParts(ledger);
  const others = order.slice(FIRST_PARTS).map((at) => parts[at]);
  const rest = { name: fill(texts.rest, { count: others.length }), share: totalShare(others), norm: null };
  const rows = order.map((at) => ({ at, ...parts[at] }));
  const first = rows.slice(0, FIRST_PARTS);
  const shown = others.length ? [...first, { at: -1, ...rest }, ...(opened ? rows.slice(FIRST_PARTS) : [])] : first;
  const widthOf = measured(`600 ${LETTER_SIZE}px ${font}`); // as the chosen one
  const names = Math.min(NAMES_SHARE * width, Math.max(...shown.map(({ name }) => widthOf(name))) + NAME_MARGIN);
  const [low, high] = [Math.min(0, ...shown.map(({ share }) => share)), Math.max(0, ...shown.map((one) => one.share))];
  const room = (width - names - 2 * NUMBER_WIDTH) / (high - low || 1);
  const height = PART_HEIGHT * (shown.length + 1);
  const figure = makeSvg("svg", { width, height, "font-size": LETTER_SIZE, "font-family": font });
  /** @type {(text: string, x: number, y: number, more?: Record<string, string | number>) => SVGElement} */
  const letters = (text, x, y, more) =>
    makeSvg("text", { x, y: y + PART_HEIGHT / 2 + LETTER_SIZE / 3, fill: ink, "text-anchor": "end", ...more }, text);
  const faint = { opacity: 0.75 };
  figure.append(letters(texts.axis, width - NUMBER_WIDTH, 0, faint), letters(texts.norm, width, 0, faint));
  shown.forEach(({ at, name, share, norm }, nth) => {
    const y = PART_HEIGHT * (nth + 1);
    const bar = {
      x: names + room * (Math.min(0, share) - low),
      y: y + (PART_HEIGHT - BAR_HEIGHT) / 2,
      width: room * Math.abs(share),
      height: BAR_HEIGHT,
    };
    const colour = share < 0 ? ink : accent;
    const look = { fill: at < 0 ? "none" : colour, stroke: colour };
    /** @type {Record<string, number>} */
    const weight = at === chosen ? { "font-weight": 600 } : {};
    const row = makeSvg(
      "g",
      { class: "part", "data-at": at, "aria-label": `${name} ${written(share)}` },
      makeSvg("rect", { x: 0, y, width, height: PART_HEIGHT, fill: "none", class: "ground" }),
      letters(shortenedTo(name, names - NAME_MARGIN, widthOf), names - NAME_MARGIN, y, weight),
      makeSvg("rect", { ...bar, ...look, opacity: share < 0 ? 0.5 : 1 }),
      letters(written(share), width - NUMBER_WIDTH, y),
      letters(norm === null ? "–" : written(norm), width, y),
      makeSvg("title", {}, name),
    );
    figure.append(row);
  });
  return { figure, width, height };
}

// The sentence about the sum, in pieces of which every other one is emphasized.
/** @param {LedgerFacts} ledger */
function sumInPieces({ word, other, logit, probability, texts }) {
  const share = probability < LEAST_SHARE ? `<${100 * LEAST_SHARE}%` : `${(100 * probability).toFixed(1)}%`;
  const names = { word: isolated(word), other: isolated(other ?? ""), logit: written(logit), share };
  return (other === null ? texts.sum : texts.difference).split(/\*+/).map((piece) => fill(piece, names));
}

// The token of the ledger, in words.
/** @param {LedgerFacts} ledger */
export const ledgerToken = ({ token, label, texts }) =>
  fill(texts.of_token, { number: token + 1, token: isolated(label) });

// The words below the bars of a file.
/** @param {LedgerFacts} ledger */
export const ledgerCaption = (ledger) => paragraph([ledgerToken(ledger), sumInPieces(ledger).join("")], ledger.texts);

/**
 * The ledger of a word: its sum, its bars, and notes. A part that has an act is a button.
 * @param {LedgerRoot} root
 * @param {LedgerFacts} ledger
 * @param {(at: number) => (() => void) | null} actOf
 * @param {string} hint what a click does
 */
export function showLedger(root, ledger, actOf, hint) {
  const { parts, texts, logit, chosen, words } = ledger;
  const stage = make("div", "bars");
  const notes = [
    fill(texts.exact, { sum: written(totalShare(parts)), gap: written(Math.abs(totalShare(parts) - logit)) }),
    hint,
    texts.about_norm,
    parts.some((part) => !part.share) && texts.not_asked,
  ];
  const said = Object.assign(make("p", "words"), { ariaLive: "polite" });
  if (words?.raised.length && words.lowered.length && typeof chosen === "number") {
    const [raised, lowered] = [words.raised, words.lowered].map((some) => listedWords(some, texts));
    said.textContent = fill(texts.written, { writer: parts[chosen].name, raised, lowered });
  }
  const focused = () => treeOf(root).activeElement?.getAttribute("data-at");
  root.draw = (at = focused()) => {
    stage.replaceChildren(ledgerDrawn(ledger, stage.clientWidth, themeOf(root), Boolean(root.opened)).figure);
    for (const row of elementsIn(stage, ".part")) {
      const part = Number(row.dataset.at);
      const act = part < 0 ? open : actOf(part);
      if (!act) continue;
      const state =
        part < 0 ? { ariaExpanded: String(Boolean(root.opened)) } : { ariaPressed: String(part === chosen) };
      Object.assign(row, { role: "button", onclick: act, ...state });
      row.onkeydown = (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        act();
      };
    }
    oneTabStop(stage, "[role=button]");
    if (at) elementsIn(stage, `[data-at="${at}"]`)[0]?.focus({ preventScroll: true });
  };
  const open = () => {
    root.opened = !root.opened;
    root.draw?.();
  };
  if (!root.firstChild) new ResizeObserver(() => root.draw?.()).observe(root);
  const before = focused();
  root.replaceChildren(
    emphasized("p", sumInPieces(ledger)),
    stage,
    said,
    make("p", "caption", paragraph(notes, texts)),
  );
  root.draw(before);
}

/** @param {LedgerWords} words @param {Record<string, string>} texts */
function listedWords(words, texts) {
  const each = words.map(
    ([word, share]) => `“${isolated(word)}” ${share < 0 ? "−" : "+"}${Math.abs(share).toFixed(2)}`,
  );
  return each.join(texts.comma);
}

// Gives every figure on a page a Save menu, plotly's charts and our own drawings (`saveable`), and lets Tab reach every
// block of code. Mounted once for all pages. Data: the words of the menu, { open, png, svg, csv }.
// A plotly chart describes itself in layout.meta: { title, caption, file, rows, columns, corner, words }, where `words`
// has the word of each token's label.
import { make, makeButton, makeSvg } from "../page/elements.js";
import { FORMATS, save } from "../page/saving.js";
import { cleaned } from "../page/wording.js";
import { followHighlight, highlight, litOf } from "../scene/highlight.js";
import { reachCode } from "../streamlit/adapter.js";

/** @typedef {import("../page/saving.js").Figure} Figure */

const PLOT = ".js-plotly-plot";
const WORDS = `${PLOT} .textpoint text`;
const OFFERED = "data-headscope-saveable";
/** @type {WeakSet<Element>} figures that say where they are pointed at */
const pointing = new WeakSet();
/** @type {WeakMap<Element, Figure>} drawings of our own, by the element that they are in */
const offered = new WeakMap();
const mounted = { watching: false, waiting: false, words: null };

/**
 * Offer a drawing of our own to the Save menus of the page.
 * @param {Element} root in the component's own tree
 * @param {Figure} figure
 */
export function saveable(root, figure) {
  const { host } = /** @type {ShadowRoot} */ (root.getRootNode());
  if (!host) return;
  offered.set(host, figure);
  host.setAttribute(OFFERED, "");
  addMenusSoon();
}

// The menu in a box: one quiet button, which opens three, on the paper of the figure, which changes with the theme.
// `figure` returns the figure that is in it by now.
function addMenu(box, figure) {
  const there = box.querySelector(":scope > .headscope-save");
  if (there) return paint(there, figure());
  const { words } = mounted;
  const menu = make("div", "headscope-save");
  const choices = make("span");
  const opener = makeButton("", "", () => {
    show(choices.hidden);
    if (!choices.hidden) /** @type {HTMLElement} */ (choices.firstChild).focus({ preventScroll: true });
  });
  name(opener, words.open);
  opener.append(icon());
  for (const format of Object.keys(FORMATS)) {
    const choice = makeButton(words[format], "", () => {
      close();
      save(figure(), format);
    });
    name(choice, `${words.open}: ${words[format]}`);
    choices.append(choice);
  }
  menu.append(choices, opener);
  box.append(menu);
  show(false);

  function show(open) {
    choices.hidden = !open;
    opener.setAttribute("aria-expanded", String(open));
    /** @type {HTMLElement} */ (choices.lastChild).hidden = !figure().lines;
    paint(menu, figure());
  }
  function close() {
    show(false);
    opener.focus({ preventScroll: true });
  }
  menu.onkeydown = (event) => {
    if (event.key !== "Escape" || choices.hidden) return;
    event.stopPropagation();
    close();
  };
  menu.addEventListener("focusout", ({ relatedTarget }) => {
    if (!menu.contains(/** @type {Node} */ (relatedTarget))) show(false);
  });
}

function paint(menu, figure) {
  const { paper } = figure.look();
  if (paper && menu.style.getPropertyValue("--paper") !== paper) menu.style.setProperty("--paper", paper);
}

function name(button, words) {
  button.title = words;
  button.setAttribute("aria-label", words);
}

function icon() {
  const drawn = makeSvg("svg", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": true });
  const line = { fill: "none", stroke: "currentColor", "stroke-width": 1.5 };
  drawn.append(makeSvg("path", { d: "M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11", ...line }));
  return drawn;
}

/**
 * A figure of plotly's, as it is asked for a file.
 * @returns {Figure}
 */
function plotFigure(plot) {
  const { paper_bgcolor: paper, font = {} } = plot._fullLayout ?? {};
  return {
    meta: plot.layout?.meta ?? {},
    look: () => ({
      paper,
      font: font.family,
      get ink() {
        return getComputedStyle(plot.parentElement).color; // asked for only when a file is made
      },
    }),
    drawn: async () => {
      const { width, height } = plot._fullLayout;
      const url = await plotly().toImage(plot, { format: "svg", width, height });
      const source = cleaned(decodeURIComponent(url.slice(url.indexOf(",") + 1)));
      const parsed = new DOMParser().parseFromString(source, "image/svg+xml");
      return { figure: /** @type {any} */ (parsed.documentElement), width, height };
    },
    // A heatmap as the matrix that is drawn, empty where a cell is hidden; of others a line for each point.
    lines: () => (plot._fullData[0].type === "heatmap" ? matrixLines(plot) : pointLines(plot)),
  };
}

const plotly = () => /** @type {any} */ (window).Plotly;

function matrixLines(plot) {
  const [cells] = plot._fullData;
  const { rows = cells.y, columns = cells.x, corner = "" } = plot.layout.meta ?? {};
  const body = Array.from(cells.z, (row, i) => [rows[i], ...row]);
  return [[corner, ...columns], ...body];
}

function pointLines(plot) {
  const traces = plot._fullData.filter((trace) => trace.hoverinfo !== "skip" && trace.visible === true);
  const axes = traces.some((trace) => trace.z) ? ["x", "y", "z"] : ["x", "y"];
  const of = (trace) =>
    Array.from(trace.x, (_, i) => [
      unmarked(trace.name),
      ...axes.map((axis) => trace[axis][i]),
      Array.isArray(trace.customdata) ? trace.customdata[i] : "",
    ]);
  return [["series", ...axes, "label"], ...traces.flatMap(of)];
}

// The text of plotly's pseudo-HTML, in which we escape everything.
function unmarked(text) {
  return new DOMParser().parseFromString(text, "text/html").documentElement.textContent;
}

// Words in a figure are lit where they are pointed at elsewhere; its meta says which word of it a token is.
function lightWords() {
  const lit = litOf("token");
  for (const word of document.querySelectorAll(WORDS)) {
    const { words = {} } = /** @type {any} */ (word.closest(PLOT)).layout?.meta ?? {};
    const wordOf = (token) => (Object.hasOwn(words, token) ? words[token] : token);
    word.classList.toggle("lit", lit !== undefined && word.textContent === wordOf(lit));
  }
}

// And the other way round.
function highlightHovered(plot) {
  if (pointing.has(plot)) return;
  pointing.add(plot);
  plot.on("plotly_hover", ({ points }) => {
    const [word] = [points[0]?.customdata].flat();
    if (typeof word === "string") highlight(document.body, { token: word });
    lightWords();
  });
  plot.on("plotly_unhover", () => {
    highlight(document.body, null);
    lightWords();
  });
}

// Every figure has its menu, and all code its Tab stop, also those that come later.
function addMenus() {
  mounted.waiting = false;
  reachCode();
  for (const plot of plotly()?.toImage ? /** @type {any} */ (document.querySelectorAll(PLOT)) : []) {
    plot.toggleAttribute(
      "data-headscope-full",
      (plot._fullData ?? []).some(({ type }) => type === "heatmap" || type === "scatter3d"),
    );
    addMenu(plot.parentElement, () => plotFigure(plot));
    highlightHovered(plot);
  }
  for (const host of document.querySelectorAll(`[${OFFERED}]`)) {
    host.parentElement.dataset.headscopeBox = "";
    addMenu(host.parentElement, () => offered.get(host));
  }
}

function addMenusSoon() {
  if (mounted.watching && !mounted.waiting) {
    mounted.waiting = true;
    setTimeout(addMenus, 50);
  }
}

export default function ({ data }) {
  mounted.words = data;
  if (mounted.watching) return;
  mounted.watching = true;
  new MutationObserver(addMenusSoon).observe(document.body, { subtree: true, childList: true });
  followHighlight(document.body, lightWords);
  addMenusSoon();
}

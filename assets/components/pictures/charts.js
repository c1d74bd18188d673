// Gives every figure on a page a Save menu, plotly's charts and our own drawings (`saveable`), and lets Tab reach every
// block of code. Mounted once for all pages. Data: the words of the menu, { open, png, svg, csv }.
// A plotly chart describes itself in layout.meta: { title, caption, file, words }, where `words` has the word of each
// token's label.
import { elementsIn, make, makeButton, makeSvg, named, required, treeOf } from "../page/elements.js";
import { FORMATS, save } from "../page/saving.js";
import { cleaned } from "../page/wording.js";
import { followHighlight, highlight, litOf } from "../scene/highlight.js";

/** @typedef {import("../page/saving.js").Figure} Figure */
/** @typedef {import("../page/saving.js").TableCell} TableCell */

/**
 * @typedef {object} PointTrace
 * @property {"scatter" | "scatter3d" | "bar"} type
 * @property {string} name
 * @property {ArrayLike<TableCell>} x
 * @property {ArrayLike<TableCell>} y
 * @property {ArrayLike<TableCell>} [z]
 * @property {TableCell[]} [customdata] the label of each point
 * @property {string} hoverinfo
 * @property {boolean | "legendonly"} visible
 */
/** @typedef {import("../page/saving.js").FigureMeta & { words?: Record<string, string> }} PlotMeta */
/**
 * A chart of plotly's, as far as we read it.
 * @typedef {object} PlotParts
 * @property {{ meta?: PlotMeta }} [layout]
 * @property {{ paper_bgcolor: string, font: { family: string }, width: number, height: number }} [_fullLayout]
 * @property {PointTrace[]} [_fullData]
 * @property {(event: string, act: (hovered: { points: { customdata?: unknown }[] }) => void) => void} on
 */
/** @typedef {HTMLElement & PlotParts} Plot */
/** @typedef {{ format: string, width: number, height: number }} PlotPicture */
/** @typedef {{ toImage: (plot: Plot, how: PlotPicture) => Promise<string> }} Plotly */

const PLOT = ".js-plotly-plot";
const WORDS = `${PLOT} .textpoint text`;
const OFFERED = "data-headscope-saveable";
/** @type {WeakSet<Element>} figures that say where they are pointed at */
const pointing = new WeakSet();
/** @type {WeakMap<Element, Figure>} drawings of our own, by the element that they are in */
const offered = new WeakMap();
const mounted = { watching: false, waiting: false, words: { open: "", png: "", svg: "", csv: "" } };

/**
 * Offer a drawing of our own to the Save menus of the page.
 * @param {Element} root in the component's own tree
 * @param {Figure} figure
 */
export function saveable(root, figure) {
  const tree = treeOf(root);
  if (!(tree instanceof ShadowRoot)) return;
  const { host } = tree;
  offered.set(host, figure);
  host.setAttribute(OFFERED, "");
  addMenusSoon();
}

// The menu in a box: one quiet button, which opens three, on the paper of the figure, which changes with the theme.
// `figure` returns the figure that is in it by now.
/** @param {HTMLElement} box @param {() => Figure} figure */
function addMenu(box, figure) {
  const there = elementsIn(box, ":scope > .headscope-save").at(0);
  if (there) return paint(there, figure());
  const { words } = mounted;
  const opener = makeButton("", "", () => {
    show(choices.hidden);
    if (!choices.hidden) /** @type {HTMLElement} */ (choices.firstChild).focus({ preventScroll: true });
  });
  named(opener, words.open).append(icon());
  const formats = FORMATS.map((format) => {
    const choice = makeButton(words[format], "", () => {
      close();
      save(figure(), format);
    });
    return named(choice, `${words.open}: ${words[format]}`);
  });
  const choices = make("span", "", ...formats);
  const menu = make("div", "headscope-save", choices, opener);
  box.append(menu);
  show(false);

  /** @param {boolean} open */
  function show(open) {
    choices.hidden = !open;
    opener.ariaExpanded = String(open);
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

/** @param {HTMLElement} menu @param {Figure} figure */
function paint(menu, figure) {
  const { paper } = figure.look();
  if (paper && menu.style.getPropertyValue("--paper") !== paper) menu.style.setProperty("--paper", paper);
}

function icon() {
  const line = { fill: "none", stroke: "currentColor", "stroke-width": 1.5 };
  const arrow = makeSvg("path", { d: "M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11", ...line });
  return makeSvg("svg", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": true }, arrow);
}

/**
 * A figure of plotly's, as it is asked for a file.
 * @param {Plot} plot
 * @returns {Figure}
 */
function plotFigure(plot) {
  const { paper_bgcolor: paper = "", font = { family: "" } } = plot._fullLayout ?? {};
  return {
    meta: plot.layout?.meta ?? {},
    look: () => ({
      paper,
      font: font.family,
      get ink() {
        return getComputedStyle(boxAround(plot)).color; // asked for only when a file is made
      },
    }),
    drawn: async () => {
      const { width, height } = required(plot._fullLayout, "layout of the chart");
      const url = await required(plotly(), "plotly").toImage(plot, { format: "svg", width, height });
      const source = cleaned(decodeURIComponent(url.slice(url.indexOf(",") + 1)));
      const parsed = new DOMParser().parseFromString(source, "image/svg+xml");
      return { figure: parsed.documentElement, width, height };
    },
    lines: () => pointLines(plot._fullData ?? []),
  };
}

const plotly = () => /** @type {typeof window & { Plotly?: Plotly }} */ (window).Plotly;

/** @param {Element} element of a figure */
const boxAround = (element) => required(element.parentElement, "box around the figure");

// One line for each point.
/** @param {PointTrace[]} traces */
function pointLines(traces) {
  const shown = traces.filter(({ hoverinfo, visible }) => hoverinfo !== "skip" && visible === true);
  const axes = /** @type {const} */ (["x", "y", "z"]).slice(0, shown.some((trace) => trace.z) ? 3 : 2);
  /** @param {PointTrace} trace */
  const of = (trace) =>
    Array.from(trace.x, (_, i) => [
      unmarked(trace.name),
      ...axes.map((axis) => trace[axis]?.[i]),
      Array.isArray(trace.customdata) ? trace.customdata[i] : "",
    ]);
  return [["series", ...axes, "label"], ...shown.flatMap(of)];
}

// The text of plotly's pseudo-HTML, in which we escape everything.
/** @param {string} text */
function unmarked(text) {
  return new DOMParser().parseFromString(text, "text/html").documentElement.textContent;
}

// Words in a figure are lit where they are pointed at elsewhere; its meta says which word of it a token is.
function lightWords() {
  const lit = litOf("token");
  for (const word of document.querySelectorAll(WORDS)) {
    const { words = {} } = /** @type {Plot | null} */ (word.closest(PLOT))?.layout?.meta ?? {};
    const own = lit !== undefined && Object.hasOwn(words, lit) ? words[lit] : lit;
    word.classList.toggle("lit", own !== undefined && word.textContent === own);
  }
}

// Pointing at a word of a figure lights the same word everywhere else.
/** @param {Plot} plot */
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

// Every figure has its menu, also those that come later.
function addMenus() {
  mounted.waiting = false;
  /** @type {NodeListOf<Plot>} */
  const plots = document.querySelectorAll(PLOT);
  for (const plot of plotly()?.toImage ? plots : []) {
    plot.toggleAttribute(
      "data-headscope-full",
      (plot._fullData ?? []).some(({ type }) => type === "scatter3d"),
    );
    addMenu(boxAround(plot), () => plotFigure(plot));
    highlightHovered(plot);
  }
  for (const host of document.querySelectorAll(`[${OFFERED}]`)) {
    const box = boxAround(host);
    box.dataset.headscopeBox = "";
    addMenu(box, () => required(offered.get(host), "figure in the box"));
  }
}

function addMenusSoon() {
  if (mounted.watching && !mounted.waiting) {
    mounted.waiting = true;
    setTimeout(addMenus, 50);
  }
}

/** @param {import("../streamlit/adapter.js").Mounted<typeof mounted.words>} arrived */
export default function ({ data }) {
  mounted.words = data;
  if (mounted.watching) return;
  mounted.watching = true;
  new MutationObserver(addMenusSoon).observe(document.body, { subtree: true, childList: true });
  followHighlight(document.body, lightWords);
  addMenusSoon();
}

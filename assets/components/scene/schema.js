// Python's definitions that the scripts share. Written by `python -m tests.scene.schema`; never by hand.

/** the focus of a link that says nothing of it (mha_core/focus/focus.py) */
export const DEFAULTS = {
  layer: "2",
  head: "1",
  token: "it",
  key_token: "",
  sentence: "1",
  side: "query",
  pins: "",
  heads: "",
  drawing: "lines",
  threshold: "",
  lines: "",
  specials: "shown",
  words: "pieces",
  scale: "full",
  matrix: "none",
  number: "",
  hop1: "",
  hop2: "",
};

/** the fields of a focus, in their order in a link */
export const FIELDS = /** @type {(keyof typeof DEFAULTS)[]} */ (Object.keys(DEFAULTS));

/** the fields of a focus that have a few values; the first is the default */
export const CHOICES = {
  drawing: ["lines", "text", "arcs", "matrix"],
  side: ["query", "key"],
  specials: ["shown", "hidden"],
  words: ["pieces", "whole"],
  scale: ["full", "fitted"],
  matrix: ["none", "q", "k", "v", "scores", "weights", "output"],
};

/** @typedef {"query" | "key"} TokenAxis */
/**
 * the matrices of a head that the view draws; rows and columns are tokens of a side, or dimensions (null)
 * (mha_core/traces/matrices.py)
 * @type {Record<string, { symbol: string, rows: TokenAxis, columns: TokenAxis | null, signed: boolean }>}
 */
export const MATRICES = {
  q: { symbol: "Q{}", rows: "query", columns: null, signed: true },
  k: { symbol: "K{}", rows: "key", columns: null, signed: true },
  v: { symbol: "V{}", rows: "key", columns: null, signed: true },
  scores: { symbol: "S{}", rows: "query", columns: "key", signed: true },
  weights: { symbol: "A{}", rows: "query", columns: "key", signed: false },
  output: { symbol: "head{}", rows: "query", columns: null, signed: true },
};

/** the largest number of a focus in a link */
export const MAX_NUMBER = 99999999;

/** the fields of a link that name a layer or heads, and those that can name heads (mha_core/scene/link.py) */
export const OF_HEADS = ["layer", "head", "heads", "hop1", "hop2"];
export const WITH_HEADS = ["edits", "against"];

/** an edge that is cut, in one head and in all of them, in a link of What if (mha_core/scene/changes.py) */
export const CUT = "cut,layer={layer},head={head},from={from},to={to}";
export const CUT_EVERYWHERE = "cut,from={from},to={to}";

// A panel as it is drawn: two lists of tokens, those that look and those that are looked at. They are one
// list where a text looks at itself. Pieces can be joined to words, special tokens left out.

// A layer whose pieces are joined to words: a word takes the mean of its pieces' rows and gives their sum
// (Clark et al. 2019). `queries` and `keys` have the word's number for each piece, rising from 0.
export class Grouped {
  constructor(layer, queries, keys = queries) {
    Object.assign(this, { layer, keys, number: layer.number, heads: layer.heads, nHeads: layer.nHeads });
    this.from = piecesOf(queries);
    this.to = piecesOf(keys);
    [this.nQuery, this.nKey] = [this.from.length, this.to.length];
  }

  sees(head, query, key) {
    return this.from[query].some((q) => this.to[key].some((k) => this.layer.sees(head, q, k)));
  }

  weight(head, query, key) {
    const from = this.from[query];
    const sum = from.reduce((s, q) => s + this.to[key].reduce((t, k) => t + this.layer.weight(head, q, k), 0), 0);
    return sum / from.length;
  }

  row(head, query) {
    const joined = new Float32Array(this.nKey);
    const from = this.from[query];
    for (const q of from) this.layer.row(head, q).forEach((w, key) => (joined[this.keys[key]] += w / from.length));
    return joined;
  }

  column(head, key) {
    return Float32Array.from({ length: this.nQuery }, (_, query) => this.weight(head, query, key));
  }
}

function piecesOf(groups) {
  const pieces = [];
  groups.forEach((word, piece) => (pieces[word] ??= []).push(piece));
  return pieces;
}

// A layer without the keys that are hidden: what went to them is shared out, so that each row sums to 1.
export class Rescaled {
  constructor(layer, hidden) {
    Object.assign(this, { layer, hidden, number: layer.number, heads: layer.heads, nHeads: layer.nHeads });
    [this.nQuery, this.nKey, this.sums] = [layer.nQuery, layer.nKey, new Map()];
  }

  // What a query takes from the keys that stay, and from those that do not.
  shares(head, query) {
    const name = head * this.nQuery + query;
    let shares = this.sums.get(name);
    if (!shares) {
      shares = { stays: 0, away: 0 };
      this.layer.row(head, query).forEach((w, key) => (shares[this.hidden.has(key) ? "away" : "stays"] += w));
      this.sums.set(name, shares);
    }
    return shares;
  }

  away = (head, query) => this.shares(head, query).away;

  sees = (head, query, key) => !this.hidden.has(key) && this.layer.sees(head, query, key);

  score = (head, query, key) => this.layer.score?.(head, query, key) ?? NaN;

  weight(head, query, key) {
    const { stays } = this.shares(head, query);
    return this.hidden.has(key) || !stays ? 0 : this.layer.weight(head, query, key) / stays;
  }

  row(head, query) {
    const { stays } = this.shares(head, query);
    return this.layer.row(head, query).map((w, key) => (this.hidden.has(key) || !stays ? 0 : w / stays));
  }

  column(head, key) {
    return Float32Array.from({ length: this.nQuery }, (_, query) => this.weight(head, query, key));
  }
}

// A panel of a blob with its words joined or not: `two` says that it has two lists, `special` which tokens of
// each are no words, `wordOf` and `pieceOf` where a token of the page is here, and the other way round.
export function prepared(panel, header, nth, words) {
  const groups = header.groups?.[nth] ?? null; // of each side { of, labels }
  const two = panel.keys !== panel.tokens;
  const made = { ...panel, groups, two, nth, id: `${header.id}-${nth}` };
  const [queries, keys] = (header.special[nth] ?? [[], []]).map((positions) => [...positions]);
  made.special = { query: new Set(queries), key: new Set(keys) };
  made.wordOf = made.pieceOf = (side, at) => at;
  if (!words || !groups) return made;
  const layers = [...panel.layers].map(([n, layer]) => [n, new Grouped(layer, groups.query.of, groups.key.of)]);
  made.layers = new Map(layers);
  made.tokens = groups.query.labels;
  made.keys = two ? groups.key.labels : made.tokens;
  made.wordOf = (side, at) => groups[side].of[at] ?? 0;
  made.pieceOf = (side, at) => Math.max(0, groups[side].of.indexOf(at));
  for (const side of ["query", "key"]) made.special[side] = new Set([...made.special[side]].map((at) => made.wordOf(side, at)));
  return made;
}

// The panel's layer of that number, rescaled where special tokens are hidden; the same object each time.
export function layerOf(panel, number, plain) {
  const layer = panel.layers.get(number) ?? panel.layers.values().next().value;
  if (!plain || !panel.special.key.size) return layer;
  panel.rescaled ??= new Map();
  if (!panel.rescaled.has(layer.number)) panel.rescaled.set(layer.number, new Rescaled(layer, panel.special.key));
  return panel.rescaled.get(layer.number);
}

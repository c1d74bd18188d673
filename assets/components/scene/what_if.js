// Links to the page What if, which recomputes the first sentence of the address with one edge blocked.
import { fill } from "../page/wording.js";
import { CUT, CUT_EVERYWHERE } from "./schema.js";

// Without one cell: what was changed before stays so. All counts from 0.
/** @param {{ layer: number, head: number, row: number, column: number }} cell */
export const withoutCell = ({ layer, head, row, column }) =>
  linkTo(fill(CUT, { layer: layer + 1, head: head + 1, from: row + 1, to: column + 1 }));

// Without the edge from one token to another in all heads of all layers.
/** @param {{ query: number, key: number }} edge */
export const withoutEdge = ({ query, key }) => linkTo(fill(CUT_EVERYWHERE, { from: query + 1, to: key + 1 }));

/** @param {string} cut */
function linkTo(cut) {
  const link = new URLSearchParams(location.search);
  const others = (link.get("edits") ?? "").split(";").filter((edit) => edit && edit !== cut);
  link.set("edits", [...others, cut].join(";"));
  return `./what-if?${link}`;
}

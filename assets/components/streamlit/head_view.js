// The head view inside Streamlit: the scene comes as JSON, the numbers as bytes (blobs.js). It follows the focus of the
// page (address.js).

import { arrival } from "../numbers/blobs.js";
import { openPayload } from "../numbers/payload.js";
import { elementIn } from "../page/elements.js";
import { pageOf } from "../page/saved_page.js";
import { follow, heldFocus, move, ready, report } from "../scene/address.js";
import { linkOf, placeOf } from "../scene/focus_link.js";
import { showView } from "../view/head_view.js";
import { fitHeight } from "./adapter.js";

/** @typedef {import("../view/head_view.js").Header} Header */
/** @typedef {import("../scene/address.js").LinkFocus} LinkFocus */
/** @typedef {import("../view/head_view.js").HeadView} HeadView */

/**
 * @typedef {object} HeadViewPage
 * @property {string} digest of the numbers
 * @property {boolean} [computes] a page can be saved with the model inside
 * @property {boolean} [explains] the server says where numbers of X and of the columns of W come from
 * @property {import("../numbers/explanation.js").Explanation | null} [explanation]
 */

// The page without numbers, and the one with a model, come from the server that these scripts come from.
const TEMPLATE = new URL("../saved_page.html", import.meta.url);
const MODEL_PAGE = new URL("../model_page.html", import.meta.url);

// The address has the scene, and where the view looks.
async function modelPage() {
  const answer = await fetch(`${MODEL_PAGE}${location.search}`);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.text();
}

/** @param {import("./adapter.js").Mounted<Header & HeadViewPage>} mounted */
export default async function ({ data, parentElement, setTriggerValue }) {
  /** @type {HTMLElement & { turn?: number, view?: HeadView }} */
  const root = elementIn(parentElement, ".view");
  root.turn = (root.turn ?? 0) + 1;
  const { turn } = root;
  const [payload] = await Promise.all([arrival(data.name, data.digest), ready]);
  if (root.turn !== turn) return; // a newer scene has come meanwhile
  const panels = openPayload(payload);
  /** @param {Header} header */
  const page = async (header) => pageOf(await (await fetch(TEMPLATE)).text(), { ...header, swings: false }, payload);
  if (!data.follows) {
    showView(root, data, panels, { page });
    return fitHeight(root);
  }
  /** @param {Partial<LinkFocus>} changes */
  const goTo = (changes) => {
    move(changes);
    if (data.reports) report(); // other figures of the page look there, too
  };
  // Its word is another then: the focus stays at its place.
  /** @type {HeadView["page"]["rewrite"]} */
  const rewrite = (nth, token, text) => {
    move({ token: String(token + 1), pins: "", side: "query", sentence: String(nth + 1) });
    report();
    setTriggerValue("changed", { panel: nth, word: token, text });
  };
  /** @type {HeadView["page"]["explain"]} */
  const explain = (place) => {
    report();
    setTriggerValue("explained", place);
  };
  // The server sends layers and heads that are not here; until they arrive the view stays where it is.
  /** @param {{ layer: number, head: number }} place */
  const isHere = ({ layer, head }) => panels[0].layers.get(layer)?.heads.includes(head);
  const place = placeOf(heldFocus(), data, panels);
  const { layer, head, tokens } = isHere(place) && place.nth === 0 ? place : { ...data, tokens: [data.token] };
  const header = { ...data, layer, head, token: tokens.at(-1) ?? null };
  const view = showView(root, header, panels, {
    open: ({ layer, head }) => goTo({ layer: String(layer + 1), head: String(head + 1), heads: "" }),
    moved: () => root.view && goTo(linkOf(root.view.selection, heldFocus())),
    rewrite: data.rewrite ? rewrite : null,
    page,
    model: data.computes ? modelPage : null,
    explain: data.explains ? explain : null,
  });
  /** @param {LinkFocus} focus */
  const follower = (focus) => {
    const there = placeOf(focus, data, panels);
    if (isHere(there)) view.goTo(there);
    else report();
  };
  follower(heldFocus());
  follow(root, follower);
  view.matrices.answer(data.explanation);
  fitHeight(root);
}

// The head view inside Streamlit: the scene comes as JSON, the numbers as bytes (blobs.js). It follows the focus of the
// page (address.js).

import { arrival } from "../numbers/blobs.js";
import { openPayload } from "../numbers/payload.js";
import { pageOf } from "../page/saved_page.js";
import { follow, heldFocus, move, ready, report } from "../scene/address.js";
import { linkOf, placeOf } from "../scene/focus_link.js";
import { showView } from "../view/head_view.js";
import { fitHeight } from "./adapter.js";

// The page without numbers comes from the server that these scripts come from.
const TEMPLATE = new URL("../saved_page.html", import.meta.url);

export default async function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".view");
  root.turn = (root.turn ?? 0) + 1;
  const { turn } = root;
  const [payload] = await Promise.all([arrival(data.name, data.digest), ready]);
  if (root.turn !== turn) return; // a newer scene has come meanwhile
  const panels = openPayload(payload);
  const page = async (header) => pageOf(await (await fetch(TEMPLATE)).text(), header, payload);
  if (!data.follows) {
    showView(root, data, panels, { open: null, moved: null, hide: null, page });
    return fitHeight(root);
  }
  const goTo = (changes) => {
    move(changes);
    if (data.reports) report(); // other figures of the page look there, too
  };
  const open = ({ layer, head }) => goTo({ layer: String(layer + 1), head: String(head + 1), heads: "" });
  const moved = () => goTo(linkOf(root.view.selection, heldFocus()));
  const hide = (nth, token) => {
    move({ token: String(token + 1), pins: "", side: "query", sentence: String(nth + 1) }); // its word is another then
    report();
    setTriggerValue("hidden", { panel: nth, word: token });
  };
  const plot = (asked) => {
    report();
    setTriggerValue("plotted", asked);
  };
  const explain = (place) => {
    report();
    setTriggerValue("explained", place);
  };
  // What is not here the server sends; until then the view stays where it is.
  const isHere = ({ layer, head }) => panels[0].layers.get(layer)?.heads.includes(head);
  const place = placeOf(heldFocus(), data, panels);
  const { layer, head, tokens } = isHere(place) && place.nth === 0 ? place : { ...data, tokens: [data.token] };
  const header = { ...data, layer, head, token: tokens.at(-1) ?? null };
  const view = showView(root, header, panels, {
    open,
    moved,
    hide: data.hides ? hide : null,
    page,
    plot: data.matrices ? plot : null,
    explain: data.explains ? explain : null,
  });
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

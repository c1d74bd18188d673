// The head view inside Streamlit: the scene comes as JSON, the numbers by themselves (blobs.js).
import { arrival } from "./blobs.js";
import { showView } from "./head_view.js";
import { openPayload } from "./payload.js";
import { pageOf } from "./saved_page.js";
import { drawn, followHistory, heard, writeLink } from "./streamlit.js";

let told = null; // what the server was told to look at, until it does

// The page without numbers comes from the server that these scripts come from.
const TEMPLATE = new URL("saved_page.html", import.meta.url);

export default async function ({ data, parentElement, setTriggerValue }) {
  if (told && isKnown(told, data)) {
    told = null;
    heard();
  }
  const root = parentElement.querySelector(".view");
  root.turn = (root.turn ?? 0) + 1;
  const { turn } = root;
  const payload = await arrival(data.name, data.digest);
  if (root.turn !== turn) return; // a newer scene has come meanwhile
  const open = data.opens ? (chosen) => setTriggerValue("opened", chosen) : null;
  const tell = (chosen) => {
    told = chosen;
    open(chosen);
  };
  const moved = open && ((chosen) => writeLink(linkOf(chosen), () => tell(chosen)));
  const hidden = (nth, token) => setTriggerValue("hidden", { ...root.view.chosen, panel: nth, word: token });
  const page = async (header) => pageOf(await (await fetch(TEMPLATE)).text(), header, payload);
  // Where it draws everything about a head the server need not hear; elsewhere other figures follow it at once.
  const hears = data.matrices ? moved : open;
  showView(root, data, openPayload(payload), { open, moved: hears, hide: data.hides ? hidden : null, page });
  drawn(root);
  if (open) followHistory(root, (link) => root.view.goTo(placeOf(link, data)));
}

// Does the server's scene look at this already?
const isKnown = (chosen, { layer, head, token, key }) =>
  chosen.layer === layer && chosen.head === head && (chosen.token ?? token) === token && (chosen.key ?? key) === key;

// What the link says of layer, head and tokens, which count from 1 there.
function linkOf({ layer, head, token, key }) {
  const counted = (at) => (at === null || at === undefined ? null : String(at + 1));
  return {
    layer: counted(layer),
    head: counted(head),
    token: counted(token),
    ...(key == null ? {} : { key_token: counted(key) }),
  };
}

function placeOf(link, { layer, head, token }) {
  const at = (name, other) => (link.get(name) ? Number(link.get(name)) - 1 : other);
  return { layer: at("layer", layer), head: at("head", head), token: at("token", token) };
}

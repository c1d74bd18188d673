// The script of a saved page, which holds its numbers itself and needs no server.

import { openPayload } from "../numbers/payload.js";
import { ledgerToken, showLedger } from "../pictures/ledger.js";
import { showView } from "../view/head_view.js";
import { elementIn, make } from "./elements.js";
import { bytesOfPart } from "./parts.js";

const inside = await bytesOfPart("numbers"); // 4 bytes with the length of the header, the header, the payload
const start = 4 + new DataView(inside.buffer).getUint32(0, true);
/** @type {import("../view/head_view.js").Header} */
const header = JSON.parse(new TextDecoder().decode(inside.subarray(4, start)));
const panels = openPayload(inside.slice(start));
const root = elementIn(document, ".view");
const below = make("div", "ledger");
const draw = () => {
  const view = showView(root, header, panels, {});
  const { ledger } = header;
  if (!ledger) return;
  const { parts, texts } = ledger;
  // With several kinds of attention the ledger has more layers than the view, by other numbers.
  const isOfView =
    header.layers === 1 + Math.max(...parts.map(({ layer, head }) => (head === null ? 0 : (layer ?? 0))));
  /** @param {number} at */
  const actOf = (at) => {
    const { layer, head } = parts[at];
    if (!isOfView || layer === null || head === null || !view.selection.has(layer)) return null;
    return () => {
      view.toLayer(layer);
      if (view.selection.every.includes(head)) view.toHead(head);
      root.scrollIntoView();
    };
  };
  showLedger(below, ledger, actOf, isOfView ? texts.click_page : "");
  below.prepend(make("h2", "", texts.title), make("p", "", ledgerToken(ledger)));
  root.after(below);
};
document.documentElement.lang = header.texts.lang;
document.title = `${header.file} · Headscope`;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();

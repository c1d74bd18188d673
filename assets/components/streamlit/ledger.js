// The ledger inside Streamlit: a click on a part asks the server, which moves the page to a head or says the words of
// another part.
import { elementIn } from "../page/elements.js";
import { saveable } from "../pictures/charts.js";
import { ledgerCaption, ledgerDrawn, ledgerLines, showLedger } from "../pictures/ledger.js";
import { themeOf } from "../pictures/theme.js";
import { unreported } from "../scene/address.js";
import { fitHeight } from "./adapter.js";

const WIDTH = 640; // pixels of the drawing in a file

/** @typedef {import("../pictures/ledger.js").LedgerFacts & { meta: import("../page/saving.js").FigureMeta }} LedgerPage */

/** @param {import("./adapter.js").Mounted<LedgerPage>} mounted */
export default function ({ data, parentElement, setTriggerValue }) {
  /** @type {import("../pictures/ledger.js").LedgerRoot} */
  const root = elementIn(parentElement, ".ledger");
  showLedger(root, data, (at) => () => setTriggerValue("picked", { at, ...unreported() }), data.texts.click);
  saveable(root, {
    meta: { ...data.meta, caption: [ledgerCaption(data), ...(data.meta.caption ?? [])] },
    look: () => themeOf(root),
    drawn: () => ledgerDrawn(data, WIDTH, themeOf(root), Boolean(root.opened)),
    lines: () => ledgerLines(data),
  });
  fitHeight(root);
}

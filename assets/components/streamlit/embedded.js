// In a frame of another site: the link that opens the same scene with all its controls in a tab of its own. The site
// hears how high the page is, so that the frame can become as high: { headscope: { height } }.
import { elementIn, make } from "../page/elements.js";
import { followHeight, sayColourScheme, WHOLE, wholeAddress } from "./adapter.js";

const BEFORE_IT_OPENS = ["pointerenter", "pointerdown", "focus", "contextmenu"];
let tells = false;

/** @param {import("./adapter.js").Mounted<{ text: string }>} mounted */
export default function ({ data, parentElement }) {
  const link = make("a", WHOLE, data.text);
  const update = () => {
    link.href = wholeAddress(); // which changes with every act on the page
  };
  Object.assign(link, { target: "_blank", rel: "noopener", title: data.text });
  for (const event of BEFORE_IT_OPENS) link.addEventListener(event, update);
  update();
  elementIn(parentElement, ".whole").replaceChildren(link);
  sayColourScheme();
  if (!tells) followHeight((height) => window.parent.postMessage({ headscope: { height } }, "*"));
  tells = true;
}

// Mounted once for all pages, without anything to see: writes the focus of the page into its address (scene/address.js).
// A button can open another page: it names the container of a link as `follow`, and this script clicks the link.
// The page loads it before Streamlit (pages/_server/first_paint.py), so that Back is heard from the start.
import { addressOf, connect } from "../scene/address.js";
import { atRest, closeMenuOnChoice, followLink, openHere, undoByBack } from "./adapter.js";
import { copyCode } from "./code.js";
import { replaceOwnWords } from "./own_words.js";

/**
 * @typedef {object} AddressPage
 * @property {string} language
 * @property {string | null} cookie that keeps a language which was chosen
 * @property {import("./own_words.js").Words} ownWords
 * @property {string | null} follow the key of a container with a link to be followed now
 * @property {string} weights the edition of the trained weights
 */

let listens = false;
if (globalThis.window) undoByBack(addressOf); // node only loads it

/** @param {import("./adapter.js").Mounted<AddressPage & import("../scene/address.js").ServerFocus>} mounted */
export default function ({ data, setStateValue }) {
  if (!listens) {
    openHere();
    closeMenuOnChoice();
    copyCode();
  }
  listens = true;
  document.documentElement.lang = data.language; // Streamlit writes "en"
  // biome-ignore lint/suspicious/noDocumentCookie: the cookie store is there on secure pages alone
  if (data.cookie) document.cookie = `${data.cookie}; path=/; max-age=31536000; samesite=lax`;
  replaceOwnWords(data.ownWords);
  connect(data, (state) => setStateValue("focus", state));
  const { follow } = data;
  if (follow) atRest(() => followLink(follow));
}

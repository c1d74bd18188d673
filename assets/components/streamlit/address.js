// Mounted once for all pages, without anything to see: writes the focus of the page into its address (scene/address.js).
// A button can open another page: it names the container of a link as `follow`, and this script clicks the link.
import { connect } from "../scene/address.js";
import { atRest, followLink, openHere } from "./adapter.js";
import { replaceOwnWords } from "./own_words.js";

let listens = false;

export default function ({ data, setStateValue }) {
  if (!listens) openHere();
  listens = true;
  document.documentElement.lang = data.language; // Streamlit writes "en"
  // biome-ignore lint/suspicious/noDocumentCookie: the cookie store is there on secure pages alone
  if (data.cookie) document.cookie = `${data.cookie}; path=/; max-age=31536000; samesite=lax`;
  replaceOwnWords(data.ownWords);
  connect(data, (state) => setStateValue("focus", state));
  if (data.follow) atRest(() => followLink(data.follow));
}

// The secret of a teacher's desk: the part of its link behind the #, which no server and no other site is sent with an
// address. It stays in this tab, so that a reload opens the desk again; where a browser keeps nothing, until the page is
// left. Shows nothing.
import { keepText, keptText } from "../page/kept.js";

/** @typedef {{ code: string, secret: string | null, known: boolean }} DoorPage `secret` is the one that opens it */

let entered = ""; // the address whose secret has been taken

/** @param {string} code */
const secretKey = (code) => `headscope-desk-${code}`;

// The secret of an address of this desk, once: what is drawn anew finds it taken.
/** @param {string} href @param {string} code */
function secretIn(href, code) {
  const { searchParams, hash } = new URL(href);
  const isOurs = searchParams.get("desk")?.toUpperCase() === code && hash && href !== entered;
  if (!isOurs) return "";
  entered = href;
  if (location.hash) history.replaceState(history.state, "", location.pathname + location.search);
  return hash.slice(1);
}

/** @param {import("../streamlit/adapter.js").Mounted<DoorPage>} mounted */
export default function ({ data, setTriggerValue }) {
  const { code, secret, known } = data;
  const [{ name }] = performance.getEntriesByType("navigation"); // with what scene/address.js has taken away since
  /** @param {string} found */
  const enter = (found) => setTriggerValue("acted", { do: "enter", secret: found });
  const found = secretIn(location.hash ? location.href : name, code);
  if (found && found !== secret) enter(found);
  else if (!known) enter(keptText(secretKey(code), "sessionStorage") ?? "");
  else keepText(secretKey(code), secret, "sessionStorage");
  /** @param {HashChangeEvent} event */
  const change = ({ newURL }) => {
    const other = secretIn(newURL, code);
    if (other) enter(other);
  };
  window.addEventListener("hashchange", change);
  return () => window.removeEventListener("hashchange", change);
}

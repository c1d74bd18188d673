// The secret of a teacher's desk: the part of its link behind the #, which no server and no other site is sent with an
// address. It stays in this tab, so that a reload opens the desk again; where a browser keeps nothing, until the page is
// left. Shows nothing.

/** @typedef {{ code: string, secret: string | null, known: boolean }} DoorPage `secret` is the one that opens it */

/** @type {Map<string, string>} */
const secrets = new Map();
let entered = ""; // the address whose secret has been taken

/** @param {string} code */
const secretKey = (code) => `headscope-desk-${code}`;

/** @param {string} code @param {string | null} secret null to forget it */
function keepSecret(code, secret) {
  if (secret) secrets.set(code, secret);
  else secrets.delete(code);
  try {
    if (secret) sessionStorage.setItem(secretKey(code), secret);
    else sessionStorage.removeItem(secretKey(code));
  } catch {
    // closed to this site
  }
}

/** @param {string} code */
function keptSecret(code) {
  try {
    return sessionStorage.getItem(secretKey(code)) ?? secrets.get(code) ?? "";
  } catch {
    return secrets.get(code) ?? "";
  }
}

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
  else if (!known) enter(keptSecret(code));
  else keepSecret(code, secret);
  /** @param {HashChangeEvent} event */
  const change = ({ newURL }) => {
    const other = secretIn(newURL, code);
    if (other) enter(other);
  };
  window.addEventListener("hashchange", change);
  return () => window.removeEventListener("hashchange", change);
}

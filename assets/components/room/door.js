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

// The secret of the link by which this page was opened: scene/address.js has taken it out of the address since.
/** @param {string} code */
function secretOfLink(code) {
  const [{ name }] = performance.getEntriesByType("navigation");
  const address = new URL(location.hash ? location.href : name);
  const isOurs = address.searchParams.get("desk")?.toUpperCase() === code && address.hash && address.href !== entered;
  if (!isOurs) return "";
  entered = address.href;
  if (location.hash) history.replaceState(history.state, "", location.pathname + location.search);
  return address.hash.slice(1);
}

/** @param {import("../streamlit/adapter.js").Mounted<DoorPage>} mounted */
export default function ({ data, setTriggerValue }) {
  const { code, secret, known } = data;
  if (known) {
    secretOfLink(code); // it has been taken
    keepSecret(code, secret);
  } else setTriggerValue("acted", { secret: secretOfLink(code) || keptSecret(code) });
  const change = () => {
    const other = secretOfLink(code);
    if (other) setTriggerValue("acted", { secret: other });
  };
  window.addEventListener("hashchange", change);
  return () => window.removeEventListener("hashchange", change);
}

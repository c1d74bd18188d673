// One quiet line for who is here for the first time: the first minute of the first lesson. Who has gone there or has
// closed it does not see it again in this browser; nor does who came to a sentence, to a case, or to a frame.
import { elementIn, makeButton, makeLink, named } from "../page/elements.js";
import { fitHeight } from "../streamlit/adapter.js";

const SENT = ["text", "case", "embed"]; // fields of an address that others have chosen

/** @typedef {{ cookie: string, href: string, text: string, close: string }} InvitationPage */

/** @param {import("../streamlit/adapter.js").Mounted<InvitationPage>} mounted */
export default function ({ data, parentElement }) {
  const root = elementIn(parentElement, ".invitation");
  const close = () => {
    // biome-ignore lint/suspicious/noDocumentCookie: the cookie store is there on secure pages alone
    document.cookie = `${data.cookie}=1; path=/; max-age=31536000; samesite=lax`;
  };
  const [opened] = performance.getEntriesByType("navigation");
  const asked = new URL(opened.name).searchParams;
  const isNew = !document.cookie.includes(`${data.cookie}=`) && !SENT.some((field) => asked.has(field));
  root.replaceChildren();
  if (isNew) {
    const start = makeLink(data.text, data.href);
    start.addEventListener("click", close);
    const leave = makeButton("×", "leave", () => {
      close();
      root.replaceChildren();
    });
    root.append(start, named(leave, data.close));
  }
  fitHeight(root);
}

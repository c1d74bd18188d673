// The end of a lesson: what one can do now, the question on paper, its scenes to look around in, and what comes next.
import { make, makeButton, makeLink } from "../page/elements.js";
import { fitHeight } from "../streamlit/adapter.js";
import { formatted } from "./formatted.js";
import { listen } from "./keys.js";
import { keepProgress } from "./progress.js";

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".lesson");
  const act = (what) => setTriggerValue("acted", what);
  root.classList.toggle("projector", data.projector);
  keepProgress(data.lesson, { number: data.number });
  /** @type {HTMLElement[]} */
  const parts = [make("h1", "ask", data.heading)];
  for (const [title, text] of [data.can, data.paper])
    if (text) parts.push(make("h2", "", title), formatted("p", "notice", text));
  const list = make("ol", "scenes");
  for (const { ask, answered, links } of data.screens) {
    const item = make("li", answered ? "answered" : "");
    item.append(formatted("span", "", ask), " ");
    item.append(...links.flatMap(({ text, href }, at) => [at ? " · " : "", makeLink(text, absolute(href))]));
    list.append(item);
  }
  parts.push(make("h2", "", data.around), list);
  const foot = make("div", "foot");
  if (data.then) {
    const then = makeLink(data.then.text, absolute(data.then.href));
    then.className = "lock";
    then.onclick = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      act({ do: "lesson", name: data.then.name });
    };
    foot.append(then);
  }
  foot.append(makeButton(data.cards, "hint", () => act({ do: "cards" })));
  foot.append(makeButton(data.back, "hint", () => act({ do: "go", number: data.number - 1 })));
  parts.push(foot);
  root.replaceChildren(...parts);
  listen({ lock: null, locked: true, go: (by) => by < 0 && act({ do: "go", number: data.number - 1 }) });
  fitHeight(root);
}

const absolute = (href) => new URL(href, document.baseURI).href;

// Back undoes a change of a control. Streamlit writes a control that is bound to the URL with
// `history.replaceState`, which leaves nothing to go back to; here such a write becomes an entry of
// its own. It is told apart by its form: an absolute address on the same page with another query.
// Streamlit's own writes while Back is under way are relative and pass as they are.
// One act of the reader makes one entry: what the server then changes by itself, such as the token
// when the source changes, Streamlit would push as another, with a scene between that never was.
function watch(history, location) {
  const push = history.pushState.bind(history);
  const replace = history.replaceState.bind(history);
  let acted = false;
  const note = (happened) => () => (acted = happened);
  for (const act of ["pointerdown", "keydown"]) window.addEventListener(act, note(true), true);
  window.addEventListener("popstate", note(false), true);
  const changes = (url) => url.pathname === location.pathname && url.search !== location.search;
  history.replaceState = (state, title, url) => {
    const control = URL.canParse(url) && changes(new URL(url));
    return control ? history.pushState(state, title, url) : replace(state, title, url);
  };
  history.pushState = (state, title, url) => {
    const follows = !acted && changes(new URL(url ?? "", location));
    acted = false;
    return follows ? replace(state, title, url) : push(state, title, url);
  };
}

export default function () {
  if (window.history.headscope) return;
  window.history.headscope = true;
  watch(window.history, window.location);
}

// Back undoes a change of a control. Streamlit writes a control that is bound to the URL with
// `history.replaceState`, which leaves nothing to go back to; here such a write becomes an entry of
// its own. It is told apart by its form: an absolute address on the same page with another query.
// Streamlit's own writes while Back is under way are relative and pass as they are.
function entry(history, location) {
  const replace = history.replaceState.bind(history);
  return (state, title, url) => {
    const next = URL.canParse(url) ? new URL(url) : null;
    const changed = next?.pathname === location.pathname && next.search !== location.search;
    return changed ? history.pushState(state, title, url) : replace(state, title, url);
  };
}

export default function () {
  if (window.history.headscope) return;
  window.history.headscope = true;
  window.history.replaceState = entry(window.history, window.location);
}

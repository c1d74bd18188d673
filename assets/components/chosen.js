// What a reader has before him in the view, as the page counts it: what "show it on the page" asks for.
const chosenToken = (view) => chosenOn(view, view.two ? ["query"] : ["query", "key"]);

// The token that is chosen on one of these sides; null for none.
function chosenOn(view, sides) {
  const pinned = view.pinned?.find((focus) => focus?.tokens.length && sides.includes(focus.side));
  if (!pinned) return null;
  const at = pinned.tokens.includes(view.at.token) ? view.at.token : pinned.tokens.at(-1);
  return view.data[0].pieceOf(pinned.side, at);
}

// The page's own head as long as it is on, else the first that is.
const chosenHead = ({ heads, header }) => (heads.includes(header.head) ? header.head : (heads[0] ?? header.head));

function chosen(view) {
  const found = { layer: view.state.layer, token: chosenToken(view), head: chosenHead(view) };
  return view.two ? { ...found, key: chosenOn(view, ["key"]) } : found;
}

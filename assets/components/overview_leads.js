// On a page where a head is chosen and shown on another page, opening one leads there: first the scene moves
// to it, and when the server has said so, the link on the page is followed. So Back brings the reader back.
const AT_REST = '[data-testid="stApp"][data-test-script-state="notRunning"]';
const [MOMENT, MOST_MOMENTS] = [50, 200]; // milliseconds, and how many of them

// The link stands below the overview: before the page has run to its end there may be none to follow.
function atRest(act, moments = MOST_MOMENTS) {
  if (moments && !document.querySelector(AT_REST)) setTimeout(() => atRest(act, moments - 1), MOMENT);
  else setTimeout(act, MOMENT);
}

function leads(root, link, chosen) {
  const follow = () => {
    root.leaving = undefined;
    atRest(() => document.querySelector(`.st-key-${link} a`)?.click());
  };
  if (link && root.leaving === chosen) follow();
  return {
    // Opens a head; one that is chosen already is nothing new to the server.
    open(head, choose) {
      if (!link) return choose();
      if (head === chosen) return follow();
      root.leaving = head;
      choose();
    },
  };
}

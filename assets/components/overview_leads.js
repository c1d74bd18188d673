// On a page where a head is chosen and shown on another page, opening one leads there: first the scene moves
// to it, and when the server has said so, the link on the page is followed. So Back brings the reader back.
function leads(root, link, chosen) {
  const follow = () => {
    root.leaving = undefined;
    document.querySelector(`.st-key-${link} a`)?.click();
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

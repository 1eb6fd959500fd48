// The strip alone: it shows, and nothing in it can be clicked or changed.

import { fromSearch } from "./address.js";
import { text } from "./dom.js";
import { Store } from "./store.js";
import { strip } from "./strip.js";

fromSearch(); // ?election=NAME, where there are several
const store = new Store();
const shown = strip(store, { links: false });
const name = document.getElementById("name");

function draw() {
  const head = store.parts.head;
  text(name, head && head.cluster ? [head.cluster, head.election].filter(Boolean).join(" · ") : "primacy");
  shown.draw("status");
}

async function begin() {
  document.getElementById("strip").replaceChildren(shown.root);
  draw();
  try {
    const answer = await fetch("/dashboard/me", { cache: "no-store" });
    const me = await answer.json();
    if (!me.may_read) { text(name, "Sign in first: open the dashboard itself, not in a frame."); return; }
  } catch { /* the server is gone; the stream below looks again */ }
  store.listeners.add(draw);
  store.open();
  setInterval(draw, 1000);
}

begin();

// What happened, over time: live, paused or slow; and the network as it was at the playhead. The server folds, timeline.js draws.

import { at, here, keep } from "../address.js";
import { h, show, text } from "../dom.js";
import { dayTimeMs } from "../format.js";
import { drawing } from "../map.js";
import { past } from "../past.js";
import { timeIn, timeline } from "../timeline/timeline.js";

export const timelinePage = { id: "timeline", title: "Timeline", build };

const dark = matchMedia("(prefers-color-scheme: dark)");
const ASK_MS = 1000;
const NEWS_MS = 250;
const KEEP_MS = 200;
const MAP_MS = 60; // while it plays: a map of many nodes costs more than the lanes
const SHOW_MS = 3000;
const PAST_MS = 250;
const AHEAD_MS = 60000;
const FRESH_MS = 5000; // a node looks through all that it kept for each answer
const SAVES = "One file of what is in view: it opens from a disk, without a network.", SAVES_ALL = "One file of all that is kept: it opens from a disk, without a network.";

function build({ store }) {
  const view = timeline({ ticked: true, now: () => store.now(), moved, played: () => { if (performance.now() - mapped > MAP_MS) mapAt(); } });
  const failed = h("p", { class: "outcome bad", role: "alert", hidden: true });
  const title = h("h2", { class: "card-title" });
  const save = h("a", { class: "button", href: at("/dashboard/incident"), download: "" }, "Save incident");
  const saves = h("p", { class: "quiet" }, SAVES_ALL);
  let liveFrom = null, range = null, rangeWide = 0; // the live document has all since then; the range that was read instead
  let document_ = null, asked = -ASK_MS, busy = false, seen = -1, closed = false, shown = store, keeping = 0, drawn = "", connected = true, mapped = 0;
  const state = () => view.state();
  const source = { get order() { return shown.order; }, get parts() { return shown.parts; }, get connected() { return shown.connected; }, node: (name) => shown.node(name), holdLeft: (name) => shown.holdLeft(name) };
  const map = drawing(source, { node: (name) => view.choose(state().node === name ? "" : name), link: () => {}, resized: () => mapAt() });
  const root = h("div", { class: "timeline-page waiting" }, // nothing is seen to move when the lanes get their height
    h("section", { class: "card", "aria-label": "Lanes" }, failed, view.root, h("div", { class: "timeline-save" }, save, saves)),
    h("section", { class: "timeline-map", "aria-label": "The network at the playhead" }, title, map.root));

  function moved() {
    mapAt();
    saving();
    clearTimeout(keeping);
    keeping = setTimeout(() => {
      const it = state(), live = it.mode === "live";
      if (!closed && here().page === "timeline") keep({ from: live ? "" : it.from, to: live ? "" : it.to, at: live || it.at === null ? "" : it.at, node: it.node });
    }, KEEP_MS);
  }

  // The map shows how things are while the timeline is live, and how they were while it is not.
  function mapAt() {
    const it = state(), live = it.mode === "live" || view.at === null;
    if (!live && !document_) return;
    mapped = performance.now();
    shown = live ? store : past(document_, view.at, store.parts.head);
    text(title, live ? (store.connected ? "The network now" : "The network as it was last seen") : `The network at ${dayTimeMs(view.at)}`);
    map.update(it.node, false);
  }

  // What is in view is what is saved; live, all that is kept.
  function saving() {
    const it = state(), live = it.mode === "live", to = Math.ceil(Math.min(it.to, store.now() + AHEAD_MS));
    save.setAttribute("href", at("/dashboard/incident", live || to < it.from ? {} : { from: Math.max(0, Math.floor(it.from)), to }));
    text(saves, live ? SAVES_ALL : SAVES);
  }

  // What lies before all that the server holds is read from what the nodes kept, with as much again around the view.
  function keptRange() {
    const it = state();
    if (it.mode === "live" || liveFrom === null || it.from >= liveFrom || it.to < document_.from_ms) return null;
    const around = (it.to - it.from) / 2;
    return { from: Math.max(0, Math.floor(it.from - around)), to: Math.ceil(Math.min(it.to + around, store.now() + AHEAD_MS)) };
  }

  // A range of which only the newest events came is read again when the view is narrower.
  function isRead(wanted) {
    if (range === null || wanted === null) return range === wanted;
    const it = state(), cut = document_.known_from_ms > Math.max(it.from, document_.from_ms) && it.to - it.from < rangeWide * 0.9;
    return it.from >= range.from && Math.min(it.to, store.now()) <= range.to && !cut && !(it.to >= store.now() && seen !== store.added && performance.now() - asked > FRESH_MS);
  }

  async function ask(wanted) {
    busy = true;
    seen = store.added;
    const wide = state().to - state().from;
    try {
      const answer = await fetch(at("/dashboard/timeline", wanted || {}), { cache: "no-store" });
      if (!answer.ok) throw new Error(((await answer.json().catch(() => null)) || {}).error || `the server refused with ${answer.status}`);
      const found = await answer.json();
      if (closed) return;
      document_ = found;
      range = wanted;
      rangeWide = wide;
      if (!wanted) liveFrom = found.known_from_ms ?? null;
      view.set(found);
      mapAt();
      show(failed, false);
    } catch (error) {
      if (!closed && store.connected) { text(failed, `The timeline cannot be read: ${error.message}`); show(failed, true); }
    } finally {
      busy = false;
      asked = performance.now();
      root.classList.remove("waiting");
    }
  }

  function wanted(query) {
    view.goTo({ from: timeIn(query, "from"), to: timeIn(query, "to"), at: timeIn(query, "at"), node: query.get("node") || "" });
    mapAt();
    saving();
  }

  wanted(here().query);
  return {
    root,
    moved(query) { wanted(query); },
    update(news) { if (news.events.length) asked = Math.min(asked, performance.now() - ASK_MS + NEWS_MS); if (state().mode === "live") mapAt(); },
    tick(now) {
      const fresh = state().mode === "live" || seen !== store.added;
      const wanted = keptRange(), due = isRead(wanted) ? wanted === null && fresh && now - asked > ASK_MS : now - asked > (wanted && range ? PAST_MS : 0);
      if (!busy && store.connected && due && (now - asked > ASK_MS || !failed.textContent || failed.hidden)) ask(wanted);
      if (!store.connected && now > SHOW_MS) { // nobody will answer
        root.classList.remove("waiting");
        if (!document_) { text(failed, "Nothing is shown: the server was gone before it told what happened."); show(failed, true); }
      }
      if (store.connected !== connected) { connected = store.connected; mapAt(); }
      view.root.classList.toggle("stale", !store.connected && state().mode === "live"); // history keeps its colours
      view.tick(now);
      map.tick(now);
      const scheme = `${document.documentElement.dataset.theme} ${dark.matches}`; // a style that is asked for in every picture costs one
      if (scheme !== drawn) { drawn = scheme; view.draw(); }
    },
    close() { closed = true; clearTimeout(keeping); view.close(); map.close(); },
  };
}

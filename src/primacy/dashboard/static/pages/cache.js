// The cache: keys by peers. Colour says how fresh a copy is, a sign who fetches it; and how often a fresh copy was there.

import { here, keep } from "../address.js";
import { attr, h, keyed, replace, show, text } from "../dom.js";
import { ms, number, span } from "../format.js";
import { shortNames } from "../names.js";
import { chip } from "../parts.js";

export const cache = { id: "cache", title: "Cache", build, offered: (parts) => Boolean(parts.cache) };

const EVERY_MS = 1000;
const WORDS = { fresh: "fresh", stale: "stale", absent: "no copy", unknown: "not known" };
const LEGEND = [["fresh", "", "fresh copy"], ["stale", "", "stale copy"], ["absent", "", "no copy"], ["unknown", "?", "not known: the peer does not answer"], ["fresh", "⟳", "it fetches now"], ["fresh", "◆", "it fetched this copy"]];

function build({ store, actions }) {
  const search = h("input", { type: "search", id: "cache-search", placeholder: "Beginning of a key", value: here().query.get("q") || "" });
  const all = h("button", { type: "button", class: "button danger", onclick: () => forgetAll() }, "Invalidate all that begin so");
  const peers = h("tbody");
  const peerTable = h("table", { class: "table peers" }, h("thead", {}, h("tr", {}, ["Peer", "State", "Hit rate", "Now", "Keys", "Fetched", "Waiting"].map((name) =>
    h("th", { scope: "col", class: ["Now", "Fetched", "Waiting"].includes(name) ? "wide-only" : null }, name)))), peers);
  const head = h("tr"), body = h("tbody"), sum = h("p", { class: "quiet", role: "status" });
  const grid = h("table", { class: "grid" }, h("thead", {}, head), body);
  const legend = h("div", { class: "cache-legend" }, LEGEND.map(([state, sign, word]) => h("span", {}, h("i", { class: "cell-mark", data: { state }, "aria-hidden": "true" }, sign), word)));
  const keysCard = h("section", { class: "card flush", "aria-label": "Keys by peers" }, h("div", { class: "grid-scroll", tabindex: "0", role: "group", "aria-label": "Keys by peers, to scroll" }, grid));
  const root = h("div", { class: "cache-page waiting" }, // nothing is seen to move when the rows get their height
    h("section", { class: "card", "aria-label": "Peers" }, h("div", { class: "scroll" }, peerTable)),
    h("div", { class: "card filters" }, h("div", { class: "field" }, h("label", { for: "cache-search" }, "Keys that begin with"), search), all),
    sum, legend, keysCard);
  let found = null, asked = -EVERY_MS, asking = false, closed = false, columns = "";
  const before = new Map();

  search.addEventListener("input", () => { keep({ q: search.value }); found = null; asked = -EVERY_MS; draw(); });

  const mayChange = () => actions.me.may_change && store.connected;

  async function forgetAll() {
    const prefix = search.value;
    if (!prefix) return;
    await actions.cache({ do: "invalidate", key: prefix, prefix: true }, { title: `Invalidate every key that begins with ${prefix}?`, text: "No peer gives what was there as fresh any more; each is fetched again when it is asked for.", yes: "Invalidate" });
    asked = -EVERY_MS;
  }

  async function change(what, key) {
    const question = what === "invalidate" ? { title: `Invalidate ${key}?`, text: "No peer gives what was there as fresh any more; it is fetched again when it is asked for.", yes: "Invalidate" } : null;
    await actions.cache({ do: what, key }, question);
    asked = -EVERY_MS;
  }

  function rate(peer) {
    const sumOf = (it) => it.hits + it.stale + it.misses, share = (hits, all) => all > 0 ? `${(100 * hits / all).toFixed(1)} %` : "–";
    const past = before.get(peer.api), at = performance.now();
    let now = past ? past.now : "–";
    if (!past || at - past.at > 4000) {
      const over = past ? (at - past.at) / 1000 : 0, more = past ? sumOf(peer.counters) - sumOf(past.counters) : 0;
      if (past && over < 30 && more >= 0) now = more ? `${share(peer.counters.hits - past.counters.hits, more)} of ${number(Math.round(more / over * 10) / 10)} a second` : "no requests";
      before.set(peer.api, { at, counters: peer.counters, now });
    }
    return { whole: share(peer.counters.hits, sumOf(peer.counters)), now };
  }

  function drawPeers() {
    const rows = store.parts.cache ? store.parts.cache.peers : [];
    const named = new Map(rows.map((peer) => [peer.api, peer]));
    keyed(peers, [...named.keys()], () => {
      const name = h("th", { scope: "row" }), state = chip(), hit = h("td", { class: "num" }), now = h("td", { class: "wide-only" }), keys = h("td", { class: "num" }), fetched = h("td", { class: "num wide-only" }), waiting = h("td", { class: "num wide-only" });
      return { name, state, hit, now, keys, fetched, waiting, root: h("tr", {}, name, h("td", {}, state.root), hit, now, keys, fetched, waiting) };
    }, (item, api) => {
      const peer = named.get(api), known = store.connected && peer.level !== "unknown", it = rate(peer);
      attr(item.root, "data-peer", peer.node);
      text(item.name, peer.node);
      attr(item.name, "title", peer.api);
      item.state.set(store.connected ? peer.text : "not known", !known ? "unknown" : peer.level === "ok" ? "follower" : peer.level);
      attr(item.state.root, "title", peer.error || null);
      text(item.hit, known ? it.whole : "not known");
      text(item.now, known ? it.now : "not known");
      text(item.keys, known ? number(peer.keys) : "–");
      text(item.fetched, known ? number(peer.fetches) : "–");
      text(item.waiting, known ? number(peer.counters.waiting) : "–");
    });
  }

  function drawGrid() {
    const rows = found ? found.keys : [], named = new Map(rows.map((row) => [row.key, row]));
    const nodes = (store.parts.cache ? store.parts.cache.peers : []).map((peer) => peer.node), short = shortNames(nodes, 12);
    const key = JSON.stringify([nodes, mayChange()]);
    if (key !== columns) {
      columns = key;
      replace(head, h("th", { scope: "col", class: "grid-key" }, "Key"), nodes.map((node) => h("th", { scope: "col", title: node }, short.get(node))), mayChange() && h("th", { scope: "col" }, "Change"));
      replace(body);
      body.known = new Map();
    }
    keyed(body, [...named.keys()], (name) => {
      const cells = nodes.map(() => { const mark = h("span", { class: "cell-mark" }), left = h("span", { class: "cell-left" }); return { root: h("td", { class: "cell" }, mark, left), mark, left }; });
      const plain = !name.includes("\\"); // such a key is shown with bytes that cannot be typed
      const buttons = mayChange() && h("td", { class: "cell-buttons" }, plain ? [h("button", { type: "button", class: "button small", data: { act: "refresh" }, onclick: () => change("refresh", name) }, "Refresh"), h("button", { type: "button", class: "button small danger", data: { act: "invalidate" }, onclick: () => change("invalidate", name) }, "Invalidate")] : "–");
      return { cells, root: h("tr", { data: { key: name } }, h("th", { scope: "row", class: "grid-key", title: name }, name), cells.map((cell) => cell.root), buttons) };
    }, (item, name) => {
      const row = named.get(name);
      item.cells.forEach((cell, at) => {
        const it = row.cells[at] || { state: "unknown" }, state = store.connected ? it.state : "unknown";
        attr(cell.mark, "data-state", state);
        text(cell.mark, state === "unknown" ? "?" : it.sourcing ? "⟳" : it.fetched_here && state !== "absent" ? "◆" : "");
        text(cell.left, state === "fresh" ? span(it.left_ms) : WORDS[state]);
        const said = [WORDS[state], it.sourcing && "it fetches it now", it.fetched_here && "it fetched this copy", state === "fresh" && `${ms(it.left_ms)} left`, it.bytes && `${number(it.bytes)} bytes`, it.waiting && `${number(it.waiting)} wait for it`];
        attr(cell.root, "title", said.filter(Boolean).join(", "));
      });
    });
    show(keysCard, rows.length > 0);
    const stale = store.connected ? "" : " As it was last seen.";
    text(sum, !found ? "Asking the peers." : rows.length ? `${number(rows.length)} keys${found.more > 0 ? `, ${number(found.more)} more: type how they begin` : ""}.${stale}` : `No key that begins so is known to a peer that answers.${stale}`);
    show(all, mayChange() && Boolean(search.value));
  }

  function draw() { drawPeers(); drawGrid(); }

  async function look() {
    if (asking || closed || !store.connected) return;
    asking = true;
    const prefix = search.value;
    try {
      const answer = await fetch(`/dashboard/cache/keys?prefix=${encodeURIComponent(prefix)}`, { cache: "no-store" });
      const said = await answer.json();
      if (answer.ok && !closed && prefix === search.value) { found = said; draw(); }
    } catch { /* the server is gone; the banner says so */ }
    asking = false;
    root.classList.remove("waiting");
  }

  return {
    root,
    update() { draw(); },
    tick(now) {
      if (now - asked > EVERY_MS) { asked = now; look(); }
      if (!store.connected) root.classList.remove("waiting");
    },
    close() { closed = true; },
  };
}

// One node at a time: readable first, its counters, and the raw document on demand.

import { at, here, keep, to } from "../address.js";
import { attr, h, keyed, replace, show, text } from "../dom.js";
import { moment, number, span } from "../format.js";
import { shortNames } from "../names.js";
import { card, chip, facts, holdBar } from "../parts.js";

export const nodes = { id: "nodes", title: "Nodes", build };

const FACTS = {
  role: "Role", term: "Term", leader: "Follows", token: "Token", workload: "Workload", since: "Runs since", pid: "Process",
  containment: "Containment", health: "Health", heard: "Heard", kind: "Kind", addr: "Address", members: "Members", version: "Version",
};
const RAW_EVERY_MS = 1000;
const NOW_ONLY = ["slots_open"]; // what is counted now, and may fall again: it has no rate

function build({ store }) {
  let chosen = here().query.get("node") || "";
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Nodes", "aria-orientation": "vertical" });
  const state = chip();
  const title = h("h2", { class: "node-title" });
  const its = h("a", { class: "node-more" }, "Its events");
  const wait = h("p", { class: "wait" });
  const next = h("p", { class: "next" });
  const bar = holdBar();
  const holds = h("div", { class: "node-hold" }, h("div", { class: "label" }, "Hold left"), bar.root);
  const list = facts(FACTS);
  const differs = h("p", { class: "mark-differs", hidden: true });
  const file = h("p", { class: "mark-differs members-file", hidden: true });
  const counters = h("dl", { class: "facts" });
  const count = h("section", { class: "card" }, h("h2", { class: "card-title" }, "Counters"), counters);
  const pre = h("pre", { class: "code", tabindex: "0", "aria-label": "The state document" });
  const from = h("p", { class: "quiet" });
  const raw = h("details", {}, h("summary", {}, "Raw state document"), from, pre);
  const panel = h("div", { class: "node-panel", role: "tabpanel", id: "node-panel" },
    h("section", { class: "card" }, h("div", { class: "node-head" }, title, state.root, its), wait, next, holds, list.root, differs, file),
    count, card("", raw));
  const root = h("div", { class: "nodes" }, tabs, panel);
  let asked = 0, asking = false, closed = false, shown = "", before = { name: "", at: 0, counters: {} };

  function choose(name, focus) {
    chosen = name;
    asked = 0;
    keep({ node: name });
    draw();
    if (focus) { const tab = tabs.querySelector('[aria-selected="true"]'); if (tab) tab.focus(); }
  }

  tabs.addEventListener("keydown", (event) => {
    const order = store.order, at = order.indexOf(chosen);
    const to = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: order.length - 1 }[event.key];
    if (to === undefined || !order.length) return;
    event.preventDefault();
    choose(order[(to + order.length) % order.length], true);
  });

  function draw() {
    const order = store.order, names = shortNames(order, 16);
    if (!order.includes(chosen)) chosen = (store.parts.job && store.parts.job.node) || order[0] || "";
    keyed(tabs, order, (name) => {
      const small = chip(), label = h("span", { class: "tab-name" });
      const button = h("button", { type: "button", class: "tab", role: "tab", title: name, "aria-controls": "node-panel", data: { node: name }, onclick: () => choose(name, false) },
        label, small.root);
      return { root: button, small, label };
    }, (item, name) => {
      attr(item.root, "aria-selected", name === chosen ? "true" : "false");
      attr(item.root, "tabindex", name === chosen ? "0" : "-1");
      text(item.label, names.get(name));
      const node = store.node(name);
      if (node) item.small.node(node);
    });
    if (shown !== chosen && tabs.known.get(chosen)) { shown = chosen; tabs.scrollLeft = tabs.known.get(chosen).root.offsetLeft - 40; }
    const node = store.node(chosen);
    show(panel, Boolean(node));
    if (!node) return;
    text(title, `Node ${node.node}`);
    state.node(node);
    attr(its, "href", to("events", { node: node.node }));
    show(wait, Boolean(node.trouble) || (Boolean(node.waits_for) && node.there === "here"));
    text(wait, node.trouble || (node.waits_for ? `It waits for ${node.waits_for}.` : ""));
    show(next, Boolean(node.next));
    text(next, node.next ? `Next: ${node.next}` : "");
    show(holds, node.hold_left_ms > 0 || node.leads);
    const known = ["here", "silent", "frozen"].includes(node.there);
    list.set("role", known ? node.role : "");
    list.set("term", known ? number(node.term) : "");
    list.set("leader", known ? (node.leader === node.node ? "itself" : node.leader || "nobody") : "");
    list.set("token", node.token || "");
    list.set("workload", node.work);
    list.set("since", node.since_unix_ms ? moment(node.since_unix_ms) : "");
    list.set("pid", node.pid || "");
    list.set("containment", node.containment);
    list.set("health", node.health);
    list.set("heard", node.there === "here" ? "just now" : node.there === "never" ? "never" : node.silent_s ? `${span(node.silent_s * 1000)} ago` : node.there);
    list.set("kind", node.kind);
    list.set("addr", node.addr);
    list.set("members", node.members_version ? `version ${number(node.members_version)}` : "");
    list.set("version", node.version);
    const marks = ((store.parts.config || {}).differs || []).filter((mark) => mark.of[node.node]);
    show(differs, marks.length > 0);
    text(differs, marks.map((mark) => `Its ${mark.what} is ${mark.of[node.node]}; the nodes differ in this.`).join(" "));
    show(file, Boolean(node.file_differs));
    text(file, node.file_differs);
  }

  async function fetchRaw() {
    if (asking || closed || !chosen || !store.connected) return;
    asking = true;
    const name = chosen;
    try {
      const answer = await fetch(at("/dashboard/node", { node: name }), { cache: "no-store" });
      const said = await answer.json();
      if (answer.ok && name === chosen && !closed) rawDrawn(name, said);
    } catch { /* the server is gone; the banner says so */ }
    asking = false;
  }

  function rates(name, found) {
    const at = performance.now(), past = before, over_s = (at - past.at) / 1000;
    before = { name, at, counters: found };
    if (past.name !== name || over_s > 10) return () => "";
    return (key) => {
      const more = NOW_ONLY.includes(key) ? 0 : found[key] - past.counters[key];
      return more > 0 ? ` (${number(Math.max(1, Math.round(more / over_s)))} a second)` : "";
    };
  }

  function rawDrawn(name, said) {
    text(from, said.from === "itself" ? "As the node itself answers." : "As others heard it: its own control API is not read from here.");
    text(pre, JSON.stringify(said.document, null, 2));
    const found = (said.document && said.document.counters) || {}, rate = rates(name, found);
    const rows = Object.entries(found).filter(([, value]) => typeof value === "number").slice(0, 60).map(([key, value]) => [key, number(value) + rate(key)]);
    show(count, rows.length > 0);
    const drawn = JSON.stringify(rows);
    if (counters.dataset.key === drawn) return;
    counters.dataset.key = drawn;
    replace(counters, rows.map(([key, value]) => h("div", { class: "fact" }, h("dt", {}, key.replaceAll("_", " ")), h("dd", {}, value))));
  }

  show(count, false);
  return {
    root,
    moved(query) { const name = query.get("node"); if (name && name !== chosen) { chosen = name; asked = 0; draw(); } },
    update() { draw(); },
    tick(now) {
      if (!holds.hidden) bar.draw(store.holdLeft(chosen), store.parts.head, now);
      if (now - asked > RAW_EVERY_MS) { asked = now; fetchRaw(); }
    },
    close() { closed = true; },
  };
}

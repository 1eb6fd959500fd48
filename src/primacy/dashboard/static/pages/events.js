// All events of all nodes: grouped by term, searched, filtered, followed live, exported. At most a page of rows is drawn.

import { here, keep } from "../address.js";
import { h, replace, show, text } from "../dom.js";
import { date, dayTimeMs, moment, number, zone } from "../format.js";
import { shortNames } from "../names.js";
import { nodeLink } from "../parts.js";

export const events = { id: "events", title: "Events", build };

const STEP = 200;
const LATE_MAX = 60;
const WON = ["elected", "lease-taken"];
const TONES = {
  elected: "leader", "lease-taken": "leader", running: "follower", "majority-lost": "bad", "guard-lost": "bad", "lease-lost": "bad", "gave-up": "bad", stuck: "bad",
  "two-boots": "bad", "disk-failed": "bad", "not-started": "bad", unhealthy: "bad", "leader-silent": "warn", "leader-left": "warn", "step-down": "warn", transfer: "warn",
  stopping: "warn", paused: "warn", recovering: "warn", exited: "warn",
};

function build({ store }) {
  const search = h("input", { type: "search", id: "event-search", placeholder: "Search in what happened", autocomplete: "off", spellcheck: "false" });
  const byNode = h("select", { id: "event-node" });
  const byCode = h("select", { id: "event-code" });
  const byTime = h("select", { id: "event-time" });
  const grouped = h("input", { type: "checkbox", id: "event-grouped", checked: true });
  const follow = h("input", { type: "checkbox", id: "event-follow", checked: true });
  const count = h("p", { class: "quiet", id: "event-count", role: "status" });
  const fresh = h("button", { type: "button", class: "button primary small", hidden: true, onclick: () => { follow.checked = true; rebuild(); window.scrollTo(0, 0); } });
  const more = h("button", { type: "button", class: "button", hidden: true, onclick: () => { limit += STEP; rebuild(); } }, "Show older events");
  const exporter = h("button", { type: "button", class: "button", onclick: save }, "Export JSON lines");
  const table = h("table", { class: "table events" }, h("caption", { class: "unseen" }, "Events of all nodes, newest first"),
    h("thead", {}, h("tr", {}, [`Time (${zone()})`, "Node", "Term", "Reason", "What happened"].map((name) => h("th", { scope: "col" }, name)))));
  const root = h("div", { class: "events-page" },
    h("section", { class: "card filters", "aria-label": "Filters" },
      field("Search", search), field("Node", byNode), field("Reason", byCode), field("Time", byTime),
      h("label", { class: "check" }, grouped, " Group by term"), h("label", { class: "check" }, follow, " Follow"), exporter),
    h("div", { class: "events-bar" }, count, fresh), h("div", { class: "card flush" }, table), more);
  let limit = STEP, drawn = [], bodies = new Map(), winners = new Map(), held = 0, matching = 0;
  let nodesKnown = "", codesKnown = "", range = { from: 0, to: 0 }, names = new Map();

  for (const input of [search, byNode, byCode, grouped]) input.addEventListener("input", () => { limit = STEP; remember(); rebuild(); });
  follow.addEventListener("input", () => { remember(); if (follow.checked) rebuild(); });
  byTime.addEventListener("input", () => { ranged(byTime.value); limit = STEP; remember(); rebuild(); });

  // What is filtered stands in the address: `within` counts from now on, `from` and `to` are two moments.
  function remember() {
    keep({ q: search.value.trim(), node: byNode.value, code: byCode.value, within: range.within || "", from: range.from || "", to: range.to || "",
      grouped: grouped.checked ? "" : "no", follow: follow.checked ? "" : "no" });
  }

  function ranged(value) {
    const [from, to] = value.includes("-") ? value.split("-").map(Number) : [0, 0];
    range = { within: value && !value.includes("-") ? Number(value) : 0, from, to };
  }

  function moved(query) {
    const count = (name) => Math.max(0, Math.floor(Number(query.get(name)) || 0));
    search.value = query.get("q") || "";
    range = { within: count("within"), from: count("from"), to: count("to") };
    times();
    choices(query.get("node") || "", query.get("code") || "");
    byNode.value = query.get("node") || "";
    byCode.value = query.get("code") || "";
    grouped.checked = query.get("grouped") !== "no";
    follow.checked = query.get("follow") !== "no";
  }

  function times() {
    const linked = range.from || range.to ? [[`${range.from}-${range.to}`, `${range.from ? moment(range.from) : "the beginning"} to ${range.to ? moment(range.to) : "now"}`]] : [];
    const kinds = [["", "All"], ["60", "Last minute"], ["600", "Last 10 minutes"], ["3600", "Last hour"], ...linked];
    if (range.within && !kinds.some(([value]) => value === String(range.within))) kinds.push([String(range.within), `Last ${number(range.within)} s`]);
    replace(byTime, kinds.map(([value, words]) => h("option", { value }, words)));
    byTime.value = linked.length ? linked[0][0] : range.within ? String(range.within) : "";
  }

  function field(title, input) { return h("div", { class: "field" }, h("label", { for: input.id }, title), input); }

  function fits(row) {
    if (byNode.value && row.node !== byNode.value) return false;
    if (byCode.value && row.code !== byCode.value) return false;
    if (range.from && row.at < range.from) return false;
    if (range.to && row.at > range.to) return false;
    if (range.within && row.at < store.now() - 1000 * range.within) return false;
    const wanted = search.value.trim().toLowerCase();
    return !wanted || `${row.text} ${row.code} ${row.node} term ${row.term}`.toLowerCase().includes(wanted);
  }

  function found() { return store.events.filter(fits); }

  // A filter of the address is offered although nothing fits it yet.
  function choices(node, code) {
    const all = [...new Set([...store.order, ...store.events.slice(-500).map((row) => row.node), node || byNode.value])].filter(Boolean).sort();
    const codes = [...new Set([...store.events.map((row) => row.code), code || byCode.value])].filter(Boolean).sort();
    names = shortNames(all, 14);
    if (all.join("\n") !== nodesKnown) { nodesKnown = all.join("\n"); options(byNode, "All nodes", all); }
    if (codes.join("\n") !== codesKnown) { codesKnown = codes.join("\n"); options(byCode, "All reasons", codes); }
  }

  function options(select, all, names) {
    const kept = select.value;
    replace(select, h("option", { value: "" }, all), names.map((name) => h("option", { value: name }, name)));
    select.value = names.includes(kept) ? kept : "";
  }

  function rowOf(row) {
    return h("tr", { data: { code: row.code, node: row.node } },
      h("td", { class: "num when", title: date(row.at) }, dayTimeMs(row.at)), h("td", { class: "who" }, row.code === "lab" ? names.get(row.node) || row.node : nodeLink(row.node, names.get(row.node))), h("td", { class: "num term" }, number(row.term)),
      h("td", { class: "why" }, h("span", { class: "chip", data: { tone: TONES[row.code] || "plain" } }, row.code)), h("td", { class: "what" }, row.text));
  }

  function bodyFor(term) {
    const key = grouped.checked ? term : 0;
    let body = bodies.get(key);
    if (body) return body;
    const words = h("th", { colspan: 5, scope: "rowgroup" });
    body = { key, words, root: h("tbody", {}, grouped.checked && h("tr", { class: "group" }, words)), count: 0 };
    bodies.set(key, body);
    const after = [...bodies.values()].filter((each) => each.key < key).sort((a, b) => b.key - a.key)[0];
    table.insertBefore(body.root, after ? after.root : null);
    return body;
  }

  // The newest of a group stands first, below its heading; one that comes late finds its place by its time.
  function insert(row) {
    const body = bodyFor(row.term), element = rowOf(row);
    let before = body.root.children[grouped.checked ? 1 : 0] || null;
    for (let steps = 0; before && before.at > row.at && steps < LATE_MAX; steps += 1) before = before.nextElementSibling;
    element.at = row.at;
    body.root.insertBefore(element, before);
    body.count += 1;
    drawn.push({ element, body });
  }

  function trim() {
    while (drawn.length > limit) {
      const oldest = drawn.shift();
      oldest.element.remove();
      oldest.body.count -= 1;
      if (!oldest.body.count) { oldest.body.root.remove(); bodies.delete(oldest.body.key); }
    }
  }

  function headings() {
    if (!grouped.checked) return;
    for (const body of bodies.values()) {
      const winner = winners.get(body.key);
      text(body.words, `Term ${number(body.key)}${winner ? ` · ${winner} led` : ""} · ${number(body.count)} ${body.count === 1 ? "event" : "events"}`);
    }
  }

  function note(rows) { for (const row of rows) if (WON.includes(row.code)) winners.set(row.term, row.node); if (winners.size > 2000) winners = new Map([...winners].slice(-500)); }

  function rebuild() {
    held = 0;
    const all = found();
    matching = all.length;
    for (const body of bodies.values()) body.root.remove();
    bodies = new Map();
    drawn = [];
    for (const row of all.slice(-limit)) insert(row);
    headings();
    words();
  }

  function words() {
    text(count, `${number(matching)} of ${number(store.events.length)} events${matching > drawn.length ? `, the newest ${number(drawn.length)} shown` : ""}`);
    show(fresh, held > 0);
    text(fresh, `Show ${number(held)} new`);
    show(more, matching > drawn.length && !held);
  }

  function save() {
    const lines = found().map((row) => JSON.stringify({ at_unix_ms: row.at, node: row.node, term: row.term, code: row.code, text: row.text, value: row.value }));
    const url = URL.createObjectURL(new Blob([lines.map((line) => `${line}\n`).join("")], { type: "application/jsonl" }));
    const link = h("a", { href: url, download: `primacy-events-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.jsonl` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  moved(here().query);
  return {
    root,
    moved(query) { moved(query); limit = STEP; rebuild(); },
    update(news) {
      if (news.whole || !drawn.length) { note(store.events); choices(); rebuild(); return; }
      if (!news.events.length) return;
      note(news.events);
      choices();
      const rows = news.events.filter(fits);
      matching = Math.min(store.events.length, matching + rows.length);
      if (!follow.checked || window.scrollY > 240) { held += rows.length; words(); return; }
      for (const row of rows.slice(-limit)) insert(row);
      trim();
      headings();
      words();
    },
  };
}

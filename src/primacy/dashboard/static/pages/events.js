// All events of all nodes: grouped by term, searched, filtered, followed live, exported. At most a page of rows is drawn.

import { h, replace, show, text } from "../dom.js";
import { date, number, timeMs } from "../format.js";

export const events = { id: "events", title: "Events", build };

const STEP = 200;
const LATE_MAX = 60;
const WON = ["elected", "lease-taken"];
const TONES = {
  elected: "leader", "lease-taken": "leader", running: "ok", "majority-lost": "bad", "guard-lost": "bad", "lease-lost": "bad", "gave-up": "bad", stuck: "bad",
  "two-boots": "bad", "disk-failed": "bad", "not-started": "bad", unhealthy: "bad", "leader-silent": "warn", "leader-left": "warn", "step-down": "warn", transfer: "warn",
  stopping: "warn", paused: "warn", recovering: "warn", exited: "warn",
};

function build({ store }) {
  const search = h("input", { type: "search", id: "event-search", placeholder: "Search the sentences", autocomplete: "off", spellcheck: "false" });
  const byNode = h("select", { id: "event-node" });
  const byCode = h("select", { id: "event-code" });
  const grouped = h("input", { type: "checkbox", id: "event-grouped", checked: true });
  const follow = h("input", { type: "checkbox", id: "event-follow", checked: true });
  const count = h("p", { class: "quiet", id: "event-count", role: "status" });
  const fresh = h("button", { type: "button", class: "button primary small", hidden: true, onclick: () => { follow.checked = true; rebuild(); window.scrollTo(0, 0); } });
  const more = h("button", { type: "button", class: "button", hidden: true, onclick: () => { limit += STEP; rebuild(); } }, "Show older events");
  const exporter = h("button", { type: "button", class: "button", onclick: save }, "Export JSON lines");
  const table = h("table", { class: "table events" }, h("caption", { class: "unseen" }, "Events of all nodes, newest first"),
    h("thead", {}, h("tr", {}, ["Time", "Node", "Term", "Reason", "What happened"].map((name) => h("th", { scope: "col" }, name)))));
  const root = h("div", { class: "events-page" },
    h("section", { class: "card filters", "aria-label": "Filters" },
      field("Search", search), field("Node", byNode), field("Reason", byCode),
      h("label", { class: "check" }, grouped, " Group by term"), h("label", { class: "check" }, follow, " Follow"), exporter),
    h("div", { class: "events-bar" }, count, fresh), h("div", { class: "card flush" }, table), more);
  let limit = STEP, drawn = [], bodies = new Map(), winners = new Map(), held = 0, matching = 0;
  let nodesKnown = "", codesKnown = "";

  for (const input of [search, byNode, byCode, grouped]) input.addEventListener("input", () => { limit = STEP; rebuild(); });
  follow.addEventListener("input", () => { if (follow.checked) rebuild(); });

  function field(title, input) { return h("div", { class: "field" }, h("label", { for: input.id }, title), input); }

  function fits(row) {
    if (byNode.value && row.node !== byNode.value) return false;
    if (byCode.value && row.code !== byCode.value) return false;
    const wanted = search.value.trim().toLowerCase();
    return !wanted || `${row.text} ${row.code} ${row.node} term ${row.term}`.toLowerCase().includes(wanted);
  }

  function found() { return store.events.filter(fits); }

  function choices() {
    const names = [...new Set([...store.order, ...store.events.slice(-500).map((row) => row.node)])].sort();
    const codes = [...new Set(store.events.map((row) => row.code))].sort();
    if (names.join("\n") !== nodesKnown) { nodesKnown = names.join("\n"); options(byNode, "All nodes", names); }
    if (codes.join("\n") !== codesKnown) { codesKnown = codes.join("\n"); options(byCode, "All reasons", codes); }
  }

  function options(select, all, names) {
    const kept = select.value;
    replace(select, h("option", { value: "" }, all), names.map((name) => h("option", { value: name }, name)));
    select.value = names.includes(kept) ? kept : "";
  }

  function rowOf(row) {
    return h("tr", { data: { code: row.code, node: row.node } },
      h("td", { class: "num when", title: date(row.at) }, timeMs(row.at)), h("td", { class: "who" }, row.node), h("td", { class: "num term" }, number(row.term)),
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

  return {
    root,
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

// All elections of an agent: who holds each, and what it waits for. A row leads to the pages of that election.

import { here, keep, to } from "../address.js";
import { attr, h, keyed, show, text } from "../dom.js";
import { number } from "../format.js";
import { chip } from "../parts.js";

export const elections = { id: "elections", title: "Elections", build, offered: (parts) => Boolean(parts.elections) };

const WORDS = { ok: "held", warn: "nobody", bad: "trouble", unknown: "not known" };
const GRAVE = ["bad", "warn", "unknown", "ok"];

function build({ store }) {
  const search = h("input", { type: "search", id: "election-search", placeholder: "Name, holder, strategy", value: here().query.get("q") || "" });
  const only = h("input", { type: "checkbox", id: "election-only" });
  only.checked = here().query.get("only") === "trouble";
  const sum = h("p", { class: "quiet", role: "status" });
  const body = h("tbody");
  const table = h("table", { class: "table elections" },
    h("thead", {}, h("tr", {}, ["Election", "State", "Holder", "What is known", "Strategy", "Term", "This node"].map((name) =>
      h("th", { scope: "col", class: ["Strategy", "Term"].includes(name) ? "wide-only" : null }, name)))), body);
  const root = h("div", { class: "elections-page" },
    h("div", { class: "card filters" }, h("div", { class: "field" }, h("label", { for: "election-search" }, "Search"), search),
      h("label", { class: "check" }, only, " Only those without a holder")),
    sum, store.election && h("p", {}, h("a", { href: "#/elections" }, `Leave ${store.election}: all elections`)), h("div", { class: "card flush" }, table));

  search.addEventListener("input", () => { keep({ q: search.value }); draw(); });
  only.addEventListener("change", () => { keep({ only: only.checked ? "trouble" : "" }); draw(); });

  function draw() {
    const it = store.parts.elections, all = it ? it.rows : [], wanted = search.value.trim().toLowerCase();
    const rows = all.filter((row) => (!only.checked || row.level !== "ok") && (!wanted || `${row.election} ${row.holder} ${row.strategy} ${row.text}`.toLowerCase().includes(wanted)))
      .sort((a, b) => GRAVE.indexOf(a.level) - GRAVE.indexOf(b.level) || (a.election < b.election ? -1 : 1));
    const named = new Map(rows.map((row) => [row.election, row]));
    text(sum, all.length ? `${number(rows.length)} of ${number(all.length)}, as node ${it.node} tells it.${store.connected ? "" : " As it was last seen."}` : "No election is known yet.");
    keyed(body, [...named.keys()], (name) => {
      const link = h("a", { class: "node-link election-link", href: to("overview", { election: name }), title: `All pages of election ${name}` }, name);
      const state = chip(), holder = h("td", { class: "holder" }), said = h("td", { class: "said" }), strategy = h("td", { class: "wide-only" }), term = h("td", { class: "num wide-only" }), role = h("td", { class: "own" });
      return { state, holder, said, strategy, term, role, root: h("tr", { data: { election: name } }, h("th", { scope: "row" }, link), h("td", {}, state.root), holder, said, strategy, term, role) };
    }, (item, name) => {
      const row = named.get(name), level = store.connected ? row.level : "unknown";
      attr(item.root, "data-level", level);
      attr(item.root, "aria-current", name === store.election ? "true" : null);
      item.state.set(WORDS[level], level);
      text(item.holder, store.connected && row.holder ? row.holder : "–");
      text(item.said, store.connected ? row.text : `before: ${row.text}`);
      text(item.strategy, row.strategy ? row.strategy + (row.mode === "manual" ? ", manual" : "") : "–");
      text(item.term, row.term ? number(row.term) : "–");
      text(item.role, row.role || "–");
    });
    show(table, rows.length > 0);
  }

  return { root, update() { draw(); }, moved(query) { search.value = query.get("q") || ""; draw(); } };
}

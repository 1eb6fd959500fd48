// Which changes were asked for, who asked, and what came of it: of the nodes that are read here and of this page.

import { at, here, keep } from "../address.js";
import { attr, h, replace, show, text } from "../dom.js";
import { dayTimeMs, moment, number, zone } from "../format.js";
import { nodeLink } from "../parts.js";

export const audit = { id: "audit", title: "Audit", build, offered: () => true };

const EVERY_MS = 2000;
const TONES = { done: null, "passed on": null, refused: "warn" };

function build({ store, actions }) {
  const search = h("input", { type: "search", id: "audit-search", placeholder: "Who, what, where", value: here().query.get("q") || "" });
  const who = h("p", { class: "quiet" });
  const sum = h("p", { class: "quiet", role: "status" });
  const missed = h("p", { class: "mark-differs", hidden: true });
  const body = h("tbody"), head = h("tr");
  const table = h("table", { class: "table audit" }, h("thead", {}, head), body);
  const root = h("div", { class: "audit-page" },
    h("div", { class: "card filters" }, h("div", { class: "field" }, h("label", { for: "audit-search" }, "Search"), search), who),
    missed, sum, h("div", { class: "card flush" }, table));
  let rows = [], asked = -EVERY_MS, asking = false, closed = false, drawn = "", known = false;

  search.addEventListener("input", () => { keep({ q: search.value }); draw(); });

  function draw() {
    const me = actions.me;
    text(who, me.role ? `You are ${me.user ? `${me.user}, ` : ""}${me.role === "operator" ? "an operator: you may change things" : "a viewer: you may look"}.` : "");
    const wanted = search.value.trim().toLowerCase();
    const found = rows.filter((row) => !wanted || [row.who, row.origin, row.asked, row.election, row.node, row.outcome, row.why].join(" ").toLowerCase().includes(wanted));
    const stale = store.connected ? "" : " As it was last seen.";
    text(sum, !known ? "Waiting for the first answer." : rows.length ? `${number(found.length)} of ${number(rows.length)} requests, newest first. Times in ${zone()}.${stale}` : `Nothing was asked for yet.${stale}`);
    const all = !store.election && Boolean(store.parts.elections); // of an agent with several
    const key = JSON.stringify([all, found]);
    if (key === drawn) return;
    drawn = key;
    const heads = ["Time", "Who asked", "What", ...(all ? ["Election"] : []), "Node", "Outcome"];
    replace(head, heads.map((name) => h("th", { scope: "col" }, name)));
    replace(body, found.map((row) => h("tr", {},
      h("td", { class: "num when", title: moment(row.at_unix_ms) }, dayTimeMs(row.at_unix_ms)),
      h("td", { class: "who" }, row.who, row.origin && h("span", { class: "quiet" }, ` (${row.origin})`)),
      h("td", { class: "what" }, row.asked),
      all && h("td", {}, row.election || (row.node ? "all" : "")),
      h("td", {}, !row.node ? "this page" : all ? row.node : nodeLink(row.node)),
      h("td", { class: "outcome-cell", data: TONES[row.outcome] ? { tone: TONES[row.outcome] } : {} }, row.outcome, row.why && h("span", { class: "quiet" }, `: ${row.why}`)))));
  }

  async function look() {
    if (asking || closed || !store.connected) return;
    asking = true;
    try {
      const answer = await fetch(at("/dashboard/audit"), { cache: "no-store" });
      const said = await answer.json();
      if (answer.ok && !closed) {
        rows = said.requests;
        known = true;
        show(missed, said.missed.length > 0);
        text(missed, said.missed.length ? `Not told by ${said.missed.join(", ")}: what these were asked is not shown.` : "");
        draw();
      }
    } catch { /* the server is gone; the banner says so */ }
    asking = false;
  }

  return {
    root,
    update() { attr(root, "data-stale", store.connected ? null : ""); draw(); },
    tick(now) { if (now - asked > EVERY_MS) { asked = now; look(); } },
    close() { closed = true; },
  };
}

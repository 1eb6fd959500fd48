// The leases of the stores: who holds which, whether it is renewed, until when; and whether the store answers.

import { here, keep } from "../address.js";
import { attr, h, keyed, show, text } from "../dom.js";
import { moment, ms, number, timeMs } from "../format.js";
import { chip, facts } from "../parts.js";

export const leases = { id: "leases", title: "Leases", build, offered: (parts) => Boolean(parts.leases) };

const WORDS = { ok: "held", warn: "not renewed", bad: "trouble", unknown: "not known", free: "free" };
const HEADS = ["Lease", "State", "Holder", "Contenders", "Renewed", "Hold ends", "Token"];
const WIDE = ["Contenders", "Token"];

function build({ store }) {
  const search = h("input", { type: "search", id: "lease-search", placeholder: "Lease or holder", value: here().query.get("q") || "" });
  const stores = h("div", { class: "stores" });
  const root = h("div", { class: "leases-page" },
    h("div", { class: "card filters" }, h("div", { class: "field" }, h("label", { for: "lease-search" }, "Search"), search)), stores);
  let second = 0;

  search.addEventListener("input", () => { keep({ q: search.value }); draw(); });

  // A store keeps no list of those that wait. Nodes of the election that is shown here are known; programs are not.
  function contenders(row) {
    const head = store.parts.head || {}, name = row.lease.replace(/^=/, "");
    if (head.strategy !== "lease" || head.election !== name || !store.order.length) return "not told";
    const others = store.order.filter((node) => node !== row.holder && (store.node(node) || {}).there === "here");
    return others.length ? others.join(", ") : "nobody else";
  }

  function one(key) {
    const state = chip(), title = h("h2", { class: "card-title store-title" }), error = h("p", { class: "outcome bad", hidden: true });
    const list = facts({ answer: "Last answer", looks: "Looks", failures: "Not answered", count: "Leases" });
    const body = h("tbody");
    const table = h("table", { class: "table leases" }, h("thead", {}, h("tr", {}, HEADS.map((name) => h("th", { scope: "col", class: WIDE.includes(name) ? "wide-only" : null }, name)))), body);
    const more = h("p", { class: "quiet" });
    const root = h("section", { class: "card store", "aria-label": `Store ${key}` }, h("div", { class: "node-head" }, title, state.root), error, list.root, h("div", { class: "scroll" }, table), more);
    return { root, state, title, error, list, body, table, more };
  }

  function drawStore(item, it) {
    const live = store.connected, wanted = search.value.trim().toLowerCase();
    text(item.title, `${it.label}, table ${it.table}`);
    item.state.set(!live ? "not known" : it.level === "ok" ? "answers" : it.level === "bad" ? "does not answer" : "not known yet", !live ? "unknown" : it.level === "ok" ? "follower" : it.level);
    show(item.error, Boolean(it.error));
    text(item.error, it.error ? `Since ${moment(it.since_unix_ms)}: ${it.error}` : "");
    item.list.set("answer", it.looks ? `in ${ms(it.took_ms)}` : "");
    item.list.set("looks", number(it.looks));
    item.list.set("failures", number(it.failures));
    item.list.set("count", it.looks ? number(it.count) : "");
    const rows = it.rows.filter((row) => !wanted || `${row.lease} ${row.holder} ${row.text}`.toLowerCase().includes(wanted));
    const named = new Map(rows.map((row) => [row.lease, row]));
    keyed(item.body, [...named.keys()], (name) => {
      const state = chip(), holder = h("td", { class: "holder" }), wait = h("td", { class: "wide-only" }), renewed = h("td", { class: "renewed" }), ends = h("td", { class: "num ends" }), token = h("td", { class: "mono wide-only" });
      const said = h("div", { class: "quiet lease-said" });
      return { state, said, holder, wait, renewed, ends, token, root: h("tr", { data: { lease: name } }, h("th", { scope: "row" }, name), h("td", {}, state.root), holder, wait, renewed, ends, token) };
    }, (line, name) => {
      const row = named.get(name), level = live ? row.level : "unknown";
      attr(line.root, "data-level", level);
      attr(line.root, "title", row.written_at ? `last written ${row.written_at}, by the store's clock` : null);
      line.state.set(WORDS[level], level === "free" ? "past" : level);
      text(line.holder, row.holder ? (level === "ok" ? row.holder : `was ${row.holder}`) : "nobody");
      text(line.wait, contenders(row));
      line.row = row;
      text(line.token, row.token || "–");
      ages(line);
    });
    show(item.table, rows.length > 0);
    const hidden = it.count - it.rows.length;
    text(item.more, hidden > 0 ? `${number(hidden)} more are not shown: these are the ones in trouble, then by name.` : rows.length || !it.looks ? "" : wanted ? "None that fits." : "There is no lease in this store.");
  }

  function ages(line) {
    const row = line.row, live = store.connected;
    const every = row.every_ms ? `, every ${ms(row.every_ms)}` : "";
    text(line.renewed, row.level === "ok" && live ? `${ms(Math.max(0, store.now() - row.renewed_unix_ms))} ago${every}` : row.level === "free" ? row.text : live ? row.text : "not known");
    text(line.ends, row.level === "ok" && live && row.expires_unix_ms ? timeMs(row.expires_unix_ms) : "–");
    attr(line.ends, "title", row.hold_ms ? `a hold of ${ms(row.hold_ms)}, unless it is renewed before` : null);
  }

  function draw() {
    const it = store.parts.leases;
    if (!it) return;
    const named = new Map(it.stores.map((each) => [`${each.label} ${each.table}`, each]));
    keyed(stores, [...named.keys()], one, (item, key) => drawStore(item, named.get(key)));
  }

  return {
    root,
    update() { draw(); },
    moved(query) { search.value = query.get("q") || ""; draw(); },
    tick(now) {
      if (now - second < 500) return;
      second = now;
      for (const item of stores.known ? stores.known.values() : []) for (const line of item.body.known ? item.body.known.values() : []) ages(line);
    },
  };
}

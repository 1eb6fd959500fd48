// The slots of the node that leads: values, how often they change, and what their clients do, over the last minute.

import { here, keep } from "../address.js";
import { attr, h, keyed, s, show, text } from "../dom.js";
import { moment, number, span } from "../format.js";

export const slots = { id: "slots", title: "Slots", build, offered: (parts, chosen) => Boolean(parts.slots) && (chosen || !parts.elections) };

const EVERY_MS = 1000;
const WIDE = 120, HIGH = 26, POINTS = 60;

// A line of the last minute; the newest is at the right. What was not a number leaves a gap.
function spark(words) {
  const line = s("path", { class: "spark-line" });
  const root = s("svg", { class: "spark", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": words }, line);
  return {
    root,
    draw(samples) {
      const known = samples.filter((value) => value !== null);
      const low = Math.min(...known), range = Math.max(...known) - low || 1;
      let path = "", pen = "M";
      samples.forEach((value, at) => {
        if (value === null) { pen = "M"; return; }
        const x = WIDE - (samples.length - 1 - at) * (WIDE / (POINTS - 1)), y = HIGH - 3 - ((value - low) / range) * (HIGH - 6);
        path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
        pen = "L";
      });
      attr(line, "d", known.length > 1 ? path : null);
      attr(root, "aria-label", known.length > 1 ? `${words}: from ${number(known[0])} to ${number(known[known.length - 1])} in the last minute` : `${words}: too few values yet`);
    },
  };
}

function build({ store }) {
  const search = h("input", { type: "search", id: "slot-search", placeholder: "Number, kind or value", value: here().query.get("q") || "" });
  const rates = h("div", { class: "rates" }), error = h("p", { class: "mark-differs", hidden: true }), sum = h("p", { class: "quiet", role: "status" });
  const body = h("tbody");
  const table = h("table", { class: "table slots" }, h("thead", {}, h("tr", {}, ["Slot", "Kind", "Value", "Last minute", "Changed"].map((name) => h("th", { scope: "col", class: name === "Kind" ? "wide-only" : null }, name)))), body);
  const root = h("div", { class: "slots-page waiting" }, // nothing is seen to move when the rows get their height
    h("section", { class: "card", "aria-label": "What clients do" }, rates), error,
    h("div", { class: "card filters" }, h("div", { class: "field" }, h("label", { for: "slot-search" }, "Search"), search)), sum, h("div", { class: "card flush" }, table));
  let found = null, asked = -EVERY_MS, asking = false, closed = false;

  search.addEventListener("input", () => { keep({ q: search.value }); draw(); });

  function drawRates() {
    const live = store.connected && found && !found.counters_error;
    const rows = found ? [...found.rates.map((rate) => ({ ...rate, title: `${rate.name} a second` })), { name: "open", title: "connections open now", now: found.open_now, samples: [] }] : [];
    const named = new Map(rows.map((row) => [row.name, row]));
    keyed(rates, [...named.keys()], (name) => {
      const value = h("p", { class: "big" }), line = spark(named.get(name).title);
      return { value, line, root: h("div", { class: "rate", data: { rate: name } }, h("p", { class: "label" }, named.get(name).title), value, name !== "open" && line.root) };
    }, (item, name) => {
      const row = named.get(name);
      text(item.value, live && row.now !== null && row.now !== undefined ? number(Math.round(row.now * 10) / 10) : "not known");
      item.line.draw(row.samples);
    });
  }

  function draw() {
    drawRates();
    const wanted = search.value.trim().toLowerCase(), all = found ? found.slots : [];
    const rows = all.filter((row) => !wanted || `${row.slot} ${row.kind} ${row.value}`.toLowerCase().includes(wanted)), named = new Map(rows.map((row) => [row.slot, row]));
    const why = found ? [found.error, found.counters_error].filter(Boolean) : [];
    show(error, why.length > 0);
    text(error, why.length ? `Not known: ${why.join("; ")}` : "");
    const stale = store.connected ? "" : " As it was last seen.";
    text(sum, !found ? "Asking the slots." : `${number(rows.length)} of ${number(all.length + found.more)} slots${found.node ? `, served by ${found.node}` : ""}.${stale}`);
    keyed(body, [...named.keys()], (name) => {
      const kind = h("td", { class: "wide-only" }), value = h("td", { class: "mono slot-value" }), changed = h("td"), line = spark(`Slot ${name}`);
      return { kind, value, changed, line, root: h("tr", { data: { slot: name } }, h("th", { scope: "row", class: "mono" }, name), kind, value, h("td", { class: "slot-spark" }, line.root), changed) };
    }, (item, name) => {
      const row = named.get(name), known = row.known && store.connected;
      text(item.kind, row.kind.replaceAll("_", " "));
      text(item.value, known ? (row.value === "" ? "(empty)" : row.value) : row.why || "not known");
      attr(item.value, "data-tone", known ? null : "unknown");
      item.line.draw(row.samples);
      text(item.changed, known && row.changed_unix_ms ? `${span(store.now() - row.changed_unix_ms)} ago, ${number(row.changes)} seen` : known ? "not since it is watched" : "–");
      attr(item.changed, "title", row.changed_unix_ms ? moment(row.changed_unix_ms) : null);
    });
    show(table, rows.length > 0);
  }

  async function look() {
    if (asking || closed || !store.connected) return;
    asking = true;
    try {
      const answer = await fetch("/dashboard/slots", { cache: "no-store" });
      const said = await answer.json();
      if (answer.ok && !closed) { found = said; draw(); }
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

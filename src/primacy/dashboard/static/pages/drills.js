// Drills: play faults of the catalogue, watch, and see beside each promise of the contract whether it was kept.

import { to } from "../address.js";
import { attr, h, replace, show, text } from "../dom.js";
import { moment } from "../format.js";
import { card } from "../parts.js";

export const drills = { id: "drills", title: "Drills", build };

const ASK_MS = 1000;
const AROUND_MS = 4000;

function build({ store, actions }) {
  const all = h("button", { type: "button", class: "button primary", onclick: () => begin([]) }, "Run all");
  const some = h("button", { type: "button", class: "button", onclick: () => begin(picked()) }, "Run the chosen ones");
  const stop = h("button", { type: "button", class: "button danger", onclick: halt }, "Stop the drill");
  const report = h("a", { class: "button", href: "/dashboard/drill/report", download: "" }, "Save report");
  const list = h("ul", { class: "drill-list" });
  const said = h("p", { class: "drill-verdict", role: "status" });
  const by = h("p", { class: "quiet" });
  const failed = h("p", { class: "outcome bad", role: "alert", hidden: true });
  const table = h("table", { class: "table" }, h("caption", { class: "unseen" }, "What was promised, what was measured, and whether it was kept"),
    h("thead", {}, h("tr", {}, ["Fault", "What", "Promised", "Measured", "Kept"].map((name) => h("th", { scope: "col" }, name)))));
  const body = h("tbody", {});
  const lines = h("pre", { class: "drill-lines", tabindex: "0", "aria-label": "What the drill says" });
  const choose = card("Faults", h("p", { class: "quiet" }, "Real faults, one after the other. Each ends by itself. What your times promise is judged after each."), list, h("div", { class: "drill-buttons" }, all, some));
  const watch = card("The drill", said, failed, h("div", { class: "drill-buttons" }, stop, report), by, lines);
  const found = card("Promised and measured", h("div", { class: "drill-table" }, table));
  const root = h("div", { class: "drills-page waiting" }, choose, watch, found);
  let asked = -ASK_MS, busy = false, closed = false, drawn = "", offered = "", now = null;
  table.append(body);

  const picked = () => [...list.querySelectorAll("input:checked")].map((box) => box.value);

  async function send(path, order) {
    show(failed, false);
    const answer = await actions.post(path, order);
    if (closed) return;
    if (answer.error) { text(failed, answer.error); show(failed, true); } else draw(answer);
  }

  async function begin(names) {
    const beyond = names.some((name) => now.offered.find((each) => each.name === name).beyond_quorum);
    const risk = beyond ? " Some of them leave nobody who can run the command, for a while." : "";
    const sure = await actions.ask({ title: "Begin a drill?", text: `${names.length ? names.join(", ") : "All faults within the quorum"}.${risk} The command is stopped and moved, again and again.`, yes: "Begin" });
    if (sure) await send("/dashboard/drill", { scenarios: names, beyond_quorum: beyond });
  }

  async function halt() { await send("/dashboard/drill/stop", {}); }

  async function ask() {
    busy = true;
    try {
      const answer = await fetch("/dashboard/drill", { cache: "no-store" });
      if (answer.ok && !closed) draw(await answer.json());
    } catch { /* the server is gone; the banner says so */ } finally { busy = false; asked = performance.now(); }
  }

  function draw(it) {
    now = it;
    root.classList.remove("waiting");
    buttons();
    const whole = JSON.stringify(it);
    if (whole === drawn) return;
    drawn = whole;
    show(choose, !it.by_hand);
    show(found, Boolean(it.report));
    text(by, it.by_hand || (it.began_unix_ms ? `Begun ${moment(it.began_unix_ms)}.` : ""));
    if (JSON.stringify(it.offered) !== offered) { offered = JSON.stringify(it.offered); replace(list, it.offered.map(choice)); }
    const end = it.report ? it.report.verdict : it.code === null ? "" : "It ended without a report; its last line says why.";
    text(said, it.by_hand ? "" : it.running ? "A drill runs." : end || "No drill was run from here yet.");
    attr(said, "data-tone", it.report && it.report.summary.not_kept ? "bad" : null);
    const last = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 4;
    text(lines, it.lines.join("\n"));
    show(lines, it.lines.length > 0);
    if (last) lines.scrollTop = lines.scrollHeight;
    replace(body, it.report ? it.report.done.flatMap(rows) : []);
  }

  function buttons() {
    const off = actions.off || !actions.me.may_change || !now || now.running;
    for (const button of [all, some]) attr(button, "disabled", off);
    attr(stop, "disabled", actions.off || !actions.me.may_change);
    show(stop, Boolean(now && now.running));
    show(report, Boolean(now && now.report));
  }

  const choice = (each) => h("li", {}, h("label", { class: "check" }, h("input", { type: "checkbox", value: each.name }),
    h("span", {}, h("strong", {}, each.name), ` (${each.fault}) ${each.title}`, each.beyond_quorum && h("span", { class: "quiet" }, ", beyond the quorum"))), h("p", { class: "quiet" }, each.must));

  function rows(done) {
    if (!done.findings.length) return [h("tr", {}, h("th", { scope: "row" }, done.scenario), h("td", { colspan: 4 }, `${done.outcome}: ${done.reason}`))];
    return done.findings.map((each) => {
      const at = each.at_ms || done.from_unix_ms;
      const tone = each.verdict === "kept" ? "follower" : each.verdict === "not kept" ? "bad" : "warn"; // green is the holder's
      return h("tr", {}, h("th", { scope: "row" }, done.scenario),
        h("td", {}, h("a", { href: to("timeline", { from: at - AROUND_MS, to: at + AROUND_MS, at }) }, each.what)),
        h("td", {}, each.promised), h("td", {}, each.measured), h("td", {}, h("span", { class: "chip", data: { tone } }, each.verdict), each.why && ` ${each.why}`));
    });
  }

  actions.listeners.add(buttons);
  ask();
  return {
    root,
    update() { buttons(); },
    tick(at) { if (!busy && store.connected && at - asked > ASK_MS) ask(); },
    close() { closed = true; actions.listeners.delete(buttons); },
  };
}

// Is the command running, where, since when, for how much longer is that promised, and what changed last.

import { to } from "../address.js";
import { attr, h, keyed, replace, show, text } from "../dom.js";
import { TONES, moment, ms, number, span, timeMs, took, zone } from "../format.js";
import { shortNames } from "../names.js";
import { card, chip, facts, holdBar, nodeLink } from "../parts.js";

const NAME_CHARS = 24;

export const overview = { id: "overview", title: "Overview", build };

function build({ store }) {
  const job = hero(store);
  const change = lastChange(store);
  const promise = contract(store);
  const people = health(store);
  const chain = signatures(store);
  const config = configuration(store);
  const root = h("div", { class: "overview" }, job.root, h("div", { class: "columns" },
    h("div", { class: "column" }, change.root, people.root),
    h("div", { class: "column" }, chain.root, promise.root)), config.root);
  const all = [job, change, promise, people, chain, config];
  return {
    root,
    update() { for (const each of all) each.update(); },
    tick(now) { job.tick(now); change.tick(now); },
  };
}

function hero(store) {
  const light = h("span", { class: "light" });
  const title = h("p", { class: "hero-title" });
  const since = h("p", { class: "hero-since" });
  const bar = holdBar();
  const hold = h("div", { class: "hero-hold" }, h("div", { class: "label" }, "Hold left"), bar.root);
  const list = facts({ token: "Token", term: "Term", pid: "Process", containment: "Containment" });
  const root = h("section", { class: "card hero", "aria-label": "The command" },
    h("div", { class: "hero-head" }, light, h("div", {}, title, since)),
    hold, list.root);
  let second = 0;
  const age = () => {
    const it = store.parts.job;
    if (!it) return;
    if (!store.connected) { text(since, "as it was last seen"); return; }
    const began = it.since_unix_ms ? `since ${moment(it.since_unix_ms)}` : "";
    text(since, it.acts === "acts" && began ? `${began}, for ${span(store.now() - it.since_unix_ms)}` : it.acts === "unknown" ? `It ran ${began || "before"}. Its hold runs out; until then the command may still live.` : "");
  };
  return {
    root,
    update() {
      const it = store.parts.job;
      if (!it) { text(title, "Waiting for the first answer"); return; }
      attr(root, "data-level", store.connected ? it.level : "unknown");
      text(title, store.connected ? it.text : `Not known any more. Before: ${it.text}`);
      show(hold, (store.parts.head || {}).at_most_one !== false);
      age();
      list.set("token", it.token || "");
      list.set("term", it.node ? number(it.term) : "");
      list.set("pid", it.pid || "");
      list.set("containment", it.containment);
    },
    tick(now) {
      const it = store.parts.job;
      bar.draw(it && it.node ? store.holdLeft(it.node) : 0, store.parts.head, now);
      if (now - second > 500) { second = now; age(); }
    },
  };
}

function lastChange(store) {
  const said = h("a", { class: "change-text" });
  const why = h("p", { class: "change-why" });
  const asked = h("p", { class: "change-why" });
  const when = h("p", { class: "quiet" });
  const steps = h("ol", { class: "steps" });
  const root = card("Last change", said, why, asked, when, steps);
  let second = 0, drawn = "";
  const age = () => {
    const it = store.parts.change;
    text(when, it ? `${moment(it.at_unix_ms)}${store.connected ? `, ${span(store.now() - it.at_unix_ms)} ago` : ""}${it.gap ? `; ${it.gap}` : ""}` : "");
  };
  return {
    root,
    update() {
      const it = store.parts.change;
      text(said, it ? it.text : "Nobody was seen to take the role yet.");
      attr(said, "href", it ? to("events", { from: it.at_unix_ms - 5000, to: it.ends_unix_ms + 1000 }) : null);
      show(why, Boolean(it && it.because));
      text(why, it && it.because ? `because: ${it.because}` : "");
      show(asked, Boolean(it && it.asked));
      text(asked, it && it.asked ? `a person did: ${it.asked}` : "");
      age();
      const key = JSON.stringify(it ? it.steps : []);
      if (key === drawn) return;
      drawn = key;
      replace(steps, it ? it.steps.map((step) => h("li", { data: { code: step.code } },
        h("span", { class: "step-after" }, took(step.after_ms)), h("span", { class: "step-text" }, !step.text.startsWith(`${step.node} `) && step.code !== "lab" && h("b", {}, `${step.node}: `), step.text))) : []);
    },
    tick(now) { if (now - second > 1000) { second = now; age(); } },
  };
}

function contract(store) {
  const margin = h("p", { class: "big" });
  const says = h("p", { class: "quiet" });
  const list = facts({ latest_stop_ms: "Old command ended by", earliest_start_ms: "New command starts after", failover_expected_ms: "Failover, expected", failover_worst_ms: "Failover, slowest", release_expected_ms: "After a clean release", tolerated_stall_ms: "Stall tolerated" });
  const line = h("div", { class: "contract-line", "aria-hidden": "true" });
  const root = card("Time between two holders, at least", margin, says, line, list.root);
  let drawn = "";
  return {
    root,
    update() {
      const it = store.parts.contract;
      show(list.root, Boolean(it));
      show(line, Boolean(it));
      text(margin, it ? ms(it.margin_ms) : "–");
      text(says, it ? "from the latest end of the old holder's command to the earliest start of the new one's, with the worst clocks that are allowed" : "This strategy or this node states no times.");
      if (!it) return;
      for (const name of Object.keys(list.at)) list.set(name, ms(it[name]));
      const key = JSON.stringify(it);
      if (key === drawn) return;
      drawn = key;
      const end = it.failover_worst_ms;
      const mark = (at, word, tone) => { const root = h("span", { class: `contract-mark ${tone}`, title: `${word} ${ms(at)}` }, h("i", {}, word)); root.style.left = `${Math.min(100, 100 * at / end)}%`; return root; };
      const held = h("span", { class: "contract-held" });
      held.style.width = `${100 * it.latest_stop_ms / end}%`;
      replace(line, held, mark(it.term_at_ms, "TERM", "old"), mark(it.kill_at_ms, "KILL", "old"), mark(it.earliest_start_ms, "start", "new"));
    },
  };
}

function health(store) {
  const body = h("tbody");
  const members = h("p", { class: "quiet members" });
  const change = h("p", { class: "wait members-change" });
  const root = card("Nodes", h("div", { class: "scroll" }, h("table", { class: "table" },
    h("thead", {}, h("tr", {}, ["Node", "Role", "Follows", "Workload", "Health"].map((name) => h("th", { scope: "col", class: name === "Follows" ? "wide-only" : null }, name)))), body)), members, change);
  return {
    root,
    update() {
      const belong = store.parts.members;
      show(members, Boolean(belong));
      text(members, belong ? `Version ${number(belong.version)} of the members.` : "");
      const said = belong ? [belong.waits_for && `A change of the members is on its way: it waits for ${belong.waits_for}.`,
        belong.untold.length && `${belong.untold.join(", ")} ${belong.untold.length > 1 ? "were" : "was"} removed and not told: keep off.`] : [];
      show(change, said.some(Boolean));
      text(change, said.filter(Boolean).join(" "));
      const names = shortNames(store.order, NAME_CHARS);
      keyed(body, store.order, (name) => {
        const link = nodeLink(name), role = chip(), follows = h("td", { class: "wide-only" }), workload = h("td"), well = h("td");
        return { link, role, follows, workload, well, root: h("tr", { data: { node: name } }, h("th", { scope: "row" }, link), h("td", {}, role.root), follows, workload, well) };
      }, (item, name) => {
        const node = store.node(name);
        if (!node) return;
        item.role.node(node);
        const here = node.there === "here";
        text(item.link, names.get(name));
        text(item.follows, here ? (node.leader ? (node.leader === name ? "itself" : names.get(node.leader) || node.leader) : "nobody") : "–");
        text(item.workload, node.work);
        attr(item.workload, "data-tone", TONES[node.acts] || null);
        text(item.well, here ? node.health || "–" : "not known");
        attr(item.well, "data-tone", here && node.health && node.health !== "ok" ? "bad" : null);
      });
    },
  };
}

function signatures(store) {
  const list = h("tbody");
  const sum = h("p", { class: "quiet" });
  const root = card("Signatures at the chain", sum, h("div", { class: "scroll" }, h("table", { class: "table signatures" },
    h("thead", {}, h("tr", {}, ["Height", "Node", "Token", "Gap", "Time"].map((name) => h("th", { scope: "col", class: name === "Gap" || name === "Token" ? "wide-only" : null }, name)))), list)));
  let drawn = "";
  return {
    root,
    update() {
      const it = store.parts.chain;
      show(root, Boolean(it));
      if (!it) return;
      text(sum, `${number(it.count)} recorded, ${it.double_signatures ? `two signers at once: ${it.double_signatures === 1 ? "once" : `${number(it.double_signatures)} times`}` : "never two signers at once"}. Times in ${zone()}.`);
      attr(sum, "data-tone", it.double_signatures ? "bad" : null);
      const key = JSON.stringify(it.newest);
      if (key === drawn) return;
      drawn = key;
      const names = shortNames([...new Set([...store.order, ...it.newest.map((row) => row.node)])], 14);
      replace(list, it.newest.map((row) => h("tr", {},
        h("td", { class: "num" }, number(row.height)), h("td", {}, nodeLink(row.node, names.get(row.node))), h("td", { class: "mono wide-only" }, row.token), h("td", { class: "num wide-only" }, ms(row.gap_ms)), h("td", { class: "num", title: moment(row.at_unix_ms) }, timeMs(row.at_unix_ms)))));
    },
  };
}

function configuration(store) {
  const pre = h("pre", { class: "code", tabindex: "0", "aria-label": "The file" });
  const from = h("p", { class: "quiet" });
  const differs = h("div");
  const file = h("details", {}, h("summary", {}, "Show the file, without its secrets"), pre);
  const root = card("Configuration", from, differs, file);
  return {
    root,
    update() {
      const it = store.parts.config;
      if (!it) return;
      text(from, it.text ? `As node ${it.source} has it.` : "The node has not told its configuration.");
      show(file, Boolean(it.text));
      text(pre, it.text);
      const key = JSON.stringify(it.differs);
      if (differs.dataset.key === key) return;
      differs.dataset.key = key;
      replace(differs, it.differs.map((mark) => h("p", { class: "mark-differs" }, `Nodes differ in their ${mark.what}: `,
        Object.entries(mark.of).map(([node, value]) => `${node} ${value}`).join(", "))));
    },
  };
}

// The topology, who leads, who follows whom, and in the lab the means to break and mend it.

import { QUESTIONS } from "../actions.js";
import { here, keep } from "../address.js";
import { attr, h, keyed, replace, s, show, text } from "../dom.js";
import { moment, ms, number, shortly, timeMs } from "../format.js";
import { drawing, linkWord } from "../map.js";
import { shortNames } from "../names.js";
import { chip, facts, nodeLink } from "../parts.js";

export const network = { id: "network", title: "Network", build };

const FEED = 8;
const DULL = ["promise-refused", "late-ack", "links"];
const UP = ["here", "silent", "starting"];
const DOWN = ["stopped", "killed", "ended"];

function build({ store, actions }) {
  let chosen = here().query.get("node") || "";
  const map = drawing(store, { node: (name) => { chosen = name; keep({ node: name }); draw(); }, link: (link) => toggle(link), resized: () => draw() });
  const stage = pictures(store, actions);
  const panel = nodePanel(store, actions);
  const shapes = partitions(actions);
  const told = feed(store, actions);
  const root = h("div", { class: "network" },
    h("div", { class: "network-main" }, map.root, stage.root, legend(), told.root),
    h("div", { class: "panel" }, panel.root, shapes.root));
  const can = () => actions.me.may_change && actions.me.lab;

  function toggle(link) {
    if (!can() || link.state === "down") return;
    const whole = link.state === "open";
    actions.order({ do: "link", a: link.a, b: link.b, how: whole ? "break" : "mend" }, whole ? QUESTIONS.break(link.a, link.b) : null);
  }

  function draw() {
    if (!store.order.includes(chosen)) chosen = (store.parts.job && store.parts.job.node) || store.order[0] || "";
    map.update(chosen, can());
    panel.update(chosen);
    stage.update();
    shapes.update();
  }

  return { root, moved(query) { chosen = query.get("node") || chosen; draw(); }, update(news) { draw(); told.update(news); }, tick(now) { map.tick(now); panel.tick(now); }, close() { map.close(); } };
}

// --- the three pictures ------------------------------------------------------------------------------------------------

const PICTURES = [
  { name: "stop-leader", title: "1. Stop the leader", look: "Look at its ring: the command is stopped, confirmed gone and released, and another node leads a moment later. The chain sees a short gap and never two signers.",
    question: "Stop the leader?", ask: "The leader's agent is told to end. Its command stops and another node takes over.", yes: "Stop the leader" },
  { name: "cut-leader", title: "2. Cut the leader off", look: "Look at its ring: without a majority nothing renews the hold. When too little is left the command is stopped and confirmed gone; only then another node leads.",
    question: "Cut the leader off?", ask: "Links of the leader are broken until it has lost its majority.", yes: "Cut it off" },
  { name: "mend", title: "3. Mend everything", look: "Look at the old leader: it comes back as a follower and disturbs nobody. The term does not change." },
];

function pictures(store, actions) {
  const buttons = PICTURES.map((picture) => ({
    picture,
    button: h("button", { type: "button", class: "button primary", data: { picture: picture.name }, onclick: () => actions.order({ do: "picture", name: picture.name }, picture.ask && QUESTIONS.picture(picture.question, picture.ask, picture.yes)) }, picture.title),
  }));
  const root = h("section", { class: "card pictures-card", "aria-label": "Three things to try" }, h("div", { class: "pictures" },
    buttons.map(({ picture, button }) => h("div", { class: "picture" }, button, h("p", {}, picture.look)))));
  return {
    root,
    update() {
      show(root, actions.me.may_change && actions.me.lab);
      const leads = store.order.some((name) => (store.node(name) || {}).leads);
      for (const { picture, button } of buttons) button.disabled = actions.off || (picture.name !== "mend" && !leads);
    },
  };
}

// --- one node -----------------------------------------------------------------------------------------------------------

function nodePanel(store, actions) {
  const title = h("h2", { class: "node-title" }), state = chip();
  const list = facts({ term: "Term", leader: "Follows", workload: "Workload", hold: "Hold left", token: "Token", agent: "Agent" });
  const more = h("a", { class: "node-more" }, "Details");
  const wait = h("p", { class: "wait" });
  const why = h("p", { class: "quiet" });
  const buttons = h("div", { class: "buttons" });
  const rows = h("div", { class: "link-rows" });
  const linksTitle = h("h3", { class: "sub" }, "Links");
  const root = h("section", { class: "card", "aria-label": "Selected node" }, h("div", { class: "node-head" }, title, state.root, more), wait, list.root, buttons, why, linksTitle, rows);
  let second = 0, current = "";

  const make = (word, tone, act, enabled, labOnly) => {
    const button = h("button", { type: "button", class: `button small ${tone}`, data: { act: word }, onclick: () => act(store.node(current)) }, word);
    buttons.append(button);
    return { button, enabled, labOnly };
  };
  const lab = (what) => (node) => actions.order({ do: what, node: node.node }, QUESTIONS[what] && QUESTIONS[what](node.node));
  const is = (node) => node.there === "here";
  const leader = () => store.order.map((name) => store.node(name)).find((node) => node && node.leads);
  const all = [
    make("Start", "", lab("start"), (node) => DOWN.includes(node.there), true),
    make("Stop", "danger", lab("stop"), (node) => UP.includes(node.there), true),
    make("Freeze", "danger", lab("freeze"), (node) => UP.includes(node.there), true),
    make("Thaw", "", lab("thaw"), (node) => node.there === "frozen", true),
    make("Kill", "danger", lab("kill"), (node) => UP.includes(node.there) || node.there === "frozen", true),
    make("Step down", "", lab("step-down"), (node) => node.leads, false),
    make("Pause", "", lab("pause"), (node) => is(node) && node.role !== "paused", false),
    make("Resume", "", lab("resume"), (node) => is(node) && node.role === "paused", false),
    make("Transfer here", "", lab("transfer"), canTakeOver, false),
    make("Approve", "primary", (node) => actions.order({ do: "approve", node: node.node, term: node.term }, QUESTIONS.approve(node.node, node.term)), (node) => node.leads && /approv/.test(node.waits_for), false),
  ];

  // Somebody who leads hands over to a voter that follows it, and is well: else the order would be refused.
  function canTakeOver(node) {
    const from = leader();
    const well = node.role === "follower" && node.kind === "voter" && (!node.health || node.health === "ok");
    return Boolean(from) && from.node !== node.node && is(node) && well && node.leader === from.node && (store.parts.head || {}).can_transfer !== false;
  }

  function rowOf(other) {
    const name = nodeLink(other), word = chip();
    const go = (how) => () => actions.order({ do: "link", a: current, b: other, how }, QUESTIONS[how] && QUESTIONS[how](current, other));
    const cut = h("button", { type: "button", class: "button small danger", "aria-label": `Break the link to ${other}`, onclick: go("break") }, "Break");
    const one = h("button", { type: "button", class: "button small", "aria-label": `Make the link to ${other} one-way`, onclick: go("one-way") }, "One-way");
    const mend = h("button", { type: "button", class: "button small", "aria-label": `Mend the link to ${other}`, onclick: go("mend") }, "Mend");
    return { root: h("div", { class: "link-row", data: { other } }, h("span", { class: "link-name" }, name, word.root), h("span", { class: "link-buttons" }, cut, one, mend)), name, word, cut, one, mend };
  }

  function drawLinks(name) {
    const may = actions.me.may_change && actions.me.lab;
    const others = store.order.filter((each) => each !== name), names = shortNames(store.order, 12);
    const of = (other) => (store.parts.links || []).find((link) => (link.a === name && link.b === other) || (link.b === name && link.a === other));
    if (rows.dataset.of !== name) { replace(rows); rows.known = new Map(); rows.dataset.of = name; }
    keyed(rows, others, rowOf, (item, other) => {
      const link = of(other);
      if (!link) return;
      text(item.name, names.get(other));
      item.word.set(linkWord(link), { open: "follower", cut: "bad", down: "unknown", "one-way": "warn" }[link.state]);
      for (const button of [item.cut, item.one, item.mend]) { show(button, may); button.disabled = actions.off; }
      if (may) { show(item.cut, link.state === "open" || link.state === "one-way"); show(item.one, link.state === "open"); show(item.mend, link.state === "cut" || link.state === "one-way"); }
    });
  }

  return {
    root,
    update(name) {
      current = name;
      const node = store.node(name);
      show(root, Boolean(node));
      if (!node) return;
      text(title, `Node ${name}`);
      attr(more, "href", `#/nodes?node=${encodeURIComponent(name)}`);
      state.node(node);
      const known = node.there === "here" || node.there === "frozen" || node.there === "silent";
      show(wait, Boolean(node.waits_for) && node.there === "here");
      text(wait, node.waits_for ? `Waits for ${node.waits_for}` : "");
      list.set("term", known ? number(node.term) : "");
      list.set("leader", node.there === "here" ? (node.leader === name ? "itself" : node.leader || "nobody") : "");
      list.set("workload", node.work);
      list.set("token", node.token || "");
      list.set("agent", node.agent_pid ? `process ${node.agent_pid}` : node.addr);
      const may = actions.me.may_change;
      for (const each of all) {
        show(each.button, may && (!each.labOnly || actions.me.lab) && each.enabled(node));
        each.button.disabled = actions.off;
      }
      show(why, !may);
      text(why, may ? "" : actions.me.can_sign_in ? "Read only. Sign in with the control key to change things." : "Read only: this dashboard has no control key.");
      show(linksTitle, store.order.length > 1);
      drawLinks(name);
    },
    tick(now) {
      if (now - second < 150 && store.connected) return;
      second = now;
      const left = store.holdLeft(current), node = store.node(current);
      list.set("hold", node && node.hold_left_ms > 0 && left > 0 ? ms(left) : "");
    },
  };
}

// --- shapes --------------------------------------------------------------------------------------------------------------

const SHAPES = [
  ["leader-alone", "Leader alone", "The leader is alone on its side"],
  ["halves", "No side has a majority", "No side has a majority"],
  ["2/3", "Leader on the smaller side", "The leader is on the smaller side"],
];

function partitions(actions) {
  const buttons = SHAPES.map(([shape, word, what]) => h("button", { type: "button", class: "button small danger", title: what, data: { shape }, onclick: () => actions.order({ do: "partition", shape }, QUESTIONS.partition(what)) }, word));
  const heal = h("button", { type: "button", class: "button small primary", data: { act: "heal" }, onclick: () => actions.order({ do: "heal" }) }, "Heal all links");
  const root = h("section", { class: "card", "aria-label": "Partitions" }, h("h2", { class: "card-title" }, "Divide the network"), h("div", { class: "buttons" }, buttons, heal));
  return { root, update() { show(root, actions.me.may_change && actions.me.lab); for (const each of [...buttons, heal]) each.disabled = actions.off; } };
}

// --- what came of it -----------------------------------------------------------------------------------------------------

function feed(store, actions) {
  const outcome = h("p", { class: "outcome", hidden: true, id: "outcome" });
  const list = h("ol", { class: "feed", "aria-label": "The newest events" });
  const root = h("section", { class: "card feed-card" }, h("h2", { class: "card-title" }, "What happens"), outcome, list);
  return {
    root,
    update(news) {
      const last = actions.outcomes[0];
      show(outcome, Boolean(last));
      if (last) { text(outcome, last.text); attr(outcome, "class", last.bad ? "outcome bad" : "outcome"); }
      if (!news.whole && !news.events.length) return;
      const rows = [];
      for (let at = store.events.length - 1; at >= 0 && rows.length < 4 * FEED; at -= 1) if (!DULL.includes(store.events[at].code)) rows.push(store.events[at]);
      rows.sort((one, other) => other.at - one.at);
      replace(list, rows.slice(0, FEED).map((row) => h("li", {}, h("time", { title: moment(row.at) }, shortly(row.at, store.now(), timeMs)), h("span", {}, !row.text.startsWith(`${row.node} `) && row.code !== "lab" && h("b", {}, `${row.node}: `), row.text))));
    },
  };
}

function legend() {
  const line = (state, extra) => s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("g", { class: "link", data: { state } }, s("path", { class: "link-line", d: "M1 7h32" }), extra));
  const knot = (tone) => s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("g", { class: "knot", data: { tone }, transform: "translate(17 7)" }, s("circle", { class: "knot-body", r: 7 })));
  const row = (picture, words) => h("span", {}, picture, words);
  return h("section", { class: "card legend", "aria-label": "Legend" },
    row(knot("leader"), "leader"), row(knot("follower"), "follower"), row(knot("candidate"), "campaigns, waits or is paused"), row(knot("frozen"), "frozen"), row(knot("down"), "stopped or killed"), row(knot("unknown"), "not heard"),
    row(s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("circle", { class: "knot-work", cx: 17, cy: 7, r: 6 })), "runs the command"),
    row(s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("circle", { class: "knot-work", data: { acts: "unknown" }, cx: 17, cy: 7, r: 6 })), "not known whether it runs"),
    row(s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("path", { class: "knot-hold", d: "M4 12A13 13 0 0 1 30 12" })), "hold left"),
    row(line("open"), "link"), row(line("one-way", s("path", { class: "link-arrow", d: "M12 2 22 7 12 12z" })), "one way, towards the arrow"), row(line("cut"), "broken"), row(line("down"), "an end is not up"),
    row(s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("path", { class: "belief", d: "M1 10Q17 2 30 8", "marker-end": "url(#belief-head)" })), "follows"),
    row(s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("circle", { class: "heartbeat", cx: 17, cy: 7, r: 4 })), "heartbeats"));
}

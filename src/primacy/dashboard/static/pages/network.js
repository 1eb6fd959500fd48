// The topology, who leads, who believes whom, and in the lab the means to break and mend it.

import { attr, h, keyed, replace, s, show, text } from "../dom.js";
import { workloadWord, ms, number, timeMs } from "../format.js";
import { drawing, linkWord } from "../map.js";
import { chip, facts } from "../parts.js";
import { QUESTIONS } from "../actions.js";

export const network = { id: "network", title: "Network", build };

const FEED = 8;
const DULL = ["promise-refused", "late-ack", "links"];
let chosen = "";

function build({ store, actions }) {
  const map = drawing(store, { node: (name) => { chosen = name; draw(); }, link: (link) => toggle(link), resized: () => draw() });
  const stage = pictures(store, actions);
  const panel = nodePanel(store, actions);
  const shapes = partitions(actions);
  const told = feed(store, actions);
  const root = h("div", { class: "network" },
    h("div", { class: "network-main" }, stage.root, map.root, legend(), told.root),
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

  return { root, update(news) { draw(); told.update(news); }, tick(now) { map.tick(now); panel.tick(now); }, close() { map.close(); } };
}

// --- the three pictures ------------------------------------------------------------------------------------------------

const PICTURES = [
  { name: "stop-leader", title: "1. Stop the leader", look: "Look at its ring: the work is stopped, confirmed gone and released, and another node leads a moment later. The chain sees a short gap and never two signers.",
    ask: "The leader's agent is told to end. Its work stops and another node takes over." },
  { name: "cut-leader", title: "2. Cut the leader off", look: "Look at its ring: without a majority nothing renews the hold. When too little is left the work is stopped and confirmed gone; only then another node leads. It may still believe in nobody, or in the new one.",
    ask: "Links of the leader are broken until it has lost its majority." },
  { name: "mend", title: "3. Mend everything", look: "Look at the old leader: it comes back as a follower and disturbs nobody. The term does not change." },
];

function pictures(store, actions) {
  const buttons = PICTURES.map((picture) => ({
    picture,
    button: h("button", { type: "button", class: "button primary", data: { picture: picture.name }, onclick: () => actions.order({ do: "picture", name: picture.name }, picture.ask && QUESTIONS.picture(picture.ask)) }, picture.title),
  }));
  const root = h("section", { class: "card pictures-card", "aria-label": "Three things to try" }, h("div", { class: "pictures" },
    buttons.map(({ picture, button }) => h("div", { class: "picture" }, button, h("p", {}, picture.look)))));
  return {
    root,
    update() {
      show(root, actions.me.may_change && actions.me.lab);
      const leads = Boolean(store.parts.job && store.parts.job.node);
      for (const { picture, button } of buttons) button.disabled = actions.busy || (picture.name !== "mend" && !leads);
    },
  };
}

// --- one node -----------------------------------------------------------------------------------------------------------

function nodePanel(store, actions) {
  const title = h("h2", { class: "node-title" }), state = chip();
  const list = facts({ term: "Term", leader: "Believes in", workload: "Workload", hold: "Hold left", token: "Token", agent: "Agent" });
  const wait = h("p", { class: "wait" });
  const why = h("p", { class: "quiet" });
  const buttons = h("div", { class: "buttons" });
  const rows = h("div", { class: "link-rows" });
  const linksTitle = h("h3", { class: "sub" }, "Links");
  const root = h("section", { class: "card", "aria-label": "Selected node" }, h("div", { class: "node-head" }, title, state.root), wait, list.root, buttons, why, linksTitle, rows);
  let second = 0, current = "";

  const make = (word, tone, act, enabled, labOnly) => {
    const button = h("button", { type: "button", class: `button small ${tone}`, data: { act: word }, onclick: () => act(store.node(current)) }, word);
    buttons.append(button);
    return { button, enabled, labOnly };
  };
  const lab = (what) => (node) => actions.order({ do: what, node: node.node }, QUESTIONS[what] && QUESTIONS[what](node.node));
  const up = (node) => node.there === "here" || node.there === "silent";
  const all = [
    make("Start", "", lab("start"), (node) => node.there === "stopped", true),
    make("Stop", "danger", lab("stop"), (node) => up(node), true),
    make("Freeze", "danger", lab("freeze"), (node) => up(node), true),
    make("Thaw", "", lab("thaw"), (node) => node.there === "frozen", true),
    make("Kill", "danger", lab("kill"), (node) => up(node) || node.there === "frozen", true),
    make("Step down", "", lab("step-down"), (node) => node.role === "leader" && node.there === "here", false),
    make("Pause", "", lab("pause"), (node) => node.there === "here" && node.role !== "paused", false),
    make("Resume", "", lab("resume"), (node) => node.there === "here" && node.role === "paused", false),
    make("Transfer here", "", lab("transfer"), (node) => node.there === "here" && node.role !== "leader" && node.kind === "voter", false),
    make("Approve", "primary", (node) => actions.order({ do: "approve", node: node.node, term: node.term }, QUESTIONS.approve(node.node, node.term)), (node) => node.there === "here" && node.role === "leader" && /approv/.test(node.waits_for), false),
  ];

  function rowOf(other) {
    const name = h("span", {}), word = chip();
    const go = (how) => () => actions.order({ do: "link", a: current, b: other, how }, QUESTIONS[how] && QUESTIONS[how](current, other));
    const cut = h("button", { type: "button", class: "button small danger", "aria-label": `Break the link to ${other}`, onclick: go("break") }, "Break");
    const one = h("button", { type: "button", class: "button small", "aria-label": `Make the link to ${other} one-way`, onclick: go("one-way") }, "One-way");
    const mend = h("button", { type: "button", class: "button small", "aria-label": `Mend the link to ${other}`, onclick: go("mend") }, "Mend");
    return { root: h("div", { class: "link-row", data: { other } }, h("span", { class: "link-name" }, name, word.root), h("span", { class: "link-buttons" }, cut, one, mend)), name, word, cut, one, mend };
  }

  function drawLinks(name) {
    const may = actions.me.may_change && actions.me.lab;
    const others = store.order.filter((each) => each !== name);
    const of = (other) => (store.parts.links || []).find((link) => (link.a === name && link.b === other) || (link.b === name && link.a === other));
    if (rows.dataset.of !== name) { replace(rows); rows.known = new Map(); rows.dataset.of = name; }
    keyed(rows, others, rowOf, (item, other) => {
      const link = of(other);
      if (!link) return;
      text(item.name, other);
      item.word.set(linkWord(link), { open: "ok", cut: "bad", down: "plain", "one-way": "warn" }[link.state]);
      for (const button of [item.cut, item.one, item.mend]) { show(button, may); button.disabled = actions.busy; }
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
      state.node(node);
      const known = node.there === "here" || node.there === "frozen" || node.there === "silent";
      show(wait, Boolean(node.waits_for) && node.there === "here");
      text(wait, node.waits_for ? `Waits for ${node.waits_for}` : "");
      list.set("term", known ? number(node.term) : "");
      list.set("leader", known ? (node.leader === name ? "itself" : node.leader || "nobody") : "");
      list.set("workload", workloadWord(node));
      list.set("token", node.token || "");
      list.set("agent", node.agent_pid ? `process ${node.agent_pid}` : node.addr);
      const may = actions.me.may_change;
      for (const each of all) {
        show(each.button, may && (!each.labOnly || actions.me.lab) && each.enabled(node));
        each.button.disabled = actions.busy;
      }
      show(why, !may);
      text(why, may ? "" : actions.me.can_sign_in ? "Read only. Sign in with the control key to change things." : "Read only: this dashboard has no control key.");
      show(linksTitle, store.order.length > 1);
      drawLinks(name);
    },
    tick(now) {
      if (now - second < 150) return;
      second = now;
      const left = store.holdLeft(current), node = store.node(current);
      list.set("hold", node && node.role === "leader" && left > 0 ? ms(left) : "");
    },
  };
}

// --- shapes --------------------------------------------------------------------------------------------------------------

const SHAPES = [
  ["leader-alone", "Leader alone", "The leader is alone on its side"],
  ["halves", "Halves", "Two halves, the leader in one of them"],
  ["2/3", "2/3", "The leader is on the smaller side"],
];

function partitions(actions) {
  const buttons = SHAPES.map(([shape, word, what]) => h("button", { type: "button", class: "button small danger", title: what, data: { shape }, onclick: () => actions.order({ do: "partition", shape }, QUESTIONS.partition(what)) }, word));
  const heal = h("button", { type: "button", class: "button small primary", data: { act: "heal" }, onclick: () => actions.order({ do: "heal" }) }, "Heal all links");
  const root = h("section", { class: "card", "aria-label": "Partitions" }, h("h2", { class: "card-title" }, "Divide the network"), h("div", { class: "buttons" }, buttons, heal));
  return { root, update() { show(root, actions.me.may_change && actions.me.lab); for (const each of [...buttons, heal]) each.disabled = actions.busy; } };
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
      replace(list, rows.slice(0, FEED).map((row) => h("li", {}, h("time", {}, timeMs(row.at)), h("span", {}, !row.text.startsWith(`${row.node} `) && row.code !== "lab" && h("b", {}, `${row.node}: `), row.text))));
    },
  };
}

function legend() {
  const line = (state, extra) => s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("g", { class: "link", data: { state } }, s("path", { class: "link-line", d: "M1 7h32" }), extra));
  const knot = (tone) => s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("g", { class: "knot", data: { tone }, transform: "translate(17 7)" }, s("circle", { class: "knot-body", r: 7 })));
  const row = (picture, words) => h("span", {}, picture, words);
  return h("section", { class: "card legend", "aria-label": "Legend" },
    row(knot("leader"), "leader"), row(knot("follower"), "follower"), row(knot("candidate"), "campaigns, waits or is paused"), row(knot("frozen"), "frozen"), row(knot("down"), "down"),
    row(s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("circle", { class: "knot-work", cx: 17, cy: 7, r: 6 })), "runs the work"),
    row(s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("path", { class: "knot-hold", d: "M4 12A13 13 0 0 1 30 12" })), "hold left"),
    row(line("open"), "link"), row(line("one-way", s("path", { class: "link-arrow", d: "M12 2 22 7 12 12z" })), "one way, towards the arrow"), row(line("cut"), "broken"), row(line("down"), "an end is down"),
    row(s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("path", { class: "belief", d: "M1 10Q17 2 30 8", "marker-end": "url(#belief-head)" })), "believes in"),
    row(s("svg", { viewBox: "0 0 34 14", "aria-hidden": "true" }, s("circle", { class: "heartbeat", cx: 17, cy: 7, r: 4 })), "heartbeats"));
}

// The drawing of the network: nodes on a circle, their links, whom each follows, and heartbeats on their way.

import { attr, h, keyed, s, text } from "./dom.js";
import { standing } from "./format.js";
import { shortNames } from "./names.js";

const HEARTBEATS_MAX = 24;
const HEARTBEAT_EVERY_MS = 900;
const HEARTBEAT_TAKES_MS = 650;

export function drawing(store, on) {
  const links = s("g"), beliefs = s("g"), heartbeats = s("g"), knots = s("g");
  const svg = s("svg", { role: "group", "aria-label": "Nodes and links. Each node is a button; the panel lists its links." },
    s("defs", {}, s("marker", { id: "belief-head", viewBox: "0 0 10 10", refX: 8, refY: 5, markerWidth: 9, markerHeight: 9, orient: "auto-start-reverse", markerUnits: "userSpaceOnUse" },
      s("path", { d: "M0 1 9 5 0 9z", class: "belief-head" }))),
    links, beliefs, heartbeats, knots);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const root = h("section", { class: "card map", "aria-label": "Topology" }, svg);
  let spots = new Map(), names = new Map(), outside = false, around = false, radius = 40, width = 0, height = 0, flying = [], heartbeatAt = 0;

  // One unit is one pixel, so that words have the same size on every screen. The circle fills what there is.
  function place(order) {
    const many = order.length, small = width < 560;
    const room = Math.max(380, window.innerHeight - 230);
    height = small ? Math.round(width * 1.12) : Math.round(Math.min(width * .66, 660, room));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const crowd = many > 7 || (small && many > 5 && order.some((name) => [...name].length > 9)); // names need the room beside
    radius = many <= 7 ? (small ? (crowd ? 22 : 28) : 42) : many <= 12 ? (small ? 22 : 34) : small ? 15 : 25;
    names = shortNames(order, crowd ? (small ? 9 : 16) : small ? 12 : 20);
    const longest = Math.max(0, ...[...names.values()].map((name) => [...name].length));
    outside = longest > (radius > 30 ? 9 : radius > 20 ? 5 : 3);
    around = outside && crowd;
    const aside = around ? longest * 8 + (small ? 8 : 60) : small ? 34 : 70, above = radius + (around ? 34 : outside ? 74 : 58);
    const rx = Math.max(60, width / 2 - radius - aside), ry = height / 2 - above;
    spots = new Map(order.map((name, index) => {
      const angle = -Math.PI / 2 + (2 * Math.PI * index) / Math.max(1, many);
      return [name, many === 1 ? { x: width / 2, y: height / 2 } : { x: width / 2 + rx * Math.cos(angle), y: height / 2 + ry * Math.sin(angle) }];
    }));
  }

  const between = (a, b, share) => ({ x: a.x + (b.x - a.x) * share, y: a.y + (b.y - a.y) * share });
  const shorten = (a, b, by) => { const far = Math.hypot(b.x - a.x, b.y - a.y) || 1; return between(a, b, Math.min(.45, by / far)); };

  function drawLinks(chosen, can) {
    const list = store.parts.links || [];
    const byKey = new Map(list.map((link) => [JSON.stringify([link.a, link.b]), link]));
    keyed(links, [...byKey.keys()], (key) => {
      const line = s("path", { class: "link-line" }), hit = s("path", { class: "link-hit" });
      const cross = s("path", { class: "link-cross" }), arrow = s("path", { class: "link-arrow", d: "M-11-8 11 0-11 8z" }), title = s("title");
      const root = s("g", { class: "link", onclick: () => on.link(byKey.get(key) || JSON.parse(key)) }, title, line, hit, cross, arrow);
      return { root, line, hit, cross, arrow, title };
    }, (item, key) => {
      const link = byKey.get(key), a = spots.get(link.a), b = spots.get(link.b);
      if (!a || !b) return;
      const from = shorten(a, b, radius + 8), to = shorten(b, a, radius + 8);
      const d = `M${from.x.toFixed(1)} ${from.y.toFixed(1)}L${to.x.toFixed(1)} ${to.y.toFixed(1)}`;
      attr(item.line, "d", d);
      attr(item.hit, "d", d);
      attr(item.root, "data-state", link.state);
      attr(item.root, "data-can", can);
      attr(item.root, "data-chosen", chosen && (link.a === chosen || link.b === chosen) ? "" : null);
      const middle = between(a, b, .5);
      attr(item.cross, "d", link.state === "cut" ? `M${middle.x - 8} ${middle.y - 8}l16 16m0-16l-16 16` : "");
      show2(item.arrow, link.state === "one-way");
      if (link.state === "one-way") {
        const start = spots.get(link.from), end = spots.get(link.to);
        attr(item.arrow, "transform", `translate(${middle.x.toFixed(1)} ${middle.y.toFixed(1)}) rotate(${(Math.atan2(end.y - start.y, end.x - start.x) * 180 / Math.PI).toFixed(1)})`);
      }
      text(item.title, `${link.a} – ${link.b}: ${linkWord(link)}`);
    });
  }

  function show2(element, visible) { attr(element, "visibility", visible ? null : "hidden"); }

  function drawBeliefs() {
    const pairs = store.order.map((name) => store.node(name)).filter((node) => node && node.there === "here" && node.leader && node.leader !== node.node && spots.has(node.leader))
      .map((node) => JSON.stringify([node.node, node.leader]));
    keyed(beliefs, pairs, (key) => {
      const [from, to] = JSON.parse(key);
      return { root: s("path", { class: "belief", "marker-end": "url(#belief-head)" }, s("title", {}, `${from} follows ${to}`)) };
    }, (item, key) => {
      const [from, to] = JSON.parse(key), a = spots.get(from), b = spots.get(to);
      const far = Math.hypot(b.x - a.x, b.y - a.y) || 1, nx = -(b.y - a.y) / far, ny = (b.x - a.x) / far, bend = 26;
      const start = shorten(a, b, radius + 10), end = shorten(b, a, radius + 16), middle = between(a, b, .5);
      attr(item.root, "d", `M${(start.x + nx * 9).toFixed(1)} ${(start.y + ny * 9).toFixed(1)}Q${(middle.x + nx * bend).toFixed(1)} ${(middle.y + ny * bend).toFixed(1)} ${(end.x + nx * 9).toFixed(1)} ${(end.y + ny * 9).toFixed(1)}`);
    });
  }

  function drawKnots(chosen) {
    keyed(knots, store.order, (name) => {
      const body = s("circle", { class: "knot-body" }), halo = s("circle", { class: "knot-halo" }), hold = s("path", { class: "knot-hold" });
      const work = s("circle", { class: "knot-work", r: 9 }), label = s("text", { class: "knot-name", dy: ".34em" }), title = s("title", {}, name);
      const role = s("text", { class: "knot-role" }), more = s("text", { class: "knot-more" }), hit = s("circle", { class: "knot-hit", r: 22 });
      const root = s("g", { class: "knot", role: "button", tabindex: 0, data: { node: name }, onclick: () => on.node(name), onkeydown: (event) => keys(event, name) },
        title, hit, halo, body, hold, label, work, role, more);
      return { root, body, halo, hold, work, role, more, label };
    }, (item, name) => {
      const node = store.node(name), spot = spots.get(name);
      if (!node || !spot) return;
      const it = standing(node);
      attr(item.root, "transform", `translate(${spot.x.toFixed(1)} ${spot.y.toFixed(1)})`);
      attr(item.root, "data-tone", it.tone);
      attr(item.root, "data-chosen", name === chosen ? "" : null);
      attr(item.root, "aria-pressed", name === chosen ? "true" : "false");
      attr(item.body, "r", radius);
      attr(item.halo, "r", radius + 15);
      const acts = node.acts === "acts" || node.acts === "unknown", many = store.order.length > 12, small = width < 560;
      show2(item.work, acts && node.workload_kind !== "none");
      attr(item.work, "data-acts", node.acts);
      attr(item.work, "cx", radius * .72);
      attr(item.work, "cy", -radius * .72);
      const above = spot.y < height / 2 - 20;
      const word = many && node.there === "here" && !node.leads && node.role !== "was leader" ? "" : it.word;
      text(item.label, names.get(name));
      text(item.role, many && small ? "" : word);
      const follows = small ? "" : node.there === "here" ? (node.leader === name ? "" : node.leader ? ` · follows ${names.get(node.leader) || node.leader}` : " · follows nobody") : "";
      const runs = small ? "" : node.acts === "acts" ? " · runs the command" : ` · ${node.work}`;
      text(item.more, many || (small && (store.order.length > 7 || outside)) || node.there !== "here" || !node.role ? (node.acts === "unknown" && !small && !many ? node.work : "") : `term ${node.term}${acts ? (node.workload_kind === "none" ? "" : runs) : outside ? "" : follows}`);
      lines(item, spot, above, small ? "" : word);
      attr(item.root, "aria-label", `Node ${name}, ${it.word}, term ${node.term}${node.acts === "acts" ? ", runs the command" : node.acts === "unknown" ? ", not known whether it runs the command" : ""}${node.leader && node.leader !== name ? `, follows ${node.leader}` : ""}`);
    });
  }

  // A name that does not fit into its circle stands outside of it: with the other words, or, if there are many, by
  // itself, away from the middle.
  function lines(item, spot, above, word) {
    attr(item.root, "data-outside", outside ? "" : null);
    if (around) {
      const x = spot.x - width / 2, y = spot.y - height / 2, far = Math.hypot(x, y) || 1, away = radius + 9;
      const side = Math.abs(x) < 12 ? "middle" : x > 0 ? "start" : "end";
      if (word) text(item.label, `${item.label.textContent} · ${word}`);
      attr(item.label, "x", side === "middle" ? 0 : ((x / far) * away).toFixed(1));
      attr(item.label, "y", ((y / far) * (side === "middle" ? away + 8 : away)).toFixed(1));
      attr(item.label, "dy", ".34em");
      attr(item.label, "data-side", side);
      text(item.role, "");
      text(item.more, "");
      return;
    }
    const words = [outside ? item.label : null, item.role, item.more].filter((each) => each && each.textContent);
    let y = above ? -(radius + 21 + 17 * (words.length - 1)) : radius + 29;
    for (const each of words) { attr(each, "y", y); y += 17; }
    attr(item.label, "x", null);
    attr(item.label, "data-side", null);
    if (!outside) attr(item.label, "y", null);
    attr(item.label, "dy", outside ? null : ".34em");
  }

  function keys(event, name) {
    const order = store.order, at = order.indexOf(name);
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: order.length - 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); on.node(name); return; }
    if (to === undefined) return;
    event.preventDefault();
    const next = order[(to + order.length) % order.length];
    for (const knot of knots.children) if (knot.dataset.node === next) knot.focus();
  }

  // The hold as a ring around its holder.
  function drawHolds() {
    const head = store.parts.head || {}, most = head.hold_ms || 3000, ring = radius + 7;
    for (const [name, item] of knots.known || []) {
      const node = store.node(name);
      const left = node && node.hold_left_ms > 0 ? Math.min(1, store.holdLeft(name) / most) : 0;
      if (left <= .01) { show2(item.hold, false); continue; }
      const angle = 2 * Math.PI * Math.min(.9995, left) - Math.PI / 2;
      show2(item.hold, true);
      attr(item.hold, "d", `M0 ${-ring}A${ring} ${ring} 0 ${left > .5 ? 1 : 0} 1 ${(ring * Math.cos(angle)).toFixed(1)} ${(ring * Math.sin(angle)).toFixed(1)}`);
      attr(item.hold, "data-low", head.term_at_ms && left <= 1 - head.term_at_ms / most ? "" : null);
    }
  }

  // One dot per open way from a living leader to a node that follows it: not every heartbeat, but only where heartbeats arrive.
  function sendHeartbeats(now) {
    const open = new Set();
    for (const link of store.parts.links || []) {
      if (link.state === "open") { open.add(JSON.stringify([link.a, link.b])); open.add(JSON.stringify([link.b, link.a])); }
      if (link.state === "one-way") open.add(JSON.stringify([link.from, link.to]));
    }
    for (const name of store.order) {
      const leader = store.node(name);
      if (!leader || !leader.leads) continue;
      for (const other of store.order) {
        if (other === name || flying.length >= HEARTBEATS_MAX || !open.has(JSON.stringify([name, other]))) continue;
        const dot = s("circle", { class: "heartbeat", r: 4.5 });
        heartbeats.append(dot);
        flying.push({ dot, from: name, to: other, at: now });
      }
    }
  }

  function moveHeartbeats(now) {
    if (calm.matches || !store.connected) { for (const each of flying) each.dot.remove(); flying = []; return; }
    if (now - heartbeatAt > HEARTBEAT_EVERY_MS) { heartbeatAt = now; sendHeartbeats(now); }
    flying = flying.filter((each) => {
      const share = (now - each.at) / HEARTBEAT_TAKES_MS, a = spots.get(each.from), b = spots.get(each.to);
      if (share >= 1 || !a || !b) { each.dot.remove(); return false; }
      const spot = between(shorten(a, b, radius + 10), shorten(b, a, radius + 10), share);
      each.dot.setAttribute("transform", `translate(${spot.x.toFixed(1)} ${spot.y.toFixed(1)})`);
      return true;
    });
  }

  let known = "";
  const resized = new ResizeObserver(() => on.resized());
  resized.observe(root);
  return {
    root,
    update(chosen, can) {
      const room = Math.max(300, Math.round(root.clientWidth - 16)), key = JSON.stringify([room, window.innerHeight, store.order]);
      if (key !== known) { known = key; width = room; place(store.order); attr(root, "data-many", store.order.length > 9); }
      drawLinks(chosen, can);
      drawBeliefs();
      drawKnots(chosen);
    },
    tick(now) { drawHolds(); moveHeartbeats(now); },
    close() { resized.disconnect(); },
  };
}

export function linkWord(link) {
  if (link.state === "open") return "open";
  if (link.state === "cut") return "broken";
  if (link.state === "down") return "an end is not up";
  return `one way: ${link.to} hears ${link.from}`;
}

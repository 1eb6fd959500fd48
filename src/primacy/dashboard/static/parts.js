// Small pieces that several pages show alike: chips, definition lists, the hold bar.

import { to } from "./address.js";
import { attr, h, text } from "./dom.js";
import { ms, standing } from "./format.js";

export function card(title, ...children) {
  return h(title ? "section" : "div", { class: "card" }, title && h("h2", { class: "card-title" }, title), ...children);
}

export function chip() {
  const root = h("span", { class: "chip" });
  return {
    root,
    set(word, tone) { text(root, word); attr(root, "data-tone", tone); },
    node(node) { const it = standing(node); this.set(it.word, it.tone); },
  };
}

// From anywhere to the detail of a node.
export function nodeLink(name, shown) {
  return h("a", { class: "node-link", href: to("nodes", { node: name }), title: name, "aria-label": `Node ${name}` }, shown || name);
}

// A list of terms and values whose values are set later by name.
export function facts(rows) {
  const values = {};
  const root = h("dl", { class: "facts" }, Object.entries(rows).map(([name, title]) => {
    values[name] = h("dd", {});
    return h("div", { class: "fact" }, h("dt", {}, title), values[name]);
  }));
  return { root, set(name, said) { text(values[name], said === "" || said === null || said === undefined ? "–" : said); }, at: values };
}

// How much of the hold is left, as a bar that runs down; the mark is where the command would be told to stop.
export function holdBar() {
  const inner = h("div", { class: "hold-fill" });
  const mark = h("div", { class: "hold-mark", title: "TERM: the command is told to stop" });
  const left = h("span", { class: "hold-left" });
  const track = h("div", { class: "hold-track", role: "meter", "aria-label": "Hold left", "aria-valuemin": 0 }, inner, mark);
  const root = h("div", { class: "hold" }, track, left);
  let shownAt = -1000;
  return {
    root,
    draw(value, head, now) {
      const most = head && head.hold_ms ? head.hold_ms : 3000;
      const share = Math.max(0, Math.min(1, value / most));
      inner.style.transform = `scaleX(${share.toFixed(3)})`;
      const term = head && head.term_at_ms ? 1 - head.term_at_ms / most : 0;
      mark.style.left = `${(term * 100).toFixed(1)}%`;
      mark.hidden = !term;
      attr(root, "data-tone", value <= 0 ? "none" : share <= term ? "bad" : "ok");
      if (now - shownAt > 200) {
        shownAt = now;
        text(left, value > 0 ? `${ms(value)} of ${ms(most)}` : "no hold known");
        attr(track, "aria-valuemax", most);
        attr(track, "aria-valuenow", Math.round(value));
        attr(track, "aria-valuetext", value > 0 ? `${ms(value)} of ${ms(most)} left` : "no hold");
      }
    },
  };
}

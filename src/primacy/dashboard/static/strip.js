// The strip on top of every page, and with it the title and the icon of the tab: one state for all of them.

import { to } from "./address.js";
import { attr, h, show, text } from "./dom.js";
import { moment, shortly, span } from "./format.js";

const MARKS = { ok: "●", warn: "▲", bad: "✖", unknown: "?", stale: "…" };

// `links`: false where nothing can be clicked.
export function strip(store, { links = true } = {}) {
  const link = (element, where) => attr(element, "href", links ? where : null);
  const mark = h("span", { class: "strip-mark", "aria-hidden": "true" });
  const said = h("span"), who = h("a", { class: "strip-node" }), since = h("span");
  const holder = h("div", { class: "strip-part strip-holder" }, mark, h("span", { class: "strip-words" }, said, who, since));
  const margin = h("a", { class: "strip-part strip-margin" });
  const change = h("a", { class: "strip-part strip-change" });
  const root = h("section", { class: "strip", "aria-label": "State of the cluster" }, holder, margin, change);
  let shown = "";

  function level() {
    const it = store.parts.strip;
    if (!it) return "unknown";
    return store.connected ? it.level : "stale";
  }

  function tab(page) {
    const it = store.parts.strip, now = level();
    const words = !it ? "connecting" : now === "stale" ? "not known, server gone" : it.title;
    const cluster = store.parts.head && store.parts.head.cluster;
    document.title = `${MARKS[now]} ${words} · ${page}${cluster ? ` · ${cluster}` : ""} · primacy`;
    if (shown !== now) {
      shown = now;
      attr(document.querySelector('link[rel="icon"]'), "href", `/dashboard/static/favicon-${now === "stale" ? "unknown" : now}.svg`);
    }
  }

  function draw(page) {
    const it = store.parts.strip, now = level();
    attr(document.documentElement, "data-state", now);
    attr(document.documentElement, "data-alert", it && it.alert && now !== "stale" ? it.alert : null);
    attr(root, "data-level", now);
    link(margin, to("nodes"));
    text(mark, MARKS[now === "stale" || !it ? now : it.holder.level]);
    tab(page);
    if (!it) { text(said, "Waiting for the first answer"); show(who, false); text(since, ""); text(margin, ""); text(change, ""); return; }
    if (now === "stale") { text(said, "Not known: the dashboard's server does not answer"); show(who, false); text(since, ""); }
    else {
      text(said, it.holder.node ? `${it.holder.text}: ` : it.holder.text);
      show(who, Boolean(it.holder.node));
      text(who, it.holder.node);
      link(who, to("nodes", { node: it.holder.node }));
      text(since, it.holder.since_unix_ms ? `, for ${span(store.now() - it.holder.since_unix_ms)}` : "");
    }
    attr(holder, "data-level", now === "stale" ? "stale" : it.holder.level);
    attr(margin, "data-level", now === "stale" ? "stale" : it.margin.level);
    text(margin, now === "stale" ? `last seen: ${it.margin.text}` : it.margin.text);
    const last = it.change;
    show(change, !it.of_many);
    show(margin, Boolean(it.margin.text));
    const changed = (when) => (last ? `last change ${when(last.at_unix_ms, store.now())}: ${last.text}${last.gap ? `; ${last.gap}` : ""}` : "no change was seen yet");
    text(change, changed(shortly));
    attr(change, "title", changed(moment));
    link(change, last ? to("events", { from: last.at_unix_ms - 5000, to: last.at_unix_ms + 10000 }) : to("events"));
  }

  return { root, draw };
}

// The shell: menu, banners, theme, sign-in, and the page that the address names. It knows no page by name.

import { attr, h, icon, replace, show, text } from "./dom.js";
import { span, time } from "./format.js";
import { PAGES } from "./pages.js";
import { Store } from "./store.js";
import { Actions } from "./actions.js";

const store = new Store();
const actions = new Actions(store);
const context = { store, actions };
const place = (id) => document.getElementById(id);
let current = null;

// --- menu and pages --------------------------------------------------------------------------------------------------

function wanted() {
  const id = location.hash.replace(/^#\/?/, "").split("?")[0];
  return PAGES.find((page) => page.id === id) || PAGES[0];
}

function go(moved) {
  const page = wanted();
  if (current && current.page === page) return;
  if (current && current.view.close) current.view.close();
  const view = page.build(context);
  current = { page, view };
  replace(place("page"), view.root);
  text(place("title"), page.title);
  document.title = `${page.title} · primacy`;
  for (const link of place("nav").querySelectorAll("a")) attr(link, "aria-current", link.dataset.page === page.id ? "page" : null);
  view.update({ whole: true, parts: new Set(Object.keys(store.parts)), events: [], connection: true });
  if (moved) { window.scrollTo(0, 0); place("main").focus({ preventScroll: true }); }
}

function menu() {
  replace(place("nav"), PAGES.map((page) =>
    h("a", { href: `#/${page.id}`, class: "nav-link", data: { page: page.id } }, icon(page.id), h("span", {}, page.title))));
}

// --- head, banners ---------------------------------------------------------------------------------------------------

const where = { name: h("strong"), rest: h("span", { class: "quiet" }), live: h("span", { class: "live", data: { state: "wait" } }) };
const banners = { lost: banner("bad"), source: banner("warn"), alerts: h("div", { role: "alert" }), note: banner("info") };

function banner(tone) {
  const root = h("div", { class: `banner ${tone}`, hidden: true }, h("strong", { role: tone === "info" ? null : "alert" }), " ", h("span"));
  return { root, strong: root.children[0], span: root.children[1] };
}

function say(which, strong, rest) {
  show(which.root, Boolean(strong));
  text(which.strong, strong);
  text(which.span, rest);
}

function head() {
  const it = store.parts.head;
  if (it) {
    text(where.name, it.cluster || "no cluster yet");
    text(where.rest, [it.election, it.strategy, it.mode === "manual" ? "manual mode" : ""].filter(Boolean).join(" · "));
  }
  const state = store.connected ? (store.parts.source && !store.parts.source.ok ? "stale" : "live") : store.heardAt ? "lost" : "wait";
  attr(where.live, "data-state", state);
  text(where.live, { live: "live", stale: "no node answers", lost: "server gone", wait: "connecting" }[state]);
}

function warn() {
  const lost = !store.connected && store.lostAt;
  say(banners.lost, lost ? "The dashboard's server does not answer." : "",
    lost ? `Since ${time(store.lostAt)}, ${span(Date.now() - store.lostAt)} ago. What you see is how things stood then; this page looks again every second.` : "");
  const source = store.parts.source;
  const silent = store.connected && source && !source.ok;
  say(banners.source, silent ? "The cluster is not seen." : "",
    silent ? `${source.text}${source.since_unix_ms ? `, since ${time(source.since_unix_ms)} (${span(store.now() - source.since_unix_ms)})` : ""}.` : "");
  const alerts = store.parts.alerts || [];
  const said = alerts.map((alert) => alert.text).join("\n");
  if (banners.alerts.dataset.said !== said) {
    banners.alerts.dataset.said = said;
    replace(banners.alerts, alerts.map((alert) => h("div", { class: alert.level === "warn" ? "banner warn" : "banner alert" }, h("strong", {}, alert.level === "warn" ? "Divided. " : "Alert. "), h("span", {}, alert.text))));
  }
  const it = store.parts.head;
  say(banners.note, it && it.lab ? "This is a lab." : "", it && it.lab ? `${it.processes} real processes on this machine, profile ${it.profile}; nothing else was touched.` : "");
}

// --- tools -----------------------------------------------------------------------------------------------------------

function theme() {
  const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = h("button", { class: "tool", type: "button" });
  const draw = () => {
    replace(button, icon(dark() ? "sun" : "moon"));
    attr(button, "aria-label", dark() ? "Light colours" : "Dark colours");
    attr(button, "title", dark() ? "Light colours" : "Dark colours");
  };
  button.addEventListener("click", () => {
    const next = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem("primacy-theme", next); } catch (error) { /* a browser that keeps nothing: until the next load */ }
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
  return button;
}

function tools() {
  const sign = h("button", { class: "tool wide", type: "button", onclick: () => actions.sign() });
  const draw = () => {
    const me = actions.me;
    show(sign, me.signed_in || (me.can_sign_in && !me.may_change) || !me.may_read);
    replace(sign, icon("key"), h("span", {}, me.signed_in ? "Sign out" : "Sign in"));
  };
  actions.listeners.add(draw);
  draw();
  replace(place("tools"), where.live, sign, theme());
}

// --- life ------------------------------------------------------------------------------------------------------------

let spoken = "";
function speak() {
  const job = store.parts.job;
  if (job && job.text !== spoken) { spoken = job.text; text(place("spoken"), job.text); }
}

store.listeners.add((news) => {
  head();
  warn();
  speak();
  if (news.connection && store.connected) actions.refresh();
  if (current) current.view.update(news);
});

actions.listeners.add(() => {
  if (current) current.view.update({ whole: true, parts: new Set(Object.keys(store.parts)), events: [], connection: true, me: true });
});

let second = 0;
function frame(now) {
  if (current && current.view.tick && document.visibilityState === "visible") current.view.tick(now);
  if (now - second > 1000) { second = now; warn(); head(); }
  requestAnimationFrame(frame);
}

async function begin() {
  replace(place("where"), where.name, where.rest);
  replace(place("banners"), banners.lost.root, banners.source.root, banners.alerts, banners.note.root);
  menu();
  tools();
  await actions.enter();
  go(false);
  window.addEventListener("hashchange", () => go(true));
  if (actions.me.may_read) store.open();
  else actions.sign();
  actions.listeners.add(() => { if (actions.me.may_read && !store.source) store.open(); });
  requestAnimationFrame(frame);
}

begin();

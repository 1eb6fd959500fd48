// The shell: menu, banners, theme, sign-in, and the page that the address names. It knows no page by name.

import { Actions } from "./actions.js";
import { election, fromSearch, here, to } from "./address.js";
import { attr, h, icon, replace, show, text } from "./dom.js";
import { moment } from "./format.js";
import { PAGES } from "./pages.js";
import { Store } from "./store.js";
import { strip } from "./strip.js";

const store = new Store();
const actions = new Actions(store);
const context = { store, actions };
const stateStrip = strip(store);
const place = (id) => document.getElementById(id);
let current = null;

// --- menu and pages --------------------------------------------------------------------------------------------------

// Some pages are of one election, some of all; and some only where there is something to show.
const offered = () => PAGES.filter((page) => (page.offered || ofOne)(store.parts, Boolean(store.election)));
const ofOne = (parts, chosen) => chosen || !(parts.head && parts.head.many);

function wanted() {
  const id = here().page, there = store.heardAt ? offered() : PAGES;
  return there.find((page) => page.id === id) || there[0] || PAGES[0];
}

const everything = () => ({ whole: true, parts: new Set(Object.keys(store.parts)), events: [], connection: true });

// A page is built when there is something to show: so nothing moves while it loads.
function go(moved) {
  const page = wanted();
  text(place("title"), page.title);
  mark(page);
  stateStrip.draw(page.title);
  if (!store.heardAt) return;
  if (current && current.page === page) { if (current.view.moved) current.view.moved(here().query); return; }
  if (current && current.view.close) current.view.close();
  const view = page.build(context);
  current = { page, view };
  replace(place("page"), view.root);
  view.update(everything());
  if (view.tick) view.tick(performance.now());
  if (moved) { window.scrollTo(0, 0); place("main").focus({ preventScroll: true }); }
}

let menuOf = "";
function menu() {
  const pages = store.heardAt ? offered() : PAGES.filter((page) => !page.offered), key = JSON.stringify([pages.map((page) => page.id), store.election]);
  if (key === menuOf) return;
  menuOf = key;
  replace(place("nav"), pages.map((page) =>
    h("a", { href: to(page.id), class: "nav-link", data: { page: page.id } }, icon(page.id), h("span", {}, page.title))));
  if (current) mark(current.page);
}

// On a phone the menu is longer than the screen: the page that is open is in sight, and what has the focus.
place("nav").addEventListener("focusin", ({ target }) => { if (target instanceof Element) target.scrollIntoView({ block: "nearest", inline: "center" }); });

function mark(page) {
  const nav = place("nav");
  for (const link of nav.querySelectorAll("a")) {
    attr(link, "aria-current", link.dataset.page === page.id ? "page" : null);
    if (link.dataset.page === page.id && nav.scrollWidth > nav.clientWidth) nav.scrollLeft = link.offsetLeft - nav.clientWidth / 2;
  }
}

// Another election is another stream, and nothing is carried over.
function moved() {
  if (election() !== store.election) {
    if (current && current.view.close) current.view.close();
    current = null;
    store.forget();
    replace(place("page"));
    menu();
    if (actions.me.may_read) store.open();
  }
  go(true);
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
    lost ? `Since ${moment(store.lostAt)}. What you see is how things stood then, and nothing can be changed; this page looks again every second.` : "");
  const source = store.parts.source;
  const silent = store.connected && source && !source.ok;
  say(banners.source, silent ? "The cluster is not seen." : "",
    silent ? `${source.text}${source.since_unix_ms ? `, since ${moment(source.since_unix_ms)}` : ""}. What you see is what was last heard.` : "");
  const alerts = store.parts.alerts || [];
  const said = alerts.map((alert) => alert.text).join("\n");
  if (banners.alerts.dataset.said !== said) {
    banners.alerts.dataset.said = said;
    replace(banners.alerts, alerts.map((alert) => h("div", { class: alert.code === "islands" ? "banner bad" : "banner alert" }, h("strong", {}, alert.code === "islands" ? "Divided. " : "Alert. "), h("span", {}, alert.text))));
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
    try { localStorage.setItem("primacy-theme", next); } catch { /* a browser that keeps nothing: until the next load */ }
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
  return button;
}

function tools() {
  const who = h("span", { class: "me", hidden: true });
  const sign = h("button", { class: "tool wide", type: "button", onclick: () => actions.sign() });
  const draw = () => {
    const me = actions.me;
    show(who, Boolean(me.user));
    text(who, me.user ? `${me.user} · ${me.role || "not allowed"}` : "");
    attr(who, "title", me.user ? `Signed in by the proxy as ${me.user}` : null);
    show(sign, me.signed_in || (me.can_sign_in && !me.may_change) || !me.may_read);
    replace(sign, icon("key"), h("span", {}, me.signed_in ? "Sign out" : "Sign in"));
  };
  actions.listeners.add(draw);
  draw();
  replace(place("tools"), where.live, who, sign, theme());
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
  menu();
  if (current && !offered().includes(current.page)) { go(false); return; }
  if (news.connection && store.connected) actions.refresh();
  if (!current) { go(false); return; }
  stateStrip.draw(current.page.title);
  current.view.update(news);
});

actions.listeners.add(() => {
  if (current) current.view.update({ ...everything(), me: true });
});

let second = 0;
function frame(now) {
  if (current && current.view.tick && document.visibilityState === "visible") current.view.tick(now);
  if (now - second > 1000) { second = now; warn(); head(); if (!store.pending) stateStrip.draw(wanted().title); }
  requestAnimationFrame(frame);
}

async function begin() {
  replace(place("where"), where.name, where.rest);
  replace(place("banners"), banners.lost.root, banners.source.root, banners.alerts);
  replace(place("note"), banners.note.root);
  replace(place("strip"), stateStrip.root);
  fromSearch();
  store.forget();
  menu();
  tools();
  await actions.enter();
  go(false);
  window.addEventListener("hashchange", moved);
  if (actions.me.may_read) store.open();
  else actions.sign();
  actions.listeners.add(() => { if (actions.me.may_read && !store.source) store.open(); });
  requestAnimationFrame(frame);
}

begin();

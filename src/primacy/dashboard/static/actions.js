// Everything that changes something: who this browser is, orders, the question before, and what came of it.

import { at } from "./address.js";
import { h } from "./dom.js";

const HEADERS = { "Content-Type": "application/json", "X-Primacy": "1" };
const TOAST_MS = 8000;
const OUTCOMES_MAX = 6;

export class Actions {
  constructor(store) {
    this.store = store;
    this.me = { may_read: true, may_change: false, signed_in: false, can_sign_in: false, lab: false, role: "", user: "" };
    this.listeners = new Set();
    this.outcomes = [];
    this.busy = false;
    this.trusting = false;
  }

  // Nothing can be changed by a page that does not know how things stand.
  get off() { return this.busy || !this.store.connected; }

  tell() { for (const listener of this.listeners) listener(); }

  async refresh() {
    try {
      const answer = await fetch("/dashboard/me", { cache: "no-store" });
      if (answer.ok) { const me = await answer.json(); const changed = JSON.stringify(me) !== JSON.stringify(this.me); this.me = me; if (changed) this.tell(); }
    } catch { /* the server is gone; the banner says so */ }
  }

  // The link that the command printed carries a code behind the #, which no server log and no Referer ever sees.
  async enter() {
    const found = /^#enter=([\w-]{8,100})$/.exec(location.hash);
    if (found) {
      history.replaceState(null, "", location.pathname);
      const said = await this.post("/dashboard/login", { code: found[1] });
      if (said.error) this.toast(said.error, "bad");
    }
    await this.refresh();
    this.tell();
  }

  async post(path, body) {
    try {
      const answer = await fetch(path, { method: "POST", headers: HEADERS, body: JSON.stringify(body) });
      const said = await answer.json();
      return answer.ok ? said : { error: said.error || `refused with ${answer.status}` };
    } catch {
      return { error: "The dashboard's server does not answer; nothing was done." };
    }
  }

  order(body, question) { return this.ordered(at("/dashboard/order"), body, question); }
  cache(body, question) { return this.ordered("/dashboard/cache", body, question); }

  // An order, after the question if it may hurt. The answer is true if it was taken.
  async ordered(path, body, question) {
    if (this.off) return false;
    if (question && !this.trusting && !(await this.ask(question))) return false;
    this.busy = true;
    this.tell();
    const said = await this.post(path, body);
    this.busy = false;
    const outcome = { at: Date.now(), text: said.error || said.said || "done", bad: Boolean(said.error) };
    this.outcomes = [outcome, ...this.outcomes].slice(0, OUTCOMES_MAX);
    this.toast(outcome.text, outcome.bad ? "bad" : "ok");
    if (said.error) await this.refresh();
    this.tell();
    return !said.error;
  }

  ask({ title, text, yes }) {
    const trust = h("input", { type: "checkbox", id: "trust" });
    const lab = this.me.lab && h("label", { class: "check" }, trust, " Do not ask again in this lab");
    return dialog(title, [h("p", {}, text), lab], yes, "danger").then((answer) => {
      if (answer && trust.checked) this.trusting = true;
      return Boolean(answer);
    });
  }

  async sign() {
    if (this.me.signed_in) {
      await this.post("/dashboard/logout", {});
      await this.refresh();
      this.tell();
      return;
    }
    const key = h("input", { type: "password", id: "control-key", autocomplete: "off", spellcheck: "false", required: true });
    const body = [
      h("p", {}, "The control key is in the state folder of the node, in ", h("code", {}, "control.key"), ". ",
        h("code", {}, "primacy dashboard"), " also prints a link that signs in once."),
      h("label", { for: "control-key" }, "Control key"), key,
    ];
    if (!(await dialog("Sign in", body, "Sign in", "primary"))) return;
    const said = await this.post("/dashboard/login", { key: key.value.trim() });
    key.value = "";
    if (said.error) this.toast(said.error, "bad");
    await this.refresh();
    this.tell();
  }

  toast(said, tone) {
    const root = h("div", { class: `toast ${tone}` }, h("span", {}, said),
      h("button", { type: "button", class: "toast-close", "aria-label": "Close", onclick: () => root.remove() }, "×"));
    const home = document.getElementById("toasts");
    home.append(root);
    while (home.children.length > 4) home.firstElementChild.remove();
    setTimeout(() => root.remove(), TOAST_MS);
  }
}

function dialog(title, body, yes, tone) {
  return new Promise((done) => {
    const cancel = h("button", { type: "button", class: "button", value: "" }, "Cancel");
    const go = h("button", { type: "submit", class: `button ${tone}` }, yes);
    const form = h("form", { class: "dialog-form" }, h("h2", { id: "dialog-title" }, title), body, h("div", { class: "dialog-buttons" }, cancel, go));
    const root = h("dialog", { class: "dialog", "aria-labelledby": "dialog-title" }, form);
    let answer = false;
    cancel.addEventListener("click", () => root.close());
    form.addEventListener("submit", (event) => { event.preventDefault(); answer = true; root.close(); });
    root.addEventListener("close", () => { root.remove(); done(answer); });
    document.body.append(root);
    root.showModal();
    (form.querySelector("input[type=password]") || cancel).focus();
  });
}

// The questions, where an order takes something away from somebody.
export const QUESTIONS = {
  stop: (node) => ({ title: `Stop node ${node}?`, text: `Its agent is told to end. If it runs the command, the command is stopped, confirmed gone and released; another node may take over.`, yes: `Stop ${node}` }),
  kill: (node) => ({ title: `Kill node ${node}?`, text: `Its agent gets SIGKILL, as if it had crashed. Its guard ends the command and tells the others.`, yes: `Kill ${node}` }),
  freeze: (node) => ({ title: `Freeze node ${node}?`, text: `Its agent gets SIGSTOP and does nothing any more. If it runs the command, the guard ends the command before the hold has run out.`, yes: `Freeze ${node}` }),
  "step-down": (node) => ({ title: `Have ${node} step down?`, text: `The command is stopped in order, the role released and a leader elected; it may be the same one.`, yes: "Step down" }),
  transfer: (node) => ({ title: `Transfer to ${node}?`, text: `The command is stopped in order on the present holder and the role is handed to ${node}.`, yes: `Transfer to ${node}` }),
  pause: (node) => ({ title: `Pause node ${node}?`, text: `It will not lead until it is resumed; if it leads, it steps down.`, yes: `Pause ${node}` }),
  break: (a, b) => ({ title: `Break the link ${a} – ${b}?`, text: `Nothing that they send each other arrives any more, until it is mended.`, yes: "Break the link" }),
  "one-way": (a, b) => ({ title: `Make the link ${a} – ${b} one-way?`, text: `${b} still hears ${a}; ${a} does not hear ${b} any more, until it is mended.`, yes: "Make it one-way" }),
  partition: (what) => ({ title: "Divide the network?", text: `${what}. Only nodes on the same side hear each other, until all is healed.`, yes: "Divide" }),
  picture: (title, what, yes) => ({ title, text: what, yes }),
  approve: (node, term) => ({ title: `Approve ${node} for term ${term}?`, text: `It may then start the command.`, yes: "Approve" }),
};


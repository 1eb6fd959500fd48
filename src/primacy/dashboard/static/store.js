// What the server sends, kept: the parts of the view model and the newest events. One stream for the whole page.

import { at, election } from "./address.js";

const EVENTS_MAX = 3000;
const SILENT_MS = 3000;

export class Store {
  constructor() {
    this.listeners = new Set();
    this.pending = null;
    this.source = null;
    this.added = 0;
    this.forget();
  }

  // Nothing of one election is ever shown as another's.
  forget() {
    this.election = election();
    this.parts = {};
    this.events = [];
    this.connected = false;
    this.lostAt = 0;
    this.stoodStill = 0;
    this.skew = 0;
    this.arrived = 0;
    this.heardAt = 0;
    this.holds = new Map();
  }

  open() {
    this.close();
    this.source = new EventSource(at("/dashboard/stream"));
    const of = this.election;
    this.source.addEventListener("frame", (message) => { if (of === this.election) this.take(message.data); });
    this.source.addEventListener("error", () => this.lost());
    if (!this.watch) this.watch = setInterval(() => this.look(), 1000);
  }

  close() {
    if (this.source) this.source.close();
    this.source = null;
  }

  // The browser tries again by itself unless it was refused; then we do.
  look() {
    const now = performance.now();
    if (this.connected && now - this.heardAt > SILENT_MS) this.lost();
    if (this.source && this.source.readyState === EventSource.CLOSED) this.open();
    if (!this.connected && this.heardAt && now - this.heardAt > SILENT_MS && now - (this.triedAt || 0) > SILENT_MS) {
      this.triedAt = now;
      this.open();
    }
  }

  lost() {
    if (this.connected || !this.lostAt) { this.lostAt = Date.now(); this.stoodStill = this.now(); }
    this.connected = false;
    this.tell({ connection: true });
  }

  take(data) {
    const frame = JSON.parse(data);
    const news = { whole: frame.whole, parts: new Set(Object.keys(frame.parts)), events: frame.events, connection: !this.connected };
    if (frame.whole) { this.parts = {}; this.events = []; }
    Object.assign(this.parts, frame.parts);
    for (const name of frame.gone) { delete this.parts[name]; news.parts.add(name); }
    for (const row of frame.events) this.events.push(asEvent(row));
    if (this.events.length > EVENTS_MAX) this.events.splice(0, this.events.length - EVENTS_MAX);
    this.added += frame.events.length;
    this.connected = true;
    this.lostAt = 0;
    this.stoodStill = 0;
    this.skew = frame.at_unix_ms - Date.now();
    this.heardAt = this.arrived = performance.now();
    for (const name of news.parts) if (name.startsWith("node:") && this.parts[name]) this.sampleHold(this.parts[name]);
    this.tell(news);
  }

  // Several frames before the next picture become one piece of news.
  tell(news) {
    if (!this.pending) {
      this.pending = { whole: false, parts: new Set(), events: [], connection: false };
      requestAnimationFrame(() => {
        const told = this.pending;
        this.pending = null;
        for (const listener of this.listeners) listener(told);
      });
    }
    const sum = this.pending;
    if (news.whole) { sum.whole = true; sum.events = []; }
    for (const name of news.parts || []) sum.parts.add(name);
    for (const row of news.events || []) sum.events.push(asEvent(row));
    if (sum.events.length > EVENTS_MAX) sum.events.splice(0, sum.events.length - EVENTS_MAX);
    sum.connection = sum.connection || Boolean(news.connection);
  }

  get order() { return this.parts.order || []; }
  node(name) { return this.parts[`node:${name}`]; }
  // Nothing is counted on while nobody says how things stand.
  now() { return this.lostAt && !this.connected && this.stoodStill ? this.stoodStill : Date.now() + this.skew; }

  // A holder renews several times between two looks of ours, and others hear of it about once a second. So a sample
  // stands for a moment before it runs down by our own clock, and the best of the last ones is shown: the bar is calm
  // while the hold is renewed, and at most that moment late when it is not.
  sampleHold(node) {
    const now = performance.now(), grace = node.there !== "here" ? 0 : node.told === "itself" ? 300 : 1300;
    const before = (this.holds.get(node.node) || []).filter((sample) => now - sample.at < 2000);
    const lost = !node.hold_left_ms;
    this.holds.set(node.node, [...(lost ? [] : before), { left: node.hold_left_ms, at: now, grace }].slice(-12));
  }

  holdLeft(name) {
    if (!this.connected) return 0;
    const now = performance.now();
    let best = 0;
    for (const sample of this.holds.get(name) || []) best = Math.max(best, sample.left - Math.max(0, now - sample.at - sample.grace));
    return best;
  }
}

function asEvent(row) {
  return Array.isArray(row) ? { at: row[0], node: row[1], term: row[2], code: row[3], text: row[4], value: row[5] } : row;
}

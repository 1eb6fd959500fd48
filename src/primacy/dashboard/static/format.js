// Numbers and times as people read them. Pure.

const whole = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "2-digit" });
const shortDay = new Intl.DateTimeFormat("en-GB", { month: "short", day: "2-digit" });
const named = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });

export const number = (value) => whole.format(value);
export const ms = (value) => `${whole.format(Math.round(value))} ms`;
export const zone = () => (named.formatToParts(Date.now()).find((part) => part.type === "timeZoneName") || {}).value || "local time";
export const time = (unixMs) => clock.format(unixMs);
export const timeMs = (unixMs) => `${clock.format(unixMs)}.${String(Math.floor(unixMs % 1000)).padStart(3, "0")}`;
export const date = (unixMs) => day.format(unixMs);
// A moment that somebody may copy into a report: with its date and its zone.
export const moment = (unixMs) => `${day.format(unixMs)} ${clock.format(unixMs)} ${zone()}`;
// Where a line is short: without the day while it is today, and with the year if it is another one.
export function shortly(unixMs, nowMs, ofDay = time) {
  if (day.format(unixMs) === day.format(nowMs)) return ofDay(unixMs);
  const sameYear = new Date(unixMs).getFullYear() === new Date(nowMs).getFullYear();
  return `${(sameYear ? shortDay : day).format(unixMs)} ${ofDay(unixMs)}`;
}
export const dayTimeMs = (unixMs) => `${shortDay.format(unixMs)} ${timeMs(unixMs)}`;

export function span(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} days`;
}

export function took(milliseconds) {
  if (milliseconds < 0) return "";
  return milliseconds < 10000 ? `+${whole.format(milliseconds)} ms` : `+${span(milliseconds)}`;
}

const WORDS = {
  stopped: ["stopped", "down"], killed: ["killed", "down"], ended: ["ended by itself", "down"], restarting: ["restarting", "starting"],
  starting: ["starting", "starting"], frozen: ["frozen", "frozen"], never: ["never heard", "unknown"],
};

// One word for how a node stands, and the tone of its chip. What is not known has a tone of its own.
export function standing(node) {
  if (WORDS[node.there]) return { word: WORDS[node.there][0], tone: WORDS[node.there][1] };
  if (node.there === "silent") return { word: `silent for ${span(node.silent_s * 1000)}`, tone: "unknown" };
  return { word: node.role || "starting", tone: node.role === "was leader" ? "past" : node.role || "starting" };
}

export const TONES = { acts: "ok", unknown: "unknown" };

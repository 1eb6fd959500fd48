// Numbers and times as people read them. Pure.

const whole = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "2-digit" });

export const number = (value) => whole.format(value);
export const ms = (value) => `${whole.format(Math.round(value))} ms`;
export const time = (unixMs) => clock.format(unixMs);
export const timeMs = (unixMs) => `${clock.format(unixMs)}.${String(Math.floor(unixMs % 1000)).padStart(3, "0")}`;
export const date = (unixMs) => day.format(unixMs);

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

// One word for how a node stands, and the tone of its chip.
export function standing(node) {
  if (node.there === "stopped") return { word: "stopped", tone: "down" };
  if (node.there === "frozen") return { word: "frozen", tone: "frozen" };
  if (node.there === "never") return { word: "never heard", tone: "down" };
  if (node.there === "silent") return { word: `silent for ${span(node.silent_s * 1000)}`, tone: "down" };
  return { word: node.role || "starting", tone: node.role || "starting" };
}

export function workloadWord(node) {
  if (node.there !== "here" && node.there !== "frozen") return "not known";
  if (node.workload_kind === "none") return "no workload";
  return node.workload || "stopped";
}

export const ACTING = ["starting", "running", "stopping"];

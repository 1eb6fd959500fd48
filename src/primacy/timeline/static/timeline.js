// Draws a timeline (docs/timeline.md): lanes, faults, chain, brush, playhead, and the list of what is in view. It imports
// nothing and asks nobody, so that the dashboard serves it as a module and a file holds it whole. Text is set as text.

const SCHEMA = 1;
const AXIS = 24, FAULT_ROWS = 4, FAULT_ROW = 17, BRUSH = 40, EDGE = 9, LIST_MAX = 60, DRAWN_MAX = 4000, LEAST_SPAN = 5, TICKS_MAX = 200;
const SPEEDS = [["0.1", "0.1×"], ["1", "1×"], ["10", "10×"]];
const ROLES = ["leader", "candidate", "follower", "starting", "recovering", "paused", "observer"];
const COLOURS = ["ink", "soft", "line", "lane", "panel", "work", "onwork", "maybe", "bad", "fault", "faultink", "net", "netink", "message", "routine", "mark", "calm", "pick", "hold", "onleader", ...ROLES];
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5, 1728e5, 432e6, 864e6, 2592e6, 7776e6, 31536e6];
const TIME_MAX = 8.64e15; // what a date can hold
const NAME_FONT = "600 12.5px system-ui, sans-serif";
const dark = matchMedia("(prefers-color-scheme: dark)");
const CHAIN_COLOURS = ["leader", "work", "candidate", "recovering", "observer", "paused", "pick"];

function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}

// Where in sorted rows a time begins.
function first(rows, at, key) { let a = 0, b = rows.length; while (a < b) { const m = (a + b) >> 1; if (key(rows[m]) < at) a = m + 1; else b = m; } return a; }

// Names that do not fit, cut in the middle so that they differ; if they then do not, without what they share in front.
function shortened(names, fits) {
  const cut = (name, share, front = "") => {
    const all = [...name];
    if (fits(front + name)) return front + name;
    for (let keep = all.length - 1; keep > 1; keep -= 1) {
      const head = Math.round(keep * share), text = `${front}${all.slice(0, head).join("")}…${all.slice(all.length - keep + head).join("")}`;
      if (fits(text)) return text;
    }
    return `${front}${all[0] || ""}`;
  };
  const ways = [0.5, 0.33, 0.67, 0.15, 0.85].map((share) => names.map((name) => cut(name, share)));
  const best = ways.reduce((a, b) => (new Set(b).size > new Set(a).size ? b : a));
  return names.map((name, n) => {
    const alike = names.filter((_, other) => best[other] === best[n]);
    if (alike.length < 2) return best[n];
    let same = 0;
    while (same < name.length && alike.every((each) => each[same] === name[same])) same += 1;
    return cut(name.slice(same), 0.5, "…");
  });
}

const whole = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const short = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "2-digit" });
const date = new Intl.DateTimeFormat("en-GB", { month: "short", day: "2-digit" });
export const lasted = (ms) => (ms < 10000 ? `${whole.format(Math.round(ms))} ms` : ms < 120000 ? `${(ms / 1000).toFixed(1)} s` : ms < 7200000 ? `${Math.round(ms / 60000)} min` : `${(ms / 3600000).toFixed(1)} h`);
export const about = (ms) => (ms === null ? "±?" : ms < 1 ? "" : `± ${lasted(ms)}`);

// A time in an address; null if none stands there. 0 is one: where a trial begins.
export const timeIn = (query, name) => (query.get(name) && Number.isFinite(Number(query.get(name))) ? Number(query.get(name)) : null);

// `options`: moved(state) after every change by a person; now() where the timeline is live; node(name) when a lane is chosen.
export function timeline(options = {}) {
  const brush = make("canvas", { class: "tl-brush", "aria-hidden": "true" });
  const lanes = make("canvas", { class: "tl-lanes", tabindex: 0, role: "img", "aria-label": "Lanes of the nodes over time. Arrow keys move, plus and minus zoom, n and p step through the events, Space pauses; the events in view are listed below." });
  const tip = make("div", { class: "tl-tip", hidden: true });
  const live = options.now ? button("Live", () => follow(), "l") : null;
  const pause = button("Pause", () => space(), "Space");
  const speed = make("select", { class: "tl-control", "aria-label": "Speed" }, SPEEDS.map(([value, words]) => make("option", { value }, words)));
  speed.value = "1";
  const boxes = { messages: box("messages", true), routine: box("heartbeats", false), faults: box("faults", true) };
  const said = make("span", { class: "tl-span" }), picked = make("p", { class: "tl-picked", role: "status" });
  const outside = make("p", { class: "tl-outside", role: "status", hidden: true }, "Nothing is known of this time. “All” shows what is known.");
  const notes = make("p", { class: "tl-notes" }), legend = make("div", { class: "tl-legend" });
  const heading = make("h2", { class: "tl-listed" }, "Events in view"), list = make("tbody");
  const root = make("div", { class: "tl" },
    make("div", { class: "tl-bar", role: "toolbar", "aria-label": "View" }, live, pause, speed,
      button("−", () => zoom(1 / 0.6), "-", "Zoom out"), button("+", () => zoom(0.6), "+", "Zoom in"), button("All", () => all(), "Home"),
      button("◀", () => step(-1), "p", "Previous event"), button("▶", () => step(1), "n", "Next event"),
      Object.values(boxes).map((each) => each.root), said),
    make("div", { class: "tl-frame" }, brush, lanes, tip), outside, picked, notes, legend, heading,
    make("div", { class: "tl-scroll" }, make("table", { class: "tl-list" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Time"), make("th", { scope: "col" }, "What happened"))), list)));
  const css = {}; let D = null, from = 0, to = 1, at = null, mode = options.now ? "live" : "still", span = 60000, chosen = "", marks = [], dirty = true, drawnAt = 0, playedAt = 0, listedAt = 0, listed = "", named = false, picks = null;
  let LABEL = 96, LANE = 60, wide = 0, rows = 0, global = [], own = [], height = 100, labelled = "", laneNames = [], coloured = "";

  function button(words, act, key, name) { return make("button", { type: "button", class: "tl-control", title: key ? `${name || words} (${key})` : name, "aria-label": name, onclick: () => { if (D) act(); } }, words); }
  function box(words, on) { const input = make("input", { type: "checkbox", checked: on, onchange: () => soon() }); return { input, root: make("label", { class: "tl-check" }, input, ` ${words}`) }; }

  // --- what is drawn -----------------------------------------------------------------------------------------------------

  function set(document) {
    if (document.timeline > SCHEMA) throw new Error(`this timeline is of schema ${document.timeline}; this page draws ${SCHEMA}`);
    const begins = !D;
    D = document;
    global = D.faults.filter((each) => each[0] < 0);
    own = D.faults.filter((each) => each[0] >= 0);
    const ends = [];
    for (const fault of global) { let row = ends.findIndex((end) => end <= fault[1]); if (row < 0) row = ends.length < FAULT_ROWS ? ends.length : FAULT_ROWS - 1; ends[row] = fault[2]; fault.row = row; }
    rows = ends.length;
    for (const run of D.runs) run.bad = D.at_most_one && D.overlaps.some((each) => (each[2] === run[0] || each[3] === run[0]) && run[1] < each[1] && run[2] > each[0]);
    marks = D.decisions.map((each) => ({ t: each[0], n: each[1], code: each[2], text: each[3], bad: false }))
      .concat(D.violations.map((each) => ({ t: each[0], n: -1, code: "violation", text: `${each[1]}: ${each[2]}`, bad: true }))).sort((a, b) => a.t - b.t);
    boxes.messages.root.hidden = !D.messages.length;
    boxes.routine.root.hidden = !D.routine.length;
    boxes.faults.root.hidden = !D.faults.length;
    notes.textContent = [...D.notes, D.left_out.length ? `Left out: ${D.left_out.join(", ")}.` : ""].filter(Boolean).join(" ");
    notes.hidden = !notes.textContent; if (begins && mode !== "live" && !named) { from = D.from_ms; to = D.to_ms; }
    words();
    soon();
  }

  const now = () => (options.now ? Math.max(D.to_ms, options.now()) : D.to_ms), last = (t) => (t >= D.to_ms && options.now && mode === "live" ? now() : t);
  const width = () => wide, plot = () => Math.max(50, width() - LABEL - 6);
  const x = (t) => LABEL + ((t - from) / (to - from)) * plot(), time = (px) => from + ((px - LABEL) / plot()) * (to - from);
  const top = () => AXIS + rows * FAULT_ROW + 6;
  const laneY = (n) => top() + n * LANE, roleY = (n) => laneY(n) + LANE * 0.24, runY = (n) => laneY(n) + LANE * 0.58, BAND = () => LANE * 0.27;
  const chainY = () => laneY(D.nodes.length);

  function moment(t, exact) {
    if (D.axis !== "unix") return `${(t / 1000).toFixed(3)} s`;
    return `${clock.format(t)}${exact === false ? "" : `.${String(Math.floor(((t % 1000) + 1000) % 1000)).padStart(3, "0")}`}`;
  }

  const severalDays = () => D.axis === "unix" && day.format(from) !== day.format(to);
  const dayAnd = (t) => `${severalDays() ? `${date.format(t)} ` : ""}${moment(t)}`;

  // Asked again only when what they depend on has changed: to ask makes the browser look through its styles.
  function colours() { const key = `${JSON.stringify(document.documentElement.dataset)} ${dark.matches}`, style = getComputedStyle(root); if (key !== coloured) for (const each of COLOURS) css[each] = style.getPropertyValue(`--tl-${each}`).trim(); coloured = key; }

  function paint(canvas, high) {
    const ratio = window.devicePixelRatio || 1, w = Math.round(wide * ratio), h = Math.round(high * ratio);
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; canvas.style.height = `${high}px`; }
    const c = canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, wide, high);
    c.font = "11px system-ui, sans-serif";
    return c;
  }

  function bar(c, t0, t1, y, h, colour) {
    const a = Math.max(LABEL, x(t0)), b = Math.min(width() - 4, x(t1));
    if (b < LABEL || a > width()) return null;
    c.fillStyle = colour;
    c.fillRect(a, y, Math.max(1, b - a), h);
    return [a, Math.max(1, b - a)];
  }

  function fitting(c, text, at, y, room) {
    if (room < 22) return false;
    let s = text;
    while (s.length > 2 && c.measureText(s === text ? s : `${s}…`).width > room - 4) s = s.slice(0, -1);
    if (s.length < 3 && s !== text) return false; else c.fillText(s === text ? s : `${s}…`, at, y);
    return true;
  }

  function draw() {
    if (!D || !root.isConnected || !(wide ||= lanes.clientWidth)) return;
    dirty = false;
    drawnAt = performance.now();
    colours();
    labels(lanes.getContext("2d"), ...(width() < 560 ? [64, 116] : [108, 236]));
    LANE = D.nodes.length > 12 ? 40 : D.nodes.length > 7 ? 50 : 60;
    height = laneY(D.nodes.length) + (D.chain.length ? 46 : 0) + 6;
    const c = paint(lanes, height), w = width();
    D.nodes.forEach((node, n) => { if (n % 2 === 0) { c.fillStyle = css.lane; c.fillRect(0, laneY(n), w, LANE); } if (node.name === chosen) { c.fillStyle = css.pick; c.fillRect(0, laneY(n), 3, LANE); } });
    if (D.calm_ms !== null) bar(c, D.calm_ms, D.to_ms, AXIS, height - AXIS, css.calm);
    drawAxis(c, w);
    if (boxes.faults.input.checked) drawFaults(c);
    for (const each of D.roles) if (last(each[2]) > from && each[1] < to) (each[3] === "down" ? drawDown : each[3] === "unknown" ? drawNotKnown : drawRole)(c, each);
    for (const each of D.holds) if (each[2] > from && each[1] < to) drawHold(c, each);
    for (const each of D.runs) if (last(each[2]) > from && each[1] < to) drawRun(c, each);
    if (D.at_most_one) for (const each of D.overlaps) if (each[1] > from && each[0] < to) { c.globalAlpha = 0.18; bar(c, each[0], each[1], AXIS, height - AXIS, css.bad); c.globalAlpha = 1; }
    for (const each of D.gaps) if (each[1] > from && each[0] < to) drawGap(c, each);
    let thinned = 1;
    if (boxes.routine.input.checked) thinned = Math.max(thinned, drawMessages(c, D.routine, css.routine, 0.45));
    if (boxes.messages.input.checked) thinned = Math.max(thinned, drawMessages(c, D.messages, css.message, 0.75));
    drawMarks(c);
    drawUnread(c);
    if (D.chain.length) drawChain(c, w);
    drawHead(c);
    drawLabels(c);
    drawBrush();
    outside.hidden = to >= D.from_ms && from <= now();
    const dated = (t) => (D.axis === "unix" ? `${day.format(t)} ` : "");
    said.textContent = `${dated(from)}${moment(from)} to ${severalDays() ? dated(to) : ""}${moment(to)}${thinned > 1 ? `, one of ${thinned} messages drawn` : ""}`;
    if (mode !== "play" || drawnAt - listedAt > 200) { listedAt = drawnAt; drawList(); } // a list that changes with every picture is not read
  }

  // How wide the names of the lanes are, and what of each is seen; measured again only when something has changed.
  function labels(c, least, most) {
    const names = D.nodes.map((node) => node.name), key = JSON.stringify([least, ...names]);
    if (key === labelled) return;
    labelled = key;
    c.font = NAME_FONT;
    LABEL = Math.min(most, Math.max(least, ...names.map((name) => Math.ceil(c.measureText(name).width) + 18)));
    laneNames = shortened(names, (text) => c.measureText(text).width <= LABEL - 14);
  }

  function drawAxis(c, w) {
    const raw = (to - from) / (plot() / (w < 560 ? 74 : 96));
    const far = 10 ** Math.ceil(Math.log10(raw)), step = STEPS.find((each) => each >= raw) || far;
    const zone = D.axis === "unix" ? new Date(from).getTimezoneOffset() * 60000 : 0;
    c.strokeStyle = css.line; c.fillStyle = css.soft; c.lineWidth = 1;
    for (let t = Math.ceil((from - zone) / step) * step + zone, many = 0; t <= to && many < TICKS_MAX; t += step, many += 1) {
      const px = Math.round(x(t)) + 0.5;
      c.beginPath(); c.moveTo(px, AXIS - 6); c.lineTo(px, height); c.stroke();
      const words = D.axis === "unix" ? (step >= 864e5 || (step >= 60000 && short.format(t) === "00:00") ? date.format(t) : step >= 60000 ? short.format(t) : moment(t, step < 1000)) : step >= 1000 ? `${t / 1000} s` : moment(t);
      if (px < w - 52) c.fillText(words, px + 3, AXIS - 9);
    }
    if (D.calm_ms !== null && D.calm_ms > from && D.calm_ms < to) { c.fillStyle = css.work; c.fillRect(x(D.calm_ms), AXIS - 5, 1.5, height); }
  }

  // Words of one row never stand on each other: the first has the room up to the next.
  function drawFaults(c) {
    const free = new Map();
    const label = (row, key, y, colour) => {
      const a = Math.max(LABEL, x(row[1])) + 3, end = Math.min(width(), x(last(row[2])));
      if (a < (free.get(key) || 0)) return;
      c.fillStyle = colour;
      if (fitting(c, row[3], a, y, end - a)) free.set(key, a + Math.min(end - a, c.measureText(row[3]).width) + 4);
    };
    for (const each of own) if (last(each[2]) >= from && each[1] <= to) { bar(c, each[1], last(each[2]), laneY(each[0]) + 1, LANE - 2, css.fault); label(each, each[0], laneY(each[0]) + 10, css.faultink); }
    for (const each of global) if (last(each[2]) >= from && each[1] <= to) { const y = AXIS + 2 + each.row * FAULT_ROW; bar(c, each[1], last(each[2]), y, FAULT_ROW - 3, css.net); label(each, -1 - each.row, y + 11, css.netink); }
  }

  function drawRole(c, row) {
    const drawn = bar(c, row[1], last(row[2]), roleY(row[0]), BAND(), css[row[3]] || css.follower);
    if (!drawn || LANE < 48) return;
    c.fillStyle = row[3] === "leader" ? css.onleader : css.ink;
    const room = drawn[1] - 4;
    if (!fitting(c, row[4] && row[4] < 1e9 ? `${row[3]} · term ${row[4]}` : row[3], drawn[0] + 4, roleY(row[0]) + BAND() / 2 + 4, room) && row[4] && row[4] < 1e9) fitting(c, String(row[4]), drawn[0] + 4, roleY(row[0]) + BAND() / 2 + 4, room + 8);
  }
  function drawDown(c, row) {
    const a = Math.max(LABEL, x(row[1])), b = Math.min(width(), x(last(row[2]))), y = roleY(row[0]) + BAND() / 2;
    c.strokeStyle = css.bad; c.lineWidth = 1; c.setLineDash([2, 4]); c.beginPath(); c.moveTo(a, y); c.lineTo(b, y); c.stroke(); c.setLineDash([]);
    if (row[1] >= from) { c.fillStyle = css.bad; c.fillText("✕", x(row[1]) - 4, y + 4); }
  }

  // Not heard any more, or another leads by now: no colour of a role.
  function drawNotKnown(c, row) {
    const a = Math.max(LABEL, x(row[1])), b = Math.min(width() - 4, x(last(row[2]))), y = roleY(row[0]) + BAND() / 2;
    c.strokeStyle = css.soft; c.lineWidth = 1; c.setLineDash([1, 5]); c.beginPath(); c.moveTo(a, y); c.lineTo(b, y); c.stroke(); c.setLineDash([]);
    c.fillStyle = css.soft;
    if (LANE >= 48) fitting(c, "not known", a + 4, y - 3, b - a - 4);
  }

  // Sure: full. Not reported: hatched. Two at once: red.
  function drawRun(c, row) {
    const y = runY(row[0]), high = BAND(), end = last(row[2]), sure = row[6] === "open" ? end : Math.min(row[5], row[2]);
    const drawn = bar(c, row[1], sure, y, high, css.work);
    if (end > sure) {
      const a = Math.max(LABEL, x(sure)), b = Math.min(width() - 4, x(end));
      if (b > a) {
        c.save(); c.beginPath(); c.rect(a, y, b - a, high); c.clip(); c.strokeStyle = css.maybe; c.lineWidth = 1.2; c.beginPath();
        for (let px = a - high; px < b; px += 6) { c.moveTo(px, y + high); c.lineTo(px + high, y); }
        c.stroke(); c.restore(); c.strokeStyle = css.maybe; c.lineWidth = 1; c.strokeRect(a + 0.5, y + 0.5, b - a - 1, high - 1);
      }
    }
    if (row.bad) for (const each of D.overlaps) if ((each[2] === row[0] || each[3] === row[0]) && row[1] < each[1] && row[2] > each[0]) bar(c, Math.max(row[1], each[0]), Math.min(row[2], each[1]), y - 2, high + 4, css.bad);
    if (drawn && LANE >= 48) { c.fillStyle = css.onwork; fitting(c, row[3] ? `token ${row[3]}` : row[4] ? `run ${row[4]}` : "runs", drawn[0] + 4, y + high / 2 + 4, drawn[1] - 4); }
  }

  function drawHold(c, row) {
    const y = runY(row[0]) + BAND() + 3.5, a = Math.max(LABEL, x(row[1])), b = Math.min(width() - 4, x(row[2]));
    if (b <= a) return;
    c.strokeStyle = css.hold; c.lineWidth = 1.5; c.beginPath(); c.moveTo(a, y); c.lineTo(b, y);
    if (row[2] <= to) { c.moveTo(b, y - 4); c.lineTo(b, y + 3); }
    c.stroke();
  }

  // In the lane of the node that ran next: from the end of the one before to its start.
  function drawGap(c, row) {
    const next = D.runs.find((each) => each[1] === row[1]), n = next ? next[0] : 0, y = runY(n) + BAND() / 2;
    const a = Math.max(LABEL, x(row[0])), b = Math.min(width() - 4, x(row[1]));
    c.strokeStyle = css.soft; c.lineWidth = 1; c.setLineDash([1, 2]); c.beginPath(); c.moveTo(a, y); c.lineTo(b, y); c.stroke(); c.setLineDash([]);
    const words = `${lasted(row[1] - row[0])} ${about(row[2])}`.trim(), wide = c.measureText(words).width;
    if (x(row[1]) < LABEL || x(row[1]) > width()) return;
    c.fillStyle = css.ink;
    const left = b - a > wide + 8 ? (a + b) / 2 - wide / 2 : a - wide - 5;
    if (left > LABEL && !D.runs.some((each) => each[0] === n && x(each[1]) < left + wide && x(last(each[2])) > left)) { c.fillStyle = css.panel; c.globalAlpha = 0.75; c.fillRect(left - 2, y - 7, wide + 4, 14); c.globalAlpha = 1; c.fillStyle = css.ink; c.fillText(words, left, y + 4); }
  }

  function drawMessages(c, rows, colour, alpha) {
    const a = first(rows, from - 2000, (each) => each[0]), b = first(rows, to, (each) => each[0]), every = Math.max(1, Math.ceil((b - a) / DRAWN_MAX)), half = BAND() / 2;
    c.lineWidth = 0.8; c.globalAlpha = alpha * Math.max(0.3, Math.min(1, 400 / Math.max(1, b - a)));
    for (let i = a; i < b; i += every) {
      const m = rows[i], lost = m[3] < 0, x0 = x(m[0]), y0 = roleY(m[1]) + half, y1 = roleY(m[2]) + half;
      c.strokeStyle = lost ? css.bad : colour; c.beginPath(); c.moveTo(x0, y0);
      if (lost) { const y = y0 + Math.sign(y1 - y0) * Math.min(14, Math.abs(y1 - y0)); c.lineTo(x0, y); c.moveTo(x0 - 2.5, y - 2.5); c.lineTo(x0 + 2.5, y + 2.5); c.moveTo(x0 + 2.5, y - 2.5); c.lineTo(x0 - 2.5, y + 2.5); } else c.lineTo(x(m[0] + m[3]), y1);
      c.stroke();
    }
    c.globalAlpha = 1;
    return every;
  }

  function drawMarks(c) {
    for (let i = first(marks, from, (each) => each.t); i < marks.length && marks[i].t <= to; i += 1) {
      const m = marks[i], px = x(m.t);
      if (m.bad) { c.fillStyle = css.bad; c.fillRect(px - 0.75, AXIS, 1.5, height); c.beginPath(); c.moveTo(px, AXIS); c.lineTo(px - 6, AXIS - 10); c.lineTo(px + 6, AXIS - 10); c.fill(); }
      else if (m.n >= 0) { c.fillStyle = css.mark; c.fillRect(px - 0.75, roleY(m.n) - 7, 1.5, 6); }
    }
  }

  function drawUnread(c) { // of the span, only a part may be read: of the rest the number of events is known
    for (const [a, b] of D.known_from_ms === null || D.known_from_ms === undefined ? [] : [[Math.max(from, D.from_ms), Math.min(to, D.known_from_ms)], [Math.max(from, D.known_to_ms), D.known_to_ms < D.to_ms ? Math.min(to, D.to_ms) : from]]) {
      const many = D.counts.reduce((sum, [t, n]) => sum + (t >= a - 300000 && t < b ? n : 0), 0), left = Math.max(LABEL, x(a)) + 4;
      if (b <= a || x(b) - x(a) < 3 || !bar(c, a, b, AXIS, height - AXIS, css.calm)) continue;
      c.fillStyle = css.soft; fitting(c, many ? `about ${whole.format(many)} events here: zoom in to read them` : "nothing happened here", left, top() + 12, x(b) - left);
    }
  }

  function drawChain(c, w) {
    const y = chainY() + 6, rows = D.chain, a = first(rows, from, (each) => each[0]), b = first(rows, to, (each) => each[0]);
    c.strokeStyle = css.line; c.beginPath(); c.moveTo(0, y - 5.5); c.lineTo(w, y - 5.5); c.stroke();
    const known = rows.map((each) => each[3]).sort((one, other) => one - other), usual = known[known.length >> 1] || 0;
    for (let i = a; i < b; i += 1) {
      const each = rows[i];
      c.fillStyle = css[CHAIN_COLOURS[each[1] % CHAIN_COLOURS.length]];
      c.fillRect(x(each[0]) - 0.75, y, 1.5, 15);
    }
    let free = 0;
    for (let i = a; i <= b && i < rows.length; i += 1) {
      const each = rows[i], px = x(each[0]), left = x(each[0] - each[3]), words = lasted(each[3]);
      if (each[3] <= 2.5 * usual || px < LABEL || left > w) continue;
      c.strokeStyle = css.bad; c.lineWidth = 1.2; c.beginPath(); c.moveTo(Math.max(LABEL, left), y + 19.5); c.lineTo(Math.min(w, px), y + 19.5); c.stroke();
      const at = Math.max(LABEL + 2, Math.min(w - 60, (left + px) / 2 - c.measureText(words).width / 2));
      if (at > free) { c.fillStyle = css.ink; c.fillText(words, at, y + 32); free = at + c.measureText(words).width + 6; }
    }
  }

  function drawHead(c) {
    const head = mode === "live" ? now() : at;
    if (head === null || head < from || head > to) return;
    const px = x(head);
    c.strokeStyle = css.pick; c.lineWidth = 1.5; c.beginPath(); c.moveTo(px, AXIS - 2); c.lineTo(px, height); c.stroke();
    c.fillStyle = css.pick; c.beginPath(); c.moveTo(px - 5, AXIS - 8); c.lineTo(px + 5, AXIS - 8); c.lineTo(px, AXIS - 1); c.fill();
  }

  function drawLabels(c) {
    c.fillStyle = css.panel; c.fillRect(0, 0, LABEL - 2, AXIS - 2);
    D.nodes.forEach((node, n) => {
      c.fillStyle = n % 2 === 0 ? css.lane : css.panel; c.fillRect(3, laneY(n), LABEL - 5, LANE);
      c.font = NAME_FONT; c.fillStyle = css.ink; c.fillText(laneNames[n], 8, laneY(n) + LANE / 2 - (LANE < 48 ? 2 : 4));
      c.font = "10.5px system-ui, sans-serif"; c.fillStyle = css.soft;
      const moved = node.offset_ms ? `${node.offset_ms > 0 ? "+" : "−"}${lasted(Math.abs(node.offset_ms))} ` : "";
      const words = node.uncertainty_ms === null ? "clock ±?" : node.uncertainty_ms ? `${moved}± ${lasted(Math.ceil(node.uncertainty_ms))}` : moved;
      if (words) fitting(c, words, 8, laneY(n) + LANE / 2 + 11, LABEL - 10);
    });
    c.font = "11px system-ui, sans-serif"; c.fillStyle = css.soft;
    if (rows) { c.fillStyle = css.panel; c.fillRect(0, AXIS, LABEL - 2, rows * FAULT_ROW + 2); c.fillStyle = css.soft; c.fillText("network", 8, AXIS + 13); }
    if (D.chain.length) { c.fillStyle = css.panel; c.fillRect(0, chainY() + 1, LABEL - 2, 44); c.fillStyle = css.soft; c.fillText("chain", 8, chainY() + 18); }
  }

  const spanTo = () => (mode === "live" ? now() : Math.max(D.to_ms, Math.min(to, now() + (now() - D.from_ms) * 0.5)));
  const brushX = (t) => LABEL + ((t - D.from_ms) / Math.max(1, spanTo() - D.from_ms)) * (wide - LABEL - 6);
  const brushTime = (px) => D.from_ms + ((px - LABEL) / (wide - LABEL - 6)) * (spanTo() - D.from_ms);
  function drawBrush() {
    const c = paint(brush, BRUSH), high = (BRUSH - 8) / Math.max(1, D.nodes.length);
    c.fillStyle = css.mark; c.globalAlpha = 0.35; for (const [t, n] of D.counts || []) { const tall = Math.min(BRUSH - 6, 3 + 7 * Math.log10(1 + n)), a = Math.max(LABEL, brushX(t)); c.fillRect(a, BRUSH - 3 - tall, Math.max(1, brushX(t + 300000) - a - 0.5), tall); } c.globalAlpha = 1;
    for (const each of D.runs) { c.fillStyle = each[6] === "unknown" ? css.maybe : css.work; c.fillRect(brushX(each[1]), 4 + each[0] * high, Math.max(1, brushX(last(each[2])) - brushX(each[1])), Math.max(1, high - 1)); }
    for (const each of D.faults) { c.fillStyle = each[0] < 0 ? css.netink : css.faultink; c.fillRect(brushX(each[1]), BRUSH - 3, Math.max(1.5, brushX(last(each[2])) - brushX(each[1])), 2); }
    for (const each of D.violations) { c.fillStyle = css.bad; c.fillRect(brushX(each[0]) - 1, 0, 2, BRUSH); }
    c.fillStyle = css.soft; c.fillText("all", 8, BRUSH / 2 + 4);
    const a = Math.max(LABEL, brushX(from)), b = Math.min(wide - 3, brushX(to));
    c.strokeStyle = css.leader; c.lineWidth = 1.5; c.strokeRect(a, 1, Math.max(4, b - a), BRUSH - 2);
    c.fillStyle = css.leader; c.fillRect(a - 2, BRUSH / 2 - 7, 4, 14); c.fillRect(Math.max(a + 4, b) - 2, BRUSH / 2 - 7, 4, 14);
    if (at !== null && mode !== "live") { c.fillStyle = css.pick; c.fillRect(brushX(at) - 0.75, 0, 1.5, BRUSH); }
  }

  function drawList() {
    const begin = first(marks, from, (each) => each.t), end = first(marks, to + 1, (each) => each.t), many = end - begin;
    let shown = marks.slice(begin, end);
    const only = D.nodes.some((node) => node.name === chosen) ? chosen : ""; // an address may name a node that is not there
    if (only) shown = shown.filter((each) => each.bad || each.n < 0 || D.nodes[each.n].name === only);
    const of = shown.length, here = at === null || mode === "live" ? -1 : shown.findIndex((each) => each.t >= at);
    const begins = Math.max(0, here < 0 ? of - LIST_MAX : Math.min(here - 15, of - LIST_MAX));
    shown = shown.slice(begins, begins + LIST_MAX);
    const key = `${shown.length ? `${shown[0].t} ${shown[shown.length - 1].t} ${shown[shown.length - 1].text}` : ""} ${of} ${many} ${only} ${mode === "live" ? "" : at} ${picks ? picks.text : ""} ${severalDays()}`;
    if (key === listed) return;
    listed = key;
    heading.textContent = `${whole.format(of)} ${of === 1 ? "event" : "events"} in view${only ? ` of ${only}` : ""}${of > shown.length ? `, ${shown.length} listed` : ""}`;
    const scroller = list.parentElement.parentElement;
    list.replaceChildren(...shown.map((each) => make("tr", { class: each.bad ? "bad" : isPicked(each) || (picks === null && each.t === at && mode !== "live") ? "picked" : null },
      make("td", {}, make("button", { type: "button", class: "tl-moment", onclick: () => go(each) }, dayAnd(each.t))), make("td", {}, each.text))));
    const row = list.querySelector(".picked");
    if (row) scroller.scrollTop = Math.max(0, row.offsetTop - scroller.clientHeight / 2);
    else if (mode === "live") scroller.scrollTop = scroller.scrollHeight;
  }

  function words() {
    const used = new Set(D.roles.map((each) => each[3])), items = ROLES.filter((each) => used.has(each)).map((each) => [each, each]);
    if (used.has("unknown")) items.push(["role not known: not heard", "unknown"]);
    if (D.runs.length) items.push(["workload runs", "work"]);
    if (D.runs.some((each) => each[5] < each[2] && each[6] !== "open")) items.push(["may have run: its end was not reported, or late", "maybe"]);
    if (D.holds.length) items.push(["hold", "hold"]);
    if (D.overlaps.length && D.at_most_one) items.push(["two at once", "bad"]);
    if (own.length) items.push(["fault of a node", "fault"]);
    if (global.length) items.push(["fault of the network", "net"]);
    if (D.messages.length) items.push(["message", "message"], ["lost message", "bad"]);
    if (D.calm_ms !== null) items.push(["after the faults", "calm"]);
    if (legend.dataset.key === JSON.stringify(items)) return;
    legend.dataset.key = JSON.stringify(items);
    legend.replaceChildren(...items.map(([text, colour]) => make("span", {}, make("i", { "data-colour": colour }), text)));
  }

  // --- moving ------------------------------------------------------------------------------------------------------------

  function soon() { dirty = true; if (!options.ticked) requestAnimationFrame(() => { if (dirty) draw(); }); }
  function told() { soon(); if (options.moved) options.moved(state()); }
  const exact = (t) => (D && D.axis === "trial" ? Math.round(t * 10) / 10 : Math.round(t));
  const state = () => ({ from: exact(from), to: exact(to), at: mode === "live" || at === null ? null : exact(at), node: chosen, mode });

  function show(a, b, keepsMode) {
    const least = D.from_ms - Math.max(LEAST_SPAN, (b - a) * 0.5), most = now() + (b - a) * 0.5;
    const wide = Math.max(LEAST_SPAN, Math.min(b - a, (now() - D.from_ms) * 1.5 + LEAST_SPAN));
    if (Math.abs(wide - (b - a)) > 1e-6) { const middle = (a + b) / 2; a = middle - wide / 2; b = middle + wide / 2; }
    if (a < least) { b += least - a; a = least; }
    if (b > most) { a -= b - most; b = most; }
    from = exact(a); to = exact(b); // as the address says it
    if (!keepsMode && mode === "live") halt(now());
  }
  function halt(moment) { mode = "still"; if (moment !== undefined) at = moment; face(); }
  function face() {
    pause.textContent = mode === "still" ? "Play" : "Pause";
    if (live) live.setAttribute("aria-pressed", mode === "live" ? "true" : "false");
    pause.setAttribute("aria-label", pause.textContent);
  }
  function follow() { if (!options.now) return; span = Math.min(Math.max(span, 1000), 3600000); mode = "live"; at = null; picked.textContent = ""; face(); told(); }
  function space() {
    if (mode === "still") { if (at === null || at >= now()) at = Math.max(D.from_ms, from); mode = "play"; playedAt = performance.now(); face(); told(); return; }
    halt(mode === "live" ? now() : at); told();
  }
  function zoom(factor, px) { const middle = px === undefined ? (at !== null && at > from && at < to && mode !== "live" ? at : (from + to) / 2) : time(px); if (mode === "live") { span = Math.max(LEAST_SPAN, (to - from) * factor); told(); return; } show(middle - (middle - from) * factor, middle + (to - middle) * factor); told(); }
  function pan(share) { const by = share * (to - from); show(from + by, to + by); told(); }
  function all() { halt(at === null ? undefined : at); show(D.from_ms, now(), true); told(); }

  // Several events may have one time: which of them was chosen. Every answer of the server makes new marks.
  const isPicked = (each) => picks !== null && mode !== "live" && at === picks.t && each.t === picks.t && each.n === picks.n && each.text === picks.text;
  function go(mark) {
    halt(mark.t);
    picks = mark;
    if (mark.t < from || mark.t > to) { const half = (to - from) / 2; show(mark.t - half, mark.t + half); }
    picked.textContent = `${dayAnd(mark.t)}  ${mark.text}`;
    told();
  }
  function step(way) {
    const here = mode === "live" ? now() : at === null ? (way > 0 ? from : to) : at, known = marks.findIndex(isPicked);
    const i = known >= 0 ? known + way : way > 0 ? first(marks, here + 0.5, (each) => each.t) : first(marks, here - 0.5, (each) => each.t) - 1;
    if (marks[i]) go(marks[i]);
  }
  function violation() {
    const bad = marks.filter((each) => each.bad), here = mode === "live" || at === null ? -Infinity : at;
    if (!bad.length) { picked.textContent = "No violation in this timeline."; return; }
    go(bad.find((each) => each.t > here + 0.5) || bad[0]);
  }

  // Called with every picture while the page is seen.
  function tick(stamp) {
    if (!D) return;
    if (mode === "live") { to = now() + span * 0.04; from = to - span; if (stamp - drawnAt > 90) draw(); return; }
    if (mode === "play") {
      at += (stamp - playedAt) * Number(speed.value);
      playedAt = stamp;
      const end = now();
      if (at >= end) { if (options.now) { follow(); return; } at = end; halt(at); told(); }
      if (at > to || at < from) { const wide = to - from; from = at - wide * 0.1; to = from + wide; }
      if (options.played) options.played(at);
      draw();
      return;
    }
    if (dirty) draw();
  }

  const keys = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), Home: all, " ": space, n: () => step(1), p: () => step(-1), v: violation, l: follow, m: () => boxes.messages.input.click(), b: () => boxes.routine.input.click(), f: () => boxes.faults.input.click() };
  function key(event) {
    if (!D || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key] || event.defaultPrevented) return;
    const on = event.target instanceof Element ? event.target : document.body;
    if (on.closest("input:not([type=checkbox]), select, textarea, dialog, [role=button], .knot") || (event.key === " " && on.closest("button, summary, input, a"))) return;
    keys[event.key]();
    event.preventDefault();
  }
  document.addEventListener("keydown", key);

  // A drag moves the time, a click sets the playhead, two fingers zoom. What goes up or down scrolls the page.
  const fingers = new Map();
  let drag = null, pinch = null;
  lanes.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event.clientX);
    if (fingers.size === 2) { const [a, b] = [...fingers.values()]; pinch = { wide: Math.max(10, Math.abs(a - b)), middle: time((a + b) / 2 - lanes.getBoundingClientRect().left), from, to }; drag = null; return; }
    if (event.button) return;
    drag = { x: event.clientX, from, to, moved: false };
    lanes.setPointerCapture(event.pointerId);
  });
  lanes.addEventListener("pointermove", (event) => {
    const box = lanes.getBoundingClientRect();
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, event.clientX);
    if (pinch && fingers.size === 2) { const [a, b] = [...fingers.values()], factor = pinch.wide / Math.max(10, Math.abs(a - b)); show(pinch.middle - (pinch.middle - pinch.from) * factor, pinch.middle + (pinch.to - pinch.middle) * factor); soon(); return; }
    if (drag) {
      if (Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
      if (drag.moved) { const by = ((drag.x - event.clientX) / plot()) * (drag.to - drag.from); show(drag.from + by, drag.to + by); tip.hidden = true; lanes.classList.add("drag"); soon(); }
      return;
    }
    const hit = D && under(event.clientX - box.left, event.clientY - box.top);
    if (hit) say(hit, event.clientX - box.left, event.clientY - box.top); else tip.hidden = true;
  });
  lanes.addEventListener("pointerup", (event) => {
    const box = lanes.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    if (drag && !drag.moved && D) clicked(px, py);
    else if (drag || pinch) told();
    ended(event);
  });
  function ended(event) { fingers.delete(event.pointerId); drag = null; if (fingers.size < 2) pinch = null; lanes.classList.remove("drag"); }
  lanes.addEventListener("pointercancel", ended);
  lanes.addEventListener("pointerleave", () => { tip.hidden = true; });
  lanes.addEventListener("wheel", (event) => {
    if (!D) return;
    if (event.ctrlKey) zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 100))), event.clientX - lanes.getBoundingClientRect().left);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 1000);
    else return;
    event.preventDefault();
  }, { passive: false });

  function laneAt(py) { const n = Math.floor((py - top()) / LANE); return py >= top() && n < D.nodes.length ? n : -1; }
  function clicked(px, py) {
    const n = laneAt(py);
    if (px < LABEL) { choose(n >= 0 && D.nodes[n].name !== chosen ? D.nodes[n].name : ""); return; }
    const near = marks.filter((each) => Math.abs(x(each.t) - px) < 5 && (each.bad || each.n === n)).sort((a, b) => Math.abs(x(a.t) - px) - Math.abs(x(b.t) - px))[0];
    if (near) { go(near); return; }
    halt(time(px)); picks = null; picked.textContent = "";
    told();
  }
  function choose(name) { chosen = name; told(); }

  function under(px, py) {
    if (px < LABEL) { const n = laneAt(py), node = n >= 0 && D.nodes[n]; return node && `${node.name}: ${clockWords(node)}`; }
    const t = time(px), n = laneAt(py), inside = (each) => t >= each[1] && t <= last(each[2]);
    const near = n >= 0 && marks.find((each) => each.n === n && Math.abs(x(each.t) - px) < 4);
    if (near && py < roleY(n)) return `${moment(near.t)}  ${near.text}`;
    if (n < 0) {
      const row = Math.floor((py - AXIS - 2) / FAULT_ROW), fault = global.find((each) => each.row === row && inside(each));
      if (fault) return `${fault[3]}, ${lasted(last(fault[2]) - fault[1])}`;
      const sign = D.chain.length && py > chainY() && D.chain.find((each) => Math.abs(x(each[0]) - px) < 3);
      return sign ? `${moment(sign[0])}  ${D.nodes[sign[1]].name} signed, token ${sign[2]}, ${lasted(sign[3])} after the one before` : null;
    }
    const run = D.runs.find((each) => each[0] === n && inside(each)), role = D.roles.find((each) => each[0] === n && inside(each)), fault = own.find((each) => each[0] === n && inside(each)), name = D.nodes[n].name;
    if (run && py >= runY(n)) return `${name} ${t > run[5] && run[6] !== "open" ? "may have run the workload: its end was not reported, or late" : "runs the workload"}${run[3] ? `, token ${run[3]}` : ""}${run[4] ? `, run ${run[4]}` : ""}, ${lasted(last(run[2]) - run[1])}${run.bad ? ", while another ran it too" : ""}`;
    if (role && role[3] === "unknown") return `${name}: its role is not known, it was not heard${fault ? `; ${fault[3]}` : ""}, ${lasted(last(role[2]) - role[1])}`;
    if (role) return `${name} is ${role[3]}${role[4] && role[4] < 1e9 ? ` in term ${role[4]}` : ""}${fault ? `; ${fault[3]}` : ""}, ${lasted(last(role[2]) - role[1])}`;
    return fault ? `${name}: ${fault[3]}` : null;
  }
  function clockWords(node) {
    const how = { axis: "the clock of this axis", machine: "the same clock as the others", read: "its clock was read", order: "its clock is known from the order of events", unknown: "how far its clock is off is not known" }[node.clock] || node.clock;
    return `${how}${node.offset_ms ? `; ${lasted(Math.abs(node.offset_ms))} ${node.offset_ms > 0 ? "ahead" : "behind"}, corrected` : ""}${node.uncertainty_ms ? `; right within ${lasted(Math.ceil(node.uncertainty_ms))}` : ""}`;
  }
  function say(words, px, py) { tip.textContent = words; tip.hidden = false; tip.style.left = `${Math.max(4, Math.min(px + 12, width() - tip.offsetWidth - 4))}px`; tip.style.top = `${py + BRUSH + 16}px`; }

  let brushed = null;
  brush.addEventListener("pointerdown", (event) => {
    if (!D) return;
    const px = event.clientX - brush.getBoundingClientRect().left, a = brushX(from), b = brushX(to);
    brush.setPointerCapture(event.pointerId);
    if (Math.abs(px - a) < EDGE && px < b) brushed = "from";
    else if (Math.abs(px - b) < EDGE) brushed = "to";
    else { brushed = { by: px > a && px < b ? time_(px) - (from + to) / 2 : 0 }; brushTo(px); }
  });
  const time_ = (px) => brushTime(px);
  function brushTo(px) {
    const t = time_(px);
    if (brushed === "from") show(Math.min(t, to - LEAST_SPAN), to);
    else if (brushed === "to") show(from, Math.max(t, from + LEAST_SPAN));
    else { const half = (to - from) / 2, middle = t - brushed.by; show(middle - half, middle + half); }
    soon();
  }
  brush.addEventListener("pointermove", (event) => { if (brushed && D) brushTo(event.clientX - brush.getBoundingClientRect().left); });
  for (const kind of ["pointerup", "pointercancel"]) brush.addEventListener(kind, () => { if (brushed) { brushed = null; told(); } });

  // Both canvases are as wide. To ask that in the middle of a picture would have the browser lay out the whole page.
  const resized = new ResizeObserver(() => { wide = lanes.clientWidth; soon(); });
  resized.observe(lanes); face();
  return {
    root, set, tick, state, choose, draw: soon,
    get at() { return D && mode === "live" ? now() : at; },
    // To a moment, as an address names it. Nothing named: live where that is possible.
    goTo(asked) {
      const time = (t) => (Number.isFinite(t) && Math.abs(t) <= TIME_MAX / 2 ? t : null), begin = time(asked.from), end = time(asked.to);
      chosen = asked.node || "";
      if (begin !== null || end !== null || time(asked.at) !== null) {
        mode = "still";
        at = time(asked.at);
        from = begin !== null ? begin : end !== null ? end - span : at - span / 2;
        to = end !== null && end > from ? end : from + span;
        named = true;
        picks = null;
      } else if (options.now) { mode = "live"; at = null; }
      face();
      soon();
    },
    close() { document.removeEventListener("keydown", key); resized.disconnect(); },
  };
}

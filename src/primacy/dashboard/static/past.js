// The cluster at one moment of a timeline, in the form in which the map is drawn. Pure: no element is touched.

const DOWN = { killed: "killed", stopped: "stopped", restarted: "restarting", frozen: "frozen" };

const at = (rows, node, moment) => rows.find((row) => row[0] === node && row[1] <= moment && moment < row[2]) || null;

// Whom each node followed, as it said last. Backwards: a range has thousands of decisions, and this is asked for every picture.
function leaders(document, moment) {
  const found = new Map();
  for (let i = document.decisions.length - 1; i >= 0 && found.size < document.nodes.length; i -= 1) {
    const [when, node, code, text] = document.decisions[i];
    if (when > moment || node < 0 || found.has(node)) continue;
    const name = document.nodes[node].name;
    if (code === "follows") found.set(node, (new RegExp(`^${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")} follows (.*) \\(`).exec(text) || [])[1] || "");
    else if (code === "elected" || code === "lease-taken") found.set(node, name);
    else if (["leader-silent", "leader-left", "majority-lost", "step-down", "transfer", "released", "campaigns", "started", "lease-lost"].includes(code)) found.set(node, "");
  }
  return found;
}

function nodeOf(document, place, moment, leader) {
  const name = document.nodes[place].name, role = at(document.roles, place, moment) || document.roles.findLast((row) => row[0] === place && row[2] <= moment);
  const fault = document.faults.find((row) => row[0] === place && row[1] <= moment && moment < row[2] && DOWN[row[3]]);
  const run = document.runs.find((row) => row[0] === place && row[1] <= moment && (moment < row[2] || row[6] === "open"));
  const hold = document.holds.find((row) => row[0] === place && row[1] <= moment && moment < row[2]);
  const there = fault ? DOWN[fault[3]] : !role ? "never" : role[3] === "down" ? "stopped" : role[3] === "unknown" ? "silent" : "here";
  const acts = !run ? "no" : moment <= run[5] || run[6] === "open" ? "acts" : "unknown";
  return {
    node: name, there, role: role && role[3] !== "down" && role[3] !== "unknown" ? role[3] : "", term: role && role[4] < 1e9 ? role[4] : 0, leader: leader || "", leads: there === "here" && Boolean(role) && role[3] === "leader",
    acts, work: acts === "acts" ? "running" : acts === "unknown" ? "not known, was running" : "stopped", workload_kind: "process", token: run ? run[3] : 0, silent_s: role && role[3] === "unknown" ? Math.round((moment - role[1]) / 1000) : 0,
    hold_left_ms: hold ? hold[2] - moment : 0,
  };
}

function linksOf(document, nodes, moment) {
  const cut = new Set();
  for (const [node, since, until, others] of document.links) {
    if (since > moment || moment >= until) continue;
    for (const [other, how] of others) {
      if (how !== "in") cut.add(`${node} ${other}`);
      if (how !== "out") cut.add(`${other} ${node}`);
    }
  }
  const found = [];
  nodes.forEach((one, a) => nodes.forEach((two, b) => {
    if (b <= a) return;
    const ab = !cut.has(`${a} ${b}`), ba = !cut.has(`${b} ${a}`), link = { a: one.node, b: two.node };
    if (!ab && !ba) link.state = "cut";
    else if (ab !== ba) Object.assign(link, { state: "one-way", from: ab ? one.node : two.node, to: ab ? two.node : one.node });
    else link.state = one.there === "here" && two.there === "here" ? "open" : "down";
    found.push(link);
  }));
  return found;
}

// What the map asks of a store: `order`, `node(name)`, `parts.links`, `holdLeft(name)`.
export function past(document, moment, head) {
  const follows = leaders(document, moment), nodes = document.nodes.map((_, place) => nodeOf(document, place, moment, follows.get(place))), byName = new Map(nodes.map((node) => [node.node, node]));
  return {
    order: nodes.map((node) => node.node), parts: { links: linksOf(document, nodes, moment), head }, connected: false,
    node: (name) => byName.get(name), holdLeft: (name) => (byName.get(name) || {}).hold_left_ms || 0,
  };
}

// The report of a drill: what was promised and measured, around the one timeline. Joined to timeline.js and file.js.

const report = found.drill;
const count = (value) => Math.round(value).toLocaleString("en-US");
const time = (ms) => new Date(ms).toISOString().slice(11, 23);
const SHOWN = 200; // gaps in the list: the timeline has all of them

function show(at) {
  view.goTo({ from: at - 4000, to: at + 4000, at });
  place("timeline").scrollIntoView({ block: "center" });
}

function moment(at, text) {
  return at ? make("button", { type: "button", class: "tl-control", onclick: () => show(at) }, text) : make("span", {}, text);
}

function mark(verdict) {
  const kind = verdict === "kept" ? "kept" : verdict === "not kept" ? "broken" : "open";
  return make("span", { class: `mark ${kind}` }, verdict);
}

function table(id, heads, rows) {
  const cell = (name) => (value) => make(name, {}, value);
  place(id).replaceChildren(
    make("thead", {}, make("tr", {}, ...heads.map(cell("th")))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell("td"))))),
  );
}

function head() {
  const bad = report.summary.not_kept > 0;
  place("verdict").textContent = report.kept ? "all kept" : bad ? "not kept" : "not judged";
  place("verdict").classList.toggle("bad", bad);
  place("verdict").classList.toggle("plain", !bad && !report.kept);
  place("sentence").textContent = report.verdict;
  const said = report.summary;
  const gap = said.longest_gap_ms === null ? "not measured" : `${count(said.longest_gap_ms)} ms`;
  const figures = [
    ["played", said.played], ["kept", said.kept], ["not kept", said.not_kept], ["not judged", said.not_judged],
    ["two at once", Math.max(said.overlaps, said.violations)], ["longest gap between a confirmed end and the next start", gap],
    ["began", report.began], ["ended", report.ended], ["of", `${report.subject.on} ${report.subject.where}`], ["primacy", report.version],
  ];
  place("figures").replaceChildren(...figures.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));
}

function kept() {
  const rows = report.done.flatMap((each) => each.findings.map((one) => [
    `${each.scenario} (${each.fault})${each.attempt > 1 ? `, attempt ${each.attempt}` : ""}`,
    moment(one.at_ms || each.from_unix_ms, one.what), one.promised, one.measured, mark(one.verdict), one.why,
  ]));
  table("kept", ["fault", "what", "promised", "measured", "", ""], rows);
}

function done() {
  place("done").replaceChildren(...report.done.map((each) => {
    const repeated = each.attempt > 1 ? `, attempt ${each.attempt}` : "";
    const words = `${each.scenario} (${each.fault})${repeated}: ${each.title}${each.node ? `: ${each.node}` : ""}. ${each.outcome}${each.reason ? `: ${each.reason}` : ""}.`;
    const late = each.late_ms ? [make("li", {}, `this machine was late by ${count(each.late_ms)} ms at most`)] : [];
    return make("li", {}, words, make("ul", {}, ...each.steps.map((step) => make("li", {}, `${time(step.at_unix_ms)} `, step.text)), ...late));
  }));
}

function gaps() {
  const name = (at) => found.nodes[at].name;
  const two = found.overlaps.map((each) => make("li", { class: "two" }, moment(each[0], `${time(each[0])} ${name(each[2])} and ${name(each[3])} ran at once, for ${count(each[1] - each[0])} ms`)));
  const seen = found.violations.filter((each) => each[1] !== "overlap").map((each) => make("li", { class: "two" }, `${each[1]}: ${each[2]}`));
  const none = found.gaps.slice(0, SHOWN).map((each) => make("li", {}, moment(each[0], `${time(each[0])} nobody ran for ${count(each[1] - each[0])} ms${each[2] > 1 ? ` ± ${count(each[2])} ms` : ""}`)));
  const all = [...two, ...seen, ...none];
  place("gaps").replaceChildren(...(all.length ? all : [make("li", {}, "no end was confirmed, and no two ran at once")]));
}

function contract() {
  const spoken = [
    ["at most one", report.contract.at_most_one ? "yes" : "no"], ["latest stop", report.contract.latest_stop_ms], ["earliest start", report.contract.earliest_start_ms],
    ["margin", report.contract.margin_ms], ["stall that costs nothing", report.contract.tolerated_stall_ms],
    ["failover after sudden silence, expected", report.contract.failover_expected_ms], ["at worst", report.contract.failover_worst_ms],
    ["failover after a clean release, expected", report.contract.release_expected_ms], ["at worst", report.contract.release_worst_ms],
    ["planned stop", report.contract.stop_planned_ms],
  ];
  table("contract", ["promise", "ms"], spoken.map(([name, value]) => [name, typeof value === "number" ? count(value) : value]));
}

head();
kept();
table("plan", ["scenario", "fault", "what is done", "what must happen"], report.plan.map((each) => [each.scenario, each.fault, each.title, each.must]));
done();
gaps();
contract();

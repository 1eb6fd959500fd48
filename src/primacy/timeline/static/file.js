// A file that holds a timeline: the words around it, and the moment that the address names. Joined to timeline.js.

const found = JSON.parse(document.getElementById("data").textContent);
const place = (id) => document.getElementById(id);
let keeping = 0;
const view = timeline({ ticked: true, moved: (state) => { clearTimeout(keeping); keeping = setTimeout(() => keep(state), 200); } });

function keep(state) {
  const said = Object.entries({ from: state.from, to: state.to, at: state.at === null ? "" : state.at, node: state.node }).filter(([, value]) => value !== "");
  history.replaceState(null, "", `#/timeline?${new URLSearchParams(said)}`);
}

function around() {
  const bad = found.violations.length;
  place("title").textContent = found.title;
  const calm = found.kind === "trial" ? "no violation" : found.overlaps.length ? "two at once, which this strategy allows" : "no overlap was seen";
  place("verdict").textContent = bad ? `${bad} ${bad > 1 ? "violations" : "violation"}` : calm;
  place("verdict").classList.toggle("bad", bad > 0);
  place("verdict").classList.toggle("plain", !bad && found.kind !== "trial"); // that none was seen proves nothing
  place("figures").replaceChildren(...found.figures.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  place("violations").replaceChildren(...found.violations.slice(0, 5).map((each) => make("li", {}, make("button", { type: "button", class: "tl-control", onclick: () => view.goTo({ from: each[0] - 4000, to: each[0] + 4000, at: each[0] }) }, `${each[1]}: ${each[2]}`))));
}

function wanted() {
  const query = new URLSearchParams(location.hash.replace(/^#[^?]*\??/, ""));
  if (query.size) view.goTo({ from: timeIn(query, "from"), to: timeIn(query, "to"), at: timeIn(query, "at"), node: query.get("node") || "" });
}

around();
place("timeline").replaceChildren(view.root);
view.set(found);
wanted();
window.addEventListener("hashchange", wanted);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.draw());
(function frame(now) { view.tick(now); requestAnimationFrame(frame); })(performance.now());

// What the page shows, at every frame; a sample is kept when it differs from the one before, with the last frame in which
// it was seen. Beside it, when the page stood still: a browser that draws no frame, and a server whose answer is late,
// show no news meanwhile, whatever the page would do with them.
() => {
  const LONG_MS = 50, BEFORE_MS = 5000;
  const stood = [];
  window.samples = [];
  let before = "", drawn = Date.now(), asked = 0;
  const note = (from, to) => { if (to - from > LONG_MS) stood.push([from, to]); };
  // When the last change was, in ms since 1970: its link leads to the events from so long before it.
  const changed = () => {
    const link = document.querySelector(".strip-change"), from = link && new URLSearchParams((link.getAttribute("href") || "").split("?")[1]).get("from");
    return from ? Number(from) + BEFORE_MS : 0;
  };
  const look = () => {
    const now = Date.now();
    note(drawn, now);
    drawn = now;
    const all = (selector) => [...document.querySelectorAll(selector)];
    const seen = (element) => element.getAttribute("visibility") !== "hidden";
    const strip = document.querySelector(".strip"), holder = document.querySelector(".strip-holder");
    const node = document.querySelector(".strip-node"), margin = document.querySelector(".strip-margin");
    const sample = {
      acts: all(".map .knot").filter((e) => seen(e.querySelector(".knot-work")) && e.querySelector(".knot-work").dataset.acts === "acts").map((e) => e.dataset.node),
      leaders: all('.map .knot[data-tone="leader"]').map((e) => e.dataset.node),
      level: strip ? strip.dataset.level : "", holder: holder ? holder.dataset.level : "", margin: margin ? margin.dataset.level : "",
      node: node && !node.hidden ? node.textContent : "", said: holder ? holder.innerText : "", title: document.title,
      change: (document.querySelector(".strip-change") || {}).textContent || "", changed: changed(),
    };
    const key = JSON.stringify(sample);
    if (key !== before) { before = key; window.samples.push({ at: now, ...sample }); }
    window.samples.at(-1).until = now;
    requestAnimationFrame(look);
  };
  const ask = async () => {
    asked = Date.now();
    await fetch("/healthz", { cache: "no-store" }).catch(() => {});
    note(asked, Date.now());
    asked = 0;
    setTimeout(ask, LONG_MS);
  };
  window.stood = () => [...stood, [drawn, Date.now()], ...(asked ? [[asked, Date.now()]] : [])];
  look();
  ask();
}

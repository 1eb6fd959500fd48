// What the page shows, at every frame; a sample is kept when it differs from the one before.
() => {
  window.samples = [];
  let before = "";
  const look = () => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const seen = (element) => element.getAttribute("visibility") !== "hidden";
    const strip = document.querySelector(".strip"), holder = document.querySelector(".strip-holder");
    const node = document.querySelector(".strip-node"), margin = document.querySelector(".strip-margin");
    const sample = {
      acts: all(".map .knot").filter((e) => seen(e.querySelector(".knot-work")) && e.querySelector(".knot-work").dataset.acts === "acts").map((e) => e.dataset.node),
      leaders: all('.map .knot[data-tone="leader"]').map((e) => e.dataset.node),
      level: strip ? strip.dataset.level : "", holder: holder ? holder.dataset.level : "", margin: margin ? margin.dataset.level : "",
      node: node && !node.hidden ? node.textContent : "", said: holder ? holder.innerText : "", title: document.title,
      change: (document.querySelector(".strip-change") || {}).textContent || "",
    };
    const key = JSON.stringify(sample);
    if (key !== before) { before = key; window.samples.push({ at: Date.now(), ...sample }); }
    requestAnimationFrame(look);
  };
  look();
}

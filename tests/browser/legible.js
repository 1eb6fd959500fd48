// Every visible text of the page with the contrast that it has, by WCAG 2: those that have too little are returned.
// What stands behind a text is asked from the browser, at the text's own place, so that drawings count as well.
() => {
  const parse = (value) => {
    const found = /rgba?\(([^)]+)\)/.exec(value);
    if (!found) return null;
    const parts = found[1].split(/[ ,/]+/).map(Number);
    return { r: parts[0], g: parts[1], b: parts[2], a: parts.length > 3 ? parts[3] : 1 };
  };
  const over = (top, under) => ({
    r: top.r * top.a + under.r * (1 - top.a), g: top.g * top.a + under.g * (1 - top.a), b: top.b * top.a + under.b * (1 - top.a), a: 1,
  });
  const light = ({ r, g, b }) => {
    const part = (value) => { const v = value / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const opacity = (element) => { let all = 1; for (let e = element; e; e = e.parentElement) all *= Number(getComputedStyle(e).opacity); return all; };
  const drawn = (element) => element instanceof SVGElement && !(element instanceof SVGSVGElement);
  const ground = (element) => {
    const style = getComputedStyle(element);
    if (!drawn(element)) return parse(style.backgroundColor);
    const fill = parse(style.fill);
    return fill && !(element instanceof SVGGElement) && !(element instanceof SVGTextElement) ? { ...fill, a: fill.a * Number(style.fillOpacity) } : null;
  };
  const behind = (element, x, y) => {
    const stack = document.elementsFromPoint(x, y);
    const from = stack.findIndex((each) => each === element || each.contains(element));
    if (from < 0) return null;
    const unasked = [];  // a place does not answer for these, and they are painted all the same
    for (let e = element; e; e = e.parentElement) if (getComputedStyle(e).pointerEvents === "none") unasked.push(e);
    let found = { r: 255, g: 255, b: 255, a: 1 };
    for (const each of [...unasked, ...stack.slice(from)].reverse()) {
      const colour = ground(each);
      if (colour && colour.a > 0) found = over({ ...colour, a: colour.a * (each.contains(element) ? 1 : opacity(each)) }, found);
    }
    return found;
  };
  const bad = [];
  let seen = 0;
  const judge = (element, colour, words, box) => {
    const style = getComputedStyle(element);
    const x = Math.min(Math.max(box.left + box.width / 2, 1), innerWidth - 2), y = box.top + box.height / 2;
    if (y < 0 || y >= innerHeight) { bad.push({ words, why: "outside of the picture" }); return; }
    const ground = behind(element, x, y);
    if (!ground) return;  // something lies over it
    seen += 1;
    const paint = over({ ...colour, a: colour.a * opacity(element) }, ground);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const grounds = [ground];
    const outline = drawn(element) && style.paintOrder.startsWith("stroke") && parse(style.stroke);
    if (outline && outline.a > 0) grounds.push(over(outline, ground));
    const least = Math.min(...grounds.map((each) => contrast(paint, each)));
    if (least < (large ? 3 : 4.5)) bad.push({ words, contrast: Number(least.toFixed(2)), size, class: element.getAttribute("class") });
  };
  const shown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !element.closest(".unseen, .skip:not(:focus), :disabled, noscript, head");
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const modal = document.querySelector("dialog[open]");
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement, words = node.data.trim();
    if (!words || !shown(element) || ["SCRIPT", "STYLE", "OPTION", "title"].includes(element.tagName)) continue;
    if (modal && !modal.contains(element)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = [...range.getClientRects()].find((each) => each.width > 1 && each.height > 1);
    if (!box) continue;
    judge(element, parse(drawn(element) ? getComputedStyle(element).fill : getComputedStyle(element).color), words.slice(0, 60), box);
  }
  for (const field of document.querySelectorAll("input:not([type=checkbox]), select")) {
    if (!shown(field) || (modal && !modal.contains(field))) continue;
    const empty = field.tagName === "INPUT" && !field.value;
    if (empty && !field.placeholder) continue;
    judge(field, parse(getComputedStyle(field, empty ? "::placeholder" : null).color), field.id, field.getBoundingClientRect());
  }
  return { seen, bad };
}

// Everything that is seen and green, by its hue: text, ground, border, stroke, fill.
() => {
  const green = (said) => {
    const found = /rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)/.exec(said || "");
    if (!found || Number(found[4] ?? 1) < .05) return false;
    const [r, g, b] = found.slice(1, 4).map((part) => Number(part) / 255), most = Math.max(r, g, b), least = Math.min(r, g, b);
    if (most - least < .04 || most !== g) return false;
    const hue = 60 * (2 + (b - r) / (most - least)), light = (most + least) / 2;
    return hue > 80 && hue < 175 && (most - least) / (1 - Math.abs(2 * light - 1) || 1) > .2;
  };
  const texts = (e) => [...e.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility({ visibilityProperty: true }) || e.closest(".legend, .tl-legend")) continue; // which explains it
    const style = getComputedStyle(e), drawn = e instanceof SVGElement;
    const looks = [texts(e) && style.color, style.backgroundColor, style.borderLeftStyle !== "none" && parseFloat(style.borderLeftWidth) > 0 && style.borderLeftColor,
      drawn && style.stroke, drawn && style.fill, getComputedStyle(e, "::before").backgroundColor];
    if (looks.some((each) => each && green(each))) found.push(e.outerHTML.slice(0, 120));
  }
  return found;
}

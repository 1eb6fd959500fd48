// Long names, shortened in the middle so that what differs between them stays. Pure.

const shared = (names, from) => {
  let many = 0;
  const least = Math.min(...names.map((name) => name.length));
  while (many < least && names.every((name) => from(name, many) === from(names[0], many))) many += 1;
  return many;
};

// One short form for each name, all different if that can be. What is at most `most` long stays as it is.
export function shortNames(names, most) {
  const found = new Map(names.map((name) => [name, name]));
  const long = names.filter((name) => [...name].length > most);
  if (!long.length) return found;
  const cut = (name, head) => { const all = [...name]; return all.length <= most ? name : `${all.slice(0, head).join("")}…${all.slice(all.length - (most - 1 - head)).join("")}`; };
  const different = (make) => new Set(names.map(make)).size;
  let best = null;
  for (const head of [Math.ceil((most - 1) / 2), Math.floor((most - 1) / 3), Math.ceil((2 * (most - 1)) / 3), 1, most - 2]) {
    const many = different((name) => cut(name, head));
    if (!best || many > best.many) best = { many, make: (name) => cut(name, head) };
  }
  for (const name of names) found.set(name, best.make(name));
  return apart(names, most, found);
}

// Names that came out alike lose what they share in front, and keep what follows, and their ends.
function apart(names, most, found) {
  for (const short of new Set(found.values())) {
    const alike = names.filter((name) => found.get(name) === short);
    if (alike.length < 2) continue;
    const front = shared(alike, (name, at) => name[at]);
    const rest = (name, head) => { const all = [...name.slice(front)]; return all.length < most ? `…${all.join("")}` : `…${all.slice(0, head).join("")}…${all.slice(all.length - (most - 2 - head)).join("")}`; };
    for (const name of alike) found.set(name, rest(name, Math.ceil((most - 2) / 2)));
  }
  return found;
}

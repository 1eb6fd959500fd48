// All state of the page stands in the address, #/page?name=value: a link shows the same, and so does a reload.

export function here() {
  const said = location.hash.replace(/^#\/?/, ""), at = said.indexOf("?");
  return { page: at < 0 ? said : said.slice(0, at), query: new URLSearchParams(at < 0 ? "" : said.slice(at + 1)) };
}

// Which of several elections is looked at stays in every link; without one there is only one, or all are meant.
export const election = () => here().query.get("election") || "";

// A path of the server, about this election.
export function at(path, query) {
  const said = new URLSearchParams({ ...query, ...(election() ? { election: election() } : {}) }).toString();
  return said ? `${path}?${said}` : path;
}

export function to(page, query) {
  query = { ...(election() ? { election: election() } : {}), ...query };
  const said = new URLSearchParams(Object.entries(query || {}).filter(([, value]) => value !== "" && value !== null && value !== undefined)).toString();
  return `#/${page}${said ? `?${said}` : ""}`;
}

// What a person chose on this page. No entry of the history for each: Back leads to the page before.
export function keep(query) {
  const now = here(), all = Object.fromEntries(now.query);
  const next = to(now.page, { ...all, ...query });
  if (next !== location.hash) history.replaceState(null, "", `${location.pathname}${next}`);
}

// /dashboard?node=b is a link to the node, for people who write addresses by hand.
export function fromSearch() {
  const query = Object.fromEntries(new URLSearchParams(location.search));
  if (!location.search) return;
  const page = here().page || (query.node ? "nodes" : "overview");
  history.replaceState(null, "", `${location.pathname}${to(page, { ...query, ...Object.fromEntries(here().query) })}`);
}

// Pages by the part of the address behind `#`: the service serves one page at `/`, whatever it shows.

const ROUTES = [
  [/^#?\/?$/, "overview"],
  [/^#\/relations\/([^/?]+)$/, "relation"],
  [/^#\/views\/([^/?]+)$/, "view"],
  [/^#\/graph$/, "flow"],
  [/^#\/query$/, "query"],
  [/^#\/operations$/, "operations"],
  [/^#\/metrics$/, "metrics"],
];

/** `{page, name, options}` of an address; the page is null where there is none. */
export function parse(hash) {
  const [path, query] = hash.split("?");
  for (const [pattern, page] of ROUTES) {
    const found = pattern.exec(path);
    if (found) return { page, name: found[1] === undefined ? null : decode(found[1]), options: new URLSearchParams(query ?? "") };
  }
  return { page: null, name: path, options: new URLSearchParams() };
}

const decode = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

export const to = {
  overview: () => "#/",
  relation: (name) => `#/relations/${encodeURIComponent(name)}`,
  view: (name) => `#/views/${encodeURIComponent(name)}`,
  graph: () => "#/graph",
  query: (sql) => (sql ? `#/query?sql=${encodeURIComponent(sql)}` : "#/query"),
  operations: () => "#/operations",
  metrics: () => "#/metrics",
};

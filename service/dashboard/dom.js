// Elements, made by code: the Content-Security-Policy allows neither inline styles nor markup made of texts.

/** An element: `h("td.number", {title: "…", onclick}, "text", node, …)`. Children that are null or false are left out. */
export function h(spec, properties, ...children) {
  const [tag, ...classes] = spec.split(".");
  const made = document.createElement(tag || "div");
  if (classes.length) made.className = classes.join(" ");
  if (properties instanceof Node || typeof properties !== "object" || properties === null || Array.isArray(properties)) {
    children.unshift(properties);
  } else {
    set(made, properties);
  }
  append(made, children);
  return made;
}

/** The same of SVG. */
export function svg(tag, properties = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  append(made, children);
  return made;
}

function set(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, text]) => element.style.setProperty(key, text));
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name in element && name !== "list" && name !== "form") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Put these in place of what an element has. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Text, without a change of the document where it is the same. */
export function write(element, text) {
  const value = String(text);
  if (element.textContent !== value) element.textContent = value;
}

/** A message for screen readers. */
export function say(text) {
  const place = document.getElementById("say");
  place.textContent = "";
  requestAnimationFrame(() => (place.textContent = text));
}

/** A section with a heading, and what stands at its right. */
export function panel(title, body, ...tools) {
  return h("section.panel", { "aria-label": title }, h("header", {}, h("h2", title), tools.length ? h("div.tools", tools) : null), body);
}

export function badge(text, kind = "", title = "") {
  return h(`span.badge${kind ? `.${kind}` : ""}`, { title }, text);
}

/** What a page shows where there is nothing yet. */
export function empty(title, ...text) {
  return h("div.empty", {}, h("p.lead", title), text.length ? h("p", {}, text) : null);
}

/** What went wrong, in words, with what to do. */
export function trouble(error) {
  const problem = error.problem;
  const link = problem ? h("a", { href: problem.type, target: "_blank", rel: "noopener" }, "what this means and what to do") : null;
  const said = problem?.complaints ? h("ul", {}, problem.complaints.map((one) => h("li", one.detail))) : h("p", error.message);
  return h("div.trouble", { role: "alert" }, h("strong", problem ? problem.title : error.status === 0 ? "No connection" : "Something went wrong"), said, link);
}

/** Show what a promise gives; while it takes longer than a moment, say so. `place` keeps what it shows until then. */
export async function pending(place, promise) {
  const note = h("p.wait", { role: "status" });
  const begun = performance.now();
  const timer = setInterval(() => {
    const seconds = Math.round((performance.now() - begun) / 1000);
    if (seconds >= 1) {
      write(note, `Waiting for the service, ${seconds} s …`);
      if (!note.isConnected) place.prepend(note);
    }
  }, 500);
  try {
    return await promise;
  } finally {
    clearInterval(timer);
    note.remove();
  }
}

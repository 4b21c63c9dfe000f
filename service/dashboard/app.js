// The frame around the pages: navigation, the state of the connection, colours, and who asks for a token.

import { onRefused, token } from "./api.js";
import { empty, fill, h, say, write } from "./dom.js";
import { flow } from "./flow.js";
import { localTime, number, short } from "./format.js";
import { login } from "./login.js";
import { metrics } from "./metrics.js";
import { operations } from "./operations.js";
import { overview } from "./overview.js";
import { query } from "./query.js";
import { relation } from "./relation.js";
import { parse, to } from "./router.js";
import { start, state, watch } from "./store.js";
import { view } from "./view.js";

const PAGES = { overview, relation, view, flow, query, operations, metrics };
const main = document.getElementById("main");
const side = document.getElementById("side");
const link = document.getElementById("link");
const menu = document.querySelector(".menu");
let leaving = null; // of the page that is shown
let asking = false; // for a token

function show() {
  if (asking) return;
  leaving?.abort();
  leaving = new AbortController();
  const { page, name, options } = parse(location.hash);
  menuOpen(false);
  main.className = page ?? "";
  if (page === null) {
    document.title = "livejoin";
    fill(main, h("h1", "No such page"), empty("There is nothing at this address.", h("a", { href: to.overview() }, "Go to the overview")));
    return;
  }
  document.title = `${name ?? { overview: "Overview", flow: "Graph of views", query: "Query", operations: "Operations", metrics: "Metrics" }[page]} · livejoin`;
  fill(main);
  PAGES[page](main, { name, options, signal: leaving.signal });
  mark();
  scrollTo(0, 0);
}

// A file that is dropped where no page takes it would be opened in place of the dashboard.
for (const name of ["dragover", "drop"]) {
  document.addEventListener(name, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "none";
  });
}

function mark() {
  for (const one of side.querySelectorAll("a")) {
    const here = one.getAttribute("href").split("?")[0] === (location.hash.split("?")[0] || "#/");
    if (here) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}

// navigation

const lists = { views: h("ul"), relations: h("ul") };
const counts = { views: h("span.count"), relations: h("span.count") };
const named = h("div", { hidden: true }, h("h2", {}, "Views ", counts.views), lists.views, h("h2", {}, "Relations ", counts.relations), lists.relations);
fill(
  side,
  h("ul.pages", {}, [["Overview", to.overview()], ["Graph", to.graph()], ["Query", to.query()], ["Operations", to.operations()]].map(([text, href]) => h("li", {}, h("a", { href }, text)))),
  named,
  h("p.foot", {}, h("a", { href: "/docs" }, "Interface"), h("a", { href: to.metrics() }, "Metrics"), h("button.leave.plain", { type: "button", hidden: true, onclick: leave }, "Log out")),
);

let shownNames = "";

function navigate({ status }) {
  const names = JSON.stringify([Object.entries(status.views).map(([name, one]) => [name, one.state]), Object.keys(status.relations)]);
  if (names !== shownNames) {
    shownNames = names;
    const item = (href, name, dot) => h("li", {}, h("a", { href, title: name }, dot, h("span.name", name), h("span.figure", { data: { of: name } })));
    fill(lists.views, Object.entries(status.views).map(([name, one]) => item(to.view(name), name, h(`span.dot.${one.state}`, { title: one.state }))));
    fill(lists.relations, Object.keys(status.relations).map((name) => item(to.relation(name), name, null)));
    mark();
  }
  named.hidden = false;
  write(counts.views, number(Object.keys(status.views).length));
  write(counts.relations, number(Object.keys(status.relations).length));
  for (const figure of lists.relations.querySelectorAll(".figure")) write(figure, short(status.relations[figure.dataset.of]?.rows ?? 0));
}

function menuOpen(open) {
  menu.setAttribute("aria-expanded", String(open));
  document.body.classList.toggle("menu-open", open);
}
menu.addEventListener("click", () => menuOpen(menu.getAttribute("aria-expanded") !== "true"));
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.body.classList.contains("menu-open")) {
    menuOpen(false);
    menu.focus();
  }
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // what stands behind `#` is the page
  main.focus();
});

// the connection

const WORDS = { connecting: "connecting", live: "live", lost: "no connection", refused: "token needed" };
let saidLink = "connecting";

function connection() {
  link.dataset.state = state.link;
  const lost = state.link === "lost" && state.status !== null;
  write(link.querySelector(".what"), lost ? `no connection · as of ${localTime(state.status.time).slice(11, 19)}` : WORDS[state.link]);
  document.body.classList.toggle("stale", lost);
  if (state.link !== saidLink) {
    if (state.link === "lost") say("The connection to the service is lost. This page shows the last known state.");
    if (state.link === "live" && saidLink === "lost") say("The service is back.");
    if (state.link === "live" && saidLink === "lost") dispatchEvent(new Event("livejoin:back"));
    saidLink = state.link;
  }
  if (state.status) {
    write(document.getElementById("version"), `version ${number(state.status.version)}`);
    side.querySelector(".leave").hidden = !token.get();
  }
}

function ask(failure) {
  if (asking) return;
  asking = true;
  leaving?.abort();
  document.body.classList.add("locked");
  login(main, failure.message, () => {
    asking = false;
    document.body.classList.remove("locked");
    start();
    show();
  });
}

function leave() {
  token.clear();
  location.reload();
}

// colours

const themes = ["system", "light", "dark"];
const button = document.querySelector(".theme");

function theme(chosen) {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  localStorage.setItem("livejoin.theme", chosen);
  button.dataset.theme = chosen;
  button.setAttribute("aria-label", `Colours: ${chosen === "system" ? "as the system" : chosen}`);
  button.title = button.getAttribute("aria-label");
  write(button, { system: "◐", light: "☀", dark: "☾" }[chosen]);
  dispatchEvent(new Event("livejoin:theme"));
}
button.addEventListener("click", () => theme(themes[(themes.indexOf(button.dataset.theme) + 1) % themes.length]));
theme(themes.includes(localStorage.getItem("livejoin.theme")) ? localStorage.getItem("livejoin.theme") : "system");

onRefused(ask);
watch(connection);
watch((now) => now.status && navigate(now));
setInterval(connection, 1000);
addEventListener("hashchange", () => {
  show();
  main.focus({ preventScroll: true });
});
start();
show();

// What /metrics tells, as text: a link to it would carry no token.

import { read } from "./api.js";
import { fill, h, panel, pending, trouble } from "./dom.js";

export function metrics(main, { signal }) {
  const body = h("div.view-body", {}, h("p.wait", "Loading …"));
  fill(main, h("div.title", {}, h("h1", "Metrics")), body);
  const open = () => pending(body, read("/metrics", signal)).then((text) => {
    const note = h("p.note", "Prometheus reads them at ", h("code", `${location.origin}/metrics`), "; a Grafana dashboard is in ", h("code", "deploy/grafana"), ".");
    fill(body, panel("As they are now", h("div", {}, note, h("pre", { tabIndex: 0 }, text)), h("button", { type: "button", onclick: open }, "Read again")));
  }).catch((error) => error.name !== "AbortError" && fill(body, trouble(error)));
  open();
  addEventListener("livejoin:back", open, { signal });
}

// A file that is dropped on a relation is loaded into it: one batch, one version, or nothing at all.

import { name as quoted, upload } from "./api.js";
import { fill, h, panel, say, trouble, write } from "./dom.js";
import { bytes, number, plural } from "./format.js";
import { state } from "./store.js";
import { scroller } from "./table.js";

const KINDS = {
  csv: "text/csv", jsonl: "application/jsonl", ndjson: "application/jsonl", parquet: "application/vnd.apache.parquet", arrow: "application/vnd.apache.arrow.stream",
};

export function loader(name, { signal, loaded }) {
  const input = h("input", { type: "file", accept: Object.keys(KINDS).map((kind) => `.${kind}`).join(","), id: "file", className: "hidden", onchange: () => input.files[0] && take(input.files[0]) });
  const skip = h("input", { type: "checkbox", id: "skip" });
  const outcome = h("div.outcome");
  const zone = h("div.drop", {},
  h("p", {}, h("strong", "Drop a file to load it"), " – CSV, JSONL, Parquet or an Arrow stream – or ", h("button", { type: "button", onclick: () => input.click() }, "choose one"), "."),
  h("p.hint", {}, h("label", { htmlFor: "skip" }, skip, " load the good rows even if some are bad"), h("span", " Rows with the same key are replaced; a column ", h("code", "_op"), " may say ", h("code", "delete"), ".")),
  input);
  const element = h("div.loader", {}, zone, outcome);
  // A file may be dropped anywhere on the page: who misses the zone would have the browser open it.
  const over = (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "copy";
    zone.classList.add("over");
  };
  const drop = (event) => {
    zone.classList.remove("over");
    const [file] = event.dataTransfer?.files ?? [];
    if (!file) return;
    event.preventDefault();
    take(file);
  };
  document.addEventListener("dragover", over, { signal });
  document.addEventListener("dragleave", (event) => event.relatedTarget || zone.classList.remove("over"), { signal });
  document.addEventListener("drop", drop, { signal });
  input.setAttribute("aria-label", "File to load");
  input.tabIndex = -1;

  async function take(file) {
    input.value = "";
    const kind = KINDS[file.name.split(".").pop().toLowerCase()];
    if (!kind) {
      fill(outcome, h("p.message.bad", { role: "alert" }, `${file.name} is not a file that can be loaded here: its name must end in .csv, .jsonl, .ndjson, .parquet or .arrow.`));
      return;
    }
    const most = state.status?.max_body ?? Infinity;
    if (file.size > most) {
      fill(outcome, h("p.message.bad", { role: "alert" }, `${file.name} has ${bytes(file.size)}; the service takes ${bytes(most)} at once (--max-body). Load it in parts from a terminal: `, h("code", `livejoin load ${name} ${file.name}`)));
      return;
    }
    const stop = new AbortController();
    signal.addEventListener("abort", () => stop.abort());
    const bar = h("progress", { max: 1, value: 0, "aria-label": `Loading ${file.name}` });
    const words = h("span", "0 %");
    fill(outcome, h("p.loading", {}, h("strong", file.name), " ", bar, " ", words, " ", h("button", { type: "button", onclick: () => stop.abort() }, "Cancel")));
    const begun = performance.now();
    const told = (sent, all) => {
      bar.value = sent / all;
      write(words, sent < all ? `${Math.round((100 * sent) / all)} % of ${bytes(all)}` : `${bytes(all)} sent; the service is checking and applying the rows …`);
      if (sent === all) bar.removeAttribute("value");
    };
    try {
      const receipt = await upload(`/v1/relations/${quoted(name)}/changes?on_error=${skip.checked ? "skip" : "reject"}`, file, kind, told, stop.signal);
      const seconds = (performance.now() - begun) / 1000;
      const text = `${file.name}: ${plural(receipt.applied, "row")} applied${receipt.ignored ? `, ${number(receipt.ignored)} ignored` : ""} in ${seconds.toFixed(1)} s, version ${number(receipt.version)}.`;
      fill(outcome, h("p.message.good", { role: "status" }, text), receipt.skipped_count ? bad(receipt.skipped, receipt.skipped_count, "skipped") : null);
      say(text);
      loaded();
    } catch (error) {
      if (signal.aborted) return;
      if (error.type === "bad-rows") fill(outcome, h("p.message.bad", { role: "alert" }, `${file.name}: ${error.message}`), bad(error.problem.errors, error.problem.error_count, "bad"));
      else fill(outcome, trouble(error));
    }
  }
  return element;
}

function bad(errors, count, word) {
  const shown = errors.length < count ? `; these are the first ${number(errors.length)}` : "";
  return panel(`${plural(count, `${word} row`)}`, h("div", {}, h("p.note", `Rows are counted from 1, without a header${shown}.`),
    scroller("Bad rows", h("table.list", {}, h("caption.hidden", "Bad rows"), h("thead", {}, h("tr", {}, h("th.number", { scope: "col" }, "row"), h("th", { scope: "col" }, "column"), h("th", { scope: "col" }, "reason"))),
      h("tbody", {}, errors.map((one) => h("tr", {}, h("td.number", number(one.index + 1)), h("td.code", one.column ?? "–"), h("td", one.reason))))))));
}

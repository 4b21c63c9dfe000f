// A text field for SQL: coloured behind the text, completed by a list, with a mark where the service has refused something.

import { fill, h, say } from "./dom.js";
import { completions, tokens } from "./sql.js";

/** `{element, text, mark(offsets), insert(text), focus()}`; `names()` gives `{relations, views}`; `run()` is Ctrl+Enter; `changed()`. */
export function editor({ value, names, run, changed, signal }) {
  const field = h("textarea", {
    id: "sql", spellcheck: false, autocomplete: "off", rows: 8, value, "aria-label": "SQL", "aria-controls": "completions", "aria-autocomplete": "list", autocapitalize: "off",
  });
  const back = h("pre.back", { "aria-hidden": "true" });
  const list = h("ul.completions", { id: "completions", role: "listbox", "aria-label": "Completions", hidden: true });
  const element = h("div.editor", {}, back, field, list);
  let marked = [];
  let found = { from: 0, options: [] };
  let chosen = -1;

  function paint() {
    const text = field.value;
    const places = marked.map((at) => [at, at + Math.max(1, /^(?:'[^']*'|[A-Za-z0-9_."]*)/.exec(text.slice(at))[0].length)]);
    const spans = [];
    for (const token of tokens(text)) {
      for (const [piece, bad] of cut(token, places)) spans.push(token.kind || bad ? h(`span.${token.kind || "x"}${bad ? ".fault" : ""}`, piece) : piece);
    }
    if (marked.some((at) => at >= text.length)) spans.push(h("span.fault", " "));
    fill(back, spans, "\n");
    field.style.height = "auto";
    field.style.height = `${Math.max(150, field.scrollHeight + 2)}px`;
  }

  /** The pieces of a token, each with whether it is at one of the places, which are in order. */
  function cut(token, places) {
    const pieces = [];
    let done = 0;
    for (const [from, to] of places) {
      const [a, b] = [from, to].map((at) => Math.max(done, Math.min(token.text.length, at - token.at)));
      pieces.push([token.text.slice(done, a), false], [token.text.slice(a, b), true]);
      done = b;
    }
    return [...pieces, [token.text.slice(done), false]].filter(([piece]) => piece);
  }

  function complete() {
    const { relations, views } = names();
    found = completions(field.value, field.selectionStart, relations, views);
    chosen = -1;
    list.hidden = found.options.length === 0;
    field.removeAttribute("aria-activedescendant");
    fill(list, found.options.map((option, at) => h("li", { role: "option", id: `completion-${at}`, "aria-selected": "false", onpointerdown: (event) => { event.preventDefault(); take(at); } }, h("span", option.text), h("span.kind", option.kind))));
    if (list.hidden) return;
    place();
    say(`${found.options.length} completions, the first ${found.options[0].text}. Arrow down chooses.`);
  }

  /** Below the line of the cursor. */
  function place() {
    const before = field.value.slice(0, found.from);
    const line = before.split("\n").length;
    const column = before.length - before.lastIndexOf("\n") - 1;
    const style = getComputedStyle(field);
    const height = parseFloat(style.lineHeight);
    list.style.top = `${parseFloat(style.paddingTop) + line * height + 4}px`;
    list.style.left = `${Math.min(element.clientWidth - 230, parseFloat(style.paddingLeft) + column * 7.8)}px`;
  }

  function close() {
    list.hidden = true;
    field.removeAttribute("aria-activedescendant");
  }

  function choose(at) {
    chosen = (at + found.options.length) % found.options.length;
    [...list.children].forEach((one, number) => one.setAttribute("aria-selected", String(number === chosen)));
    field.setAttribute("aria-activedescendant", `completion-${chosen}`);
    list.children[chosen].scrollIntoView({ block: "nearest" });
  }

  function take(at) {
    const { text } = found.options[at];
    field.setRangeText(text, found.from, field.selectionStart, "end");
    close();
    input();
    field.focus();
  }

  function input() {
    marked = [];
    paint();
    changed();
  }

  field.addEventListener("input", () => { input(); complete(); }, { signal });
  field.addEventListener("blur", close, { signal });
  field.addEventListener("scroll", () => { back.scrollTop = field.scrollTop; back.scrollLeft = field.scrollLeft; }, { signal });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      close();
      run();
    } else if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      complete();
    } else if (!list.hidden) {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        choose(event.key === "ArrowDown" ? chosen + 1 : chosen < 0 ? -1 : chosen - 1);
      } else if ((event.key === "Enter" && chosen >= 0) || (event.key === "Tab" && chosen >= 0)) {
        event.preventDefault();
        take(chosen);
      } else if (event.key === "Escape") {
        event.preventDefault();
        close();
      }
    }
  }, { signal });
  requestAnimationFrame(paint);
  return {
    element,
    get text() {
      return field.value;
    },
    set text(value) {
      field.value = value;
      input();
    },
    mark(offsets) {
      marked = [...offsets].sort((a, b) => a - b);
      paint();
      if (offsets.length) field.setSelectionRange(offsets[0], offsets[0]);
    },
    focus: () => field.focus(),
    describe: (id) => (id ? field.setAttribute("aria-describedby", id) : field.removeAttribute("aria-describedby")),
  };
}

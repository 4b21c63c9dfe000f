// The form that asks for an access token, where the service wants one.

import { get, token } from "./api.js";
import { fill, h } from "./dom.js";

/** Show it in `main`; `entered` is called once the service has accepted a token. */
export function login(main, reason, entered) {
  const field = h("input", { type: "password", id: "token", name: "token", autocomplete: "off", required: true, placeholder: "lj_…", spellcheck: false, "aria-describedby": "token-help token-fault" });
  const fault = h("p.fault", { id: "token-fault", role: "alert" }, token.get() ? reason : "");
  const button = h("button.primary", { type: "submit" }, "Continue");
  const form = h(
    "form.login",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        const text = field.value.trim();
        if (!/^[!-~]+$/.test(text)) { // no header could carry it
          fault.textContent = "This is not an access token: tokens begin with lj_ and contain only letters, digits, - and _. Copy it again.";
          return;
        }
        button.disabled = true;
        fault.textContent = "";
        token.set(text);
        try {
          await get("/v1/status");
          entered();
        } catch (error) {
          token.clear();
          fault.textContent = error.message;
          field.select();
          field.focus();
        } finally {
          button.disabled = false;
        }
      },
    },
    h("h1", "Access token"),
    h("p", { id: "token-help" }, "This service asks for an access token. It is kept in this tab only, and is gone when the tab is closed."),
    h("label", { htmlFor: "token" }, "Token"),
    field,
    fault,
    button,
    h("p.hint", "An admin creates one with ", h("code", "livejoin token create NAME --scope read --data DIR"), "."),
  );
  document.title = "Access token · livejoin";
  fill(main, form);
  field.focus();
}

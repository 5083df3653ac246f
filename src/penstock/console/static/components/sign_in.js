// The sign-in form, if the API requires a token. The token stays in this tab and is sent to this origin only.
import { get, token } from "../data/api.js";
import { h } from "./dom.js";

export function signIn(main, done) {
  const input = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true, id: "token" });
  const problem = h("p", { class: "notice", "data-kind": "bad", role: "alert", hidden: true });
  const body = h(
    "form",
    {
      class: "card sign-in",
      onsubmit: async (event) => {
        event.preventDefault();
        token.set(input.value.trim());
        try {
          await get("/api/v1/subscriptions");
          done();
        } catch (error) {
          token.clear();
          problem.textContent = error.status === 401 ? "This token is not valid." : error.message;
          problem.hidden = false;
          input.select();
        }
      },
    },
    h("h1", {}, "Sign in"),
    h("p", { class: "about" }, "Enter a token: the setting api.token, or a key from “penstock keys create”."),
    h("label", { class: "field", for: "token" }, "Token", input),
    h("p", {}),
    problem,
    h("div", { class: "buttons" }, h("button", { class: "primary", type: "submit" }, "Sign in")),
  );
  main.replaceChildren(body);
  input.focus();
}

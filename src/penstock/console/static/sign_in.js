// Asking for the token, if the API wants one. It stays in this tab's session and goes to this origin only.
import { get, token } from "./api.js";
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
          problem.textContent = error.status === 401 ? "This token is not known here." : error.message;
          problem.hidden = false;
          input.select();
        }
      },
    },
    h("h1", {}, "Sign in"),
    h("p", { class: "about" }, "This Penstock asks for a token: the setting api.token, or a key made by “penstock keys create”."),
    h("label", { class: "field", for: "token" }, "Token", input),
    h("p", {}),
    problem,
    h("div", { class: "buttons" }, h("button", { class: "primary", type: "submit" }, "Sign in")),
  );
  main.replaceChildren(body);
  input.focus();
}

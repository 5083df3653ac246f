// Dialogs: confirmations, forms, and texts to copy.
import { code } from "./code.js";
import { h } from "./dom.js";

function show(dialog) {
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
    dialog.showModal();
  });
}

// Ask for confirmation; `about` says what will change. The safe button has the focus.
export async function confirmed({ title, about, action, danger = true }) {
  const cancel = h("button", { type: "button", autofocus: true, onclick: () => dialog.close("") }, "Cancel");
  const go = h("button", { type: "button", class: danger ? "danger" : "primary", onclick: () => dialog.close("yes") }, action);
  const dialog = h(
    "dialog",
    { "aria-label": title },
    h("h2", {}, title),
    ...[about].flat().map((line) => h("p", {}, line)),
    h("div", { class: "buttons" }, cancel, go),
  );
  return (await show(dialog)) === "yes";
}

// Show a form; `submit` gets the values by name. If it throws, the error is shown and the form stays open.
export async function form({ title, about, fields, action, submit }) {
  const problem = h("p", { class: "notice", "data-kind": "bad", role: "alert", hidden: true });
  const go = h("button", { type: "submit", class: "primary" }, action);
  const body = h(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        go.disabled = true;
        problem.hidden = true;
        try {
          await submit(Object.fromEntries(new FormData(body)));
          dialog.close("yes");
        } catch (error) {
          problem.textContent = error.message;
          problem.hidden = false;
        } finally {
          go.disabled = false;
        }
      },
    },
    h("h2", {}, title),
    about ? h("p", { class: "about" }, about) : null,
    h("div", { class: "fields" }, ...fields),
    problem,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"), go),
  );
  const dialog = h("dialog", { "aria-label": title }, body);
  return (await show(dialog)) === "yes";
}

// Show a text to read and copy.
export async function showText({ title, about, text }) {
  const dialog = h(
    "dialog",
    { "aria-label": title },
    h("h2", {}, title),
    h("p", {}, about),
    code(text),
    h("div", { class: "buttons" }, h("button", { type: "button", class: "primary", onclick: () => dialog.close("") }, "Close")),
  );
  await show(dialog);
}

export function field(label, input) {
  return h("label", { class: "field" }, label, input);
}

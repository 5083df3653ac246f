// Short messages about what was done, or why it failed.
import { h } from "./dom.js";

const SHOWN_MS = 6000;

export function toast(text, kind) {
  const node = h("div", { class: "toast", "data-kind": kind }, text);
  document.getElementById("toasts").append(node);
  setTimeout(() => node.remove(), SHOWN_MS);
}

// Do the work and show a message about the result; return whether it succeeded.
export async function attempt(work, done) {
  try {
    const result = await work();
    const text = typeof done === "function" ? done(result) : done;
    if (text) toast(text);
    return true;
  } catch (error) {
    toast(error.message, "bad");
    return false;
  }
}

// The role of this page's key: what it may not do is not offered.
import { get } from "./api.js";

// Ask who the caller is. Elements of the class `changes` are shown to administrators only (layout.css).
export async function loadCaller() {
  const found = await get("/api/v1/caller").catch(() => null);
  document.documentElement.dataset.role = found?.role ?? "admin";
}

// The role of this page's key: what it may not do is not offered.
import { get, PORTAL } from "./api.js";

// Ask who the caller is. Elements of the class `changes` are shown to administrators only, those of the class
// `portal` also to the portal's callers, and those of the class `staff` to all but these (parts.css).
export async function loadCaller() {
  const found = await get("/api/v1/caller").catch(() => null);
  document.documentElement.dataset.role = PORTAL ? "portal" : (found?.role ?? "admin");
}

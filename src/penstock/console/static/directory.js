// The names of subscriptions, so that a group is shown as "billing · order-17" and not by an id.
import { getAll } from "./api.js";

const KEPT_MS = 15_000;
let known = [];
let loadedMs = 0;

export async function subscriptions({ anew = false } = {}) {
  if (anew || Date.now() - loadedMs > KEPT_MS) {
    known = await getAll("/api/v1/subscriptions", "subscriptions");
    loadedMs = Date.now();
  }
  return known;
}

export function nameOf(subscriptionId) {
  return known.find((each) => each.id === subscriptionId)?.name ?? subscriptionId ?? "–";
}

export function groupName(groupKey) {
  const owner = known.find((each) => groupKey.startsWith(`${each.id}:`));
  return owner ? `${owner.name} · ${groupKey.slice(owner.id.length + 1)}` : groupKey;
}

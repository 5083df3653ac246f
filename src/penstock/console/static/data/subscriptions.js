// Subscriptions and their names, to show a group as "billing · order-17" instead of an id.
import { getAll } from "./api.js";

const KEPT_MS = 15_000;
let known = [];
let loadedMs = 0;

export async function subscriptions({ reload = false } = {}) {
  if (reload || Date.now() - loadedMs > KEPT_MS) {
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

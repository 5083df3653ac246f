// What was finished in the last minutes, gathered while somebody looks at groups.
import { getAll } from "./api.js";

const KEPT = 20_000;
// More than that between two looks is too much for a browser: the newest are enough to draw with.
const MOST_AT_ONCE = 5000;
const OVERLAP_MS = 3000;
let known = new Map();

// All that is known of the last `ms`, after a look for what is new.
export async function finishedWithin(ms) {
  const nowMs = Date.now();
  const newestMs = Math.max(0, ...[...known.values()].slice(-1).map((each) => each.finishedAtMs));
  const sinceMs = Math.max(nowMs - ms, newestMs - OVERLAP_MS);
  const deliveries = await getAll("/api/v1/deliveries", "deliveries", { sinceMs }, MOST_AT_ONCE);
  for (const each of deliveries.reverse()) known.set(each.id, each);
  known = new Map([...known].filter(([, each]) => each.finishedAtMs >= nowMs - ms).slice(-KEPT));
  return [...known.values()];
}

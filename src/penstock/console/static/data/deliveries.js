// Deliveries of the last minutes, collected while the groups page is open.
import { getAll } from "./api.js";

const KEPT = 20_000;
// More than this between two polls is too much for a browser; the newest are enough for a chart.
const MOST_AT_ONCE = 5000;
const OVERLAP_MS = 3000;
let known = new Map();

// Fetch new deliveries, and return those of the last `ms`.
export async function finishedWithin(ms) {
  const nowMs = Date.now();
  const newestMs = Math.max(0, ...[...known.values()].slice(-1).map((each) => each.finishedAtMs));
  const sinceMs = Math.max(nowMs - ms, newestMs - OVERLAP_MS);
  const deliveries = await getAll("/api/v1/deliveries", "deliveries", { sinceMs }, MOST_AT_ONCE);
  for (const each of deliveries.reverse()) known.set(each.id, each);
  known = new Map([...known].filter(([, each]) => each.finishedAtMs >= nowMs - ms).slice(-KEPT));
  return [...known.values()];
}

// Metrics as the API gives them, and what can be worked out from two moments of them.

// The samples of one moment, by name.
export class Samples {
  constructor({ atMs, samples }) {
    this.atMs = atMs;
    this.byName = Map.groupBy(samples, (sample) => sample.name);
  }

  all(name) {
    return this.byName.get(name) ?? [];
  }

  sum(name, wanted = {}) {
    const fits = (sample) => Object.entries(wanted).every(([label, value]) => sample.labels[label] === value);
    return this.all(name).filter(fits).reduce((sum, sample) => sum + sample.value, 0);
  }

  most(name) {
    return Math.max(0, ...this.all(name).map((sample) => sample.value));
  }

  by(name, label) {
    return new Map(this.all(name).map((sample) => [sample.labels[label], sample.value]));
  }

  // The buckets of a histogram, all labels but `le` summed up: [[bound, count at or below it], …].
  buckets(name) {
    const sums = new Map();
    for (const { labels, value } of this.all(`${name}_bucket`)) {
      const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
      sums.set(bound, (sums.get(bound) ?? 0) + value);
    }
    return [...sums].sort(([left], [right]) => left - right);
  }
}

// How much a counter grew a second; a process that started anew counts from 0.
export function growth(before, after, seconds) {
  return Math.max(0, after >= before ? after - before : after) / seconds;
}

// The value that a share of what was counted between two moments does not exceed, or null if nothing was.
export function quantile(before, after, share) {
  const earlier = new Map(before);
  const anew = (after.at(-1)?.[1] ?? 0) < (before.at(-1)?.[1] ?? 0);
  const counts = after.map(([bound, count]) => [bound, count - (anew ? 0 : (earlier.get(bound) ?? 0))]);
  const total = counts.at(-1)?.[1] ?? 0;
  if (!(total > 0)) return null;
  let [floor, below] = [0, 0];
  for (const [bound, count] of counts) {
    if (count >= share * total) {
      if (bound === Infinity) return floor;
      return floor + (bound - floor) * ((share * total - below) / (count - below));
    }
    [floor, below] = [bound, count];
  }
  return floor;
}

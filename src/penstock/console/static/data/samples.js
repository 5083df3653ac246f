// Metrics from the API, and rates and quantiles between two moments.

// The samples of one moment, by name.
export class Samples {
  constructor({ atMs, samples }) {
    this.atMs = atMs;
    this.byName = Map.groupBy(samples, (sample) => sample.name);
  }

  // Return these samples and those of another part, if there are any.
  and(other) {
    return other ? new Samples({ atMs: this.atMs, samples: [...this.byName.values(), ...other.byName.values()].flat() }) : this;
  }

  all(name) {
    return this.byName.get(name) ?? [];
  }

  sum(name, wanted = {}) {
    const matches = (sample) => Object.entries(wanted).every(([label, value]) => sample.labels[label] === value);
    return this.all(name).filter(matches).reduce((sum, sample) => sum + sample.value, 0);
  }

  most(name) {
    return Math.max(0, ...this.all(name).map((sample) => sample.value));
  }

  by(name, label) {
    return new Map(this.all(name).map((sample) => [sample.labels[label], sample.value]));
  }

  // Return the buckets of a histogram, summed over all labels but `le`: [[bound, count at or below it], …].
  buckets(name) {
    const sums = new Map();
    for (const { labels, value } of this.all(`${name}_bucket`)) {
      const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
      sums.set(bound, (sums.get(bound) ?? 0) + value);
    }
    return [...sums].sort(([left], [right]) => left - right);
  }
}

// Return a counter's growth per second; a restarted process counts from 0.
export function growth(before, after, seconds) {
  return Math.max(0, after >= before ? after - before : after) / seconds;
}

// Return the value that a share of the counts between two moments does not exceed, or null without counts.
export function quantile(before, after, share) {
  const earlier = new Map(before);
  const restarted = (after.at(-1)?.[1] ?? 0) < (before.at(-1)?.[1] ?? 0);
  const counts = after.map(([bound, count]) => [bound, count - (restarted ? 0 : (earlier.get(bound) ?? 0))]);
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

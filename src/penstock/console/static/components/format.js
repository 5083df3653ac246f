// Numbers, times and sizes for people.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

export const NONE = "–";

export function count(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  return Math.abs(value) >= 100_000 ? short.format(value) : whole.format(value);
}

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined || Number.isNaN(perSecond)) return NONE;
  return perSecond > 0 && perSecond < 10 ? perSecond.toFixed(1) : count(perSecond);
}

export function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return NONE;
  const value = share * 100;
  // Never round up to 100 %: one failure among many is a failure.
  return value === 100 ? "100 %" : `${(Math.floor(value * 10) / 10).toFixed(1)} %`;
}

// A time span in seconds.
export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return NONE;
  if (seconds === 0) return "0 s";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

// How long a delivery took, in whole milliseconds.
export function took(ms) {
  return ms === 0 ? "< 1 ms" : span(ms === null || ms === undefined ? null : ms / 1000);
}

export function at(ms) {
  return clock.format(new Date(ms));
}

export function moment(isoOrMs) {
  return isoOrMs === null || isoOrMs === undefined ? NONE : day.format(new Date(isoOrMs));
}

export function ago(isoOrMs) {
  if (isoOrMs === null || isoOrMs === undefined) return NONE;
  const seconds = (Date.now() - new Date(isoOrMs).getTime()) / 1000;
  return seconds < -1 ? `in ${span(-seconds)}` : seconds < 1 ? "now" : `${span(seconds)} ago`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// JSON with indents if it is JSON, else the text as it is.
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

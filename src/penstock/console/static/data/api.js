// Calls to the API of this origin. The token, if one is needed, is kept as long as the tab.

// At this path the page is the customers' portal. Its token is kept apart from an operator's.
export const PORTAL = location.pathname === "/portal";
const KEY = PORTAL ? "penstock.portal" : "penstock.token";
const TIMEOUT_MS = 15_000;
const PAGE = 1000;

export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

// In a frame, a browser may refuse to keep anything: then the token is kept as long as the page.
let kept = null;
function storage(act) {
  try {
    return act(sessionStorage);
  } catch {
    return null;
  }
}

export const token = {
  get: () => kept ?? storage((tab) => tab.getItem(KEY)),
  set: (value) => {
    kept = value;
    storage((tab) => tab.setItem(KEY, value));
  },
  clear: () => {
    kept = null;
    storage((tab) => tab.removeItem(KEY));
  },
};

// Take the token of a link to the portal out of the address, so that it is neither seen nor copied with it.
export function takeToken() {
  const given = PORTAL && /^#token=(pt_[\w.-]+)$/.exec(location.hash);
  if (!given) return;
  token.set(given[1]);
  history.replaceState(null, "", "#/subscriptions");
}

async function ask(method, path, body, timeoutMs = TIMEOUT_MS) {
  const headers = { accept: "application/json" };
  if (method !== "GET") headers["x-penstock"] = "1";
  if (body !== undefined) headers["content-type"] = "application/json";
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  const options = { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store" };
  let answer;
  try {
    answer = await fetch(path, { ...options, signal: AbortSignal.timeout(timeoutMs) });
  } catch (error) {
    const reason = error.name === "TimeoutError" ? `no answer within ${timeoutMs / 1000} s` : "it does not answer";
    throw new ApiError(0, `The API cannot be reached: ${reason}.`);
  }
  const value = await answer.json().catch(() => null);
  if (answer.ok && value !== null) return value;
  if (answer.status === 401) document.dispatchEvent(new CustomEvent("sign-in-needed"));
  throw new ApiError(answer.status, value?.detail ?? `The API answered ${answer.status}.`);
}

// Return a path with its variable parts escaped: path`/api/v1/jobs/${id}`.
export function path(strings, ...values) {
  return strings.reduce((text, part, index) => text + encodeURIComponent(values[index - 1]) + part);
}

export function withQuery(base, query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${base}?${new URLSearchParams(given)}` : base;
}

export const get = (where, query = {}) => ask("GET", withQuery(where, query));

// Return all rows of a paged list, or up to about `most` of them.
export async function getAll(where, name, query = {}, most = Infinity) {
  const rows = [];
  let cursor = null;
  do {
    const page = await get(where, { limit: PAGE, ...query, cursor });
    rows.push(...page[name]);
    cursor = page.cursor;
  } while (cursor !== null && rows.length < most);
  return rows;
}

export const post = (where, body, timeoutMs) => ask("POST", where, body, timeoutMs);
export const put = (where, body, timeoutMs) => ask("PUT", where, body, timeoutMs);
export const patch = (where, body) => ask("PATCH", where, body);
export const del = (where) => ask("DELETE", where);

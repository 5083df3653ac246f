// Work that is done again and again while somebody looks: never twice at once, and not in a hidden tab.

export function every(ms, work, signal) {
  let timer;
  let running = false;
  const stopped = () => signal.aborted;

  async function turn() {
    if (stopped() || running) return;
    clearTimeout(timer);
    if (document.hidden) return;
    running = true;
    try {
      await work();
    } finally {
      running = false;
      if (!stopped()) timer = setTimeout(turn, ms);
    }
  }

  document.addEventListener("visibilitychange", turn, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  turn();
  return turn;
}

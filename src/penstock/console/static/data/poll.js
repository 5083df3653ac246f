// Repeat work while the page is visible, and never twice at the same time.

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

// Light or dark: the system's choice until the user chooses.
const KEY = "penstock.theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const NAMES = { system: "Auto", light: "Light", dark: "Dark" };

function apply(theme, button) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.textContent = `◐ ${NAMES[theme]}`;
  button.setAttribute("aria-label", `Theme: ${NAMES[theme]}`);
}

export function startTheme(button) {
  const kept = localStorage.getItem(KEY);
  let theme = kept in NEXT ? kept : "system";
  apply(theme, button);
  button.addEventListener("click", () => {
    theme = NEXT[theme];
    localStorage.setItem(KEY, theme);
    apply(theme, button);
  });
}

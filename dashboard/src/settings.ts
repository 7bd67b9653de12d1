/* What the reader chose and keeps: times in UTC or local, light or dark. */
import { createContext, useContext } from "react";
import type { Session } from "./api/types";
import type { Zone } from "./format/time";

export type Theme = "system" | "light" | "dark";

export interface Settings {
  zone: Zone;
  theme: Theme;
}

const key = "ratebatch.settings";

export function load(): Settings {
  const usual: Settings = { zone: "utc", theme: "system" };
  try {
    const s = JSON.parse(localStorage.getItem(key) ?? "{}") as Partial<Settings>;
    return { zone: s.zone === "local" ? "local" : "utc", theme: s.theme === "light" || s.theme === "dark" ? s.theme : "system" };
  } catch {
    return usual;
  }
}

export function save(s: Settings): void {
  try {
    localStorage.setItem(key, JSON.stringify(s));
  } catch {
    // Storage may be forbidden; the choice then lasts as long as the page.
  }
}

/** shade is the theme that is really shown. */
export function shade(theme: Theme): "light" | "dark" {
  if (theme !== "system") return theme;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

export interface Shared {
  zone: Zone;
  shade: "light" | "dark";
  session: Session | null;
}

export const SharedContext = createContext<Shared>({ zone: "utc", shade: "light", session: null });

export function useShared(): Shared {
  return useContext(SharedContext);
}

/*
 * Addresses are the state: what a page shows stands in its path and query, so a
 * link opens the same view. Small enough that a library would be more to learn.
 */
import { useCallback, useSyncExternalStore } from "react";

export interface Route {
  /** Decoded parts of the path: ["plan", "3", "changes"]. */
  parts: string[];
  query: URLSearchParams;
}

const listeners = new Set<() => void>();

function announce(): void {
  for (const f of listeners) f();
}

if (typeof window !== "undefined") window.addEventListener("popstate", announce);

function subscribe(f: () => void): () => void {
  listeners.add(f);
  return () => listeners.delete(f);
}

/** go opens an address of ours; replace leaves no step in the history. */
export function go(to: string, { replace = false } = {}): void {
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  announce();
}

/** parse reads an address; a part that is no valid encoding is taken as it stands. */
export function parse(pathname: string, search: string): Route {
  const decode = (s: string) => {
    try {
      return decodeURIComponent(s);
    } catch {
      return s;
    }
  };
  return { parts: pathname.split("/").filter(Boolean).map(decode), query: new URLSearchParams(search) };
}

export function useRoute(): Route {
  const here = useSyncExternalStore(subscribe, () => location.pathname + location.search);
  const at = here.indexOf("?");
  return parse(at < 0 ? here : here.slice(0, at), at < 0 ? "" : here.slice(at));
}

/** to writes an address from path parts and what is set in query. */
export function to(parts: string[], query: Record<string, string | null | undefined> = {}): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) if (v) q.set(k, v);
  const text = q.toString();
  return "/" + parts.map(encodeURIComponent).join("/") + (text ? `?${text}` : "");
}

/**
 * useParam is one value of the query. Setting it to its default takes it out, so
 * addresses stay short; others stay as they are.
 */
export function useParam(name: string, otherwise = ""): [string, (value: string, also?: Record<string, string | null>) => void] {
  const { query } = useRoute();
  const set = useCallback(
    (value: string, also: Record<string, string | null> = {}) => {
      const q = new URLSearchParams(location.search);
      for (const [k, v] of Object.entries({ [name]: value === otherwise ? null : value, ...also })) {
        if (v === null || v === "") q.delete(k);
        else q.set(k, v);
      }
      const text = q.toString();
      go(location.pathname + (text ? `?${text}` : ""));
    },
    [name, otherwise],
  );
  return [query.get(name) ?? otherwise, set];
}

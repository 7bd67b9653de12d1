/*
 * useApi keeps one question answered: it asks, shows what came, asks again while
 * the page is open, and keeps the last figures on screen when the server is gone.
 */
import { useCallback, useEffect, useState, useSyncExternalStore } from "react";
import { ApiError, get } from "./client";

export interface Answer<T> {
  data: T | null;
  error: ApiError | null;
  /** No figures yet for this question. */
  loading: boolean;
  /** Asking, whether or not there are figures already. */
  asking: boolean;
  /** The figures are those of the question before; shown dimmed. */
  old: boolean;
  again: () => void;
}

/** How soon a tab that was hidden notices that it is looked at. */
const hiddenEvery = 4_000;

/** Whether the server answers, for the one banner that says so. */
class Connection {
  private listeners = new Set<() => void>();
  private lost = 0;
  private unauthorized = 0;
  /** Since when nothing answers, as milliseconds; 0 while it does. */
  since = () => this.lost;
  refused = () => this.unauthorized;
  subscribe = (f: () => void) => {
    this.listeners.add(f);
    return () => this.listeners.delete(f);
  };
  report(err: ApiError | null, address: string): void {
    const lost = err?.status === 0 ? this.lost || Date.now() : 0;
    // Health needs no token, so it says nothing of one.
    if (address.endsWith("/health")) return this.set(lost, this.unauthorized);
    const refused = err?.status === 401 ? this.unauthorized || Date.now() : err === null ? 0 : this.unauthorized;
    this.set(lost, refused);
  }
  private set(lost: number, refused: number): void {
    if (lost === this.lost && refused === this.unauthorized) return;
    this.lost = lost;
    this.unauthorized = refused;
    for (const f of this.listeners) f();
  }
}

export const connection = new Connection();

/** The moment since which the server does not answer, or 0. */
export function useLost(): number {
  return useSyncExternalStore(connection.subscribe, connection.since);
}

/** Not 0 while the server wants a token that it was not given. */
export function useRefused(): number {
  return useSyncExternalStore(connection.subscribe, connection.refused);
}

interface State<T> {
  address: string | null;
  data: T | null;
  /** The question that data answers. */
  of: string | null;
  error: ApiError | null;
  asking: boolean;
}

/**
 * useApi answers address, or nothing while it is null. `every` is how often to
 * ask again in milliseconds (0: only when told); hidden tabs do not ask. `keep`
 * leaves the figures of the question before on screen until new ones are here.
 */
export function useApi<T>(address: string | null, { every = 0, keep = false }: { every?: number; keep?: boolean } = {}): Answer<T> {
  const [state, setState] = useState<State<T>>({ address, data: null, of: null, error: null, asking: address !== null });
  const [turn, setTurn] = useState(0);
  const again = useCallback(() => setTurn((n) => n + 1), []);

  useEffect(() => {
    if (address === null) return;
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const later = (ms: number) => {
      clearTimeout(timer);
      if (ms > 0 && !abort.signal.aborted) timer = setTimeout(ask, ms);
    };
    const ask = () => {
      if (document.hidden) return later(hiddenEvery);
      setState((s) => (s.address === address ? { ...s, asking: true } : { address, data: keep ? s.data : null, of: keep ? s.of : null, error: null, asking: true }));
      get<T>(address, abort.signal).then(
        (data) => {
          if (abort.signal.aborted) return;
          connection.report(null, address);
          setState({ address, data, of: address, error: null, asking: false });
          later(every);
        },
        (err: unknown) => {
          if (abort.signal.aborted) return;
          const e = err instanceof ApiError ? err : new ApiError(0, "internal", "The answer could not be read.", String(err));
          connection.report(e, address);
          // Figures stay on screen only if they answer this very question.
          setState((s) => ({ address, data: e.passing && s.of === address ? s.data : null, of: s.of, error: e, asking: false }));
          later(e.retry);
        },
      );
    };
    ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [address, every, keep, turn]);

  // What was asked before must not be shown as the answer to this question, not for one frame.
  const mine = state.address === address || keep;
  return {
    data: mine && address !== null ? state.data : null,
    error: state.address === address ? state.error : null,
    loading: address !== null && (!mine || (state.data === null && state.error === null)),
    asking: address !== null && (state.asking || state.address !== address),
    old: address !== null && keep && state.data !== null && (state.address !== address || state.of !== address),
    again,
  };
}

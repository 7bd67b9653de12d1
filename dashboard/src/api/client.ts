/*
 * The only way to the server. Answers are parsed once and never rounded: money
 * stays the string it came as.
 */

/** What went wrong, in the server's words where it had any. */
export class ApiError extends Error {
  constructor(
    /** HTTP status; 0 when no answer came at all. */
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint = "",
  ) {
    super(message);
    this.name = "ApiError";
  }
  /** Whether the same question may be answered a little later without anybody doing anything; a proxy says 502 while serve starts. */
  get passing(): boolean {
    return this.status === 0 || this.status === 429 || (this.status >= 502 && this.status <= 504);
  }
  /** In how many milliseconds to ask again; 0 where the same question gets the same refusal until the reader does something. */
  get retry(): number {
    if (this.passing) return 4_000;
    return this.status >= 500 ? 30_000 : 0;
  }
}

const tokenKey = "ratebatch.token";

/*
 * The token lives as long as the browser's tab: a bill's reader at a shared desk
 * should not find the last one's access.
 */
let memory: string | null = null;

export function token(): string | null {
  try {
    return sessionStorage.getItem(tokenKey) ?? memory;
  } catch {
    return memory;
  }
}

export function setToken(value: string | null): void {
  memory = value;
  try {
    if (value === null) sessionStorage.removeItem(tokenKey);
    else sessionStorage.setItem(tokenKey, value);
  } catch {
    // Storage may be forbidden; the token then lasts until the page is loaded again.
  }
}

export type Query = Record<string, string | number | null | undefined>;

/** url builds /api/v1/… with what is set in query, in a fixed order so that equal questions are equal texts. */
export function url(path: string, query: Query = {}): string {
  const q = new URLSearchParams();
  for (const key of Object.keys(query).sort()) {
    const value = query[key];
    if (value !== null && value !== undefined && value !== "") q.set(key, String(value));
  }
  const text = q.toString();
  return `/api/v1${path}${text ? `?${text}` : ""}`;
}

/** path writes a path whose parts hold whatever a name may hold. */
export function path(strings: TemplateStringsArray, ...values: string[]): string {
  return strings.reduce((out, s, i) => out + encodeURIComponent(values[i - 1] ?? "") + s);
}

async function ask(address: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  const t = token();
  if (t !== null) headers.set("Authorization", `Bearer ${t}`);
  let response: Response;
  try {
    response = await fetch(address, { ...init, headers, credentials: "same-origin" });
  } catch (err) {
    if (init.signal?.aborted) throw err;
    throw new ApiError(0, "unreachable", "The server does not answer.", "Is ratebatch serve running? This page tries again by itself.");
  }
  if (response.ok) return response;
  let body: unknown;
  try {
    body = await response.json();
  } catch {
    body = null;
  }
  throw refusal(response.status, body);
}

/** refusal reads an error's body; a proxy in between may have written anything. */
export function refusal(status: number, body: unknown): ApiError {
  type Told = { code?: unknown; message?: unknown; hint?: unknown };
  const b = body as { error?: Told; status?: unknown; message?: unknown } | null;
  // The health answer is not shaped like an error: {status, message}.
  const e: Told | undefined = b?.error ?? (typeof b?.status === "string" ? { code: b.status, message: b.message } : undefined);
  const text = (v: unknown, otherwise: string) => (typeof v === "string" && v !== "" ? v : otherwise);
  return new ApiError(status, text(e?.code, "internal"), text(e?.message, `The server answered ${status}.`), text(e?.hint, ""));
}

export async function get<T>(address: string, signal?: AbortSignal): Promise<T> {
  const response = await ask(address, { signal, headers: { Accept: "application/json" } });
  return (await response.json()) as T;
}

export async function post<T>(address: string, body: unknown): Promise<T> {
  const response = await ask(address, { method: "POST", body: JSON.stringify(body), headers: { Accept: "application/json", "Content-Type": "application/json" } });
  return (await response.json()) as T;
}

/**
 * download saves a file. Without a token the browser streams it to disk by
 * itself; with one it has to be fetched first, since a link carries no header
 * and a token in an address would end up in logs.
 */
export async function download(address: string, name: string): Promise<void> {
  const link = document.createElement("a");
  link.download = name;
  if (token() === null) {
    link.href = address;
    link.click();
    return;
  }
  const response = await ask(address, {});
  const object = URL.createObjectURL(await response.blob());
  link.href = object;
  link.click();
  setTimeout(() => URL.revokeObjectURL(object), 60_000);
}

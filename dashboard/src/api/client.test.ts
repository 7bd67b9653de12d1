import { afterEach, expect, it, vi } from "vitest";
import { ApiError, get, path, refusal, setToken, url } from "./client";

afterEach(() => {
  vi.unstubAllGlobals();
  setToken(null);
});

it("equal questions are equal addresses, and what is not set is left out", () => {
  expect(url("/costs", { project: "a&b=c", month: "2026-11", metric: undefined, offset: 0, end: null, q: "" })).toBe("/api/v1/costs?month=2026-11&offset=0&project=a%26b%3Dc");
  expect(url("/plans")).toBe("/api/v1/plans");
});

it("a name in a path cannot leave its part", () => {
  expect(path`/nodes/${"../x"}/${"a/b?c#d"}/series`).toBe("/nodes/..%2Fx/a%2Fb%3Fc%23d/series");
});

it("refusals keep the server's words, and a proxy's page is no sentence of ours", () => {
  expect(refusal(503, { error: { code: "unavailable", message: "ClickHouse does not answer", hint: "start it" } })).toMatchObject({ status: 503, code: "unavailable", message: "ClickHouse does not answer", hint: "start it", passing: true });
  expect(refusal(502, null)).toMatchObject({ code: "internal", message: "The server answered 502.", hint: "", passing: true });
  expect(refusal(404, { error: { message: 7 } })).toMatchObject({ message: "The server answered 404.", passing: false });
});

it("no answer at all is an error that passes", async () => {
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("fetch failed")));
  await expect(get("/api/v1/health")).rejects.toMatchObject({ status: 0, passing: true });
  await expect(get("/api/v1/health")).rejects.toBeInstanceOf(ApiError);
});

it("the token goes into the header, never into the address, and amounts stay strings", async () => {
  const seen: [string, string | null][] = [];
  vi.stubGlobal("fetch", (address: string, init: RequestInit) => {
    seen.push([address, (init.headers as Headers).get("Authorization")]);
    return Promise.resolve(new Response('{"amount":"90071992547409930.100000000000000001"}'));
  });
  setToken("s3cret");
  expect(await get(url("/costs"))).toEqual({ amount: "90071992547409930.100000000000000001" });
  expect(seen).toEqual([["/api/v1/costs", "Bearer s3cret"]]);
});

it("what may pass is asked again soon, a server's own error later, a refusal not", () => {
  const retry = (status: number) => new ApiError(status, "", "").retry;
  expect([0, 429, 502, 503, 504].map(retry)).toEqual(Array(5).fill(4_000));
  expect([500, 501].map(retry)).toEqual([30_000, 30_000]);
  expect([400, 401, 403, 404].map(retry)).toEqual([0, 0, 0, 0]);
});

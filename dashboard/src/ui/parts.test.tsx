import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { expect, it } from "vitest";
import { ApiError } from "../api/client";
import type { Answer } from "../api/use";
import { Loaded } from "./parts";

/** shown is what a reader sees of an answer, as text. */
function shown(data: string | null, error: ApiError | null): string {
  const of: Answer<string> = { data, error, loading: false, asking: false, old: false, again: () => undefined };
  return renderToStaticMarkup(createElement(Loaded<string>, { of, children: (d: string) => d })).replaceAll(/<[^>]*>/g, "");
}

it("figures that could not be asked for again stay, and say so", () => {
  const away = new ApiError(503, "unavailable", "ClickHouse does not answer", "start it");
  expect(shown("7 EUR", null)).toBe("7 EUR");
  expect(shown("7 EUR", away)).toBe("ClickHouse does not answer: these are the figures from before. start it7 EUR");
  expect(shown("7 EUR", new ApiError(502, "internal", "The server answered 502."))).toContain("The server answered 502: these are the figures from before.");
  expect(shown(null, away)).toContain("ClickHouse does not answer");
  // The banner says it once for the whole page.
  expect(shown("7 EUR", new ApiError(0, "unreachable", "The server does not answer."))).toBe("7 EUR");
});

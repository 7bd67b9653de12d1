import { expect, it } from "vitest";
import { parse, to } from "./router";

it("an address comes back as it was written, whatever a name holds", () => {
  const parts = ["nodes", "Region One/2", "a?b#c%<script>"];
  const address = to(parts, { range: "24h", end: "2026-11-29T10:00:00Z", empty: "", none: null });
  expect(address).not.toContain("<");
  const at = address.indexOf("?");
  const route = parse(address.slice(0, at), address.slice(at));
  expect(route.parts).toEqual(parts);
  expect([...route.query]).toEqual([
    ["range", "24h"],
    ["end", "2026-11-29T10:00:00Z"],
  ]);
});

it("a broken encoding is shown, not thrown", () => {
  expect(parse("/instances/%E0%A4%A", "").parts).toEqual(["instances", "%E0%A4%A"]);
});

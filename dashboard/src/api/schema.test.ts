import { readFileSync } from "node:fs";
import openapiTS, { astToString, COMMENT_HEADER } from "openapi-typescript";
import { expect, it } from "vitest";

it("the types are those of the server's openapi.yaml (npm run types)", async () => {
  const made = COMMENT_HEADER + astToString(await openapiTS(new URL("../../../jobs/web/openapi.yaml", import.meta.url)));
  expect(readFileSync(new URL("./schema.ts", import.meta.url), "utf8")).toBe(made);
}, 30_000);

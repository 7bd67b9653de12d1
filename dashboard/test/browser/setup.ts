import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { missing, prepare, prepareBills, screenshots } from "./cloud";

declare module "vitest" {
  export interface ProvidedContext {
    data: string;
    why: string;
  }
}

/** Makes the cloud once for all files, or says why there is none. On CI's must-run list a reason to skip is a failure. */
export default async function setup(project: TestProject) {
  const why = missing();
  project.provide("why", why);
  project.provide("data", "");
  if (why) {
    if (process.env.RATEBATCH_TEST_BROWSER) throw new Error(`the browser tests must run here: ${why}`);
    console.log(`browser tests skip: ${why}`);
    return;
  }
  mkdirSync(screenshots, { recursive: true });
  const kept = process.env.RATEBATCH_TEST_DATA;
  const data = kept ?? mkdtempSync(join(tmpdir(), "ratebatch-dashboard-"));
  project.provide("data", data);
  if (!kept || !existsSync(join(kept, "cloud"))) {
    await prepare(join(data, "cloud"));
  }
  if (!kept || !existsSync(join(kept, "bills"))) {
    await prepareBills(join(data, "bills"));
  }
  return () => {
    if (!kept) rmSync(data, { recursive: true, force: true });
  };
}

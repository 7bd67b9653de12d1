/*
 * A simulated cloud with bills, and `ratebatch serve` in front of it. Everything
 * is real: the binary (RATEBATCH_BIN, else bin/ratebatch), the engine, Chromium
 * (CHROMIUM, else Debian's). The data lies in a folder of its own, removed after
 * the run, unless RATEBATCH_TEST_DATA names one to keep and use again.
 */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

export const root = join(dirname(fileURLToPath(import.meta.url)), "../../..");
export const bin = process.env.RATEBATCH_BIN ?? join(root, "bin/ratebatch");
export const chromiumPath = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const screenshots = process.env.RATEBATCH_SCREENSHOTS ?? join(root, "dashboard/screenshots");

/** An instance's name that must stay text wherever it is shown. */
export const evilName = `<img src=x onerror="window.pwned=1">`;
export const instances = 200;

/** Why the tests cannot run here; empty when they can. */
export function missing(): string {
  if (!existsSync(chromiumPath)) return `no Chromium at ${chromiumPath} (Debian: apt-get install chromium)`;
  if (!existsSync(bin)) return `no ${bin} (make dashboard build)`;
  return "";
}

const exec = promisify(execFile);

export async function ratebatch(data: string, ...args: string[]): Promise<string> {
  try {
    const { stdout } = await exec(bin, ["--data", data, ...args], { maxBuffer: 64 << 20, timeout: 280_000 });
    return stdout;
  } catch (err) {
    throw new Error(`ratebatch ${args.join(" ")}: ${(err as { stderr?: string }).stderr || err}`);
  }
}

/** prepare makes the cloud: 200 instances over the last 24 hours, rated by two versions of the demo's plan. */
export async function prepare(data: string): Promise<void> {
  await ratebatch(data, "migrate");
  await ratebatch(data, "metrics", "apply", join(root, "ratebatch/metric/metrics.yaml"));
  await ratebatch(data, "plan", "apply", join(root, "fixtures/plans/demo.yaml"), "--note", "first prices");
  await ratebatch(data, "simulate", "--projects", "4", "--instances", String(instances), "--hours", "24");
  await ratebatch(data, "rate");
  await ratebatch(data, "plan", "apply", join(root, "dashboard/test/browser/plan-2.yaml"), "--note", "memory dearer");
  await ratebatch(
    data,
    "engine",
    "sql",
    "-q",
    `INSERT INTO instances SELECT region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, '${evilName}' AS instance_name, max(i.seen_to) AS seen_from, max(i.seen_to) + 1 AS seen_to
     FROM instances AS i WHERE i.instance_name = 'vm-00001' GROUP BY ALL`,
  );
}

/** The zone that the bills' months begin in: nine hours before UTC's. */
export const billsZone = "Asia/Tokyo";

/**
 * prepareBills makes what a year of billing leaves behind, in a day across the end of September 2026 in Tokyo: a closed month
 * with a correction, a finding of late usage that waits, usage without a price, deliveries, and a request to rate again.
 * All of it comes from the jobs themselves.
 */
export async function prepareBills(data: string): Promise<void> {
  const run = (...args: string[]) => ratebatch(data, ...args);
  const usage = (seed: string, instances: string, begin: string, hours: string) => run("simulate", "--seed", seed, "--projects", "2", "--instances", instances, "--begin", begin, "--hours", hours);
  await run("migrate", "--retention", "40y");
  await run("settings", "set", "billing_timezone", billsZone, "--reason", "invoices are by local months");
  await run("metrics", "apply", join(root, "ratebatch/metric/metrics.yaml"));
  await run("plan", "apply", join(root, "dashboard/test/browser/plan-bills.yaml"), "--note", "disk requests are not sold yet");
  await usage("1", "8", "2026-09-30T03:00:00Z", "24");
  await run("rate", "--first-period", "usage", "--now", "2026-10-01T06:00:00Z");
  await run("close", "--month", "2026-09", "--now", "2026-10-01T06:00:00Z", "--reason", "invoices 2026-09");
  await run("export", "--month", "2026-09", "--to", join(data, "finance"));
  // What two new instances used in September comes after the bill, is found, and is rated again on request.
  await usage("2", "2", "2026-09-30T10:00:00Z", "2");
  await run("rate", "--now", "2026-10-01T07:00:00Z");
  await run("reprocess", "add", "--all", "--from", "2026-09-30T10:00:00Z", "--to", "2026-09-30T12:00:00Z", "--reason", "agents of rack 7 were cut off", "--now", "2026-10-01T07:00:00Z");
  await run("reprocess", "run", "--now", "2026-10-01T07:00:00Z");
  // The same in October, which nobody has looked at yet.
  await usage("3", "2", "2026-09-30T20:00:00Z", "1");
  await run("rate", "--now", "2026-10-01T08:00:00Z");
  await run("reprocess", "add", "--scope", "project-0001", "--from", "2026-09-30T20:00:00Z", "--to", "2026-09-30T21:00:00Z", "--reason", "late usage of 1 October", "--now", "2026-10-01T08:00:00Z");
  await run("export", "--month", "2026-10", "--to", join(data, "finance"), "--dataset", "lines,summary", "--partial");
}

export async function freePort(): Promise<number> {
  const s = createServer().listen(0, "127.0.0.1");
  await new Promise((f) => s.once("listening", f));
  const { port } = s.address() as { port: number };
  await new Promise((f) => s.close(f));
  return port;
}

export class Serve {
  private child: ChildProcess | null = null;
  private log = "";
  constructor(
    readonly data: string,
    readonly port: number,
    readonly args: readonly string[] = [],
  ) {}
  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }
  async start(): Promise<void> {
    const child = spawn(bin, ["--data", this.data, "serve", "--listen", `127.0.0.1:${this.port}`, "--rate-limit", "1000", "--rate-burst", "2000", ...this.args], { stdio: ["ignore", "ignore", "pipe"] });
    this.child = child;
    child.stderr!.on("data", (d) => (this.log += d));
    for (let i = 0; i < 600; i++) {
      if (child.exitCode !== null) throw new Error(`serve ended with ${child.exitCode}: ${this.log}`);
      try {
        await fetch(`${this.url}/api/v1/health`);
        return;
      } catch {
        await new Promise((f) => setTimeout(f, 100));
      }
    }
    throw new Error(`serve does not answer: ${this.log}`);
  }
  async stop(): Promise<void> {
    const child = this.child;
    this.child = null;
    if (!child || child.exitCode !== null) return;
    const gone = new Promise((f) => child.once("exit", f));
    child.kill("SIGTERM");
    await gone;
  }
}

/** json asks the API directly, to compare what the page shows with what the server says. */
export async function json<T>(address: string, token?: string): Promise<T> {
  const r = await fetch(address, token ? { headers: { Authorization: `Bearer ${token}` } } : {});
  if (!r.ok) throw new Error(`${address}: ${r.status} ${await r.text()}`);
  return (await r.json()) as T;
}

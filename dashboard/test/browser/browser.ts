import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium, type Browser, type Page } from "playwright-core";
import { expect } from "vitest";
import { chromiumPath, screenshots } from "./cloud";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export async function launch(): Promise<Browser> {
  return chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });
}

/** open gives a page that collects what a console or a thrown error says; `done` finds it empty. */
export async function open(browser: Browser, options: Parameters<Browser["newContext"]>[0] = {}): Promise<{ page: Page; errors: string[] }> {
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, timezoneId: "Asia/Kolkata", locale: "en-GB", ...options });
  const page = await context.newPage();
  const errors: string[] = [];
  page.on("pageerror", (e) => errors.push(String(e)));
  page.on("console", (m) => {
    // Failed requests are what some tests are about; scripts and styles that CSP blocks never are.
    if (m.type() === "error" && !m.text().startsWith("Failed to load resource")) errors.push(m.text());
  });
  return { page, errors };
}

/** settled waits until nothing is loading any more. */
export async function settled(page: Page): Promise<void> {
  await page.waitForSelector("main h1, main .state, main form");
  await page.waitForFunction(() => document.querySelectorAll(".skeleton, .old").length === 0, undefined, { timeout: 30_000 });
}

export async function shot(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true });
}

/** drawn counts, for each chart, how many different colours its canvas holds beyond the blank one. */
export async function drawn(page: Page): Promise<{ label: string; points: number; inked: number; colours: number }[]> {
  return page.evaluate(() =>
    [...document.querySelectorAll<HTMLElement>(".chart")].map((el) => {
      const canvas = el.querySelector("canvas");
      const out = { label: el.getAttribute("aria-label") ?? "", points: Number(el.dataset.points), inked: 0, colours: 0 };
      if (!canvas) return out;
      const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
      const seen = new Set<number>();
      for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3]! < 200) continue;
        out.inked++;
        // Saturated pixels are lines of series; axes and grid are grey.
        const [r, g, b] = [data[i]!, data[i + 1]!, data[i + 2]!];
        if (Math.max(r, g, b) - Math.min(r, g, b) > 60) seen.add((r >> 5) * 64 + (g >> 5) * 8 + (b >> 5));
      }
      out.colours = seen.size;
      return out;
    }),
  );
}

/** accessible runs axe and finds nothing serious or critical. */
export async function accessible(page: Page, where: string): Promise<void> {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const r = await (window as unknown as { axe: { run: (o: object) => Promise<{ violations: { id: string; impact: string; nodes: { target: string[]; failureSummary: string }[] }[] }> } }).axe.run({
      runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
    });
    return r.violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target.join(" ")} ${n.failureSummary}`).join("; ")}`);
  });
  expect(found, where).toEqual([]);
}

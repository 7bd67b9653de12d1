/*
 * Why uPlot: what each library adds to the page, gzipped, and how long a frame
 * of one series of 10,000 points takes. ECharts is no dependency; to measure
 * again: npm install --no-save echarts && npm run bench:charts
 */
import { readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { chromium } from "playwright-core";
import { build } from "vite";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "dist");
await build({
  root: here,
  configFile: false,
  logLevel: "error",
  build: {
    outDir: out,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    rolldownOptions: { input: join(here, "page.html"), output: { manualChunks: (id) => (id.includes("uplot") ? "uplot" : undefined) } },
  },
});
for (const f of readdirSync(join(out, "assets"))) console.log(f, (gzipSync(readFileSync(join(out, "assets", f))).length / 1024).toFixed(1), "kB gzipped");

const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };
const server = createServer((q, r) => {
  try {
    const file = join(out, new URL(q.url, "http://x").pathname);
    r.setHeader("Content-Type", types[extname(file)] ?? "application/octet-stream");
    r.end(readFileSync(file));
  } catch {
    r.writeHead(404).end();
  }
}).listen(0, "127.0.0.1");
await new Promise((f) => server.once("listening", f));
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
try {
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${server.address().port}/page.html`);
  await page.waitForFunction("window.bench");
  for (const name of ["uplot", "echarts"]) {
    const ms = await page.evaluate(`window.bench.${name}()`);
    console.log(name, "frame of 10,000 points: median", ms[15].toFixed(2), "ms, slowest", ms[29].toFixed(2), "ms");
  }
} finally {
  await browser.close();
  server.close();
  rmSync(out, { recursive: true, force: true });
}

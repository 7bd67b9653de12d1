import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [react()],
  // The server's Content-Security-Policy allows neither inline scripts nor
  // data: URLs, so nothing may be inlined into the page.
  build: { assetsInlineLimit: 0, modulePreload: { polyfill: false }, outDir: "dist", emptyOutDir: true, target: "es2022" },
  // `npm run dev` in front of a `ratebatch serve` on its usual address.
  server: { proxy: { "/api": process.env.RATEBATCH_SERVE ?? "http://127.0.0.1:8080" } },
  test: { include: ["src/**/*.test.ts", "src/**/*.test.tsx"] },
});

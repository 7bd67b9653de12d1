import { defineConfig } from "vitest/config";

/* Real Chromium against a real `ratebatch serve`; see test/browser/cloud.ts for what that needs. */
export default defineConfig({
  test: {
    include: ["test/browser/**/*.test.ts"],
    environment: "node",
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 300_000,
    globalSetup: "test/browser/setup.ts",
  },
});

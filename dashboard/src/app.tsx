/* The frame around every page: navigation, search, zone, theme, and what is wrong with the server. */
import { useEffect, useState } from "react";
import { setToken, token, url } from "./api/client";
import type { Health, Session } from "./api/types";
import { useApi, useLost, useRefused } from "./api/use";
import { clock, zoneName } from "./format/time";
import { CostsPage } from "./pages/costs";
import { ExplainPage } from "./pages/explain";
import { InstancePage, InstancesPage } from "./pages/instance";
import { LinesPage } from "./pages/lines";
import { NodePage, NodesPage } from "./pages/node";
import { PlanPage } from "./pages/plan";
import { RatingPage } from "./pages/rating";
import { TopPage } from "./pages/top";
import { useRoute } from "./router";
import { load, save, shade, SharedContext, type Settings } from "./settings";
import { Empty, Link, Pick } from "./ui/parts";
import { Search } from "./ui/search";
import { SignIn } from "./ui/signin";

const pages = [
  ["costs", "Costs"],
  ["instances", "Instances"],
  ["nodes", "Nodes"],
  ["top", "Top usage"],
  ["rating", "Rating"],
  ["plan", "Plan"],
] as const;

function Page() {
  const { parts, query } = useRoute();
  const [first = "costs", second, third, ...more] = parts;
  if (more.length === 0) {
    if (first === "costs" && !second) return <CostsPage />;
    if (first === "costs" && second === "lines") return third ? <ExplainPage line={third} key={third} /> : <LinesPage />;
    if (first === "instances" && !third) return second ? <InstancePage id={second} key={second} /> : <InstancesPage />;
    // A host's name has points in it, and a path with a point looks like a file to proxies.
    const region = query.get("region");
    const host = query.get("host");
    if (first === "nodes" && !second) return region && host ? <NodePage region={region} host={host} key={`${region}/${host}`} /> : <NodesPage />;
    if (first === "top" && !second) return <TopPage />;
    if (first === "rating" && !third) return <RatingPage tab={second ?? "scopes"} />;
    if (first === "plan") return <PlanPage version={second ?? "current"} tab={third ?? "rules"} />;
  }
  return (
    <Empty title="There is no such page">
      <Link to="/costs">Costs</Link> is a good place to start.
    </Empty>
  );
}

export function App() {
  const [settings, setSettings] = useState<Settings>(load);
  const [, dark] = useState(0);
  const shown = shade(settings.theme);
  const route = useRoute();
  const lost = useLost();
  const refused = useRefused();
  const session = useApi<Session>(url("/session"), { every: 300_000 });
  const health = useApi<Health>(url("/health"), { every: 60_000 });

  useEffect(() => save(settings), [settings]);
  useEffect(() => {
    document.documentElement.dataset.theme = shown;
  }, [shown]);
  useEffect(() => {
    const m = matchMedia("(prefers-color-scheme: dark)");
    const f = () => dark((n) => n + 1);
    m.addEventListener("change", f);
    return () => m.removeEventListener("change", f);
  }, []);

  // Attributes on the root change what tokens mean, so set them before charts read them.
  document.documentElement.dataset.theme = shown;

  const signedOut = refused !== 0 || session.error?.status === 401;
  const here = route.parts[0] ?? "costs";
  const project = session.data?.project ?? null;
  const says = health.data && health.data.status !== "ok" ? health.data.message : health.error && health.error.status !== 0 ? health.error.message : "";
  return (
    <SharedContext.Provider value={{ zone: settings.zone, shade: shown, session: session.data }}>
      <a className="skip" href="#page">
        Skip to the page
      </a>
      <header className="top">
        <div className="top-row">
          <Link to="/costs" className="brand" label="Ratebatch, costs">
            <img src="/favicon.svg" alt="" width="24" height="24" />
            Ratebatch
          </Link>
          <nav className="nav" aria-label="Pages">
            {pages.map(([path, name]) => (
              <Link key={path} to={`/${path}`} current={here === path}>
                {name}
              </Link>
            ))}
          </nav>
          <div className="tools">
            {signedOut ? null : <Search />}
            <Pick label={`Times are shown in ${zoneName(settings.zone)}`} value={settings.zone} options={[["utc", "UTC"], ["local", "Local"]]} onPick={(zone) => setSettings((s) => ({ ...s, zone }))} />
            <button
              type="button"
              className="button bare icon"
              title={shown === "dark" ? "Light" : "Dark"}
              aria-label={shown === "dark" ? "Switch to light colours" : "Switch to dark colours"}
              onClick={() => setSettings((s) => ({ ...s, theme: shown === "dark" ? "light" : "dark" }))}
            >
              <svg width="18" height="18" viewBox="0 0 18 18" aria-hidden="true">
                {shown === "dark" ? (
                  <g stroke="currentColor" strokeWidth="1.6" strokeLinecap="round" fill="none">
                    <circle cx="9" cy="9" r="3.2" />
                    <path d="M9 1.5v1.8M9 14.7v1.8M1.5 9h1.8M14.7 9h1.8M3.7 3.7 5 5M13 13l1.3 1.3M14.3 3.7 13 5M5 13l-1.3 1.3" />
                  </g>
                ) : (
                  <path d="M15 10.8A6.6 6.6 0 0 1 7.2 3a6.6 6.6 0 1 0 7.8 7.8Z" fill="currentColor" />
                )}
              </svg>
            </button>
          </div>
        </div>
      </header>
      {lost !== 0 ? (
        <p className="banner bad" role="status">
          The server does not answer since {clock(new Date(lost), settings.zone)}. Figures on this page are older; trying again every few seconds.
        </p>
      ) : says ? (
        <p className="banner" role="status">
          {says}
        </p>
      ) : null}
      <main className="page" id="page" tabIndex={-1}>
        {signedOut ? (
          <SignIn
            wrong={token() !== null}
            onToken={(t) => {
              setToken(t);
              location.reload();
            }}
          />
        ) : (
          <Page />
        )}
      </main>
      <footer className="foot">
        <span>Times in {zoneName(settings.zone)}</span>
        {session.data?.billing_timezone && session.data.billing_timezone !== zoneName(settings.zone) ? <span>Days and months of bills in {session.data.billing_timezone}</span> : null}
        {project !== null ? <span>This token sees project {project} only</span> : null}
        {session.data && session.data.authentication === "token" ? (
          <button
            type="button"
            className="button bare small"
            onClick={() => {
              setToken(null);
              location.reload();
            }}
          >
            Sign out {session.data.name}
          </button>
        ) : null}
        <span>{session.data ? `ratebatch ${session.data.version}` : ""}</span>
      </footer>
    </SharedContext.Provider>
  );
}

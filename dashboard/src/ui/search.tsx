import { useEffect, useId, useMemo, useRef, useState } from "react";
import { url } from "../api/client";
import type { SearchResult } from "../api/types";
import { useApi } from "../api/use";
import { go, to } from "../router";

interface Hit {
  key: string;
  kind: string;
  name: string;
  note: string;
  address: string;
}

/** hits turns an answer into one list; the range and its end in the address stay for instances and hosts. */
export function hits(r: SearchResult, keep: Record<string, string | null>): Hit[] {
  return [
    ...r.instances.map((x) => ({ key: `i ${x.region} ${x.id}`, kind: "Instances", name: x.name || x.id, note: x.project_name || x.project_id, address: to(["instances", x.id], keep) })),
    ...r.projects.map((x) => ({ key: `p ${x.id}`, kind: "Projects", name: x.name || x.id, note: x.name ? x.id : x.domain, address: to(["costs"], { project: x.id, group: "metric" }) })),
    ...r.hosts.map((x) => ({ key: `h ${x.region} ${x.host}`, kind: "Hosts", name: x.host, note: x.region, address: to(["nodes"], { region: x.region, host: x.host, ...keep }) })),
  ];
}

/** Search finds instances, projects and hosts by a part of a name or id. `/` goes to it. */
export function Search() {
  const [text, setText] = useState("");
  const [asked, setAsked] = useState("");
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const id = useId();

  useEffect(() => {
    const t = setTimeout(() => setAsked(text.trim()), 180);
    return () => clearTimeout(t);
  }, [text]);
  useEffect(() => {
    const slash = (e: KeyboardEvent) => {
      const on = e.target as HTMLElement;
      if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || ["INPUT", "TEXTAREA", "SELECT"].includes(on.tagName)) return;
      e.preventDefault();
      input.current?.focus();
    };
    addEventListener("keydown", slash);
    return () => removeEventListener("keydown", slash);
  }, []);

  const answer = useApi<SearchResult>(asked === "" ? null : url("/search", { q: asked, limit: 8 }));
  const list = useMemo(() => {
    if (!answer.data) return [];
    const q = new URLSearchParams(location.search);
    return hits(answer.data, { range: q.get("range"), end: q.get("end") });
  }, [answer.data]);
  useEffect(() => setAt(0), [list]);

  const show = open && text.trim() !== "";
  const take = (h: Hit | undefined) => {
    if (!h) return;
    setOpen(false);
    setText("");
    input.current?.blur();
    go(h.address);
  };
  return (
    <div className="search" role="search">
      <input
        ref={input}
        className="field"
        type="search"
        role="combobox"
        placeholder="Search instance, project, host"
        aria-label="Search an instance, project or host by name or id"
        aria-expanded={show}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={show && list[at] ? `${id}-${at}` : undefined}
        maxLength={200}
        value={text}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onChange={(e) => {
          setText(e.target.value);
          setOpen(true);
        }}
        onKeyDown={(e) => {
          if (e.key === "Escape") setOpen(false);
          else if (e.key === "Enter") take(list[at]);
          else if (e.key === "ArrowDown" || e.key === "ArrowUp") {
            e.preventDefault();
            setAt((i) => (list.length === 0 ? 0 : (i + (e.key === "ArrowDown" ? 1 : list.length - 1)) % list.length));
          }
        }}
      />
      <div className="results" hidden={!show} onMouseDown={(e) => e.preventDefault()}>
        <div role="status" className="quiet small">
          {answer.error ? answer.error.message : asked !== text.trim() || answer.loading ? "Searching\u2026" : list.length === 0 ? `Nothing is called \u201c${asked}\u201d, and no id holds it` : <span className="sr">{list.length} found</span>}
        </div>
        <div role="listbox" id={`${id}-list`} aria-label="Found">
          {list.map((h, i) => (
            <div key={h.key} role="presentation">
              {i === 0 || list[i - 1]!.kind !== h.kind ? (
                <div className="kind" role="presentation">
                  {h.kind}
                </div>
              ) : null}
              <div role="option" id={`${id}-${i}`} aria-selected={i === at} onClick={() => take(h)} onMouseMove={() => setAt(i)}>
                <span>{h.name}</span>
                <span className="quiet small">{h.note}</span>
              </div>
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}

package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// healthAnswer says whether there is anything to show.
type healthAnswer struct {
	Status  string     `json:"status"`
	Message string     `json:"message"`
	Newest  *time.Time `json:"newest_sample,omitempty"`
}

// health needs no token: it tells a load balancer and a person at the door
// whether it is worth knocking, and nothing about usage.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	if s.limiter.take("health "+clientOf(r), s.Now()) > 0 {
		s.fail(w, r, &apiError{status: http.StatusTooManyRequests, code: "rate_limited", message: "too many requests"})
		return
	}
	out, status := s.healthOf(ctx), http.StatusOK
	if out.Status == "unavailable" || out.Status == "not_migrated" {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "5")
	}
	if _, ok := s.Auth.Identify(r); !ok {
		out.Newest = nil
	}
	body, err := encode(out)
	if err != nil {
		s.fail(w, r, asAPIError(ctx, err))
		return
	}
	s.send(w, r, status, body)
}

func (s *Server) healthOf(ctx context.Context) healthAnswer {
	st, err := s.ready(ctx)
	if err == nil {
		var newest time.Time
		var usage bool
		if newest, err = st.NewestSample(ctx); err == nil {
			usage, err = st.HasUsage(ctx)
		}
		if err == nil {
			return describeHealth(newest, usage, s.Now())
		}
	}
	e := asAPIError(ctx, err)
	if errors.Is(err, store.ErrNewerSchema) {
		return healthAnswer{Status: "not_migrated", Message: "A newer version of Ratebatch has migrated the database: install that version and start it again."}
	}
	if e.code == "not_migrated" {
		return healthAnswer{Status: "not_migrated", Message: "The database has no tables of this version yet: run 'ratebatch migrate'."}
	}
	s.Log.WarnContext(ctx, "ClickHouse cannot be asked", "error", err.Error())
	return healthAnswer{Status: "unavailable", Message: "ClickHouse does not answer. Figures are shown again as soon as it does."}
}

func describeHealth(newest time.Time, usage bool, now time.Time) healthAnswer {
	out := healthAnswer{Status: "ok", Message: "Usage is coming in."}
	if newest.Unix() > 0 {
		out.Newest = &newest
	}
	switch {
	case !usage && out.Newest == nil:
		return healthAnswer{Status: "empty", Message: "There is no usage yet: start agents and 'ratebatch ingest', or try 'ratebatch simulate'."}
	case out.Newest == nil:
		return healthAnswer{Status: "idle", Message: "There is usage, but no samples are known."}
	case now.Sub(newest) > silentAfter:
		out.Status, out.Message = "idle", "The newest sample is of "+newest.Format(time.RFC3339)+": nothing has come in since."
	}
	return out
}

// sessionAnswer says who asks and what figures rest on.
type sessionAnswer struct {
	Authentication string    `json:"authentication"`
	Name           string    `json:"name"`
	Project        *string   `json:"project"`
	Now            time.Time `json:"now"`
	Currency       string    `json:"currency"`
	Zone           string    `json:"billing_timezone"`
	Month          string    `json:"month"` // that now lies in, of the billing time zone
	Period         int       `json:"period_seconds"`
	Version        string    `json:"version"`
}

func (s *Server) session(ctx context.Context, c *call) (any, error) {
	b, err := readBilling(ctx, c.store)
	if err != nil {
		return nil, err
	}
	versions, err := c.store.Versions(ctx, store.PlanVersions)
	if err != nil {
		return nil, err
	}
	out := sessionAnswer{Authentication: c.id.Kind, Name: c.id.Name, Now: c.now.Truncate(time.Second), Zone: b.Calendar.Zone().String(), Month: b.Calendar.MonthAt(c.now).String(), Period: int(b.Period / time.Second), Version: s.Version}
	if c.id.Project != "" {
		out.Project = &c.id.Project
	}
	if v := inForce(versions, c.now); v != nil {
		out.Currency = v.Currency
	}
	return out, nil
}

// status says what the command says; a project's token gets the parts that are
// its own.
func (s *Server) status(ctx context.Context, c *call) (any, error) {
	value, err := s.statusOf(ctx, c.store, keptFor)
	if err != nil || c.id.Project == "" {
		return value, err
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var all struct {
		Scopes   []json.RawMessage `json:"scopes"`
		Failures []json.RawMessage `json:"failures"`
		Late     []json.RawMessage `json:"late"`
		States   map[string]struct {
			Active bool   `json:"active"`
			Name   string `json:"name,omitempty"`
			Domain string `json:"domain,omitempty"`
		} `json:"scope_states"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	schedules, err := c.ownSchedules(ctx)
	if err != nil {
		return nil, err
	}
	open := []store.Schedule{}
	for _, x := range schedules {
		if x.Open() {
			open = append(open, x)
		}
	}
	late, states := ofScope(all.Late, c.id.Project), map[string]any{}
	if own, ok := all.States[c.id.Project]; ok {
		states[c.id.Project] = own
	}
	return map[string]any{"scopes": ofScope(all.Scopes, c.id.Project), "failures": ofScope(all.Failures, c.id.Project), "late": late, "late_findings": len(late),
		"schedules": open, "jobs": []any{}, "waiting": []any{}, "scope_states": states}, nil
}

// ofScope are the objects whose scope is the one named.
func ofScope(list []json.RawMessage, scope string) []json.RawMessage {
	out := []json.RawMessage{}
	for _, raw := range list {
		var of struct {
			Scope string `json:"scope"`
		}
		if json.Unmarshal(raw, &of) == nil && of.Scope == scope {
			out = append(out, raw)
		}
	}
	return out
}

// run is one run of a job.
type run struct {
	RunID     uuid.UUID         `json:"run_id"`
	Job       string            `json:"job"`
	State     string            `json:"state"`
	Host      string            `json:"host"`
	Version   string            `json:"version"`
	Arguments []string          `json:"arguments"`
	Counts    map[string]string `json:"counts"`
	Error     string            `json:"error"`
	Hint      string            `json:"hint"`
	StartedAt time.Time         `json:"started_at"`
	EndedAt   *time.Time        `json:"ended_at"`
	Duration  *float64          `json:"duration_seconds"`
}

type runList struct {
	Runs  []run  `json:"runs"`
	Total uint64 `json:"total"`
}

func (s *Server) runs(ctx context.Context, c *call) (any, error) {
	if err := c.operator(); err != nil {
		return nil, err
	}
	limit, offset, err := c.page()
	if err != nil {
		return nil, err
	}
	state := c.get("state")
	if state != "" {
		if _, err := c.oneOf("state", "", "running", "done", "failed", "interrupted"); err != nil {
			return nil, err
		}
	}
	list, total, err := c.store.JobRuns(ctx, c.get("job"), state, limit, offset)
	if err != nil {
		return nil, err
	}
	out := runList{Runs: []run{}, Total: total}
	for _, x := range list {
		r := run{RunID: x.RunID, Job: x.Job, State: x.State, Host: x.Host, Version: x.Version, Arguments: some(x.Arguments), Counts: x.Counts, Error: x.Error, Hint: x.Hint, StartedAt: x.StartedAt}
		if x.State != "running" {
			took := x.EndedAt.Sub(x.StartedAt).Seconds()
			r.EndedAt, r.Duration = &x.EndedAt, &took
		}
		out.Runs = append(out.Runs, r)
	}
	return out, nil
}

type lateList struct {
	Late  []store.LateFinding `json:"late"`
	Total int                 `json:"total"`
}

func (s *Server) late(ctx context.Context, c *call) (any, error) {
	limit, offset, err := c.page()
	if err != nil {
		return nil, err
	}
	only, err := c.project()
	if err != nil {
		return nil, err
	}
	list, err := c.store.LateOpen(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(f store.LateFinding) bool { return only != "" && f.Scope != only })
	return lateList{cut(list, limit, offset), len(list)}, nil
}

type unpricedList struct {
	Begin    time.Time        `json:"begin"`
	End      time.Time        `json:"end"`
	Month    string           `json:"month"`
	Unpriced []store.Unpriced `json:"unpriced"`
	Total    uint64           `json:"total"`
}

func (s *Server) unpriced(ctx context.Context, c *call) (any, error) {
	limit, offset, err := c.page()
	if err != nil {
		return nil, err
	}
	only, err := c.project()
	if err != nil {
		return nil, err
	}
	b, err := readBilling(ctx, c.store)
	if err != nil {
		return nil, err
	}
	w, err := c.window(b.Calendar)
	if err != nil {
		return nil, err
	}
	closed, err := closedMonths(ctx, c.store)
	if err != nil {
		return nil, err
	}
	cw := costWindow(b.Calendar, closed, w.from, w.to)
	if err := s.linesAgree(ctx, c, b.Calendar, cw, only); err != nil {
		return nil, err
	}
	list, total, err := c.store.UnpricedUsage(ctx, cw, only, limit, offset)
	if err != nil {
		return nil, err
	}
	names, err := projectNames(ctx, c.store)
	for i := range list {
		list[i].Name = names[list[i].Scope]
	}
	return unpricedList{w.from, w.to, b.Calendar.MonthAt(w.from).String(), some(list), total}, err
}

// ownSchedules are the schedules that the caller sees, the newest first. One
// project's token sees of a schedule neither other scopes nor who made it.
func (c *call) ownSchedules(ctx context.Context) ([]store.Schedule, error) {
	all, err := jobs.Schedules(ctx, c.store)
	if err != nil {
		return nil, err
	}
	out := []store.Schedule{}
	for _, x := range all {
		if p := c.id.Project; p != "" {
			if len(x.Scopes) > 0 && !slices.Contains(x.Scopes, p) {
				continue
			}
			x.Scopes, x.Author, x.Waiting, x.Error = []string{p}, "", "", ""
		}
		out = append(out, x)
	}
	slices.SortStableFunc(out, func(a, b store.Schedule) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return out, nil
}

type scheduleList struct {
	Schedules []store.Schedule `json:"schedules"`
	Total     int              `json:"total"`
}

func (s *Server) schedules(ctx context.Context, c *call) (any, error) {
	limit, offset, err := c.page()
	if err != nil {
		return nil, err
	}
	list, err := c.ownSchedules(ctx)
	return scheduleList{cut(list, limit, offset), len(list)}, err
}

// delivery is one export.
type delivery struct {
	Delivery   string    `json:"delivery"`
	Dataset    string    `json:"dataset"`
	Mechanism  string    `json:"mechanism"`
	Location   string    `json:"location"`
	Month      string    `json:"month"`
	Begin      time.Time `json:"begin"`
	End        time.Time `json:"end"`
	Commits    uint64    `json:"commits"`
	Digest     string    `json:"commits_digest"`
	Files      uint32    `json:"files"`
	Rows       uint64    `json:"rows"`
	Totals     []money   `json:"totals"`
	Manifest   string    `json:"manifest_sha256"`
	RunID      uuid.UUID `json:"run_id"`
	ExportedAt time.Time `json:"exported_at"`
}

type exportList struct {
	Exports []delivery `json:"exports"`
	Total   uint64     `json:"total"`
}

func (s *Server) exports(ctx context.Context, c *call) (any, error) {
	if err := c.operator(); err != nil {
		return nil, err
	}
	limit, offset, err := c.page()
	if err != nil {
		return nil, err
	}
	list, total, err := c.store.Deliveries(ctx, limit, offset)
	if err != nil {
		return nil, err
	}
	out := exportList{Exports: []delivery{}, Total: total}
	for _, x := range list {
		out.Exports = append(out.Exports, delivery{x.Delivery, x.Dataset, x.Mechanism, x.Location, x.Month.Format("2006-01"), x.Begin, x.End, x.Commits, x.CommitDigest, x.Files, x.Rows,
			moneyOf(x.Totals), x.ManifestSHA256, x.RunID, x.ExportedAt})
	}
	return out, nil
}

func moneyOf(totals map[string]decimal.Decimal) []money {
	out := []money{}
	for _, currency := range slices.Sorted(maps.Keys(totals)) {
		out = append(out, money{currency, totals[currency]})
	}
	return out
}

// month is what a month amounts to.
type month struct {
	Month       string     `json:"month"`
	State       string     `json:"state"`
	Begin       time.Time  `json:"begin"`
	End         time.Time  `json:"end"`
	Closed      uint32     `json:"closed"`
	ClosedAt    *time.Time `json:"closed_at"`
	Reason      string     `json:"reason"`
	Author      string     `json:"author"`
	Periods     uint64     `json:"periods"`
	Lines       uint64     `json:"lines"`
	Totals      []money    `json:"totals"`
	Corrections []money    `json:"corrections"`
}

// monthCache keeps what months amount to until their commits change.
type monthCache struct {
	mu   sync.Mutex
	kept map[time.Time]keptMonth
}

type keptMonth struct {
	key     string
	commits []store.CostCommit
}

func (s *Server) monthList(ctx context.Context, c *call) (any, error) {
	b, err := readBilling(ctx, c.store)
	if err != nil {
		return nil, err
	}
	first, last, err := c.store.CommitSpan(ctx)
	if err != nil {
		return nil, err
	}
	changes, err := c.store.MonthCloses(ctx)
	if err != nil {
		return nil, err
	}
	corrections, err := c.store.Corrections(ctx)
	if err != nil {
		return nil, err
	}
	closed, err := closedMonths(ctx, c.store)
	if err != nil {
		return nil, err
	}
	out := []month{}
	if first.Unix() > 0 {
		for m := b.Calendar.MonthAt(first); m.From.Before(last); m = b.Calendar.Next(m) {
			x, err := s.month(ctx, c, m, closed)
			if err != nil {
				return nil, err
			}
			for _, change := range changes {
				if !change.Month.Equal(m.Date) {
					continue
				}
				x.Closed = max(x.Closed, change.Closed)
				if x.State == "closed" && change.Kind == "close" && change.Closed == closed[m.Date].Number {
					x.ClosedAt, x.Reason, x.Author = &change.At, change.Reason, change.Author
				}
			}
			sums := map[string]decimal.Decimal{}
			for _, y := range corrections {
				if y.Month.Equal(m.Date) && (c.id.Project == "" || y.Scope == c.id.Project) {
					sums[y.Currency] = sums[y.Currency].Add(y.Current).Sub(y.Frozen)
				}
			}
			x.Corrections = moneyOf(sums)
			if c.id.Project != "" {
				x.Author = ""
			}
			out = append(out, x)
		}
	}
	slices.Reverse(out)
	return map[string]any{"months": out}, nil
}

// month sums up a month's commits: those that count, or the frozen ones.
func (s *Server) month(ctx context.Context, c *call, m ratebatch.Month, closed map[time.Time]store.MonthClose) (month, error) {
	out := month{Month: m.String(), State: "open", Begin: m.From, End: m.To}
	if _, ok := closed[m.Date]; ok {
		out.State = "closed"
	}
	hours, err := c.store.CostState(ctx, m.From, m.To)
	if err != nil {
		return out, err
	}
	var n, voids uint64
	var latest time.Time
	for _, h := range hours {
		n, voids = n+h.Commits, h.Voids
		if h.Latest.After(latest) {
			latest = h.Latest
		}
	}
	key := fmt.Sprint(n, voids, latest.UnixMicro(), closed[m.Date].Number)
	s.months.mu.Lock()
	kept, ok := s.months.kept[m.Date]
	s.months.mu.Unlock()
	if !ok || kept.key != key {
		kept = keptMonth{key: key}
		if kept.commits, err = c.store.CostCommits(ctx, store.CostWindow{From: m.From, To: m.To, Month: m.Date, Closed: closed[m.Date].Number}); err != nil {
			return out, err
		}
		s.months.mu.Lock()
		if s.months.kept == nil {
			s.months.kept = map[time.Time]keptMonth{}
		}
		s.months.kept[m.Date] = kept
		s.months.mu.Unlock()
	}
	sums := map[string]decimal.Decimal{}
	for _, x := range kept.commits {
		if c.id.Project == "" || x.Scope == c.id.Project {
			out.Lines += x.Lines
			out.Periods += x.Periods
			sums[x.Currency] = sums[x.Currency].Add(x.Total)
		}
	}
	out.Totals = moneyOf(sums)
	return out, nil
}

// inForce is the version in force at a moment, nil if there is none.
func inForce(versions []store.Version, at time.Time) *store.Version {
	return store.InForce(versions, at, at.Add(time.Second))[0].Version
}

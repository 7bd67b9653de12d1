package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// ScopeUsage says that a scope has usage in a region, and from when on.
type ScopeUsage struct {
	Scope, Region string
	FirstUsage    time.Time
}

// UsageTable is a table with usage: which column says whose it is, where and
// when.
type UsageTable struct {
	Table, Scope, Region, Time string
	Tier                       bool // one of our own tiers, which say when a row was refreshed
}

// HourlyTiers are the tables that the built-in metrics read.
func HourlyTiers() []UsageTable {
	var out []UsageTable
	for _, table := range []string{"instance_metrics_hourly", "port_volume_hourly", "disk_metrics_hourly"} {
		out = append(out, UsageTable{Table: table, Scope: "project_id", Region: "region", Time: "bucket", Tier: true})
	}
	return out
}

// rows is the SELECT of scope, region, bucket and, of tiers, refreshed_at.
func (t UsageTable) rows(refreshedSince bool) string {
	scope := "toString(" + quoteIdentifier(t.Scope) + ")"
	region := "''"
	if t.Region != "" {
		region = "toString(" + quoteIdentifier(t.Region) + ")"
	}
	parts := strings.Split(t.Table, ".")
	for i := range parts {
		parts[i] = quoteIdentifier(parts[i])
	}
	text := fmt.Sprintf("SELECT if(%[1]s = '', 'unattributed', %[1]s) AS scope, %[2]s AS region, toDateTime(%[3]s, 'UTC') AS bucket", scope, region, quoteIdentifier(t.Time))
	if refreshedSince {
		return text + ", refreshed_at FROM " + strings.Join(parts, ".") + " WHERE refreshed_at >= toDateTime({since:DateTime64(6, 'UTC')}, 'UTC')"
	}
	return text + " FROM " + strings.Join(parts, ".")
}

func usageRows(tables []UsageTable, refreshedSince bool) string {
	var all []string
	for _, t := range tables {
		if t.Tier || !refreshedSince {
			all = append(all, t.rows(refreshedSince))
		}
	}
	return strings.Join(all, " UNION ALL ")
}

// ScopeUsages lists the scopes that have usage at or after since.
func (s *Store) ScopeUsages(ctx context.Context, tables []UsageTable, since time.Time) ([]ScopeUsage, error) {
	var out []ScopeUsage
	text := strings.ReplaceAll(SQL("usage_scopes"), "/* ROWS */", usageRows(tables, false))
	err := s.each(WithParams(ctx, Params{"since": since}), "usage_scopes", text, func(rows driver.Rows) error {
		var u ScopeUsage
		err := rows.Scan(&u.Scope, &u.Region, &u.FirstUsage)
		out = append(out, u)
		return err
	})
	return out, err
}

// Watermark says up to when a region's input is complete, and who says so.
type Watermark struct {
	Region        string
	CompleteUntil time.Time
	Source        string
}

// Watermarks lists the watermark of each region that has one.
func (s *Store) Watermarks(ctx context.Context) (map[string]Watermark, error) {
	list, err := Collect(ctx, s, "watermarks", nil, func(rows driver.Rows) (Watermark, error) {
		var w Watermark
		err := rows.Scan(&w.Region, &w.CompleteUntil, &w.Source)
		return w, err
	})
	if err != nil {
		return nil, err
	}
	out := make(map[string]Watermark, len(list))
	for _, w := range list {
		out[w.Region] = w
	}
	return out, nil
}

// ScopeState is what was last said of a scope.
type ScopeState struct {
	Scope     string    `json:"scope"`
	Active    bool      `json:"active"`
	Name      string    `json:"name,omitempty"`
	Domain    string    `json:"domain,omitempty"`
	Fetcher   string    `json:"fetcher"`
	Reason    string    `json:"reason,omitempty"`
	ChangedAt time.Time `json:"changed_at"`
}

// ScopeStates lists the scopes that someone enabled, disabled or fetched.
func (s *Store) ScopeStates(ctx context.Context) (map[string]ScopeState, error) {
	list, err := Collect(ctx, s, "scope_states", nil, func(rows driver.Rows) (ScopeState, error) {
		var x ScopeState
		err := rows.Scan(&x.Scope, &x.Active, &x.Name, &x.Domain, &x.Fetcher, &x.Reason, &x.ChangedAt)
		return x, err
	})
	if err != nil {
		return nil, err
	}
	out := make(map[string]ScopeState, len(list))
	for _, x := range list {
		out[x.Scope] = x
	}
	return out, nil
}

// ClosedMonth is a month that is closed: what it consists of is frozen.
type ClosedMonth struct {
	Month    time.Time
	Closed   uint32 // how often it was closed
	ClosedAt time.Time
}

// ClosedMonths lists the months that are closed now.
func (s *Store) ClosedMonths(ctx context.Context) ([]ClosedMonth, error) {
	return Collect(ctx, s, "closed_months", nil, func(rows driver.Rows) (ClosedMonth, error) {
		var m ClosedMonth
		err := rows.Scan(&m.Month, &m.Closed, &m.ClosedAt)
		m.Month, m.ClosedAt = m.Month.UTC(), m.ClosedAt.UTC()
		return m, err
	})
}

// CommitScope is a scope that has commits, with the begins of its first and
// last period.
type CommitScope struct {
	Scope       string
	First, Last time.Time
}

// CommitScopes lists the scopes that have commits at or after since.
func (s *Store) CommitScopes(ctx context.Context, since time.Time) ([]CommitScope, error) {
	return Collect(ctx, s, "commit_scopes", Params{"since": since}, func(rows driver.Rows) (CommitScope, error) {
		var c CommitScope
		err := rows.Scan(&c.Scope, &c.First, &c.Last)
		c.First, c.Last = c.First.UTC(), c.Last.UTC()
		return c, err
	})
}

// DueWindow is the window [First, Until) in which a scope's periods can be due.
// Windows of one scope do not overlap.
type DueWindow struct {
	Scope        string
	First, Until time.Time
	// Again, if set, makes periods due whose current commit was made before it.
	Again time.Time
}

func (w DueWindow) again() int64 {
	if w.Again.IsZero() {
		return 0
	}
	return w.Again.UnixMicro()
}

// withScopes writes the windows into the statement as one constant.
func withScopes(text string, windows []DueWindow) string {
	var list strings.Builder
	list.WriteByte('[')
	for i, w := range windows {
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list, "(%s,%d,%d,%d)", QuoteString(w.Scope), w.First.Unix(), w.Until.Unix(), w.again())
	}
	list.WriteByte(']')
	constant := "SELECT window.1 AS scope, toDateTime(window.2, 'UTC') AS first, toDateTime(window.3, 'UTC') AS until, window.4 AS again FROM (SELECT arrayJoin(CAST(" +
		QuoteString(list.String()) + ", 'Array(Tuple(String, UInt32, UInt32, Int64))')) AS window)"
	return strings.ReplaceAll(text, "/* SCOPES */", constant)
}

// dates formats days for an Array(Date) parameter.
func dates(days []time.Time) []string {
	out := make([]string, len(days))
	for i, d := range days {
		out[i] = d.UTC().Format(time.DateOnly)
	}
	return out
}

// DueDay says how many periods that begin on a day (UTC) are due.
type DueDay struct {
	Day     time.Time `json:"day"`
	Periods uint64    `json:"periods"`
}

// namedScopes is how many scopes due_check names a day at most, less one.
const namedScopes = 2000

// DueDays counts the due periods of the scopes per day, oldest first. Months
// in skip are not looked at. It first tells, cheaply, the days that are wholly
// rated or not at all; only the others are counted period by period.
func (s *Store) DueDays(ctx context.Context, windows []DueWindow, period time.Duration, skip []time.Time) ([]DueDay, error) {
	if len(windows) == 0 {
		return nil, nil
	}
	from, to := windows[0].First, windows[0].Until
	for _, w := range windows {
		if w.First.Before(from) {
			from = w.First
		}
		if w.Until.After(to) {
			to = w.Until
		}
	}
	due := map[time.Time]uint64{}
	open := map[time.Time][]string{} // scopes that need a closer look
	seconds := int64(period / time.Second)
	check := WithParams(ctx, Params{"period": seconds, "closed": dates(skip), "from": from.Truncate(24 * time.Hour), "to": to.Add(24*time.Hour - 1).Truncate(24 * time.Hour)})
	err := s.each(check, "due_check", withScopes(SQL("due_check"), windows), func(rows driver.Rows) error {
		var day time.Time
		var never, unclear uint64
		var names []string
		if err := rows.Scan(&day, &never, &unclear, &names); err != nil {
			return err
		}
		if never > 0 {
			due[day.UTC()] = never
		}
		if unclear > 0 {
			open[day.UTC()] = names
		}
		return nil
	})
	if err != nil || len(open) == 0 {
		return dueDays(due), err
	}
	days := slices.SortedFunc(maps.Keys(open), time.Time.Compare)
	pairs := &strings.Builder{}
	pairs.WriteByte('[')
	for _, day := range days {
		names := open[day]
		if len(names) > namedScopes {
			// Not all are named: the day is counted for every scope.
			delete(due, day)
			names = nil
			for _, w := range windows {
				names = append(names, w.Scope)
			}
		}
		for _, name := range names {
			if pairs.Len() > 1 {
				pairs.WriteByte(',')
			}
			fmt.Fprintf(pairs, "(%d,%s)", day.Unix()/86400, QuoteString(name))
		}
	}
	pairs.WriteByte(']')
	constant := "SELECT toDate(pair.1) AS day, pair.2 AS scope FROM (SELECT arrayJoin(CAST(" + QuoteString(pairs.String()) + ", 'Array(Tuple(UInt16, String))')) AS pair)"
	text := strings.ReplaceAll(withScopes(SQL("due_days"), windows), "/* DAYS */", constant)
	exact := WithParams(ctx, Params{"period": seconds, "from": days[0], "to": days[len(days)-1].AddDate(0, 0, 1)})
	err = s.each(exact, "due_days", text, func(rows driver.Rows) error {
		var d DueDay
		if err := rows.Scan(&d.Day, &d.Periods); err != nil {
			return err
		}
		due[d.Day.UTC()] += d.Periods
		return nil
	})
	return dueDays(due), err
}

func dueDays(due map[time.Time]uint64) []DueDay {
	out := make([]DueDay, 0, len(due))
	for _, day := range slices.SortedFunc(maps.Keys(due), time.Time.Compare) {
		out = append(out, DueDay{day, due[day]})
	}
	return out
}

// each runs a statement with the context's parameters and hands over its rows.
func (s *Store) each(ctx context.Context, name, text string, row func(driver.Rows) error) error {
	rows, err := s.conn.Query(ctx, text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, describe(err))
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, describe(err))
	}
	return nil
}

// MonthState is what the hints of complete months rest on.
type MonthState struct {
	Month   time.Time
	Windows uint64
	Commits uint64
	Latest  time.Time
	Voids   uint64
}

// MonthStates says, per month, how many commits there are.
func (s *Store) MonthStates(ctx context.Context) (map[time.Time]MonthState, error) {
	list, err := Collect(ctx, s, "state_counts", nil, func(rows driver.Rows) (MonthState, error) {
		var m MonthState
		err := rows.Scan(&m.Month, &m.Commits, &m.Latest, &m.Voids)
		return m, err
	})
	return byMonth(list), err
}

// CompleteMonths lists the months in which nothing was due at the last look.
func (s *Store) CompleteMonths(ctx context.Context) (map[time.Time]MonthState, error) {
	list, err := Collect(ctx, s, "complete_months", nil, func(rows driver.Rows) (MonthState, error) {
		var m MonthState
		err := rows.Scan(&m.Month, &m.Windows, &m.Commits, &m.Latest, &m.Voids)
		return m, err
	})
	return byMonth(list), err
}

func byMonth(list []MonthState) map[time.Time]MonthState {
	out := make(map[time.Time]MonthState, len(list))
	for _, m := range list {
		m.Month, m.Latest = m.Month.UTC(), m.Latest.UTC()
		out[m.Month] = m
	}
	return out
}

// NoteCompleteMonth stores the hint that nothing is due in a month.
func (s *Store) NoteCompleteMonth(ctx context.Context, m MonthState) error {
	return s.Exec(ctx, "insert_complete_month", Params{"month": m.Month.Format(time.DateOnly), "windows": m.Windows, "commits": m.Commits, "latest": m.Latest, "voids": m.Voids})
}

// OtherPeriod is one period that counts and whose length is not the given one;
// its scope is empty when there is none.
func (s *Store) OtherPeriod(ctx context.Context, length time.Duration, from time.Time) (scope string, p ratebatch.Period, err error) {
	list, err := Collect(ctx, s, "other_period_lengths", Params{"period": int64(length / time.Second), "from": from}, func(rows driver.Rows) (ratebatch.Period, error) {
		var found ratebatch.Period
		err := rows.Scan(&scope, &found.Begin, &found.End)
		return found, err
	})
	if err != nil || len(list) == 0 {
		return "", p, err
	}
	return scope, list[0], nil
}

// Pass names one attempt: its run_id and the window of periods it rates.
type Pass struct {
	ID       uuid.UUID
	From, To time.Time
	Period   time.Duration
}

func (p Pass) params() Params {
	return Params{"run_id": p.ID, "from": p.From, "to": p.To, "period": int64(p.Period / time.Second)}
}

// bind is the context of one of the pass's statements: its parameters, and a
// query id by which it can be killed.
func (p Pass) bind(ctx context.Context, queryID string, more Params) context.Context {
	params := p.params()
	for name, value := range more {
		params[name] = value
	}
	return WithQueryID(WithParams(ctx, params), queryID)
}

// PassSummary says how much an attempt has to rate.
type PassSummary struct {
	Periods, Scopes, UsageRows uint64
	Repeated                   uint64 // periods whose usage rows are not distinct
	LowestRevision             uint32
	HighestRevision            uint32
	Lost                       uint64 // periods with fewer usage rows than were committed; they are left alone
}

// InsertPassPeriods writes down the due periods of the pass and the usage found
// for each; usage is a SELECT by package metric.
func (s *Store) InsertPassPeriods(ctx context.Context, p Pass, windows []DueWindow, closed []time.Time, metricsDigest, usage, queryID string) error {
	text := strings.ReplaceAll(withScopes(SQL("insert_pass_periods"), windows), "/* USAGE */", usage)
	if err := s.conn.Exec(p.bind(ctx, queryID, Params{"closed": dates(closed), "metrics_digest": metricsDigest}), text); err != nil {
		return fmt.Errorf("insert_pass_periods: %w", describe(err))
	}
	return nil
}

// PassSummary reads what InsertPassPeriods found.
func (s *Store) PassSummary(ctx context.Context, p Pass) (PassSummary, error) {
	var x PassSummary
	err := s.Row(ctx, "pass_summary", Params{"run_id": p.ID}, &x.Periods, &x.Scopes, &x.UsageRows, &x.Repeated, &x.LowestRevision, &x.HighestRevision, &x.Lost)
	return x, err
}

// InsertLines runs the pass's one INSERT … SELECT; body is the SELECT.
func (s *Store) InsertLines(ctx context.Context, p Pass, body, queryID string) error {
	text := "INSERT INTO rated_lines (run_id, region, scope, begin, end, metric, resource, attributes, unit, qty, price, rule, bucket, part, revision)\n" + body
	if err := s.conn.Exec(p.bind(ctx, queryID, nil), text); err != nil {
		return fmt.Errorf("insert rated_lines: %w", describe(err))
	}
	return nil
}

// QueryPass runs a SELECT with the pass's parameters; the caller closes the rows.
func (s *Store) QueryPass(ctx context.Context, p Pass, text, queryID string) (driver.Rows, error) {
	rows, err := s.conn.Query(p.bind(ctx, queryID, nil), text)
	if err != nil {
		return nil, describe(err)
	}
	return rows, nil
}

// Line is one rated line as the Go path writes it. Attributes are written with
// their names sorted.
type Line struct {
	Region, Scope    string
	Begin            time.Time
	Metric, Resource string
	Attributes       map[string]string
	Unit             string
	Qty, Price       decimal.Decimal
	Rule, Bucket     string
	Part             uint16
	Revision         uint32
}

// InsertGoLines writes lines that were priced in Go, as one block with a
// deduplication token.
func (s *Store) InsertGoLines(ctx context.Context, p Pass, lines []Line, token string) error {
	ctx = Settings(ctx, map[string]any{"insert_deduplication_token": token, "insert_deduplicate": 1})
	batch, err := s.conn.PrepareBatch(ctx, "INSERT INTO rated_lines (run_id, region, scope, begin, end, metric, resource, attributes, unit, qty, price, rule, bucket, part, revision)")
	if err != nil {
		return fmt.Errorf("insert lines priced in Go: %w", describe(err))
	}
	for _, l := range lines {
		err := batch.Append(p.ID, l.Region, l.Scope, l.Begin, l.Begin.Add(p.Period), l.Metric, l.Resource, sortedMap(l.Attributes), l.Unit, l.Qty, l.Price, l.Rule, l.Bucket, l.Part, l.Revision)
		if err != nil {
			return fmt.Errorf("insert lines priced in Go: %w", err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("insert lines priced in Go: %w", describe(err))
	}
	return nil
}

// sortedMap is a map column's value with its keys in order, which Go's own
// maps do not keep.
func sortedMap(m map[string]string) *orderedMap {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return &orderedMap{keys: keys, values: m}
}

// orderedMap implements clickhouse-go's column.OrderedMap.
type orderedMap struct {
	keys   []string
	values map[string]string
}

// Get returns the value of a key.
func (m *orderedMap) Get(key any) (any, bool) {
	v, ok := m.values[key.(string)]
	return v, ok
}

// Put adds a key at the end.
func (m *orderedMap) Put(key, value any) {
	k := key.(string)
	if _, ok := m.values[k]; !ok {
		m.keys = append(m.keys, k)
	}
	m.values[k] = value.(string)
}

// Keys yields the keys in order.
func (m *orderedMap) Keys() <-chan any {
	out := make(chan any, len(m.keys))
	for _, k := range m.keys {
		out <- k
	}
	close(out)
	return out
}

// InsertPassLines reads the attempt's lines back and sums them per period.
func (s *Store) InsertPassLines(ctx context.Context, p Pass, queryID string) error {
	if err := s.conn.Exec(p.bind(ctx, queryID, nil), SQL("insert_pass_lines")); err != nil {
		return fmt.Errorf("insert_pass_lines: %w", describe(err))
	}
	return nil
}

// Difference is a period whose lines do not equal the usage they came from.
type Difference struct {
	Scope string
	Begin time.Time
	Text  string
}

// PassDifferences lists, at most a thousand, what speaks against committing the
// attempt; an empty list means that its lines equal their source.
func (s *Store) PassDifferences(ctx context.Context, p Pass) ([]Difference, error) {
	return Collect(ctx, s, "pass_differences", Params{"run_id": p.ID}, func(rows driver.Rows) (Difference, error) {
		var d Difference
		err := rows.Scan(&d.Scope, &d.Begin, &d.Text)
		return d, err
	})
}

// CommitTerms say by what the periods of a pass were rated.
type CommitTerms struct {
	Boundaries    []time.Time // instants between plan versions
	PlanDigests   []string    // one more than Boundaries
	Currencies    []string    // likewise
	MetricsDigest string
	Reason        string
	Author        string
	Asked         bool // for by a person: periods of closed months too
}

// InsertCommits makes the attempt's lines count, period by period.
func (s *Store) InsertCommits(ctx context.Context, p Pass, t CommitTerms, queryID string) error {
	ctx = p.bind(ctx, queryID, Params{
		"boundaries": t.Boundaries, "plan_digests": t.PlanDigests, "currencies": t.Currencies,
		"metrics_digest": t.MetricsDigest, "reason": t.Reason, "author": t.Author, "asked": t.Asked,
	})
	if err := s.conn.Exec(ctx, SQL("insert_commits")); err != nil {
		return fmt.Errorf("insert_commits: %w", describe(err))
	}
	return nil
}

// Committed is what of an attempt counts, per currency.
type Committed struct {
	Currency                    string
	Periods, Lines              uint64
	Scopes                      []string
	Total                       decimal.Decimal
	Unpriced, Rejected, Skipped uint64
}

// Committed reads back what of the attempt counts now.
func (s *Store) Committed(ctx context.Context, p Pass) ([]Committed, error) {
	return Collect(ctx, s, "committed", Params{"run_id": p.ID, "from": p.From, "to": p.To}, func(rows driver.Rows) (Committed, error) {
		var c Committed
		err := rows.Scan(&c.Currency, &c.Periods, &c.Scopes, &c.Lines, &c.Total, &c.Unpriced, &c.Rejected, &c.Skipped)
		return c, err
	})
}

// Overtaken is a period of an attempt that another attempt committed first, by
// other usage or other rules.
type Overtaken struct {
	Scope      string
	Begin, End time.Time
	Committed  time.Time
}

// Overtaken lists them, at most ten thousand.
func (s *Store) Overtaken(ctx context.Context, p Pass, t CommitTerms) ([]Overtaken, error) {
	params := Params{"run_id": p.ID, "from": p.From, "to": p.To, "metrics_digest": t.MetricsDigest, "boundaries": t.Boundaries, "plan_digests": t.PlanDigests}
	return Collect(ctx, s, "overtaken", params, func(rows driver.Rows) (Overtaken, error) {
		var o Overtaken
		err := rows.Scan(&o.Scope, &o.Begin, &o.End, &o.Committed)
		o.Begin, o.End, o.Committed = o.Begin.UTC(), o.End.UTC(), o.Committed.UTC()
		return o, err
	})
}

// IsVoid says whether someone has voided the attempt.
func (s *Store) IsVoid(ctx context.Context, id uuid.UUID) (bool, error) {
	var void bool
	err := s.Row(ctx, "is_void", Params{"run_id": id}, &void)
	return void, err
}

// ScopeFailure says why periods of a scope were not rated while others were.
type ScopeFailure struct {
	Scope    string    `json:"scope"`
	Begin    time.Time `json:"begin"`
	Error    string    `json:"error"`
	FailedAt time.Time `json:"failed_at"`
}

// NoteFailure records a scope's failure.
func (s *Store) NoteFailure(ctx context.Context, f ScopeFailure, attempt uuid.UUID) error {
	return s.Exec(ctx, "insert_scope_failure", Params{"scope": f.Scope, "begin": f.Begin, "run_id": attempt, "error": f.Error})
}

// ScopeFailures lists the last failure of each scope that was not rated since.
func (s *Store) ScopeFailures(ctx context.Context) ([]ScopeFailure, error) {
	return Collect(ctx, s, "scope_failures", nil, func(rows driver.Rows) (ScopeFailure, error) {
		var f ScopeFailure
		err := rows.Scan(&f.Scope, &f.Begin, &f.Error, &f.FailedAt)
		return f, err
	})
}

// VoidAttempt says that an attempt's lines and commits count for nothing.
func (s *Store) VoidAttempt(ctx context.Context, id uuid.UUID, reason string) error {
	return s.Exec(ctx, "void_attempt", Params{"run_id": id, "reason": reason})
}

// TierRetention is how long a tier's table keeps rows by their own time; zero
// if it has no TTL.
func (s *Store) TierRetention(ctx context.Context, table string) (time.Duration, error) {
	var text string
	if err := s.Row(ctx, "tier_retention", Params{"table": table}, &text); err != nil {
		return 0, err
	}
	if text == "" {
		return 0, nil
	}
	return time.ParseDuration(text + "s")
}

// TierRows estimates the usage rows of each day from the sizes of the tiers:
// instances are read by three metrics of the built-in set, ports and disks by two.
func (s *Store) TierRows(ctx context.Context, from, to time.Time) (map[time.Time]uint64, error) {
	rows, err := s.Rows(ctx, "tier_rows", Params{"from": from.UTC().Format(time.DateOnly), "to": to.UTC().Format(time.DateOnly)})
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[time.Time]uint64{}
	for rows.Next() {
		var day time.Time
		var n uint64
		if err := rows.Scan(&day, &n); err != nil {
			return nil, err
		}
		out[day.UTC()] = n
	}
	return out, rows.Err()
}

// CheckUsage has the server resolve a metric's usage query without running it.
func (s *Store) CheckUsage(ctx context.Context, metric, usage string) error {
	ctx = WithParams(ctx, Params{"from": time.Unix(0, 0), "to": time.Unix(0, 0)})
	err := s.conn.Exec(ctx, "EXPLAIN "+usage)
	if IsCode(err, codeUnknownIdentifier) || IsCode(err, codeUnknownTable) || IsCode(err, codeUnknownDatabase) || IsCode(err, codeNoSuchColumn) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("metric %s names a table or column that is not there: %s", metric, ShortException(err)), Hint: "correct metrics.yaml and run 'ratebatch metrics apply FILE'"}
	}
	if err != nil {
		return fmt.Errorf("metric %s: %w", metric, describe(err))
	}
	return nil
}

// OldestRatable is the begin of the oldest period whose usage its tier keeps
// for sure, and for how long the tier keeps it; zero if it has no TTL.
func (s *Store) OldestRatable(ctx context.Context, now time.Time, period time.Duration) (time.Time, time.Duration, error) {
	tier := "instance_metrics_hourly"
	if period%time.Hour != 0 {
		tier = "instance_metrics_5min"
	}
	keep, err := s.TierRetention(ctx, tier)
	if err != nil || keep == 0 {
		return time.Time{}, 0, err
	}
	edge := now.Add(-keep)
	oldest := ratebatch.PeriodAt(edge, period)
	if oldest.Begin.Before(edge) {
		oldest = oldest.Next()
	}
	return oldest.Begin, keep, nil
}

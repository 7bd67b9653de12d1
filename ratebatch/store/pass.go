package store

import (
	"context"
	"fmt"
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

// ScopeUsages lists the scopes that have usage at or after since.
func (s *Store) ScopeUsages(ctx context.Context, since time.Time) ([]ScopeUsage, error) {
	return Collect(ctx, s, "usage_scopes", Params{"since": since}, func(rows driver.Rows) (ScopeUsage, error) {
		var u ScopeUsage
		err := rows.Scan(&u.Scope, &u.Region, &u.FirstUsage)
		return u, err
	})
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

// ClosedMonths lists the first days of the months that are closed.
func (s *Store) ClosedMonths(ctx context.Context) ([]time.Time, error) {
	return Collect(ctx, s, "closed_months", nil, func(rows driver.Rows) (time.Time, error) {
		var month time.Time
		err := rows.Scan(&month)
		return month, err
	})
}

// DueWindow is the window [First, Until) in which a scope's periods can be due.
type DueWindow struct {
	Scope        string
	First, Until time.Time
}

// withScopes writes the windows into the statement as one constant.
func withScopes(text string, windows []DueWindow) string {
	var list strings.Builder
	list.WriteByte('[')
	for i, w := range windows {
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list, "(%s,%d,%d)", QuoteString(w.Scope), w.First.Unix(), w.Until.Unix())
	}
	list.WriteByte(']')
	constant := "SELECT window.1 AS scope, toDateTime(window.2, 'UTC') AS first, toDateTime(window.3, 'UTC') AS until FROM (SELECT arrayJoin(CAST(" +
		QuoteString(list.String()) + ", 'Array(Tuple(String, UInt32, UInt32))')) AS window)"
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

// DueDays counts the due periods of the scopes per day, oldest first.
func (s *Store) DueDays(ctx context.Context, windows []DueWindow, period time.Duration, closed []time.Time) ([]DueDay, error) {
	if len(windows) == 0 {
		return nil, nil
	}
	ctx = WithParams(ctx, Params{"period": int64(period / time.Second), "closed": dates(closed)})
	rows, err := s.conn.Query(ctx, withScopes(SQL("due_days"), windows))
	if err != nil {
		return nil, fmt.Errorf("due_days: %w", describe(err))
	}
	defer rows.Close()
	var out []DueDay
	for rows.Next() {
		var d DueDay
		if err := rows.Scan(&d.Day, &d.Periods); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("due_days: %w", describe(err))
	}
	return out, nil
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
}

// InsertPassPeriods writes down the due periods of the pass and the usage found
// for each; usage is a SELECT by package metric.
func (s *Store) InsertPassPeriods(ctx context.Context, p Pass, windows []DueWindow, closed []time.Time, usage, queryID string) error {
	text := strings.ReplaceAll(withScopes(SQL("insert_pass_periods"), windows), "/* USAGE */", usage)
	if err := s.conn.Exec(p.bind(ctx, queryID, Params{"closed": dates(closed)}), text); err != nil {
		return fmt.Errorf("insert_pass_periods: %w", describe(err))
	}
	return nil
}

// PassSummary reads what InsertPassPeriods found.
func (s *Store) PassSummary(ctx context.Context, p Pass) (PassSummary, error) {
	var x PassSummary
	err := s.Row(ctx, "pass_summary", Params{"run_id": p.ID}, &x.Periods, &x.Scopes, &x.UsageRows, &x.Repeated, &x.LowestRevision, &x.HighestRevision)
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

// PassDifferences lists, at most twenty, what speaks against committing the
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
}

// InsertCommits makes the attempt's lines count, period by period.
func (s *Store) InsertCommits(ctx context.Context, p Pass, t CommitTerms, queryID string) error {
	ctx = p.bind(ctx, queryID, Params{
		"boundaries": t.Boundaries, "plan_digests": t.PlanDigests, "currencies": t.Currencies,
		"metrics_digest": t.MetricsDigest, "reason": t.Reason, "author": t.Author,
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
		return &ratebatch.ConfigError{Err: fmt.Errorf("metric %s names a table or column that is not there: %s", metric, shortException(err)), Hint: "correct metrics.yaml and run 'ratebatch metrics apply FILE'"}
	}
	if err != nil {
		return fmt.Errorf("metric %s: %w", metric, describe(err))
	}
	return nil
}

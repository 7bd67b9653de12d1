package store

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
)

// Watermark says up to when a region's input is complete, and who says so.
type Watermark struct {
	Region        string
	CompleteUntil time.Time // 1970: ingest reads the region and has not drained its topics yet
	Source        string
}

// Watermarks lists the watermark of each region that has one.
func (s *Store) Watermarks(ctx context.Context) (map[string]Watermark, error) {
	return s.watermarks(ctx, true, OpenEnd)
}

// WatermarksOf lists the watermarks of at least the regions of the usages that
// have one, by what was set and had arrived at a moment of the server's time; zero is
// now. As long as each of them still sends, history is not read.
func (s *Store) WatermarksOf(ctx context.Context, usages []ScopeUsage, asOf time.Time) (map[string]Watermark, error) {
	if asOf.IsZero() {
		asOf = OpenEnd
	}
	marks, err := s.watermarks(ctx, false, asOf)
	if err != nil {
		return nil, err
	}
	for _, u := range usages {
		if _, ok := marks[u.Region]; !ok {
			return s.watermarks(ctx, true, asOf)
		}
	}
	return marks, nil
}

func (s *Store) watermarks(ctx context.Context, whole bool, asOf time.Time) (map[string]Watermark, error) {
	list, err := Collect(ctx, s, "watermarks", Params{"whole": whole, "as_of": asOf}, func(rows driver.Rows) (Watermark, error) {
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

// ScopeFailure says why periods of a scope were not rated while others were.
type ScopeFailure struct {
	Scope    string    `json:"scope"`
	Begin    time.Time `json:"begin"`
	Error    string    `json:"error"`
	FailedAt time.Time `json:"failed_at"`
	OfLook   bool      `json:"of_look,omitempty"` // a look for late usage failed, not rating
}

// NoteFailure records a scope's failure, or without an error that it is over.
func (s *Store) NoteFailure(ctx context.Context, f ScopeFailure, attempt uuid.UUID) error {
	return s.Exec(ctx, "insert_scope_failure", Params{"scope": f.Scope, "begin": f.Begin, "run_id": attempt, "error": f.Error})
}

// ScopeFailures lists the last failure of each scope that is not over.
func (s *Store) ScopeFailures(ctx context.Context) ([]ScopeFailure, error) {
	return Collect(ctx, s, "scope_failures", nil, func(rows driver.Rows) (ScopeFailure, error) {
		var f ScopeFailure
		err := rows.Scan(&f.Scope, &f.Begin, &f.Error, &f.FailedAt, &f.OfLook)
		return f, err
	})
}

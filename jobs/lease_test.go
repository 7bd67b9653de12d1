package jobs

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// slowClaim does something else first when a claim is to be written.
type slowClaim struct {
	driver.Conn
	first func()
}

func (c *slowClaim) Exec(ctx context.Context, query string, args ...any) error {
	if first := c.first; first != nil && strings.Contains(query, "INSERT INTO leases") {
		c.first = nil
		first()
	}
	return c.Conn.Exec(ctx, query, args...)
}

// A claim that is dated earlier and arrives later than one that was looked at and
// found good does not get the lease, too.
func TestAClaimThatArrivesLateGivesWay(t *testing.T) {
	e := storetest.Shared(t)
	quick := store.New(e.Conn(), e.Database())
	var winner *Lease
	slow := store.New(&slowClaim{Conn: e.Conn(), first: func() {
		var err error
		if winner, err = Acquire(t.Context(), quick, slog.Default(), "rate", uuid.New()); err != nil {
			t.Fatal(err)
		}
	}}, e.Database())
	if _, err := Acquire(t.Context(), slow, slog.Default(), "rate", uuid.New()); !errors.Is(err, ratebatch.ErrLeaseHeld) || !strings.Contains(err.Error(), winner.holder[strings.LastIndex(winner.holder, " ")+1:]) {
		t.Errorf("%v, want that the winner holds the lease", err)
	}
	if held, err := winner.Held(t.Context()); err != nil || !held {
		t.Errorf("the winner's lease is held: %v, %v", held, err)
	}
	if err := winner.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next, err := Acquire(t.Context(), quick, slog.Default(), "rate", uuid.New())
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Of many that want a lease at the same moment exactly one has it, every time.
func TestCrossingClaims(t *testing.T) {
	s := storetest.Fresh(t)
	for range 5 {
		const claims = 8
		var leases [claims]*Lease
		var have atomic.Int32
		ended := make(chan error, claims)
		for i := range claims {
			go func() {
				lease, err := Acquire(t.Context(), s, slog.Default(), "rate", uuid.New())
				leases[i] = lease
				if err == nil {
					have.Add(1)
				} else if errors.Is(err, ratebatch.ErrLeaseHeld) {
					err = nil
				}
				ended <- err
			}()
		}
		for range claims {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if n := have.Load(); n != 1 {
			t.Errorf("%d have the lease, want 1", n)
		}
		for _, l := range leases {
			if l != nil {
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

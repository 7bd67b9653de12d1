package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// TierRetention is how long a table keeps rows by their own time; zero if it
// has no TTL. A TTL that cannot be told in seconds is an error: taken for "for
// ever" it would have expired usage rated as zero.
func (s *Store) TierRetention(ctx context.Context, table string) (time.Duration, error) {
	var seconds int64
	var text string
	if err := s.Row(ctx, "tier_retention", Params{"table": table}, &seconds, &text); err != nil {
		return 0, err
	}
	if seconds < 0 {
		return 0, &ratebatch.ConfigError{Err: fmt.Errorf("table %s has the TTL %q, from which nobody can tell how long a bucket stays", table, text),
			Hint: "set it with 'ratebatch migrate --retention raw=…,5min=…,hourly=…', or as 'bucket + INTERVAL n DAY' (raw samples: toDateTime(ts)) without a condition"}
	}
	return time.Duration(seconds) * time.Second, nil
}

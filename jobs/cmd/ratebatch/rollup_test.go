package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A late sample that the tiers can take only in part ends the rollup with 75,
// and with the command that adds the rest.
func TestARollupThatAddsALateSampleInPartSaysWhenTheRestFollows(t *testing.T) {
	flags, e := database(t)
	must(t, append(append([]string{}, flags...), "migrate", "--retention", "raw=54h")...)
	begin := time.Now().UTC().Truncate(time.Hour).Add(-70 * time.Hour)
	if err := e.Conn().Exec(t.Context(), fmt.Sprintf(`INSERT INTO late_samples (kind, region, host, epoch, sequence, begin, ts, instance_uuid, project_id, record)
		SELECT 'port', 'weekend', 'h', 1, 1, toDateTime64(%d, 3), toDateTime64(%d, 3), generateUUIDv4(), 'p', '{"port_uuid": "22222222-2222-4222-8222-222222222222", "rx_bytes": 1000, "tx_bytes": 1}'`, begin.Unix(), begin.Add(60*time.Hour).Unix())); err != nil {
		t.Fatal(err)
	}
	from := begin.Format(time.RFC3339)
	code, stdout, stderr := cli(t, append(append([]string{}, flags...), "rollup", "--from", from, "--include-late")...)
	// Its last hour is old an hour before the retention has passed since its end.
	rest := begin.Add(60*time.Hour - time.Hour + 54*time.Hour).Format(time.RFC3339)
	if code != 75 || !strings.Contains(stdout, "the tiers have 0 of them now, and 1 more in part") ||
		!strings.Contains(stderr, "1 late samples reach beyond ") || !strings.Contains(stderr, "from "+rest+" on: run 'ratebatch rollup --from "+from+" --include-late' then") {
		t.Errorf("exit %d, want 75 and the rest from %s on:\n%s%s", code, rest, stdout, stderr)
	}
}

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/exporter/bucket"
	"github.com/ratebatch/ratebatch/jobs/topics"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// What the doctor takes for wrong. Each judgement is a function of what was read,
// so that tests can provoke what a healthy machine does not show.

// one gives the finding for a check of which there is nothing to say.
func one(check, level, what, remedy string) []finding { return []finding{{check, level, what, remedy}} }

func judgeVersion(version string) []finding {
	if store.ServerTooOld(version) {
		return one("version", levelError, "ClickHouse "+version+" is older than "+store.MinVersion, "upgrade the server, or leave out --clickhouse to use the embedded engine")
	}
	return one("version", levelOK, "ClickHouse "+version, "")
}

func judgeSchema(err error) finding {
	if errors.Is(err, store.ErrNewerSchema) {
		return finding{"schema", levelError, err.Error(), "install the version that migrated the database (deploy/README.md, Upgrading)"}
	}
	if err != nil {
		return finding{"schema", levelError, err.Error(), "run 'ratebatch migrate' as a user who may create tables"}
	}
	return finding{"schema", levelOK, "has all migrations of this version", ""}
}

// judgeTables tells what a restore leaves out from what must never be made anew.
func judgeTables(missing, lost []string) []finding {
	switch {
	case len(lost) > 0:
		return one("tables", levelError, strings.Join(lost, ", ")+" held state and are gone", "stop all jobs, restore from a backup (deploy/README.md), then run 'ratebatch reconcile --month …'")
	case len(missing) > 0:
		return one("tables", levelError, strings.Join(missing, ", ")+" are gone; they held no state", "run 'ratebatch migrate' as a user who may create tables: it makes them again")
	}
	return one("tables", levelOK, "are all there", "")
}

// wantedSettings are what the client asks for; a profile's constraints can
// overrule it, silently where they say so.
var wantedSettings = map[string]string{"async_insert": "0", "decimal_check_overflow": "1", "session_timezone": "UTC", "compile_expressions": "0", "distributed_foreground_insert": "1"}

func judgeSettings(in map[string]string) []finding {
	var out []finding
	for _, name := range []string{"async_insert", "decimal_check_overflow", "session_timezone", "compile_expressions", "distributed_foreground_insert"} {
		if got := in[name]; got != wantedSettings[name] {
			out = append(out, finding{"settings", levelError, fmt.Sprintf("%s is %q and not %q in spite of what the client asks for", name, got, wantedSettings[name]), "take the constraint on " + name + " out of the user's settings profile (deploy/clickhouse/profile.sql)"})
		}
	}
	if bytes, err := strconv.ParseUint(in["max_memory_usage"], 10, 64); err == nil && bytes > 0 && bytes < 2<<30 {
		out = append(out, finding{"settings", levelWarning, fmt.Sprintf("a statement may use %d MiB of memory", bytes>>20), "raise max_memory_usage to 4 GiB or more, or lower --max-pass-rows"})
	}
	if out == nil {
		return one("settings", levelOK, "are what money needs", "")
	}
	return out
}

func judgeClock(ahead time.Duration) []finding {
	text := fmt.Sprintf("the server's clock is %s ahead of this machine's", ahead.Round(time.Millisecond))
	if ahead < 0 {
		text = fmt.Sprintf("the server's clock is %s behind this machine's", (-ahead).Round(time.Millisecond))
	}
	remedy := "have both machines keep their time by NTP: readiness goes by this machine's clock, retention and commits by the server's"
	switch {
	case ahead.Abs() > time.Minute:
		return one("clock", levelError, text, remedy)
	case ahead.Abs() > 5*time.Second:
		return one("clock", levelWarning, text, remedy)
	}
	return one("clock", levelOK, text, "")
}

func judgeDisks(disks []store.Disk) []finding {
	var out []finding
	for _, d := range disks {
		percent := d.Free * 100 / max(1, d.Total)
		text := fmt.Sprintf("disk %s (%s) has %.1f of %.1f GiB left", d.Name, d.Path, float64(d.Free)/(1<<30), float64(d.Total)/(1<<30))
		remedy := "add space, or shorten retention ('ratebatch migrate --retention …', 'ratebatch retention --lines-after …'); at 0 inserts fail and billing stops"
		switch {
		case percent < 3 || d.Free < 1<<30:
			out = append(out, finding{"disk", levelError, text, remedy})
		case percent < 10 || d.Free < 5<<30:
			out = append(out, finding{"disk", levelWarning, text, remedy})
		default:
			out = append(out, finding{"disk", levelOK, text, ""})
		}
	}
	if out == nil {
		return one("disk", levelSkipped, "the server has no disk with a size", "")
	}
	return out
}

// judgeVersions checks that stored plans or metric sets can still be read, and
// that one is in force now and will be for the coming month.
func judgeVersions(check string, versions []store.Version, now time.Time) []finding {
	noun, read, command := "rate plan", func(b []byte) error { _, err := plan.Parse("stored", b); return err }, "ratebatch plan apply"
	if check == "metrics" {
		noun, read, command = "metric set", func(b []byte) error { _, err := metric.Parse("stored", b); return err }, "ratebatch metrics apply"
		if len(versions) == 0 {
			return one(check, levelOK, "the built-in metric set is in force", "")
		}
	}
	var out []finding
	for _, v := range versions {
		if err := read([]byte(v.Body)); err != nil {
			out = append(out, finding{check, levelError, fmt.Sprintf("version %d of the %s cannot be read: %v", v.Version, noun, err), "apply it anew with '" + command + "' for the same time; use a program as new as the one that stored it"})
		}
	}
	spans := store.InForce(versions, now, now.AddDate(0, 1, 0))
	var text string
	for i, span := range spans {
		if span.Version != nil {
			if i == 0 {
				text = fmt.Sprintf("version %d of the %s is in force", span.Version.Version, noun)
			}
			continue
		}
		level, what := levelWarning, fmt.Sprintf("no %s is in force from %s on", noun, span.Begin.UTC().Format(time.RFC3339))
		if !span.Begin.After(now) {
			level, what = levelError, fmt.Sprintf("no %s is in force now: periods wait", noun)
		}
		out = append(out, finding{check, level, what, "apply one with '" + command + " FILE --from TIME'"})
	}
	if len(spans) == 0 {
		out = append(out, finding{check, levelError, fmt.Sprintf("no %s is in force now: periods wait", noun), "apply one with '" + command + " FILE'"})
	}
	if out == nil {
		return one(check, levelOK, text, "")
	}
	return out
}

// judgeRetention compares the tiers' TTLs with what is not rated yet: what they
// delete can never be billed.
func judgeRetention(note string, oldestDue *time.Time, expired uint64, oldest time.Time, keep time.Duration) []finding {
	var out []finding
	if note != "" {
		out = append(out, finding{"retention", levelError, "rate would stop: " + note, "do what it says, then run 'ratebatch rate'"})
	}
	if expired > 0 {
		out = append(out, finding{"retention", levelError, fmt.Sprintf("%d due periods are older than their tier keeps (%s): their usage is gone or going", expired, keep), "restore the tiers from a backup and rate, or settle them ('ratebatch close' says how); keep the tiers longer: 'ratebatch migrate --retention hourly=…'"})
	}
	if oldestDue != nil && keep > 0 {
		if left := oldestDue.Sub(oldest); left < warnBefore {
			out = append(out, finding{"retention", levelWarning, fmt.Sprintf("usage of %s is not rated, and its tier deletes it in %s", oldestDue.Format(time.DateOnly), left.Round(time.Hour)), "run 'ratebatch rate' now, or first keep the tiers longer: 'ratebatch migrate --retention hourly=…'"})
		}
	}
	if out == nil {
		return one("retention", levelOK, fmt.Sprintf("tiers keep usage for %s, nothing that is not rated is near that", keep), "")
	}
	return out
}

// maxOffGrid bounds how many scopes are named.
const maxOffGrid = 10

// judgeCommits names commits that begin within a period, as an earlier build
// made them where a metric set or plan took over within one.
func judgeCommits(off []store.OffGrid, period time.Duration) []finding {
	var out []finding
	for i, o := range off {
		first, end := o.First.Format(time.RFC3339), o.Last.Add(period).Format(time.RFC3339)
		if i == maxOffGrid {
			return append(out, finding{"commits", levelWarning, fmt.Sprintf("%d more scopes have commits that begin within a period", len(off)-i), "as above, with --all instead of --scope"})
		}
		out = append(out, finding{"commits", levelWarning,
			fmt.Sprintf("scope %s: %d of its commits begin within a period (from %s to %s): they bill nothing, but the period that each lies in may be rated by a part of its usage, or not at all", o.Scope, o.Periods, first, end),
			fmt.Sprintf("'ratebatch reprocess add --scope %s --from %s --to %s --reason …', then 'ratebatch reprocess run'; where no plan is in force, 'ratebatch reset --scope %[1]s --to %[2]s --reason …'", o.Scope, first, end)})
	}
	if out == nil {
		return one("commits", levelOK, "every one begins where a period does", "")
	}
	return out
}

func judgeLeases(leases []store.SilentLease) []finding {
	var out []finding
	for _, l := range leases {
		out = append(out, finding{"leases", levelWarning, fmt.Sprintf("lease %s: its holder (%s) has been silent for %s", l.Name, l.Holder, l.Silent), "its process was killed; the next run takes the lease over. If that host still runs it, end it there"})
	}
	if out == nil {
		return one("leases", levelOK, "none is stuck", "")
	}
	return out
}

func judgeRuns(runs []store.OpenRun) []finding {
	var out []finding
	for _, r := range runs {
		out = append(out, finding{"runs", levelWarning, fmt.Sprintf("run %s of %s began %s on %s and never ended", r.RunID, r.Job, r.Began.UTC().Format(time.RFC3339), r.Host), "it was killed (out of memory? a timeout?): see that host's log; what it did not commit counts nowhere"})
	}
	if out == nil {
		return one("runs", levelOK, "all of the last week came to an end", "")
	}
	return out
}

// Parts of one partition: merges keep them far below partsMany; ClickHouse slows
// inserts down at 1000 and refuses them at 3000.
const (
	partsMany   = 300
	partsTooBig = 1000
)

func judgeParts(crowded []store.CrowdedPartition) []finding {
	var out []finding
	for _, c := range crowded {
		level := levelWarning
		if c.Parts >= partsTooBig {
			level = levelError
		}
		out = append(out, finding{"parts", level, fmt.Sprintf("partition %s of %s has %d parts", c.Partition, c.Table, c.Parts), "see system.merges and system.mutations: merges do not keep up, or are stopped (SYSTEM START MERGES); write larger batches"})
	}
	if out == nil {
		return one("parts", levelOK, "merges keep up", "")
	}
	return out
}

func judgeViews(views []store.TierView) []finding {
	var out []finding
	for _, v := range views {
		switch {
		case v.Exception != "":
			out = append(out, finding{"views", levelError, v.View + ": " + firstLine(v.Exception), "correct the cause, then 'SYSTEM REFRESH VIEW " + v.View + "'; 'ratebatch rollup' fills what is missing"})
		case v.Stopped():
			out = append(out, finding{"views", levelWarning, v.View + " is stopped: the tier is not filled", "'SYSTEM START VIEW " + v.View + "', or run 'ratebatch rollup' from the schedule"})
		}
	}
	if out == nil {
		return one("views", levelOK, fmt.Sprintf("%d views fill the tiers", len(views)), "")
	}
	return out
}

func judgeTopics(plan topics.Plan) []finding {
	var out []finding
	for _, c := range plan.Changes {
		is, err := strconv.ParseInt(c.Is, 10, 64)
		if wanted, bad := strconv.ParseInt(c.Wanted, 10, 64); c.Setting == "retention.ms" && err == nil && bad == nil && (is < 0 || is >= wanted) {
			continue // for longer, or for ever (-1): to shorten it would delete what was not read
		}
		level, what := levelWarning, fmt.Sprintf("topic %s: %s is %s, wanted %s", c.Name, c.Setting, c.Is, c.Wanted)
		if c.Is == "" {
			level, what = levelError, fmt.Sprintf("topic %s lacks %s (wanted %s)", c.Name, c.Setting, c.Wanted)
		}
		out = append(out, finding{"topics", level, what, "run 'ratebatch topics apply'"})
	}
	if out == nil {
		return one("topics", levelOK, "are there and keep records long enough", "")
	}
	return out
}

// probe writes, reads, lists and deletes an object whose name no export has.
func probe(ctx context.Context, b bucket.Bucket) (err error) {
	name := "ratebatch-doctor-" + strings.ToLower(rand.Text())
	content := []byte("written by 'ratebatch doctor'; it can be deleted\n")
	w, err := b.Create(ctx, name)
	if err != nil {
		return fmt.Errorf("write to %s: %w", b.Location(), err)
	}
	if _, err = w.Write(content); err == nil {
		err = w.Commit()
	}
	if err != nil {
		return fmt.Errorf("write to %s: %w", b.Location(), joinAbort(w, err))
	}
	defer func() {
		if deleteErr := b.Delete(context.WithoutCancel(ctx), name); deleteErr != nil && err == nil {
			err = fmt.Errorf("delete from %s: %w", b.Location(), deleteErr)
		}
	}()
	r, err := b.Open(ctx, name)
	if err != nil {
		return fmt.Errorf("read from %s: %w", b.Location(), err)
	}
	got, err := io.ReadAll(r)
	_ = r.Close()
	if err != nil {
		return fmt.Errorf("read from %s: %w", b.Location(), err)
	}
	if !bytes.Equal(got, content) {
		return fmt.Errorf("read from %s: %d bytes came back, and not those that were written", b.Location(), len(got))
	}
	for o, err := range b.List(ctx, name) {
		if err != nil {
			return fmt.Errorf("list %s: %w", b.Location(), err)
		}
		if o.Name == name {
			return nil
		}
	}
	return fmt.Errorf("list %s: an object that was just written is not listed", b.Location())
}

func joinAbort(w bucket.Writer, err error) error {
	_ = w.Abort() // err says what went wrong first
	return err
}

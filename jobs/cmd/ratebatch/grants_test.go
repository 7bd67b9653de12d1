package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

// clickhouseUser is what users.sql says of a user: its grants in their order, and
// its profile's settings.
type clickhouseUser struct {
	grants  []string
	profile string
}

var (
	usersGrant   = regexp.MustCompile(`(?m)^(GRANT|REVOKE) ([A-Z, ]+ ON \S+) (?:TO|FROM) ([^;]+);`)
	usersUser    = regexp.MustCompile(`(?m)^CREATE USER IF NOT EXISTS (\w+) .* SETTINGS PROFILE '(\w+)';`)
	usersProfile = regexp.MustCompile(`(?ms)^CREATE SETTINGS PROFILE IF NOT EXISTS (\w+) SETTINGS(.*?);`)
	usersSetting = regexp.MustCompile(`(\w+) = ('[^']*'|\d+)( CONST)?`)
)

// config writes a configuration in which the engine's only user is this one.
func (u clickhouseUser) config(t *testing.T) string {
	t.Helper()
	var settings, constraints, grants strings.Builder
	for _, m := range usersSetting.FindAllStringSubmatch(u.profile, -1) {
		if m[1] == "readonly" {
			continue // the endpoint could not start; what is refused here is refused by the grants alone
		}
		fmt.Fprintf(&settings, "<%[1]s>%[2]s</%[1]s>", m[1], strings.Trim(m[2], "'"))
		if m[3] != "" {
			fmt.Fprintf(&constraints, "<%[1]s><const/></%[1]s>", m[1])
		}
	}
	// What the endpoint in front of the library does for itself, see its prepare.
	for _, g := range append(slices.Clone(u.grants), "GRANT CREATE DATABASE, DROP DATABASE ON default.*") {
		fmt.Fprintf(&grants, "<query>%s</query>", g)
	}
	dir := t.TempDir()
	users, config := filepath.Join(dir, "users.xml"), filepath.Join(dir, "config.xml")
	for name, text := range map[string]string{
		users: `<clickhouse><profiles><default>` + settings.String() + `<constraints>` + constraints.String() + `</constraints></default></profiles><quotas><default/></quotas>
			<users><default><password></password><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota><grants>` + grants.String() + `</grants></default></users></clickhouse>`,
		config: `<clickhouse><users_config>` + users + `</users_config></clickhouse>`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config
}

// readUsers reads deploy/clickhouse/users.sql.
func readUsers(t *testing.T) map[string]clickhouseUser {
	t.Helper()
	file, err := os.ReadFile("../../../deploy/clickhouse/users.sql")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^\s*--.*$`).ReplaceAllString(string(file), "")
	profiles := map[string]string{}
	for _, m := range usersProfile.FindAllStringSubmatch(text, -1) {
		profiles[m[1]] = m[2]
	}
	out := map[string]clickhouseUser{}
	for _, m := range usersUser.FindAllStringSubmatch(text, -1) {
		out[m[1]] = clickhouseUser{profile: profiles[m[2]]}
	}
	read := 0
	for _, m := range usersGrant.FindAllStringSubmatch(text, -1) {
		read++
		for name := range strings.SplitSeq(m[3], ",") {
			name = strings.TrimSpace(name)
			u, ok := out[name]
			if !ok {
				t.Fatalf("users.sql grants to %s, whom it does not make", name)
			}
			u.grants = append(u.grants, m[1]+" "+m[2])
			out[name] = u
		}
	}
	if !strings.Contains(out["ratebatch_read"].profile, "readonly = 2") {
		t.Error("ratebatch_read may change settings for good")
	}
	if n := strings.Count(text, "\nGRANT") + strings.Count(text, "\nREVOKE"); read != n || len(out) != 4 {
		t.Fatalf("%d of %d grants of users.sql were read, for %d users", read, n, len(out))
	}
	return out
}

// Each user of deploy/clickhouse does its jobs on a real engine that grants it
// what users.sql grants and nothing else, and is refused what it must not do. (The
// engine has one user, so it is started once for each of them.)
func TestUsersMayDoTheirWorkAndNoMore(t *testing.T) {
	withoutVariables(t)
	enginetest.Options(t) // skips where there is no engine
	data := t.TempDir()
	flags := []string{"--data", data} // of the database ratebatch, which users.sql names
	with := func(args ...string) []string { return append(slices.Clone(flags), args...) }
	open := func() *engine.Engine {
		t.Helper()
		e, err := engine.Open(t.Context(), engine.Options{DataDir: data, Database: "ratebatch", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	must(t, with("migrate", "--retention", "40y")...)
	b := &billed{T: t, e: open(), flags: flags}
	b.usage("alpha", "2026-11-30 20:00:00", 6, "3600", "2026-11-28 00:00:00")
	b.usage("beta", "2026-11-30 20:00:00", 6, "1800", "2026-11-28 00:00:00")
	left := func(e *engine.Engine) {
		t.Helper()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		eventually(t, "engine that has left", func() bool {
			_, err := os.Stat(filepath.Join(data, "engine", "endpoint.json"))
			return errors.Is(err, os.ErrNotExist)
		})
	}
	left(b.e)

	broker := kafkatest.Start(t, kafkatest.Config{})
	topics := broker.Topics(t, 1)
	cloud := simulate.Cloud{Seed: 3, Instances: 3, Hours: 1, Begin: time.Now().UTC().Truncate(time.Hour).Add(-3 * time.Hour), Hosts: 1}
	if _, err := cloud.Produce(t.Context(), broker.Client(t), topics, nil); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RATEBATCH_KAFKA_PASSWORD", broker.Options.Password)
	plan, files := filepath.Join(t.TempDir(), "plan.yaml"), t.TempDir()
	if err := os.WriteFile(plan, []byte(strings.Replace(hourPlan, "%s", "1.00", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	users := readUsers(t)
	for _, as := range []struct {
		user     string
		commands [][]string
		refused  []string // statements
	}{
		{"ratebatch_rate", [][]string{
			{"plan", "apply", plan}, {"watermark", "--region", "one", "--until", "2026-12-01T02:00:00Z"},
			{"rate", "--first-period", "usage", "--now", at}, {"rollup", "--from", "2026-11-30", "--to", "2026-12-01"}, {"status", "--late"},
			{"reprocess", "add", "--all", "--from", "2026-11-30T21:00:00Z", "--to", "2026-12-01", "--reason", "x", "--now", at}, {"reprocess", "run", "--now", at}, {"reprocess", "list"},
			{"reset", "--scope", "alpha", "--to", "2026-12-01", "--reason", "x", "--yes"}, {"rate", "--now", at},
			{"close", "--month", "2026-11", "--now", at}, {"export", "--month", "2026-11", "--to", files}, {"reconcile", "--month", "2026-11", "--files", files},
			{"retention", "--dead-after", "1h", "--superseded-after", "1h", "--unexported"}, {"scopes", "disable", "alpha", "--reason", "x"}, {"scopes", "enable", "alpha", "--reason", "x"}, {"doctor"},
		}, []string{"DROP TABLE rated_lines", "CREATE TABLE x (a UInt8) ENGINE = Memory", "SELECT 1 SETTINGS decimal_check_overflow = 0", "SELECT 1 SETTINGS session_timezone = 'Asia/Tehran'"}},
		{"ratebatch_export", [][]string{
			{"export", "--month", "2026-11", "--to", t.TempDir(), "--dataset", "lines,summary,focus,statement"}, {"export", "verify", files},
		}, []string{"INSERT INTO rated_lines (scope) VALUES ('x')", "INSERT INTO period_commits (scope) VALUES ('x')", "ALTER TABLE exports DELETE WHERE 1", "TRUNCATE TABLE exports"}},
		{"ratebatch_read", [][]string{
			{"status"}, {"scopes", "list"}, {"plan", "list"}, {"close", "--list"}, {"quote", "--metric", "instance"},
		}, []string{"INSERT INTO job_runs (job) VALUES ('x')", "INSERT INTO rated_lines (scope) VALUES ('x')", "TRUNCATE TABLE leases", "ALTER TABLE leases DELETE WHERE 1"}},
		// Last: what it writes is of this very day.
		{"ratebatch_ingest", [][]string{
			{"ingest", "--group", broker.Name("group"), "--port-topic", topics.Port, "--instance-topic", topics.Instance, "--disk-topic", topics.Disk,
				"--kafka", strings.Join(broker.Options.Brokers, ","), "--kafka-user", broker.Options.User},
		}, []string{"INSERT INTO rated_lines (scope) VALUES ('x')", "INSERT INTO period_commits (scope) VALUES ('x')", "INSERT INTO rate_plans (version) VALUES (1)", "INSERT INTO month_commits (scope) VALUES ('x')",
			"INSERT INTO void_attempts (reason) VALUES ('x')", "INSERT INTO scopes (scope) VALUES ('x')", "INSERT INTO billing_settings (reason) VALUES ('x')", "INSERT INTO plain_months (month) VALUES (202611)",
			"INSERT INTO reprocess_schedules (reason) VALUES ('x')", "INSERT INTO complete_months (month) VALUES ('2026-11-01')", "INSERT INTO instance_metrics_hourly (vcpus) VALUES (1)", "INSERT INTO kept_since (reason) VALUES ('x')",
			"INSERT INTO schema_migrations (version) VALUES (999)", "INSERT INTO exports (delivery) VALUES ('x')", "INSERT INTO leases (name) VALUES ('x')",
			"ALTER TABLE port_samples DELETE WHERE 1", "TRUNCATE TABLE watermarks", "DROP TABLE port_samples", "CREATE TABLE x (a UInt8) ENGINE = Memory"}},
	} {
		t.Run(as.user, func(t *testing.T) {
			t.Setenv("RATEBATCH_ENGINE_CONFIG", users[as.user].config(t))
			e := open() // keeps the engine up
			t.Cleanup(func() { left(e) })
			for _, args := range as.commands {
				if code, stdout, stderr := cli(t, with(args...)...); code != 0 {
					t.Errorf("ratebatch %s: exit %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
				}
			}
			if as.user == "ratebatch_read" {
				s := startServe(t, flags...)
				for _, path := range []string{"/health", "/session", "/projects", "/nodes", "/top?by=price", "/costs?month=2026-11", "/lines?month=2026-11&project=beta", "/rating/status", "/rating/runs", "/rating/late",
					"/rating/unpriced?month=2026-11", "/rating/schedules", "/rating/exports", "/rating/months", "/plans", "/metrics", "/search?q=vm"} {
					if status, _, body := s.ask(t, http.MethodGet, "/api/v1"+path, ""); status != http.StatusOK {
						t.Errorf("%s: %d %s", path, status, body)
					}
				}
			}
			if as.user == "ratebatch_ingest" {
				// What that run had no reason for, and what every ingest writes.
				for _, table := range []string{"late_samples", "rejected_records", "ingest_losses", "ingest_counts", "ingest_sequences", "ingest_ranges", "watermarks", "instances", "hosts"} {
					if err := e.Conn().Exec(t.Context(), "INSERT INTO "+table+" SELECT * FROM "+table+" WHERE 0"); err != nil {
						t.Errorf("%s: %v", table, err)
					}
				}
			}
			for _, statement := range as.refused {
				err := e.Conn().Exec(t.Context(), statement)
				// 497: no grant. 452: a constraint of the profile. 164: the profile reads only.
				var refused *clickhouse.Exception
				if !errors.As(err, &refused) || !slices.Contains([]int32{497, 452, 164}, refused.Code) {
					t.Errorf("%s: %v, want a refusal", statement, err)
				}
			}
		})
	}
}

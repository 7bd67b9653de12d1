package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/exporter/bucket/buckettest"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
)

// doctorFindings runs the doctor and returns its exit code and what it found.
func doctorFindings(t *testing.T, args ...string) (int, []finding) {
	t.Helper()
	code, stdout, stderr := cli(t, append(args, "--output", "json")...)
	var findings []finding
	if err := json.Unmarshal([]byte(stdout), &findings); err != nil {
		t.Fatalf("exit %d: %v\n%s%s", code, err, stdout, stderr)
	}
	return code, findings
}

// answersOtherwise makes a server seem to be what none here is, by a rewriter in
// front of the engine. It returns the flags that lead to it.
func answersOtherwise(t *testing.T, e *engine.Engine, changes ...string) []string {
	t.Helper()
	return []string{"--clickhouse", rewriter(t, e, changes...).String(), "--database", e.Database()}
}

// What the server itself can have wrong, found through the whole program: each
// finding has its level, says what to do, and decides the exit code.
func TestDoctorFindsWhatIsWrongWithTheServer(t *testing.T) {
	withoutVariables(t)
	_, e := database(t)
	disk := func(free string) []string {
		return []string{"FROM system.disks", "FROM (SELECT 'default' AS name, '/var/lib/clickhouse/' AS path, toUInt64(" + free + ") AS unreserved_space, toUInt64(100 * 1073741824) AS total_space)"}
	}
	setting := func(name, value string) []string {
		return []string{"FROM system.settings", "FROM (SELECT name, if(name = '" + name + "', '" + value + "', value) AS value FROM system.settings)"}
	}
	for name, tt := range map[string]struct {
		changes            []string
		check, level, what string
		remedy             string
		code               int
	}{
		"a server from before refreshable views":  {[]string{"SELECT version()", "SELECT '24.9.3.1'"}, "version", levelError, "24.9.3.1 is older", "upgrade the server", 20},
		"a clock that is an hour ahead":           {[]string{"SELECT now64(6, 'UTC')", "SELECT now64(6, 'UTC') + INTERVAL 1 HOUR"}, "clock", levelError, "ahead of this machine's", "NTP", 20},
		"a clock that is an hour behind":          {[]string{"SELECT now64(6, 'UTC')", "SELECT now64(6, 'UTC') - INTERVAL 1 HOUR"}, "clock", levelError, "behind this machine's", "NTP", 20},
		"a clock that is half a minute off":       {[]string{"SELECT now64(6, 'UTC')", "SELECT now64(6, 'UTC') + INTERVAL 30 SECOND"}, "clock", levelWarning, "ahead of this machine's", "NTP", 0},
		"a disk that is full":                     {disk("0"), "disk", levelError, "0.0 of 100.0 GiB", "shorten retention", 20},
		"a disk that fills":                       {disk("6 * 1073741824"), "disk", levelWarning, "6.0 of 100.0 GiB", "add space", 0},
		"a profile that wraps overflows around":   {setting("decimal_check_overflow", "0"), "settings", levelError, "decimal_check_overflow is \"0\"", "settings profile", 20},
		"a profile that inserts later":            {setting("async_insert", "1"), "settings", levelError, "async_insert", "settings profile", 20},
		"a profile with another time zone":        {setting("session_timezone", "Asia/Tehran"), "settings", levelError, "Asia/Tehran", "settings profile", 20},
		"a profile with little memory":            {setting("max_memory_usage", "1000000000"), "settings", levelWarning, "953 MiB", "max_memory_usage", 0},
		"system tables that this user cannot see": {[]string{"FROM system.parts", "FROM system.no_such_table"}, "parts", levelError, "could not be looked at", "grant this user SELECT", 20},
	} {
		t.Run(name, func(t *testing.T) {
			flags := answersOtherwise(t, e, tt.changes...)
			code, findings := doctorFindings(t, append(flags, "doctor")...)
			found := false
			for _, f := range findings {
				if f.Check != tt.check {
					continue
				}
				found = true
				if f.Level != tt.level || !strings.Contains(f.What, tt.what) || !strings.Contains(f.Remedy, tt.remedy) {
					t.Errorf("%+v, want %s with %q and the remedy %q", f, tt.level, tt.what, tt.remedy)
				}
			}
			if !found {
				t.Errorf("nothing is said of %s: %+v", tt.check, findings)
			}
			if code != tt.code {
				t.Errorf("exit %d, want %d: %+v", code, tt.code, findings)
			}
		})
	}
}

// The place of exports on a real S3 server: whatever the credentials may not do
// is found before an export needs it.
func TestDoctorTriesTheBucket(t *testing.T) {
	withoutVariables(t)
	s := buckettest.Start(t)
	flags, _ := database(t)
	must(t, append(append(append([]string{}, flags...), "rate"), now...)...)
	for name, tt := range map[string]struct {
		bucket, secret string
		fault          buckettest.Fault
		level, what    string
		code           int
	}{
		"all that an export does":    {"finance", "testsecret", nil, levelOK, "can be written, read, listed and tidied up", 0},
		"a wrong secret":             {"finance", "hunter2", nil, levelError, "write to s3://finance/rated", 20},
		"a bucket that is none":      {"none", "testsecret", nil, levelError, "s3://none/rated", 20},
		"rights to write, not read":  {"finance", "testsecret", buckettest.Answer("get", 403, "AccessDenied", -1), levelError, "s3://finance/rated", 20},
		"rights to do all but erase": {"finance", "testsecret", buckettest.Answer("delete", 403, "AccessDenied", -1), levelError, "delete from s3://finance/rated", 20},
	} {
		t.Run(name, func(t *testing.T) {
			s.SetFault(tt.fault)
			t.Setenv("AWS_SECRET_ACCESS_KEY", tt.secret)
			code, findings := doctorFindings(t, append(append([]string{}, flags...), "doctor", "--place", "s3://"+tt.bucket+"/rated?region=us-east-1&endpoint="+s.Proxy)...)
			f := findings[len(findings)-1]
			if f.Check != "exports" || f.Level != tt.level || !strings.Contains(f.What, tt.what) || tt.level == levelError && !strings.Contains(f.Remedy, "credentials") {
				t.Errorf("%+v, want %s with %q", f, tt.level, tt.what)
			}
			if code != tt.code {
				t.Errorf("exit %d, want %d", code, tt.code)
			}
			if strings.Contains(f.What+f.Remedy, tt.secret) {
				t.Errorf("the secret is shown: %+v", f)
			}
		})
	}
}

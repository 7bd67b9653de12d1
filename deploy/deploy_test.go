// Package deploy_test checks what stands in this folder: that it can be read by
// those it is for, that what is rendered is what the schedule gives, and that
// nothing that is named is missing.
package deploy_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/ratebatch/ratebatch/schedules"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRenderedFilesAreWhatTheScheduleGives(t *testing.T) {
	for _, x := range []struct{ schedule, target, dir string }{
		{"", "systemd", "systemd"}, {"", "kubernetes", "kubernetes/base/jobs"}, {"", "crontab", "cron"},
		{"kubernetes/overlays/cluster/schedule.yaml", "kubernetes", "kubernetes/overlays/cluster/jobs"},
	} {
		f, err := schedules.Load(x.schedule)
		if err != nil {
			t.Fatal(err)
		}
		files, err := f.Render(x.target)
		if err != nil {
			t.Fatal(err)
		}
		differences, err := schedules.Differences(x.dir, files)
		if err != nil || len(differences) > 0 {
			t.Errorf("%s: %v %v: run 'ratebatch schedule render %s --out deploy/%s'", x.dir, differences, err, x.target, x.dir)
		}
	}
	// The compose stack's schedule is the built-in one without ingest.
	f, err := schedules.Load("")
	if err != nil {
		t.Fatal(err)
	}
	c, err := schedules.Load("compose/schedule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(f.Jobs, func(j schedules.Job) bool { return j.Name == "ingest" })
	if got := fmt.Sprint(jobLines(c.Jobs)); got != fmt.Sprint(jobLines(want)) {
		t.Errorf("compose/schedule.yaml is %s, want %s", got, jobLines(want))
	}
}

func jobLines(jobs []schedules.Job) (out []string) {
	for _, j := range jobs {
		out = append(out, fmt.Sprint(j.Name, j.Cron, j.Args, j.Timeout, j.Jitter, j.Retry))
	}
	return out
}

func TestSystemdTakesTheDaemonsUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	dir := t.TempDir()
	units, err := filepath.Glob("systemd/*.*")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"verify", "--man=no", "--recursive-errors=no"}
	for _, unit := range units {
		if strings.HasSuffix(unit, ".sysusers") {
			continue
		}
		text := strings.ReplaceAll(read(t, unit), "/usr/bin/ratebatch", "/bin/true") // it has to be there
		name := filepath.Join(dir, filepath.Base(unit))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	if len(args) < 10 {
		t.Fatalf("only %d units", len(args)-3)
	}
	if out, err := exec.Command("systemd-analyze", args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// The embedded engine is a process of whichever unit needed it first, and serves
// the others too: the end of that unit must not kill it.
func TestNoUnitKillsTheEngineOfOthers(t *testing.T) {
	units, err := filepath.Glob("systemd/*.service")
	if err != nil || len(units) < 9 {
		t.Fatalf("units %v %v", units, err)
	}
	for _, unit := range units {
		if modes := regexp.MustCompile(`(?m)^KillMode=(.*)$`).FindAllStringSubmatch(read(t, unit), -1); len(modes) != 1 || modes[0][1] != "process" {
			t.Errorf("%s: KillMode %v, want process: systemd would kill an engine that other jobs work in", unit, modes)
		}
	}
}

// decode reads one Kubernetes object and refuses keys that it does not have.
func decode(t *testing.T, name, text string) string {
	t.Helper()
	var kind struct{ Kind string }
	if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	into := map[string]any{"CronJob": &batchv1.CronJob{}, "Job": &batchv1.Job{}, "Namespace": &corev1.Namespace{}, "ConfigMap": &corev1.ConfigMap{}, "NetworkPolicy": &networkingv1.NetworkPolicy{},
		"Deployment": &appsv1.Deployment{}, "Service": &corev1.Service{}}[kind.Kind]
	if into == nil {
		t.Errorf("%s: kind %q is not checked", name, kind.Kind)
		return ""
	}
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return kind.Kind
}

func TestKubernetesTakesTheManifests(t *testing.T) {
	var kustomizations []string
	err := filepath.WalkDir("kubernetes", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir() || !strings.HasSuffix(path, ".yaml"):
		case d.Name() == "kustomization.yaml":
			kustomizations = append(kustomizations, path)
		case d.Name() == "ratebatch.yaml" || d.Name() == "schedule.yaml": // ours, not Kubernetes'
		default:
			for object := range strings.SplitSeq(read(t, path), "\n---\n") {
				decode(t, path, object)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range kustomizations {
		var k struct {
			Resources []string
			Patches   []struct{ Path string }
		}
		if err := yaml.Unmarshal([]byte(read(t, path)), &k); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, p := range k.Patches {
			k.Resources = append(k.Resources, p.Path)
		}
		for _, r := range k.Resources {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), r)); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if len(kustomizations) < 4 {
		t.Errorf("kustomizations %v", kustomizations)
	}
}

func TestOverlaysBuild(t *testing.T) {
	if err := exec.Command("kubectl", "kustomize", "--help").Run(); err != nil {
		t.Skip("kubectl with kustomize is not installed")
	}
	for _, overlay := range []string{"small", "cluster"} {
		out, err := exec.Command("kubectl", "kustomize", "kubernetes/overlays/"+overlay).Output()
		if err != nil {
			t.Fatalf("%s: %v", overlay, err)
		}
		kinds := map[string]int{}
		for object := range strings.SplitSeq(string(out), "\n---\n") {
			kind := decode(t, overlay, object)
			kinds[kind]++
			name := regexp.MustCompile(`(?m)^  name: ratebatch-([a-z-]+)$`).FindStringSubmatch(object)
			if name == nil || kind == "ConfigMap" {
				continue
			}
			// Who it is to ClickHouse; what names nobody is ratebatch_rate, by ratebatch.yaml.
			user := map[string]string{"ingest": "ratebatch_ingest", "export": "ratebatch_export", "export-closed": "ratebatch_export", "migrate": "admin", "dashboard": "ratebatch_read"}[name[1]]
			for _, m := range regexp.MustCompile(`clickhouse://(\w+)@`).FindAllStringSubmatch(object, -1) {
				if m[1] != user {
					t.Errorf("%s: %s works as %s, want %q", overlay, name[1], m[1], user)
				}
			}
			if strings.Count(object, "clickhouse://") > 0 != (user != "") && kind == "CronJob" {
				t.Errorf("%s: %s names a user: %v, want %q", overlay, name[1], strings.Contains(object, "clickhouse://"), user)
			}
			if strings.Contains(object, "secretName: ratebatch-admin") != (name[1] == "migrate") {
				t.Errorf("%s: %s sees the wrong secrets", overlay, name[1])
			}
		}
		if kinds["CronJob"] != 7 || kinds["Job"] != 1 || kinds["ConfigMap"] != 1 || kinds["Deployment"] != 1 || kinds["Service"] != 1 || kinds["NetworkPolicy"] != 2 {
			t.Errorf("%s: %v", overlay, kinds)
		}
		if sharded := bytes.Contains(out, []byte("--shard=$(JOB_COMPLETION_INDEX)/8")); sharded != (overlay == "cluster") {
			t.Errorf("%s: sharded is %v", overlay, sharded)
		}
		if bytes.Contains(out, []byte("image: ratebatch\n")) {
			t.Errorf("%s: an image was not replaced", overlay)
		}
	}
}

func TestEveryAlertHasARunbookEntry(t *testing.T) {
	rules, runbook := read(t, "prometheus/ratebatch.rules.yaml"), read(t, "RUNBOOK.md")
	tests := read(t, "prometheus/ratebatch.rules_test.yaml")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 10 {
		t.Fatalf("%d alerts", len(alerts))
	}
	for _, a := range alerts {
		if !strings.Contains(runbook, "\n## "+a[1]+"\n") {
			t.Errorf("%s has no entry in RUNBOOK.md", a[1])
		}
		if !strings.Contains(rules, "RUNBOOK.md#"+strings.ToLower(a[1])+"\n") {
			t.Errorf("%s does not link to its entry", a[1])
		}
		if strings.Count(tests, a[1]) < 2 {
			t.Errorf("%s is not tested both ways", a[1])
		}
	}
	if entries := strings.Count(runbook, "\n## "); entries != len(alerts) {
		t.Errorf("%d entries for %d alerts", entries, len(alerts))
	}
}

// Each alert at its edge, with what it says: prometheus/ratebatch.rules_test.yaml.
func TestAlertRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian: apt-get install prometheus)")
	}
	for _, args := range [][]string{{"check", "rules", "ratebatch.rules.yaml"}, {"test", "rules", "ratebatch.rules_test.yaml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

func TestScriptsAndGrants(t *testing.T) {
	for _, script := range []string{"clickhouse/users.sh", "clickhouse/backup.sh", "clickhouse/restore.sh"} {
		if out, err := exec.Command("sh", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
		if out, err := exec.Command("sh", script).CombinedOutput(); err == nil {
			t.Errorf("%s without anything given succeeds: %s", script, out)
		}
	}
	// A stand-in for clickhouse-client shows what the scripts send, and that no
	// secret stands in an argument.
	dir := t.TempDir()
	// It answers how many Distributed tables there are, and shows other statements.
	client := func(distributed string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "clickhouse-client"), []byte("#!/bin/sh\ntext=$(cat)\ncase \"$text\" in *\"engine = 'Distributed'\"*) echo "+distributed+" ;; *) echo \"args: $*\"; echo \"$text\" ;; esac\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	client("0")
	start := func(script string, args ...string) (string, error) {
		t.Helper()
		cmd := exec.Command("sh", append([]string{script}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CLICKHOUSE_ADMIN_PASSWORD=hunter0", "CLICKHOUSE_INGEST_PASSWORD=hunter1", "CLICKHOUSE_RATE_PASSWORD=hunter2", "CLICKHOUSE_EXPORT_PASSWORD=hunter3", "CLICKHOUSE_READ_PASSWORD=hunter4")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	run := func(script string, args ...string) string {
		t.Helper()
		out, err := start(script, args...)
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return out
	}
	sql := run("clickhouse/users.sh")
	if strings.Contains(sql, "hunter") || strings.Contains(sql, "@RATE@") {
		t.Errorf("users.sh sends a password as it is, or none:\n%.300s", sql)
	}
	// Least privilege, by user: what may never be granted.
	for user, never := range map[string]string{"ratebatch_ingest": `ALTER|DELETE|DROP|TRUNCATE|KILL|ALL|CREATE|INSERT ON ratebatch\.\*`, "ratebatch_export": `ALTER|DELETE|DROP|TRUNCATE|KILL|ALL|CREATE|INSERT ON ratebatch\.\*`, "ratebatch_read": `ALTER|DELETE|DROP|TRUNCATE|KILL|ALL|CREATE|INSERT`} {
		for _, m := range regexp.MustCompile(`(?m)^GRANT ([^;]*) TO ([^;]*);`).FindAllStringSubmatch(sql, -1) {
			if strings.Contains(m[2], user) && regexp.MustCompile(never).MatchString(m[1]) {
				t.Errorf("%s is granted %s", user, m[1])
			}
		}
	}
	backup := run("clickhouse/backup.sh", "S3('https://s3/x', 'KEY', 'hunter5')")
	if args, rest, _ := strings.Cut(backup, "\n"); strings.Contains(args, "hunter5") || !strings.Contains(rest, "BACKUP DATABASE ratebatch EXCEPT TABLES ratebatch.port_volume_5min_refresh, ") {
		t.Errorf("backup.sh: %s", backup)
	}
	if !strings.Contains(backup, ", ratebatch.disk_samples TO S3(") {
		t.Errorf("backup.sh takes raw samples: %s", backup)
	}
	// Of a cluster it would take one server's rows.
	client("57")
	if out, err := start("clickhouse/backup.sh", "Disk('backups', 'x')"); err == nil || strings.Contains(out, "BACKUP") || !strings.Contains(out, "57 Distributed tables") {
		t.Errorf("backup.sh of a cluster: %v\n%s", err, out)
	}
	client("0")
	if out := run("clickhouse/restore.sh", "Disk('backups', 'x')"); !strings.Contains(out, "RESTORE DATABASE ratebatch FROM Disk('backups', 'x')") {
		t.Errorf("restore.sh: %s", out)
	}
}

func TestTheDockerfileBuildsWhatItNames(t *testing.T) {
	text := read(t, "Dockerfile")
	for _, want := range []string{"CGO_ENABLED=0 go build -tags static", "USER 65532:65532", "AS engine", "AS ratebatch", "AS dashboard", "COPY --from=dashboard", "FROM ${BASE_IMAGE}", "engine install"} {
		if !strings.Contains(text, want) {
			t.Errorf("Dockerfile lacks %q", want)
		}
	}
	stages := regexp.MustCompile(`(?m)^FROM \S+ AS (\w+)`).FindAllStringSubmatch(text, -1)
	for _, m := range regexp.MustCompile(`COPY --from=(\w+)`).FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(stages, func(s []string) bool { return s[1] == m[1] }) {
			t.Errorf("stage %s is copied from and does not exist", m[1])
		}
	}
}

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

	appyaml "github.com/goccy/go-yaml"
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

// decode reads one Kubernetes object and refuses keys that it does not have.
func decode(t *testing.T, name, text string) string {
	t.Helper()
	var kind struct{ Kind string }
	if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	into := map[string]any{"CronJob": &batchv1.CronJob{}, "Job": &batchv1.Job{}, "Namespace": &corev1.Namespace{}, "ConfigMap": &corev1.ConfigMap{}, "NetworkPolicy": &networkingv1.NetworkPolicy{}}[kind.Kind]
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
			decode(t, path, read(t, path))
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
			kinds[decode(t, overlay, object)]++
		}
		if kinds["CronJob"] != 7 || kinds["Job"] != 1 || kinds["ConfigMap"] != 1 {
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

// compose is what of a compose file is looked at; keys that it does not know are
// errors, which is how typing errors are found where no docker compose is.
type compose struct {
	Ratebatch any                `yaml:"x-ratebatch"`
	Services  map[string]service `yaml:"services"`
	Volumes   map[string]any     `yaml:"volumes"`
}

type service struct {
	Image       string            `yaml:"image"`
	Build       map[string]string `yaml:"build"`
	Command     []string          `yaml:"command"`
	Entrypoint  []string          `yaml:"entrypoint"`
	Environment map[string]string `yaml:"environment"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	Restart     string            `yaml:"restart"`
	User        string            `yaml:"user"`
	ReadOnly    bool              `yaml:"read_only"`
	Init        bool              `yaml:"init"`
	CapDrop     []string          `yaml:"cap_drop"`
	SecurityOpt []string          `yaml:"security_opt"`
	Tmpfs       []string          `yaml:"tmpfs"`
	StopGrace   string            `yaml:"stop_grace_period"`
	Ulimits     map[string]any    `yaml:"ulimits"`
	Healthcheck map[string]any    `yaml:"healthcheck"`
	DependsOn   map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
}

func TestComposeNamesNothingThatIsMissing(t *testing.T) {
	text := read(t, "compose.yaml")
	var c compose
	if err := appyaml.NewDecoder(strings.NewReader(text), appyaml.Strict()).Decode(&c); err != nil {
		t.Fatal(err)
	}
	for name, s := range c.Services {
		if s.Image == "" {
			t.Errorf("%s has no image", name)
		}
		for other, d := range s.DependsOn {
			target, ok := c.Services[other]
			switch {
			case !ok:
				t.Errorf("%s waits for %s, which is none", name, other)
			case d.Condition == "service_healthy" && target.Healthcheck == nil:
				t.Errorf("%s waits for the health of %s, which has no check", name, other)
			case d.Condition == "service_completed_successfully" && target.Restart != "":
				t.Errorf("%s waits for the end of %s, which restarts", name, other)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(from, ".") {
				if _, err := os.Stat(from); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if _, ok := c.Volumes[from]; !ok {
				t.Errorf("%s: volume %s is not declared", name, from)
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") && p != "19092:19092" {
				t.Errorf("%s publishes %s to everybody", name, p)
			}
		}
		for key, value := range s.Environment {
			if strings.Contains(strings.ToUpper(key), "PASSWORD") && !strings.HasPrefix(value, "${") {
				t.Errorf("%s: %s is a password by value", name, key)
			}
		}
	}
	// Every variable is in .env.example, and none there is unused.
	example := read(t, ".env.example")
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`\$\{([A-Z0-9_]+)[:}]`).FindAllStringSubmatch(text, -1) {
		used[m[1]] = true
	}
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^([A-Z0-9_]+)=(.*)$`).FindAllStringSubmatch(example, -1) {
		listed = append(listed, m[1])
		if !used[m[1]] {
			t.Errorf(".env.example has %s, which nothing uses", m[1])
		}
		if (strings.Contains(m[1], "PASSWORD") || strings.Contains(m[1], "SECRET")) && m[2] != "" {
			t.Errorf(".env.example has a value for %s", m[1])
		}
	}
	for name := range used {
		if !slices.Contains(listed, name) {
			t.Errorf(".env.example lacks %s", name)
		}
	}
	if err := exec.Command("docker", "compose", "version").Run(); err != nil {
		t.Skip("the docker client has no compose; the file was checked by its own schema")
	}
	cmd := exec.Command("docker", "compose", "--env-file", "/dev/stdin", "-f", "compose.yaml", "config", "--quiet")
	cmd.Stdin = strings.NewReader(regexp.MustCompile(`(?m)=$`).ReplaceAllString(example, "=x"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("docker compose config: %v\n%s", err, out)
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
	if err := os.WriteFile(filepath.Join(dir, "clickhouse-client"), []byte("#!/bin/sh\necho \"args: $*\"\ncat\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(script string, args ...string) string {
		t.Helper()
		cmd := exec.Command("sh", append([]string{script}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CLICKHOUSE_ADMIN_PASSWORD=hunter0", "CLICKHOUSE_INGEST_PASSWORD=hunter1", "CLICKHOUSE_RATE_PASSWORD=hunter2", "CLICKHOUSE_EXPORT_PASSWORD=hunter3", "CLICKHOUSE_READ_PASSWORD=hunter4")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	sql := run("clickhouse/users.sh")
	if strings.Contains(sql, "hunter") || strings.Contains(sql, "@RATE@") {
		t.Errorf("users.sh sends a password as it is, or none:\n%.300s", sql)
	}
	// Least privilege, by user: what may never be granted.
	for user, never := range map[string]string{"ratebatch_ingest": `ALTER|DELETE|DROP|TRUNCATE|KILL|ALL|CREATE`, "ratebatch_export": `ALTER|DELETE|DROP|TRUNCATE|KILL|ALL|CREATE|INSERT ON ratebatch\.\*`, "ratebatch_read": `ALTER|DELETE|DROP|TRUNCATE|KILL|ALL|CREATE|INSERT`} {
		for _, m := range regexp.MustCompile(`(?m)^GRANT ([^;]*) TO ([^;]*);`).FindAllStringSubmatch(sql, -1) {
			if strings.Contains(m[2], user) && regexp.MustCompile(never).MatchString(m[1]) {
				t.Errorf("%s is granted %s", user, m[1])
			}
		}
	}
	backup := run("clickhouse/backup.sh", "S3('https://s3/x', 'KEY', 'hunter5')")
	if args, rest, _ := strings.Cut(backup, "\n"); strings.Contains(args, "hunter5") || !strings.Contains(rest, "BACKUP DATABASE ratebatch EXCEPT TABLES ratebatch.port_samples") {
		t.Errorf("backup.sh: %s", backup)
	}
	if out := run("clickhouse/restore.sh", "Disk('backups', 'x')"); !strings.Contains(out, "RESTORE DATABASE ratebatch FROM Disk('backups', 'x')") {
		t.Errorf("restore.sh: %s", out)
	}
}

func TestTheDockerfileBuildsWhatItNames(t *testing.T) {
	text := read(t, "Dockerfile")
	for _, want := range []string{"CGO_ENABLED=0 go build -tags static", "USER 65532:65532", "AS engine", "AS ratebatch", "FROM ${BASE_IMAGE}", "engine install"} {
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

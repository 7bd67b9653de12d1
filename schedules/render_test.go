package schedules

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"
)

const odd = `
timezone: Europe/Berlin
jobs:
  - name: rate
    cron: "7 * * * *"
    args: [rate, --shard-note, "50% of $(HOME), it's \"odd\"", ""]
    timeout: 50m
    retry: {times: 2, after: 5m}
    shards: 4
  - {name: both-days, cron: "0 3 13 * 5", args: [retention], catch_up: false, jitter: 2m}
systemd: {binary: /opt/ratebatch, user: billing}
kubernetes: {image: "registry.example.org/ratebatch:1.2.3"}
`

func load(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func render(t *testing.T, f *File, target string) map[string]string {
	t.Helper()
	files, err := f.Render(target)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, x := range files {
		out[x.Name] = string(x.Text)
		if !bytes.HasPrefix(x.Text, []byte(mark)) {
			t.Errorf("%s lacks the mark that it is rendered", x.Name)
		}
	}
	return out
}

func TestSystemdTakesTheUnits(t *testing.T) {
	files := render(t, load(t, odd), "systemd")
	if s := files["ratebatch-rate.service"]; !strings.Contains(s, `ExecStart=/opt/ratebatch rate --shard-note "50%% of $$(HOME), it's \"odd\"" ""`) || !strings.Contains(s, "User=billing") {
		t.Errorf("%s", s)
	}
	if s := files["ratebatch-both-days.timer"]; !strings.Contains(s, "OnCalendar=*-*-13 03:00:00 Europe/Berlin\nOnCalendar=Fri *-*-* 03:00:00 Europe/Berlin\nRandomizedDelaySec=120\n") || !strings.Contains(s, "Persistent=no") {
		t.Errorf("%s", s)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	for _, text := range []string{odd, string(Default)} {
		f := load(t, text)
		f.Systemd.Binary = "/bin/true" // it has to be there
		dir := t.TempDir()
		rendered, err := f.Render("systemd")
		if err != nil {
			t.Fatal(err)
		}
		if err := Write(dir, rendered); err != nil {
			t.Fatal(err)
		}
		args := []string{"verify", "--man=no", "--recursive-errors=no"}
		for _, r := range rendered {
			args = append(args, filepath.Join(dir, r.Name))
		}
		if out, err := exec.Command("systemd-analyze", args...).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
	}
}

func TestKubernetesTakesTheCronJobs(t *testing.T) {
	for _, text := range []string{odd, string(Default)} {
		f := load(t, text)
		files := render(t, f, "kubernetes")
		for i := range f.Jobs {
			j := &f.Jobs[i]
			var c batchv1.CronJob
			if err := yaml.UnmarshalStrict([]byte(files[j.Name+".yaml"]), &c); err != nil {
				t.Fatalf("%s: %v", j.Name, err)
			}
			pod := c.Spec.JobTemplate.Spec.Template.Spec
			box := pod.Containers[0]
			switch {
			case c.Spec.Schedule != j.Cron || *c.Spec.TimeZone != j.Timezone || c.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent:
				t.Errorf("%s: %+v", j.Name, c.Spec)
			case !*box.SecurityContext.ReadOnlyRootFilesystem || *box.SecurityContext.AllowPrivilegeEscalation || !*pod.SecurityContext.RunAsNonRoot || *pod.AutomountServiceAccountToken:
				t.Errorf("%s: security contexts %+v %+v", j.Name, pod.SecurityContext, box.SecurityContext)
			case time.Duration(*pod.ActiveDeadlineSeconds)*time.Second != j.Timeout || c.Spec.StartingDeadlineSeconds == nil || box.Resources.Limits.Memory().IsZero():
				t.Errorf("%s: deadlines or limits are missing", j.Name)
			case !slices.Equal(box.Args[1:1+len(j.Args[1:])], j.Args[1:]) && text != odd:
				t.Errorf("%s: args %q", j.Name, box.Args)
			}
			// One shard's exit code ends that shard alone.
			spec, action := c.Spec.JobTemplate.Spec, batchv1.PodFailurePolicyActionFailJob
			limit := spec.BackoffLimit
			if j.Shards > 1 {
				limit, action = spec.BackoffLimitPerIndex, batchv1.PodFailurePolicyActionFailIndex
			}
			if limit == nil || int(*limit) != j.Retry.Times || (spec.BackoffLimit == nil) != (j.Shards > 1) {
				t.Errorf("%s: back-off limits %v and %v, want %d", j.Name, spec.BackoffLimit, spec.BackoffLimitPerIndex, j.Retry.Times)
			}
			for _, rule := range spec.PodFailurePolicy.Rules {
				if rule.Action != action {
					t.Errorf("%s: %s ends its pods, want %s", j.Name, rule.Action, action)
				}
			}
			if gap := j.cron.gap(); time.Duration(*c.Spec.StartingDeadlineSeconds)*time.Second > 100*gap {
				t.Errorf("%s: more than 100 slots fit into the starting deadline", j.Name)
			}
			if j.Shards > 1 && (*c.Spec.JobTemplate.Spec.Completions != 4 || box.Args[len(box.Args)-1] != "--shard=$(JOB_COMPLETION_INDEX)/4" || box.Args[2] != `50% of $$(HOME), it's "odd"`) {
				t.Errorf("%s: shards: %q", j.Name, box.Args)
			}
			for _, e := range box.Env {
				if e.Value != "" && strings.Contains(strings.ToLower(e.Name), "password") {
					t.Errorf("%s: a secret by value", j.Name)
				}
			}
		}
	}
}

func TestCrontabLinesRunWhatTheyName(t *testing.T) {
	f := load(t, odd)
	files := render(t, f, "crontab")
	var line string
	for l := range strings.SplitSeq(files["ratebatch.cron"], "\n") {
		if strings.HasPrefix(l, "7 * * * * ") {
			line = l
		}
	}
	want := `7 * * * * billing flock -n -E 0 /var/lib/ratebatch/rate.lock timeout -k 60 3000 /opt/ratebatch rate --shard-note '50\% of $(HOME), it'\''s "odd"' ''`
	if line != want {
		t.Fatalf("line\n%s\nwant\n%s", line, want)
	}
	// As cron hands it to the shell: \% is %.
	command := strings.ReplaceAll(strings.TrimPrefix(line, "7 * * * * billing flock -n -E 0 /var/lib/ratebatch/rate.lock timeout -k 60 3000 /opt/ratebatch "), `\%`, "%")
	out, err := exec.Command("sh", "-c", `printf '%s\n' `+command).Output()
	if err != nil || string(out) != strings.Join(f.Jobs[0].Args, "\n")+"\n" {
		t.Errorf("the shell reads %q (%v), want %q", out, err, f.Jobs[0].Args)
	}
}

func TestTargetsRefuseWhatTheyCannotExpress(t *testing.T) {
	replace := load(t, "jobs: [{name: a, cron: '0 0 * * *', args: [rate], concurrency: replace}]")
	monthly := load(t, "jobs: [{name: a, cron: '0 6 4 * *', args: [close], retry: {times: 6, after: 1h}}]")
	zones := load(t, "jobs: [{name: a, cron: '0 0 * * *', args: [rate]}, {name: b, cron: '0 0 * * *', args: [rate], timezone: Asia/Tokyo}]")
	for _, tt := range []struct {
		f      *File
		target string
	}{{replace, "systemd"}, {replace, "crontab"}, {zones, "crontab"}, {zones, "windows"}, {monthly, "kubernetes"}, {monthly, "crontab"}} {
		if _, err := tt.f.Render(tt.target); err == nil {
			t.Errorf("%s took it", tt.target)
		}
	}
	render(t, replace, "kubernetes")
	render(t, zones, "systemd")
	render(t, monthly, "systemd")
}

// systemd counts a timer's starts with those of retries: whatever one slot used,
// the next one must start.
func TestRetriesLeaveTheNextSlotItsStart(t *testing.T) {
	for _, text := range []string{odd, string(Default)} {
		f := load(t, text)
		for i := range f.Jobs {
			j := &f.Jobs[i]
			v, err := f.view(j, "systemd")
			if err != nil {
				t.Fatal(err)
			}
			if window := time.Duration(v.Window) * time.Second; j.Retry.Times > 0 && window+j.Jitter >= j.cron.gap() {
				t.Errorf("%s: starts are counted for %s, slots are %s apart", j.Name, window, j.cron.gap())
			}
		}
	}
}

func TestDifferencesAreFoundAndMended(t *testing.T) {
	dir := t.TempDir()
	two, err := load(t, odd).Render("systemd")
	if err != nil {
		t.Fatal(err)
	}
	one, err := load(t, hourly).Render("systemd")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Differences(filepath.Join(dir, "none"), one); err != nil || len(got) != 2 {
		t.Errorf("in no folder: %v %v", got, err)
	}
	if err := Write(dir, two); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "ratebatch-mine.service")
	if err := os.WriteFile(own, []byte("[Unit]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Differences(dir, two); err != nil || len(got) != 0 {
		t.Errorf("just written: %v %v", got, err)
	}
	got, err := Differences(dir, one)
	want := []string{"ratebatch-rate.service differs", "ratebatch-rate.timer differs", "ratebatch-both-days.service belongs to no job", "ratebatch-both-days.timer belongs to no job"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	if err := Write(dir, one); err != nil {
		t.Fatal(err)
	}
	if got, err := Differences(dir, one); err != nil || len(got) != 0 {
		t.Errorf("after another schedule was written: %v %v", got, err)
	}
	if _, err := os.Stat(own); err != nil {
		t.Error("a unit that is not ours is gone")
	}
}

func TestMistakesInAFileAreReportedTogether(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"an unknown key has its line":   {"jobs:\n  - name: rate\n    cron: '7 * * * *'\n    arg: [rate]\n", []string{"arg", "4"}},
		"all at once":                   {"jobs: [{name: Rate, cron: '99 * * * *', timezone: Mars/Base, timeout: 1ms, args: []}, {name: b, cron: '0 0 * * *', args: [rate], concurrency: allow, retry: {times: 99}, memory: lots}]", []string{"Rate", "99 *", "Mars/Base", "1ms", "args are missing", "allow", "retry", "lots"}},
		"the same name twice":           {"jobs: [{name: a, cron: '0 0 * * *', args: [rate]}, {name: a, cron: '0 0 * * *', args: [rate]}]", []string{"twice"}},
		"no jobs":                       {"timezone: UTC\n", []string{"no jobs"}},
		"a password in an argument":     {"jobs: [{name: a, cron: '0 0 * * *', args: [rate, --clickhouse, 'clickhouse://u:hunter2@db:9000']}]", []string{"secret"}},
		"a password as a flag":          {"jobs: [{name: a, cron: '0 0 * * *', args: [rate, --kafka-password=hunter2]}]", []string{"secret"}},
		"a relative path of the binary": {"systemd: {binary: ratebatch}\njobs: [{name: a, cron: '0 0 * * *', args: [rate]}]", []string{"absolute"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("schedule.yaml", []byte(tt.text))
			if err == nil {
				t.Fatal("it was taken")
			}
			for _, want := range append(tt.want, "schedule.yaml") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
	load(t, "jobs: [{name: a, cron: '0 0 * * *', args: [rate, --kafka-password-file, /etc/x]}]")
}

func TestTheSchemaTakesWhatParseTakes(t *testing.T) {
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schedule.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("schedule.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) error {
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(value)
	}
	for _, good := range []string{odd, hourly, string(Default)} {
		if err := check(good); err != nil {
			t.Errorf("%v", err)
		}
	}
	for _, bad := range []string{"jobs: [{name: a}]", "jobs: [{name: a, cron: x, args: [a], tiemout: 1h}]", "jobs: [{name: a, cron: x, args: [a], concurrency: allow}]", "job: []"} {
		if err := check(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if n := strings.Count(string(text), `"description"`); n != len(comments) {
		t.Errorf("%d keys are described, of %d", n, len(comments))
	}
}

func TestNextListsTheEarliestFirst(t *testing.T) {
	f := load(t, string(Default))
	slots := f.Next(at(t, "2026-12-03T23:30:00Z"), 103)
	var text []string
	for _, s := range slots {
		if s.Job == "ingest" { // every five minutes
			continue
		}
		text = append(text, s.At.Format("02 15:04 ")+s.Job)
	}
	want := "04 00:07 rate, 04 01:07 rate, 04 02:07 rate, 04 02:30 export, 04 02:50 reconcile, 04 03:07 rate, 04 04:07 rate, 04 05:07 rate, 04 05:45 retention, 04 06:00 close, 04 06:07 rate, 04 07:00 close"
	if got := strings.Join(text, ", "); got != want {
		t.Errorf("next are %s, want %s", got, want)
	}
}

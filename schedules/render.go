package schedules

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
)

//go:embed templates/*.tmpl
var templateFiles embed.FS

// Rendered is one file.
type Rendered struct {
	Name string
	Text []byte
}

// Targets are what schedules are written for.
func Targets() []string { return []string{"systemd", "kubernetes", "crontab"} }

// killAfter is what a run gets between SIGTERM and SIGKILL.
const killAfter = time.Minute

// Render writes the schedule for a target: the same file gives the same bytes.
// What the target cannot express is an error and never left out silently.
func (f *File) Render(target string) ([]Rendered, error) {
	if !slices.Contains(Targets(), target) {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("render %q", target), Hint: "use " + strings.Join(Targets(), ", ")}
	}
	t, err := template.New("").Funcs(template.FuncMap{"quote": strconv.Quote, "add": func(a, b int) int { return a + b }}).ParseFS(templateFiles, "templates/*.tmpl")
	if err != nil {
		return nil, err
	}
	var out []Rendered
	one := func(name, from string, data any) error {
		var b bytes.Buffer
		if err := t.ExecuteTemplate(&b, from+".tmpl", data); err != nil {
			return fmt.Errorf("render %s: %w", name, err)
		}
		out = append(out, Rendered{name, b.Bytes()})
		return nil
	}
	var views []view
	for i := range f.Jobs {
		v, err := f.view(&f.Jobs[i], target)
		if err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	switch target {
	case "systemd":
		for _, v := range views {
			if err := one("ratebatch-"+v.Name+".service", "service", v); err != nil {
				return nil, err
			}
			if err := one("ratebatch-"+v.Name+".timer", "timer", v); err != nil {
				return nil, err
			}
		}
	case "kubernetes":
		var names []string
		for _, v := range views {
			names = append(names, v.Name+".yaml")
			if err := one(v.Name+".yaml", "cronjob", v); err != nil {
				return nil, err
			}
		}
		if err := one("kustomization.yaml", "kustomization", names); err != nil {
			return nil, err
		}
	case "crontab":
		if err := one("ratebatch.cron", "crontab", map[string]any{"Jobs": views, "Zone": views[0].Timezone}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// view is a job as templates see it.
type view struct {
	Job
	File       *File
	Calendar   []string // OnCalendar
	Exec       string   // arguments for ExecStart
	Command    string   // for a crontab
	KubeArgs   []string
	Seconds    int // of the timeout
	Total      int // seconds of all tries together
	Window     int // seconds within which starts are counted by systemd
	Deadline   int // startingDeadlineSeconds
	Persistent bool
}

// kubeBackoff is the longest wait between tries that is left to Kubernetes' own
// back-off: ten seconds, twenty, forty and so on. It uses up the tries sooner; a job
// that runs every hour or day has its next slot for what that loses.
const kubeBackoff = 10 * time.Minute

func (f *File) view(j *Job, target string) (view, error) {
	v := view{Job: *j, File: f, Seconds: int(j.Timeout.Seconds()), Persistent: j.catchesUp()}
	refuse := func(what, hint string) error {
		return &ratebatch.ConfigError{Err: fmt.Errorf("job %s: %s cannot %s", j.Name, target, what), Hint: hint}
	}
	if j.Concurrency == Replace && target != "kubernetes" {
		return v, refuse("replace a run", "use concurrency: forbid, or 'ratebatch schedule run'")
	}
	rare := j.cron.gap() > 24*time.Hour
	if target == "kubernetes" && j.Retry.Times > 0 && (rare || j.Retry.After > kubeBackoff) {
		return v, refuse(fmt.Sprintf("wait for %s before it tries again: it tries after 10 s, then after twice as long each time, up to 6 min", j.Retry.After),
			"give the job a cron of more slots, as close has in 'ratebatch schedule default', and no retry")
	}
	if target == "crontab" && j.Retry.Times > 0 && rare {
		return v, refuse("try again, and the next slot is far away", "give the job a cron of more slots, as close has in 'ratebatch schedule default', and no retry")
	}
	if target == "crontab" && j.Timezone != f.Jobs[0].Timezone {
		return v, refuse("hold jobs of several time zones", "render one file per zone")
	}
	v.Calendar = j.cron.onCalendar()
	v.Total = (v.Seconds + int(killAfter.Seconds())) * (1 + j.Retry.Times)
	v.Total += j.Retry.Times * int(j.Retry.After.Seconds())
	// The timer's starts count as well: what one slot used must not stop the next.
	gap := int(j.cron.gap().Seconds())
	v.Window = max(10, min(v.Total+60, gap-int(j.Jitter.Seconds())-60))
	// A slot may start this much later. Kubernetes gives up a CronJob that missed
	// more than 100 starts within the time.
	v.Deadline = 300
	if j.catchesUp() {
		v.Deadline = max(300, min(7*24*3600, 90*gap))
	}
	var exec, command []string
	for _, a := range append([]string{f.Systemd.Binary}, j.Args...) {
		exec = append(exec, systemdQuote(a))
		command = append(command, strings.ReplaceAll(shellQuote(a), "%", `\%`))
	}
	v.Exec, v.Command = strings.Join(exec, " "), strings.Join(command, " ")
	for _, a := range j.Args {
		v.KubeArgs = append(v.KubeArgs, strings.ReplaceAll(a, "$(", "$$("))
	}
	if j.Shards > 1 {
		v.KubeArgs = append(v.KubeArgs, fmt.Sprintf("--shard=$(JOB_COMPLETION_INDEX)/%d", j.Shards))
	}
	return v, nil
}

// gap is the shortest time between two of the next hundred slots.
func (c Cron) gap() time.Duration {
	at := c.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	least := c.Next(at).Sub(at)
	for range 100 {
		next := c.Next(at)
		if next.IsZero() {
			break
		}
		least, at = min(least, next.Sub(at)), next
	}
	return least
}

func systemdQuote(arg string) string {
	arg = strings.NewReplacer("%", "%%", "$", "$$").Replace(arg)
	if arg != "" && !strings.ContainsAny(arg, " \t\"'\\;") {
		return arg
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(arg) + `"`
}

func shellQuote(arg string) string {
	if arg != "" && !strings.ContainsFunc(arg, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@,+%", r))
	}) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

var weekdays = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// onCalendar is the expression in systemd's words. Cron takes a day when the day
// of month or the day of week matches if both are given; systemd when both
// match: then there are two lines.
func (c Cron) onCalendar() []string {
	minutes, hours, months := bits(c.spec.Minute, 0, 59), bits(c.spec.Hour, 0, 23), bits(c.spec.Month, 1, 12)
	line := func(dow, dom string) string {
		if dow != "" {
			dow += " "
		}
		return fmt.Sprintf("%s*-%s-%s %s:%s:00 %s", dow, months, dom, hours, minutes, c.zone)
	}
	var days []string
	for d := range 7 {
		if c.spec.Dow&(1<<d) != 0 {
			days = append(days, weekdays[d])
		}
	}
	dow, dom := strings.Join(days, ","), bits(c.spec.Dom, 1, 31)
	anyDow, anyDom := c.spec.Dow&starBit != 0, c.spec.Dom&starBit != 0
	switch {
	case anyDow && anyDom:
		return []string{line("", "*")}
	case anyDow:
		return []string{line("", dom)}
	case anyDom:
		return []string{line(dow, "*")}
	}
	return []string{line("", dom), line(dow, "*")}
}

// bits lists the values of a field: *, 05,20 or, for a step up to the end, 00/5.
func bits(set uint64, from, to int) string {
	var values []int
	for v := from; v <= to; v++ {
		if set&(1<<v) != 0 {
			values = append(values, v)
		}
	}
	if set&starBit != 0 || len(values) == to-from+1 {
		return "*"
	}
	if n := len(values); n > 2 {
		step := values[1] - values[0]
		even := values[n-1]+step > to
		for i := 1; i < n; i++ {
			even = even && values[i]-values[i-1] == step
		}
		if even {
			return fmt.Sprintf("%02d/%d", values[0], step)
		}
	}
	var text []string
	for _, v := range values {
		text = append(text, fmt.Sprintf("%02d", v))
	}
	return strings.Join(text, ",")
}

// Write writes the files into a folder and takes away what an earlier schedule
// left there, so that no unit of a job runs that exists no more.
func Write(dir string, files []Rendered) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return &ratebatch.ConfigError{Err: fmt.Errorf("render: %w", err)}
	}
	stale, err := leftover(dir, files)
	if err != nil {
		return err
	}
	for _, name := range stale {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// mark is in the first line of every rendered file.
const mark = "# Rendered by 'ratebatch schedule render"

// leftover lists rendered files of the folder that are not among files.
func leftover(dir string, files []Rendered) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !e.Type().IsRegular() || slices.ContainsFunc(files, func(f Rendered) bool { return f.Name == e.Name() }) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if bytes.HasPrefix(text, []byte(mark)) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Differences says in which files a folder differs from what is rendered.
func Differences(dir string, files []Rendered) ([]string, error) {
	var out []string
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name))
		switch {
		case err == nil && bytes.Equal(text, f.Text):
		case err == nil:
			out = append(out, f.Name+" differs")
		case isNotExist(err):
			out = append(out, f.Name+" is missing")
		default:
			return nil, err
		}
	}
	stale, err := leftover(dir, files)
	if err != nil && !isNotExist(err) {
		return nil, err
	}
	for _, name := range stale {
		out = append(out, name+" belongs to no job")
	}
	return out, nil
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

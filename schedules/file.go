package schedules

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Default is the schedule of a whole deployment, used where no file is named.
//
//go:embed default.yaml
var Default []byte

// File is a schedule file.
type File struct {
	Timezone   string     `yaml:"timezone,omitempty" json:"timezone,omitempty"`
	Jobs       []Job      `yaml:"jobs" json:"jobs"`
	Systemd    Systemd    `yaml:"systemd,omitempty" json:"systemd,omitempty"`
	Kubernetes Kubernetes `yaml:"kubernetes,omitempty" json:"kubernetes,omitempty"`
}

// Job is one command line and when it runs.
type Job struct {
	Name        string        `yaml:"name" json:"name"`
	Cron        string        `yaml:"cron" json:"cron"`
	Timezone    string        `yaml:"timezone,omitempty" json:"timezone,omitempty"`
	Args        []string      `yaml:"args" json:"args"`
	Timeout     time.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	Concurrency Concurrency   `yaml:"concurrency,omitempty" json:"concurrency,omitempty"`
	Jitter      time.Duration `yaml:"jitter,omitempty" json:"jitter,omitempty"`
	CatchUp     *bool         `yaml:"catch_up,omitempty" json:"catch_up,omitempty"`
	Retry       Retry         `yaml:"retry,omitempty" json:"retry,omitempty"`
	Shards      int           `yaml:"shards,omitempty" json:"shards,omitempty"`
	Memory      string        `yaml:"memory,omitempty" json:"memory,omitempty"`

	cron Cron
}

// Retry says what follows exit code 75, a passing trouble.
type Retry struct {
	Times int           `yaml:"times,omitempty" json:"times,omitempty"`
	After time.Duration `yaml:"after,omitempty" json:"after,omitempty"`
}

// Concurrency says what a slot does while the job's last run goes on. There are
// never two runs of a job.
type Concurrency string

// The policies.
const (
	Forbid  Concurrency = "forbid"  // the slot is left out
	Replace Concurrency = "replace" // the run is ended (SIGTERM), then the new one starts
)

// Systemd is what rendered units need to know.
type Systemd struct {
	Binary          string `yaml:"binary,omitempty" json:"binary,omitempty"`
	User            string `yaml:"user,omitempty" json:"user,omitempty"`
	EnvironmentFile string `yaml:"environment_file,omitempty" json:"environment_file,omitempty"`
}

// Kubernetes is what rendered CronJobs need to know.
type Kubernetes struct {
	Image     string `yaml:"image,omitempty" json:"image,omitempty"`
	Secret    string `yaml:"secret,omitempty" json:"secret,omitempty"`
	ConfigMap string `yaml:"config_map,omitempty" json:"config_map,omitempty"`
	CPU       string `yaml:"cpu,omitempty" json:"cpu,omitempty"`
	Memory    string `yaml:"memory,omitempty" json:"memory,omitempty"`
}

// Load reads a schedule file; without a name it is Default.
func Load(name string) (*File, error) {
	if name == "" {
		return Parse("default schedule", Default)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("schedule: %w", err), Hint: "name the file with --file; 'ratebatch schedule default' prints one to start from"}
	}
	return Parse(name, text)
}

// Parse reads a schedule file and checks it; all mistakes are reported together.
func Parse(name string, text []byte) (*File, error) {
	var f File
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&f); err != nil {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, true))), Hint: "see 'ratebatch schedule schema'"}
	}
	f.fill()
	if err := f.validate(); err != nil {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s: %w", name, err)}
	}
	return &f, nil
}

// Defaults of a job.
const (
	DefaultTimeout    = time.Hour
	DefaultRetryAfter = 10 * time.Minute
)

func (f *File) fill() {
	def := func(at *string, value string) {
		if *at == "" {
			*at = value
		}
	}
	def(&f.Timezone, "UTC")
	def(&f.Systemd.Binary, "/usr/bin/ratebatch")
	def(&f.Systemd.User, "ratebatch")
	def(&f.Systemd.EnvironmentFile, "/etc/ratebatch/ratebatch.env")
	def(&f.Kubernetes.Image, "ratebatch")
	def(&f.Kubernetes.Secret, "ratebatch")
	def(&f.Kubernetes.ConfigMap, "ratebatch")
	def(&f.Kubernetes.CPU, "100m")
	def(&f.Kubernetes.Memory, "512Mi")
	for i := range f.Jobs {
		j := &f.Jobs[i]
		def(&j.Timezone, f.Timezone)
		if j.Timeout == 0 {
			j.Timeout = DefaultTimeout
		}
		if j.Concurrency == "" {
			j.Concurrency = Forbid
		}
		if j.CatchUp == nil {
			yes := true
			j.CatchUp = &yes
		}
		if j.Retry.Times > 0 && j.Retry.After == 0 {
			j.Retry.After = DefaultRetryAfter
		}
		def(&j.Memory, f.Kubernetes.Memory)
		j.Shards = max(1, j.Shards)
	}
}

var (
	// Names become names of units, CronJobs (52 characters), lock files and labels.
	namePattern     = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,40}[a-z0-9])?$`)
	quantityPattern = regexp.MustCompile(`^[1-9][0-9]*(m|[KMGT]i?)?$`)
	// secretFlag is a flag whose value would show in the list of processes.
	secretFlag = regexp.MustCompile(`(?i)^--?[a-z-]*(password|secret|token|access-key)(=|$)`)
	urlSecret  = regexp.MustCompile(`//[^/@\s]*:[^/@\s]+@`)
)

func (f *File) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(f.Jobs) == 0 {
		bad("no jobs")
	}
	seen := map[string]bool{}
	for i := range f.Jobs {
		j := &f.Jobs[i]
		if !namePattern.MatchString(j.Name) {
			bad("job %d: name %q: use 1 to 42 lower-case letters, digits and dashes", i+1, j.Name)
		}
		if seen[j.Name] {
			bad("job %s is there twice", j.Name)
		}
		seen[j.Name] = true
		zone, err := time.LoadLocation(j.Timezone)
		if err != nil || j.Timezone == "Local" {
			bad("job %s: timezone %q is not known: use a name such as Europe/Berlin", j.Name, j.Timezone)
			zone = time.UTC
		}
		if j.cron, err = ParseCron(j.Cron, zone); err != nil {
			bad("job %s: %w", j.Name, err)
		}
		if len(j.Args) == 0 {
			bad("job %s: args are missing, such as [rate]", j.Name)
		}
		for _, arg := range j.Args {
			if strings.ContainsAny(arg, "\n\r\x00") {
				bad("job %s: an argument holds a line break", j.Name)
			}
			if (secretFlag.MatchString(arg) && !strings.Contains(arg, "-file")) || urlSecret.MatchString(arg) {
				bad("job %s: an argument holds a secret, which any user of the machine can see: name a file with it, or use the environment", j.Name)
			}
		}
		if j.Timeout < time.Second || j.Timeout > 7*24*time.Hour {
			bad("job %s: timeout %s: use 1s to 168h", j.Name, j.Timeout)
		}
		if j.Concurrency != Forbid && j.Concurrency != Replace {
			bad("job %s: concurrency %q: use forbid or replace", j.Name, j.Concurrency)
		}
		if j.Jitter < 0 || j.Jitter > time.Hour {
			bad("job %s: jitter %s: use at most 1h", j.Name, j.Jitter)
		}
		if j.Retry.Times < 0 || j.Retry.Times > 10 || j.Retry.After < 0 || j.Retry.After > 24*time.Hour {
			bad("job %s: retry: use at most 10 times, each after at most 24h", j.Name)
		}
		if j.Shards > 1000 || j.Shards < 1 {
			bad("job %s: shards %d: use 1 to 1000", j.Name, j.Shards)
		}
		if !quantityPattern.MatchString(j.Memory) {
			bad("job %s: memory %q: write it as 512Mi", j.Name, j.Memory)
		}
	}
	if !quantityPattern.MatchString(f.Kubernetes.CPU) {
		bad("kubernetes: cpu %q: write it as 100m", f.Kubernetes.CPU)
	}
	for _, p := range []string{f.Systemd.Binary, f.Systemd.EnvironmentFile} {
		if !strings.HasPrefix(p, "/") || strings.ContainsAny(p, " \t\n%") {
			bad("systemd: %q: write an absolute path without blanks", p)
		}
	}
	return errors.Join(errs...)
}

// Slot is one coming run.
type Slot struct {
	At   time.Time `json:"at"`
	Job  string    `json:"job"`
	Args []string  `json:"args"`
}

// Next lists the first n slots after t of all jobs, the earliest first.
func (f *File) Next(t time.Time, n int) []Slot {
	var out []Slot
	for i := range f.Jobs {
		j := &f.Jobs[i]
		at := t
		for range n {
			if at = j.cron.Next(at); at.IsZero() {
				break
			}
			out = append(out, Slot{at, j.Name, j.Args})
		}
	}
	slices.SortStableFunc(out, func(a, b Slot) int { return a.At.Compare(b.At) })
	return out[:min(n, len(out))]
}

// Next is the job's first slot after t.
func (j *Job) Next(t time.Time) time.Time { return j.cron.Next(t) }

// catchesUp says whether a slot that was missed is made up for.
func (j *Job) catchesUp() bool { return j.CatchUp == nil || *j.CatchUp }

package schedules

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/invopop/jsonschema"
)

// Schema is the JSON schema of schedule files, for editors. Parse is stricter.
func Schema() ([]byte, error) {
	r := &jsonschema.Reflector{
		DoNotReference: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			switch t {
			case reflect.TypeFor[time.Duration]():
				return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+(h|m|s))+$`}
			case reflect.TypeFor[Concurrency]():
				return &jsonschema.Schema{Type: "string", Enum: []any{Forbid, Replace}, Default: Forbid}
			}
			return nil
		},
		LookupComment: func(t reflect.Type, field string) string { return comments[t.Name()+"."+field] },
	}
	s := r.Reflect(&File{})
	s.ID = "https://github.com/ratebatch/ratebatch/schedules"
	s.Title = "Ratebatch schedule"
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("schedule schema: %w", err)
	}
	return append(out, '\n'), nil
}

// comments describe the keys; a test sees to it that none is missing.
var comments = map[string]string{
	"File.Timezone":           "Time zone of all cron expressions; UTC by default.",
	"File.Jobs":               "What runs when. Runs that were missed are made up for in this order.",
	"File.Systemd":            "For 'ratebatch schedule render systemd' and crontab.",
	"File.Kubernetes":         "For 'ratebatch schedule render kubernetes'.",
	"Job.Name":                "Unique name: lower-case letters, digits and dashes.",
	"Job.Cron":                "Minute, hour, day of month, month, day of week.",
	"Job.Timezone":            "Time zone of this job, such as Europe/Berlin.",
	"Job.Args":                "Arguments of ratebatch, such as [export, --month, current]. Never a secret.",
	"Job.Timeout":             "The run gets SIGTERM after this time and SIGKILL a minute later; 1h by default.",
	"Job.Concurrency":         "forbid: a slot is left out while the last run goes on; replace: that run is ended first.",
	"Job.Jitter":              "A run starts up to this much later, so that not all jobs of all clouds start at once.",
	"Job.CatchUp":             "Make up once, at start, for runs that were missed; true by default.",
	"Job.Retry":               "Run again after exit code 75, a passing trouble.",
	"Job.Shards":              "On Kubernetes: so many pods, each with --shard i/n (rate only).",
	"Job.Memory":              "On Kubernetes: memory limit, such as 512Mi.",
	"Retry.Times":             "How often at most.",
	"Retry.After":             "How long after; 10m by default.",
	"Systemd.Binary":          "Path of ratebatch.",
	"Systemd.User":            "User that jobs run as.",
	"Systemd.EnvironmentFile": "File with environment variables, readable for root only.",
	"Kubernetes.Image":        "Container image with its tag.",
	"Kubernetes.Secret":       "Secret whose keys are mounted as files under /etc/ratebatch/secrets.",
	"Kubernetes.ConfigMap":    "ConfigMap with ratebatch.yaml.",
	"Kubernetes.CPU":          "CPU that a pod asks for.",
	"Kubernetes.Memory":       "Memory limit of jobs that have none of their own.",
}

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func mapValues[K comparable, V any](m map[K]V) func(func(V) bool) { return maps.Values(m) }

// cloudKittyOptions is the part of the reference for those who come from there.
//
//go:embed config_cloudkitty.md
var cloudKittyOptions string

// configReference is docs/configuration.md.
func configReference(root *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<!-- Made by 'ratebatch config reference'; a test compares it with the program. -->
# Configuration

Whatever can be configured is a flag: '--help' of a command explains it. Not every flag can: what one run does is said each
time, and so is everything of commands that nobody schedules. Values come, the later over the earlier, from

1. the defaults below,
2. one YAML file: '--config FILE', 'RATEBATCH_CONFIG', or '%s' if it exists,
3. environment variables,
4. flags.

A key of the file is the command’s name and the flag’s name with '_' for '-'; commands and groups nest:

    clickhouse: clickhouse://ratebatch_rate@db.example.org:9440/ratebatch?secure=true
    clickhouse_password_file: /etc/ratebatch/secrets/clickhouse-password
    log_format: json
    kafka: {brokers: [kafka1.example.org:9093], ca: /etc/ratebatch/kafka-ca.pem, user: ingest, password_file: /etc/ratebatch/secrets/kafka-password}
    export: {to: "s3://finance/rated?endpoint=https://s3.example.org", dataset: [lines, focus, statement]}
    schedule: {file: /etc/ratebatch/schedule.yaml}

Unknown keys are errors with their line, and so are values that a flag would not take; all mistakes are reported together,
with exit code 2, before anything is touched. 'ratebatch config check' does only that, 'ratebatch config print' shows what
is in force and where it comes from.

Secrets never stand in the file or in arguments: name a file with '…_file', or use the environment. What length a period
has, where first periods begin and which time zone months follow belongs to the database, so that no two machines bill
differently: 'ratebatch settings'.

## All keys

| key | variable | default | what | commands |
|---|---|---|---|---|
`, configFile)
	for _, o := range configurable(root) {
		slices.Sort(o.Commands)
		commands := "all"
		if len(o.Commands) > 0 {
			commands = strings.Join(slices.Compact(o.Commands), ", ")
		}
		fallback := ""
		if o.Default != "" && o.Default != "[]" {
			fallback = "`" + o.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", o.Key, o.Env, fallback, cell(o.Usage), commands)
	}
	b.WriteString("\n## Variables that are no keys\n\n| variable | what |\n|---|---|\n")
	for _, v := range otherVariables {
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.ReplaceAll(v.name, ", ", "`, `"), v.what)
	}
	b.WriteString("\n")
	text := bytes.ReplaceAll(b.Bytes(), []byte("'"), []byte("`"))
	return append(text, cloudKittyOptions...)
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "'", "’").Replace(text)
}

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
)

func newConfigCmd(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and print the configuration, and its reference",
		Long: `Configuration comes from one YAML file (--config, RATEBATCH_CONFIG or ` + configFile + `),
then from the environment, then from flags. Keys are the names of flags.

` + exitCodesHelp,
	}
	cmd.AddCommand(newConfigCheckCmd(p), newConfigPrintCmd(p), newConfigReferenceCmd(p))
	return cmd
}

func newConfigCheckCmd(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check the configuration without touching anything", Args: cobra.NoArgs,
		Long: `Check reads the file and the environment and reports all mistakes together: unknown
keys and variables, values that are none. Files that hold secrets must exist.

` + exitCodesHelp,
		Example: "  ratebatch config check\n  ratebatch --config ./ratebatch.yaml config check",
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := configurable(cmd.Root())
			c, err := loadConfig(p.config, options)
			if err != nil {
				return err
			}
			problems := unknownVariables(options)
			for _, o := range options {
				file := fmt.Sprint(c.values.Get(o.Key))
				if !strings.HasSuffix(o.Key, "_file") || !c.values.Exists(o.Key) || file == "" {
					continue
				}
				if _, err := os.ReadFile(file); err != nil {
					problems = append(problems, fmt.Sprintf("%s (%s): %v", o.Key, c.source[o.Key], err))
				}
			}
			if len(problems) > 0 {
				return &ratebatch.ConfigError{Err: fmt.Errorf("%s", strings.Join(problems, "\n"))}
			}
			result := map[string]any{"file": c.file, "keys": len(c.source)}
			return p.print(result, func() {
				name := c.file
				if name == "" {
					name = "no file"
				}
				fmt.Fprintf(p.stdout, "%s: %d keys set, nothing is wrong with them\n", name, len(c.source))
			})
		},
	}
}

// otherVariables are those that are no flags: secrets, which a flag would show in
// the list of processes, and what is read before there are flags.
var otherVariables = []struct{ name, what string }{
	{"RATEBATCH_CONFIG", "The configuration file; as --config."},
	{"RATEBATCH_CLICKHOUSE_PASSWORD", "Password for ClickHouse, where no file is named."},
	{"RATEBATCH_KAFKA_PASSWORD", "Password for the Kafka brokers, where no file is named."},
	{"RATEBATCH_AGENT_PASSWORD", "`topics apply`: password that the agents’ user gets."},
	{"RATEBATCH_INGEST_PASSWORD", "`topics apply`: password that ingest’s user gets."},
	{"RATEBATCH_ENGINE_LIB", "Path of libchdb.so, where it was not installed by `ratebatch engine install`."},
	{"OS_CLOUD, OS_AUTH_URL, OS_PASSWORD, …", "Keystone, as for the OpenStack client: `scopes fetch`."},
	{"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SHARED_CREDENTIALS_FILE, …", "S3, as for every AWS SDK: `export`."},
}

// unknownVariables lists variables that look like ours and mean nothing: a typing
// error would be as silent as one in the file is loud.
func unknownVariables(options []option) []string {
	var out []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "RATEBATCH_") || strings.HasPrefix(name, "RATEBATCH_TEST_") || strings.HasPrefix(name, "RATEBATCH_ENGINE_") {
			continue
		}
		if slices.ContainsFunc(options, func(o option) bool { return o.Env == name }) ||
			slices.ContainsFunc(otherVariables, func(v struct{ name, what string }) bool { return v.name == name }) {
			continue
		}
		out = append(out, "the environment variable "+name+" means nothing to ratebatch")
	}
	slices.Sort(out)
	return out
}

// setting is one line of config print.
type setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

func newConfigPrintCmd(p *program) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "print", Short: "Print what is configured and where it comes from, secrets masked", Args: cobra.NoArgs,
		Long:    "Print lists the keys that the file or the environment sets. Passwords in URLs are masked.\n\n" + exitCodesHelp,
		Example: "  ratebatch config print\n  ratebatch config print --all --output json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(p.config, configurable(cmd.Root()))
			if err != nil {
				return err
			}
			settings := []setting{}
			for _, o := range configurable(cmd.Root()) {
				switch {
				case c.values.Exists(o.Key):
					value := c.values.Get(o.Key)
					text := fmt.Sprint(value)
					if list, ok := value.([]any); ok {
						text = strings.Trim(fmt.Sprint(list), "[]")
					}
					settings = append(settings, setting{o.Key, jobs.WithoutSecrets([]string{text})[0], c.source[o.Key]})
				case all:
					settings = append(settings, setting{o.Key, o.Default, "default"})
				}
			}
			return p.print(settings, func() {
				w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
				fmt.Fprintln(w, "KEY\tVALUE\tFROM")
				for _, s := range settings {
					rowf(w, "%s\t%s\t%s\n", s.Key, s.Value, s.Source)
				}
				w.Flush()
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list the defaults too")
	return cmd
}

func newConfigReferenceCmd(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "reference", Short: "Print the reference of all keys as Markdown (docs/configuration.md)", Args: cobra.NoArgs,
		Long:    "Reference prints docs/configuration.md, made from the flags.\n\n" + exitCodesHelp,
		Example: "  ratebatch config reference > docs/configuration.md",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := p.stdout.Write(configReference(cmd.Root()))
			return err
		},
	}
}

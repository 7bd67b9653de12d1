package main

import (
	"strings"
	"testing"
)

// A command says which flags it lacks, all of them together, and what each is for.
func TestMissingFlagsAreNamed(t *testing.T) {
	withoutVariables(t)
	for line, want := range map[string]string{
		"close":                                 "ratebatch close: --month is not given",
		"export":                                "ratebatch export: --month and --to are not given",
		"export --month 2026-11":                "ratebatch export: --to is not given",
		"reprocess add":                         "--scope or --all, --from, --to and --reason are not given",
		"reprocess add --all --from 2026-11-01": "--to and --reason are not given",
		"backfill --from 2026-11-01 --reason why": "ratebatch backfill: --to is not given",
		"reset --to 2026-11-01":                   "--scope or --all and --reason are not given",
		"reopen --month 2026-11":                  "--reason is not given",
		"rollup":                                  "--from is not given",
		"reconcile":                               "--month is not given",
		"compare-cloudkitty x.csv":                "--month is not given",
		"scopes disable x":                        "--reason is not given",
		"quote":                                   "--metric or --from is not given",
	} {
		code, _, stderr := cli(t, strings.Fields(line)...)
		if code != 2 || !strings.Contains(stderr, want) || !strings.Contains(stderr, "--help'\n  --") {
			t.Errorf("%s: exit %d, want 2 with %q and what the flags are for:\n%s", line, code, want, stderr)
		}
	}
	// The table is of commands and flags that there are.
	root := newRootCmd(&program{})
	for path, n := range needs {
		cmd, _, err := root.Find(strings.Fields(path)[1:])
		if err != nil || cmd.CommandPath() != path {
			t.Errorf("there is no command %q", path)
			continue
		}
		for _, flags := range append(n.flags, n.unless) {
			for flag := range strings.SplitSeq(flags, "|") {
				if flag != "" && cmd.Flags().Lookup(flag) == nil {
					t.Errorf("%s has no flag --%s", path, flag)
				}
			}
		}
	}
}

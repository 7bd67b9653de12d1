package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// need is flags of which a command cannot do without; one of several that stand
// together is enough.
type need struct {
	flags  []string // of each "a|b" one has to be given
	unless string   // a flag that makes the command do something else
}

// needs are the flags that a command needs, in the order of their use. They are
// asked for here, so that all that are missing are named at once, in the same
// words, before anything is opened, and wherever a value may come from.
var needs = map[string]need{
	"ratebatch close":              {flags: []string{"month"}, unless: "list"},
	"ratebatch reopen":             {flags: []string{"month", "reason"}},
	"ratebatch reconcile":          {flags: []string{"month"}},
	"ratebatch export":             {flags: []string{"month", "to"}},
	"ratebatch compare-cloudkitty": {flags: []string{"month"}},
	"ratebatch rollup":             {flags: []string{"from"}},
	"ratebatch reprocess add":      {flags: []string{"scope|all", "from", "to", "reason"}},
	"ratebatch backfill":           {flags: []string{"from", "to", "reason"}},
	"ratebatch reset":              {flags: []string{"scope|all", "to", "reason"}},
	"ratebatch scopes enable":      {flags: []string{"reason"}},
	"ratebatch scopes disable":     {flags: []string{"reason"}},
	"ratebatch quote":              {flags: []string{"metric|from"}},
	"ratebatch man":                {flags: []string{"out"}},
}

// missing says which flags a command needs and does not have.
func missing(cmd *cobra.Command) error {
	n := needs[cmd.CommandPath()]
	if n.unless != "" && given(cmd, n.unless) {
		return nil
	}
	var names, hints []string
	for _, flag := range n.flags {
		either := strings.Split(flag, "|")
		found := false
		for _, name := range either {
			found = found || given(cmd, name)
		}
		if found {
			continue
		}
		names = append(names, "--"+strings.Join(either, " or --"))
		for _, name := range either {
			hints = append(hints, fmt.Sprintf("  --%s: %s", name, cmd.Flags().Lookup(name).Usage))
		}
	}
	if len(names) == 0 {
		return nil
	}
	verb := "is"
	if len(names) > 1 {
		verb = "are"
		names = []string{strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]}
	}
	return &ratebatch.ConfigError{Err: fmt.Errorf("%s: %s %s not given", cmd.CommandPath(), names[0], verb), Hint: fmt.Sprintf("see '%s --help'\n%s", cmd.CommandPath(), strings.Join(hints, "\n"))}
}

// given says whether a flag has a value, from whatever source.
func given(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f != nil && f.Value.String() != "" && f.Value.String() != "[]" && f.Value.String() != "false"
}

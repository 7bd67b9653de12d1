package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The lines of --help's examples are commands that there are, with flags and
// arguments that they take. Nothing is run: most need what only the reader has.
func TestExamplesOfHelpParse(t *testing.T) {
	withoutVariables(t)
	n := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		own := false
		for line := range strings.SplitSeq(strings.ReplaceAll(cmd.Example, "\\\n", " "), "\n") {
			// What another program prints may be piped in.
			if before, after, ok := strings.Cut(line, "| ratebatch "); ok && !strings.Contains(before, "ratebatch") {
				line = "ratebatch " + after
			}
			words := shellWords(line)
			if len(words) == 0 || words[0] != "ratebatch" {
				if len(words) > 0 && !programs.MatchString(words[0]) {
					t.Errorf("%s --help: what is %q?", cmd.CommandPath(), line)
				}
				continue
			}
			n++
			named, err := parseLine(words[1:], false)
			if err != nil {
				t.Errorf("%s --help: %s: %v", cmd.CommandPath(), line, err)
				continue
			}
			own = own || strings.HasPrefix(named.CommandPath()+" ", cmd.CommandPath()+" ")
		}
		if cmd.Example != "" && !own {
			t.Errorf("%s --help has no example of it", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRootCmd(&program{}))
	if n < 100 {
		t.Errorf("only %d lines were found", n)
	}
}

// Commands that documents name within a sentence exist, with their flags.
// Values and arguments may be left out, or be placeholders.
func TestInlineCommandsOfDocumentsParse(t *testing.T) {
	withoutVariables(t)
	block := regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```")
	inline := regexp.MustCompile("`(ratebatch [^`]*)`")
	n := 0
	for _, d := range documents {
		data, err := os.ReadFile(filepath.Join("../../..", d.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range inline.FindAllStringSubmatch(block.ReplaceAllString(string(data), ""), -1) {
			for _, text := range mentions(m[1]) {
				n++
				if _, err := parseLine(shellWords(text)[1:], true); err != nil {
					t.Errorf("%s: `%s`: %v", d.file, m[1], err)
				}
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d commands were found", n)
	}
}

// What these tests are for is found, and what is no mistake is none.
func TestWrongLinesOfDocumentsAreFound(t *testing.T) {
	withoutVariables(t)
	for line, right := range map[string]struct{ example, mention bool }{
		"ratebatch rate --dry-run":                                 {true, true},
		"ratebatch rate --dryrun":                                  {false, false},
		"ratebatch rat":                                            {false, false},
		"ratebatch plan":                                           {false, true},
		"ratebatch plan aply plan.yaml":                            {false, false},
		"ratebatch plan apply":                                     {false, true},
		"ratebatch plan apply plan.yaml more":                      {false, false},
		"ratebatch settings set period":                            {false, true},
		"ratebatch close":                                          {false, true},
		"ratebatch close --month … --why …":                        {false, false},
		"ratebatch --clickhouse … close --month …":                 {true, true},
		"ratebatch serve --rate-limit RATE":                        {false, true},
		"ratebatch --data 'a b' status | jq . > status.json # now": {true, true},
		"ratebatch status --output":                                {false, true},
		"ratebatch help rate":                                      {true, true},
	} {
		words := shellWords(line)[1:]
		if _, err := parseLine(words, false); (err == nil) != right.example {
			t.Errorf("as an example, %s: %v", line, err)
		}
		if _, err := parseLine(words, true); (err == nil) != right.mention {
			t.Errorf("as a mention, %s: %v", line, err)
		}
	}
}

// parseLine finds a command and parses its flags and arguments, without running
// it. In a mention values may be placeholders and arguments may be missing.
func parseLine(words []string, mention bool) (*cobra.Command, error) {
	root := newRootCmd(&program{})
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(words)
	if err != nil {
		return nil, err
	}
	if mention {
		anyText := func(f *pflag.Flag) { f.Value = anyValue{f.Value} }
		cmd.InheritedFlags().VisitAll(anyText)
		cmd.Flags().VisitAll(anyText)
	}
	err = cmd.ParseFlags(rest)
	if err != nil && !errors.Is(err, pflag.ErrHelp) && !(mention && strings.HasPrefix(err.Error(), "flag needs an argument")) {
		return nil, err
	}
	args := slices.DeleteFunc(cmd.Flags().Args(), func(arg string) bool { return mention && arg == "…" })
	if !cmd.Runnable() && (len(args) > 0 || !mention) {
		return nil, fmt.Errorf("%s is a group of commands; %q is none of them", cmd.CommandPath(), args)
	}
	if mention {
		for range 3 {
			if cmd.ValidateArgs(args) == nil {
				return cmd, nil
			}
			args = append(args, "…")
		}
		return cmd, fmt.Errorf("%s does not take so many arguments", cmd.CommandPath())
	}
	return cmd, errors.Join(cmd.ValidateArgs(args), missing(cmd), cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups())
}

// anyValue takes every text.
type anyValue struct{ pflag.Value }

func (anyValue) Set(string) error { return nil }

// alternatives are a word that stands for several, such as list|show.
var alternatives = regexp.MustCompile(`[^ ]+\|[^ ]+`)

// mentions are the commands that a text between backticks names.
func mentions(text string) []string {
	text = strings.NewReplacer("\n", " ", `\|`, "|", "[", "", "]", "").Replace(text)
	at := alternatives.FindStringIndex(text)
	if at == nil {
		return []string{text}
	}
	var out []string
	for word := range strings.SplitSeq(text[at[0]:at[1]], "|") {
		out = append(out, mentions(text[:at[0]]+word+text[at[1]:])...)
	}
	return out
}

// shellWords cuts the first command of a line into words as a shell does, up to
// a comment, a pipe or a redirection.
func shellWords(line string) []string {
	var words []string
	word, in, quote := "", false, rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote, in = r, true
		case strings.ContainsRune("|<>;&", r) || r == '#' && !in:
			if in {
				words = append(words, word)
			}
			return words
		case r == ' ' || r == '\t':
			if in {
				words = append(words, word)
			}
			word, in = "", false
		default:
			word, in = word+string(r), true
		}
	}
	if in {
		words = append(words, word)
	}
	return words
}

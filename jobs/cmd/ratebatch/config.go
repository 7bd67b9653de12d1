package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Configuration has one vocabulary: the flags. A key of the file is the
// command's path and the flag's name with _ for - (export.to, rate.wait_periods);
// the variable is RATEBATCH_ and the key in capitals. So nothing can be
// configured that the command line does not know, and --help explains it all.
// Not every flag can be configured: notConfigurable, byPeople.
// The file comes first, then the environment, then flags.

// configFile is read when no other file is named and it exists.
const configFile = "/etc/ratebatch/ratebatch.yaml"

// option is one thing that can be configured.
type option struct {
	Key      string
	Env      string
	Commands []string // that take it; none: all
	Usage    string
	Default  string
	flag     *pflag.Flag
}

// Flags of one run are no configuration: they would make every run another one.
var notConfigurable = []string{"help", "version", "config", "dry-run", "now", "check", "list", "reason", "force", "yes", "month", "from", "query", "print"}

// byPeople are commands that nobody schedules: what they do is said each time.
var byPeople = []string{"backfill", "bench", "compare-cloudkitty", "config", "demo", "dev", "explain", "focus", "man", "metrics", "plan", "quote", "release", "reopen", "reset", "settings", "simulate", "watermark"}

// ofPeriods are the flags that say which periods there are. They are rate's,
// whichever command has them: close and status must not judge by another rule.
var ofPeriods = []string{"period", "wait-periods", "first-period", "max-pass-rows"}

func isConfigurable(cmd *cobra.Command, f *pflag.Flag) bool {
	if slices.Contains(notConfigurable, f.Name) || f.Hidden || f.Name == "to" && cmd.Name() != "export" { // a place for export, a time for others
		return false
	}
	if cmd.Root().PersistentFlags().Lookup(f.Name) != nil || slices.Contains(ofPeriods, f.Name) || strings.Contains(f.Usage, "[RATEBATCH_") {
		return true
	}
	path := strings.Fields(cmd.CommandPath())
	return len(path) < 2 || !slices.Contains(byPeople, path[1])
}

var envInUsage = regexp.MustCompile(`\s*\[(RATEBATCH_[A-Z0-9_]+)(=[a-z]+)?\]`)

// optionOf names what configures a flag of a command.
func optionOf(cmd *cobra.Command, f *pflag.Flag) option {
	path := strings.Fields(cmd.CommandPath())[1:]
	for c := cmd; c != nil; c = c.Parent() {
		if c.PersistentFlags().Lookup(f.Name) == f { // of a group of commands, or of all
			path = strings.Fields(c.CommandPath())[1:]
		}
	}
	if slices.Contains(ofPeriods, f.Name) {
		path = []string{"rate"}
	}
	o := option{Key: strings.Join(append(path, f.Name), "."), Usage: envInUsage.ReplaceAllString(f.Usage, ""), Default: f.DefValue, flag: f}
	if m := envInUsage.FindStringSubmatch(f.Usage); m != nil {
		o.Env = m[1]
		if rest, ok := strings.CutPrefix(o.Env, "RATEBATCH_KAFKA"); ok { // the brokers, the same for all commands
			o.Key = "kafka." + strings.TrimPrefix(strings.ToLower(rest), "_")
			if rest == "" {
				o.Key = "kafka.brokers"
			}
		}
	}
	o.Key = strings.ReplaceAll(o.Key, "-", "_")
	if o.Env == "" {
		o.Env = "RATEBATCH_" + strings.ToUpper(strings.ReplaceAll(o.Key, ".", "_"))
	}
	if len(path) > 0 {
		o.Commands = []string{strings.Join(strings.Fields(cmd.CommandPath())[1:], " ")}
	}
	return o
}

// configurable lists all options of the program, sorted by key.
func configurable(root *cobra.Command) []option {
	found := map[string]option{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !isConfigurable(cmd, f) {
				return
			}
			o := optionOf(cmd, f)
			if known, ok := found[o.Key]; ok {
				o.Commands = append(known.Commands, o.Commands...)
			}
			found[o.Key] = o
		})
		for _, sub := range cmd.Commands() {
			if sub.Name() != "help" && sub.Name() != "completion" {
				walk(sub)
			}
		}
	}
	walk(root)
	return slices.SortedFunc(mapValues(found), func(a, b option) int { return strings.Compare(a.Key, b.Key) })
}

// layer is a map as koanf reads it.
type layer map[string]any

func (l layer) Read() (map[string]any, error) { return l, nil }
func (l layer) ReadBytes() ([]byte, error)    { return nil, errors.New("not bytes") }

// configuration is the file and the environment, checked.
type configuration struct {
	file   string // empty: none
	values *koanf.Koanf
	source map[string]string // key -> where it comes from
}

// configName is the file to read: the one named, or the usual one if it is there.
func configName(named string) string {
	if named != "" {
		return named
	}
	if _, err := os.Stat(configFile); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return configFile
}

// loadConfig reads the file and the environment. Unknown keys and values that no
// flag takes are errors, all of them together.
func loadConfig(name string, options []option) (*configuration, error) {
	c := &configuration{file: configName(name), values: koanf.New("."), source: map[string]string{}}
	var errs []error
	if c.file != "" {
		text, err := os.ReadFile(c.file)
		if err != nil {
			return nil, &ratebatch.ConfigError{Err: fmt.Errorf("configuration: %w", err), Hint: "name the file with --config"}
		}
		if err := c.readFile(text, options); err != nil {
			errs = append(errs, err)
		}
	}
	environment := layer{}
	for _, o := range options {
		if value, ok := os.LookupEnv(o.Env); ok && value != "" {
			environment[o.Key] = value
			c.source[o.Key] = o.Env
		}
	}
	flat := koanf.New(".")
	if err := flat.Load(environment, nil); err != nil {
		return nil, err
	}
	if err := c.values.Merge(unflatten(flat)); err != nil {
		return nil, err
	}
	for _, o := range options {
		if c.values.Exists(o.Key) {
			if err := try(o.flag, c.values.Get(o.Key)); err != nil {
				errs = append(errs, fmt.Errorf("%s (%s): %w", o.Key, c.source[o.Key], err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &ratebatch.ConfigError{Err: err, Hint: "docs/configuration.md has all keys; 'ratebatch config check' checks the file"}
	}
	return c, nil
}

// unflatten makes a tree of keys with dots, so that merging overrides one by one.
func unflatten(k *koanf.Koanf) *koanf.Koanf {
	out := koanf.New(".")
	for key, value := range k.All() {
		if err := out.Set(key, value); err != nil {
			panic(err) // a map in memory
		}
	}
	return out
}

func (c *configuration) readFile(text []byte, options []option) error {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return fmt.Errorf("%s: %s", c.file, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return fmt.Errorf("%s: %s", c.file, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	known := map[string]bool{}
	for _, o := range options {
		known[o.Key] = true
	}
	var errs []error
	var walk func(at string, tree map[string]any)
	walk = func(at string, tree map[string]any) {
		for _, name := range slices.Sorted(mapKeys(tree)) {
			key := strings.TrimPrefix(at+"."+name, ".")
			where := fmt.Sprintf("%s:%d", c.file, lineOf(file, key))
			sub, nested := tree[name].(map[string]any)
			switch {
			case known[key] && !nested:
				c.source[key] = where
			case nested && slices.ContainsFunc(options, func(o option) bool { return strings.HasPrefix(o.Key, key+".") }):
				walk(key, sub)
			case tree[name] == nil && slices.ContainsFunc(options, func(o option) bool { return strings.HasPrefix(o.Key, key+".") }):
				delete(tree, name) // an empty section
			case strings.Contains(name, "password") || strings.Contains(name, "secret"):
				errs = append(errs, fmt.Errorf("%s: %s: secrets do not stand in this file: name a file with …_file, or use the environment", where, key))
			default:
				errs = append(errs, fmt.Errorf("%s: unknown key %s%s", where, key, nearest(key, options)))
			}
		}
	}
	walk("", tree)
	if err := c.values.Load(layer(tree), nil); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// lineOf is the line of a key in the file.
func lineOf(file *ast.File, key string) int {
	path, err := yaml.PathString("$." + key)
	if err != nil {
		return 1
	}
	node, err := path.FilterFile(file)
	if err != nil || node == nil {
		return 1
	}
	if m, ok := node.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return max(1, m.Values[0].Key.GetToken().Position.Line-1)
	}
	return node.GetToken().Position.Line
}

// nearest suggests the key that was meant.
func nearest(key string, options []option) string {
	best, most := "", 3
	for _, o := range options {
		if d := distance(key, o.Key); d < most {
			best, most = o.Key, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// distance is how many letters have to be changed, added or left out.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		corner := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			corner, row[j] = row[j], min(row[j]+1, row[j-1]+1, corner+cost)
		}
	}
	return row[len(b)]
}

// try sets a flag and sets it back: does it take the value?
func try(f *pflag.Flag, value any) error {
	before := f.Value.String()
	slice, isSlice := f.Value.(pflag.SliceValue)
	var old []string
	if isSlice {
		old = slice.GetSlice()
	}
	err := set(f, value)
	if isSlice {
		_ = slice.Replace(old)
	} else {
		_ = f.Value.Set(before)
	}
	return err
}

func set(f *pflag.Flag, value any) error {
	if slice, ok := f.Value.(pflag.SliceValue); ok {
		if list, ok := value.([]any); ok {
			var items []string
			for _, item := range list {
				items = append(items, fmt.Sprint(item))
			}
			return slice.Replace(items)
		}
		return slice.Replace(strings.Split(fmt.Sprint(value), ","))
	}
	switch value.(type) {
	case []any, map[string]any:
		return fmt.Errorf("one value is wanted, not several")
	case nil:
		return nil
	}
	if err := f.Value.Set(fmt.Sprint(value)); err != nil {
		return fmt.Errorf("%q: %w", fmt.Sprint(value), err)
	}
	return nil
}

// configure gives the flags that the command line left open their values.
func (p *program) configure(cmd *cobra.Command) error {
	root := cmd.Root()
	for c := cmd; c != nil; c = c.Parent() {
		if c.Name() == "config" { // it reports mistakes itself
			return nil
		}
	}
	c, err := loadConfig(p.config, configurable(root))
	if err != nil {
		return err
	}
	var errs []error
	p.given = map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			p.given[f.Name] = true
		}
		if f.Changed || !isConfigurable(cmd, f) {
			return
		}
		if o := optionOf(cmd, f); c.values.Exists(o.Key) {
			errs = append(errs, set(f, c.values.Get(o.Key)))
			f.Changed = true
		}
	})
	if p.given["data"] && !p.given["clickhouse"] {
		p.engine.URL = "" // the folder that the command line names comes before a server that is configured
	}
	return errors.Join(errs...)
}

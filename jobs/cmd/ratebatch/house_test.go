package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A file is short enough to be read at one sitting, or says in its first lines
// why it is not: it is generated, or "Over 600 lines: …".
func TestFilesAreShortOrSayWhyNot(t *testing.T) {
	kinds := regexp.MustCompile(`\.(go|sql|tsx?|css|ya?ml|sh|md)$`)
	reason := regexp.MustCompile("(?i)code generated|auto-generated|made by `ratebatch |over 600 lines: .")
	n := 0
	root := "../../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() {
			if name == "node_modules" || name == "bin" || name == "dist" || path != root && strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !kinds.MatchString(path) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		lines := strings.SplitAfter(string(text), "\n")
		if len(lines) > 601 && !reason.MatchString(strings.Join(lines[:5], "")) { // the last one is empty
			name, _ := filepath.Rel(root, path)
			t.Errorf("%s has %d lines: split it, or say why not in its first lines (\"Over 600 lines: …\")", name, len(lines)-1)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 1000 {
		t.Errorf("only %d files were looked at", n)
	}
}

// A package that starts goroutines has tests that fail when one is left over:
// what leaks in a job that ends goes unseen, in a daemon it does not.
func TestPackagesThatStartGoroutinesLookForLeaks(t *testing.T) {
	without := map[string]string{
		"ratebatch/engine/enginebench": "the library, loaded into the test's process, keeps its threads",
	}
	starts := regexp.MustCompile(`(?m)^\s+go \w|\.Go\(|errgroup\.`)
	looks := regexp.MustCompile(`goleak\.|enginetest\.Main\(`)
	type found struct{ starts, tests, looks bool }
	packages := map[string]*found{}
	root := "../../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == "node_modules" || name == "bin" || path != root && strings.HasPrefix(name, ".") && name != "..") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		p := packages[dir]
		if p == nil {
			p = &found{}
			packages[dir] = p
		}
		if strings.HasSuffix(path, "_test.go") {
			p.tests = true
			p.looks = p.looks || looks.Match(text)
		} else {
			p.starts = p.starts || starts.Match(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for dir, p := range packages {
		if !p.starts || !p.tests {
			continue // what has no tests of its own is run by those of its callers
		}
		if n++; !p.looks && without[dir] == "" {
			t.Errorf("%s starts goroutines; its tests need func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }, or enginetest.Main(m)", dir)
		}
	}
	if n < 12 {
		t.Errorf("only %d packages were looked at", n)
	}
}

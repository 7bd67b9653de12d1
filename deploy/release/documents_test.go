package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What is published of a checkout is all that its documents lead to: from the
// list, so that no release has to be built to see it.
func TestWhatIsPublishedHasWhatItsDocumentsLeadTo(t *testing.T) {
	root := t.TempDir()
	if err := copyDocuments("../..", root); err != nil {
		t.Fatal(err)
	}
	linksLead(t, root)
}

// linksLead looks for the target of every link between the documents below root.
func linksLead(t *testing.T, root string) {
	t.Helper()
	link := regexp.MustCompile(`\]\(([^)#: ]+)(#[^)]*)?\)`)
	documents, links := 0, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".md") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		documents++
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				name, _ := filepath.Rel(root, path)
				t.Errorf("%s leads to %s, which is not there", name, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if documents < 25 || links < 50 {
		t.Errorf("%s: only %d documents with %d links", root, documents, links)
	}
}

// The steps of deploy/README.md find their files in an archive's top folder.
func TestTheStepsOfDeployingFindTheirFiles(t *testing.T) {
	root := t.TempDir()
	if err := copyDocuments("../..", root); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if err := write(filepath.Join(root, p.name), nil); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	take := func(name string) {
		found = append(found, name)
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("deploy/README.md names %s, which an archive has not", name)
		}
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if !strings.HasPrefix(line, "    ") {
			continue
		}
		for command := range strings.SplitSeq(line, "&&") {
			words := strings.Fields(command)
			if len(words) > 2 && words[0] == "install" && words[1] != "-d" {
				take(words[len(words)-2])
			}
			for i, word := range words {
				if strings.HasPrefix(word, "deploy/") && words[0] != "install" && words[0] != "editor" && (i == 0 || words[i-1] != "--out") {
					take(word)
				}
			}
		}
	}
	for _, want := range []string{"ratebatch", "deploy/systemd/ratebatch.sysusers", "deploy/compose.yaml", "deploy/kubernetes/overlays/small", "deploy/clickhouse/users.sh"} {
		if !strings.Contains(" "+strings.Join(found, " ")+" ", " "+want+" ") {
			t.Errorf("deploy/README.md has no step with %s; found %v", want, found)
		}
	}
}

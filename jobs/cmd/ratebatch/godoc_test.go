package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Every package says what it owns, and every exported name what it is: shapes,
// units and errors stand nowhere else. Values of a group share its comment, and
// methods that only satisfy an interface of the standard library need none.
func TestEverythingExportedIsDocumented(t *testing.T) {
	files := token.NewFileSet()
	packages := map[string]bool{} // folder: it has a package comment
	err := filepath.WalkDir("../../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && (name == "node_modules" || name == "testdata" || name == ".git" || name == "bin") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		folder := filepath.Dir(path)
		packages[folder] = packages[folder] || file.Doc != nil
		for _, d := range file.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s: %s has no comment", files.Position(d.Pos()), name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 40 {
		t.Errorf("only %d packages were found", len(packages))
	}
	for folder, documented := range packages {
		if !documented {
			t.Errorf("%s: no package comment", folder)
		}
	}
}

// ofInterfaces are methods whose meaning is that of a well-known interface.
var ofInterfaces = map[string]bool{"Error": true, "Unwrap": true, "Is": true, "String": true, "Len": true, "Less": true, "Swap": true,
	"Read": true, "Write": true, "Close": true, "ServeHTTP": true, "RoundTrip": true, "MarshalJSON": true, "UnmarshalJSON": true,
	"MarshalText": true, "UnmarshalText": true, "Set": true, "Type": true, "Enabled": true, "Handle": true, "WithAttrs": true, "WithGroup": true}

// undocumented lists the exported names of a declaration that have no comment.
func undocumented(d ast.Decl) (out []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() || d.Doc != nil {
			return nil
		}
		if d.Recv != nil {
			if ofInterfaces[d.Name.Name] || !ast.IsExported(receiver(d.Recv.List[0].Type)) {
				return nil
			}
		}
		return []string{d.Name.Name}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					out = append(out, s.Name.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						out = append(out, n.Name)
					}
				}
			}
		}
	}
	return out
}

func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

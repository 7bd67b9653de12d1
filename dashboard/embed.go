// Package dashboard holds the built web application, for `ratebatch serve`.
//
// It is built by `make dashboard` into dist/, which is not committed. Without it
// dist-placeholder/ is shown instead, so that `go build` needs no Node: a
// pattern that matches both is the only way to embed a folder that may be
// missing.
package dashboard

import (
	"embed"
	"io/fs"
)

//go:embed all:dist*
var files embed.FS

// App is the web application's files, index.html at the root, and whether it
// was built.
func App() (app fs.FS, built bool) {
	if _, err := fs.Stat(files, "dist/index.html"); err == nil {
		return sub("dist"), true
	}
	return sub("dist-placeholder"), false
}

func sub(folder string) fs.FS {
	app, err := fs.Sub(files, folder)
	if err != nil {
		panic(err) // the folder is compiled in
	}
	return app
}

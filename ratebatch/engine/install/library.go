// Package install puts the embedded engine's library where every checkout of
// the machine finds it. The library comes from the npm package that the chDB
// project publishes, pinned by version and by the SHA-512 of its tarball, and
// is fetched by the ordinary npm client, which knows the registry, proxies and
// credentials of this machine.
package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// The one version of the engine that this version of Ratebatch was tested with.
const (
	Package   = "@chdb/lib-linux-x64-gnu"
	Version   = "26.7.3-stable.1"
	Integrity = "sha512-XP97mMqnc5tZpKQywR8N7cLTsHNiTmHr30pC5mzo3jWmukjKn2IBa60c2B/gWUNcuFjOMjWoorQICCqBVj5wpw=="

	libraryFile = "libchdb.so"
	// EnvLib names another copy of the library.
	EnvLib = "RATEBATCH_ENGINE_LIB"
	// systemLib is where a container image or a distribution's package puts it.
	systemLib = "/usr/lib/ratebatch/" + libraryFile
)

// Folder is where Run installs to: below the user's cache, so all checkouts
// and users' jobs share one copy of half a gigabyte.
func Folder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", &ratebatch.ConfigError{
			Err:  fmt.Errorf("find the user's cache folder: %w", err),
			Hint: "set HOME or XDG_CACHE_HOME, or name the library with " + EnvLib,
		}
	}
	return filepath.Join(cache, "ratebatch", "engine", Version), nil
}

// Find gives the library's path: the one asked for, else RATEBATCH_ENGINE_LIB,
// else the installed one.
func Find(asked string) (string, error) {
	if asked == "" {
		asked = os.Getenv(EnvLib)
	}
	if asked != "" {
		if _, err := os.Stat(asked); err != nil {
			return "", &ratebatch.ConfigError{Err: fmt.Errorf("the embedded engine's library: %w", err), Hint: "correct " + EnvLib + " or unset it and run 'ratebatch engine install'"}
		}
		return filepath.Abs(asked)
	}
	folder, err := Folder()
	if err != nil {
		if _, statErr := os.Stat(systemLib); statErr == nil {
			return systemLib, nil
		}
		return "", err
	}
	for _, path := range []string{filepath.Join(folder, libraryFile), systemLib} {
		switch _, err := os.Stat(path); {
		case err == nil:
			return path, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", &ratebatch.ConfigError{Err: fmt.Errorf("the embedded engine's library: %w", err), Hint: "make it readable, or name another copy with " + EnvLib}
		}
	}
	return "", &ratebatch.ConfigError{
		Err:  fmt.Errorf("the embedded engine is not installed (no %s)", filepath.Join(folder, libraryFile)),
		Hint: "run 'ratebatch engine install', or use a ClickHouse server with --clickhouse",
	}
}

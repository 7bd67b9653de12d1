package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// folder is what the engine keeps in one subfolder of the data folder. Only
// its owner may look into it: it holds the password and the tables.
type folder string

func (f folder) lock() string     { return filepath.Join(string(f), "lock") }       // held by the engine while it lives
func (f folder) starting() string { return filepath.Join(string(f), "lock.start") } // held by a command while it starts or joins the engine
func (f folder) endpoint() string { return filepath.Join(string(f), "endpoint.json") }
func (f folder) log() string      { return filepath.Join(string(f), "log") }
func (f folder) store() string    { return filepath.Join(string(f), "store") } // libchdb's own --path

// openFolder makes the folder or checks the one that is there.
func openFolder(dataDir string) (folder, error) {
	fail := func(err error, hint string) (folder, error) {
		return "", &ratebatch.ConfigError{Err: fmt.Errorf("the engine's data folder: %w", err), Hint: hint}
	}
	if dataDir == "" {
		return fail(errors.New("none is given"), "name one with --data, or a server with --clickhouse")
	}
	abs, err := filepath.Abs(dataDir)
	if err != nil {
		return fail(err, "")
	}
	f := folder(filepath.Join(abs, "engine"))
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return fail(err, "name a folder that this user may write with --data")
	}
	info, err := os.Stat(string(f))
	if err != nil {
		return fail(err, "")
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fail(fmt.Errorf("%s belongs to user %d and this command runs as user %d", f, owner, os.Geteuid()), "run it as that user, or name another folder with --data")
	}
	if info.Mode().Perm() != 0o700 {
		if err := os.Chmod(string(f), 0o700); err != nil {
			return fail(err, "")
		}
	}
	probe, err := os.OpenFile(f.starting(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fail(err, "make it writable, or name another folder with --data")
	}
	return f, probe.Close()
}

// endpointFile tells how to reach the engine of a folder. It counts only while
// the engine's lock is held: after a crash it is stale, and anybody may have
// taken the port.
type endpointFile struct {
	URL      string    `json:"url"`
	User     string    `json:"user"`
	Password string    `json:"password"`
	Access   string    `json:"access"` // for statements that reach outside, see Engine.WithFileAccess
	PID      int       `json:"pid"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
}

func (f folder) readEndpoint() (*endpointFile, error) {
	text, err := os.ReadFile(f.endpoint())
	if err != nil {
		return nil, err
	}
	e := new(endpointFile)
	if err := json.Unmarshal(text, e); err != nil {
		return nil, fmt.Errorf("%s: %w", f.endpoint(), err)
	}
	return e, nil
}

func (f folder) writeEndpoint(e *endpointFile) error {
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	temporary := f.endpoint() + ".new"
	if err := os.WriteFile(temporary, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, f.endpoint())
}

var errLocked = errors.New("locked by another process")

// tryLock takes an advisory lock, which the kernel drops with the process, and
// writes the process id into the file.
func tryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close() // the lock is what was wanted
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := file.Truncate(0); err == nil {
		_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // only for messages
	}
	return file, nil
}

// waitLock is tryLock that waits.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	for {
		file, err := tryLock(path)
		if !errors.Is(err, errLocked) {
			return file, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// isLocked says whether a living process holds a lock, and which one.
func isLocked(path string) (bool, string, error) {
	file, err := tryLock(path)
	if errors.Is(err, errLocked) {
		pid, _ := os.ReadFile(path)
		return true, strings.TrimSpace(string(pid)), nil
	}
	if err != nil {
		return false, "", err
	}
	return false, "", file.Close()
}

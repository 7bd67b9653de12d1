package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
)

const (
	tarballSize   = 178 << 20 // about; for the progress shown
	unpackedSize  = 543 << 20 // about
	minimumGlibc  = "2.17"    // the oldest that the library's symbols ask for
	staleAfter    = time.Hour // leftovers of an interrupted installation
	npmErrorLines = 3
)

// Options of Run.
type Options struct {
	From   string // a tarball made by 'npm pack'; empty: fetch it
	Folder string // empty: Folder()
	Force  bool   // install even if it is there

	// Progress is called now and then with what is being done; total is 0
	// where it is not known. It may be nil.
	Progress func(step string, done, total int64)

	// What tests replace.
	Machine   func() Machine
	Integrity string
	Package   string
	Version   string
	FreeSpace func(folder string) (int64, error)
}

// Run installs the library and returns its path. An installation is complete
// or not there: the library gets its name last. Run again after an
// interruption; it cleans up what the earlier one left.
func Run(ctx context.Context, o Options) (path string, installed bool, err error) {
	o.fill()
	folder := o.Folder
	if folder == "" {
		if folder, err = Folder(); err != nil {
			return "", false, err
		}
	}
	if err := o.Machine().check(); err != nil {
		return "", false, err
	}
	path = filepath.Join(folder, libraryFile)
	if _, err := os.Stat(path); err == nil && !o.Force {
		return path, false, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", false, o.explain(err, folder)
	}
	lock, err := lockFolder(ctx, folder)
	if err != nil {
		return "", false, o.explain(err, folder)
	}
	defer func() { _ = lock.Close() }()
	if _, err := os.Stat(path); err == nil && !o.Force {
		return path, false, nil // another command installed it meanwhile
	}
	if err := removeLeftovers(folder); err != nil {
		return "", false, o.explain(err, folder)
	}
	need := int64(unpackedSize)
	if o.From == "" {
		need += 2 * tarballSize // npm keeps a copy while it packs
	}
	free, err := o.FreeSpace(folder)
	if err != nil {
		return "", false, o.explain(err, folder)
	}
	if free < need {
		return "", false, noSpace(folder, need, free)
	}
	staging, err := os.MkdirTemp(folder, stagingPrefix)
	if err != nil {
		return "", false, o.explain(err, folder)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()

	tarball := o.From
	if tarball == "" {
		if tarball, err = o.fetch(ctx, staging); err != nil {
			return "", false, o.explain(err, folder)
		}
	}
	if err := o.verify(ctx, tarball); err != nil {
		return "", false, o.explain(err, folder)
	}
	unpacked := filepath.Join(staging, libraryFile)
	if err := o.unpack(ctx, tarball, unpacked); err != nil {
		return "", false, o.explain(err, folder)
	}
	if err := os.Rename(unpacked, path); err != nil {
		return "", false, o.explain(err, folder)
	}
	return path, true, nil
}

const stagingPrefix = "installing-"

func (o *Options) fill() {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	if o.Machine == nil {
		o.Machine = thisMachine
	}
	if o.Integrity == "" {
		o.Integrity = Integrity
	}
	if o.Package == "" {
		o.Package, o.Version = Package, Version
	}
	if o.FreeSpace == nil {
		o.FreeSpace = freeSpace
	}
}

// lockFolder makes two installations take turns.
func lockFolder(ctx context.Context, folder string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(err, file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// removeLeftovers cleans up after a killed installation; the caller holds the
// lock, so no other one is at work.
func removeLeftovers(folder string) error {
	left, err := filepath.Glob(filepath.Join(folder, stagingPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// fetch has the npm client download the package's tarball. npm's cache is kept
// in the staging folder, which shows how far the download is and leaves nothing
// behind.
func (o *Options) fetch(ctx context.Context, staging string) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", &ratebatch.ConfigError{
			Err:  errors.New("the npm client, which fetches the embedded engine, is not installed"),
			Hint: "install Node.js with npm, or run 'npm pack " + o.Package + "@" + o.Version + "' elsewhere and 'ratebatch engine install --from FILE' here",
		}
	}
	cache := filepath.Join(staging, "npm")
	cmd := exec.CommandContext(ctx, npm, "pack", o.Package+"@"+o.Version, "--pack-destination", staging, "--cache", cache,
		"--loglevel=error", "--no-update-notifier", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = staging
	cmd.Env = append(os.Environ(), "npm_config_progress=false")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // npm and what it runs
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("run npm: %w", err)
	}
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			o.Progress("download", min(folderSize(staging), tarballSize), tarballSize)
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	err = cmd.Wait()
	close(done)
	<-watched
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", npmError(stderr.String(), err)
	}
	found, err := filepath.Glob(filepath.Join(staging, "*.tgz"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("npm pack left %d tarballs: %s", len(found), strings.TrimSpace(stdout.String()))
	}
	return found[0], os.RemoveAll(cache)
}

// npmError turns what npm says into one sentence.
func npmError(text string, err error) error {
	for _, k := range []string{"ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "ERR_SOCKET_TIMEOUT", "EHOSTUNREACH"} {
		if strings.Contains(text, k) {
			return &ratebatch.TryAgainError{
				Err:  fmt.Errorf("npm cannot reach its registry (%s)", k),
				Hint: "check the network and npm's registry and proxy settings, or fetch the tarball elsewhere with 'npm pack " + Package + "@" + Version + "' and run 'ratebatch engine install --from FILE'",
			}
		}
	}
	switch {
	case strings.Contains(text, "ENOSPC"):
		return syscall.ENOSPC
	case strings.Contains(text, "E404"), strings.Contains(text, "ETARGET"), strings.Contains(text, "notarget"):
		return &ratebatch.ConfigError{Err: fmt.Errorf("npm's registry does not have %s@%s", Package, Version), Hint: "check npm's registry setting ('npm config get registry')"}
	case strings.Contains(text, "EINTEGRITY"):
		return damaged("npm")
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "npm error")); line != "" && len(lines) < npmErrorLines {
			lines = append(lines, line)
		}
	}
	return fmt.Errorf("npm pack: %w (%s)", err, strings.Join(lines, "; "))
}

func damaged(what string) error {
	return &ratebatch.ConfigError{
		Err:  fmt.Errorf("the engine's tarball from %s is not the one that this version of Ratebatch was released with (its SHA-512 differs)", what),
		Hint: "it was damaged on the way or replaced: fetch it again, and distrust the source if that does not help",
	}
}

// verify compares the tarball's SHA-512 with the pinned one.
func (o *Options) verify(ctx context.Context, tarball string) error {
	file, err := os.Open(tarball)
	if err != nil {
		return &ratebatch.ConfigError{Err: fmt.Errorf("the engine's tarball: %w", err), Hint: "make one with 'npm pack " + o.Package + "@" + o.Version + "'"}
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	sum := sha512.New()
	if _, err := io.Copy(sum, &meter{ctx, file, "verify", 0, info.Size(), o.Progress}); err != nil {
		return err
	}
	if "sha512-"+base64.StdEncoding.EncodeToString(sum.Sum(nil)) != o.Integrity {
		return damaged(tarball)
	}
	return nil
}

// unpack takes the one file that is needed out of the tarball.
func (o *Options) unpack(ctx context.Context, tarball, target string) error {
	file, err := os.Open(tarball)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	z, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("%s: %w", tarball, err)
	}
	entries := tar.NewReader(z)
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s holds no %s", tarball, libraryFile)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", tarball, err)
		}
		if filepath.Base(entry.Name) != libraryFile || entry.Typeflag != tar.TypeReg {
			continue
		}
		out, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, &meter{ctx, entries, "unpack", 0, entry.Size, o.Progress})
		if err == nil {
			err = out.Sync()
		}
		return errors.Join(err, out.Close())
	}
}

// explain gives an error of the file system a sentence and a remedy.
func (o *Options) explain(err error, folder string) error {
	var config *ratebatch.ConfigError
	var again *ratebatch.TryAgainError
	switch {
	case errors.As(err, &config), errors.As(err, &again), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		free, _ := o.FreeSpace(folder)
		return noSpace(folder, unpackedSize+2*tarballSize, free)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return &ratebatch.ConfigError{
			Err:  fmt.Errorf("the cache folder %s cannot be written: %w", folder, err),
			Hint: "make it writable, set XDG_CACHE_HOME to another place, or name an installed library with " + EnvLib,
		}
	}
	return fmt.Errorf("install the embedded engine: %w", err)
}

func noSpace(folder string, need, free int64) error {
	return &ratebatch.ConfigError{
		Err:  fmt.Errorf("no space for the embedded engine in %s: it takes %d MiB while it is installed and %d MiB are free", folder, need>>20, free>>20),
		Hint: "free some, or set XDG_CACHE_HOME to a larger disk",
	}
}

func freeSpace(folder string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil //nolint:gosec // fits
}

func folderSize(folder string) int64 {
	var total int64
	_ = filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil // files come and go while npm works
	})
	return total
}

// meter reports progress while it reads and stops when ctx ends.
type meter struct {
	ctx         context.Context
	r           io.Reader
	step        string
	done, total int64
	report      func(string, int64, int64)
}

func (m *meter) Read(p []byte) (int, error) {
	if err := m.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := m.r.Read(p)
	m.done += int64(n)
	m.report(m.step, m.done, m.total)
	return n, err
}

// Machine is what the library depends on.
type Machine struct {
	OS, Arch string
	Libc     string // "glibc", "musl" or ""
	Glibc    string // its version, such as 2.36
}

func thisMachine() Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH}
	if m.OS != "linux" {
		return m
	}
	m.Libc, m.Glibc = libc()
	return m
}

// check refuses machines that the library does not run on.
func (m Machine) check() error {
	refuse := func(format string, args ...any) error {
		return &ratebatch.ConfigError{
			Err:  fmt.Errorf("the embedded engine does not run here: "+format, args...),
			Hint: "use a ClickHouse server with --clickhouse, or Linux on x86-64 with glibc " + minimumGlibc + " or newer",
		}
	}
	switch {
	case m.OS != "linux":
		return refuse("the system is %s", m.OS)
	case m.Arch != "amd64":
		return refuse("the processor is %s", m.Arch)
	case m.Libc == "musl":
		return refuse("the C library is musl (Alpine)")
	case m.Libc == "glibc" && older(m.Glibc, minimumGlibc):
		return refuse("the C library is glibc %s", m.Glibc)
	}
	return nil
}

// older compares versions of the form 2.36.
func older(a, b string) bool {
	var a1, a2, b1, b2 int
	if n, _ := fmt.Sscanf(a, "%d.%d", &a1, &a2); n != 2 {
		return false
	}
	if n, _ := fmt.Sscanf(b, "%d.%d", &b1, &b2); n != 2 {
		return false
	}
	return a1 < b1 || a1 == b1 && a2 < b2
}

// libc finds out which C library the system has by its loader: the program
// itself is built without one.
func libc() (name, version string) {
	if musl, _ := filepath.Glob("/lib/ld-musl-x86_64.so*"); len(musl) > 0 {
		if _, err := os.Stat("/lib64/ld-linux-x86-64.so.2"); err != nil {
			return "musl", ""
		}
	}
	loader := "/lib64/ld-linux-x86-64.so.2"
	text, err := exec.Command(loader, "--version").Output() //nolint:noctx // it prints and ends
	if err != nil {
		return "", "" // loading the library will tell
	}
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(strings.TrimRight(first, "."))
	if len(fields) == 0 {
		return "", ""
	}
	return "glibc", fields[len(fields)-1]
}

package spool

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// disk is one folder, reduced to the steps that can fail or be cut short.
// Tests break each of them in turn.
type disk interface {
	Write(name string, data []byte) error // a new file, on disk when it returns
	Rename(from, to string) error         // atomic, replaces
	Sync() error                          // the folder's entries are on disk when it returns
	Remove(name string) error             // nothing to remove is no error
	Read(name string) ([]byte, error)
	Head(name string, n int) ([]byte, int64, error) // the first n bytes and the file's size
	List() ([]string, error)
}

type folder string

func (d folder) Write(name string, data []byte) (err error) {
	// The readings say who used what: nobody else on the machine needs them.
	f, err := os.OpenFile(filepath.Join(string(d), name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

func (d folder) Rename(from, to string) error {
	return os.Rename(filepath.Join(string(d), from), filepath.Join(string(d), to))
}

func (d folder) Sync() (err error) {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Sync()
}

func (d folder) Remove(name string) error {
	if err := os.Remove(filepath.Join(string(d), name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d folder) Read(name string) ([]byte, error) { return os.ReadFile(filepath.Join(string(d), name)) }

func (d folder) Head(name string, n int) ([]byte, int64, error) {
	f, err := os.Open(filepath.Join(string(d), name))
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	data := make([]byte, n)
	got, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	return data[:got], info.Size(), nil
}

func (d folder) List() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// lockFolder keeps a second agent out: two that count one host under one
// identity would each bill it. The lock goes with the process.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, ErrInUse
	}
	return f, nil
}

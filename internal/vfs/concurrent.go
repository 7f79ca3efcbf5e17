package vfs

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"regexp"
)

// Concurrent is a file system in which several processes, on any machines, may create a file at the same time, if all
// of them write the same bytes: each writes under a name of its own, and the first to commit wins. What a killed
// process leaves has a name for which WithoutTemp gives another.
func Concurrent(fsys FS) FS {
	if own, ok := fsys.(interface{ Concurrent() FS }); ok {
		return own.Concurrent()
	}
	return concurrent{fsys}
}

type concurrent struct{ FS }

func (c concurrent) OpenDirect(path string) (File, error) {
	if direct, ok := c.FS.(Directer); ok {
		return direct.OpenDirect(path)
	}
	return nil, pathError("open", path, ErrNoDirect)
}

func (c concurrent) Create(path string) (PendingFile, error) { return c.create(path, c.FS.Create) }

func (c concurrent) CreateDirect(path string, bytes int64) (PendingFile, error) {
	return c.create(path, func(own string) (PendingFile, error) { return createDirect(c.FS, own, bytes) })
}

func (c concurrent) create(path string, begin func(own string) (PendingFile, error)) (PendingFile, error) {
	own := OwnName(path)
	f, err := begin(own)
	if err != nil {
		return nil, err
	}
	return &concurrentFile{f, c.FS, path, own}, nil
}

type concurrentFile struct {
	PendingFile
	fsys      FS
	path, own string
}

func (f *concurrentFile) Commit() error {
	if err := f.PendingFile.Commit(); err != nil {
		return err
	}
	_, err := f.fsys.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = f.fsys.Rename(f.own, f.path); err == nil {
			return nil
		}
	}
	return errors.Join(err, f.fsys.Remove(f.own))
}

// OwnName is a name beside path that no other process has.
func OwnName(path string) string { return path + "." + rand.Text() + TempSuffix }

var temporary = regexp.MustCompile(`(\.[A-Z2-7]{26})?(\.tmp)+$`)

// WithoutTemp is the name that a file with a temporary name is to get, and any other name as it is.
func WithoutTemp(name string) string { return temporary.ReplaceAllString(name, "") }

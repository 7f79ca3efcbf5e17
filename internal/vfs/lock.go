package vfs

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// LockText is what a lock file holds. By it, and not by its name, a program knows that a file and the folder around it
// are its own.
const LockText = "Hopfeed made this file, and locks it while it works in this folder.\n"

// ErrNotLock is returned when a file that is to be locked is there, and is no lock file of Hopfeed's.
var ErrNotLock = errors.New("it is not a lock file that Hopfeed has made")

// LockState is what there is in the place of a lock file.
type LockState int

const (
	NoLock   LockState = iota // something else
	Unmarked                  // a file that is empty, or as a crash may leave LockText: its start, or zeros
	Marked                    // a lock file
)

// lockState tells what content is.
func lockState(content string) LockState {
	switch {
	case content == LockText:
		return Marked
	case len(content) <= len(LockText) && strings.HasPrefix(LockText, strings.TrimRight(content, "\x00")):
		return Unmarked
	}
	return NoLock
}

// StateOfLock tells what there is at path.
func StateOfLock(fsys FS, path string) (LockState, error) {
	info, err := fsys.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return NoLock, err
	}
	f, err := fsys.Open(path)
	if err != nil {
		return NoLock, err
	}
	defer f.Close()
	return readLock(f)
}

func readLock(f io.ReaderAt) (LockState, error) {
	content := make([]byte, len(LockText)+1)
	n, err := f.ReadAt(content, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return NoLock, err
	}
	return lockState(string(content[:n])), nil
}

var errNotLock = fmt.Errorf("%w (move it away)", ErrNotLock)

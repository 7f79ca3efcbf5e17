package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// A lock in a bucket is an object that its holder writes anew every renewal, with vfs.LockText and who holds it. One
// that was not written for leaseTime is of a holder that was killed. So clocks of machines must not differ by more than
// leaseTime less the time of a few renewals. Within a machine, a lock on a local file decides at once.
const (
	leaseTime    = 2 * time.Minute
	leaseRenewal = 15 * time.Second
)

type lease struct {
	f     *FS
	at    place
	local io.Closer
	file  string // that local is on

	once    sync.Once
	stop    chan struct{}
	stopped chan struct{}
	lost    atomic.Bool // somebody else may have the lock

	mu      sync.Mutex
	version string
}

// holder is who holds a lock, as its object says after vfs.LockText and a zero byte.
func (f *FS) holder() (text, machine string, err error) {
	state, err := f.stateDir()
	if err != nil {
		return "", "", err
	}
	path := filepath.Join(state, "machine")
	id, err := vfs.ReadFile(f.FS, path, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		if err = f.FS.MkdirAll(state); err == nil {
			if err = vfs.WriteFile(f.FS, path, []byte(token())); err == nil {
				id, err = vfs.ReadFile(f.FS, path, 1<<10) // another process may have written it too
			}
		}
	}
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d of %s, machine %s", os.Getpid(), host, id), string(id), err
}

// readLock reads the object of a lock.
func (f *FS) readLock(at place) (o object, content []byte, err error) {
	for range 10 { // its holder may write it anew meanwhile
		if o, err = f.stat(at); err != nil {
			return o, nil, err
		}
		content = make([]byte, min(o.bytes, 1<<10))
		if err = (&file{f: f, at: at, object: o}).fetch(content, 0); !errors.Is(err, errReplaced) {
			break
		}
	}
	return o, content, err
}

// heldBy is who holds a lock; "" if nobody does.
func heldBy(o object, content []byte) string {
	_, by, held := bytes.Cut(content, []byte{0})
	if !held || time.Since(o.changed) > leaseTime {
		return ""
	}
	return string(by)
}

func (f *FS) Lock(path string) (io.Closer, error) {
	at, err := f.find("lock", path)
	if err != nil {
		return nil, err
	}
	if at.isLocal() {
		return f.FS.Lock(at.local)
	}
	l, err := f.lease(at)
	return l, pathError("lock", path, err)
}

func (f *FS) lease(at place) (_ io.Closer, err error) {
	l := &lease{f: f, at: at, file: f.lockFile(at), stop: make(chan struct{}), stopped: make(chan struct{})}
	if err := f.inFolder(filepath.Dir(l.file), func() (err error) {
		l.local, err = f.FS.Lock(l.file)
		return err
	}); err != nil {
		return nil, vfs.WithoutPath(err)
	}
	_, machine, err := f.holder()
	condition := condition{none: true}
	if err == nil {
		var o object
		var content []byte
		o, content, err = f.readLock(at)
		switch by := heldBy(o, content); {
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		case err != nil:
		case !bytes.HasPrefix(content, []byte(vfs.LockText)):
			err = fmt.Errorf("%w (move it away)", vfs.ErrNotLock)
		case by != "" && !strings.HasSuffix(by, machine): // else its process was killed, as we have the local lock
			err = fmt.Errorf("%w: %s (if it was killed, try again after %v)", vfs.ErrLocked, by, leaseTime)
		default:
			condition.none, condition.version = false, o.version
		}
	}
	if err == nil {
		err = l.write(condition, true)
	}
	if job := filepath.Dir(at.local); err == nil && condition.none && filepath.Base(job) == ".job" {
		err = os.RemoveAll(filepath.Join(job, "scratch")) // of a job that has ended: another machine has gone on with it
	}
	if errors.Is(err, errReplaced) {
		err = fmt.Errorf("%w: another machine was faster", vfs.ErrLocked)
	}
	if err != nil {
		_ = l.release()
		return nil, err
	}
	// What a killed job was sending.
	if err := f.abandon(at, l.root()); err != nil {
		close(l.stopped)
		return nil, errors.Join(err, l.Close())
	}
	f.mu.Lock()
	f.leases[at.path] = l
	f.mu.Unlock()
	go l.renew()
	return l, nil
}

// root starts the keys that the lock is for.
func (l *lease) root() string {
	dir := filepath.Dir(l.at.key)
	if filepath.Base(dir) == ".job" {
		dir = filepath.Dir(dir)
	}
	return dir + "/"
}

// lockFile is the local file by which processes of this machine exclude each other.
func (f *FS) lockFile(at place) string {
	return filepath.Join(filepath.Dir(at.state), "locks", fmt.Sprintf("%x", sha256.Sum256([]byte(at.local))))
}

// write writes the object. ours: it says that we hold the lock.
func (l *lease) write(c condition, ours bool) error {
	text := []byte(vfs.LockText)
	if ours {
		by, _, err := l.f.holder()
		if err != nil {
			return err
		}
		text = fmt.Appendf(text, "\x00%s%s", strings.Repeat(" ", time.Now().Nanosecond()%97), by) // a version of its own
	}
	return l.f.attempt(clean(), l.at.path, l.at.store, func(ctx context.Context, _ func()) (err error) {
		l.version, err = l.at.store.write(ctx, l.at.key, io.NewSectionReader(bytes.NewReader(text), 0, int64(len(text))), c)
		return err
	})
}

func (l *lease) renew() {
	defer close(l.stopped)
	tick := time.NewTicker(leaseRenewal)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		l.mu.Lock()
		err := l.write(condition{version: l.version}, true)
		l.mu.Unlock()
		if err == nil {
			last = time.Now()
		} else if errors.Is(err, errReplaced) || errors.Is(err, fs.ErrNotExist) || time.Since(last) > leaseTime/2 {
			l.lost.Store(true)
			l.f.o.Note(fmt.Sprintf("%s: the lock is lost, so nothing more is written: %v", l.at.path, err))
			return
		}
	}
}

// end ends the renewal.
func (l *lease) end() {
	l.once.Do(func() { close(l.stop) })
	<-l.stopped
}

// Close gives the lock back. The object stays, if it was not removed, and says that nobody holds it.
func (l *lease) Close() error {
	l.end()
	l.f.mu.Lock()
	delete(l.f.leases, l.at.path)
	l.f.mu.Unlock()
	var err error
	if _, content, readErr := l.f.readLock(l.at); readErr == nil && heldBy(object{changed: time.Now()}, content) != "" &&
		!l.lost.Load() {
		if err = l.write(condition{version: l.version}, false); errors.Is(err, errReplaced) {
			err = nil
		}
	}
	return errors.Join(pathError("unlock", l.at.path, err), l.release())
}

// release gives the local lock back.
func (l *lease) release() error {
	return errors.Join(l.f.FS.Remove(l.file), l.local.Close())
}

func (f *FS) Locked(path string) (bool, error) {
	at, err := f.find("lock", path)
	if err != nil {
		return false, err
	}
	if at.isLocal() {
		return f.FS.Locked(at.local)
	}
	if here, err := f.FS.Locked(f.lockFile(at)); here || err != nil {
		return here, err
	}
	_, machine, err := f.holder()
	if err != nil {
		return false, pathError("lock", path, err)
	}
	o, content, err := f.readLock(at)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	by := heldBy(o, content)
	return by != "" && !strings.HasSuffix(by, machine), pathError("lock", path, err)
}

// lost is an error if a lock above a path was lost.
func (f *FS) lost(path string) error {
	at, err := f.find("write", path)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.leases {
		if l.lost.Load() && l.at.remote == at.remote && strings.HasPrefix(at.key, l.root()) {
			return fmt.Errorf("%w: the lock %s was lost to another machine, or the server did not answer for too long "+
				"(run the command again)", vfs.ErrLocked, l.at.path)
		}
	}
	return nil
}

package offheap

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Processes of one user share memory as a file without a name (memfd_create), which is sealed when it is filled, so that
// nobody can write to it or shorten it. One process gives it to the others by an abstract socket that is called after
// the content. The others stay connected to it: when it closes the memory or ends, one of them takes its place. So all
// memory and all names are gone with the last process, however it ends.

const (
	seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	// lookAfter is how often a process that waits for memory to be filled looks whether who fills it still runs.
	lookAfter = time.Second
)

// machineFile is a file of shared memory while this process has it mapped.
type machineFile struct {
	address *net.UnixAddr
	fd      int

	mu     sync.Mutex
	closed bool
	open   func() error // closes the listener or the connection that the process has
	done   chan struct{}
}

// ofMachine is the memory of a name that processes of this user share. This one is charged for some bytes of it.
func ofMachine(ctx context.Context, name string, bytes, charge int64, fill func(*Buffer) error) (*Buffer, error) {
	f := &machineFile{fd: -1, done: make(chan struct{}), address: addressOf(name, bytes)}
	var listener *net.UnixListener
	var peer *net.UnixConn
	var err error
	refused := 0
	for f.fd < 0 {
		if listener, err = net.ListenUnix("unix", f.address); err == nil {
			if f.fd, err = makeFile(bytes, fill); err != nil {
				return nil, errors.Join(err, end(listener))
			}
		} else if peer, err = net.DialUnix("unix", nil, f.address); err == nil {
			if f.fd, err = receive(ctx, peer, bytes); err != nil {
				_ = peer.Close()
			}
			if err != nil && (errors.Is(err, ErrUnshared) || ctx.Err() != nil) {
				return nil, err
			}
		} else if refused++; refused > 100 || !errors.Is(err, unix.ECONNREFUSED) {
			return nil, fmt.Errorf("%w: %v", ErrUnshared, err)
		} else { // who listened has just closed
			time.Sleep(lookAfter / 100)
		}
	}
	memory, err := unix.Mmap(f.fd, 0, int(bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err == nil && bytes >= hugePage {
		adviseHuge(memory)
	}
	go f.serve(listener, peer)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %v", ErrUnshared, err), f.close())
	}
	count(charge)
	return &Buffer{bytes: memory, counted: charge, unmap: func() error {
		return errors.Join(unix.Munmap(memory), f.close())
	}}, nil
}

// addressOf is where memory of a name is given to others.
func addressOf(name string, bytes int64) *net.UnixAddr {
	hash := sha256.Sum256(fmt.Appendf(nil, "%s of %d bytes", name, bytes))
	return &net.UnixAddr{Name: fmt.Sprintf("@hopfeed-%d-%x", unix.Getuid(), hash[:16]), Net: "unix"}
}

// makeFile fills and seals a file.
func makeFile(bytes int64, fill func(*Buffer) error) (fd int, err error) {
	if fd, err = unix.MemfdCreate("hopfeed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return -1, fmt.Errorf("%w: %v", ErrUnshared, err)
	}
	defer func() {
		if err != nil {
			fd, err = -1, errors.Join(err, unix.Close(fd))
		}
	}()
	var memory []byte
	if err = unix.Ftruncate(fd, bytes); err == nil {
		memory, err = unix.Mmap(fd, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return fd, fmt.Errorf("%w: %v", ErrUnshared, err)
	}
	if bytes >= hugePage {
		adviseHuge(memory)
	}
	if err = errors.Join(fill(&Buffer{bytes: memory}), unix.Munmap(memory)); err != nil {
		return fd, err
	}
	// A process that was forked meanwhile still has it mapped, which forbids to seal it.
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		err = fmt.Errorf("%w: %v", ErrUnshared, err)
	}
	return fd, err
}

// end closes a listener, for processes that were forked from this one too.
func end(l *net.UnixListener) error {
	raw, err := l.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	return errors.Join(err, l.Close())
}

// owner is who is at the other end of a connection, if it is the same user.
func owner(c *net.UnixConn) (pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var who *unix.Ucred
		if who, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); failed == nil {
			if pid = int(who.Pid); int(who.Uid) != unix.Getuid() {
				failed = fmt.Errorf("it is of user %d", who.Uid)
			}
		}
	})
	return pid, errors.Join(err, failed)
}

// receive waits for the file. It is ErrUnshared if who should give it is another user or does not run, or gives another
// file.
func receive(ctx context.Context, c *net.UnixConn, bytes int64) (fd int, err error) {
	pid, err := owner(c)
	if err != nil {
		return -1, fmt.Errorf("%w: %v", ErrUnshared, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	control := make([]byte, unix.CmsgSpace(4))
	for {
		_ = c.SetReadDeadline(time.Now().Add(lookAfter))
		_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), control)
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			// A process that was forked from it may keep its socket open.
			if pid == 0 || unix.Kill(pid, 0) != nil {
				return -1, fmt.Errorf("%w: process %d does not run", ErrUnshared, pid)
			}
			continue
		}
		if err != nil || n == 0 {
			return -1, errors.Join(errors.New("the process that reads the data has stopped"), err, ctx.Err())
		}
		_ = c.SetReadDeadline(time.Time{})
		messages, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil || len(messages) != 1 {
			return -1, fmt.Errorf("%w: no file: %v", ErrUnshared, err)
		}
		files, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(files) != 1 {
			return -1, fmt.Errorf("%w: %d files: %v", ErrUnshared, len(files), err)
		}
		unix.CloseOnExec(files[0])
		var stat unix.Stat_t
		sealed, err := unix.FcntlInt(uintptr(files[0]), unix.F_GET_SEALS, 0)
		if err = errors.Join(err, unix.Fstat(files[0], &stat)); err != nil || sealed&seals != seals || stat.Size != bytes {
			return -1, errors.Join(fmt.Errorf("%w: a file of %d bytes with seals %x", ErrUnshared, stat.Size, sealed), err,
				unix.Close(files[0]))
		}
		return files[0], nil
	}
}

// serve gives the file to others as long as this process has it, or waits for its turn to do so.
func (f *machineFile) serve(listener *net.UnixListener, peer *net.UnixConn) {
	defer close(f.done)
	defer func() { _ = unix.Close(f.fd) }()
	for {
		if listener != nil {
			if f.opens(func() error { return end(listener) }) {
				f.give(listener)
			}
			return
		}
		if peer != nil {
			for open := f.opens(peer.Close); open; {
				_, err := peer.Read(make([]byte, 1)) // until the other end closes, or this one
				open = err == nil
			}
			_ = peer.Close()
		}
		if f.isClosed() {
			return
		}
		var err error
		if listener, err = net.ListenUnix("unix", f.address); err != nil {
			listener = nil
			if peer, err = net.DialUnix("unix", nil, f.address); err != nil {
				peer = nil
				time.Sleep(lookAfter) // a process that was forked from the last owner has the name
			} else if _, err = owner(peer); err != nil {
				_ = peer.Close()
				peer = nil
				time.Sleep(lookAfter) // another user has the name
			}
		}
	}
}

// opens notes what close closes. false: it was closed before, and now this is too.
func (f *machineFile) opens(closing func() error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = closing()
		return false
	}
	f.open = closing
	return true
}

func (f *machineFile) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// give gives the file to each process that connects, and keeps the connections.
func (f *machineFile) give(listener *net.UnixListener) {
	var given []*net.UnixConn
	defer func() {
		for _, c := range given {
			_ = errors.Join(c.CloseWrite(), c.Close()) // the first for connections that forked processes have too
		}
	}()
	for {
		c, err := listener.AcceptUnix()
		if f.isClosed() {
			if err == nil {
				_ = c.Close()
			}
			return
		}
		if err != nil { // such as too many open files: others go on waiting until some are closed
			time.Sleep(lookAfter / 10)
			continue
		}
		if _, err := owner(c); err == nil {
			_, _, err = c.WriteMsgUnix([]byte{0}, unix.UnixRights(f.fd), nil)
			if err == nil {
				given = append(given, c)
				continue
			}
		}
		_ = c.Close()
	}
}

// close ends serve, which closes the file.
func (f *machineFile) close() error {
	f.mu.Lock()
	f.closed = true
	if f.open != nil {
		_ = f.open()
	}
	f.mu.Unlock()
	<-f.done
	return nil
}

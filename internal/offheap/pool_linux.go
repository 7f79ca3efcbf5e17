package offheap

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Processes of one user share memory as a file without a name (memfd_create), which is sealed when it is filled, so
// that nobody can write to it or shorten it. Each process that has it gives it to others by an abstract socket of its
// own: the first free one of those called after the content. A process that finds no socket fills the memory. So memory
// and names are gone with the last process, however it ends, and are never without a name before.

const (
	seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	// lookAfter is how often a process that waits for memory to be filled looks whether who fills it still runs.
	lookAfter = time.Second
	// sockets is how many processes give memory of a name; others that have it do not.
	sockets = 64
)

// machineFile is a file of shared memory while this process has it mapped.
type machineFile struct {
	fd       int
	listener *net.UnixListener // nil: all sockets of the name are taken
	closed   atomic.Bool
	done     chan struct{}
}

// ofMachine is the memory of a name that processes of this user share. This one is charged for some bytes of it.
func ofMachine(ctx context.Context, name string, bytes, charge int64, fill func(*Buffer) error) (*Buffer, error) {
	f := &machineFile{fd: -1, done: make(chan struct{})}
	var err error
	for tries := 0; f.fd < 0; tries++ {
		if f.fd, err = given(ctx, name, bytes); ctx.Err() != nil {
			return nil, err
		}
		if f.fd >= 0 {
			f.listener = listen(name, bytes, sockets)
		} else if f.listener = listen(name, bytes, 1); f.listener != nil {
			if f.fd, err = makeFile(bytes, fill); err != nil {
				return nil, errors.Join(err, end(f.listener))
			}
		} else if errors.Is(err, ErrUnshared) || tries > 100 {
			return nil, errors.Join(ErrUnshared, err)
		} else { // another has just begun to fill it, or has just closed it
			time.Sleep(lookAfter / 100)
		}
	}
	memory, err := unix.Mmap(f.fd, 0, int(bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err == nil && bytes >= hugePage {
		adviseHuge(memory)
	}
	go f.give()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %v", ErrUnshared, err), f.close())
	}
	count(charge)
	return &Buffer{bytes: memory, counted: charge, unmap: func() error {
		return errors.Join(unix.Munmap(memory), f.close())
	}}, nil
}

// given is the file of a process that has it. It is negative if there is none, with the reason.
func given(ctx context.Context, name string, bytes int64) (fd int, err error) {
	for i := range sockets {
		c, refused := net.DialUnix("unix", nil, addressOf(name, bytes, i))
		if refused != nil {
			continue
		}
		var failed error
		fd, failed = receive(ctx, c, bytes)
		_ = c.Close()
		if failed == nil || ctx.Err() != nil {
			return fd, failed
		}
		err = errors.Join(err, failed)
	}
	return -1, err
}

// listen takes the first free one of count sockets of a name. nil: none is free.
func listen(name string, bytes int64, count int) *net.UnixListener {
	for i := range count {
		if l, err := net.ListenUnix("unix", addressOf(name, bytes, i)); err == nil {
			return l
		}
	}
	return nil
}

// addressOf is the i-th socket where memory of a name is given to others.
func addressOf(name string, bytes int64, i int) *net.UnixAddr {
	hash := sha256.Sum256(fmt.Appendf(nil, "%s of %d bytes", name, bytes))
	return &net.UnixAddr{Name: fmt.Sprintf("@hopfeed-%d-%x-%d", unix.Getuid(), hash[:16], i), Net: "unix"}
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

// give gives the file to each process that connects, until close.
func (f *machineFile) give() {
	defer close(f.done)
	for f.listener != nil {
		c, err := f.listener.AcceptUnix()
		if err == nil {
			if _, err := owner(c); err == nil && !f.closed.Load() {
				_, _, _ = c.WriteMsgUnix([]byte{0}, unix.UnixRights(f.fd), nil)
			}
			_ = c.Close()
		}
		if f.closed.Load() {
			return
		}
		if err != nil { // such as too many open files: others go on waiting until some are closed
			time.Sleep(lookAfter / 10)
		}
	}
}

// close ends give, and closes the file.
func (f *machineFile) close() error {
	f.closed.Store(true)
	if f.listener != nil {
		_ = end(f.listener)
	}
	<-f.done
	return unix.Close(f.fd)
}

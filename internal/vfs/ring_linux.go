package vfs

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// ring is the kernel's queue of reads and writes (io_uring(7)) that all direct files share. Those that come at the same
// time are handed to the kernel by one system call, and none of them blocks a thread: with a call for each, reads of
// 128 KB take twice the processor time.
type ring struct {
	file        *os.File
	fd          int
	memory      [2]mmap.MMap // the queues, and the submission entries
	submissions []submission
	completions []completion
	submitTail  *uint32
	doneHead    *uint32
	doneTail    *uint32
	results     *os.File // an eventfd, written to when there are results

	requests [ringRequests]ringRequest
	unused   chan *ringRequest // of requests
	waiting  chan *ringRequest // for submission; closed with the ring
	running  sync.WaitGroup
	// submitted orders what submit takes before what the results bring, as the kernel does, where the race detector
	// sees it.
	submitted atomic.Uint32
}

// ringRequest is a read or a write on its way.
type ringRequest struct {
	id     uint64 // its index
	opcode uint8
	fd     int
	p      []byte
	offset int64
	result chan int32 // bytes, or a negative error number
}

// ringRequests is how many requests can be on their way at a time; more wait.
const ringRequests = 128

// What the kernel and the program share: see linux/io_uring.h.
type (
	submission struct {
		opcode, flags uint8
		priority      uint16
		fd            int32
		offset        uint64
		address       uint64
		length        uint32
		operation     uint32
		id            uint64
		rest          [3]uint64
	}
	completion struct {
		id     uint64
		result int32
		flags  uint32
	}
	ringParameters struct {
		submissionEntries, completionEntries, flags, threadCPU, threadIdle, features, workers uint32
		_                                                                                     [3]uint32
		submission                                                                            struct {
			head, tail, mask, entries, flags, dropped, array, _ uint32
			_                                                   uint64
		}
		completion struct {
			head, tail, mask, entries, overflow, entriesAt, flags, _ uint32
			_                                                        uint64
		}
	}
)

const (
	opRead                = 22 // IORING_OP_READ
	opWrite               = 23 // IORING_OP_WRITE
	registerEventFD       = 4
	mapSubmissionQueue    = 0
	mapSubmissionEntries  = 0x10000000
	featureSingleMap      = 1 << 0 // both queues are one range of memory
	submissionEntryLength = int(unsafe.Sizeof(submission{}))
)

// sharedRing is the ring of all direct files, which exists while some are open.
var sharedRing struct {
	sync.Mutex
	ring  *ring
	files int
}

// acquireRing returns the ring, for one more file, or nil where the system does not have any (old kernels, containers
// that forbid it).
func acquireRing() *ring {
	s := &sharedRing
	s.Lock()
	defer s.Unlock()
	if s.ring == nil {
		var err error
		if s.ring, err = newRing(); err != nil {
			return nil
		}
	}
	s.files++
	return s.ring
}

// releaseRing ends the use of the ring by a file, if it has it.
func releaseRing(r *ring) {
	if r == nil {
		return
	}
	s := &sharedRing
	s.Lock()
	defer s.Unlock()
	if s.files--; s.files == 0 {
		s.ring.close()
		s.ring = nil
	}
}

func newRing() (*ring, error) {
	r := &ring{unused: make(chan *ringRequest, ringRequests), waiting: make(chan *ringRequest, ringRequests)}
	if err := r.open(); err != nil {
		r.release()
		return nil, err
	}
	for i := range r.requests {
		r.requests[i] = ringRequest{id: uint64(i), result: make(chan int32, 1)}
		r.unused <- &r.requests[i]
	}
	r.running.Go(r.submit)
	r.running.Go(r.takeResults)
	return r, nil
}

func (r *ring) open() error {
	var p ringParameters
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, ringRequests, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return errno
	}
	r.fd, r.file = int(fd), os.NewFile(fd, "io_uring")
	if p.features&featureSingleMap == 0 {
		return unix.ENOSYS
	}
	queues := max(int(p.submission.array+4*p.submissionEntries),
		int(p.completion.entriesAt)+int(p.completionEntries)*int(unsafe.Sizeof(completion{})))
	for i, m := range []struct {
		at     int64
		length int
	}{{mapSubmissionQueue, queues}, {mapSubmissionEntries, int(p.submissionEntries) * submissionEntryLength}} {
		var err error
		if r.memory[i], err = mmap.MapRegion(r.file, m.length, mmap.RDWR, 0, m.at); err != nil {
			return err
		}
	}
	word := func(at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.memory[0][at])) }
	r.submitTail, r.doneHead, r.doneTail = word(p.submission.tail), word(p.completion.head), word(p.completion.tail)
	r.submissions = unsafe.Slice((*submission)(unsafe.Pointer(&r.memory[1][0])), p.submissionEntries)
	r.completions = unsafe.Slice((*completion)(unsafe.Pointer(&r.memory[0][p.completion.entriesAt])),
		p.completionEntries)
	places := unsafe.Slice(word(p.submission.array), p.submissionEntries) // of entries, in the order of submission
	for i := range places {
		places[i] = uint32(i)
	}
	// Some sandboxes allow a ring, and no use of it.
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, fd, 0, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	r.results = os.NewFile(uintptr(event), "eventfd")
	number := int32(event)
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER,
		fd, registerEventFD, uintptr(unsafe.Pointer(&number)), 1, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// close waits for the requests on their way, and ends the ring.
func (r *ring) close() {
	for range ringRequests {
		<-r.unused
	}
	close(r.unused)
	close(r.waiting)
	_ = r.results.Close() // ends takeResults
	r.running.Wait()
	r.release()
}

func (r *ring) release() {
	for _, m := range r.memory {
		if m != nil {
			_ = m.Unmap()
		}
	}
	if r.file != nil {
		_ = r.file.Close()
	}
}

// read is pread(2), which also stands in for a ring that is nil.
func (r *ring) read(fd int, p []byte, offset int64) (int, error) {
	if r == nil {
		return unix.Pread(fd, p, offset)
	}
	return r.do(opRead, fd, p, offset)
}

// write is pwrite(2), likewise.
func (r *ring) write(fd int, p []byte, offset int64) (int, error) {
	if r == nil {
		return unix.Pwrite(fd, p, offset)
	}
	return r.do(opWrite, fd, p, offset)
}

func (r *ring) do(opcode uint8, fd int, p []byte, offset int64) (int, error) {
	q := <-r.unused
	if q == nil {
		return 0, unix.EBADF // the last file was closed meanwhile
	}
	q.opcode, q.fd, q.p, q.offset = opcode, fd, p, offset
	r.waiting <- q
	result := <-q.result
	q.p = nil
	r.unused <- q
	if result < 0 {
		return 0, unix.Errno(-result)
	}
	return int(result), nil
}

// submit hands requests to the kernel.
func (r *ring) submit() {
	tail := uint32(0)
	for q := range r.waiting {
		runtime.Gosched() // others may be about to read as well
		count := 0
		for more := true; more; {
			r.submissions[tail%uint32(len(r.submissions))] = submission{
				opcode: q.opcode, fd: int32(q.fd), offset: uint64(q.offset),
				address: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(q.p)))), length: uint32(len(q.p)), id: q.id,
			}
			tail++
			count++
			select {
			case q, more = <-r.waiting:
			default:
				more = false
			}
		}
		r.submitted.Store(tail)
		atomic.StoreUint32(r.submitTail, tail)
		for count > 0 {
			n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(count), 0, 0, 0, 0)
			switch errno {
			case 0:
				count -= int(n)
			case unix.EINTR, unix.EAGAIN, unix.EBUSY:
				runtime.Gosched()
			default: // the requests that the kernel did not take end here
				for ; count > 0; count-- {
					tail--
					r.requests[r.submissions[tail%uint32(len(r.submissions))].id].result <- -int32(errno)
				}
				atomic.StoreUint32(r.submitTail, tail)
			}
		}
	}
}

// takeResults ends requests that are done.
func (r *ring) takeResults() {
	var word [8]byte
	for head := uint32(0); ; {
		for ; head != atomic.LoadUint32(r.doneTail); head++ {
			r.submitted.Load()
			c := r.completions[head%uint32(len(r.completions))]
			// before another request can begin, so that the queue never overflows
			atomic.StoreUint32(r.doneHead, head+1)
			r.requests[c.id].result <- c.result
		}
		if _, err := r.results.Read(word[:]); err != nil {
			return
		}
	}
}

package vfs

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/hopfeed/hopfeed/internal/offheap"
)

// Stream writes a file from its start to its end in large requests: past the page cache where the file system can
// (DirectCreator), several at a time, while the caller goes on; else one at a time. The file has the same bytes either
// way. Like a PendingFile it appears under its path only by Commit, and belongs to one goroutine.
//
// An error of a request is returned by a later Write, or by Commit.
type Stream struct {
	file   PendingFile
	direct bool // requests are of whole pages
	memory *offheap.Buffer
	block  []byte // that is being filled; it has filled bytes
	filled int
	next   int64       // offset of the block in the file
	free   chan []byte // blocks without a request

	path string
	done bool

	mu  sync.Mutex
	err error // of the first request that failed
}

// streamBlockBytes and streamBlocks are the size and number of requests. Fewer or smaller ones are slower on a virtual
// disk, and more are no faster.
const (
	streamBlockBytes = 2 << 20
	streamBlocks     = 4
)

// StreamBytes is the memory of a stream of a file of about this size.
func StreamBytes(bytes int64) int64 { return streamBlocks * streamBlock(bytes) }

// streamBlock is the size of the blocks of a stream: less for short ones, so that these have several requests too.
func streamBlock(bytes int64) int64 {
	pages := (bytes/streamBlocks + PageBytes) / PageBytes
	return min(pages*PageBytes, streamBlockBytes)
}

// CreateStream starts a file of about this size, for which a direct stream makes room at once.
func CreateStream(fsys FS, path string, bytes int64) (*Stream, error) {
	s := &Stream{path: path, direct: true}
	var err error
	if s.file, err = createDirect(fsys, path, bytes); errors.Is(err, ErrNoDirect) {
		s.direct = false
		s.file, err = fsys.Create(path)
	}
	if err != nil {
		return nil, err
	}
	size := streamBlock(bytes)
	if s.memory, err = offheap.Alloc(streamBlocks * size); err != nil {
		return nil, errors.Join(err, s.file.Abort())
	}
	s.free = make(chan []byte, streamBlocks)
	for i := range int64(streamBlocks) {
		s.free <- s.memory.Bytes()[i*size:][:size:size]
	}
	s.block = <-s.free
	return s, nil
}

// Write appends p.
func (s *Stream) Write(p []byte) (n int, err error) {
	if s.done {
		return 0, pathError("write", s.path+TempSuffix, fs.ErrClosed)
	}
	for n < len(p) {
		m := copy(s.block[s.filled:], p[n:])
		s.filled += m
		n += m
		if s.filled < len(s.block) {
			break
		}
		s.send(s.block)
		s.block, s.filled = <-s.free, 0
		if err := s.failure(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// send starts the request that writes a block after the ones before.
func (s *Stream) send(block []byte) {
	at := s.next
	s.next += int64(len(block))
	write := func() {
		if _, err := s.file.WriteAt(block, at); err != nil {
			s.mu.Lock()
			if s.err == nil {
				s.err = err
			}
			s.mu.Unlock()
		}
		s.free <- block[:cap(block)]
	}
	if s.direct {
		go write()
	} else {
		write()
	}
}

func (s *Stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Commit writes what is left, and commits the file.
func (s *Stream) Commit() error {
	if s.done {
		return pathError("commit", s.path, fs.ErrClosed)
	}
	s.done = true
	size := s.next + int64(s.filled)
	if s.filled > 0 {
		whole := s.filled
		if s.direct {
			whole = int(WholePages(int64(whole)))
		}
		clear(s.block[s.filled:whole])
		s.send(s.block[:whole])
	} else {
		s.free <- s.block
	}
	err := s.finish()
	if err == nil && s.direct {
		err = s.file.Truncate(size)
	}
	if err != nil {
		return errors.Join(err, s.file.Abort())
	}
	return s.file.Commit()
}

// finish waits for all requests, and frees the blocks.
func (s *Stream) finish() error {
	for range streamBlocks {
		<-s.free
	}
	return errors.Join(s.failure(), s.memory.Free())
}

// Abort removes the file.
func (s *Stream) Abort() error {
	if s.done {
		return nil
	}
	s.done = true
	s.free <- s.block
	_ = s.finish() // of a file that goes
	return s.file.Abort()
}

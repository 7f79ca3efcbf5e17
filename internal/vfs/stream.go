package vfs

import (
	"bufio"
	"errors"
	"io/fs"
	"sync"

	"github.com/hopfeed/hopfeed/internal/offheap"
)

// Stream writes a file from its start to its end: past the page cache where the file system can (DirectCreator), in
// large requests, several at a time, while the caller goes on; else through the page cache. The file has the same bytes
// either way. Like a PendingFile it appears under its path only by Commit, and belongs to one goroutine.
//
// An error of a request is returned by a later Write, or by Commit.
type Stream struct {
	direct DirectPending // nil: buffered
	align  int
	memory *offheap.Buffer
	block  []byte // that is being filled; it has filled bytes
	filled int
	next   int64       // offset of the block in the file
	free   chan []byte // blocks without a request

	buffered PendingFile
	buffer   *bufio.Writer
	refused  error // why it is not direct

	path string
	done bool

	mu  sync.Mutex
	err error // of the first request that failed
}

const (
	// streamBlockBytes and streamBlocks are the size and number of requests. Fewer or smaller ones are slower on a
	// virtual disk, and more are no faster.
	streamBlockBytes = 2 << 20
	streamBlocks     = 4
	// bufferedBytes is the buffer of a stream through the page cache.
	bufferedBytes = 64 << 10
)

// StreamBytes is the memory that a stream of about so many bytes takes.
func StreamBytes(bytes int64) int64 { return streamBlocks * streamBlock(bytes) }

// streamBlock is the size of the blocks of a stream: less for short ones, so that these have several requests too.
func streamBlock(bytes int64) int64 {
	pages := (bytes/streamBlocks + PageBytes) / PageBytes
	return min(pages*PageBytes, streamBlockBytes)
}

// CreateStream starts a file of about so many bytes, for which a direct stream makes room at once.
func CreateStream(fsys FS, path string, bytes int64) (*Stream, error) {
	s := &Stream{path: path, refused: ErrNoDirect}
	var err error
	if d, ok := fsys.(DirectCreator); ok {
		if s.direct, s.align, err = d.CreateDirect(path, bytes); err == nil {
			return s, s.allocate(bytes)
		}
		if !errors.Is(err, ErrNoDirect) {
			return nil, err
		}
		s.refused = err
	}
	if s.buffered, err = fsys.Create(path); err != nil {
		return nil, err
	}
	s.buffer = bufio.NewWriterSize(s.buffered, bufferedBytes)
	return s, nil
}

func (s *Stream) allocate(bytes int64) (err error) {
	size := (streamBlock(bytes) + int64(s.align) - 1) / int64(s.align) * int64(s.align)
	if s.memory, err = offheap.Alloc(streamBlocks * size); err != nil {
		return errors.Join(err, s.direct.Abort())
	}
	s.free = make(chan []byte, streamBlocks)
	for i := range int64(streamBlocks) {
		s.free <- s.memory.Bytes()[i*size:][:size:size]
	}
	s.block = <-s.free
	return nil
}

// Direct is nil if the file is written past the page cache, else the reason why it is not.
func (s *Stream) Direct() error {
	if s.direct != nil {
		return nil
	}
	return s.refused
}

// Write appends p.
func (s *Stream) Write(p []byte) (n int, err error) {
	switch {
	case s.done:
		return 0, pathError("write", s.path+TempSuffix, fs.ErrClosed)
	case s.direct == nil:
		return s.buffer.Write(p)
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
	go func() {
		if _, err := s.direct.WriteAt(block, at); err != nil {
			s.mu.Lock()
			if s.err == nil {
				s.err = err
			}
			s.mu.Unlock()
		}
		s.free <- block[:cap(block)]
	}()
}

func (s *Stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Sync waits until whole blocks are written, and makes them durable. It is for measuring: to commit is enough.
func (s *Stream) Sync() error {
	var file any = s.buffered
	if s.direct == nil {
		if err := s.buffer.Flush(); err != nil {
			return err
		}
	} else {
		file = s.direct
		var blocks [streamBlocks - 1][]byte // all but the one that is being filled
		for i := range blocks {
			blocks[i] = <-s.free
		}
		for _, block := range blocks {
			s.free <- block
		}
		if err := s.failure(); err != nil {
			return err
		}
	}
	durable, ok := file.(interface{ Sync() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return durable.Sync()
}

// Commit writes what is left, and commits the file.
func (s *Stream) Commit() error {
	if s.done {
		return pathError("commit", s.path, fs.ErrClosed)
	}
	s.done = true
	if s.direct == nil {
		err := s.buffer.Flush()
		if err != nil {
			return errors.Join(err, s.buffered.Abort())
		}
		return s.buffered.Commit()
	}
	size := s.next + int64(s.filled)
	if s.filled > 0 {
		whole := (s.filled + s.align - 1) / s.align * s.align
		clear(s.block[s.filled:whole])
		s.send(s.block[:whole])
	} else {
		s.free <- s.block
	}
	err := s.finish()
	if err == nil {
		err = s.direct.Truncate(size)
	}
	if err != nil {
		return errors.Join(err, s.direct.Abort())
	}
	return s.direct.Commit()
}

// finish waits for all requests, and frees the blocks.
func (s *Stream) finish() error {
	for range streamBlocks {
		<-s.free
	}
	return errors.Join(s.failure(), s.memory.Free())
}

// Abort removes what was written.
func (s *Stream) Abort() error {
	if s.done {
		return nil
	}
	s.done = true
	if s.direct == nil {
		return s.buffered.Abort()
	}
	s.free <- s.block
	_ = s.finish() // of a file that goes
	return s.direct.Abort()
}

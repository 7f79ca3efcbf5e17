package offheap

import (
	"context"
	"errors"
	"sync"
)

// Pool is memory whose content has a name, such as the features of a graph: it is filled once, and all who ask for the
// name hold the same memory, within the process or, where processes say so, on the machine. Nobody may write to it.
// A Pool is safe for concurrent use. A nil *Pool shares nothing.
type Pool struct {
	mu    sync.Mutex
	named map[string]*named
}

// named is memory with a name.
type named struct {
	ready chan struct{} // closed when memory and err are set
	users int

	memory *Buffer
	err    error
}

// ErrUnshared is returned where processes cannot share memory.
var ErrUnshared = errors.New("processes do not share this memory")

// Holders are the processes of a machine that share memory.
type Holders struct {
	Processes int  // this one and others; up to 1: it is alone
	Whole     bool // each is charged for all of the memory, not for its part
}

// Charge is the part of the memory that this process is charged for.
func (h Holders) Charge(bytes int64) int64 {
	if h.Whole {
		return bytes
	}
	return bytes / int64(max(1, h.Processes))
}

// Get returns the memory of a name, which the caller frees. fill fills it, which is zeroed, if it is not there yet.
// Where processes cannot share it, a process that is charged for all of it has its own; else it is ErrUnshared.
func (p *Pool) Get(ctx context.Context, name string, bytes int64, by Holders, fill func(*Buffer) error) (*Buffer,
	error) {
	if p == nil || bytes == 0 {
		return filled(bytes, fill)
	}
	for {
		n, first := p.enter(name)
		if first {
			memory, err := (*Buffer)(nil), ErrUnshared
			if by.Processes > 1 {
				memory, err = ofMachine(ctx, name, bytes, by.Charge(bytes), fill)
			}
			if errors.Is(err, ErrUnshared) && by.Charge(bytes) == bytes {
				memory, err = filled(bytes, fill)
			}
			p.mu.Lock() // for leave of those who no longer wait
			n.memory, n.err = memory, err
			p.mu.Unlock()
			close(n.ready)
		}
		select {
		case <-n.ready:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), p.leave(name, n))
		}
		if n.err == nil {
			return &Buffer{bytes: n.memory.bytes, unmap: func() error { return p.leave(name, n) }}, nil
		}
		if err := errors.Join(n.err, p.leave(name, n)); first || ctx.Err() != nil {
			return nil, err
		} // another has failed, or was stopped: the next try fills the memory
	}
}

// filled is memory of the caller alone.
func filled(bytes int64, fill func(*Buffer) error) (*Buffer, error) {
	b, err := Alloc(bytes)
	if err == nil {
		if err = fill(b); err != nil {
			return nil, errors.Join(err, b.Free())
		}
	}
	return b, err
}

// Has tells whether the memory of a name is held in this process.
func (p *Pool) Has(name string) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.named[name] != nil
}

// enter counts a user of a name. first: it makes the memory.
func (p *Pool) enter(name string) (n *named, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = p.named[name]; n == nil {
		if p.named == nil {
			p.named = map[string]*named{}
		}
		n, first = &named{ready: make(chan struct{})}, true
		p.named[name] = n
	}
	n.users++
	return n, first
}

// leave ends a use. With the last, or if there is no memory, the name is forgotten.
func (p *Pool) leave(name string, n *named) error {
	p.mu.Lock()
	n.users--
	last := n.users == 0
	if (last || n.err != nil) && p.named[name] == n {
		delete(p.named, name)
	}
	p.mu.Unlock()
	if last && n.memory != nil {
		return n.memory.Free()
	}
	return nil
}

package vfs

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard calls f, which touches mapped files. Where the memory behind a mapping has gone, f stops there and Guard
// returns ErrFault; other panics go on. Goroutines that f starts are not guarded.
func Guard(f func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = fmt.Errorf("%w, at address %#x", ErrFault, r.Addr())
		default:
			panic(r)
		}
	}()
	return f()
}

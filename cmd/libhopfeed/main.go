//go:build cgo && (linux || darwin)

// Command libhopfeed is Hopfeed as a C library, which programs in other languages load:
//
//	go build -buildmode=c-shared -o libhopfeed.so ./cmd/libhopfeed
//
// hopfeed.h describes it. This file translates between C and Go; tasks.go has the work that takes
// long, open.go and sample.go open loaders, and client.go has their batches. No memory of Go is passed to C: batches
// lie in the loaders' buffers, outside of the Go heap, text is copied, and all else is known by number. Callers begin
// epochs, take batches and release them without entering Go: ring.c.
package main

// #include <stdlib.h>
// #include "hopfeed.h"
// void hopfeed_set_error(char *text);
import "C"

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hopfeed/hopfeed/cmd/command"
	"github.com/hopfeed/hopfeed/cmd/exit"
	"github.com/hopfeed/hopfeed/tools/session"
)

func main() {} // does not run: the program that loads the library has its own

// errWait is returned while a task runs.
var errWait = errors.New("nothing yet")

// table keeps what callers know by number. No number is used again.
type table[T any] struct {
	last atomic.Uint64
	of   sync.Map // of T, by number
}

func (t *table[T]) add(v T) uint64 {
	number := t.last.Add(1)
	t.of.Store(number, v)
	return number
}

// use calls f with what has a number, which it forgets before if f is its end.
func (t *table[T]) use(number uint64, end bool, f func(T) error) error {
	find := t.of.Load
	if end {
		find = t.of.LoadAndDelete
	}
	v, ok := find(number)
	if !ok {
		return fmt.Errorf("%w: number %d is not known: was it closed?", session.ErrOptions, number)
	}
	return f(v.(T))
}

var (
	tasks   table[*task]
	clients table[*client]
)

// result tells C of an error.
func result(err error) C.int32_t {
	switch err {
	case nil:
		return C.HOPFEED_DONE
	case errWait:
		return C.HOPFEED_WAIT
	}
	C.hopfeed_set_error(C.CString(err.Error()))
	return status(err)
}

// status is the kind of an error.
func status(err error) C.int32_t {
	if errors.Is(err, errInterrupted) {
		return C.HOPFEED_INTERRUPTED
	}
	found := exit.Of(err)
	if of := (*command.Error)(nil); errors.As(err, &of) {
		found = of.Status
	}
	if found == exit.Failed && errors.Is(err, fs.ErrNotExist) {
		return C.HOPFEED_NOT_FOUND
	}
	return C.int32_t(found)
}

//export hopfeed_api
func hopfeed_api() C.int32_t { return C.HOPFEED_API }

//export hopfeed_main
func hopfeed_main(count C.int32_t, words *C.hopfeed_text) C.int32_t {
	os.Args = []string{"hopfeed"}
	for _, word := range unsafe.Slice(words, count) {
		os.Args = append(os.Args, C.GoString(word))
	}
	return C.int32_t(command.Main(os.Args[1:]))
}

//export hopfeed_free
func hopfeed_free(text unsafe.Pointer) { C.free(text) }

//export hopfeed_start
func hopfeed_start(verb, options C.hopfeed_text, number *C.hopfeed_task) C.int32_t {
	t, err := start(C.GoString(verb), []byte(C.GoString(options)))
	if err == nil {
		*number = C.hopfeed_task(tasks.add(t))
	}
	return result(err)
}

//export hopfeed_wait
func hopfeed_wait(number C.hopfeed_task, ms C.int32_t, out **C.char) C.int32_t {
	return result(tasks.use(uint64(number), false, func(t *task) error {
		text, err := t.wait(time.After(time.Duration(ms) * time.Millisecond))
		if *out = nil; text != nil {
			*out = C.CString(string(text))
		}
		return err
	}))
}

//export hopfeed_end
func hopfeed_end(number C.hopfeed_task) C.int32_t {
	return result(tasks.use(uint64(number), true, (*task).end))
}

//export hopfeed_stats
func hopfeed_stats(number C.hopfeed_loader, out **C.char) C.int32_t {
	return result(clients.use(uint64(number), false, func(c *client) error {
		text, err := json.Marshal(c.stats())
		if err == nil {
			*out = C.CString(string(text))
		}
		return err
	}))
}

//export hopfeed_close
func hopfeed_close(number C.hopfeed_loader) C.int32_t {
	return result(clients.use(uint64(number), true, (*client).close))
}

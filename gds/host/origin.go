package host

import (
	"fmt"
	"path"
	"runtime"
	"strings"
)

// origin is where in the program something was done: errors of buffers that leak, or are freed twice, say where they
// were allocated, or freed first.
type origin struct{ callers []uintptr }

// here is the place in the program that called the device.
func here() origin {
	callers := make([]uintptr, 16)
	return origin{callers[:runtime.Callers(2, callers)]}
}

// text is the innermost calls outside of this package's own code.
func (o origin) text(what string) string {
	var calls []string
	for frames := runtime.CallersFrames(o.callers); len(calls) < 4; {
		f, more := frames.Next()
		if !strings.HasSuffix(path.Dir(f.File), "gds/host") || strings.HasSuffix(f.File, "_test.go") {
			calls = append(calls, fmt.Sprintf("%s:%d", path.Base(f.File), f.Line))
		}
		if !more {
			break
		}
	}
	return fmt.Sprintf("; %s at %s", what, strings.Join(calls, ", from "))
}

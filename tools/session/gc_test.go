package session

import (
	"runtime"
	"runtime/debug"
)

// The heap of these tests is small: at Go's default, collections take several times what the tests do. Nobody reads a
// profile of it, whose samples take a twentieth of their time.
func init() {
	debug.SetGCPercent(800)
	runtime.MemProfileRate = 0
}

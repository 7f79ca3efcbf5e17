package gdstest

import "runtime/debug"

// The heap of these tests is small: at Go's default, collections take several times what the tests do.
func init() { debug.SetGCPercent(800) }

//go:build cgo && (linux || darwin)

package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Go's race detector does not see C, so the ring is tested by a program in C.
func TestRingsWithoutRaces(t *testing.T) {
	cc := cmp.Or(os.Getenv("CC"), "cc")
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	program := filepath.Join(t.TempDir(), "ring")
	build := exec.Command(cc, "-Wall", "-Wextra", "-Werror", "-fsanitize=thread", "-O1", "-g", "-I.", "ring.c",
		"error.c", "testdata/ring_test.c", "-pthread", "-o", program)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	run := exec.Command(program)
	if exec.Command("setarch", "-R", "true").Run() == nil {
		run = exec.Command("setarch", "-R", program) // the sanitizer of older compilers needs some addresses
	}
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

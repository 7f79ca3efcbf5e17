//go:build openblas

package blas

import (
	"runtime"
	"strings"
	"testing"

	"github.com/ebitengine/purego"
)

func TestWhereThereIsNoOpenBLASTheErrorSaysWhatToInstall(t *testing.T) {
	err := load("libnone.so.1", "libnone.so")
	if err == nil || !strings.Contains(err.Error(), "install libopenblas0") || !strings.Contains(err.Error(), "libnone.so") {
		t.Errorf("got %v", err)
	}
	if err := load("libc.so.6"); runtime.GOOS == "linux" && (err == nil || !strings.Contains(err.Error(), "sgemm_")) {
		t.Errorf("a library without sgemm_: got %v", err)
	}
}

func init() {
	libraries = append(libraries, library{"openblas", func(p Product) { run(&onOurs, p) }}, library{"openblas-threads", func(p Product) {
		threads := uintptr(runtime.GOMAXPROCS(0))
		purego.SyscallN(openblas.setThreads, threads)
		defer purego.SyscallN(openblas.setThreads, 1)
		whole := Gemm{product: p, rows: 1, columns: 1}
		whole.Multiply(0)
	}})
}

var onOurs Gemm

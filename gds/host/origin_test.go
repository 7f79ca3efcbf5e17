package host_test

import (
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
)

func leak(t *testing.T, d gds.Device) gds.Buffer {
	b, err := d.Alloc(5000)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestErrorsSayWhereBuffersComeFrom(t *testing.T) {
	d := newDevice(t, host.Options{})
	b := leak(t, d)
	err := d.Close()
	if err == nil || !strings.Contains(err.Error(), "5000 bytes allocated at origin_test.go:") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("closed with a buffer: %v", err)
	}
	if err := b.Free(); err != nil {
		t.Error(err)
	}
	if err := b.Free(); err == nil || !strings.Contains(err.Error(), "first freed at origin_test.go:") {
		t.Errorf("freed twice: %v", err)
	}
}

package session

import (
	"testing"

	"github.com/hopfeed/hopfeed/gds/devices"
)

func TestAGPUThatIsFullHasALimit(t *testing.T) {
	full := deviceOf(devices.Kind{Name: "cuda", Count: 1}, 0, devices.Options{}, "a test")
	if full.FreeBytes != 1 {
		t.Errorf("%d bytes are free (0 would be no limit)", full.FreeBytes)
	}
	if free := deviceOf(devices.Kind{Name: "cuda", Count: 1, FreeBytes: 77}, 0, devices.Options{},
		"a test").FreeBytes; free != 77 {
		t.Errorf("%d bytes are free, not 77", free)
	}
}

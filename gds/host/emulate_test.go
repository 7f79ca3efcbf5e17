package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
)

func TestEmulationIsReadAndWritten(t *testing.T) {
	for text, want := range map[string]host.Emulation{
		"gpu=1,mem=2GiB,link=12GiB/s": {GPUs: 1, Memory: 2 << 30, Link: 12 << 30},
		"mem=48GB":                    {GPUs: 1, Memory: 48e9},
		"link=500MB/s,gpu=4,mem=4096": {GPUs: 4, Memory: 4096, Link: 500e6},
		"mem=1GiB,workers=12,cpu=54ms,gather=9ms,dma=14ms,sampling=8.8ms,compute=11.6ms": {GPUs: 1, Memory: 1 << 30,
			Stages: host.Stages{
				Workers: 12, CPU: 54 * time.Millisecond, Gather: 9 * time.Millisecond, DMA: 14 * time.Millisecond,
				Sampling: 8800 * time.Microsecond, Compute: 11600 * time.Microsecond,
			}},
		"gpu=2,mem=4096,compute=2ms,straggle=0.5": {GPUs: 2, Memory: 4096,
			Stages: host.Stages{Compute: 2 * time.Millisecond, Straggle: 0.5}},
		"gpu=64,mem=1.5GiB,link=1kB/s": {GPUs: 64, Memory: 3 << 29, Link: 1000},
	} {
		var got, again host.Emulation
		if err := got.Set(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if err := again.Set(got.String()); err != nil || again != got {
			t.Errorf("%q is written %q, and read %+v, %v", text, got.String(), again, err)
		}
		last := newDevice(t, got.Device(want.GPUs-1, 1))
		if info := last.Info(); info.Unified || info.MemoryBytes != int64(want.Memory) ||
			!strings.HasPrefix(info.Name, "emulated gpu ") {
			t.Errorf("%q makes %+v", text, info)
		}
		if err := last.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestASlowLinkDoesNotHoldUpWhoIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		d := newDevice(t, host.Options{Discrete: true, LinkBytesPerSecond: 1 << 10, Stop: ctx.Done()})
		b, err := d.Alloc(1 << 20) // a quarter of an hour
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		x := gds.NewTensor(b, 1, 1<<18, gds.Float32)
		pinned, err := d.AllocPinned(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		s.Copy(x, gds.NewTensor(pinned, 1, 1<<18, gds.Float32))
		s.Copy(gds.NewTensor(pinned, 1, 1<<18, gds.Float32), x)
		start := time.Now()
		time.AfterFunc(time.Second, interrupt)
		if err := errors.Join(s.Close(), b.Free(), pinned.Free(), d.Close()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != time.Second { // of the bubble's clock
			t.Errorf("closing took %v, and the interrupt came after a second", took)
		}
	})
}

func TestEmulationThatCannotBeIsRefused(t *testing.T) {
	for text, says := range map[string]string{
		"":                       "unknown setting",
		"gpu=1":                  "nothing of memory",
		"gpu=0,mem=1GiB":         "number of devices",
		"gpu=65,mem=1GiB":        "number of devices",
		"gpu=two,mem=1GiB":       `"gpu=two"`,
		"gpu=1,mem=lots":         `"mem=lots"`,
		"gpu=1,mem=1GiB,link=12": `"link=12"`,
		"mem=1GiB,workers=0":     `"0" is no number of workers`,
		"mem=1GiB,cpu=-2ms":      `"-2ms" is not the time of a stage`,
		"mem=1GiB,compute=2":     `"2" is not the time of a stage`,
		"mem=1GiB,dma=2h":        `"2h" is not the time of a stage`,
		"mem=1GiB,gather=2ms":    "is part of cpu=0s, the time of a worker",
		"mem=1GiB,straggle=-1":   `"-1" is no part of a time`,
		"mem=1GiB,straggle=NaN":  `"NaN" is no part of a time`,
		"gpu=1,mem=1GiB,cores=3": `"cores=3": unknown setting (want gpu, mem, link, workers,`,
		"gpu=1;mem=1GiB":         `"gpu=1;mem=1GiB"`,
	} {
		e := host.Emulation{GPUs: 7}
		if err := e.Set(text); err == nil || !strings.Contains(err.Error(), says) || e.GPUs != 7 {
			t.Errorf("%q: %v, leaves %+v", text, err, e)
		}
	}
}

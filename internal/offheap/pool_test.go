package offheap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestLoadersOfAProcessHoldTheSameMemory(t *testing.T) {
	var p Pool
	before := InUse()
	fills := 0
	fill := func(b *Buffer) error {
		fills++
		b.Bytes()[5] = 7
		return nil
	}
	get := func() *Buffer {
		b, err := p.Get(t.Context(), "x", 1<<20, Holders{}, fill)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a, b := get(), get()
	if &a.Bytes()[0] != &b.Bytes()[0] || b.Bytes()[5] != 7 || fills != 1 || InUse()-before != 1<<20 {
		t.Errorf("%d fills, %d bytes", fills, InUse()-before)
	}
	for _, x := range []*Buffer{a, b} {
		if !p.Has("x") || x.Free() != nil || !errors.Is(x.Free(), ErrFreed) {
			t.Error("not freed once")
		}
	}
	if p.Has("x") || InUse() != before {
		t.Errorf("%d bytes are left", InUse()-before)
	}
	if b := get(); fills != 2 {
		t.Error("not filled again")
	} else if err := b.Free(); err != nil {
		t.Error(err)
	}
}

func TestWhoWaitsForMemoryThatFailsFillsItAgain(t *testing.T) {
	for _, by := range []Holders{{Processes: 1}, {Processes: 2}} {
		var p Pool
		failed, began, fail := errors.New("failed"), make(chan bool), make(chan bool)
		var all sync.WaitGroup
		name := fmt.Sprint(t.Name(), os.Getpid())
		all.Go(func() {
			_, err := p.Get(t.Context(), name, 1<<20, by, func(*Buffer) error {
				began <- true
				<-fail
				return failed
			})
			if !errors.Is(err, failed) {
				t.Error(err)
			}
		})
		<-began
		stopped, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := p.Get(stopped, name, 1<<20, by, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.AfterFunc(10*time.Millisecond, func() { close(fail) }) // when the next has begun to wait, mostly
		b, err := p.Get(t.Context(), name, 1<<20, by, func(b *Buffer) error {
			b.Bytes()[0] = 1
			return nil
		})
		if err != nil || b.Bytes()[0] != 1 || b.Free() != nil {
			t.Error(err)
		}
		all.Wait()
	}
}

const shared = 64 << 20

// TestProcess is not a test, but one of the processes of the next test: it holds memory until its input ends.
func TestProcess(t *testing.T) {
	name := os.Getenv("OFFHEAP_NAME")
	if name == "" {
		t.Skip("a process of another test")
	}
	var p Pool
	filled := false
	b, err := p.Get(t.Context(), name, shared, Holders{Processes: 3}, func(b *Buffer) error {
		filled = true
		for i := range b.Bytes() {
			b.Bytes()[i] = byte(i >> 12)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range b.Bytes() {
		if x != byte(i>>12) {
			t.Fatalf("byte %d is %d", i, x)
		}
	}
	fmt.Printf("\nfilled %v, %d bytes\n", filled, proportionalBytes(t))
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	if os.Getenv("OFFHEAP_CRASH") != "" {
		os.Exit(1)
	}
	if err := b.Free(); err != nil {
		t.Error(err)
	}
}

// proportionalBytes is the memory of this process, shared pages divided by who has them.
func proportionalBytes(t *testing.T) (kib int64) {
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Skip("no smaps: ", err)
	}
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "Pss: %d kB", &kib)
	}
	return kib << 10
}

// Three processes hold one copy, which outlives the one that has filled it, and is gone with the last.
func TestProcessesOfAMachineHoldTheSameMemory(t *testing.T) {
	if _, err := os.Stat("/proc/self/smaps_rollup"); err != nil {
		t.Skip("no smaps: ", err)
	}
	for _, crash := range []string{"", "1"} {
		name := fmt.Sprint(t.Name(), os.Getpid(), crash)
		start := func() (line string, end func()) {
			c := exec.Command(os.Args[0], "-test.run", "^TestProcess$")
			c.Env = append(os.Environ(), "OFFHEAP_NAME="+name, "OFFHEAP_CRASH="+crash)
			in, _ := c.StdinPipe()
			out, _ := c.StdoutPipe()
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for lines.Scan() && !strings.HasPrefix(lines.Text(), "filled") {
			}
			line = lines.Text()
			return line, func() {
				_ = in.Close()
				for lines.Scan() {
				}
				if err := c.Wait(); err != nil && crash == "" {
					t.Error(err)
				}
			}
		}
		expect := func(line string, filled bool, most int64) {
			t.Helper()
			var got bool
			var bytes int64
			if n, err := fmt.Sscanf(line, "filled %t, %d bytes", &got, &bytes); n != 2 || got != filled || bytes > most {
				t.Errorf("%q (%v), want filled %v, at most %d bytes", line, err, filled, most)
			}
		}
		first, endFirst := start()
		second, endSecond := start()
		expect(first, true, 2*shared)
		expect(second, false, shared/2+24<<20)
		endFirst()
		third, endThird := start()
		expect(third, false, shared/2+24<<20)
		endSecond()
		endThird()
		fourth, endFourth := start()
		expect(fourth, true, 2*shared)
		endFourth()
	}
}

package progress

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// step is one event in the life of a task, at a time.
type step struct {
	at  time.Duration
	add int64 // 0: done
}

func TestALogGetsLinesNowAndThen(t *testing.T) {
	for _, c := range []struct {
		name  string
		total int64
		unit  Unit
		steps []step
		want  []string
	}{
		{"a short task leaves nothing", 100, Items,
			[]step{{time.Second, 50}, {2 * time.Second, 50}, {2 * time.Second, 0}}, nil},
		{"a tenth further after three seconds is a line", 100, Items,
			[]step{{3 * time.Second, 10}, {4 * time.Second, 20}, {10 * time.Second, 70}, {10 * time.Second, 0}},
			[]string{"work: 10 %, 10, 3/s, 27s left", "work: 100 %, 100, 10/s", "work: done, 100 in 10s"}},
		{"less than a tenth is a line after half a minute", 1000, Items,
			[]step{{29 * time.Second, 1}, {30 * time.Second, 29}, {31 * time.Second, 0}},
			[]string{"work: 3 %, 30, 1/s, 16m10s left", "work: stopped, 30 in 31s"}},
		{"bytes have units", 4 << 30, Bytes,
			[]step{{4 * time.Second, 2 << 30}, {8 * time.Second, 0}},
			[]string{"work: 50 %, 2 GiB, 512 MiB/s, 4s left", "work: stopped, 2 GiB in 8s"}},
		{"without a total there is neither share nor time left", 0, Items,
			[]step{{30 * time.Second, 60}, {31 * time.Second, 0}},
			[]string{"work: 60, 2/s", "work: done, 60 in 31s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			start := time.Unix(0, 0)
			now := start
			task := (&lines{w: &out, now: func() time.Time { return now }}).Start("work", c.total, c.unit)
			for _, s := range c.steps {
				now = start.Add(s.at)
				if s.add > 0 {
					task.Add(s.add)
				} else {
					task.Done()
				}
			}
			want := strings.Join(c.want, "\n")
			if want != "" {
				want += "\n"
			}
			if got := out.String(); got != want {
				t.Errorf("got:\n%swant:\n%s", got, want)
			}
		})
	}
}

// lockedBuffer is a terminal that bars draw on from their own goroutine.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func TestBarsEndWithTheirTasks(t *testing.T) {
	var out lockedBuffer
	r := New(&out, true)
	for range 2 { // the second round needs a new container
		var wg sync.WaitGroup
		for _, total := range []int64{0, 10, 1000} { // unknown, finished, given up
			task := r.Start("work", total, Bytes)
			wg.Go(func() {
				for range 10 {
					task.Add(1)
				}
				task.Done()
			})
		}
		wg.Wait()
		out.mu.Lock()
		after := out.Len()
		out.WriteString("next line\n")
		out.mu.Unlock()
		if after == 0 {
			t.Error("no bar was drawn")
		}
	}
	if !strings.Contains(out.String(), "work") {
		t.Errorf("no bar bears its label: %q", out.String())
	}
}

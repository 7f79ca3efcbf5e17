package progress

import (
	"io"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bars is the Reporter for terminals. Bars that are up at one time share a container, which is closed with the last of
// them: between tasks the terminal belongs to whoever prints. A bar vanishes when its task is done.
type bars struct {
	w io.Writer

	mu        sync.Mutex
	container *mpb.Progress
	up        int
}

type barTask struct {
	*bars
	bar *mpb.Bar
}

func (b *bars) Start(label string, total int64, unit Unit) Task {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.up == 0 {
		b.container = mpb.New(mpb.WithOutput(b.w), mpb.WithAutoRefresh())
	}
	b.up++
	counters, speed := decor.CountersNoUnit("%d / %d"), decor.AverageSpeed(0, "%.0f/s")
	if unit == Bytes {
		counters, speed = decor.CountersKibiByte("% .1f / % .1f"), decor.AverageSpeed(decor.SizeB1024(0), "% .1f")
	}
	space := decor.Name("  ")
	bar := b.container.AddBar(total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(label, decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), space, counters, space, speed, space,
			decor.AverageETA(decor.ET_STYLE_GO), decor.Name(" left")))
	return &barTask{b, bar}
}

func (t *barTask) Add(n int64) { t.bar.IncrInt64(n) }

func (t *barTask) Done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bar.Abort(true) // without effect on a bar that is complete
	t.bar.Wait()
	if t.up--; t.up == 0 {
		t.container.Wait()
	}
}

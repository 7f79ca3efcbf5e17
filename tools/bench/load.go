// Package bench measures how fast this machine propagates, loads and trains: Propagate, Load
// and Ablate. Programs that measure others beside Hopfeed are in the folder peers.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
)

// LoadShuffles lists what can be reshuffled: rows (SGD-RR) or chunks (SGD-CR).
func LoadShuffles() []string { return []string{placement.RR, placement.CR} }

// variant is a way to load. Each adds one optimisation to the one before it (preprop-gnn
// sections 4.1 and 4.2, Figures 6 and 9).
type variant struct {
	name       string
	shuffle    string
	bySpan     bool // one operation for every run of rows, not one for the batch
	oneBuffer  bool // loading waits for compute
	mapped     bool // the device gathers rows of host memory by itself
	placements []loader.Placement
}

var (
	inMemory = []loader.Placement{loader.Device, loader.Host}
	variants = []variant{
		{"baseline", placement.RR, true, true, false, inMemory},
		{"fused", placement.RR, false, true, false, inMemory},
		{"double-buffer", placement.RR, false, false, false, inMemory},
		{"mapped", placement.RR, false, false, true, []loader.Placement{loader.Host}}, // on devices that can
		{"chunk", placement.CR, false, false, false, loader.Placements()},
	}
)

// LoadVariants lists the names of the ways to load that can be measured.
func LoadVariants() []string { return names(variants) }

func names(of []variant) (names []string) {
	for _, v := range of {
		names = append(names, v.name)
	}
	return names
}

// Options are what Load and Ablate have in common. Both read the training rows of Store.
type Options struct {
	Device     gds.Device
	Store      *format.Dir
	Placements []loader.Placement
	BatchRows  int
	ChunkRows  int // rows that are reshuffled together; 0: a chunk of the store
	Rounds     int // each measures everything once
	Threads    int
	Seed       uint64
	Progress   progress.Reporter
}

// Way is a way to bring rows to the device.
type Way struct {
	Placement loader.Placement `json:"placement"`
	Variant   string           `json:"variant"`
	Shuffle   string           `json:"shuffle"`
}

func (v variant) way(p loader.Placement) Way { return Way{p, v.name, v.shuffle} }

// open makes a loader of this variant, and the set of the training rows. more has the matrices, the placement, the
// number of buffers and whether checksums are compared.
func (v variant) open(ctx context.Context, o Options, more loader.Options) (*loader.Loader, *loader.Set, error) {
	more.Device, more.Store, more.BatchRows, more.Threads = o.Device, o.Store, o.BatchRows, o.Threads
	more.Regions, more.BySpan, more.Mapped = []string{format.RegionTrain}, v.bySpan, v.mapped
	if v.oneBuffer {
		more.Buffers = 1
	}
	plan := chunk.Plan{BatchRows: o.BatchRows, Order: chunk.Shuffled, Seed: o.Seed}
	if v.shuffle == placement.CR {
		plan.ChunkRows = cmp.Or(o.ChunkRows, o.Store.Layout().ChunkRows)
	}
	l, err := loader.Open(ctx, more)
	if err != nil {
		return nil, nil, err
	}
	set, err := l.Set(loader.Rows{Region: format.RegionTrain}, plan)
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l, set, nil
}

// LoadOptions are the options of Load.
type LoadOptions struct {
	Options
	Matrices    []format.MatrixID
	Variants    []string
	Shuffles    []string
	Buffers     int           // batches on the device, in variants with more than one; 0: 2
	Compute     time.Duration // time for which a batch is kept, as if a device computed on it
	Unchecked   bool          // leave checksums uncompared
	MemoryBytes int64         // that Memcpy may use; 0: no limit
}

// copied is the number of bytes that Memcpy copies: an epoch's, but at most mostCopied, and source,
// target and page numbers must fit MemoryBytes.
func (o *LoadOptions) copied(rows int64) int64 {
	bytes := min(rows*o.rowBytes(), mostCopied)
	if o.MemoryBytes > 0 {
		bytes = min(bytes, max(1, o.MemoryBytes/2-o.MemoryBytes/1024))
	}
	return bytes
}

func (o *LoadOptions) rowBytes() int64 {
	layout := o.Store.Layout()
	return int64(layout.Columns(o.Matrices) * layout.DType.Size())
}

// LoadResult holds the figures of the median round of one variant from one placement.
type LoadResult struct {
	Way
	// BytesPerSecond counts the stored bytes of the rows.
	BytesPerSecond   float64   `json:"bytes_per_second"`
	RowsPerSecond    float64   `json:"rows_per_second"`
	CoreSecondsPerGB float64   `json:"core_seconds_per_gb"` // processor time of 10^9 bytes
	EpochSeconds     float64   `json:"epoch_seconds"`
	RoundSeconds     []float64 `json:"round_seconds"` // an epoch in each round, ascending
	// WithinNoise reports that RoundSeconds overlaps with the fastest variant's.
	WithinNoise    bool    `json:"within_noise"`
	ComputeSeconds float64 `json:"compute_seconds"`   // time for which batches were kept
	WaitSeconds    float64 `json:"load_wait_seconds"` // time that the loop waited for batches
	// StageSeconds is the work of each stage; "wait": for storage and devices.
	StageSeconds map[string]float64 `json:"stage_seconds,omitempty"`
	Reads        []loader.ReadStats `json:"reads,omitempty"`
	Memory       gds.Usage          `json:"memory"`
	PeakRSSBytes int64              `json:"peak_rss_bytes"` // of the process so far
}

func newLoadResult(w Way, m meter, bytes, rows int64) LoadResult {
	seconds, cores := m.seconds()
	return LoadResult{
		Way: w, EpochSeconds: seconds, BytesPerSecond: float64(bytes) / seconds, RowsPerSecond: float64(rows) / seconds,
		CoreSecondsPerGB: cores / float64(bytes) * 1e9, PeakRSSBytes: machine.PeakRSS(),
	}
}

// Memcpy is the variant of the result for copying memory to memory, which no loader can exceed.
const Memcpy = "memcpy"

// Load measures an epoch of each variant from each placement, once a round. The first result is Memcpy, of as many
// bytes as an epoch has, at most 1 GiB, unless storage is the only placement.
func Load(ctx context.Context, o LoadOptions) ([]LoadResult, error) {
	region, _ := o.Store.Region(format.RegionTrain)
	var measure []func(round int) (LoadResult, error)
	info := o.Device.Info()
	for _, p := range o.Placements {
		for _, v := range variants {
			if !slices.Contains(o.Variants, v.name) || !slices.Contains(o.Shuffles, v.shuffle) ||
				!slices.Contains(v.placements, p) || v.mapped && (info.Unified || !info.MapsPinned) {
				continue
			}
			measure = append(measure, func(round int) (LoadResult, error) {
				r, err := o.epoch(ctx, v, p, round)
				if err != nil {
					err = fmt.Errorf("%s from %s: %w", v.name, p, err)
				}
				return r, err
			})
		}
	}
	if len(measure) == 0 {
		return nil, fmt.Errorf("%w: there is no way of %v to load from %v that reshuffles %v",
			placement.ErrContradiction, o.Variants, o.Placements, o.Shuffles)
	}
	if !slices.Equal(o.Placements, []loader.Placement{loader.Storage}) {
		measure = slices.Insert(measure, 0,
			func(int) (LoadResult, error) { return memcpy(ctx, o.copied(region.Rows), o.Threads) })
	}
	rounds := make([][]LoadResult, len(measure))
	err := interleave(o.Progress, "load", o.Rounds, len(measure), func(i, round int) error {
		r, err := measure[i](round)
		rounds[i] = append(rounds[i], r)
		return err
	})
	if err != nil {
		return nil, err
	}
	var medians []LoadResult
	for _, r := range rounds {
		slices.SortFunc(r, func(a, b LoadResult) int { return cmp.Compare(a.EpochSeconds, b.EpochSeconds) })
		median := r[len(r)/2]
		for _, round := range r {
			median.RoundSeconds = append(median.RoundSeconds, round.EpochSeconds)
		}
		medians = append(medians, median)
	}
	markNoise(medians)
	return medians, nil
}

// markNoise sets WithinNoise where the times of a result overlap with the fastest result's. Memcpy does not load, and
// is left out.
func markNoise(results []LoadResult) {
	fastest := -1
	for i, r := range results {
		if r.Variant != Memcpy && (fastest < 0 || r.EpochSeconds < results[fastest].EpochSeconds) {
			fastest = i
		}
	}
	for i, r := range results {
		results[i].WithinNoise = r.Variant != Memcpy && i != fastest &&
			withinNoise(r.RoundSeconds, results[fastest].RoundSeconds)
	}
}

// epoch opens a loader, loads some batches, so that all buffers have been touched, and measures an epoch.
func (o *LoadOptions) epoch(ctx context.Context, v variant, p loader.Placement, round int) (r LoadResult, err error) {
	l, set, err := v.open(ctx, o.Options, loader.Options{Matrices: o.Matrices, Placement: p, Buffers: o.Buffers,
		Unchecked: o.Unchecked})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	stream, err := o.Device.NewStream()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()

	var computed time.Duration
	run := func(epoch, batches int) error {
		computed = 0
		for b, err := range set.Epoch(ctx, stream, epoch) {
			if err == nil {
				err = stream.Synchronize(ctx)
			}
			if err != nil {
				return err
			}
			if o.Compute > 0 {
				begun := time.Now()
				time.Sleep(o.Compute)
				computed += time.Since(begun)
			}
			if b.Index+1 == batches {
				break
			}
		}
		return nil
	}
	if err := run(2*round, o.Buffers+2); err != nil {
		return r, err
	}
	before, meter := l.Stats(), start()
	if err := run(2*round+1, set.Batches()); err != nil {
		return r, err
	}
	r = newLoadResult(v.way(p), meter, set.Rows()*o.rowBytes(), set.Rows())
	stats := l.Stats()
	r.ComputeSeconds = computed.Seconds()
	r.WaitSeconds = stats.LoopWaitSeconds - before.LoopWaitSeconds
	r.StageSeconds = stageSeconds(before, stats)
	r.Reads, r.Memory = stats.Reads, stats.Memory
	return r, nil
}

// stageSeconds is the time that the stages of a loader worked and waited between two readings of its statistics.
func stageSeconds(before, after loader.Stats) map[string]float64 {
	seconds := make(map[string]float64)
	for i, s := range after.Stages {
		seconds[s.Name] = s.WorkSeconds - before.Stages[i].WorkSeconds
		seconds["wait"] += s.WaitSeconds - before.Stages[i].WaitSeconds
	}
	return seconds
}

// mostCopied is more than any cache holds.
const mostCopied = 1 << 30

// memcpy measures copying by all threads, page by page, past the caches, by the kernel that loaders use.
func memcpy(ctx context.Context, bytes int64, threads int) (r LoadResult, err error) {
	const page = 4096
	pages := make([]uint32, (bytes-1)/page+1)
	for i := range pages {
		pages[i] = uint32(i)
	}
	bytes = int64(len(pages)) * page
	var memory [2][]byte
	for i := range memory {
		b, err := offheap.Alloc(bytes)
		if err != nil {
			return r, err
		}
		defer b.Free()
		memory[i] = b.Bytes()
		clear(memory[i]) // touches every page
	}
	meter, share := start(), int64(len(pages)-1)/int64(threads)+1
	err = parallel.For(ctx, threads, int64(len(pages)), share, func(lo, hi int64) error {
		kernel.GatherRows(memory[1][lo*page:], page, memory[0], page, page, pages[lo:hi], true)
		return nil
	})
	return newLoadResult(Way{Variant: Memcpy}, meter, bytes, 0), err
}

// LoadTable is results of Load as text.
type LoadTable []LoadResult

// Text prints a line for each result.
func (l LoadTable) Text(w io.Writer) {
	fmt.Fprintln(w, "variant\tfrom\treshuffled\tGB/s\trows/s\tcore-s/GB\tepoch\trounds\twaited")
	for _, r := range l {
		from, shuffle, rows := string(r.Placement), r.Shuffle, fmt.Sprintf("%.3g", r.RowsPerSecond)
		if r.Variant == Memcpy { // which knows no rows
			from, shuffle, rows = "-", "-", "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%s\t%.3f\t%.3g s%s\t%.3g to %.3g s\t%.3g s\n", r.Variant, from, shuffle,
			r.BytesPerSecond/1e9, rows, r.CoreSecondsPerGB, r.EpochSeconds, noiseMark(r.WithinNoise),
			r.RoundSeconds[0], r.RoundSeconds[len(r.RoundSeconds)-1], r.WaitSeconds)
	}
	if slices.ContainsFunc(l, func(r LoadResult) bool { return r.WithinNoise }) {
		fmt.Fprintln(w, "\n~ its rounds overlap the fastest's: the difference may be noise")
	}
}

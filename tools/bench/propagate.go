package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/kernel"
	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// PropagateOptions are the options of Propagate: the size of a random graph, and what to measure.
type PropagateOptions struct {
	Nodes, Edges int64
	Features     int
	DTypes       []format.DType
	Threads      []int
	Rounds       int // each measures everything once
	Seed         uint64
	Progress     progress.Reporter
}

// Bytes is the memory that Propagate allocates.
func (o PropagateOptions) Bytes() int64 {
	bytes := graphBytes(o.Nodes, o.Edges) + 4*gathered(o.Nodes)
	for _, t := range o.DTypes {
		bytes += product.BenchBytes(o.Nodes, o.Edges, o.Features, t)
	}
	return bytes
}

// PropagateResult holds the figures of a hop with one element type and number of threads. Rates
// follow from median times.
type PropagateResult struct {
	DType    string `json:"dtype"`
	Threads  int    `json:"threads"`
	Kernel   string `json:"kernel"` // the instruction set
	Nodes    int64  `json:"nodes"`
	Edges    int64  `json:"edges"`
	Features int    `json:"features"`
	// RowsGathered counts the rows that a hop reads: one for each edge and added self-loop.
	RowsGathered   int64     `json:"edges_processed"`
	Seconds        float64   `json:"seconds"`
	FastestSeconds float64   `json:"fastest_seconds"`
	RoundSeconds   []float64 `json:"round_seconds"`
	CoreSeconds    float64   `json:"core_seconds"` // least processor time of a hop
	// GatheredBytesPerSecond is the rate at which a hop reads rows.
	GatheredBytesPerSecond float64 `json:"gathered_bytes_per_second"`
	ReadBytesPerSecond     float64 `json:"read_bytes_per_second"` // of memory, from end to end
	// RandomBytesPerSecond is the rate of summing random rows: the limit of a hop whose matrix fits no cache.
	// RandomCoreSeconds is the least processor time for as many rows as a hop reads.
	RandomBytesPerSecond float64 `json:"random_bytes_per_second"`
	RandomCoreSeconds    float64 `json:"random_core_seconds"`
}

// GoBench formats the rounds as lines of a Go benchmark, for benchstat.
func (r PropagateResult) GoBench() []string {
	var lines []string
	for _, seconds := range r.RoundSeconds {
		lines = append(lines, fmt.Sprintf("BenchmarkHop/dtype=%s/threads=%d-%d\t1\t%.0f ns/op\t%.2f MB/s",
			r.DType, r.Threads, r.Threads, seconds*1e9, r.GatheredBytesPerSecond*r.Seconds/seconds/1e6))
	}
	return lines
}

// Propagate measures hops of the operator sym over a random graph in memory, whose nodes have
// very different numbers of out-edges, and the speed of the memory, once a round.
func Propagate(ctx context.Context, o PropagateOptions) (_ []PropagateResult, err error) {
	most := slices.Max(o.Threads)
	graph, free, err := skewedGraph(ctx, o.Nodes, o.Edges, o.Seed, most)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, free()) }()
	random := make([]uint32, gathered(o.Nodes))
	for i := range random {
		random[i] = uint32(rng.Hash(rng.Derive(o.Seed, "random"), uint64(i)) % uint64(o.Nodes))
	}
	var hops []*product.Bench
	for _, t := range o.DTypes {
		hop, err := product.NewBench(ctx, graph, o.Features, t, most)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, hop.Close()) }()
		if _, err := hop.Hop(ctx, most); err != nil { // touches every page that hops write
			return nil, err
		}
		hops = append(hops, hop)
	}
	results := make([]PropagateResult, len(hops)*len(o.Threads))
	measured := make([]struct{ cores, reads, gathers, gatherCores []float64 }, len(results))
	err = interleave(o.Progress, "propagate", o.Rounds, len(results), func(i, _ int) (err error) {
		r, m, hop := &results[i], &measured[i], hops[i/len(o.Threads)]
		r.Threads = o.Threads[i%len(o.Threads)]
		begun := start()
		r.RowsGathered, err = hop.Hop(ctx, r.Threads)
		seconds, cores := begun.seconds()
		r.RoundSeconds, m.cores = append(r.RoundSeconds, seconds), append(m.cores, cores)
		if err != nil {
			return err
		}
		begun = start()
		err = read(ctx, hop.Source(), r.Threads)
		seconds, _ = begun.seconds()
		if m.reads = append(m.reads, seconds); err != nil {
			return err
		}
		begun = start()
		err = hop.Gather(ctx, random, r.Threads)
		seconds, cores = begun.seconds()
		m.gathers, m.gatherCores = append(m.gathers, seconds), append(m.gatherCores, cores)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range results {
		r, m, hop := &results[i], &measured[i], hops[i/len(o.Threads)]
		r.DType, r.Kernel = o.DTypes[i/len(o.Threads)].String(), kernel.Name()
		r.Nodes, r.Edges, r.Features = o.Nodes, o.Edges, o.Features
		r.Seconds, r.FastestSeconds = median(r.RoundSeconds), slices.Min(r.RoundSeconds)
		r.CoreSeconds = slices.Min(m.cores)
		r.GatheredBytesPerSecond = float64(r.RowsGathered*hop.RowBytes()) / r.Seconds
		r.ReadBytesPerSecond = float64(len(hop.Source())) / median(m.reads)
		r.RandomBytesPerSecond = float64(int64(len(random))*hop.RowBytes()) / median(m.gathers)
		r.RandomCoreSeconds = slices.Min(m.gatherCores) * float64(r.RowsGathered) / float64(len(random))
	}
	return results, nil
}

// gathered is the number of random rows that are summed: enough to hide the start of threads.
func gathered(nodes int64) int64 { return min(nodes, 1<<25) }

func graphBytes(nodes, edges int64) int64 { return 8*(nodes+1) + 4*edges }

// skewedGraph makes a random graph off the Go heap; the function that it returns frees it. Edge e ends at node hash(e)
// mod n. The k-th edge in the order of their ends starts at node floor(n*r^3) * 2654435761 mod n, with r uniform in
// [0,1) by another hash: some nodes have far more out-edges than others, and these nodes are scattered over all node
// ids. peers/hop.py makes the same graph.
func skewedGraph(ctx context.Context, nodes, edges int64, seed uint64, threads int) (*format.CSC, func() error, error) {
	const scatter = 2654435761 // a prime
	buf, err := offheap.Alloc(graphBytes(nodes, edges))
	if err != nil {
		return nil, nil, err
	}
	offsets := dtype.Int64s(buf.Bytes()[:8*(nodes+1)])
	neighbors := dtype.Uint32s(buf.Bytes()[8*(nodes+1):])
	ends, starts := rng.Derive(seed, "ends"), rng.Derive(seed, "starts")
	for e := range uint64(edges) {
		offsets[1+rng.Hash(ends, e)%uint64(nodes)]++
	}
	for v := range nodes {
		offsets[v+1] += offsets[v]
	}
	err = parallel.For(ctx, threads, nodes, 1024, func(lo, hi int64) error {
		for v := lo; v < hi; v++ {
			list := neighbors[offsets[v]:offsets[v+1]]
			for i := range list {
				r := rng.Float64(rng.Hash(starts, uint64(offsets[v])+uint64(i)))
				list[i] = uint32(uint64(float64(nodes)*r*r*r) * scatter % uint64(nodes))
			}
			slices.Sort(list)
		}
		return nil
	})
	if err != nil {
		return nil, nil, errors.Join(err, buf.Free())
	}
	return &format.CSC{Offsets: offsets, Neighbors: neighbors}, buf.Free, nil
}

// read reads memory from end to end, each thread a part of it.
func read(ctx context.Context, memory []byte, threads int) error {
	words := dtype.As[uint64](memory[:len(memory)&^7])
	share := (int64(len(words)) + int64(threads) - 1) / int64(threads)
	sums := make([]uint64, threads)
	return parallel.For(ctx, threads, int64(len(words)), share, func(lo, hi int64) error {
		part, sum := words[lo:hi], uint64(0)
		for ; len(part) >= 8; part = part[8:] {
			sum += part[0] ^ part[1] ^ part[2] ^ part[3] ^ part[4] ^ part[5] ^ part[6] ^ part[7]
		}
		sums[lo/max(share, 1)] = sum // without a use, the compiler could drop the reads
		return nil
	})
}

// PropagateTable is results of Propagate as text.
type PropagateTable []PropagateResult

// Text prints a line for each result.
func (l PropagateTable) Text(w io.Writer) {
	fmt.Fprintln(w, "dtype\tthreads\thop\tgathers\tmemory reads\tratio\trandom rows")
	for _, r := range l {
		fmt.Fprintf(w, "%s\t%d\t%.3f s\t%.1f GB/s\t%.1f GB/s\t%.2f\t%.1f GB/s\n", r.DType, r.Threads, r.Seconds,
			r.GatheredBytesPerSecond/1e9, r.ReadBytesPerSecond/1e9, r.GatheredBytesPerSecond/r.ReadBytesPerSecond,
			r.RandomBytesPerSecond/1e9)
	}
}

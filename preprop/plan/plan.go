// Package plan computes what a propagation takes: memory, disk and time, by phase and stage, and from that the
// quickest plan within a budget. It is pure: it neither reads files nor allocates what it plans. Who allocates does
// so by the functions of this package (sizes.go), so that plans are true.
package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// Plan tells how a job does its work within its memory. It changes no result.
type Plan struct {
	Panels       int `json:"panels"`        // of columns
	PanelColumns int `json:"panel_columns"` // of the widest panel
	// InputFiles: the input is first cut into column files. Reading all of it for each panel would take longer.
	InputFiles bool `json:"strips"`
	// InputKept: the first panel stays in memory instead of being written and read back.
	InputKept        bool `json:"input_kept"`
	InputInMemory    bool `json:"input_in_memory"` // a panel of the input stays in memory for all operators
	TopologyInMemory bool `json:"topology_in_memory"`
	// FactorsByEdge: coefficients are listed by edge, and stay where the topology is. Else hops look them up by
	// source.
	FactorsByEdge bool `json:"factors_by_edge"`
	// HeldBytes is how much of the topologies and coefficients on disk also stays in memory.
	HeldBytes int64 `json:"held_bytes"`
	// CutBeside: the input is cut while the topologies are prepared.
	CutBeside   bool `json:"cut_beside"`
	ResultFiles bool `json:"pieces"` // results are written to column files and assembled at the end

	InputPasses     int     `json:"input_passes"`    // over all bytes of the input
	TopologyPasses  int     `json:"topology_passes"` // over the topology on disk
	ReadBytes       int64   `json:"planned_bytes_read"`
	WrittenBytes    int64   `json:"planned_bytes_written"`
	ScratchBytes    int64   `json:"planned_scratch_bytes"`    // most at a time, checkpoints included
	CheckpointBytes int64   `json:"planned_checkpoint_bytes"` // most at a time; 0: none are written
	MemoryBytes     int64   `json:"memory_needed_bytes"`
	StoreBytes      int64   `json:"planned_store_bytes"` // of matrices and files added to the store
	DiskBytes       int64   `json:"disk_needed_bytes"`   // most at a time, scratch files included
	Seconds         float64 `json:"predicted_seconds"`

	// Device is what computes products. Its SentBytes are for the widest panel.
	Device *DevicePlan `json:"device"`

	besideBytes int64 // of ReadBytes, read while products are computed
	cutBytes    int64 // of WrittenBytes, of the input's column files

	Work  *Work  `json:"-"`
	Rates *Rates `json:"-"` // that Seconds follows from
}

// RowsPerSecond is how many rows of a panel the processor adds a second.
func (p *Plan) RowsPerSecond() float64 {
	return 1 / p.Rates.gather(p.PanelColumns*p.Work.Stored.DType.Size())
}

// DropCheckpoints plans without checkpoints.
func (p *Plan) DropCheckpoints() {
	p.CheckpointBytes = 0
	p.Work.count(p)
}

// Work describes a job for planning.
type Work struct {
	Nodes, Edges  int64 // of a relation between two types: nodes of the larger one
	Sources       int64 // nodes that edges come from
	Destinations  int64 // and that they lead to: Nodes too, but in a relation between two types
	Weighted      bool
	Sequences     []*Sequence     // whose hops are to be made
	Inputs        []format.Layout // the matrices that they start from, each once
	Loads         []int           // sequences that start from each
	Columns       int             // that this process makes
	Stored        format.Layout   // of the store
	Rows          int64           // of the store
	RowTableBytes int64           // of the graph, on disk
	PickedBytes   int64           // in memory: the rows of the store and their nodes
	Held          int64           // bytes of memory that a repair, or labels, hold all the time
	InMemory      bool            // the topology has to be, as labels read it at random
	Matrices      int             // to be made
	MatrixBytes   int64           // of one of them in the store
	StoreBytes    int64           // of these matrices, and of what else goes to the store
	Threads       int
	ResultFiles   bool        // even with one panel, as other processes make the other columns
	cpu           *DevicePlan // why the processor computes products, if it does
	Device        *Device     // that computes products; nil: the processor
}

// Sequence is the hops from+1 to hops of one operator, each made from the one before.
type Sequence struct {
	Operator   operator.Operator
	From, Hops int

	series *operator.Series // of the operator, once it is known
}

// Series is Operator.Series, computed once.
func (c *Sequence) Series() operator.Series {
	if c.series == nil {
		series := c.Operator.Series()
		c.series = &series
	}
	return *c.series
}

// Products is how many products with the operator's matrix the sequence takes.
func (c *Sequence) Products() int { return (c.Hops - c.From) * c.Series().Products() }

func (c *Sequence) scalesSources() bool { return c.Operator.ScalesSources() }

func (c *Sequence) ID(hop int) format.MatrixID {
	return format.MatrixID{Operator: c.Operator.String(), Hop: hop}
}

// ProcessBytes is the memory of the program beside the plan: code, stacks, heap, buffers of files.
const ProcessBytes = 64 << 20

// NoticeableBytes is the size of a row table from which on the Go heap is kept small for it.
const NoticeableBytes = ProcessBytes / 16

// use is an Operator.Graph that is used, and the products of the sequence with it that has most.
type use struct {
	graph    string
	products int
}

// graphs returns what is used of each Operator.Graph, and the different Operator.Base that there are.
func (w *Work) graphs() (used []use, bases []operator.Operator) {
	for _, c := range w.Sequences {
		if i := slices.IndexFunc(used, func(u use) bool { return u.graph == c.Operator.Graph }); i < 0 {
			used = append(used, use{c.Operator.Graph, c.Products()})
		} else {
			used[i].products = max(used[i].products, c.Products())
		}
		if base := c.Operator.Base(); !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	return used, bases
}

// EdgesOf is a bound on the edges of an Operator.Graph.
func (w *Work) EdgesOf(graph string) int64 {
	if graph == operator.Undirected {
		return 2 * w.Edges
	}
	return w.Edges
}

// topologyOf is a bound on the size of the topology of an Operator.Graph.
func (w *Work) topologyOf(graph string) int64 {
	return TopologyBytes(w.Nodes, w.EdgesOf(graph), w.Weighted)
}

// share is the part of the bytes of whole matrices that this process makes.
func (w *Work) share(bytes int64) int64 { return bytes / int64(w.Stored.Features) * int64(w.Columns) }

// storedRowBytes is the size of a row of the store.
func (w *Work) storedRowBytes() int64 { return int64(w.Stored.Features * w.Stored.DType.Size()) }

// WithPanels returns a plan with panels of up to width columns, and all that follows from that.
func (w *Work) WithPanels(p Plan, width int) *Plan {
	p.Work = w
	p.Panels = (w.Columns + width - 1) / width
	p.PanelColumns = PanelColumns(w.Columns, p.Panels, width, w.Stored.DType)
	p.InputKept = p.InputKept && p.InputFiles && p.Panels > DirectPanels && len(w.Inputs) == 1 &&
		(w.Loads[0] == 1 || p.InputInMemory)
	p.ResultFiles = p.Panels > 1 || w.Columns < w.Stored.Features || w.ResultFiles
	p.CheckpointBytes = w.checkpointBytes(p.PanelColumns)
	p.FactorsByEdge = p.FactorsByEdge && slices.ContainsFunc(w.Sequences, (*Sequence).scalesSources)
	p.CutBeside = p.CutBeside && p.InputFiles && !w.derives()
	p.Device = w.cpu
	if w.Device != nil && len(w.Sequences) > 0 {
		p.Device = w.devicePlan(&p)
		p.FactorsByEdge = false
	}
	p.HeldBytes = min(p.HeldBytes, w.readByHops(&p))
	w.count(&p)
	return &p
}

// Least is the least budget of memory in bytes that is enough for a plan like this one.
func (w *Work) Least(p Plan) int64 {
	return min(w.WithPanels(p, w.Columns).MemoryBytes, w.WithPanels(p, 1).MemoryBytes)
}

// widest returns the plan with the widest panels within a budget of memory in bytes (0: no limit), or nil.
func (w *Work) widest(p Plan, budget int64) *Plan {
	whole := w.WithPanels(p, w.Columns)
	if budget == 0 || whole.MemoryBytes <= budget {
		return whole
	}
	width := sort.Search(w.Columns, func(i int) bool { return w.WithPanels(p, i+1).MemoryBytes > budget })
	if width == 0 {
		return nil
	}
	return w.WithPanels(p, width)
}

// PanelColumns is how many columns each of a number of panels has, and at most most. Rows of panels are whole cache
// lines where that makes no more panels.
func PanelColumns(columns, panels, most int, t format.DType) int {
	even := (columns + panels - 1) / panels
	line := cacheLine / t.Size()
	if lines := (even + line - 1) / line * line; panels > 1 && lines <= most {
		return lines
	}
	return even
}

// seconds predicts how long a plan takes, by rates. The disk does one thing after another, the processor too.
func (w *Work) seconds(p *Plan, r *Rates) float64 {
	products := w.productSeconds(p, r)
	if w.Device != nil && p.Device != w.cpu {
		products = w.deviceSeconds(p, r)
	}
	disk := float64(p.ReadBytes-p.besideBytes)/r.Read + float64(p.WrittenBytes)/r.Write
	beside, reading := float64(p.besideBytes)/r.Read, 0.0
	if p.InputFiles {
		reading = float64(w.inputBytes(w.Inputs[0])) / r.Read
	}
	processor := w.listingSeconds(p, r) + float64(p.MemoryBytes-ProcessBytes)/r.Touch
	total := disk + processor + max(products, beside)
	if p.CutBeside {
		total -= min(reading+float64(p.cutBytes)/r.Write, processor)
	}
	return total
}

// productSeconds predicts how long products take on the processor.
func (w *Work) productSeconds(p *Plan, r *Rates) (seconds float64) {
	for _, c := range w.Sequences {
		edges := w.neededShares(c.Products()) * float64(w.EdgesOf(c.Operator.Graph)+w.Nodes)
		lookup := 0.0
		if c.Operator.ScalesSources() && !p.FactorsByEdge {
			lookup = w.lookupSeconds(r)
		}
		for done := 0; done < w.Columns; done += p.PanelColumns {
			width := min(p.PanelColumns, w.Columns-done)
			seconds += float64(edges * (lookup + r.gather(width*w.Stored.DType.Size())))
		}
	}
	return seconds
}

// readByHops is how many bytes of topologies and coefficients on disk hops read.
func (w *Work) readByHops(p *Plan) (bytes int64) {
	if p.TopologyInMemory {
		return 0
	}
	used, bases := w.graphs()
	for _, u := range used {
		bytes += heldTopology(w.topologyOf(u.graph)) + w.storedListRoom(p, u)
	}
	for _, base := range bases {
		bytes += w.listBytes(p, base)
	}
	return bytes
}

// listBytes is the size of the list of an operator's coefficients; 0: none is made.
func (w *Work) listBytes(p *Plan, base operator.Operator) int64 {
	if !p.FactorsByEdge || !base.ScalesSources() {
		return 0
	}
	return FactorBytes(w.Weighted) * w.EdgesOf(base.Graph)
}

// storedListRoom is the memory for the lists of the store's nodes (product.StoredLists) of a topology on disk: twice
// what as many random nodes take. It is 0 where node ranges held in that memory save as many bytes of reading.
func (w *Work) storedListRoom(p *Plan, of use) int64 {
	if p.TopologyInMemory || w.Rows >= w.Nodes || w.Device != nil || p.Panels == 1 && of.products < 3 {
		return 0
	}
	edges := int64(2 * float64(w.EdgesOf(of.graph)) * float64(w.Rows) / float64(w.Nodes))
	if StoredListBytes(w.Rows, edges, 0, w.Weighted) > w.topologyOf(of.graph)/int64(of.products) {
		return 0
	}
	return StoredListBytes(w.Rows, edges, w.Threads, w.Weighted)
}

// HeldShares shares Plan.HeldBytes out, by Operator.Graph: to the lists of the store's nodes, if there is room for
// them all, then to topologies on disk; then to coefficients of their edges, by Operator.Base.
func (w *Work) HeldShares(p *Plan) (stored, topologies map[string]int64, lists map[operator.Operator]int64) {
	if p.HeldBytes == 0 {
		return nil, nil, nil
	}
	used, bases := w.graphs()
	stored, topologies, lists = map[string]int64{}, map[string]int64{}, map[operator.Operator]int64{}
	left := p.HeldBytes
	slices.SortFunc(used, func(a, b use) int { return strings.Compare(a.graph, b.graph) })
	for _, u := range used {
		if room := w.storedListRoom(p, u); room <= left {
			stored[u.graph] = room
			left -= room
		}
	}
	for _, u := range used {
		topologies[u.graph] = min(left, heldTopology(w.topologyOf(u.graph)))
		left -= topologies[u.graph]
	}
	slices.SortFunc(bases, func(a, b operator.Operator) int { return strings.Compare(a.String(), b.String()) })
	for _, base := range bases {
		lists[base] = min(left, w.listBytes(p, base))
		left -= lists[base]
	}
	return stored, topologies, lists
}

// notRead is how many of size bytes on disk each pass surely does not read when held bytes are in memory: these are
// whole node ranges, each at most largest.
func notRead(held, size, largest int64) int64 {
	if held >= size {
		return size
	}
	return max(0, held-largest)
}

// derives tells whether a topology is made from the one that is given.
func (w *Work) derives() bool {
	return slices.ContainsFunc(w.Sequences, func(c *Sequence) bool { return c.Operator.Graph != operator.AsGiven })
}

// lookupSeconds is the time to look a node's factor up: where factors do not fit the caches, as long as a row of one
// cache line takes (measured with 60M and 111M nodes: 0.7 to 1.0 of it).
func (w *Work) lookupSeconds(r *Rates) float64 {
	if !ListsFactors(w.Nodes) {
		return 0
	}
	return r.gather(cacheLine)
}

// listingSeconds predicts how long it takes to list the coefficients of edges.
func (w *Work) listingSeconds(p *Plan, r *Rates) (seconds float64) {
	_, bases := w.graphs()
	for _, base := range bases {
		if p.FactorsByEdge && base.ScalesSources() {
			seconds += float64(w.EdgesOf(base.Graph)) * w.lookupSeconds(r)
		}
	}
	return seconds
}

// neededShares estimates the share of edges that each of several consecutive products must add, summed, if stored nodes
// are a random sample, and degrees those of a scale-free graph of exponent 2, whose edges are spread evenly over the
// logarithm of degrees, from 1 to the number of nodes: nodes that a share p of all nodes has as neighbours, nearly all
// of more than 1/p, have 1 - log(1/p) / log(nodes) of the edges.
func (w *Work) neededShares(products int) float64 {
	if w.Nodes == 0 {
		return 0
	}
	nodes := float64(w.Rows) / float64(w.Nodes)
	sum, edges := 0.0, nodes
	for range products {
		if sum += edges; nodes > 0 && w.Nodes > 1 {
			next := 1 - math.Pow(1-nodes, 1+float64(w.Edges)/float64(w.Nodes))
			edges = max(next, 1+math.Log(nodes)/math.Log(float64(w.Nodes)))
			nodes = next
		}
	}
	return sum
}

// wholeLines is a plan, and plans with narrower panels whose rows are whole cache lines, or half of one.
func (w *Work) wholeLines(p *Plan) []*Plan {
	plans := []*Plan{p}
	for _, bytes := range []int{cacheLine, cacheLine / 2} {
		columns := bytes / w.Stored.DType.Size()
		if width := p.PanelColumns / columns * columns; p.Panels > 1 && width > 0 && width < p.PanelColumns {
			plans = append(plans, w.WithPanels(*p, width))
		}
	}
	return plans
}

// choices lists the ways to do the job. Choices without effect for this job are left out.
func (w *Work) choices() (list []Plan) {
	several, listed := len(w.Sequences) > 1, w.Device == nil && slices.ContainsFunc(w.Sequences, (*Sequence).scalesSources)
	for choices := range 1 << 6 {
		chosen := func(bit int) bool { return choices>>bit&1 != 0 }
		p := Plan{TopologyInMemory: !chosen(5), InputInMemory: !chosen(4), FactorsByEdge: chosen(3),
			InputFiles: chosen(2), InputKept: chosen(1), CutBeside: chosen(0)}
		if (p.InputKept || p.CutBeside) && !p.InputFiles || w.InMemory && !p.TopologyInMemory ||
			p.InputInMemory && !several || p.FactorsByEdge && !listed || p.CutBeside && w.derives() {
			continue
		}
		list = append(list, p)
	}
	return list
}

// Plan returns the quickest plan within a budget of memory in bytes (0: no limit). If there is none, the error is
// machine.ErrDoesNotFit, and says which budget is enough.
func (w *Work) Plan(budget int64, r *Rates) (*Plan, error) {
	if w.Device != nil && len(w.Sequences) > 0 && w.devicePlan(&Plan{PanelColumns: 1,
		InputInMemory: len(w.Sequences) > 1}) == nil {
		return nil, w.errNoRoom()
	}
	var best *Plan
	for _, try := range w.choices() {
		widest := w.widest(try, budget)
		if widest == nil || try.InputFiles && widest.Panels <= DirectPanels {
			continue
		}
		for _, p := range w.wholeLines(widest) {
			if spare := budget - p.MemoryBytes; !p.TopologyInMemory && spare > 0 {
				p.HeldBytes = spare
				p = w.WithPanels(*p, p.PanelColumns)
			}
			p.Seconds = w.seconds(p, r)
			if best == nil || p.Seconds < best.Seconds || p.Seconds == best.Seconds &&
				p.MemoryBytes < best.MemoryBytes {
				best = p
			}
		}
	}
	if best == nil {
		least := int64(math.MaxInt64)
		for _, try := range w.choices() {
			least = min(least, w.Least(try))
		}
		return nil, ErrDoesNotFit(budget, least)
	}
	best.Rates = r
	return best, nil
}

// NoRoom is the error of a job that needs more memory than it may use. It is machine.ErrDoesNotFit.
type NoRoom struct {
	BudgetBytes, LeastBytes int64
}

func (e *NoRoom) Error() string {
	return fmt.Sprintf("propagation %v: it may use %v of memory, and needs %v at least (raise --memory)",
		machine.ErrDoesNotFit, units.Bytes(e.BudgetBytes), units.AtLeast(units.Bytes(e.LeastBytes)))
}

func (e *NoRoom) Unwrap() error { return machine.ErrDoesNotFit }

// ErrDoesNotFit is the error of a job that may use budget bytes of memory and needs at least so many.
func ErrDoesNotFit(budget, least int64) error { return &NoRoom{budget, least} }

// StoreBytes is the size in bytes of a store: exact for its matrices, which are nearly all of it, and rounded up for
// the rest.
func StoreBytes(graph *format.Manifest, layout format.Layout, matrices int, matrixBytes int64) int64 {
	const page = 4096      // a chunk of the row table has a page of metadata and is padded to whole pages
	const indexRow = 3 * 8 // bytes of the index for a chunk
	chunks, rows := int64(0), int64(0)
	for _, r := range layout.Regions {
		chunks += int64(r.Chunks)
		rows += r.Rows
	}
	tables := int64(1 + matrices)
	total := RowTableBytes(graph) + 4*rows + (chunks+2)*2*page + tables*(chunks*indexRow+200)
	return total + int64(matrices)*matrixBytes
}

// RowTableBytes is the size of the row table of a graph on disk. That of a store has some of its rows, and node ids.
func RowTableBytes(graph *format.Manifest) int64 {
	need := int64(0)
	for _, f := range graph.Files {
		if strings.HasPrefix(f.Path, "nodes/") {
			need += f.Size
		}
	}
	return need
}

// PickedBytes is the memory for rows of a graph's table while storeRows picks them: their share of the table
// on disk, and headers of strings, with a fifth more that the garbage collector has yet to free; and 8 bytes a row
// for nodes and their places.
func PickedBytes(graph *format.Manifest, rows int64) int64 {
	row := float64(RowTableBytes(graph)) / float64(max(graph.Nodes, 1))
	if graph.OrigIDs {
		row += 16 + 8 // and what strings are rounded up by
	}
	return int64(1.2*row*float64(rows)) + 8*rows
}

// HeldBytes is the memory for rows of a graph's table once storeRows has picked them, and their nodes. Of original ids
// the files alone tell how long they are.
func HeldBytes(graph *format.Manifest, rows int64) int64 {
	if graph.OrigIDs {
		return PickedBytes(graph, rows)
	}
	labels := graph.Labels // bytes of a row
	if labels == 1 || graph.LabelValues {
		labels *= 4
	}
	return rows * int64(4+labels+graph.Splits)
}

// Rates are the speeds of a machine, from which times are predicted.
type Rates struct {
	Read, Write float64 // of the disk, in bytes a second, all threads together
	Touch       float64 // of memory that is used for the first time, in bytes a second
	// Adding a row takes edge seconds, and byte seconds for each byte of the row.
	Edge, Byte float64
}

// gather is the time to add a row: by the cache lines that it lies in, on average over rows that follow one another.
func (r *Rates) gather(rowBytes int) float64 {
	unit := rowBytes & -rowBytes // rows begin at multiples of it
	lines := 1 + float64(rowBytes-min(unit, cacheLine))/cacheLine
	return r.Edge + float64(r.Byte*lines*cacheLine)
}

// RatesOf are the rates of a described machine. A row takes as long as its bytes and one cache line.
func RatesOf(h machine.Hardware) *Rates {
	gather := float64(h.GatherBandwidth)
	if gather == 0 {
		gather = float64(h.MemoryBandwidth) / 3
	}
	return &Rates{
		Read: float64(h.Storage.ReadRate()), Write: float64(h.Storage.WriteRate()),
		Touch: float64(h.MemoryBandwidth) / 3,
		Edge:  cacheLine / gather, Byte: 1 / gather,
	}
}

// SharedRates is what each of several described machines reaches while all read and write one folder or bucket.
// Without a bucket, the described storage is the folder, whose rates the machines share. A file of a bucket is made on
// the local disk first.
func SharedRates(h machine.Hardware, machines int) *Rates {
	r, b := RatesOf(h), h.Bucket
	if b.Read == 0 {
		r.Read, r.Write = r.Read/float64(machines), r.Write/float64(machines)
		return r
	}
	most := math.Inf(1)
	if b.All > 0 {
		most = float64(b.All) / float64(machines)
	}
	r.Read = min(float64(b.Read), most)
	r.Write = 1 / (1/min(float64(cmp.Or(b.Write, b.Read)), most) + 1/r.Write)
	return r
}

// DefaultRates are used to plan small jobs, for which measuring the machine would take longer than the job. They
// describe no particular machine.
var DefaultRates = Rates{Read: 1 << 30, Write: 1 << 29, Touch: 1 << 31, Edge: 4e-9, Byte: 1e-10}

// WorthMeasuring tells whether to measure the machine, given a plan by DefaultRates: not for short jobs, nor for one
// panel in memory on the processor, where rates decide nothing.
func WorthMeasuring(p *Plan, onDevice bool) bool {
	const bytes, seconds = 1 << 30, 20 // of a job; measuring takes up to one
	return p.ReadBytes+p.WrittenBytes >= bytes && (p.Seconds >= seconds || p.Panels > 1 || !p.TopologyInMemory ||
		onDevice)
}

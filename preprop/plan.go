package preprop

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
)

// Plan tells how a job does its work within its memory. It changes no result.
type Plan struct {
	// The columns of the features are divided into panels. Each panel goes through all hops
	// while it is in memory. There is one panel if memory allows it.
	Panels       int `json:"panels"`
	PanelColumns int `json:"panel_columns"` // of the widest panel
	// InputFiles tells that the input is first cut into column files, on scratch disk,
	// because reading the whole input for each panel would take longer.
	InputFiles bool `json:"strips"`
	// InputKept tells that of an input that is cut, the first panel stays in memory, and that hop 0
	// goes to the store meanwhile, where its rows fit in the memory of a matrix.
	InputKept        bool `json:"input_kept"`
	InputInMemory    bool `json:"input_in_memory"` // one panel of the input stays in memory for several operators
	TopologyInMemory bool `json:"topology_in_memory"`
	ResultFiles      bool `json:"pieces"` // results are written to column files and assembled at the end

	InputPasses     int     `json:"input_passes"`    // over all bytes of the input
	TopologyPasses  int     `json:"topology_passes"` // over the topology on disk
	ReadBytes       int64   `json:"planned_bytes_read"`
	WrittenBytes    int64   `json:"planned_bytes_written"`
	ScratchBytes    int64   `json:"planned_scratch_bytes"`    // most at a time, checkpoints included
	CheckpointBytes int64   `json:"planned_checkpoint_bytes"` // most at a time; 0: none are written
	MemoryBytes     int64   `json:"memory_needed_bytes"`
	StoreBytes      int64   `json:"planned_store_bytes"` // of what is added to the store
	DiskBytes       int64   `json:"disk_needed_bytes"`   // most at a time, of store and scratch files together
	Seconds         float64 `json:"predicted_seconds"`

	// Device is what computes products. SentBytes of it are those of the widest panel.
	Device *DevicePlan `json:"device"`

	work *work
}

// dropCheckpoints plans without checkpoints.
func (p *Plan) dropCheckpoints() {
	p.CheckpointBytes = 0
	p.work.count(p)
}

// work describes a job for planning.
type work struct {
	nodes, edges  int64
	weighted      bool
	sequences     []*hopSequence  // of which hops are to be made
	inputs        []format.Layout // what they start from, each once
	loads         []int           // sequences that start from each
	columns       int             // that this process makes
	stored        format.Layout   // of the store
	rows          int64           // of the store
	rowTableBytes int64           // of the graph, on disk
	pickedBytes   int64           // in memory: the rows of the store and their nodes
	held          int64           // bytes of memory that a repair holds all the time
	matrices      int             // to be made
	matrixBytes   int64           // of one of them in the store
	storeBytes    int64           // of these matrices, and of what else goes to the store
	threads       int
	resultFiles   bool        // even with one panel, as other processes make the other columns
	cpu           *DevicePlan // why the processor computes products, if it does
	device        *Device     // that computes products; nil: the processor
	makesInput    bool        // hop 0 is one of the matrices to be made, and what the others start from
}

// processBytes is the memory that the program takes beside what it plans: code, stacks,
// heap, buffers of files.
const processBytes = 64 << 20

// noticeableBytes is the size of a row table from which on the Go heap is kept small for it.
const noticeableBytes = processBytes / 16

// graphs returns, for each Operator.Graph that is used, the products of the sequence that has
// most, and the different Operator.base that there are.
func (w *work) graphs() (longest map[string]int, bases map[Operator]bool) {
	longest, bases = map[string]int{}, map[Operator]bool{}
	for _, c := range w.sequences {
		longest[c.operator.Graph] = max(longest[c.operator.Graph], c.products())
		bases[c.operator.base()] = true
	}
	return longest, bases
}

// edgesOf is a bound on the edges of an Operator.Graph.
func (w *work) edgesOf(graph string) int64 {
	if graph == Undirected {
		return 2 * w.edges
	}
	return w.edges
}

// topologyOf is a bound on the size of the topology of an Operator.Graph.
func (w *work) topologyOf(graph string) int64 {
	return topologyBytes(w.nodes, w.edgesOf(graph), w.weighted)
}

// share is the part of the bytes of whole matrices that this process makes.
func (w *work) share(bytes int64) int64 { return bytes / int64(w.stored.Features) * int64(w.columns) }

// storedRowBytes is the size of a row of the store.
func (w *work) storedRowBytes() int64 { return int64(w.stored.Features * w.stored.DType.Size()) }

// withPanels returns a plan with panels of up to width columns, and all that follows from
// that.
func (w *work) withPanels(p Plan, width int) *Plan {
	p.work = w
	p.Panels = (w.columns + width - 1) / width
	p.PanelColumns = panelColumns(w.columns, p.Panels, width, w.stored.DType)
	p.InputKept = p.InputKept && p.InputFiles && p.Panels > directPanels && len(w.inputs) == 1 && (w.loads[0] == 1 || p.InputInMemory)
	p.ResultFiles = p.Panels > 1 || w.columns < w.stored.Features || w.resultFiles
	p.CheckpointBytes = w.checkpointBytes(p.PanelColumns)
	p.Device = w.cpu
	if w.device != nil && len(w.sequences) > 0 {
		p.Device = w.devicePlan(&p)
	}
	w.count(&p)
	return &p
}

// widest returns the plan with the widest panels within a budget of memory in bytes (0: no
// limit), or nil, and the least budget that is enough for a plan like this one.
func (w *work) widest(p Plan, budget int64) (widest *Plan, least int64) {
	whole := w.withPanels(p, w.columns)
	least = min(whole.MemoryBytes, w.withPanels(p, 1).MemoryBytes)
	if budget == 0 || whole.MemoryBytes <= budget {
		return whole, least
	}
	width := sort.Search(w.columns, func(i int) bool { return w.withPanels(p, i+1).MemoryBytes > budget })
	if width == 0 {
		return nil, least
	}
	return w.withPanels(p, width), least
}

const cacheLine = 64 // bytes

// panelColumns is how many columns each of a number of panels has, and at most most. Rows
// of panels are whole cache lines where that makes no more panels.
func panelColumns(columns, panels, most int, t format.DType) int {
	even := (columns + panels - 1) / panels
	line := cacheLine / t.Size()
	if lines := (even + line - 1) / line * line; panels > 1 && lines <= most {
		return lines
	}
	return even
}

// count sets what a plan takes.
func (w *work) count(p *Plan) {
	sum := w.cost(p)
	p.MemoryBytes = processBytes + slices.Max(sum.memory[:])
	p.ScratchBytes, p.DiskBytes = slices.Max(sum.scratch[:]), 0
	for at := range phases {
		p.DiskBytes = max(p.DiskBytes, sum.scratch[at]+sum.store[at])
	}
	p.ReadBytes, p.WrittenBytes, p.StoreBytes = sum.read, sum.written, w.storeBytes
	p.InputPasses, p.TopologyPasses = sum.inputPasses, sum.topologyPasses
}

// seconds predicts how long a plan takes, by rates.
func (w *work) seconds(p *Plan, r *rates) float64 {
	seconds := float64(p.ReadBytes)/r.read + float64(p.WrittenBytes)/r.write + float64(p.MemoryBytes-processBytes)/r.touch
	if w.device != nil && p.Device != w.cpu {
		return seconds + w.deviceSeconds(p, r)
	}
	return seconds + w.productSeconds(p, r)
}

// productSeconds is how much of that products take, on the processor.
func (w *work) productSeconds(p *Plan, r *rates) (seconds float64) {
	for _, c := range w.sequences {
		edges := w.neededShares(c.products()) * float64(w.edgesOf(c.operator.Graph)+w.nodes)
		for done := 0; done < w.columns; done += p.PanelColumns {
			width := min(p.PanelColumns, w.columns-done)
			seconds += float64(edges * r.gather(int64(width*w.stored.DType.Size())))
		}
	}
	return seconds
}

// neededShares is about the sum, over products that follow one another, of the share of
// rows that each must compute. It assumes that stored nodes are a random sample.
func (w *work) neededShares(products int) float64 {
	if w.nodes == 0 {
		return 0
	}
	share, sum := float64(w.rows)/float64(w.nodes), 0.0
	for left := products; left > 0; left-- {
		if sum += share; share == 1 {
			return sum + float64(left-1)
		}
		share = 1 - math.Pow(1-share, 1+float64(w.edges)/float64(w.nodes))
	}
	return sum
}

var yesNo = []bool{true, false}

// plan returns the quickest plan within a budget of memory in bytes (0: no limit). If there
// is none, the error is machine.ErrDoesNotFit, and says which budget is enough.
func (w *work) plan(budget int64, r *rates) (*Plan, error) {
	if w.device != nil && len(w.sequences) > 0 && w.devicePlan(&Plan{PanelColumns: 1, InputInMemory: len(w.sequences) > 1}) == nil {
		return nil, w.errNoRoom()
	}
	var best *Plan
	least := int64(math.MaxInt64)
	for _, topology := range yesNo {
		for _, input := range yesNo {
			for _, files := range []Plan{{}, {InputFiles: true}, {InputFiles: true, InputKept: true}} {
				files.TopologyInMemory, files.InputInMemory = topology, input
				p, enough := w.widest(files, budget)
				least = min(least, enough)
				if p == nil || p.InputFiles && p.Panels <= directPanels || input && len(w.sequences) < 2 {
					continue
				}
				p.Seconds = w.seconds(p, r)
				if best == nil || p.Seconds < best.Seconds || p.Seconds == best.Seconds && p.MemoryBytes < best.MemoryBytes {
					best = p
				}
			}
		}
	}
	if best == nil {
		return nil, errDoesNotFit(budget, least)
	}
	return best, nil
}

func errDoesNotFit(budget, least int64) error {
	return fmt.Errorf("propagation %w: it may use %v of memory, and needs %v at least (raise --memory)",
		machine.ErrDoesNotFit, units.Bytes(budget), units.AtLeast(units.Bytes(least)))
}

// storeBytes is the size of a store in bytes: exact for the matrices, which are
// nearly all of it, and rounded up for the rest.
func storeBytes(graph *format.Manifest, layout format.Layout, matrices []format.MatrixID) (int64, error) {
	const page = 4096      // a chunk of the row table has a page of metadata and is padded to whole pages
	const indexRow = 3 * 8 // bytes of the index for a chunk
	chunks, rows := int64(0), int64(0)
	for _, r := range layout.Regions {
		chunks += int64(r.Chunks)
		rows += r.Rows
	}
	tables := int64(1 + len(matrices))
	total := rowTableBytes(graph) + 4*rows + (chunks+2)*2*page + tables*(chunks*indexRow+200)
	var err error
	for _, id := range matrices {
		bytes, one := layout.MatrixBytes(id)
		total, err = total+bytes, errors.Join(err, one)
	}
	return total, err
}

// rowTableBytes is the size of the row table of a graph on disk. That of a store has some
// of its rows, and node ids.
func rowTableBytes(graph *format.Manifest) int64 {
	need := int64(0)
	for _, f := range graph.Files {
		if strings.HasPrefix(f.Path, "nodes/") {
			need += f.Size
		}
	}
	return need
}

// pickedBytes is the memory for so many rows of a graph's table while storeRows picks them:
// their share of the table on disk, and headers of strings, with a fifth more that the
// garbage collector has yet to free; and 8 bytes a row for nodes and their places.
func pickedBytes(graph *format.Manifest, rows int64) int64 {
	row := float64(rowTableBytes(graph)) / float64(max(graph.Nodes, 1))
	if graph.OrigIDs {
		row += 16 + 8 // and what strings are rounded up by
	}
	return int64(1.2*row*float64(rows)) + 8*rows
}

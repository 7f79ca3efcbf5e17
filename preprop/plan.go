package preprop

import (
	"errors"
	"fmt"
	"math"
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
	InputFiles       bool `json:"strips"`
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

	setCheckpointBytes func(checkpoints int64) // sets the bytes of disk for checkpoints of this size
}

// work describes a job for planning.
type work struct {
	nodes, edges          int64
	weighted              bool
	sequences             []sequenceWork
	features              int          // columns of the features
	columns               int          // that this process makes
	inputType, storedType format.DType // of the input, and of the hops
	inputChunk            int64        // bytes of a chunk of the input
	rows                  int64        // of the store
	rowTableBytes         int64        // of the graph, on disk
	pickedBytes           int64        // in memory: the rows of the store and their nodes
	held                  int64        // bytes of memory that a repair holds all the time
	matrices              int          // to be made
	storeBytes            int64        // of these matrices, and of what else goes to the store
	threads               int
	resultFiles           bool // even with one panel, as other processes make the other columns
}

// sequenceWork describes a hopSequence for planning: so many hops of an operator.
type sequenceWork struct {
	operator Operator
	hops     int
	input    int // index in job.inputs
}

// processBytes is the memory that the program takes beside what it plans: code, stacks,
// heap, buffers of files.
const processBytes = 64 << 20

// deriveRoomBytes is the least memory for the edges of a run of derive.
const deriveRoomBytes = 64 << 20

// graphs returns, for each Operator.Graph that is used, the products of the sequence that has
// most, and how many different Operator.base there are.
func (w *work) graphs() (longest map[string]int, bases int) {
	longest, seen := map[string]int{}, map[Operator]bool{}
	for _, c := range w.sequences {
		products := c.hops * c.operator.series().products()
		longest[c.operator.Graph] = max(longest[c.operator.Graph], products)
		seen[c.operator.base()] = true
	}
	return longest, len(seen)
}

// edgesOf is a bound on the edges of an Operator.Graph.
func (w *work) edgesOf(graph string) int64 {
	if graph == Undirected {
		return 2 * w.edges
	}
	return w.edges
}

// memory returns bytes: at the start, before matrices are allocated; later, beside the
// matrices; and of the matrices, for each column of a panel.
func (w *work) memory(p *Plan) (start, later, column int64) {
	column = w.nodes * int64(w.storedType.Size())
	start = w.pickedBytes
	later = 4*w.rows + int64(w.threads)*w.inputChunk + 2*writeBufferBytes
	if p.InputFiles {
		later += int64(w.threads) * w.inputChunk * int64(w.storedType.Size()) / int64(w.inputType.Size())
	}
	if len(w.sequences) == 0 {
		return start, later, column
	}
	byGraph, bases := w.graphs()
	resident, derived, room := int64(0), false, int64(deriveRoomBytes)
	for graph, products := range byGraph {
		if p.TopologyInMemory {
			resident += topologyBytes(w.nodes, w.edgesOf(graph), w.weighted)
		}
		derived = derived || graph != AsGiven
		if w.rows < w.nodes {
			later += int64(products) * (w.nodes/8 + 8) // node sets
		}
	}
	longest := w.longestList()
	streams := int64(streamReaders(w.threads))*largestBlock + longest
	if derived {
		streams += longest // a list of a derived graph can be twice as long
	}
	room = max(room, longest)
	if p.TopologyInMemory {
		room = edgeBytes(w.weighted) * w.edges
	}
	building := resident + streams
	if derived {
		building += 8*(w.nodes+1) + room + 2*edgeBytes(w.weighted)*orderedCost + 2*longest
	}
	most, buffers := int64(2), 0
	if p.InputInMemory {
		most = 3
	}
	for _, c := range w.sequences {
		buffers = max(buffers, c.operator.series().buffers(w.storedType))
		if c.operator.Name == Col {
			building = max(building, resident+streams+8*w.nodes) // degrees
		}
	}
	column = most*column + 4*w.nodes*int64(buffers)
	factors := 4 * w.nodes * int64(bases)
	return max(start, building+factors), later + resident + streams + factors, column
}

// longestList is a bound on the bytes of the neighbours of one node, or 0 where they fit a
// block. Without parallel edges a node has no more neighbours than there are nodes.
func (w *work) longestList() int64 {
	if bytes := edgeBytes(w.weighted) * min(w.edges, w.nodes); bytes > largestBlock {
		return bytes
	}
	return 0
}

// assemblyBytes is the memory that assembling result files takes.
func (w *work) assemblyBytes() int64 {
	return 4*w.rows + 2*int64(w.threads+1)*max(columnFileBlockBytes, int64(w.features*w.storedType.Size()))
}

// choosePanels sets the panels of a plan, and what follows from them, within a budget in
// bytes (0: no limit). It returns the least budget that is enough for a plan like this one.
// Where the budget is not, it leaves p.Panels at 0.
func (w *work) choosePanels(p *Plan, budget int64) (least int64) {
	start, later, column := w.memory(p)
	start, later = start+w.held, later+w.held
	need := func(width int, resultFiles bool) int64 {
		bytes := max(start, later+column*int64(width))
		if resultFiles {
			bytes = max(bytes, w.assemblyBytes()+w.held)
		}
		return processBytes + bytes
	}
	whole := w.columns == w.features && !w.resultFiles // one panel needs no result files
	least = need(1, w.columns > 1 || !whole)
	if whole {
		least = min(least, need(w.columns, false))
	}
	width := w.columns
	if budget > 0 {
		width = int(min(int64(width), (budget-processBytes-later)/max(column, 1))) // there may be no nodes
	}
	if width < 1 {
		return least
	}
	p.Panels = (w.columns + width - 1) / width
	p.PanelColumns = panelColumns(w.columns, p.Panels, width, w.storedType)
	p.ResultFiles = p.Panels > 1 || !whole
	if p.MemoryBytes = need(p.PanelColumns, p.ResultFiles); budget > 0 && p.MemoryBytes > budget {
		p.Panels = 0
	}
	return least
}

// panelColumns is how many columns each of a number of panels has, and at most most. Rows
// of panels are whole cache lines where that makes no more panels.
func panelColumns(columns, panels, most int, t format.DType) int {
	const cacheLine = 64
	even := (columns + panels - 1) / panels
	line := cacheLine / t.Size()
	if lines := (even + line - 1) / line * line; panels > 1 && lines <= most {
		return lines
	}
	return even
}

// countBytes sets the bytes that a plan reads and writes.
func (w *work) countBytes(p *Plan) {
	share := func(bytes int64) int64 { return bytes / int64(w.features) * int64(w.columns) } // of the columns to be made
	all := w.nodes * int64(w.features)
	input, inputFiles := all*int64(w.inputType.Size()), share(all*int64(w.storedType.Size()))
	inputs := map[int]bool{}
	for _, c := range w.sequences {
		inputs[c.input] = true
	}
	loads := max(1, len(w.sequences)) // for each panel
	if p.InputInMemory {
		loads = len(inputs)
	}
	p.InputPasses = loads * p.Panels
	read, written := int64(loads*p.Panels)*input, int64(0)
	if p.InputFiles {
		p.InputPasses = max(1, len(inputs))
		read = int64(p.InputPasses)*input + int64(loads)*inputFiles
		written = int64(p.InputPasses) * inputFiles
	}
	cut := written // input files, each of which is removed when its panel is done
	pass, topologies := topologyBytes(w.nodes, w.edges, w.weighted), int64(0)
	longest, bases := w.graphs()
	p.TopologyPasses = 0
	for graph, products := range longest {
		bytes := topologyBytes(w.nodes, w.edgesOf(graph), w.weighted)
		if graph != AsGiven { // a pass to check, one to count, and the runs of derive
			runs := 1
			if !p.TopologyInMemory {
				runs = int(edgeBytes(w.weighted)*w.edges/deriveRoomBytes) + 1
				topologies += bytes
				written += bytes
			}
			p.TopologyPasses += 2 + runs
			read += int64(1+runs) * pass
			bytes += pass
		}
		p.TopologyPasses++
		read += bytes
		if !p.TopologyInMemory && w.rows < w.nodes { // which rows are needed
			p.TopologyPasses += products - 1
			read += int64(products-1) * bytes
		}
	}
	if !p.TopologyInMemory {
		p.TopologyPasses += bases
		read += int64(bases) * pass
		for _, c := range w.sequences {
			products := c.hops * c.operator.series().products()
			p.TopologyPasses += products * p.Panels
			read += int64(products*p.Panels) * topologyBytes(w.nodes, w.edgesOf(c.operator.Graph), w.weighted)
		}
	}
	made, panels := int64(0), int64(p.Panels)
	if p.ResultFiles {
		made = share(w.rows * int64(w.features*w.storedType.Size()) * int64(w.matrices))
		written += made
		read += made
	}
	p.setCheckpointBytes = func(checkpoints int64) {
		p.CheckpointBytes = checkpoints
		p.ScratchBytes = topologies + max(cut+made/panels, cut/panels+made) + checkpoints
		// The result files of a matrix are removed when it is assembled.
		if p.DiskBytes = max(p.ScratchBytes, w.storeBytes+made/int64(max(1, w.matrices))); !p.ResultFiles {
			p.DiskBytes = max(p.DiskBytes, w.storeBytes+checkpoints)
		}
	}
	p.setCheckpointBytes(w.checkpointBytes(p.PanelColumns))
	p.ReadBytes = read + w.rowTableBytes
	p.WrittenBytes = written + w.storeBytes
	p.StoreBytes = w.storeBytes
}

// seconds predicts how long a plan takes, by rates.
func (w *work) seconds(p *Plan, r *rates) float64 {
	seconds := float64(p.ReadBytes)/r.read + float64(p.WrittenBytes)/r.write + float64(p.MemoryBytes-processBytes)/r.touch
	for _, c := range w.sequences {
		products := c.hops * c.operator.series().products()
		edges := w.neededShares(products) * float64(w.edgesOf(c.operator.Graph)+w.nodes)
		for done := 0; done < w.columns; done += p.PanelColumns {
			width := min(p.PanelColumns, w.columns-done)
			seconds += float64(edges * r.gather(int64(width*w.storedType.Size())))
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

// plan returns the quickest plan within a budget of memory in bytes (0: no limit). If there
// is none, the error is machine.ErrDoesNotFit, and says which budget is enough.
func (w *work) plan(budget int64, r *rates) (*Plan, error) {
	var best *Plan
	least := int64(math.MaxInt64)
	yesNo := []bool{true, false}
	for _, topology := range yesNo {
		for _, input := range yesNo {
			for _, inputFiles := range yesNo {
				p := &Plan{TopologyInMemory: topology, InputInMemory: input, InputFiles: inputFiles}
				least = min(least, w.choosePanels(p, budget))
				if p.Panels == 0 || inputFiles && p.Panels == 1 || input && len(w.sequences) < 2 {
					continue
				}
				w.countBytes(p)
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

package plan

import (
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// A batch has at most batchRuns runs of terms, and sums of at most sumsBytes, which fit the second-level cache. Neither
// changes any result.
const (
	batchRuns = 4 * RunTerms
	sumsBytes = 128 << 10
)

// BatchRuns is the most runs of terms of a batch.
func BatchRuns(features int) int { return min(batchRuns, max(1, sumsBytes/4/max(1, features))) }

// BatchBytes bounds the memory of a batch, with the sums of a hub.
func BatchBytes(features int) int64 {
	const run = 8 + 24 + 4 // its row, its list and its one
	return int64(BatchRuns(features))*int64(run+4*features) + 4*int64(1+HubRuns)*int64(features)
}

// HubRuns is the most runs of terms of a row that one goroutine computes. A row with more is computed by several
// goroutines, as many runs at a time. It changes no result.
const HubRuns = 64

// ColumnFileGroupBytes is about how many bytes the rows of a group have with all columns of the matrix.
const ColumnFileGroupBytes = 2 << 20

// ColumnFileGroupRows is how many rows a group has, for a matrix with rows of this size: the same for any range of
// its columns, so that files are put together group by group. Columns of whole cache lines, as panels have, give
// groups of whole pages, which can be read past the page cache.
func ColumnFileGroupRows(matrixRowBytes int64) int64 {
	const lines = vfs.PageBytes / cacheLine // of a page
	rows := max(1, ColumnFileGroupBytes/matrixRowBytes)
	if rows > lines {
		rows -= rows % lines
	}
	return rows
}

// columnFileGroup is the size of a group of a file of this many rows. A row of the file has rowBytes, a row of the
// whole matrix matrixRowBytes.
func columnFileGroup(rows, matrixRowBytes, rowBytes int64) int64 {
	return min(rows, ColumnFileGroupRows(matrixRowBytes)) * rowBytes
}

// HeadBytes of what comes back from the device are the number of elements that are not finite.
const HeadBytes = 64

// Aligned rounds up to what the parts of a transfer are aligned to.
func Aligned(bytes int64) int64 { return (bytes + HeadBytes - 1) / HeadBytes * HeadBytes }

// PanelMatrices is how many matrices of the stored type, and of float32, the panels of these sequences need.
func PanelMatrices(sequences []*Sequence, stored format.DType, inputInMemory bool) (hops, series int) {
	hops = 1
	for _, c := range sequences {
		if c.Hops > c.From {
			hops = 2
		}
		series = max(series, c.Series().Buffers(stored))
	}
	if inputInMemory {
		hops++
	}
	return hops, series
}

// RunTerms is the number of terms that are summed at a time, and part of the format: see product.Propagator.
const RunTerms = 1024

// ChunkBuffer is the memory in which a reader takes a chunk apart: the chunk, and a row of numbers at the next
// multiple of 4 bytes.
func ChunkBuffer(l format.Layout) int64 {
	return vfs.WholePages(int64(l.Features)*int64(4+l.ChunkRows*l.DType.Size()) + 2)
}

// DirectPanels is how many panels are read from the input itself in less time than it takes to cut it into column
// files first.
const DirectPanels = 2

// WriteBufferBytes is about how many bytes all threads together write to a store at a time.
const WriteBufferBytes = 8 << 20

// WriteStep is how many rows of rowBytes a thread gathers at a time, at most rows.
func WriteStep(rows, rowBytes int64, threads int) int64 {
	return max(1, min(rows, WriteBufferBytes/int64(threads)/rowBytes))
}

// FactorsBytes is the memory of the factors of an operator: of the nodes, and with sym and a metapath of the sources
// too.
func FactorsBytes(o operator.Operator, nodes, sources int64) int64 {
	if o.Metapath != "" && o.Name == operator.Sym {
		return 4 * (nodes + sources)
	}
	return 4 * nodes
}

func NodeSetBytes(nodes int64) int64 { return (nodes + 63) / 64 * 8 }

const cacheLine = 64 // bytes

// TaskCost is how many edges and nodes of a graph in memory one goroutine takes at a time, and OrderedCost how many
// are visited at once in order. They change no result.
const (
	TaskCost    = 1 << 15
	OrderedCost = 1 << 20
)

// StreamRangeBytes is about the size of a node range of a topology on disk.
const StreamRangeBytes = 1 << 20

// LargestRange is the size of each reader's buffer. A larger node range, which is the list of one node, is read into a
// buffer that all readers share.
const LargestRange = 2 * StreamRangeBytes

// heldTopology is the memory for all node ranges of a topology of this size: each has one offset more, and begins
// at a multiple of 64 bytes.
func heldTopology(bytes int64) int64 { return bytes + (2*bytes/StreamRangeBytes+2)*(8+HeadBytes) }

// streamBytes is the memory of readers of a topology on disk, whose node ranges have up to rangeBytes. All
// share one buffer for those with more than most.
func streamBytes(readers int, rangeBytes, most int64) int64 {
	if rangeBytes > most {
		return int64(readers)*most + rangeBytes
	}
	return int64(readers) * rangeBytes
}

// FactorBytes is the size of an edge's coefficient in product.EdgeFactors: itself, or a code.
func FactorBytes(weighted bool) int64 {
	if weighted {
		return 4
	}
	return 2
}

// StoredListOffsets is the memory for offsets of a node range of product.StoredLists. It changes no result.
const StoredListOffsets = 1 << 16

// StoredListBytes is the memory of product.StoredLists of rows nodes, which have so many in-neighbours.
func StoredListBytes(rows, edges int64, threads int, weighted bool) int64 {
	return 8*(rows+1) + 4*rows + EdgeBytes(weighted)*edges + int64(threads)*StoredListOffsets
}

// ListPiece is how many edges a reader lists at a time, on disk.
const ListPiece = 1 << 16

// ListsFactors tells whether a graph is so large that looking up factors by node is slower than reading a list of them
// by edge: that of the nodes does not fit the caches.
func ListsFactors(nodes int64) bool { return 4*nodes > cacheBytes }

const cacheBytes = 16 << 20

// ListedRange is the memory to read a node range of this size of a topology on disk, with the
// coefficients of its edges: half as many as EdgeBytes.
func ListedRange(bytes int64) int64 { return bytes + vfs.PagedBytes(bytes/2) }

// DiskReaders is how many goroutines read a topology, an input or column files: while one waits for the disk, another
// computes.
func DiskReaders(threads int) int { return 2 * threads }

// TopologyBytes is the size of a topology in memory, and of a raw one on disk.
func TopologyBytes(nodes, edges int64, weighted bool) int64 {
	return 8*(nodes+1) + EdgeBytes(weighted)*edges
}

func EdgeBytes(weighted bool) int64 {
	if weighted {
		return 8
	}
	return 4
}

// deriveRoomBytes is the room for the edges of a run of derive, where the result goes to disk: what is given is read
// once for each run.
const deriveRoomBytes = 64 << 20

// DeriveRoom is the room that derive gets.
func DeriveRoom(inMemory bool, edges int64, weighted bool) int64 {
	if inMemory {
		return EdgeBytes(weighted) * edges
	}
	return deriveRoomBytes
}

// CutBytes is the memory to cut an input into column files of so many rows, which have row bytes in all files together.
func CutBytes(l format.Layout, row int64, files int, rows int64, threads int) int64 {
	readers := int64(DiskReaders(threads))
	return readers*ChunkBuffer(l) + (readers+1)*int64(l.ChunkRows)*row +
		int64(files)*vfs.StreamBytes(rows*row/int64(files))
}

// AssembleBytes is the memory to put rows of a matrix, which has rows of rowBytes, together from column files, into a
// file of this size.
func AssembleBytes(rows, rowBytes, file int64, threads int) int64 {
	return int64(threads+1)*2*vfs.WholePages(columnFileGroup(rows, rowBytes, rowBytes)) + vfs.StreamBytes(file)
}

// WriteBuffers is the number and size of the buffers that matrices go to files through.
type WriteBuffers struct {
	Count int
	Bytes int64
}

// StoreBuffers are the buffers for whole matrices, ResultBuffers for column files.
func StoreBuffers(rows, rowBytes int64, threads int) WriteBuffers {
	return WriteBuffers{threads + 1, WriteStep(rows, rowBytes, threads) * rowBytes}
}

func ResultBuffers(rows, matrixRowBytes, rowBytes int64, threads int) WriteBuffers {
	return WriteBuffers{threads + 1, columnFileGroup(rows, matrixRowBytes, rowBytes)}
}

package trainer

import (
	"context"
	"iter"
	"math"
	"testing"

	"github.com/hopfeed/hopfeed/chunk"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/gds/testdevice"
	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/rng"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/loader/sampling"
)

// openDevice is a device that must be left clean by the test. One thread, unless the options say more, takes the least
// time for toys.
func openDevice(t testing.TB, o host.Options) gds.Device {
	t.Helper()
	o.Threads = max(o.Threads, 1)
	return testdevice.Open(t, o)
}

// matrixOf is gds.Memory.Matrix with its error.
func matrixOf(m *gds.Memory, what string, rows, cols int, t gds.DType) (gds.Tensor, error) {
	x := m.Matrix(what, rows, cols, t)
	return x, m.Err
}

// toy is rows in host memory that feed a trainer without a store.
type toy struct {
	x        [][]float32 // one [rows, features] for each matrix
	labels   []int32
	several  []int8    // instead of labels: see withTarget
	values   []float32 // or these
	outputs  int       // of a row
	features int
	widths   []int // of each matrix; nil: features
	batch    int
	shuffle  bool
	sparse   bool                         // features of batches with blocks are
	numbered bool                         // batches have row numbers
	hook     func(epoch, batch int) error // called before a batch is yielded
	spoils   func(epoch, batch int) bool  // tells whether its features are no numbers
	dev      gds.Device
	rank     int
	world    int // that share each batch; 0: 1
	layers   int // of blocks that batches have: see toyBlocks
	epochs   int // started
}

func (d *toy) width(matrix int) int {
	if d.widths != nil {
		return d.widths[matrix]
	}
	return d.features
}

func (d *toy) Rows() int64 { return int64(len(d.labels)) }

// feed makes the toy's batches lie on dev, and have this number of rows.
func (d *toy) feed(dev gds.Device, batch int) *toy {
	fed := *d
	fed.dev, fed.batch = dev, batch
	return &fed
}

func (d *toy) EpochFrom(ctx context.Context, stream gds.Stream, n, first int) iter.Seq2[*loader.Batch, error] {
	d.epochs++
	return func(yield func(*loader.Batch, error) bool) {
		mem := gds.Memory{Device: d.dev}
		stage := stager{mem: &mem, stream: stream}
		var xs []gds.Tensor
		for k := range d.x {
			x, err := matrixOf(&mem, "toy", d.batch+d.layers*toyMoreSources, d.width(k), gds.Float32)
			if err != nil {
				yield(nil, err)
				return
			}
			xs = append(xs, x)
		}
		labels, err := d.labelMemory(&mem)
		if err != nil {
			yield(nil, err)
			return
		}
		var numbers gds.Tensor
		if d.numbered {
			if numbers, err = matrixOf(&mem, "toy", 1, d.batch, gds.Uint32); err != nil {
				yield(nil, err)
				return
			}
		}
		defer func() {
			// As of a loader, nothing is left behind when the loop is over.
			_ = stream.Synchronize(context.Background())
			_ = mem.Free()
		}()
		plan := chunk.Plan{Rows: d.Rows(), ChunkRows: 1, BatchRows: d.batch, Rank: d.rank, World: d.world}
		if d.shuffle {
			plan.Order = chunk.Shuffled
		}
		for b := range plan.EpochFrom(n, first) {
			if d.hook != nil {
				if err := d.hook(n, b.Index); err != nil {
					yield(nil, err)
					return
				}
			}
			blocks := toyBlocks(d.layers, b.Rows)
			out := &loader.Batch{Index: b.Index, Rows: b.Rows, GlobalRows: b.GlobalRows,
				Labels: labels.Slice(0, b.Rows)}
			if d.outputs == 0 {
				out.Labels = labels.Columns(0, b.Rows)
			}
			var y []byte
			var rows []uint32
			host := make([][]float32, len(d.x))
			for k := range host {
				host[k] = make([]float32, 0, b.Rows*d.width(k))
			}
			for _, span := range b.Spans() {
				for r := span.First; r < span.First+int64(span.Rows); r++ {
					y, rows = append(y, d.labelsOf(int(r))...), append(rows, uint32(r))
					for k, x := range d.x {
						host[k] = append(host[k], x[int(r)*d.width(k):int(r+1)*d.width(k)]...)
					}
				}
			}
			if d.spoils != nil && d.spoils(n, b.Index) {
				for _, x := range host {
					for i := range x {
						x[i] = float32(math.NaN())
					}
				}
			}
			for _, block := range blocks {
				onDevice, err := block.upload(&mem, stream)
				if err != nil {
					yield(nil, err)
					return
				}
				out.Blocks = append(out.Blocks, onDevice)
			}
			for k := range d.x {
				if d.layers > 0 { // the rows of the batch, and others
					host[k] = d.x[k][:blocks[0].Sources*d.features]
				}
				if d.sparse {
					x, elements, err := toySparse(&mem, stream, host[k], d.features)
					if err != nil {
						yield(nil, err)
						return
					}
					out.X, out.Sparse = append(out.X, x), elements
					continue
				}
				out.X = append(out.X, xs[k].Slice(0, len(host[k])/d.width(k)))
				if err := stage.upload(out.X[k], dtype.BytesOf(host[k])); err != nil {
					yield(nil, err)
					return
				}
			}
			err := stage.upload(out.Labels, y)
			if err == nil && d.numbered {
				out.RowNumbers = numbers.Columns(0, b.Rows)
				err = stage.upload(out.RowNumbers, dtype.BytesOf(rows))
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(out, nil) {
				return
			}
			// The buffers are one batch's: wait for its work.
			if err := stream.Synchronize(ctx); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// stager copies to a device through pinned memory that it keeps.
type stager struct {
	mem    *gds.Memory
	stream gds.Stream
	pinned gds.Buffer
}

func (s *stager) upload(to gds.Tensor, from []byte) error {
	if bytes := int64(len(from)); s.pinned == nil || s.pinned.Len() < bytes {
		if s.pinned = s.mem.Pin("toy", bytes); s.mem.Err != nil {
			return s.mem.Err
		}
	}
	copy(s.pinned.Bytes(), from)
	s.stream.Copy(to, gds.NewTensor(s.pinned, to.Rows, to.Cols, to.DType))
	return s.stream.Synchronize(context.Background())
}

// toySparse brings the elements of a matrix that are not zero to a device.
func toySparse(mem *gds.Memory, stream gds.Stream, x []float32, columns int) (gds.Tensor, *loader.SparseRows, error) {
	b := toyBlock{Offsets: []uint32{0}} // from columns to rows
	for i, v := range x {
		if v != 0 {
			b.Indices, b.Weights = append(b.Indices, uint32(i%columns)), append(b.Weights, v)
		}
		if (i+1)%columns == 0 {
			b.Offsets = append(b.Offsets, uint32(len(b.Indices)))
		}
	}
	onDevice, err := b.upload(mem, stream)
	shape := gds.Tensor{Rows: len(x) / columns, Cols: columns, Stride: columns, DType: gds.Float32}
	return shape, &loader.SparseRows{Cols: columns, Offsets: onDevice.Offsets, Columns: onDevice.Indices,
		Values: onDevice.Weights}, err
}

// toyMoreSources is how many more nodes the sources of a toy's block are than its destinations.
const toyMoreSources = 5

// toyBlocks are blocks of rows at the end. Destination v has v % 4 edges.
func toyBlocks(layers, rows int) (blocks []toyBlock) {
	for i := range layers {
		b := toyBlock{Destinations: rows + (layers-1-i)*toyMoreSources, Offsets: []uint32{0}}
		b.Sources = b.Destinations + toyMoreSources
		for v := range b.Destinations {
			for e := range v % 4 {
				b.Indices = append(b.Indices, uint32(rng.Hash(uint64(i), uint64(v*4+e))%uint64(b.Sources)))
				b.Weights = append(b.Weights, 0.5+rng.Float32(rng.Hash(uint64(i+100), uint64(v*4+e))))
			}
			b.Offsets = append(b.Offsets, uint32(len(b.Indices)))
		}
		blocks = append(blocks, b)
	}
	return blocks
}

type toyBlock sampling.Block

func (t toyBlock) upload(mem *gds.Memory, stream gds.Stream) (b loader.Block, err error) {
	b = loader.Block{Destinations: t.Destinations, Sources: t.Sources}
	for _, v := range []struct {
		to   *gds.Tensor
		kind gds.DType
		from []byte
		n    int
	}{{&b.Offsets, gds.Uint32, dtype.BytesOf(t.Offsets), len(t.Offsets)},
		{&b.Indices, gds.Uint32, dtype.BytesOf(t.Indices), len(t.Indices)},
		{&b.Weights, gds.Float32, dtype.BytesOf(t.Weights), len(t.Weights)}} {
		if *v.to, err = matrixOf(mem, "toy", 1, v.n, v.kind); err != nil {
			return b, err
		}
		if err = gds.Upload(mem.Device, stream, *v.to, v.from); err != nil {
			return b, err
		}
	}
	return b, nil
}

// eachEdge calls do for the edges of a block, in order.
func (t toyBlock) eachEdge(do func(v, u int, weight float64)) {
	for v := range t.Destinations {
		for e := t.Offsets[v]; e < t.Offsets[v+1]; e++ {
			do(v, int(t.Indices[e]), float64(t.Weights[e]))
		}
	}
}

// withTarget gives rows other labels, of which some are missing: mixtures of those that the classes
// would be, as far as they agree with the features.
func (d *toy) withTarget(target Target, outputs int) *toy {
	other := *d
	if target == ClassTarget {
		return &other
	}
	other.outputs = outputs
	for i, label := range d.labels {
		for j := range outputs {
			u := rng.Float32(rng.Hash(77, uint64(i*outputs+j)))
			missing := label < 0 || u < 0.1
			switch {
			case target == LabelsTarget && missing:
				other.several = append(other.several, -1)
			case target == LabelsTarget:
				other.several = append(other.several, int8(int(label)>>(j%2)&1))
			case missing:
				other.values = append(other.values, float32(math.NaN()))
			default:
				other.values = append(other.values, 4*float32(j+1)+float32(label)+u)
			}
		}
	}
	return &other
}

// labelsOf are the labels of a row, as bytes.
func (d *toy) labelsOf(row int) []byte {
	lo, hi := row*d.outputs, (row+1)*d.outputs
	switch {
	case d.several != nil:
		return dtype.BytesOf(d.several[lo:hi])
	case d.values != nil:
		return dtype.BytesOf(d.values[lo:hi])
	}
	return dtype.BytesOf(d.labels[row : row+1])
}

func (d *toy) labelMemory(mem *gds.Memory) (gds.Tensor, error) {
	switch {
	case d.several != nil:
		return matrixOf(mem, "toy", d.batch, d.outputs, gds.Int8)
	case d.values != nil:
		return matrixOf(mem, "toy", d.batch, d.outputs, gds.Float32)
	}
	return matrixOf(mem, "toy", 1, d.batch, gds.Int32)
}

// deal makes ranks of devices that share batches of so many rows.
func deal(devices []gds.Device, batch int, train, valid, test *toy) []Rank {
	share := func(d *toy, rank int) Epocher {
		if d == nil {
			return nil
		}
		fed := d.feed(devices[rank], batch)
		fed.rank, fed.world = rank, len(devices)
		return fed
	}
	ranks := make([]Rank, len(devices))
	for i := range ranks {
		ranks[i] = Rank{devices[i], Data{Train: share(train, i), Valid: share(valid, i), Test: share(test, i),
			BatchRows: (batch-1)/len(devices) + 1}}
	}
	return ranks
}

// noise is a toy of random features and labels.
func noise(seed uint64, rows, matrices, features, classes int) *toy {
	d := &toy{features: features}
	for k := range matrices {
		x := make([]float32, rows*features)
		for i := range x {
			x[i] = float32(rng.Normal(seed+uint64(k), uint64(i)))
		}
		d.x = append(d.x, x)
	}
	for i := range rows {
		d.labels = append(d.labels, int32(rng.Hash(seed+1000, uint64(i))%uint64(classes)))
	}
	return d
}

// noiseFor is noise with the matrices of a model.
func noiseFor(seed uint64, rows int, spec Spec) *toy {
	d := noise(seed, rows, len(spec.Matrices), spec.Features, spec.Classes)
	for k := range d.x {
		width := spec.Width(k)
		if width != spec.Features {
			d.x[k] = noise(seed+uint64(k), rows, 1, width, spec.Classes).x[0]
		}
		d.widths = append(d.widths, width)
	}
	return d
}

// clusters is a toy whose classes lie around points far from each other, in
// every matrix; a fraction of the labels is wrong.
func clusters(seed uint64, rows, matrices, features, classes int, wrong float64) *toy {
	d := noise(seed, rows, matrices, features, classes)
	for k, x := range d.x {
		for r := range rows {
			for j := range features {
				centre := rng.Normal(7000+uint64(k), uint64(int(d.labels[r])*features+j)) // the same for every seed
				x[r*features+j] = float32(3*centre) + 0.5*x[r*features+j]
			}
		}
	}
	for r := range rows {
		if rng.Float64(rng.Hash(seed+2000, uint64(r))) < wrong {
			d.labels[r] = int32(rng.Hash(seed+3000, uint64(r)) % uint64(classes))
		}
	}
	return d
}

func hop(operator string, r int) MatrixID { return MatrixID{Operator: operator, Hop: r} }

// hops names the matrices of one operator up to hop r, the input first.
func hops(operator string, r int) []MatrixID {
	ids := []MatrixID{hop("x", 0)}
	for i := range r {
		ids = append(ids, hop(operator, i+1))
	}
	return ids
}

func mustFit(t *testing.T, dev gds.Device, spec Spec, data Data, o Options) *Result {
	t.Helper()
	return mustFitRanks(t, []Rank{{dev, data}}, spec, o)
}

func mustFitRanks(t *testing.T, ranks []Rank, spec Spec, o Options) *Result {
	t.Helper()
	r, err := Fit(t.Context(), ranks, spec, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sameBits(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}

// signOf are settings of SIGN.
func signOf(hidden, layers int, dropout float64) Values {
	return Values{"hidden": float64(hidden), "layers": float64(layers), "dropout": dropout}
}

// hogaOf are settings of HOGA.
func hogaOf(hidden, layers, heads int, dropout float64) Values {
	return Values{"hidden": float64(hidden), "layers": float64(layers), "heads": float64(heads), "dropout": dropout}
}

// toyHOGA and its like are for three classes of four features.
var (
	toyHOGA  = Spec{Model: "hoga", Matrices: hops("sym", 2), Features: 4, Classes: 3, Settings: hogaOf(6, 1, 2, 0)}
	toyNARS  = Spec{Model: "nars", Matrices: hops("sym", 2), Features: 4, Classes: 3, Settings: signOf(6, 3, 0)}
	toyGAMLP = Spec{Model: "gamlp", Matrices: hops("sym", 2), Features: 4, Classes: 3, Settings: signOf(6, 3, 0)}
	toySSGC  = Spec{Model: "ssgc", Matrices: hops("sym", 2), Features: 4, Classes: 3}
)

// taskFor is what networks of classes do by default.
func taskFor(t testing.TB, train bool) task {
	t.Helper()
	w, err := Options{}.task(Spec{}, train)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

package preprop

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
	"github.com/hopfeed/hopfeed/preprop/plan"
)

// typedMaker makes rows of the store of a typed graph: by a job that stores one matrix of chosen nodes.
type typedMaker struct{ *typedJob }

func openTypedMaker(ctx context.Context, fsys vfs.FS, graphDir, storeDir string, m *format.Manifest,
	o Options) (maker, error) {
	for _, one := range m.Operators {
		parsed, err := operator.Parse(one.Name)
		if err != nil {
			return nil, err
		}
		if o.Operators = []operator.Operator{{Name: parsed.Name}}; !parsed.Labels {
			o.Metapaths = append(o.Metapaths, parsed.Metapath)
		}
	}
	o.Hops, o.Force = 0, true // the store is not opened as one that the job adds to
	made, err := openJob(fsys, graphDir, storeDir, o)
	if err != nil {
		return nil, err
	}
	t := made.(*typedJob)
	if m.Input["graph"] != t.typed.Fingerprint {
		err = errOtherGraph(storeDir, graphDir)
	} else {
		err = t.chooseRows(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return typedMaker{t}, nil
}

// repairDir is where a repair makes rows. A job of the store removes what a killed repair has left there.
func repairDir(storeDir string) string { return filepath.Join(scratchInStore(storeDir), "step-repair") }

func (t typedMaker) rowTable() *format.RowTable { return t.table }

func (t typedMaker) computeRows(ctx context.Context, id format.MatrixID, nodes []uint32) (rows []byte, err error) {
	width := t.layout.Of(id).Features * t.options.DType.Size()
	o := Options{Nodes: slices.Sorted(slices.Values(nodes)), DType: t.options.DType, Split: t.options.Split,
		Seed: t.options.Seed, Threads: t.options.Threads, MemoryBytes: t.options.MemoryBytes, Force: true,
		Progress: t.options.Progress}
	if o.MemoryBytes > 0 { // the row table, the nodes twice, and the rows twice, as jobContext.computeRows says
		o.MemoryBytes -= plan.PickedBytes(&t.graph.Manifest, t.table.Rows) + 2*int64(len(nodes)*(width+4))
		if o.MemoryBytes <= 0 {
			return nil, plan.ErrDoesNotFit(t.options.MemoryBytes, t.options.MemoryBytes-o.MemoryBytes)
		}
	}
	if id != format.Input {
		applied, err := operator.Parse(id.Operator)
		if err != nil {
			return nil, err
		}
		o.Operators = []operator.Operator{{Name: applied.Name}}
		if applied.Labels {
			o.LabelHops, o.labelPaths = t.options.LabelHops, []string{applied.Metapath}
		} else {
			o.Metapaths = []string{applied.Metapath}
		}
	}
	dir := repairDir(t.storeDir)
	if err := removeStep(t.fsys, dir); err != nil {
		return nil, err
	}
	if _, err := propagate(ctx, t.fsys.FS, t.graphDir, dir, o); err != nil {
		return nil, errors.Join(err, removeStep(t.fsys, dir))
	}
	rows, err = rowsInOrder(ctx, t.fsys, dir, id, nodes)
	return rows, errors.Join(err, removeStep(t.fsys, dir))
}

// rowsInOrder reads the rows of a matrix of a store, of these nodes.
func rowsInOrder(ctx context.Context, fsys vfs.FS, dir string, id format.MatrixID, nodes []uint32) (rows []byte,
	err error) {
	d, err := format.OpenStore(fsys, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	m, err := d.Matrix(id)
	if err != nil {
		return nil, err
	}
	rowOf, err := rowsOf(ctx, d, d.Manifest.Nodes)
	if err != nil {
		return nil, err
	}
	from := format.RowReader{Matrix: m}
	rows = make([]byte, 0, len(nodes)*m.Layout.Features*m.Layout.DType.Size())
	for _, v := range nodes {
		row, err := from.Row(int64(rowOf[v]))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row...)
	}
	return rows, nil
}
